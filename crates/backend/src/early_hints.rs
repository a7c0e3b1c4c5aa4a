//! 103 (Early Hints) and 102 (Processing): passed to clients while the response is waited for. nginx:
//! `ngx_http_upstream_process_early_hints`, `ngx_http_early_hints_filter`.

use bytes::Bytes;
use nowait_http::exchange::Interim;
use nowait_http::request::Request;
use nowait_http::response::Header;
use nowait_message::{ResponseHead, Version};

use crate::conf::Backend;

/// The head to send to the client; `None` if the client would not understand it, or `early_hints`
/// forbids it.
pub fn interim(request: &Request, backend: &Backend, head: &ResponseHead) -> Option<Interim> {
    // nginx differs: it passes 103 only. RFC 9110 section 15.2: "A proxy MUST forward 1xx responses
    // unless the proxy itself requested the generation of the 1xx response."
    if !matches!(head.status, 102 | 103)
        || request.head().version() < Version::Http11
        || request.nested().is_some()
        // Earlier responses may still be unsent.
        || request.persistence().pipelined
        || !backend.early_hints.any(request)
    {
        return None;
    }
    let mut fields = head.fields().filter(|f| !backend.hide.contains(f.name, f.known)).peekable();
    if head.status == 103 {
        // Without hints it is useless.
        fields.peek()?;
    }
    let headers = fields.map(|field| Header {
        name: Bytes::copy_from_slice(field.name),
        value: Bytes::copy_from_slice(field.value),
    });
    Some(Interim { status: head.status, headers: headers.collect() })
}
