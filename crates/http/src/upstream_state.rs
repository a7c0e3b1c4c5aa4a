//! The record of a request's tries, for `$upstream_*` variables and for logs.
//!
//! Written by the engine, even after the client has received the head, and by the cache; read by
//! variables at any time.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nowait_message::ResponseHead;

use crate::log::Level;
use crate::response::Header;
use crate::slots::{self, Key};

/// One try.
#[derive(Debug, Clone, Default)]
pub struct Try {
    /// Name of the peer, or of the group if no peer was chosen; `None` only for a response that
    /// needed no peer (from a cache).
    pub peer: Option<PeerName>,
    /// Status of the response, or of the failure (502, 504); 0 if there is none yet.
    pub status: u16,
    /// Time spent in the `queue` of the group; `None` if the request did not wait there.
    pub queue: Option<Duration>,
    /// Time until the connection was established.
    pub connect: Option<Duration>,
    /// Time until the head was received.
    pub header: Option<Duration>,
    /// Time until the response was complete or had failed; `None` while it is in flight.
    pub response: Option<Duration>,
    /// Bytes of content.
    pub response_length: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// The first try after an internal redirect: logs separate it by a colon.
    pub after_redirect: bool,
}

/// The name of a peer as logged: `127.0.0.1:8080`, `unix:/run/x.sock`.
#[derive(Debug, Clone)]
pub enum PeerName {
    /// That of a peer.
    Peer(Arc<nowait_upstream::Peer>),
    /// Another text: the name of a group without a usable peer.
    Text(Arc<str>),
}

impl std::ops::Deref for PeerName {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            PeerName::Peer(peer) => peer.name(),
            PeerName::Text(text) => text,
        }
    }
}

/// A line for the error log, kept until the request ends.
#[derive(Debug)]
pub struct Notice {
    /// The level.
    pub level: Level,
    /// The text.
    pub text: String,
    /// The current action.
    pub action: Option<&'static str>,
}

/// The URI in log lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogUri {
    /// The URI as the client sent it.
    #[default]
    Unparsed,
    /// This text.
    Text(Bytes),
}

/// Records of all tries of a request.
#[derive(Debug, Default)]
pub struct UpstreamState {
    tries: RefCell<Vec<Try>>,
    /// An internal redirect has happened since the last try.
    redirected: Cell<bool>,
    /// The current action, for the error log: `reading response header from upstream`.
    action: Cell<Option<&'static str>>,
    /// The upstream's URL: its part before the peer's name, and its part after it.
    url: RefCell<(&'static str, LogUri)>,
    head: RefCell<Option<Rc<ResponseHead>>>,
    trailers: RefCell<Vec<Header>>,
    cookie: RefCell<Option<Bytes>>,
    notices: RefCell<Vec<Notice>>,
}

/// The tries of a request. Most requests of a connection reuse the memory of the previous one.
static STATE: Key<Rc<UpstreamState>> =
    Key::reusing(|state| Rc::get_mut(state).map(UpstreamState::clear).is_some());

impl UpstreamState {
    /// The state of a request; `None` if no upstream was used.
    #[inline]
    pub fn get(kept: &slots::State) -> Option<&Rc<UpstreamState>> {
        kept.get(&STATE)
    }

    /// The state of a request, made when it is first needed.
    pub fn of(kept: &mut slots::State) -> &Rc<UpstreamState> {
        kept.of_mut(&STATE)
    }

    /// Makes this the state of a request.
    pub fn share(self: Rc<Self>, kept: &mut slots::State) {
        kept.set(&STATE, self);
    }

    /// Clears the state, for another request.
    fn clear(&mut self) {
        // Field by field: most are empty already.
        let Self { tries, redirected, action, url, head, trailers, cookie, notices } = self;
        tries.get_mut().clear();
        redirected.set(false);
        action.set(None);
        *url.get_mut() = Default::default();
        *head.get_mut() = None;
        *trailers.get_mut() = Vec::new();
        *cookie.get_mut() = None;
        *notices.get_mut() = Vec::new();
    }

    /// All tries, in order.
    pub fn tries(&self) -> std::cell::Ref<'_, [Try]> {
        std::cell::Ref::map(self.tries.borrow(), Vec::as_slice)
    }

    /// Begins a try; returns its number.
    pub fn begin_try(&self, peer: Option<PeerName>) -> usize {
        let after_redirect = self.redirected.take();
        let mut tries = self.tries.borrow_mut();
        // Usually the only one.
        tries.reserve_exact(1);
        tries.push(Try { peer, after_redirect, ..Try::default() });
        tries.len() - 1
    }

    /// Changes a try.
    pub fn update(&self, number: usize, change: impl FnOnce(&mut Try)) {
        if let Some(one) = self.tries.borrow_mut().get_mut(number) {
            change(one);
        }
    }

    /// The request was redirected internally: later tries form a group of their own.
    pub fn redirected(&self) {
        self.redirected.set(!self.tries.borrow().is_empty());
        self.action.set(None);
    }

    /// Sets the current action; `None` if no upstream is involved.
    pub fn set_action(&self, action: Option<&'static str>) {
        self.action.set(action);
    }

    /// The current action with an upstream.
    pub fn action(&self) -> Option<&'static str> {
        self.action.get()
    }

    /// Sets the requested URL.
    pub fn set_url(&self, scheme: &'static str, uri: LogUri) {
        *self.url.borrow_mut() = (scheme, uri);
    }

    /// Appends the URL of the last try; nothing if there was none. nginx:
    /// `ngx_http_log_error_handler`.
    pub fn append_url(&self, unparsed: &[u8], out: &mut Vec<u8>) {
        let tries = self.tries.borrow();
        let Some(peer) = tries.last().and_then(|last| last.peer.as_deref()) else { return };
        let (scheme, uri) = &*self.url.borrow();
        out.extend_from_slice(scheme.as_bytes());
        out.extend_from_slice(peer.as_bytes());
        if peer.starts_with("unix:") {
            out.push(b':');
        }
        match uri {
            LogUri::Unparsed => out.extend_from_slice(unparsed),
            LogUri::Text(text) => out.extend_from_slice(text),
        }
    }

    /// Sets the `Set-Cookie` of `sticky cookie` for the client.
    pub fn set_cookie(&self, cookie: Bytes) {
        *self.cookie.borrow_mut() = Some(cookie);
    }

    /// The `Set-Cookie` for the client, which is added to every response of any status.
    pub fn cookie(&self) -> Option<Bytes> {
        self.cookie.borrow().clone()
    }

    /// The head of the last response, for `$upstream_http_*`.
    pub fn head(&self) -> Option<Rc<ResponseHead>> {
        self.head.borrow().clone()
    }

    /// Notes the head of a response.
    pub fn set_head(&self, head: Option<Rc<ResponseHead>>) {
        *self.head.borrow_mut() = head;
    }

    /// The trailers of the last response, for `$upstream_trailer_*`.
    pub fn trailers(&self) -> std::cell::Ref<'_, [Header]> {
        std::cell::Ref::map(self.trailers.borrow(), Vec::as_slice)
    }

    /// Whether the last response had trailers.
    pub fn has_trailers(&self) -> bool {
        !self.trailers.borrow().is_empty()
    }

    /// Notes the trailers of a response.
    pub fn set_trailers(&self, trailers: Vec<Header>) {
        *self.trailers.borrow_mut() = trailers;
    }

    /// Keeps a line for the error log; it is written when the request ends.
    pub fn notice(&self, level: Level, text: fmt::Arguments<'_>) {
        /// Maximum number of lines kept for one request.
        const NOTICES_MAX: usize = 16;
        let mut notices = self.notices.borrow_mut();
        if notices.len() < NOTICES_MAX {
            notices.push(Notice { level, text: text.to_string(), action: self.action.get() });
        }
    }

    /// Takes the lines that were kept.
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.borrow_mut())
    }
}
