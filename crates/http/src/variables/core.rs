//! Variables of the request and of its response. nginx: `ngx_http_core_variables`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use nowait_conf::Size;
use nowait_message::{Known, Version, http_date};
use nowait_runtime::now;

use super::{Builtin, Family, SettableBuiltin};
use crate::address;
use crate::credentials::Credentials;
use crate::log::Level;
use crate::request::{BodyLength, Request, RequestBody};
use crate::response::AcceptRanges;

/// A table of built-in variables: `/// TEXT` `"name" => function;` for each.
#[macro_export]
macro_rules! builtins {
    ($($(#[doc = $doc:literal])+ $name:literal => $get:expr;)+) => {
        &[$($crate::variables::Builtin { name: $name, doc: concat!($($doc),+), get: $get }),+]
    };
}
pub use crate::builtins;

/// The table of this module.
pub const BUILTINS: &[Builtin] = builtins! {
    /// Query string of the request, as `$query_string`.
    "args" => args;
    /// Client address in binary form: 4 bytes for IPv4, 16 for IPv6.
    "binary_remote_addr" => |r, out| { address::append_binary(r.peer(), out); true };
    /// Number of body bytes sent to the client, without the response head.
    "body_bytes_sent" => |r, out| number(r.sent().body_bytes(), out);
    /// Number of bytes sent to the client.
    "bytes_sent" => |r, out| number(r.sent().bytes(), out);
    /// Serial number of the connection.
    "connection" => |r, out| number(r.client().number, out);
    /// Number of requests on the connection so far, including this one.
    "connection_requests" => |r, out| number(r.client().requests.get().into(), out);
    /// `Content-Length` of the request.
    "content_length" => content_length;
    /// `Content-Type` of the request.
    "content_type" => |r, out| known_header(r, Known::ContentType, out);
    /// The `root` or `alias` of the current location.
    "document_root" => |r, out| { r.location().path.append_root(r, out); true };
    /// The same as `$uri`.
    "document_uri" => uri;
    /// Host from the request line, else from the `Host` field, else the server name.
    "host" => host;
    /// `h2` if the request came over HTTP/2 with TLS, `h2c` without TLS, else empty.
    "http2" => http2;
    /// `h3` if the request came over HTTP/3, `hq` if by `http3_hq`, else empty.
    "http3" => http3;
    /// `on` if the connection uses TLS, else empty.
    "https" => |r, out| { if r.client().is_tls() { out.extend_from_slice(b"on"); } true };
    /// `?` if the request has a query string, else empty.
    "is_args" => |r, out| { if !r.uri().query().is_empty() { out.push(b'?'); } true };
    /// `:` if `$request_port` is not empty, else empty.
    "is_request_port" => |r, out| { if r.host_port().is_some() { out.push(b':'); } true };
    /// Rate limit of the response in bytes per second.
    "limit_rate" => |r, out| number(r.limit_rate().unwrap_or(0), out);
    /// `p` if the request was pipelined, else `.`.
    "pipe" => |r, out| { out.push(if r.persistence().pipelined { b'p' } else { b'.' }); true };
    /// Query string of the request.
    "query_string" => args;
    /// Serial number of the connection if it uses QUIC, else empty.
    "quic_connection" => |r, out| !r.client().listen.is_stream() && number(r.client().number, out);
    /// The `root` or `alias` of the current location with all symbolic links resolved.
    "realpath_root" => |r, out| append(r.realpath().root.as_deref(), out);
    /// Client address.
    "remote_addr" => |r, out| { address::append_ip(r.peer(), out); true };
    /// Network of the client's address: 24 bits of IPv4, 56 bits of IPv6, such as `192.0.2.0/24`. For limits that a client
    /// cannot evade by another address of its own. Not in nginx.
    "remote_network" => |r, out| { address::append_network(r.peer(), out); true };
    /// Client port.
    "remote_port" => |r, out| port(address::port(r.peer()), out);
    /// User name given by HTTP Basic authentication.
    "remote_user" => |r, out| append(Credentials::of(r).as_ref().map(|c| &c.user[..]), out);
    /// The request line as the client sent it.
    "request" => |r, out| { out.extend_from_slice(&r.head().request_line()); !r.head().is_empty() };
    /// The request body, if it is in memory.
    "request_body" => request_body;
    /// Time that file operations of the request waited for a pool thread, in seconds with
    /// microsecond resolution.
    "pool_wait_time" => |r, out| { precise(r.spent().spent().waited(), out); true };
    /// Time that pool threads spent on file operations of the request, in seconds with microsecond
    /// resolution: mostly waiting for the disk. Operations on the event loop do not count.
    "pool_service_time" => |r, out| { precise(r.spent().spent().served(), out); true };
    /// Time that the request waited for disks, in seconds with microsecond resolution: the sum of `$pool_wait_time`
    /// and `$pool_service_time`.
    "disk_wait_time" => |r, out| {
        let spent = r.spent().spent();
        precise(spent.waited() + spent.served(), out);
        true
    };
    /// Name of the thread pool that did the request's last file operation; empty if none needed a pool.
    "pool_name" => |r, out| append(r.spent().pool().as_deref().map(str::as_bytes), out);
    /// Time that the worker's event loop was busy for at least a millisecond at a stretch while the request was in
    /// progress, with this or other requests, in seconds with millisecond resolution.
    "loop_delay" => |r, out| { seconds(crate::timeline::loop_delay(r), out); true };
    /// The times of the request by name, in seconds with millisecond resolution, such as
    /// `received=0.000 queue=0.000 connect=0.001 upstream=0.120 pool_wait=0.000 disk=0.003 response=0.121 sending=0.040
    /// total=0.161`: until its head was complete, waiting in the `queue` of a group, connecting, until the upstream
    /// response was complete, waiting for a pool thread, on pool threads, until the response began, from then on, and
    /// in total. Only configurations that use it note what it takes.
    "request_phase_times" => |r, out| { crate::timeline::PhaseTimes::of(r).append(out); true };
    /// Name of the temporary file with the request body.
    "request_body_file" => request_body_file;
    /// `OK` if the response was sent completely, else empty.
    "request_completion" => |r, out| { if r.sent().is_complete() { out.extend_from_slice(b"OK"); } true };
    /// File path for the request, from `root` or `alias` and the URI.
    "request_filename" => request_filename;
    /// Unique identifier of the request: 16 random bytes in hexadecimal.
    "request_id" => request_id;
    /// Length of the request in bytes: request line, header and body.
    "request_length" => |r, out| number(r.received(), out);
    /// Method of the request.
    "request_method" => request_method;
    /// Port in the request line or the `Host` field, if any.
    "request_port" => |r, out| port(r.host_port(), out);
    /// Time since the first byte of the request was read, in seconds with millisecond resolution.
    "request_time" => |r, out| { seconds(since(r.started()), out); true };
    /// The request target as the client sent it, with its query string.
    "request_uri" => |r, out| append(Some(r.head().uri()).filter(|uri| !uri.is_empty()), out);
    /// `http` or `https`.
    "scheme" => |r, out| append(Some(r.client().scheme().as_bytes()), out);
    /// Server address that accepted the request.
    "server_addr" => |r, out| { address::append_local(r.exchange().local(), out); true };
    /// Name of the server that accepted the request.
    "server_name" => |r, out| { out.extend_from_slice(r.server_name()); true };
    /// Server port that accepted the request.
    "server_port" => |r, out| port(address::port(r.exchange().local()), out);
    /// Protocol of the request, such as `HTTP/1.1`.
    "server_protocol" => |r, out| append(Some(r.head().protocol()).filter(|p| !p.is_empty()), out);
    /// Status of the response.
    "status" => status;
    /// Time since the connection was accepted, in seconds with millisecond resolution.
    "connection_time" => |r, out| { seconds(since(r.client().started), out); true };
    /// URI of the request: decoded, normalised, changed by internal redirects.
    "uri" => uri;
    /// `Connection` of the response.
    "sent_http_connection" => |r, out| append(Some(r.sent().connection().as_bytes()).filter(|c| !c.is_empty()), out);
    /// `Content-Length` of the response.
    "sent_http_content_length" => |r, out| r.out().content_length.is_some_and(|n| number(n, out));
    /// `Content-Type` of the response.
    "sent_http_content_type" => sent_content_type;
    /// `Keep-Alive` of the response.
    "sent_http_keep_alive" => sent_keep_alive;
    /// `Last-Modified` of the response.
    "sent_http_last_modified" => sent_last_modified;
    /// `Location` of the response.
    "sent_http_location" => |r, out| append(r.out().location.as_deref().or_else(|| r.out().header(b"location")), out);
    /// `Transfer-Encoding` of the response.
    "sent_http_transfer_encoding" => |r, out| append(r.sent().is_chunked().then_some(b"chunked"), out);
};

/// The ones among them that `set` may change.
pub const CHANGEABLE: &[SettableBuiltin] = &[
    SettableBuiltin { name: "args", set: |r, value| r.set_args(value.to_vec()) },
    SettableBuiltin { name: "limit_rate", set: set_limit_rate },
];

/// nginx: `ngx_http_variable_set_limit_rate`.
fn set_limit_rate(r: &mut Request, value: Bytes) {
    match <Size as nowait_conf::Value>::from_word(&value) {
        Ok(Size(rate)) => r.set_limit_rate(Some(rate)),
        Err(_) => {
            let value = String::from_utf8_lossy(&value);
            r.log(Level::Error, format_args!("invalid $limit_rate \"{value}\""));
        }
    }
}

/// The families of this module.
pub const FAMILIES: &[Family] = &[
    Family {
        prefix: "http_",
        doc: "A request header field: the rest of the name in lower case with underscores for \
              dashes. Several fields of the same name are joined.",
        get: request_header,
    },
    Family { prefix: "arg_", doc: "An argument of the query string.", get: argument },
    Family { prefix: "cookie_", doc: "A cookie of the request.", get: cookie },
    Family {
        prefix: "sent_http_",
        doc: "A response header field: the rest of the name in lower case with underscores for \
              dashes.",
        get: sent_header,
    },
    Family {
        prefix: "sent_trailer_",
        doc: "A trailer field of the response.",
        get: |r, name, out| {
            joined(r.out().trailers.iter().map(|h| (&h.name[..], &h.value[..])), name, b", ", out)
        },
    },
];

/// Appends a value that may be missing.
fn append(value: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    value.map(|value| out.extend_from_slice(value)).is_some()
}

/// Appends a number in decimal.
pub fn number(n: u64, out: &mut Vec<u8>) -> bool {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(n).as_bytes());
    true
}

/// Appends a port that may be missing.
fn port(port: Option<u16>, out: &mut Vec<u8>) -> bool {
    if let Some(port) = port {
        out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
    }
    true
}

/// Appends a duration as seconds with three decimals.
pub(crate) fn seconds(elapsed: Duration, out: &mut Vec<u8>) {
    number(elapsed.as_secs(), out);
    let ms = elapsed.subsec_millis();
    out.extend_from_slice(&[b'.', digit(ms / 100), digit(ms / 10 % 10), digit(ms % 10)]);
}

/// Appends a duration as seconds with six decimals.
fn precise(elapsed: Duration, out: &mut Vec<u8>) {
    let text = format!("{}.{:06}", elapsed.as_secs(), elapsed.subsec_micros());
    out.extend_from_slice(text.as_bytes());
}

/// Elapsed time by the loop's clock.
fn since(start: Instant) -> Duration {
    now().saturating_duration_since(start)
}

fn digit(n: u32) -> u8 {
    b'0' + u8::try_from(n % 10).unwrap_or_default()
}

fn args(r: &Request, out: &mut Vec<u8>) -> bool {
    append(r.uri().args.as_deref(), out)
}

fn uri(r: &Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&r.uri().path);
    // A target that is no path is empty; without a request line there is none.
    !r.uri().path.is_empty() || !r.head().is_empty()
}

fn request_method(r: &Request, out: &mut Vec<u8>) -> bool {
    // Error pages are requested with GET, regardless of the client's method. A subrequest shows the main
    // request's method, regardless of its own.
    let method = if r.is_switched_to_get() { b"GET" } else { r.head().method_bytes() };
    append(Some(method).filter(|method| !method.is_empty()), out)
}

fn host(r: &Request, out: &mut Vec<u8>) -> bool {
    let host = if r.host().is_empty() { r.server_name() } else { r.host() };
    out.extend_from_slice(host);
    true
}

fn content_length(r: &Request, out: &mut Vec<u8>) -> bool {
    if r.body_length() == BodyLength::None {
        return known_header(r, Known::ContentLength, out);
    }
    match (r.body_length(), r.body()) {
        (BodyLength::Known(n), _) => number(n, out),
        (BodyLength::Unknown, RequestBody::Memory(bytes)) => number(bytes.len() as u64, out),
        (BodyLength::Unknown, RequestBody::File(file)) => number(file.len(), out),
        _ => false,
    }
}

fn status(r: &Request, out: &mut Vec<u8>) -> bool {
    let status = r.log_status();
    out.extend_from_slice(&[
        digit(u32::from(status / 100)),
        digit(u32::from(status / 10)),
        digit(u32::from(status)),
    ]);
    true
}

fn request_body(r: &Request, out: &mut Vec<u8>) -> bool {
    match r.body() {
        RequestBody::Memory(bytes) => {
            append(Some(bytes).filter(|b| !b.is_empty()).map(|b| &b[..]), out)
        }
        _ => false,
    }
}

fn request_body_file(r: &Request, out: &mut Vec<u8>) -> bool {
    match r.body() {
        RequestBody::File(file) => append(Some(file.path()), out),
        _ => false,
    }
}

fn request_filename(r: &Request, out: &mut Vec<u8>) -> bool {
    r.has_file() && {
        r.append_file(out);
        true
    }
}

fn request_id(r: &Request, out: &mut Vec<u8>) -> bool {
    r.append_id(out);
    true
}

impl Request {
    /// Appends `$request_id`: 16 random bytes in hexadecimal, the same for all subrequests.
    pub fn append_id(&self, out: &mut Vec<u8>) {
        let id = self.shared().id.get().unwrap_or_else(|| {
            let id: [u8; 16] = crate::random::bytes();
            self.shared().id.set(Some(id));
            id
        });
        let mut digits = [0; 32];
        HEXLOWER.encode_mut(&id, &mut digits);
        out.extend_from_slice(&digits);
    }
}

/// Appends all headers of the request with this (lower case) name.
fn header(r: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let separator: &[u8] = if name == b"cookie" { b"; " } else { b", " };
    joined(r.head().fields().iter().map(|f| (f.name, f.value)), name, separator, out)
}

/// Appends all headers of the request with this name.
fn known_header(r: &Request, name: Known, out: &mut Vec<u8>) -> bool {
    let mut found = false;
    for value in r.head().fields().all(name) {
        if found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        found = true;
    }
    found
}

fn request_header(r: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    header(r, name, out)
}

fn sent_header(r: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    if same_name(b"etag", name) && r.out().etag.is_some() {
        return append(r.out().etag.as_deref(), out);
    }
    if same_name(b"content-encoding", name) && r.out().content_encoding.is_some() {
        return append(r.out().content_encoding.as_deref(), out);
    }
    if same_name(b"accept-ranges", name) && r.out().accept_ranges != AcceptRanges::No {
        return append(Some(b"bytes"), out);
    }
    let vary = r.out().varies_by_encoding.then_some((&b"vary"[..], &b"Accept-Encoding"[..]));
    let lines = r.out().headers.iter().map(|h| (&h.name[..], &h.value[..]));
    joined(vary.into_iter().chain(lines), name, b", ", out)
}

/// Appends the values of the lines with this name, with a separator between them.
pub(crate) fn joined<'a>(
    lines: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    name: &[u8],
    separator: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut found = false;
    for (_, value) in lines.filter(|(line, _)| same_name(line, name)) {
        if found {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(value);
        found = true;
    }
    found
}

/// Whether a header name equals the name in a variable: lower case, underscores for dashes.
fn same_name(header: &[u8], variable: &[u8]) -> bool {
    header.len() == variable.len()
        && header.iter().zip(variable).all(|(&h, &v)| {
            let h = if h == b'-' { b'_' } else { h.to_ascii_lowercase() };
            let v = if v == b'-' { b'_' } else { v };
            h == v
        })
}

/// `$arg_NAME`: the first argument of that name, in any case. nginx: `ngx_http_arg`.
fn argument(r: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    append(argument_value(r, name), out)
}

/// The value of an argument of the query string, not decoded.
pub fn argument_value<'a>(r: &'a Request, name: &[u8]) -> Option<&'a [u8]> {
    query_value(r.uri().query(), name)
}

/// The value of the first argument with this name, in any case, in a query string; not decoded.
pub fn query_value<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    query.split(|&b| b == b'&').find_map(|argument| {
        let (key, value) = split_once(argument, b'=')?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// `$cookie_NAME`. nginx: `ngx_http_parse_multi_header_lines`.
fn cookie(r: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    append(cookie_value(r, name), out)
}

/// The value of a cookie of the request.
pub fn cookie_value<'a>(r: &'a Request, name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    r.head()
        .fields()
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case(b"cookie"))
        .flat_map(|field| field.value.split(|&b| b == b';'))
        .find_map(|pair| {
            let (key, value) = split_once(pair.trim_ascii_start(), b'=')?;
            key.trim_ascii_end().eq_ignore_ascii_case(name).then(|| value.trim_ascii())
        })
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == at)?;
    Some((&text[..at], &text[at + 1..]))
}

fn sent_content_type(r: &Request, out: &mut Vec<u8>) -> bool {
    append(r.out().content_type_value().as_deref(), out)
}

fn http2(r: &Request, out: &mut Vec<u8>) -> bool {
    let name: Option<&[u8]> = match (r.head().version(), r.client().is_tls()) {
        (Version::Http2, true) => Some(b"h2"),
        (Version::Http2, false) => Some(b"h2c"),
        _ => None,
    };
    append(name, out)
}

fn http3(r: &Request, out: &mut Vec<u8>) -> bool {
    if r.client().listen.is_stream() {
        return false;
    }
    let mut name: &[u8] = b"h3";
    r.exchange().with_tls(&mut |tls| {
        if tls.session().alpn() != Some(b"h3") {
            name = b"hq";
        }
    });
    append(Some(name), out)
}

fn sent_keep_alive(r: &Request, out: &mut Vec<u8>) -> bool {
    match r.location().client.keepalive_timeout.header {
        Some(seconds) if r.persistence().keep_alive && r.sent().head_bytes() > 0 => {
            out.extend_from_slice(b"timeout=");
            number(seconds, out)
        }
        _ => false,
    }
}

fn sent_last_modified(r: &Request, out: &mut Vec<u8>) -> bool {
    let Some(time) = r.out().last_modified else { return false };
    append(Some(&http_date::format(time)), out)
}
