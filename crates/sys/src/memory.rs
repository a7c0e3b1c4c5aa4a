//! The allocator: returning memory to the system. How much memory this process may use.
//!
//! Called by the control thread of the `server` crate, at its start and after a peak of connections. Holds no
//! policy.
//!
//! Ownership argument for the unsafe code: `malloc_trim` takes the allocator's own locks and
//! touches only unallocated memory.

use std::path::Path;

/// How much memory this process may use, bytes: the least of the machine's memory and of the limits of its
/// control groups (of either version), as far as they can be read.
pub fn available_max() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups.lines().filter_map(group_limit).fold(machine, u64::min)
}

/// The limit that a line of `/proc/self/cgroup` leads to, of that group and those around it.
fn group_limit(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let group = Path::new(path.trim_start_matches('/'));
    let limit = |group: &Path| -> Option<u64> {
        let text = std::fs::read_to_string(Path::new(root).join(group).join(file)).ok()?;
        // Version 2 says "max" where there is none, version 1 a number above all memory.
        text.trim().parse().ok()
    };
    group.ancestors().filter_map(limit).min()
}

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
