//! Walks a path step by step, watches whatever could change where it leads, and reads what is there.
//!
//! Runs on pool threads.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::changes::Changes;
use super::graph::NodeId;
use super::{Outcome, Resident, Wanted};
use crate::fs::symlinks::open_path;
use crate::fs::{Kind, Metadata};
use crate::mounts::{self, FsType};

/// Most links on a path, and most steps.
const LINKS_MAX: usize = 16;
const STEPS_MAX: usize = 256;

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Makes the entry of a path, watched from the root on; `None`: there can't be one, or something
/// changed meanwhile.
pub(super) fn walk(changes: &Changes, wanted: &Wanted) -> Option<Arc<Resident>> {
    let entry = Arc::new(Resident::new(wanted, changes.age()));
    // A slash at the end has a meaning of its own.
    if wanted.path.last() == Some(&b'/') || wanted.path.contains(&0) {
        return None;
    }
    let mut walk = Walk { changes, age: entry.age, links: 0, steps: 0, made: Vec::new() };
    let done = walk.entry(wanted, &entry);
    if done.is_none() {
        entry.valid.store(false, SeqCst);
        walk.made.into_iter().rev().for_each(|node| changes.release(node));
    }
    done.map(|()| entry)
}

/// Where a walk stands.
struct At {
    node: NodeId,
    text: Box<[u8]>,
    fd: OwnedFd,
    kind: Kind,
}

enum Reached {
    Found(At),
    Missing(NodeId, Errno),
}

struct Walk<'a> {
    changes: &'a Changes,
    age: u32,
    links: usize,
    steps: usize,
    made: Vec<NodeId>,
}

impl Walk<'_> {
    fn entry(&mut self, wanted: &Wanted, entry: &Arc<Resident>) -> Option<()> {
        let root = self.root()?;
        let reached = self.go(root, &wanted.path)?;
        let (Reached::Found(At { node, .. }) | Reached::Missing(node, _)) = &reached;
        self.changes.attach(*node, entry)?;
        let outcome = match reached {
            Reached::Missing(_, errno) => missing(wanted, errno)?,
            Reached::Found(at) => found(wanted, &at)?,
        };
        let _ = entry.outcome.set(outcome);
        entry.valid.load(SeqCst).then_some(())
    }

    fn root(&mut self) -> Option<At> {
        let fd = openat(CWD, "/", LOOK | OFlags::DIRECTORY, Mode::empty()).ok()?;
        let text = Box::from(&b"/"[..]);
        if let Some(node) = self.changes.way(&text) {
            return Some(At { node, text, fd, kind: Kind::Directory });
        }
        let node = self.begin(&text, None)?;
        self.look(node, text, fd)
    }

    fn begin(&mut self, text: &[u8], parent: Option<(NodeId, &[u8])>) -> Option<NodeId> {
        let node = self.changes.begin(text.into(), parent, self.age)?;
        self.made.push(node);
        Some(node)
    }

    /// Goes on from `at` along `path`.
    fn go(&mut self, mut at: At, path: &[u8]) -> Option<Reached> {
        for name in path.split(|byte| *byte == b'/') {
            if name.is_empty() || name == b"." {
                continue;
            }
            match self.step(at, name)? {
                Reached::Found(next) => at = next,
                missing => return Some(missing),
            }
        }
        Some(Reached::Found(at))
    }

    fn step(&mut self, at: At, name: &[u8]) -> Option<Reached> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return None;
        }
        let mut text = at.text.to_vec();
        if text.last() != Some(&b'/') {
            text.push(b'/');
        }
        text.extend_from_slice(name);
        let text = text.into_boxed_slice();
        if at.kind == Kind::Directory
            && let Some(node) = self.changes.way(&text)
        {
            // As it was walked before, or the node ends.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = openat(&at.fd, name, flags, Mode::empty()).ok()?;
            return Some(Reached::Found(At { node, text, fd, kind: Kind::Directory }));
        }
        let node = self.begin(&text, Some((at.node, name)))?;
        if at.kind != Kind::Directory {
            return Some(Reached::Missing(node, Errno::NOTDIR));
        }
        let fd = match openat(&at.fd, name, LOOK, Mode::empty()) {
            Ok(fd) => fd,
            Err(errno @ (Errno::NOENT | Errno::NAMETOOLONG)) => {
                return Some(Reached::Missing(node, errno));
            }
            Err(_) => return None,
        };
        if Metadata::from_stat(&fstat(&fd).ok()?).kind == Kind::Symlink {
            return self.follow(at, node, text, &fd);
        }
        self.look(node, text, fd).map(Reached::Found)
    }

    /// Watches what was found.
    fn look(&mut self, node: NodeId, text: Box<[u8]>, fd: OwnedFd) -> Option<At> {
        let metadata = Metadata::from_stat(&fstat(&fd).ok()?);
        if !matches!(metadata.kind, Kind::Directory | Kind::File) || !reports(&fd, &metadata) {
            return None;
        }
        self.changes.watch(node, fd.as_fd(), metadata.is_dir())?;
        Some(At { node, text, fd, kind: metadata.kind })
    }

    fn follow(&mut self, at: At, node: NodeId, text: Box<[u8]>, link: &OwnedFd) -> Option<Reached> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return None;
        }
        let target = readlinkat(link, "", Vec::new()).ok()?;
        let target = target.to_bytes();
        let from = if target.first() == Some(&b'/') { self.root()? } else { at };
        Some(match self.go(from, target)? {
            Reached::Found(found) => {
                self.changes.link(node, found.node)?;
                Reached::Found(At { node, text, ..found })
            }
            Reached::Missing(missing, errno) => {
                self.changes.link(node, missing)?;
                Reached::Missing(node, errno)
            }
        })
    }
}

/// Whether the kernel reports all changes of a file: not those that other hosts or processes make
/// behind its back. A file of a lower layer of overlayfs keeps its inode, and the watch, when it is
/// copied up.
fn reports(fd: &OwnedFd, metadata: &Metadata) -> bool {
    match mounts::of(fd.as_fd(), metadata.dev).fs_type {
        FsType::Ext4 | FsType::Xfs | FsType::Btrfs | FsType::Tmpfs | FsType::Overlay => true,
        FsType::Other => false,
    }
}

/// Nothing is there, and the kernel agrees.
fn missing(wanted: &Wanted, errno: Errno) -> Option<Outcome> {
    let error = open_path(&wanted.path, wanted.symlinks, LOOK & !OFlags::NOFOLLOW).err()?;
    let code = error.raw_os_error()?;
    (code == errno.raw_os_error()).then_some(Outcome::Missing(code))
}

fn found(wanted: &Wanted, at: &At) -> Option<Outcome> {
    // The permission to read, and the rules for links, are the kernel's.
    let flags = if at.kind == Kind::File { READ } else { LOOK & !OFlags::NOFOLLOW };
    let fd = open_path(&wanted.path, wanted.symlinks, flags).ok()?;
    let walked = Metadata::from_stat(&fstat(&at.fd).ok()?);
    let metadata = Metadata::from_stat(&fstat(&fd).ok()?);
    if (walked.dev, walked.ino) != (metadata.dev, metadata.ino) {
        return None;
    }
    if !metadata.is_file() {
        return Some(Outcome::Other(metadata));
    }
    if metadata.size > wanted.size_max as u64 {
        return wanted.metadata.then_some(Outcome::Other(metadata));
    }
    let size = usize::try_from(metadata.size).ok()?;
    let mut content = Vec::with_capacity(size + 1);
    nowait_sys::fs::read_at(fd.as_fd(), 0, size + 1, &mut content).ok()?;
    let now = Metadata::from_stat(&fstat(&fd).ok()?);
    content.shrink_to_fit();
    (content.len() == size && now == metadata)
        .then(|| Outcome::File(metadata, Bytes::from(content)))
}
