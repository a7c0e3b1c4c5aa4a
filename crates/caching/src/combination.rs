//! Whether the bytes of two responses certainly belong to one representation, so that a later
//! response can supply the rest of an incomplete one (RFC 9111 section 3.4).
//!
//! The first response must have a strong validator, and the second the same validator, the same coding
//! and the same length, and it must begin and end at the right position. In any doubt they are not
//! combined. RFC 9110 sections 13.1.5 (`If-Range`), 14.4 (`Content-Range`), 15.3.7.3 (combining parts).
//!
//! The first response may be a part itself (206): then the positions of [`Missing`] count from its
//! beginning until [`Identity::missing`] has made them positions in the whole.

use std::ops::Range;

use bytes::Bytes;
use nowait_message::http_date;
use nowait_message::range::parse_content_range;

/// RFC 9110 section 8.8.2.2: a modification time is a strong validator only if the response was
/// made so much later that another change within the same second would have been visible. In
/// seconds.
const STRONG_AFTER: i64 = 60;

/// The properties of the representation that a response transfers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transfer {
    /// The status.
    pub status: u16,
    /// `ETag`
    pub etag: Option<Bytes>,
    /// `Last-Modified` in Unix seconds.
    pub last_modified: Option<i64>,
    /// `Date` in Unix seconds.
    pub date: Option<i64>,
    /// `Content-Range`: the part, and the length of the whole, if stated.
    pub content_range: Option<(Range<u64>, Option<u64>)>,
    /// The length of the content in bytes.
    pub content_length: Option<u64>,
    /// `Content-Encoding`
    pub coding: Option<Bytes>,
}

/// The missing part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// The first missing byte of the body.
    pub start: u64,
    /// The end of the missing part; `None`: the body's end.
    pub end: Option<u64>,
    /// Length of the body, if it was received completely.
    pub length: Option<u64>,
    /// Bytes of the body that were received.
    pub received: u64,
}

/// Distinguishes one representation from another.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Validator {
    ETag(Bytes),
    Time(i64),
}

/// The known facts about the representation.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    validator: Validator,
    /// The first response was this part of the whole.
    part: Option<Range<u64>>,
    /// The length of the whole, if the first response stated it.
    length: Option<u64>,
    /// `Content-Encoding`
    coding: Option<Bytes>,
}

/// The reason why a response can't be combined with the first one. The text is for the log.
pub type Mismatch = &'static str;

impl Transfer {
    /// Reads the fields of a response. Of a field with several lines, the first one counts.
    pub fn read<'a>(
        status: u16,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Self {
        let first = |name: &[u8]| {
            fields.clone().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        Self {
            status,
            etag: first(b"etag").map(Bytes::copy_from_slice),
            last_modified: first(b"last-modified").and_then(http_date::parse),
            date: first(b"date").and_then(http_date::parse),
            content_range: first(b"content-range").and_then(parse_content_range),
            content_length: first(b"content-length").and_then(length),
            coding: first(b"content-encoding").map(Bytes::copy_from_slice),
        }
    }
}

/// A length in bytes; `None` if it is malformed.
fn length(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    text.parse().ok().filter(|length| i64::try_from(*length).is_ok())
}

impl Missing {
    /// The value of `Range`.
    pub fn range(&self) -> Bytes {
        match self.end {
            Some(end) => format!("bytes={}-{}", self.start, end.saturating_sub(1)).into(),
            None => format!("bytes={}-", self.start).into(),
        }
    }

    /// Whether the whole may have this length.
    fn fits(&self, length: u64) -> bool {
        length >= self.received && self.length.is_none_or(|known| known == length)
    }

    /// The end of the missing part, in a body of this length.
    fn end(&self, length: u64) -> u64 {
        self.end.map_or(length, |end| end.min(length))
    }
}

impl Identity {
    /// The properties of the first response; `None`: too few to combine it with another one.
    pub fn of(first: Transfer) -> Option<Self> {
        let validator = match first.etag {
            // RFC 9110 section 13.1.5: "A client MUST NOT generate an If-Range header field containing
            // an entity tag that is marked as weak."
            Some(etag) if is_strong(&etag) => Validator::ETag(etag),
            _ => {
                let (modified, date) = (first.last_modified?, first.date?);
                if date.saturating_sub(modified) < STRONG_AFTER {
                    return None;
                }
                Validator::Time(modified)
            }
        };
        let (part, length) = match first.status {
            206 => {
                let (range, length) = first.content_range?;
                (Some(range), Some(length?))
            }
            _ => (None, first.content_length),
        };
        Some(Self { validator, part, length, coding: first.coding })
    }

    /// The missing part of the whole, of which the first response may be a part itself; `None`: the
    /// received bytes contradict what that response stated.
    pub fn missing(&self, of: Missing) -> Option<Missing> {
        let Some(Range { start: begin, end }) = self.part.clone() else {
            return self.length.is_none_or(|length| of.fits(length)).then_some(of);
        };
        let length = end.checked_sub(begin).filter(|length| of.fits(*length))?;
        Some(Missing {
            start: begin + of.start,
            end: Some(begin + of.end(length)),
            length: self.length,
            received: begin + of.received,
        })
    }

    /// The value of `If-Range`.
    pub fn if_range(&self) -> Bytes {
        match &self.validator {
            Validator::ETag(etag) => etag.clone(),
            Validator::Time(time) => Bytes::copy_from_slice(&http_date::format(*time)),
        }
    }

    fn is_of(&self, other: &Transfer) -> bool {
        let same = match &self.validator {
            Validator::ETag(etag) => other.etag.as_ref() == Some(etag),
            Validator::Time(time) => other.last_modified == Some(*time),
        };
        same && other.coding == self.coding
    }

    /// Whether a response continues the first one: how many bytes to skip, and where it has to end in
    /// the whole (`None`: known only at its end). `missing` has positions in the whole.
    ///
    /// # Errors
    /// The response does not continue the first one, and must not be used.
    pub fn continues(
        &self,
        other: &Transfer,
        missing: &Missing,
    ) -> Result<(u64, Option<u64>), Mismatch> {
        if !matches!(other.status, 200 | 206) {
            return Err("the origin did not send the rest");
        }
        if !self.is_of(other) {
            return Err("the origin has another representation");
        }
        let fits =
            |length: u64| missing.fits(length) && self.length.is_none_or(|known| known == length);
        if other.status == 200 {
            return match other.content_length.or(self.length).or(missing.length) {
                Some(length) if !fits(length) => Err("the length at the origin differs"),
                Some(length) => Ok((missing.start, Some(missing.end(length)))),
                None => Ok((missing.start, missing.end)),
            };
        }
        let Some((Range { start, end }, Some(length))) = other.content_range else {
            return Err("the origin sent no complete Content-Range");
        };
        if !fits(length) {
            return Err("the length at the origin differs");
        }
        // More than requested where the configuration sets the range: `slice`.
        let wanted = missing.end(length);
        if start > missing.start || end < wanted {
            return Err("the origin sent another range");
        }
        Ok((missing.start - start, Some(wanted)))
    }
}

/// RFC 9110 section 8.8.3: `W/` marks a weak validator.
fn is_strong(etag: &[u8]) -> bool {
    etag.len() >= 2 && etag.starts_with(b"\"") && etag.ends_with(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONDAY: &str = "Mon, 16 Nov 2026 10:00:00 GMT";
    const TUESDAY: &str = "Tue, 17 Nov 2026 10:00:00 GMT";

    fn transfer(status: u16, lines: &[(&str, &str)]) -> Transfer {
        Transfer::read(status, lines.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())))
    }

    fn identity(lines: &[(&str, &str)]) -> Option<Identity> {
        Identity::of(transfer(200, lines))
    }

    #[test]
    fn malformed_lengths_are_unknown() {
        let length = |text| transfer(200, &[("Content-Length", text)]).content_length;
        assert_eq!(length("9223372036854775807"), Some(i64::MAX as u64));
        for wrong in ["", "-1", "+1", "1x", "9223372036854775808", "99999999999999999999"] {
            assert_eq!(length(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_strong_validators_count() {
        let etag = identity(&[("ETag", "\"a\"")]).unwrap();
        assert_eq!(etag.if_range(), "\"a\"");
        assert_eq!(identity(&[("ETag", "W/\"a\"")]), None);
        assert_eq!(identity(&[("ETag", "a")]), None);
        assert_eq!(identity(&[]), None);
        assert_eq!(identity(&[("Last-Modified", MONDAY)]), None, "no Date");
        assert_eq!(identity(&[("Last-Modified", MONDAY), ("Date", MONDAY)]), None);
        let time = identity(&[("Last-Modified", MONDAY), ("Date", TUESDAY)]).unwrap();
        assert_eq!(time.if_range(), MONDAY);
        let both = [("ETag", "W/\"a\""), ("Last-Modified", MONDAY), ("Date", TUESDAY)];
        assert_eq!(identity(&both).unwrap().if_range(), MONDAY);
    }

    /// Sixty of a hundred bytes had been received, thirty were sent.
    const MISSING: Missing = Missing { start: 30, end: None, length: None, received: 60 };

    #[test]
    fn what_fits_and_what_does_not() {
        let first = identity(&[("ETag", "\"a\""), ("Content-Length", "100")]).unwrap();
        let etag = ("ETag", "\"a\"");
        let part =
            |range| first.continues(&transfer(206, &[etag, ("Content-Range", range)]), &MISSING);
        assert_eq!(part("bytes 30-99/100"), Ok((0, Some(100))));
        assert_eq!(part("bytes 29-99/100"), Ok((1, Some(100))), "more than was asked for");
        for range in [
            "bytes 31-99/100",
            "bytes 30-98/100",
            "bytes 30-100/101",
            "bytes 30-99/*",
            "bytes */100",
            "x",
        ] {
            assert!(part(range).is_err(), "{range}");
        }
        let range = ("Content-Range", "bytes 30-99/100");
        for lines in [
            &[range][..],
            &[("ETag", "\"b\""), range],
            &[("ETag", "W/\"a\""), range],
            &[etag, range, ("Content-Encoding", "gzip")],
            &[etag],
        ] {
            assert!(first.continues(&transfer(206, lines), &MISSING).is_err(), "{lines:?}");
        }
        assert!(first.continues(&transfer(416, &[etag]), &MISSING).is_err());
        assert!(first.continues(&transfer(404, &[etag]), &MISSING).is_err());
        // An origin without range support sends the whole.
        let whole =
            |length| first.continues(&transfer(200, &[etag, ("Content-Length", length)]), &MISSING);
        assert_eq!(whole("100"), Ok((30, Some(100))));
        assert!(whole("101").is_err());
        assert!(first.continues(&transfer(200, &[("ETag", "\"b\"")]), &MISSING).is_err());
    }

    #[test]
    fn a_length_that_was_not_told() {
        let first = identity(&[("ETag", "\"a\"")]).unwrap();
        let etag = ("ETag", "\"a\"");
        let part = |range, missing| {
            first.continues(&transfer(206, &[etag, ("Content-Range", range)]), &missing)
        };
        assert_eq!(part("bytes 30-99/100", MISSING), Ok((0, Some(100))));
        assert!(part("bytes 30-49/50", MISSING).is_err(), "60 had come");
        let whole = Missing { length: Some(60), ..MISSING };
        assert_eq!(part("bytes 30-59/60", whole), Ok((0, Some(60))));
        assert!(part("bytes 30-99/100", whole).is_err(), "60 were all");
        assert_eq!(first.continues(&transfer(200, &[etag]), &MISSING), Ok((30, None)));
        assert_eq!(first.continues(&transfer(200, &[etag]), &whole), Ok((30, Some(60))));
        let range = Missing { end: Some(40), ..MISSING };
        assert_eq!(range.range(), "bytes=30-39");
        assert_eq!(part("bytes 30-39/100", range), Ok((0, Some(40))));
        assert_eq!(part("bytes 30-99/100", range), Ok((0, Some(40))));
        assert!(part("bytes 30-38/100", range).is_err());
        assert_eq!(MISSING.range(), "bytes=30-");
    }

    #[test]
    fn parts_of_parts() {
        let etag = ("ETag", "\"a\"");
        let stored = |range| Identity::of(transfer(206, &[etag, ("Content-Range", range)]));
        assert_eq!(stored("bytes 100-199/*"), None, "of unknown length");
        assert_eq!(Identity::of(transfer(206, &[etag])), None, "several ranges");
        let first = stored("bytes 100-199/1000").unwrap();
        let all = Missing { start: 30, end: None, length: Some(100), received: 100 };
        let missing = first.missing(all).unwrap();
        assert_eq!(first.missing(Missing { length: Some(99), received: 99, ..all }), None);
        assert_eq!(missing.range(), "bytes=130-199");
        let got =
            |range| first.continues(&transfer(206, &[etag, ("Content-Range", range)]), &missing);
        assert_eq!(got("bytes 130-199/1000"), Ok((0, Some(200))));
        assert_eq!(got("bytes 100-199/1000"), Ok((30, Some(200))), "the whole part again");
        for other in ["bytes 130-198/1000", "bytes 131-199/1000", "bytes 130-199/1001"] {
            assert!(got(other).is_err(), "{other}");
        }
        let range = first.missing(Missing { end: Some(50), ..all }).unwrap();
        assert_eq!(range.range(), "bytes=130-149");
        assert_eq!(
            first.continues(&transfer(200, &[etag, ("Content-Length", "1000")]), &range),
            Ok((130, Some(150)))
        );
    }
}
