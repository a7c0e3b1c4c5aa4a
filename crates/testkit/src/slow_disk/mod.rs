//! A disk that a test controls operation by operation.
//!
//! [`SlowDisk`] is a FUSE file system that passes operations through to an ordinary directory under
//! the control of the test: operations can have a latency (with seeded spikes, and a limited number
//! of heads), fail with an error, or be *held* until the test opens the [`Gate`]. Held operations
//! make tests causal instead of timed: no cold data can be served while the gate is closed, so any
//! response did not wait for the disk. Rules can be limited to a directory.
//!
//! [`DiskImage`] puts an ordinary ext4, xfs or btrfs on a loop device over it: for the server a
//! local disk with the kernel's page cache, inodes and extent maps, whose block reads and writes
//! the test controls.
//!
//! Both need root and `/dev/fuse`; [`SlowDisk::or_skip`] and [`DiskImage::or_skip`] report it and
//! return nothing where that is missing.
//!
//! The daemon runs in threads of the test process that never touch the mount. The test itself must
//! not touch the mount (not even `stat`) while a gate is closed, as it would wait for itself. On
//! drop every wait ends and the file system is unmounted, by force if necessary; a watchdog process
//! does the same for a test process that is killed.

mod control;
mod image;
pub(crate) mod mounts;
mod ops;
mod passthrough;
mod pin;
mod quiet;
mod store;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};

pub use control::{Latency, Spike};
pub use image::{DiskImage, ImageFormat, ImageOptions};
pub use mounts::evict;
pub use ops::{OpScope, Ops};
pub use pin::{PinnedFile, pin};
pub use quiet::{Quiet, alone, mount_elsewhere, quiet};

use crate::skip::skip;
use crate::temp::{TempDir, write_below};
use crate::wait::PATIENCE;
use control::DiskControl;
use passthrough::{Caching, Passthrough};
use quiet::while_nobody_measures;

/// Result of an operation that a broken disk cannot execute.
pub const EIO: i32 = 5;
/// Result when the disk is full.
pub const ENOSPC: i32 = 28;

/// Number of threads that execute held or delayed operations.
const WORK_THREADS: usize = 4;
/// Number of threads that receive the kernel's requests.
const SESSION_THREADS: usize = 2;

/// Options of a slow disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// How long the kernel caches names and attributes; 0 asks every time, like a network file
    /// system.
    pub names_cached: Duration,
    /// Whether data read stays in the page cache.
    pub pages_cached: bool,
    /// Seed of latency spikes.
    pub seed: u64,
}

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions { names_cached: Duration::ZERO, pages_cached: true, seed: 1 }
    }
}

/// A mounted slow disk.
pub struct SlowDisk {
    control: Arc<DiskControl>,
    dir: TempDir,
    session: Option<BackgroundSession>,
    workers: Vec<JoinHandle<()>>,
    _watchdog: mounts::Watchdog,
}

impl SlowDisk {
    /// Mounts one; returns nothing and reports the reason where the machine lacks a requirement.
    ///
    /// # Panics
    /// If the machine meets all requirements and mounting fails nevertheless.
    #[track_caller]
    pub fn or_skip(options: DiskOptions) -> Option<SlowDisk> {
        match mounts::missing_for_fuse() {
            Some(missing) => {
                skip("fuse", missing);
                None
            }
            None => Some(SlowDisk::mount(options)),
        }
    }

    #[track_caller]
    fn mount(options: DiskOptions) -> SlowDisk {
        mounts::remove_stale();
        let dir = TempDir::new(mounts::LABEL);
        let (mount_point, backing) = (dir.path().join("disk"), dir.path().join("backing"));
        for path in [&mount_point, &backing] {
            std::fs::create_dir(path).unwrap_or_else(|e| panic!("mkdir {}: {e}", path.display()));
        }
        let control = Arc::new(DiskControl::new(options.seed));
        let caching = Caching { names: options.names_cached, pages: options.pages_cached };
        let filesystem = Passthrough::new(&backing, Arc::clone(&control), caching);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("slow-disk".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        // The server under test runs as another user.
        config.acl = SessionACL::All;
        config.n_threads = Some(SESSION_THREADS);
        let session = while_nobody_measures(|| Session::new(filesystem, &mount_point, &config))
            .and_then(Session::spawn)
            .unwrap_or_else(|e| panic!("mount {}: {e}", mount_point.display()));
        let workers = (0..WORK_THREADS)
            .map(|_| {
                let control = Arc::clone(&control);
                std::thread::spawn(move || control.work())
            })
            .collect();
        SlowDisk {
            control,
            dir,
            session: Some(session),
            workers,
            _watchdog: mounts::Watchdog::over(&mount_point),
        }
    }

    /// The mount point.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// The backing directory; files written there appear on the disk without any operation.
    pub fn backing(&self) -> PathBuf {
        self.dir.path().join("backing")
    }

    /// Writes a file to the backing directory, so that nothing of it is cached.
    #[track_caller]
    pub fn write_cold(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write_below(&self.backing(), relative, content.as_ref());
        self.path().join(relative)
    }

    /// Adds latency to these operations from now on. Latencies of several rules add up.
    pub fn delay(&self, target: impl Into<OpScope>, latency: impl Into<Latency>) {
        self.control.delay(target.into(), latency.into());
    }

    /// Makes these operations fail with `errno` from now on.
    pub fn fail(&self, target: impl Into<OpScope>, errno: i32) {
        self.control.fail(target.into(), errno);
    }

    /// Holds these operations until the gate is opened or dropped.
    #[must_use = "dropping the gate opens it"]
    pub fn hold(&self, target: impl Into<OpScope>) -> Gate {
        Gate {
            number: self.control.hold(target.into()),
            control: Arc::clone(&self.control),
            open: false,
        }
    }

    /// How many delayed operations the disk processes at a time: 1 is a disk with one head, 0 (the
    /// default) any number.
    pub fn set_heads(&self, n: usize) {
        self.control.set_heads(n);
    }

    /// Ends every latency, failure and hold; waiting operations are executed.
    pub fn heal(&self) {
        self.control.heal();
    }

    /// Total number of operations of these kinds so far.
    pub fn seen(&self, ops: Ops) -> u64 {
        self.control.seen(ops)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.control.heal();
        if !mounts::unmount(&self.path()) {
            // A mounted directory must not be removed file by file.
            self.dir.keep();
        }
        self.control.stop();
        for worker in self.workers.drain(..) {
            // A work thread that panicked has already reported it.
            let _ = worker.join();
        }
        if let Some(session) = self.session.take() {
            // Ends when the kernel has closed the connection, as a result of the unmount.
            drop(session);
        }
    }
}

impl std::fmt::Debug for SlowDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowDisk").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// A hold on operations of a slow disk. While it exists, no matching operation completes.
#[must_use = "dropping the gate opens it"]
pub struct Gate {
    control: Arc<DiskControl>,
    number: u64,
    open: bool,
}

impl Gate {
    /// Number of operations currently waiting at it.
    pub fn waiting(&self) -> usize {
        self.control.waiting(self.number)
    }

    /// Waits until at least `n` operations wait at it.
    ///
    /// # Panics
    /// If they do not arrive in time.
    #[track_caller]
    pub fn wait_waiting(&self, n: usize) {
        assert!(
            self.control.wait_waiting(self.number, n, PATIENCE),
            "{} of {n} expected operations wait at the gate after {PATIENCE:?}",
            self.waiting()
        );
    }

    /// Whether at least `n` operations arrive within `patience`.
    pub fn comes_to_wait(&self, n: usize, patience: Duration) -> bool {
        self.control.wait_waiting(self.number, n, patience)
    }

    /// Releases all waiting and future operations.
    pub fn open(mut self) {
        self.let_go(Ok(()));
    }

    /// Fails the waiting operations with an error; later ones pass.
    pub fn fail(mut self, errno: i32) {
        self.let_go(Err(errno));
    }

    fn let_go(&mut self, verdict: control::OpResult) {
        self.open = true;
        self.control.let_go(self.number, verdict);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if !self.open {
            self.let_go(Ok(()));
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// Root of the slow disk's private files; for [`DiskImage`].
pub(crate) fn dir_of(disk: &SlowDisk) -> &Path {
    disk.dir.path()
}
