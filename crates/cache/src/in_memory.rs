//! The memory tier as look-ups use it: which objects it keeps, and how they get there.
//!
//! An object found in a file for the second time is copied to memory if it is small enough; the
//! tier's admission decides whether it stays. Never makes a request wait.

use std::sync::Arc;

use bytes::Bytes;
use nowait_runtime::fs::Io;

use crate::hit::OpenedObject;
use crate::index::Stored;
use crate::key::Key;
use crate::memory::{Version, Weigh};
use crate::policy;
use crate::store::{Store, Target};

/// The number of objects copied to one store or its memory at the same time.
const COPIES_MAX: usize = 64;

impl Weigh for Arc<OpenedObject> {
    fn heap_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, Bytes::len)
            + self.head.layout.body_offset as usize
            + size_of::<OpenedObject>()
    }
}

impl Store {
    /// The object in memory, if it is still the one that the index describes.
    pub(crate) fn in_memory(&self, target: &Target, stored: &Stored) -> Option<Arc<OpenedObject>> {
        let object = self.memory.as_ref()?.find(&target.key, Version::of(stored))?;
        object.head.is_of(&target.key, &target.text).then_some(object)
    }

    /// An object was found in its file: keeps it in memory if it is worth it.
    pub(crate) fn offer_to_memory(
        self: &Arc<Self>,
        io: &Io,
        key: Key,
        stored: &Stored,
        object: &Arc<OpenedObject>,
    ) {
        let Some(memory) = &self.memory else { return };
        if !policy::keep_in_memory(stored.uses, stored.length, memory.object_bytes_max()) {
            return;
        }
        let version = Version::of(stored);
        if object.body.is_some() {
            // Head and body are parts of one buffer, which is counted whole.
            let copy = OpenedObject { file: None, ..OpenedObject::clone(object) };
            memory.keep(key, version, Arc::new(copy));
            return;
        }
        if !self.begin_copy(key) {
            return;
        }
        let (store, io, object) = (self.clone(), io.clone(), object.clone());
        drop(nowait_runtime::spawn(async move {
            if let Some(copy) = store.read_whole(&io, &object).await
                && let Some(memory) = &store.memory
            {
                memory.keep(key, version, Arc::new(copy));
            }
            store.lock_copies().remove(&key);
        }));
    }

    /// Notes that an object is being copied; false if it already is, or there are too many.
    pub(crate) fn begin_copy(&self, key: Key) -> bool {
        let mut copies = self.lock_copies();
        copies.len() < COPIES_MAX && copies.insert(key)
    }

    /// The same object without its file.
    async fn read_whole(&self, io: &Io, object: &OpenedObject) -> Option<OpenedObject> {
        let file = object.file.as_ref()?;
        let offset = u64::from(object.head.layout.body_offset);
        let length = usize::try_from(object.body_length).ok()?;
        let body = self.watch(file.read_at(io, offset, length)).await.ok()?;
        let is_whole = body.len() == length;
        is_whole.then(|| OpenedObject {
            head: object.head.clone(),
            body_length: object.body_length,
            file: None,
            body: Some(body),
        })
    }
}
