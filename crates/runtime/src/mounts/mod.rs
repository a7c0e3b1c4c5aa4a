//! File systems: the calls that may be tried inline on each, and counters of the results.
//!
//! A file system is identified by its device number and examined once, in a pool (statfs(2) itself
//! may wait). The decision is made by type, from measurements; types that are not on the list
//! always go to a pool.
//!
//! Called by: [`crate::fs`]. Read by status pages: [`snapshot`]. Never: any I/O on a loop thread.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, OnceLock, PoisonError};

use disk::DiskLoad;

pub(crate) mod disk;
pub(crate) mod places;
mod watch;

pub use disk::{BusyDisk, DiskSnapshot, DiskTimesSnapshot, is_of_disk};
pub(crate) use watch::watch;

/// Maximum number of file systems told apart; further ones always go to a pool.
pub const MOUNTS_MAX: usize = 1 << MOUNT_BITS;

/// Bits of the number of a file system's slot.
pub(crate) const MOUNT_BITS: u32 = 10;

/// How long after a read was requested its pages may still be in flight, in milliseconds: a
/// generous bound for the read-ahead of a slow disk.
const UNDER_WAY_MS: u64 = 5_000;

/// Milliseconds of a coarse monotonic clock (a few nanoseconds to read).
pub(crate) fn clock_ms() -> u64 {
    nowait_sys::clock::monotonic_coarse_ms()
}

/// Type of a file system, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsType {
    Ext4,
    Xfs,
    Btrfs,
    /// Memory: tmpfs, ramfs.
    Tmpfs,
    Overlay,
    /// All others, mainly network and user-space file systems. Calls on them wait for remote servers or
    /// other processes, RESOLVE_CACHED or not.
    Other,
}

impl FsType {
    fn of(magic: u64) -> FsType {
        // statfs(2): f_type.
        match magic {
            0xEF53 => FsType::Ext4,
            0x5846_5342 => FsType::Xfs,
            0x9123_683E => FsType::Btrfs,
            0x0102_1994 | 0x8584_58F6 => FsType::Tmpfs,
            0x794C_7630 => FsType::Overlay,
            _ => FsType::Other,
        }
    }

    /// By its name in mountinfo.
    fn named(name: &str) -> FsType {
        match name {
            // One driver and one `f_type` for all of them.
            "ext2" | "ext3" | "ext4" => FsType::Ext4,
            "xfs" => FsType::Xfs,
            "btrfs" => FsType::Btrfs,
            // devtmpfs reports itself as tmpfs, and is one.
            "tmpfs" | "ramfs" | "devtmpfs" => FsType::Tmpfs,
            "overlay" => FsType::Overlay,
            _ => FsType::Other,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            FsType::Ext4 => "ext4",
            FsType::Xfs => "xfs",
            FsType::Btrfs => "btrfs",
            FsType::Tmpfs => "tmpfs",
            FsType::Overlay => "overlay",
            FsType::Other => "other",
        }
    }
}

/// One file system. Lives as long as the process.
#[derive(Debug)]
pub struct Mount {
    pub dev: u64,
    pub fs_type: FsType,
    /// `f_type` of statfs(2).
    pub magic: u64,
    index: u16,
    /// RWF_NOWAIT was refused with EOPNOTSUPP.
    no_nowait: AtomicBool,
    /// RWF_DONTCACHE was refused with EOPNOTSUPP.
    no_dontcache: AtomicBool,
    /// When the disk was last read from: [`clock_ms`].
    read_ms: AtomicU64,
    /// Open files that missed inline and whose read from the disk has not ended.
    misses: AtomicU64,
    /// Mounted, as far as known; otherwise the number may have a new owner.
    mounted: AtomicBool,
    counters: [MountCounters; SHARDS],
    /// What tasks of pools do here.
    load: DiskLoad,
}

/// Number of counter sets per file system, so that workers counting at the same time rarely write
/// to the same cache lines.
const SHARDS: usize = 16;

thread_local! {
    /// The set used by this thread; pool threads and others share the first.
    static SHARD: Cell<usize> = const { Cell::new(0) };
}

/// Marks this thread as running the worker of this number: it uses a separate counter set from now
/// on.
pub(crate) fn count_as_worker(index: usize) {
    SHARD.set(1 + index % (SHARDS - 1));
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often the inline forms succeeded and how often the pool was needed.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct MountCounters { $(pub(crate) $name: AtomicU64,)* }

        /// One file system's state and counts.
        #[derive(Clone, Debug)]
        pub struct MountSnapshot {
            pub dev: u64,
            pub fs_type: FsType,
            pub magic: u64,
            /// RWF_NOWAIT works here.
            pub nowait: bool,
            /// Where it is mounted, and of what: `/srv`, `/dev/sdb1`. `None`: not known.
            pub place: Option<MountPlace>,
            /// What tasks of pools do here.
            pub disk: DiskSnapshot,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Mount {
            pub fn snapshot(&self) -> MountSnapshot {
                let sum = |counter: fn(&MountCounters) -> &AtomicU64| {
                    self.counters.iter().map(|shard| counter(shard).load(Relaxed)).sum()
                };
                MountSnapshot {
                    dev: self.dev,
                    fs_type: self.fs_type,
                    magic: self.magic,
                    nowait: self.reads_inline(),
                    place: watch::place(self.dev),
                    disk: self.load.snapshot(),
                    $($name: sum(|counters| &counters.$name),)*
                }
            }
        }

        impl MountSnapshot {
            /// `MAJOR:MINOR` of the device, as `/proc/self/mountinfo` shows it.
            pub fn device(&self) -> String {
                device_name(self.dev)
            }

            /// Names and values of all counters, for metrics.
            pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Opened on the loop.
    open_inline,
    /// Tried on the loop, then opened in the pool: the name was not in memory.
    open_fallback,
    /// Opened in the pool without an attempt: first touch, or the type forbids it.
    open_pool,
    /// Read on the loop, whole.
    read_inline,
    /// Tried on the loop, then read (or completed) in the pool.
    read_fallback,
    /// Read in the pool without an attempt.
    read_pool,
    /// Read in the pool without keeping the data in the page cache (`read_cache`).
    read_uncached,
    /// Sent by sendfile on the loop.
    send_inline,
    /// Not or not entirely in memory: sent in the pool.
    send_fallback,
    /// Sent in the pool without a check.
    send_pool,
}

/// Adds one. The counters are statistics: no ordering is implied.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Mount {
    fn new(dev: u64, magic: u64, index: u16) -> Mount {
        Mount {
            dev,
            fs_type: FsType::of(magic),
            magic,
            index,
            no_nowait: AtomicBool::new(false),
            no_dontcache: AtomicBool::new(false),
            read_ms: AtomicU64::new(u64::MAX),
            misses: AtomicU64::new(0),
            mounted: AtomicBool::new(true),
            counters: Default::default(),
            load: DiskLoad::default(),
        }
    }

    /// What tasks of pools do here.
    pub(crate) fn load(&self) -> &DiskLoad {
        &self.load
    }

    /// Whether names may be looked up and files opened inline (RESOLVE_CACHED), and an open file's
    /// metadata read. Excludes overlayfs: opening a file walks its layers, which has not been
    /// measured to be safe.
    pub fn is_inline(&self) -> bool {
        matches!(self.fs_type, FsType::Ext4 | FsType::Xfs | FsType::Btrfs | FsType::Tmpfs)
    }

    /// Whether contents may be read inline with RWF_NOWAIT.
    pub fn reads_inline(&self) -> bool {
        self.is_inline() && (self.is_memory() || !self.no_nowait.load(Relaxed))
    }

    /// Whether contents are always in memory (or in swap, like any memory).
    pub fn is_memory(&self) -> bool {
        self.fs_type == FsType::Tmpfs
    }

    /// RWF_NOWAIT turned out not to work here.
    pub(crate) fn forbid_nowait(&self) {
        self.no_nowait.store(true, Relaxed);
    }

    /// Whether a read can leave nothing in the page cache (RWF_DONTCACHE), as far as known.
    pub(crate) fn reads_uncached(&self) -> bool {
        !self.no_dontcache.load(Relaxed)
    }

    /// RWF_DONTCACHE turned out not to work here.
    pub(crate) fn forbid_dontcache(&self) {
        self.no_dontcache.store(true, Relaxed);
    }

    /// The disk is about to be read for data that is or may be missing.
    pub(crate) fn will_read(&self) {
        self.read_ms.store(clock_ms(), Relaxed);
    }

    /// An open file missed inline, or its read from the disk has finished.
    pub(crate) fn set_missing(&self, missing: bool) {
        match missing {
            true => self.misses.fetch_add(1, Relaxed),
            false => self.misses.fetch_sub(1, Relaxed),
        };
    }

    /// Whether some inline miss is still pending: the disk may be slow, its queue full.
    pub(crate) fn is_missing(&self) -> bool {
        self.misses.load(Relaxed) > 0
    }

    /// Whether the disk may still be working on such a read.
    pub(crate) fn read_lately(&self) -> bool {
        let last = self.read_ms.load(Relaxed);
        last != u64::MAX && clock_ms().saturating_sub(last) < UNDER_WAY_MS
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// The counters for this thread.
    pub(crate) fn counters(&self) -> &MountCounters {
        &self.counters[SHARD.get()]
    }
}

/// Slots are filled in order and never emptied. Slot 0 stands for all file systems without a slot.
static MOUNTS: [OnceLock<Box<Mount>>; MOUNTS_MAX] = [const { OnceLock::new() }; MOUNTS_MAX];
static NEXT: Mutex<usize> = Mutex::new(1);

/// The file system of slot `index`.
pub(crate) fn by_index(index: u16) -> Option<&'static Mount> {
    MOUNTS.get(usize::from(index))?.get().map(|mount| &**mount)
}

/// The file system of `fd`, whose `st_dev` is `dev`. May wait: for pool threads.
pub(crate) fn of(fd: BorrowedFd<'_>, dev: u64) -> &'static Mount {
    if let Some(known) = find(dev) {
        return known;
    }
    // Unknown is treated as remote.
    let magic = rustix::fs::fstatfs(fd).map_or(0, |stat| stat.f_type as u64);
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = slots().find(|mount| mount.dev == dev && mount.magic == magic) {
        known.mounted.store(true, Release);
        return known;
    }
    if *next == MOUNTS_MAX {
        return MOUNTS[0].get_or_init(|| Box::new(Mount::new(0, 0, 0)));
    }
    let index = *next;
    *next += 1;
    debug_assert!(MOUNTS[index].get().is_none(), "slots are filled in order");
    MOUNTS[index].get_or_init(|| Box::new(Mount::new(dev, magic, index as u16)))
}

fn slots() -> impl Iterator<Item = &'static Mount> {
    MOUNTS[1..].iter().map_while(|slot| slot.get()).map(|mount| &**mount)
}

/// The file system with device number `dev`, if a file on it was opened since it was mounted.
pub(crate) fn find(dev: u64) -> Option<&'static Mount> {
    slots().find(|mount| mount.dev == dev && mount.mounted.load(Acquire))
}

/// `MAJOR:MINOR` of a device number.
pub fn device_name(dev: u64) -> String {
    format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// Where a file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPlace {
    /// The directory.
    pub directory: String,
    /// The device, or the server and its directory.
    pub source: String,
}

/// The file system for which most operations wait or are in progress, if there are any: its device or the place
/// where it is mounted.
pub fn busiest() -> Option<(String, BusyDisk)> {
    let loads = slots().map(|mount| (mount, mount.load.busy_disk()));
    let (mount, load) = loads
        .filter(|(_, load)| load.operations() > 0)
        .max_by_key(|(_, load)| load.operations())?;
    let snapshot = mount.snapshot();
    let name = match &snapshot.place {
        Some(place) => format!("{} at \"{}\"", snapshot.device(), place.directory),
        None => snapshot.device(),
    };
    Some((name, load))
}

/// State and counters of every file system used so far.
pub fn snapshot() -> Vec<MountSnapshot> {
    MOUNTS.iter().filter_map(|slot| slot.get()).map(|mount| mount.snapshot()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn types_decide() {
        let mount = |magic| Mount::new(1, magic, 1);
        assert!(mount(0xEF53).is_inline() && mount(0xEF53).reads_inline());
        assert!(mount(0x0102_1994).is_memory());
        for remote in [0x6546_5546, 0x6969, 0xFF53_4D42, 0x794C_7630, 0] {
            assert!(!mount(remote).is_inline() && !mount(remote).reads_inline(), "{remote:x}");
        }
        let ext4 = mount(0xEF53);
        ext4.forbid_nowait();
        assert!(ext4.is_inline() && !ext4.reads_inline());
    }

    #[test]
    fn counts_of_all_threads_are_added_up() {
        let mount = Mount::new(1, 0xEF53, 1);
        count(&mount.counters().read_inline);
        std::thread::scope(|scope| {
            for index in 0..2 * SHARDS {
                let mount = &mount;
                scope.spawn(move || {
                    count_as_worker(index);
                    count(&mount.counters().read_inline);
                });
            }
        });
        assert_eq!(mount.snapshot().read_inline, 1 + 2 * SHARDS as u64);
        assert_eq!(mount.snapshot().read_pool, 0);
    }

    #[test]
    fn one_entry_per_device() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let dev = rustix::fs::fstat(&file).unwrap().st_dev;
        let mount = of(file.as_fd(), dev);
        assert_eq!(mount.fs_type, FsType::Other);
        assert!(std::ptr::eq(mount, of(file.as_fd(), dev)));
        assert!(std::ptr::eq(mount, by_index(mount.index()).unwrap()));
        assert_eq!(snapshot().iter().filter(|mount| mount.dev == dev).count(), 1);
    }
}
