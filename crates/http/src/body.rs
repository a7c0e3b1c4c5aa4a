//! Bodies composed of bodies, for all filters: concatenated, or collected in memory.
//!
//! Used by filters that insert something before, between or after the parts of a response. No part is
//! produced early: a subrequest begins when all parts before it have been sent.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::filter::Pull;
use crate::request::Request;
use crate::response::{Body, BodyError, BodySource, LocalFuture, Part};
use crate::subrequest::{self, Answer, SubrequestError};

/// Bodies one after the other.
#[derive(Default)]
pub struct Sequence {
    pieces: VecDeque<Piece>,
    /// Whether any bytes were sent.
    sent: bool,
}

/// A piece of a [`Sequence`].
pub enum Piece {
    /// A body.
    Body(Body),
    /// The response of a subrequest, which runs when its turn comes.
    Subrequest(Box<Request>),
    /// A running subrequest.
    Running(LocalFuture<'static, Result<Answer, SubrequestError>>),
    /// A body that is sent only if no bytes were sent before it.
    IfEmpty(Body),
}

impl Sequence {
    /// Of these pieces.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self { pieces: pieces.into_iter().collect(), sent: false }
    }

    /// As the body of a response.
    pub fn into_body(self) -> Body {
        Body::Stream(Box::new(self))
    }

    /// The next part of the first piece; `None` when that has ended.
    async fn part(first: &mut Piece, sent: bool) -> Result<Option<Part>, BodyError> {
        loop {
            match first {
                Piece::Body(body) => return body.next().await,
                Piece::IfEmpty(_) if sent => return Ok(None),
                Piece::IfEmpty(body) => *first = Piece::Body(std::mem::take(body)),
                Piece::Subrequest(_) => {
                    let taken = std::mem::replace(first, Piece::Body(Body::Empty));
                    if let Piece::Subrequest(request) = taken {
                        *first = Piece::Running(subrequest::run(request));
                    }
                }
                // The future stays in its place when this one is dropped.
                Piece::Running(running) => {
                    let answer = running.await;
                    *first = Piece::Body(Body::Empty);
                    *first = Piece::Body(answer?.into_body());
                }
            }
        }
    }
}

impl BodySource for Sequence {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            while let Some(first) = self.pieces.front_mut() {
                match Self::part(first, self.sent).await? {
                    Some(part) if !part.is_empty() => {
                        self.sent = true;
                        return Ok(Some(part));
                    }
                    Some(_) => {}
                    None => drop(self.pieces.pop_front()),
                }
            }
            Ok(None)
        })
    }

    fn is_urgent(&self) -> bool {
        match self.pieces.front() {
            Some(Piece::Body(body) | Piece::IfEmpty(body)) => body.is_urgent(),
            Some(Piece::Subrequest(_) | Piece::Running(_)) | None => false,
        }
    }

    fn retry(&mut self, unsent: u64) -> bool {
        match self.pieces.front_mut() {
            Some(Piece::Body(Body::Stream(source))) => source.retry(unsent),
            _ => false,
        }
    }
}

/// A body as one piece in memory; `None` if it is longer than `max` bytes.
///
/// # Errors
/// The body can't be completed.
pub async fn collect(body: Body, max: usize) -> Result<Option<Bytes>, BodyError> {
    let mut pull = Pull::new(body);
    let Some(first) = pull.next().await? else { return Ok(Some(Bytes::new())) };
    if first.len() > max {
        return Ok(None);
    }
    let mut whole: Option<BytesMut> = None;
    while let Some(piece) = pull.next().await? {
        let whole = whole.get_or_insert_with(|| BytesMut::from(&first[..]));
        if whole.len() + piece.len() > max {
            return Ok(None);
        }
        whole.extend_from_slice(&piece);
    }
    Ok(Some(whole.map_or(first, BytesMut::freeze)))
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The result of a future that is ready at once.
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn text(text: &'static str) -> Body {
        Body::from_static(text.as_bytes())
    }

    #[test]
    fn pieces_follow_each_other() {
        let parts = [Part::Bytes(Bytes::from_static(b"c")), Part::Bytes(Bytes::from_static(b"d"))];
        let inner = Sequence::new([Piece::Body(text("e")), Piece::Body(Body::Empty)]).into_body();
        let all = [text("a"), Body::Empty, text("b"), Body::Parts(parts.into()), inner, text("f")];
        let body = Sequence::new(all.map(Piece::Body)).into_body();
        assert_eq!(at_once(collect(body, 6)).unwrap().as_deref(), Some(&b"abcdef"[..]));
    }

    #[test]
    fn a_substitute_is_sent_only_for_empty_bodies() {
        for (first, whole) in [(Body::Empty, "stub"), (text("a"), "a")] {
            let pieces = [Piece::Body(first), Piece::IfEmpty(text("stub"))];
            let body = Sequence::new(pieces).into_body();
            assert_eq!(at_once(collect(body, 9)).unwrap().as_deref(), Some(whole.as_bytes()));
        }
    }

    #[test]
    fn a_body_in_memory_is_bounded() {
        let body = || Sequence::new([text("abc"), text("def")].map(Piece::Body)).into_body();
        assert_eq!(at_once(collect(body(), 5)).unwrap(), None);
        assert_eq!(at_once(collect(text("abc"), 2)).unwrap(), None);
        assert_eq!(at_once(collect(Body::Empty, 0)).unwrap().as_deref(), Some(&b""[..]));
    }
}
