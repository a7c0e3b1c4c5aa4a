//! `Range`: 206 and 416. nginx: `ngx_http_range_filter_module`.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::module::{FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{
    AcceptRanges, Body, BodyError, BodySource, Head, Header, LocalFuture, Part, Response,
};
use nowait_message::Known;
use nowait_message::conditional::{self, Validators};
use nowait_message::range::{self, Selection};

/// This module.
pub static MODULE: Module = Module { build: Some(build), ..Module::EMPTY };

fn build(_: &mut Cx<'_>, _: &[&Scope], parts: &mut LocationBuilder) {
    parts.filter(FilterStage::Ranges, apply);
}

/// Numbers the boundaries of multipart bodies.
static BOUNDARY: AtomicU64 = AtomicU64::new(1);

fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<StatusResponse>> {
    if response.head.status != 200 && response.head.accept_ranges == AcceptRanges::Bytes {
        response.head.accept_ranges = AcceptRanges::No;
    }
    let unwanted = request.nested().is_some_and(|nested| !nested.ranges);
    if response.head.accept_ranges != AcceptRanges::Bytes || unwanted {
        return Ok(());
    }
    let max_ranges = request.location().files.max_ranges;
    if max_ranges == 0 {
        response.head.accept_ranges = AcceptRanges::No;
        return Ok(());
    }
    let Some(size) = response.head.content_length else {
        // Another filter changes the length.
        response.head.accept_ranges = AcceptRanges::No;
        return Ok(());
    };
    let Some(field) = request.head().header(Known::Range) else { return Ok(()) };
    if let Some(if_range) = request.head().header(Known::IfRange) {
        let validators = Validators {
            etag: response.head.etag.as_deref(),
            last_modified: response.head.last_modified,
        };
        if !conditional::if_range_holds(if_range, &validators) {
            return Ok(());
        }
    }
    let unit = match &response.body {
        Body::Stream(source) => source.seek_unit(),
        // It depends on timing whether the whole of an upstream's body has arrived.
        _ if response.head.is_upstreams => None,
        _ => Some(1),
    };
    // Without a unit, the body is produced while it is sent, and can be read only once.
    match range::select(field, size, if unit.is_some() { max_ranges } else { 1 }) {
        Selection::Whole => {}
        Selection::NotSatisfiable => {
            let header = Header {
                name: Bytes::from_static(b"Content-Range"),
                value: range::unsatisfied(size).into(),
            };
            // Keep fields added to the whole response, or received from an upstream: scripts can read a
            // response only with its CORS fields.
            let mut headers = std::mem::take(&mut response.head.headers);
            headers.retain(|header| !is_about_content(&header.name));
            headers.push(header);
            request.set_unsatisfied();
            return Err(Box::new(StatusResponse { status: 416, location: None, headers }));
        }
        Selection::Single(wanted) => {
            let Some(body) = single(&mut response.body, &wanted) else { return Ok(()) };
            response.head.status = 206;
            response.head.status_line = None;
            response.head.content_length = Some(wanted.end - wanted.start);
            clear_content_range(&mut response.head);
            response.head.add("Content-Range", range::content_range(&wanted, size));
            response.head.accept_ranges = AcceptRanges::No;
            response.body = body;
        }
        // Otherwise a small request would make the origin send more than the whole.
        Selection::Multiple(wanted) if fetched(&wanted, unit.unwrap_or(1), size) > size => {}
        Selection::Multiple(wanted) => multiple(response, wanted, size),
    }
    Ok(())
}

/// Bytes of a body of `size` bytes that are fetched in whole units for these ranges, one after the other.
fn fetched(ranges: &[Range<u64>], unit: u64, size: u64) -> u64 {
    let (mut bytes, mut end) = (0u64, 0);
    for range in ranges {
        // The rest of a unit may serve the next range, too.
        let is_at_hand = range.start >= end && range.start < rounded_up(end, unit, size);
        let start =
            if is_at_hand { rounded_up(end, unit, size) } else { range.start / unit * unit };
        bytes = bytes.saturating_add(rounded_up(range.end, unit, size).saturating_sub(start));
        end = range.end;
    }
    bytes
}

fn rounded_up(position: u64, unit: u64, size: u64) -> u64 {
    position.div_ceil(unit).saturating_mul(unit).min(size)
}

fn multiple(response: &mut Response, wanted: Vec<Range<u64>>, size: u64) {
    let streamed = matches!(response.body, Body::Stream(_));
    if !streamed && cut(&response.body, &(0..1)).is_none() {
        return;
    }
    let content_type = response.head.content_type_value().unwrap_or_default();
    response.head.charset = None;
    let boundary = BOUNDARY.fetch_add(1, Ordering::Relaxed);
    let frame = range::multipart(wanted, size, &content_type, boundary);
    response.body = match std::mem::take(&mut response.body) {
        Body::Stream(source) => {
            let (parts, end) = (frame.parts.into_iter(), Some(frame.end));
            Body::Stream(Box::new(MultipartBody { source, parts, end, is_in_part: false }))
        }
        body => {
            let mut parts = VecDeque::with_capacity(2 * frame.parts.len() + 1);
            for (head, wanted) in frame.parts {
                parts.push_back(Part::Bytes(head));
                parts.extend(cut(&body, &wanted).into_iter().flatten());
            }
            parts.push_back(Part::Bytes(frame.end));
            Body::Parts(parts)
        }
    };
    clear_content_range(&mut response.head);
    response.head.status = 206;
    response.head.status_line = None;
    response.head.content_type = Some(frame.content_type.into());
    response.head.content_length = Some(frame.length);
    response.head.accept_ranges = AcceptRanges::No;
}

/// Whether a field describes the content, which a 416 does not have.
fn is_about_content(name: &[u8]) -> bool {
    let prefix = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
    let policy = name.get(8..).is_some_and(|rest| {
        rest.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"security"))
    });
    prefix && !policy || name.eq_ignore_ascii_case(b"repr-digest")
}

/// Removes a `Content-Range` of another origin, which does not describe this response.
fn clear_content_range(head: &mut Head) {
    head.remove(|header| header.name.eq_ignore_ascii_case(b"content-range"));
}

/// A range of a body; `None` when it can't be cut.
fn single(body: &mut Body, wanted: &Range<u64>) -> Option<Body> {
    match body {
        Body::Stream(source) => {
            let native = source.cut(wanted);
            let Body::Stream(source) = std::mem::take(body) else { return None };
            if native {
                return Some(Body::Stream(source));
            }
            Some(Body::Stream(Box::new(RangeBody { source, at: 0, wanted: wanted.clone() })))
        }
        body => {
            let mut parts = cut(body, wanted)?;
            Some(match (parts.pop_front()?, parts.is_empty()) {
                (Part::Bytes(bytes), true) => Body::Bytes(bytes),
                (Part::File(file), true) => Body::File(file),
                (first, false) => {
                    parts.push_front(first);
                    Body::Parts(parts)
                }
            })
        }
    }
}

/// A range of a body that is produced while it is sent: the bytes before it are dropped.
struct RangeBody {
    source: Box<dyn BodySource>,
    /// Position in the source.
    at: u64,
    wanted: Range<u64>,
}

impl BodySource for RangeBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            while self.at < self.wanted.end {
                let Some(part) = self.source.next().await? else { break };
                let end = self.at + part.len();
                let from = self.wanted.start.clamp(self.at, end) - self.at;
                let to = self.wanted.end.clamp(self.at, end) - self.at;
                self.at = end;
                if from < to {
                    return Ok(part.cut(&(from..to)));
                }
            }
            if self.at < self.wanted.end { Err(BodyError::Truncated) } else { Ok(None) }
        })
    }

    fn is_urgent(&self) -> bool {
        self.source.is_urgent()
    }
}

/// Several ranges of a body that can be read anywhere, one after the other.
struct MultipartBody {
    source: Box<dyn BodySource>,
    /// The heads of the parts to come, and their ranges.
    parts: std::vec::IntoIter<(Bytes, Range<u64>)>,
    end: Option<Bytes>,
    /// The head of a part has been produced, but not all of its bytes.
    is_in_part: bool,
}

impl BodySource for MultipartBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            if self.is_in_part {
                match self.source.next().await? {
                    Some(part) => return Ok(Some(part)),
                    None => self.is_in_part = false,
                }
            }
            let Some((head, wanted)) = self.parts.next() else {
                return Ok(self.end.take().map(Part::Bytes));
            };
            if !self.source.cut(&wanted) {
                return Err(BodyError::Truncated);
            }
            self.is_in_part = true;
            Ok(Some(Part::Bytes(head)))
        })
    }

    fn is_urgent(&self) -> bool {
        self.is_in_part && self.source.is_urgent()
    }

    fn retry(&mut self, unsent: u64) -> bool {
        self.is_in_part && self.source.retry(unsent)
    }
}

/// Cuts a piece out of a body; `None` if the body can't be cut.
fn cut(body: &Body, wanted: &Range<u64>) -> Option<VecDeque<Part>> {
    let whole = match body {
        Body::Bytes(bytes) => &[Part::Bytes(bytes.clone())][..],
        Body::File(file) => &[Part::File(file.clone())],
        Body::Parts(parts) => return cut_parts(parts, wanted),
        Body::Empty | Body::Stream(_) | Body::Tunnel(_) => return None,
    };
    cut_parts(whole, wanted)
}

/// Cuts a range out of consecutive pieces; `None` if the pieces end before the range does.
fn cut_parts<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    wanted: &Range<u64>,
) -> Option<VecDeque<Part>> {
    let (mut cut, mut at) = (VecDeque::new(), 0);
    for part in parts {
        let end = at + part.len();
        let from = wanted.start.clamp(at, end) - at;
        let to = wanted.end.clamp(at, end) - at;
        at = end;
        if from < to {
            cut.extend(part.clone().cut(&(from..to)));
        }
    }
    (at >= wanted.end).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::fetched;

    #[test]
    fn ranges_are_fetched_in_whole_units() {
        for (ranges, bytes) in [
            (&[0..10, 20..30][..], 100),
            (&[0..10, 90..100, 100..101], 200),
            (&[0..10, 110..120, 130..140], 200),
            (&[0..10, 90..110], 200),
            // Backwards, the unit has to be fetched again.
            (&[20..30, 0..10], 200),
            (&[950..1050, 0..1], 250),
            (&[1049..1050, 1049..1050], 100),
            (&[0..1050, 0..1050], 2100),
        ] {
            assert_eq!(fetched(ranges, 100, 1050), bytes, "{ranges:?}");
        }
        assert_eq!(fetched(&[0..10, 5..15], 1, 1050), 20);
        let largest = u64::MAX - 1..u64::MAX;
        assert_eq!(fetched(&[largest.clone(), largest], 1 << 40, u64::MAX), 2 * ((1 << 40) - 1));
    }
}
