//! An open file: its descriptor, its metadata at the time of opening, and where it may be read
//! inline.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;

use super::metadata::{FileKind, Metadata};
use super::target::Target;
use super::{Io, known, offload};
use crate::mounts::Mount;
use crate::pool::{Class, Op, Pool};
use crate::time::turn;

/// Freeing this much of a deleted file (in units of 512 bytes) takes negligible time.
const QUICK_BLOCKS: u64 = 16 * 1024;

/// An open file. Clones share the descriptor; it is closed with the last of them.
#[derive(Clone)]
pub struct File {
    pub(super) handle: Arc<FileHandle>,
    /// The first bytes, if they were read as part of opening.
    pub(super) head: Bytes,
}

pub(super) struct FileHandle {
    /// `None` only while it is being dropped.
    fd: Option<OwnedFd>,
    pub(super) metadata: Metadata,
    pub(super) mount: &'static Mount,
    /// See [`known::file_id`].
    pub(super) id: u64,
    /// The extent map is in memory: a read of a cold page will not wait inside the call.
    pub(super) touched: AtomicBool,
    /// An inline read missed, and no read in the pool has finished since.
    missing: AtomicBool,
    /// Another request of the turn in which it was opened uses it, too.
    pub(super) shared: AtomicBool,
    /// cachestat(2) is not allowed on this file.
    pub(super) no_cachestat: AtomicBool,
    /// Opened for direct I/O; reads are aligned to this many bytes.
    pub(super) direct: Option<u32>,
    /// The pool in which it is closed if that may take long.
    pool: Pool,
    /// The turn of the loop in which it was opened, if on a loop.
    opened: Option<Instant>,
    written: bool,
    /// The end of what this process has written.
    written_end: AtomicU64,
}

impl FileHandle {
    pub(super) fn new(
        fd: OwnedFd,
        metadata: Metadata,
        mount: &'static Mount,
        direct: Option<u32>,
        pool: Pool,
    ) -> FileHandle {
        FileHandle {
            fd: Some(fd),
            metadata,
            mount,
            id: known::file_id(&metadata),
            touched: AtomicBool::new(false),
            missing: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            no_cachestat: AtomicBool::new(false),
            direct,
            pool,
            opened: turn::begun(),
            written: false,
            written_end: AtomicU64::new(0),
        }
    }

    /// The file, and the file system that it is on.
    pub(super) fn target(&self) -> Target {
        Target { file: self.id, disk: Some(self.mount) }
    }

    /// Size in bytes at opening, or more if this handle has written more since.
    pub(super) fn size(&self) -> u64 {
        self.metadata.size.max(self.written_end.load(Relaxed))
    }

    /// The bytes from `offset` up to `end` were written: they are in memory, and so is their place
    /// on the disk. Called in the pool.
    pub(super) fn wrote(&self, offset: u64, end: u64) {
        self.written_end.fetch_max(end, Relaxed);
        if self.mount.reads_inline() {
            self.touched.store(true, Relaxed);
        }
        self.used(offset, end);
    }

    /// Marks a file that this process writes.
    pub(super) fn written(mut self) -> FileHandle {
        self.written = true;
        self
    }

    pub(super) fn is_touched(&self) -> bool {
        self.touched.load(Relaxed)
    }

    /// An inline read missed (true), or a read in the pool has finished (false).
    pub(super) fn set_missing(&self, missing: bool) {
        if self.missing.swap(missing, Relaxed) != missing {
            self.mount.set_missing(missing);
        }
    }

    /// The bytes from `offset` up to `end` were read just now.
    pub(super) fn used(&self, offset: u64, end: u64) {
        self.used_since(offset, offset, end);
    }

    /// Like [`used`](Handle::used); the bytes from `begin` up to `offset` were read a moment ago.
    pub(super) fn used_since(&self, begin: u64, offset: u64, end: u64) {
        if self.direct.is_none() && self.mount.reads_inline() && !self.mount.is_memory() {
            let (size, now) = (self.size(), known::Tick::now());
            known::learn_used(self.id, begin, offset, end, size, now);
        }
    }

    /// Whether closing may wait: the last close of a deleted file frees its blocks (disk work:
    /// hundreds of milliseconds for gigabytes); network and user-space file systems flush.
    fn is_slow_to_close(&self) -> bool {
        if self.written || !self.mount.is_inline() {
            return true;
        }
        // The file was opened by name in this turn: it is so unlikely to have been deleted since
        // that checking costs more, unless the file is very large.
        let is_of_this_turn = self.opened.is_some() && self.opened == turn::begun();
        self.metadata.kind == FileKind::File
            && !(is_of_this_turn && self.metadata.blocks <= QUICK_BLOCKS)
            && rustix::fs::fstat(self.as_fd()).is_ok_and(|stat| stat.st_nlink == 0)
    }
}

impl AsFd for FileHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("the descriptor is there until the drop").as_fd()
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.set_missing(false);
        if !self.is_slow_to_close() {
            return;
        }
        if let Some(fd) = self.fd.take() {
            self.pool.run_detached(Op::Close, move || drop(fd));
        }
    }
}

impl File {
    /// Metadata at the time of opening.
    pub fn metadata(&self) -> &Metadata {
        &self.handle.metadata
    }

    /// Size in bytes at the time of opening.
    pub fn size(&self) -> u64 {
        self.handle.metadata.size
    }

    /// Current metadata of the open file; never waits on local file systems, goes to the pool on
    /// others.
    pub async fn metadata_now(&self, io: &Io) -> io::Result<Metadata> {
        if let Some(metadata) = self.try_metadata_now() {
            return metadata;
        }
        let handle = self.handle.clone();
        let work = move || Ok(Metadata::from_stat(&rustix::fs::fstat(&*handle)?));
        offload(io, Class::Path, Op::Stat, self.handle.target(), work).await
    }

    /// Like [`metadata_now`](File::metadata_now) on file systems where that never waits; `None` on others.
    pub fn try_metadata_now(&self) -> Option<io::Result<Metadata>> {
        let stat = || Ok(Metadata::from_stat(&rustix::fs::fstat(&*self.handle)?));
        self.handle.mount.is_inline().then(stat)
    }

    /// The file system it is on.
    pub fn mount(&self) -> &'static Mount {
        self.handle.mount
    }

    /// Opened with O_DIRECT: it is read, never sent by sendfile.
    pub fn is_direct(&self) -> bool {
        self.handle.direct.is_some()
    }

    /// The bytes read as part of opening, from the file's start; often empty.
    pub fn head(&self) -> &Bytes {
        &self.head
    }

    /// Drops [`head`](File::head), for callers that keep the file beyond reading its beginning.
    pub fn forget_head(&mut self) {
        if !self.head.is_empty() {
            self.head = Bytes::new();
        }
    }

    /// Whether both have the same descriptor.
    pub(super) fn is_same(&self, other: &File) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// Another request uses it, too.
    pub(super) fn share(&self) {
        self.handle.shared.store(true, Relaxed);
    }

    /// The same file without [`head`](File::head): for caches of open files.
    pub fn without_head(&self) -> File {
        File { handle: self.handle.clone(), head: Bytes::new() }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("fd", &self.as_fd())
            .field("metadata", &self.handle.metadata)
            .finish_non_exhaustive()
    }
}
