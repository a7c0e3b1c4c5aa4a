//! MaxMind databases, written from a list of networks and what is known of each.

use std::net::IpAddr;

/// A value.
#[derive(Clone, Debug)]
pub enum MmdbValue {
    /// UTF-8.
    Text(&'static str),
    /// Any bytes.
    Bytes(&'static [u8]),
    /// 64 bits.
    Double(f64),
    /// 32 bits.
    Float(f32),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Unsigned, 128 bits.
    U128(u128),
    /// Signed, 32 bits.
    I32(i32),
    /// True or false.
    Bool(bool),
    /// By names.
    Map(Vec<(&'static str, MmdbValue)>),
    /// By positions.
    Array(Vec<MmdbValue>),
    /// Of the offset in the data section.
    Pointer(u32),
    /// The bytes of a value as they stand.
    Raw(Vec<u8>),
}

impl MmdbValue {
    fn append(&self, out: &mut Vec<u8>) {
        match self {
            MmdbValue::Text(text) => sized(out, 2, text.as_bytes()),
            MmdbValue::Bytes(bytes) => sized(out, 4, bytes),
            MmdbValue::Double(number) => sized(out, 3, &number.to_be_bytes()),
            MmdbValue::Float(number) => sized(out, 15, &number.to_be_bytes()),
            MmdbValue::U16(number) => sized(out, 5, &number.to_be_bytes()),
            MmdbValue::U32(number) => sized(out, 6, &number.to_be_bytes()),
            MmdbValue::U64(number) => sized(out, 9, &number.to_be_bytes()),
            MmdbValue::U128(number) => sized(out, 10, &number.to_be_bytes()),
            MmdbValue::I32(number) => sized(out, 8, &number.to_be_bytes()),
            MmdbValue::Bool(value) => control(out, 14, usize::from(*value)),
            MmdbValue::Map(entries) => {
                control(out, 7, entries.len());
                for (key, value) in entries {
                    sized(out, 2, key.as_bytes());
                    value.append(out);
                }
            }
            MmdbValue::Array(values) => {
                control(out, 11, values.len());
                values.iter().for_each(|value| value.append(out));
            }
            MmdbValue::Pointer(offset) => {
                out.push(0b0011_1000);
                out.extend_from_slice(&offset.to_be_bytes());
            }
            MmdbValue::Raw(bytes) => out.extend_from_slice(bytes),
        }
    }
}

fn control(out: &mut Vec<u8>, kind: u8, size: usize) {
    assert!(size < 285, "longer values are not needed here");
    let short = size.min(29) as u8;
    match kind {
        8.. => out.extend_from_slice(&[short, kind - 7]),
        _ => out.push(kind << 5 | short),
    }
    if size >= 29 {
        out.push((size - 29) as u8);
    }
}

fn sized(out: &mut Vec<u8>, kind: u8, content: &[u8]) {
    control(out, kind, content.len());
    out.extend_from_slice(content);
}

/// Where one side of a node leads.
#[derive(Clone, Copy)]
enum Record {
    Nowhere,
    Node(usize),
    /// An offset in the data section.
    Data(usize),
}

/// A database with these networks (`192.0.2.0/24`), built at this time.
pub fn database(build_epoch: u64, networks: &[(&str, MmdbValue)]) -> Vec<u8> {
    let (mut nodes, mut data) = (vec![[Record::Nowhere; 2]], Vec::new());
    for (network, value) in networks {
        let (address, prefix) = network.split_once('/').expect("a network has a prefix");
        let prefix: u32 = prefix.parse().expect("a number of bits");
        let (bits, prefix) = match address.parse().expect("an address") {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), prefix + 96),
            IpAddr::V6(ip) => (u128::from(ip), prefix),
        };
        let mut at = 0;
        for depth in 0..prefix {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == prefix {
                nodes[at][side] = Record::Data(data.len());
                break;
            }
            at = match nodes[at][side] {
                Record::Node(next) => next,
                Record::Nowhere => {
                    nodes.push([Record::Nowhere; 2]);
                    let next = nodes.len() - 1;
                    nodes[at][side] = Record::Node(next);
                    next
                }
                Record::Data(_) => panic!("{network} is in another network"),
            };
        }
        value.append(&mut data);
    }
    let mut out = Vec::new();
    let count = nodes.len();
    for record in nodes.iter().flatten() {
        let number = match record {
            Record::Nowhere => count,
            Record::Node(next) => *next,
            Record::Data(offset) => count + 16 + offset,
        };
        out.extend_from_slice(&(number as u32).to_be_bytes());
    }
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&data);
    metadata(&mut out, count as u32, 32, build_epoch);
    out
}

/// Appends the metadata.
pub fn metadata(out: &mut Vec<u8>, node_count: u32, record_size: u16, build_epoch: u64) {
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    MmdbValue::Map(vec![
        ("binary_format_major_version", MmdbValue::U16(2)),
        ("binary_format_minor_version", MmdbValue::U16(0)),
        ("build_epoch", MmdbValue::U64(build_epoch)),
        ("database_type", MmdbValue::Text("Test")),
        ("description", MmdbValue::Map(vec![("en", MmdbValue::Text("A test"))])),
        ("ip_version", MmdbValue::U16(6)),
        ("languages", MmdbValue::Array(vec![MmdbValue::Text("en")])),
        ("node_count", MmdbValue::U32(node_count)),
        ("record_size", MmdbValue::U16(record_size)),
    ])
    .append(out);
}
