//! A connection to an upstream, seen from the client side.
//!
//! Requests are written with [`crate::encode::HeadWriter::request`]; [`ClientConnection::request_sent`]
//! records the request, since the meaning of a response depends on it. As on the server side, the
//! caller owns the input, and only an incomplete head is kept, in the caller's [`ResponseBuilder`].

use crate::body::{BodyDecoder, BodyLength, BodyStep, Trailers};
use crate::reader::HeadProgress;
use crate::response::{ResponseFraming, ResponseHeadReader};
use crate::{Limits, ResponseError};
use nowait_message::{ResponseBuilder, Version};

pub use nowait_message::response::INTERIM_MAX;

/// The kind of request, as far as it affects the framing of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestKind {
    /// Any method not named below.
    #[default]
    Content,
    /// HEAD: the response has no body.
    Head,
    /// CONNECT: a 2xx response is followed by a tunnel.
    Connect,
    /// A request with `Upgrade`: 101 is followed by another protocol.
    Upgrade,
}

/// Result of [`ClientConnection::receive_head`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeadStep {
    /// Number of consumed bytes of the input.
    pub consumed: usize,
    /// The event found.
    pub event: HeadEvent,
}

/// Progress of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadEvent {
    /// All input is consumed and the head is incomplete.
    NeedMore,
    /// The head of an interim response (100, 102, 103, …). Take it and continue.
    Interim,
    /// The head of the response.
    Final,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientState {
    /// No request is in flight.
    Idle,
    Head,
    Body,
    /// Another protocol or a tunnel.
    Switched,
    Failed,
}

/// The protocol state of one upstream connection.
#[derive(Debug)]
pub struct ClientConnection {
    limits: Limits,
    reader: HeadProgress,
    framing: ResponseFraming,
    body: BodyDecoder,
    state: ClientState,
    asked: RequestKind,
    /// Interim responses so far.
    interim: u8,
    keep_alive: bool,
}

impl ClientConnection {
    /// A fresh connection. [`Limits::one_buffer`] gives nginx's `proxy_buffer_size` semantics.
    pub fn new(limits: Limits) -> Self {
        ClientConnection {
            limits,
            reader: HeadProgress::new(&limits),
            framing: ResponseFraming::default(),
            body: BodyDecoder::new(BodyLength::Empty, &limits),
            state: ClientState::Idle,
            asked: RequestKind::Content,
            interim: 0,
            keep_alive: true,
        }
    }

    /// A request was sent; the next head is its response. Call only on a fresh connection or if
    /// [`ClientConnection::reusable`]: there is no pipelining towards upstreams.
    pub fn request_sent(&mut self, asked: RequestKind) {
        self.begin_head();
        self.asked = asked;
        self.interim = 0;
        self.state = ClientState::Head;
    }

    fn begin_head(&mut self) {
        self.reader = HeadProgress::new(&self.limits);
        self.framing = ResponseFraming::default();
    }

    /// Reads a response head into `head`, which must be the same one until the event is something
    /// other than [`HeadEvent::NeedMore`], and empty for the next head.
    pub fn receive_head(
        &mut self,
        head: &mut ResponseBuilder,
        input: &[u8],
    ) -> Result<ResponseHeadStep, ResponseError> {
        if self.state != ClientState::Head {
            // Bytes without a request (RFC 9112 section 9.2: "the client MUST NOT consider that
            // data to be a valid response").
            self.state = ClientState::Failed;
            return Err(ResponseError::InvalidStatusLine);
        }
        let mut reading =
            ResponseHeadReader { head, framing: &mut self.framing, icy: self.limits.icy };
        let received = self.reader.receive(&mut reading, &self.limits, input);
        let result = received.and_then(|(consumed, done)| {
            let event = if done { self.head_complete(head)? } else { HeadEvent::NeedMore };
            Ok(ResponseHeadStep { consumed, event })
        });
        if result.is_err() {
            self.state = ClientState::Failed;
        }
        result
    }

    fn head_complete(&mut self, head: &ResponseBuilder) -> Result<HeadEvent, ResponseError> {
        let status = head.status();
        let switched = match (status, self.asked) {
            (101, RequestKind::Upgrade) if head.version() == Version::Http11 => true,
            (200..=299, RequestKind::Connect) => true,
            (101, _) => return Err(ResponseError::UnexpectedInterimResponse),
            _ => false,
        };
        if (100..=199).contains(&status) && !switched {
            if head.version() < Version::Http11 {
                return Err(ResponseError::UnexpectedInterimResponse);
            }
            if self.interim == INTERIM_MAX {
                return Err(ResponseError::TooManyInterimResponses);
            }
            self.interim += 1;
            self.begin_head();
            return Ok(HeadEvent::Interim);
        }
        // RFC 9112 section 6.3, in its order.
        let length = match status {
            _ if switched => BodyLength::UntilClose,
            204 | 304 => BodyLength::Empty,
            _ if self.asked == RequestKind::Head => BodyLength::Empty,
            _ if self.framing.chunked => BodyLength::Chunked,
            _ => match head.content_length() {
                Some(0) => BodyLength::Empty,
                Some(length) => BodyLength::Known(length),
                None => BodyLength::UntilClose,
            },
        };
        self.state = if switched { ClientState::Switched } else { ClientState::Body };
        // "If a Transfer-Encoding header field is present in an HTTP/1.0 message, the recipient
        // MUST treat the message as if the framing is faulty … and close the connection after
        // processing" (section 6.1).
        let faulty = self.framing.chunked && head.version() < Version::Http11;
        self.keep_alive =
            self.framing.keep_alive(head.version()) && !faulty && length != BodyLength::UntilClose;
        self.body = BodyDecoder::new(length, &self.limits);
        Ok(HeadEvent::Final)
    }

    /// Reads the body of the response whose head is complete, or everything that follows after 101
    /// or CONNECT.
    pub fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, ResponseError> {
        self.body.receive(input).map_err(|error| {
            self.state = ClientState::Failed;
            error.into()
        })
    }

    /// Counts bytes of the body that have passed without [`receive_body`](Self::receive_body): at most
    /// [`BodyDecoder::unframed`].
    pub fn skip_body(&mut self, bytes: u64) {
        self.body.skip(bytes);
    }

    /// Whether another protocol, or a tunnel, follows the head: it was a 101 that the request asked
    /// for, or a 2xx to CONNECT.
    pub fn is_switched(&self) -> bool {
        self.state == ClientState::Switched
    }

    /// The upstream has closed the connection. Ok if this is the end of the body.
    pub fn receive_eof(&mut self) -> Result<(), ResponseError> {
        self.keep_alive = false;
        match self.state {
            ClientState::Idle | ClientState::Switched => Ok(()),
            ClientState::Body if self.body.is_complete() || self.body.is_until_close() => Ok(()),
            _ => {
                self.state = ClientState::Failed;
                Err(ResponseError::PrematureClose)
            }
        }
    }

    /// The body's decoder, for its counters and length.
    pub fn body(&self) -> &BodyDecoder {
        &self.body
    }

    /// Trailers, once the body has ended.
    pub fn trailers(&self) -> Option<&Trailers> {
        self.body.trailers()
    }

    /// Whether the connection may carry another request. `leftover` means that unconsumed input
    /// remains: then the upstream has sent more than its response and cannot be trusted.
    pub fn reusable(&self, leftover: bool) -> bool {
        let between = match self.state {
            ClientState::Idle => true,
            ClientState::Body => self.body.is_complete(),
            ClientState::Head | ClientState::Switched | ClientState::Failed => false,
        };
        between && self.keep_alive && !leftover
    }
}
