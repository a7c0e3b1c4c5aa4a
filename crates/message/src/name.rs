//! Field names that the server looks up, as small numbers.
//!
//! For each [`Known`] name, a head stores the position of its first field, so that
//! `header(Known::Range)` costs one load. Names are recognised by a perfect hash found at compile
//! time: a new row in the table below needs no other change.

macro_rules! known_names {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// A field name that has a number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each variant is the field of that name")]
        pub enum Known { $($variant),+ }

        const KNOWN: &[Known] = &[$(Known::$variant),+];
        const NAMES: &[&str] = &[$($name),+];
    };
}

known_names! {
    Accept = "Accept",
    AcceptCharset = "Accept-Charset",
    AcceptEncoding = "Accept-Encoding",
    AcceptLanguage = "Accept-Language",
    AcceptRanges = "Accept-Ranges",
    Age = "Age",
    Allow = "Allow",
    Authorization = "Authorization",
    CacheControl = "Cache-Control",
    Connection = "Connection",
    ContentDisposition = "Content-Disposition",
    ContentEncoding = "Content-Encoding",
    ContentLanguage = "Content-Language",
    ContentLength = "Content-Length",
    ContentLocation = "Content-Location",
    ContentRange = "Content-Range",
    ContentType = "Content-Type",
    Cookie = "Cookie",
    Date = "Date",
    Depth = "Depth",
    Destination = "Destination",
    ETag = "ETag",
    Expect = "Expect",
    Expires = "Expires",
    Forwarded = "Forwarded",
    Host = "Host",
    IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since",
    IfNoneMatch = "If-None-Match",
    IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since",
    KeepAlive = "Keep-Alive",
    LastModified = "Last-Modified",
    Link = "Link",
    Location = "Location",
    Origin = "Origin",
    Overwrite = "Overwrite",
    Pragma = "Pragma",
    ProxyAuthenticate = "Proxy-Authenticate",
    ProxyAuthorization = "Proxy-Authorization",
    ProxyConnection = "Proxy-Connection",
    Range = "Range",
    Referer = "Referer",
    Refresh = "Refresh",
    Server = "Server",
    SetCookie = "Set-Cookie",
    Status = "Status",
    Te = "TE",
    Trailer = "Trailer",
    TransferEncoding = "Transfer-Encoding",
    Upgrade = "Upgrade",
    UserAgent = "User-Agent",
    Vary = "Vary",
    Via = "Via",
    WwwAuthenticate = "WWW-Authenticate",
    XAccelBuffering = "X-Accel-Buffering",
    XAccelCharset = "X-Accel-Charset",
    XAccelExpires = "X-Accel-Expires",
    XAccelLimitRate = "X-Accel-Limit-Rate",
    XAccelRedirect = "X-Accel-Redirect",
    XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host",
    XForwardedProto = "X-Forwarded-Proto",
    XRealIp = "X-Real-IP",
}

impl Known {
    /// Number of known names.
    pub const COUNT: usize = KNOWN.len();

    /// The name in its usual spelling.
    pub const fn as_str(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The name of the variable that has the field's value in CGI (RFC 3875 section 4.1.18).
    #[inline]
    pub fn cgi_name(self) -> &'static [u8] {
        &CGI_NAMES[self as usize][..CGI_PREFIX.len() + self.as_str().len()]
    }

    /// The number of `name`, compared without case (RFC 9110 section 5.1).
    #[inline]
    pub fn from_bytes(name: &[u8]) -> Option<Known> {
        let (&first, &last) = (name.first()?, name.last()?);
        if name.len() > LONGEST {
            return None;
        }
        let slot = HASH.slot(name.len(), first, name[name.len() / 2], last);
        let known = HASH.slots[slot]?;
        let usual = known.as_str().as_bytes();
        // Most names have the usual spelling, or that of HTTP/2, which takes far fewer instructions to check.
        let lower = LOWER[known as usize].get(..usual.len());
        (usual == name || lower == Some(name) || usual.eq_ignore_ascii_case(name)).then_some(known)
    }

    /// The known name at the start of a field line, up to its colon, and its length. `line` may
    /// continue after the colon in any way. `None`: another name, or none.
    #[inline(always)]
    pub fn before_colon(line: &[u8]) -> Option<(Known, usize)> {
        let words = match line.first_chunk() {
            Some(window) => words(window),
            // The last line of a head may be short.
            None => short(line),
        };
        let length = first_colon(words)?;
        let name = line.get(..length)?;
        let (&first, &last) = (name.first()?, name.last()?);
        let known = HASH.slots[HASH.slot(length, first, name[length / 2], last)]?;
        PATTERNS[known as usize].matches(words, length).then_some((known, length))
    }
}

/// Whether a field of this name means anything after the content. "Many fields cannot be processed outside
/// the header section because their evaluation is necessary prior to receiving the content, such as
/// those that describe message framing, routing, authentication, request modifiers, response controls, or
/// content format" (RFC 9110 section 6.5.1): those of framing, routing and content format are refused,
/// since they make messages malformed, or mislead recipients that merge trailers into heads.
pub fn may_be_trailer(name: &[u8]) -> bool {
    !matches!(
        Known::from_bytes(name),
        Some(
            Known::Connection
                | Known::ContentEncoding
                | Known::ContentLength
                | Known::ContentRange
                | Known::ContentType
                | Known::Host
                | Known::KeepAlive
                | Known::ProxyConnection
                | Known::Te
                | Known::Trailer
                | Known::TransferEncoding
                | Known::Upgrade
        )
    )
}

/// How much of a line [`Known::before_colon`] looks at, in bytes: more than the longest name.
const NAME_WINDOW: usize = 24;
const _: () = assert!(LONGEST < NAME_WINDOW);

const ONES: u64 = 0x0101_0101_0101_0101;

/// Flags for the bytes that are zero; the lowest flag is exact, those above it may be borrows.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES * 0x80)
}

#[inline]
const fn words(bytes: &[u8; NAME_WINDOW]) -> [u64; 3] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
    let [i, j, k, l, m, n, o, p, rest @ ..] = rest;
    [
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u64::from_le_bytes([i, j, k, l, m, n, o, p]),
        u64::from_le_bytes(rest),
    ]
}

/// The position of the first colon.
#[inline(always)]
fn first_colon(words: [u64; 3]) -> Option<usize> {
    for (n, word) in words.into_iter().enumerate() {
        let flags = zero_bytes(word ^ (ONES * b':' as u64));
        if flags != 0 {
            return Some(n * 8 + flags.trailing_zeros() as usize / 8);
        }
    }
    None
}

/// The words of a line with fewer bytes.
#[inline(never)]
fn short(line: &[u8]) -> [u64; 3] {
    let mut window = [0; NAME_WINDOW];
    window[..line.len()].copy_from_slice(line);
    words(&window)
}

/// A name, to be compared without case.
struct Pattern {
    length: usize,
    words: [u64; 3],
    /// The bits that count: none behind the name, and of letters all but the one for the case.
    mask: [u64; 3],
}

impl Pattern {
    const fn new(name: &str) -> Pattern {
        let name = name.as_bytes();
        let (mut bytes, mut mask) = ([0; NAME_WINDOW], [0; NAME_WINDOW]);
        let mut i = 0;
        while i < name.len() {
            bytes[i] = name[i];
            mask[i] = if name[i].is_ascii_alphabetic() { !0x20 } else { !0 };
            i += 1;
        }
        Pattern { length: name.len(), words: words(&bytes), mask: words(&mask) }
    }

    /// Whether a line begins with this name; its colon is at `length`.
    #[inline(always)]
    fn matches(&self, line: [u64; 3], length: usize) -> bool {
        let difference = |i: usize| (line[i] ^ self.words[i]) & self.mask[i];
        self.length == length && difference(0) | difference(1) | difference(2) == 0
    }
}

static PATTERNS: [Pattern; Known::COUNT] = {
    let mut patterns = [const { Pattern::new("") }; Known::COUNT];
    let mut i = 0;
    while i < NAMES.len() {
        patterns[i] = Pattern::new(NAMES[i]);
        i += 1;
    }
    patterns
};

const SLOTS: usize = 512;
const LONGEST: usize = longest();

/// The names in lower case.
static LOWER: [[u8; LONGEST]; Known::COUNT] = {
    let mut lower = [[0; LONGEST]; Known::COUNT];
    let mut known = 0;
    while known < Known::COUNT {
        let name = NAMES[known].as_bytes();
        let mut at = 0;
        while at < name.len() {
            lower[known][at] = name[at].to_ascii_lowercase();
            at += 1;
        }
        known += 1;
    }
    lower
};
const _: () = assert!(Known::COUNT <= 128);

/// What the names of variables in CGI begin with that are header fields.
pub const CGI_PREFIX: &[u8; 5] = b"HTTP_";

/// The names in CGI.
static CGI_NAMES: [[u8; CGI_PREFIX.len() + LONGEST]; Known::COUNT] = {
    let mut all = [[0; CGI_PREFIX.len() + LONGEST]; Known::COUNT];
    let mut known = 0;
    while known < Known::COUNT {
        let (name, cgi) = (NAMES[known].as_bytes(), &mut all[known]);
        let mut at = 0;
        while at < CGI_PREFIX.len() + name.len() {
            cgi[at] = match at < CGI_PREFIX.len() {
                true => CGI_PREFIX[at],
                false => cgi_byte(name[at - CGI_PREFIX.len()]),
            };
            at += 1;
        }
        known += 1;
    }
    all
};

/// A byte of a field's name as it stands in CGI.
#[inline]
pub const fn cgi_byte(byte: u8) -> u8 {
    if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }
}

/// A hash of length, first, middle and last letter under which no two known names collide.
struct Hash {
    seed: u32,
    slots: [Option<Known>; SLOTS],
}

static HASH: Hash = Hash::search();

impl Hash {
    #[inline]
    const fn slot(&self, len: usize, first: u8, middle: u8, last: u8) -> usize {
        slot(self.seed, len, first, middle, last)
    }

    const fn search() -> Hash {
        let mut seed = 0x9e37_79b1_u32;
        let mut tries = 0;
        while tries < 4096 {
            let mut slots = [None; SLOTS];
            let mut i = 0;
            while i < NAMES.len() {
                let name = NAMES[i].as_bytes();
                let at =
                    slot(seed, name.len(), name[0], name[name.len() / 2], name[name.len() - 1]);
                if slots[at].is_some() {
                    break;
                }
                slots[at] = Some(KNOWN[i]);
                i += 1;
            }
            if i == NAMES.len() {
                return Hash { seed, slots };
            }
            seed = seed.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f) | 1;
            tries += 1;
        }
        panic!("no collision-free seed for the known field names: hash another letter");
    }
}

/// Letters are folded by setting bit 5, which leaves `-` and digits as they are.
#[inline]
const fn slot(seed: u32, len: usize, first: u8, middle: u8, last: u8) -> usize {
    let folded = [len as u8, first | 0x20, middle | 0x20, last | 0x20];
    (u32::from_le_bytes(folded).wrapping_mul(seed) >> 23) as usize
}

const fn longest() -> usize {
    let (mut i, mut longest) = (0, 0);
    while i < NAMES.len() {
        if NAMES[i].len() > longest {
            longest = NAMES[i].len();
        }
        i += 1;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for &known in KNOWN {
            let name = known.as_str();
            assert_eq!(Known::from_bytes(name.as_bytes()), Some(known), "{name}");
            assert_eq!(Known::from_bytes(name.to_ascii_lowercase().as_bytes()), Some(known));
            assert_eq!(Known::from_bytes(name.to_ascii_uppercase().as_bytes()), Some(known));
        }
    }

    #[test]
    fn every_name_has_one_in_cgi() {
        for &known in KNOWN {
            let name = known.as_str().to_ascii_uppercase().replace('-', "_");
            assert_eq!(known.cgi_name(), format!("HTTP_{name}").as_bytes());
        }
    }

    #[test]
    fn every_name_is_found_before_its_colon_in_any_case() {
        for &known in KNOWN {
            let name = known.as_str();
            for name in [name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
                for rest in [":", ": value", ":Host:Host:Host:Host:Host:Host"] {
                    let line = format!("{name}{rest}");
                    let found = Known::before_colon(line.as_bytes());
                    assert_eq!(found, Some((known, name.len())), "{line}");
                }
            }
        }
    }

    /// Whichever byte of a line is changed, both ways to find its name agree.
    #[test]
    fn the_name_before_a_colon_is_the_one_of_its_bytes() {
        for &known in KNOWN {
            for rest in [":", ": a long value with a : in it"] {
                let line = format!("{}{rest}", known.as_str()).into_bytes();
                let changes =
                    (0..=known.as_str().len()).flat_map(|at| (0..=255).map(move |b| (at, b)));
                for (at, byte) in changes {
                    let mut line = line.clone();
                    line[at] = byte;
                    let length = line.iter().position(|&c| c == b':');
                    let found = length.and_then(|length| Known::from_bytes(&line[..length]));
                    assert_eq!(Known::before_colon(&line), found.zip(length), "{line:?}");
                }
            }
        }
        for line in ["", ":", ":Host:", "Host", "A name that is longer than any known one: x"] {
            assert_eq!(Known::before_colon(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn near_misses_are_not_found() {
        for name in ["", "H", "Hosts", "Hos", "Content_Length", "Content\rLength", "Content-Lengtg"]
        {
            assert_eq!(Known::from_bytes(name.as_bytes()), None, "{name}");
        }
    }

    /// The fold maps some non-letters onto letters; the comparison must still tell them apart.
    #[test]
    fn folded_lookalikes_are_not_found() {
        assert_eq!(Known::from_bytes(b"\x48os\x54"), Some(Known::Host));
        assert_eq!(Known::from_bytes(b"Content\x0dLength"), None);
        assert_eq!(Known::from_bytes(b"\x08ost"), None);
    }
}
