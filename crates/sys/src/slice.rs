//! The time slice of a thread, which determines how soon it runs after waking up.
//!
//! Called by the threads of event loops and of pools when they start. Holds no policy.
//!
//! Ownership argument for the unsafe code: both system calls get one structure on the stack of their
//! caller, with its size, and keep no pointer to it.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Sets the slice of the calling thread: for how long the scheduler lets it run before others have their
/// turn; zero is the system's default. A thread that wakes up takes the place of one with a longer slice.
/// The share of the processor stays the same. Threads that it starts inherit the slice.
///
/// sched_setattr(2), `sched_runtime`: between 0.1 and 100 ms. Linux before 6.12 ignores it, and threads
/// with a real-time or deadline policy have none.
///
/// # Errors
/// Those of sched_getattr(2) and sched_setattr(2), such as `EPERM` in a container that forbids them.
pub fn set(slice: Duration) -> io::Result<()> {
    let bytes = size_of::<libc::sched_attr>() as libc::c_uint;
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    // SAFETY: the kernel writes at most `bytes`, which the attributes have.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), bytes, 0 as libc::c_uint)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all are integers, for which zero is a value; the kernel wrote the rest.
    let mut attributes = unsafe { attributes.assume_init() };
    if !matches!(attributes.sched_policy as libc::c_int, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return Ok(());
    }
    attributes.size = bytes;
    attributes.sched_runtime = slice.as_nanos().try_into().unwrap_or(u64::MAX);
    // SAFETY: the kernel reads `size` bytes of the attributes, which they have.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0 as libc::c_uint)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slice of a thread as the kernel tells it; zero before Linux 6.12.
    fn own() -> u64 {
        let bytes = size_of::<libc::sched_attr>() as libc::c_uint;
        let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
        // SAFETY: as in `set`.
        unsafe {
            libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), bytes, 0);
            attributes.assume_init().sched_runtime
        }
    }

    #[test]
    fn a_thread_has_the_slice_that_it_sets() {
        std::thread::spawn(|| {
            let default = own();
            set(Duration::from_micros(300)).unwrap();
            assert!(matches!(own(), 0 | 300_000), "{}", own());
            set(Duration::ZERO).unwrap();
            assert_eq!(own(), default);
        })
        .join()
        .unwrap();
    }
}
