//! Looks up an object: memory, index, the worker's open objects, file.
//!
//! [`Store::try_lookup`] handles everything that needs no disk, without a future; [`Store::resume`]
//! continues where that is not enough. Never fills, and never waits for another request.

use std::sync::Arc;
use std::time::Duration;

use nowait_runtime::fs::Io;

use crate::fill_reader::FillReader;
use crate::health::ErrorClass;
use crate::hit::OpenedObject;
use crate::hot;
use crate::index::{LookupContext, LookupResult, Stored};
use crate::key::Key;
use crate::object::{ObjectReadError, Unreadable};
use crate::statistics::count;
use crate::store::{CacheKey, Hit, Lookup, LookupOptions, Store, Why, now};

/// A look-up that needs the disk: see [`Store::resume`].
#[derive(Debug)]
pub struct Pending {
    known: IndexResult,
    /// It needs the slower store's disk.
    behind: bool,
}

impl Store {
    /// Looks up an object as far as that needs no disk. Counts a use of the key.
    ///
    /// # Errors
    /// The disk is needed: continue with [`resume`](Store::resume).
    pub fn try_lookup(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        options: LookupOptions,
    ) -> Result<Lookup, Pending> {
        let Some(slower) = self.slower() else {
            return match self.look(io, target, options) {
                LookupStep::Is(lookup) => Ok(lookup),
                LookupStep::InFile(known) => Err(Pending { known, behind: false }),
            };
        };
        match self.look(io, target, LookupOptions { min_uses: 1, ..options }) {
            LookupStep::Is(Lookup::Absent { .. } | Lookup::Unavailable(_)) => {
                let io = slower.io_from(self, io);
                match slower.look(&io, target, options) {
                    LookupStep::Is(lookup) => Ok(self.found_behind(&slower, target, lookup)),
                    LookupStep::InFile(known) => Err(Pending { known, behind: true }),
                }
            }
            LookupStep::Is(lookup) => Ok(lookup),
            LookupStep::InFile(known) => Err(Pending { known, behind: false }),
        }
    }

    /// Continues a look-up, in the pool.
    pub async fn resume(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        options: LookupOptions,
        pending: Pending,
    ) -> Lookup {
        let Pending { known, behind } = pending;
        let Some(slower) = self.slower() else {
            return self.lookup_in_pool(io, target, known).await;
        };
        let from = slower.io_from(self, io);
        let looked = if behind {
            LookupStep::InFile(known)
        } else {
            match self.lookup_in_pool(io, target, known).await {
                Lookup::Absent { .. } | Lookup::Unavailable(_) => {}
                lookup => return lookup,
            }
            slower.look(&from, target, options)
        };
        let lookup = match looked {
            LookupStep::Is(lookup) => lookup,
            LookupStep::InFile(known) => slower.lookup_in_pool(&from, target, known).await,
        };
        self.found_behind(&slower, target, lookup)
    }

    /// Looks up an object; uses the pool if necessary.
    pub async fn lookup(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        options: LookupOptions,
    ) -> Lookup {
        match self.try_lookup(io, target, options) {
            Ok(lookup) => lookup,
            Err(pending) => self.resume(io, target, options, pending).await,
        }
    }

    /// The result of the slower store behind this one.
    fn found_behind(
        self: &Arc<Self>,
        slower: &Arc<Store>,
        target: &CacheKey,
        lookup: Lookup,
    ) -> Lookup {
        if let Lookup::Memory(hit) | Lookup::File(hit) = &lookup
            && !hit.soft_purged
        {
            let bytes = u64::from(hit.head().layout.body_offset) + hit.body_length();
            slower.offer_to_faster(self, target.key, hit.uses, bytes, hit.stamp);
        }
        lookup
    }

    fn look(self: &Arc<Self>, io: &Io, target: &CacheKey, options: LookupOptions) -> LookupStep {
        let ask = LookupContext { now: now(), min_uses: options.min_uses, key_text: &target.text };
        if let Some(why) = self.health.why() {
            return LookupStep::Is(self.without_disk(target, ask, why));
        }
        let known = match self.index().lookup(&target.key, ask) {
            LookupResult::Stored(stored) => {
                if stored.updating {
                    if let Some(growing) = self.growing(target, None) {
                        return LookupStep::Is(Lookup::Filling(growing));
                    }
                    IndexResult::Stored(self.named_meanwhile(target).unwrap_or(stored))
                } else {
                    IndexResult::Stored(stored)
                }
            }
            LookupResult::Error { status, valid_until } => {
                return LookupStep::Is(Lookup::Error { status, valid_until });
            }
            LookupResult::Absent(absent) => {
                if absent.updating
                    && let Some(growing) = self
                        .growing(target, options.read_while_filling.then_some(options.silence_max))
                {
                    return LookupStep::Is(Lookup::Filling(growing));
                }
                match absent.updating.then(|| self.named_meanwhile(target)).flatten() {
                    Some(stored) => IndexResult::Stored(stored),
                    None if self.index().is_cold() => {
                        IndexResult::Perhaps { wanted: absent.wanted }
                    }
                    None => {
                        count(&self.counters.misses);
                        return LookupStep::Is(Lookup::Absent { wanted: absent.wanted });
                    }
                }
            }
        };
        // An object whose tags are not in memory must be checked by its head each time.
        if let IndexResult::Stored(stored) = &known
            && !stored.names_in_file
            && let Some(object) = self.find_in_memory(io, target, stored)
        {
            count(&self.counters.hits_memory);
            return LookupStep::Is(Lookup::Memory(self.hit(object, stored)));
        }
        if self.must_recall(&known) {
            return LookupStep::InFile(known);
        }
        match self.try_open(io, target) {
            None => LookupStep::InFile(known),
            Some(result) => LookupStep::Is(self.opened(io, target, known, result, true)),
        }
    }

    /// The memory copy of an object, or its open file, unless the file has changed. If that can't be
    /// told without the disk, a copy is used while it is checked, because all threads of the pool may
    /// be waiting for the disk.
    fn find_in_memory(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        stored: &Stored,
    ) -> Option<Arc<OpenedObject>> {
        let opened = hot::find(self.id(), target, stored).filter(|object| object.is_whole());
        let object = match opened {
            Some(object) if object.body.is_some() => object,
            opened => self.in_memory(target, stored).or(opened)?,
        };
        if !object.check.is_due(now()) {
            return Some(object);
        }
        match self.is_in_place(io, target, &object) {
            Some(true) => object.check.confirm(now()),
            Some(false) => {
                self.forget_copies(target.key);
                return None;
            }
            // Opening it is the check.
            None if object.body.is_none() => return None,
            None => self.begin_check(io, target, stored, &object),
        }
        Some(object)
    }

    fn forget_copies(&self, key: Key) {
        hot::forget(self.id(), key);
        if let Some(memory) = &self.memory {
            memory.remove(&key);
        }
    }

    /// Has the file of an object in memory opened again, unless that is being done.
    fn begin_check(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        stored: &Stored,
        object: &Arc<OpenedObject>,
    ) {
        let Some(permit) = self.begin_copy(target.key) else { return };
        let (store, io, target, stored) = (self.clone(), io.clone(), target.clone(), *stored);
        let object = object.clone();
        drop(nowait_runtime::spawn(async move {
            let _permit = permit;
            store.check(&io, &target, &stored, &object).await;
        }));
    }

    /// Checks whether the file of an object in memory still exists.
    async fn check(
        self: Arc<Self>,
        io: &Io,
        target: &CacheKey,
        stored: &Stored,
        object: &OpenedObject,
    ) {
        match self.open(io, target).await {
            Ok(opened) if opened.state.is(&object.state) => object.check.confirm(now()),
            Ok(opened) => {
                self.forget_copies(target.key);
                hot::keep(self.id(), target.key, stored, &opened.into_kept());
            }
            Err(reason) => {
                if matches!(reason, ObjectReadError::Bad(_) | ObjectReadError::Missing) {
                    self.index().forget(&target.key, stored.stamp);
                }
                match &reason {
                    ObjectReadError::Bad(error) => self.delete_damaged(target, error),
                    ObjectReadError::Trouble(error) => {
                        self.note_error("open", &self.names().object(target.key), error);
                        if ErrorClass::is_of_place(error) {
                            self.delete_unreadable(target, stored.stamp, Unreadable::Head);
                        }
                    }
                    ObjectReadError::Missing | ObjectReadError::Collision => {}
                }
            }
        }
    }

    /// The disk is out of use: only objects wholly in memory are found.
    fn without_disk(&self, target: &CacheKey, ask: LookupContext<'_>, why: Why) -> Lookup {
        if let LookupResult::Stored(stored) = self.index().lookup(&target.key, ask)
            && !stored.names_in_file
            && let Some(object) = hot::find(self.id(), target, &stored)
                .filter(|object| object.body.is_some())
                .or_else(|| self.in_memory(target, &stored))
        {
            count(&self.counters.hits_memory);
            return Lookup::Memory(self.hit(object, &stored));
        }
        count(&self.counters.unavailable);
        Lookup::Unavailable(why)
    }

    /// Whether the result is unknown until the saved index and the purges have been read.
    fn must_recall(&self, known: &IndexResult) -> bool {
        match known {
            IndexResult::Perhaps { .. } => !self.recall.is_known(),
            IndexResult::Stored(_) => self.recall.defers(),
        }
    }

    async fn lookup_in_pool(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        mut known: IndexResult,
    ) -> Lookup {
        if self.must_recall(&known) {
            let recalled = async {
                self.recall.known().await;
                Ok(())
            };
            if let Err(error) = self.watch(recalled).await {
                count(&self.counters.unavailable);
                return Lookup::Unavailable(ObjectReadError::why(&error));
            }
            // The object may have been purged meanwhile; its head shows that.
            if let IndexResult::Stored(stored) = &mut known {
                stored.names_in_file = true;
            }
        }
        let result = self.open(io, target).await;
        self.opened(io, target, known, result, false)
    }

    /// The result of opening an object.
    fn opened(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        known: IndexResult,
        result: Result<OpenedObject, ObjectReadError>,
        inline: bool,
    ) -> Lookup {
        let counters = &self.counters;
        match result {
            Ok(object) => {
                let stored = match known {
                    IndexResult::Stored(stored) if !stored.names_in_file => Some(stored),
                    IndexResult::Stored(_) | IndexResult::Perhaps { .. } => {
                        self.learn(target, &object)
                    }
                };
                let Some(stored) = stored else {
                    count(&counters.misses);
                    return Lookup::Absent { wanted: true };
                };
                count(if inline { &counters.hits_inline } else { &counters.hits_pool });
                let object = object.into_kept();
                hot::keep(self.id(), target.key, &stored, &object);
                self.offer_to_memory(io, target.key, &stored, &object);
                Lookup::File(self.hit(object, &stored))
            }
            Err(ObjectReadError::Trouble(error)) => {
                count(&counters.unavailable);
                let why = ObjectReadError::why(&error);
                self.note_error("open", &self.names().object(target.key), &error);
                if let IndexResult::Stored(stored) = known
                    && ErrorClass::is_of_place(&error)
                {
                    self.delete_unreadable(target, stored.stamp, Unreadable::Head);
                }
                Lookup::Unavailable(why)
            }
            Err(reason) => {
                if matches!(reason, ObjectReadError::Collision) {
                    count(&counters.collisions);
                }
                count(&counters.misses);
                let wanted = match known {
                    IndexResult::Stored(stored) => {
                        if !matches!(reason, ObjectReadError::Collision) {
                            self.index().forget(&target.key, stored.stamp);
                        }
                        true
                    }
                    IndexResult::Perhaps { wanted } => wanted,
                };
                if let ObjectReadError::Bad(error) = &reason {
                    self.delete_damaged(target, error);
                }
                Lookup::Absent { wanted }
            }
        }
    }

    fn hit(&self, object: Arc<OpenedObject>, stored: &Stored) -> Hit {
        Hit {
            object,
            soft_purged: stored.soft_purged,
            updating: stored.updating,
            uses: stored.uses,
            stamp: stored.stamp,
            store: self.id(),
        }
    }

    /// The object stored now: a fill that has just ended has got its name since the index was read.
    fn named_meanwhile(&self, target: &CacheKey) -> Option<Stored> {
        self.index().peek(&target.key)
    }

    /// The reader of an object that is being filled and whose head is known.
    ///
    /// A complete one is always found: only its file has not got its name yet. A client that
    /// received the response while it was stored finds it on its next request. With `partly` an
    /// incomplete one is found too, unless nothing has come for it for the given time.
    fn growing(&self, target: &CacheKey, partly: Option<Duration>) -> Option<FillReader> {
        let growth = self.fills().find(target.key)?;
        let head = growth.head()?;
        if !growth.received().1 && partly.is_none_or(|max| growth.silence() >= max) {
            return None;
        }
        if growth.ended().is_some() || growth.is_softened() || growth.target() != target {
            return None;
        }
        count(&self.counters.hits_filling);
        Some(FillReader::new(growth, head))
    }
}

/// The index's result.
#[derive(Debug)]
enum IndexResult {
    Stored(Stored),
    /// It is not complete yet: the file may be there.
    Perhaps {
        wanted: bool,
    },
}

enum LookupStep {
    Is(Lookup),
    InFile(IndexResult),
}
