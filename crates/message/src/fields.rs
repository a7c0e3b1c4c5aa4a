//! The field section of a head: an offset table over bytes that the head owns.
//!
//! Used by [`crate::RequestHead`] and for trailers. Filled by the readers of each protocol. Values are
//! raw bytes without surrounding white space; nothing is decoded.

use std::ops::Range;

use crate::Known;

/// A range of a head's bytes. Heads are far smaller than 4 GiB: protocols limit them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// From one place up to another.
    #[inline]
    pub fn new(start: usize, end: usize) -> Self {
        Span { start: start as u32, end: end as u32 }
    }

    /// These of the bytes; none if there are fewer.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The same range `by` bytes later.
    #[inline]
    #[must_use]
    pub fn shift(self, by: usize) -> Self {
        Span { start: self.start + by as u32, end: self.end + by as u32 }
    }

    /// The part of this span that `range` counts from its start.
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Self {
        Span::new(range.start, range.end).shift(self.start as usize)
    }

    /// From the start of this span to the end of another.
    #[must_use]
    pub fn to(self, other: Span) -> Self {
        Span { start: self.start, end: other.end }
    }

    /// As a range of indices.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

/// The position of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPosition {
    /// The name as sent.
    pub name: Span,
    /// The value without surrounding white space.
    pub value: Span,
    /// The number of its name.
    pub known: Option<Known>,
}

/// Places whose memory is kept when fields are removed.
const ENTRIES_KEPT: usize = 64;

/// The positions of the fields. `first` holds index + 1 of the first field of each known name.
#[derive(Debug, Clone)]
pub struct FieldTable {
    entries: Vec<FieldPosition>,
    first: [u16; Known::COUNT],
    repeated: u128,
}

impl Default for FieldTable {
    fn default() -> Self {
        FieldTable { entries: Vec::new(), first: [0; Known::COUNT], repeated: 0 }
    }
}

impl FieldTable {
    /// Clears the fields and keeps the memory. Writes only used entries.
    pub fn clear(&mut self) {
        for known in self.entries.drain(..).filter_map(|entry| entry.known) {
            self.first[known as usize] = 0;
        }
        self.repeated = 0;
    }

    /// Moves the fields to `places`, and takes the memory of `places` in exchange. The table is empty
    /// afterwards.
    pub(crate) fn save_to(&mut self, places: &mut Vec<FieldPosition>) {
        places.clear();
        for known in self.entries.iter().filter_map(|entry| entry.known) {
            self.first[known as usize] = 0;
        }
        self.repeated = 0;
        std::mem::swap(&mut self.entries, places);
    }

    /// Restores fields that [`save_to`](Self::save_to) has moved to `places`; the byte that was at `from` is
    /// at `to` now. The table must be empty.
    pub(crate) fn restore_from(&mut self, places: &mut Vec<FieldPosition>, from: usize, to: usize) {
        std::mem::swap(&mut self.entries, places);
        // Wrapping: the distance may be negative.
        let by = (to as u32).wrapping_sub(from as u32);
        for (at, FieldPosition { name, value, known }) in self.entries.iter_mut().enumerate() {
            for span in [name, value] {
                span.start = span.start.wrapping_add(by);
                span.end = span.end.wrapping_add(by);
            }
            let Some(known) = *known else { continue };
            let first = &mut self.first[known as usize];
            if *first == 0 {
                *first = at as u16 + 1;
            } else {
                self.repeated |= 1 << known as u32;
            }
        }
    }

    /// Gives memory for more than this many fields back. The table is empty.
    pub fn shrink(&mut self, entries_max: usize) {
        if self.entries.capacity() > entries_max {
            self.entries = Vec::new();
        }
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a field. There must be fewer than `u16::MAX`: protocols limit their number.
    #[inline]
    pub fn push(&mut self, name: Span, value: Span, known: Option<Known>) {
        self.entries.push(FieldPosition { name, value, known });
        if let Some(known) = known {
            let first = &mut self.first[known as usize];
            if *first == 0 {
                *first = self.entries.len() as u16;
            } else {
                self.repeated |= 1 << known as u32;
            }
        }
    }

    /// Whether there is a field of this name.
    #[inline]
    pub fn has(&self, known: Known) -> bool {
        self.first[known as usize] != 0
    }

    /// The position of the first field of this name.
    #[inline]
    pub(crate) fn place(&self, known: Known) -> Option<&FieldPosition> {
        let index = usize::from(self.first[known as usize]).checked_sub(1)?;
        self.entries.get(index)
    }

    /// The memory of the places, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<FieldPosition>()
    }

    /// Makes the first field that `is_it` the only one, with another value; false if there is none.
    pub(crate) fn replace(&mut self, value: Span, is_it: impl Fn(&FieldPosition) -> bool) -> bool {
        let Some(first) = self.entries.iter().position(&is_it) else { return false };
        self.entries[first].value = value;
        let mut at = 0;
        self.retain(|place| {
            at += 1;
            at == first + 1 || !is_it(place)
        });
        true
    }

    /// Keeps only some of the fields.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&FieldPosition) -> bool) {
        let before = self.entries.len();
        self.entries.retain(keep);
        if self.entries.len() == before {
            return;
        }
        // Hundreds of cookies that came one by one are one field now (CVE-2026-49975).
        if self.entries.capacity() > ENTRIES_KEPT {
            self.entries.shrink_to(ENTRIES_KEPT);
        }
        // Fields behind those have moved.
        (self.first, self.repeated) = ([0; Known::COUNT], 0);
        for (at, place) in self.entries.iter().enumerate().rev() {
            let Some(known) = place.known else { continue };
            let first = &mut self.first[known as usize];
            if *first != 0 {
                self.repeated |= 1 << known as u32;
            }
            *first = at as u16 + 1;
        }
    }

    /// The fields, whose names and values are parts of these bytes.
    #[inline]
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        Fields { table: self, bytes }
    }
}

/// One field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name as sent.
    pub name: &'a [u8],
    /// The value without surrounding white space.
    pub value: &'a [u8],
    /// The number of the name.
    pub known: Option<Known>,
}

/// The fields of a head in the order received.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    table: &'a FieldTable,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.table.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.entries.is_empty()
    }

    /// The value of the first field of this name; one load.
    #[inline]
    pub fn first(&self, known: Known) -> Option<&'a [u8]> {
        Some(self.table.place(known)?.value.of(self.bytes))
    }

    /// Whether a field of this name occurs more than once.
    #[inline]
    pub fn is_repeated(&self, known: Known) -> bool {
        self.table.repeated & (1 << known as u32) != 0
    }

    /// The values of all fields of this name.
    pub fn all(&self, known: Known) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (table, bytes) = (self.table, self.bytes);
        let first = usize::from(table.first[known as usize]);
        let entries = match first.checked_sub(1) {
            None => &[][..],
            Some(index) if table.repeated & (1 << known as u32) == 0 => {
                &table.entries[index..=index]
            }
            Some(index) => &table.entries[index..],
        };
        entries.iter().filter(move |e| e.known == Some(known)).map(move |e| e.value.of(bytes))
    }

    /// The values of all fields of this name, compared without case.
    pub fn named<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.iter().filter(move |f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value)
    }

    /// All fields.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let bytes = self.bytes;
        self.table.entries.iter().map(move |e| Field {
            name: e.name.of(bytes),
            value: e.value.of(bytes),
            known: e.known,
        })
    }

    /// The field at `index`, in the order received.
    pub fn at(&self, index: usize) -> Option<Field<'a>> {
        self.table.entries.get(index).map(|e| Field {
            name: e.name.of(self.bytes),
            value: e.value.of(self.bytes),
            known: e.known,
        })
    }
}
