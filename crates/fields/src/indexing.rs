//! Which fields enter an encoder's dynamic table.
//!
//! Fields that repeat are inserted. Fields that usually repeat (`server`, `content-type`, `user-agent`) are
//! inserted at once; fields that often don't (`etag`, `content-length`, `:path`, names that the static table
//! lacks) when the same one is sent again. So values that occur once never push out the others. Secrets never
//! enter the table: guesses could be tested against it (RFC 7541 section 7.1, RFC 9204 section 7.1).

use crate::Token;

/// A cookie shorter than this could be guessed bit by bit.
const GUESSABLE_COOKIE_MAX: usize = 20;

/// Fields remembered as sent once.
const SEEN: usize = 32;

/// The encoding of a field that is not in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// Inserted at once.
    AtOnce,
    /// Inserted when it is sent again.
    WhenRepeated,
    /// Never, not by any intermediary.
    Never,
}

/// Remembers the last fields that were sent without being inserted, by their hash.
#[derive(Debug, Default)]
pub struct SentOnce([u16; SEEN]);

impl SentOnce {
    /// Whether the same field was sent before; it is remembered.
    #[inline]
    pub fn is_repeated(&mut self, hash: u32) -> bool {
        let seen = &mut self.0[hash as usize % SEEN];
        let tag = (hash >> 8) as u16 | 1;
        let repeated = *seen == tag;
        *seen = tag;
        repeated
    }
}

/// The encoding of such a field.
pub fn indexing(token: Token, value: &[u8]) -> Indexing {
    match token {
        Token::AUTHORIZATION | Token::PROXY_AUTHORIZATION | Token::SET_COOKIE => Indexing::Never,
        Token::COOKIE if value.len() < GUESSABLE_COOKIE_MAX => Indexing::Never,
        Token::OTHER
        | Token::PATH
        | Token::AGE
        | Token::CONTENT_LENGTH
        | Token::CONTENT_RANGE
        | Token::ETAG
        | Token::IF_MODIFIED_SINCE
        | Token::IF_NONE_MATCH
        | Token::LAST_MODIFIED
        | Token::LOCATION
        | Token::RANGE => Indexing::WhenRepeated,
        _ => Indexing::AtOnce,
    }
}

/// A hash for look-ups. The upper half depends on the name only, the lower half on both.
pub fn hash(token: Token, name: &[u8], value: &[u8]) -> u32 {
    let name = match token {
        Token::OTHER => mix(name, 0),
        token => (token.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    let both = mix(value, name);
    (name >> 32) as u32 & 0xffff_0000 | (both >> 48) as u32
}

fn mix(octets: &[u8], seed: u64) -> u64 {
    let mut hash = seed ^ octets.len() as u64;
    let (words, tail) = octets.as_chunks::<8>();
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    for word in words.iter().chain([&last]) {
        hash =
            (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    hash
}
