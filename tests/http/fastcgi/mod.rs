//! `fastcgi_pass` and what belongs to it.

mod faults;
mod keeping;
mod requests;
mod responses;

use std::collections::BTreeMap;

use nowait_testkit::origin::Step;
use nowait_testkit::{Origin, Server};

use crate::stage::{self, site};

/// Types of records.
const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// A record with 3 bytes of padding.
pub fn record(kind: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let [high, low] = u16::try_from(content.len()).expect("a record is small").to_be_bytes();
    [&[1, kind, 0, 1, high, low, 3, 0], content, b"pad"].concat()
}

/// A part of a response.
fn out(text: &str) -> Vec<u8> {
    record(STDOUT, text)
}

/// The end of a response.
pub fn end() -> Vec<u8> {
    [record(STDOUT, ""), record(END, [0; 8])].concat()
}

/// A whole response.
fn whole(text: &str) -> Vec<u8> {
    [out(text), end()].concat()
}

/// The end of a request.
pub const ASKED: &[u8] = b"\x01\x05\0\x01\0\0\0\0";

/// A script that answers one request with this.
fn answer(response: impl AsRef<[u8]>) -> Vec<Step> {
    vec![Step::expect(ASKED), Step::reply(response), Step::HalfClose]
}

/// A request as an application understands it.
#[derive(Debug, Default)]
pub struct FastCgiRequest {
    /// `FCGI_KEEP_CONN`
    keep: bool,
    /// In the order of their names; several of one name are joined by a bar.
    params: BTreeMap<String, String>,
    content: Vec<u8>,
}

impl FastCgiRequest {
    /// Reads the requests of a connection.
    pub fn all(mut bytes: &[u8]) -> Vec<FastCgiRequest> {
        let (mut all, mut params) = (Vec::new(), Vec::new());
        while let [1, kind, 0, 1, high, low, padding, _, rest @ ..] = bytes {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let (content, rest) = rest.split_at(length);
            bytes = &rest[usize::from(*padding)..];
            match *kind {
                BEGIN => {
                    all.push(FastCgiRequest { keep: content[2] == 1, ..FastCgiRequest::default() })
                }
                PARAMS => params.extend_from_slice(content),
                STDIN => {
                    let last = all.last_mut().expect("a request begins");
                    last.content.extend_from_slice(content);
                    if length == 0 {
                        last.read_params(&std::mem::take(&mut params));
                    }
                }
                other => panic!("a record of type {other}"),
            }
        }
        assert!(bytes.is_empty(), "records end: {bytes:?}");
        all
    }

    /// The content of the last request of a connection.
    pub fn content(bytes: &[u8]) -> Vec<u8> {
        FastCgiRequest::all(bytes).pop().expect("a request").content
    }

    fn read_params(&mut self, mut bytes: &[u8]) {
        let length = |bytes: &mut &[u8]| {
            let (length, rest) = match **bytes {
                [a, b, c, d, ..] if a > 127 => {
                    (u32::from_be_bytes([a & 127, b, c, d]), &bytes[4..])
                }
                [short, ..] => (short.into(), &bytes[1..]),
                [] => panic!("a length"),
            };
            *bytes = rest;
            length as usize
        };
        while !bytes.is_empty() {
            let (name, value) = (length(&mut bytes), length(&mut bytes));
            let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
            let (name, rest) = bytes.split_at(name);
            let (value, rest) = rest.split_at(value);
            bytes = rest;
            let joined = self.params.entry(text(name)).or_default();
            if !joined.is_empty() {
                joined.push('|');
            }
            joined.push_str(&text(value));
        }
    }

    /// A parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }
}

/// The one request that an origin has got.
#[track_caller]
fn asked(origin: &Origin) -> FastCgiRequest {
    let received = origin.received();
    FastCgiRequest::all(&received[0]).pop().expect("a request")
}

/// Runs a test on each driver, with an origin and a server of its own each time. `content` stands in
/// the server; without a location, everything is passed to the group `u`.
#[track_caller]
fn on_each(
    scripts: impl Fn() -> Vec<Vec<Step>>,
    content: &str,
    test: impl Fn(&mut Server, &Origin),
) {
    let content = match content.contains("fastcgi_pass u;") {
        true => content.to_owned(),
        false => format!("{content}\nlocation / {{ fastcgi_pass u; }}"),
    };
    let builder = |address: &str| {
        site(&format!(
            "fastcgi_cache_path %%DIR%%/cache keys_zone=z:1m;
             upstream u {{ server {address}; keepalive 4; }}
             server {{\nlisten 127.0.0.1:%%PORT%%;\nroot %%DIR%%/html;\n{content}\n}}"
        ))
    };
    stage::with_origin(scripts, builder, test);
}
