//! Writing field blocks.
//!
//! Fields that repeat are inserted into the table. Fields that usually repeat (`server`,
//! `content-type`, `user-agent`) are inserted at once; fields that often don't (`etag`,
//! `content-length`, `:path`, names that the static table lacks) when the same one is sent again. So
//! values that occur once never push out the others. Secrets never enter the table: guesses could be
//! tested against it (RFC 7541 section 7.1).

use bytes::BufMut;

use nowait_fields::indexing::{Indexing, SentOnce, hash, indexing};
use nowait_fields::table::DynamicTable;
use nowait_fields::write::string;
use nowait_fields::{Token, integer, token as static_table};

use super::TABLE_SIZE_DEFAULT;

/// Maximum size of the encoder's table, even if the peer allows more.
const TABLE_MAX: u32 = TABLE_SIZE_DEFAULT;

/// Longer names with upper-case letters are sent without compression.
const FOLDED_MAX: usize = 128;

/// Names whose last entry is remembered. They are told apart by their token modulo this number, which
/// differs for all that a file's response has.
const LAST: usize = 14;

/// Hashes of evicted entries that may wait to be dropped.
const FORGOTTEN_MAX: usize = 32;

/// One direction's state: our table, as the peer has it.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable<Token>,
    /// Hashes of the table's fields, the oldest at `first`. The upper half is the name's.
    hashes: Vec<u32>,
    first: usize,
    /// Fields sent without being inserted.
    seen: SentOnce,
    /// How many fields were inserted, modulo 256: the number of the newest entry. The table never has
    /// more than 128.
    inserted: u8,
    /// For names of the static table: the number of the entry that was used last.
    last: [u8; LAST],
    /// The smallest size since the last block, if the peer must be told of a change.
    smallest: Option<u32>,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder {
            table: DynamicTable::new(TABLE_MAX),
            hashes: Vec::new(),
            first: 0,
            seen: SentOnce::default(),
            inserted: 0,
            last: [0; LAST],
            smallest: None,
        }
    }
}

impl Encoder {
    /// The peer's `SETTINGS_HEADER_TABLE_SIZE`.
    pub fn allow(&mut self, size: u32) {
        self.resize(size.min(TABLE_MAX));
    }

    /// Begins a field block.
    pub fn begin(&mut self, out: &mut impl BufMut) {
        let Some(smallest) = self.smallest.take() else { return };
        // "if there are multiple changes [...] the smallest maximum table size that occurs in that
        // interval MUST be signaled" (RFC 7541 section 4.2).
        let size = self.table.size_max();
        if smallest < size {
            integer::write(out, 0x20, 5, smallest as usize);
        }
        integer::write(out, 0x20, 5, size as usize);
    }

    /// Writes a field. Its name may have upper-case letters, which are folded. `sensitive` keeps it out
    /// of every table.
    pub fn field(&mut self, out: &mut impl BufMut, name: &[u8], value: &[u8], sensitive: bool) {
        let token = Token::of(name);
        if token != Token::OTHER {
            return self.known(out, token, value, sensitive);
        }
        let upper = name.iter().any(u8::is_ascii_uppercase);
        if !upper {
            return self.named(out, Token::OTHER, name, value, sensitive);
        }
        let mut folded = [0; FOLDED_MAX];
        if let Some(folded) = folded.get_mut(..name.len()) {
            folded.copy_from_slice(name);
            folded.make_ascii_lowercase();
            return self.named(out, Token::OTHER, folded, value, sensitive);
        }
        out.put_u8(if sensitive { 0x10 } else { 0 });
        integer::write(out, 0, 7, name.len());
        name.iter().for_each(|octet| out.put_u8(octet.to_ascii_lowercase()));
        string(out, value);
    }

    /// Writes a field whose name is in the static table.
    pub fn known(&mut self, out: &mut impl BufMut, token: Token, value: &[u8], sensitive: bool) {
        if let Some(index) = static_index(token, value) {
            return integer::write(out, 0x80, 7, index);
        }
        self.named(out, token, token.name(), value, sensitive);
    }

    /// Writes a field whose name is in the static table as a reference to the last field of this name,
    /// if that had the same value. Otherwise nothing is written, and the result is false.
    #[must_use]
    pub fn repeat(&mut self, out: &mut impl BufMut, token: Token, value: &[u8]) -> bool {
        let at = usize::from(self.inserted.wrapping_sub(self.last[token.index() % LAST]));
        // The number may be another name's, or its entry may be gone: only the entry itself counts.
        if let Some((_, last_value, last_token)) = self.table.get(at)
            && last_token == token
            && last_value == value
        {
            integer::write(out, 0x80, 7, static_table::LEN + 1 + at);
            return true;
        }
        false
    }

    /// Empties the table and gives back its memory. The next block tells the peer.
    pub fn shrink(&mut self) {
        if !self.table.is_empty() {
            let size = self.table.size_max();
            self.resize(0);
            self.resize(size);
        }
        self.table.shrink();
        self.hashes = Vec::new();
        self.first = 0;
    }

    /// Bytes of heap memory.
    pub fn heap(&self) -> usize {
        self.table.heap() + self.hashes.capacity() * size_of::<u32>()
    }

    fn resize(&mut self, size: u32) {
        if size == self.table.size_max() {
            return;
        }
        self.smallest = Some(self.smallest.map_or(size, |smallest| smallest.min(size)));
        let evicted = self.table.resize(size);
        self.forget(evicted);
    }

    fn named(
        &mut self,
        out: &mut impl BufMut,
        token: Token,
        name: &[u8],
        value: &[u8],
        sensitive: bool,
    ) {
        let hash = hash(token, name, value);
        let indexing = if sensitive { Indexing::Never } else { indexing(token, value) };
        let found = self.find(hash, name, value, indexing != Indexing::Never);
        if let TableMatch::Field(index) = found {
            let at = index - static_table::LEN - 1;
            self.last[token.index() % LAST] = self.inserted.wrapping_sub(at as u8);
            return integer::write(out, 0x80, 7, index);
        }
        let index = match (token, found) {
            (Token::OTHER, TableMatch::Name(index)) => index,
            _ => token.index(),
        };
        let insert = match indexing {
            Indexing::Never => false,
            // Large values would push out all others.
            _ if name.len() + value.len() > self.table.size_max() as usize / 4 => false,
            Indexing::AtOnce => true,
            Indexing::WhenRepeated => self.seen.is_repeated(hash),
        };
        match indexing {
            _ if insert => integer::write(out, 0x40, 6, index),
            Indexing::Never => integer::write(out, 0x10, 4, index),
            _ => integer::write(out, 0, 4, index),
        }
        if index == 0 {
            string(out, name);
        }
        string(out, value);
        if insert {
            let (evicted, inserted) = self.table.insert(name, value, token);
            self.forget(evicted);
            if inserted {
                self.hashes.push(hash);
                self.inserted = self.inserted.wrapping_add(1);
                self.last[token.index() % LAST] = self.inserted;
            }
        }
    }

    /// The newest entry that is the field, or at least has its name.
    #[inline]
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
            let index = static_table::LEN + 1 + at;
            if whole && *entry == hash && known_value == value {
                return TableMatch::Field(index);
            }
            if found == TableMatch::Nothing {
                found = TableMatch::Name(index);
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
}

/// The match of a field in the table.
#[derive(PartialEq, Eq)]
enum TableMatch {
    Field(usize),
    Name(usize),
    Nothing,
}

/// The static table's index of name and value.
#[inline]
fn static_index(token: Token, value: &[u8]) -> Option<usize> {
    let indexes = match token {
        Token::METHOD => 2..=3,
        Token::PATH => 4..=5,
        Token::SCHEME => 6..=7,
        Token::STATUS => 8..=14,
        Token::ACCEPT_ENCODING => 16..=16,
        _ => return None,
    };
    indexes.into_iter().find(|&index| static_table::field(index).is_some_and(|f| f.1 == value))
}
