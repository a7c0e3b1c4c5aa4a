//! The fields that directives set in the heads of requests in HTTP/1, `Host` first. What all requests of a
//! location have in common is text when the configuration has been read.

use bytes::Bytes;
use nowait_backend::conf::{RequestHeaders, SetHeader};
use nowait_h1::encode::{self, HeadWriter};
use nowait_http::request::Request;
use nowait_http::variables::complex::Complex;
use nowait_message::Known;
use nowait_message::scan::is_token;

/// The fields of a location, in order.
#[derive(Debug, Default)]
pub struct SetFields {
    pieces: Vec<Piece>,
    /// The content fields among the constant fields.
    said: ContentFields,
}

#[derive(Debug)]
enum Piece {
    /// Complete lines.
    Lines(Vec<u8>),
    /// `Host`, with a value that depends on the request.
    Host,
    /// Another field whose value depends on the request.
    Field {
        /// The name, a colon and a space.
        start: Vec<u8>,
        known: Option<Known>,
        value: Complex,
    },
}

impl SetFields {
    /// From the settings of a location. `server`: the `Host` of its server, unless that depends on the
    /// request; `needs_host`: the version of the protocol does.
    pub fn new(headers: &RequestHeaders, server: Option<&Bytes>, needs_host: bool) -> Self {
        let mut fields = Self::default();
        let mut lines = Vec::new();
        match constant_host(headers, server, needs_host) {
            Some(host) if host.is_empty() => {}
            Some(host) => {
                HeadWriter::resume(&mut lines).named("Host", host);
            }
            None => fields.pieces.push(Piece::Host),
        }
        // Other fields are never sent.
        let sent = headers.lines.iter().filter(|line| is_token(&line.name));
        for SetHeader { name, value } in sent {
            let known = Known::from_bytes(name);
            if let Some(value) = value.literal() {
                fields.said.note(known, value);
                HeadWriter::resume(&mut lines).field(name, value);
                continue;
            }
            fields.push_lines(&mut lines);
            let start = [name, &b": "[..]].concat();
            fields.pieces.push(Piece::Field { start, known, value: value.clone() });
        }
        fields.push_lines(&mut lines);
        fields
    }

    fn push_lines(&mut self, lines: &mut Vec<u8>) {
        if !lines.is_empty() {
            self.pieces.push(Piece::Lines(std::mem::take(lines)));
        }
    }

    /// Appends the fields for a request; `host` appends its `Host`. Returns the content fields among them.
    pub fn write(
        &self,
        request: &Request,
        out: &mut Vec<u8>,
        host: impl Fn(&mut Vec<u8>),
    ) -> ContentFields {
        let mut said = self.said;
        for piece in &self.pieces {
            match piece {
                Piece::Lines(lines) => out.extend_from_slice(lines),
                Piece::Host => host(out),
                Piece::Field { start, known, value } => {
                    let before = out.len();
                    out.extend_from_slice(start);
                    let from = out.len();
                    value.append(request, out);
                    if out.len() == from {
                        out.truncate(before);
                        continue;
                    }
                    said.note(*known, &out[from..]);
                    encode::clean(&mut out[from..]);
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
        said
    }
}

/// The value of `Host`, if it depends on no request; empty: there is no such field.
fn constant_host<'a>(
    headers: &'a RequestHeaders,
    server: Option<&'a Bytes>,
    needed: bool,
) -> Option<&'a Bytes> {
    match &headers.host {
        Some(text) => match text.literal() {
            Some(host) if host.is_empty() && needed => server,
            literal => literal,
        },
        None => server,
    }
}

/// The header fields about the content.
#[derive(Debug, Default, Clone, Copy)]
pub struct ContentFields {
    /// `Content-Length`, and its value if that is a number.
    pub length: Option<Option<u64>>,
    /// `Transfer-Encoding: chunked`
    pub chunked: bool,
    /// Any other field about it.
    pub other: bool,
}

impl ContentFields {
    /// Notes a field.
    pub fn note(&mut self, known: Option<Known>, value: &[u8]) {
        match known {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &'static str, value: &'static str) -> SetHeader {
        let name = Bytes::from_static(name.as_bytes());
        SetHeader { name, value: Complex::from_literal(value) }
    }

    /// The lines of these fields, and the content fields among them.
    fn constant(given: &[SetHeader], needs_host: bool) -> (String, ContentFields) {
        let server = Bytes::from_static(b"origin:81");
        let fields = SetFields::new(&RequestHeaders::new(given), Some(&server), needs_host);
        let text = match &fields.pieces[..] {
            [] => String::new(),
            [Piece::Lines(lines)] => String::from_utf8(lines.clone()).unwrap(),
            pieces => panic!("{pieces:?}"),
        };
        (text, fields.said)
    }

    #[test]
    fn constant_fields_are_one_text() {
        let lines = |given: &[SetHeader], needs_host| constant(given, needs_host).0;
        assert_eq!(lines(&[], true), "Host: origin:81\r\n");
        assert_eq!(lines(&[header("Host", "")], true), "Host: origin:81\r\n");
        assert_eq!(lines(&[header("Host", "")], false), "");
        let given = [header("X-A", "1\n2"), header("host", "b"), header("Connection", "")];
        assert_eq!(lines(&given, true), "Host: b\r\nX-A: 1 2\r\n");
        assert_eq!(lines(&[header("X(", "1")], false), "Host: origin:81\r\n");
        let (text, said) = constant(&[header("content-length", "5")], true);
        assert_eq!(text, "Host: origin:81\r\ncontent-length: 5\r\n");
        assert_eq!((said.length, said.chunked, said.other), (Some(Some(5)), false, false));
    }

    #[test]
    fn a_host_that_depends_on_the_request_comes_first() {
        let fields = SetFields::new(&RequestHeaders::new(&[header("X-A", "1")]), None, true);
        assert!(matches!(&fields.pieces[..], [Piece::Host, Piece::Lines(_)]));
    }
}
