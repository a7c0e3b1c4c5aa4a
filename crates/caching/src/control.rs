//! `Cache-Control` (RFC 9111 section 5.2): the directives of requests and responses as one struct.
//!
//! Used by the rules of RFC 9111 ([`storage`](crate::storage), [`freshness`](crate::freshness)); nginx's
//! rules search the field for words instead ([`validity`](crate::validity)).

use bytes::Bytes;

/// Times above this many seconds count as this many.
///
/// RFC 9111 section 1.2.2: "If a cache receives a delta-seconds value greater than the greatest
/// integer it can represent […] the cache MUST consider the value to be 2147483648 (2^31) or the
/// greatest positive integer it can conveniently represent."
pub const SECONDS_MAX: u64 = 1 << 31;

/// The maximum number of field names in one `no-cache="…"` or `private="…"`; longer lists count as
/// all fields.
pub const FIELDS_MAX: usize = 32;

/// A directive with an optional list of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    /// It is absent.
    #[default]
    Absent,
    /// It applies to the whole response.
    Whole,
    /// It applies to these fields, in lower case.
    Fields(Vec<Bytes>),
}

/// A `Cache-Control` field, or a targeted one that replaces it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// `max-age`, in seconds.
    pub max_age: Option<u64>,
    /// `s-maxage`, in seconds.
    pub s_maxage: Option<u64>,
    /// `no-cache`
    pub no_cache: Scope,
    /// `private`
    pub private: Scope,
    /// `no-store`
    pub no_store: bool,
    /// `public`
    pub public: bool,
    /// `must-revalidate`
    pub must_revalidate: bool,
    /// `proxy-revalidate`
    pub proxy_revalidate: bool,
    /// `must-understand`
    pub must_understand: bool,
    /// `no-transform`
    pub no_transform: bool,
    /// `only-if-cached`
    pub only_if_cached: bool,
    /// `min-fresh`, in seconds.
    pub min_fresh: Option<u64>,
    /// `max-stale`, in seconds; without a value all staleness is accepted.
    pub max_stale: Option<u64>,
    /// `stale-while-revalidate` (RFC 5861), in seconds.
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error` (RFC 5861), in seconds.
    pub stale_if_error: Option<u64>,
    /// A time was malformed: the response counts as stale.
    pub invalid: bool,
}

impl CacheControl {
    /// Reads all lines of the field.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut control = Self::default();
        for line in lines {
            for (name, value) in Directives(line) {
                control.take(name, value);
            }
        }
        control
    }

    /// Adds one directive, in a form that structured fields share: see [`crate::targeted`].
    pub(super) fn take(&mut self, name: &[u8], value: Option<Cow<'_>>) {
        // RFC 9111 section 5.2: "Cache directives are identified by a token, to be compared
        // case-insensitively".
        let name = name.to_ascii_lowercase();
        let seconds = || value.as_ref().and_then(|value| seconds(value));
        match &name[..] {
            b"max-age" => first(&mut self.max_age, seconds(), &mut self.invalid),
            b"s-maxage" => first(&mut self.s_maxage, seconds(), &mut self.invalid),
            b"min-fresh" => self.min_fresh = seconds(),
            // RFC 9111 section 5.2.1.2: "If no value is assigned to max-stale, then the client
            // will accept a stale response of any age."
            b"max-stale" if value.is_none() => self.max_stale = Some(SECONDS_MAX),
            b"max-stale" => self.max_stale = seconds(),
            b"stale-while-revalidate" => self.stale_while_revalidate = seconds(),
            b"stale-if-error" => self.stale_if_error = seconds(),
            b"no-cache" => self.no_cache.add(value),
            b"private" => self.private.add(value),
            b"no-store" => self.no_store = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"no-transform" => self.no_transform = true,
            b"only-if-cached" => self.only_if_cached = true,
            // RFC 9111 section 5.2.3: "A cache MUST ignore unrecognized cache directives."
            _ => {}
        }
    }
}

/// The value of a directive: verbatim, or the quoted text without its backslashes.
pub(super) type Cow<'a> = std::borrow::Cow<'a, [u8]>;

/// RFC 9111 section 4.2.1: "When there is more than one value present for a given directive […]
/// either the first occurrence should be used or the response should be considered stale."
fn first(slot: &mut Option<u64>, seconds: Option<u64>, invalid: &mut bool) {
    match seconds {
        Some(seconds) => *slot = slot.or(Some(seconds)),
        // "Caches are encouraged to consider responses that have invalid freshness information
        // (e.g., a max-age directive with a non-integer content) to be stale."
        None => *invalid = true,
    }
}

impl Scope {
    fn add(&mut self, value: Option<Cow<'_>>) {
        let named = value.as_deref().map(field_names);
        *self = match (std::mem::take(self), named) {
            (Self::Whole, _) | (_, None) => Self::Whole,
            (Self::Absent, Some(names)) => Self::fields(names),
            (Self::Fields(mut old), Some(names)) => {
                old.extend(names);
                Self::fields(old)
            }
        };
    }

    /// RFC 9111 section 5.2.2.4: "The qualified form of the directive is often handled by caches as
    /// if an unqualified no-cache directive was received"; here only where it names nothing, or too
    /// much.
    fn fields(names: Vec<Bytes>) -> Self {
        if names.is_empty() || names.len() > FIELDS_MAX { Self::Whole } else { Self::Fields(names) }
    }

    /// Whether it applies to the whole response.
    #[inline]
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole)
    }

    /// The fields that it names.
    #[inline]
    pub fn names(&self) -> &[Bytes] {
        match self {
            Self::Fields(names) => names,
            Self::Absent | Self::Whole => &[],
        }
    }
}

fn field_names(list: &[u8]) -> Vec<Bytes> {
    let names = list.split(|&b| b == b',').map(<[u8]>::trim_ascii);
    names.filter(|name| !name.is_empty()).map(|name| name.to_ascii_lowercase().into()).collect()
}

/// A number of seconds; `None` if malformed.
pub fn seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = text.iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    Some(number.unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
}

/// `name`, `name=token` and `name="quoted"`, with commas between them.
struct Directives<'a>(&'a [u8]);

impl<'a> Iterator for Directives<'a> {
    type Item = (&'a [u8], Option<Cow<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.0.iter().position(|b| !b" \t,".contains(b))?;
            let rest = &self.0[start..];
            let end = rest.iter().position(|b| b"=,".contains(b)).unwrap_or(rest.len());
            let name = rest[..end].trim_ascii();
            let value = match rest.get(end) {
                Some(b'=') => {
                    let (value, after) = argument(&rest[end + 1..]);
                    self.0 = after;
                    Some(value)
                }
                _ => {
                    self.0 = &rest[end..];
                    None
                }
            };
            if !name.is_empty() {
                return Some((name, value));
            }
        }
    }
}

/// RFC 9111 section 5.2: "recipients ought to accept both forms" (token and quoted-string).
fn argument(text: &[u8]) -> (Cow<'_>, &[u8]) {
    let text = text.trim_ascii_start();
    if text.first() != Some(&b'"') {
        let end = text.iter().position(|&b| b == b',').unwrap_or(text.len());
        return (Cow::Borrowed(text[..end].trim_ascii()), &text[end..]);
    }
    let mut value = Vec::new();
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => break,
            b'\\' => {
                at += 1;
                value.extend(text.get(at));
            }
            byte => value.push(byte),
        }
        at += 1;
    }
    let rest = text.get(at + 1..).unwrap_or_default();
    let next = rest.iter().position(|&b| b == b',').unwrap_or(rest.len());
    (Cow::Owned(value), &rest[next..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> CacheControl {
        CacheControl::parse([line.as_bytes()].into_iter())
    }

    #[test]
    fn directives_of_responses() {
        let control = parse("Public, max-age=60 ,s-maxage=\"90\", must-revalidate,x-y=\"a, b\",,");
        let expected = CacheControl {
            public: true,
            max_age: Some(60),
            s_maxage: Some(90),
            must_revalidate: true,
            ..CacheControl::default()
        };
        assert_eq!(control, expected);
        let control = parse("no-cache=\"Set-Cookie, x-a\", private=\"x-b\", no-cache=\"x-c\"");
        let names = |names: &[&'static str]| {
            Scope::Fields(names.iter().map(|n| Bytes::from_static(n.as_bytes())).collect())
        };
        assert_eq!(control.no_cache, names(&["set-cookie", "x-a", "x-c"]));
        assert_eq!(control.private, names(&["x-b"]));
        assert!(parse("no-cache=\"a\", no-cache").no_cache.is_whole());
        assert!(parse("private=\"\"").private.is_whole());
        assert!(parse("x=\"no-store\"") == CacheControl::default());
    }

    #[test]
    fn directives_of_requests() {
        let control = parse("max-stale, min-fresh=5, only-if-cached");
        assert_eq!(control.max_stale, Some(SECONDS_MAX));
        assert_eq!(control.min_fresh, Some(5));
        assert!(control.only_if_cached);
        assert_eq!(parse("max-stale=7").max_stale, Some(7));
    }

    #[test]
    fn times() {
        assert_eq!(parse("max-age=99999999999999999999999").max_age, Some(SECONDS_MAX));
        assert_eq!(parse("max-age=60, max-age=30").max_age, Some(60));
        for wrong in ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=x"] {
            assert!(parse(wrong).invalid, "{wrong}");
        }
    }

    #[test]
    fn garbage_ends() {
        for line in ["=", "==,=", "\"", "a=\"", "a=\"\\", ",=,\"a\",", "a=\"b\"c,no-store"] {
            let _ = parse(line);
        }
        assert!(parse("a=\"b\"c,no-store").no_store);
        assert!(parse("=x, no-store").no_store);
    }
}
