//! Reading field blocks.

use nowait_fields::integer::read;
use nowait_fields::table::DynamicTable;
use nowait_fields::{Facts, huffman, known, token as static_table};

use super::{HpackError, HpackField, TABLE_SIZE_DEFAULT, Token};

/// One direction's state: the peer's table. Lives as long as its connection.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable<Facts>,
    /// The largest size that the peer may choose.
    allowed: u32,
    /// A whole octet of padding after Huffman codes is accepted.
    long_padding: bool,
    /// The peer must say in its next block that its table has shrunk.
    must_shrink: bool,
    /// Decoded strings of the current field.
    scratch: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder {
            table: DynamicTable::new(TABLE_SIZE_DEFAULT),
            allowed: TABLE_SIZE_DEFAULT,
            long_padding: false,
            must_shrink: false,
            scratch: Vec::new(),
        }
    }
}

impl Decoder {
    /// The peer has acknowledged `SETTINGS_HEADER_TABLE_SIZE`. At most 65,535.
    pub fn allow(&mut self, size: u32) {
        self.allowed = size.min(super::SIZE_MAX);
        // "This mechanism [...] the encoder MUST signal the change" (RFC 7541 section 4.2).
        self.must_shrink = self.table.size_max() > self.allowed;
    }

    /// Accepts a whole octet of padding after Huffman codes, which is one too many (RFC 7541 section
    /// 5.2).
    pub fn accept_long_padding(&mut self) {
        self.long_padding = true;
    }

    /// Begins to read a complete field block. It must be read to its end, or the connection is lost:
    /// later blocks refer to what this one inserts. No string may be longer than `string_max`.
    pub fn block<'d>(&'d mut self, block: &'d [u8], string_max: usize) -> FieldBlock<'d> {
        FieldBlock { decoder: self, rest: block, string_max, begun: false }
    }

    /// Gives back memory that an idle connection doesn't need. The table's entries remain, because
    /// the peer may refer to them.
    pub fn shrink(&mut self) {
        self.scratch = Vec::new();
        self.table.shrink();
    }

    /// Bytes of heap memory.
    pub fn heap(&self) -> usize {
        self.scratch.capacity() + self.table.heap()
    }

    fn update_size(&mut self, size: u32) -> Result<(), HpackError> {
        if size > self.allowed {
            return Err(HpackError::InvalidTableSize);
        }
        self.must_shrink = false;
        self.table.resize(size);
        Ok(())
    }

    /// The name at `index`, in either table.
    fn name(&self, index: usize) -> Result<(&[u8], Token), HpackError> {
        if let Some((name, _)) = static_table::field(index) {
            return Ok((name, Token::at(index)));
        }
        let (name, _, facts) = self.dynamic(index)?;
        Ok((name, facts.token))
    }

    fn dynamic(&self, index: usize) -> Result<(&[u8], &[u8], Facts), HpackError> {
        let at = index.checked_sub(static_table::LEN + 1).ok_or(HpackError::InvalidIndex)?;
        self.table.get(at).ok_or(HpackError::InvalidIndex)
    }
}

/// A field block being read.
#[derive(Debug)]
pub struct FieldBlock<'d> {
    decoder: &'d mut Decoder,
    rest: &'d [u8],
    string_max: usize,
    begun: bool,
}

/// What a string literal is: octets of the block, or what was decoded from them.
enum Literal<'b> {
    Plain(&'b [u8]),
    Decoded(usize, usize),
}

impl<'d> FieldBlock<'d> {
    /// The next field; none at the end of the block.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it lends its fields")]
    pub fn next(&mut self) -> Result<Option<HpackField<'_>>, HpackError> {
        loop {
            let Some(&first) = self.rest.first() else { return Ok(None) };
            if first & 0xe0 == 0x20 {
                self.update_size()?;
                continue;
            }
            if !self.begun {
                self.begun = true;
                if self.decoder.must_shrink {
                    return Err(HpackError::InvalidTableSize);
                }
            }
            return match first {
                0x80.. => self.indexed(),
                0x40.. => self.literal(6, true, false),
                0x10.. => self.literal(4, false, true),
                _ => self.literal(4, false, false),
            }
            .map(Some);
        }
    }

    /// "This dynamic table size update MUST occur at the beginning of the first header block following
    /// the change" (RFC 7541 section 4.2).
    fn update_size(&mut self) -> Result<(), HpackError> {
        if self.begun {
            return Err(HpackError::InvalidTableSize);
        }
        let (size, rest) = read(self.rest, 5)?;
        self.rest = rest;
        self.decoder.update_size(size)
    }

    #[inline]
    fn indexed(&mut self) -> Result<HpackField<'_>, HpackError> {
        let (index, rest) = read(self.rest, 7)?;
        self.rest = rest;
        let index = index as usize;
        if let Some((name, value)) = static_table::field(index) {
            let facts = Facts { token: Token::at(index), known: known(name), fault: None };
            return Ok(HpackField::with(name, value, facts, false));
        }
        let (name, value, facts) = self.decoder.dynamic(index)?;
        Ok(HpackField::with(name, value, facts, false))
    }

    fn literal(
        &mut self,
        prefix: u32,
        insert: bool,
        sensitive: bool,
    ) -> Result<HpackField<'_>, HpackError> {
        self.decoder.scratch.clear();
        let (index, rest) = read(self.rest, prefix)?;
        self.rest = rest;
        let (name, token) = match index as usize {
            0 => (self.string()?, Token::OTHER),
            // A name of the dynamic table may be evicted by the very entry that uses it.
            index => {
                let mut scratch = std::mem::take(&mut self.decoder.scratch);
                let named = self.decoder.name(index);
                let token = named.map(|(name, token)| (scratch.extend_from_slice(name), token).1);
                let end = scratch.len();
                self.decoder.scratch = scratch;
                (Literal::Decoded(0, end), token?)
            }
        };
        let value = self.string()?;
        let Decoder { table, scratch, .. } = &mut *self.decoder;
        let of = |literal| match literal {
            Literal::Plain(octets) => octets,
            Literal::Decoded(start, end) => &scratch[start..end],
        };
        let (name, value) = (of(name), of(value));
        let token = if token == Token::OTHER { Token::of(name) } else { token };
        let facts = Facts::of(name, value, token);
        if insert {
            table.insert(name, value, facts);
        }
        Ok(HpackField::with(name, value, facts, sensitive))
    }

    fn string(&mut self) -> Result<Literal<'d>, HpackError> {
        let huffman = self.rest.first().is_some_and(|first| first & 0x80 != 0);
        let (length, rest) = read(self.rest, 7)?;
        let length = length as usize;
        if length > self.string_max {
            return Err(HpackError::StringTooLong);
        }
        let (string, rest) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
        self.rest = rest;
        if !huffman {
            return Ok(Literal::Plain(string));
        }
        let scratch = &mut self.decoder.scratch;
        let start = scratch.len();
        let padding_max = if self.decoder.long_padding { 15 } else { 7 };
        huffman::decode(string, scratch, self.string_max, padding_max)?;
        Ok(Literal::Decoded(start, scratch.len()))
    }
}
