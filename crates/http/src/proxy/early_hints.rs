//! 103 (Early Hints) and 102 (Processing): passed to clients while the response is waited for. nginx:
//! `ngx_http_upstream_process_early_hints`, `ngx_http_early_hints_filter`.

use nowait_h1::Version;
use nowait_h1::encode::HeadWriter;
use nowait_runtime::buf::OutBuf;

use crate::conf::backend::Backend;
use crate::request::Request;
use crate::upstream::UpstreamHead;

/// The head to send to the client; `None` if the client would not understand it, or `early_hints`
/// forbids it.
pub fn interim(request: &Request, backend: &Backend, head: &UpstreamHead) -> Option<OutBuf> {
    // nginx differs: it passes 103 only. RFC 9110 section 15.2: "A proxy MUST forward 1xx responses
    // unless the proxy itself requested the generation of the 1xx response."
    let reason: &[u8] = match head.status {
        102 => b"Processing",
        103 => b"Early Hints",
        _ => return None,
    };
    if request.head.version() < Version::Http11
        || request.nested.is_some()
        // Earlier responses may still be unsent.
        || request.pipelined
        || !request.location().early_hints.any(request)
    {
        return None;
    }
    let mut fields = head.fields().filter(|f| !backend.hide.contains(f.name, f.known)).peekable();
    if head.status == 103 {
        // Without hints it is useless.
        fields.peek()?;
    }
    let mut out = OutBuf::new();
    let mut writer = HeadWriter::response_with_reason(&mut *out, head.status, reason);
    for field in fields {
        writer.field(field.name, field.value);
    }
    writer.finish();
    Some(out)
}
