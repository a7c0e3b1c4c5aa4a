//! Writes the head of a response, in the order of fields that HTTP/1.1 has. nginx: `ngx_http_v2_header_filter`,
//! `ngx_http_v3_header_filter`.

use nowait_fields::Token;
use nowait_http::field_order::SeparateField;
use nowait_http::request::Request;
use nowait_http::response::{Head, HeaderSource};
use nowait_http::response_head::{self, FieldWriter};
use nowait_message::http_date;
use nowait_runtime::clock;

/// The writer of a version.
pub(crate) trait HeadFields {
    /// Adds a field. Letters of the name are folded to lower case.
    fn field(&mut self, name: &[u8], value: &[u8]);

    /// Adds a field whose name has a token.
    fn known(&mut self, token: Token, value: &[u8]);

    /// Adds a field with a number.
    fn known_number(&mut self, token: Token, number: u64);
}

struct Writer<'a, W>(&'a mut W);

impl<W: HeadFields> FieldWriter for Writer<'_, W> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.field(name, value);
    }

    fn named(&mut self, name: &'static str, value: &[u8]) {
        match Token::of(name.as_bytes()) {
            Token::OTHER => self.0.field(name.as_bytes(), value),
            token => self.0.known(token, value),
        }
    }

    fn last_modified(&mut self, date: &[u8; http_date::LEN]) {
        self.0.known(Token::LAST_MODIFIED, date);
    }

    fn accept_ranges(&mut self) {
        self.named("Accept-Ranges", b"bytes");
    }
}

/// Writes the fields of a head. These versions have no `Connection` and no `Transfer-Encoding`.
pub(crate) fn write(request: &Request, head: &Head, out: &mut impl HeadFields) {
    let writer = &mut Writer(out);
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
        response_head::apart(head, SeparateField::LastModified, writer);
    }
    if head.location_completed {
        response_head::apart(head, SeparateField::Location, writer);
    }
    if head.varies_by_encoding {
        writer.0.known(Token::VARY, b"Accept-Encoding");
    }
    response_head::lines(head, writer);
}
