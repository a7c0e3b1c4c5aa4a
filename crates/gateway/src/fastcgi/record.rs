//! Records of a response: where their content is in the input.

use std::ops::Range;

use crate::Error;

/// Bytes of a record's header.
pub(super) const HEADER_BYTES: usize = 8;

/// The version of the protocol.
pub(super) const VERSION: u8 = 1;

/// The one request of a connection.
pub(super) const REQUEST: u16 = 1;

/// Records without content that may follow each other, of any kind: an application could send them as fast
/// as they are received.
const EMPTY_RECORDS_MAX: u16 = 1000;

/// Types of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// `FCGI_BEGIN_REQUEST`
    Begin = 1,
    /// `FCGI_END_REQUEST`
    End = 3,
    /// `FCGI_PARAMS`
    Params = 4,
    /// `FCGI_STDIN`
    Stdin = 5,
    /// `FCGI_STDOUT`
    Stdout = 6,
    /// `FCGI_STDERR`
    Stderr = 7,
}

/// One step through records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordStep {
    /// Number of consumed bytes of the input, including the content of the event.
    pub consumed: usize,
    /// The event found.
    pub event: RecordEvent,
}

/// An event in records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordEvent {
    /// All input is consumed.
    NeedMore,
    /// A part of the response: this range of the input, never empty.
    Stdout(Range<usize>),
    /// The response has ended.
    StdoutEnd,
    /// A part of the error stream for a log: this range of the input, never empty. `last`: its record ends.
    Stderr(Range<usize>, bool),
    /// The request has ended, with its protocol status.
    End(u8),
}

/// Reads records.
#[derive(Debug, Default)]
pub struct Records {
    state: RecordState,
    /// The current header, or the content of the record that ends the request.
    bytes: [u8; HEADER_BYTES],
    /// Padding after the content of the current record.
    padding: u8,
    /// Records without content since the last one that had some.
    empty: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordState {
    /// This many bytes of a header have come.
    Header(usize),
    Stdout(u16),
    Stderr(u16),
    /// The content of an end, of which this much is left after this much.
    End(u16, usize),
    /// `true`: of the end.
    Padding(u8, bool),
    /// No data follows.
    Ended,
}

impl Default for RecordState {
    fn default() -> Self {
        Self::Header(0)
    }
}

impl Records {
    /// At the beginning of a response.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a record is incomplete.
    pub fn is_within_record(&self) -> bool {
        !matches!(self.state, RecordState::Header(0) | RecordState::Ended)
    }

    /// Whether the request has ended, with the last byte of its last record.
    pub fn has_ended(&self) -> bool {
        self.state == RecordState::Ended
    }

    /// The next event in the input. After the end nothing is consumed.
    ///
    /// # Errors
    /// The application's error. nginx: `ngx_http_fastcgi_process_record`.
    pub fn receive(&mut self, input: &[u8]) -> Result<RecordStep, Error> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            if rest.is_empty() || self.state == RecordState::Ended {
                return Ok(RecordStep { consumed: at, event: RecordEvent::NeedMore });
            }
            match self.state {
                RecordState::Header(seen) => {
                    // Mostly it is there as a whole.
                    if seen == 0
                        && let Some(header) = rest.first_chunk()
                    {
                        check(header)?;
                        at += HEADER_BYTES;
                        if let Some(event) = self.begin(*header)? {
                            return Ok(RecordStep { consumed: at, event });
                        }
                        continue;
                    }
                    let length = rest.len().min(HEADER_BYTES - seen);
                    self.bytes[seen..seen + length].copy_from_slice(&rest[..length]);
                    check(&self.bytes[..seen + length])?;
                    at += length;
                    self.state = RecordState::Header(seen + length);
                    if seen + length == HEADER_BYTES
                        && let Some(event) = self.begin(self.bytes)?
                    {
                        return Ok(RecordStep { consumed: at, event });
                    }
                }
                RecordState::Stdout(left) => {
                    let range = take(at, rest, left);
                    self.content(left, &range, RecordState::Stdout);
                    return Ok(RecordStep {
                        consumed: range.end,
                        event: RecordEvent::Stdout(range),
                    });
                }
                RecordState::Stderr(left) => {
                    let range = take(at, rest, left);
                    let last = range.len() == usize::from(left);
                    self.content(left, &range, RecordState::Stderr);
                    return Ok(RecordStep {
                        consumed: range.end,
                        event: RecordEvent::Stderr(range, last),
                    });
                }
                RecordState::End(left, seen) => {
                    if seen == 0
                        && left as usize == HEADER_BYTES
                        && let Some(&[_, _, _, _, status, ..]) = rest.first_chunk::<HEADER_BYTES>()
                    {
                        self.state = Self::padding(self.padding, true);
                        return Ok(RecordStep {
                            consumed: at + HEADER_BYTES,
                            event: RecordEvent::End(status),
                        });
                    }
                    let range = take(at, rest, left);
                    for (to, from) in self.bytes.iter_mut().skip(seen).zip(&input[range.clone()]) {
                        *to = *from;
                    }
                    at = range.end;
                    let left = left - range.len() as u16;
                    if left == 0 {
                        self.state = Self::padding(self.padding, true);
                        return Ok(RecordStep {
                            consumed: at,
                            event: RecordEvent::End(self.bytes[4]),
                        });
                    }
                    self.state = RecordState::End(left, seen + range.len());
                }
                RecordState::Padding(left, last) => {
                    let length = rest.len().min(left.into());
                    at += length;
                    self.state = Self::padding(left - length as u8, last);
                }
                RecordState::Ended => {}
            }
        }
    }

    /// Takes back the last bytes of a [`RecordEvent::Stdout`] that was just returned: they come again.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes as u16;
        self.state = match self.state {
            state if bytes == 0 => state,
            RecordState::Stdout(left) => RecordState::Stdout(left + bytes),
            _ => RecordState::Stdout(bytes),
        };
    }

    /// Begins the content of the record with this header.
    fn begin(&mut self, header: [u8; HEADER_BYTES]) -> Result<Option<RecordEvent>, Error> {
        let [_, kind, _, _, high, low, padding, _] = header;
        let length = u16::from_be_bytes([high, low]);
        self.padding = padding;
        self.empty = if length == 0 { self.empty + 1 } else { 0 };
        if self.empty > EMPTY_RECORDS_MAX {
            return Err(Error::EmptyRecords);
        }
        let is_end = kind == RecordType::End as u8;
        self.state = match (kind, length) {
            (_, 0) => Self::padding(padding, is_end),
            _ if is_end => RecordState::End(length, 0),
            (kind, _) if kind == RecordType::Stderr as u8 => RecordState::Stderr(length),
            _ => RecordState::Stdout(length),
        };
        Ok(match (kind, length) {
            (kind, 0) if kind == RecordType::Stdout as u8 => Some(RecordEvent::StdoutEnd),
            _ if !is_end => None,
            (_, 0) => Some(RecordEvent::End(0)),
            _ => {
                self.bytes = [0; HEADER_BYTES];
                None
            }
        })
    }

    /// Counts this content, of which `left` bytes were due.
    fn content(&mut self, left: u16, range: &Range<usize>, more: fn(u16) -> RecordState) {
        self.state = match left - range.len() as u16 {
            0 => Self::padding(self.padding, false),
            left => more(left),
        };
    }

    fn padding(left: u8, last: bool) -> RecordState {
        match (left, last) {
            (0, true) => RecordState::Ended,
            (0, false) => RecordState::Header(0),
            _ => RecordState::Padding(left, last),
        }
    }
}

/// The next part of the input, of at most `left` bytes.
fn take(at: usize, rest: &[u8], left: u16) -> Range<usize> {
    at..at + rest.len().min(left.into())
}

/// Checks the beginning of a header.
#[inline]
fn check(header: &[u8]) -> Result<(), Error> {
    const STDOUT: u8 = RecordType::Stdout as u8;
    const STDERR: u8 = RecordType::Stderr as u8;
    const END: u8 = RecordType::End as u8;
    match *header {
        [version, ..] if version != VERSION => Err(Error::Version(version)),
        [_, kind, ..] if !matches!(kind, STDOUT | STDERR | END) => Err(Error::Kind(kind)),
        [_, _, high, low, ..] if u16::from_be_bytes([high, low]) != REQUEST => {
            Err(Error::RequestId(u16::from_be_bytes([high, low])))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record.
    pub fn record(kind: RecordType, content: &[u8], padding: u8) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        let header = [VERSION, kind as u8, 0, 1, length[0], length[1], padding, 0];
        [&header, content, &vec![b'p'; padding.into()]].concat()
    }

    /// The record that ends a request.
    pub fn end(status: u8) -> Vec<u8> {
        record(RecordType::End, &[0, 0, 0, 0, status, 0, 0, 0], 0)
    }

    /// The events as text, with the input in pieces of this many bytes.
    fn play(input: &[u8], size: usize) -> Vec<String> {
        let (mut records, mut events) = (Records::new(), Vec::<String>::new());
        let mut stdout = String::new();
        for piece in input.chunks(size) {
            let mut at = 0;
            loop {
                let step = match records.receive(&piece[at..]) {
                    Ok(step) => step,
                    Err(error) => {
                        events.push(error.to_string());
                        return events;
                    }
                };
                let part =
                    |range: Range<usize>| String::from_utf8_lossy(&piece[at..][range]).into_owned();
                match step.event {
                    RecordEvent::NeedMore => break,
                    RecordEvent::Stdout(range) => stdout.push_str(&part(range)),
                    RecordEvent::Stderr(range, last) => {
                        events.push(format!("err {} {last}", part(range)))
                    }
                    other => events.push(format!("{other:?}")),
                }
                at += step.consumed;
            }
        }
        events.push(stdout);
        events.push(format!("{} {}", records.is_within_record(), records.has_ended()));
        events
    }

    #[test]
    fn padding_is_skipped_and_streams_are_told_apart() {
        let input = [
            record(RecordType::Stdout, b"one", 5),
            record(RecordType::Stderr, b"e", 255),
            record(RecordType::Stdout, b"two", 0),
            record(RecordType::Stderr, b"", 3),
            record(RecordType::Stdout, b"", 7),
            record(RecordType::End, &[0, 0, 0, 9, 2, 0, 0, 0], 4),
        ]
        .concat();
        for size in 1..=input.len() {
            let expected = ["err e true", "StdoutEnd", "End(2)", "onetwo", "false true"];
            assert_eq!(play(&input, size), expected, "{size}");
        }
    }

    #[test]
    fn an_end_may_have_any_length() {
        for length in [0, 1, 8, 9, 300] {
            let input = record(RecordType::End, &vec![0; length], 1);
            for size in [1, 7, 1000] {
                assert_eq!(play(&input, size), ["End(0)", "", "false true"]);
            }
        }
    }

    #[test]
    fn mistakes() {
        let first = |bytes: &[u8]| play(bytes, 100)[0].clone();
        assert_eq!(first(b"H"), "upstream sent unsupported FastCGI protocol version: 72");
        assert_eq!(first(&[1, 5]), "upstream sent invalid FastCGI record type: 5");
        assert_eq!(first(&[1, 6, 1, 0]), "upstream sent unexpected FastCGI request id: 256");
        assert_eq!(first(&[1, 6, 0, 2]), "upstream sent unexpected FastCGI request id: 2");
        // A record that announces more than it has.
        let cut = &record(RecordType::Stdout, b"long", 0)[..10];
        assert_eq!(play(cut, 100), ["lo", "true false"]);
    }
}
