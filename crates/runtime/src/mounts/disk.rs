//! What the tasks of pools do on a file system: how many wait for a thread, how many are in progress, since when
//! none has ended, and how long they take. It tells which disk is slow.
//!
//! A [`DiskTask`] is made where a file operation is handed to a pool, and travels with it. Operations on the loop
//! don't wait, and are only counted ([`super::MountCounters`]). Never: waits, allocates.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Mount, clock_ms};
use crate::histogram::{Histogram, HistogramSnapshot, RecentTimes};
use crate::pool::Op;

/// The kinds of operations that are measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskUse {
    /// Looks up or reads.
    Read,
    /// Changes the file system.
    Write,
}

impl DiskUse {
    pub(crate) fn of(op: Op) -> DiskUse {
        match op {
            Op::Open | Op::Stat | Op::Read | Op::Send | Op::ReadDir | Op::Blocking => DiskUse::Read,
            Op::Create | Op::Write | Op::Rename | Op::Unlink | Op::Mkdir | Op::Sync | Op::Close => {
                DiskUse::Write
            }
        }
    }
}

/// The live state of a disk.
#[derive(Debug, Default)]
pub(crate) struct DiskLoad {
    waiting: AtomicU64,
    busy: AtomicU64,
    /// When an operation last ended, or the first of those in progress began: [`clock_ms`].
    progress_ms: AtomicU64,
    errors: AtomicU64,
    waits: RecentTimes,
    reads: DiskTimes,
    writes: DiskTimes,
}

#[derive(Debug, Default)]
struct DiskTimes {
    all: Histogram,
    recent: RecentTimes,
}

/// Times of operations of one kind.
#[derive(Clone, Debug, Default)]
pub struct DiskTimesSnapshot {
    /// Since the start.
    pub all: HistogramSnapshot,
    /// In the last minute.
    pub recent: HistogramSnapshot,
}

/// What a disk does.
#[derive(Clone, Debug, Default)]
pub struct DiskSnapshot {
    /// Operations that wait for a thread.
    pub waiting: u64,
    /// Operations in progress.
    pub busy: u64,
    /// Time since an operation has ended, if some are in progress: a disk that hangs shows only here.
    pub stalled: Option<Duration>,
    /// Operations that have failed because of the disk.
    pub errors: u64,
    /// How long operations waited for a thread in the last minute.
    pub waits: HistogramSnapshot,
    /// How long looking up and reading took.
    pub reads: DiskTimesSnapshot,
    /// How long changes took.
    pub writes: DiskTimesSnapshot,
}

impl DiskTimes {
    fn record(&self, time: Duration, now_ms: u64) {
        self.all.record_shared(time);
        self.recent.record(time, now_ms);
    }

    fn snapshot(&self, now_ms: u64) -> DiskTimesSnapshot {
        let mut all = HistogramSnapshot::default();
        all.add(&self.all);
        DiskTimesSnapshot { all, recent: self.recent.snapshot(now_ms) }
    }
}

impl DiskLoad {
    pub(crate) fn snapshot(&self) -> DiskSnapshot {
        let now_ms = clock_ms();
        let (waiting, busy, stalled) = self.load(now_ms);
        DiskSnapshot {
            waiting,
            busy,
            stalled,
            errors: self.errors.load(Relaxed),
            waits: self.waits.snapshot(now_ms),
            reads: self.reads.snapshot(now_ms),
            writes: self.writes.snapshot(now_ms),
        }
    }

    /// Waiting operations, those in progress, and the time without progress.
    fn load(&self, now_ms: u64) -> (u64, u64, Option<Duration>) {
        let busy = self.busy.load(Relaxed);
        let since = now_ms.saturating_sub(self.progress_ms.load(Relaxed));
        let stalled = (busy > 0).then(|| Duration::from_millis(since));
        (self.waiting.load(Relaxed), busy, stalled)
    }

    /// What it has to do now.
    pub(crate) fn busy_disk(&self) -> BusyDisk {
        let (waiting, busy, stalled) = self.load(clock_ms());
        BusyDisk { waiting, busy, stalled }
    }

    fn starts(&self) {
        self.waiting.fetch_sub(1, Relaxed);
        if self.busy.fetch_add(1, Relaxed) == 0 {
            self.progress_ms.store(clock_ms(), Relaxed);
        }
    }

    fn ends(&self, of: DiskUse, time: Duration) {
        let now_ms = clock_ms();
        match of {
            DiskUse::Read => self.reads.record(time, now_ms),
            DiskUse::Write => self.writes.record(time, now_ms),
        }
        self.progress_ms.store(now_ms, Relaxed);
        self.busy.fetch_sub(1, Relaxed);
    }
}

/// The operations that a disk has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyDisk {
    /// How many wait for a thread.
    pub waiting: u64,
    /// How many are in progress.
    pub busy: u64,
    /// Time since one has ended.
    pub stalled: Option<Duration>,
}

impl BusyDisk {
    /// All operations. A task moves from one counter to the other in two steps, so one may be missing.
    pub fn operations(&self) -> u64 {
        self.waiting + self.busy
    }
}

/// An operation on a disk, from its way to a pool to its end. A task that the pool drops leaves the queue.
pub(crate) struct DiskTask {
    load: &'static DiskLoad,
    of: DiskUse,
    submitted: Instant,
    begun: Option<Instant>,
}

impl DiskTask {
    /// An operation that is about to be handed to a pool.
    pub(crate) fn new(mount: &'static Mount, op: Op) -> DiskTask {
        let load = mount.load();
        load.waiting.fetch_add(1, Relaxed);
        DiskTask { load, of: DiskUse::of(op), submitted: Instant::now(), begun: None }
    }

    /// Runs the operation on a thread of the pool.
    pub(crate) fn run<T>(mut self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let now = Instant::now();
        self.begun = Some(now);
        self.load.starts();
        self.load.waits.record(now.duration_since(self.submitted), clock_ms());
        let result = work();
        if let Err(error) = &result
            && is_of_disk(error)
        {
            self.load.errors.fetch_add(1, Relaxed);
        }
        result
    }
}

impl Drop for DiskTask {
    fn drop(&mut self) {
        match self.begun {
            Some(begun) => self.load.ends(self.of, begun.elapsed()),
            None => {
                self.load.waiting.fetch_sub(1, Relaxed);
            }
        }
    }
}

/// Whether the disk, its file system or its server is at fault. `EROFS` is not among the errors: a file system may be
/// read-only on purpose.
pub fn is_of_disk(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::IO
                | Errno::NODEV
                | Errno::NXIO
                | Errno::UCLEAN
                | Errno::STALE
                | Errno::TIMEDOUT
                | Errno::NOTCONN
                | Errno::CONNABORTED
                | Errno::NOLINK
                | Errno::REMOTEIO
                | Errno::NOMEDIUM
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount() -> &'static Mount {
        Box::leak(Box::new(Mount::new(1, 0xEF53, 1)))
    }

    #[test]
    fn a_task_is_counted_where_it_is() {
        let mount = mount();
        let counts = || {
            let now = mount.load().snapshot();
            (now.waiting, now.busy, now.reads.all.count(), now.writes.all.count())
        };
        let (read, write) = (DiskTask::new(mount, Op::Open), DiskTask::new(mount, Op::Sync));
        let dropped = DiskTask::new(mount, Op::Read);
        assert_eq!(counts(), (3, 0, 0, 0));
        drop(dropped);
        read.run(|| {
            assert_eq!(counts(), (1, 1, 0, 0));
            assert!(mount.load().snapshot().stalled.is_some());
            Ok(())
        })
        .unwrap();
        assert_eq!(counts(), (1, 0, 1, 0));
        let failed = write.run(|| Err::<(), _>(io::Error::from_raw_os_error(5)));
        assert!(failed.is_err());
        let now = mount.load().snapshot();
        assert_eq!((counts(), now.errors, now.stalled), ((0, 0, 1, 1), 1, None));
        assert_eq!((now.waits.count(), now.reads.recent.count()), (2, 1));
    }

    #[test]
    fn a_panic_ends_an_operation() {
        let mount = mount();
        let task = DiskTask::new(mount, Op::Read);
        let work = || task.run(|| -> io::Result<()> { panic!("a fault of the program") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
        assert_eq!(mount.load().busy_disk().busy, 0);
    }

    #[test]
    fn missing_files_are_no_faults_of_disks() {
        assert!(!is_of_disk(&io::ErrorKind::NotFound.into()));
        assert!(!is_of_disk(&io::Error::from_raw_os_error(2)));
        assert!(is_of_disk(&io::Error::from_raw_os_error(116)));
    }
}
