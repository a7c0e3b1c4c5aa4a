//! Where the core of HTTP/2 puts the fields of heads.

use std::ops::{Deref, DerefMut};

use nowait_h2::hpack::HpackField;
use nowait_h2::{Sink, StreamId};

use crate::streams::heads::{Heads, Rules};

/// Collects the fields of one block at a time.
pub(super) struct Http2Heads {
    heads: Heads,
    /// The largest stream so far: a block for an older one has trailers.
    newest: StreamId,
}

impl Http2Heads {
    pub(super) fn new(rules: Rules) -> Self {
        Self { heads: Heads::new(rules), newest: StreamId::CONNECTION }
    }
}

impl Deref for Http2Heads {
    type Target = Heads;

    fn deref(&self) -> &Heads {
        &self.heads
    }
}

impl DerefMut for Http2Heads {
    fn deref_mut(&mut self) -> &mut Heads {
        &mut self.heads
    }
}

impl Sink for Http2Heads {
    fn begin(&mut self, stream: StreamId) {
        let has_trailers = stream <= self.newest;
        self.newest = self.newest.max(stream);
        self.heads.begin(has_trailers);
    }

    fn size(&mut self, bytes: usize) {
        self.heads.size(bytes);
    }

    fn field(&mut self, field: &HpackField<'_>) {
        self.heads.field(field);
    }
}
