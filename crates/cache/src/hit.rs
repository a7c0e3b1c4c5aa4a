//! An object that was found: what a look-up returns, and what is known of its file.

use std::sync::Arc;

use bytes::Bytes;
use nowait_runtime::fs::File;

use crate::format::ObjectHead;

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
        /// Where the body begins.
        offset: u64,
    },
}

/// An object whose head was found valid. At least one of `file` and `body` is set.
#[derive(Clone, Debug)]
pub(crate) struct OpenedObject {
    pub head: Arc<ObjectHead>,
    pub body_length: u64,
    pub file: Option<File>,
    /// The whole body, if it was read together with the head.
    pub body: Option<Bytes>,
}

impl OpenedObject {
    /// Whether the open file still has the size that it had when opened, as far as that can be
    /// checked without waiting. A body in memory is always whole.
    pub(crate) fn is_whole(&self) -> bool {
        match (&self.body, &self.file) {
            (None, Some(file)) => match file.try_metadata_now() {
                Some(metadata) => metadata.is_ok_and(|metadata| metadata.size == file.size()),
                None => true,
            },
            _ => true,
        }
    }
}
