//! The interface between the engine and a protocol, without sockets, clocks or files.
//!
//! Implemented by protocol modules, called only by the engine. A [`CodecFactory`] makes a codec for
//! each try of a request; if requests share connections, the codec talks to its [`UpstreamStream`].

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use nowait_http::exchange::Interim;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::response::Header;
use nowait_message::ResponseHead;
use nowait_runtime::buf::{Chain, Chunk, OutBuf};

use super::{UpstreamRequest, UpstreamStream};

/// Makes the codecs of a protocol. It has no state: settings are those of the request's location.
pub trait CodecFactory: Sync {
    /// A codec for one try; `lane`: its stream, if connections are shared.
    fn codec(&self, request: &Request, lane: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec>;

    /// Whether a request asks for a tunnel over a shared connection, which servers have to offer
    /// (RFC 8441 section 3).
    fn tunnels(&self, _request: &Request) -> bool {
        false
    }
}

/// A protocol to upstreams, for one try of a request.
pub trait Codec: 'static {
    /// Begins the try: appends the request up to its content to `out`. Content sent from memory or
    /// from a file is in `request.body()`; for streamed content it is still
    /// [`RequestBody::Unread`](nowait_http::request::RequestBody::Unread). Each try has to write the same
    /// request.
    ///
    /// # Errors
    /// The status of the error response.
    fn begin(
        &mut self,
        request: &Request,
        order: &UpstreamRequest,
        out: &mut OutBuf,
    ) -> Result<Content, u16>;

    /// Whether all content goes through [`encode_body`](Self::encode_body) and
    /// [`encode_end`](Self::encode_end). If not, only streamed content does; content in memory or
    /// in a file follows the head unchanged.
    fn frames_content(&self) -> bool {
        false
    }

    /// Frames a piece of streamed content (`proxy_request_buffering off`) and appends it to the
    /// output. The piece is never empty.
    fn encode_body(&mut self, piece: Bytes, chain: &mut Chain) {
        chain.push(Chunk::from(piece));
    }

    /// Frames the end of such content.
    fn encode_end(&mut self, _chain: &mut Chain) {}

    /// Whether more content can be sent now. If not (the upstream has to open a window first), the
    /// engine checks again after each receive.
    fn takes_content(&self) -> bool {
        true
    }

    /// Whether there is a response as soon as the request was sent, regardless of the upstream:
    /// [`receive_head`](Self::receive_head) is called without input.
    fn responds_by_itself(&self) -> bool {
        false
    }

    /// Reads a head. The engine calls again with the unconsumed bytes and the new ones, and ensures that at
    /// most `buffer_size` bytes are consumed for one head.
    ///
    /// # Errors
    /// The violation of the protocol.
    fn receive_head(&mut self, input: &[u8]) -> Result<HeadStep, Fault>;

    /// The head to send to the client for an interim response, if any.
    fn interim(&mut self, _request: &Request, _head: &ResponseHead) -> Option<Interim> {
        None
    }

    /// Reads the bytes after the head.
    ///
    /// # Errors
    /// The violation of the protocol.
    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault>;

    /// The upstream has closed its side.
    ///
    /// # Errors
    /// The response is not complete.
    fn receive_eof(&mut self) -> Result<(), Fault>;

    /// Remaining bytes of the body, if known; zero when it is complete.
    fn body_left(&self) -> Option<u64>;

    /// How many of the next bytes on the connection are content, and nothing else, so that they may pass without
    /// [`receive_body`](Self::receive_body); `None` if it has to see them.
    fn unframed(&self) -> Option<u64> {
        None
    }

    /// So many of these bytes have passed.
    fn skip(&mut self, _bytes: u64) {}

    /// The trailer fields, once the body is complete.
    fn trailers(&mut self) -> Vec<Header> {
        Vec::new()
    }

    /// Whether the connection has become a tunnel: the bytes after the head, in both directions,
    /// belong to another protocol.
    fn is_tunnel(&self) -> bool {
        false
    }

    /// Whether the connection can carry another request now that the response is complete.
    /// `leftover`: the upstream has sent more bytes than the response.
    fn is_reusable(&self, leftover: bool) -> bool;

    /// The try is over: the codec's memory may be reused for another one.
    fn retire(self: Box<Self>) {}
}

/// The content that follows the head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// None.
    None,
    /// The client's request body.
    Request,
    /// These bytes (`proxy_set_body`).
    Bytes(Bytes),
}

/// Result of reading a part of a head.
#[derive(Debug)]
pub struct HeadStep {
    /// Number of bytes consumed.
    pub consumed: usize,
    /// The event that they brought.
    pub event: HeadEvent,
}

/// Progress of a head.
#[derive(Debug)]
pub enum HeadEvent {
    /// All input is consumed, and there is more to come.
    NeedMore,
    /// An interim response; another head follows.
    Interim(Rc<ResponseHead>),
    /// The head of the response.
    Final(Rc<ResponseHead>),
    /// The consumed bytes are not part of a head, and are not counted; with an optional remark for the
    /// error log. Reading continues at once.
    Apart(Option<Remark>),
}

/// A line for the error log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The level.
    pub level: Level,
    /// The text.
    pub text: Cow<'static, str>,
}

/// Result of reading a part of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyStep {
    /// Number of bytes consumed, including the content in [`BodyEvent::Data`].
    pub consumed: usize,
    /// The event that they brought.
    pub event: BodyEvent,
}

/// Event in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEvent {
    /// All input is consumed, and there is more to come.
    NeedMore,
    /// Content: this part of the input, not empty.
    Data(Range<usize>),
    /// No content; with an optional remark for the error log.
    Apart(Option<Remark>),
    /// The body is complete; repeated on further calls.
    End,
}

/// A fault of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The response violates the protocol; the text is for the error log.
    Malformed(Cow<'static, str>),
    /// The head is larger than `buffer_size`.
    HeadTooBig,
    /// The connection was closed before the response was complete.
    PrematureClose,
    /// The upstream has given up the response, and the connection stays: RST_STREAM of HTTP/2. The text is
    /// for the error log.
    Reset(Cow<'static, str>),
    /// The upstream has not acted on the request, and never will: another try is safe for any request. The
    /// text is for the error log.
    Unprocessed(Cow<'static, str>),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Malformed(text) | Self::Reset(text) | Self::Unprocessed(text) => text,
            Self::HeadTooBig => "upstream sent too big header",
            Self::PrematureClose => "upstream prematurely closed connection",
        })
    }
}

impl std::error::Error for Fault {}
