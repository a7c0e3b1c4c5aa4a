//! Where the core of HTTP/3 puts the fields of heads.

use nowait_h3::{FieldLine, Sink, StreamId};

use crate::streams::heads::Heads;

impl Sink for Heads {
    fn begin(&mut self, _: StreamId, trailers: bool) {
        Heads::begin(self, trailers);
    }

    fn size(&mut self, bytes: usize) {
        Heads::size(self, bytes);
    }

    fn field(&mut self, field: &FieldLine<'_>) {
        Heads::field(self, field);
    }
}
