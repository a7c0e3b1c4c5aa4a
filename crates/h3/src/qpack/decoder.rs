//! Reading field sections, and the peer's encoder stream.

use nowait_fields::integer::{self, read_long};
use nowait_fields::table::{DynamicTable, SIZE_MAX};
use nowait_fields::{CodingError, Facts, FieldLine, Token, huffman};

use super::{ENTRY_OVERHEAD, QpackError, static_table};
use crate::frame::StreamId;

/// Bits of padding after a Huffman code.
const PADDING_MAX: usize = 7;

/// One direction's state: the peer's table. Lives as long as its connection.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable<Facts>,
    /// SETTINGS_QPACK_MAX_TABLE_CAPACITY.
    capacity_max: u32,
    /// The longest string in bytes.
    string_max: usize,
    /// Insertions so far.
    inserted: u64,
    /// Insertions of which the peer knows that we have them.
    acknowledged: u64,
    /// An incomplete instruction.
    partial: Vec<u8>,
    /// Octets that it has at least: it is not looked at before it has as many.
    needed: usize,
    /// Decoded strings of the current field.
    scratch: Vec<u8>,
    /// Instructions to be sent.
    pub(crate) output: Vec<u8>,
}

/// What ended [`Decoder::receive`] too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The instructions are invalid.
    Invalid(QpackError),
    /// More insertions than the caller allows.
    TooMany,
}

impl<E: Into<QpackError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Refused::Invalid(error.into())
    }
}

/// A string literal: octets of the input, or what was decoded from them.
#[derive(Debug, Clone, Copy)]
enum Literal<'b> {
    Plain(&'b [u8]),
    Decoded(usize, usize),
}

impl<'b> Literal<'b> {
    fn of(self, scratch: &'b [u8]) -> &'b [u8] {
        match self {
            Literal::Plain(octets) => octets,
            Literal::Decoded(start, end) => &scratch[start..end],
        }
    }
}

/// Reads a string behind `prefix` bits of its length. Returns the rest, too.
fn string<'b>(
    input: &'b [u8],
    prefix: u32,
    max: usize,
    scratch: &mut Vec<u8>,
) -> Result<(Literal<'b>, &'b [u8]), CodingError> {
    let is_coded = input.first().is_some_and(|first| first & 1 << prefix != 0);
    let (length, rest) = read_long(input, prefix)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > max {
        return Err(CodingError::StringTooLong);
    }
    let (octets, rest) = rest.split_at_checked(length).ok_or(CodingError::Truncated)?;
    if !is_coded {
        return Ok((Literal::Plain(octets), rest));
    }
    let start = scratch.len();
    huffman::decode(octets, scratch, max, PADDING_MAX)?;
    Ok((Literal::Decoded(start, scratch.len()), rest))
}

/// Octets that an incomplete instruction has at least, by the lengths of strings that have come: more than there are.
/// Otherwise, an instruction that comes octet by octet would be read again for each of them.
fn known_length(input: &[u8]) -> usize {
    let behind = |rest: &[u8]| input.len() - rest.len();
    let string_at = |at: usize, prefix: u32| {
        let (length, rest) = read_long(input.get(at..)?, prefix).ok()?;
        behind(rest).checked_add(usize::try_from(length).ok()?)
    };
    let name = match input.first() {
        Some(0x80..) => read_long(input, 6).ok().map(|(_, rest)| behind(rest)),
        Some(0x40..) => string_at(0, 5),
        _ => None,
    };
    let value = name.and_then(|name| string_at(name, 7));
    // A value has a length of one octet or more.
    let known = value.or(name.map(|name| name.saturating_add(1)));
    known.unwrap_or(0).max(input.len() + 1)
}

impl Decoder {
    /// The state at the beginning of a connection whose peer may choose a table of this size, of strings no longer than
    /// `string_max`.
    pub fn new(capacity_max: u32, string_max: usize) -> Self {
        Decoder {
            table: DynamicTable::new(0),
            capacity_max: capacity_max.min(SIZE_MAX),
            string_max,
            inserted: 0,
            acknowledged: 0,
            partial: Vec::new(),
            needed: 0,
            scratch: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Insertions so far.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Processes a part of the peer's encoder stream, and acknowledges the insertions. `allowed` is how many of them
    /// there may be; it counts down.
    pub fn receive(&mut self, input: &[u8], allowed: &mut u32) -> Result<(), Refused> {
        let mut partial = std::mem::take(&mut self.partial);
        let input = if partial.is_empty() {
            input
        } else {
            partial.extend_from_slice(input);
            if partial.len() < self.needed {
                self.partial = partial;
                return Ok(());
            }
            &partial
        };
        let mut rest = input;
        while !rest.is_empty() {
            match self.instruction(rest, allowed) {
                Ok(behind) => rest = behind,
                // It would not fit into the table, but could be a request's.
                Err(Refused::Invalid(QpackError::StringTooLong))
                    if (self.table.size_max() as usize) < self.string_max =>
                {
                    return Err(QpackError::EntryTooLarge.into());
                }
                // The bound of a string bounds what is kept.
                Err(Refused::Invalid(QpackError::Truncated)) => {
                    self.needed = known_length(rest);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.partial = rest.to_vec();
        if self.inserted > self.acknowledged {
            let increment = self.inserted - self.acknowledged;
            integer::write(&mut self.output, 0, 6, increment as usize);
            self.acknowledged = self.inserted;
        }
        Ok(())
    }

    /// Whether an instruction is incomplete.
    pub fn has_begun(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Carries out one instruction (RFC 9204 section 4.3), if it is complete. Returns what follows it.
    fn instruction<'b>(&mut self, input: &'b [u8], allowed: &mut u32) -> Result<&'b [u8], Refused> {
        let first = input[0];
        self.scratch.clear();
        // No longer string fits into the table, or could be a request's.
        let max = self.string_max.min(self.table.size_max() as usize);
        match first {
            // Insert with Name Reference
            0x80.. => {
                let (index, rest) = read_long(input, 6)?;
                let mut scratch = std::mem::take(&mut self.scratch);
                // A name of the dynamic table may be evicted by the very entry that uses it.
                let named = match first & 0x40 {
                    0 => self.relative(index).map(|(name, _, facts)| (name, facts.token)),
                    _ => static_table::field(index)
                        .map(|(name, _, facts)| (name, facts.token))
                        .ok_or(QpackError::InvalidIndex),
                };
                let token = named.map(|(name, token)| (scratch.extend_from_slice(name), token).1);
                let name = Literal::Decoded(0, scratch.len());
                let value = string(rest, 7, max, &mut scratch);
                self.scratch = scratch;
                let (token, (value, rest)) = (token?, value?);
                self.insert(name, value, token, allowed)?;
                Ok(rest)
            }
            // Insert with Literal Name
            0x40.. => {
                let (name, rest) = string(input, 5, max, &mut self.scratch)?;
                let (value, rest) = string(rest, 7, max, &mut self.scratch)?;
                let token = Token::of(name.of(&self.scratch));
                self.insert(name, value, token, allowed)?;
                Ok(rest)
            }
            // Set Dynamic Table Capacity
            0x20.. => {
                let (capacity, rest) = read_long(input, 5)?;
                // "The decoder MUST treat a new dynamic table capacity value that exceeds this limit as a connection
                // error of type QPACK_ENCODER_STREAM_ERROR."
                if capacity > self.capacity_max.into() {
                    return Err(QpackError::InvalidCapacity.into());
                }
                self.spend(allowed)?;
                self.table.resize(capacity as u32);
                Ok(rest)
            }
            // Duplicate
            _ => {
                let (index, rest) = read_long(input, 5)?;
                let mut scratch = std::mem::take(&mut self.scratch);
                let entry = self.relative(index).map(|(name, value, facts)| {
                    scratch.extend_from_slice(name);
                    scratch.extend_from_slice(value);
                    (name.len(), facts.token)
                });
                let end = scratch.len();
                self.scratch = scratch;
                let (middle, token) = entry?;
                let (name, value) = (Literal::Decoded(0, middle), Literal::Decoded(middle, end));
                self.insert(name, value, token, allowed)?;
                Ok(rest)
            }
        }
    }

    fn spend(&self, allowed: &mut u32) -> Result<(), Refused> {
        *allowed = allowed.checked_sub(1).ok_or(Refused::TooMany)?;
        Ok(())
    }

    fn insert(
        &mut self,
        name: Literal<'_>,
        value: Literal<'_>,
        token: Token,
        allowed: &mut u32,
    ) -> Result<(), Refused> {
        self.spend(allowed)?;
        let (name, value) = (name.of(&self.scratch), value.of(&self.scratch));
        let facts = Facts::of(name, value, token);
        let (_, inserted) = self.table.insert(name, value, facts);
        // "It is an error if the encoder attempts to add an entry that is larger than the dynamic table capacity".
        if !inserted {
            return Err(QpackError::EntryTooLarge.into());
        }
        self.inserted += 1;
        Ok(())
    }

    /// The entry at an index that counts from the newest one.
    fn relative(&self, index: u64) -> Result<(&[u8], &[u8], Facts), QpackError> {
        let at = usize::try_from(index).map_err(|_| QpackError::InvalidIndex)?;
        self.table.get(at).ok_or(QpackError::InvalidIndex)
    }

    /// Begins to read a complete field section. No string may be longer than `string_max`.
    pub fn section<'d>(
        &'d mut self,
        section: &'d [u8],
        string_max: usize,
    ) -> Result<Section<'d>, QpackError> {
        let (required, rest) = read_long(section, 8)?;
        let required = self.required(required)?;
        let is_negative = rest.first().is_some_and(|first| first & 0x80 != 0);
        let (delta, rest) = read_long(rest, 7)?;
        let base = match is_negative {
            false => required.checked_add(delta),
            true => required.checked_sub(delta).and_then(|base| base.checked_sub(1)),
        };
        let base = base.ok_or(QpackError::InvalidPrefix)?;
        Ok(Section { decoder: self, rest, string_max, required, base })
    }

    /// Decodes a Required Insert Count (RFC 9204 section 4.5.1.1).
    fn required(&self, encoded: u64) -> Result<u64, QpackError> {
        if encoded == 0 {
            return Ok(0);
        }
        let entries_max = u64::from(self.capacity_max) / ENTRY_OVERHEAD;
        let range = 2 * entries_max;
        if encoded > range {
            return Err(QpackError::InvalidPrefix);
        }
        let max = self.inserted + entries_max;
        let wrapped = max / range * range;
        let mut required = wrapped + encoded - 1;
        if required > max {
            required = required.checked_sub(range).ok_or(QpackError::InvalidPrefix)?;
        }
        if required == 0 { Err(QpackError::InvalidPrefix) } else { Ok(required) }
    }

    /// A section that refers to the table was processed (RFC 9204 section 4.4.1).
    pub fn acknowledge(&mut self, stream: StreamId, required: u64) {
        if required > 0 {
            integer::write(&mut self.output, 0x80, 7, stream.get() as usize);
            self.acknowledged = self.acknowledged.max(required);
        }
    }

    /// What is left of a stream will not be read (RFC 9204 section 4.4.2). "A decoder with a maximum dynamic table
    /// capacity equal to zero MAY omit sending Stream Cancellations".
    pub fn cancel(&mut self, stream: StreamId) {
        if self.capacity_max > 0 {
            integer::write(&mut self.output, 0x40, 6, stream.get() as usize);
        }
    }

    /// Takes the instructions that wait for our decoder stream.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Gives back memory that an idle connection doesn't need. The table's entries remain, because the peer may refer
    /// to them.
    pub fn shrink(&mut self) {
        self.scratch = Vec::new();
        self.partial.shrink_to_fit();
        self.output.shrink_to_fit();
        self.table.shrink();
    }

    /// Bytes of heap memory.
    pub fn heap(&self) -> usize {
        let buffers = self.scratch.capacity() + self.partial.capacity() + self.output.capacity();
        buffers + self.table.heap()
    }
}

/// A field section being read.
#[derive(Debug)]
pub struct Section<'d> {
    decoder: &'d mut Decoder,
    rest: &'d [u8],
    string_max: usize,
    required: u64,
    base: u64,
}

/// The error of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldError {
    /// The section can't be decoded.
    Invalid(QpackError),
    /// A string is longer than the caller's bound.
    TooLong,
}

impl From<QpackError> for FieldError {
    fn from(error: QpackError) -> Self {
        FieldError::Invalid(error)
    }
}

impl From<CodingError> for FieldError {
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::StringTooLong => FieldError::TooLong,
            error => FieldError::Invalid(error.into()),
        }
    }
}

/// Where a name comes from.
enum NameSource<'b> {
    Static(u64),
    /// By the number of its entry.
    Dynamic(u64),
    Literal(Literal<'b>),
}

impl<'d> Section<'d> {
    /// How many insertions it needs.
    pub fn required(&self) -> u64 {
        self.required
    }

    /// Whether it has to wait for insertions.
    pub fn is_blocked(&self) -> bool {
        self.required > self.decoder.inserted
    }

    /// The next field; none at the end of the section.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it lends its fields")]
    pub fn next(&mut self) -> Result<Option<FieldLine<'_>>, FieldError> {
        let Some(&first) = self.rest.first() else { return Ok(None) };
        match first {
            // Indexed Field Line
            0xc0.. => {
                let index = self.integer(6)?;
                let field = static_table::field(index).ok_or(QpackError::InvalidIndex)?;
                Ok(Some(FieldLine::with(field.0, field.1, field.2, false)))
            }
            0x80.. => {
                let index = self.integer(6)?;
                let number = self.before_base(index)?;
                self.indexed(number).map(Some)
            }
            // Literal Field Line with Name Reference
            0x40.. => {
                let index = self.integer(4)?;
                let name = match first & 0x10 {
                    0 => NameSource::Dynamic(self.before_base(index)?),
                    _ => NameSource::Static(index),
                };
                self.decoder.scratch.clear();
                self.literal(name, first & 0x20 != 0).map(Some)
            }
            // Literal Field Line with Literal Name
            0x20.. => {
                self.decoder.scratch.clear();
                let (name, rest) =
                    string(self.rest, 3, self.string_max, &mut self.decoder.scratch)?;
                self.rest = rest;
                self.literal(NameSource::Literal(name), first & 0x10 != 0).map(Some)
            }
            // Indexed Field Line with Post-Base Index
            0x10.. => {
                let index = self.integer(4)?;
                let number = self.behind_base(index)?;
                self.indexed(number).map(Some)
            }
            // Literal Field Line with Post-Base Name Reference
            _ => {
                let index = self.integer(3)?;
                let name = NameSource::Dynamic(self.behind_base(index)?);
                self.decoder.scratch.clear();
                self.literal(name, first & 0x08 != 0).map(Some)
            }
        }
    }

    #[inline]
    fn integer(&mut self, prefix: u32) -> Result<u64, FieldError> {
        let (value, rest) = read_long(self.rest, prefix)?;
        self.rest = rest;
        Ok(value)
    }

    fn before_base(&self, index: u64) -> Result<u64, FieldError> {
        let number = self.base.checked_sub(index).and_then(|base| base.checked_sub(1));
        self.number(number)
    }

    fn behind_base(&self, index: u64) -> Result<u64, FieldError> {
        self.number(self.base.checked_add(index))
    }

    /// Checks the number of an entry. "If the decoder encounters a reference [...] to a dynamic table entry that has
    /// [...] an absolute index greater than or equal to the declared Required Insert Count, it MUST treat this as a
    /// connection error of type QPACK_DECOMPRESSION_FAILED." A count that is larger than needed is accepted, as by nginx.
    fn number(&self, number: Option<u64>) -> Result<u64, FieldError> {
        let number = number.filter(|&number| number < self.required);
        Ok(number.ok_or(QpackError::InvalidIndex)?)
    }

    fn indexed(&self, number: u64) -> Result<FieldLine<'_>, FieldError> {
        let (name, value, facts) = self.entry(number)?;
        Ok(FieldLine::with(name, value, facts, false))
    }

    fn entry(&self, number: u64) -> Result<(&[u8], &[u8], Facts), QpackError> {
        let index =
            self.decoder.inserted.checked_sub(number + 1).ok_or(QpackError::InvalidIndex)?;
        self.decoder.relative(index)
    }

    fn literal(
        &mut self,
        name: NameSource<'d>,
        sensitive: bool,
    ) -> Result<FieldLine<'_>, FieldError> {
        let (value, rest) = string(self.rest, 7, self.string_max, &mut self.decoder.scratch)?;
        self.rest = rest;
        let scratch = &self.decoder.scratch;
        let value = value.of(scratch);
        let (name, token) = match name {
            NameSource::Static(index) => {
                let (name, _, facts) =
                    static_table::field(index).ok_or(QpackError::InvalidIndex)?;
                (name, facts.token)
            }
            NameSource::Dynamic(number) => {
                let (name, _, facts) = self.entry(number)?;
                (name, facts.token)
            }
            NameSource::Literal(name) => {
                let name = name.of(scratch);
                (name, Token::of(name))
            }
        };
        Ok(FieldLine::with(name, value, Facts::of(name, value, token), sensitive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions with strings, whose first one fills most of the table.
    fn instructions() -> Vec<u8> {
        let mut all = Vec::new();
        integer::write(&mut all, 0x20, 5, 4096);
        // Insert with Literal Name, coded and plain, and with Name Reference, then Duplicate.
        let mut name = Vec::new();
        huffman::encode(&[b'n'; 300], &mut name);
        integer::write(&mut all, 0x60, 5, name.len());
        all.extend_from_slice(&name);
        integer::write(&mut all, 0, 7, 1000);
        all.extend_from_slice(&[b'v'; 1000]);
        integer::write(&mut all, 0xc0, 6, 0);
        integer::write(&mut all, 0, 7, 500);
        all.extend_from_slice(&[b'w'; 500]);
        integer::write(&mut all, 0, 5, 0);
        all
    }

    #[test]
    fn instructions_may_come_in_any_parts() {
        let all = instructions();
        for step in [1, 2, 3, 7, 100, 299, 1000, all.len()] {
            let (mut decoder, mut allowed) = (Decoder::new(4096, 4096), 10);
            for part in all.chunks(step) {
                decoder.receive(part, &mut allowed).unwrap();
            }
            assert_eq!((decoder.inserted(), decoder.has_begun(), allowed), (3, false, 6), "{step}");
        }
    }

    #[test]
    fn an_incomplete_instruction_is_read_again_only_when_more_of_it_is_known() {
        let all = instructions();
        let (mut decoder, mut allowed) = (Decoder::new(4096, 4096), 10);
        let mut waits = Vec::new();
        for octet in &all {
            decoder.receive(&[*octet], &mut allowed).unwrap();
            if decoder.has_begun() && waits.last() != Some(&decoder.needed) {
                waits.push(decoder.needed);
            }
        }
        // Octets of lengths, then whole strings: not one wait for each octet.
        assert!(waits.len() < 16, "{waits:?}");
        assert!(all.len() > 1700);
    }
}
