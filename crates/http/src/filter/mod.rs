//! Common parts of filters.

mod pull;

pub use pull::Pull;

use nowait_message::etag;

use crate::response::{AcceptRanges, Response};

/// Removes the fields of a head that describe the bytes of the body as they were: it is changed.
pub fn recode(response: &mut Response) {
    let head = &mut response.head;
    head.content_length = None;
    head.accept_ranges = AcceptRanges::No;
    head.etag = head.etag.as_ref().and_then(etag::weaken);
}
