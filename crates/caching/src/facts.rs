//! The input of the strict rules (RFC 9111) about a request and about a response, read once.
//!
//! Used by [`storage`](crate::storage), [`freshness`](crate::freshness) and
//! [`updates`](crate::updates).

use bytes::Bytes;
use nowait_message::Method;

use crate::control::{self, CacheControl};
use crate::targeted_control;
use crate::validity::{Ignored, VARY_BYTES_MAX};
use nowait_message::http_date;

/// A request.
#[derive(Debug, Clone, Default)]
pub struct RequestFacts {
    /// The method.
    pub method: Method,
    /// The `Cache-Control`.
    pub control: CacheControl,
    /// It has `Authorization`.
    pub authorization: bool,
}

/// A response of the origin.
#[derive(Debug, Clone, Default)]
pub struct ResponseFacts {
    /// The status.
    pub status: u16,
    /// The targeted cache control, or else `Cache-Control`.
    pub control: CacheControl,
    /// It comes from a targeted field.
    pub targeted: bool,
    /// `Expires` in Unix seconds; an invalid time is in the past.
    pub expires: Option<i64>,
    /// `Date` in Unix seconds.
    pub date: Option<i64>,
    /// `Age` in seconds.
    pub age: u64,
    /// `Last-Modified` in Unix seconds.
    pub last_modified: Option<i64>,
    /// `ETag`
    pub etag: Option<Bytes>,
    /// `Vary`, all lines joined.
    pub vary: Bytes,
    /// It has a `Set-Cookie` that is not ignored.
    pub set_cookie: bool,
    /// It has `Content-Range`.
    pub content_range: bool,
}

impl RequestFacts {
    /// Reads the fields of a request.
    pub fn read<'a>(
        method: Method,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Self {
        let lines = |name: &'static [u8]| {
            fields
                .clone()
                .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        let mut control = CacheControl::parse(lines(b"cache-control"));
        // RFC 9111 section 5.4: "When the Cache-Control header field is not present in a request,
        // caches MUST consider the no-cache request pragma-directive as having the same effect as if
        // "Cache-Control: no-cache" were present". (That is of RFC 7234; RFC 9111 leaves it to caches.)
        if lines(b"cache-control").next().is_none()
            && lines(b"pragma").any(|value| value.trim_ascii().eq_ignore_ascii_case(b"no-cache"))
        {
            control.no_cache = control::Scope::Whole;
        }
        Self { method, control, authorization: lines(b"authorization").next().is_some() }
    }
}

impl ResponseFacts {
    /// Reads the fields of a response.
    pub fn read<'a>(
        status: u16,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        ignored: Ignored,
    ) -> Self {
        let lines = |name: &'static [u8]| {
            fields
                .clone()
                .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        let mut response = Self { status, ..Self::default() };
        if !ignored.cache_control {
            // RFC 9213 section 2.2: the first valid field of the target list is used, "and any
            // Cache-Control and Expires header field in that response is ignored".
            let targeted = targeted_control::TARGETS
                .iter()
                .find_map(|target| targeted_control::parse(lines(target)));
            response.targeted = targeted.is_some();
            response.control =
                targeted.unwrap_or_else(|| CacheControl::parse(lines(b"cache-control")));
        }
        if !ignored.expires && !response.targeted {
            // RFC 9111 section 5.3: "A cache recipient MUST interpret invalid date formats,
            // especially the value "0", as representing a time in the past".
            response.expires = lines(b"expires")
                .next()
                .map(|value| http_date::parse_exact(value).unwrap_or(i64::MIN));
        }
        response.date = lines(b"date").next().and_then(http_date::parse_exact);
        // RFC 9111 section 5.1: "it SHOULD use the first value in the list and ignore the rest";
        // "If the field value (after discarding additional values […]) is invalid […] ignore".
        response.age = lines(b"age")
            .next()
            .and_then(|value| value.split(|&b| b == b',').next())
            .and_then(|value| control::seconds(value.trim_ascii()))
            .unwrap_or(0);
        response.last_modified = lines(b"last-modified").next().and_then(http_date::parse);
        response.etag = lines(b"etag").next().map(Bytes::copy_from_slice);
        if !ignored.vary {
            response.vary = joined(lines(b"vary"));
        }
        response.set_cookie = !ignored.set_cookie && lines(b"set-cookie").next().is_some();
        response.content_range = lines(b"content-range").next().is_some();
        response
    }

    /// Whether it can be revalidated by a condition.
    #[inline]
    pub fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// Whether `Vary` has a member `*`, or is too long to be stored.
    pub fn varies_always(&self) -> bool {
        self.vary.len() > VARY_BYTES_MAX
            || self.vary.split(|&b| b == b',').any(|member| member.trim_ascii() == b"*")
    }
}

/// All lines of a field, joined into one list.
pub fn joined<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut all = Vec::new();
    for line in lines {
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(line);
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(lines: &[(&str, &str)]) -> ResponseFacts {
        let fields = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        ResponseFacts::read(200, fields, Ignored::default())
    }

    #[test]
    fn a_targeted_field_takes_the_place_of_the_others() {
        let read = response(&[
            ("Cache-Control", "no-store"),
            ("Expires", "0"),
            ("CDN-Cache-Control", "max-age=60"),
        ]);
        assert!(read.targeted && !read.control.no_store);
        assert_eq!((read.control.max_age, read.expires), (Some(60), None));
        let read = response(&[("Cache-Control", "no-store"), ("CDN-Cache-Control", "Max-Age")]);
        assert!(!read.targeted && read.control.no_store);
    }

    #[test]
    fn fields() {
        let read = response(&[("Age", "7, 9"), ("Expires", "0"), ("Vary", "a"), ("Vary", "b, *")]);
        assert_eq!((read.age, read.expires), (7, Some(i64::MIN)));
        assert!(read.varies_always());
        assert_eq!(response(&[("Age", "x")]).age, 0);
    }

    #[test]
    fn pragma_counts_only_alone() {
        let request = |lines: &[(&str, &str)]| {
            let fields = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            RequestFacts::read(Method::Get, fields).control.no_cache.is_whole()
        };
        assert!(request(&[("Pragma", "No-Cache")]));
        assert!(!request(&[("Pragma", "no-cache"), ("Cache-Control", "max-age=1")]));
    }
}
