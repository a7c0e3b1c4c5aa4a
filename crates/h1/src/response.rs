//! The head of an upstream's response. Filled by [`crate::client::Connection`].

use crate::error::ResponseError;
use crate::fields::{FieldTable, Place, Span};
use crate::line::{Line, StatusLine, status_line};
use crate::reader::{FieldSpans, Head};
use crate::request::{ConnectionTokens, RECYCLED_BYTES_MAX, RECYCLED_FIELDS_MAX};
use crate::{Fields, Limits, Version};
use nowait_message::name::Known;
use nowait_message::scan::decimal;

/// A response head: interim (1xx) or final.
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    bytes: Vec<u8>,
    fields: FieldTable,
    line: StatusLine,
    length: usize,
    content_length: Option<u64>,
    chunked: bool,
    connection: ConnectionTokens,
}

impl ResponseHead {
    /// An empty head; allocates nothing.
    pub fn new() -> Self {
        ResponseHead::default()
    }

    /// Empties the head for the next response and keeps its memory, unless it is large.
    pub fn recycle(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > RECYCLED_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.fields.clear();
        self.fields.shrink(RECYCLED_FIELDS_MAX);
        self.line = StatusLine::default();
        self.length = 0;
        self.content_length = None;
        self.chunked = false;
        self.connection = ConnectionTokens::default();
    }

    /// The status code, 100 to 999.
    pub fn status(&self) -> u16 {
        self.line.status
    }

    /// The text after the code, may be empty.
    pub fn reason(&self) -> &[u8] {
        self.line.reason.of(&self.bytes)
    }

    /// The version of the response.
    pub fn version(&self) -> Version {
        self.line.version
    }

    /// The length of the head in bytes, its empty line included.
    pub fn length(&self) -> usize {
        self.length
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

    /// The head as received, for callers that keep it beyond the next one.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the fields are in [`as_bytes`](Self::as_bytes), in the order they came.
    pub fn places(&self) -> &[Place] {
        self.fields.places()
    }

    /// The declared length. In a response to HEAD or a 304, it refers to a body that is not sent.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Whether the body is chunked.
    pub fn is_chunked(&self) -> bool {
        self.chunked
    }

    /// The options of `Connection`.
    pub fn connection(&self) -> ConnectionTokens {
        self.connection
    }

    /// Whether the upstream lets the connection persist (RFC 9112 section 9.3).
    pub fn keep_alive(&self) -> bool {
        match self.line.version {
            Version::Http11 => !self.connection.close,
            _ => self.connection.keep_alive && !self.connection.close,
        }
    }
}

impl Head for ResponseHead {
    type Error = ResponseError;

    fn first_line(&mut self, bytes: &[u8]) -> Result<Line<()>, ResponseError> {
        match status_line(bytes)? {
            Line::Whole(line, length) => {
                self.line = line;
                Ok(Line::Whole((), length))
            }
            Line::Partial => Ok(Line::Partial),
        }
    }

    fn is_simple(&self) -> bool {
        false
    }

    fn field(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        field: FieldSpans,
    ) -> Result<(), ResponseError> {
        if field.odd && limits.ignore_invalid_headers {
            return Ok(());
        }
        if self.fields.len() >= usize::from(limits.headers_max) {
            return Err(ResponseError::TooManyHeaders);
        }
        let known = Known::from_bytes(field.name.of(bytes));
        match known {
            Some(Known::Connection) => self.connection.add(field.value.of(bytes)),
            // Repeated framing is refused even if the values agree, as nginx does.
            Some(known @ (Known::ContentLength | Known::TransferEncoding))
                if self.fields.has(known) =>
            {
                return Err(ResponseError::DuplicateHeader(known));
            }
            _ => {}
        }
        self.fields.push(field.name, field.value, known);
        Ok(())
    }

    fn bad_field(&mut self, _: Span, _: u8) -> ResponseError {
        ResponseError::InvalidHeaderLine
    }

    fn too_long(&mut self, _: bool, _: Span) -> ResponseError {
        ResponseError::HeaderTooLarge
    }

    fn finish(&mut self, bytes: &mut Vec<u8>) -> Result<(), ResponseError> {
        self.length = bytes.len();
        let fields = self.fields.view(bytes);
        if let Some(value) = fields.first(Known::ContentLength) {
            self.content_length = Some(decimal(value).ok_or(ResponseError::InvalidContentLength)?);
        }
        if let Some(value) = fields.first(Known::TransferEncoding) {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(ResponseError::UnknownTransferEncoding);
            }
            if self.content_length.is_some() {
                return Err(ResponseError::ContentLengthAndTransferEncoding);
            }
            self.chunked = true;
        }
        Ok(())
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}
