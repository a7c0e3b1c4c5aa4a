//! `add_header`, `add_trailer` and `expires`; the cookie of `sticky`. nginx: `ngx_http_headers_filter_module`.

use bytes::Bytes;

use crate::conf::headers::Expires;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::{Header, Response};

pub(super) fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let current = request.current.clone();
    let headers = &current.conf.location(request.location).headers;
    if request.is_nested() {
        return Ok(());
    }
    if let Some(cookie) = request.upstream.as_ref().and_then(|state| state.cookie()) {
        response.head.add("Set-Cookie", cookie);
    }
    if headers.is_empty() {
        return Ok(());
    }
    // What the values may mention: `$sent_http_...` and `$status`.
    request.out = response.head.clone();
    let usual = is_usual(response.head.status);
    if usual {
        expires(request, &headers.expires, response);
    }
    for header in headers.add_header.iter().filter(|header| usual || header.always) {
        set(response, &header.name, request.evaluate(&header.value));
    }
    // Their values are known when the body has ended.
    response.head.expects_trailers =
        headers.add_trailer.iter().any(|trailer| usual || trailer.always);
    Ok(())
}

/// The trailers of `add_trailer`, once the body has ended. nginx: `ngx_http_trailers_filter`.
pub(crate) fn trailers(request: &Request) -> Vec<Header> {
    let usual = is_usual(request.out.status);
    let lines = request.location().headers.add_trailer.iter();
    let lines = lines.filter(|trailer| usual || trailer.always).map(|trailer| Header {
        name: trailer.name.clone(),
        value: request.evaluate(&trailer.value),
    });
    lines.filter(|trailer| !trailer.value.is_empty()).collect()
}

/// Whether lines are added that are not for all statuses.
fn is_usual(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

/// Adds a header line unless it is empty; those that Nowait understands replace what the handler
/// said, also by nothing.
fn set(response: &mut Response, name: &Bytes, value: Bytes) {
    let head = &mut response.head;
    if name.eq_ignore_ascii_case(b"last-modified") {
        head.last_modified = crate::http_date::parse(&value);
        head.last_modified_text = None;
        if head.last_modified.is_some() {
            return;
        }
    } else if name.eq_ignore_ascii_case(b"etag") {
        head.etag = Some(value).filter(|value| !value.is_empty());
        return;
    }
    if !value.is_empty() {
        head.headers.push(Header { name: name.clone(), value });
    }
}

fn expires(request: &Request, expires: &Expires, response: &mut Response) {
    let now = i64::try_from(nowait_runtime::clock().unix_seconds()).unwrap_or(i64::MAX);
    let Some(line) = expires.evaluate(request, now, response.head.last_modified) else { return };
    let head = &mut response.head;
    head.headers.retain(|h| {
        !h.name.eq_ignore_ascii_case(b"expires") && !h.name.eq_ignore_ascii_case(b"cache-control")
    });
    head.add("Expires", line.expires);
    head.add("Cache-Control", line.cache_control);
}
