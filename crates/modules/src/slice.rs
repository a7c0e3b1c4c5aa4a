//! `slice`: large responses are fetched, and cached, in parts. nginx: `ngx_http_slice_filter_module`.
//!
//! A request that uses `$slice_range` fetches the part in which its range begins. The filter turns the
//! resulting 206 into the beginning of a whole response. The other parts are subrequests, each started
//! when it is due, so no more is fetched than the client accepts. A part is stored under its own key,
//! which should contain `$slice_range`.
//!
//! A part that does not belong to the first one shows that the content has changed at the origin. If it
//! was stored, it is fetched anew, and the response may continue. If the origin has sent it, the earlier parts
//! are outdated: those that were stored are purged, so that the next request gets the new content.

use std::ops::Range;

use bytes::Bytes;
use nowait_backend::cache::state;
use nowait_cache::Served;
use nowait_conf::{Cx, Scope, Size};
use nowait_http::log::Level;
use nowait_http::module::{self, Module, Place};
use nowait_http::outcome::Special;
use nowait_http::partial::{self, Slice};
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, Head, LocalFuture, Part, Response};
use nowait_http::slots::Key;
use nowait_http::subrequest::{self, Answer, Refused, Subrequest};
use nowait_http::variables::Builtin;
use nowait_message::Known;
use nowait_message::range::parse_content_range;

nowait_conf::directives! {
    /// Fetching large responses in parts.
    #[derive(Debug)]
    module "slice";
    pub struct SliceConf with SliceConfLayer;

    /// Size of the parts in which responses are fetched, so that a cache can serve a range of a
    /// large response without having all of it. Zero fetches responses as a whole. Use it together
    /// with `proxy_set_header Range $slice_range;`, `$slice_range` in the cache key, and
    /// `proxy_cache_valid 206 1h;`.
    slice: Size = "0", in HTTP | SERVER | LOCATION, args "size";
}

/// This module.
pub static MODULE: Module =
    Module { rows: &[SliceConf::ROWS], build: Some(build), variables: BUILTINS, ..Module::EMPTY };

/// Bytes of a part, in locations whose responses are fetched in parts.
static SIZE: Key<u64> = Key::new();

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut module::Parts) {
    let size = SliceConf::resolve(cx, chain).slice.0;
    if size != 0 {
        parts.settings.set(&SIZE, size);
        parts.filter(Place::Part, apply);
    }
}

/// Comes first: later filters see the whole response.
fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if begin(request, response) {
        return Ok(());
    }
    partial::set(request, None);
    // nginx closes the connection.
    Err(Box::new(Special { status: 502, ..Special::default() }))
}

/// The number of stored parts that a response remembers, to purge them if they turn out to be outdated.
/// More stay until a response begins with them or meets them.
const SERVED_MAX: usize = 1000;

/// The variables of this module.
const BUILTINS: &[Builtin] = &[Builtin {
    name: "slice_range",
    doc: "The range of the part being fetched, in the form of the `Range` field; empty without \
          `slice`.",
    get: |r, out| match slice(r) {
        Some(slice) => {
            out.extend_from_slice(slice.range().as_bytes());
            true
        }
        None => false,
    },
}];

/// The part for a request, determined at its first use.
fn slice(request: &Request) -> Option<Slice> {
    if let Some(slice) = partial::of(request) {
        return Some(slice);
    }
    let size = *request.location().settings.get(&SIZE)?;
    // Once there is a response it is too late.
    if request.is_nested() || request.out.status != 0 {
        return None;
    }
    let slice = Slice::at(start(request), size);
    partial::set(request, Some(slice));
    Some(slice)
}

/// Where the range of the request begins. nginx: `ngx_http_slice_get_start`.
fn start(request: &Request) -> u64 {
    if request.head.header(Known::IfRange).is_some() {
        return 0;
    }
    request.head.header(Known::Range).and_then(first_byte).unwrap_or(0)
}

/// The first byte of a single range that is not counted from the end.
fn first_byte(field: &[u8]) -> Option<u64> {
    let (unit, range) = field.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") || range.contains(&b',') {
        return None;
    }
    let range = range.trim_ascii_start();
    let digits = range.iter().take_while(|b| b.is_ascii_digit()).count();
    nowait_conf::number(&range[..digits])
}

/// Why a part was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Status(u16),
    ETag,
    Time,
    Length,
    NoRange,
    NoLength,
    Range { got: (u64, u64), expected: (u64, u64) },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "unexpected status code {status} in slice response"),
            Self::ETag => f.write_str("etag mismatch in slice response"),
            Self::Time => f.write_str("last modification time mismatch in slice response"),
            Self::Length => f.write_str("complete length mismatch in slice response"),
            Self::NoRange => f.write_str("invalid range in slice response"),
            Self::NoLength => f.write_str("no complete length in slice response"),
            Self::Range { got, expected } => write!(
                f,
                "unexpected range in slice response: {}-{}, expected: {}-{}",
                got.0, got.1, expected.0, expected.1
            ),
        }
    }
}

impl Fault {
    /// Whether the origin no longer has the content to which the other parts belong.
    fn is_change(self) -> bool {
        matches!(self, Self::ETag | Self::Time | Self::Length | Self::Status(200 | 404 | 410 | 416))
    }
}

/// What distinguishes the content of one part from that of others.
#[derive(Debug)]
struct Validators {
    etag: Option<Bytes>,
    last_modified: Option<i64>,
}

impl Validators {
    fn of(head: &Head) -> Self {
        Self { etag: head.etag.clone(), last_modified: head.last_modified }
    }

    /// Whether a part with this head belongs to the same content.
    fn check(&self, head: &Head) -> Result<(), Fault> {
        if self.etag.is_some() {
            return if self.etag == head.etag { Ok(()) } else { Err(Fault::ETag) };
        }
        // nginx differs: it compares entity tags only.
        match (self.last_modified, head.last_modified) {
            (Some(first), Some(this)) if first != this => Err(Fault::Time),
            _ => Ok(()),
        }
    }
}

/// Turns the response with one part into the beginning of a whole one. False: the origin has sent
/// something other than the part, which was logged.
fn begin(request: &mut Request, response: &mut Response) -> bool {
    let Some(slice) = partial::of(request).filter(|_| !request.is_nested()) else { return true };
    if response.head.status != 206 {
        // The whole content, or an error: it is sent unchanged.
        partial::set(request, None);
        // nginx differs: it sends the 416, although the client has not asked for a range.
        let asked = request.head.header(Known::Range).is_some();
        if slice.start == 0 && response.head.status == 416 && !asked {
            be_empty(response);
        }
        return true;
    }
    let whole = match check(slice, &response.head, None) {
        Ok(whole) => whole,
        Err(fault) => {
            request.log(Level::Error, format_args!("{fault}"));
            return false;
        }
    };
    let Ok(template) = Subrequest::copy(request).begin(request) else { return false };
    partial::set(&template, Some(slice));
    let head = &mut response.head;
    head.status = 200;
    head.status_line = None;
    head.content_length = Some(whole);
    head.remove(|header| {
        let is = |name: &[u8]| header.name.eq_ignore_ascii_case(name);
        is(b"content-range") || is(b"accept-ranges")
    });
    head.accept_ranges = nowait_http::response::AcceptRanges::Bytes;
    let parts = Parts {
        template,
        validators: Validators::of(head),
        served: state::served(request).into_iter().collect(),
        rejected: None,
        slice,
        whole,
        wanted: 0..whole,
        is_cut: false,
        at: slice.start,
        body: Content::Here(std::mem::take(&mut response.body).safe(request)),
        beyond: 0,
    };
    response.body = Body::Stream(Box::new(parts));
    true
}

/// RFC 9110 section 15.5.17: a range that begins with the first byte is unsatisfiable only if there is none.
fn be_empty(response: &mut Response) {
    let head = &mut response.head;
    head.status = 200;
    head.status_line = None;
    head.content_length = Some(0);
    head.remove(|header| header.name.eq_ignore_ascii_case(b"content-range"));
    response.body = Body::Empty;
}

/// Checks that a response is the part; returns the length of the whole.
fn check(slice: Slice, head: &Head, first: Option<&Validators>) -> Result<u64, Fault> {
    if head.status != 206 {
        return Err(Fault::Status(head.status));
    }
    if let Some(first) = first {
        first.check(head)?;
    }
    let (range, whole) =
        head.header(b"content-range").and_then(parse_content_range).ok_or(Fault::NoRange)?;
    let whole = whole.ok_or(Fault::NoLength)?;
    let expected = (slice.start, slice.start.saturating_add(slice.size).min(whole));
    let got = (range.start, range.end);
    if got != expected {
        return Err(Fault::Range { got, expected });
    }
    Ok(whole)
}

/// The parts of a response, one after the other.
struct Parts {
    /// The template of the subrequests; never run itself.
    template: Box<Request>,
    validators: Validators,
    /// The parts that came from a cache, at most [`SERVED_MAX`].
    served: Vec<Served>,
    /// The stored part that did not fit: it is fetched once more.
    rejected: Option<u64>,
    /// The part whose body this is, or that comes next.
    slice: Slice,
    whole: u64,
    /// The bytes for the client.
    wanted: Range<u64>,
    /// Whether `wanted` is final: the range filter has cut it, or sending has begun.
    is_cut: bool,
    /// Position of the body.
    at: u64,
    body: Content,
    /// Bytes at the end of the last piece that are not for the client.
    beyond: u64,
}

/// State of the current part.
enum Content {
    /// It has to be fetched.
    Wanted,
    /// It is being fetched.
    Coming(LocalFuture<'static, Result<Answer, Refused>>),
    /// The rest of it.
    Here(Body),
}

impl Parts {
    /// Fetches the part that contains the position.
    fn fetch(&mut self) -> Result<LocalFuture<'static, Result<Answer, Refused>>, BodyError> {
        self.slice = Slice::at(self.at, self.slice.size);
        self.at = self.slice.start;
        let next = Subrequest::copy(&self.template).begin(&self.template)?;
        partial::set(&next, Some(self.slice));
        if let Some(stamp) = self.rejected {
            partial::reject(&next, stamp);
        }
        Ok(subrequest::run(next))
    }

    /// The body of a response, if it is the expected part; `None`: it has to be fetched once more.
    fn fetched(&mut self, answer: Answer) -> Result<Option<Body>, BodyError> {
        self.template.shared.ended();
        let served = state::served(answer.request());
        let fault = match check(self.slice, &answer.request().out, Some(&self.validators)) {
            Ok(whole) if whole == self.whole => {
                let is_kept = self.served.len() < SERVED_MAX;
                self.served.extend(served.filter(|_| is_kept));
                self.rejected = None;
                return Ok(Some(answer.into_body()));
            }
            Ok(_) => Fault::Length,
            Err(fault) => fault,
        };
        // It may be older than the first part, or newer: the origin knows.
        let stamp = served.and_then(|served| served.stamp());
        if stamp.is_some() && self.rejected.is_none() {
            self.rejected = stamp;
            return Ok(None);
        }
        if fault.is_change() {
            self.served.iter().for_each(Served::purge);
        }
        Err(self.fault(fault))
    }

    fn fault(&self, fault: Fault) -> BodyError {
        BodyError::Upstream(fault.to_string())
    }

    /// The portion of a piece that is for the client.
    fn taken(&mut self, part: Part) -> Option<Part> {
        let end = self.at.checked_add(part.len())?;
        let from = self.wanted.start.clamp(self.at, end) - self.at;
        let to = self.wanted.end.clamp(self.at, end) - self.at;
        self.beyond = part.len() - to;
        (from < to).then(|| part.cut(&(from..to))).flatten()
    }
}

impl BodySource for Parts {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            if !self.is_cut {
                // nginx differs: it sends the rest from this part on as if that were the whole. No
                // range can be cut from content that another filter changes, and then the earlier
                // parts are needed, too.
                self.cut(&(0..self.whole));
            }
            while self.at < self.wanted.end {
                // The position is kept: this future may be dropped at each wait.
                let part = match &mut self.body {
                    Content::Here(body) => body.next().await?,
                    Content::Coming(answer) => {
                        let answer = answer.await;
                        self.body = Content::Wanted;
                        if let Some(body) = self.fetched(answer?)? {
                            self.body = Content::Here(body);
                        }
                        continue;
                    }
                    Content::Wanted => {
                        self.body = Content::Coming(self.fetch()?);
                        continue;
                    }
                };
                let Some(part) = part else {
                    self.body = Content::Wanted;
                    continue;
                };
                let length = part.len();
                let piece = self.taken(part);
                self.at += length;
                if piece.is_some() {
                    return Ok(piece);
                }
            }
            Ok(None)
        })
    }

    fn is_urgent(&self) -> bool {
        matches!(&self.body, Content::Here(body) if body.is_urgent())
    }

    fn retry(&mut self, unsent: u64) -> bool {
        let unsent = unsent + self.beyond;
        let Content::Here(Body::Stream(source)) = &mut self.body else { return false };
        let goes_on = source.retry(unsent);
        if goes_on {
            self.at -= unsent;
        }
        goes_on
    }

    fn cut(&mut self, wanted: &Range<u64>) -> bool {
        (self.wanted, self.is_cut) = (wanted.clone(), true);
        if wanted.start >= self.slice.start.saturating_add(self.slice.size)
            || wanted.start < self.slice.start
        {
            // Not in the fetched part.
            self.body = Content::Wanted;
            self.at = wanted.start;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_by_their_bytes() {
        assert_eq!(Slice::at(0, 10).range(), "bytes=0-9");
        assert_eq!(Slice::at(25, 10).range(), "bytes=20-29");
        assert_eq!(first_byte(b"bytes=25-"), Some(25));
        assert_eq!(first_byte(b"Bytes= 7-9"), Some(7));
        for other in [&b"bytes=-5"[..], b"bytes=1-2,4-5", b"lines=1-", b"bytes=x", b"bytes="] {
            assert_eq!(first_byte(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn a_part_has_to_be_the_one_that_was_asked_for() {
        let slice = Slice { start: 10, size: 10 };
        let first = Validators { etag: Some(Bytes::from("\"a\"")), last_modified: Some(1) };
        let answer = |status, range: &'static str, etag: Option<&'static str>| {
            let mut head = Head::new(status);
            head.add("Content-Range", range);
            (head.etag, head.last_modified) = (etag.map(Bytes::from), Some(2));
            check(slice, &head, Some(&first))
        };
        let etag = Some("\"a\"");
        assert_eq!(answer(206, "bytes 10-19/30", etag), Ok(30));
        assert_eq!(answer(206, "bytes 10-14/15", etag), Ok(15));
        assert_eq!(answer(200, "bytes 10-19/30", etag), Err(Fault::Status(200)));
        assert_eq!(answer(206, "bytes 10-19/30", None), Err(Fault::ETag));
        assert_eq!(answer(206, "bytes 10-19/*", etag), Err(Fault::NoLength));
        let got = Fault::Range { got: (10, 19), expected: (10, 20) };
        assert_eq!(answer(206, "bytes 10-18/30", etag), Err(got));
        let untagged = Validators { etag: None, last_modified: Some(1) };
        let dated = |last_modified| untagged.check(&Head { last_modified, ..Head::EMPTY });
        assert_eq!((dated(Some(1)), dated(None)), (Ok(()), Ok(())));
        assert_eq!(dated(Some(2)), Err(Fault::Time));
    }
}
