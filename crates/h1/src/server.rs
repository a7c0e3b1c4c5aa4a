//! A client's connection, seen from the server.
//!
//! ```text
//!  receive_head ──(head complete)──► receive_body ──(End)──► next_request ──► receive_head …
//! ```
//!
//! The caller owns the input: each call says how many bytes of it were consumed, and what is not
//! consumed (a pipelined request) is offered again later. Nothing is buffered here but an
//! incomplete head, in the [`RequestHead`] that the caller lends. The connection itself has no
//! heap memory.

use crate::body::{BodyDecoder, BodyEvent, BodyLength, BodyStep, Trailers};
use crate::reader::Reader;
use crate::{Limits, RequestError, RequestHead};

/// What [`Connection::receive_head`] made of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadStep {
    /// Bytes of the input that are done with; all of them while the head is incomplete.
    pub consumed: usize,
    /// The head is complete.
    pub complete: bool,
}

/// The protocol state of one connection.
#[derive(Debug)]
pub struct Connection {
    limits: Limits,
    reader: Reader,
    body: BodyDecoder,
}

impl Connection {
    /// A fresh connection. The limits are those of the listening socket's default server.
    pub fn new(limits: Limits) -> Self {
        Connection {
            limits,
            reader: Reader::new(&limits),
            body: BodyDecoder::new(BodyLength::Empty, &limits),
        }
    }

    /// New limits, from the next head on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        if !self.reader.has_begun() {
            self.reader = Reader::new(&limits);
        }
    }

    /// Whether part of a head has come: the line between an idle keep-alive connection and one
    /// that reads a request (`keepalive_timeout`, `client_header_timeout`). Empty lines before a
    /// request do not count.
    pub fn has_begun(&self) -> bool {
        self.reader.has_begun()
    }

    /// Reads a head into `head`, which must be the same one, not recycled, until it is complete.
    ///
    /// After an error the connection can only be closed; `head` tells what was read.
    pub fn receive_head(
        &mut self,
        head: &mut RequestHead,
        input: &[u8],
    ) -> Result<HeadStep, RequestError> {
        let (consumed, complete) = self.reader.receive(head, &self.limits, input)?;
        if complete {
            self.body = BodyDecoder::new(head.body_length(), &self.limits);
        }
        Ok(HeadStep { consumed, complete })
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

    /// Whether the body has been read to its end, so that the connection can go on.
    pub fn is_body_complete(&self) -> bool {
        self.body.is_complete()
    }

    /// Makes ready for the next request. Returns false, and changes nothing, while the body is
    /// incomplete: what follows would be taken for a request, so the connection must be closed.
    #[must_use]
    pub fn next_request(&mut self) -> bool {
        if !self.body.is_complete() {
            return false;
        }
        self.reader = Reader::new(&self.limits);
        self.body = BodyDecoder::new(BodyLength::Empty, &self.limits);
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
