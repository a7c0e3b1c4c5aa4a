//! An origin of FastCGI: records have any length and padding.

use std::io::{self, Write};

use super::TargetRequest;
use crate::http1::MessageReader;
use crate::random::SeededRng;
use crate::wire::Wire;

/// Types of records.
const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

const HEADER_BYTES: usize = 8;

/// The longest content of a record.
const CONTENT_MAX: usize = 65_535;

/// How many records of a content may be small.
const SMALL_RECORDS_MAX: usize = 40;

/// Serves a connection.
pub fn serve(wire: &mut Wire) -> io::Result<()> {
    let mut reader = MessageReader::default();
    while let Some(request) = read(wire, &mut reader)? {
        let asked = TargetRequest::parse(&request.target)?;
        wire.behave(asked.id ^ 7);
        respond(wire, &asked, &request.body)?;
        if !request.keeps {
            wire.finish()?;
            return reader.content(wire, crate::http1::BodyFraming::Close).map(drop);
        }
    }
    Ok(())
}

struct FastCgiRequest {
    target: String,
    body: Vec<u8>,
    keeps: bool,
}

/// The next request. `None`: the connection ends.
fn read(wire: &mut Wire, reader: &mut MessageReader) -> io::Result<Option<FastCgiRequest>> {
    let (mut params, mut body, mut keeps) = (Vec::new(), Vec::new(), false);
    let mut expected = BEGIN;
    loop {
        let header = match reader.exactly(wire, HEADER_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && expected == BEGIN => {
                return Ok(None);
            }
            header => header?,
        };
        let [1, kind, 0, 1, high, low, padding, _] = header[..] else {
            return Err(io::Error::other(format!("the record {header:?}")));
        };
        if kind != expected {
            return Err(io::Error::other(format!("a record of type {kind}, not {expected}")));
        }
        let content = reader.exactly(wire, u16::from_be_bytes([high, low]).into())?;
        reader.exactly(wire, padding.into())?;
        match kind {
            BEGIN => {
                keeps = content.get(2) == Some(&1);
                expected = PARAMS;
            }
            PARAMS if content.is_empty() => expected = STDIN,
            PARAMS => params.extend(content),
            _ if content.is_empty() => {
                let target = param(&params, b"REQUEST_URI")
                    .ok_or_else(|| io::Error::other("no REQUEST_URI"))?;
                return Ok(Some(FastCgiRequest { target, body, keeps }));
            }
            _ => body.extend(content),
        }
    }
}

/// The value of a parameter.
fn param(mut bytes: &[u8], wanted: &[u8]) -> Option<String> {
    fn length(bytes: &mut &[u8]) -> Option<usize> {
        let (length, rest) = match **bytes {
            [a, b, c, d, ..] if a > 127 => (u32::from_be_bytes([a & 127, b, c, d]), &bytes[4..]),
            [short, ..] => (short.into(), &bytes[1..]),
            [] => return None,
        };
        *bytes = rest;
        usize::try_from(length).ok()
    }
    loop {
        let (name, value) = (length(&mut bytes)?, length(&mut bytes)?);
        let (name, rest) = bytes.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        bytes = rest;
        if name == wanted {
            return Some(String::from_utf8_lossy(value).into_owned());
        }
    }
}

/// Sends a response.
fn respond(wire: &mut Wire, asked: &TargetRequest, upload: &[u8]) -> io::Result<()> {
    let mut random = SeededRng::new(asked.id ^ 8);
    let mut head = format!("X-Upload: {}\r\n", asked.verdict(upload));
    if asked.framing == "length" {
        head.push_str(&format!("Content-Length: {}\r\n", asked.down.len));
    }
    head.push_str("\r\n");
    let content = [head.into_bytes(), asked.down.bytes()].concat();
    let most = random.pick(&[200, 8184, 8192, 32_768, CONTENT_MAX]);
    let (mut rest, mut records) = (&content[..], 0);
    while !rest.is_empty() {
        records += 1;
        let most = if records < SMALL_RECORDS_MAX { most } else { CONTENT_MAX };
        let (part, later) = rest.split_at(random.within(1, rest.len().min(most)));
        rest = later;
        record(wire, &mut random, STDOUT, part)?;
    }
    record(wire, &mut random, STDOUT, b"")?;
    record(wire, &mut random, END, &[0; 8])?;
    wire.flush()
}

/// Sends a record with any padding.
fn record(wire: &mut Wire, random: &mut SeededRng, kind: u8, content: &[u8]) -> io::Result<()> {
    let padding = if random.one_in(2) { 0 } else { random.below(256) as u8 };
    let [high, low] = u16::try_from(content.len()).map_err(io::Error::other)?.to_be_bytes();
    let mut out = vec![1, kind, 0, 1, high, low, padding, 0];
    out.extend(content);
    out.extend(std::iter::repeat_n(0xee, padding.into()));
    wire.write_all(&out)
}
