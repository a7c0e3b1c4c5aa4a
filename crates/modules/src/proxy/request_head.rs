//! The head of the request to a server. nginx: `ngx_http_proxy_create_request`.
//!
//! Client fields that could change the framing are never copied: the server writes
//! `Content-Length`, `Transfer-Encoding`, `Connection` and the fields that it names (RFC 9110
//! section 7.6.1, RFC 9112 section 11.2).

use std::borrow::Cow;
use std::rc::Rc;

use bytes::{BufMut, Bytes};
use nowait_backend::request_head::{Writer, pass};
use nowait_backend::upstream::{Line, UpstreamStream, UpstreamVariation};
use nowait_h1::encode::HeadWriter;
use nowait_http::request::Request;
use nowait_message::Known;

use crate::proxy::conf::{ContentFields, HttpVersion, ProxyConf};
use crate::proxy::hops::Forwarded;

/// Fields in the form of HTTP/1.
struct Lines<'a, 'o, B: BufMut>(&'a mut HeadWriter<'o, B>);

impl<B: BufMut> Writer for Lines<'_, '_, B> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.field(name, value);
    }
}

/// The framing of the content as announced by the head.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// `Content-Length`
    pub length: Option<u64>,
    /// `Transfer-Encoding: chunked`
    pub chunked: bool,
}

impl Framing {
    /// Whether the fields about the content match it.
    fn fits(self, said: ContentFields) -> bool {
        if said.other || said.chunked != self.chunked {
            return false;
        }
        match (said.length, self.length) {
            (None, length) => self.chunked || length.unwrap_or(0) == 0,
            (Some(said), length) => !self.chunked && said == Some(length.unwrap_or(0)),
        }
    }
}

/// Whether the written head announces its content correctly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingCheck {
    /// The head matches the content.
    Sound,
    /// `proxy_set_header` announces the content differently: however the server interprets that,
    /// the connection can't be reused.
    Doubtful,
}

/// Appends the head of a request in HTTP/1. `framing` is that of the content after it.
pub fn write(
    request: &Request,
    conf: &ProxyConf,
    wanted: &UpstreamVariation,
    uri: &[u8],
    framing: Framing,
    out: &mut Vec<u8>,
) -> FramingCheck {
    let http11 = conf.http_version == HttpVersion::Http11;
    let _ = HeadWriter::request(out, &method(request, conf, wanted), uri, http11);
    let mut said = conf.set_fields.write(request, out, |out| {
        host(request, conf, http11, |host| {
            if let Some(host) = host {
                HeadWriter::resume(out).named("Host", host);
            }
        });
    });
    let mut writer = HeadWriter::resume(out);
    if let Some(length) = framing.length.filter(|_| !conf.headers.sets(Known::ContentLength)) {
        said.length = Some(Some(length));
        writer.content_length(length);
    }
    if framing.chunked && !conf.headers.sets(Known::TransferEncoding) {
        said.chunked = true;
        writer.lines("Transfer-Encoding: chunked\r\n");
    }
    rest(request, conf, wanted, &mut Lines(&mut writer));
    writer.finish();
    if framing.fits(said) { FramingCheck::Sound } else { FramingCheck::Doubtful }
}

/// The fields of a request without content, for an explanation.
pub fn fields(request: &Request, conf: &ProxyConf, put: &mut dyn FnMut(&[u8], &[u8])) {
    struct FieldCallback<'a>(&'a mut dyn FnMut(&[u8], &[u8]));

    impl Writer for FieldCallback<'_> {
        fn field(&mut self, name: &[u8], value: &[u8]) {
            (self.0)(name, value);
        }
    }

    let mut writer = FieldCallback(put);
    host(request, conf, true, |host| {
        if let Some(host) = host {
            writer.field(b"Host", host);
        }
    });
    set(request, conf, &mut writer);
    rest(request, conf, &UpstreamVariation::default(), &mut writer);
}

/// The parameters of a new stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamStart<'a> {
    /// The framing of the content.
    pub framing: Framing,
    /// There is no content.
    pub end: bool,
    /// The protocol of a tunnel.
    pub protocol: Option<&'a [u8]>,
}

/// The fields of a request for a tunnel: those of a GET without the key, which HTTP/2 does not have.
/// `Upgrade` and `Connection` are left out of all requests.
struct TunnelFields<'a, W>(&'a mut W);

impl<W: Writer> Writer for TunnelFields<'_, W> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        if !name.eq_ignore_ascii_case(b"sec-websocket-key") {
            self.0.field(name, value);
        }
    }
}

/// Opens a stream with the head of a request.
pub fn open(
    request: &Request,
    conf: &ProxyConf,
    wanted: &UpstreamVariation,
    uri: &[u8],
    StreamStart { framing, end, protocol }: StreamStart<'_>,
    lane: &Rc<UpstreamStream>,
) {
    let method = match protocol {
        None => method(request, conf, wanted),
        Some(_) => Cow::Borrowed(&b"CONNECT"[..]),
    };
    let authority =
        host(request, conf, true, |host| Bytes::copy_from_slice(host.unwrap_or_default()));
    let tls = super::context::destination_of(request, conf).is_some_and(|to| to.tls);
    let scheme = if tls { &b"https"[..] } else { b"http" };
    let line = Line { method: &method, scheme, authority: &authority, path: uri, protocol };
    lane.open(&line, end, |fields| {
        if protocol.is_some() {
            let fields = &mut TunnelFields(fields);
            set(request, conf, fields);
            return rest(request, conf, wanted, fields);
        }
        set(request, conf, fields);
        if let Some(length) = framing.length.filter(|_| !conf.headers.sets(Known::ContentLength)) {
            fields.field_number(b"content-length", length);
        }
        rest(request, conf, wanted, fields);
    });
}

/// The method.
fn method<'a>(request: &'a Request, conf: &ProxyConf, wanted: &UpstreamVariation) -> Cow<'a, [u8]> {
    match (wanted.method, &conf.method) {
        (Some(method), _) => Cow::Borrowed(method.as_bytes()),
        (None, Some(text)) => Cow::Owned(request.evaluate(text).into()),
        (None, None) => Cow::Borrowed(request.method_name()),
    }
}

/// Writes the fields that directives set besides `Host`.
fn set(request: &Request, conf: &ProxyConf, writer: &mut impl Writer) {
    for line in &conf.headers.lines {
        let value = request.evaluate(&line.value);
        if !value.is_empty() {
            writer.field(&line.name, &value);
        }
    }
}

/// Writes the conditions and ranges of a cache, and the client's fields.
fn rest(request: &Request, conf: &ProxyConf, wanted: &UpstreamVariation, writer: &mut impl Writer) {
    for (name, _, value) in wanted.condition.iter().flat_map(|condition| condition.fields()) {
        let name = name.as_bytes();
        if !conf.headers.replaced(false).contains(name, Known::from_bytes(name)) {
            writer.field(name, value);
        }
    }
    let mut writer = Forwarded::new(request, conf, writer);
    if conf.backend.pass_request_headers {
        pass(request.head().fields(), conf.headers.replaced(wanted.for_cache), &mut writer);
    }
    writer.finish(request, conf);
}

/// `Host`: as set, otherwise `$proxy_host`; `required`: the version of the protocol needs one.
fn host<T>(
    request: &Request,
    conf: &ProxyConf,
    required: bool,
    take: impl FnOnce(Option<&[u8]>) -> T,
) -> T {
    if let Some(text) = &conf.headers.host {
        let host = request.evaluate(text);
        if !host.is_empty() {
            return take(Some(&host));
        }
        if !required {
            return take(None);
        }
    }
    take(super::context::destination_of(request, conf).map(|to| &to.host_header[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_content_must_match_the_framing() {
        let known = Framing { length: Some(5), chunked: false };
        let chunked = Framing { length: None, chunked: true };
        let none = Framing { length: None, chunked: false };
        let fits = |lines: &[(&str, &str)], framing: Framing| {
            let mut said = ContentFields::default();
            for (name, value) in lines {
                said.note(Known::from_bytes(name.as_bytes()), value.as_bytes());
            }
            framing.fits(said)
        };
        assert!(fits(&[], none));
        assert!(fits(&[("content-length", "5")], known));
        assert!(fits(&[("Content-Length", "0")], none));
        assert!(fits(&[("Transfer-Encoding", "Chunked"), ("X", "y")], chunked));
        assert!(!fits(&[], known) && !fits(&[], chunked));
        assert!(!fits(&[("Content-Length", "6")], known));
        assert!(!fits(&[("Content-Length", "x")], none));
        assert!(!fits(&[("Content-Length", "5"), ("Content-Length", "5")], known));
        assert!(!fits(&[("Content-Length", "5"), ("Transfer-Encoding", "chunked")], chunked));
        assert!(!fits(&[("Transfer-Encoding", "gzip")], chunked));
        assert!(!fits(&[("Transfer-Encoding", "chunked")], known));
    }
}
