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

    /// The number of `name`, compared without case (RFC 9110 section 5.1).
    #[inline]
    pub fn from_bytes(name: &[u8]) -> Option<Known> {
        let (&first, &last) = (name.first()?, name.last()?);
        if name.len() > LONGEST {
            return None;
        }
        let slot = HASH.slot(name.len(), first, name[name.len() / 2], last);
        let known = *KNOWN.get(HASH.slots[slot] as usize)?;
        let usual = known.as_str().as_bytes();
        // Most names have the usual spelling, which takes far fewer instructions to check.
        (usual == name || usual.eq_ignore_ascii_case(name)).then_some(known)
    }
}

const SLOTS: usize = 512;
const EMPTY: u8 = u8::MAX;
const LONGEST: usize = longest();
const _: () = assert!(Known::COUNT < EMPTY as usize && Known::COUNT <= 128);

/// A hash of length, first, middle and last letter under which no two known names collide.
struct Hash {
    seed: u32,
    slots: [u8; SLOTS],
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
            let mut slots = [EMPTY; SLOTS];
            let mut i = 0;
            while i < NAMES.len() {
                let name = NAMES[i].as_bytes();
                let at =
                    slot(seed, name.len(), name[0], name[name.len() / 2], name[name.len() - 1]);
                if slots[at] != EMPTY {
                    break;
                }
                slots[at] = i as u8;
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
