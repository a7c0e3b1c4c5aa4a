//! The rest of a response whose object was lost while it was read along: its disk failed, and what the
//! reader wants next is in memory no more. The origin is asked for it with a range.
//!
//! Bytes of two responses are only put together if they are certainly of one representation: the first
//! response had a strong validator, and the second has the same one, the same coding, the same length,
//! and begins and ends where it has to. In any doubt the connection is cut, as it was before.
//! RFC 9110 sections 13.1.5 (`If-Range`), 14.4 (`Content-Range`), 15.3.7.3 (combining parts).
//!
//! Called by [`super::along`]. Never: stores anything.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use nowait_cache::format::Head as Stored;
use nowait_h1::{Known, Method};

use super::meta::{self, Field};
use super::origin::{Again, Wanted};
use crate::http_date;
use crate::log::Level;
use crate::request::Request;
use crate::response::{Body, BodyError, LocalFuture};
use crate::subrequest::Subrequest;
use crate::upstream::{BodyOptions, UpstreamHead};

/// RFC 9110 section 8.8.2.2: a modification time is a strong validator only if the response was made so
/// long after it that another change within the same second would have shown: seconds.
const STRONG_AFTER: i64 = 60;

/// Who could ask for the rest of a response.
pub(super) struct Rest {
    /// What the request to the origin is a copy of.
    request: Box<Request>,
    again: Again,
    stored: Arc<Stored>,
}

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    /// The first byte of the body that is wanted.
    pub(super) start: u64,
    /// Up to where it is wanted; `None`: to its end.
    pub(super) end: Option<u64>,
    /// Length of the body, if all of it has come.
    pub(super) length: Option<u64>,
    /// Bytes of the body that had come.
    pub(super) received: u64,
}

/// What the origin has sent.
pub(super) struct Got {
    pub(super) body: Body,
    /// Bytes to be left out first: the origin has sent all of it.
    pub(super) skip: u64,
    /// Up to where in the whole it has to go; `None`: that shows at its end.
    pub(super) end: Option<u64>,
}

/// What tells one representation from the next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Validator {
    ETag(Bytes),
    Time(i64),
}

/// What is known of the representation.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    validator: Validator,
    /// Its length, if the first response said so.
    length: Option<u64>,
    /// `Content-Encoding`
    coding: Option<Bytes>,
}

impl Rest {
    /// For a request that reads along; `None`: there are no ranges of its response.
    pub(super) fn of(request: &Request, again: Again, stored: &Arc<Stored>) -> Option<Box<Self>> {
        if request.method != Method::Get
            || stored.state.status != 200
            || request.slice.get().is_some()
        {
            return None;
        }
        let request = Subrequest::copy(request).begin(request).ok()?;
        Some(Box::new(Self { request, again, stored: stored.clone() }))
    }

    /// Asks the origin. The error is what the log says of the response that can't be completed.
    pub(super) fn ask(self, missing: Missing) -> LocalFuture<'static, Result<Got, BodyError>> {
        let Self { mut request, again, stored } = self;
        Box::pin(async move {
            let identity = Identity::of(&stored)
                .filter(|known| known.length.is_none_or(|length| missing.fits(length)));
            let Some(identity) = identity else { return Err(lost("it has no strong validator")) };
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
                lost(&format!("the origin was asked for the rest in vain ({})", failed.status))
            })?;
            match identity.fits(&reply.head, &missing) {
                Ok((skip, end)) => {
                    let body = reply.body.into_body(BodyOptions::default());
                    Ok(Got { body, skip, end })
                }
                Err(why) => Err(lost(why)),
            }
        })
    }
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

    /// Up to where what is wanted goes, of a body with this length.
    fn end(&self, length: u64) -> u64 {
        self.end.map_or(length, |end| end.min(length))
    }
}

impl Identity {
    /// What the first response says of itself; `None`: too little.
    fn of(stored: &Stored) -> Option<Self> {
        let fields = meta::decode_fields(&stored.state.header)?;
        Self::read(&Field::head(stored.state.status, Bytes::new(), &fields))
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
        let length = head.known(Known::ContentLength);
        Some(Self {
            validator,
            length: length.and_then(nowait_conf::number),
            coding: head.known(Known::ContentEncoding).map(|value| head.share(value)),
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

    /// Whether a response goes on with the first one: how many bytes are to be left out, and where it
    /// has to end.
    fn fits(
        &self,
        head: &UpstreamHead,
        missing: &Missing,
    ) -> Result<(u64, Option<u64>), &'static str> {
        if !matches!(head.status, 200 | 206) {
            return Err("the origin has no rest of it");
        }
        if !self.is_of(head) {
            return Err("the origin has another one");
        }
        let fits =
            |length: u64| missing.fits(length) && self.length.is_none_or(|known| known == length);
        if head.status == 200 {
            return match head.content_length.or(self.length).or(missing.length) {
                Some(length) if !fits(length) => Err("the origin has one of another length"),
                Some(length) => Ok((missing.start, Some(missing.end(length)))),
                None => Ok((missing.start, missing.end)),
            };
        }
        let range = head.known(Known::ContentRange);
        let range = range.and_then(crate::slice::content_range);
        let Some((Range { start, end }, Some(length))) = range else {
            return Err("the origin does not say which part it has sent");
        };
        if !fits(length) {
            return Err("the origin has one of another length");
        }
        if start != missing.start || end != missing.end(length) {
            return Err("the origin has sent another part");
        }
        Ok((0, Some(end)))
    }
}

/// RFC 9110 section 8.8.3: `W/` marks a weak one.
fn is_strong(etag: &[u8]) -> bool {
    etag.len() >= 2 && etag.starts_with(b"\"") && etag.ends_with(b"\"")
}

#[cfg(test)]
mod tests {
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
        let mut head = Field::head(status, Bytes::new(), &fields);
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

    /// Sixty of a hundred bytes had come, thirty were sent.
    const MISSING: Missing = Missing { start: 30, end: None, length: None, received: 60 };

    #[test]
    fn what_fits_and_what_does_not() {
        let first = identity(&[("ETag", "\"a\""), ("Content-Length", "100")]).unwrap();
        let etag = ("ETag", "\"a\"");
        let part = |range| first.fits(&head(206, &[etag, ("Content-Range", range)]), &MISSING);
        assert_eq!(part("bytes 30-99/100"), Ok((0, Some(100))));
        for range in [
            "bytes 29-99/100",
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
        // One that knows no ranges sends all of it.
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
        assert!(part("bytes 30-99/100", range).is_err());
        assert_eq!(MISSING.range(), "bytes=30-");
    }
}
