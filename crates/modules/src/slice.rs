//! `slice`: large responses are fetched, and cached, in parts. nginx: `ngx_http_slice_filter_module`.
//!
//! A request that uses `$slice_range` fetches the part in which its range begins. The filter turns the
//! resulting 206 into the beginning of a whole response. The other parts are subrequests, each started
//! when it is due, so no more is fetched than the client accepts. A part is stored under its own key,
//! which should contain `$slice_range`.
//!
//! A part that does not belong to the first one shows that the content has changed at the origin. If it was
//! stored, it is fetched again, and the response may continue. If the origin has sent it, the earlier parts
//! are outdated: those that were stored are purged, so that the next request gets the new content. A range
//! that does not begin in the first part, since the length of the whole or `If-Range` decides where it begins,
//! gets the new content at once: no head is sent before the part with its first byte is there.

use std::ops::Range;

use bytes::Bytes;
use nowait_backend::cache::state;
use nowait_cache::{Committing, Served};
use nowait_conf::{Cx, Scope, Size};
use nowait_http::log::Level;
use nowait_http::module::{self, Filter, FilterStage, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, Head, LocalFuture, Part, Response};
use nowait_http::slice::{self, Slice};
use nowait_http::slots::Key;
use nowait_http::subrequest::{self, Answer, Subrequest, SubrequestError};
use nowait_http::variables::Builtin;
use nowait_message::Known;
use nowait_message::conditional;
use nowait_message::range::{self, Selection, parse_content_range};

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

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut module::LocationBuilder) {
    let size = SliceConf::resolve(cx, chain).slice.0;
    if size != 0 {
        parts.settings.set(&SIZE, size);
        parts.filter(FilterStage::Part, Slices);
    }
}

/// Runs first: later filters receive the whole response.
struct Slices;

impl Filter for Slices {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        match begin(request, response, state::served(request)) {
            Begun::Unchanged => {}
            Begun::Whole(parts) => response.body = Body::Stream(parts),
            Begun::Fault => return Err(refuse(request)),
        }
        Ok(())
    }

    fn replaces(&self, request: &mut Request, response: &Response) -> bool {
        let is_first = slice::of(request).is_some_and(|slice| slice.start == 0);
        is_first && response.head.status == 206 && !request.is_nested() && begins_anywhere(request)
    }

    fn replace<'a>(
        &'a self,
        request: &'a mut Request,
        mut response: Response,
    ) -> LocalFuture<'a, Result<Response, Box<StatusResponse>>> {
        Box::pin(async move {
            settle(request, &mut response).await?;
            Ok(response)
        })
    }
}

/// nginx closes the connection.
fn refuse(request: &Request) -> Box<StatusResponse> {
    slice::set(request, None);
    Box::new(StatusResponse { status: 502, ..StatusResponse::default() })
}

/// How often a response is begun again because the content has changed at the origin.
const CHANGES_MAX: usize = 3;

/// Begins a whole response when the part is there in which the range of the request begins. If that part
/// does not belong to the first one, the response begins again with the new content.
async fn settle(request: &mut Request, response: &mut Response) -> Result<(), Box<StatusResponse>> {
    let mut served = state::served(request);
    for _ in 0..=CHANGES_MAX {
        let mut parts = match begin(request, response, served.clone()) {
            Begun::Unchanged => return Ok(()),
            Begun::Whole(parts) => parts,
            Begun::Fault => return Err(refuse(request)),
        };
        let change = match first_wanted(request, &response.head) {
            Some(byte) => parts.turn_to(byte).await,
            None => Ok(None),
        };
        let first = match change {
            Ok(None) => {
                response.body = Body::Stream(parts);
                return Ok(());
            }
            Ok(Some(_)) => parts.first_anew(served.as_ref()).await,
            Err(error) => Err(error),
        };
        match first {
            Ok(answer) => {
                served = state::served(answer.request());
                let head = Box::new(Head::clone(answer.request().out()));
                *response = Response { head, body: answer.into_body() };
            }
            Err(error) => {
                request.log(Level::Error, format_args!("{error}"));
                return Err(refuse(request));
            }
        }
    }
    request.log(Level::Error, format_args!("the content of slices changes all the time"));
    Err(refuse(request))
}

/// Whether the range of the request may begin in another part than the first one, which was fetched.
fn begins_anywhere(request: &Request) -> bool {
    request.head().header(Known::Range).is_some_and(|range| {
        request.head().header(Known::IfRange).is_some() || first_byte(range).is_none()
    })
}

/// The first byte that the client gets of a whole response with this head; `None`: it gets all of it.
fn first_wanted(request: &Request, head: &Head) -> Option<u64> {
    if let Some(if_range) = request.head().header(Known::IfRange) {
        let (etag, last_modified) = (head.etag.as_deref(), head.last_modified);
        let validators = conditional::Validators { etag, last_modified };
        if !conditional::if_range_holds(if_range, &validators) {
            return None;
        }
    }
    let max_ranges = request.location().files.max_ranges;
    match range::select(request.head().header(Known::Range)?, head.content_length?, max_ranges) {
        Selection::Single(wanted) => Some(wanted.start),
        Selection::Multiple(wanted) => wanted.first().map(|first| first.start),
        _ => None,
    }
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
    if let Some(slice) = slice::of(request) {
        return Some(slice);
    }
    let size = *request.location().settings.get(&SIZE)?;
    // After the response has begun, it is too late.
    if request.is_nested() || request.out().status != 0 {
        return None;
    }
    let slice = Slice::at(start(request), size);
    slice::set(request, Some(slice));
    Some(slice)
}

/// Where the range of the request begins. nginx: `ngx_http_slice_get_start`.
fn start(request: &Request) -> u64 {
    if request.head().header(Known::IfRange).is_some() {
        return 0;
    }
    request.head().header(Known::Range).and_then(first_byte).unwrap_or(0)
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

/// The reason why a part was rejected.
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

/// The validators that identify the content of a part.
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

/// What becomes of a response.
enum Begun {
    /// It is no part.
    Unchanged,
    /// It has the head of a whole response; this is the body.
    Whole(Box<SlicedBody>),
    /// The origin has sent something other than the part, which was logged.
    Fault,
}

/// Turns the response with one part, perhaps a stored one, into the beginning of a whole one.
fn begin(request: &mut Request, response: &mut Response, served: Option<Served>) -> Begun {
    let Some(slice) = slice::of(request).filter(|_| !request.is_nested()) else {
        return Begun::Unchanged;
    };
    if response.head.status != 206 {
        // The whole content, or an error: it is sent unchanged.
        slice::set(request, None);
        // nginx differs: it sends the 416, although the client has not asked for a range.
        let asked = request.head().header(Known::Range).is_some();
        if slice.start == 0 && response.head.status == 416 && !asked {
            be_empty(response);
        }
        return Begun::Unchanged;
    }
    let whole = match check(slice, &response.head, None) {
        Ok(whole) => whole,
        Err(fault) => {
            request.log(Level::Error, format_args!("{fault}"));
            return Begun::Fault;
        }
    };
    let Ok(template) = Subrequest::copy(request).begin(request) else { return Begun::Fault };
    slice::set(&template, Some(slice));
    let head = &mut response.head;
    head.status = 200;
    head.status_line = None;
    head.content_length = Some(whole);
    head.remove(|header| {
        let is = |name: &[u8]| header.name.eq_ignore_ascii_case(name);
        is(b"content-range") || is(b"accept-ranges")
    });
    head.accept_ranges = nowait_http::response::AcceptRanges::Bytes;
    let parts = SlicedBody {
        template,
        validators: Validators::of(head),
        served: served.into_iter().collect(),
        rejected: Rejected::Nothing,
        slice,
        whole,
        wanted: 0..whole,
        is_cut: false,
        at: slice.start,
        body: Content::Here(std::mem::take(&mut response.body).safe(request)),
        beyond: 0,
    };
    Begun::Whole(Box::new(parts))
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
struct SlicedBody {
    /// The template of the subrequests; never run itself.
    template: Box<Request>,
    validators: Validators,
    /// The parts that came from a cache, at most [`SERVED_MAX`].
    served: Vec<Served>,
    /// The stored part that did not fit: it is fetched once more.
    rejected: Rejected,
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

/// A part from the cache that did not belong to the first one.
enum Rejected {
    Nothing,
    /// Its file had no name yet: it can be confirmed or replaced afterwards.
    Unnamed(Option<Committing>),
    /// The origin has to confirm the object with this stamp.
    Stored(u64),
}

fn error(fault: Fault) -> BodyError {
    BodyError::Upstream(fault.to_string())
}

/// State of the current part.
enum Content {
    /// It has to be fetched.
    Wanted,
    /// It is being fetched.
    Coming(LocalFuture<'static, Result<Answer, SubrequestError>>),
    /// The rest of it.
    Here(Body),
}

impl SlicedBody {
    /// Fetches the part that contains the position.
    fn fetch(
        &mut self,
    ) -> Result<LocalFuture<'static, Result<Answer, SubrequestError>>, BodyError> {
        self.slice = Slice::at(self.at, self.slice.size);
        self.at = self.slice.start;
        let next = Subrequest::copy(&self.template).begin(&self.template)?;
        slice::set(&next, Some(self.slice));
        match &mut self.rejected {
            Rejected::Nothing => {}
            Rejected::Stored(stamp) => slice::reject(&next, *stamp),
            Rejected::Unnamed(committing) => {
                let committing = committing.take();
                return Ok(Box::pin(async move {
                    if let Some(committing) = committing {
                        // The look-up shows the result.
                        let _ = committing.await;
                    }
                    subrequest::run(next).await
                }));
            }
        }
        Ok(subrequest::run(next))
    }

    /// Prepares to fetch a part once more. False: it came from the origin, or was rejected before.
    fn reject(&mut self, part: Option<&Served>) -> bool {
        let Some(part) = part else { return false };
        self.rejected = match (&self.rejected, part.stamp(), part.committing()) {
            (Rejected::Nothing | Rejected::Unnamed(_), Some(stamp), _) => Rejected::Stored(stamp),
            (Rejected::Nothing, None, Some(committing)) => Rejected::Unnamed(Some(committing)),
            _ => return false,
        };
        true
    }

    /// Fetches the part with this byte if it is another one; the body goes on there. The result is the
    /// proof that the content has changed at the origin.
    async fn turn_to(&mut self, byte: u64) -> Result<Option<Fault>, BodyError> {
        if Slice::at(byte, self.slice.size) == self.slice {
            return Ok(None);
        }
        loop {
            self.at = byte;
            let answer = self.fetch()?.await?;
            match self.fetched(answer) {
                Ok(Some(body)) => {
                    self.body = Content::Here(body);
                    return Ok(None);
                }
                Ok(None) => {}
                Err(fault) if fault.is_change() => return Ok(Some(fault)),
                Err(fault) => return Err(error(fault)),
            }
        }
    }

    /// Fetches the first part of the new content, in place of a stored one.
    async fn first_anew(&mut self, stored: Option<&Served>) -> Result<Answer, BodyError> {
        self.at = 0;
        self.rejected = Rejected::Nothing;
        self.reject(stored);
        let answer = self.fetch()?.await?;
        self.template.shared().ended();
        Ok(answer)
    }

    /// The body of a response, if it is the expected part; `None`: it has to be fetched once more.
    fn fetched(&mut self, answer: Answer) -> Result<Option<Body>, Fault> {
        self.template.shared().ended();
        let served = state::served(answer.request());
        let fault = match check(self.slice, answer.request().out(), Some(&self.validators)) {
            Ok(whole) if whole == self.whole => {
                let is_kept = self.served.len() < SERVED_MAX;
                self.served.extend(served.filter(|_| is_kept));
                self.rejected = Rejected::Nothing;
                return Ok(Some(answer.into_body()));
            }
            Ok(_) => Fault::Length,
            Err(fault) => fault,
        };
        // The part may be older or newer than the first one; only the origin can tell.
        if self.reject(served.as_ref()) {
            return Ok(None);
        }
        if fault.is_change() {
            self.served.iter().for_each(Served::purge);
        }
        Err(fault)
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

impl BodySource for SlicedBody {
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
                        if let Some(body) = self.fetched(answer?).map_err(error)? {
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
        let is_ahead = self.at <= wanted.start
            && wanted.start < self.slice.start.saturating_add(self.slice.size);
        if !is_ahead {
            // Not in the rest of the fetched part.
            self.body = Content::Wanted;
            self.at = wanted.start;
        }
        true
    }

    fn seek_unit(&self) -> Option<u64> {
        Some(self.slice.size)
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
