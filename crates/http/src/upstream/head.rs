//! The head of an upstream response, whatever its protocol.
//!
//! Built by codecs; read by protocol modules, the cache and variables. Its fields are slices of one
//! buffer, so a value becomes a field of our own response without a copy.

use bytes::{BufMut, Bytes, BytesMut};
use nowait_h1::{Place, ResponseHead, Span, Version};
use nowait_message::Known;

/// The head of a response, interim or final.
#[derive(Debug, Clone, Default)]
pub struct UpstreamHead {
    /// Status code.
    pub status: u16,
    /// Text after the status; may be empty.
    pub reason: Bytes,
    /// Whether the response's HTTP version is below 1.1.
    pub is_http10: bool,
    /// `Content-Length`, even if no body follows (HEAD, 304).
    pub content_length: Option<u64>,
    /// The upstream keeps the connection open.
    pub keep_alive: bool,
    /// Bytes of the head as it was received.
    pub length: usize,
    /// The bytes that the names and values point into.
    text: Bytes,
    places: Vec<Place>,
    /// The known header names that are present.
    names: Names,
}

/// A set of known header names: one bit for each, by its number.
#[derive(Debug, Clone, Copy, Default)]
struct Names {
    present: u128,
    /// Those that occur more than once.
    repeated: u128,
}

impl Names {
    fn note(&mut self, known: Option<Known>) {
        let bit = known.map_or(0, |known| 1 << known as u32);
        self.repeated |= self.present & bit;
        self.present |= bit;
    }
}

/// One field of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The known header with this name, if any.
    pub known: Option<Known>,
    /// Name as it was sent.
    pub name: &'a [u8],
    /// Value without white space around it.
    pub value: &'a [u8],
}

impl UpstreamHead {
    /// From an HTTP/1 head.
    pub fn from_h1(head: &ResponseHead) -> Self {
        let text = Bytes::copy_from_slice(head.as_bytes());
        let reason = match nowait_message::status::reason(head.status()) {
            Some(usual) if usual.as_bytes() == head.reason() => {
                Bytes::from_static(usual.as_bytes())
            }
            _ => Bytes::copy_from_slice(head.reason()),
        };
        let places = head.places().to_vec();
        let mut names = Names::default();
        places.iter().for_each(|place| names.note(place.known));
        Self {
            status: head.status(),
            reason,
            is_http10: head.version() < Version::Http11,
            content_length: head.content_length(),
            keep_alive: head.keep_alive(),
            length: head.length(),
            text,
            places,
            names,
        }
    }

    /// The fields in the order they came.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'_>> + Clone {
        self.places.iter().map(|place| Field {
            known: place.known,
            name: place.name.of(&self.text),
            value: place.value.of(&self.text),
        })
    }

    /// The value of the first field with this name, compared without regard to case.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find(|field| field.name.eq_ignore_ascii_case(name)).map(|f| f.value)
    }

    /// Whether there is a field of this name.
    pub fn has(&self, name: Known) -> bool {
        self.has_any(1 << name as u32)
    }

    /// Whether there is a field of one of these names: one bit for each, by its number.
    pub fn has_any(&self, names: u128) -> bool {
        self.names.present & names != 0
    }

    /// Whether there are several fields of one of these names.
    pub fn repeats_any(&self, names: u128) -> bool {
        self.names.repeated & names != 0
    }

    /// The value of the first field of this name.
    pub fn known(&self, name: Known) -> Option<&[u8]> {
        if !self.has(name) {
            return None;
        }
        let place = self.places.iter().find(|place| place.known == Some(name))?;
        Some(place.value.of(&self.text))
    }

    /// A part of a name or of a value of this head as bytes that share its memory.
    ///
    /// # Panics
    /// When it is a part of something else.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.text.slice_ref(part)
    }
}

/// Makes a head from fields one by one.
#[derive(Debug)]
pub struct HeadBuilder {
    head: UpstreamHead,
    text: BytesMut,
}

impl HeadBuilder {
    /// With room for this many fields and this many bytes of names and values.
    pub fn new(status: u16, fields: usize, bytes: usize) -> Self {
        let places = Vec::with_capacity(fields);
        let head = UpstreamHead { status, places, ..UpstreamHead::default() };
        Self { head, text: BytesMut::with_capacity(bytes) }
    }

    /// Adds a field.
    pub fn field(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        let start = self.text.len();
        let middle = start + name.len();
        self.text.put_slice(name);
        self.text.put_slice(value);
        let (name, value) = (Span::new(start, middle), Span::new(middle, self.text.len()));
        self.head.places.push(Place { name, value, known });
        self.head.names.note(known);
    }

    /// The head; the caller fills in everything but its fields.
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
