//! `more_set_headers`, `more_clear_headers` and the same for requests: header fields are replaced and
//! removed, not only added. The third-party module headers-more has these directives.

mod conf;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::field_order::SeparateField;
use nowait_http::log::Level;
use nowait_http::module::{
    Filter, FilterStage, Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step,
};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{AcceptRanges, Head, Header, HeaderSource, LocalFuture, Response};
use nowait_http::trace::Trace;
use nowait_message::{Known, http_date};

use self::conf::{FieldChange, HeaderChange};

/// This module.
pub static MODULE: Module = Module { rows: &[conf::ROWS], build: Some(build), ..Module::EMPTY };

/// Lines that change responses.
struct Output(Vec<HeaderChange>);

/// Lines that change requests.
struct Input(Vec<HeaderChange>);

fn build(_: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let (output, input) = conf::in_effect(chain);
    if !output.is_empty() {
        parts.filter(FilterStage::Fields, Output(output));
    }
    if !input.is_empty() {
        parts.handler(Phase::Preaccess, Input(input));
    }
}

impl Handler for Input {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        for change in &self.0 {
            if change.suits_type(request.head().header(Known::ContentType)) {
                change.fields.iter().for_each(|field| change_input(request, change, field));
            }
        }
        Step::Next(request)
    }

    fn explain<'a>(
        &'a self,
        _: &'a mut Request,
        _: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        HandlerExplanation::run()
    }
}

fn change_input(request: &mut Request, change: &HeaderChange, field: &FieldChange) {
    if change.replaces && request.head().fields().named(&field.name).next().is_none() {
        return;
    }
    let value = field.value.as_ref().map(|value| request.evaluate(value));
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return request.head_mut().remove_fields(|name| field.is_about(name) && !frames(name));
    };
    if request.head_mut().set_field(&field.name, &value).is_err() {
        let host = value.escape_ascii();
        request
            .log(Level::Error, format_args!("\"more_set_input_headers\": invalid host \"{host}\""));
    }
}

/// Whether a request field frames the content.
fn frames(name: &[u8]) -> bool {
    [&b"content-length"[..], b"transfer-encoding"].iter().any(|one| name.eq_ignore_ascii_case(one))
}

impl Filter for Output {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        if request.is_nested() {
            return Ok(());
        }
        // Values may refer to `$status` and `$sent_http_...`.
        request.out_mut().swap(&mut response.head);
        for change in &self.0 {
            let head = request.out();
            let suits =
                change.suits_status(head.status) && change.suits_type(head.content_type.as_deref());
            if suits {
                change.fields.iter().for_each(|field| change_output(request, change, field));
            }
        }
        request.out_mut().swap(&mut response.head);
        Ok(())
    }
}

fn change_output(request: &mut Request, change: &HeaderChange, field: &FieldChange) {
    let value = field.value.as_ref().map(|value| request.evaluate(value));
    let head = request.out_mut();
    match value.filter(|value| !value.is_empty()) {
        Some(value) if change.adds => {
            head.headers.push(Header { name: field.name.clone(), value });
        }
        Some(value) => set(head, field, value),
        None => clear(head, field),
    }
}

/// Removes matching header lines and separately stored fields.
fn clear(head: &mut Head, field: &FieldChange) {
    head.remove(|line| field.is_about(&line.name));
    if field.is_about(b"Server") {
        head.server = HeaderSource::Absent;
    }
    if field.is_about(b"Date") {
        head.date = HeaderSource::Absent;
    }
    if field.is_about(b"Content-Type") {
        (head.content_type, head.charset, head.content_type_text) = (None, None, None);
    }
    if field.is_about(b"Last-Modified") {
        (head.last_modified, head.last_modified_text) = (None, None);
    }
    if field.is_about(b"ETag") {
        head.etag = None;
    }
    if field.is_about(b"Location") {
        head.location = None;
    }
    if field.is_about(b"Content-Encoding") {
        head.content_encoding = None;
    }
    if field.is_about(b"Accept-Ranges") {
        head.accept_ranges = AcceptRanges::No;
    }
}

/// Makes this the only field of its name. Fields that the server interprets are stored separately.
fn set(head: &mut Head, field: &FieldChange, value: Bytes) {
    let line = head.headers.iter().position(|line| field.is_about(&line.name));
    if let Some(line) = line {
        head.headers[line].value = value;
        let mut at = 0;
        return head.remove(|other| {
            at += 1;
            at != line + 1 && field.is_about(&other.name)
        });
    }
    let accept_ranges = head.accept_ranges;
    clear(head, field);
    let apart = match Known::from_bytes(&field.name) {
        Some(Known::ContentType) => return head.set_content_type(value),
        Some(Known::Server) => {
            head.server = HeaderSource::Given(value);
            SeparateField::Server
        }
        Some(Known::Date) => {
            head.date = HeaderSource::Given(value);
            SeparateField::Date
        }
        Some(Known::LastModified) if http_date::parse(&value).is_some() => {
            head.last_modified = http_date::parse(&value);
            head.last_modified_text = Some(value);
            SeparateField::LastModified
        }
        Some(Known::ETag) => {
            head.etag = Some(value);
            SeparateField::ETag
        }
        Some(Known::Location) => {
            head.location = Some(value);
            SeparateField::Location
        }
        Some(Known::ContentEncoding) => {
            head.content_encoding = Some(value);
            SeparateField::ContentEncoding
        }
        Some(Known::AcceptRanges) if value == "bytes" => {
            head.accept_ranges = accept_ranges;
            return;
        }
        _ => return head.headers.push(Header { name: field.name.clone(), value }),
    };
    head.place(apart);
}
