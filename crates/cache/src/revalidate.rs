//! Replaces the state of a stored object (after a 304 of the origin), without fetching its body again.
//!
//! The state is in one of two blocks of the file's head; the other block is written, so that
//! readers and a crash see either the old or the new state. Only if the state has outgrown its
//! block is the file rewritten. Called by [`Fill::revalidated`](crate::fill::Fill::revalidated).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use nowait_runtime::fs::{self, Io, Patched};

use crate::fill::FillEnded;
use crate::format::{self, Encoded, ObjectHead, ObjectIdentity, ObjectState};
use crate::hit::OpenedObject;
use crate::index::{Commit, Hold, Standing};
use crate::names::DIR_MODE;
use crate::object::{ObjectReadError, names_of};
use crate::statistics::count;
use crate::store::{CacheKey, Hit, Store, now};

/// Bytes of a body copied per trip to the pool.
const COPY_BYTES: usize = 512 * 1024;

impl Store {
    /// Gives the object in `hit` another state.
    pub(crate) async fn update(
        &self,
        io: &Io,
        target: &CacheKey,
        hold: Hold,
        hit: &Hit,
        state: ObjectState,
    ) -> Result<Hit, FillEnded> {
        let object = match &hit.object.file {
            Some(_) => hit.object.clone(),
            // The object is from memory: its file is needed.
            None => {
                Arc::new(self.open(io, target).await.map_err(|error| self.note(target, error))?)
            }
        };
        let valid_until = state.valid_until;
        match format::update(&object.head.layout, &state) {
            Ok(patch) => {
                let metadata =
                    object.file.as_ref().map(|file| *file.metadata()).ok_or(FillEnded)?;
                let path = self.names().object(target.key);
                let write = fs::patch(io, &path, &metadata, patch.offset, patch.bytes);
                match self.watch_write(write).await {
                    Ok(Patched::Done) => {}
                    // Another file has the name now, or none.
                    Ok(Patched::Replaced) => return Err(FillEnded),
                    Err(error) => {
                        self.note_error("revalidating", &path, &error);
                        return Err(FillEnded);
                    }
                }
                if !hold.revalidated(names_of(&object.head.identity), hit.stamp, valid_until) {
                    return Err(FillEnded);
                }
                count(&self.counters.updated);
                let head =
                    ObjectHead { state, layout: patch.layout, ..ObjectHead::clone(&object.head) };
                let object = OpenedObject { head: Arc::new(head), ..OpenedObject::clone(&object) };
                Ok(self.revalidated_hit(object, hit.stamp, hit.uses))
            }
            Err(_) => {
                let renewed = self.renew(io, target, hold, &object, state).await;
                renewed
                    .map_err(|error| {
                        self.note_error("revalidating", &self.names().object(target.key), &error);
                        FillEnded
                    })?
                    .ok_or(FillEnded)
            }
        }
    }

    fn revalidated_hit(&self, object: OpenedObject, stamp: u64, uses: u16) -> Hit {
        Hit {
            object: Arc::new(object),
            soft_purged: false,
            updating: false,
            uses,
            stamp,
            store: self.id(),
        }
    }

    fn note(&self, target: &CacheKey, error: ObjectReadError) -> FillEnded {
        if let ObjectReadError::Trouble(error) = error {
            self.note_error("open", &self.names().object(target.key), &error);
        }
        FillEnded
    }

    /// Rewrites the object with another head.
    async fn renew(
        &self,
        io: &Io,
        target: &CacheKey,
        mut hold: Hold,
        object: &OpenedObject,
        state: ObjectState,
    ) -> io::Result<Option<Hit>> {
        let identity = ObjectIdentity { created: now(), ..object.head.identity.clone() };
        // A purge under way may not have reached it yet.
        let standing = self.index().standing(&target.key, names_of(&object.head.identity));
        if standing == Standing::Gone || !hold.may_publish(names_of(&identity)) {
            return Ok(None);
        }
        let Ok(encoded) = format::encode(&identity, &state) else { return Ok(None) };
        let temp = self.names().temp_beside(target.key);
        let copied = self.copy_with_head(io, target, object, &encoded, &temp).await;
        let blocks = match copied {
            Ok(blocks) => blocks,
            Err(error) => {
                self.remove_file(io, &temp).await;
                return Err(error);
            }
        };
        let commit = Commit {
            names: names_of(&identity),
            length: encoded.bytes.len() as u64 + object.body_length,
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            head_bytes: encoded.layout.body_offset,
            valid_until: state.valid_until,
        };
        match hold.commit(&commit, now()) {
            Ok(committed) => {
                count(&self.counters.updated);
                let object = match self.open(io, target).await {
                    Ok(object) => object,
                    Err(_) => return Ok(None),
                };
                Ok(Some(self.revalidated_hit(object, committed.stamp, 1)))
            }
            Err(_) => {
                self.remove_file(io, &self.names().object(target.key)).await;
                Ok(None)
            }
        }
    }

    /// Writes head and body to `temp` and renames it to the object's name. Returns the blocks it
    /// takes.
    async fn copy_with_head(
        &self,
        io: &Io,
        target: &CacheKey,
        object: &OpenedObject,
        encoded: &Encoded,
        temp: &[u8],
    ) -> io::Result<u64> {
        let from = object.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let to = self.create_temp(io, temp).await?;
        self.watch_write(to.write_at(io, 0, vec![encoded.bytes.clone()])).await?;
        let (begin, old) = (encoded.bytes.len() as u64, u64::from(object.head.layout.body_offset));
        let mut done = 0;
        while done < object.body_length {
            let want = (object.body_length - done).min(COPY_BYTES as u64) as usize;
            let bytes: Bytes = self.watch(from.read_at(io, old + done, want)).await?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let len = bytes.len() as u64;
            self.watch_write(to.write_at(io, begin + done, vec![bytes])).await?;
            done += len;
        }
        let patch = encoded.completed(object.body_length);
        let path = self.names().object(target.key);
        let publish = to.publish(io, patch.bytes, temp, &path, DIR_MODE);
        Ok(self.watch_write(publish).await?.blocks)
    }
}
