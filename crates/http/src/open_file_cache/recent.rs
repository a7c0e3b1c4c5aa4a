//! A map that knows its least recently used entry.
//!
//! Used by the cache of open files. An [`IndexMap`] whose entries are linked in order of use; every
//! operation takes constant time. Bounded by its owner.

use std::hash::Hash;

use indexmap::{Equivalent, IndexMap};
use rustc_hash::FxBuildHasher;

/// No entry.
const NONE: usize = usize::MAX;

struct Node<V> {
    value: V,
    newer: usize,
    older: usize,
}

pub(super) struct Recent<K, V> {
    nodes: IndexMap<K, Node<V>, FxBuildHasher>,
    newest: usize,
    oldest: usize,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { nodes: IndexMap::default(), newest: NONE, oldest: NONE }
    }
}

impl<K: Hash + Eq, V> Recent<K, V> {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// An entry; this does not count as a use.
    pub(super) fn peek<Q: Hash + Equivalent<K>>(&self, key: &Q) -> Option<&V> {
        self.nodes.get(key).map(|node| &node.value)
    }

    /// An entry, which becomes the one used last.
    pub(super) fn get<Q: Hash + Equivalent<K>>(&mut self, key: &Q) -> Option<&mut V> {
        let at = self.nodes.get_index_of(key)?;
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
        Some(&mut self.nodes[at].value)
    }

    /// The entry used longest ago.
    pub(super) fn oldest(&self) -> Option<&V> {
        self.nodes.get_index(self.oldest).map(|(_, node)| &node.value)
    }

    /// Adds an entry, or replaces its value; it becomes the one used last.
    pub(super) fn insert(&mut self, key: K, value: V) {
        let (at, old) = self.nodes.insert_full(key, Node { value, newer: NONE, older: NONE });
        if let Some(old) = old {
            (self.nodes[at].newer, self.nodes[at].older) = (old.newer, old.older);
            self.unlink(at);
        }
        self.link(at);
    }

    pub(super) fn remove<Q: Hash + Equivalent<K>>(&mut self, key: &Q) {
        if let Some(at) = self.nodes.get_index_of(key) {
            self.remove_at(at);
        }
    }

    pub(super) fn remove_oldest(&mut self) {
        if self.oldest != NONE {
            self.remove_at(self.oldest);
        }
    }

    fn remove_at(&mut self, at: usize) {
        self.unlink(at);
        self.nodes.swap_remove_index(at);
        // The last one, if there is another, has moved here.
        if let Some((_, moved)) = self.nodes.get_index(at) {
            let (newer, older) = (moved.newer, moved.older);
            self.join(newer, at);
            self.join(at, older);
        }
    }

    /// Takes an entry out of the order.
    fn unlink(&mut self, at: usize) {
        let Node { newer, older, .. } = self.nodes[at];
        self.join(newer, older);
    }

    /// Makes an entry the newest.
    fn link(&mut self, at: usize) {
        let second = self.newest;
        self.join(NONE, at);
        self.join(at, second);
    }

    /// Makes two entries neighbours; [`NONE`] stands for the end of the order.
    fn join(&mut self, newer: usize, older: usize) {
        match self.nodes.get_index_mut(older) {
            Some((_, node)) => node.newer = newer,
            None => self.oldest = newer,
        }
        match self.nodes.get_index_mut(newer) {
            Some((_, node)) => node.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys, oldest first.
    fn order(map: &Recent<u32, u32>) -> Vec<u32> {
        let (mut keys, mut at) = (Vec::new(), map.oldest);
        while let Some((key, node)) = map.nodes.get_index(at) {
            keys.push(*key);
            at = node.newer;
        }
        keys
    }

    /// Random operations, compared with a list.
    #[test]
    fn entries_are_ordered_by_their_last_use() {
        let (mut map, mut list) = (Recent::default(), Vec::<u32>::new());
        let mut state = 1_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (state >> 16) % 20;
            let known = list.iter().position(|k| *k == key);
            match (state >> 8) % 5 {
                0 | 1 => {
                    map.insert(key, key);
                    known.map(|at| list.remove(at));
                    list.push(key);
                }
                2 => {
                    assert_eq!(map.get(&key).copied(), known.map(|_| key));
                    if let Some(at) = known {
                        list.remove(at);
                        list.push(key);
                    }
                }
                3 => {
                    map.remove(&key);
                    known.map(|at| list.remove(at));
                }
                _ => {
                    map.remove_oldest();
                    if !list.is_empty() {
                        list.remove(0);
                    }
                }
            }
            assert_eq!(order(&map), list);
            assert_eq!(map.oldest(), list.first());
            assert_eq!(map.len(), list.len());
        }
        assert!(map.peek(&7).is_none_or(|value| *value == 7));
    }
}
