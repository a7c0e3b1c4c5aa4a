//! HTTP/1.1 as both played sides need it: heads, and contents of any framing in pieces of any size.

use std::io::{self, ErrorKind, Read, Write};

use crate::random::SeededRng;
use crate::wire::Wire;

/// A head is never longer.
const HEAD_MAX: usize = 64 * 1024;

/// How many chunks of a content may be small.
const SMALL_CHUNKS_MAX: usize = 40;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// A head.
#[derive(Debug)]
pub struct MessageHead {
    /// The first line.
    pub line: String,
    pub fields: Vec<(String, String)>,
}

impl MessageHead {
    pub fn field(&self, name: &str) -> Option<&str> {
        let named = self.fields.iter().find(|field| field.0.eq_ignore_ascii_case(name));
        named.map(|field| &*field.1)
    }
}

/// How the end of a content is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    Length(usize),
    Chunked,
    Close,
}

/// What arrives on a connection, in messages.
#[derive(Default)]
pub struct MessageReader {
    bytes: Vec<u8>,
    at: usize,
}

impl MessageReader {
    /// The next head. `None`: the peer has closed the connection.
    ///
    /// # Errors
    /// If it is malformed, or does not come.
    pub fn head(&mut self, wire: &mut Wire) -> io::Result<Option<MessageHead>> {
        let mut seen = 0;
        let end = loop {
            let rest = &self.bytes[self.at..];
            let from = usize::saturating_sub(seen, 3);
            if let Some(end) = rest[from..].windows(4).position(|four| four == b"\r\n\r\n") {
                break from + end;
            }
            seen = rest.len();
            if seen > HEAD_MAX {
                return Err(io::Error::other("a head without an end"));
            }
            if self.more(wire)? == 0 {
                return if seen == 0 { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
        };
        let text = String::from_utf8_lossy(&self.bytes[self.at..self.at + end]).into_owned();
        self.at += end + 4;
        let mut lines = text.split("\r\n").map(str::to_owned);
        let line = lines.next().unwrap_or_default();
        let fields = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim().to_owned()))
        });
        Ok(Some(MessageHead { line, fields: fields.collect() }))
    }

    /// A content.
    ///
    /// # Errors
    /// If it is malformed, or does not come.
    pub fn content(&mut self, wire: &mut Wire, framing: BodyFraming) -> io::Result<Vec<u8>> {
        match framing {
            BodyFraming::Length(length) => self.exactly(wire, length),
            BodyFraming::Close => {
                while self.more(wire)? > 0 {}
                Ok(self.bytes.split_off(std::mem::take(&mut self.at)))
            }
            BodyFraming::Chunked => {
                let mut content = Vec::new();
                loop {
                    let line = self.line(wire)?;
                    let digits = line.split(';').next().unwrap_or_default();
                    let size = usize::from_str_radix(digits, 16)
                        .map_err(|_| io::Error::other(format!("chunk size {line:?}")))?;
                    content.extend(self.exactly(wire, size)?);
                    let end = self.line(wire)?;
                    if !end.is_empty() {
                        return Err(io::Error::other(format!("{end:?} behind {size} bytes")));
                    }
                    if size == 0 {
                        return Ok(content);
                    }
                }
            }
        }
    }

    /// Bytes that have arrived behind the last message.
    pub fn rest(&mut self) -> Vec<u8> {
        self.bytes.split_off(std::mem::take(&mut self.at))
    }

    pub fn exactly(&mut self, wire: &mut Wire, count: usize) -> io::Result<Vec<u8>> {
        while self.bytes.len() - self.at < count {
            if self.more(wire)? == 0 {
                let come = self.bytes.len() - self.at;
                let text = format!("the connection ends after {come} of {count} bytes");
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
        }
        self.at += count;
        Ok(self.bytes[self.at - count..self.at].to_vec())
    }

    pub fn line(&mut self, wire: &mut Wire) -> io::Result<String> {
        loop {
            let rest = &self.bytes[self.at..];
            if let Some(length) = rest.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..length]).into_owned();
                self.at += length + 2;
                return Ok(line);
            }
            if self.more(wire)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn more(&mut self, wire: &mut Wire) -> io::Result<usize> {
        if self.at > READ_BYTES {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + READ_BYTES, 0);
        let count = wire.read(&mut self.bytes[start..]);
        self.bytes.truncate(start + *count.as_ref().unwrap_or(&0));
        count
    }
}

/// Sends a content whose head says how its end is known.
///
/// # Errors
/// If the peer is gone.
pub fn send(
    wire: &mut Wire,
    random: &mut SeededRng,
    content: &[u8],
    framing: BodyFraming,
) -> io::Result<()> {
    if framing != BodyFraming::Chunked {
        let pieces = random.below(3);
        let mut content = content;
        for _ in 0..pieces {
            let (piece, rest) = content.split_at(random.below(content.len() + 1));
            wire.write_all(piece)?;
            content = rest;
        }
        return wire.write_all(content);
    }
    let most = random.pick(&[100, 4096, 16_384, 65_536, usize::MAX]);
    let mut rest = content;
    let mut chunks = 0;
    while !rest.is_empty() {
        chunks += 1;
        let most = if chunks < SMALL_CHUNKS_MAX { most } else { usize::MAX };
        let size = random.within(1, rest.len().min(most));
        let (chunk, later) = rest.split_at(size);
        rest = later;
        wire.write_all(format!("{size:x}\r\n").as_bytes())?;
        wire.write_all(chunk)?;
        wire.write_all(b"\r\n")?;
    }
    wire.write_all(b"0\r\n\r\n")
}
