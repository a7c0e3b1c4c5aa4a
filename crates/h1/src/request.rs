//! The head of a request, validated: handlers may rely on it without further checks.
//!
//! Filled by [`crate::server::Connection`]. It owns its bytes, so the receive buffer returns to the
//! runtime at once; [`RequestHead::recycle`] prepares it for the next request without freeing
//! memory, unless an unusually large head grew it.

use crate::error::RequestError;
use crate::fields::{FieldTable, Span};
use crate::line::{Line, RequestLine, request_line};
use crate::reader::{FieldSpans, Head};
use crate::{BodyLength, Fields, Limits, TargetForm, Version};
use nowait_message::name::Known;
use nowait_message::scan::{decimal, list};
use nowait_message::uri::{Normalized, UriError, normalize_scanned};
use nowait_message::{Method, host};

/// A recycled head keeps at most this many bytes and fields of capacity.
pub(crate) const RECYCLED_BYTES_MAX: usize = 8192;
pub(crate) const RECYCLED_FIELDS_MAX: usize = 128;

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

/// A request head. Before it is complete, and after an error, the accessors return the part read so
/// far.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// The head as it was sent, then the host name in lower case if it was not.
    bytes: Vec<u8>,
    fields: FieldTable,
    /// The first of the fields that were dropped.
    ignored: Vec<Span>,
    read: Read,
}

/// The parsed part, apart from the memory that is reused.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    line: RequestLine,
    has_line: bool,
    /// The target can't be normalised.
    refused: bool,
    length: usize,
    host: Span,
    host_has_upper: bool,
    host_port: u16,
    content_length: Option<u64>,
    chunked: bool,
    connection: ConnectionTokens,
    ignored_fields: u32,
    error_line: Span,
    error_byte: Option<u8>,
}

impl RequestHead {
    /// An empty head; allocates nothing.
    pub fn new() -> Self {
        RequestHead::default()
    }

    /// Empties the head for the next request and keeps its memory.
    pub fn recycle(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > RECYCLED_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.fields.clear();
        self.fields.shrink(RECYCLED_FIELDS_MAX);
        self.ignored.clear();
        self.read = Read::default();
    }

    /// The method; [`RequestHead::method_bytes`] has the token of an unknown one. Of a malformed
    /// request line, what it begins with.
    pub fn method(&self) -> Method {
        if !self.is_malformed() {
            return self.read.line.method;
        }
        let token = self.bytes.split(|&c| c == b' ').next().unwrap_or_default();
        Method::from_bytes(token)
    }

    /// Whether something has come that is not, or not yet, a well-formed request line. There is no
    /// URI then.
    pub fn is_malformed(&self) -> bool {
        !self.read.has_line && !self.bytes.is_empty()
    }

    /// The target turned out to be malformed: as if the request line were.
    pub fn refuse_target(&mut self) {
        self.read.line.uri = Span::default();
        self.read.line.form = TargetForm::Origin;
        self.read.refused = true;
    }

    /// `$request_method`.
    pub fn method_bytes(&self) -> &[u8] {
        self.read.line.method_name.of(&self.bytes)
    }

    /// The target as sent, in any form.
    pub fn target(&self) -> &[u8] {
        self.read.line.target.of(&self.bytes)
    }

    /// The form of the target.
    pub fn target_form(&self) -> TargetForm {
        self.read.line.form
    }

    /// The raw path and query, `$request_uri`: `/` if the target has none; begins with `?` if
    /// only the path is missing; `*` in asterisk-form. Empty after a malformed request line.
    pub fn uri(&self) -> &[u8] {
        match self.read.line.form {
            _ if self.is_malformed() || self.read.refused => b"",
            TargetForm::Asterisk => b"*",
            _ if self.read.line.uri.is_empty() => b"/",
            _ => self.read.line.uri.of(&self.bytes),
        }
    }

    /// The path that locations see; respond to an error with [`RequestError::InvalidRequest`].
    pub fn normalize(&self, merge_slashes: bool) -> Result<Normalized<'_>, UriError> {
        if self.read.line.uri.is_empty() {
            return nowait_message::uri::normalize(self.uri(), merge_slashes);
        }
        normalize_scanned(self.uri(), self.read.line.shape, merge_slashes)
    }

    /// The scheme of an absolute-form target, empty otherwise.
    pub fn scheme(&self) -> &[u8] {
        self.read.line.scheme.of(&self.bytes)
    }

    /// The version, [`Version::Http11`] for all later minor versions; after a malformed request line
    /// [`Version::Http10`], which whoever sent it may understand.
    pub fn version(&self) -> Version {
        if self.is_malformed() { Version::Http10 } else { self.read.line.version }
    }

    /// `$server_protocol`: the version as it was sent, empty in HTTP/0.9.
    pub fn protocol(&self) -> &[u8] {
        self.read.line.protocol.of(&self.bytes)
    }

    /// `$request`: the request line without terminator; of a malformed one, the part received.
    pub fn request_line(&self) -> &[u8] {
        if self.read.has_line {
            return self.read.line.line.of(&self.bytes);
        }
        let end = self.bytes.iter().position(|&c| c == b'\r' || c == b'\n');
        &self.bytes[..end.unwrap_or(self.bytes.len())]
    }

    /// The length of the head in bytes, its empty line included; for `$request_length`. After an
    /// error, that of its complete lines.
    pub fn length(&self) -> usize {
        self.read.length
    }

    /// The validated host name, in lower case, without port and trailing dot: from the target,
    /// else from `Host`. `None` if there is neither.
    pub fn host(&self) -> Option<&[u8]> {
        (!self.read.host.is_empty()).then(|| self.read.host.of(&self.bytes))
    }

    /// The port that came with the host, 0 if none.
    pub fn host_port(&self) -> u16 {
        self.read.host_port
    }

    /// The value of the first field of this name.
    #[inline]
    pub fn header(&self, name: Known) -> Option<&[u8]> {
        self.fields().first(name)
    }

    /// The fields in the order received.
    #[inline]
    pub fn fields(&self) -> Fields<'_> {
        self.fields.view(&self.bytes)
    }

    /// The framing of the body.
    pub fn body_length(&self) -> BodyLength {
        match self.read.content_length {
            _ if self.read.chunked => BodyLength::Chunked,
            Some(0) | None => BodyLength::Empty,
            Some(length) => BodyLength::Known(length),
        }
    }

    /// The declared length; `Some(0)` differs from no declaration.
    pub fn content_length(&self) -> Option<u64> {
        self.read.content_length
    }

    /// The options of `Connection`.
    pub fn connection(&self) -> ConnectionTokens {
        self.read.connection
    }

    /// Whether the client lets the connection persist (RFC 9112 section 9.3).
    pub fn keep_alive(&self) -> bool {
        match self.read.line.version {
            Version::Http09 => false,
            Version::Http10 => self.read.connection.keep_alive && !self.read.connection.close,
            Version::Http11 => !self.read.connection.close,
        }
    }

    /// Whether the client waits for `100 Continue` (RFC 9110 section 10.1.1). Other expectations
    /// are ignored, as nginx does.
    pub fn expects_continue(&self) -> bool {
        self.read.line.version >= Version::Http11
            && self.header(Known::Expect).is_some_and(|v| v.eq_ignore_ascii_case(b"100-continue"))
    }

    /// The protocol requested by `Upgrade` together with `Connection: upgrade`.
    pub fn upgrade(&self) -> Option<&[u8]> {
        let asked = self.read.connection.upgrade && self.read.line.version >= Version::Http11;
        self.header(Known::Upgrade).filter(|_| asked)
    }

    /// How many fields with odd names were dropped (`ignore_invalid_headers`).
    pub fn ignored_fields(&self) -> u32 {
        self.read.ignored_fields
    }

    /// The first of the dropped fields as they were sent, for the log: "client sent invalid header
    /// line" at level info.
    pub fn ignored_lines(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ignored.iter().map(|line| line.of(&self.bytes))
    }

    /// After an error: the line at fault, up to the first bad byte.
    pub(crate) fn error_line(&self) -> &[u8] {
        self.read.error_line.of(&self.bytes)
    }

    /// After [`RequestError::InvalidHeaderLine`]: the first bad byte.
    pub(crate) fn error_byte(&self) -> Option<u8> {
        self.read.error_byte
    }

    /// Acts on a field that has meaning for the protocol itself.
    #[inline]
    fn interpret(&mut self, known: Known, bytes: &[u8], value: Span) -> Result<(), RequestError> {
        match known {
            Known::Host => {
                if self.fields.has(known) {
                    return Err(RequestError::DuplicateHost);
                }
                let parts =
                    host::validate(value.of(bytes)).map_err(|_| RequestError::InvalidHost)?;
                // "When an origin server receives a request with an absolute-form of
                // request-target, the origin server MUST ignore the received Host header field"
                // (RFC 9112 section 3.2.2).
                if self.read.host.is_empty() {
                    self.set_host(value, parts);
                }
            }
            Known::Connection => self.read.connection.add(value.of(bytes)),
            Known::ContentLength
            | Known::TransferEncoding
            | Known::IfModifiedSince
            | Known::IfUnmodifiedSince
            | Known::IfMatch
            | Known::IfNoneMatch
            | Known::IfRange
            | Known::ContentRange
            | Known::Expect
            | Known::Authorization
            | Known::ProxyAuthorization
                if self.fields.has(known) =>
            {
                return Err(RequestError::DuplicateHeader(known));
            }
            _ => {}
        }
        Ok(())
    }

    fn set_host(&mut self, whole: Span, parts: host::HostParts) {
        self.read.host = whole.sub(parts.name);
        self.read.host_port = parts.port;
        self.read.host_has_upper = parts.has_upper;
    }

    /// Host names are compared in lower case; the field keeps its own.
    fn lower_host(&mut self, bytes: &mut Vec<u8>) {
        if std::mem::take(&mut self.read.host_has_upper) {
            let start = bytes.len();
            bytes.extend_from_within(self.read.host.range());
            bytes[start..].make_ascii_lowercase();
            self.read.host = Span::new(start, bytes.len());
        }
    }

    /// The rules that tie fields together, in nginx's order.
    fn check_framing(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        let fields = self.fields.view(bytes);
        if self.read.line.version == Version::Http11 && fields.first(Known::Host).is_none() {
            return Err(RequestError::MissingHost);
        }
        if let Some(value) = fields.first(Known::ContentLength) {
            self.read.content_length =
                Some(decimal(value).ok_or(RequestError::InvalidContentLength)?);
        }
        if let Some(value) = fields.first(Known::TransferEncoding) {
            if self.read.line.version < Version::Http11 {
                return Err(RequestError::TransferEncodingInHttp10);
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(RequestError::UnknownTransferEncoding);
            }
            if self.read.content_length.is_some() {
                return Err(RequestError::ContentLengthAndTransferEncoding);
            }
            self.read.chunked = true;
        }
        Ok(())
    }
}

impl Head for RequestHead {
    type Error = RequestError;

    fn first_line(&mut self, bytes: &[u8]) -> Result<Line<()>, RequestError> {
        let (line, length) = match request_line(bytes)? {
            Line::Whole(line, length) => (line, length),
            Line::Partial => return Ok(Line::Partial),
        };
        self.read.line = line;
        self.read.has_line = true;
        if matches!(line.form, TargetForm::Absolute | TargetForm::Authority) {
            let parts = host::validate(line.authority.of(bytes))
                .map_err(|_| RequestError::InvalidHostInRequestLine)?;
            self.set_host(line.authority, parts);
        }
        Ok(Line::Whole((), length))
    }

    fn is_simple(&self) -> bool {
        self.read.line.version == Version::Http09
    }

    #[inline]
    fn field(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        field: FieldSpans,
    ) -> Result<(), RequestError> {
        if field.odd && limits.ignore_invalid_headers {
            self.read.ignored_fields += 1;
            if self.ignored.len() < IGNORED_LINES_MAX {
                self.ignored.push(field.name.to(field.value));
            }
            return Ok(());
        }
        if self.fields.len() >= usize::from(limits.headers_max) {
            return Err(RequestError::TooManyHeaders);
        }
        let known = Known::from_bytes(field.name.of(bytes));
        if let Some(known) = known
            && let Err(error) = self.interpret(known, bytes, field.value)
        {
            self.read.error_line = field.name.to(field.value);
            return Err(error);
        }
        self.fields.push(field.name, field.value, known);
        Ok(())
    }

    fn bad_field(&mut self, line: Span, bad: u8) -> RequestError {
        self.read.error_line = line;
        self.read.error_byte = Some(bad);
        RequestError::InvalidHeaderLine
    }

    fn too_long(&mut self, first: bool, line: Span) -> RequestError {
        self.read.error_line = line;
        if first { RequestError::UriTooLong } else { RequestError::HeaderLineTooLong }
    }

    fn finish(&mut self, bytes: &mut Vec<u8>) -> Result<(), RequestError> {
        self.read.length = bytes.len();
        if self.read.line.version != Version::Http09 {
            self.check_framing(bytes)?;
        }
        self.lower_host(bytes);
        Ok(())
    }

    fn give_up(&mut self, length: usize) {
        self.read.length = length;
        let mut bytes = std::mem::take(&mut self.bytes);
        self.lower_host(&mut bytes);
        self.bytes = bytes;
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}
