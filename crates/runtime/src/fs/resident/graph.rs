//! The graph of dependencies: nodes of walked paths, and their watches.
//!
//! A node is a path as it was walked: a directory, a link, a file, or a name that is missing. It
//! depends on the node of its directory and, as a link, on that of its target; what is reported of a
//! node ends it with all that depend on it. A directory is watched for its names and itself, a file for
//! itself, since it may be written to by another name.
//!
//! No calls and no clocks: [`super::changes`] asks the kernel, and the tests in `model.rs` play it.

use std::collections::{HashMap, HashSet};

use slab::Slab;

/// A directory with this many irrelevant reports within a second costs more than it saves.
const NOISE_MAX: u32 = 2000;

/// Milliseconds.
const NOISE_MS: u64 = 1024;

/// The dependents of a node, which end with it.
pub(super) trait Dependent: Clone {
    /// Whether it is still used.
    fn is_valid(&self) -> bool;
}

/// Called with each entry that ends.
pub(super) type EndReport<'a, E> = &'a mut dyn FnMut(&E);

/// A node, unless it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId {
    at: usize,
    serial: u64,
}

#[derive(Clone, Debug)]
struct GraphNode<E> {
    serial: u64,
    /// The mount changes before it was made.
    age: u32,
    text: Box<[u8]>,
    /// The node is a directory, or a link to one, through which other nodes are found.
    is_way: bool,
    /// The watch of the directory or file that it leads to.
    watch: Option<i32>,
    depends_on: Vec<usize>,
    dependents: HashSet<usize>,
    /// The position of its registration.
    places: Vec<(i32, Option<Box<[u8]>>)>,
    entries: Vec<E>,
}

/// The nodes that a watch concerns.
#[derive(Clone, Debug, Default)]
struct WatchNodes {
    names: HashMap<Box<[u8]>, Vec<usize>>,
    itself: Vec<usize>,
    /// Irrelevant reports, and since when they are counted.
    noise: u32,
    noise_ms: u64,
}

impl WatchNodes {
    fn is_unused(&self) -> bool {
        self.names.is_empty() && self.itself.is_empty()
    }
}

/// The nodes and watches.
#[derive(Clone, Debug)]
pub(super) struct Graph<E> {
    nodes: Slab<GraphNode<E>>,
    ways: HashMap<Box<[u8]>, usize>,
    watched: HashMap<i32, WatchNodes>,
    /// Watches without dependents.
    unused: Vec<i32>,
    /// The number of nodes made so far.
    serial: u64,
    /// Some nodes have not ended that should have: none holds any more.
    pub(super) is_void: bool,
}

impl<E> Default for Graph<E> {
    fn default() -> Graph<E> {
        Graph {
            nodes: Slab::new(),
            ways: HashMap::new(),
            watched: HashMap::new(),
            unused: Vec::new(),
            serial: 0,
            is_void: false,
        }
    }
}

impl<E: Dependent> Graph<E> {
    /// Whether no path that begins with `text` has a node.
    #[cfg(test)]
    pub(super) fn is_empty_below(&self, text: &[u8]) -> bool {
        !self.nodes.iter().any(|(_, node)| node.text.starts_with(text))
    }

    // Making nodes.

    /// The directory at a path that was walked before, if that still holds at `age`; otherwise it ends.
    pub(super) fn way(
        &mut self,
        text: &[u8],
        age: u32,
        report: EndReport<'_, E>,
    ) -> Option<NodeId> {
        let at = *self.ways.get(text)?;
        if self.nodes[at].age == age {
            return Some(self.id(at));
        }
        let mut budget = usize::MAX;
        self.end(vec![at], report, &mut budget);
        None
    }

    /// Begins a node for `name` in a directory; `None`: the directory's node has ended. From now on
    /// it ends with the first report about that name.
    pub(super) fn begin(
        &mut self,
        text: Box<[u8]>,
        parent: Option<(NodeId, &[u8])>,
        age: u32,
    ) -> Option<NodeId> {
        let parent = match parent {
            Some((parent, name)) => Some((self.find(parent)?, name)),
            None => None,
        };
        self.serial += 1;
        let node = GraphNode {
            serial: self.serial,
            age,
            text,
            is_way: false,
            watch: None,
            depends_on: Vec::new(),
            dependents: HashSet::new(),
            places: Vec::new(),
            entries: Vec::new(),
        };
        let at = self.nodes.insert(node);
        if let Some((parent, name)) = parent {
            self.depend(at, parent);
            if let Some(watch) = self.nodes[parent].watch {
                self.register(at, watch, Some(name));
            }
        }
        Some(self.id(at))
    }

    /// A node is a link to another; `None`: one of them has ended.
    pub(super) fn link(&mut self, node: NodeId, target: NodeId) -> Option<()> {
        let (at, target) = (self.find(node)?, self.find(target)?);
        self.depend(at, target);
        self.nodes[at].watch = self.nodes[target].watch;
        if self.nodes[target].is_way {
            self.add_way(at);
        }
        Some(())
    }

    /// Whether a watch is known.
    pub(super) fn knows(&self, watch: i32) -> bool {
        self.watched.contains_key(&watch)
    }

    /// The directory or file of a node is watched; `None`: the node has ended.
    pub(super) fn watch(&mut self, node: NodeId, watch: i32, is_dir: bool) -> Option<()> {
        let is_unused = self.watched.entry(watch).or_default().is_unused();
        let Some(at) = self.find(node) else {
            if is_unused {
                self.unused.push(watch);
            }
            return None;
        };
        self.nodes[at].watch = Some(watch);
        self.register(at, watch, None);
        if is_dir {
            self.add_way(at);
        }
        Some(())
    }

    /// An entry depends on a node: it ends with it. `None`: the node has ended.
    pub(super) fn attach(&mut self, node: NodeId, entry: E) -> Option<()> {
        let at = self.find(node)?;
        self.nodes[at].entries.push(entry);
        Some(())
    }

    // Ending them.

    /// Handles a kernel's report of a change: of a name in a watched directory, or of the watched file
    /// itself.
    pub(super) fn change(
        &mut self,
        watch: i32,
        name: Option<&[u8]>,
        now_ms: u64,
        report: EndReport<'_, E>,
        budget: &mut usize,
    ) {
        let Some(watched) = self.watched.get_mut(&watch) else { return };
        let Some(name) = name else {
            self.end_watched(watch, report, budget);
            return;
        };
        if let Some(nodes) = watched.names.get(name).cloned() {
            self.end(nodes, report, budget);
            return;
        }
        if now_ms.saturating_sub(watched.noise_ms) > NOISE_MS {
            (watched.noise, watched.noise_ms) = (0, now_ms);
        }
        watched.noise += 1;
        if watched.noise > NOISE_MAX {
            watched.noise = 0;
            self.end_watched(watch, report, budget);
        }
    }

    /// The kernel has removed a watch; false: it was not known, or is not done with.
    pub(super) fn gone(
        &mut self,
        watch: i32,
        report: EndReport<'_, E>,
        budget: &mut usize,
    ) -> bool {
        self.end_watched(watch, report, budget);
        let is_unused = self.watched.get(&watch).is_some_and(WatchNodes::is_unused);
        if is_unused {
            self.watched.remove(&watch);
        }
        is_unused
    }

    /// Removes a node without valid entries, and nodes that only it needed.
    pub(super) fn release(&mut self, node: NodeId) {
        if let Some(at) = self.find(node) {
            self.release_all(vec![at]);
        }
    }

    /// Takes the watches without dependents out of the graph.
    pub(super) fn take_unused(&mut self) -> Vec<i32> {
        let mut unused = std::mem::take(&mut self.unused);
        unused.sort_unstable();
        unused.dedup();
        unused.retain(|watch| {
            let is_unused = self.watched.get(watch).is_some_and(WatchNodes::is_unused);
            if is_unused {
                self.watched.remove(watch);
            }
            is_unused
        });
        unused
    }

    /// Starts over, and returns the watches of the old graph.
    pub(super) fn clear(&mut self) -> Vec<i32> {
        let serial = self.serial;
        let old = std::mem::replace(self, Graph { serial, ..Graph::default() });
        old.watched.into_keys().collect()
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

    /// Ends all nodes that a watch concerns.
    fn end_watched(&mut self, watch: i32, report: EndReport<'_, E>, budget: &mut usize) {
        let Some(watched) = self.watched.get(&watch) else { return };
        let named = watched.names.values().flatten();
        let all: Vec<usize> = watched.itself.iter().chain(named).copied().collect();
        self.end(all, report, budget);
    }

    /// Ends nodes with their dependents, up to `budget`, which is then 0, and nodes that only they needed.
    fn end(&mut self, mut ending: Vec<usize>, report: EndReport<'_, E>, budget: &mut usize) {
        let mut needed = Vec::new();
        while let Some(at) = ending.pop() {
            if *budget == 0 {
                return;
            }
            if let Some(node) = self.remove(at) {
                *budget -= 1;
                node.entries.iter().for_each(&mut *report);
                ending.extend(node.dependents);
                needed.extend(node.depends_on);
            }
        }
        self.release_all(needed);
    }

    fn remove(&mut self, at: usize) -> Option<GraphNode<E>> {
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

    fn release_all(&mut self, mut candidates: Vec<usize>) {
        while let Some(at) = candidates.pop() {
            let Some(node) = self.nodes.get_mut(at) else { continue };
            node.entries.retain(E::is_valid);
            if node.entries.is_empty()
                && node.dependents.is_empty()
                && let Some(node) = self.remove(at)
            {
                candidates.extend(node.depends_on);
            }
        }
    }
}

#[cfg(test)]
impl<E: std::hash::Hash> std::hash::Hash for Graph<E> {
    /// The same for graphs that hold the same in another order.
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        use std::collections::BTreeMap;
        for (at, node) in &self.nodes {
            let GraphNode { serial, age, text, is_way, watch, depends_on, places, entries, .. } =
                node;
            let mut dependents: Vec<_> = node.dependents.iter().collect();
            dependents.sort_unstable();
            (at, serial, age, text, is_way, watch).hash(hasher);
            (depends_on, dependents, places, entries).hash(hasher);
        }
        self.ways.iter().collect::<BTreeMap<_, _>>().hash(hasher);
        for (watch, watched) in self.watched.iter().collect::<BTreeMap<_, _>>() {
            let names: BTreeMap<_, _> = watched.names.iter().collect();
            (watch, names, &watched.itself).hash(hasher);
        }
        (&self.unused, self.serial, self.is_void).hash(hasher);
    }
}
