//! Writes the head of an HTTP/2 response, in the order of fields that HTTP/1.1 has. nginx:
//! `ngx_http_v2_header_filter`.

use nowait_h2::connection::ServerSide;
use nowait_h2::hpack::Token;
use nowait_h2::{HeadWriter, SendError, StreamId, server};
use nowait_http::field_order::SeparateField;
use nowait_http::request::Request;
use nowait_http::response::{Head, HeaderSource};
use nowait_http::response_head::{self, FieldWriter};
use nowait_message::http_date;
use nowait_runtime::clock;

struct Writer<'a>(HeadWriter<'a, ServerSide, Vec<u8>>);

impl FieldWriter for Writer<'_> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.field(name, value);
    }

    fn named(&mut self, name: &'static str, value: &[u8]) {
        match Token::of(name.as_bytes()) {
            Token::OTHER => self.0.field(name.as_bytes(), value),
            token => self.0.known(token, value),
        };
    }

    fn last_modified(&mut self, date: &[u8; http_date::LEN]) {
        self.0.known(Token::LAST_MODIFIED, date);
    }

    fn accept_ranges(&mut self) {
        self.named("Accept-Ranges", b"bytes");
    }
}

/// Appends the head; `end`: without a body. The protocol has no `ServerConnection` and no
/// `Transfer-Encoding`.
pub(super) fn write(
    h2: &mut server::ServerConnection,
    stream: StreamId,
    request: &Request,
    head: &Head,
    end: bool,
    out: &mut Vec<u8>,
) -> Result<(), SendError> {
    let mut writer = Writer(h2.respond(stream, head.status, out)?);
    if head.server == HeaderSource::Ours {
        writer.0.known(Token::SERVER, request.location().server_tokens().text().as_bytes());
    }
    if head.date == HeaderSource::Ours {
        writer.0.known(Token::DATE, &clock().http_date());
    }
    if let Some(kind) = head.content_type_value() {
        writer.0.known(Token::CONTENT_TYPE, &kind);
    }
    if let Some(length) = head.content_length {
        writer.0.known_number(Token::CONTENT_LENGTH, length);
    }
    if !head.order.has(SeparateField::LastModified) {
        response_head::apart(head, SeparateField::LastModified, &mut writer);
    }
    if head.location_completed {
        response_head::apart(head, SeparateField::Location, &mut writer);
    }
    if head.varies_by_encoding {
        writer.0.known(Token::VARY, b"Accept-Encoding");
    }
    response_head::lines(head, &mut writer);
    writer.0.finish(end);
    Ok(())
}
