//! Converts the head of an upstream response to that of the client's response. nginx:
//! `ngx_http_upstream_process_headers` and the functions of its table of headers.
//!
//! Used by every module that passes requests to servers. Changes that only one of them makes (redirects,
//! cookies) are supplied as a [`Rewriter`]. Pure except for the state of the request.

use bytes::Bytes;
use nowait_http::field_order::SeparateField;
use nowait_http::log::Level;
use nowait_http::outcome::{Outcome, StatusResponse};
use nowait_http::request::Request;
use nowait_http::response::{AcceptRanges, Head, Header, HeaderSource};
use nowait_http::variables::complex::Complex;
use nowait_message::http_date;
use nowait_message::{Field, Known, ResponseHead, Version};

use super::accel;
use crate::conf::{Backend, IgnoreHeaders};

/// A module's changes to header fields.
pub trait Rewriter {
    /// Whether `Location` and `Refresh` are changed.
    fn rewrites_redirects(&self) -> bool {
        false
    }

    /// Changes a URL in a header field, which begins after `skip` bytes of the value; `None`:
    /// unchanged.
    fn redirect(&self, _request: &Request, _value: &Bytes, _skip: usize) -> Option<Bytes> {
        None
    }

    /// Adds fields that the server does not send.
    fn complete(&self, _request: &Request, _head: &mut Head) {}

    /// Changes the value of a `Set-Cookie`; `None`: unchanged.
    fn cookie(&self, _request: &Request, _value: &Bytes) -> Option<Bytes> {
        None
    }
}

/// Result of processing a response's head.
pub enum Processed {
    /// The head for the client; the server's body follows.
    Pass(Box<Head>),
    /// Another response: that of an `error_page`, or of an `X-Accel-Redirect` target.
    Instead(Outcome),
}

/// Instructions of a response about its delivery.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// `X-Accel-Buffering`
    pub buffering: Option<bool>,
    /// The processing of the response depends on no request property but the location.
    pub constant: bool,
}

/// Makes the client's head from the server's, unless another response replaces it. Stores the
/// values of `X-Accel-Limit-Rate` and `X-Accel-Charset`.
pub fn process(
    request: &mut Request,
    backend: &Backend,
    rewriter: &dyn Rewriter,
    received: &ResponseHead,
) -> (Processed, Wishes) {
    let fields = Single::new(request, received);
    let wishes = obey(request, backend, received, &fields);
    if let Some(special) = intercepted(request, backend, received) {
        return (Processed::Instead(Outcome::Status(special)), wishes);
    }
    if received.has(Known::XAccelRedirect)
        && !backend.ignore.contains(IgnoreHeaders::ACCEL_REDIRECT)
        && let Some(to) = received.known(Known::XAccelRedirect)
    {
        let outcome = accel::redirect(request, rewriter, received, &fields, to);
        return (Processed::Instead(outcome), wishes);
    }
    (Processed::Pass(pass(request, backend, rewriter, received, &fields)), wishes)
}

/// Header fields that may occur once in a response; the first one counts.
const SINGLE: u128 = set(&[
    Known::Status,
    Known::ContentType,
    Known::Date,
    Known::LastModified,
    Known::ETag,
    Known::Server,
    Known::Location,
    Known::Refresh,
    Known::Expires,
    Known::XAccelExpires,
    Known::XAccelRedirect,
    Known::XAccelLimitRate,
]);

/// Header fields that change a request's state, or whose value variables of the request may change.
const PERSONAL: u128 = set(&[
    Known::Location,
    Known::Refresh,
    Known::SetCookie,
    Known::XAccelRedirect,
    Known::XAccelLimitRate,
    Known::XAccelBuffering,
    Known::XAccelCharset,
]);

/// Header fields that are instructions to the proxy.
const OBEYED: u128 = set(&[Known::XAccelLimitRate, Known::XAccelBuffering, Known::XAccelCharset]);

/// A set of names as bits.
const fn set(names: &[Known]) -> u128 {
    let mut bits = 0;
    let mut at = 0;
    while at < names.len() {
        bits |= 1 << names[at] as u32;
        at += 1;
    }
    bits
}

/// The fields that count, without repetitions.
pub(super) struct Single {
    /// Positions of the fields that are ignored.
    ignored: Vec<usize>,
}

impl Single {
    fn new(request: &Request, received: &ResponseHead) -> Self {
        let ignored = match received.repeats_any(SINGLE) {
            true => repeated(request, received),
            false => Vec::new(),
        };
        Self { ignored }
    }

    /// The fields that count.
    pub(super) fn of<'a>(
        &'a self,
        received: &'a ResponseHead,
    ) -> impl Iterator<Item = Field<'a>> + 'a {
        let fields = received.fields().enumerate();
        fields.filter(|(n, _)| !self.ignored.contains(n)).map(|(_, field)| field)
    }
}

/// Logs repeated fields that may occur only once; returns the positions of all but the first.
fn repeated(request: &Request, received: &ResponseHead) -> Vec<usize> {
    let mut seen = 0u128;
    let mut ignored = Vec::new();
    for (n, field) in received.fields().enumerate() {
        let Some(known) = field.known else { continue };
        let bit = 1 << known as u32;
        if seen & SINGLE & bit != 0 {
            ignored.push(n);
            let first = received.known(known);
            request.log(
                Level::Warn,
                format_args!(
                    "upstream sent duplicate header line: \"{}: {}\", previous value: \"{}: {}\", \
                     ignored",
                    String::from_utf8_lossy(field.name),
                    String::from_utf8_lossy(field.value),
                    String::from_utf8_lossy(field.name),
                    String::from_utf8_lossy(first.unwrap_or_default()),
                ),
            );
        }
        seen |= bit;
    }
    ignored
}

/// Follows the `X-Accel-*` instructions.
fn obey(
    request: &mut Request,
    backend: &Backend,
    received: &ResponseHead,
    fields: &Single,
) -> Wishes {
    let is_constant = |name: &Complex| name.literal().is_some();
    let constant = !received.has_any(PERSONAL)
        && fields.ignored.is_empty()
        && backend.via.as_ref().is_none_or(is_constant);
    let mut wishes = Wishes { constant, ..Wishes::default() };
    if !received.has_any(OBEYED) {
        return wishes;
    }
    for Field { known, value, .. } in fields.of(received) {
        match known {
            Some(Known::XAccelLimitRate)
                if !backend.ignore.contains(IgnoreHeaders::ACCEL_LIMIT_RATE) =>
            {
                if let Some(rate) = nowait_conf::number(value) {
                    request.set_limit_rate(Some(rate));
                }
            }
            Some(Known::XAccelBuffering)
                if !backend.ignore.contains(IgnoreHeaders::ACCEL_BUFFERING) =>
            {
                if value.eq_ignore_ascii_case(b"no") {
                    wishes.buffering = Some(false);
                } else if value.eq_ignore_ascii_case(b"yes") {
                    wishes.buffering = Some(true);
                }
            }
            Some(Known::XAccelCharset)
                if !backend.ignore.contains(IgnoreHeaders::ACCEL_CHARSET) =>
            {
                request.set_override_charset(received.share(value));
            }
            _ => {}
        }
    }
    wishes
}

/// The `error_page` response that replaces this one, if any. nginx:
/// `ngx_http_upstream_intercept_errors`.
fn intercepted(
    request: &Request,
    backend: &Backend,
    received: &ResponseHead,
) -> Option<StatusResponse> {
    let status = received.status;
    if status == 404 && backend.intercept_404 {
        return Some(StatusResponse { status, location: None, headers: Vec::new() });
    }
    if !backend.intercept_errors
        || status < 300
        || !request.location().pages.error_page.iter().any(|page| page.statuses.contains(&status))
    {
        return None;
    }
    let challenges = received.fields().filter(|_| status == 401);
    let challenges = challenges.filter(|field| field.known == Some(Known::WwwAuthenticate));
    let headers = challenges.map(|field| line(received, field)).collect();
    Some(StatusResponse { status, location: None, headers })
}

/// Converts a field to a header field of our response.
fn line(received: &ResponseHead, field: Field<'_>) -> Header {
    Header { name: received.share(field.name), value: received.share(field.value) }
}

/// Makes the client's head from the server's.
fn pass(
    request: &Request,
    backend: &Backend,
    rewriter: &dyn Rewriter,
    received: &ResponseHead,
    fields: &Single,
) -> Box<Head> {
    let mut head = Head::new(received.status);
    if nowait_message::status::reason(received.status).map(str::as_bytes)
        != Some(&received.reason[..])
    {
        head.status_line = Some(received.reason.clone());
    }
    head.content_length = received.content_length;
    head.is_upstreams = true;
    head.has_upstreams_status = true;
    for (own, known, name) in
        [(&mut head.server, Known::Server, "Server"), (&mut head.date, Known::Date, "Date")]
    {
        if !backend.hide.contains(name.as_bytes(), Some(known)) {
            *own = match received.known(known) {
                Some(value) => HeaderSource::Given(received.share(value)),
                None if backend.adds_fields => continue,
                None => HeaderSource::Absent,
            };
        }
    }
    // A 101 passes no filter that would decide that.
    if backend.force_ranges && head.status == 200 {
        head.accept_ranges = AcceptRanges::Bytes;
    }
    let nominates = received.all(Known::Connection).any(is_nomination);
    // Known names are looked up before the field itself.
    let keep = |known: Option<Known>| {
        known.is_none_or(|known| !is_ours(known) && !backend.hide.contains(b"", Some(known)))
    };
    for (n, field) in received.kept(keep) {
        if fields.ignored.contains(&n)
            || (field.known.is_none() && backend.hide.contains(field.name, None))
            || (nominates && is_nominated(received, field.name))
        {
            continue;
        }
        copy(request, backend, rewriter, (received, field), &mut head);
    }
    if let Some(name) = &backend.via
        && !backend.hide.contains(b"Via", Some(Known::Via))
        && let Some(value) = via(received.version, &request.evaluate(name))
    {
        head.add("Via", value);
    }
    rewriter.complete(request, &mut head);
    head
}

/// The value of `Via` for a message that was received in this version, by a server of this name.
pub fn via(version: Version, name: &[u8]) -> Option<Vec<u8>> {
    // "The protocol-name is omitted if and only if the received protocol would be "HTTP"" (RFC 9110
    // section 7.6.3).
    let version = version.as_str().strip_prefix("HTTP/").unwrap_or("0.9");
    (!name.is_empty()).then(|| [version.as_bytes(), name].join(&b' '))
}

/// Whether this value of `Connection` names header fields of this hop only.
fn is_nomination(value: &[u8]) -> bool {
    // Mostly it is one of these.
    value != b"keep-alive"
        && value != b"close"
        && tokens(value).any(|token| {
            ![&b"close"[..], b"keep-alive", b"upgrade", b""]
                .iter()
                .any(|usual| token.eq_ignore_ascii_case(usual))
        })
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii)
}

// nginx differs: it passes these fields on; see RFC 9110 section 7.6.1.
fn is_nominated(received: &ResponseHead, name: &[u8]) -> bool {
    let options = received.all(Known::Connection);
    options.flat_map(tokens).any(|token| token.eq_ignore_ascii_case(name))
}

/// Whether a field concerns the connection or the framing, and is written by the server.
fn is_ours(known: Known) -> bool {
    matches!(
        known,
        Known::ContentLength | Known::Connection | Known::KeepAlive | Known::TransferEncoding
    )
}

/// Copies a header field to its place in the head.
fn copy(
    request: &Request,
    backend: &Backend,
    rewriter: &dyn Rewriter,
    (received, field): (&ResponseHead, Field<'_>),
    head: &mut Head,
) {
    let share = |part| received.share(part);
    let value = field.value;
    match field.known {
        Some(Known::Server) => head.place(SeparateField::Server),
        Some(Known::Date) => head.place(SeparateField::Date),
        Some(Known::AcceptRanges) if backend.force_ranges => {}
        Some(Known::AcceptRanges) if value == b"bytes" => {
            head.place(SeparateField::AcceptRanges);
            head.accept_ranges = AcceptRanges::Upstream;
        }
        Some(Known::ContentType) => head.set_content_type(share(value)),
        Some(Known::LastModified) => match http_date::parse(value) {
            Some(time) => {
                head.place(SeparateField::LastModified);
                head.last_modified = Some(time);
                head.last_modified_text = Some(share(value));
            }
            None => head.headers.push(line(received, field)),
        },
        Some(Known::ETag) => {
            head.place(SeparateField::ETag);
            head.etag = Some(share(value));
        }
        Some(Known::ContentEncoding) if head.content_encoding.is_none() => {
            head.place(SeparateField::ContentEncoding);
            head.content_encoding = Some(share(value));
        }
        Some(Known::Location) => {
            if let Some(rewritten) = rewriter.redirect(request, &share(value), 0) {
                head.place(SeparateField::Location);
                head.location = Some(rewritten);
            } else {
                // Not into the typed field: the server's value stays unchanged, even if it is
                // relative.
                head.headers.push(line(received, field));
            }
        }
        Some(Known::Refresh) => {
            let rewritten = rewriter.rewrites_redirects().then(|| {
                let at = value.windows(4).position(|w| w.eq_ignore_ascii_case(b"url="))?;
                rewriter.redirect(request, &share(value), at + 4)
            });
            let value = rewritten.flatten().unwrap_or_else(|| share(value));
            head.headers.push(Header { name: share(field.name), value });
        }
        Some(Known::SetCookie) => {
            let value = rewriter.cookie(request, &share(value)).unwrap_or_else(|| share(value));
            head.headers.push(Header { name: share(field.name), value });
        }
        _ => head.headers.push(line(received, field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charset_is_a_part_of_the_type() {
        let split = |value: &'static str| {
            let mut head = Head::default();
            head.set_content_type(Bytes::from_static(value.as_bytes()));
            let text = |value: Option<Bytes>| {
                String::from_utf8(value.unwrap_or_default().to_vec()).unwrap()
            };
            (text(head.content_type), text(head.charset))
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(split("text/html"), pair("text/html", ""));
        assert_eq!(split("text/html; charset=utf-8"), pair("text/html", "utf-8"));
        assert_eq!(split("text/html;CHARSET=\"koi8-r\""), pair("text/html", "koi8-r"));
        assert_eq!(split("a/b; x=1;  charset=y"), pair("a/b; x=1", "y"));
        assert_eq!(split("a/b; x=1"), pair("a/b; x=1", ""));
        assert_eq!(split("a/b;"), pair("a/b;", ""));
    }
}
