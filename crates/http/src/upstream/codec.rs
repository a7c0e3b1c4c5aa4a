//! What the engine needs to know about a protocol, without sockets, clocks or files.
//!
//! Implemented by protocol modules, called only by the engine. A codec serves one request; each try
//! begins with [`Codec::begin`].

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use nowait_runtime::buf::{Chain, Chunk, OutBuf};

use super::UpstreamHead;
use crate::request::Request;
use crate::response::Header;

/// A protocol towards upstreams.
pub trait Codec: 'static {
    /// Begins a try: forgets what earlier ones have received, and appends the request up to its
    /// content to `out`. When content is sent from memory or from a file, `request.body` has it;
    /// when it is streamed it is [`RequestBody::Unread`](crate::request::RequestBody::Unread) still.
    /// Each try has to write the same request.
    ///
    /// # Errors
    /// The status to answer with.
    fn begin(&mut self, request: &Request, out: &mut OutBuf) -> Result<Content, u16>;

    /// Whether all content goes through [`encode_body`](Self::encode_body) and
    /// [`encode_end`](Self::encode_end). If not, only that does which is sent on while it comes; what
    /// is in memory or in a file follows the head as it is.
    fn frames_content(&self) -> bool {
        false
    }

    /// Frames a piece of content that was received from the client just now
    /// (`proxy_request_buffering off`), and appends it to what is sent. Never empty.
    fn encode_body(&mut self, piece: Bytes, chain: &mut Chain) {
        chain.push(Chunk::from(piece));
    }

    /// Frames the end of such content.
    fn encode_end(&mut self, _chain: &mut Chain) {}

    /// Whether more content can be sent now. If not (the upstream has to open a window first), the
    /// engine asks again when it has received something.
    fn takes_content(&self) -> bool {
        true
    }

    /// Appends what the protocol has to say by itself: answers to what was received, windows that
    /// open, content that had to wait. Asked after each [`receive_head`](Self::receive_head) and each
    /// piece of a body; it is sent while the engine goes on to receive. Whole frames only, since it
    /// may come between pieces of content. What was not sent when the response is complete closes the
    /// connection.
    fn poll_output(&mut self, _chain: &mut Chain) {}

    /// Reads a head. The engine calls again with what was not consumed and what came since; it sees
    /// to it that no more than `buffer_size` bytes are consumed for one head.
    ///
    /// # Errors
    /// What is wrong with it.
    fn receive_head(&mut self, input: &[u8]) -> Result<HeadStep, Fault>;

    /// What is sent to the client for an interim response: its whole head. `None`: nothing.
    fn interim(&mut self, _request: &Request, _head: &UpstreamHead) -> Option<OutBuf> {
        None
    }

    /// Reads what follows the head.
    ///
    /// # Errors
    /// What is wrong with it.
    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault>;

    /// The upstream has closed its side.
    ///
    /// # Errors
    /// The response is not complete.
    fn receive_eof(&mut self) -> Result<(), Fault>;

    /// How many bytes of the body are still to come, if that is known; zero when it is complete.
    fn body_left(&self) -> Option<u64>;

    /// The trailer lines, once the body is complete.
    fn trailers(&mut self) -> Vec<Header> {
        Vec::new()
    }

    /// The connection has become a tunnel: what follows the head, in both directions, is not this
    /// protocol's.
    fn is_tunnel(&self) -> bool {
        false
    }

    /// Whether the connection can carry another request, the response being complete. `leftover`:
    /// the upstream has sent more than the response.
    fn is_reusable(&self, leftover: bool) -> bool;

    /// The request has been answered: the codec's memory may serve for another one.
    fn retire(self: Box<Self>) {}
}

/// What content follows the head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// None.
    None,
    /// What the client sent.
    Request,
    /// This (`proxy_set_body`).
    Bytes(Bytes),
}

/// What became of the bytes of a head.
#[derive(Debug)]
pub struct HeadStep {
    /// So many are done with.
    pub consumed: usize,
    /// What they were.
    pub event: HeadEvent,
}

/// How far a head has come.
#[derive(Debug)]
pub enum HeadEvent {
    /// All input is consumed, and there is more to come.
    NeedMore,
    /// An interim response; another head follows.
    Interim(Rc<UpstreamHead>),
    /// The head of the response.
    Final(Rc<UpstreamHead>),
}

/// What became of bytes of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyStep {
    /// So many are done with, the content in [`BodyEvent::Data`] included.
    pub consumed: usize,
    /// What they were.
    pub event: BodyEvent,
}

/// What was found in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEvent {
    /// All input is consumed, and there is more to come.
    NeedMore,
    /// Content: this part of the input, not empty.
    Data(Range<usize>),
    /// The body is complete; said again when asked again.
    End,
}

/// What an upstream did wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It breaks the protocol; the text is for the error log.
    Malformed(Cow<'static, str>),
    /// The head is larger than `buffer_size`.
    HeadTooBig,
    /// It closed the connection before the response was complete.
    PrematureClose,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Malformed(text) => text,
            Self::HeadTooBig => "upstream sent too big header",
            Self::PrematureClose => "upstream prematurely closed connection",
        })
    }
}

impl std::error::Error for Fault {}
