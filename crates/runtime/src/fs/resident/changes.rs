//! The kernel's reports about files and directories that entries depend on (inotify(7)).
//!
//! The dependencies are in the [`Graph`].
//!
//! Two locks: watches are added and removed under [`Changes::watching`], by pool threads alone. The
//! graph is locked for moments; a loop that finds it locked leaves its entries unused for that
//! request.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, TryLockError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::graph::{Graph, NodeId};
use super::{Resident, ResidentState};
use crate::mounts::clock_ms;
use crate::pool::lock;

/// Events that change a directory or its names.
const DIR_EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Events that change a file.
const FILE_EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Maximum number of nodes that end at a time on a loop; beyond, all entries are made again.
const ENDED_MAX: usize = 256;

/// Maximum number of reports read at a time. All reports that were read must be applied, because they are
/// read only once.
pub(super) const REPORTS_MAX: usize = 4096;

/// Memory for reports that are read at a time, in bytes.
const BUFFER_BYTES: usize = 8 * 1024;

/// The reason why a path gets no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkFailure {
    /// The path can't have an entry.
    Impossible,
    /// The path changed meanwhile.
    Changed,
    /// A watch was refused: by the kernel, because the user of the server has as many as are allowed, or
    /// here.
    Exhausted,
}

/// The watches, with their dependents.
#[derive(Debug)]
pub(super) struct Changes {
    inotify: OwnedFd,
    /// Loops that may have taken reports and have not applied them yet.
    pub(super) applying: AtomicUsize,
    age: AtomicU32,
    watches: AtomicUsize,
    watches_max: AtomicUsize,
    watching: Mutex<()>,
    graph: Mutex<Graph<Arc<Resident>>>,
    /// Entries that ended without a report.
    dead: Mutex<Vec<NodeId>>,
}

impl Changes {
    pub(super) fn new() -> io::Result<Changes> {
        Ok(Changes {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            applying: AtomicUsize::new(0),
            age: AtomicU32::new(0),
            watches: AtomicUsize::new(0),
            watches_max: AtomicUsize::new(0),
            watching: Mutex::default(),
            graph: Mutex::default(),
            dead: Mutex::default(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    pub(super) fn limit(&self, watches: usize) {
        self.watches_max.store(watches, Relaxed);
    }

    pub(super) fn watches(&self) -> usize {
        self.watches.load(Relaxed)
    }

    /// Whether more may be watched.
    pub(super) fn has_room(&self) -> bool {
        self.watches() < self.watches_max.load(Relaxed)
    }

    /// The number of times that all was in doubt.
    pub(super) fn age(&self) -> u32 {
        self.age.load(SeqCst)
    }

    /// No entry made so far holds for certain.
    pub(super) fn doubt(&self) {
        self.age.fetch_add(1, SeqCst);
    }

    /// Whether no path that begins with `text` has a node.
    #[cfg(test)]
    pub(super) fn is_empty_below(&self, text: &[u8]) -> bool {
        lock(&self.graph).is_empty_below(text)
    }

    // Making nodes: pool threads.

    /// See [`Graph::way`].
    pub(super) fn way(&self, text: &[u8]) -> Option<NodeId> {
        let (mut graph, age) = (lock(&self.graph), self.age());
        graph.way(text, age, &mut |entry| entry.valid.store(false, SeqCst))
    }

    /// See [`Graph::begin`].
    pub(super) fn begin(
        &self,
        text: Box<[u8]>,
        parent: Option<(NodeId, &[u8])>,
        age: u32,
    ) -> Option<NodeId> {
        lock(&self.graph).begin(text, parent, age)
    }

    /// See [`Graph::link`].
    pub(super) fn link(&self, node: NodeId, target: NodeId) -> Option<()> {
        lock(&self.graph).link(node, target)
    }

    /// Watches the directory or file of a node before the walk continues.
    pub(super) fn watch(
        &self,
        node: NodeId,
        fd: BorrowedFd<'_>,
        is_dir: bool,
    ) -> Result<(), WalkFailure> {
        let _watching = lock(&self.watching);
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let watch = match is_dir {
            true => inotify::add_watch(&self.inotify, path, DIR_EVENTS | WatchFlags::ONLYDIR),
            false => inotify::add_watch(&self.inotify, path, FILE_EVENTS),
        };
        let watch = watch.map_err(|errno| match errno {
            Errno::NOSPC => WalkFailure::Exhausted,
            _ => WalkFailure::Impossible,
        })?;
        let mut graph = lock(&self.graph);
        if !graph.knows(watch) {
            if !self.has_room() {
                drop(graph);
                // Not watched before, so it has no other dependents.
                let _ = inotify::remove_watch(&self.inotify, watch);
                return Err(WalkFailure::Exhausted);
            }
            self.watches.fetch_add(1, Relaxed);
        }
        graph.watch(node, watch, is_dir).ok_or(WalkFailure::Changed)
    }

    /// An entry depends on a node: it ends with it.
    pub(super) fn attach(&self, node: NodeId, entry: &Arc<Resident>) -> Option<()> {
        lock(&self.graph).attach(node, entry.clone())?;
        let _ = entry.node.set(node);
        Some(())
    }

    /// Removes an entry; its watches are removed by the next [`clean_up`](Changes::clean_up).
    pub(super) fn forget(&self, entry: &Resident) {
        entry.valid.store(false, SeqCst);
        if let Some(node) = entry.node.get() {
            self.release(*node);
        }
    }

    /// Like [`forget`](Changes::forget), for loops.
    pub(super) fn forget_later(&self, entry: &Resident) {
        entry.valid.store(false, SeqCst);
        if let Some(node) = entry.node.get() {
            lock(&self.dead).push(*node);
        }
    }

    /// Removes a node without entries, unless other nodes depend on it.
    pub(super) fn release(&self, node: NodeId) {
        lock(&self.graph).release(node);
    }

    /// Removes watches that are no longer needed.
    pub(super) fn clean_up(&self) {
        let dead = std::mem::take(&mut *lock(&self.dead));
        dead.into_iter().for_each(|node| self.release(node));
        let _watching = lock(&self.watching);
        let unneeded = {
            let mut graph = lock(&self.graph);
            if graph.is_void {
                // Work begun with the old graph gets no reports through the new one.
                self.doubt();
                graph.clear()
            } else {
                graph.take_unused()
            }
        };
        for watch in &unneeded {
            // EINVAL: the kernel has removed it already, with the file.
            let _ = inotify::remove_watch(&self.inotify, *watch);
        }
        self.watches.fetch_sub(unneeded.len(), Relaxed);
    }

    // Taking reports: loops.

    /// Reads pending reports and invalidates the nodes concerned; false: some are left.
    pub(super) fn apply(&self, all: &ResidentState) -> bool {
        self.applying.fetch_add(1, SeqCst);
        let applied = match self.graph.try_lock() {
            Ok(mut graph) => self.take(&mut graph, all),
            Err(TryLockError::Poisoned(poisoned)) => self.take(&mut poisoned.into_inner(), all),
            Err(TryLockError::WouldBlock) => false,
        };
        self.applying.fetch_sub(1, SeqCst);
        applied
    }

    fn take(&self, graph: &mut Graph<Arc<Resident>>, all: &ResidentState) -> bool {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let report = &mut |entry: &Arc<Resident>| all.report(entry);
        let mut budget = ENDED_MAX;
        let now_ms = clock_ms();
        let mut taken = 0;
        while taken < REPORTS_MAX || !reader.is_buffer_empty() {
            taken += 1;
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    graph.is_void = true;
                    all.drop_all();
                }
                Ok(event) => {
                    if event.events().contains(ReadFlags::IGNORED) {
                        // The kernel has removed the watch, with the file or file system.
                        if graph.gone(event.wd(), report, &mut budget) {
                            self.watches.fetch_sub(1, Relaxed);
                        }
                    } else {
                        let name = event.file_name().map(CStr::to_bytes);
                        let name = name.filter(|name| !name.is_empty());
                        graph.change(event.wd(), name, now_ms, report, &mut budget);
                    }
                    if budget == 0 {
                        // The others end with the graph, in a pool.
                        graph.is_void = true;
                        all.drop_all();
                        return false;
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => {
                    all.drop_all();
                    return false;
                }
            }
        }
        false
    }
}
