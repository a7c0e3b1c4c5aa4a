//! The three kinds of line of a head: request line, status line, field line.
//!
//! Each parser scans the available bytes from left to right and returns [`ParsedLine::Partial`] at their
//! end, so that a malformed beginning is rejected at once (a TLS hello sent to a plain port must
//! not wait for a line feed), and the result for a line does not depend on how it was split.

use crate::Limits;
use crate::error::{RequestError, ResponseError};
use nowait_message::scan::{find_control, find_line_end, find_unusual, trim_end};
use nowait_message::uri::{Shape, is_served_scheme};
use nowait_message::{ControlData, Known, Method, Span, TargetForm, Version};

/// Result of parsing a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedLine<T> {
    /// The whole line, and how many bytes it has, terminator included.
    Whole(T, usize),
    /// Valid so far.
    Partial,
}

type Parsed<T, E> = Result<ParsedLine<T>, E>;

/// Takes the next byte or returns `Partial`.
macro_rules! byte {
    ($bytes:expr, $at:expr) => {
        match $bytes.get($at) {
            Some(&c) => c,
            None => return Ok(ParsedLine::Partial),
        }
    };
}

/// Parses a request line (RFC 9112 section 3); spans count from its first byte, with nginx's leniency: several spaces between the
/// parts, spaces after the version, a bare line feed at the end.
///
/// Fills `line` in place; unless the result is [`ParsedLine::Whole`], it holds nothing of use.
pub(crate) fn request_line(bytes: &[u8], line: &mut ControlData) -> Parsed<(), RequestError> {
    *line = ControlData::default();
    let mut at = 0;
    // By far the most frequent method.
    if bytes.starts_with(b"GET ") {
        line.method = Method::Get;
        at = 3;
    } else {
        loop {
            match byte!(bytes, at) {
                b'A'..=b'Z' | b'_' | b'-' => at += 1,
                b' ' if at > 0 => break,
                _ => return Err(RequestError::InvalidMethod),
            }
        }
        line.method = Method::from_bytes(&bytes[..at]);
    }
    line.method_name = Span::new(0, at);
    while byte!(bytes, at) == b' ' {
        at += 1;
    }
    match target(bytes, at, line)? {
        ParsedLine::Whole((), end) => at = end,
        ParsedLine::Partial => return Ok(ParsedLine::Partial),
    }

    let after_target = at;
    while byte!(bytes, at) == b' ' {
        at += 1;
    }
    let end = match bytes[at] {
        b'H' if at > after_target => match version(bytes, at, line)? {
            ParsedLine::Whole((), end) => end,
            ParsedLine::Partial => return Ok(ParsedLine::Partial),
        },
        b'\r' | b'\n' => {
            line.version = Version::Http09;
            at
        }
        _ => return Err(RequestError::InvalidRequest),
    };
    let whole = match byte!(bytes, end) {
        b'\n' => end + 1,
        // A bare CR is refused (RFC 9112 section 2.2).
        b'\r' if byte!(bytes, end + 1) == b'\n' => end + 2,
        _ => return Err(RequestError::InvalidRequest),
    };
    if line.version == Version::Http09 && line.method != Method::Get {
        return Err(RequestError::InvalidMethodInHttp09);
    }
    line.line = Span::new(0, end);
    Ok(ParsedLine::Whole((), whole))
}

/// Parses the target at `start`; returns its end.
fn target(bytes: &[u8], start: usize, line: &mut ControlData) -> Parsed<(), RequestError> {
    let mut at = start;
    match bytes[start] {
        _ if line.method == Method::Connect => {
            line.form = TargetForm::Authority;
            match authority(bytes, at, line)? {
                ParsedLine::Whole((), end) => at = end,
                ParsedLine::Partial => return Ok(ParsedLine::Partial),
            }
            if bytes[at] != b' ' || !has_port(line.authority.of(bytes)) {
                return Err(RequestError::InvalidRequest);
            }
        }
        b'/' => match path(bytes, at, line)? {
            ParsedLine::Whole((), end) => at = end,
            ParsedLine::Partial => return Ok(ParsedLine::Partial),
        },
        c if c.is_ascii_alphabetic() => {
            line.form = TargetForm::Absolute;
            while let b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.' =
                byte!(bytes, at)
            {
                at += 1;
            }
            line.scheme = Span::new(start, at);
            for expected in *b"://" {
                if byte!(bytes, at) != expected {
                    return Err(RequestError::InvalidRequest);
                }
                at += 1;
            }
            // nginx differs: it accepts any scheme, and treats it as HTTP.
            if !is_served_scheme(line.scheme.of(bytes)) {
                return Err(RequestError::InvalidRequest);
            }
            match authority(bytes, at, line)? {
                ParsedLine::Whole((), end) => at = end,
                ParsedLine::Partial => return Ok(ParsedLine::Partial),
            }
            match bytes[at] {
                b' ' => {}
                b'/' | b'?' => match path(bytes, at, line)? {
                    ParsedLine::Whole((), end) => at = end,
                    ParsedLine::Partial => return Ok(ParsedLine::Partial),
                },
                _ => return Err(RequestError::InvalidRequest),
            }
        }
        // nginx differs: it rejects the asterisk-form. Here the head reports it and `uri()` is not
        // a path, so a caller that does not check the form rejects it as well.
        b'*' if line.method == Method::Options => {
            line.form = TargetForm::Asterisk;
            at += 1;
            if byte!(bytes, at) != b' ' {
                return Err(RequestError::InvalidRequest);
            }
        }
        _ => return Err(RequestError::InvalidRequest),
    }
    line.target = Span::new(start, at);
    Ok(ParsedLine::Whole((), at))
}

fn has_port(authority: &[u8]) -> bool {
    let digits = authority.iter().rev().take_while(|c| c.is_ascii_digit()).count();
    let colon = authority.len().checked_sub(digits + 1);
    digits > 0 && colon.and_then(|at| authority.get(at)) == Some(&b':')
}

/// Path and query from `start`; ends before a space or line terminator.
//
// nginx differs: it accepts a fragment, which it removes from its own URI, but sends to upstream servers.
fn path(bytes: &[u8], start: usize, line: &mut ControlData) -> Parsed<(), RequestError> {
    let (shape, length) = Shape::scan(&bytes[start..]);
    let end = start + length;
    match byte!(bytes, end) {
        b' ' | b'\r' | b'\n' if !shape.has_fragment() => {}
        _ => return Err(RequestError::InvalidRequest),
    }
    line.uri = Span::new(start, end);
    line.shape = shape;
    Ok(ParsedLine::Whole((), end))
}

/// `host[:port]` from `start`; ends before the first byte that cannot belong to it.
/// [`nowait_message::host::validate`] judges the result.
fn authority(bytes: &[u8], start: usize, line: &mut ControlData) -> Parsed<(), RequestError> {
    let mut at = start;
    if byte!(bytes, at) == b'[' {
        at += 1;
        loop {
            match byte!(bytes, at) {
                b']' => break,
                b':' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')'
                | b'*' | b'+' | b',' | b';' | b'=' => at += 1,
                c if c.is_ascii_alphanumeric() => at += 1,
                _ => return Err(RequestError::InvalidRequest),
            }
        }
        at += 1;
    } else {
        while matches!(byte!(bytes, at), b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-') {
            at += 1;
        }
    }
    if byte!(bytes, at) == b':' {
        at += 1;
        while byte!(bytes, at).is_ascii_digit() {
            at += 1;
        }
    }
    line.authority = Span::new(start, at);
    Ok(ParsedLine::Whole((), at))
}

/// Parses `HTTP/1.x` at `start`; returns the position where the line terminator must be.
fn version(bytes: &[u8], start: usize, line: &mut ControlData) -> Parsed<(), RequestError> {
    // By far the most frequent beginning and end.
    if let Some(b"HTTP/1.1\r") = bytes.get(start..start + 9) {
        line.version = Version::Http11;
        line.protocol = Span::new(start, start + 8);
        return Ok(ParsedLine::Whole((), start + 8));
    }
    let mut at = start;
    for expected in *b"HTTP/" {
        if byte!(bytes, at) != expected {
            return Err(RequestError::InvalidRequest);
        }
        at += 1;
    }
    match byte!(bytes, at) {
        b'1' => at += 1,
        b'2'..=b'9' => return Err(RequestError::InvalidVersion),
        _ => return Err(RequestError::InvalidRequest),
    }
    match byte!(bytes, at) {
        b'.' => at += 1,
        b'0'..=b'9' => return Err(RequestError::InvalidVersion),
        _ => return Err(RequestError::InvalidRequest),
    }
    // nginx differs: it takes up to three digits. "HTTP-version = HTTP-name "/" DIGIT "." DIGIT"
    // (RFC 9112 section 2.3); a second digit fails as trailing garbage.
    line.version = match byte!(bytes, at) {
        b'0' => Version::Http10,
        b'1'..=b'9' => Version::Http11,
        _ => return Err(RequestError::InvalidRequest),
    };
    at += 1;
    line.protocol = Span::new(start, at);
    while byte!(bytes, at) == b' ' {
        at += 1;
    }
    Ok(ParsedLine::Whole((), at))
}

/// A field line or the end of the field section.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FieldLine {
    /// The empty line.
    End,
    /// A field; spans count from the beginning of the line.
    Field {
        name: Span,
        value: Span,
        /// The number of the name.
        known: Option<Known>,
        /// The name has characters that nginx calls invalid but lets pass on demand.
        odd: bool,
    },
}

/// Position of the error in a malformed field line: the offset of the first invalid byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadField(pub(crate) usize);

const NAME: u8 = 0;
const UNDERSCORE: u8 = 1;
const COLON: u8 = 2;
const ODD: u8 = 3;
const BAD: u8 = 4;

const NAME_CLASS: [u8; 256] = {
    let mut class = [ODD; 256];
    let mut i = 0;
    while i < 256 {
        let c = i as u8;
        if c.is_ascii_alphanumeric() || c == b'-' {
            class[i] = NAME;
        } else if c <= b' ' || c == 0x7f {
            class[i] = BAD;
        }
        i += 1;
    }
    class[b'_' as usize] = UNDERSCORE;
    class[b':' as usize] = COLON;
    class
};

/// Parses a field line (RFC 9112 section 5). A line that begins with white space (obs-fold,
/// section 5.2), white space before the colon (section 5.1), bare CR and NUL are refused; other
/// control characters in values are refused unless the limits allow them.
///
/// nginx differs: it takes a line without a colon as a field without value, lets several CRs
/// precede the line feed, does not trim tabs, and lets control characters other than NUL pass in
/// the values of requests.
pub(crate) fn field_line(bytes: &[u8], limits: &Limits) -> Parsed<FieldLine, BadField> {
    let mut odd = false;
    let mut at = 0;
    let name_end = loop {
        // The characters that make up nearly all names.
        at += bytes[at..].iter().take_while(|&&c| NAME_CLASS[c as usize] == NAME).count();
        match NAME_CLASS[byte!(bytes, at) as usize] {
            NAME => {}
            UNDERSCORE => odd |= !limits.underscores_in_headers,
            ODD => odd = true,
            COLON if at > 0 => break at,
            BAD if at == 0 && bytes[0] == b'\n' => return Ok(ParsedLine::Whole(FieldLine::End, 1)),
            BAD if at == 0 && bytes[0] == b'\r' => {
                return match byte!(bytes, 1) {
                    b'\n' => Ok(ParsedLine::Whole(FieldLine::End, 2)),
                    _ => Err(BadField(1)),
                };
            }
            _ => return Err(BadField(at)),
        }
        at += 1;
    };
    at += 1;
    while matches!(byte!(bytes, at), b' ' | b'\t') {
        at += 1;
    }
    // "Field values containing other CTL characters are also invalid" (RFC 9110 section 5.5).
    let line_end = match limits.control_characters {
        false => find_control(bytes, at),
        true => find_line_end(bytes, at),
    };
    let Some(line_end) = line_end else { return Ok(ParsedLine::Partial) };
    let next = match bytes[line_end] {
        b'\n' => line_end + 1,
        b'\r' if byte!(bytes, line_end + 1) == b'\n' => line_end + 2,
        b'\r' => return Err(BadField(line_end + 1)),
        _ => return Err(BadField(line_end)),
    };
    let name = Span::new(0, name_end);
    let known = Known::from_bytes(name.of(bytes));
    let value = Span::new(at, trim_end(bytes, at, line_end));
    Ok(ParsedLine::Whole(FieldLine::Field { name, value, known, odd }, next))
}

/// A field line in the form of nearly all: a name without odd characters, one space, a value without
/// control characters that needs no trimming, CRLF or, from many applications behind CGI, a line feed.
pub(crate) struct PlainLine {
    pub(crate) known: Option<Known>,
    /// The end of the name.
    pub(crate) name_end: usize,
    /// The end of the value.
    pub(crate) end: usize,
    /// The end of the line.
    pub(crate) next: usize,
}

/// The length of the colon and the space after a name.
pub(crate) const COLON_SPACE: usize = 2;

/// The plain line that begins `bytes`. `None`: [`field_line`] decides. Accepted lines have the same result
/// in both.
#[inline(always)]
pub(crate) fn plain_line(bytes: &[u8]) -> Option<PlainLine> {
    let (known, name_end) = match Known::before_colon(bytes) {
        // Its characters need no other check.
        Some((known, end)) => (Some(known), end),
        None => (None, plain_name(bytes)?),
    };
    let rest = bytes.get(name_end..)?.strip_prefix(b": ")?;
    let (value, rest) = rest.split_at_checked(find_unusual(rest)?)?;
    let (&first, &last) = (value.first()?, value.last()?);
    let end = name_end + COLON_SPACE + value.len();
    let next = match rest {
        [b'\r', b'\n', ..] => end + 2,
        [b'\n', ..] => end + 1,
        _ => return None,
    };
    (first > b' ' && last > b' ').then_some(PlainLine { known, name_end, end, next })
}

/// The end of a name without odd characters that is not a known one.
#[inline(never)]
fn plain_name(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|&c| NAME_CLASS[c as usize] != NAME)?;
    (end > 0 && bytes[end] == b':').then_some(end)
}

/// A parsed status line; spans count from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StatusLine {
    pub(crate) version: Version,
    pub(crate) status: u16,
    /// The text after the code, may be empty.
    pub(crate) reason: Span,
}

/// What SHOUTcast servers send instead of an HTTP version.
const ICY: &[u8; 4] = b"ICY ";

/// Parses a status line (RFC 9112 section 4), HTTP/1.x only. `icy`: or `ICY 200 OK`, which is read as
/// HTTP/1.0.
pub(crate) fn status_line(bytes: &[u8], icy: bool) -> Parsed<StatusLine, ResponseError> {
    const BAD: ResponseError = ResponseError::InvalidStatusLine;
    let (version, mut at) = match bytes.first_chunk::<9>() {
        // By far the most frequent beginning.
        Some(b"HTTP/1.1 ") => (Version::Http11, 9),
        _ if icy && bytes.starts_with(ICY) => (Version::Http10, ICY.len()),
        _ if icy && ICY.starts_with(bytes) => return Ok(ParsedLine::Partial),
        _ => match status_version(bytes)? {
            ParsedLine::Whole(version, end) => (version, end),
            ParsedLine::Partial => return Ok(ParsedLine::Partial),
        },
    };
    while byte!(bytes, at) == b' ' {
        at += 1;
    }
    let mut status = 0;
    for _ in 0..3 {
        match byte!(bytes, at) {
            c @ b'0'..=b'9' => status = status * 10 + u16::from(c - b'0'),
            _ => return Err(BAD),
        }
        at += 1;
    }
    // "403.1 ...": an old IIS habit that nginx lets pass.
    if status < 100 || !matches!(byte!(bytes, at), b' ' | b'.' | b'\r' | b'\n') {
        return Err(BAD);
    }
    let Some(line_end) = find_line_end(bytes, at) else { return Ok(ParsedLine::Partial) };
    let next = match bytes[line_end] {
        b'\n' => line_end + 1,
        b'\r' if byte!(bytes, line_end + 1) == b'\n' => line_end + 2,
        _ => return Err(BAD),
    };
    let reason = Span::new((at + 1).min(line_end), line_end);
    Ok(ParsedLine::Whole(StatusLine { version, status, reason }, next))
}

/// Parses the version in a status line, and the space after it.
fn status_version(bytes: &[u8]) -> Parsed<Version, ResponseError> {
    const BAD: ResponseError = ResponseError::InvalidStatusLine;
    const BEGIN: &[u8; 7] = b"HTTP/1.";
    let mut at = BEGIN.len();
    if bytes.first_chunk() != Some(BEGIN) {
        return if BEGIN.starts_with(bytes) { Ok(ParsedLine::Partial) } else { Err(BAD) };
    }
    let mut minor = 0u16;
    while let c @ b'0'..=b'9' = byte!(bytes, at) {
        if minor > 99 {
            return Err(BAD);
        }
        minor = minor * 10 + u16::from(c - b'0');
        at += 1;
    }
    if at == BEGIN.len() || bytes[at] != b' ' {
        return Err(BAD);
    }
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    Ok(ParsedLine::Whole(version, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever byte of a line is changed, and wherever it is cut: if it is plain, both parsers agree.
    #[test]
    fn plain_lines_are_parsed_like_others() {
        let lines = [
            "Host: example.org\r\n",
            "accept: */*\r\n\r\n",
            "X-Something-Longer-Than-Known-Names: some value\r\nA: b\r\n",
            "Content-Type: text/plain\nA: b\n",
            "If-Unmodified-Since: \r\n\r\n",
        ];
        let interesting = b"\0\t\n\r :;A_a-\x0b\x7f\x80";
        let mut plain = 0;
        for control_characters in [false, true] {
            let limits = Limits { control_characters, ..Limits::default() };
            for (line, cut) in
                lines.iter().flat_map(|line| (0..=line.len()).map(move |n| (line, n)))
            {
                for (at, byte) in (0..cut).flat_map(|at| interesting.map(move |byte| (at, byte))) {
                    let mut line = line.as_bytes()[..cut].to_vec();
                    line[at] = byte;
                    let Some(PlainLine { known, name_end, end, next }) = plain_line(&line) else {
                        continue;
                    };
                    let name = Span::new(0, name_end);
                    let value = Span::new(name_end + COLON_SPACE, end);
                    let field = FieldLine::Field { name, value, known, odd: false };
                    assert_eq!(
                        field_line(&line, &limits),
                        Ok(ParsedLine::Whole(field, next)),
                        "{line:?}"
                    );
                    plain += 1;
                }
            }
        }
        assert!(plain > 1000, "{plain}");
    }
}
