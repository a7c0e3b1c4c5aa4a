//! A client's connection, seen from the server.
//!
//! ```text
//!  receive_head ──(head complete)──► receive_body ──(End)──► next_request ──► receive_head …
//! ```
//!
//! The caller owns the input: each call returns the number of bytes consumed, and the rest (a
//! pipelined request) is passed in again later. Nothing is buffered here except an incomplete head,
//! in the [`RequestHead`] lent by the caller. The connection itself has no heap memory (except for
//! trailers).
//!
//! ```
//! use nowait_h1::{BodyEvent, Limits, server::ServerConnection};
//! use nowait_message::RequestHead;
//!
//! # fn main() -> Result<(), nowait_h1::RequestError> {
//! let mut connection = ServerConnection::new(Limits::default());
//! let mut head = RequestHead::new();
//! let input = b"PUT /a%20b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhiGET /next";
//!
//! let step = connection.receive_head(&mut head, input)?;
//! assert!(step.complete);
//! assert_eq!(*head.normalize(true).unwrap().path, *b"/a b");
//!
//! let mut rest = &input[step.consumed..];
//! let step = connection.receive_body(rest)?;
//! assert_eq!(step.event, BodyEvent::Data(0..2));
//! rest = &rest[step.consumed..];
//! assert_eq!(connection.receive_body(rest)?.event, BodyEvent::End);
//!
//! assert!(connection.next_request());
//! head.recycle();
//! assert!(!connection.receive_head(&mut head, rest)?.complete); // "GET /next": more to come
//! # Ok(())
//! # }
//! ```

use crate::body::{BodyDecoder, BodyEvent, BodyLength, BodyStep, Trailers};
use crate::reader::HeadProgress;
use crate::request::{ConnectionTokens, RequestFraming, RequestHeadReader};
use crate::{Limits, RequestError};
use nowait_message::{RequestHead, Span};

/// Result of [`ServerConnection::receive_head`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeadStep {
    /// Number of consumed bytes of the input; all of them while the head is incomplete.
    pub consumed: usize,
    /// The head is complete.
    pub complete: bool,
}

/// The protocol state of one connection.
#[derive(Debug)]
pub struct ServerConnection {
    limits: Limits,
    reader: HeadProgress,
    head_complete: bool,
    /// Whether the limits are those that the last complete head was read with.
    same_limits: bool,
    framing: RequestFraming,
    body: BodyDecoder,
}

impl ServerConnection {
    /// A fresh connection. The limits are those of the listening socket's default server.
    pub fn new(limits: Limits) -> Self {
        ServerConnection {
            limits,
            reader: HeadProgress::new(&limits),
            head_complete: false,
            same_limits: false,
            framing: RequestFraming::default(),
            body: BodyDecoder::of_request(BodyLength::Empty, &limits),
        }
    }

    /// Sets new limits, from the next head on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.same_limits = false;
        if !self.reader.has_begun() {
            self.reader = HeadProgress::new(&limits);
        }
    }

    /// Whether part of a head has arrived: this distinguishes an idle keep-alive connection from
    /// one that is reading a request (`keepalive_timeout`, `client_header_timeout`). Empty lines
    /// before a request do not count.
    pub fn has_begun(&self) -> bool {
        self.reader.has_begun()
    }

    /// Reads a head into `head`, which must be the same one, not recycled, until it is complete.
    /// Once it is, further calls consume nothing until [`ServerConnection::next_request`].
    ///
    /// After an error the connection can only be closed; `head` contains the part read.
    pub fn receive_head(
        &mut self,
        head: &mut RequestHead,
        input: &[u8],
    ) -> Result<RequestHeadStep, RequestError> {
        if self.head_complete {
            return Ok(RequestHeadStep { consumed: 0, complete: true });
        }
        let same_limits = self.same_limits;
        let mut reading = RequestHeadReader { head, framing: &mut self.framing, same_limits };
        let (consumed, complete) = self.reader.receive(&mut reading, &self.limits, input)?;
        if complete {
            self.head_complete = true;
            self.same_limits = true;
            self.body = BodyDecoder::of_request(self.framing.body_length(head), &self.limits);
        }
        Ok(RequestHeadStep { consumed, complete })
    }

    /// The framing of the body that belongs to the head.
    pub fn body_length(&self, head: &RequestHead) -> BodyLength {
        self.framing.body_length(head)
    }

    /// The options of the head's `ServerConnection`.
    pub fn options(&self) -> ConnectionTokens {
        self.framing.options
    }

    /// Whether the client allows the connection to persist (RFC 9112 section 9.3).
    pub fn keep_alive(&self, head: &RequestHead) -> bool {
        self.framing.keep_alive(head.version())
    }

    /// The number of fields dropped because of odd names (`ignore_invalid_headers`).
    pub fn ignored_fields(&self) -> u32 {
        self.framing.odd.as_ref().map_or(0, |odd| odd.ignored)
    }

    /// The first of the dropped fields as they were sent, for the log: "client sent invalid header
    /// line" at level info.
    pub fn ignored_lines<'h>(&self, head: &'h RequestHead) -> impl Iterator<Item = &'h [u8]> {
        let lines = self.framing.odd.iter().flat_map(|odd| &odd.lines);
        lines.map(|line| line.of(head.text()))
    }

    /// After an error: the line of the head at fault, up to the first bad byte, and this byte.
    pub(crate) fn error_line<'h>(&self, head: &'h RequestHead) -> (&'h [u8], Option<u8>) {
        let odd = self.framing.odd.as_deref();
        let (line, byte) = odd.map_or((Span::default(), None), |odd| (odd.error, odd.error_byte));
        (line.of(head.text()), byte)
    }

    /// Reads the body of the request whose head is complete. Call again with the rest of the
    /// input until [`BodyEvent::NeedMore`] or [`BodyEvent::End`].
    pub fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, RequestError> {
        self.body.receive(input).map_err(RequestError::from)
    }

    /// The body's decoder, for its counters.
    pub fn body(&self) -> &BodyDecoder {
        &self.body
    }

    /// Trailers, once the body has ended.
    pub fn trailers(&self) -> Option<&Trailers> {
        self.body.trailers()
    }

    /// Whether the request has been read to the end of its body, so that the connection can
    /// continue.
    pub fn is_body_complete(&self) -> bool {
        self.head_complete && self.body.is_complete()
    }

    /// Prepares for the next request. Returns false, and changes nothing, while head or body is
    /// incomplete: the following bytes would be mistaken for a request, so the connection must be
    /// closed.
    #[must_use]
    pub fn next_request(&mut self) -> bool {
        if !self.head_complete || !self.body.is_complete() {
            return false;
        }
        self.reader = HeadProgress::new(&self.limits);
        self.head_complete = false;
        self.framing = RequestFraming::default();
        self.body = BodyDecoder::of_request(BodyLength::Empty, &self.limits);
        true
    }

    /// Reads and drops as much of the body as `input` holds (nginx's discard of a request body).
    /// Returns bytes consumed and whether the body has ended.
    pub fn discard_body(&mut self, input: &[u8]) -> Result<(usize, bool), RequestError> {
        let mut consumed = 0;
        loop {
            let step = self.receive_body(&input[consumed..])?;
            consumed += step.consumed;
            match step.event {
                BodyEvent::Data(_) => {}
                BodyEvent::NeedMore => return Ok((consumed, false)),
                BodyEvent::End => return Ok((consumed, true)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Part of the memory cost of an idle connection.
    #[test]
    fn an_idle_connection_is_small() {
        let size = std::mem::size_of::<ServerConnection>();
        assert!(size <= 144, "{size} bytes");
        let size = std::mem::size_of::<RequestHead>();
        assert!(size <= 384, "{size} bytes");
    }
}
