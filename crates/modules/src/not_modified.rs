//! Conditional requests: 304 and 412. nginx: `ngx_http_not_modified_filter_module`.

use nowait_conf::{Cx, Scope};
use nowait_http::module::{FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{Body, Response};
use nowait_message::Known;
use nowait_message::conditional::{self, IfModifiedSince, Outcome, Preconditions, Validators};
use nowait_message::http_date;

/// This module.
pub static MODULE: Module = Module { build: Some(build), ..Module::EMPTY };

fn build(_: &mut Cx<'_>, _: &[&Scope], parts: &mut LocationBuilder) {
    parts.filter(FilterStage::Conditions, apply);
}

fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<StatusResponse>> {
    if response.head.status != 200 || request.is_nested() || response.head.is_upstreams {
        return Ok(());
    }
    let head = request.head();
    let strict = request.location().follows_rfcs;
    let preconditions = Preconditions {
        if_match: head.header(Known::IfMatch),
        if_none_match: head.header(Known::IfNoneMatch),
        // RFC 9110 section 13.1.3: "A recipient MUST ignore If-Modified-Since if the request
        // contains an If-None-Match header field". nginx requires both to hold.
        if_modified_since: head
            .header(Known::IfModifiedSince)
            .filter(|_| !(strict && head.header(Known::IfNoneMatch).is_some())),
        if_unmodified_since: head.header(Known::IfUnmodifiedSince),
    };
    if preconditions.is_empty() {
        return Ok(());
    }
    let mut validators = Validators {
        etag: response.head.etag.as_deref(),
        last_modified: response.head.last_modified,
    };
    let mut mode = request.location().files.if_modified_since.0;
    // RFC 9110 section 13.1.3: "If the selected representation's last modification date is earlier
    // or equal to the date provided in the field value, the condition is false."
    if strict && mode == IfModifiedSince::Exact {
        mode = IfModifiedSince::Before;
    }
    // RFC 9111 section 4.3.2: if "the Last-Modified header field is not present in a stored
    // response, a cache SHOULD use the stored response's Date field value".
    if strict && validators.last_modified.is_none() && preconditions.if_unmodified_since.is_none() {
        let date = response.head.date.given();
        validators.last_modified = date.and_then(|date| http_date::parse(date));
    }
    match conditional::evaluate(&preconditions, &validators, mode) {
        Outcome::Proceed => {}
        Outcome::Failed => {
            return Err(Box::new(StatusResponse { status: 412, ..StatusResponse::default() }));
        }
        Outcome::NotModified => {
            let head = &mut response.head;
            head.status = 304;
            head.status_line = None;
            head.content_type = None;
            head.charset = None;
            head.content_length = None;
            head.content_encoding = None;
            head.accept_ranges = nowait_http::response::AcceptRanges::No;
            response.body = Body::Empty;
        }
    }
    Ok(())
}
