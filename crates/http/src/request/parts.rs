//! The parts of a request.
//!
//! The fields are visible in this folder only. Other code uses the methods of
//! [`Request`](super::Request), which are in one file for each part.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use nowait_front::servers::ServerId;
use nowait_message::{Method, RequestHead};
use nowait_runtime::net::Address;
use nowait_variables::Captures;

use crate::conf::LocationId;
use crate::nested::Entry;
use crate::outcome::StatusResponse;
use crate::progress::{Persistence, Realpath, Replacement, RewriteState};
use crate::sent_head::SentHead;

/// Length of a request's content as declared by its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// No content.
    None,
    /// `Content-Length`.
    Known(u64),
    /// `Transfer-Encoding: chunked`, or a protocol that needs no length.
    Unknown,
}

/// Target of a request.
#[derive(Default, Debug, Clone)]
pub struct Uri {
    /// Decoded and normalised path; begins with a slash (but for `*` and CONNECT).
    pub path: Vec<u8>,
    /// Query string without the question mark, not decoded; `None` when there is no question mark.
    pub args: Option<Vec<u8>>,
}

impl Uri {
    /// The file name extension: the text after the last dot of the last segment. nginx: `r->exten`.
    pub fn extension(&self) -> Option<&[u8]> {
        let at = self.path.iter().rposition(|&b| b == b'.' || b == b'/')?;
        (self.path[at] == b'.'
            && at + 1 < self.path.len()
            && self.path.get(at.wrapping_sub(1)) != Some(&b'/'))
        .then(|| &self.path[at + 1..])
    }

    /// The query string, empty when there is none.
    pub fn query(&self) -> &[u8] {
        self.args.as_deref().unwrap_or_default()
    }
}

/// The sent part of a response.
#[derive(Default, Debug, Clone)]
pub struct Sent {
    bytes: Cell<u64>,
    head_bytes: Cell<u64>,
    complete: Cell<bool>,
    connection: Cell<&'static str>,
    chunked: Cell<bool>,
}

impl Sent {
    /// Bytes of head and body. nginx: `$bytes_sent`.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Bytes of the head.
    #[inline]
    pub fn head_bytes(&self) -> u64 {
        self.head_bytes.get()
    }

    /// Bytes of the body. nginx: `$body_bytes_sent`.
    #[inline]
    pub fn body_bytes(&self) -> u64 {
        self.bytes.get().saturating_sub(self.head_bytes.get())
    }

    /// The whole response was sent.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.complete.get()
    }

    /// `Connection` header as sent.
    #[inline]
    pub fn connection(&self) -> &'static str {
        self.connection.get()
    }

    /// The body was sent chunked.
    #[inline]
    pub fn is_chunked(&self) -> bool {
        self.chunked.get()
    }

    /// Counts the head. For front ends.
    #[inline]
    pub fn count_head(&self, bytes: u64) {
        self.head_bytes.set(bytes);
        self.bytes.set(bytes);
    }

    /// Counts a part of the body. For front ends and subrequests.
    #[inline]
    pub fn count(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// The counter of bytes of head and body. For front ends that give a connection away.
    #[inline]
    pub fn counter(&self) -> &Cell<u64> {
        &self.bytes
    }

    /// Notes whether the whole response was sent. For front ends and subrequests.
    #[inline]
    pub fn set_complete(&self, complete: bool) {
        self.complete.set(complete);
    }

    /// Notes the `Connection` header. For front ends.
    #[inline]
    pub fn set_connection(&self, value: &'static str) {
        self.connection.set(value);
    }

    /// Notes whether the body is sent chunked. For front ends.
    #[inline]
    pub fn set_chunked(&self, chunked: bool) {
        self.chunked.set(chunked);
    }

    pub(super) fn copy_counts(&self, other: &Self) {
        self.bytes.set(other.bytes.get());
        self.head_bytes.set(other.head_bytes.get());
        self.complete.set(other.complete.get());
    }
}

/// What the client has sent, and when.
pub(super) struct Incoming {
    /// Request line and headers.
    pub(super) head: RequestHead,
    /// The method; error pages are requested with GET.
    pub(super) method: Method,
    /// Port in the `Host` header, if any.
    pub(super) host_port: Option<u16>,
    /// Length of the body as declared by the head.
    pub(super) body_length: BodyLength,
    /// The time of the first received byte.
    pub(super) started: Instant,
    /// Bytes of the request received so far: head and body.
    pub(super) received: Rc<Cell<u64>>,
    /// The client's address as stated by a trusted proxy.
    pub(super) real_peer: Option<Box<Address>>,
}

impl Incoming {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            head: RequestHead::new(),
            method: Method::Get,
            host_port: None,
            body_length: BodyLength::None,
            started,
            received: Rc::default(),
            real_peer: None,
        }
    }

    /// Clears everything but the head.
    pub(super) fn reset(&mut self) {
        self.method = Method::Get;
        self.host_port = None;
        self.body_length = BodyLength::None;
        self.received.set(0);
        self.real_peer = None;
    }

    /// Takes over what a request and one that is derived from it have in common.
    pub(super) fn copy(&mut self, other: &Self) {
        self.head = other.head.clone();
        self.host_port = other.host_port;
        self.received.set(other.received.get());
        self.real_peer = other.real_peer.clone();
    }
}

/// Where a request goes.
pub(super) struct Routing {
    /// The virtual server.
    pub(super) server: ServerId,
    /// The location; before one is found, the server's own settings.
    pub(super) location: LocationId,
    /// The current target: internal redirects change it.
    pub(super) uri: Uri,
    /// The current URI comes from the server itself: `internal` locations are allowed.
    pub(super) internal: bool,
    /// The changes of its URI.
    pub(super) rewriting: RewriteState,
    /// The state of a subrequest.
    pub(super) entry: Entry,
    /// With `satisfy any`: the refusal to respond with unless a handler grants access.
    pub(super) refusal: Option<Box<StatusResponse>>,
    /// Captures of the last regular expression that matched.
    pub(super) captures: RefCell<Captures>,
    /// `$realpath_root`.
    pub(super) realpath: Realpath,
}

impl Routing {
    pub(super) fn new(server: ServerId, location: LocationId) -> Self {
        Self {
            server,
            location,
            uri: Uri::default(),
            internal: false,
            rewriting: RewriteState::default(),
            entry: Entry::Server,
            refusal: None,
            captures: RefCell::default(),
            realpath: Realpath::default(),
        }
    }

    /// Clears everything but the server and its location, and keeps the memory.
    pub(super) fn reset(&mut self) {
        self.uri.path.clear();
        self.uri.args = None;
        self.internal = false;
        self.rewriting = RewriteState::default();
        self.entry = Entry::Server;
        self.refusal = None;
        self.captures.get_mut().clear();
        self.realpath = Realpath::default();
    }

    /// Gives back memory whose size depends on clients, but for paths of this length.
    pub(super) fn shrink(&mut self, path_bytes_max: usize) {
        self.uri.path.shrink_to(path_bytes_max);
        self.captures = RefCell::default();
    }
}

/// How the response is delivered.
#[derive(Default)]
pub(super) struct Delivery {
    /// Head of the response, as the filters left it.
    pub(super) out: SentHead,
    /// The sent part of the response.
    pub(super) sent: Sent,
    /// The content is not sent: the method is HEAD.
    pub(super) header_only: bool,
    /// The state of a response that is being replaced.
    pub(super) replaced: Replacement,
    /// Number of filters that have seen the response, while it is being replaced.
    pub(super) filtered: usize,
    /// The position on the connection.
    pub(super) persistence: Persistence,
    /// Value of `$limit_rate`, if set.
    pub(super) limit_rate: Cell<Option<u64>>,
    /// Bytes that are sent before its limit applies, in place of `limit_rate_after`.
    pub(super) limit_rate_after: Cell<Option<u64>>,
    /// Charset of the response, in place of the configured one. nginx:
    /// `r->headers_out.override_charset`.
    pub(super) override_charset: Option<Bytes>,
}

impl Delivery {
    /// Clears everything but the head of the response.
    pub(super) fn reset(&mut self) {
        self.sent = Sent::default();
        self.header_only = false;
        self.replaced = Replacement::default();
        self.filtered = 0;
        self.persistence = Persistence::default();
        self.limit_rate.set(None);
        self.limit_rate_after.set(None);
        self.override_charset = None;
    }
}
