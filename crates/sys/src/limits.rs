//! Resource limits, priority and processor affinity.
//!
//! Called by the server process at startup, with the values of `worker_rlimit_nofile`,
//! `worker_rlimit_core`, `worker_priority` and `worker_cpu_affinity`.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;

/// Processors that an affinity mask can name.
pub const CPUS_MAX: usize = CpuSet::MAX_CPU;

/// The limits of open files: soft and hard; `None` is "unlimited".
pub fn open_files() -> (Option<u64>, Option<u64>) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    (limit.current, limit.maximum)
}

/// Sets both limits of open files.
///
/// # Errors
/// `EPERM` when an unprivileged process raises the hard limit.
pub fn set_open_files(count: u64) -> io::Result<()> {
    set(Resource::Nofile, count)
}

/// The system-wide maximum of open files per process; `None` if unknown.
pub fn open_files_max() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/fs/nr_open").ok()?.trim().parse().ok()
}

/// Grows the descriptor table of this process to at least `count` places; it never shrinks. `any`
/// is an open descriptor. A process whose threads share the table waits for an RCU grace period in
/// each call that grows it.
///
/// # Errors
/// `EINVAL` when `count` exceeds the limit of open files; `EMFILE` when its last place is taken
/// (then the table is large enough); `ENOMEM`.
pub fn grow_descriptor_table(any: BorrowedFd<'_>, count: u32) -> io::Result<()> {
    let last = i32::try_from(count.saturating_sub(1)).unwrap_or(i32::MAX);
    drop(rustix::io::fcntl_dupfd_cloexec(any, last)?);
    Ok(())
}

/// Sets both limits of the size of a core dump, bytes.
///
/// # Errors
/// `EPERM` when an unprivileged process raises the hard limit.
pub fn set_core_bytes(bytes: u64) -> io::Result<()> {
    set(Resource::Core, bytes)
}

fn set(resource: Resource, value: u64) -> io::Result<()> {
    Ok(rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?)
}

/// Sets the nice value of the calling thread; threads that it starts inherit it.
///
/// # Errors
/// `EACCES` when an unprivileged process asks for a higher priority.
pub fn set_priority(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// Adds to the nice value of the calling thread; threads that it starts inherit the sum.
///
/// # Errors
/// Those of nice(2), such as `EPERM` when an unprivileged process asks for a higher priority.
pub fn add_nice(more: i32) -> io::Result<()> {
    rustix::process::nice(more)?;
    Ok(())
}

/// Binds the calling thread to the processors given (numbers of [`CPUS_MAX`] and above are
/// ignored).
///
/// # Errors
/// `EINVAL` when none of them exists.
pub fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CPUS_MAX) {
        set.set(*cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Number of processors online, at least 1 (what `worker_processes auto` means).
pub fn cpu_count() -> usize {
    match nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN) {
        Ok(Some(count)) if count > 0 => count as usize,
        _ => 1,
    }
}
