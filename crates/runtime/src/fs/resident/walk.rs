//! Walks a path step by step, watches all directories, links and files that determine its target, and reads
//! the target.
//!
//! Runs on pool threads.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::changes::{Changes, WalkFailure};
use super::graph::NodeId;
use super::{PathOutcome, Resident, ResidentQuery};
use crate::fs::symlinks::open_path;
use crate::fs::{FileKind, Metadata};
use crate::mounts::{self, FsType};

/// Maximum number of links on a path, and most steps.
const LINKS_MAX: usize = 16;
const STEPS_MAX: usize = 256;

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

type Walked<T> = Result<T, WalkFailure>;

/// Makes the entry of a path, watched from the root on.
pub(super) fn walk(changes: &Changes, wanted: &ResidentQuery) -> Walked<Arc<Resident>> {
    let entry = Arc::new(Resident::new(wanted, changes.age()));
    // A slash at the end has a meaning of its own.
    if wanted.path.last() == Some(&b'/') || wanted.path.contains(&0) {
        return Err(WalkFailure::Impossible);
    }
    let mut walk = PathWalk { changes, age: entry.age, links: 0, steps: 0, made: Vec::new() };
    let done = walk.entry(wanted, &entry);
    if done.is_err() {
        entry.valid.store(false, SeqCst);
        walk.made.into_iter().rev().for_each(|node| changes.release(node));
    }
    done.map(|()| entry)
}

/// The position of a walk.
struct WalkPosition {
    node: NodeId,
    text: Box<[u8]>,
    fd: OwnedFd,
    kind: FileKind,
}

enum WalkResult {
    Found(WalkPosition),
    Missing(NodeId, Errno),
}

struct PathWalk<'a> {
    changes: &'a Changes,
    age: u32,
    links: usize,
    steps: usize,
    made: Vec<NodeId>,
}

impl PathWalk<'_> {
    fn entry(&mut self, wanted: &ResidentQuery, entry: &Arc<Resident>) -> Walked<()> {
        let (start, rest) = self.start(&wanted.path)?;
        let reached = self.go(start, rest)?;
        let (WalkResult::Found(WalkPosition { node, .. }) | WalkResult::Missing(node, _)) =
            &reached;
        self.changes.attach(*node, entry).ok_or(WalkFailure::Changed)?;
        let outcome = match reached {
            WalkResult::Missing(_, errno) => missing(wanted, errno)?,
            WalkResult::Found(at) => found(wanted, &at)?,
        };
        let _ = entry.outcome.set(outcome);
        entry.valid.load(SeqCst).then_some(()).ok_or(WalkFailure::Changed)
    }

    /// The deepest directory on the path that was walked before, or the root, and what of the path
    /// follows it. Most files are in a directory of which others are resident.
    fn start<'p>(&mut self, path: &'p [u8]) -> Walked<(WalkPosition, &'p [u8])> {
        let (mut text, mut directories, mut at) = (Vec::new(), Vec::new(), 0);
        for name in path.split(|byte| *byte == b'/') {
            if is_step(name) {
                directories.push((text.len(), at));
                text.push(b'/');
                text.extend_from_slice(name);
            }
            at += name.len() + 1;
        }
        for (len, at) in directories.into_iter().skip(1).rev() {
            let text = &text[..len];
            if let Some(node) = self.changes.way(text) {
                return Ok((self.known(CWD, text, node, text.into())?, &path[at..]));
            }
        }
        Ok((self.root()?, path))
    }

    /// Opens a directory that was walked before. The result must equal that of the first walk; otherwise
    /// its node ends.
    fn known(
        &self,
        from: impl AsFd,
        path: &[u8],
        node: NodeId,
        text: Box<[u8]>,
    ) -> Walked<WalkPosition> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(from, path, flags, Mode::empty()).map_err(|_| WalkFailure::Changed)?;
        Ok(WalkPosition { node, text, fd, kind: FileKind::Directory })
    }

    fn root(&mut self) -> Walked<WalkPosition> {
        let fd = openat(CWD, "/", LOOK | OFlags::DIRECTORY, Mode::empty()).map_err(impossible)?;
        let text = Box::from(&b"/"[..]);
        if let Some(node) = self.changes.way(&text) {
            return Ok(WalkPosition { node, text, fd, kind: FileKind::Directory });
        }
        let node = self.begin(&text, None)?;
        let metadata = Metadata::from_stat(&fstat(&fd).map_err(impossible)?);
        self.look(node, text, fd, &metadata)
    }

    fn begin(&mut self, text: &[u8], parent: Option<(NodeId, &[u8])>) -> Walked<NodeId> {
        let node = self.changes.begin(text.into(), parent, self.age).ok_or(WalkFailure::Changed)?;
        self.made.push(node);
        Ok(node)
    }

    /// Continues from `at` along `path`.
    fn go(&mut self, mut at: WalkPosition, path: &[u8]) -> Walked<WalkResult> {
        for name in path.split(|byte| *byte == b'/') {
            if !is_step(name) {
                continue;
            }
            match self.step(at, name)? {
                WalkResult::Found(next) => at = next,
                missing => return Ok(missing),
            }
        }
        Ok(WalkResult::Found(at))
    }

    fn step(&mut self, at: WalkPosition, name: &[u8]) -> Walked<WalkResult> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(WalkFailure::Impossible);
        }
        let mut text = at.text.to_vec();
        if text.last() != Some(&b'/') {
            text.push(b'/');
        }
        text.extend_from_slice(name);
        let text = text.into_boxed_slice();
        if at.kind == FileKind::Directory
            && let Some(node) = self.changes.way(&text)
        {
            return self.known(&at.fd, name, node, text).map(WalkResult::Found);
        }
        let node = self.begin(&text, Some((at.node, name)))?;
        if at.kind != FileKind::Directory {
            return Ok(WalkResult::Missing(node, Errno::NOTDIR));
        }
        let fd = match openat(&at.fd, name, LOOK, Mode::empty()) {
            Ok(fd) => fd,
            Err(errno @ (Errno::NOENT | Errno::NAMETOOLONG)) => {
                return Ok(WalkResult::Missing(node, errno));
            }
            Err(errno) => return Err(impossible(errno)),
        };
        let metadata = Metadata::from_stat(&fstat(&fd).map_err(impossible)?);
        if metadata.kind == FileKind::Symlink {
            return self.follow(at, node, text, &fd);
        }
        self.look(node, text, fd, &metadata).map(WalkResult::Found)
    }

    /// Watches the file that was found.
    fn look(
        &self,
        node: NodeId,
        text: Box<[u8]>,
        fd: OwnedFd,
        metadata: &Metadata,
    ) -> Walked<WalkPosition> {
        if !matches!(metadata.kind, FileKind::Directory | FileKind::File) || !reports(&fd, metadata)
        {
            return Err(WalkFailure::Impossible);
        }
        self.changes.watch(node, fd.as_fd(), metadata.is_dir())?;
        Ok(WalkPosition { node, text, fd, kind: metadata.kind })
    }

    fn follow(
        &mut self,
        at: WalkPosition,
        node: NodeId,
        text: Box<[u8]>,
        link: &OwnedFd,
    ) -> Walked<WalkResult> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(WalkFailure::Impossible);
        }
        let target = readlinkat(link, "", Vec::new()).map_err(impossible)?;
        let target = target.to_bytes();
        let from = if target.first() == Some(&b'/') { self.root()? } else { at };
        Ok(match self.go(from, target)? {
            WalkResult::Found(found) => {
                self.changes.link(node, found.node).ok_or(WalkFailure::Changed)?;
                WalkResult::Found(WalkPosition { node, text, ..found })
            }
            WalkResult::Missing(missing, errno) => {
                self.changes.link(node, missing).ok_or(WalkFailure::Changed)?;
                WalkResult::Missing(node, errno)
            }
        })
    }
}

fn is_step(name: &[u8]) -> bool {
    !name.is_empty() && name != b"."
}

/// Whether the kernel reports all changes of a file, which excludes changes by other hosts or
/// user-space file systems. A file of a lower layer of overlayfs keeps its inode, and the watch,
/// when it is copied up.
fn reports(fd: &OwnedFd, metadata: &Metadata) -> bool {
    match mounts::of(fd.as_fd(), metadata.dev).fs_type {
        FsType::Ext4 | FsType::Xfs | FsType::Btrfs | FsType::Tmpfs | FsType::Overlay => true,
        FsType::Other => false,
    }
}

fn impossible(_errno: Errno) -> WalkFailure {
    WalkFailure::Impossible
}

/// The name is missing, also according to the kernel.
fn missing(wanted: &ResidentQuery, errno: Errno) -> Walked<PathOutcome> {
    match open_path(&wanted.path, wanted.symlinks, LOOK & !OFlags::NOFOLLOW) {
        Ok(_) => Err(WalkFailure::Changed),
        Err(error) if error.raw_os_error() == Some(errno.raw_os_error()) => {
            Ok(PathOutcome::Missing(errno.raw_os_error()))
        }
        Err(_) => Err(WalkFailure::Impossible),
    }
}

fn found(wanted: &ResidentQuery, at: &WalkPosition) -> Walked<PathOutcome> {
    // The permission to read, and the rules for links, are the kernel's.
    let flags = if at.kind == FileKind::File { READ } else { LOOK & !OFlags::NOFOLLOW };
    let fd =
        open_path(&wanted.path, wanted.symlinks, flags).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => WalkFailure::Changed,
            _ => WalkFailure::Impossible,
        })?;
    let walked = Metadata::from_stat(&fstat(&at.fd).map_err(impossible)?);
    let metadata = Metadata::from_stat(&fstat(&fd).map_err(impossible)?);
    if (walked.dev, walked.ino) != (metadata.dev, metadata.ino) {
        return Err(WalkFailure::Changed);
    }
    if !metadata.is_file() {
        return Ok(PathOutcome::Other(metadata));
    }
    if metadata.size > wanted.size_max as u64 {
        return wanted
            .metadata
            .then_some(PathOutcome::Other(metadata))
            .ok_or(WalkFailure::Impossible);
    }
    let size = usize::try_from(metadata.size).map_err(|_| WalkFailure::Impossible)?;
    let mut content = Vec::with_capacity(size + 1);
    nowait_sys::fs::read_at(fd.as_fd(), 0, size + 1, &mut content)
        .map_err(|_| WalkFailure::Impossible)?;
    let now = Metadata::from_stat(&fstat(&fd).map_err(impossible)?);
    content.shrink_to_fit();
    (content.len() == size && now == metadata)
        .then(|| PathOutcome::File(metadata, Bytes::from(content)))
        .ok_or(WalkFailure::Changed)
}
