//! Heads and trailers of responses while their field blocks are decoded.

use nowait_h2::hpack::{HpackField, Token};
use nowait_h2::{Sink, StreamId};
use nowait_http::response::Header;
use nowait_message::{ResponseBuilder, ResponseHead, Span, Version, status};

/// Collects the fields of one block at a time. The core of the protocol has checked each by itself.
#[derive(Debug, Default)]
pub(super) struct Heads {
    builder: ResponseBuilder,
    length: usize,
}

impl Sink for Heads {
    fn begin(&mut self, _: StreamId) {
        self.builder.clear();
    }

    fn size(&mut self, bytes: usize) {
        self.length = bytes;
    }

    fn field(&mut self, field: &HpackField<'_>) {
        if field.token != Token::STATUS {
            self.builder.field(field.known, field.name, field.value);
        }
    }
}

impl Heads {
    /// The block as the head of a response. HTTP/2 has no reason phrases: the standard one is used.
    pub(super) fn head(&mut self, status: u16) -> Option<ResponseHead> {
        let reason = status::reason(status).unwrap_or_default();
        let text = self.builder.text_mut();
        let start = text.len();
        text.extend_from_slice(reason.as_bytes());
        let reason = Span::new(start, text.len());
        self.builder.set_status(status, reason, Version::Http2);
        self.builder.finish(self.length).ok()?;
        Some(self.builder.take())
    }

    /// The block as trailers.
    pub(super) fn trailers(&mut self) -> Vec<Header> {
        let block = self.builder.take();
        let fields = block.fields();
        fields
            .map(|field| Header { name: block.share(field.name), value: block.share(field.value) })
            .collect()
    }
}
