//! Reading an object while it is being filled.
//!
//! Every reader has its own position and speed. Only the newest pieces, which are not yet in the
//! file, are kept in memory for it. Readers may join at any time after the head is known, on any
//! worker. Returned by [`crate::Store::lookup`] and by [`crate::fill::Waiter`].

use std::future::poll_fn;
use std::sync::Arc;

use crate::format::ObjectHead;
pub use crate::growth::{FillInterrupted, FillPiece};
use crate::growth::{Growth, WatcherSlot};

/// A reader of an object that is being filled.
pub struct FillReader {
    growth: Arc<Growth>,
    head: Arc<ObjectHead>,
    position: u64,
    slot: WatcherSlot,
    /// The part already in the file may be read there.
    file: bool,
    /// The piece at this position, whose arrival was awaited.
    begun: Option<Box<(u64, FillPiece)>>,
}

/// Bytes of an awaited piece for a reader that has not stated its limit.
const BEGUN_BYTES_MAX: u64 = 64 * 1024;

impl FillReader {
    pub(crate) fn new(growth: Arc<Growth>, head: Arc<ObjectHead>) -> FillReader {
        growth.enter();
        FillReader {
            growth,
            head,
            position: 0,
            slot: WatcherSlot::default(),
            file: true,
            begun: None,
        }
    }

    /// The object's head. Its `body_len` is not known before the end.
    pub fn head(&self) -> &Arc<ObjectHead> {
        &self.head
    }

    /// Number of the store in which it is being filled.
    pub(crate) fn store(&self) -> u64 {
        self.growth.store()
    }

    pub(crate) fn growth(&self) -> &Arc<Growth> {
        &self.growth
    }

    /// Body bytes received from the origin so far, and whether they are all.
    pub fn received(&self) -> (u64, bool) {
        self.growth.received()
    }

    /// Continues at `position` of the body, which may be beyond the received bytes (byte ranges).
    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// The position of the next bytes in the body.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The file can't be read: from now on only bytes in memory are returned, and [`FillInterrupted::Lost`] for
    /// the rest.
    pub fn lose_file(&mut self) {
        self.file = false;
        self.begun = None;
    }

    /// Resolves when the object is in the cache or will not be stored; then repeat the look-up.
    pub async fn settled(mut self) {
        let FillReader { growth, slot, .. } = &mut self;
        // The next look-up shows the result.
        let _ = poll_fn(|cx| growth.poll_known(cx, slot, false)).await;
    }

    /// Waits until the bytes at `position` of the body have arrived, or its end. False: the fill ended
    /// without an object before that.
    pub async fn begins(&mut self, position: u64) -> bool {
        let FillReader { growth, slot, file, begun, .. } = self;
        let read = poll_fn(|cx| growth.poll_read(cx, slot, position, BEGUN_BYTES_MAX, *file)).await;
        match read {
            Ok(piece) => *begun = piece.map(|piece| Box::new((position, piece))),
            Err(FillInterrupted::Ended) => return false,
            // The rest may come from another source.
            Err(FillInterrupted::Lost) => {}
        }
        true
    }

    /// The next bytes, at most `max` of them, as soon as there are any; `None` at the end of the
    /// body.
    ///
    /// # Errors
    /// [`FillInterrupted`]: the fill ended without an object, or the next bytes are lost.
    pub async fn next(&mut self, max: u64) -> Result<Option<FillPiece>, FillInterrupted> {
        let FillReader { growth, position, slot, file, begun, .. } = self;
        let (at, max, file) = (*position, max.max(1), *file);
        let piece = match begun.take().map(|begun| *begun) {
            Some((begin, piece)) if begin == at => Some(piece.first(max)),
            _ => poll_fn(|cx| growth.poll_read(cx, slot, at, max, file)).await?,
        };
        if let Some(piece) = &piece {
            *position += piece.len();
        }
        Ok(piece)
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        self.growth.leave(&mut self.slot);
        self.growth.exit();
    }
}

impl std::fmt::Debug for FillReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Growing").field("position", &self.position).finish_non_exhaustive()
    }
}
