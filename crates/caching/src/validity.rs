//! The lifetime of a response, and whether it may be stored: nginx's rules.
//!
//! Used for every response of an origin unless `proxy_cache_rfc9111` is on. The fields are
//! processed in the order in which they were received, as in nginx; `now` is an argument. nginx:
//! `ngx_http_upstream_process_*` and `ngx_http_file_cache_valid`.

use bytes::Bytes;

use crate::control::SECONDS_MAX;
use nowait_message::http_date;

/// The longest `Vary` that is stored, in bytes. nginx: `NGX_HTTP_CACHE_VARY_LEN`.
pub const VARY_BYTES_MAX: usize = 128;

/// Ignored fields: `proxy_ignore_headers`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ignored {
    /// `X-Accel-Expires`
    pub accel_expires: bool,
    /// `Expires`
    pub expires: bool,
    /// `Cache-Control`, and in the strict mode its targeted forms.
    pub cache_control: bool,
    /// `Set-Cookie`
    pub set_cookie: bool,
    /// `Vary`
    pub vary: bool,
}

/// The storing rules stated by a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validity {
    /// It must not be stored.
    pub uncacheable: bool,
    /// The end of validity, in Unix seconds; `None`: `proxy_cache_valid` decides.
    pub until: Option<i64>,
    /// `stale-while-revalidate`: additional seconds while it is being updated.
    pub updating: u64,
    /// `stale-if-error`: additional seconds when the origin fails.
    pub error: u64,
    /// `Vary`, all lines joined; empty if there is none.
    pub vary: Bytes,
}

/// The lifetime of responses that do not state their own: `proxy_cache_valid`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidByStatus(pub Vec<(Option<u16>, u64)>);

impl ValidByStatus {
    /// Seconds for a status; the first entry for it or for `any` applies, 0 means never.
    #[inline]
    pub fn seconds(&self, status: u16) -> u64 {
        let entry = self.0.iter().find(|(code, _)| code.is_none_or(|code| code == status));
        entry.map_or(0, |(_, seconds)| *seconds)
    }
}

/// Reads the fields of a response. `now` in Unix seconds.
pub fn assess<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ignored: Ignored,
    now: i64,
) -> Validity {
    let mut state = ValidityState { ignored, now, ..ValidityState::default() };
    for (name, value) in fields {
        state.field(name, value);
    }
    let mut validity = state.validity;
    validity.uncacheable |= state.no_cache || state.expired;
    validity.vary = state.vary.into();
    validity
}

impl Validity {
    /// The end of validity of a response of this status, in Unix seconds; `None`: it is not stored.
    pub fn until(&self, status: u16, valid: &ValidByStatus, now: i64) -> Option<i64> {
        if self.uncacheable {
            return None;
        }
        let seconds = || Some(valid.seconds(status)).filter(|seconds| *seconds > 0);
        self.until.or_else(|| seconds().map(|seconds| after(now, seconds)))
    }
}

fn after(now: i64, seconds: u64) -> i64 {
    now.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX))
}

#[derive(Default)]
struct ValidityState {
    ignored: Ignored,
    now: i64,
    validity: Validity,
    /// An `X-Accel-Expires` was seen, with any value.
    accel_seen: bool,
    expires_seen: bool,
    no_cache: bool,
    expired: bool,
    vary: Vec<u8>,
}

impl ValidityState {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"cache-control") {
            if !self.ignored.cache_control {
                self.cache_control(value);
            }
        } else if is(b"expires") {
            if !std::mem::replace(&mut self.expires_seen, true) && !self.ignored.expires {
                self.expires(value);
            }
        } else if is(b"x-accel-expires") {
            if !std::mem::replace(&mut self.accel_seen, true) && !self.ignored.accel_expires {
                self.accel_expires(value);
            }
        } else if is(b"set-cookie") {
            self.validity.uncacheable |= !self.ignored.set_cookie;
        } else if is(b"vary") && !self.ignored.vary {
            self.vary(value);
        }
    }

    fn accel_expires(&mut self, value: &[u8]) {
        let absolute = value.strip_prefix(b"@");
        let Some(number) = number(absolute.unwrap_or(value)) else { return };
        if absolute.is_none() && number == 0 {
            self.validity.uncacheable = true;
            return;
        }
        let until = match absolute {
            Some(_) => i64::try_from(number).unwrap_or(i64::MAX),
            None => after(self.now, number),
        };
        // nginx: a time of 0 is ignored.
        self.validity.until = (until != 0).then_some(until);
        self.no_cache = false;
        self.expired = false;
    }

    fn cache_control(&mut self, value: &[u8]) {
        if !(self.accel_seen && self.validity.until.is_some()) {
            if [&b"no-cache"[..], b"no-store", b"private"].iter().any(|word| has(value, word)) {
                self.no_cache = true;
                return;
            }
            match behind(value, b"s-maxage=").or_else(|| behind(value, b"max-age=")).map(delta) {
                None => {}
                Some(None) => {
                    self.validity.uncacheable = true;
                    return;
                }
                Some(Some(0)) => {
                    self.no_cache = true;
                    return;
                }
                Some(Some(seconds)) => {
                    self.validity.until = Some(after(self.now, seconds));
                    self.expired = false;
                }
            }
        }
        match behind(value, b"stale-while-revalidate=").map(delta) {
            None => {}
            Some(None) => {
                self.validity.uncacheable = true;
                return;
            }
            Some(Some(seconds)) => {
                self.validity.updating = seconds;
                self.validity.error = seconds;
            }
        }
        match behind(value, b"stale-if-error=").map(delta) {
            None => {}
            Some(None) => self.validity.uncacheable = true,
            Some(Some(seconds)) => self.validity.error = seconds,
        }
    }

    fn expires(&mut self, value: &[u8]) {
        if self.validity.until.is_some() {
            return;
        }
        match http_date::parse(value) {
            Some(time) if time >= self.now => self.validity.until = Some(time),
            _ => self.expired = true,
        }
    }

    fn vary(&mut self, value: &[u8]) {
        if value == b"*" {
            self.validity.uncacheable = true;
            return;
        }
        if !self.vary.is_empty() {
            self.vary.extend_from_slice(b", ");
        }
        self.vary.extend_from_slice(value);
        if self.vary.len() > VARY_BYTES_MAX {
            self.validity.uncacheable = true;
            self.vary.truncate(VARY_BYTES_MAX);
        }
    }
}

/// Whether a word is anywhere in the field, in any case.
fn has(value: &[u8], word: &[u8]) -> bool {
    behind(value, word).is_some()
}

/// The text after a word found anywhere in the field, in any case.
fn behind<'a>(value: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let at = value.windows(word.len()).position(|part| part.eq_ignore_ascii_case(word))?;
    Some(&value[at + word.len()..])
}

/// Digits up to a comma, semicolon, space or the end; none of them is 0.
/// nginx: `ngx_http_upstream_process_delta_seconds`.
fn delta(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|b| b",; ".contains(b)).unwrap_or(text.len());
    match &text[..end] {
        [] => Some(0),
        digits => number(digits).map(|seconds| seconds.min(SECONDS_MAX)),
    }
}

/// Digits only; a value that does not fit becomes the largest number.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = text.iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    Some(number.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000;

    fn assess(lines: &[(&str, &str)]) -> Validity {
        let fields = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        super::assess(fields, Ignored::default(), NOW)
    }

    /// Seconds from now; `None` if it is not stored. Without a word 200 is valid for 7 seconds.
    fn seconds(lines: &[(&str, &str)]) -> Option<i64> {
        let valid = ValidByStatus(vec![(Some(200), 7)]);
        assess(lines).until(200, &valid, NOW).map(|until| until - NOW)
    }

    #[test]
    fn cache_control() {
        let control = |value| seconds(&[("Cache-Control", value)]);
        assert_eq!(control("max-age=60"), Some(60));
        assert_eq!(control("MAX-AGE=60, s-maxage=90"), Some(90));
        assert_eq!(control("public"), Some(7));
        assert_eq!(control("max-age=0"), None);
        assert_eq!(control("max-age="), None);
        assert_eq!(control("max-age=x"), None);
        assert_eq!(control("max-age=\"60\""), None);
        for word in ["no-cache", "no-store", "private", "max-age=60, No-Cache=\"x\""] {
            assert_eq!(control(word), None, "{word}");
        }
        assert_eq!(control("max-age=99999999999999999999"), Some(SECONDS_MAX as i64));
    }

    #[test]
    fn stale_extensions() {
        let validity =
            assess(&[("Cache-Control", "max-age=1, stale-while-revalidate=5, stale-if-error=9")]);
        assert_eq!((validity.updating, validity.error), (5, 9));
        let validity = assess(&[("Cache-Control", "max-age=1, stale-while-revalidate=5")]);
        assert_eq!((validity.updating, validity.error), (5, 5));
        assert_eq!(seconds(&[("Cache-Control", "stale-if-error=x")]), None);
    }

    #[test]
    fn expires() {
        let date = |time| String::from_utf8(http_date::format(time).to_vec()).unwrap();
        assert_eq!(seconds(&[("Expires", &date(NOW + 30))]), Some(30));
        assert_eq!(seconds(&[("Expires", &date(NOW - 1))]), None);
        assert_eq!(seconds(&[("Expires", "0")]), None);
        // max-age wins in any order.
        let (expires, control) = (date(NOW - 1), ("Cache-Control", "max-age=60"));
        assert_eq!(seconds(&[("Expires", &expires), control]), Some(60));
        assert_eq!(seconds(&[control, ("Expires", &expires)]), Some(60));
        assert_eq!(seconds(&[("Expires", &date(NOW + 30)), ("Expires", "0")]), Some(30));
    }

    #[test]
    fn accel_expires() {
        let accel = |value| ("X-Accel-Expires", value);
        assert_eq!(seconds(&[accel("5")]), Some(5));
        assert_eq!(seconds(&[accel("@1000000009")]), Some(9));
        assert_eq!(seconds(&[accel("0")]), None);
        assert_eq!(seconds(&[accel("-1")]), Some(7));
        assert_eq!(seconds(&[accel("x")]), Some(7));
        // It overrides prohibitions, in any order.
        for no in [("Cache-Control", "no-cache"), ("Cache-Control", "max-age=0"), ("Expires", "0")]
        {
            assert_eq!(seconds(&[accel("5"), no]), Some(5));
            assert_eq!(seconds(&[no, accel("5")]), Some(5));
        }
        let control = ("Cache-Control", "max-age=60, stale-if-error=9");
        assert_eq!(assess(&[accel("5"), control]).error, 9);
        assert_eq!(seconds(&[accel("5"), control]), Some(5));
    }

    #[test]
    fn cookies_and_vary() {
        assert_eq!(seconds(&[("Set-Cookie", "a=b")]), None);
        assert_eq!(seconds(&[("Vary", "*")]), None);
        assert_eq!(&assess(&[("Vary", "A"), ("vary", "b, c")]).vary[..], b"A, b, c");
        let long = "x".repeat(VARY_BYTES_MAX + 1);
        assert_eq!(seconds(&[("Vary", &long)]), None);
        assert_eq!(seconds(&[("Vary", &long[1..])]), Some(7));
    }

    #[test]
    fn ignored_fields_are_not_looked_at() {
        let ignored = Ignored {
            accel_expires: true,
            expires: true,
            cache_control: true,
            set_cookie: true,
            vary: true,
        };
        let lines: [(&[u8], &[u8]); 5] = [
            (b"X-Accel-Expires", b"0"),
            (b"Expires", b"0"),
            (b"Cache-Control", b"no-store"),
            (b"Set-Cookie", b"a=b"),
            (b"Vary", b"*"),
        ];
        let validity = super::assess(lines.into_iter(), ignored, NOW);
        assert_eq!(validity, Validity::default());
    }

    #[test]
    fn the_first_entry_for_a_status_counts() {
        let valid = ValidByStatus(vec![(Some(200), 1), (None, 2), (Some(404), 3)]);
        assert_eq!(valid.seconds(200), 1);
        assert_eq!(valid.seconds(404), 2);
        assert_eq!(ValidByStatus::default().seconds(200), 0);
    }

    /// For any fields: a stored response has a time, and only an absolute time can be before now;
    /// without words that allow it, no time is extended beyond the requested one.
    #[test]
    fn any_fields() {
        let names = ["Cache-Control", "Expires", "X-Accel-Expires", "Set-Cookie", "Vary", "X"];
        let values = [
            "max-age=60",
            "s-maxage=5",
            "no-cache",
            "0",
            "5",
            "-1",
            "@5",
            "*",
            "a",
            "max-age=x",
            "stale-while-revalidate=3",
            "stale-if-error=",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "",
        ];
        crate::tests::random_cases(2000, |random| {
            let lines: Vec<(&str, &str)> = (0..random.below(6))
                .map(|_| (names[random.below(names.len())], values[random.below(values.len())]))
                .collect();
            let validity = assess(&lines);
            let absolute = lines.iter().any(|(_, value)| value.starts_with('@'));
            if let Some(until) = seconds(&lines) {
                assert!(!validity.uncacheable);
                assert!(until > 0 || absolute, "{lines:?}");
                assert!(until <= 60, "{lines:?}");
            }
            if lines.contains(&("Set-Cookie", "a")) || lines.contains(&("Vary", "*")) {
                assert!(seconds(&lines).is_none(), "{lines:?}");
            }
        });
    }
}
