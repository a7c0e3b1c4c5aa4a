//! What a stream has in every version.
//!
//! Each version's stream holds one; the common life of requests works on it.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use super::outgoing::Outgoing;
use super::presence::Presence;

/// The state of a stream that does not depend on the version.
#[derive(Default)]
pub(crate) struct StreamState {
    /// Whether the client is still there.
    pub(crate) presence: Presence,
    /// Content to be sent.
    pub(crate) outgoing: RefCell<Outgoing>,
    /// The client asks for a tunnel: CONNECT (RFC 9113 section 8.5, RFC 9114 section 4.4, RFC 8441, RFC 9220).
    pub(crate) asks_for_tunnel: Cell<bool>,
    /// The memory of its request's head, in bytes.
    pub(crate) head_bytes: Cell<usize>,
}

impl StreamState {
    /// The client has reset the stream, or the connection has ended.
    pub(crate) fn leave(&self) {
        self.presence.leave();
        self.outgoing.borrow_mut().waker.take().into_iter().for_each(Waker::wake);
    }
}
