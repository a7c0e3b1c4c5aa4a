//! The head of a response that was received, of any version: from an upstream server, or as it was
//! stored.
//!
//! Made by a [`ResponseBuilder`], which the reader of a protocol fills. Its fields are slices of one
//! buffer, so a value becomes a field of another response without a copy.

use bytes::Bytes;

use crate::fields::{Field, Place, Span};
use crate::scan::decimal;
use crate::{Known, Version, status};

/// Places for fields that a head gets with its first one; more than most heads have.
const PLACES: usize = 16;

/// The head of a response, interim or final.
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Text after the status; may be empty.
    pub reason: Bytes,
    /// The version of the response.
    pub version: Version,
    /// `Content-Length`, even if no body follows (HEAD, 304).
    pub content_length: Option<u64>,
    /// Bytes of the head as it was received.
    pub length: usize,
    /// The bytes that the names and values point into.
    text: Bytes,
    places: Vec<Place>,
    /// The known names that are present.
    names: Names,
}

/// A set of known names: one bit for each, by its number.
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

impl ResponseHead {
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
        self.place(name).map(|place| place.value.of(&self.text))
    }

    fn place(&self, name: Known) -> Option<&Place> {
        if !self.has(name) {
            return None;
        }
        self.places.iter().find(|place| place.known == Some(name))
    }

    /// A part of a name or of a value of this head as bytes that share its memory.
    ///
    /// # Panics
    /// When it is a part of something else.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.text.slice_ref(part)
    }
}

/// `Content-Length` is not a number. The sender's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidContentLength;

/// A head that is being received, or made from fields one by one.
#[derive(Debug, Default)]
pub struct ResponseBuilder {
    head: ResponseHead,
    /// Becomes the text of the head.
    text: Vec<u8>,
    reason: Span,
}

impl ResponseBuilder {
    /// Of an empty head; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// With room for this many fields and this many bytes of names and values.
    pub fn with_capacity(status: u16, fields: usize, bytes: usize) -> Self {
        let places = Vec::with_capacity(fields);
        let head = ResponseHead { status, places, ..ResponseHead::default() };
        Self { head, text: Vec::with_capacity(bytes), reason: Span::default() }
    }

    /// Forgets what was received.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The memory of the text, to which readers append. Spans count from its start.
    pub fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Sets what precedes the fields. The reason may be empty.
    pub fn set_status(&mut self, status: u16, reason: Span, version: Version) {
        (self.head.status, self.head.version) = (status, version);
        self.reason = reason;
    }

    /// Adds a field whose name and value are, or will be, parts of the text.
    #[inline]
    pub fn add(&mut self, field: Place) {
        if self.head.places.is_empty() {
            self.head.places.reserve(PLACES);
        }
        self.head.places.push(field);
        self.head.names.note(field.known);
    }

    /// Adds a field and its text.
    pub fn field(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        let start = self.text.len();
        let middle = start + name.len();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        let (name, value) = (Span::new(start, middle), Span::new(middle, self.text.len()));
        self.head.places.push(Place { name, value, known });
        self.head.names.note(known);
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.head.places.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.head.places.is_empty()
    }

    /// Whether there is a field of this name.
    pub fn has(&self, name: Known) -> bool {
        self.head.has(name)
    }

    /// The value of the first field of this name. The text is there.
    pub fn known(&self, name: Known) -> Option<&[u8]> {
        self.head.place(name).map(|place| place.value.of(&self.text))
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The declared length. In a response to HEAD or a 304, it refers to a body that is not sent.
    pub fn content_length(&self) -> Option<u64> {
        self.head.content_length
    }

    /// The length of the head in bytes.
    pub fn length(&self) -> usize {
        self.head.length
    }

    /// Ends a received head, which had this many bytes and whose text is there as a whole.
    ///
    /// # Errors
    /// [`InvalidContentLength`].
    pub fn finish(&mut self, length: usize) -> Result<(), InvalidContentLength> {
        self.head.length = length;
        if let Some(value) = self.known(Known::ContentLength) {
            self.head.content_length = Some(decimal(value).ok_or(InvalidContentLength)?);
        }
        Ok(())
    }

    /// The head; an empty one remains. Its text is not copied.
    pub fn take(&mut self) -> ResponseHead {
        let Self { mut head, mut text, reason } = std::mem::take(self);
        // What came in several pieces may have more memory than it needs.
        text.shrink_to_fit();
        head.text = text.into();
        let reason = reason.of(&head.text);
        head.reason = match status::reason(head.status) {
            Some(usual) if usual.as_bytes() == reason => Bytes::from_static(usual.as_bytes()),
            _ => Bytes::copy_from_slice(reason),
        };
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_order_and_by_name() {
        let mut builder = ResponseBuilder::with_capacity(200, 3, 0);
        builder.field(Some(Known::Server), b"Server", b"origin");
        builder.field(None, b"X-A", b"");
        builder.field(None, b"x-a", b"2");
        let head = builder.take();
        assert_eq!(head.fields().len(), 3);
        assert_eq!(head.field(b"X-a").unwrap(), b"");
        assert_eq!(head.known(Known::Server).unwrap(), b"origin");
        assert_eq!(head.share(&head.known(Known::Server).unwrap()[1..3]), "ri");
        assert_eq!(head.field(b"X-B"), None);
        assert!(builder.is_empty() && builder.take().reason.is_empty());
    }

    #[test]
    fn a_received_head_declares_its_length() {
        let mut builder = ResponseBuilder::new();
        builder.text_mut().extend_from_slice(b"Odd");
        builder.set_status(204, Span::new(0, 3), Version::Http2);
        builder.field(Some(Known::ContentLength), b"content-length", b"12");
        assert_eq!(builder.finish(40), Ok(()));
        let head = builder.take();
        assert_eq!((head.status, &head.reason[..], head.length), (204, &b"Odd"[..], 40));
        assert_eq!((head.version, head.content_length), (Version::Http2, Some(12)));
        builder.field(Some(Known::ContentLength), b"content-length", b"x");
        assert_eq!(builder.finish(0), Err(InvalidContentLength));
    }
}
