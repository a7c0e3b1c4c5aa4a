//! A limit of memory: a control group of the kernel, of either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::skip::skip;
use crate::wait::{PATIENCE, try_until};

/// The control group; it is removed when it is dropped, if nothing runs in it any more.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// A group of at most `bytes`. `None`, and said aloud: this machine has none for us.
    pub fn make(bytes: u64) -> Option<Cgroup> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("nowait-test-{}-{number}", std::process::id());
        let places =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (parent, limit) in places {
            let group = Cgroup(Path::new(parent).join(&name));
            // The kernel makes the files of a group. Elsewhere there is nothing to write to.
            if fs::create_dir(&group.0).is_ok()
                && group.0.join(limit).exists()
                && fs::write(group.0.join(limit), bytes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        skip("cgroup", "no control group with a limit of memory can be made (root only)");
        None
    }

    /// The file that takes the numbers of processes which shall belong to the group.
    pub fn members(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Makes the kernel take back as much of the group's memory as it can, such as pages of files that
    /// processes have mapped.
    pub fn reclaim(&self) {
        // Version 1, then version 2. The write fails if less than was asked for could be taken.
        for (file, bytes) in [("memory.force_empty", "0"), ("memory.reclaim", "1G")] {
            if self.0.join(file).exists() {
                let _ = fs::write(self.0.join(file), bytes);
            }
        }
    }

    /// Counts what this process allocates from now on.
    pub fn take_in(&self, pid: u32) {
        fs::write(self.members(), pid.to_string()).expect("a process changes its group");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that have just ended may still be on their way out.
        let _ = try_until(PATIENCE, || {
            (!self.0.exists() || fs::remove_dir(&self.0).is_ok()).then_some(())
        });
    }
}
