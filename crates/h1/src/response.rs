//! The parts of a response's head specific to HTTP/1.1: framing, and the options of `Connection`. Kept by
//! [`crate::client::Connection`], which fills a [`ResponseBuilder`].

use crate::Limits;
use crate::error::ResponseError;
use crate::line::{ParsedLine, status_line};
use crate::reader::{FieldSpans, HeadLines};
use crate::request::ConnectionTokens;
use nowait_message::{FieldPosition, Known, ResponseBuilder, Span, Version};

/// The state of a response besides its head.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResponseFraming {
    /// The body is chunked.
    pub(crate) chunked: bool,
    options: ConnectionTokens,
}

impl ResponseFraming {
    /// Whether the upstream allows the connection to persist (RFC 9112 section 9.3).
    pub(crate) fn keep_alive(self, version: Version) -> bool {
        match version {
            Version::Http11 => !self.options.close,
            _ => self.options.keep_alive && !self.options.close,
        }
    }
}

/// A head that is being read.
pub(crate) struct ResponseHeadReader<'a> {
    pub(crate) head: &'a mut ResponseBuilder,
    pub(crate) framing: &'a mut ResponseFraming,
    /// Whether the status line may be that of SHOUTcast.
    pub(crate) icy: bool,
}

impl HeadLines for ResponseHeadReader<'_> {
    type Error = ResponseError;

    fn first_line(&mut self, bytes: &[u8]) -> Result<ParsedLine<()>, ResponseError> {
        match status_line(bytes, self.icy)? {
            ParsedLine::Whole(line, length) => {
                self.head.set_status(line.status, line.reason, line.version);
                Ok(ParsedLine::Whole((), length))
            }
            ParsedLine::Partial => Ok(ParsedLine::Partial),
        }
    }

    fn is_simple(&self) -> bool {
        false
    }

    #[inline(always)]
    fn field(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        field: FieldSpans,
    ) -> Result<(), ResponseError> {
        if field.odd && limits.ignore_invalid_headers {
            return Ok(());
        }
        if self.head.len() >= usize::from(limits.headers_max) {
            return Err(ResponseError::TooManyHeaders);
        }
        let FieldSpans { name, value, known, .. } = field;
        match known {
            Some(Known::Connection) => self.framing.options.add(value.of(bytes)),
            // Repeated framing is refused even if the values agree, as nginx does.
            Some(known @ (Known::ContentLength | Known::TransferEncoding))
                if self.head.has(known) =>
            {
                return Err(ResponseError::DuplicateHeader(known));
            }
            _ => {}
        }
        self.head.add(FieldPosition { name, value, known });
        Ok(())
    }

    fn bad_field(&mut self, _: Span, _: u8) -> ResponseError {
        ResponseError::InvalidHeaderLine
    }

    fn too_long(&mut self, _: bool, _: Span) -> ResponseError {
        ResponseError::HeaderTooLarge
    }

    fn finish(&mut self, length: usize) -> Result<(), ResponseError> {
        self.head.finish(length).map_err(|_| ResponseError::InvalidContentLength)?;
        if let Some(value) = self.head.known(Known::TransferEncoding) {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(ResponseError::UnknownTransferEncoding);
            }
            if self.head.content_length().is_some() {
                return Err(ResponseError::ContentLengthAndTransferEncoding);
            }
            self.framing.chunked = true;
        }
        Ok(())
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        self.head.text_mut()
    }
}
