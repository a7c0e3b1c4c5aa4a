//! The origin: a thread per connection, keep-alive, validators; quick, and without faults.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crate::objects::{self, Kind, Objects};

/// A running origin. It serves until the test program ends.
pub struct Origin {
    address: SocketAddr,
}

impl Origin {
    pub fn start(objects: Arc<Objects>) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let objects = objects.clone();
                // A proxy that hangs up ends the thread.
                std::thread::spawn(move || serve(stream, &objects));
            }
        });
        Origin { address }
    }

    pub fn addr(&self) -> SocketAddr {
        self.address
    }
}

fn serve(stream: TcpStream, objects: &Objects) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim_end().is_empty() {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        output.write_all(&respond(&lines, objects))?;
    }
}

/// The whole response to a request.
fn respond(lines: &[String], objects: &Objects) -> Vec<u8> {
    let mut words = lines[0].split(' ');
    let head_only = words.next() == Some("HEAD");
    let number: u32 = words
        .next()
        .and_then(|path| path.strip_prefix("/object/"))
        .and_then(|rest| rest.split('?').next())
        .and_then(|text| text.parse().ok())
        .expect("the proxy asks for objects only");
    let version = objects.version(number);
    let etag = objects::etag(number, version);
    let known = lines.iter().any(|line| {
        line.split_once(": ").is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("if-none-match") && value == etag
        })
    });
    let kind = objects::kind(number);
    let control = if kind == Kind::Uncached { "no-store" } else { "max-age=1" };
    let common = format!("ETag: {etag}\r\nCache-Control: {control}\r\nAccept-Ranges: bytes\r\n");
    if known {
        return format!("HTTP/1.1 304 Not Modified\r\n{common}\r\n").into_bytes();
    }
    let length = objects::length(number, version);
    let body = objects::bytes(number, version, 0, length);
    let framing = match kind {
        Kind::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Kind::Plain | Kind::Uncached => format!("Content-Length: {length}\r\n"),
    };
    let mut response = format!("HTTP/1.1 200 OK\r\n{common}{framing}\r\n").into_bytes();
    if head_only {
        return response;
    }
    match kind {
        Kind::Chunked => {
            for chunk in body.chunks(20_000) {
                response.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                response.extend_from_slice(chunk);
                response.extend_from_slice(b"\r\n");
            }
            response.extend_from_slice(b"0\r\n\r\n");
        }
        Kind::Plain | Kind::Uncached => response.extend_from_slice(&body),
    }
    response
}
