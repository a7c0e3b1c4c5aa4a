//! `add_header`, `add_trailer`, `expires`, and `Alt-Svc` for HTTP/3. nginx: `ngx_http_headers_filter_module`.

mod alt_svc;
pub mod conf;

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::field_order::SeparateField;
use nowait_http::module::{Filter, FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{Head, Header, Response};
use nowait_message::http_date;

use self::conf::{Expires, HeadersConf};

/// This module.
pub static MODULE: Module =
    Module { rows: &[HeadersConf::ROWS], build: Some(build), ..Module::EMPTY };

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = HeadersConf::inherit(cx, chain);
    if !conf.is_empty() {
        parts.filter(FilterStage::Fields, Add(conf.clone()));
    }
    alt_svc::build(cx, &conf, parts);
}

/// Adds the fields.
struct Add(Arc<HeadersConf>);

impl Filter for Add {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        if !request.is_nested() {
            apply(&self.0, request, response);
        }
        Ok(())
    }

    fn trailers(&self, request: &mut Request) {
        trailers(&self.0, request);
    }
}

fn apply(headers: &HeadersConf, request: &mut Request, response: &mut Response) {
    // Values may refer to `$status` and `$sent_http_...`, including lines added before them.
    request.out_mut().swap(&mut response.head);
    let usual = is_usual(request.out().status);
    if usual {
        expires(request, &headers.expires);
    }
    for header in headers.add_header.iter().filter(|header| usual || header.always) {
        // nginx differs: it sends it twice.
        if request.replaced().unsatisfied && request.out().has(&header.name) {
            continue;
        }
        let value = request.evaluate(&header.value);
        set(request.out_mut(), &header.name, value);
    }
    request.out_mut().swap(&mut response.head);
    // Their values are determined at the end of the body.
    response.head.expects_trailers =
        headers.add_trailer.iter().any(|trailer| usual || trailer.always);
}

/// Adds the trailers of `add_trailer` after the end of the body; their values may refer to earlier
/// ones. nginx: `ngx_http_trailers_filter`.
fn trailers(headers: &HeadersConf, request: &mut Request) {
    let usual = is_usual(request.out().status);
    for trailer in headers.add_trailer.iter().filter(|trailer| usual || trailer.always) {
        let value = request.evaluate(&trailer.value);
        if !value.is_empty() {
            request.out_mut().trailers.push(Header { name: trailer.name.clone(), value });
        }
    }
}

/// Whether lines without `always` are added.
fn is_usual(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

/// Adds a header line unless it is empty. A field that Nowait interprets replaces the handler's,
/// even by nothing.
fn set(head: &mut Head, name: &Bytes, value: Bytes) {
    if name.eq_ignore_ascii_case(b"last-modified") {
        head.last_modified = http_date::parse(&value);
        if head.last_modified.is_some() {
            head.place(SeparateField::LastModified);
            head.last_modified_text = Some(value);
            return;
        }
    } else if name.eq_ignore_ascii_case(b"etag") {
        // The new field takes the place of the handler's.
        if head.etag.is_none() {
            head.place(SeparateField::ETag);
        }
        head.etag = Some(value).filter(|value| !value.is_empty());
        return;
    }
    if !value.is_empty() {
        head.headers.push(Header { name: name.clone(), value });
    }
}

fn expires(request: &mut Request, expires: &Expires) {
    let now = i64::try_from(nowait_runtime::clock().unix_seconds()).unwrap_or(i64::MAX);
    let time = request.out().last_modified;
    let Some(line) = expires.evaluate(request, now, time) else { return };
    let head = request.out_mut();
    head.set("Expires", line.expires);
    head.set("Cache-Control", line.cache_control);
}
