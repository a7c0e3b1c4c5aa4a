//! The rest of a response whose object was lost while it was read: its disk failed, and the
//! reader's next bytes are not in memory. They are fetched from the origin by a range request.
//!
//! Bytes of two responses are combined only if they certainly belong to one representation: the
//! first response had a strong validator, and the second has the same validator, the same coding
//! and the same length, and begins and ends at the right position. In any doubt the connection is
//! cut. RFC 9110 sections 13.1.5 (`If-Range`), 14.4 (`Content-Range`), 15.3.7.3 (combining parts).
//!
//! The stored response may be a part itself (206: `slice`, or `Range` in the key): then positions
//! count from its beginning.
//!
//! Called by [`super::along`]. Never stores anything.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use nowait_cache::format::Head as Stored;
use nowait_caching::meta;
use nowait_message::range::parse_content_range;
use nowait_message::{Known, Method};

use super::fields;
use super::origin::{Again, Wanted};
use crate::log::Level;
use crate::request::Request;
use crate::response::{Body, BodyError, LocalFuture, Part};
use crate::slice;
use crate::subrequest::Subrequest;
use crate::upstream::{BodyOptions, UpstreamHead};
use nowait_message::http_date;

/// RFC 9110 section 8.8.2.2: a modification time is a strong validator only if the response was
/// made so much later that another change within the same second would have been visible. In
/// seconds.
const STRONG_AFTER: i64 = 60;

/// Can request the rest of a response.
pub(super) struct Rest {
    /// The request to be copied for the origin.
    request: Box<Request>,
    again: Again,
    stored: Arc<Stored>,
}

/// The missing part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    /// The first missing byte of the body.
    pub(super) start: u64,
    /// The end of the missing part; `None`: the body's end.
    pub(super) end: Option<u64>,
    /// Length of the body, if it was received completely.
    pub(super) length: Option<u64>,
    /// Bytes of the body that were received.
    pub(super) received: u64,
}

/// The rest, as it comes from the origin.
pub(super) struct FromOrigin(State);

enum State {
    /// It is being requested.
    Asking(LocalFuture<'static, Result<Got, BodyError>>),
    Got(Got),
}

/// The origin's response.
struct Got {
    body: Body,
    /// Bytes to be skipped first.
    skip: u64,
    /// The position of the next byte in the whole, after those.
    at: u64,
    /// The position in the whole at which it has to end; `None`: known only at its end.
    end: Option<u64>,
}

impl FromOrigin {
    /// The next piece; `None` at the end. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Part>, BodyError> {
        if let State::Asking(got) = &mut self.0 {
            self.0 = State::Got(got.await?);
        }
        match &mut self.0 {
            State::Got(got) => got.next().await,
            State::Asking(_) => Err(BodyError::Truncated),
        }
    }
}

impl Got {
    async fn next(&mut self) -> Result<Option<Part>, BodyError> {
        let Self { body, skip, at, end } = self;
        while end.is_none_or(|end| *at < end) {
            let Some(part) = body.next().await? else {
                // The engine has seen its end; that it is the right one is checked here.
                return if end.is_none() && *skip == 0 {
                    Ok(None)
                } else {
                    Err(BodyError::Truncated)
                };
            };
            let left_out = part.len().min(*skip);
            *skip -= left_out;
            let wanted = end.map_or(u64::MAX, |end| end - *at).min(part.len() - left_out);
            *at += wanted;
            if wanted > 0 {
                return Ok(slice::cut(part, &(left_out..left_out + wanted)));
            }
        }
        Ok(None)
    }
}

/// Distinguishes one representation from another.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Validator {
    ETag(Bytes),
    Time(i64),
}

/// The known facts about the representation.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    validator: Validator,
    /// The first response was this part of the whole.
    part: Option<Range<u64>>,
    /// The length of the whole, if the first response stated it.
    length: Option<u64>,
    /// `Content-Encoding`
    coding: Option<Bytes>,
}

impl Rest {
    /// For the response to a request; `None`: it has no ranges.
    pub(super) fn of(request: &Request, again: Again, stored: &Arc<Stored>) -> Option<Box<Self>> {
        if request.method != Method::Get || !matches!(stored.state.status, 200 | 206) {
            return None;
        }
        let slice = request.slice.get();
        let request = Subrequest::copy(request).begin(request).ok()?;
        request.slice.set(slice);
        Some(Box::new(Self { request, again, stored: stored.clone() }))
    }

    /// Requests the rest from the origin. A failure is logged with the response that can't be
    /// completed.
    pub(super) fn ask(self, missing: Missing) -> FromOrigin {
        let Self { mut request, again, stored } = self;
        FromOrigin(State::Asking(Box::pin(async move {
            let Some(identity) = Identity::of(&stored) else {
                return Err(lost("it has no strong validator"));
            };
            let Some(missing) = identity.missing(missing) else {
                return Err(lost("its length differs from the announced one"));
            };
            request.log(
                Level::Info,
                format_args!("cache: the rest of the response is fetched from the origin"),
            );
            let wanted = Wanted {
                for_cache: true,
                rest: Some((missing.range(), identity.if_range())),
                ..Wanted::default()
            };
            let reply = again(&mut request, wanted).await;
            let reply = reply.map_err(|failed| {
                lost(&format!("the range request to the origin failed ({})", failed.status))
            })?;
            match identity.fits(&reply.head, &missing) {
                Ok((skip, end)) => {
                    let body = reply.body.into_body(BodyOptions::default());
                    Ok(Got { body, skip, at: missing.start, end })
                }
                Err(why) => Err(lost(why)),
            }
        })))
    }
}

/// Whether the representation of a stored response can be distinguished from any other.
pub(super) fn is_certain(stored: &Stored) -> bool {
    Identity::of(stored).is_some()
}

fn lost(why: &str) -> BodyError {
    BodyError::Upstream(format!(
        "cache: a response can't be completed after its disk failed: {why}"
    ))
}

impl Missing {
    /// The value of `Range`.
    fn range(&self) -> Bytes {
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
    /// The facts stated by the first response; `None`: too few.
    fn of(stored: &Stored) -> Option<Self> {
        let fields = meta::decode_fields(&stored.state.header)?;
        Self::read(&fields::head(stored.state.status, Bytes::new(), &fields))
    }

    fn read(head: &UpstreamHead) -> Option<Self> {
        let time = |name| head.known(name).and_then(http_date::parse);
        let validator = match head.known(Known::ETag) {
            // RFC 9110 section 13.1.5: "A client MUST NOT generate an If-Range header field containing
            // an entity tag that is marked as weak."
            Some(etag) if is_strong(etag) => Validator::ETag(head.share(etag)),
            _ => {
                let (modified, date) = (time(Known::LastModified)?, time(Known::Date)?);
                if date.saturating_sub(modified) < STRONG_AFTER {
                    return None;
                }
                Validator::Time(modified)
            }
        };
        let (part, length) = match head.status {
            206 => {
                let range = head.known(Known::ContentRange).and_then(parse_content_range);
                let (range, length) = range?;
                (Some(range), Some(length?))
            }
            _ => (None, head.known(Known::ContentLength).and_then(nowait_conf::number)),
        };
        Some(Self {
            validator,
            part,
            length,
            coding: head.known(Known::ContentEncoding).map(|value| head.share(value)),
        })
    }

    /// The missing part of the whole, of which the first response may be a part itself; `None`: the
    /// received bytes contradict what that response stated.
    fn missing(&self, of: Missing) -> Option<Missing> {
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
    fn if_range(&self) -> Bytes {
        match &self.validator {
            Validator::ETag(etag) => etag.clone(),
            Validator::Time(time) => Bytes::copy_from_slice(&http_date::format(*time)),
        }
    }

    fn is_of(&self, head: &UpstreamHead) -> bool {
        let same = match &self.validator {
            Validator::ETag(etag) => head.known(Known::ETag) == Some(&etag[..]),
            Validator::Time(time) => {
                let modified = head.known(Known::LastModified);
                modified.and_then(http_date::parse) == Some(*time)
            }
        };
        same && head.known(Known::ContentEncoding) == self.coding.as_deref()
    }

    /// Whether a response continues the first one: how many bytes to skip, and where it has to end.
    fn fits(
        &self,
        head: &UpstreamHead,
        missing: &Missing,
    ) -> Result<(u64, Option<u64>), &'static str> {
        if !matches!(head.status, 200 | 206) {
            return Err("the origin did not send the rest");
        }
        if !self.is_of(head) {
            return Err("the origin has another representation");
        }
        let fits =
            |length: u64| missing.fits(length) && self.length.is_none_or(|known| known == length);
        if head.status == 200 {
            return match head.content_length.or(self.length).or(missing.length) {
                Some(length) if !fits(length) => Err("the length at the origin differs"),
                Some(length) => Ok((missing.start, Some(missing.end(length)))),
                None => Ok((missing.start, missing.end)),
            };
        }
        let range = head.known(Known::ContentRange);
        let range = range.and_then(parse_content_range);
        let Some((Range { start, end }, Some(length))) = range else {
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
    use nowait_caching::meta::Field;

    use super::*;

    const MONDAY: &str = "Mon, 16 Nov 2026 10:00:00 GMT";
    const TUESDAY: &str = "Tue, 17 Nov 2026 10:00:00 GMT";

    fn head(status: u16, lines: &[(&str, &str)]) -> UpstreamHead {
        let field = |(name, value): &(&str, &str)| Field {
            known: Known::from_bytes(name.as_bytes()),
            name: Bytes::copy_from_slice(name.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        let fields: Vec<_> = lines.iter().map(field).collect();
        let mut head = super::fields::head(status, Bytes::new(), &fields);
        let length = head.known(Known::ContentLength);
        head.content_length = length.and_then(nowait_conf::number);
        head
    }

    fn identity(lines: &[(&str, &str)]) -> Option<Identity> {
        Identity::read(&head(200, lines))
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
        let part = |range| first.fits(&head(206, &[etag, ("Content-Range", range)]), &MISSING);
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
            assert!(first.fits(&head(206, lines), &MISSING).is_err(), "{lines:?}");
        }
        assert!(first.fits(&head(416, &[etag]), &MISSING).is_err());
        assert!(first.fits(&head(404, &[etag]), &MISSING).is_err());
        // An origin without range support sends the whole.
        let whole = |length| first.fits(&head(200, &[etag, ("Content-Length", length)]), &MISSING);
        assert_eq!(whole("100"), Ok((30, Some(100))));
        assert!(whole("101").is_err());
        assert!(first.fits(&head(200, &[("ETag", "\"b\"")]), &MISSING).is_err());
    }

    #[test]
    fn a_length_that_was_not_told() {
        let first = identity(&[("ETag", "\"a\"")]).unwrap();
        let etag = ("ETag", "\"a\"");
        let part =
            |range, missing| first.fits(&head(206, &[etag, ("Content-Range", range)]), &missing);
        assert_eq!(part("bytes 30-99/100", MISSING), Ok((0, Some(100))));
        assert!(part("bytes 30-49/50", MISSING).is_err(), "60 had come");
        let whole = Missing { length: Some(60), ..MISSING };
        assert_eq!(part("bytes 30-59/60", whole), Ok((0, Some(60))));
        assert!(part("bytes 30-99/100", whole).is_err(), "60 were all");
        assert_eq!(first.fits(&head(200, &[etag]), &MISSING), Ok((30, None)));
        assert_eq!(first.fits(&head(200, &[etag]), &whole), Ok((30, Some(60))));
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
        let stored = |range| Identity::read(&head(206, &[etag, ("Content-Range", range)]));
        assert_eq!(stored("bytes 100-199/*"), None, "of unknown length");
        assert_eq!(Identity::read(&head(206, &[etag])), None, "several ranges");
        let first = stored("bytes 100-199/1000").unwrap();
        let all = Missing { start: 30, end: None, length: Some(100), received: 100 };
        let missing = first.missing(all).unwrap();
        assert_eq!(first.missing(Missing { length: Some(99), received: 99, ..all }), None);
        assert_eq!(missing.range(), "bytes=130-199");
        let got = |range| first.fits(&head(206, &[etag, ("Content-Range", range)]), &missing);
        assert_eq!(got("bytes 130-199/1000"), Ok((0, Some(200))));
        assert_eq!(got("bytes 100-199/1000"), Ok((30, Some(200))), "the whole part again");
        for other in ["bytes 130-198/1000", "bytes 131-199/1000", "bytes 130-199/1001"] {
            assert!(got(other).is_err(), "{other}");
        }
        let range = first.missing(Missing { end: Some(50), ..all }).unwrap();
        assert_eq!(range.range(), "bytes=130-149");
        assert_eq!(
            first.fits(&head(200, &[etag, ("Content-Length", "1000")]), &range),
            Ok((130, Some(150)))
        );
    }
}
