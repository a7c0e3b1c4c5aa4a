//! The part of a response that a request fetches, if the response is fetched in parts.
//!
//! Recorded by a module that divides responses, and used by caches, because such a response is stored
//! although it is partial, and its remainder must belong to the same part.

use std::cell::Cell;

use crate::request::Request;
use crate::slots::Key;

/// A part of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The first byte.
    pub start: u64,
    /// Bytes of a part; the last one may have fewer.
    pub size: u64,
}

impl Slice {
    /// The part that contains this byte.
    pub fn at(byte: u64, size: u64) -> Self {
        Self { start: byte / size * size, size }
    }

    /// The value of a `Range` field for it.
    pub fn range(self) -> String {
        format!("bytes={}-{}", self.start, self.start.saturating_add(self.size - 1))
    }
}

static SLICE: Key<Cell<Option<Slice>>> = Key::new();

static OUTDATED: Key<Cell<Option<u64>>> = Key::new();

/// The requested part of the response.
pub fn of(request: &Request) -> Option<Slice> {
    request.state().get(&SLICE)?.get()
}

/// Requests a part of the response, or all of it.
pub fn set(request: &Request, slice: Option<Slice>) {
    request.state().of(&SLICE).set(slice);
}

/// The [stamp](nowait_cache::Hit::stamp) of a stored part that the cache must not use for this request
/// unless the origin confirms it.
pub fn outdated(request: &Request) -> Option<u64> {
    request.state().get(&OUTDATED)?.get()
}

/// Rejects a stored part: it does not belong to the others.
pub fn reject(request: &Request, stamp: u64) {
    request.state().of(&OUTDATED).set(Some(stamp));
}
