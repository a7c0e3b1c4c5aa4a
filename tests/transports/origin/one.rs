//! An origin of HTTP/1.1.

use std::io::{self, Write};

use super::TargetRequest;
use crate::duplex;
use crate::http1::{BodyFraming, MessageHead, MessageReader, send};
use crate::random::SeededRng;
use crate::wire::Wire;

/// Serves a connection.
pub fn serve(wire: &mut Wire) -> io::Result<()> {
    let mut reader = MessageReader::default();
    while let Some(head) = reader.head(wire)? {
        if let Some(protocol) = head.field("upgrade") {
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n";
            wire.write_all(format!("{switch}Upgrade: {protocol}\r\n\r\n").as_bytes())?;
            wire.flush()?;
            let arrived = reader.rest();
            return duplex::origin(wire, arrived);
        }
        let framing = match (head.field("content-length"), head.field("transfer-encoding")) {
            (None, None) => BodyFraming::Length(0),
            (Some(length), None) => BodyFraming::Length(length.parse().map_err(io::Error::other)?),
            (None, Some("chunked")) => BodyFraming::Chunked,
            both => return Err(io::Error::other(format!("framing by {both:?}"))),
        };
        let target = head.line.split(' ').nth(1).unwrap_or_default();
        let asked = TargetRequest::parse(target)?;
        wire.behave(asked.id ^ 4);
        let upload = reader.content(wire, framing)?;
        if respond(wire, &head, &asked, &upload)? == BodyFraming::Close {
            wire.finish()?;
            // A peer that closes with something unread resets.
            return reader.content(wire, BodyFraming::Close).map(drop);
        }
    }
    Ok(())
}

/// Sends a response.
fn respond(
    wire: &mut Wire,
    head: &MessageHead,
    asked: &TargetRequest,
    upload: &[u8],
) -> io::Result<BodyFraming> {
    let mut random = SeededRng::new(asked.id ^ 5);
    let whole = asked.down.len;
    let range = head.field("range").and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (first < whole).then(|| (first, last.min(whole - 1)))
    });
    let (status, part) = match range {
        Some((first, last)) => ("206 Partial Content", asked.down.part(first, last + 1 - first)),
        None => ("200 OK", asked.down),
    };
    let mut out = format!(
        "HTTP/1.1 {status}\r\nX-Upload: {}\r\nETag: \"{:x}\"\r\nCache-Control: max-age=1000\r\n\
         Accept-Ranges: bytes\r\n",
        asked.verdict(upload),
        asked.id
    );
    if let Some((first, last)) = range {
        out.push_str(&format!("Content-Range: bytes {first}-{last}/{whole}\r\n"));
    }
    let framing = match &*asked.framing {
        "chunked" => BodyFraming::Chunked,
        "close" => BodyFraming::Close,
        _ => BodyFraming::Length(part.len),
    };
    match framing {
        BodyFraming::Length(length) => out.push_str(&format!("Content-Length: {length}\r\n\r\n")),
        BodyFraming::Chunked => out.push_str("Transfer-Encoding: chunked\r\n\r\n"),
        BodyFraming::Close => out.push_str("Connection: close\r\n\r\n"),
    }
    wire.write_all(out.as_bytes())?;
    if random.one_in(3) {
        wire.flush()?;
    }
    send(wire, &mut random, &part.bytes(), framing)?;
    wire.flush()?;
    Ok(framing)
}
