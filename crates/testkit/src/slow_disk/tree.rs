//! Inode numbers of the slow disk and the paths behind them.
//!
//! The kernel identifies a file by the inode number that a lookup returned; the backing store is
//! accessed by path. A node knows only its parent and name, so renaming a directory moves
//! everything below it. A removed node no longer has a path but lives until the kernel forgets it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Inode number of the root, fixed by the protocol.
pub(super) const ROOT: u64 = 1;

#[derive(Debug)]
struct TreeNode {
    /// `None` once the name has been removed.
    place: Option<(u64, OsString)>,
    /// Number of lookups reported to the kernel; it forgets as many.
    lookups: u64,
}

/// All nodes that the kernel knows.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: HashMap<u64, TreeNode>,
    names: HashMap<(u64, OsString), u64>,
    last: u64,
}

impl Tree {
    pub(super) fn new() -> Tree {
        let root = TreeNode { place: Some((0, OsString::new())), lookups: 1 };
        Tree { nodes: HashMap::from([(ROOT, root)]), names: HashMap::new(), last: ROOT }
    }

    /// Path of a node relative to the root; `None` if it or a parent no longer has a name.
    pub(super) fn path(&self, ino: u64) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let (parent, name) = self.nodes.get(&at)?.place.as_ref()?;
            names.push(name);
            at = *parent;
        }
        Some(names.into_iter().rev().collect())
    }

    /// Path of `name` in a directory.
    pub(super) fn path_in(&self, parent: u64, name: &OsStr) -> Option<PathBuf> {
        Some(self.path(parent)?.join(name))
    }

    /// The number to report to the kernel for an existing name; counts as one lookup.
    pub(super) fn remember(&mut self, parent: u64, name: &OsStr) -> u64 {
        let place = (parent, name.to_owned());
        let ino = match self.names.get(&place) {
            Some(&ino) => ino,
            None => {
                self.last += 1;
                self.names.insert(place.clone(), self.last);
                let node = TreeNode { place: Some(place), lookups: 0 };
                self.nodes.insert(self.last, node);
                self.last
            }
        };
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups += 1;
        }
        ino
    }

    /// The kernel returns `n` of its lookups.
    pub(super) fn forget(&mut self, ino: u64, n: u64) {
        let Some(node) = self.nodes.get_mut(&ino) else {
            return;
        };
        node.lookups = node.lookups.saturating_sub(n);
        if node.lookups == 0
            && ino != ROOT
            && let Some(place) = self.nodes.remove(&ino).and_then(|node| node.place)
        {
            self.names.remove(&place);
        }
    }

    /// A name was removed.
    pub(super) fn unlink(&mut self, parent: u64, name: &OsStr) {
        if let Some(ino) = self.names.remove(&(parent, name.to_owned()))
            && let Some(node) = self.nodes.get_mut(&ino)
        {
            node.place = None;
        }
    }

    /// A name was moved, perhaps over another.
    pub(super) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        self.unlink(to.0, to.1);
        let Some(ino) = self.names.remove(&(from.0, from.1.to_owned())) else {
            return;
        };
        let place = (to.0, to.1.to_owned());
        self.names.insert(place.clone(), ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.place = Some(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn a_renamed_directory_takes_its_files_along() {
        let mut tree = Tree::new();
        let dir = tree.remember(ROOT, name("dir"));
        let file = tree.remember(dir, name("file"));
        let other = tree.remember(ROOT, name("other"));
        assert_eq!(tree.remember(dir, name("file")), file);
        tree.rename((ROOT, name("dir")), (ROOT, name("other")));
        assert_eq!(tree.path(file), Some("other/file".into()));
        assert_eq!(tree.path(other), None);
        assert_eq!(tree.path(ROOT), Some("".into()));
    }

    #[test]
    fn an_unlinked_node_lives_until_forgotten() {
        let mut tree = Tree::new();
        let old = tree.remember(ROOT, name("a"));
        tree.unlink(ROOT, name("a"));
        let new = tree.remember(ROOT, name("a"));
        assert_ne!(old, new);
        tree.forget(old, 1);
        assert_eq!(tree.path(new), Some("a".into()));
        tree.forget(new, 1);
        assert_eq!(tree.path(new), None);
    }
}
