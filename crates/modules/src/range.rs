//! `Range`: 206 and 416. nginx: `ngx_http_range_filter_module`.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::module::{Module, Parts, Place};
use nowait_http::outcome::Special;
use nowait_http::request::Request;
use nowait_http::response::{
    AcceptRanges, Body, BodyError, BodySource, Head, Header, LocalFuture, Part, Response,
};
use nowait_message::Known;
use nowait_message::conditional::{self, Validators};
use nowait_message::range::{self, Selection};

/// This module.
pub static MODULE: Module = Module { build: Some(build), ..Module::EMPTY };

fn build(_: &mut Cx<'_>, _: &[&Scope], parts: &mut Parts) {
    parts.filter(Place::Ranges, apply);
}

/// Numbers the boundaries of multipart bodies.
static BOUNDARY: AtomicU64 = AtomicU64::new(1);

fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if response.head.status != 200 && response.head.accept_ranges == AcceptRanges::Bytes {
        response.head.accept_ranges = AcceptRanges::No;
    }
    let unwanted = request.nested.is_some_and(|nested| !nested.ranges);
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
    let Some(field) = request.head.header(Known::Range) else { return Ok(()) };
    if let Some(if_range) = request.head.header(Known::IfRange) {
        let validators = Validators {
            etag: response.head.etag.as_deref(),
            last_modified: response.head.last_modified,
        };
        if !conditional::if_range_holds(if_range, &validators) {
            return Ok(());
        }
    }
    // A body that is produced while it is sent can be read only once. It depends on timing whether
    // the whole of an upstream's body has arrived.
    let streamed = response.head.is_upstreams || matches!(response.body, Body::Stream(_));
    match range::select(field, size, if streamed { 1 } else { max_ranges }) {
        Selection::Whole => {}
        Selection::NotSatisfiable => {
            let header = Header {
                name: Bytes::from_static(b"Content-Range"),
                value: range::unsatisfied(size).into(),
            };
            // What was added to the whole response, or came from an upstream: scripts see a response
            // only if its fields say so.
            let mut headers = std::mem::take(&mut response.head.headers);
            headers.retain(|header| !is_about_content(&header.name));
            headers.push(header);
            request.replaced.unsatisfied = true;
            return Err(Box::new(Special { status: 416, location: None, headers }));
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
        Selection::Multiple(wanted) => multiple(response, wanted, size),
    }
    Ok(())
}

fn multiple(response: &mut Response, wanted: Vec<Range<u64>>, size: u64) {
    if cut(&response.body, &(0..1)).is_none() {
        return;
    }
    let content_type = response.head.content_type_value().unwrap_or_default();
    response.head.charset = None;
    let boundary = BOUNDARY.fetch_add(1, Ordering::Relaxed);
    let frame = range::multipart(wanted, size, &content_type, boundary);
    let mut parts = VecDeque::with_capacity(2 * frame.parts.len() + 1);
    for (head, wanted) in frame.parts {
        parts.push_back(Part::Bytes(head));
        parts.extend(cut(&response.body, &wanted).into_iter().flatten());
    }
    parts.push_back(Part::Bytes(frame.end));
    clear_content_range(&mut response.head);
    response.head.status = 206;
    response.head.status_line = None;
    response.head.content_type = Some(frame.content_type.into());
    response.head.content_length = Some(frame.length);
    response.head.accept_ranges = AcceptRanges::No;
    response.body = Body::Parts(parts);
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
            Some(Body::Stream(Box::new(Skipping { source, at: 0, wanted: wanted.clone() })))
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
struct Skipping {
    source: Box<dyn BodySource>,
    /// Position in the source.
    at: u64,
    wanted: Range<u64>,
}

impl BodySource for Skipping {
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

/// Cuts a piece out of consecutive ones; `None` if they end before it does.
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
