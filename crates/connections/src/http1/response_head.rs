//! Writes the head of an HTTP/1.1 response. nginx: `ngx_http_header_filter`.
//!
//! Called by the HTTP/1.1 connection task after the filters. The encoder that it uses never emits
//! a CR, LF or NUL inside of a value.

use std::cell::RefCell;

use nowait_h1::encode::HeadWriter;
use nowait_http::field_order::SeparateField;
use nowait_http::request::Request;
use nowait_http::response::{Head, HeaderSource};
use nowait_http::response_head::{self, FieldWriter};
use nowait_http::special_pages::ServerTokens;
use nowait_message::{Method, Version, http_date};
use nowait_runtime::clock;

/// Framing of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No body, regardless of the head (HEAD, 204, 304).
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
    if request.header_only() || matches!(head.status, 204 | 304) {
        return Framing::None;
    }
    let framing = if head.content_length.is_some() && !head.expects_trailers {
        Framing::Length
    } else if request.head().version() == Version::Http11
        // "A server MUST NOT send any Transfer-Encoding or Content-Length header fields in a 2xx
        // (Successful) response to CONNECT" (RFC 9110 section 9.3.6).
        && !(request.method() == Method::Connect && head.status < 300)
        && request.location().client.chunked_transfer_encoding
    {
        Framing::Chunked
    } else if head.content_length.is_some() {
        Framing::Length
    } else {
        request.set_keep_alive(false);
        Framing::Close
    };
    request.sent().set_chunked(framing == Framing::Chunked);
    framing
}

/// Appends the head. The fields are in nginx's order, since some clients and tests depend on it.
pub fn write(request: &Request, head: &Head, framing: Framing, out: &mut Vec<u8>) {
    let location = request.location();
    let mut writer = begin(head, location.server_tokens(), out);
    match (&head.content_type, &head.charset) {
        (Some(kind), None) => drop(writer.content_type(kind)),
        (Some(_), Some(_)) => {
            writer.content_type(&head.content_type_value().unwrap_or_default());
        }
        (None, _) => {}
    }
    if let Some(length) = head.content_length.filter(|_| framing != Framing::Chunked) {
        writer.content_length(length);
    }
    if !head.order.has(SeparateField::LastModified) {
        response_head::apart(head, SeparateField::LastModified, &mut Lines(&mut writer));
    }
    if head.location_completed {
        response_head::apart(head, SeparateField::Location, &mut Lines(&mut writer));
    }
    if framing == Framing::Chunked {
        writer.lines("Transfer-Encoding: chunked\r\n");
    }
    connection(request, head, &mut writer);
    if head.varies_by_encoding {
        writer.lines("Vary: Accept-Encoding\r\n");
    }
    response_head::lines(head, &mut Lines(&mut writer));
    writer.finish();
}

thread_local! {
    /// The beginning of heads with status 200, `Server` and `Date`, which are the same for a second.
    static USUAL: RefCell<Usual> = const { RefCell::new(Usual { of: None, text: Vec::new() }) };
}

/// The common beginning of heads, and its key.
struct Usual {
    of: Option<(ServerTokens, u64)>,
    text: Vec<u8>,
}

/// Appends the status line, `Server` and `Date`.
fn begin<'a>(head: &Head, tokens: ServerTokens, out: &'a mut Vec<u8>) -> HeadWriter<'a, Vec<u8>> {
    let is_usual = head.status == 200
        && head.status_line.is_none()
        && head.server == HeaderSource::Ours
        && head.date == HeaderSource::Ours;
    if !is_usual {
        return begin_uncached(head, tokens, out);
    }
    USUAL.with_borrow_mut(|usual| {
        let of = Some((tokens, clock().unix_seconds()));
        if usual.of != of {
            usual.of = of;
            usual.text.clear();
            let _ = begin_uncached(head, tokens, &mut usual.text);
        }
        out.extend_from_slice(&usual.text);
    });
    HeadWriter::resume(out)
}

#[inline(never)]
fn begin_uncached<'a>(
    head: &Head,
    tokens: ServerTokens,
    out: &'a mut Vec<u8>,
) -> HeadWriter<'a, Vec<u8>> {
    let mut writer = match &head.status_line {
        Some(reason) => HeadWriter::response_with_reason(out, head.status, reason),
        None => HeadWriter::response(out, head.status),
    };
    if head.server == HeaderSource::Ours {
        writer.lines(tokens.line());
    }
    if head.date == HeaderSource::Ours {
        writer.date(&clock().http_date());
    }
    writer
}

/// Appends `Connection` and `Keep-Alive`.
fn connection(request: &Request, head: &Head, writer: &mut HeadWriter<'_, Vec<u8>>) {
    let (value, line) = if head.status == 101 {
        ("upgrade", "Connection: upgrade\r\n")
    } else if request.persistence().keep_alive {
        ("keep-alive", "Connection: keep-alive\r\n")
    } else {
        ("close", "Connection: close\r\n")
    };
    request.sent().set_connection(value);
    writer.lines(line);
    let header = request.location().client.keepalive_timeout.header;
    if let Some(seconds) = header.filter(|_| value == "keep-alive") {
        writer.named("Keep-Alive", format!("timeout={seconds}").as_bytes());
    }
}

/// Fields in the form of HTTP/1.1.
struct Lines<'a, 'o>(&'a mut HeadWriter<'o, Vec<u8>>);

impl FieldWriter for Lines<'_, '_> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.field(name, value);
    }

    fn named(&mut self, name: &'static str, value: &[u8]) {
        self.0.named(name, value);
    }

    fn last_modified(&mut self, date: &[u8; http_date::LEN]) {
        self.0.last_modified(date);
    }

    fn accept_ranges(&mut self) {
        self.0.lines("Accept-Ranges: bytes\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(writer: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before ".to_vec();
        writer(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_kept_of_a_second_is_what_would_be_written() {
        for tokens in [ServerTokens::On, ServerTokens::Off, ServerTokens::Off, ServerTokens::On] {
            for status in [200, 404, 200] {
                for server in [HeaderSource::Ours, HeaderSource::Absent] {
                    let head = Head { status, server: server.clone(), ..Head::default() };
                    // A second may end between the two.
                    loop {
                        let second = clock().unix_seconds();
                        let kept = text(|out| drop(begin(&head, tokens, out)));
                        let uncached = text(|out| drop(begin_uncached(&head, tokens, out)));
                        if clock().unix_seconds() == second {
                            assert_eq!(kept, uncached);
                            break;
                        }
                    }
                }
            }
        }
    }
}
