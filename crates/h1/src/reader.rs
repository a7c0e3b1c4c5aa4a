//! Assembles a head: finds its lines, counts them against the limits, and keeps the incomplete
//! part. Shared by requests and responses; the meaning of a line is up to the [`HeadLines`].

use crate::Limits;
use crate::limits::Budget;
use crate::line::{
    BadField, COLON_SPACE, FieldLine, ParsedLine, PlainLine, field_line, plain_line,
};
use nowait_message::{Known, Span};

/// How much of a line is parsed again from its start whenever more of it arrives, so that invalid input
/// is rejected at once. What follows is parsed when the line is complete, so that a peer that sends byte
/// by byte cannot make the work quadratic. In bytes.
const EAGER_MAX: usize = 1024;

/// The end of a line.
const CRLF: &[u8] = b"\r\n";

/// How much input is copied behind an incomplete head at a time, in bytes: what follows the head
/// in the same input is not worth copying.
const APPEND_MAX: usize = 4096;

/// The meaning of the lines of a head. Spans count from the head's first byte.
pub(crate) trait HeadLines {
    type Error;

    /// Whether lines often end without a carriage return, as those of applications behind CGI do.
    const HAS_BARE_LINE_FEEDS: bool = false;

    /// Parses the first line from `bytes`, which may continue after it.
    fn first_line(&mut self, bytes: &[u8]) -> Result<ParsedLine<()>, Self::Error>;

    /// Whether the head has no fields (HTTP/0.9).
    fn is_simple(&self) -> bool;

    /// Whether empty lines before the head are ignored.
    fn may_follow_empty_lines(&self) -> bool {
        true
    }

    /// Reuses the fields of the previous head if the same section begins at `start`; returns its end.
    /// Called after the first line.
    fn reuse_fields(&mut self, _bytes: &[u8], _start: usize) -> Option<usize> {
        None
    }

    fn field(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        field: FieldSpans,
    ) -> Result<(), Self::Error>;

    /// The error for a malformed field line; `line` ends before the bad byte.
    fn bad_field(&mut self, line: Span, bad: u8) -> Self::Error;

    /// The error for a line that does not fit.
    fn too_long(&mut self, first: bool, line: Span) -> Self::Error;

    /// The end of the head, which has this many bytes: checks that need all fields.
    fn finish(&mut self, length: usize) -> Result<(), Self::Error>;

    /// After an error: `length` bytes were complete lines.
    fn give_up(&mut self, _length: usize) {}

    /// The head's own memory.
    fn bytes(&mut self) -> &mut Vec<u8>;
}

/// The position of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldSpans {
    pub(crate) name: Span,
    pub(crate) value: Span,
    /// The number of the name.
    pub(crate) known: Option<Known>,
    pub(crate) odd: bool,
}

/// Progress of a head. Cheap to keep for an idle connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeadProgress {
    /// The start of the current line, from the head's first byte.
    at: usize,
    /// The scanned bytes of the current line.
    seen: usize,
    budget: Budget,
    in_fields: bool,
    /// The last byte before the head was a carriage return.
    after_return: bool,
}

impl HeadProgress {
    pub(crate) fn new(limits: &Limits) -> Self {
        HeadProgress { budget: Budget::new(limits), ..HeadProgress::default() }
    }

    /// A reader of a section without first line.
    pub(crate) fn fields_only(limits: &Limits) -> Self {
        HeadProgress { in_fields: true, ..HeadProgress::new(limits) }
    }

    /// Whether any bytes of a head have arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.at > 0 || self.seen > 0
    }

    /// Takes input; returns how much of it belongs to the head and whether the head is complete.
    /// While it is not, all input is consumed. After an error the head holds what was read.
    pub(crate) fn receive<H: HeadLines>(
        &mut self,
        head: &mut H,
        limits: &Limits,
        input: &[u8],
    ) -> Result<(usize, bool), H::Error> {
        let result = if self.has_begun() {
            self.receive_more(head, limits, input)
        } else {
            self.receive_first(head, limits, input)
        };
        if result.is_err() {
            head.give_up(self.at);
        }
        result
    }

    /// The fast path: no bytes are copied before the head is complete or the input ends.
    fn receive_first<H: HeadLines>(
        &mut self,
        head: &mut H,
        limits: &Limits,
        input: &[u8],
    ) -> Result<(usize, bool), H::Error> {
        // "a server that is expecting to receive and parse a request-line SHOULD ignore at least
        // one empty line (CRLF) received prior to the request-line" (RFC 9112 section 2.2).
        let skipped = match head.may_follow_empty_lines() {
            true => self.empty_lines(head, input)?,
            false => 0,
        };
        let input = &input[skipped..];
        if input.is_empty() {
            return Ok((skipped, false));
        }
        let result = self.step(head, limits, input);
        let kept = match result {
            Ok(true) => self.at,
            Ok(false) => input.len(),
            Err(_) => input.len().min(self.at + self.budget.line_max(limits)),
        };
        let text = head.bytes();
        if text.capacity() == 0 {
            *text = Vec::with_capacity(kept);
        }
        text.extend_from_slice(&input[..kept]);
        let complete = result?;
        if complete {
            head.finish(kept)?;
        }
        Ok((skipped + kept, complete))
    }

    /// How much of the input is empty lines. What follows a carriage return that ends none is for two servers
    /// two different requests.
    // nginx differs: it skips any number of carriage returns.
    fn empty_lines<H: HeadLines>(&mut self, head: &mut H, input: &[u8]) -> Result<usize, H::Error> {
        let mut at = 0;
        if self.after_return && !input.is_empty() {
            self.after_return = false;
            match input[0] {
                b'\n' => at = 1,
                _ => {
                    head.first_line(b"\r")?;
                }
            }
        }
        loop {
            match &input[at..] {
                [b'\n', ..] => at += 1,
                [b'\r', b'\n', ..] => at += 2,
                [b'\r'] => {
                    self.after_return = true;
                    return Ok(at + 1);
                }
                _ => return Ok(at),
            }
        }
    }

    /// The slow path: the beginning of the head is already in its memory.
    fn receive_more<H: HeadLines>(
        &mut self,
        head: &mut H,
        limits: &Limits,
        input: &[u8],
    ) -> Result<(usize, bool), H::Error> {
        let mut bytes = std::mem::take(head.bytes());
        let result = self.append(head, limits, input, &mut bytes);
        *head.bytes() = bytes;
        let (consumed, complete) = result?;
        if complete {
            head.finish(self.at)?;
        }
        Ok((consumed, complete))
    }

    fn append<H: HeadLines>(
        &mut self,
        head: &mut H,
        limits: &Limits,
        input: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<(usize, bool), H::Error> {
        let before = bytes.len();
        for piece in input.chunks(APPEND_MAX) {
            bytes.extend_from_slice(piece);
            if self.step(head, limits, bytes)? {
                bytes.truncate(self.at);
                return Ok((self.at - before, true));
            }
        }
        Ok((input.len(), false))
    }

    /// Continues with the lines of `bytes`, which begin with the head's first byte. At the end of
    /// the head `self.at` is its length.
    fn step<H: HeadLines>(
        &mut self,
        head: &mut H,
        limits: &Limits,
        bytes: &[u8],
    ) -> Result<bool, H::Error> {
        loop {
            if self.in_fields && self.seen == 0 && self.plain_lines(head, limits, bytes)? {
                return Ok(true);
            }
            let line_max = self.budget.line_max(limits);
            let end = bytes.len().min(self.at + line_max);
            let mut window = &bytes[self.at..end];
            let length = window.len();
            let full = length == line_max;
            if length > EAGER_MAX && !full && !window[self.seen..].contains(&b'\n') {
                if self.seen >= EAGER_MAX {
                    self.seen = length;
                    return Ok(false);
                }
                window = &window[..EAGER_MAX];
            }
            let line = if self.in_fields {
                self.field_line(head, limits, bytes, window)?
            } else {
                match head.first_line(window)? {
                    ParsedLine::Whole((), length) => ParsedLine::Whole(head.is_simple(), length),
                    ParsedLine::Partial => ParsedLine::Partial,
                }
            };
            match line {
                ParsedLine::Whole(is_last, length) => {
                    self.budget.take(limits, length);
                    self.at += length;
                    self.seen = 0;
                    let is_first = !std::mem::replace(&mut self.in_fields, true);
                    if is_last || (is_first && self.reuse_fields(head, limits, bytes)) {
                        return Ok(true);
                    }
                }
                ParsedLine::Partial if full => {
                    return Err(head.too_long(!self.in_fields, Span::new(self.at, end)));
                }
                ParsedLine::Partial => {
                    self.seen = length;
                    return Ok(false);
                }
            }
        }
    }

    /// Reuses the fields of the previous head if all fields of this one are the same and their budget is
    /// no question; returns whether that is the end of the head.
    #[inline(always)]
    fn reuse_fields<H: HeadLines>(&mut self, head: &mut H, limits: &Limits, bytes: &[u8]) -> bool {
        if !self.budget.is_enough_for(bytes.len() - self.at) {
            return false;
        }
        let Some(end) = head.reuse_fields(bytes, self.at) else { return false };
        self.budget.take(limits, end - self.at);
        self.at = end;
        true
    }

    /// Hands over the fields on the plain lines that come next, if their budget is no question;
    /// returns whether the end of the head follows.
    #[inline(always)]
    fn plain_lines<H: HeadLines>(
        &mut self,
        head: &mut H,
        limits: &Limits,
        bytes: &[u8],
    ) -> Result<bool, H::Error> {
        if !self.budget.is_enough_for(bytes.len() - self.at) {
            return Ok(false);
        }
        let mut at = self.at;
        let result = loop {
            let rest = &bytes[at..];
            if rest.starts_with(CRLF) {
                at += CRLF.len();
                break Ok(true);
            }
            if H::HAS_BARE_LINE_FEEDS && rest.first() == Some(&b'\n') {
                at += 1;
                break Ok(true);
            }
            let Some(PlainLine { known, name_end, end, next }) = plain_line(rest) else {
                break Ok(false);
            };
            let name = Span::new(at, at + name_end);
            let value = Span::new(at + name_end + COLON_SPACE, at + end);
            let field = FieldSpans { name, value, known, odd: false };
            if let Err(error) = head.field(bytes, limits, field) {
                break Err(error);
            }
            at += next;
        };
        self.budget.take(limits, at - self.at);
        self.at = at;
        result
    }

    /// Parses and hands over one field line; `Whole(true)` is the end of the head.
    #[inline(never)]
    fn field_line<H: HeadLines>(
        &self,
        head: &mut H,
        limits: &Limits,
        bytes: &[u8],
        window: &[u8],
    ) -> Result<ParsedLine<bool>, H::Error> {
        match field_line(window, limits) {
            Ok(ParsedLine::Partial) => Ok(ParsedLine::Partial),
            Ok(ParsedLine::Whole(FieldLine::End, length)) => Ok(ParsedLine::Whole(true, length)),
            Ok(ParsedLine::Whole(FieldLine::Field { name, value, known, odd }, length)) => {
                let (name, value) = (name.shift(self.at), value.shift(self.at));
                head.field(bytes, limits, FieldSpans { name, value, known, odd })?;
                Ok(ParsedLine::Whole(false, length))
            }
            Err(BadField(offset)) => {
                let bad = window.get(offset).copied().unwrap_or_default();
                Err(head.bad_field(Span::new(self.at, self.at + offset), bad))
            }
        }
    }
}
