//! JA4, a fingerprint of TLS clients: what a ClientHello offers, in 36 characters that stay the same when a client
//! shuffles its extensions. Published by FoxIO; only the client's fingerprint of TLS is here, not its relatives.
//!
//! `t13d1516h2_8daaf6152771_e5627efa2ab1`: over TCP or QUIC (`t`, `q`), TLS 1.3, with a server name (`d`, or `i`), 15
//! cipher suites, 16 extensions, the first and last character of the first application protocol (`h2`); then 48 bits of
//! the SHA-256 of the sorted suites, and of the sorted extensions with the signature algorithms. GREASE (RFC 8701) does
//! not count.
//!
//! Used by [`Hello`](crate::Hello).

use std::fmt::Write as _;

use aws_lc_rs::digest;
use data_encoding::HEXLOWER;

use crate::field_reader::FieldReader;

/// Types of extensions: RFC 6066, 3; RFC 8446, 4.2.3; RFC 7301; RFC 8446, 4.2.1.
const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// Type, length, version and random number of a hello.
const VERSION: std::ops::Range<usize> = 4..6;
const HEAD_BYTES: usize = 4 + 2 + 32;

/// Counts are shown up to this.
const COUNT_MAX: usize = 99;

/// In place of the hash of an empty list.
const EMPTY: &str = "000000000000";

/// What carries the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TLS over TCP.
    #[default]
    Tcp,
    /// QUIC.
    Quic,
}

/// The fields that count.
#[derive(Default)]
struct HelloFields {
    version: u16,
    suites: Vec<u16>,
    extensions: Vec<u16>,
    algorithms: Vec<u16>,
    protocol: Vec<u8>,
}

/// The fingerprint of a complete ClientHello; `None` if it is malformed.
pub(crate) fn fingerprint(message: &[u8], transport: Transport) -> Option<String> {
    let HelloFields { version, mut suites, mut extensions, algorithms, protocol } =
        fields(message)?;
    let transport = match transport {
        Transport::Tcp => 't',
        Transport::Quic => 'q',
    };
    let name = if extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
    let counts = [suites.len(), extensions.len()].map(|count| count.min(COUNT_MAX));
    let mut out =
        format!("{transport}{}{name}{:02}{:02}", version_name(version), counts[0], counts[1]);
    out.extend(ends(&protocol));
    suites.sort_unstable();
    extensions.retain(|kind| !matches!(*kind, SERVER_NAME | ALPN));
    extensions.sort_unstable();
    let suites = list(&suites);
    let mut kinds = list(&extensions);
    if !algorithms.is_empty() && !kinds.is_empty() {
        kinds.push('_');
        kinds.push_str(&list(&algorithms));
    }
    for part in [suites, kinds] {
        out.push('_');
        out.push_str(&hash(&part));
    }
    Some(out)
}

fn fields(message: &[u8]) -> Option<HelloFields> {
    let mut fields = FieldReader(message);
    let head = fields.take(HEAD_BYTES)?;
    let mut hello =
        HelloFields { version: FieldReader(head.get(VERSION)?).u16()?, ..HelloFields::default() };
    // The session's ID.
    fields.short()?;
    hello.suites = numbers(fields.long()?)?;
    // Methods of compression.
    fields.short()?;
    if fields.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = FieldReader(fields.long()?);
    while !extensions.0.is_empty() {
        let (kind, contents) = (extensions.u16()?, extensions.long()?);
        if !is_grease(kind) {
            hello.extensions.push(kind);
        }
        let mut contents = FieldReader(contents);
        match kind {
            SIGNATURE_ALGORITHMS => hello.algorithms = numbers(contents.long()?)?,
            ALPN => hello.protocol = FieldReader(contents.long()?).short()?.to_vec(),
            SUPPORTED_VERSIONS => {
                hello.version =
                    numbers(contents.short()?)?.into_iter().max().unwrap_or(hello.version);
            }
            _ => {}
        }
    }
    Some(hello)
}

/// A list of numbers of two bytes, without GREASE.
fn numbers(list: &[u8]) -> Option<Vec<u16>> {
    let (pairs, rest) = list.as_chunks::<2>();
    let all = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
    rest.is_empty().then(|| all.filter(|number| !is_grease(*number)).collect())
}

/// RFC 8701, 2: `0a0a`, `1a1a` … `fafa`
fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

fn version_name(version: u16) -> &'static str {
    match version {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        _ => "00",
    }
}

/// The first and the last character of a protocol, or of its hexadecimal form if one is no letter or digit.
fn ends(protocol: &[u8]) -> [char; 2] {
    let [Some(first), Some(last)] = [protocol.first(), protocol.last()] else { return ['0', '0'] };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [char::from(*first), char::from(*last)];
    }
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    [digit(first >> 4), digit(last & 0x0f)]
}

/// `1301,1302`
fn list(numbers: &[u16]) -> String {
    let mut out = String::with_capacity(numbers.len() * 5);
    for (n, number) in numbers.iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}{number:04x}");
    }
    out
}

fn hash(list: &str) -> String {
    if list.is_empty() {
        return EMPTY.to_owned();
    }
    let digest = digest::digest(&digest::SHA256, list.as_bytes());
    let mut hex = HEXLOWER.encode(digest.as_ref());
    hex.truncate(EMPTY.len());
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field behind its length in two bytes.
    fn long(content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&len[..], content].concat()
    }

    fn bytes(numbers: &[u16]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    fn hello(version: u16, suites: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let all: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| [kind.to_be_bytes().to_vec(), long(content)].concat())
            .collect();
        let content = [
            version.to_be_bytes().to_vec(),
            vec![7; 32],
            vec![0],
            long(&bytes(suites)),
            vec![1, 0],
            long(&all),
        ]
        .concat();
        let len = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&[1], &len[1..], &content].concat()
    }

    /// The client of the published example.
    fn browser() -> Vec<u8> {
        let suites = [
            0x1a1a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
            0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
        ];
        let algorithms = bytes(&[0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601]);
        let versions = bytes(&[0x2a2a, 0x0304, 0x0303]);
        let kinds =
            [0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023];
        let others = [0x0012, 0x002b, 0xff01, 0x000b, 0x000a, 0x0015, 0x3a3a];
        let extensions = kinds.into_iter().chain(others).map(|kind| {
            let content = match kind {
                SIGNATURE_ALGORITHMS => long(&algorithms),
                ALPN => long(b"\x02h2\x08http/1.1"),
                SUPPORTED_VERSIONS => [&[6], &versions[..]].concat(),
                _ => Vec::new(),
            };
            (kind, content)
        });
        hello(0x0303, &suites, &extensions.collect::<Vec<_>>())
    }

    #[test]
    fn the_published_example_comes_out() {
        let fingerprint = |transport| fingerprint(&browser(), transport).unwrap();
        assert_eq!(fingerprint(Transport::Tcp), "t13d1516h2_8daaf6152771_e5627efa2ab1");
        assert_eq!(fingerprint(Transport::Quic), "q13d1516h2_8daaf6152771_e5627efa2ab1");
    }

    #[test]
    fn what_is_missing_has_a_form_of_its_own() {
        let of = |hello: &[u8]| fingerprint(hello, Transport::Tcp).unwrap();
        assert_eq!(of(&hello(0x0301, &[], &[])), "t10i000000_000000000000_000000000000");
        assert_eq!(of(&hello(0x0305, &[0x0a0a], &[])), "t00i000000_000000000000_000000000000");
        // No signature algorithms: no underscore.
        let of_one = of(&hello(0x0303, &[0x1301], &[(0x0017, Vec::new())]));
        assert_eq!(of_one, format!("t12i010100_{}_{}", hash("1301"), hash("0017")));
        let many: Vec<u16> = (1..=120).collect();
        assert!(of(&hello(0x0303, &many, &[])).starts_with("t12i990000_"));
    }

    #[test]
    fn protocols_are_shown_by_their_ends() {
        for (protocol, expected) in [
            (&b""[..], ['0', '0']),
            (b"h", ['h', 'h']),
            (b"http/1.1", ['h', '1']),
            (b"\xab", ['a', 'b']),
            (b"\xab\xcd", ['a', 'd']),
            (b"0\xab", ['3', 'b']),
            (b"01\xab\xcd", ['3', 'd']),
            (b"-q", ['2', '1']),
        ] {
            assert_eq!(ends(protocol), expected, "{protocol:?}");
        }
    }

    #[test]
    fn a_cut_hello_has_none() {
        let whole = browser();
        let cut = |len: &usize| fingerprint(&whole[..*len], Transport::Tcp).is_some();
        // One that ends before its extensions has none: TLS 1.2 allows that.
        let without_extensions = HEAD_BYTES + 1 + 2 + 16 * 2 + 2;
        let found: Vec<usize> = (0..whole.len()).filter(cut).collect();
        assert_eq!(found, [without_extensions]);
    }
}
