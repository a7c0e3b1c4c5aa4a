//! The head of a response that was received, of any version: from an upstream server, or as it was
//! stored.
//!
//! Made by a [`ResponseBuilder`], which the reader of a protocol fills. Its fields are slices of one
//! buffer, so a value becomes a field of another response without a copy.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::fields::{Field, FieldPosition, Span};
use crate::scan::decimal;
use crate::{Known, Version, status};

/// Maximum number of interim (1xx) responses before the final one. Each renews the time for the next
/// head, so without a limit a request could be held forever.
pub const INTERIM_MAX: u8 = 32;

/// Places for fields that a head gets with its first one; more than most heads have.
const PLACES: usize = 16;

/// A builder keeps memory for at most this many bytes and fields.
const KEPT_BYTES_MAX: usize = 1024;
const KEPT_PLACES_MAX: usize = 64;

/// Memory in bytes that the texts of several shared heads have in common.
const SHARED_TEXTS_BYTES: usize = 2 * KEPT_BYTES_MAX;

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
    places: Vec<FieldPosition>,
    /// The known names that are present.
    names: NameSet,
}

/// A set of known names: one bit for each, by its number.
#[derive(Debug, Clone, Copy, Default)]
struct NameSet {
    present: Bits,
    /// Those that occur more than once.
    repeated: Bits,
}

/// Two halves, since shifting all 128 bits at once is expensive.
#[derive(Debug, Clone, Copy, Default)]
struct Bits([u64; 2]);

impl Bits {
    fn all(self) -> u128 {
        u128::from(self.0[0]) | u128::from(self.0[1]) << 64
    }
}

impl NameSet {
    #[inline]
    fn note(&mut self, known: Option<Known>) {
        let Some(known) = known else { return };
        let (half, bit) = (known as usize / 64 % 2, 1 << (known as u32 % 64));
        self.repeated.0[half] |= self.present.0[half] & bit;
        self.present.0[half] |= bit;
    }

    #[inline]
    fn has(&self, known: Known) -> bool {
        self.present.0[known as usize / 64 % 2] & 1 << (known as u32 % 64) != 0
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

    /// The fields that are kept, with their positions. It is far cheaper to leave a field out here than
    /// later.
    pub fn kept(
        &self,
        keep: impl Fn(Option<Known>) -> bool,
    ) -> impl Iterator<Item = (usize, Field<'_>)> {
        let kept = self.places.iter().enumerate().filter(move |(_, place)| keep(place.known));
        kept.map(|(n, place)| {
            let (name, value) = (place.name.of(&self.text), place.value.of(&self.text));
            (n, Field { known: place.known, name, value })
        })
    }

    /// The values of all fields of this name.
    pub fn all(&self, name: Known) -> impl Iterator<Item = &[u8]> {
        let places = if self.has(name) { &self.places[..] } else { &[] };
        let found = places.iter().filter(move |place| place.known == Some(name));
        found.map(|place| place.value.of(&self.text))
    }

    /// The value of the first field with this name, compared without regard to case.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find(|field| field.name.eq_ignore_ascii_case(name)).map(|f| f.value)
    }

    /// Whether there is a field of this name.
    pub fn has(&self, name: Known) -> bool {
        self.names.has(name)
    }

    /// Whether there is a field of one of these names: one bit for each, by its number.
    pub fn has_any(&self, names: u128) -> bool {
        self.names.present.all() & names != 0
    }

    /// Whether there are several fields of one of these names.
    pub fn repeats_any(&self, names: u128) -> bool {
        self.names.repeated.all() & names != 0
    }

    /// The value of the first field of this name.
    pub fn known(&self, name: Known) -> Option<&[u8]> {
        self.place(name).map(|place| place.value.of(&self.text))
    }

    /// Makes it an empty head, and keeps the memory of the places.
    fn clear(&mut self) {
        // Field by field, which is far cheaper than making another one.
        let Self { status, reason, version, content_length, length, text, places, names } = self;
        (*status, *version, *content_length, *length) = (0, Version::default(), None, 0);
        (*reason, *text, *names) = (Bytes::new(), Bytes::new(), NameSet::default());
        places.clear();
        places.shrink_to(KEPT_PLACES_MAX);
    }

    /// Moves everything to another head, whose places it keeps as memory.
    fn move_to(&mut self, other: &mut Self) {
        let Self { status, reason, version, content_length, length, text, places, names } = self;
        (other.status, other.version) = (*status, *version);
        (other.content_length, other.length) = (*content_length, *length);
        (other.reason, other.text) = (std::mem::take(reason), std::mem::take(text));
        other.names = *names;
        std::mem::swap(&mut other.places, places);
        self.clear();
    }

    fn place(&self, name: Known) -> Option<&FieldPosition> {
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
    /// Memory for the texts of shared heads.
    shared_texts: BytesMut,
    /// The last head that was shared.
    shared: Option<Rc<ResponseHead>>,
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
        Self { head, text: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Clears received data. Memory is kept, unless an unusually large head needed it.
    pub fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(KEPT_BYTES_MAX);
        self.reason = Span::default();
        self.head.clear();
        if self.shared.as_ref().is_some_and(|head| head.text.len() > KEPT_BYTES_MAX) {
            self.shared = None;
        }
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
    pub fn add(&mut self, field: FieldPosition) {
        if self.head.places.capacity() == 0 {
            self.head.places = Vec::with_capacity(PLACES);
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
        self.head.places.push(FieldPosition { name, value, known });
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

    /// The position of the value of the first field of this name.
    pub fn place(&self, name: Known) -> Option<Span> {
        self.head.place(name).map(|place| place.value)
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
        let mut text = std::mem::take(&mut self.text);
        // What came in several pieces may have more memory than it needs.
        text.shrink_to_fit();
        self.set_text(text.into());
        std::mem::take(&mut self.head)
    }

    /// The head, to be shared; an empty one remains. When nothing else holds the head any more, the
    /// builder uses its memory again.
    pub fn share(&mut self) -> Rc<ResponseHead> {
        let last = self.shared.take().filter(|last| Rc::strong_count(last) == 1);
        let mut shared = last.unwrap_or_default();
        if let Some(head) = Rc::get_mut(&mut shared) {
            // First, so that the memory of its text is free.
            head.text = Bytes::new();
            if self.text.len() <= KEPT_BYTES_MAX {
                if self.shared_texts.capacity() < self.text.len() {
                    // Reuses the memory once it has no other users.
                    self.shared_texts.reserve(SHARED_TEXTS_BYTES);
                }
                self.shared_texts.extend_from_slice(&self.text);
                self.text.clear();
                let text = self.shared_texts.split().freeze();
                self.set_text(text);
                self.head.move_to(head);
            } else {
                *head = self.take();
            }
        }
        self.shared = Some(shared.clone());
        shared
    }

    fn set_text(&mut self, text: Bytes) {
        let head = &mut self.head;
        head.text = text;
        let reason = std::mem::take(&mut self.reason).of(&head.text);
        head.reason = match status::reason(head.status) {
            Some(usual) if usual.as_bytes() == reason => Bytes::from_static(usual.as_bytes()),
            _ => Bytes::copy_from_slice(reason),
        };
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

    /// Receives a head with one field, and shares it.
    fn shared(builder: &mut ResponseBuilder, status: u16, value: &str) -> Rc<ResponseHead> {
        builder.clear();
        builder.text_mut().extend_from_slice(format!("OK Server{value}").as_bytes());
        builder.set_status(status, Span::new(0, 2), Version::Http11);
        let (name, value) = (Span::new(3, 9), Span::new(9, 9 + value.len()));
        builder.add(FieldPosition { name, value, known: Some(Known::Server) });
        builder.finish(9).unwrap();
        builder.share()
    }

    #[test]
    fn the_memory_of_a_shared_head_is_used_again() {
        let mut builder = ResponseBuilder::new();
        let first = shared(&mut builder, 200, "one");
        let second = shared(&mut builder, 404, "two");
        assert_eq!((first.status, first.known(Known::Server)), (200, Some(&b"one"[..])));
        assert_eq!((second.status, second.known(Known::Server)), (404, Some(&b"two"[..])));
        assert_eq!((&first.reason[..], &second.reason[..]), (&b"OK"[..], &b"OK"[..]));
        let (mut heads, mut values) = (Vec::new(), Vec::new());
        drop((first, second));
        for _ in 0..1000 {
            let third = shared(&mut builder, 200, "six");
            assert_eq!(third.fields().len(), 1);
            heads.push((Rc::as_ptr(&third), third.places.as_ptr()));
            values.push(third.text.as_ptr().addr());
        }
        // Two lists of places take turns: one of the head, one of the builder.
        assert_eq!((heads[2], heads[3]), (heads[0], heads[1]));
        assert_eq!(heads[0].0, heads[1].0);
        // The texts stay within the memory that they have in common.
        let (least, most) = (values.iter().min().unwrap(), values.iter().max().unwrap());
        assert!(most - least < SHARED_TEXTS_BYTES);
        // A value that is still in use is left alone.
        let third = shared(&mut builder, 200, "six");
        let value = third.share(third.known(Known::Server).unwrap());
        drop(third);
        let fourth = shared(&mut builder, 200, "ten");
        assert_eq!((&value[..], fourth.known(Known::Server)), (&b"six"[..], Some(&b"ten"[..])));
    }

    #[test]
    fn the_memory_of_a_large_head_is_not_kept() {
        let mut builder = ResponseBuilder::new();
        let long = "x".repeat(KEPT_BYTES_MAX);
        let large = shared(&mut builder, 200, &long);
        assert_eq!(large.known(Known::Server), Some(long.as_bytes()));
        let weak = Rc::downgrade(&large);
        drop(large);
        builder.clear();
        assert!(weak.upgrade().is_none() && builder.text.capacity() <= KEPT_BYTES_MAX);
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
