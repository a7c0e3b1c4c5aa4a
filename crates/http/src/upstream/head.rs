//! The head of an upstream's response, whatever protocol it came by.
//!
//! Made by codecs; read by protocol modules, the cache and variables. Its fields are parts of one
//! piece of memory, so that a value becomes a header of our own response without a copy.

use bytes::{BufMut, Bytes, BytesMut};
use nowait_h1::{Known, ResponseHead, Version};

/// The head of a response, interim or final.
#[derive(Debug, Clone, Default)]
pub struct UpstreamHead {
    /// Status code.
    pub status: u16,
    /// Text after the status; may be empty.
    pub reason: Bytes,
    /// Whether it came by a version of HTTP below 1.1.
    pub is_http10: bool,
    /// `Content-Length`, also where no body follows (HEAD, 304).
    pub content_length: Option<u64>,
    /// The upstream keeps the connection open.
    pub keep_alive: bool,
    /// Bytes of the head as it was received.
    pub length: usize,
    fields: Vec<Field>,
}

/// One field of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Which it is, if it is one that HTTP knows.
    pub known: Option<Known>,
    /// Name as it was sent.
    pub name: Bytes,
    /// Value without white space around it.
    pub value: Bytes,
}

impl UpstreamHead {
    /// From an HTTP/1 head.
    pub fn from_h1(head: &ResponseHead) -> Self {
        let fields = head.fields();
        let bytes = fields.iter().map(|field| field.name.len() + field.value.len());
        let mut builder = HeadBuilder::new(head.status(), bytes.sum::<usize>());
        for field in fields.iter() {
            builder.field(field.known, field.name, field.value);
        }
        let mut built = builder.finish();
        built.reason = match nowait_h1::status::reason(head.status()) {
            Some(usual) if usual.as_bytes() == head.reason() => {
                Bytes::from_static(usual.as_bytes())
            }
            _ => Bytes::copy_from_slice(head.reason()),
        };
        built.is_http10 = head.version() < Version::Http11;
        built.content_length = head.content_length();
        built.keep_alive = head.keep_alive();
        built.length = head.length();
        built
    }

    /// A head that was kept.
    pub fn stored(status: u16, reason: Bytes, fields: Vec<Field>) -> Self {
        Self { status, reason, fields, ..Self::default() }
    }

    /// The fields in the order they came.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The value of the first field of this name, in any case.
    pub fn field(&self, name: &[u8]) -> Option<&Bytes> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|f| &f.value)
    }

    /// The value of the first field of this name.
    pub fn known(&self, name: Known) -> Option<&Bytes> {
        self.fields.iter().find(|field| field.known == Some(name)).map(|field| &field.value)
    }
}

/// Makes a head from fields one by one.
#[derive(Debug)]
pub struct HeadBuilder {
    head: UpstreamHead,
    text: BytesMut,
    /// Known name, and lengths of name and value.
    spans: Vec<(Option<Known>, usize, usize)>,
}

impl HeadBuilder {
    /// With room for so many bytes of names and values.
    pub fn new(status: u16, bytes: usize) -> Self {
        let head = UpstreamHead { status, ..UpstreamHead::default() };
        Self { head, text: BytesMut::with_capacity(bytes), spans: Vec::with_capacity(12) }
    }

    /// Adds a field.
    pub fn field(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        self.text.put_slice(name);
        self.text.put_slice(value);
        self.spans.push((known, name.len(), value.len()));
    }

    /// The head, to be completed by whoever knows more than its fields.
    pub fn finish(self) -> UpstreamHead {
        let Self { mut head, text, spans } = self;
        let mut text = text.freeze();
        head.fields = spans
            .into_iter()
            .map(|(known, name, value)| Field {
                known,
                name: text.split_to(name),
                value: text.split_to(value),
            })
            .collect();
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_order_and_by_name() {
        let mut builder = HeadBuilder::new(200, 0);
        builder.field(Some(Known::Server), b"Server", b"origin");
        builder.field(None, b"X-A", b"");
        builder.field(None, b"x-a", b"2");
        let head = builder.finish();
        assert_eq!(head.fields().len(), 3);
        assert_eq!(head.field(b"X-a").unwrap(), "");
        assert_eq!(head.known(Known::Server).unwrap(), "origin");
        assert_eq!(head.field(b"X-B"), None);
    }
}
