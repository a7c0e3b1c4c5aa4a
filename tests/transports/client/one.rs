//! A client of HTTP/1.1 and of sessions of `stream`.

use std::io::{self, Write};

use super::{ClientResponse, Score, connect};
use crate::duplex;
use crate::http1::{BodyFraming, MessageReader, send};
use crate::plan::{ConnectionPlan, PlannedRequest, Task};
use crate::random::SeededRng;
use crate::site::Site;
use crate::wire::Wire;

/// Requests that are sent before their responses are read.
const PIPELINED_MAX: usize = 3;

/// What is read of a response that nothing waits for, at most.
const ABANDONED_BYTES_MAX: usize = 40_000;

/// Carries out a plan.
pub fn run(plan: &ConnectionPlan, site: &Site, score: &mut Score) -> Result<(), String> {
    let asks: Vec<&PlannedRequest> = plan.rounds.iter().flatten().collect();
    let mut wire = connect(plan, site).map_err(|error| format!("connecting: {error}"))?;
    let mut reader = MessageReader::default();
    let mut random = SeededRng::new(plan.seed ^ 2);
    let mut at = 0;
    while at < asks.len() {
        let ask = asks[at];
        if let (Some(duplex), true) = (&ask.duplex, matches!(ask.task, Task::Stream { .. })) {
            duplex::client(&mut wire, ask.id, duplex, Vec::new())
                .map_err(|why| format!("{why}\n  of {ask:?}"))?;
            score.count(ask, &ClientResponse::default());
            return Ok(());
        }
        let is_plain = |ask: &&&PlannedRequest| ask.upload.is_none() && ask.duplex.is_none();
        let alike = asks[at..].iter().take(PIPELINED_MAX).take_while(is_plain).count();
        let together = if plan.pipelined { alike.max(1) } else { 1 };
        for (n, ask) in asks[at..at + together].iter().enumerate() {
            // Half of those who leave do so before the upload is complete.
            let abandons = plan.abandoned && at + n + 1 == asks.len() && random.one_in(2);
            let sent = request(&mut wire, &mut reader, &mut random, ask, abandons);
            sent.map_err(|error| format!("sending: {error}\n  of {ask:?}"))?;
        }
        at += together;
        if plan.abandoned && at == asks.len() {
            // With something unread, which resets the connection, or without.
            let _ = wire.read_early(&mut vec![0; random.within(1, ABANDONED_BYTES_MAX)]);
            return Ok(());
        }
        for ask in &asks[at - together..at] {
            let response = response(&mut wire, &mut reader, ask)
                .map_err(|error| format!("receiving: {error}\n  of {ask:?}"))?;
            response.check(ask)?;
            if let Some(duplex) = &ask.duplex {
                duplex::client(&mut wire, ask.id, duplex, reader.rest())
                    .map_err(|why| format!("{why}\n  of {ask:?}"))?;
            }
            score.count(ask, &response);
        }
    }
    Ok(())
}

/// Sends a request, or the beginning of one.
fn request(
    wire: &mut Wire,
    reader: &mut MessageReader,
    random: &mut SeededRng,
    ask: &PlannedRequest,
    abandons: bool,
) -> io::Result<()> {
    let mut head = match ask.task {
        Task::Tunnel => "CONNECT tunnel.test:1 HTTP/1.1\r\nHost: tunnel.test:1\r\n".to_owned(),
        _ => format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", ask.method, ask.target),
    };
    if ask.task == Task::Upgraded {
        head.push_str("Upgrade: echo\r\nConnection: upgrade\r\n");
    }
    for (name, value) in &ask.fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let Some(upload) = ask.upload else {
        head.push_str("\r\n");
        return wire.write_all(head.as_bytes());
    };
    let framing = match random.one_in(3) {
        true => BodyFraming::Chunked,
        false => BodyFraming::Length(upload.len),
    };
    match framing {
        BodyFraming::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        _ => head.push_str(&format!("Content-Length: {}\r\n", upload.len)),
    }
    // 100 comes at once only where the content is wanted.
    let asks_first = upload.len > 0 && ask.task != Task::Discarded && random.one_in(6);
    if asks_first {
        head.push_str("Expect: 100-continue\r\n");
    }
    head.push_str("\r\n");
    wire.write_all(head.as_bytes())?;
    if asks_first {
        let interim = reader.head(wire)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if !interim.line.starts_with("HTTP/1.1 100 ") {
            return Err(io::Error::other(format!("{} instead of 100", interim.line)));
        }
    }
    let bytes = upload.bytes();
    if abandons {
        let sent = random.below(bytes.len() + 1);
        return wire.write_all(&bytes[..sent]).and_then(|()| wire.flush());
    }
    send(wire, random, &bytes, framing)
}

/// Receives a response.
fn response(
    wire: &mut Wire,
    reader: &mut MessageReader,
    ask: &PlannedRequest,
) -> io::Result<ClientResponse> {
    let mut head = reader.head(wire)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let is_tunnel = ask.duplex.is_some();
    let mut status = status_of(&head.line)?;
    while status == 100 && ask.status != 100 {
        head = reader.head(wire)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        status = status_of(&head.line)?;
    }
    let framing = match (head.field("content-length"), head.field("transfer-encoding")) {
        _ if status == 204 || ask.method == "HEAD" || is_tunnel && status == ask.status => {
            BodyFraming::Length(0)
        }
        (None, Some("chunked")) => BodyFraming::Chunked,
        (Some(length), None) => BodyFraming::Length(length.parse().map_err(io::Error::other)?),
        (None, None) => BodyFraming::Close,
        both => return Err(io::Error::other(format!("framing by {both:?}"))),
    };
    let body = reader.content(wire, framing)?;
    Ok(ClientResponse { status, fields: head.fields, body, trailers: Vec::new() })
}

fn status_of(line: &str) -> io::Result<u16> {
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.ok_or_else(|| io::Error::other(format!("status line {line:?}")))
}
