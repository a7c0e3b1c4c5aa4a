//! Filling one object: the writer's side.
//!
//! A [`Fill`] takes the head and the pieces of a response as they come from the origin. A task of
//! its own ([`crate::write_behind`]) moves them to a temporary file, in the pool of the caller's
//! [`Io`], some steps behind; at the end the final head is written and the file renamed, so that
//! nobody ever sees half an object. Dropping a [`Fill`] ends it: the temporary file is removed,
//! readers are cut, waiters wake.
//!
//! When the disk refuses (full, broken, no descriptors left) the fill ends quietly; whoever feeds it
//! goes on with its client. Never: waits for a reader.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::fs::Io;
use nowait_runtime::time::timeout;

use crate::format::{self, Head, Identity, State};
use crate::growing::Growing;
pub use crate::growth::Ended;
use crate::growth::{Growth, Slot};
use crate::health::Why;
use crate::index::{Hold, How, Tag};
use crate::object::names_of;
use crate::store::{Hit, Store, Target, now};
use crate::time::UnixMs;
use crate::write_behind::{self, Job};

/// Bytes of one object that may wait for the disk. When they do, [`Fill::write`] waits too, and with
/// it the reading from the origin.
pub const IN_FLIGHT_BYTES_MAX: u64 = 1024 * 1024;

/// How long the client of a fill waits for a disk that takes nothing at all. Then it goes on alone,
/// and the object is not stored.
pub const STALL_MAX: Duration = Duration::from_secs(2);

/// The fill has ended by something that does not concern the client's response: the disk refused,
/// the object is larger than the cache, the key was purged. It was logged and counted where it
/// happened; drop the fill and go on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillEnded;

impl std::fmt::Display for FillEnded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the object is not stored")
    }
}

impl std::error::Error for FillEnded {}

/// What [`Store::begin_fill`] says.
#[derive(Debug)]
pub enum FillStart {
    /// Fetch the object and feed it.
    Fill(Fill),
    /// Somebody else does so: wait (only with `lock`).
    Busy(Waiter),
    /// The store can't take anything now: fetch without storing.
    Unavailable(Why),
}

/// The right to store one object, or to revalidate it.
#[must_use = "dropping a fill ends it"]
pub struct Fill {
    store: Arc<Store>,
    growth: Arc<Growth>,
    io: Io,
    /// Gone once the task behind it has it.
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

    /// What it fills.
    pub fn target(&self) -> &Target {
        self.growth.target()
    }

    /// Goes on under another key: a variant that the response's `Vary` asks for. Only before
    /// [`head`](Fill::head). Those who wait for the first key wake and look again.
    ///
    /// # Errors
    /// [`FillEnded`]: there is no room for the key.
    pub fn rekey(&mut self, target: &Target) -> Result<(), FillEnded> {
        if target == self.target() {
            return Ok(());
        }
        let mut hold = self.store.index().hold(&target.key, now()).map_err(|_| FillEnded)?;
        if let Some(old) = &self.hold {
            hold.asked_at(old.begun());
        }
        let growth = Arc::new(Growth::new(target.clone(), self.store.id()));
        // If somebody fills that key already, both go on and the later one stays.
        let _ = self.store.fills().enter(&growth);
        let old = std::mem::replace(&mut self.growth, growth);
        self.hold = Some(hold);
        self.store.fills().leave(&old);
        old.end(Ended::Moved);
        Ok(())
    }

    /// Tells the response's head: from now on others may read along. Does no I/O itself.
    ///
    /// # Errors
    /// [`FillEnded`]: a part of it is beyond the bounds of [`crate::format`], or it was purged since
    /// the origin was asked.
    pub fn head(&mut self, state: State, tags: Vec<Tag>) -> Result<(), FillEnded> {
        let Some(hold) = self.hold.take() else { return Err(FillEnded) };
        self.begun = hold.begun();
        let target = self.growth.target();
        let identity = Identity {
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
        let head = Arc::new(Head { identity, state, layout: encoded.layout, body_length: None });
        self.growth.set_head(head.clone());
        // A purge by tag that came in between did not know the tags.
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

    /// The object that `hit` found is still good (a 304 of the origin): gives it another state, in
    /// place if that fits. Returns the object as it is now. Those who wait look again.
    ///
    /// # Errors
    /// [`FillEnded`]: it was replaced or purged meanwhile, the disk refused, or took longer than
    /// [`STALL_MAX`]. The client is served from `hit`.
    pub async fn revalidated(self, hit: &Hit, state: State) -> Result<Hit, FillEnded> {
        let hit = hit.clone();
        // It goes on by itself: what it has begun on the disk must come to an end.
        let update = nowait_runtime::spawn(async move { self.update(&hit, state).await });
        match timeout(STALL_MAX, update).await {
            Ok(updated) => updated.unwrap_or(Err(FillEnded)),
            Err(_) => Err(FillEnded),
        }
    }

    async fn update(mut self, hit: &Hit, state: State) -> Result<Hit, FillEnded> {
        let Some(hold) = self.hold.take() else { return Err(FillEnded) };
        let updated = match self.store.faster_with(hit.store) {
            // It is the copy of a faster store.
            Some(faster) => {
                let io = faster.io_from(&self.store, &self.io);
                let target = self.target();
                let hold = faster.index().hold(&target.key, now()).map_err(|_| FillEnded)?;
                faster.update(&io, target, hold, hit, state).await
            }
            None if hit.store != self.store.id() => Err(FillEnded),
            None => self.store.update(&self.io, self.target(), hold, hit, state).await,
        };
        let ended = if updated.is_ok() { Ended::Stored } else { Ended::Failed };
        self.store.fills().leave(&self.growth);
        self.growth.end(ended);
        updated
    }

    /// The origin failed with `status`, which is to be answered until `valid_until` without asking
    /// again (`proxy_cache_valid`). Nothing is written.
    pub fn remember_error(mut self, status: u16, valid_until: UnixMs) {
        if let Some(hold) = self.hold.take() {
            hold.remember_error(status, valid_until);
        }
        self.store.fills().leave(&self.growth);
        self.growth.end(Ended::Stored);
    }

    /// Adds a piece of the body. Waits while [`IN_FLIGHT_BYTES_MAX`] wait for the disk, but not
    /// longer than [`STALL_MAX`] for one that takes nothing, unless others read along.
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
                self.growth.end(Ended::Failed);
                return Err(FillEnded);
            }
            if self.growth.has_room(IN_FLIGHT_BYTES_MAX) {
                break;
            }
        }
        if self.growth.push(piece) { Ok(()) } else { Err(FillEnded) }
    }

    /// Adds a piece whether there is room or not. For callers that wait for [`room`](Fill::room)
    /// themselves, before they read more.
    ///
    /// # Errors
    /// [`FillEnded`].
    pub fn push(&mut self, piece: Bytes) -> Result<(), FillEnded> {
        if self.growth.push(piece) { Ok(()) } else { Err(FillEnded) }
    }

    /// Resolves when fewer than [`IN_FLIGHT_BYTES_MAX`] bytes wait for the disk, or the fill has
    /// ended.
    pub async fn room(&mut self) {
        poll_fn(|cx| self.growth.poll_room(cx, IN_FLIGHT_BYTES_MAX)).await;
    }

    /// The body is whole: the rest is written and the object becomes visible. That goes on by itself
    /// on this worker; await the result only if it matters when.
    pub fn commit(mut self) -> Committing {
        // Without a head there is nothing to store: the drop ends it.
        if let Some(head) = self.growth.head() {
            let key = self.growth.key();
            let names = names_of(&head.identity);
            let overtaken = || self.store.index().overtaken(self.begun, names);
            if self.growth.complete(|| self.store.commits.enter(key))
                && overtaken() != Some(How::Hard)
            {
                self.store.fills().show(&self.growth);
                // A purge in between has not seen it, one that comes now does.
                match overtaken() {
                    Some(How::Hard) => self.store.fills().leave(&self.growth),
                    Some(How::Soft) => self.growth.soften(),
                    None => {}
                }
            }
            // The task behind it has it now.
            self.open = false;
        }
        Committing { growth: self.growth.clone(), slot: Slot::default() }
    }

    /// The response may not be stored: those who wait ask the origin at once, not one after the
    /// other.
    pub fn decline(self) {
        self.store.fills().leave(&self.growth);
        self.growth.end(Ended::Declined);
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if self.open {
            self.store.fills().leave(&self.growth);
            self.growth.end(Ended::Failed);
        }
    }
}

impl std::fmt::Debug for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fill").field("target", self.target()).finish_non_exhaustive()
    }
}

/// An object on its last steps to the disk. Dropping it changes nothing.
#[must_use = "only to be awaited if it matters when the object is stored"]
pub struct Committing {
    growth: Arc<Growth>,
    slot: Slot,
}

impl Future for Committing {
    type Output = Result<(), FillEnded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Committing { growth, slot } = &mut *self;
        growth.poll_known(cx, slot, false).map(|known| match known {
            Err(Ended::Stored) => Ok(()),
            _ => Err(FillEnded),
        })
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        self.growth.leave(&mut self.slot);
    }
}

/// Waits for an object that somebody else fetches (`proxy_cache_lock`). Its place is given up when
/// it is dropped.
pub struct Waiter {
    growth: Arc<Growth>,
    slot: Slot,
    read_while_filling: bool,
}

/// What a [`Waiter`] waited for.
#[derive(Debug)]
pub enum Woken {
    /// The head is known: read along.
    Filling(Growing),
    /// It has ended: after [`Ended::Stored`], [`Ended::Failed`] and [`Ended::Moved`] look again,
    /// after [`Ended::Declined`] ask the origin without storing.
    Ended(Ended),
}

impl Waiter {
    pub(crate) fn new(growth: Arc<Growth>, read_while_filling: bool) -> Waiter {
        Waiter { growth, slot: Slot::default(), read_while_filling }
    }

    /// How long what is waited for has been under way.
    pub fn age(&self) -> Duration {
        self.growth.age()
    }
}

impl Future for Waiter {
    type Output = Woken;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Woken> {
        let Waiter { growth, slot, read_while_filling } = &mut *self;
        growth.poll_known(cx, slot, *read_while_filling).map(|known| match known {
            Ok(head) => Woken::Filling(Growing::new(growth.clone(), head)),
            Err(ended) => Woken::Ended(ended),
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
