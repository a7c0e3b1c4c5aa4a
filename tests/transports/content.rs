//! Bytes that follow from a seed and their position: a shift shows, and so does content of another
//! exchange.

use crate::random::mix;

/// Bytes of a whole: `len` of them from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    pub seed: u64,
    pub start: usize,
    pub len: usize,
}

/// Bytes that are computed at once.
const WORD: usize = 8;

impl ContentRange {
    pub fn new(seed: u64, len: usize) -> ContentRange {
        ContentRange { seed, start: 0, len }
    }

    /// A part of it.
    pub fn part(self, start: usize, len: usize) -> ContentRange {
        assert!(start + len <= self.len, "{self:?} has no {len} bytes at {start}");
        ContentRange { start: self.start + start, len, ..self }
    }

    pub fn bytes(self) -> Vec<u8> {
        let first = self.start / WORD;
        let last = (self.start + self.len).div_ceil(WORD);
        let mut bytes = Vec::with_capacity((last - first) * WORD);
        let base = mix(self.seed);
        for word in first..last {
            bytes.extend_from_slice(&mix(base.wrapping_add(word as u64)).to_le_bytes());
        }
        bytes.drain(..self.start - first * WORD);
        bytes.truncate(self.len);
        bytes
    }

    /// Compares it with what has arrived.
    ///
    /// # Errors
    /// Where they part.
    pub fn check(self, arrived: &[u8]) -> Result<(), String> {
        let bytes = self.bytes();
        if bytes == arrived {
            return Ok(());
        }
        let parts = bytes.iter().zip(arrived).position(|(one, other)| one != other);
        let at = parts.unwrap_or_else(|| bytes.len().min(arrived.len()));
        let rest = &arrived[at..];
        let come = rest.len().min(32);
        // Where the bytes that came instead belong: a gap, or a repetition.
        let belongs = (come >= WORD)
            .then(|| bytes.windows(come).position(|window| window == &rest[..come]))
            .flatten();
        let belongs = belongs.map_or(String::new(), |other| format!("; those belong at {other}"));
        Err(format!(
            "{} bytes arrived instead of {}; they differ from byte {at} on{belongs}: {}",
            arrived.len(),
            bytes.len(),
            rest[..come].escape_ascii()
        ))
    }
}
