//! Processes: fork, the environment, names, the terminal session.
//!
//! Called by the master of the `server` crate, while it has one thread. Holds no policy: the master
//! decides when to fork and what a child's death means.
//!
//! Ownership argument for the unsafe code: `fork()` and changes of the environment are sound in a
//! process with a single thread, as no other thread can hold a lock (the allocator's, the
//! environment's) or read the environment meanwhile. Both functions check that and refuse
//! otherwise; no other thread can appear between the check and the call, because only this thread
//! could start one. Threads from before `main` do not count: they belong to an emulator or a
//! similar tool, which runs none of this program's code on them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

pub use nix::sys::wait::WaitStatus;
use nix::sys::wait::{Id, WaitPidFlag};
use nix::unistd::{ForkResult, Pid};

/// Which side of a [`fork`] the caller is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The calling process; holds the child's process id.
    Parent(u32),
    /// The new process.
    Child,
}

/// Duplicates the process.
///
/// # Errors
/// `EPERM` with an explanation when the process has more than one thread; otherwise the kernel's
/// error.
pub fn fork() -> io::Result<Fork> {
    require_single_thread("fork")?;
    // SAFETY: the process has one thread (checked above), so the child inherits no lock held by a
    // thread that it lacks.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Fork::Parent(child.as_raw() as u32)),
        ForkResult::Child => Ok(Fork::Child),
    }
}

/// Runs `work` in a separate process that has no descriptors but the standard ones and `keep`, and
/// exits afterwards. For calls that a disk may never complete. Returns the process id.
///
/// # Errors
/// As for [`fork`].
pub fn fork_alone(keep: Vec<OwnedFd>, work: impl FnOnce(Vec<OwnedFd>)) -> io::Result<u32> {
    match fork()? {
        Fork::Parent(pid) => Ok(pid),
        Fork::Child => {
            let mut kept: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd().cast_unsigned()).collect();
            kept.sort_unstable();
            let mut first = 3;
            for next in kept.into_iter().chain([u32::MAX]) {
                if first < next {
                    // SAFETY: takes numbers only. The code that owned the descriptors never runs again in
                    // this process: it ends below without unwinding or dropping anything of theirs.
                    unsafe { libc::close_range(first, next - 1, 0) };
                }
                first = first.max(next.saturating_add(1));
            }
            // A panic is not reported.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(keep)));
            // SAFETY: ends the process at once; no memory is touched any more.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Like [`fork_alone`], for work with a result, which is written to `out`.
///
/// # Errors
/// As for [`fork`].
pub fn fork_for(out: OwnedFd, work: impl FnOnce() -> String) -> io::Result<u32> {
    fork_alone(vec![out], |kept| {
        let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let text = text.unwrap_or_else(|_| String::from("a panic"));
        for out in kept {
            let _ = rustix::io::write(&out, text.as_bytes());
        }
    })
}

/// Waits for a child that is about to exit.
pub fn wait_for(pid: u32) {
    let Ok(pid) = i32::try_from(pid) else { return };
    let _ = nix::sys::wait::waitpid(Pid::from_raw(pid), None);
}

/// Replaces the whole environment of the process by `variables`.
///
/// # Errors
/// When the process has more than one thread.
pub fn replace_environment(variables: &[(OsString, OsString)]) -> io::Result<()> {
    require_single_thread("change the environment")?;
    let present: Vec<OsString> = std::env::vars_os().map(|(name, _)| name).collect();
    for name in present {
        // SAFETY: one thread (checked above), so nothing reads the environment concurrently.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in variables {
        if name.is_empty() || name.as_bytes().contains(&b'=') || has_nul(name) || has_nul(value) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: as above.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

fn has_nul(text: &OsStr) -> bool {
    text.as_bytes().contains(&0)
}

fn require_single_thread(what: &str) -> io::Result<()> {
    match thread_count()? {
        1 => Ok(()),
        n => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("cannot {what} with {n} threads"),
        )),
    }
}

/// Threads that were there before this program could start any.
static FOREIGN_THREADS: AtomicUsize = AtomicUsize::new(0);

/// To be called first in `main`, before a thread is started: threads that exist by then are not
/// this program's, and are not counted. An emulator (qemu's user mode) or an instrumented program
/// (sanitizers) has such threads. They never hold a lock of this program and never read its
/// environment.
pub fn ignore_foreign_threads() {
    let foreign = all_threads().map_or(0, |count| count.saturating_sub(1));
    FOREIGN_THREADS.store(foreign, Relaxed);
}

/// Number of threads of this process, except for foreign ones.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn thread_count() -> io::Result<usize> {
    Ok(all_threads()?.saturating_sub(FOREIGN_THREADS.load(Relaxed)))
}

fn all_threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Takes the exit status of one child that has exited, if any. Never waits.
///
/// # Errors
/// Having no children (`ECHILD`) is not an error: the result is `None`.
pub fn reap() -> io::Result<Option<(u32, WaitStatus)>> {
    match nix::sys::wait::waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::StillAlive) => Ok(None),
        Ok(status) => Ok(status.pid().map(|pid| (pid.as_raw() as u32, status))),
        Err(nix::errno::Errno::ECHILD) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends `signal` to the process `pid`.
///
/// # Errors
/// `ESRCH` when there is no such process, `EPERM` when it belongs to another user.
pub fn kill(pid: u32, signal: nix::sys::signal::Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(nix::sys::signal::kill(Pid::from_raw(pid), signal)?)
}

/// Ends all processes of a group (`SIGKILL`), by the number of its leader.
///
/// # Errors
/// `ESRCH` when there is no such group, `EPERM` when none of its processes may be ended.
pub fn kill_group(leader: u32) -> io::Result<()> {
    // The group 1 would be every process.
    let leader = i32::try_from(leader).ok().filter(|leader| *leader > 1);
    let leader = leader.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(nix::sys::signal::killpg(Pid::from_raw(leader), nix::sys::signal::Signal::SIGKILL)?)
}

/// Waits until a child has ended, or for this long; its status is not taken. False: it has not ended, or that is not
/// known.
pub fn has_ended_within(child: u32, time: Duration) -> bool {
    let Some(child) = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    let Ok(ended) = rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()) else {
        return false;
    };
    let Ok(time) = rustix::event::Timespec::try_from(time) else { return false };
    let mut ended = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, Some(&time)).is_ok_and(|count| count > 0)
}

/// Whether a process with this id exists, whichever user it belongs to.
pub fn is_alive(pid: u32) -> bool {
    match i32::try_from(pid) {
        Ok(pid) if pid > 0 => {
            nix::sys::signal::kill(Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH)
        }
        _ => false,
    }
}

/// Whether a thread of the process waits in the kernel and can't be interrupted, as for a disk that does not
/// answer (`proc_pid_stat(5)`, state `D`). False where `/proc` does not tell.
pub fn waits_for_disk(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read(thread.path().join("stat")).unwrap_or_default();
        // The name before it, in parentheses, may hold anything.
        let name_end = stat.iter().rposition(|byte| *byte == b')');
        name_end.is_some_and(|end| stat.get(end + 2) == Some(&b'D'))
    })
}

/// Re-enables core dumps after a change of user (`PR_SET_DUMPABLE`).
///
/// # Errors
/// The kernel's.
pub fn set_dumpable() -> io::Result<()> {
    Ok(nix::sys::prctl::set_dumpable(true)?)
}

/// No program that the process executes gains privileges, such as by a set-user-ID bit
/// (`PR_SET_NO_NEW_PRIVS`). Threads that are started later inherit it.
///
/// # Errors
/// The kernel's.
pub fn set_no_new_privileges() -> io::Result<()> {
    Ok(nix::sys::prctl::set_no_new_privs()?)
}

/// Names the calling thread (the process, for its main thread) in `ps` and `top`: at most 15 bytes
/// are kept.
pub fn set_name(name: &str) {
    let kept: Vec<u8> = name.bytes().filter(|b| *b != 0).take(15).collect();
    // A name without NUL cannot be refused; and since a name is only a convenience, errors are
    // ignored.
    if let Ok(name) = std::ffi::CString::new(kept) {
        let _ = nix::sys::prctl::set_name(&name);
    }
}

/// Leaves the controlling terminal (`setsid`), as a daemon does after its fork.
///
/// # Errors
/// `EPERM` when the process already leads a group.
pub fn new_session() -> io::Result<()> {
    nix::unistd::setsid()?;
    Ok(())
}

/// Sets the file mode creation mask.
pub fn set_umask(mask: u32) {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
}

/// Points standard input and output to `/dev/null`.
///
/// # Errors
/// When `/dev/null` cannot be opened.
pub fn null_stdio() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// Redirects standard error to `file`.
///
/// # Errors
/// The kernel's.
pub fn redirect_stderr(file: impl std::os::fd::AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(file)?)
}

/// This machine's host name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether the process has the rights of root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_to_fork_with_threads() {
        // The test harness runs tests on a thread of their own, beside the main one.
        assert!(thread_count().unwrap() >= 2);
        assert_eq!(fork().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(replace_environment(&[]).is_err());
    }

    /// In a process of its own: the number is the whole process's.
    #[test]
    fn foreign_threads_are_not_counted() {
        const CHILD: &str = "NOWAIT_FOREIGN_THREADS_CHILD";
        if std::env::var_os(CHILD).is_none() {
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "process::tests::foreign_threads_are_not_counted"])
                .env(CHILD, "1")
                .stdout(std::process::Stdio::null())
                .status();
            assert!(status.unwrap().success());
            return;
        }
        // Those of the test harness are foreign here.
        ignore_foreign_threads();
        assert_eq!(thread_count().unwrap(), 1);
        require_single_thread("fork").unwrap();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let own = std::thread::spawn(move || receiver.recv());
        assert_eq!(thread_count().unwrap(), 2);
        assert!(require_single_thread("fork").is_err());
        drop(sender);
        assert!(own.join().unwrap().is_err());
    }

    #[test]
    fn kill_of_impossible_pids_is_esrch() {
        for pid in [0, u32::MAX] {
            let error = kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        }
        for leader in [0, 1, u32::MAX] {
            assert_eq!(kill_group(leader).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        }
    }
}
