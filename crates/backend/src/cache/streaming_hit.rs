//! The body of an object whose disk may fail while it is read: an object that is being stored, or
//! one in the cache.
//!
//! Made by [`super::hit`]. When the disk fails, the body continues from memory and, where that is
//! not enough, with the origin's response to a range request ([`super::origin_resume`]).

use std::ops::Range;
use std::rc::Rc;

use nowait_cache::{FillInterrupted, FillPiece, FillReader, Why};
use nowait_caching::combination::Missing;
use nowait_caching::status::Status;
use nowait_http::response::{BodyError, BodySource, FallbackSource, FileBody, LocalFuture, Part};
use nowait_runtime::fs::Io;

use super::object_reader::ObjectReader;
use super::origin_resume::{OriginResume, ResumedBody};
use super::responses::Own;

/// Bytes that a reader takes at a time.
const PIECE_BYTES_MAX: u64 = 256 * 1024;

/// A body that is read while it is stored, or from its file.
pub(super) struct StreamingHit {
    object: Object,
    kept: Rc<ObjectReader>,
    /// Fetches the bytes that the disk has lost.
    rest: Option<Box<OriginResume>>,
    /// The origin's response, once it is requested.
    origin: Option<ResumedBody>,
}

/// The location of an object.
enum Object {
    /// Being stored.
    Growing {
        growing: FillReader,
        io: Rc<Io>,
        /// Counts its bytes.
        own: Option<Own>,
        /// The end of the wanted part; `None`: the body's end.
        end: Option<u64>,
    },
    /// In a file, with this part left to read. `begin`: the start of the body in it; `length`: of the body.
    File { left: FileBody, begin: u64, length: u64, failed: bool },
}

impl StreamingHit {
    pub(super) fn growing(
        growing: FillReader,
        io: Rc<Io>,
        kept: Rc<ObjectReader>,
        rest: Option<Box<OriginResume>>,
        own: Option<Own>,
    ) -> Self {
        let object = Object::Growing { growing, io, own, end: None };
        Self { object, kept, rest, origin: None }
    }

    /// A body of `length` bytes that begins at `begin` in its file; `left` of it are needed.
    pub(super) fn file(
        left: FileBody,
        (begin, length): (u64, u64),
        kept: Rc<ObjectReader>,
        rest: Box<OriginResume>,
        failed: bool,
    ) -> Self {
        let object = Object::File { left, begin, length, failed };
        Self { object, kept, rest: Some(rest), origin: None }
    }

    /// Requests the missing bytes.
    fn ask(&mut self) -> Result<ResumedBody, BodyError> {
        let lost = || BodyError::Upstream(FillInterrupted::Lost.to_string());
        let rest = self.rest.take().ok_or_else(lost)?;
        self.kept.store().note_resumed();
        Ok(rest.ask(self.object.missing()))
    }

    /// The next piece of the object; `None`: it is lost.
    async fn piece(&mut self) -> Result<Option<Option<Part>>, BodyError> {
        let resumes = self.rest.is_some();
        match &mut self.object {
            Object::Growing { growing, io, own, end } => {
                let left = end.map_or(u64::MAX, |end| end.saturating_sub(growing.position()));
                if left == 0 {
                    return Ok(Some(None));
                }
                if resumes && self.kept.store().out_of_use() == Some(Why::Hanging) {
                    growing.lose_file();
                }
                let next = growing.next(left.min(PIECE_BYTES_MAX)).await;
                if let (Some(own), Ok(Some(piece))) = (own, &next) {
                    own.count_bytes(Status::Hit, piece.len());
                }
                match next {
                    Ok(piece) => Ok(Some(piece.map(|piece| match piece {
                        FillPiece::Bytes(bytes) => Part::Bytes(bytes),
                        FillPiece::File { file, offset, len } => {
                            let elsewhere: Option<Rc<dyn FallbackSource>> =
                                if resumes { Some(self.kept.clone()) } else { None };
                            Part::File(FileBody { file, io: io.clone(), offset, len, elsewhere })
                        }
                    }))),
                    Err(FillInterrupted::Lost) if resumes => Ok(None),
                    Err(cut) => Err(BodyError::Upstream(cut.to_string())),
                }
            }
            Object::File { failed: true, .. } => Ok(None),
            Object::File { left, .. } if left.len == 0 => Ok(Some(None)),
            Object::File { left, .. } => {
                let all = left.clone();
                (left.offset, left.len) = (left.offset + left.len, 0);
                Ok(Some(Some(Part::File(all))))
            }
        }
    }
}

impl Object {
    fn missing(&self) -> Missing {
        match self {
            Self::Growing { growing, end, .. } => {
                let (received, is_all) = growing.received();
                Missing {
                    start: growing.position(),
                    end: *end,
                    length: is_all.then_some(received),
                    received,
                }
            }
            Self::File { left, begin, length, .. } => {
                let start = left.offset - begin;
                Missing {
                    start,
                    end: Some(start + left.len),
                    length: Some(*length),
                    received: *length,
                }
            }
        }
    }
}

impl BodySource for StreamingHit {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            loop {
                if let Some(origin) = &mut self.origin {
                    return origin.next().await;
                }
                match self.piece().await? {
                    Some(part) => return Ok(part),
                    None => self.origin = Some(self.ask()?),
                }
            }
        })
    }

    /// Stored bytes are buffered.
    fn is_urgent(&self) -> bool {
        false
    }

    fn cut(&mut self, wanted: &Range<u64>) -> bool {
        match &mut self.object {
            Object::Growing { growing, end, .. } => {
                growing.seek(wanted.start);
                *end = Some(wanted.end);
                true
            }
            Object::File { left, .. } if wanted.end <= left.len => {
                (left.offset, left.len) = (left.offset + wanted.start, wanted.end - wanted.start);
                true
            }
            Object::File { .. } => false,
        }
    }

    fn retry(&mut self, unsent: u64) -> bool {
        if self.origin.is_some() {
            return false;
        }
        match &mut self.object {
            Object::Growing { growing, .. } => {
                growing.seek(growing.position() - unsent);
                growing.lose_file();
            }
            Object::File { left, failed, .. } => {
                (left.offset, left.len) = (left.offset - unsent, left.len + unsent);
                *failed = true;
                self.kept.note(&BodyError::Upstream("its disk fails".to_owned()));
            }
        }
        true
    }
}
