//! One value of memcached: `get` and its response, in the text protocol. nginx:
//! `ngx_http_memcached_process_header`, `ngx_http_memcached_filter`.

use std::ops::Range;

use crate::{BodyEvent, BodyStep, Error};

/// Maximum number of bytes of a line that an error shows.
const SHOWN_BYTES_MAX: usize = 256;

/// The line after a value.
const END: &[u8] = b"\r\nEND\r\n";

/// The response to `get`.
#[derive(Debug)]
pub struct GetResponse {
    /// As sent: escaped.
    key: Vec<u8>,
    /// The received part of the first line.
    line: Vec<u8>,
    /// Bytes of the value that are still to come.
    left: u64,
    /// The received bytes of [`END`]; if all, the response is complete.
    ended: usize,
    /// Other data arrived in its place.
    spoilt: bool,
}

/// The first line of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseLine {
    /// There is a value.
    Value {
        /// The flags stored with the value.
        flags: Flags,
        /// Bytes.
        length: u64,
    },
    /// No value.
    Missing,
}

/// The flags of a value, read only if they are of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flags {
    line: Vec<u8>,
    place: Range<usize>,
}

impl Flags {
    /// The flags.
    ///
    /// # Errors
    /// [`Error::Flags`]
    pub fn read(&self) -> Result<u64, Error> {
        number(&self.line[self.place.clone()]).ok_or_else(|| Error::Flags(shown(&self.line)))
    }
}

impl GetResponse {
    /// Asks for the value of an escaped key: appends the command to `out`.
    pub fn new(key: Vec<u8>, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(b"get ");
        out.extend_from_slice(&key);
        out.extend_from_slice(b"\r\n");
        Self { key, line: Vec::new(), left: 0, ended: 0, spoilt: false }
    }

    /// The key as sent.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Reads the first line; returns how much of the input belongs to it. While it is incomplete, all
    /// input is consumed. The caller limits its length.
    ///
    /// # Errors
    /// The mistake of the server.
    pub fn receive_head(&mut self, input: &[u8]) -> Result<(usize, Option<ResponseLine>), Error> {
        let Some(end) = input.iter().position(|b| *b == b'\n') else {
            self.line.extend_from_slice(input);
            return Ok((input.len(), None));
        };
        self.line.extend_from_slice(&input[..end]);
        let line = std::mem::take(&mut self.line);
        let invalid = || Error::Line(shown(&line));
        let line = line.strip_suffix(b"\r").ok_or_else(invalid)?;
        let answer = self.answer(line)?;
        match answer {
            ResponseLine::Value { length, .. } => self.left = length,
            ResponseLine::Missing => self.ended = END.len(),
        }
        Ok((end + 1, Some(answer)))
    }

    fn answer(&self, line: &[u8]) -> Result<ResponseLine, Error> {
        if line == b"END" {
            return Ok(ResponseLine::Missing);
        }
        let invalid = || Error::Line(shown(line));
        let rest = line.strip_prefix(b"VALUE ").ok_or_else(invalid)?;
        let rest = rest.strip_prefix(&self.key[..]).ok_or_else(|| Error::Key(shown(line)))?;
        let rest = rest.strip_prefix(b" ").ok_or_else(invalid)?;
        let blank = rest.iter().position(|b| *b == b' ').ok_or_else(invalid)?;
        let start = line.len() - rest.len();
        let flags = Flags { line: line.to_vec(), place: start..start + blank };
        let length = number(&rest[blank + 1..]).ok_or_else(|| Error::Length(shown(line)))?;
        Ok(ResponseLine::Value { flags, length })
    }

    /// Reads the value and what follows it.
    pub fn receive_body(&mut self, input: &[u8]) -> BodyStep {
        let step = |consumed, event| BodyStep { consumed, event };
        if self.left > 0 {
            let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
            self.left -= length as u64;
            return match length {
                0 => step(0, BodyEvent::NeedMore),
                _ => step(length, BodyEvent::Data(0..length)),
            };
        }
        if self.is_complete() {
            return step(0, BodyEvent::End);
        }
        let rest = &END[self.ended..];
        let length = rest.len().min(input.len());
        if input[..length] != rest[..length] {
            (self.ended, self.spoilt) = (END.len(), true);
            return step(0, BodyEvent::Excess);
        }
        self.ended += length;
        match self.is_complete() {
            true => step(length, BodyEvent::End),
            false => step(length, BodyEvent::NeedMore),
        }
    }

    /// Remaining bytes of the value.
    pub fn body_left(&self) -> u64 {
        self.left
    }

    /// Whether the whole value has arrived.
    pub fn has_value(&self) -> bool {
        self.left == 0
    }

    /// Whether the response is complete.
    pub fn is_complete(&self) -> bool {
        self.left == 0 && self.ended == END.len()
    }

    /// Whether the connection can carry another request now that the response is complete. `leftover`:
    /// more has arrived.
    pub fn is_reusable(&self, leftover: bool) -> bool {
        self.is_complete() && !self.spoilt && !leftover
    }
}

/// A number of decimal digits.
fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()?;
    // Larger ones would be negative for others.
    (number <= i64::MAX as u64).then_some(number)
}

fn shown(line: &[u8]) -> Vec<u8> {
    line[..line.len().min(SHOWN_BYTES_MAX)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length, the value and the last event, with the input in pieces of this many bytes.
    fn play(text: &str, size: usize) -> Result<(Option<u64>, String, Vec<BodyEvent>, bool), Error> {
        let mut out = Vec::new();
        let mut get = GetResponse::new(b"key".to_vec(), &mut out);
        assert_eq!(out, b"get key\r\n");
        let (mut length, mut in_body) = (None, false);
        let (mut value, mut events) = (String::new(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            let mut at = 0;
            if !in_body {
                let (consumed, answer) = get.receive_head(piece)?;
                at = consumed;
                let Some(answer) = answer else { continue };
                in_body = true;
                if let ResponseLine::Value { length: bytes, .. } = answer {
                    length = Some(bytes);
                }
            }
            while let step = get.receive_body(&piece[at..])
                && !matches!(step.event, BodyEvent::NeedMore)
            {
                if let BodyEvent::Data(range) = &step.event {
                    value.push_str(std::str::from_utf8(&piece[at..][range.clone()]).unwrap());
                }
                at += step.consumed;
                match step.event {
                    BodyEvent::Data(_) => {}
                    end @ BodyEvent::End => {
                        events.push(end);
                        return Ok((length, value, events, get.is_reusable(at < piece.len())));
                    }
                    other => events.push(other),
                }
            }
        }
        Ok((length, value, events, get.is_reusable(false)))
    }

    #[test]
    fn values() {
        for size in [1, 2, 5, 100] {
            let play = |text| play(text, size).unwrap();
            let end = || vec![BodyEvent::End];
            let found = play("VALUE key 0 5\r\nvalue\r\nEND\r\n");
            assert_eq!(found, (Some(5), "value".into(), end(), true));
            assert_eq!(play("VALUE key 0 0\r\n\r\nEND\r\n"), (Some(0), String::new(), end(), true));
            assert_eq!(play("END\r\n"), (None, String::new(), end(), true));
            assert_eq!(play("VALUE key 0 5\r\nval"), (Some(5), "val".into(), vec![], false));
            let longer = play("VALUE key 0 3\r\nvalue\r\nEND\r\n");
            let excess = vec![BodyEvent::Excess, BodyEvent::End];
            assert_eq!(longer, (Some(3), "val".into(), excess, false));
        }
        let more = play("END\r\nVALUE", 100).unwrap();
        assert!(!more.3);
    }

    #[test]
    fn mistakes() {
        let error = |text: &str| play(text, 100).unwrap_err().to_string();
        let line = "memcached sent invalid response: \"ERROR\"";
        assert_eq!(error("ERROR\r\n"), line);
        assert!(error("END\n").contains("invalid response"));
        assert!(error("\r\n").contains("invalid response: \"\""));
        assert!(error("VALUE other 0 1\r\n").contains("invalid key"));
        assert!(error("VALUE keys 0 1\r\n").contains("invalid response"));
        assert!(error("VALUE key 0\r\n").contains("invalid response"));
        for length in ["-1", "", "1x", "18446744073709551616", "9223372036854775808", "1 2"] {
            let line = format!("VALUE key 0 {length}\r\n");
            let text = error(&line);
            assert!(text.contains("invalid length"), "{length}: {text}");
        }
    }

    #[test]
    fn flags_are_read_on_demand() {
        let flags = |text: &str| {
            let mut get = GetResponse::new(b"k".to_vec(), &mut Vec::new());
            match get.receive_head(text.as_bytes()).unwrap().1 {
                Some(ResponseLine::Value { flags, .. }) => flags.read(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(flags("VALUE k 6 1\r\n"), Ok(6));
        assert!(matches!(flags("VALUE k x 1\r\n"), Err(Error::Flags(_))));
    }
}
