//! The head of a response in the form of CGI (RFC 3875 section 6.2), which FastCGI, SCGI and uwsgi
//! share: field lines like those of HTTP, whose `Status` and `Location` take the place of a status
//! line.

use crate::line::{ParsedLine, status_line};
use crate::reader::{FieldSpans, HeadLines, HeadProgress};
use crate::{Limits, ResponseError};
use nowait_message::{FieldPosition, Known, ResponseBuilder, Span, Version};

/// Reads one head.
#[derive(Debug)]
pub struct HeadReader {
    reader: HeadProgress,
    limits: Limits,
    /// A status line may precede the fields.
    may_have_status_line: bool,
    /// There was one.
    has_status_line: bool,
}

impl HeadReader {
    /// Of a head of at most `max` bytes, which may begin with a status line.
    pub fn new(max: u32, may_have_status_line: bool) -> Self {
        let limits = Limits::one_buffer(max);
        let reader = match may_have_status_line {
            true => HeadProgress::new(&limits),
            false => HeadProgress::fields_only(&limits),
        };
        Self { reader, limits, may_have_status_line, has_status_line: false }
    }

    /// Reads a head into `head`, which must be the same one for all of it. Returns how much of the
    /// input belongs to the head, and whether the head is complete; while it is not, all input is
    /// consumed.
    ///
    /// # Errors
    /// The mistake of the application.
    pub fn receive(
        &mut self,
        head: &mut ResponseBuilder,
        input: &[u8],
    ) -> Result<(usize, bool), ResponseError> {
        let mut reading = CgiHeadReader {
            head,
            may_have_status_line: self.may_have_status_line,
            has_status_line: &mut self.has_status_line,
        };
        self.reader.receive(&mut reading, &self.limits, input)
    }
}

/// A head that is being read.
struct CgiHeadReader<'a> {
    head: &'a mut ResponseBuilder,
    may_have_status_line: bool,
    has_status_line: &'a mut bool,
}

impl CgiHeadReader<'_> {
    /// Takes the status that the fields state. nginx: the end of `ngx_http_fastcgi_process_header`.
    fn take_status(&mut self) -> Result<(), ResponseError> {
        let usual = if self.head.has(Known::Location) { 302 } else { 200 };
        let (status, reason) =
            match (self.head.known(Known::Status), self.head.place(Known::Status)) {
                (Some(value), Some(place)) => {
                    let digits =
                        value.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit));
                    let status =
                        digits.map(|d| d.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0')));
                    let status = status.filter(|status| *status >= 100);
                    let status = status.ok_or(ResponseError::InvalidStatus)?;
                    let skip = value[3..].iter().take_while(|b| **b == b' ').count() + 3;
                    (status, place.part(skip..value.len()))
                }
                _ => (usual, Span::default()),
            };
        let reason = match reason.of(self.head.text_mut()) {
            [] => {
                let text = self.head.text_mut();
                let start = text.len();
                text.extend_from_slice(reason_of(status).as_bytes());
                Span::new(start, text.len())
            }
            _ => reason,
        };
        self.head.set_status(status, reason, Version::Http11);
        Ok(())
    }
}

/// The usual reason of a status.
fn reason_of(status: u16) -> &'static str {
    nowait_message::status::reason(status).unwrap_or_default()
}

impl HeadLines for CgiHeadReader<'_> {
    type Error = ResponseError;

    const HAS_BARE_LINE_FEEDS: bool = true;

    fn first_line(&mut self, bytes: &[u8]) -> Result<ParsedLine<()>, ResponseError> {
        Ok(match status_line(bytes, false) {
            Ok(ParsedLine::Whole(line, length)) => {
                *self.has_status_line = true;
                self.head.set_status(line.status, line.reason, line.version);
                ParsedLine::Whole((), length)
            }
            Ok(ParsedLine::Partial) => ParsedLine::Partial,
            // It is a field already.
            Err(_) => ParsedLine::Whole((), 0),
        })
    }

    fn is_simple(&self) -> bool {
        false
    }

    fn may_follow_empty_lines(&self) -> bool {
        false
    }

    fn field(&mut self, _: &[u8], limits: &Limits, field: FieldSpans) -> Result<(), ResponseError> {
        let FieldSpans { name, value, known, odd } = field;
        if odd && limits.ignore_invalid_headers {
            return Ok(());
        }
        if self.head.len() >= usize::from(limits.headers_max) {
            return Err(ResponseError::TooManyHeaders);
        }
        if let Some(known @ (Known::ContentLength | Known::TransferEncoding)) = known
            && self.head.has(known)
        {
            return Err(ResponseError::DuplicateHeader(known));
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
        if self.head.has(Known::TransferEncoding) && self.head.has(Known::ContentLength) {
            return Err(ResponseError::ContentLengthAndTransferEncoding);
        }
        if !(self.may_have_status_line && *self.has_status_line) {
            self.take_status()?;
        }
        Ok(())
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        self.head.text_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, status_line: bool) -> Result<(u16, String, usize), ResponseError> {
        let mut whole = ResponseBuilder::new();
        let mut reader = HeadReader::new(4096, status_line);
        let result = reader.receive(&mut whole, text.as_bytes()).map(|(length, done)| {
            assert!(done, "{text:?}");
            let head = whole.take();
            (head.status, String::from_utf8_lossy(&head.reason).into_owned(), length)
        });
        let mut pieces = ResponseBuilder::new();
        let mut reader = HeadReader::new(4096, status_line);
        let mut cut = None;
        for at in 0..text.len() {
            match reader.receive(&mut pieces, &text.as_bytes()[at..=at]) {
                Ok((_, false)) => {}
                other => {
                    cut = Some(other.map(|_| (pieces.status(), at + 1)));
                    break;
                }
            }
        }
        let expected = result.as_ref().map(|(status, _, length)| (*status, *length));
        assert_eq!(cut.expect("it ends").as_ref(), expected.as_ref().map_err(|e| *e), "{text:?}");
        result
    }

    #[test]
    fn the_status_is_a_field() {
        let ok = |text: &str| {
            let (status, reason, length) = read(text, false).unwrap();
            assert_eq!(length, text.trim_end_matches("body").len());
            (status, reason)
        };
        let pair = |status, reason: &str| (status, reason.to_owned());
        assert_eq!(ok("Content-Type: a/b\n\nbody"), pair(200, "OK"));
        assert_eq!(ok("\nbody"), pair(200, "OK"));
        assert_eq!(ok("\r\nbody"), pair(200, "OK"));
        assert_eq!(ok("Status: 404\r\n\r\n"), pair(404, "Not Found"));
        assert_eq!(ok("X_A: b\r\nStatus: 404 Nothing here\r\n\r\nbody"), pair(404, "Nothing here"));
        assert_eq!(ok("Location: /x\n\n"), pair(302, "Moved Temporarily"));
        assert_eq!(ok("Location: /x\nStatus: 201 Created\n\n"), pair(201, "Created"));
    }

    #[test]
    fn a_status_line_may_come_first() {
        let (status, reason, _) = read("HTTP/1.0 404 Gone away\r\nStatus: 200\n\n", true).unwrap();
        assert_eq!((status, &reason[..]), (404, "Gone away"));
        assert_eq!(read("Status: 500 X\n\nbody", true).unwrap().0, 500);
        assert_eq!(read("H: 1\n\nbody", true).unwrap().0, 200);
        assert_eq!(read("\n", true).unwrap().0, 200);
        assert_eq!(
            read("HTTP/1.0 404 Gone\r\n\n", false).unwrap_err(),
            ResponseError::InvalidHeaderLine
        );
    }

    #[test]
    fn a_long_line_is_judged_when_it_is_complete() {
        let unfinished = format!("X: {}\x7f\0", "y".repeat(1100));
        for size in [1, 100, 1023, 1024, 1025, 1100, unfinished.len()] {
            let mut head = ResponseBuilder::new();
            let mut reader = HeadReader::new(4096, false);
            for piece in unfinished.as_bytes().chunks(size) {
                assert_eq!(reader.receive(&mut head, piece), Ok((piece.len(), false)), "{size}");
            }
            let end = reader.receive(&mut head, b"\n\n");
            assert_eq!(end, Err(ResponseError::InvalidHeaderLine), "{size}");
        }
    }

    #[test]
    fn mistakes() {
        for (text, error) in [
            ("Status: 2x0\n\n", ResponseError::InvalidStatus),
            ("Status: 99\n\n", ResponseError::InvalidStatus),
            ("Status:\n\n", ResponseError::InvalidStatus),
            ("no colon\n", ResponseError::InvalidHeaderLine),
            ("Content-Length: 1x\n\n", ResponseError::InvalidContentLength),
            (
                "Content-Length: 1\nContent-Length: 1\n\n",
                ResponseError::DuplicateHeader(Known::ContentLength),
            ),
            (
                "Content-Length: 1\nTransfer-Encoding: chunked\n\n",
                ResponseError::ContentLengthAndTransferEncoding,
            ),
        ] {
            assert_eq!(read(text, false).unwrap_err(), error, "{text:?}");
        }
        let mut head = ResponseBuilder::new();
        let flood = "X: 1\n".repeat(1000);
        let error = HeadReader::new(4096, false).receive(&mut head, flood.as_bytes());
        assert_eq!(error.unwrap_err(), ResponseError::HeaderTooLarge);
    }
}
