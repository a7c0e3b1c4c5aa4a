//! A response in records: the form of CGI in `stdout`, texts for a log in `stderr`. nginx:
//! `ngx_http_fastcgi_process_header`, `ngx_http_fastcgi_input_filter`.

use std::ops::Range;

use nowait_h1::ResponseError;
use nowait_h1::cgi::HeadReader;
use nowait_message::ResponseBuilder;

use super::record::{RecordEvent, RecordStep, RecordType, Records};
use crate::cgi::of_head;
use crate::{BodyEvent, BodyStep, Error, HeadEvent, HeadStep};

/// Maximum number of bytes of a response's stderr; an application that sends more has lost control.
pub const STDERR_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The properties of a request that its response depends on.
#[derive(Debug, Clone, Copy, Default)]
pub struct FastCgiContext {
    /// The method is HEAD: content is of no use.
    pub head: bool,
    /// The connection is kept after the response.
    pub keep: bool,
    /// The largest head, in bytes.
    pub head_bytes_max: u32,
}

/// A response that is being received.
#[derive(Debug)]
pub struct FastCgiResponse {
    asked: FastCgiContext,
    records: Records,
    head: HeadReader,
    /// The part of the current record of stderr that has come.
    stderr: Vec<u8>,
    /// All bytes of stderr.
    stderr_bytes: usize,
    content: StdoutContent,
    /// `stdout` has ended.
    is_closed: bool,
    /// More came than was announced.
    has_excess: bool,
}

/// The state of `stdout` after the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StdoutContent {
    /// Any content.
    Any,
    /// This many bytes.
    Known(u64),
    /// Unused.
    Unwanted,
}

impl FastCgiResponse {
    /// The response to a request.
    pub fn new(asked: FastCgiContext) -> Self {
        Self {
            asked,
            records: Records::new(),
            head: HeadReader::new(asked.head_bytes_max, false),
            stderr: Vec::new(),
            stderr_bytes: 0,
            content: StdoutContent::Any,
            is_closed: false,
            has_excess: false,
        }
    }

    /// Becomes the response to another request, in the same memory.
    pub fn begin(&mut self, asked: FastCgiContext) {
        // Field by field, which is cheaper than making another one.
        self.asked = asked;
        self.records = Records::new();
        self.head = HeadReader::new(asked.head_bytes_max, false);
        self.stderr.clear();
        self.stderr_bytes = 0;
        self.content = StdoutContent::Any;
        self.is_closed = false;
        self.has_excess = false;
    }

    /// It is over; the memory of `stderr`, which may be large, is freed.
    pub fn end(&mut self) {
        self.stderr = Vec::new();
    }

    /// Reads the head into `head`, which must be the same one for all of it.
    ///
    /// # Errors
    /// The application's error.
    pub fn receive_head(
        &mut self,
        head: &mut ResponseBuilder,
        input: &[u8],
    ) -> Result<HeadStep, Error> {
        let mut at = 0;
        loop {
            let RecordStep { consumed, event } = self.records.receive(&input[at..])?;
            match event {
                RecordEvent::NeedMore => {
                    return Ok(HeadStep { consumed: at + consumed, event: HeadEvent::NeedMore });
                }
                RecordEvent::Stdout(range) => {
                    let part = &input[at..][range.clone()];
                    let read = self.head.receive(head, part);
                    let (length, done) = read.map_err(|error| of_head(error, head))?;
                    if done {
                        self.begin_body(head)?;
                        self.records.give_back(part.len() - length);
                        let consumed = at + range.start + length;
                        return Ok(HeadStep { consumed, event: HeadEvent::Done });
                    }
                }
                RecordEvent::Stderr(range, last) => {
                    self.complain(&input[at..][range])?;
                    let event = match last {
                        true => HeadEvent::Stderr(std::mem::take(&mut self.stderr)),
                        false => HeadEvent::StderrPart,
                    };
                    return Ok(HeadStep { consumed: at + consumed, event });
                }
                RecordEvent::StdoutEnd => return Err(Error::StdoutEnded),
                RecordEvent::End(0) => return Err(Error::Unexpected(RecordType::End as u8)),
                RecordEvent::End(status) => return Err(Error::Refused(status)),
            }
            at += consumed;
        }
    }

    fn begin_body(&mut self, head: &ResponseBuilder) -> Result<(), Error> {
        self.content = match (head.status(), head.content_length()) {
            (100..=199, _) => return Err(ResponseError::UnexpectedInterimResponse.into()),
            (204 | 304, _) => StdoutContent::Known(0),
            _ if self.asked.head => StdoutContent::Unwanted,
            (_, Some(length)) => StdoutContent::Known(length),
            (_, None) => StdoutContent::Any,
        };
        Ok(())
    }

    /// Reads what follows the head.
    ///
    /// # Errors
    /// The application's error.
    pub fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Error> {
        let mut at = 0;
        loop {
            if self.is_complete() {
                return Ok(BodyStep { consumed: at, event: BodyEvent::End });
            }
            let RecordStep { consumed, event } = self.records.receive(&input[at..])?;
            let range = |range: Range<usize>| at + range.start..at + range.end;
            let event = match event {
                RecordEvent::NeedMore if self.is_complete() => BodyEvent::End,
                RecordEvent::NeedMore => BodyEvent::NeedMore,
                RecordEvent::Stdout(part) => match self.take(range(part)) {
                    Some(BodyEvent::Data(range)) => {
                        return Ok(BodyStep { consumed: range.end, event: BodyEvent::Data(range) });
                    }
                    Some(event) => event,
                    None => {
                        at += consumed;
                        continue;
                    }
                },
                RecordEvent::Stderr(part, last) => {
                    self.complain(&input[range(part)])?;
                    if !last {
                        at += consumed;
                        continue;
                    }
                    BodyEvent::Stderr(std::mem::take(&mut self.stderr))
                }
                RecordEvent::StdoutEnd | RecordEvent::End(_) => {
                    if let StdoutContent::Known(1..) = self.content {
                        return Err(match event {
                            RecordEvent::StdoutEnd => Error::StdoutEnded,
                            _ => Error::RequestEnded,
                        });
                    }
                    self.is_closed = true;
                    at += consumed;
                    continue;
                }
            };
            return Ok(BodyStep { consumed: at + consumed, event });
        }
    }

    /// Takes content: this part of the input.
    fn take(&mut self, range: Range<usize>) -> Option<BodyEvent> {
        match self.content {
            StdoutContent::Unwanted => None,
            StdoutContent::Any => Some(BodyEvent::Data(range)),
            StdoutContent::Known(0) => {
                self.has_excess = true;
                Some(BodyEvent::Excess)
            }
            StdoutContent::Known(left) => {
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(range.len());
                self.content = StdoutContent::Known(left - length as u64);
                // Excess data is reported next.
                self.records.give_back(range.len() - length);
                Some(BodyEvent::Data(range.start..range.start + length))
            }
        }
    }

    /// Takes a part of `stderr`.
    fn complain(&mut self, text: &[u8]) -> Result<(), Error> {
        self.stderr_bytes += text.len();
        if self.stderr_bytes > STDERR_BYTES_MAX {
            return Err(Error::EndlessStderr);
        }
        self.stderr.extend_from_slice(text);
        Ok(())
    }

    /// Whether the response is complete.
    fn is_complete(&self) -> bool {
        self.has_excess || self.records.has_ended()
    }

    /// The application has closed its side.
    ///
    /// # Errors
    /// [`Error::Closed`]: the response is not complete.
    pub fn receive_eof(&mut self) -> Result<(), Error> {
        // nginx differs: without `fastcgi_keep_conn` it takes the end of stdout as that of the response,
        // and a response without any end as complete, even if it was cut within a record.
        match self.content {
            _ if self.is_complete() => Ok(()),
            StdoutContent::Known(0) => Ok(()),
            StdoutContent::Any | StdoutContent::Unwanted if self.is_closed => Ok(()),
            _ => Err(Error::Closed),
        }
    }

    /// Remaining bytes of the body, if known.
    pub fn body_left(&self) -> Option<u64> {
        match self.content {
            _ if self.is_complete() => Some(0),
            // Its end is still to come.
            StdoutContent::Known(left @ 1..) => Some(left),
            _ => None,
        }
    }

    /// Whether the connection can carry another request now that the response is complete. `leftover`:
    /// more has arrived.
    pub fn is_reusable(&self, leftover: bool) -> bool {
        self.asked.keep && self.records.has_ended() && !self.has_excess && !leftover
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{end, record};
    use super::*;

    const ASKED: FastCgiContext = FastCgiContext { head: false, keep: false, head_bytes_max: 4096 };

    /// What came of a response.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct ParsedResponse {
        status: u16,
        content: String,
        stderr: Vec<String>,
        excess: bool,
        /// The end came before the connection's.
        ended: bool,
        reusable: bool,
        error: Option<Error>,
    }

    /// Plays a response in pieces of this many bytes.
    fn play(asked: FastCgiContext, input: &[u8], size: usize) -> ParsedResponse {
        let (mut response, mut head) = (FastCgiResponse::new(asked), ResponseBuilder::new());
        let mut got = ParsedResponse::default();
        let error = feed(&mut response, &mut head, input, size, &mut got);
        got.error = match error {
            Ok(()) if got.ended => None,
            Ok(()) if got.status == 0 => Some(Error::Closed),
            Ok(()) => response.receive_eof().err(),
            Err(error) => Some(error),
        };
        got
    }

    fn feed(
        response: &mut FastCgiResponse,
        head: &mut ResponseBuilder,
        input: &[u8],
        size: usize,
        got: &mut ParsedResponse,
    ) -> Result<(), Error> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for piece in input.chunks(size) {
            let mut at = 0;
            while got.status == 0 {
                let step = response.receive_head(head, &piece[at..])?;
                at += step.consumed;
                match step.event {
                    HeadEvent::NeedMore => break,
                    HeadEvent::Stderr(line) => got.stderr.push(text(&line)),
                    HeadEvent::StderrPart => {}
                    HeadEvent::Done => got.status = head.status(),
                }
            }
            while got.status != 0 {
                let step = response.receive_body(&piece[at..])?;
                match step.event {
                    BodyEvent::NeedMore => break,
                    BodyEvent::Data(range) => got.content.push_str(&text(&piece[at..][range])),
                    BodyEvent::Stderr(line) => got.stderr.push(text(&line)),
                    BodyEvent::Excess => got.excess = true,
                    BodyEvent::End => {
                        got.ended = true;
                        at += step.consumed;
                        got.reusable = response.is_reusable(at < piece.len());
                        return Ok(());
                    }
                }
                at += step.consumed;
            }
        }
        Ok(())
    }

    /// The same however it is cut.
    fn all(asked: FastCgiContext, input: &[u8]) -> ParsedResponse {
        let whole = play(asked, input, input.len().max(1));
        for size in 1..input.len().min(40) {
            let mut cut = play(asked, input, size);
            // The following data may not have arrived yet.
            cut.reusable = whole.reusable;
            assert_eq!(cut, whole, "pieces of {size}");
        }
        whole
    }

    fn out(text: &str) -> Vec<u8> {
        record(RecordType::Stdout, text.as_bytes(), 3)
    }

    #[test]
    fn a_head_may_be_split_anywhere() {
        let parts = ["Sta", "tus: 404 No", "pe\r\nA: b\r\n", "\r", "\nbo", "dy"].map(out).concat();
        let got = all(ASKED, &[parts, out(""), end(0)].concat());
        assert_eq!((got.status, &got.content[..], got.ended), (404, "body", true));
        assert!(!got.reusable && got.error.is_none());
    }

    #[test]
    fn stderr_is_apart() {
        let err = |text: &str| record(RecordType::Stderr, text.as_bytes(), 1);
        let parts =
            [err("one"), out("A: b\n"), err("two"), out("\nbo"), err(""), err("three"), out("dy")];
        let keep = FastCgiContext { keep: true, ..ASKED };
        let got = all(keep, &[parts.concat(), out(""), end(0)].concat());
        assert_eq!((got.status, &got.content[..]), (200, "body"));
        assert_eq!(got.stderr, ["one", "two", "three"]);
        assert!(got.ended && got.reusable);
    }

    #[test]
    fn the_end() {
        let any = out("A: b\n\nbody");
        let known = out("Content-Length: 4\n\nbody");
        let keep = FastCgiContext { keep: true, ..ASKED };
        for head in [&any, &known] {
            for (asked, last, ended) in [
                (ASKED, out(""), false),
                (ASKED, end(0), true),
                (keep, out(""), false),
                (keep, end(0), true),
                (keep, [out(""), end(0)].concat(), true),
            ] {
                let got = all(asked, &[&head[..], &last].concat());
                assert_eq!((&got.content[..], got.ended, got.error), ("body", ended, None));
                assert_eq!(got.reusable, asked.keep && ended);
            }
        }
        assert_eq!(all(ASKED, &any).error, Some(Error::Closed));
        assert_eq!(all(ASKED, &known).error, None);
        let more = [any, end(0), out("x")].concat();
        assert!(!play(keep, &more, more.len()).reusable);
    }

    #[test]
    fn lengths_that_are_not_true() {
        let long = [out("Content-Length: 2\n\nbody"), end(0)].concat();
        let got = all(FastCgiContext { keep: true, ..ASKED }, &long);
        assert_eq!(
            (&got.content[..], got.excess, got.ended, got.reusable),
            ("bo", true, true, false)
        );
        let short = out("Content-Length: 9\n\nbody");
        assert_eq!(all(ASKED, &short).error, Some(Error::Closed));
        let closed = [&short[..], &out("")].concat();
        assert_eq!(all(ASKED, &closed).error, Some(Error::StdoutEnded));
        let ended = [short, end(0)].concat();
        assert_eq!(all(ASKED, &ended).error, Some(Error::RequestEnded));
        // A record that is cut.
        let whole = out("A: b\n\nbody");
        assert_eq!(all(ASKED, &whole[..whole.len() - 5]).error, Some(Error::Closed));
    }

    #[test]
    fn responses_without_content() {
        let head = FastCgiContext { head: true, keep: true, ..ASKED };
        let input = [out("Content-Length: 9\n\nbody"), end(0)].concat();
        let got = all(head, &input);
        assert_eq!((&got.content[..], got.excess, got.reusable), ("", false, true));
        let got = all(ASKED, &[out("Status: 304\n\n"), end(0)].concat());
        assert_eq!((got.status, got.ended, got.excess), (304, true, false));
        let got = all(ASKED, &[out("Status: 204\n\nbody"), end(0)].concat());
        assert_eq!((&got.content[..], got.excess), ("", true));
    }

    #[test]
    fn no_head() {
        let error = |input: &[u8]| all(ASKED, input).error.unwrap();
        assert_eq!(error(&out("")), Error::StdoutEnded);
        assert_eq!(error(&end(0)), Error::Unexpected(3));
        assert_eq!(error(&end(2)), Error::Refused(2));
        assert_eq!(error(&out("Status: 1xx\n\n")), Error::Status(b"1xx".to_vec()));
        let flood = out(&"X: 1\n".repeat(1000));
        assert_eq!(error(&flood), Error::Head(ResponseError::HeaderTooLarge));
    }

    #[test]
    fn stderr_without_end() {
        let text = record(RecordType::Stderr, &[b'x'; 65_535], 0);
        let mut response = FastCgiResponse::new(ASKED);
        let mut head = ResponseBuilder::new();
        let mut lines = 0;
        let error = loop {
            match response.receive_head(&mut head, &text) {
                Ok(step) => lines += usize::from(matches!(step.event, HeadEvent::Stderr(_))),
                Err(error) => break error,
            }
        };
        assert_eq!((error, lines), (Error::EndlessStderr, STDERR_BYTES_MAX / 65_535));
    }
}
