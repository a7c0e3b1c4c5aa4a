//! The allocator: returning memory to the system.
//!
//! Called by the control thread of the `server` crate, after a peak of connections. Holds no
//! policy.
//!
//! Ownership argument for the unsafe code: `malloc_trim` takes the allocator's own locks and
//! touches only unallocated memory.

/// Returns free memory of the allocator to the system, in whole pages. Takes some milliseconds per
/// 100 MB; an allocation by another thread may wait for the arena that this thread allocates from.
/// Does nothing with a C library that returns memory by itself.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
