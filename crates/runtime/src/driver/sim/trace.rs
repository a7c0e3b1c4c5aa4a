//! The record of a run: a digest of all events, and their text if requested.
//!
//! Two runs of the same seed have the same digest. Different digests mean that the code under test depends
//! on the environment.

use std::fmt;
use std::hash::Hasher;
use std::time::Duration;

use rustc_hash::FxHasher;

/// Lines that are kept for comparison.
const LINES_MAX: usize = 100_000;

/// The record.
#[derive(Default)]
pub(crate) struct SimTrace {
    digest: FxHasher,
    /// The first [`LINES_MAX`] lines, each with the digest after it.
    lines: Vec<(String, u64)>,
    prints: bool,
    /// Operations that a disk let fail.
    pub(crate) faults: u64,
}

impl SimTrace {
    /// Prints every line to standard error from now on.
    pub(crate) fn print(&mut self) {
        self.prints = true;
    }

    /// The lines so far, each with the digest after it.
    pub(crate) fn lines(&self) -> &[(String, u64)] {
        &self.lines
    }

    /// A number that depends on all that was recorded.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Records a line.
    pub(crate) fn line(&mut self, now: Duration, line: fmt::Arguments<'_>) {
        let text = line.to_string();
        self.digest.write_u128(now.as_nanos());
        self.digest.write(text.as_bytes());
        let text = format!("{:>14.6} {text}", now.as_secs_f64());
        if self.prints {
            eprintln!("{text}");
        }
        if self.lines.len() < LINES_MAX {
            self.lines.push((text, self.digest()));
        }
    }

    /// Records what a line does not show.
    pub(crate) fn data(&mut self, data: &[u8]) {
        self.digest.write(data);
    }
}
