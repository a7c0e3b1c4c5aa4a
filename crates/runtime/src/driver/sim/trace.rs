//! The record of a run: a digest of all that happened, and its text if wanted.
//!
//! Two runs of the same seed have the same digest; anything else means that something in the code
//! under test depends on the world outside.

use std::fmt;
use std::hash::Hasher;
use std::time::Duration;

use rustc_hash::FxHasher;

/// The record.
#[derive(Default)]
pub(crate) struct Trace {
    digest: FxHasher,
    prints: bool,
    /// Operations that a disk let fail.
    pub(crate) faults: u64,
}

impl Trace {
    /// Prints every line to standard error from now on.
    pub(crate) fn print(&mut self) {
        self.prints = true;
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
        if self.prints {
            eprintln!("{:>14.6} {text}", now.as_secs_f64());
        }
    }

    /// Records what a line does not show.
    pub(crate) fn data(&mut self, data: &[u8]) {
        self.digest.write(data);
    }
}
