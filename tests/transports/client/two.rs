//! A client of HTTP/2: the requests of a round share a connection, and their frames alternate.

use nowait_testkit::http2::{ErrorCode, Http2, Limits, StreamId};

use super::{ClientResponse, Score, connect};
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
    /// Whether this side has ended.
    ended: bool,
}

/// Carries out a plan.
pub fn run(plan: &ConnectionPlan, site: &Site, score: &mut Score) -> Result<(), String> {
    let wire = connect(plan, site).map_err(|error| format!("connecting: {error}"))?;
    let scheme = if plan.transport.is_secure() { "https" } else { "http" };
    let limits = Limits {
        stream_window: plan.stream_window,
        connection_window: plan.connection_window,
        frame_size: plan.frame_size,
        ..Limits::default()
    };
    let mut client = Http2::above(wire, scheme, limits);
    let mut random = SeededRng::new(plan.seed ^ 3);
    let extended = plan.rounds.iter().flatten().any(|ask| ask.task == Task::Upgraded);
    if extended {
        // Only servers that offer it may be asked.
        client.round_trip();
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
                client.reset(stream.id, ErrorCode::CANCEL);
                client.forget(stream.id);
                continue;
            }
            patience = patience.map(|frames| frames - 1);
            if !advance(&mut client, &mut random, &mut streams) {
                client.receive_more();
            }
            let is_over = |stream: &ClientStream<'_>| {
                let so_far = client.so_far(stream.id);
                so_far.reset.is_some() || so_far.ended
            };
            let (over, rest): (Vec<_>, Vec<_>) = streams.into_iter().partition(is_over);
            streams = rest;
            for stream in over {
                finish(&mut client, stream, score)?;
            }
        }
    }
    Ok(())
}

/// Opens a stream.
fn open<'a>(
    client: &mut Http2,
    random: &mut SeededRng,
    ask: &'a PlannedRequest,
) -> ClientStream<'a> {
    let (mut upload, mut ended) = (Vec::new(), false);
    let mut fields: Vec<(&str, &str)> =
        ask.fields.iter().map(|(name, value)| (*name, &**value)).collect();
    let length;
    let id = if let Some(duplex) = &ask.duplex {
        upload = [duplex::line(ask.id, duplex).into_bytes(), duplex.up.bytes()].concat();
        match ask.task {
            Task::Tunnel => client.connect_to("tunnel.test:1", &[]),
            _ => client.connect("websocket", &ask.target, &fields),
        }
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
    ClientStream { ask, id, upload, sent: 0, frames: 0, ended }
}

/// Sends a frame of any stream that has something to send and may. False: none.
fn advance(client: &mut Http2, random: &mut SeededRng, streams: &mut [ClientStream<'_>]) -> bool {
    let first = random.below(streams.len().max(1));
    for n in 0..streams.len() {
        let index = (first + n) % streams.len();
        let stream = &mut streams[index];
        let so_far = client.so_far(stream.id);
        if stream.ended || so_far.ended || so_far.reset.is_some() {
            continue;
        }
        // The other side decides when a tunnel ends.
        let keeps_open = stream.ask.duplex.as_ref().is_some_and(|duplex| !duplex.half_close);
        let rest = &stream.upload[stream.sent..];
        if rest.is_empty() && keeps_open {
            continue;
        }
        // Nothing may follow CONNECT before the tunnel is there.
        if stream.ask.duplex.is_some() && so_far.status != 200 {
            continue;
        }
        stream.frames += 1;
        let small = stream.frames < SMALL_FRAMES_MAX;
        let most = match random.below(3) {
            0 if small => random.below(100),
            1 if small => random.below(16_400),
            _ => rest.len(),
        };
        let frame = &rest[..rest.len().min(most)];
        let is_last = frame.len() == rest.len();
        // Sometimes the end comes with a frame of its own.
        let end = is_last && !keeps_open && (frame.is_empty() || random.one_in(2));
        let padding = random.one_in(4).then(|| random.below(256) as u8);
        if let Some(sent) = client.frame(stream.id, frame, padding, end) {
            stream.sent += sent;
            stream.ended = end && sent == frame.len();
            return true;
        }
    }
    false
}

/// Checks what has come.
fn finish(client: &mut Http2, stream: ClientStream<'_>, score: &mut Score) -> Result<(), String> {
    let ClientStream { ask, id, ended, .. } = stream;
    let so_far = client.forget(id);
    if let (false, Some(code)) = (so_far.ended, so_far.reset) {
        return Err(format!("reset by {code:?} after {} bytes\n  of {ask:?}", so_far.body.len()));
    }
    if !ended && so_far.reset.is_none() {
        client.reset(id, ErrorCode::NO_ERROR);
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
