//! Two stores as tiers: a faster one with a slower one behind it (`tier=NAME`).
//!
//! Requests search the faster store first, then the slower one. New objects are stored in the
//! slower one; an object found there for the second time is copied forward. An object evicted from
//! the faster store is copied back if the slower one has lost it meanwhile. A copy is an ordinary
//! object of its store. A refreshed object replaces the copy of its former version; purges apply to
//! both. When one of the two is out of use, the other continues.
//!
//! Never makes a request wait for a copy.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::{Arc, PoisonError, Weak};

use bytes::Bytes;
use nowait_runtime::fs::{self, Io, OpenOptions, Symlinks};

use crate::format::{self, FIRST_READ_BYTES, HeadError};
use crate::index::{Commit, Standing, Victim};
use crate::key::Key;
use crate::names::DIR_MODE;
use crate::object::names_of;
use crate::policy::{self, Demotion, DiskRoom};
use crate::statistics::count;
use crate::store::{Store, now};

/// Bytes copied per trip to the pool.
const COPY_BYTES: usize = 512 * 1024;

/// How many times a head is read again when it needs more bytes.
const HEAD_READS_MAX: usize = 3;

/// The neighbours of a store.
#[derive(Default)]
pub(crate) struct Tiers {
    slower: Option<Arc<Store>>,
    /// The stores whose slower store this one is; dropped ones are removed when another is added.
    faster: Vec<Weak<Store>>,
}

/// Counts the purges of a store, so that a copy from it or to it detects a purge that began
/// meanwhile: the two stores are purged one after the other, and an object copied in between must
/// not stay.
#[derive(Default)]
pub(crate) struct Purges {
    begun: AtomicU64,
    told: AtomicU64,
}

impl Purges {
    /// The number of purges so far; `None`: a purge is starting.
    fn seen(&self) -> Option<u64> {
        let told = self.told.load(SeqCst);
        let begun = self.begun.load(SeqCst);
        debug_assert!(begun >= told, "an end was told before its beginning");
        (begun == told).then_some(told)
    }

    fn is_still(&self, seen: u64) -> bool {
        self.begun.load(SeqCst) == seen
    }
}

/// The source of a copy.
#[derive(Clone, Copy)]
enum CopySource {
    /// An object that stays in its store.
    Stored,
    /// An object that is about to be removed to make room.
    Victim,
}

impl Store {
    /// Puts this store before a slower one, or before none. Called when a configuration takes
    /// effect. A store that stands before another is never the slower one itself.
    pub fn set_slower(self: &Arc<Self>, slower: Option<&Arc<Store>>) {
        let slower = slower.filter(|slower| slower.slower().is_none() && slower.id() != self.id());
        if let Some(slower) = slower {
            let mut tiers = slower.tiers.write().unwrap_or_else(PoisonError::into_inner);
            let id = self.id();
            tiers.faster.retain(|one| one.upgrade().is_some_and(|one| one.id() != id));
            tiers.faster.push(Arc::downgrade(self));
        }
        self.tiers.write().unwrap_or_else(PoisonError::into_inner).slower = slower.cloned();
        self.has_slower.store(slower.is_some(), Release);
    }

    /// The slower store behind this one.
    pub(crate) fn slower(&self) -> Option<Arc<Store>> {
        if !self.has_slower.load(Acquire) {
            return None;
        }
        self.tiers.read().unwrap_or_else(PoisonError::into_inner).slower.clone()
    }

    fn faster(&self) -> Vec<Arc<Store>> {
        let tiers = self.tiers.read().unwrap_or_else(PoisonError::into_inner);
        tiers.faster.iter().filter_map(Weak::upgrade).collect()
    }

    /// The stores before and behind this one.
    pub(crate) fn neighbours(&self) -> Vec<Arc<Store>> {
        self.slower().into_iter().chain(self.faster()).collect()
    }

    /// Announces an event to all of these stores that copies between them must not miss.
    pub(crate) fn tell<T>(stores: &[Arc<Store>], tell: impl FnOnce() -> T) -> T {
        for store in stores {
            store.purges.begun.fetch_add(1, SeqCst);
        }
        let told = tell();
        for store in stores {
            store.purges.told.fetch_add(1, SeqCst);
        }
        told
    }

    /// The faster store with this number.
    pub(crate) fn faster_with(&self, id: u64) -> Option<Arc<Store>> {
        self.faster().into_iter().find(|store| store.id() == id)
    }

    /// The settings of a request to `asked`, for a neighbour of it: each store uses its own pool.
    pub(crate) fn io_from(&self, asked: &Store, io: &Io) -> Io {
        match io.pool.is_same(asked.pool()) {
            true => Io { pool: self.pool().clone(), ..io.clone() },
            false => io.clone(),
        }
    }

    fn room(&self) -> DiskRoom {
        DiskRoom { used: self.bytes(), max: self.options().max_bytes }
    }

    /// Another object was stored under the key: copies of the former one go.
    pub(crate) async fn supersede(&self, io: &Io, key: Key) {
        for faster in self.faster() {
            if let Some(copy) = faster.index().peek(&key) {
                faster.index().forget(&key, copy.stamp);
                let path = faster.names().object(key);
                faster.remove_file(&faster.io_from(self, io), &path).await;
            }
        }
    }

    /// An object was found here, behind `faster`: copies it forward if it is worth it.
    pub(crate) fn offer_to_faster(
        self: &Arc<Self>,
        faster: &Arc<Store>,
        key: Key,
        uses: u16,
        bytes: u64,
        stamp: u64,
    ) {
        let is_wanted = faster.health.why_not_store().is_none()
            && !faster.is_short_of_space()
            && policy::promote(uses, bytes, faster.room());
        if !is_wanted {
            return;
        }
        let Some(permit) = faster.begin_copy(key) else { return };
        let (slower, faster) = (self.clone(), faster.clone());
        drop(nowait_runtime::spawn(async move {
            let _permit = permit;
            match slower.copy_to(&faster, key, CopySource::Stored).await {
                Ok(true) => {
                    count(&faster.counters.promoted);
                    // The object may have been replaced or purged meanwhile.
                    if slower.index().peek(&key).is_none_or(|object| object.stamp != stamp) {
                        slower.supersede(&slower.own_io(), key).await;
                    }
                    faster.feel_size();
                }
                Ok(false) => {}
                Err(error) => faster.refused(faster.names().directory(), &error),
            }
        }));
    }

    /// A victim of this store: copies it back to the slower one if that has lost it.
    pub(crate) async fn offer_to_slower(&self, victim: &Victim) {
        let Some(slower) = self.slower() else { return };
        let key = *victim.key();
        let on_slower = slower.index().peek(&key).is_some();
        // Every object here was requested twice.
        let fate = policy::demote(policy::PROMOTE_USES, victim.length(), on_slower, slower.room());
        if fate == Demotion::Drop
            || slower.health.why_not_store().is_some()
            || slower.is_short_of_space()
        {
            return;
        }
        match self.copy_to(&slower, key, CopySource::Victim).await {
            Ok(true) => count(&self.counters.demoted),
            Ok(false) => {}
            Err(error) => slower.refused(slower.names().directory(), &error),
        }
    }

    /// Copies an object to another store. False: it is missing, incomplete, or not wanted there.
    async fn copy_to(&self, to: &Store, key: Key, source: CopySource) -> io::Result<bool> {
        let Some(purges) = self.purges.seen() else { return Ok(false) };
        // Given up after the hold.
        let mut place = None;
        let Ok(mut hold) = to.index().hold(&key, now()) else { return Ok(false) };
        let (from_io, to_io) = (self.own_io(), to.own_io());
        let options = OpenOptions { symlinks: Symlinks::Follow, prefetch: FIRST_READ_BYTES };
        let path = self.names().object(key);
        let file = self.watch(fs::open(&from_io, &path, &options)).await?;
        let mut want = FIRST_READ_BYTES;
        let mut head = Err(HeadError::Damaged("head"));
        for _ in 0..HEAD_READS_MAX {
            let bytes = self.watch(file.read_at(&from_io, 0, want)).await?;
            head = format::decode(&bytes);
            match &head {
                Err(HeadError::Short { needed }) if *needed > want => want = *needed,
                _ => break,
            }
        }
        let Ok(head) = head else { return Ok(false) };
        if head.complete(file.size()).is_err() || head.identity.key != key {
            return Ok(false);
        }
        let temp = to.names().temp_beside(key);
        let copied = async {
            let copy = to.create_temp(&to_io, &temp).await?;
            let mut offset = 0;
            while offset < file.size() {
                let bytes = self.watch(file.read_at(&from_io, offset, COPY_BYTES)).await?;
                if bytes.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let next = offset + bytes.len() as u64;
                to.watch_write(copy.write_at(&to_io, offset, vec![bytes])).await?;
                offset = next;
            }
            // An object fetched meanwhile either precedes the copy, and stays, or follows it, and
            // replaces it.
            place.insert(to.commits.place(key, to.commits.enter(key))).turn().await;
            // A purge that began before the hold is seen by the copy, a later one by the hold; and
            // one that has reached only one of the two stores is detected by its number.
            let names = names_of(&head.identity);
            let standing = match source {
                CopySource::Stored => self.index().standing(&key, names),
                CopySource::Victim => self.index().standing_of_victim(&key, names),
            };
            match (standing, source) {
                (Standing::Valid, _) => {}
                (Standing::Stale, CopySource::Victim) => hold.soften(),
                (Standing::Stale, CopySource::Stored) | (Standing::Gone, _) => return Ok(None),
            }
            if !self.purges.is_still(purges) || !hold.may_publish_copy(names) {
                return Ok(None);
            }
            let path = to.names().object(key);
            to.watch_write(copy.publish(&to_io, Bytes::new(), &temp, &path, DIR_MODE))
                .await
                .map(Some)
        };
        let metadata = match copied.await {
            Ok(Some(metadata)) => metadata,
            Ok(None) => {
                to.remove_file(&to_io, &temp).await;
                return Ok(false);
            }
            Err(error) => {
                to.remove_file(&to_io, &temp).await;
                return Err(error);
            }
        };
        let commit = Commit {
            names: names_of(&head.identity),
            length: file.size(),
            blocks: u32::try_from(metadata.blocks).unwrap_or(u32::MAX),
            head_bytes: head.layout.body_offset,
            valid_until: head.state.valid_until,
        };
        if hold.commit(&commit, now()).is_err() {
            to.remove_file(&to_io, &to.names().object(key)).await;
            return Ok(false);
        }
        Ok(true)
    }
}
