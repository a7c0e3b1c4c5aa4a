//! An object found by a look-up, with the data of its file.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use nowait_runtime::fs::{File, Metadata};

use crate::format::ObjectHead;
use crate::time::UnixMs;

/// An object in the cache.
#[derive(Clone, Debug)]
pub struct Hit {
    pub(crate) object: Arc<OpenedObject>,
    /// Purged softly: to be treated as stale.
    pub soft_purged: bool,
    /// A fill or a revalidation of it is under way.
    pub updating: bool,
    /// The number of requests for it; saturates.
    pub uses: u16,
    pub(crate) stamp: u64,
    /// Number of the store that it was found in.
    pub(crate) store: u64,
}

impl Hit {
    /// Identity, validity, metadata and header bytes.
    pub fn head(&self) -> &Arc<ObjectHead> {
        &self.object.head
    }

    /// Distinguishes this object from any that replaces it.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Bytes of the body.
    pub fn body_length(&self) -> u64 {
        self.object.body_length
    }

    /// The body.
    pub fn body(&self) -> HitBody {
        match (&self.object.body, &self.object.file) {
            (Some(bytes), _) => HitBody::Bytes(bytes.clone()),
            (None, Some(file)) => HitBody::File {
                file: file.clone(),
                offset: u64::from(self.object.head.layout.body_offset),
            },
            (None, None) => HitBody::Bytes(Bytes::new()),
        }
    }
}

/// The location of an object's body.
#[derive(Clone, Debug)]
pub enum HitBody {
    /// All of it.
    Bytes(Bytes),
    /// In a file, from `offset` on.
    File {
        /// Open for reading.
        file: File,
        /// The start of the body.
        offset: u64,
    },
}

/// An object whose head was found valid. At least one of `file` and `body` is set.
#[derive(Clone, Debug)]
pub(crate) struct OpenedObject {
    pub head: Arc<ObjectHead>,
    pub body_length: u64,
    /// The open file; those that are kept have none if they have a body.
    pub file: Option<File>,
    /// The whole body, if it was read together with the head.
    pub body: Option<Bytes>,
    /// The file as it was opened.
    pub state: FileState,
    pub check: LastCheck,
}

impl OpenedObject {
    /// The object as it is kept: small ones need no descriptor.
    pub(crate) fn into_kept(self) -> Arc<OpenedObject> {
        let file = self.file.filter(|_| self.body.is_none());
        Arc::new(OpenedObject { file, ..self })
    }

    /// Whether the open file still has the size that it had when opened, as far as that can be
    /// checked without waiting. A body in memory is always whole.
    pub(crate) fn is_whole(&self) -> bool {
        match &self.file {
            Some(file) => match file.try_metadata_now() {
                Some(metadata) => metadata.is_ok_and(|metadata| metadata.size == file.size()),
                None => true,
            },
            None => true,
        }
    }

    /// Bytes of memory: those of the file in a buffer that head and body share, and what describes them.
    pub(crate) fn heap_bytes(&self) -> usize {
        /// What allocations take beyond their contents.
        const ALLOCATIONS: usize = 96;
        let buffer =
            self.head.layout.body_offset as usize + self.body.as_ref().map_or(0, Bytes::len);
        buffer + size_of::<OpenedObject>() + size_of::<ObjectHead>() + ALLOCATIONS
    }
}

/// Identifies a state of a file: any change of its content, its permissions or its name is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    dev: u64,
    ino: u64,
    size: u64,
    ctime: i64,
    ctime_nsec: u32,
    /// Blocks of the file system that the file takes.
    pub blocks: u32,
}

impl FileState {
    pub(crate) fn of(metadata: &Metadata) -> FileState {
        let Metadata { dev, ino, size, ctime, ctime_nsec, .. } = *metadata;
        let blocks = u32::try_from(metadata.blocks).unwrap_or(u32::MAX);
        FileState { dev, ino, size, ctime, ctime_nsec, blocks }
    }

    /// Whether the name leads to the same file in the same state; that it has more or fewer blocks now is
    /// irrelevant.
    pub(crate) fn is(&self, other: &FileState) -> bool {
        let FileState { dev, ino, size, ctime, ctime_nsec, .. } = *other;
        FileState { dev, ino, size, ctime, ctime_nsec, ..*self } == *self
    }
}

/// The time after which it is checked whether an object's name still leads to its file.
const CHECK_AFTER_MS: u64 = 1000;

/// When an object's name last led to its file, in milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct LastCheck(AtomicU64);

impl LastCheck {
    /// The file was just opened.
    pub(crate) fn new(now: UnixMs) -> LastCheck {
        LastCheck(AtomicU64::new(now.0))
    }

    /// Whether another check is due. The clock may have been set.
    pub(crate) fn is_due(&self, now: UnixMs) -> bool {
        now.0.abs_diff(self.0.load(Relaxed)) >= CHECK_AFTER_MS
    }

    /// The file is still there.
    pub(crate) fn confirm(&self, now: UnixMs) {
        self.0.store(now.0, Relaxed);
    }
}

impl Clone for LastCheck {
    fn clone(&self) -> LastCheck {
        LastCheck::new(UnixMs(self.0.load(Relaxed)))
    }
}
