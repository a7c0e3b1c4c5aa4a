//! What the origin has: objects whose every byte is known from their number and version.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many objects there are.
pub const COUNT: u32 = 400;
/// Each block of a body says where it belongs.
const BLOCK: usize = 16;

/// The objects.
pub struct Objects {
    versions: Vec<AtomicU32>,
}

/// How the origin sends an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With a length; may be kept for a second.
    Plain,
    /// Chunked; may be kept for a second.
    Chunked,
    /// Must not be stored.
    Uncached,
}

impl Objects {
    pub fn new() -> Objects {
        Objects { versions: (0..COUNT).map(|_| AtomicU32::new(1)).collect() }
    }

    /// The version that the origin sends now.
    pub fn version(&self, number: u32) -> u32 {
        self.versions[number as usize].load(Ordering::Relaxed)
    }

    /// Gives a tenth of the objects a new version.
    pub fn change_some(&self, seed: u64) {
        for version in self.versions.iter().skip((seed % 10) as usize).step_by(10) {
            version.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub fn kind(number: u32) -> Kind {
    match number % 10 {
        3 => Kind::Uncached,
        5 | 8 => Kind::Chunked,
        _ => Kind::Plain,
    }
}

/// The length of an object: most are small, one in fifty is large; some are empty. Versions have
/// different lengths, so that a mixture of two shows.
pub fn length(number: u32, version: u32) -> usize {
    match number % 50 {
        0 => 0,
        7 => 1_000_000 + (number * 1009 + version * 31) as usize % 1_000_000,
        _ => (number * 7919 + version * 13) as usize % 60_000,
    }
}

/// The bytes `from..to` of an object.
pub fn bytes(number: u32, version: u32, from: usize, to: usize) -> Vec<u8> {
    let first = from / BLOCK;
    let mut all = Vec::with_capacity(to - from + 2 * BLOCK);
    for block in first..to.div_ceil(BLOCK) {
        all.extend_from_slice(&number.to_le_bytes());
        all.extend_from_slice(&version.to_le_bytes());
        all.extend_from_slice(&(block as u64).to_le_bytes());
    }
    all.truncate(to - first * BLOCK);
    all.drain(..from - first * BLOCK);
    all
}

/// The validator of a version.
pub fn etag(number: u32, version: u32) -> String {
    format!("\"{number}-{version}\"")
}
