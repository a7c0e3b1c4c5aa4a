//! The received part of a request.
//!
//! Read-only, except for the callers that a method here names.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use nowait_message::{Method, RequestHead};
use nowait_runtime::net::Address;

use super::{BodyLength, Request};

impl Request {
    /// Request line and headers.
    #[inline]
    pub fn head(&self) -> &RequestHead {
        &self.incoming.head
    }

    /// The head, to be changed: by front ends while they receive it, by subrequests and probes that
    /// make their own, and by `more_set_input_headers`.
    #[inline]
    pub fn head_mut(&mut self) -> &mut RequestHead {
        &mut self.incoming.head
    }

    /// The method; error pages are requested with GET.
    #[inline]
    pub fn method(&self) -> Method {
        self.incoming.method
    }

    /// Port in the `Host` header, if any.
    #[inline]
    pub fn host_port(&self) -> Option<u16> {
        self.incoming.host_port
    }

    /// Length of the body as declared by the head.
    #[inline]
    pub fn body_length(&self) -> BodyLength {
        self.incoming.body_length
    }

    /// The time of the first received byte.
    #[inline]
    pub fn started(&self) -> Instant {
        self.incoming.started
    }

    /// Bytes of the request received so far: head and body.
    #[inline]
    pub fn received(&self) -> u64 {
        self.incoming.received.get()
    }

    /// The client's address.
    #[inline]
    pub fn peer(&self) -> &Address {
        self.real_peer().unwrap_or(&self.client().peer)
    }

    /// The client's address as stated by a trusted proxy.
    #[inline]
    pub fn real_peer(&self) -> Option<&Address> {
        self.incoming.real_peer.as_deref()
    }

    /// A trusted proxy has stated the client's address. For `realip`.
    pub fn set_real_peer(&mut self, peer: Address) {
        self.incoming.real_peer = Some(Box::new(peer));
    }

    /// The head is complete, and the request is treated as one with this method. For the
    /// [interpretation](crate::interpret) of heads.
    pub(crate) fn head_received(&mut self, method: Method) {
        self.incoming.received.set(self.incoming.head.length() as u64);
        self.set_method(method, method == Method::Head);
    }

    /// Counts what is received of the content. For front ends.
    #[inline]
    pub fn received_counter(&self) -> &Rc<Cell<u64>> {
        &self.incoming.received
    }

    /// Sets the length of the content. For front ends, which know what their protocol says of it.
    #[inline]
    pub fn set_body_length(&mut self, length: BodyLength) {
        self.incoming.body_length = length;
    }

    /// Sets the time at which the request has begun. For requests that no client has sent, which
    /// begin later than they are made.
    pub fn set_started(&mut self, started: Instant) {
        self.incoming.started = started;
    }

    pub(crate) fn set_host_port(&mut self, port: Option<u16>) {
        self.incoming.host_port = port;
    }

    /// Sets the method, and whether only the head of a response is wanted.
    #[inline]
    pub(crate) fn set_method(&mut self, method: Method, header_only: bool) {
        self.incoming.method = method;
        self.delivery.header_only = header_only;
    }

    /// Changes the method to GET, unless only the head is wanted: for error pages, and for
    /// `X-Accel-Redirect`.
    pub fn switch_to_get(&mut self) {
        if self.incoming.method != Method::Head {
            self.incoming.method = Method::Get;
        }
    }
}
