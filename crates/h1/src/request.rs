//! The parts of a request's head specific to HTTP/1.1: framing, the options of `Connection`, and lines for
//! the log. Kept by [`crate::server::Connection`], which fills a [`RequestHead`].

use crate::error::RequestError;
use crate::line::{ParsedLine, request_line};
use crate::reader::{FieldSpans, HeadLines};
use crate::{BodyLength, Limits};
use nowait_message::name::Known;
use nowait_message::scan::{is_token, list};
use nowait_message::{
    ControlData, FieldError, FieldPosition, RequestHead, Span, TargetForm, Version,
};

/// Number of dropped fields that are kept for the log.
const IGNORED_LINES_MAX: usize = 16;

/// The options of `Connection` that the server acts on (RFC 9110 section 7.6.1).
///
// nginx differs: it looks for "close" and "keep-alive" anywhere in the value, and the last field
// decides. Here they are tokens, and `close` wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionTokens {
    /// `close`
    pub close: bool,
    /// `keep-alive`
    pub keep_alive: bool,
    /// `upgrade`
    pub upgrade: bool,
}

impl ConnectionTokens {
    pub(crate) fn add(&mut self, value: &[u8]) {
        // By far the most frequent values.
        match value {
            b"keep-alive" => return self.keep_alive = true,
            b"close" => return self.close = true,
            _ => {}
        }
        for token in list(value) {
            self.close |= token.eq_ignore_ascii_case(b"close");
            self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
        }
    }
}

/// The state of a request besides its head.
#[derive(Debug, Default)]
pub(crate) struct RequestFraming {
    chunked: bool,
    /// The start of the fields.
    fields_at: u32,
    pub(crate) options: ConnectionTokens,
    /// Lines for the log; few requests have any.
    pub(crate) odd: Option<Box<OddLines>>,
}

/// Lines that are only logged, as spans of the head's text.
#[derive(Debug, Default)]
pub(crate) struct OddLines {
    /// The number of dropped fields.
    pub(crate) ignored: u32,
    /// The first of them.
    pub(crate) lines: Vec<Span>,
    /// The line at fault, up to the first bad byte.
    pub(crate) error: Span,
    pub(crate) error_byte: Option<u8>,
}

impl RequestFraming {
    /// The framing of the body.
    pub(crate) fn body_length(&self, head: &RequestHead) -> BodyLength {
        match head.content_length() {
            _ if self.chunked => BodyLength::Chunked,
            Some(0) | None => BodyLength::Empty,
            Some(length) => BodyLength::Known(length),
        }
    }

    /// Whether the client allows the connection to persist (RFC 9112 section 9.3).
    pub(crate) fn keep_alive(&self, version: Version) -> bool {
        match version {
            Version::Http09 => false,
            Version::Http10 => self.options.keep_alive && !self.options.close,
            _ => !self.options.close,
        }
    }

    fn fail(&mut self, line: Span, byte: Option<u8>) {
        let odd = self.odd.get_or_insert_default();
        (odd.error, odd.error_byte) = (line, byte);
    }

    /// The rules that tie fields together, in nginx's order.
    fn check(&mut self, head: &mut RequestHead, length: usize) -> Result<(), RequestError> {
        let version = head.version();
        if version == Version::Http11 && head.header(Known::Host).is_none() {
            return Err(RequestError::MissingHost);
        }
        head.finish(length)?;
        for value in head.fields().all(Known::Connection) {
            self.options.add(value);
        }
        if let Some(value) = head.header(Known::TransferEncoding) {
            if version < Version::Http11 {
                return Err(RequestError::TransferEncodingInHttp10);
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(RequestError::UnknownTransferEncoding);
            }
            if head.content_length().is_some() {
                return Err(RequestError::ContentLengthAndTransferEncoding);
            }
            self.chunked = true;
        }
        // Dropped lines are logged for each request: they have to be found again.
        if self.odd.is_none() {
            head.allow_reuse(self.fields_at as usize);
        }
        Ok(())
    }
}

impl From<FieldError> for RequestError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::DuplicateHost => RequestError::DuplicateHost,
            FieldError::Duplicate(name) => RequestError::DuplicateHeader(name),
            FieldError::InvalidHost => RequestError::InvalidHost,
            FieldError::InvalidContentLength => RequestError::InvalidContentLength,
        }
    }
}

impl RequestHeadReader<'_> {
    /// "field-name = token" (RFC 9110 section 5.1).
    //
    // nginx differs: it drops other names, or passes them on if `ignore_invalid_headers` is off.
    #[cold]
    fn check_name(&mut self, bytes: &[u8], field: &FieldSpans) -> Result<(), RequestError> {
        let name = field.name.of(bytes);
        let Some(bad) = name.iter().position(|octet| !is_token(std::slice::from_ref(octet))) else {
            return Ok(());
        };
        let line = field.name.part(0..bad);
        self.framing.fail(line, name.get(bad).copied());
        Err(RequestError::InvalidHeaderLine)
    }
}

/// A head that is being read.
pub(crate) struct RequestHeadReader<'a> {
    pub(crate) head: &'a mut RequestHead,
    pub(crate) framing: &'a mut RequestFraming,
    /// Whether the previous head was read with the same limits.
    pub(crate) same_limits: bool,
}

impl HeadLines for RequestHeadReader<'_> {
    type Error = RequestError;

    fn first_line(&mut self, bytes: &[u8]) -> Result<ParsedLine<()>, RequestError> {
        let control = self.head.control_mut();
        let read = request_line(bytes, control);
        let Ok(ParsedLine::Whole((), length)) = read else {
            *control = ControlData::default();
            return read;
        };
        let named = matches!(control.form, TargetForm::Absolute | TargetForm::Authority);
        let has_name = !control.authority.is_empty();
        let valid = self.head.accept_control(bytes);
        if valid.is_err() || (named && !has_name) {
            return Err(RequestError::InvalidHostInRequestLine);
        }
        self.framing.fields_at = length as u32;
        Ok(ParsedLine::Whole((), length))
    }

    fn is_simple(&self) -> bool {
        self.head.version() == Version::Http09
    }

    #[inline(always)]
    fn reuse_fields(&mut self, bytes: &[u8], start: usize) -> Option<usize> {
        if !self.same_limits || self.is_simple() {
            return None;
        }
        self.head.reuse_fields(bytes, start)
    }

    #[inline(always)]
    fn field(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        field: FieldSpans,
    ) -> Result<(), RequestError> {
        if field.odd {
            self.check_name(bytes, &field)?;
        }
        if field.odd && limits.ignore_invalid_headers {
            let odd = self.framing.odd.get_or_insert_default();
            odd.ignored += 1;
            if odd.lines.len() < IGNORED_LINES_MAX {
                odd.lines.push(field.name.to(field.value));
            }
            return Ok(());
        }
        if self.head.fields().len() >= usize::from(limits.headers_max) {
            return Err(RequestError::TooManyHeaders);
        }
        let FieldSpans { name, value, known, .. } = field;
        self.head.add(bytes, FieldPosition { name, value, known }).map_err(|error| {
            self.framing.fail(name.to(value), None);
            error.into()
        })
    }

    fn bad_field(&mut self, line: Span, bad: u8) -> RequestError {
        self.framing.fail(line, Some(bad));
        RequestError::InvalidHeaderLine
    }

    fn too_long(&mut self, first: bool, line: Span) -> RequestError {
        self.framing.fail(line, None);
        if first { RequestError::UriTooLong } else { RequestError::HeaderLineTooLong }
    }

    fn finish(&mut self, length: usize) -> Result<(), RequestError> {
        if self.is_simple() {
            return Ok(self.head.finish(length)?);
        }
        self.framing.check(self.head, length)
    }

    fn give_up(&mut self, length: usize) {
        self.head.give_up(length);
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        self.head.text_mut()
    }
}
