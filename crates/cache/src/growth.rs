//! One object while it is being filled: the state shared by its writer, its readers and its
//! waiters, on any workers.
//!
//! The writer ([`crate::fill`]) adds pieces; the task behind it moves them to the file. Readers
//! ([`crate::growing`]) read from the file, and from memory the newest pieces, which are not yet in
//! the file. Waiters learn when the head is known and how the fill ended. Does no I/O.
//!
//! There is one lock, held for a few instructions; tasks are woken after it was released.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_runtime::fs::File;
use slab::Slab;

use crate::format::ObjectHead;
use crate::key::Key;
use crate::target::CacheKey;

/// The result of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillResult {
    /// The object is in the cache.
    Stored,
    /// The response may not be stored. Waiters should all send their requests to the origin, because the
    /// next response is unlikely to be storable either.
    Declined,
    /// The origin failed, the client left, or the disk refused it: the next request may try.
    Failed,
    /// The fill continues under another key ([`crate::Fill::rekey`]); repeat the look-up.
    Moved,
}

/// A reader's next piece.
#[derive(Clone, Debug)]
pub enum FillPiece {
    /// Still in memory.
    Bytes(Bytes),
    /// In the file.
    File {
        /// The file, which may still have its temporary name.
        file: File,
        /// The offset of the bytes in the file.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
}

impl FillPiece {
    /// Length in bytes; never 0.
    pub fn len(&self) -> u64 {
        match self {
            FillPiece::Bytes(bytes) => bytes.len() as u64,
            FillPiece::File { len, .. } => *len,
        }
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At most `max` bytes of it.
    pub(crate) fn first(mut self, max: u64) -> FillPiece {
        match &mut self {
            FillPiece::Bytes(bytes) => bytes.truncate(usize::try_from(max).unwrap_or(usize::MAX)),
            FillPiece::File { len, .. } => *len = max.min(*len),
        }
        self
    }
}

/// The fill ended without an object, and a reader gets no more data. The connection is closed before the
/// end of the response, unless no data was sent, or the rest comes from another source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillInterrupted {
    /// The origin closed early, or its response is no longer read.
    Ended,
    /// The disk could not store the next bytes, and they are no longer in memory. The origin still has
    /// them.
    Lost,
}

impl std::fmt::Display for FillInterrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FillInterrupted::Ended => "the object being stored could not be completed",
            FillInterrupted::Lost => "the cache could not keep the object being read",
        })
    }
}

impl std::error::Error for FillInterrupted {}

/// Bytes kept in memory for readers of an object that can no longer be written. A reader that is further
/// behind has to get the rest from another source ([`FillInterrupted::Lost`]).
const ADRIFT_BYTES_MAX: u64 = 4 * 1024 * 1024;

pub(crate) struct Growth {
    target: CacheKey,
    /// Number of the store in which it is filled.
    store: u64,
    /// The start of the fill.
    began: Instant,
    state: Mutex<GrowthState>,
}

struct GrowthState {
    head: Option<Arc<ObjectHead>>,
    /// Body bytes received from the origin.
    received: u64,
    /// The time of the last data from the origin.
    heard: Instant,
    /// Body bytes in the file.
    written: u64,
    /// The newest bytes, up to `received`, which are not in the file. Bounded by the fill.
    pending: VecDeque<Bytes>,
    /// Their position: `written`, unless the object is adrift.
    pending_start: u64,
    /// The whole body was received.
    complete: bool,
    /// The number among the complete objects ([`crate::commits`]).
    order: u64,
    /// The file, and where the body begins in it.
    file: Option<(File, u64)>,
    ended: Option<FillResult>,
    /// The object will not be stored, but has readers; no more data is written.
    adrift: bool,
    /// The key was purged meanwhile: readers continue to the end, but it is not stored.
    doomed: bool,
    /// The key was purged softly meanwhile: it is not found until it is stored, stale from then on.
    softened: bool,
    /// Readers.
    readers: usize,
    /// Readers and waiters that wait.
    watchers: Slab<Waker>,
    /// The task that adds pieces, when it must wait.
    source: Option<Waker>,
    /// The writing task, while it is idle.
    sink: Option<Waker>,
}

impl GrowthState {
    fn pending_bytes(&self) -> u64 {
        self.received - self.pending_start
    }

    /// Whether `pending` has exactly the bytes from `pending_start` to `received`, without overlap with the
    /// file.
    fn is_consistent(&self) -> bool {
        let bytes: u64 = self.pending.iter().map(|piece| piece.len() as u64).sum();
        bytes == self.pending_bytes()
            && self.written <= self.pending_start
            && (self.adrift || self.ended.is_some() || self.written == self.pending_start)
            && self.pending.iter().all(|piece| !piece.is_empty())
    }

    /// No reader or writer needs more of it.
    fn is_over(&self) -> bool {
        self.ended.is_some() || (self.adrift && self.readers == 0)
    }

    /// Drops bytes beyond the memory limit when no more data is written.
    fn trim(&mut self) -> Vec<Bytes> {
        let mut gone = Vec::new();
        while self.adrift
            && self.pending_bytes() > ADRIFT_BYTES_MAX
            && let Some(piece) = self.pending.pop_front()
        {
            self.pending_start += piece.len() as u64;
            gone.push(piece);
        }
        gone
    }

    /// All wakers, for a change that concerns everyone. The slots stay: watchers register again.
    fn watchers(&mut self) -> Vec<Waker> {
        self.watchers.iter().map(|(_, waker)| waker.clone()).collect()
    }
}

/// The next work of the writing task.
pub(crate) enum WriteWork {
    /// These bytes are to be written at `offset` of the body; `last`: they are its end.
    Write { offset: u64, pieces: Vec<Bytes>, last: bool },
    /// The whole body is in the file.
    Finish,
    /// The fill was ended.
    Stop,
}

impl Growth {
    pub(crate) fn new(target: CacheKey, store: u64) -> Growth {
        let began = nowait_runtime::now();
        Growth {
            target,
            store,
            began,
            state: Mutex::new(GrowthState {
                head: None,
                received: 0,
                heard: began,
                written: 0,
                pending: VecDeque::new(),
                pending_start: 0,
                complete: false,
                order: 0,
                file: None,
                ended: None,
                adrift: false,
                doomed: false,
                softened: false,
                readers: 0,
                watchers: Slab::new(),
                source: None,
                sink: None,
            }),
        }
    }

    /// Plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, GrowthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object that is filled.
    pub(crate) fn target(&self) -> &CacheKey {
        &self.target
    }

    /// Number of the store in which it is filled.
    pub(crate) fn store(&self) -> u64 {
        self.store
    }

    pub(crate) fn key(&self) -> Key {
        self.target.key
    }

    /// The head is known: readers may begin.
    pub(crate) fn set_head(&self, head: Arc<ObjectHead>) {
        let now = nowait_runtime::now();
        let mut state = self.lock();
        state.head = Some(head);
        state.heard = now;
        let wakers = state.watchers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn head(&self) -> Option<Arc<ObjectHead>> {
        self.lock().head.clone()
    }

    pub(crate) fn ended(&self) -> Option<FillResult> {
        self.lock().ended
    }

    /// Registers a reader.
    pub(crate) fn enter(&self) {
        self.lock().readers += 1;
    }

    /// Unregisters a reader.
    pub(crate) fn exit(&self) {
        self.lock().readers -= 1;
    }

    /// Whether there are readers.
    pub(crate) fn has_readers(&self) -> bool {
        self.lock().readers > 0
    }

    /// Body bytes in the file.
    pub(crate) fn written(&self) -> u64 {
        self.lock().written
    }

    /// The key was purged softly.
    pub(crate) fn soften(&self) {
        self.lock().softened = true;
    }

    /// Whether its key was purged softly meanwhile.
    pub(crate) fn is_softened(&self) -> bool {
        self.lock().softened
    }

    /// The number among the complete objects.
    pub(crate) fn order(&self) -> u64 {
        self.lock().order
    }

    /// The time since the fill began.
    pub(crate) fn age(&self) -> Duration {
        nowait_runtime::now().saturating_duration_since(self.began)
    }

    /// The time since the last data from the origin; zero once the response is complete.
    pub(crate) fn silence(&self) -> Duration {
        let now = nowait_runtime::now();
        let state = self.lock();
        match state.complete {
            true => Duration::ZERO,
            false => now.saturating_duration_since(state.heard),
        }
    }

    /// Body bytes so far, and whether these are all.
    pub(crate) fn received(&self) -> (u64, bool) {
        let state = self.lock();
        (state.received, state.complete)
    }

    /// Adds a piece of the body. False: the fill has ended, the piece is not needed.
    pub(crate) fn push(&self, piece: Bytes) -> bool {
        let now = nowait_runtime::now();
        let mut state = self.lock();
        if state.is_over() {
            return false;
        }
        state.heard = now;
        if piece.is_empty() {
            return true;
        }
        state.received += piece.len() as u64;
        state.pending.push_back(piece);
        let gone = state.trim();
        debug_assert!(state.is_consistent());
        let mut wakers = state.watchers();
        wakers.extend(state.sink.take());
        drop(state);
        drop(gone);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Whether fewer than `max` bytes are queued for the disk, or the fill has ended.
    pub(crate) fn has_room(&self, max: u64) -> bool {
        let state = self.lock();
        state.ended.is_some() || state.adrift || state.pending_bytes() < max
    }

    /// Ready when fewer than `max` bytes are queued for the disk, or the fill has ended.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, max: u64) -> Poll<()> {
        let mut state = self.lock();
        if state.ended.is_some() || state.adrift || state.pending_bytes() < max {
            return Poll::Ready(());
        }
        state.source = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The whole body was added. `order` gives it its number if it is still being written; then
    /// true.
    pub(crate) fn complete(&self, order: impl FnOnce() -> u64) -> bool {
        let mut state = self.lock();
        state.complete = true;
        // Otherwise the number would never be released.
        let is_written = state.ended.is_none() && !state.adrift;
        if is_written {
            state.order = order();
        }
        let mut wakers = state.watchers();
        wakers.extend(state.sink.take());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        is_written
    }

    /// The next piece to write, at most `max` bytes (or one piece).
    pub(crate) fn poll_work(&self, cx: &mut Context<'_>, max: u64) -> Poll<WriteWork> {
        let mut state = self.lock();
        if state.ended.is_some() {
            return Poll::Ready(WriteWork::Stop);
        }
        if state.pending.is_empty() {
            if state.complete {
                return Poll::Ready(WriteWork::Finish);
            }
            state.sink = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        for piece in &state.pending {
            bytes += piece.len() as u64;
            if bytes > max && !pieces.is_empty() {
                break;
            }
            pieces.push(piece.clone());
        }
        let last = state.complete && pieces.len() == state.pending.len();
        Poll::Ready(WriteWork::Write { offset: state.written, pieces, last })
    }

    /// The file exists; its body begins at `offset`.
    pub(crate) fn set_file(&self, file: File, offset: u64) {
        self.lock().file = Some((file, offset));
    }

    /// The first `count` pending pieces are in the file.
    pub(crate) fn wrote(&self, count: usize) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        let gone: Vec<Bytes> = state.pending.drain(..count).collect();
        state.written += gone.iter().map(|piece| piece.len() as u64).sum::<u64>();
        state.pending_start = state.written;
        debug_assert!(state.is_consistent());
        let source = state.source.take();
        drop(state);
        drop(gone);
        if let Some(source) = source {
            source.wake();
        }
    }

    /// The key was purged: readers continue, the object will not be stored, and waiters repeat the look-up.
    pub(crate) fn doom(&self) {
        let mut state = self.lock();
        state.doomed = true;
        let wakers = state.watchers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.lock().doomed
    }

    /// The object will not be stored, without a fault of the origin. Readers continue with the
    /// bytes in the file and in memory; waiters are notified of the failure. Called after the last
    /// write.
    pub(crate) fn drift(&self) {
        let mut state = self.lock();
        if state.readers == 0 {
            drop(state);
            self.end(FillResult::Failed);
            return;
        }
        state.adrift = true;
        let gone = state.trim();
        let mut wakers = state.watchers();
        wakers.extend(state.source.take());
        drop(state);
        drop(gone);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends it, once. False: it had ended before.
    pub(crate) fn end(&self, ended: FillResult) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() {
            return false;
        }
        state.ended = Some(ended);
        if ended != FillResult::Stored {
            state.pending.clear();
            state.pending_start = state.received;
        }
        let mut wakers = state.watchers();
        wakers.extend(state.source.take());
        wakers.extend(state.sink.take());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// The bytes at `position` of the body, at most `max`; `None` at the end. `file`: bytes in the
    /// file may be read there.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        slot: &mut WatcherSlot,
        position: u64,
        max: u64,
        file: bool,
    ) -> Poll<Result<Option<FillPiece>, FillInterrupted>> {
        debug_assert!(max > 0, "a piece is never empty");
        let mut state = self.lock();
        if state.ended.is_some_and(|ended| ended != FillResult::Stored) {
            return Poll::Ready(Err(FillInterrupted::Ended));
        }
        if position >= state.received {
            if state.complete {
                return Poll::Ready(Ok(None));
            }
            slot.watch(&mut state, cx.waker());
            return Poll::Pending;
        }
        if file
            && position < state.written
            && let Some((file, begin)) = &state.file
        {
            let len = (state.written - position).min(max);
            let piece = FillPiece::File { file: file.clone(), offset: begin + position, len };
            return Poll::Ready(Ok(Some(piece)));
        }
        let mut at = state.pending_start;
        if position < at {
            return Poll::Ready(Err(FillInterrupted::Lost));
        }
        for piece in &state.pending {
            let end = at + piece.len() as u64;
            if position < end {
                let skip = usize::try_from(position - at).unwrap_or(usize::MAX);
                let take = (end - position).min(max);
                let take = usize::try_from(take).unwrap_or(usize::MAX);
                return Poll::Ready(Ok(Some(FillPiece::Bytes(piece.slice(skip..skip + take)))));
            }
            at = end;
        }
        Poll::Ready(Err(FillInterrupted::Lost))
    }

    /// Ready when it has ended, or with the head if `head` asks for that.
    pub(crate) fn poll_known(
        &self,
        cx: &mut Context<'_>,
        slot: &mut WatcherSlot,
        head: bool,
    ) -> Poll<Result<Arc<ObjectHead>, FillResult>> {
        let mut state = self.lock();
        if let Some(ended) = state.ended {
            return Poll::Ready(Err(ended));
        }
        if state.adrift {
            return Poll::Ready(Err(FillResult::Failed));
        }
        if state.doomed {
            return Poll::Ready(Err(FillResult::Moved));
        }
        if head && let Some(head) = &state.head {
            return Poll::Ready(Ok(head.clone()));
        }
        slot.watch(&mut state, cx.waker());
        Poll::Pending
    }

    /// Gives up a slot among the watchers.
    pub(crate) fn leave(&self, slot: &mut WatcherSlot) {
        if let Some(at) = slot.0.take() {
            let waker = self.lock().watchers.try_remove(at);
            drop(waker);
        }
    }
}

/// A slot among the watchers of one [`Growth`].
#[derive(Debug, Default)]
pub(crate) struct WatcherSlot(Option<usize>);

impl WatcherSlot {
    fn watch(&mut self, state: &mut GrowthState, waker: &Waker) {
        match self.0.and_then(|at| state.watchers.get_mut(at)) {
            Some(known) => known.clone_from(waker),
            None => self.0 = Some(state.watchers.insert(waker.clone())),
        }
    }
}
