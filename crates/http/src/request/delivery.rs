//! How the response to a request is delivered, and what of it was sent.
//!
//! Changed by front ends, filters, and the core's pages and redirects.

use bytes::Bytes;
use nowait_message::Version;

use super::{Request, Sent};
use crate::progress::{Persistence, Replacement};
use crate::response::Head;
use crate::sent_head::SentHead;
use crate::special_pages::REQUEST_TIMEOUT;
use crate::special_pages::internal::CLIENT_CLOSED;

impl Request {
    /// Head of the response, as the filters left it.
    #[inline]
    pub fn out(&self) -> &SentHead {
        &self.delivery.out
    }

    /// The head of the response, to be changed: by filters, which lend it a head while they evaluate
    /// variables, by what adds trailers, and by handlers that decide on a status.
    #[inline]
    pub fn out_mut(&mut self) -> &mut SentHead {
        &mut self.delivery.out
    }

    /// Keeps the head that is sent, for logs and variables. For front ends.
    pub fn set_out(&mut self, head: Box<Head>) {
        self.delivery.out.keep(head);
    }

    /// The sent part of the response.
    #[inline]
    pub fn sent(&self) -> &Sent {
        &self.delivery.sent
    }

    /// The content is not sent: the method is HEAD.
    #[inline]
    pub fn header_only(&self) -> bool {
        self.delivery.header_only
    }

    /// The state of a response that is being replaced.
    #[inline]
    pub fn replaced(&self) -> &Replacement {
        &self.delivery.replaced
    }

    #[inline]
    pub(crate) fn replaced_mut(&mut self) -> &mut Replacement {
        &mut self.delivery.replaced
    }

    /// The response of another location takes these fields over. For `X-Accel-Redirect`.
    pub fn hand_fields_over(&mut self, fields: Box<Head>) {
        self.delivery.replaced.head = Some(fields);
    }

    /// No part of the response is in the requested range. For the filter of ranges.
    pub fn set_unsatisfied(&mut self) {
        self.delivery.replaced.unsatisfied = true;
    }

    /// Number of filters that have seen the response, while it is being replaced.
    #[inline]
    pub(crate) fn filtered_mut(&mut self) -> &mut usize {
        &mut self.delivery.filtered
    }

    /// The position on the connection.
    #[inline]
    pub fn persistence(&self) -> &Persistence {
        &self.delivery.persistence
    }

    /// Whether the connection may serve another request afterwards. For front ends.
    #[inline]
    pub fn set_keep_alive(&mut self, keep_alive: bool) {
        self.delivery.persistence.keep_alive = keep_alive;
    }

    /// Whether the request has arrived together with the one before. For front ends.
    #[inline]
    pub fn set_pipelined(&mut self, pipelined: bool) {
        self.delivery.persistence.pipelined = pipelined;
    }

    /// The client must not be invited to send the content: the request is refused.
    #[inline]
    pub(crate) fn discard_body(&mut self) {
        self.delivery.persistence.body_discarded = true;
    }

    /// Value of `$limit_rate`, if set.
    #[inline]
    pub fn limit_rate(&self) -> Option<u64> {
        self.delivery.limit_rate.get()
    }

    /// Sets `$limit_rate`. For `set`, upstreams' `X-Accel-Limit-Rate`, and handlers that know the
    /// content's rate.
    pub fn set_limit_rate(&self, rate: Option<u64>) {
        self.delivery.limit_rate.set(rate);
    }

    /// Bytes that are sent before its limit applies, in place of `limit_rate_after`.
    #[inline]
    pub fn limit_rate_after(&self) -> Option<u64> {
        self.delivery.limit_rate_after.get()
    }

    /// Sets this number of bytes. For handlers that know the content's rate.
    pub fn set_limit_rate_after(&self, bytes: Option<u64>) {
        self.delivery.limit_rate_after.set(bytes);
    }

    /// Charset of the response, in place of the configured one. nginx:
    /// `r->headers_out.override_charset`.
    pub fn override_charset(&self) -> Option<&Bytes> {
        self.delivery.override_charset.as_ref()
    }

    /// Sets the charset of the response. For upstreams' `X-Accel-Charset`.
    pub fn set_override_charset(&mut self, charset: Bytes) {
        self.delivery.override_charset = Some(charset);
    }

    /// Takes the charset that was set. For the filter of charsets.
    pub fn take_override_charset(&mut self) -> Option<Bytes> {
        self.delivery.override_charset.take()
    }

    /// Status for logs. nginx: `ngx_http_variable_status`.
    pub fn log_status(&self) -> u16 {
        match (self.delivery.replaced.status, self.delivery.out.status) {
            (Some(status), _) => status,
            (_, 0) if self.head().version() == Version::Http09 => 9,
            (_, status) => status,
        }
    }

    /// The client closed the connection before the response. For front ends.
    pub fn closed_by_client(&mut self) {
        self.delivery.out.status = if self.head().is_empty() { 400 } else { CLIENT_CLOSED };
    }

    /// The client took too long to send its request. For front ends.
    pub fn timed_out(&mut self) {
        self.delivery.out.status = REQUEST_TIMEOUT;
    }

    /// The connection is closed without a response.
    pub(crate) fn close_status(&mut self, status: u16) {
        self.delivery.replaced.status = None;
        self.delivery.out.status = status;
    }

    /// Takes over what was sent of another request's response: this one follows it.
    pub(crate) fn continue_response(&mut self, of: &Request) {
        self.delivery.out = of.delivery.out.clone();
        self.delivery.sent.copy_counts(&of.delivery.sent);
    }

    /// Takes over how another request's response is sent.
    pub(crate) fn copy_delivery(&mut self, other: &Request) {
        self.delivery.persistence.keep_alive = other.delivery.persistence.keep_alive;
        self.delivery.limit_rate.set(other.delivery.limit_rate.get());
        self.delivery.out = other.delivery.out.clone();
    }
}
