//! The head of the request to a server. nginx: `ngx_http_proxy_create_request`.
//!
//! What the client sent is never copied where it could change the framing: `Content-Length`,
//! `Transfer-Encoding`, `Connection` and the headers it names are ours to write (RFC 9110 section
//! 7.6.1, RFC 9112 section 11.2).

use bytes::BufMut;
use nowait_h1::encode::HeadWriter;
use nowait_message::{Fields, Known};

use crate::modules::proxy::conf::{HttpVersion, ProxyConf};
use crate::request::Request;
use crate::upstream::Wanted;

/// The framing of the content as announced by the head.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// `Content-Length`
    pub length: Option<u64>,
    /// `Transfer-Encoding: chunked`
    pub chunked: bool,
}

/// Whether the written head announces its content correctly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It does.
    Sound,
    /// `proxy_set_header` announces the content differently: however the server interprets that,
    /// the connection can't be reused.
    Doubtful,
}

/// Appends the head. `framing` is that of the content after it.
pub fn write<B: BufMut>(
    request: &Request,
    conf: &ProxyConf,
    wanted: &Wanted,
    uri: &[u8],
    framing: Framing,
    out: &mut B,
) -> Written {
    let http11 = conf.http_version == HttpVersion::Http11;
    let given;
    let method = match (wanted.method, &conf.method) {
        (Some(method), _) => method.as_bytes(),
        (None, Some(text)) => {
            given = request.evaluate(text);
            &given
        }
        (None, None) => request.method_name(),
    };
    let mut writer = HeadWriter::request(out, method, uri, http11);
    host(request, conf, http11, &mut writer);
    let mut said = Said::default();
    for line in &conf.headers.lines {
        let value = request.evaluate(&line.value);
        if !value.is_empty() {
            said.note(&line.name, &value);
            writer.field(&line.name, &value);
        }
    }
    if let Some(length) = framing.length.filter(|_| !conf.headers.sets(Known::ContentLength)) {
        said.length = Some(Some(length));
        writer.field_number("Content-Length", length);
    }
    if framing.chunked && !conf.headers.sets(Known::TransferEncoding) {
        said.chunked = true;
        writer.lines("Transfer-Encoding: chunked\r\n");
    }
    let (range, if_range) = match &wanted.rest {
        Some((range, validator)) => (Some(range), Some(validator)),
        None => (None, None),
    };
    for (name, value) in [
        ("If-Modified-Since", wanted.if_modified_since.as_ref()),
        ("If-None-Match", wanted.if_none_match.as_ref()),
        ("Range", range),
        ("If-Range", if_range),
    ] {
        if let Some(value) = value
            && !conf
                .headers
                .replaced(false)
                .contains(name.as_bytes(), Known::from_bytes(name.as_bytes()))
        {
            writer.named(name, value);
        }
    }
    if conf.backend.pass_request_headers {
        pass(request.head.fields(), conf, wanted, &mut writer);
    }
    writer.finish();
    if said.fits(framing) { Written::Sound } else { Written::Doubtful }
}

/// The header fields about the content.
#[derive(Debug, Default)]
struct Said {
    /// `Content-Length`, and its value if that is a number.
    length: Option<Option<u64>>,
    /// `Transfer-Encoding: chunked`
    chunked: bool,
    /// Any other field about it.
    other: bool,
}

impl Said {
    fn note(&mut self, name: &[u8], value: &[u8]) {
        match Known::from_bytes(name) {
            Some(Known::ContentLength) => {
                self.other |= self.length.is_some();
                self.length = Some(nowait_conf::number(value));
            }
            Some(Known::TransferEncoding) => {
                let again = std::mem::replace(&mut self.chunked, true);
                self.other |= again || !value.eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
    }

    /// Whether the fields match the framing.
    fn fits(&self, framing: Framing) -> bool {
        if self.other || self.chunked != framing.chunked {
            return false;
        }
        match (self.length, framing.length) {
            (None, length) => framing.chunked || length.unwrap_or(0) == 0,
            (Some(said), length) => !framing.chunked && said == Some(length.unwrap_or(0)),
        }
    }
}

/// `Host`: as set, otherwise `$proxy_host`. HTTP/1.1 requires one.
fn host<B: BufMut>(
    request: &Request,
    conf: &ProxyConf,
    http11: bool,
    writer: &mut HeadWriter<'_, B>,
) {
    let given = conf.headers.host.as_ref().map(|text| request.evaluate(text));
    let host = match given {
        Some(host) if !host.is_empty() => host,
        Some(_) if !http11 => return,
        _ => match super::context::destination(request) {
            Some(destination) => destination.host_header.clone(),
            None => return,
        },
    };
    writer.named("Host", &host);
}

/// Passes the client's header fields on, except those that are written anew or concern the
/// connection to the client.
fn pass<B: BufMut>(
    fields: Fields<'_>,
    conf: &ProxyConf,
    wanted: &Wanted,
    writer: &mut HeadWriter<'_, B>,
) {
    let replaced = conf.headers.replaced(wanted.for_cache);
    let nominates = fields.all(Known::Connection).any(nominates);
    for field in fields.iter() {
        if replaced.contains(field.name, field.known) {
            continue;
        }
        // nginx differs: it passes them on. RFC 9110 section 7.6.1: "Intermediaries MUST parse a
        // received Connection header field before a message is forwarded and, for each
        // connection-option in this field, remove any header or trailer field(s) from the message
        // with the same name as the connection-option".
        if nominates && is_nominated(fields, field.name) {
            continue;
        }
        writer.field(field.name, field.value);
    }
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii)
}

/// Whether `Connection` names header fields besides its usual values.
fn nominates(value: &[u8]) -> bool {
    tokens(value).any(|token| {
        !(token.eq_ignore_ascii_case(b"close")
            || token.eq_ignore_ascii_case(b"keep-alive")
            || token.eq_ignore_ascii_case(b"upgrade")
            || token.is_empty())
    })
}

fn is_nominated(fields: Fields<'_>, name: &[u8]) -> bool {
    fields.all(Known::Connection).flat_map(tokens).any(|token| token.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_names_headers() {
        assert!(!nominates(b"close, Keep-Alive,upgrade"));
        assert!(nominates(b"keep-alive, X-Hop"));
    }

    #[test]
    fn announced_content_must_match_the_framing() {
        let known = Framing { length: Some(5), chunked: false };
        let chunked = Framing { length: None, chunked: true };
        let none = Framing { length: None, chunked: false };
        let fits = |lines: &[(&str, &str)], framing| {
            let mut said = Said::default();
            lines.iter().for_each(|(name, value)| said.note(name.as_bytes(), value.as_bytes()));
            said.fits(framing)
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
