//! Writes the head of an HTTP/1.1 response. nginx: `ngx_http_header_filter`.
//!
//! Called by the HTTP/1.1 connection task after the filters. The encoder that it uses never emits
//! a CR, LF or NUL inside of a value.

use nowait_h1::Version;
use nowait_h1::encode::{HeadWriter, put_decimal};
use nowait_runtime::clock;

use crate::address;
use crate::request::Request;
use crate::response::{AcceptRanges, Head, Header, Own};

/// How the body follows the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none, whatever the head says (HEAD, 204, 304).
    None,
    /// `Content-Length`.
    Length,
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// Until the connection is closed.
    Close,
}

/// Chooses the framing of a response (RFC 9112 section 6). May forbid keep-alive.
pub fn framing(request: &mut Request, head: &Head) -> Framing {
    if request.header_only || matches!(head.status, 204 | 304) {
        return Framing::None;
    }
    let framing = if head.content_length.is_some() && !head.expects_trailers {
        Framing::Length
    } else if request.head.version() == Version::Http11
        && request.location().client.chunked_transfer_encoding
    {
        Framing::Chunked
    } else if head.content_length.is_some() {
        Framing::Length
    } else {
        request.keep_alive = false;
        Framing::Close
    };
    request.sent.chunked.set(framing == Framing::Chunked);
    framing
}

/// Makes the head what is sent, as logs will show it, too.
pub fn complete(request: &Request, head: &mut Head) {
    // Only of the content that was asked for; the page of an error has no age.
    if !matches!(head.status, 200 | 206 | 304) && head.last_modified_text.is_none() {
        head.last_modified = None;
    }
    if let Some(to) = &head.location
        && to.first() == Some(&b'/')
        && request.location().pages.absolute_redirect
    {
        head.location = Some(absolute(request, to).into());
    }
}

/// Appends the head.
pub fn write(request: &Request, head: &Head, framing: Framing, out: &mut Vec<u8>) {
    let location = request.location();
    let mut writer = match &head.status_line {
        Some(reason) => HeadWriter::response_with_reason(out, head.status, reason),
        None => HeadWriter::response(out, head.status),
    };
    match &head.server {
        Own::Ours => drop(writer.lines(location.server_line())),
        Own::Given(value) => drop(writer.named("Server", value)),
        Own::Absent => {}
    }
    match &head.date {
        Own::Ours => drop(writer.named("Date", &clock().http_date())),
        Own::Given(value) => drop(writer.named("Date", value)),
        Own::Absent => {}
    }
    if let Some(kind) = &head.content_type {
        match &head.charset {
            None => writer.named("Content-Type", kind),
            Some(charset) => {
                writer.named("Content-Type", &[kind, &b"; charset="[..], charset].concat())
            }
        };
    }
    if let Some(length) = head.content_length.filter(|_| framing != Framing::Chunked) {
        writer.field_number("Content-Length", length);
    }
    if let Some(time) = head.last_modified {
        match &head.last_modified_text {
            Some(text) => writer.named("Last-Modified", text),
            None => writer.named("Last-Modified", &crate::http_date::format(time)),
        };
    }
    if let Some(to) = &head.location {
        writer.named("Location", to);
    }
    if framing == Framing::Chunked {
        writer.lines("Transfer-Encoding: chunked\r\n");
    }
    connection(request, head, &mut writer);
    if let Some(coding) = &head.content_encoding {
        writer.named("Content-Encoding", coding);
    }
    if let Some(etag) = &head.etag {
        writer.named("ETag", etag);
    }
    if head.accept_ranges != AcceptRanges::No {
        writer.lines("Accept-Ranges: bytes\r\n");
    }
    for Header { name, value } in &head.headers {
        writer.field(name, value);
    }
    writer.finish();
}

/// Appends `Connection` and `Keep-Alive`.
fn connection(request: &Request, head: &Head, writer: &mut HeadWriter<'_, Vec<u8>>) {
    let (value, line) = if head.status == 101 {
        ("upgrade", "Connection: upgrade\r\n")
    } else if request.keep_alive {
        ("keep-alive", "Connection: keep-alive\r\n")
    } else {
        ("close", "Connection: close\r\n")
    };
    request.sent.connection.set(value);
    writer.lines(line);
    let header = request.location().client.keepalive_timeout.header;
    if let Some(seconds) = header.filter(|_| value == "keep-alive") {
        writer.named("Keep-Alive", format!("timeout={seconds}").as_bytes());
    }
}

/// The target of a redirect with scheme, host and port.
fn absolute(request: &Request, to: &[u8]) -> Vec<u8> {
    let pages = &request.location().pages;
    let mut out = b"http://".to_vec();
    let host = request.host();
    if pages.server_name_in_redirect && !request.server_name().is_empty() {
        out.extend_from_slice(request.server_name());
    } else if !host.is_empty() {
        out.extend_from_slice(host);
    } else {
        address::append_host(request.connection.local(), &mut out);
    }
    if pages.port_in_redirect
        && let Some(port) = address::port(request.connection.local()).filter(|port| *port != 80)
    {
        out.push(b':');
        put_decimal(&mut out, u64::from(port));
    }
    out.extend_from_slice(to);
    out
}
