//! The memory tier for look-ups: the choice of its objects, and their copying.
//!
//! An object found in a file for the second time is copied to memory if it is small enough; the
//! tier's admission decides whether it stays. Never makes a request wait.

use std::sync::Arc;

use nowait_runtime::fs::Io;

use crate::hit::OpenedObject;
use crate::index::Stored;
use crate::key::Key;
use crate::memory::{Version, Weigh};
use crate::policy;
use crate::store::{CacheKey, Store};

/// The number of objects copied to one store or its memory at the same time.
const COPIES_MAX: usize = 64;

impl Weigh for Arc<OpenedObject> {
    fn heap_bytes(&self) -> usize {
        OpenedObject::heap_bytes(self)
    }
}

impl Store {
    /// The object in memory, if it is still the one that the index describes.
    pub(crate) fn in_memory(
        &self,
        target: &CacheKey,
        stored: &Stored,
    ) -> Option<Arc<OpenedObject>> {
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
            memory.keep(key, version, object.clone());
            return;
        }
        let Some(permit) = self.begin_copy(key) else { return };
        let (store, io, object) = (self.clone(), io.clone(), object.clone());
        drop(nowait_runtime::spawn(async move {
            let _permit = permit;
            if let Some(copy) = store.read_whole(&io, &object).await
                && let Some(memory) = &store.memory
            {
                memory.keep(key, version, Arc::new(copy));
            }
        }));
    }

    /// Notes that an object is being copied, or checked; `None` if it already is, or there are too many.
    pub(crate) fn begin_copy(self: &Arc<Self>, key: Key) -> Option<CopyPermit> {
        let mut copies = self.lock_copies();
        let is_new = copies.len() < COPIES_MAX && copies.insert(key);
        is_new.then(|| CopyPermit { store: self.clone(), key })
    }

    /// The same object without its file.
    async fn read_whole(&self, io: &Io, object: &OpenedObject) -> Option<OpenedObject> {
        let file = object.file.as_ref()?;
        let offset = u64::from(object.head.layout.body_offset);
        let length = usize::try_from(object.body_length).ok()?;
        let body = self.watch(file.read_at(io, offset, length)).await.ok()?;
        let is_whole = body.len() == length;
        is_whole.then(|| OpenedObject {
            file: None,
            body: Some(body),
            ..OpenedObject::clone(object)
        })
    }
}

/// The right to copy or check an object, which one task at a time has.
pub(crate) struct CopyPermit {
    store: Arc<Store>,
    key: Key,
}

impl Drop for CopyPermit {
    fn drop(&mut self) {
        self.store.lock_copies().remove(&self.key);
    }
}
