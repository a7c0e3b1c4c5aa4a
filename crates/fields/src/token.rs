//! HPACK's static table (RFC 7541 appendix A), and the numbers of its names, which QPACK uses to tell names apart.

/// The fields of the static table; the first has index 1.
#[rustfmt::skip]
const TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The number of fields, which is also the largest index.
pub const LEN: usize = TABLE.len();

/// The field at `index`, which counts from 1.
#[inline]
pub fn field(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = TABLE.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// The number of a name in the static table: the index of its first field. 0 is any other name.
///
/// A decoder knows it for free for most fields, so heads can be filled without comparing names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Token(u8);

impl Token {
    /// A name that is not in the static table.
    pub const OTHER: Token = Token(0);
    /// `:authority`
    pub const AUTHORITY: Token = Token(1);
    /// `:method`
    pub const METHOD: Token = Token(2);
    /// `:path`
    pub const PATH: Token = Token(4);
    /// `:scheme`
    pub const SCHEME: Token = Token(6);
    /// `:status`
    pub const STATUS: Token = Token(8);
    /// `accept-encoding`
    pub const ACCEPT_ENCODING: Token = Token(16);
    /// `age`
    pub const AGE: Token = Token(21);
    /// `authorization`
    pub const AUTHORIZATION: Token = Token(23);
    /// `content-length`
    pub const CONTENT_LENGTH: Token = Token(28);
    /// `content-range`
    pub const CONTENT_RANGE: Token = Token(30);
    /// `cookie`
    pub const COOKIE: Token = Token(32);
    /// `etag`
    pub const ETAG: Token = Token(34);
    /// `host`
    pub const HOST: Token = Token(38);
    /// `if-modified-since`
    pub const IF_MODIFIED_SINCE: Token = Token(40);
    /// `if-none-match`
    pub const IF_NONE_MATCH: Token = Token(41);
    /// `last-modified`
    pub const LAST_MODIFIED: Token = Token(44);
    /// `location`
    pub const LOCATION: Token = Token(46);
    /// `proxy-authorization`
    pub const PROXY_AUTHORIZATION: Token = Token(49);
    /// `range`
    pub const RANGE: Token = Token(50);
    /// `set-cookie`
    pub const SET_COOKIE: Token = Token(55);
    /// `content-type`
    pub const CONTENT_TYPE: Token = Token(31);
    /// `date`
    pub const DATE: Token = Token(33);
    /// `server`
    pub const SERVER: Token = Token(54);
    /// `vary`
    pub const VARY: Token = Token(59);
    /// `transfer-encoding`
    pub const TRANSFER_ENCODING: Token = Token(57);

    /// The token of a name, compared without case.
    #[inline]
    pub fn of(name: &[u8]) -> Token {
        let Some(mut bucket) = hash(name) else { return Token::OTHER };
        loop {
            let token = Token(BUCKETS[bucket]);
            if token == Token::OTHER || name.eq_ignore_ascii_case(token.name()) {
                return token;
            }
            bucket = (bucket + 1) % BUCKETS.len();
        }
    }

    /// The name; empty for [`Token::OTHER`].
    #[inline]
    pub fn name(self) -> &'static [u8] {
        field(self.index()).map_or(b"", |(name, _)| name)
    }

    /// The index of the first field of this name, 0 if there is none.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The token of the field at `index`.
    #[inline]
    pub fn at(index: usize) -> Token {
        Token(TOKENS.get(index).copied().unwrap_or_default())
    }
}

/// The token of each index.
const TOKENS: [u8; LEN + 1] = {
    let mut tokens = [0; LEN + 1];
    let mut index = 1;
    while index <= LEN {
        let mut first = 1;
        while !same(TABLE[first - 1].0.as_bytes(), TABLE[index - 1].0.as_bytes()) {
            first += 1;
        }
        tokens[index] = first as u8;
        index += 1;
    }
    tokens
};

/// Tokens by the hash of their name; a taken bucket moves a token to the next free one.
const BUCKETS: [u8; 256] = {
    let mut buckets = [0; 256];
    let mut index = 1;
    while index <= LEN {
        if TOKENS[index] as usize == index {
            let Some(mut bucket) = hash(TABLE[index - 1].0.as_bytes()) else { unreachable!() };
            while buckets[bucket] != 0 {
                bucket = (bucket + 1) % buckets.len();
            }
            buckets[bucket] = index as u8;
        }
        index += 1;
    }
    buckets
};

/// From the length, the first octet, the last and the middle one.
#[inline]
const fn hash(name: &[u8]) -> Option<usize> {
    let [first, .., last] = name else { return None };
    let middle = name[name.len() / 2];
    let sum = name.len() * 31
        + (*first | 0x20) as usize * 5
        + (*last | 0x20) as usize * 17
        + (middle | 0x20) as usize * 43;
    Some(sum % 256)
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_token() {
        for (at, (name, _)) in TABLE.iter().enumerate() {
            let token = Token::of(name.as_bytes());
            assert_eq!(token.name(), name.as_bytes());
            assert_eq!(token, Token::at(at + 1));
            assert!(token.index() <= at + 1);
            assert_eq!(Token::of(name.to_uppercase().as_bytes()), token);
        }
        for name in ["", "x", "x-forwarded-for", ":protocol", "acceptx", "grpc-status"] {
            assert_eq!(Token::of(name.as_bytes()), Token::OTHER);
        }
        assert_eq!(Token::SET_COOKIE.name(), b"set-cookie");
        assert_eq!(Token::TRANSFER_ENCODING.name(), b"transfer-encoding");
        assert_eq!(Token::PROXY_AUTHORIZATION.name(), b"proxy-authorization");
        assert_eq!(Token::LAST_MODIFIED.name(), b"last-modified");
        assert_eq!(Token::CONTENT_RANGE.name(), b"content-range");
        assert_eq!(Token::CONTENT_TYPE.name(), b"content-type");
        assert_eq!(Token::CONTENT_LENGTH.name(), b"content-length");
        assert_eq!(Token::DATE.name(), b"date");
        assert_eq!(Token::SERVER.name(), b"server");
        assert_eq!(Token::VARY.name(), b"vary");
    }

    #[test]
    fn indexes_are_those_of_the_rfc() {
        assert_eq!(field(0), None);
        assert_eq!(field(1), Some((&b":authority"[..], &b""[..])));
        assert_eq!(field(16), Some((&b"accept-encoding"[..], &b"gzip, deflate"[..])));
        assert_eq!(field(61), Some((&b"www-authenticate"[..], &b""[..])));
        assert_eq!(field(62), None);
    }
}
