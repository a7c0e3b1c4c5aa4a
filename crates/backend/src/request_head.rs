//! The head of a request to an HTTP server, of any version: what its protocols have in common.

use nowait_message::{Fields, Known};

use crate::conf::NameSet;
use crate::upstream;

/// Takes the fields of a head.
pub trait Writer {
    /// Adds a field.
    fn field(&mut self, name: &[u8], value: &[u8]);
}

impl Writer for upstream::Fields<'_> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.field(name, value);
    }
}

/// Passes the client's header fields on, except those that are written by the server or concern the
/// connection to the client.
pub fn pass(fields: Fields<'_>, replaced: &NameSet, writer: &mut impl Writer) {
    let nominates = fields.all(Known::Connection).any(nominates);
    for field in fields.iter() {
        if replaced.contains(field.name, field.known) {
            continue;
        }
        // nginx differs: it passes them on. RFC 9110 section 7.6.1: "Intermediaries MUST parse a
        // received Connection header field before a message is forwarded and, for each
        // connection-option in this field, remove any header or trailer field(s) from the message
        // with the same name as the connection-option".
        if nominates && is_nominated(fields, field.name) {
            continue;
        }
        writer.field(field.name, field.value);
    }
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii)
}

/// Whether `Connection` names header fields besides its usual values.
fn nominates(value: &[u8]) -> bool {
    tokens(value).any(|token| {
        !(token.eq_ignore_ascii_case(b"close")
            || token.eq_ignore_ascii_case(b"keep-alive")
            || token.eq_ignore_ascii_case(b"upgrade")
            || token.is_empty())
    })
}

fn is_nominated(fields: Fields<'_>, name: &[u8]) -> bool {
    fields.all(Known::Connection).flat_map(tokens).any(|token| token.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_names_headers() {
        assert!(!nominates(b"close, Keep-Alive,upgrade"));
        assert!(nominates(b"keep-alive, X-Hop"));
    }
}
