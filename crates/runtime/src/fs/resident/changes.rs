//! What the kernel reports of the files and directories that entries depend on (inotify(7)).
//!
//! A node is a path as it was walked: a directory, a link, a file, or a name that is missing. It
//! depends on the node of its directory and, as a link, on that of its target; what is reported of a
//! node ends it with all that depend on it. A directory is watched for its names and itself, a file for
//! itself, since it may be written to by another name.
//!
//! Two locks: watches are added and removed under [`Changes::watching`], by pool threads alone. The
//! graph is locked for moments; a loop that finds it locked leaves its entries unused for that
//! request.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, TryLockError};

use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use slab::Slab;

use super::{All, Resident};
use crate::mounts::clock_ms;
use crate::pool::lock;

/// What changes the names of a directory, or itself.
const DIR_EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// What changes a file.
const FILE_EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Most nodes that end at a time on a loop; beyond, all entries are made anew.
const ENDED_MAX: usize = 256;

/// Reports after which no more are read at a time. Those that have been read are applied: nobody else
/// would learn of them.
pub(super) const REPORTS_MAX: usize = 4096;

/// A directory with this many irrelevant reports within a second costs more than it saves.
const NOISE_MAX: u32 = 2000;

/// Milliseconds.
const NOISE_MS: u64 = 1024;

/// Memory for reports that are read at a time, in bytes.
const BUFFER_BYTES: usize = 8 * 1024;

/// A node, unless it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId {
    at: usize,
    serial: u64,
}

#[derive(Debug)]
struct Node {
    serial: u64,
    /// The mount changes before it was made.
    age: u32,
    text: Box<[u8]>,
    /// Others may be found through it: it is a directory, or a link to one.
    is_way: bool,
    /// The watch of the directory or file that it leads to.
    watch: Option<i32>,
    depends_on: Vec<usize>,
    dependents: HashSet<usize>,
    /// Where it is registered.
    places: Vec<(i32, Option<Box<[u8]>>)>,
    entries: Vec<Arc<Resident>>,
}

/// The nodes that a watch concerns.
#[derive(Debug, Default)]
struct Watched {
    names: HashMap<Box<[u8]>, Vec<usize>>,
    itself: Vec<usize>,
    /// Irrelevant reports, and since when they are counted.
    noise: u32,
    noise_ms: u64,
}

impl Watched {
    fn is_unused(&self) -> bool {
        self.names.is_empty() && self.itself.is_empty()
    }
}

#[derive(Debug, Default)]
struct Graph {
    nodes: Slab<Node>,
    ways: HashMap<Box<[u8]>, usize>,
    watched: HashMap<i32, Watched>,
    /// Watches that nothing needs any more.
    unused: Vec<i32>,
    /// The number of nodes made so far.
    serial: u64,
    /// Some nodes have not ended that should have: none holds any more.
    is_void: bool,
}

/// The watches, and who depends on them.
#[derive(Debug)]
pub(super) struct Changes {
    inotify: OwnedFd,
    /// Loops that may have taken reports and have not applied them yet.
    pub(super) applying: AtomicUsize,
    age: AtomicU32,
    watches: AtomicUsize,
    watches_max: AtomicUsize,
    /// The kernel refused one, because the user of the server has as many as are allowed.
    exhausted: AtomicBool,
    watching: Mutex<()>,
    graph: Mutex<Graph>,
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
            exhausted: AtomicBool::new(false),
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

    /// Whether more may be watched, for a path of usual depth.
    pub(super) fn has_room(&self) -> bool {
        self.watches() < self.watches_max.load(Relaxed)
    }

    /// Whether the kernel refused a watch since the last call.
    pub(super) fn take_exhausted(&self) -> bool {
        self.exhausted.load(Relaxed) && self.exhausted.swap(false, Relaxed)
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
        !lock(&self.graph).nodes.iter().any(|(_, node)| node.text.starts_with(text))
    }

    // Making nodes: pool threads.

    /// The directory at a path that was walked before, if that still holds.
    pub(super) fn way(&self, text: &[u8]) -> Option<NodeId> {
        let (mut graph, age) = (lock(&self.graph), self.age());
        let at = *graph.ways.get(text)?;
        if graph.nodes[at].age == age {
            return Some(graph.id(at));
        }
        let mut budget = usize::MAX;
        graph.end(vec![at], &mut |entry| entry.valid.store(false, SeqCst), &mut budget);
        None
    }

    /// Begins a node for `name` in a directory; `None`: the directory's node has ended. From now on
    /// it ends with the first report about that name.
    pub(super) fn begin(
        &self,
        text: Box<[u8]>,
        parent: Option<(NodeId, &[u8])>,
        age: u32,
    ) -> Option<NodeId> {
        let mut graph = lock(&self.graph);
        let parent = match parent {
            Some((parent, name)) => Some((graph.find(parent)?, name)),
            None => None,
        };
        graph.serial += 1;
        let node = Node {
            serial: graph.serial,
            age,
            text,
            is_way: false,
            watch: None,
            depends_on: Vec::new(),
            dependents: HashSet::new(),
            places: Vec::new(),
            entries: Vec::new(),
        };
        let at = graph.nodes.insert(node);
        if let Some((parent, name)) = parent {
            graph.depend(at, parent);
            if let Some(watch) = graph.nodes[parent].watch {
                graph.register(at, watch, Some(name));
            }
        }
        Some(graph.id(at))
    }

    /// A node is a link to another.
    pub(super) fn link(&self, node: NodeId, target: NodeId) -> Option<()> {
        let mut graph = lock(&self.graph);
        let (at, target) = (graph.find(node)?, graph.find(target)?);
        graph.depend(at, target);
        graph.nodes[at].watch = graph.nodes[target].watch;
        if graph.nodes[target].is_way {
            graph.add_way(at);
        }
        Some(())
    }

    /// Watches the directory or file of a node, before anyone looks further.
    pub(super) fn watch(&self, node: NodeId, fd: BorrowedFd<'_>, is_dir: bool) -> Option<()> {
        let _watching = lock(&self.watching);
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let watch = match is_dir {
            true => inotify::add_watch(&self.inotify, path, DIR_EVENTS | WatchFlags::ONLYDIR),
            false => inotify::add_watch(&self.inotify, path, FILE_EVENTS),
        };
        if watch == Err(Errno::NOSPC) {
            self.exhausted.store(true, Relaxed);
        }
        let watch = watch.ok()?;
        let mut graph = lock(&self.graph);
        graph.watched.entry(watch).or_insert_with(|| {
            self.watches.fetch_add(1, Relaxed);
            Watched::default()
        });
        let Some(at) = graph.find(node) else {
            if graph.watched.get(&watch).is_some_and(Watched::is_unused) {
                graph.unused.push(watch);
            }
            return None;
        };
        graph.nodes[at].watch = Some(watch);
        graph.register(at, watch, None);
        if is_dir {
            graph.add_way(at);
        }
        Some(())
    }

    /// An entry depends on a node: it ends with it.
    pub(super) fn attach(&self, node: NodeId, entry: &Arc<Resident>) -> Option<()> {
        let mut graph = lock(&self.graph);
        let at = graph.find(node)?;
        graph.nodes[at].entries.push(entry.clone());
        let _ = entry.node.set(node);
        Some(())
    }

    /// An entry is gone; its watches are removed with the next [`clean_up`](Changes::clean_up).
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

    /// Removes a node whose entries are all gone, unless others depend on it.
    pub(super) fn release(&self, node: NodeId) {
        lock(&self.graph).release(node);
    }

    /// Removes watches that are no longer needed.
    pub(super) fn clean_up(&self) {
        let dead = std::mem::take(&mut *lock(&self.dead));
        dead.into_iter().for_each(|node| self.release(node));
        let _watching = lock(&self.watching);
        let (unused, void) = {
            let mut graph = lock(&self.graph);
            if graph.is_void {
                // What was begun with the old graph is not reported through the new one.
                self.doubt();
                (Vec::new(), Some(graph.clear()))
            } else {
                (graph.unused(), None)
            }
        };
        let of_void = void.iter().flat_map(|graph| graph.watched.keys());
        let mut removed = 0;
        for watch in unused.iter().chain(of_void) {
            removed += 1;
            // EINVAL: the kernel has removed it already, with the file.
            let _ = inotify::remove_watch(&self.inotify, *watch);
        }
        self.watches.fetch_sub(removed, Relaxed);
    }

    // Taking reports: loops.

    /// Takes the reports that have come, and ends what they concern; false: not all of them.
    pub(super) fn apply(&self, all: &All) -> bool {
        self.applying.fetch_add(1, SeqCst);
        let applied = match self.graph.try_lock() {
            Ok(mut graph) => self.take(&mut graph, all),
            Err(TryLockError::Poisoned(poisoned)) => self.take(&mut poisoned.into_inner(), all),
            Err(TryLockError::WouldBlock) => false,
        };
        self.applying.fetch_sub(1, SeqCst);
        applied
    }

    fn take(&self, graph: &mut Graph, all: &All) -> bool {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut budget = ENDED_MAX;
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
                        self.gone(graph, event.wd(), all, &mut budget);
                    } else {
                        graph.take_event(&event, &mut |entry| all.report(entry), &mut budget);
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

    /// The kernel has removed a watch, with the file or file system.
    fn gone(&self, graph: &mut Graph, watch: i32, all: &All, budget: &mut usize) {
        if !graph.watched.contains_key(&watch) {
            return;
        }
        graph.end_watched(watch, &mut |entry| all.report(entry), budget);
        if graph.watched.get(&watch).is_some_and(Watched::is_unused) {
            graph.watched.remove(&watch);
            self.watches.fetch_sub(1, Relaxed);
        }
    }
}

type Report<'a> = &'a mut dyn FnMut(&Resident);

impl Graph {
    /// The watches that nothing needs any more, which leave the graph.
    fn unused(&mut self) -> Vec<i32> {
        let mut unused = std::mem::take(&mut self.unused);
        unused.sort_unstable();
        unused.dedup();
        unused.retain(|watch| {
            let is_unused = self.watched.get(watch).is_some_and(Watched::is_unused);
            if is_unused {
                self.watched.remove(watch);
            }
            is_unused
        });
        unused
    }

    /// Begins anew, and returns the old graph.
    fn clear(&mut self) -> Graph {
        let serial = self.serial;
        std::mem::replace(self, Graph { serial, ..Graph::default() })
    }

    fn id(&self, at: usize) -> NodeId {
        NodeId { at, serial: self.nodes[at].serial }
    }

    fn find(&self, node: NodeId) -> Option<usize> {
        self.nodes.get(node.at).filter(|found| found.serial == node.serial).map(|_| node.at)
    }

    fn depend(&mut self, at: usize, on: usize) {
        self.nodes[at].depends_on.push(on);
        self.nodes[on].dependents.insert(at);
    }

    fn add_way(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.is_way = true;
        self.ways.insert(node.text.clone(), at);
    }

    fn register(&mut self, at: usize, watch: i32, name: Option<&[u8]>) {
        let watched = self.watched.entry(watch).or_default();
        match name {
            Some(name) => watched.names.entry(name.into()).or_default().push(at),
            None => watched.itself.push(at),
        }
        self.nodes[at].places.push((watch, name.map(Box::from)));
    }

    fn unregister(&mut self, at: usize, watch: i32, name: Option<&[u8]>) {
        let Some(watched) = self.watched.get_mut(&watch) else { return };
        match name {
            Some(name) => {
                if let Some(nodes) = watched.names.get_mut(name) {
                    nodes.retain(|node| *node != at);
                    if nodes.is_empty() {
                        watched.names.remove(name);
                    }
                }
            }
            None => watched.itself.retain(|node| *node != at),
        }
        if watched.is_unused() {
            self.unused.push(watch);
        }
    }

    fn take_event(&mut self, event: &Event<'_>, report: Report<'_>, budget: &mut usize) {
        let watch = event.wd();
        let Some(watched) = self.watched.get_mut(&watch) else { return };
        let name = event.file_name().map(CStr::to_bytes).filter(|name| !name.is_empty());
        let Some(name) = name else {
            self.end_watched(watch, report, budget);
            return;
        };
        if let Some(nodes) = watched.names.get(name).cloned() {
            self.end(nodes, report, budget);
            return;
        }
        let now = clock_ms();
        if now.saturating_sub(watched.noise_ms) > NOISE_MS {
            (watched.noise, watched.noise_ms) = (0, now);
        }
        watched.noise += 1;
        if watched.noise > NOISE_MAX {
            watched.noise = 0;
            self.end_watched(watch, report, budget);
        }
    }

    /// Ends all nodes that a watch concerns.
    fn end_watched(&mut self, watch: i32, report: Report<'_>, budget: &mut usize) {
        let Some(watched) = self.watched.get(&watch) else { return };
        let named = watched.names.values().flatten();
        let all: Vec<usize> = watched.itself.iter().chain(named).copied().collect();
        self.end(all, report, budget);
    }

    /// Ends nodes with all that depend on them, up to `budget`, which is then 0; and those that were there
    /// for them alone.
    fn end(&mut self, mut ending: Vec<usize>, report: Report<'_>, budget: &mut usize) {
        let mut needed = Vec::new();
        while let Some(at) = ending.pop() {
            if *budget == 0 {
                return;
            }
            if let Some(node) = self.remove(at) {
                *budget -= 1;
                node.entries.iter().for_each(|entry| report(entry));
                ending.extend(node.dependents);
                needed.extend(node.depends_on);
            }
        }
        self.release_all(needed);
    }

    fn remove(&mut self, at: usize) -> Option<Node> {
        let node = self.nodes.try_remove(at)?;
        if self.ways.get(&node.text) == Some(&at) {
            self.ways.remove(&node.text);
        }
        for (watch, name) in &node.places {
            self.unregister(at, *watch, name.as_deref());
        }
        for on in &node.depends_on {
            if let Some(on) = self.nodes.get_mut(*on) {
                on.dependents.remove(&at);
            }
        }
        Some(node)
    }

    /// Removes a node without valid entries, and those that were there for it alone.
    fn release(&mut self, node: NodeId) {
        if let Some(at) = self.find(node) {
            self.release_all(vec![at]);
        }
    }

    fn release_all(&mut self, mut candidates: Vec<usize>) {
        while let Some(at) = candidates.pop() {
            let Some(node) = self.nodes.get_mut(at) else { continue };
            node.entries.retain(|entry| entry.valid.load(SeqCst));
            if node.entries.is_empty()
                && node.dependents.is_empty()
                && let Some(node) = self.remove(at)
            {
                candidates.extend(node.depends_on);
            }
        }
    }
}
