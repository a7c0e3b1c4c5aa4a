//! Checks for malformed messages (RFC 9113 section 8, whose rules RFC 9114 section 4 repeats): each field by
//! itself, by [`fault`], and field by field while a section is decoded, by [`HeadCheck`].
//!
//! "Intermediaries that process HTTP requests or responses MUST NOT forward a malformed request or
//! response": what passes here can be written as HTTP/1.1 without changing its meaning. Rules that
//! need two values at once (`:authority` against `Host`) are left to the code that keeps the values.

use nowait_message::scan;

use crate::{FieldLine, Malformed, Token};

/// The kind of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The head of a request.
    Request {
        /// `:protocol` was offered (RFC 8441, RFC 9220).
        extended_connect: bool,
    },
    /// The head of a response.
    Response,
    /// Trailers.
    Trailers {
        /// Names that are no tokens are refused, as in the heads of requests.
        only_tokens: bool,
    },
}

/// The parts of a head needed by the protocol itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadFacts {
    /// The status of a response.
    pub status: u16,
    /// `Content-Length`
    pub content_length: Option<u64>,
    /// The request makes a tunnel, whose DATA has no length.
    pub connect: bool,
}

const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const PATH: u8 = 4;
const AUTHORITY: u8 = 8;
const PROTOCOL: u8 = 16;
const STATUS: u8 = 32;

/// The check of one section.
#[derive(Debug)]
pub struct HeadCheck {
    expected: Expected,
    /// Pseudo-fields so far.
    seen: u8,
    /// A regular field has come.
    regular: bool,
    options: bool,
    asterisk: bool,
    has_length: bool,
    head: HeadFacts,
    /// The first fault.
    fault: Option<Malformed>,
}

impl HeadCheck {
    /// A check of a section that begins.
    pub fn new(expected: Expected) -> Self {
        HeadCheck {
            expected,
            seen: 0,
            regular: false,
            options: false,
            asterisk: false,
            has_length: false,
            head: HeadFacts::default(),
            fault: None,
        }
    }

    /// Checks one field; returns whether it may be passed on.
    #[inline]
    pub fn field(&mut self, field: &FieldLine<'_>) -> bool {
        let result = match field.name {
            [b':', ..] => self.pseudo(field),
            _ => self.regular(field),
        };
        if let Err(fault) = result {
            self.fault.get_or_insert(fault);
        }
        result.is_ok()
    }

    /// Checks the whole.
    pub fn finish(self) -> Result<HeadFacts, Malformed> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let has = |pseudo| self.seen & pseudo != 0;
        match self.expected {
            Expected::Trailers { .. } => {}
            Expected::Response if !has(STATUS) => return Err(Malformed::MissingStatus),
            Expected::Response => {}
            Expected::Request { .. } if !has(METHOD) => return Err(Malformed::MissingMethod),
            // "On requests that contain the :protocol pseudo-header field, the :scheme and :path
            // pseudo-header fields of the target URI MUST also be included" (RFC 8441 section 4).
            Expected::Request { .. } if self.head.connect && !has(PROTOCOL) => {
                if has(SCHEME | PATH) {
                    return Err(Malformed::ConnectWithTarget);
                }
                if !has(AUTHORITY) {
                    return Err(Malformed::MissingAuthority);
                }
            }
            Expected::Request { .. } => {
                if has(PROTOCOL) && !self.head.connect {
                    return Err(Malformed::UnexpectedProtocol);
                }
                if !has(SCHEME) {
                    return Err(Malformed::MissingScheme);
                }
                if !has(PATH) {
                    return Err(Malformed::MissingPath);
                }
                // "OPTIONS requests [...] MUST include a :path pseudo-header field with a value of
                // '*'": no other method has it.
                if self.asterisk && !self.options {
                    return Err(Malformed::InvalidPath);
                }
            }
        }
        Ok(self.head)
    }

    fn pseudo(&mut self, field: &FieldLine<'_>) -> Result<(), Malformed> {
        let value = field.value;
        let bit = match (field.token, self.expected) {
            (_, Expected::Trailers { .. }) => return Err(Malformed::PseudoInTrailers),
            (Token::STATUS, Expected::Response) => STATUS,
            (_, Expected::Response) => return Err(Malformed::UnknownPseudo),
            (Token::METHOD, _) => METHOD,
            (Token::SCHEME, _) => SCHEME,
            (Token::PATH, _) => PATH,
            (Token::AUTHORITY, _) => AUTHORITY,
            (Token::OTHER, Expected::Request { extended_connect: true })
                if field.name == b":protocol" =>
            {
                PROTOCOL
            }
            (Token::OTHER, _) if field.name == b":protocol" => {
                return Err(Malformed::UnexpectedProtocol);
            }
            _ => return Err(Malformed::UnknownPseudo),
        };
        // "All pseudo-header fields MUST appear in a field block before all regular field lines."
        if self.regular {
            return Err(Malformed::PseudoOutOfOrder);
        }
        // "The same pseudo-header field name MUST NOT appear more than once in a field block."
        if self.seen & bit != 0 {
            return Err(Malformed::DuplicatePseudo);
        }
        self.seen |= bit;
        if let Some(fault) = field.fault {
            return Err(fault);
        }
        match bit {
            METHOD => {
                self.head.connect = value == b"CONNECT";
                self.options = value == b"OPTIONS";
            }
            PATH => self.asterisk = value == b"*",
            STATUS => {
                let digit = |status, octet: &u8| status * 10 + u16::from(octet - b'0');
                self.head.status = value.iter().fold(0, digit);
            }
            _ => {}
        }
        Ok(())
    }

    fn regular(&mut self, field: &FieldLine<'_>) -> Result<(), Malformed> {
        self.regular = true;
        if let Some(fault) = field.fault {
            return Err(fault);
        }
        match field.token {
            // "HTTP/2 implementations SHOULD validate field names and values according to their
            // definitions" (RFC 9113 section 8.2.1). Heads are checked by their readers.
            Token::OTHER
                if self.expected == (Expected::Trailers { only_tokens: true })
                    && !scan::is_token(field.name) =>
            {
                Err(Malformed::InvalidName)
            }
            Token::CONTENT_LENGTH if !matches!(self.expected, Expected::Trailers { .. }) => {
                let length = scan::decimal(field.value).ok_or(Malformed::InvalidContentLength)?;
                self.head.content_length = Some(length);
                let repeated = std::mem::replace(&mut self.has_length, true);
                check(!repeated, Malformed::InvalidContentLength)
            }
            Token::TRANSFER_ENCODING => Err(Malformed::TransferEncoding),
            _ => Ok(()),
        }
    }
}

/// The reason why a field is malformed in any section.
pub fn fault(name: &[u8], value: &[u8], token: Token) -> Option<Malformed> {
    let result = match name {
        [b':', ..] => pseudo(name, value, token),
        _ => regular(name, value, token),
    };
    result.err()
}

fn pseudo(name: &[u8], value: &[u8], token: Token) -> Result<(), Malformed> {
    // Tokens are compared without case.
    if token != Token::OTHER && name != token.name() {
        return Err(Malformed::InvalidName);
    }
    match token {
        Token::METHOD => check(scan::is_token(value), Malformed::InvalidMethod),
        Token::SCHEME => check(is_scheme(value), Malformed::InvalidScheme),
        Token::PATH => {
            let origin = value.first() == Some(&b'/') || value == b"*";
            check(origin && scan::is_visible(value), Malformed::InvalidPath)
        }
        Token::AUTHORITY => check(scan::is_visible(value), Malformed::InvalidAuthority),
        Token::STATUS => {
            let valid = matches!(*value, [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9']);
            check(valid, Malformed::InvalidStatus)
        }
        // `:protocol`; there are no others.
        _ => check(scan::is_token(value), Malformed::UnexpectedProtocol),
    }
}

fn regular(name: &[u8], value: &[u8], token: Token) -> Result<(), Malformed> {
    // Tokens are compared without case; names of the static table are valid otherwise.
    let is_valid = match token {
        Token::OTHER => !name.is_empty() && name.iter().all(|&octet| is_name(octet)),
        token => name == token.name(),
    };
    if !is_valid {
        return Err(Malformed::InvalidName);
    }
    // "A field value MUST NOT contain the zero value (ASCII NUL, 0x00), line feed (ASCII LF, 0x0a),
    // or carriage return (ASCII CR, 0x0d) at any position", nor "start or end with an ASCII
    // whitespace character".
    let blank = |octet: Option<&u8>| matches!(octet, Some(b' ' | b'\t'));
    if blank(value.first())
        || blank(value.last())
        || !scan::is_one_line(value) && scan::find_line_end(value, 0).is_some()
    {
        return Err(Malformed::InvalidValue);
    }
    match (token, name) {
        // "An endpoint MUST NOT generate an HTTP/2 message containing connection-specific header
        // fields" (RFC 9113 section 8.2.2).
        (Token::OTHER, b"connection" | b"keep-alive" | b"proxy-connection" | b"upgrade") => {
            Err(Malformed::ConnectionField)
        }
        (Token::OTHER, b"te") => {
            check(value.eq_ignore_ascii_case(b"trailers"), Malformed::InvalidTe)
        }
        _ => Ok(()),
    }
}

/// Whether a field must not be sent in HTTP/2 or HTTP/3.
#[inline]
pub fn is_connection_specific(name: &[u8], value: &[u8]) -> bool {
    // By length first: most names are none of these.
    match name.len() {
        2 => name.eq_ignore_ascii_case(b"te") && !value.eq_ignore_ascii_case(b"trailers"),
        7 => name.eq_ignore_ascii_case(b"upgrade"),
        10 => name.eq_ignore_ascii_case(b"connection") || name.eq_ignore_ascii_case(b"keep-alive"),
        16 => name.eq_ignore_ascii_case(b"proxy-connection"),
        17 => name.eq_ignore_ascii_case(b"transfer-encoding"),
        _ => false,
    }
}

fn check(condition: bool, fault: Malformed) -> Result<(), Malformed> {
    if condition { Ok(()) } else { Err(fault) }
}

/// "A field name MUST NOT contain characters in the ranges 0x00-0x20, 0x41-0x5a, or 0x7f-0xff", and no
/// colon beyond a pseudo-field's first.
#[inline]
fn is_name(octet: u8) -> bool {
    matches!(octet, 0x21..=0x7e) && !octet.is_ascii_uppercase() && octet != b':'
}

/// RFC 3986 section 3.1.
fn is_scheme(value: &[u8]) -> bool {
    let [first, rest @ ..] = value else { return false };
    let inner = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'+' | b'-' | b'.');
    first.is_ascii_alphabetic() && rest.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(expected: Expected, fields: &[(&str, &str)]) -> Result<HeadFacts, Malformed> {
        let mut check = HeadCheck::new(expected);
        for (name, value) in fields {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            check.field(&FieldLine::new(name, value));
        }
        check.finish()
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "x")];

    fn request(more: &[(&str, &str)]) -> Result<HeadFacts, Malformed> {
        checked(Expected::Request { extended_connect: false }, &[&GET, more].concat())
    }

    #[test]
    fn requests() {
        use Malformed::*;
        assert!(request(&[("a", "b"), ("te", "Trailers"), ("cookie", "")]).is_ok());
        assert_eq!(request(&[("content-length", "12")]).unwrap().content_length, Some(12));
        for (field, fault) in [
            (("A", "b"), InvalidName),
            (("a b", ""), InvalidName),
            (("a:b", ""), InvalidName),
            (("a\u{e9}", ""), InvalidName),
            (("a\x7f", ""), InvalidName),
            (("Content-Length", "1"), InvalidName),
            (("a", "b\r"), InvalidValue),
            (("a", "b\nc"), InvalidValue),
            (("a", "\0"), InvalidValue),
            (("a", " b"), InvalidValue),
            (("a", "b\t"), InvalidValue),
            ((":path", "/"), DuplicatePseudo),
            ((":status", "200"), UnknownPseudo),
            ((":x", ""), UnknownPseudo),
            ((":protocol", "websocket"), UnexpectedProtocol),
            (("connection", "close"), ConnectionField),
            (("keep-alive", "1"), ConnectionField),
            (("proxy-connection", "x"), ConnectionField),
            (("upgrade", "h2c"), ConnectionField),
            (("transfer-encoding", "chunked"), TransferEncoding),
            (("te", "gzip"), InvalidTe),
            (("content-length", "-1"), InvalidContentLength),
            (("content-length", ""), InvalidContentLength),
        ] {
            assert_eq!(request(&[field]).unwrap_err(), fault, "{field:?}");
        }
        let twice = [("content-length", "1"), ("content-length", "1")];
        assert_eq!(request(&twice).unwrap_err(), InvalidContentLength);
        let late = [("a", "b"), (":authority", "x")];
        assert_eq!(request(&late).unwrap_err(), PseudoOutOfOrder);
    }

    #[test]
    fn pseudo_fields_of_requests() {
        use Malformed::*;
        let off = Expected::Request { extended_connect: false };
        let on = Expected::Request { extended_connect: true };
        let fields = |text: &'static str| -> Vec<(&str, &str)> {
            text.split(' ').filter_map(|field| field.split_once('=')).collect()
        };
        for (expected, text, fault) in [
            (off, "", Some(MissingMethod)),
            (off, ":method=GET :path=/", Some(MissingScheme)),
            (off, ":method=GET :scheme=http", Some(MissingPath)),
            (off, ":method=GET :scheme=http :path=/", None),
            (off, ":method= :scheme=http :path=/", Some(InvalidMethod)),
            (off, ":method=G@T :scheme=http :path=/", Some(InvalidMethod)),
            (off, ":method=GET :scheme= :path=/", Some(InvalidScheme)),
            (off, ":method=GET :scheme=ht%p :path=/", Some(InvalidScheme)),
            (off, ":method=GET :scheme=http :path=", Some(InvalidPath)),
            (off, ":method=GET :scheme=http :path=x", Some(InvalidPath)),
            (off, ":method=GET :scheme=http :path=*", Some(InvalidPath)),
            (off, ":method=OPTIONS :scheme=http :path=*", None),
            (off, ":method=CONNECT :authority=x:1", None),
            (off, ":method=CONNECT", Some(MissingAuthority)),
            (off, ":method=CONNECT :authority=x :path=/", Some(ConnectWithTarget)),
            (off, ":method=CONNECT :scheme=https :path=/ :protocol=w", Some(UnexpectedProtocol)),
            (on, ":method=CONNECT :scheme=https :path=/ :protocol=w :authority=x", None),
            (on, ":method=CONNECT :protocol=w :authority=x", Some(MissingScheme)),
            (on, ":method=GET :scheme=https :path=/ :protocol=w", Some(UnexpectedProtocol)),
        ] {
            assert_eq!(checked(expected, &fields(text)).err(), fault, "{text}");
        }
        let space = [(":method", "GET"), (":scheme", "http"), (":path", "/a b")];
        assert_eq!(checked(off, &space).unwrap_err(), InvalidPath);
    }

    #[test]
    fn responses_and_trailers() {
        use Malformed::*;
        let response = |status| checked(Expected::Response, &[(":status", status)]);
        assert_eq!(response("204").unwrap().status, 204);
        for status in ["", "20", "2000", "2x0", "099", "+20", "\u{e9}9"] {
            assert_eq!(response(status).unwrap_err(), InvalidStatus, "{status}");
        }
        assert_eq!(checked(Expected::Response, &[]).unwrap_err(), MissingStatus);
        let method = [(":status", "200"), (":method", "GET")];
        assert_eq!(checked(Expected::Response, &method).unwrap_err(), UnknownPseudo);
        let [loose, strict] = [false, true].map(|only_tokens| Expected::Trailers { only_tokens });
        for expected in [loose, strict] {
            assert!(checked(expected, &[("grpc-status", "0")]).is_ok());
            let status = [(":status", "200")];
            assert_eq!(checked(expected, &status).unwrap_err(), PseudoInTrailers);
            assert_eq!(checked(expected, &[("A", "0")]).unwrap_err(), InvalidName);
        }
        assert!(checked(loose, &[("a(b", "0")]).is_ok());
        assert_eq!(checked(strict, &[("a(b", "0")]).unwrap_err(), InvalidName);
    }
}
