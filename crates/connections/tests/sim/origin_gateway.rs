//! The scripted origins that speak FastCGI, uwsgi, SCGI and memcached's protocol. They answer as
//! [`super::origin`] says; FastCGI's records have any length and padding, and the error stream comes between
//! them.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::{sim, sleep};

use super::origin::{Asked, Manner, Memory, note_departure};
use super::wire::{Broken, PATIENCE, Reader};

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    FastCgi,
    Uwsgi,
    Scgi,
    Memcached,
}

impl Protocol {
    /// With the names of their upstream groups and locations.
    pub const ALL: [(Protocol, &'static str); 4] = [
        (Protocol::FastCgi, "fastcgi"),
        (Protocol::Uwsgi, "uwsgi"),
        (Protocol::Scgi, "scgi"),
        (Protocol::Memcached, "memcached"),
    ];

    /// The address beside that of an HTTP server.
    pub fn beside(self, address: SocketAddr) -> SocketAddr {
        let port = match self {
            Protocol::FastCgi => 9000,
            Protocol::Uwsgi => 3031,
            Protocol::Scgi => 4000,
            Protocol::Memcached => 11211,
        };
        SocketAddr::new(address.ip(), port)
    }
}

/// Types of FastCGI records.
const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// A request.
struct Request {
    target: String,
    body: Vec<u8>,
    /// Whether the connection is to stay.
    keeps: bool,
}

/// Serves a connection.
///
/// # Panics
/// If the client violates the protocol.
pub async fn serve(protocol: Protocol, stream: Stream, memory: Rc<Memory>) -> io::Result<()> {
    let mut reader = Reader::new(Rc::new(stream));
    loop {
        let request = match protocol {
            Protocol::FastCgi => fastcgi_request(&mut reader).await,
            Protocol::Uwsgi => uwsgi_request(&mut reader).await,
            Protocol::Scgi => scgi_request(&mut reader).await,
            Protocol::Memcached => memcached_request(&mut reader).await,
        };
        let request = match request {
            Ok(request) => request,
            Err(Broken::Malformed(what)) => panic!("the proxy has violated {protocol:?}: {what}"),
            // The proxy may leave at any time.
            Err(_) => return Ok(()),
        };
        let Some(asked) = Asked::parse(&request.target) else { return Ok(()) };
        sim::note(format_args!("{protocol:?} origin: {}", request.target));
        if sim::random(3) == 0 {
            sleep(Duration::from_millis(sim::random(500))).await;
        }
        let attempt = memory.attempt(&asked.id);
        let keeps = answer(protocol, reader.stream(), &request, &asked, attempt).await?;
        if !keeps {
            return reader.stream().shutdown_write().map(drop);
        }
    }
}

/// Answers a request. False: the connection ends.
async fn answer(
    protocol: Protocol,
    stream: &Stream,
    request: &Request,
    asked: &Asked,
    attempt: u32,
) -> io::Result<bool> {
    let &Asked { manner, len, ref id } = asked;
    let full = match manner {
        Manner::Echo => request.body.clone(),
        _ => super::origin::body(id, len),
    };
    let pieces = if manner == Manner::Slow { 4 } else { 1 };
    match manner {
        Manner::Flaky if attempt == 1 => {
            if sim::random(2) == 0 {
                return Ok(false);
            }
            stream.set_reset_on_close()?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Manner::Hang => {
            while !stream.recv(PATIENCE).await?.is_empty() {}
            return Ok(false);
        }
        Manner::Garbage => {
            send(stream, b"what?\r\n\r\n".to_vec(), 1).await?;
            return Ok(false);
        }
        _ => {}
    }
    let cut = manner == Manner::Truncated;
    let announced = full.len() + usize::from(cut);
    if protocol == Protocol::Memcached {
        let mut response = format!("VALUE {} 0 {announced}\r\n", request.target).into_bytes();
        response.extend(full);
        if !cut {
            response.extend(b"\r\nEND\r\n");
        }
        send(stream, response, pieces).await?;
        return Ok(!cut);
    }
    let status = if manner == Manner::Error { "503 Busy" } else { "200 OK" };
    let status = match protocol {
        Protocol::Uwsgi => format!("HTTP/1.1 {status}\r\n"),
        // The default.
        _ if manner != Manner::Error && sim::random(2) == 0 => String::new(),
        _ => format!("Status: {status}\r\n"),
    };
    let length = match manner {
        Manner::Chunked | Manner::Close => String::new(),
        _ => format!("Content-Length: {announced}\r\n"),
    };
    let head = format!("{status}X-Own: 1\r\n{length}\r\n").into_bytes();
    if protocol != Protocol::FastCgi {
        send(stream, [head, full].concat(), pieces).await?;
        return Ok(false);
    }
    let mut records = Vec::new();
    output(&mut records, &head, true);
    output(&mut records, &full, false);
    // An application that crashes ends its streams no longer; one that lies does.
    let crashes = cut && sim::random(2) == 0;
    if !crashes {
        record(&mut records, STDOUT, b"", true);
        // The end of the output ends a response, too.
        if manner != Manner::Close {
            record(&mut records, END, &[0; 8], true);
        }
    }
    send(stream, records, pieces).await?;
    let keeps = request.keeps && !cut && manner != Manner::Close;
    if keeps && sim::random(8) == 0 {
        // Like a process that has served its number of requests. Another request may be on its way.
        note_departure();
        return Ok(false);
    }
    Ok(keeps)
}

/// Sends in pieces, with seconds between them.
async fn send(stream: &Stream, bytes: Vec<u8>, pieces: usize) -> io::Result<()> {
    let mut bytes = Bytes::from(bytes);
    for left in (1..=pieces).rev() {
        let piece = bytes.split_to(bytes.len() / left);
        stream.send(piece, SendOptions::new(PATIENCE)).await?;
        if left > 1 {
            sleep(Duration::from_millis(sim::random(3000))).await;
        }
    }
    Ok(())
}

/// Adds a part of a response in records of any length, among them some of the error stream. A head, whose
/// records all have to fit `fastcgi_buffer_size`, is split less.
fn output(records: &mut Vec<u8>, mut content: &[u8], is_head: bool) {
    let most = if is_head { 60 } else { [1, 100, 5000, 65_535][sim::random(4) as usize] };
    // Long contents in records of one byte say nothing more.
    let most = most.max(content.len() as u64 / 500).min(65_535);
    let least = if is_head { 20 } else { 1 };
    while !content.is_empty() {
        if sim::random(8) == 0 {
            let text = b"a complaint of the application\n".repeat(sim::random(5) as usize);
            record(records, STDERR, &text, !is_head);
        }
        let len = (least + sim::random(most)) as usize;
        let (part, rest) = content.split_at(len.min(content.len()).min(65_535));
        record(records, STDOUT, part, !is_head);
        content = rest;
    }
}

/// Adds a record with any padding, or what aligns the next one.
fn record(records: &mut Vec<u8>, kind: u8, content: &[u8], any_padding: bool) {
    let most = if any_padding { 256 } else { 8 };
    let padding = if sim::random(2) == 0 { 0 } else { sim::random(most) as u8 };
    let [high, low] = u16::try_from(content.len()).expect("a record is small").to_be_bytes();
    records.extend([1, kind, 0, 1, high, low, padding, 0]);
    records.extend(content);
    records.extend(std::iter::repeat_n(0xee, padding.into()));
}

fn malformed<T>(what: impl std::fmt::Debug) -> Result<T, Broken> {
    Err(Broken::Malformed(format!("{what:?}")))
}

async fn fastcgi_request(reader: &mut Reader) -> Result<Request, Broken> {
    let (mut params, mut body, mut keeps) = (Vec::new(), Vec::new(), false);
    let mut expected = BEGIN;
    loop {
        let head = reader.exactly(8).await?;
        let [1, kind, 0, 1, high, low, padding, _] = head[..] else { return malformed(head) };
        if kind != expected {
            return malformed((kind, expected));
        }
        let content = reader.exactly(u16::from_be_bytes([high, low]).into()).await?;
        reader.exactly(padding.into()).await?;
        match kind {
            BEGIN => {
                let [0, 1, flags, ..] = content[..] else { return malformed(content) };
                keeps = flags == 1;
                expected = PARAMS;
            }
            PARAMS if content.is_empty() => expected = STDIN,
            PARAMS => params.extend(content),
            _ if content.is_empty() => {
                let params = fastcgi_params(&params).ok_or(Broken::Malformed("params".into()))?;
                return request(params, body, keeps);
            }
            _ => body.extend(content),
        }
    }
}

/// Names and values, each with a length of one byte or four before them.
fn fastcgi_params(mut bytes: &[u8]) -> Option<Vec<(String, String)>> {
    fn length(bytes: &mut &[u8]) -> Option<usize> {
        let (length, rest) = match **bytes {
            [a, b, c, d, ..] if a > 127 => (u32::from_be_bytes([a & 127, b, c, d]), &bytes[4..]),
            [short, ..] => (short.into(), &bytes[1..]),
            [] => return None,
        };
        *bytes = rest;
        usize::try_from(length).ok()
    }
    let mut params = Vec::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes)?, length(&mut bytes)?);
        let (name, rest) = bytes.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        bytes = rest;
        params.push((text(name), text(value)));
    }
    Some(params)
}

async fn uwsgi_request(reader: &mut Reader) -> Result<Request, Broken> {
    let head = match reader.exactly(4).await {
        Err(Broken::Cut) if reader.is_empty() => return Err(Broken::Nothing),
        head => head?,
    };
    let [0, low, high, 0] = head[..] else { return malformed(head) };
    let vars = reader.exactly(u16::from_le_bytes([low, high]).into()).await?;
    let (mut vars, mut params) = (&vars[..], Vec::new());
    let next = |vars: &mut &[u8]| {
        let (length, rest) = vars.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        *vars = rest;
        Some(text(part))
    };
    while !vars.is_empty() {
        let pair = next(&mut vars).zip(next(&mut vars));
        params.push(pair.ok_or(Broken::Malformed("vars".into()))?);
    }
    let body = content(reader, &params).await?;
    request(params, body, false)
}

async fn scgi_request(reader: &mut Reader) -> Result<Request, Broken> {
    let mut length = 0;
    loop {
        match reader.exactly(1).await?[..] {
            [b':'] => break,
            [digit @ b'0'..=b'9'] => length = 10 * length + usize::from(digit - b'0'),
            ref other => return malformed(other),
        }
    }
    let head = reader.exactly(length).await?;
    if reader.exactly(1).await? != b"," || !head.ends_with(b"\0") {
        return malformed(head);
    }
    let parts: Vec<&[u8]> = head[..length - 1].split(|byte| *byte == 0).collect();
    let params: Vec<_> = parts.chunks(2).map(|pair| (text(pair[0]), text(pair[1]))).collect();
    if params[0].0 != "CONTENT_LENGTH" {
        return malformed(params);
    }
    let body = content(reader, &params).await?;
    request(params, body, false)
}

async fn memcached_request(reader: &mut Reader) -> Result<Request, Broken> {
    let line = reader.line().await?;
    match line.split_once(' ') {
        Some(("get", key)) if !key.contains(' ') => {
            Ok(Request { target: key.to_owned(), body: Vec::new(), keeps: true })
        }
        _ => malformed(line),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn param<'a>(params: &'a [(String, String)], name: &str) -> Option<&'a str> {
    params.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
}

/// The content whose length the parameters say.
async fn content(reader: &mut Reader, params: &[(String, String)]) -> Result<Vec<u8>, Broken> {
    match param(params, "CONTENT_LENGTH").unwrap_or_default() {
        "" => Ok(Vec::new()),
        length => match length.parse() {
            Ok(length) => reader.exactly(length).await,
            Err(_) => malformed(length),
        },
    }
}

fn request(params: Vec<(String, String)>, body: Vec<u8>, keeps: bool) -> Result<Request, Broken> {
    let length = param(&params, "CONTENT_LENGTH").unwrap_or_default();
    if !length.is_empty() && length != body.len().to_string() {
        return malformed((length, body.len()));
    }
    let target = param(&params, "REQUEST_URI").unwrap_or_default().to_owned();
    Ok(Request { target, body, keeps })
}
