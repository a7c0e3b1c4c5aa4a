//! Writing field sections, and our encoder stream.
//!
//! An entry is referred to only after the peer has acknowledged it, so no section ever waits for another stream, and
//! loss on the encoder stream costs nothing but compression. What enters the table is decided by
//! [`nowait_fields::indexing`].

use std::collections::VecDeque;

use nowait_fields::indexing::{Indexing, SentOnce, hash, indexing};
use nowait_fields::integer::{self, read_long};
use nowait_fields::table::DynamicTable;
use nowait_fields::write::{string, string_after};
use nowait_fields::{CodingError, Token};

use super::{ENTRY_OVERHEAD, QpackError, static_table};
use crate::frame::StreamId;

/// Maximum size of the table, even if the peer allows more.
const TABLE_MAX: u32 = 4096;

/// Longer names with upper-case letters are sent without compression.
const FOLDED_MAX: usize = 128;

/// Sections with references that the peer may leave unacknowledged. While there are as many, sections have none.
const OUTSTANDING_MAX: usize = 256;

/// Bytes of instructions that wait for the transport. While there are more, nothing is inserted.
const INSTRUCTIONS_MAX: usize = 4096;

/// Hashes of evicted entries that may wait to be dropped.
const FORGOTTEN_MAX: usize = 32;

/// A section that refers to the table, and was not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    stream: StreamId,
    /// The number of the oldest entry that it refers to.
    oldest: u64,
}

/// One direction's state: our table, as the peer has it.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable<Token>,
    /// Hashes of the table's fields, the oldest at `first`. The upper half is the name's.
    hashes: Vec<u32>,
    first: usize,
    /// Fields sent without being inserted.
    seen: SentOnce,
    /// The peer's SETTINGS_QPACK_MAX_TABLE_CAPACITY.
    capacity_max: u64,
    /// Insertions so far, and those that the peer has acknowledged.
    inserted: u64,
    known: u64,
    outstanding: VecDeque<Outstanding>,
    /// The section being written, without its prefix.
    section: Vec<u8>,
    /// What it refers to: the number of the oldest entry, and one more than that of the newest.
    oldest: u64,
    required: u64,
    /// The base of its references: what was known when it began.
    base: u64,
    /// An incomplete instruction of the peer's decoder.
    partial: Vec<u8>,
    /// Instructions to be sent.
    pub(crate) output: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder {
            table: DynamicTable::new(0),
            hashes: Vec::new(),
            first: 0,
            seen: SentOnce::default(),
            capacity_max: 0,
            inserted: 0,
            known: 0,
            outstanding: VecDeque::new(),
            section: Vec::new(),
            oldest: u64::MAX,
            required: 0,
            base: 0,
            partial: Vec::new(),
            output: Vec::new(),
        }
    }
}

/// The match of a field in the table, by the number of the entry.
#[derive(PartialEq, Eq)]
enum TableMatch {
    Field(u64),
    Name(u64),
    /// The field was inserted, and not acknowledged yet.
    Pending,
    Nothing,
}

impl Encoder {
    /// The peer's settings have come: its SETTINGS_QPACK_MAX_TABLE_CAPACITY.
    pub fn allow(&mut self, capacity: u64) {
        self.capacity_max = capacity;
        let size = capacity.min(TABLE_MAX.into()) as u32;
        if size > 0 {
            self.table.resize(size);
            integer::write(&mut self.output, 0x20, 5, size as usize);
        }
    }

    /// Begins a field section.
    pub fn begin(&mut self) {
        self.section.clear();
        (self.oldest, self.required) = (u64::MAX, 0);
        self.base = if self.outstanding.len() < OUTSTANDING_MAX { self.known } else { 0 };
    }

    /// Ends it: writes it with its prefix (RFC 9204 section 4.5.1) by `put`, which takes both.
    pub fn finish(&mut self, stream: StreamId, put: impl FnOnce(&[u8], &[u8])) {
        let mut prefix = [0; 16];
        let mut rest = &mut prefix[..];
        let mut base = 0;
        let mut encoded = 0;
        if self.required > 0 {
            let range = 2 * (self.capacity_max / ENTRY_OVERHEAD);
            encoded = self.required % range + 1;
            base = self.base - self.required;
            self.outstanding.push_back(Outstanding { stream, oldest: self.oldest });
        }
        integer::write(&mut rest, 0, 8, encoded as usize);
        integer::write(&mut rest, 0, 7, base as usize);
        let length = 16 - rest.len();
        put(&prefix[..length], &self.section);
        self.oldest = u64::MAX;
    }

    /// Writes a field. Its name may have upper-case letters, which are folded. `sensitive` keeps it out of every table.
    pub fn field(&mut self, name: &[u8], value: &[u8], sensitive: bool) {
        let token = Token::of(name);
        if token != Token::OTHER {
            return self.known(token, value, sensitive);
        }
        if !name.iter().any(u8::is_ascii_uppercase) {
            return self.named(Token::OTHER, name, value, sensitive);
        }
        let mut folded = [0; FOLDED_MAX];
        if let Some(folded) = folded.get_mut(..name.len()) {
            folded.copy_from_slice(name);
            folded.make_ascii_lowercase();
            return self.named(Token::OTHER, folded, value, sensitive);
        }
        integer::write(&mut self.section, if sensitive { 0x30 } else { 0x20 }, 3, name.len());
        self.section.extend(name.iter().map(u8::to_ascii_lowercase));
        string(&mut self.section, value);
    }

    /// Writes a field whose name is in HPACK's static table.
    pub fn known(&mut self, token: Token, value: &[u8], sensitive: bool) {
        self.named(token, token.name(), value, sensitive);
    }

    fn named(&mut self, token: Token, name: &[u8], value: &[u8], sensitive: bool) {
        let place = static_table::name(token, name);
        if let Some(index) = place.and_then(|first| static_table::value(first, value)) {
            return integer::write(&mut self.section, 0xc0, 6, index as usize);
        }
        let hash = hash(token, name, value);
        let indexing = if sensitive { Indexing::Never } else { indexing(token, value) };
        let found = match self.table.is_empty() {
            true => TableMatch::Nothing,
            false => self.find(hash, name, value, indexing != Indexing::Never),
        };
        // Counted first: an insertion must not evict it.
        let known_name = match found {
            TableMatch::Name(number) if place.is_none() => Some(self.refer(number)),
            _ => None,
        };
        match found {
            TableMatch::Field(number) => {
                let index = self.refer(number);
                return integer::write(&mut self.section, 0x80, 6, index);
            }
            TableMatch::Pending => {}
            TableMatch::Name(_) | TableMatch::Nothing => match indexing {
                Indexing::AtOnce => self.insert(place, token, name, value, hash),
                Indexing::WhenRepeated if self.seen.is_repeated(hash) => {
                    self.insert(place, token, name, value, hash);
                }
                _ => {}
            },
        }
        // Only what was marked by the caller: intermediaries may index the rest, as in nginx.
        let never = if sensitive { 0x20 } else { 0 };
        match (place, known_name) {
            (Some(index), _) => {
                integer::write(&mut self.section, 0x50 | never, 4, index as usize);
            }
            (None, Some(index)) => integer::write(&mut self.section, 0x40 | never, 4, index),
            (None, None) => string_after(&mut self.section, 0x20 | never >> 1, 3, name),
        }
        string(&mut self.section, value);
    }

    /// Counts a reference of the section; returns its index.
    fn refer(&mut self, number: u64) -> usize {
        self.oldest = self.oldest.min(number);
        self.required = self.required.max(number + 1);
        (self.base - 1 - number) as usize
    }

    /// Inserts a field, unless that would evict what may be referred to: "A dynamic table entry cannot be evicted
    /// immediately after insertion [...] the entry becomes evictable" when it is acknowledged and no unacknowledged
    /// section refers to it (RFC 9204 section 2.1.1).
    fn insert(&mut self, place: Option<u64>, token: Token, name: &[u8], value: &[u8], hash: u32) {
        let bytes = name.len() + value.len();
        // Large values would push out all others.
        if bytes > self.table.size_max() as usize / 4 || self.output.len() > INSTRUCTIONS_MAX {
            return;
        }
        let Some(evicted) = self.table.evicted_by(bytes) else { return };
        if evicted > 0 {
            let oldest = self.inserted - self.table.len() as u64;
            let used = self.outstanding.iter().map(|section| section.oldest).min();
            let kept = self.known.min(self.oldest).min(used.unwrap_or(u64::MAX));
            if oldest + evicted as u64 > kept {
                return;
            }
        }
        match place {
            Some(index) => integer::write(&mut self.output, 0xc0, 6, index as usize),
            None => string_after(&mut self.output, 0x40, 5, name),
        }
        string(&mut self.output, value);
        let (evicted, inserted) = self.table.insert(name, value, token);
        debug_assert!(inserted, "a quarter of the table is left");
        self.forget(evicted);
        self.hashes.push(hash);
        self.inserted += 1;
    }

    /// The newest entry that is the field, or at least has its name.
    fn find(&self, hash: u32, name: &[u8], value: &[u8], whole: bool) -> TableMatch {
        let mut found = TableMatch::Nothing;
        for (at, entry) in self.hashes[self.first..].iter().rev().enumerate() {
            if (entry ^ hash) >> 16 != 0 {
                continue;
            }
            let Some((known_name, known_value, _)) = self.table.get(at) else { break };
            if known_name != name {
                continue;
            }
            let number = self.inserted - 1 - at as u64;
            let is_usable = number < self.base;
            if whole && *entry == hash && known_value == value {
                return if is_usable { TableMatch::Field(number) } else { TableMatch::Pending };
            }
            if is_usable && found == TableMatch::Nothing {
                found = TableMatch::Name(number);
            }
        }
        found
    }

    /// Drops the hashes of the oldest entries.
    fn forget(&mut self, evicted: usize) {
        self.first += evicted;
        if self.first == self.hashes.len() {
            self.hashes.clear();
            self.first = 0;
        } else if self.first > FORGOTTEN_MAX {
            self.hashes.drain(..self.first);
            self.first = 0;
        }
    }

    /// Processes a part of the peer's decoder stream (RFC 9204 section 4.4). Returns the number of instructions.
    pub fn receive(&mut self, input: &[u8]) -> Result<u32, QpackError> {
        let mut partial = std::mem::take(&mut self.partial);
        let input = if partial.is_empty() {
            input
        } else {
            partial.extend_from_slice(input);
            &partial
        };
        let (mut rest, mut count) = (input, 0);
        while let Some(&first) = rest.first() {
            let prefix = match first {
                0x80.. => 7,
                _ => 6,
            };
            let (number, behind) = match read_long(rest, prefix) {
                Ok(read) => read,
                // At most ten octets are kept.
                Err(CodingError::Truncated) => break,
                Err(error) => return Err(error.into()),
            };
            rest = behind;
            count += 1;
            match first {
                0x80.. => self.acknowledged(StreamId::new(number))?,
                0x40.. => self.cancelled(StreamId::new(number)),
                _ => self.increment(number)?,
            }
        }
        self.partial = rest.to_vec();
        Ok(count)
    }

    /// Section Acknowledgment. "If an encoder receives a Section Acknowledgment instruction referring to a stream on
    /// which every encoded field section with a non-zero Required Insert Count has already been acknowledged, this MUST
    /// be treated as a connection error".
    fn acknowledged(&mut self, stream: StreamId) -> Result<(), QpackError> {
        let at = self.outstanding.iter().position(|section| section.stream == stream);
        let at = at.ok_or(QpackError::InvalidAcknowledgement)?;
        self.outstanding.remove(at);
        Ok(())
    }

    /// Stream Cancellation.
    fn cancelled(&mut self, stream: StreamId) {
        self.outstanding.retain(|section| section.stream != stream);
    }

    /// Insert Count Increment. "An encoder that receives an Increment field equal to zero, or one that increases the
    /// Known Received Count beyond what the encoder has sent, MUST treat this as a connection error".
    fn increment(&mut self, number: u64) -> Result<(), QpackError> {
        if number == 0 || number > self.inserted - self.known {
            return Err(QpackError::InvalidAcknowledgement);
        }
        self.known += number;
        Ok(())
    }

    /// Takes the instructions that wait for our encoder stream.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Gives back memory that an idle connection doesn't need. The table remains, because emptying it costs
    /// instructions.
    pub fn shrink(&mut self) {
        self.section = Vec::new();
        self.partial.shrink_to_fit();
        self.output.shrink_to_fit();
        self.outstanding.shrink_to_fit();
        self.table.shrink();
    }

    /// Bytes of heap memory.
    pub fn heap(&self) -> usize {
        let buffers = self.section.capacity() + self.partial.capacity() + self.output.capacity();
        let outstanding = self.outstanding.capacity() * size_of::<Outstanding>();
        buffers + outstanding + self.table.heap() + self.hashes.capacity() * size_of::<u32>()
    }
}
