//! 103 (Early Hints): passed to clients while the response is waited for. nginx:
//! `ngx_http_upstream_process_early_hints`, `ngx_http_early_hints_filter`.

use nowait_h1::Version;
use nowait_h1::encode::HeadWriter;
use nowait_runtime::buf::OutBuf;

use crate::conf::backend::Backend;
use crate::request::Request;
use crate::upstream::UpstreamHead;

/// The head to send to the client; `None`: it would not understand it, or `early_hints` does not say
/// so.
pub fn interim(request: &Request, backend: &Backend, head: &UpstreamHead) -> Option<OutBuf> {
    if head.status != 103
        || request.head.version() < Version::Http11
        || request.nested.is_some()
        // Responses before this one may not have been sent yet.
        || request.pipelined
        || !request.location().early_hints.any(request)
    {
        return None;
    }
    let mut fields = head.fields().filter(|f| !backend.hide.contains(f.name, f.known)).peekable();
    fields.peek()?;
    let mut out = OutBuf::new();
    let mut writer = HeadWriter::response_with_reason(&mut *out, 103, b"Early Hints");
    for field in fields {
        writer.field(field.name, field.value);
    }
    writer.finish();
    Some(out)
}
