//! The content of an object while it is being stored, for a request that reads along.
//!
//! Made by [`super::hit`]. When the disk fails it goes on with what is in memory, and if the reader is too
//! far behind for that, with what the origin sends for a range ([`super::rest`]).

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use nowait_cache::{Cut, Growing, Piece, Store, Why};
use nowait_runtime::fs::Io;

use super::rest::{Got, Missing, Rest};
use crate::response::{Body, BodyError, BodySource, FileBody, LocalFuture, Part};
use crate::slice;

/// Bytes that a reader takes at once.
const PIECE_BYTES_MAX: u64 = 256 * 1024;

/// A body that is read while it is stored.
pub(super) struct Along {
    growing: Growing,
    store: Arc<Store>,
    io: Rc<Io>,
    /// Up to where it is wanted; `None`: to its end.
    end: Option<u64>,
    /// For what the disk has lost.
    rest: Option<Box<Rest>>,
    from: From,
}

/// Where the next bytes come from.
enum From {
    Object,
    /// The origin is being asked.
    Asking(LocalFuture<'static, Result<Got, BodyError>>),
    /// The origin.
    Origin {
        body: Body,
        /// Bytes to be left out first.
        skip: u64,
        /// Where in the whole the next byte is, after those.
        at: u64,
        end: Option<u64>,
    },
}

impl Along {
    pub(super) fn new(
        growing: Growing,
        store: Arc<Store>,
        io: Rc<Io>,
        rest: Option<Box<Rest>>,
    ) -> Self {
        Self { growing, store, io, end: None, rest, from: From::Object }
    }

    /// The next piece of the object; `None`: the origin has to be asked.
    async fn piece(&mut self) -> Result<Option<Option<Part>>, BodyError> {
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.growing.position()));
        if left == 0 {
            return Ok(Some(None));
        }
        if self.rest.is_some() && self.store.out_of_use() == Some(Why::Hanging) {
            self.growing.lose_file();
        }
        match self.growing.next(left.min(PIECE_BYTES_MAX)).await {
            Ok(piece) => Ok(Some(piece.map(|piece| match piece {
                Piece::Bytes(bytes) => Part::Bytes(bytes),
                Piece::File { file, offset, len } => {
                    Part::File(FileBody { file, io: self.io.clone(), offset, len })
                }
            }))),
            Err(Cut::Lost) if self.rest.is_some() => Ok(None),
            Err(cut) => Err(BodyError::Upstream(cut.to_string())),
        }
    }

    /// Asks for what is missing.
    fn ask(&mut self) -> From {
        let Some(rest) = self.rest.take() else { return From::Object };
        self.store.note_resumed();
        let (received, is_all) = self.growing.received();
        From::Asking(rest.ask(Missing {
            start: self.growing.position(),
            end: self.end,
            length: is_all.then_some(received),
            received,
        }))
    }
}

/// The next piece of what the origin sends; `None` at its end.
async fn next(
    body: &mut Body,
    skip: &mut u64,
    at: &mut u64,
    end: Option<u64>,
) -> Result<Option<Part>, BodyError> {
    while end.is_none_or(|end| *at < end) {
        let Some(part) = body.next().await? else {
            // The engine has seen its end; that it is the right one shows here.
            return if end.is_none() && *skip == 0 { Ok(None) } else { Err(BodyError::Truncated) };
        };
        let left_out = part.len().min(*skip);
        *skip -= left_out;
        let wanted = end.map_or(u64::MAX, |end| end - *at).min(part.len() - left_out);
        *at += wanted;
        if wanted > 0 {
            return Ok(slice::cut(part, &(left_out..left_out + wanted)));
        }
    }
    Ok(None)
}

impl BodySource for Along {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            loop {
                match &mut self.from {
                    From::Object => match self.piece().await? {
                        Some(part) => return Ok(part),
                        None => self.from = self.ask(),
                    },
                    // It stays where it is when this future is dropped.
                    From::Asking(got) => {
                        let got = got.await?;
                        let at = self.growing.position();
                        let Got { body, skip, end } = got;
                        self.from = From::Origin { body, skip, at, end };
                    }
                    From::Origin { body, skip, at, end } => {
                        return next(body, skip, at, *end).await;
                    }
                }
            }
        })
    }

    /// What is stored is buffered.
    fn is_urgent(&self) -> bool {
        false
    }

    fn cut(&mut self, wanted: &Range<u64>) -> bool {
        self.growing.seek(wanted.start);
        self.end = Some(wanted.end);
        true
    }

    fn retry(&mut self, unsent: u64) -> bool {
        if !matches!(self.from, From::Object) {
            return false;
        }
        self.growing.seek(self.growing.position() - unsent);
        self.growing.lose_file();
        true
    }
}
