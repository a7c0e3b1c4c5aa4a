//! The head of an upstream's response, whatever protocol it came by.
//!
//! Made by codecs; read by protocol modules, the cache and variables. Its fields are parts of one
//! piece of memory, so that a value becomes a header of our own response without a copy.

use std::ops::Range;

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
    /// Names and values, one after the other.
    text: Bytes,
    places: Vec<Place>,
}

/// Where a field stands in the text. Heads are far smaller than 4 GiB.
#[derive(Debug, Clone)]
struct Place {
    known: Option<Known>,
    start: u32,
    name_bytes: u32,
    value_bytes: u32,
}

/// One field of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Which it is, if it is one that HTTP knows.
    pub known: Option<Known>,
    /// Name as it was sent.
    pub name: &'a [u8],
    /// Value without white space around it.
    pub value: &'a [u8],
}

impl UpstreamHead {
    /// From an HTTP/1 head.
    pub fn from_h1(head: &ResponseHead) -> Self {
        let fields = head.fields();
        // Names and values are less than the whole.
        let mut builder = HeadBuilder::new(head.status(), fields.len(), head.length());
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

    /// The fields in the order they came.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'_>> + Clone {
        self.places.iter().map(|place| Field {
            known: place.known,
            name: &self.text[place.name()],
            value: &self.text[place.value()],
        })
    }

    /// The value of the first field of this name, in any case.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find(|field| field.name.eq_ignore_ascii_case(name)).map(|f| f.value)
    }

    /// The value of the first field of this name.
    pub fn known(&self, name: Known) -> Option<&[u8]> {
        let place = self.places.iter().find(|place| place.known == Some(name))?;
        Some(&self.text[place.value()])
    }

    /// A part of a name or of a value of this head as bytes that share its memory.
    ///
    /// # Panics
    /// When it is a part of something else.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.text.slice_ref(part)
    }
}

impl Place {
    fn name(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.name_bytes as usize
    }

    fn value(&self) -> Range<usize> {
        let start = self.name().end;
        start..start + self.value_bytes as usize
    }
}

/// Makes a head from fields one by one.
#[derive(Debug)]
pub struct HeadBuilder {
    head: UpstreamHead,
    text: BytesMut,
}

impl HeadBuilder {
    /// With room for so many fields, and so many bytes of names and values.
    pub fn new(status: u16, fields: usize, bytes: usize) -> Self {
        let places = Vec::with_capacity(fields);
        let head = UpstreamHead { status, places, ..UpstreamHead::default() };
        Self { head, text: BytesMut::with_capacity(bytes) }
    }

    /// Adds a field.
    pub fn field(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        let start = self.text.len() as u32;
        let (name_bytes, value_bytes) = (name.len() as u32, value.len() as u32);
        self.text.put_slice(name);
        self.text.put_slice(value);
        self.head.places.push(Place { known, start, name_bytes, value_bytes });
    }

    /// The head, to be completed by whoever knows more than its fields.
    pub fn finish(self) -> UpstreamHead {
        let Self { mut head, text } = self;
        head.text = text.freeze();
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_order_and_by_name() {
        let mut builder = HeadBuilder::new(200, 3, 0);
        builder.field(Some(Known::Server), b"Server", b"origin");
        builder.field(None, b"X-A", b"");
        builder.field(None, b"x-a", b"2");
        let head = builder.finish();
        assert_eq!(head.fields().len(), 3);
        assert_eq!(head.field(b"X-a").unwrap(), b"");
        assert_eq!(head.known(Known::Server).unwrap(), b"origin");
        assert_eq!(head.share(&head.known(Known::Server).unwrap()[1..3]), "ri");
        assert_eq!(head.field(b"X-B"), None);
    }
}
