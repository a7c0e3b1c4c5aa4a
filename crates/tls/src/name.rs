//! Distinguished names as text: in the form of RFC 2253, and in OpenSSL's old form.
//!
//! Called by `certificate.rs`. The texts are those of OpenSSL's `X509_NAME_print_ex` with
//! `XN_FLAG_RFC2253`, and of `X509_NAME_oneline`, which access rules and logs of existing
//! configurations expect.

use std::fmt::Write as _;

use crate::der::{DerReader, DerValue, OID, SEQUENCE, SET, dotted};

/// OpenSSL's short names of attribute types.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.45", "x500UniqueIdentifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.2.840.113549.1.9.2", "unstructuredName"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
];

/// An attribute: its type in dotted form, and its value.
struct Attribute<'a> {
    kind: String,
    value: DerValue<'a>,
}

impl Attribute<'_> {
    fn short_name(&self) -> Option<&'static str> {
        SHORT_NAMES.iter().find(|(oid, _)| *oid == self.kind).map(|(_, name)| *name)
    }
}

/// The relative names of a Name (the contents of its SEQUENCE), each with its attributes.
fn relative_names(name: &[u8]) -> Option<Vec<Vec<Attribute<'_>>>> {
    let mut names = Vec::new();
    let mut reader = DerReader::new(name);
    while !reader.is_empty() {
        let mut set = reader.enter(SET)?;
        let mut attributes = Vec::new();
        while !set.is_empty() {
            let mut attribute = set.enter(SEQUENCE)?;
            let kind = dotted(attribute.expect(OID)?)?;
            attributes.push(Attribute { kind, value: attribute.next()? });
        }
        names.push(attributes);
    }
    Some(names)
}

/// The form of RFC 2253: the most specific name first.
pub(crate) fn rfc2253(name: &[u8]) -> Option<String> {
    let mut text = String::new();
    for (index, attributes) in relative_names(name)?.iter().rev().enumerate() {
        if index > 0 {
            text.push(',');
        }
        // OpenSSL reverses the attributes of one relative name, too.
        for (index, attribute) in attributes.iter().rev().enumerate() {
            if index > 0 {
                text.push('+');
            }
            let known = attribute.short_name();
            text.push_str(known.unwrap_or(&attribute.kind));
            text.push('=');
            match known.and_then(|_| characters(attribute.value)) {
                Some(value) => escape(&value, &mut text),
                None => {
                    text.push('#');
                    for byte in attribute.value.whole {
                        let _ = write!(text, "{byte:02X}");
                    }
                }
            }
        }
    }
    Some(text)
}

/// OpenSSL's old form, with slashes.
pub(crate) fn oneline(name: &[u8]) -> Option<String> {
    let mut text = String::new();
    for attribute in relative_names(name)?.iter().flatten() {
        text.push('/');
        text.push_str(attribute.short_name().unwrap_or(&attribute.kind));
        text.push('=');
        for byte in attribute.value.contents {
            match byte {
                b' '..=b'~' => text.push(char::from(*byte)),
                _ => {
                    let _ = write!(text, "\\x{byte:02X}");
                }
            }
        }
    }
    Some(text)
}

/// The characters of a value of one of the string types.
fn characters(value: DerValue<'_>) -> Option<String> {
    let wide = |size: usize| -> Option<String> {
        let chunks = value.contents.chunks_exact(size);
        if !chunks.remainder().is_empty() {
            return None;
        }
        let code = |chunk: &[u8]| chunk.iter().fold(0, |code, byte| code << 8 | u32::from(*byte));
        chunks.map(|chunk| char::from_u32(code(chunk))).collect()
    };
    match value.tag {
        // UTF8String.
        0x0c => String::from_utf8(value.contents.to_vec()).ok(),
        // NumericString, PrintableString, TeletexString, IA5String, UTCTime, GeneralizedTime,
        // VisibleString: one byte each, taken as Latin-1.
        0x12..=0x14 | 0x16..=0x18 | 0x1a => {
            Some(value.contents.iter().copied().map(char::from).collect())
        }
        // UniversalString, BMPString.
        0x1c => wide(4),
        0x1e => wide(2),
        _ => None,
    }
}

fn escape(value: &str, text: &mut String) {
    let last = value.len().wrapping_sub(1);
    for (index, byte) in value.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'#' if index == 0 => text.push_str("\\#"),
            b' ' if index == 0 || index == last => text.push_str("\\ "),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        wrap(SEQUENCE, &[wrap(OID, oid), wrap(tag, value)].concat())
    }

    fn wrap(tag: u8, contents: &[u8]) -> Vec<u8> {
        [&[tag, contents.len() as u8], contents].concat()
    }

    #[test]
    fn names_are_printed_as_by_openssl() {
        let name = [
            wrap(SET, &attribute(&[0x55, 4, 6], 0x13, b"DE")),
            wrap(
                SET,
                &[
                    attribute(&[0x55, 4, 10], 0x0c, "M\u{fc}ller, Sons".as_bytes()),
                    attribute(&[0x55, 4, 11], 0x13, b" #1 "),
                ]
                .concat(),
            ),
            wrap(SET, &attribute(&[0x2a, 3, 4], 0x13, b"x")),
            wrap(SET, &attribute(&[0x55, 4, 3], 0x1e, &[0, b'a', 0, b'b'])),
        ]
        .concat();
        assert_eq!(
            rfc2253(&name).unwrap(),
            "CN=ab,1.2.3.4=#130178,OU=\\ #1\\ +O=M\\C3\\BCller\\, Sons,C=DE"
        );
        assert_eq!(
            oneline(&name).unwrap(),
            "/C=DE/O=M\\xC3\\xBCller, Sons/OU= #1 /1.2.3.4=x/CN=\\x00a\\x00b"
        );
        assert_eq!(rfc2253(b"").as_deref(), Some(""));
        assert!(rfc2253(&name[..5]).is_none());
    }
}
