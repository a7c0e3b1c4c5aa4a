//! Filling one object: its start, and the writer's side.
//!
//! A [`Fill`] takes the head and the pieces of a response as they come from the origin. A separate
//! task ([`crate::write_behind`]) moves them to a temporary file, in the pool of the caller's
//! [`Io`], some steps behind. At the end the final head is written and the file renamed, so that
//! half an object is never visible. Dropping a [`Fill`] ends it: the temporary file is removed,
//! readers are cut, waiters wake.
//!
//! If the disk refuses (full, broken, no descriptors left), the fill ends quietly and its caller
//! continues serving the client. Never waits for a reader.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::fs::Io;
use nowait_runtime::time::timeout;

use crate::fill_reader::FillReader;
use crate::format::{self, ObjectHead, ObjectIdentity, ObjectState};
pub use crate::growth::FillResult;
use crate::growth::{Growth, WatcherSlot};
use crate::health::Why;
use crate::index::{Hold, How, NoHold, Tag};
use crate::object::names_of;
use crate::statistics::count;
use crate::store::{CacheKey, Hit, Store, now};
use crate::time::UnixMs;
use crate::write_behind::{self, Job};

/// Bytes of one object that may wait for the disk. At this limit [`Fill::write`] waits too, and
/// with it the reading from the origin.
pub const IN_FLIGHT_BYTES_MAX: u64 = 1024 * 1024;

/// The longest time that a fill's client waits for a disk that accepts no data. Then the response continues
/// without the cache, and the object is not stored.
pub const STALL_MAX: Duration = Duration::from_secs(2);

/// The fill has ended for a reason that does not concern the client's response: the disk refused,
/// the object is larger than the cache, the key was purged. This was logged and counted where it
/// happened; drop the fill and continue without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillEnded;

impl std::fmt::Display for FillEnded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the object is not stored")
    }
}

impl std::error::Error for FillEnded {}

/// The result of [`Store::begin_fill`].
#[derive(Debug)]
pub enum FillStart {
    /// Fetch the object and feed it.
    Fill(Fill),
    /// Another request does so: wait (only with `lock`).
    Busy(Waiter),
    /// The store can't take an object now: fetch without storing.
    Unavailable(Why),
}

/// The options of a fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillOptions {
    /// Only one at a time (`proxy_cache_lock`): others wait.
    pub lock: bool,
    /// If the other one has been under way for this long, one more may begin
    /// (`proxy_cache_lock_age`); `None`: never.
    pub lock_age: Option<Duration>,
    /// Waiters are woken as soon as the head is known, to read the growing object.
    pub read_while_filling: bool,
    /// When the request was sent to the origin ([`Store::moment`]), if that was before: objects
    /// purged since are not stored.
    pub asked: Option<Moment>,
}

/// A moment among the purges of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    here: u64,
    slower: u64,
}

impl Store {
    /// Begins to fill an object, or to revalidate it.
    pub fn begin_fill(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        options: FillOptions,
    ) -> FillStart {
        // New objects go to the slower disk: most are never requested again.
        if let Some(slower) = self.slower().filter(|slower| slower.health.why_not_store().is_none())
        {
            let io = slower.io_from(self, io);
            let asked = options.asked.map(|moment| moment.slower);
            return slower.begin_fill_here(&io, target, options, asked);
        }
        self.begin_fill_here(io, target, options, options.asked.map(|moment| moment.here))
    }

    /// The current time in the order of purges, for fills that begin with the origin's response.
    pub fn moment(&self) -> Moment {
        Moment {
            here: self.index().newest_stamp(),
            slower: self.slower().map_or(0, |slower| slower.index().newest_stamp()),
        }
    }

    fn begin_fill_here(
        self: &Arc<Self>,
        io: &Io,
        target: &CacheKey,
        options: FillOptions,
        asked: Option<u64>,
    ) -> FillStart {
        if let Some(why) = self.health.why_not_store() {
            return FillStart::Unavailable(why);
        }
        if self.is_short_of_space() {
            count(&self.counters.fills_refused);
            return FillStart::Unavailable(Why::Full);
        }
        let growth = Arc::new(Growth::new(target.clone(), self.id()));
        if let Err(other) = self.fills().enter(&growth)
            && options.lock
            && other.target() == target
            && !self.fills().replace(&other, &growth, options.lock_age)
        {
            return FillStart::Busy(Waiter::new(other, options.read_while_filling));
        }
        match self.index().hold(&target.key, now()) {
            Ok(mut hold) => {
                if let Some(stamp) = asked {
                    hold.asked_at(stamp);
                }
                FillStart::Fill(Fill::new(self.clone(), growth, io.clone(), hold))
            }
            Err(reason) => {
                self.fills().leave(&growth);
                growth.end(FillResult::Failed);
                FillStart::Unavailable(self.no_hold(reason))
            }
        }
    }

    fn no_hold(self: &Arc<Self>, reason: NoHold) -> Why {
        match reason {
            NoHold::Deleting => Why::Removing,
            NoHold::Full(victim) => {
                count(&self.counters.fills_refused);
                if let Some(victim) = victim {
                    let store = self.clone();
                    drop(nowait_runtime::spawn(async move {
                        store.remove_victim(&store.own_io(), victim).await;
                        count(&store.counters.evicted);
                    }));
                }
                self.note_limit("keys zone is full");
                Why::ZoneFull
            }
        }
    }
}

/// The right to store one object, or to revalidate it.
#[must_use = "dropping a fill ends it"]
pub struct Fill {
    store: Arc<Store>,
    growth: Arc<Growth>,
    io: Io,
    /// `None` once its task has taken it.
    hold: Option<Hold>,
    /// Orders it among purges.
    begun: u64,
    /// Not committed yet.
    open: bool,
}

impl Fill {
    pub(crate) fn new(store: Arc<Store>, growth: Arc<Growth>, io: Io, hold: Hold) -> Fill {
        Fill { store, growth, io, hold: Some(hold), begun: 0, open: true }
    }

    /// The head that was announced.
    pub fn stored(&self) -> Option<Arc<ObjectHead>> {
        self.growth.head()
    }

    /// The object that it fills.
    pub fn target(&self) -> &CacheKey {
        self.growth.target()
    }

    /// Continues under another key: a variant required by the response's `Vary`. Only before
    /// [`head`](Fill::head). Waiters for the first key wake and repeat the look-up.
    ///
    /// # Errors
    /// [`FillEnded`]: there is no room for the key.
    pub fn rekey(&mut self, target: &CacheKey) -> Result<(), FillEnded> {
        if target == self.target() {
            return Ok(());
        }
        let mut hold = self.store.index().hold(&target.key, now()).map_err(|_| FillEnded)?;
        if let Some(old) = &self.hold {
            hold.asked_at(old.begun());
        }
        let growth = Arc::new(Growth::new(target.clone(), self.store.id()));
        // If that key is being filled already, both fills continue, and the later object stays.
        let _ = self.store.fills().enter(&growth);
        let old = std::mem::replace(&mut self.growth, growth);
        self.hold = Some(hold);
        self.store.fills().leave(&old);
        old.end(FillResult::Moved);
        Ok(())
    }

    /// Announces the response's head: from now on others may read the growing object. Does no I/O
    /// itself.
    ///
    /// # Errors
    /// [`FillEnded`]: a part of it exceeds the limits of [`crate::format`], or it was purged after
    /// the request was sent to the origin.
    pub fn head(&mut self, state: ObjectState, tags: Vec<Tag>) -> Result<(), FillEnded> {
        let Some(hold) = self.hold.take() else { return Err(FillEnded) };
        self.begun = hold.begun();
        let target = self.growth.target();
        let identity = ObjectIdentity {
            key: target.key,
            main: target.main,
            key_text: target.text.clone(),
            tags,
            created: now(),
        };
        let encoded = match format::encode(&identity, &state) {
            Ok(encoded) => encoded,
            Err(_) => {
                self.store.refused_too_large();
                return Err(FillEnded);
            }
        };
        if !hold.check(names_of(&identity)) {
            return Err(FillEnded);
        }
        let head =
            Arc::new(ObjectHead { identity, state, layout: encoded.layout, body_length: None });
        self.growth.set_head(head.clone());
        // A purge by tag in between did not know the tags.
        if !hold.check(names_of(&head.identity)) {
            return Err(FillEnded);
        }
        let job = Job {
            store: self.store.clone(),
            growth: self.growth.clone(),
            io: self.io.clone(),
            hold,
            head,
            encoded,
        };
        write_behind::start(job);
        Ok(())
    }

    /// The object found by `hit` is still valid (a 304 of the origin): gives it another state, in place if
    /// that fits. Returns the updated object. Waiters repeat the look-up.
    ///
    /// # Errors
    /// [`FillEnded`]: it was replaced or purged meanwhile, the disk refused, or took longer than
    /// [`STALL_MAX`]. The client is served from `hit`.
    pub async fn revalidated(self, hit: &Hit, state: ObjectState) -> Result<Hit, FillEnded> {
        let hit = hit.clone();
        // Run as a separate task, because the operation begun on the disk must be completed.
        let update = nowait_runtime::spawn(async move { self.update(&hit, state).await });
        match timeout(STALL_MAX, update).await {
            Ok(updated) => updated.unwrap_or(Err(FillEnded)),
            Err(_) => Err(FillEnded),
        }
    }

    async fn update(mut self, hit: &Hit, state: ObjectState) -> Result<Hit, FillEnded> {
        let Some(hold) = self.hold.take() else { return Err(FillEnded) };
        let updated = match self.store.faster_with(hit.store) {
            // The copy is in a faster store.
            Some(faster) => {
                let io = faster.io_from(&self.store, &self.io);
                let target = self.target();
                let hold = faster.index().hold(&target.key, now()).map_err(|_| FillEnded)?;
                faster.update(&io, target, hold, hit, state).await
            }
            None if hit.store != self.store.id() => Err(FillEnded),
            None => self.store.update(&self.io, self.target(), hold, hit, state).await,
        };
        let ended = if updated.is_ok() { FillResult::Stored } else { FillResult::Failed };
        self.store.fills().leave(&self.growth);
        self.growth.end(ended);
        updated
    }

    /// The origin failed with `status`, which is served until `valid_until` without another request
    /// to the origin (`proxy_cache_valid`). Nothing is written.
    pub fn remember_error(mut self, status: u16, valid_until: UnixMs) {
        if let Some(hold) = self.hold.take() {
            hold.remember_error(status, valid_until);
        }
        self.store.fills().leave(&self.growth);
        self.growth.end(FillResult::Stored);
    }

    /// Adds a piece of the body. Waits while [`IN_FLIGHT_BYTES_MAX`] are queued for the disk, but at most
    /// [`STALL_MAX`] for a disk that accepts no data, unless there are other readers.
    ///
    /// # Errors
    /// [`FillEnded`].
    pub async fn write(&mut self, piece: Bytes) -> Result<(), FillEnded> {
        if self.growth.has_room(IN_FLIGHT_BYTES_MAX) {
            return self.push(piece);
        }
        loop {
            let written = self.growth.written();
            let growth = &self.growth;
            let room = poll_fn(|cx| growth.poll_room(cx, IN_FLIGHT_BYTES_MAX));
            let is_stuck = timeout(STALL_MAX, room).await.is_err()
                && self.growth.written() == written
                && !self.growth.has_readers();
            if is_stuck {
                self.store.note_stall();
                self.growth.end(FillResult::Failed);
                return Err(FillEnded);
            }
            if self.growth.has_room(IN_FLIGHT_BYTES_MAX) {
                break;
            }
        }
        if self.growth.push(piece) { Ok(()) } else { Err(FillEnded) }
    }

    /// Adds a piece regardless of room. For callers that wait for [`room`](Fill::room) themselves,
    /// before they read more.
    ///
    /// # Errors
    /// [`FillEnded`].
    pub fn push(&mut self, piece: Bytes) -> Result<(), FillEnded> {
        if self.growth.push(piece) { Ok(()) } else { Err(FillEnded) }
    }

    /// Resolves when fewer than [`IN_FLIGHT_BYTES_MAX`] bytes are queued for the disk, or the fill
    /// has ended.
    pub async fn room(&mut self) {
        poll_fn(|cx| self.growth.poll_room(cx, IN_FLIGHT_BYTES_MAX)).await;
    }

    /// The body is whole: the rest is written and the object becomes visible. That continues in the
    /// background on this worker; await the result only if the moment matters.
    pub fn commit(mut self) -> Committing {
        // Without a head, there is no object to store: dropping the fill ends it.
        if let Some(head) = self.growth.head() {
            let key = self.growth.key();
            let names = names_of(&head.identity);
            let overtaken = || self.store.index().overtaken(self.begun, names);
            if self.growth.complete(|| self.store.commits.enter(key))
                && overtaken() != Some(How::Hard)
            {
                self.store.fills().show(&self.growth);
                // An earlier purge has not seen it; a later one will.
                match overtaken() {
                    Some(How::Hard) => self.store.fills().leave(&self.growth),
                    Some(How::Soft) => self.growth.soften(),
                    None => {}
                }
            }
            // From now on, its task owns it.
            self.open = false;
        }
        Committing::of(&self.growth)
    }

    /// The response may not be stored: waiters ask the origin at once, not one after the other.
    pub fn decline(self) {
        self.store.fills().leave(&self.growth);
        self.growth.end(FillResult::Declined);
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if self.open {
            self.store.fills().leave(&self.growth);
            self.growth.end(FillResult::Failed);
        }
    }
}

impl std::fmt::Debug for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fill").field("target", self.target()).finish_non_exhaustive()
    }
}

/// An object in its last steps to the disk. Dropping this changes nothing.
#[must_use = "only to be awaited if it matters when the object is stored"]
pub struct Committing {
    growth: Arc<Growth>,
    slot: WatcherSlot,
}

impl Committing {
    pub(crate) fn of(growth: &Arc<Growth>) -> Committing {
        Committing { growth: growth.clone(), slot: WatcherSlot::default() }
    }
}

impl Future for Committing {
    type Output = Result<(), FillEnded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Committing { growth, slot } = &mut *self;
        growth.poll_known(cx, slot, false).map(|known| match known {
            Err(FillResult::Stored) => Ok(()),
            _ => Err(FillEnded),
        })
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        self.growth.leave(&mut self.slot);
    }
}

/// Waits for an object that another request fetches (`proxy_cache_lock`). Its slot is given up when
/// it is dropped.
pub struct Waiter {
    growth: Arc<Growth>,
    slot: WatcherSlot,
    read_while_filling: bool,
}

/// The result of waiting.
#[derive(Debug)]
pub enum WaitResult {
    /// The head is known: read the growing object.
    Filling(FillReader),
    /// The fill has ended: after [`FillResult::Stored`], [`FillResult::Failed`] and [`FillResult::Moved`],
    /// repeat the look-up; after [`FillResult::Declined`], request from the origin without storing.
    Ended(FillResult),
}

impl Waiter {
    pub(crate) fn new(growth: Arc<Growth>, read_while_filling: bool) -> Waiter {
        Waiter { growth, slot: WatcherSlot::default(), read_while_filling }
    }

    /// The time since the awaited fill began.
    pub fn age(&self) -> Duration {
        self.growth.age()
    }
}

impl Future for Waiter {
    type Output = WaitResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WaitResult> {
        let Waiter { growth, slot, read_while_filling } = &mut *self;
        growth.poll_known(cx, slot, *read_while_filling).map(|known| match known {
            Ok(head) => WaitResult::Filling(FillReader::new(growth.clone(), head)),
            Err(ended) => WaitResult::Ended(ended),
        })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.growth.leave(&mut self.slot);
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiter")
    }
}
