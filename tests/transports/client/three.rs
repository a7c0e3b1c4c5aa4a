//! A client of HTTP/3: the requests of a round share a connection, and their frames alternate.

use std::sync::Arc;

use nowait_testkit::http3::{Http3, Http3Options, code, frame, frame_of, setting};
use nowait_testkit::quic::{QuicOptions, StreamId};
use rustls::ClientConfig;

use super::{ClientResponse, Score};
use crate::duplex;
use crate::plan::{ConnectionPlan, PlannedRequest, Task};
use crate::random::SeededRng;
use crate::site::Site;

/// How many frames of a content may be small.
const SMALL_FRAMES_MAX: usize = 40;

/// A request on its way.
struct ClientStream<'a> {
    ask: &'a PlannedRequest,
    id: StreamId,
    upload: Vec<u8>,
    sent: usize,
    frames: usize,
    /// A frame of which the windows have not let everything pass.
    pending: Vec<u8>,
    /// This side ends with it.
    ends: bool,
    /// Whether this side has ended.
    ended: bool,
}

/// Carries out a plan.
pub fn run(plan: &ConnectionPlan, site: &Site, score: &mut Score) -> Result<(), String> {
    let mut random = SeededRng::new(plan.seed ^ 3);
    let mut tls = ClientConfig::clone(&site.tls13);
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut options =
        Http3Options { quic: QuicOptions::new(Arc::new(tls)), ..Http3Options::default() };
    options.quic.stream_window = plan.stream_window;
    options.quic.mtu = random.pick(&[1200, 1252, 1452]);
    let capacity = random.pick(&[0, 0, 256, 4096]);
    options.settings = vec![
        (setting::QPACK_MAX_TABLE_CAPACITY, capacity),
        (setting::QPACK_BLOCKED_STREAMS, random.pick(&[0, 4, 100])),
    ];
    let client = Http3::connect(site.port(true), &options);
    let mut client = client.map_err(|error| format!("connecting: {error}"))?;
    if plan.rounds.iter().flatten().any(|ask| ask.task == Task::Upgraded) {
        // Only servers that offer it may be asked.
        client.settings();
    }
    for (number, round) in plan.rounds.iter().enumerate() {
        let is_last = number + 1 == plan.rounds.len();
        let mut streams: Vec<ClientStream<'_>> = Vec::new();
        for ask in round {
            streams.push(open(&mut client, &mut random, ask));
            if random.one_in(2) {
                advance(&mut client, &mut random, &mut streams);
            }
        }
        // After so many frames, the client leaves a stream; the others go on.
        let mut patience = (plan.abandoned && is_last).then(|| random.below(20));
        while !streams.is_empty() {
            if patience == Some(0) {
                patience = None;
                let stream = streams.swap_remove(random.below(streams.len()));
                client.quic.reset(stream.id, code::REQUEST_CANCELLED);
                client.quic.stop(stream.id, code::REQUEST_CANCELLED);
                client.forget(stream.id);
                continue;
            }
            patience = patience.map(|frames| frames - 1);
            if random.one_in(200) {
                client.quic.rebind();
            }
            if !advance(&mut client, &mut random, &mut streams) {
                client.turn();
            }
            if let Some(lost) = client.quic.lost() {
                return Err(format!("the connection has ended: {lost}"));
            }
            let is_over = |stream: &ClientStream<'_>| {
                let so_far = client.exchange(stream.id);
                so_far.reset.is_some() || so_far.ended
            };
            let (over, rest): (Vec<_>, Vec<_>) = streams.into_iter().partition(is_over);
            streams = rest;
            for stream in over {
                finish(&mut client, stream, score)?;
            }
        }
    }
    client.quic.close(code::NO_ERROR);
    Ok(())
}

/// Opens a stream.
fn open<'a>(
    client: &mut Http3,
    random: &mut SeededRng,
    ask: &'a PlannedRequest,
) -> ClientStream<'a> {
    let (mut upload, mut ended) = (Vec::new(), false);
    let mut fields: Vec<(&str, &str)> =
        ask.fields.iter().map(|(name, value)| (*name, &**value)).collect();
    let length;
    let id = if let Some(duplex) = &ask.duplex {
        upload = [duplex::line(ask.id, duplex).into_bytes(), duplex.up.bytes()].concat();
        let mut head = vec![(":method", "CONNECT")];
        match ask.task {
            Task::Tunnel => head.push((":authority", "tunnel.test:1")),
            _ => head.extend([
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":authority", "localhost"),
                (":path", &ask.target),
            ]),
        }
        head.extend(fields);
        client.open_head(&head, false)
    } else if let Some(content) = ask.upload {
        upload = content.bytes();
        if ask.task != Task::Grpc && random.one_in(2) {
            length = content.len.to_string();
            fields.push(("content-length", &length));
        }
        client.open(ask.method, &ask.target, &fields, false)
    } else {
        ended = true;
        client.open(ask.method, &ask.target, &fields, true)
    };
    let pending = Vec::new();
    ClientStream { ask, id, upload, sent: 0, frames: 0, pending, ends: false, ended }
}

/// Sends some of any stream that has something to send and may. False: none.
fn advance(client: &mut Http3, random: &mut SeededRng, streams: &mut [ClientStream<'_>]) -> bool {
    let first = random.below(streams.len().max(1));
    for n in 0..streams.len() {
        let index = (first + n) % streams.len();
        let stream = &mut streams[index];
        let so_far = client.exchange(stream.id);
        if stream.ended || so_far.ended || so_far.reset.is_some() || so_far.stopped.is_some() {
            continue;
        }
        let has_tunnel = so_far.status == 200;
        if stream.pending.is_empty() && !stream.ends && !next_frame(random, stream, has_tunnel) {
            continue;
        }
        let written = client.quic.try_write(stream.id, &stream.pending);
        stream.pending.drain(..written);
        let is_whole = stream.pending.is_empty();
        if is_whole && stream.ends {
            client.quic.finish(stream.id);
            stream.ended = true;
        }
        if is_whole || written > 0 {
            return true;
        }
    }
    false
}

/// Makes a frame. False: nothing may be sent for now.
fn next_frame(random: &mut SeededRng, stream: &mut ClientStream<'_>, has_tunnel: bool) -> bool {
    // The other side decides when a tunnel ends.
    let keeps_open = stream.ask.duplex.as_ref().is_some_and(|duplex| !duplex.half_close);
    let rest = &stream.upload[stream.sent..];
    // Nothing may follow CONNECT before the tunnel is there.
    if rest.is_empty() && keeps_open || stream.ask.duplex.is_some() && !has_tunnel {
        return false;
    }
    stream.frames += 1;
    let small = stream.frames < SMALL_FRAMES_MAX;
    let most = match random.below(3) {
        0 if small => random.below(100),
        1 if small => random.below(16_400),
        _ => rest.len(),
    };
    let content = &rest[..rest.len().min(most)];
    let is_last = content.len() == rest.len();
    if !content.is_empty() || random.one_in(2) {
        stream.pending = frame_of(frame::DATA, content);
    }
    if random.one_in(8) {
        // Of a reserved type, which means nothing.
        stream.pending.extend(frame_of(0x21, &[7; 5]));
    }
    // Sometimes the end comes alone.
    stream.ends = is_last && !keeps_open && (content.is_empty() || random.one_in(2));
    stream.sent += content.len();
    true
}

/// Checks what has come.
fn finish(client: &mut Http3, stream: ClientStream<'_>, score: &mut Score) -> Result<(), String> {
    let ClientStream { ask, id, ended, .. } = stream;
    let so_far = client.forget(id);
    if let (false, Some(code)) = (so_far.ended, so_far.reset) {
        return Err(format!("reset by {code:#x} after {} bytes\n  of {ask:?}", so_far.body.len()));
    }
    if !ended {
        client.quic.reset(id, code::NO_ERROR);
    }
    let response = ClientResponse {
        status: so_far.status,
        fields: so_far.headers,
        body: so_far.body,
        trailers: so_far.trailers,
    };
    response.check(ask)?;
    if let Some(duplex) = &ask.duplex {
        duplex::check(duplex, &response.body).map_err(|why| format!("{why}\n  of {ask:?}"))?;
    }
    let status = response.trailers.iter().find(|field| field.0 == "grpc-status");
    if ask.task == Task::Grpc && status.is_none_or(|field| field.1 != "0") {
        return Err(format!("trailers {:?}\n  of {ask:?}", response.trailers));
    }
    score.count(ask, &response);
    Ok(())
}
