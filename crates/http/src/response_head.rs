//! Completes the head of a response, for sending and for logs, independent of the protocol, and orders its
//! fields.
//!
//! Called after the filters, by front ends and for subrequests.

use nowait_message::{http_date, may_be_trailer};

use crate::field_order::SeparateField;
use crate::request::Request;
use crate::response::{AcceptRanges, Head, Header};
use crate::{address, files};

/// Writes fields in the form of a protocol.
pub trait FieldWriter {
    /// Writes a field.
    fn field(&mut self, name: &[u8], value: &[u8]);

    /// Writes a field whose name is valid.
    fn named(&mut self, name: &'static str, value: &[u8]);

    /// Writes `Last-Modified`.
    fn last_modified(&mut self, date: &[u8; http_date::LEN]);

    /// Writes `Accept-Ranges: bytes`.
    fn accept_ranges(&mut self);
}

/// Completes the head as it is sent, and as logs show it.
pub fn complete(request: &Request, head: &mut Head) {
    // Only for requested content; error pages have no modification time.
    if !matches!(head.status, 200 | 206 | 304) && head.last_modified_text.is_none() {
        head.last_modified = None;
    }
    if let Some(to) = &head.location
        && to.first() == Some(&b'/')
        && request.location().pages.absolute_redirect
    {
        head.location = Some(absolute(request, to).into());
        head.location_completed = true;
    }
}

/// The target of a redirect with scheme, host and port.
fn absolute(request: &Request, to: &[u8]) -> Vec<u8> {
    let pages = &request.location().pages;
    let mut out = request.client().scheme().as_bytes().to_vec();
    out.extend_from_slice(b"://");
    let host = request.host();
    if pages.server_name_in_redirect && !request.server_name().is_empty() {
        out.extend_from_slice(request.server_name());
    } else if !host.is_empty() {
        out.extend_from_slice(host);
    } else {
        address::append_host(request.exchange().local(), &mut out);
    }
    let usual = if request.client().is_tls() { 443 } else { 80 };
    if pages.port_in_redirect
        && let Some(port) = address::port(request.exchange().local()).filter(|port| *port != usual)
    {
        out.push(b':');
        out.extend_from_slice(port.to_string().as_bytes());
    }
    out.extend_from_slice(to);
    out
}

/// Completes the trailers at the end of the body: those of an upstream and those of `add_trailer`, but
/// none that only a head may have.
pub fn complete_trailers(request: &mut Request) {
    if request.out().expects_trailers || request.out().trailers_follow {
        let current = request.current().clone();
        current.conf.location(request.location_id()).filters.trailers(request);
    }
    request.out_mut().trailers.retain(|trailer| may_be_trailer(&trailer.name));
}

/// Writes the lines that are written in the order of their addition.
pub fn lines(head: &Head, writer: &mut impl FieldWriter) {
    // Fields of handlers precede those added by filters.
    for field in [SeparateField::Location, SeparateField::ETag, SeparateField::ContentEncoding] {
        let is_written = field == SeparateField::Location && head.location_completed;
        if !is_written && !head.order.has(field) {
            apart(head, field, writer);
        }
    }
    let mut placed = head.order.fields().peekable();
    for (number, Header { name, value }) in head.headers.iter().enumerate() {
        while let Some((field, _)) = placed.next_if(|(_, line)| *line <= number) {
            placed_field(head, field, writer);
        }
        writer.field(name, value);
    }
    for (field, _) in placed {
        placed_field(head, field, writer);
    }
    if !head.order.has(SeparateField::AcceptRanges) {
        apart(head, SeparateField::AcceptRanges, writer);
    }
}

/// Writes a field at its place.
fn placed_field(head: &Head, field: SeparateField, writer: &mut impl FieldWriter) {
    if field != SeparateField::Location || !head.location_completed {
        apart(head, field, writer);
    }
}

/// The time as a date, if it is that of the resident file in the response.
fn kept_date(head: &Head, time: i64) -> Option<&[u8; http_date::LEN]> {
    let resident = head.resident.as_ref()?;
    resident.file().filter(|(metadata, _)| metadata.mtime == time)?;
    let [_, date] = files::validators(resident)?;
    (&**date).try_into().ok()
}

/// Writes one of the fields that are stored apart, if present.
pub fn apart(head: &Head, field: SeparateField, writer: &mut impl FieldWriter) {
    let (name, value) = match field {
        SeparateField::Server => ("Server", head.server.given()),
        SeparateField::Date => ("Date", head.date.given()),
        SeparateField::LastModified => {
            match (head.last_modified, &head.last_modified_text) {
                (Some(time), None) => match kept_date(head, time) {
                    Some(date) => writer.last_modified(date),
                    None => writer.last_modified(&http_date::format(time)),
                },
                (Some(_), Some(text)) => writer.named("Last-Modified", text),
                (None, _) => {}
            }
            return;
        }
        SeparateField::Location => ("Location", head.location.as_ref()),
        SeparateField::ContentEncoding => ("Content-Encoding", head.content_encoding.as_ref()),
        SeparateField::ETag => ("ETag", head.etag.as_ref()),
        SeparateField::AcceptRanges => {
            if head.accept_ranges != AcceptRanges::No {
                writer.accept_ranges();
            }
            return;
        }
    };
    if let Some(value) = value {
        writer.named(name, value);
    }
}
