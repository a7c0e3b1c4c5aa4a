//! An origin of HTTP/2, also for gRPC: the frames of its responses alternate.

use std::io;

use nowait_testkit::Http2Peer;
use nowait_testkit::http2::{Limits, StreamId};

use super::TargetRequest;
use crate::random::SeededRng;
use crate::wire::Wire;

/// How many frames of a response may be small.
const SMALL_FRAMES_MAX: usize = 40;

/// A response on its way.
struct OriginStream {
    stream: StreamId,
    asked: TargetRequest,
    content: Vec<u8>,
    sent: usize,
    frames: usize,
    /// It ends with trailers.
    is_grpc: bool,
    /// The head was sent.
    begun: bool,
    over: bool,
}

/// Serves a connection.
pub fn serve(wire: Wire, seed: u64) -> io::Result<()> {
    let mut random = SeededRng::new(seed ^ 6);
    let limits = Limits {
        stream_window: random.pick(&[65_536, 65_535, 10_000, 1 << 20]),
        connection_window: random.pick(&[65_535, 70_000, 1 << 24]),
        frame_size: random.pick(&[16_384, 16_385, 1 << 20]),
        ..Limits::default()
    };
    let mut peer = Http2Peer::above(wire, limits);
    let mut answers: Vec<OriginStream> = Vec::new();
    while !peer.closed {
        for stream in peer.streams() {
            if answers.iter().all(|answer| answer.stream != stream) {
                answers.push(OriginStream::new(&peer, stream)?);
            }
        }
        answers.retain(|answer| {
            let gone = peer.asked(answer.stream).reset.is_some();
            let over = gone || answer.over && peer.asked(answer.stream).ended;
            if over {
                peer.forget(answer.stream);
            }
            !over
        });
        if !advance(&mut peer, &mut random, &mut answers) {
            peer.receive_more();
        }
    }
    Ok(())
}

impl OriginStream {
    fn new(peer: &Http2Peer, stream: StreamId) -> io::Result<OriginStream> {
        let request = peer.asked(stream);
        let asked = TargetRequest::parse(request.field(":path").unwrap_or_default())?;
        let content = asked.down.bytes();
        let is_grpc = request.field("content-type") == Some("application/grpc");
        Ok(OriginStream {
            stream,
            asked,
            content,
            sent: 0,
            frames: 0,
            is_grpc,
            begun: false,
            over: false,
        })
    }
}

/// Sends a head or a frame of any response that may go on. False: none.
fn advance(peer: &mut Http2Peer, random: &mut SeededRng, answers: &mut [OriginStream]) -> bool {
    let first = random.below(answers.len().max(1));
    for n in 0..answers.len() {
        let index = (first + n) % answers.len();
        let answer = &mut answers[index];
        let request = peer.asked(answer.stream);
        if answer.over {
            continue;
        }
        let complete = request.ended;
        // Calls may be answered while they are still being made.
        let early = answer.is_grpc && answer.asked.id.is_multiple_of(2);
        if !complete && !early {
            continue;
        }
        if !answer.begun {
            begin(peer, answer);
            return true;
        }
        let rest = &answer.content[answer.sent..];
        if rest.is_empty() && answer.is_grpc {
            if !complete {
                continue;
            }
            let verdict = answer.asked.verdict(&peer.asked(answer.stream).body);
            peer.trailers(answer.stream, &[("grpc-status", "0"), ("x-upload", &verdict)]);
            answer.over = true;
            return true;
        }
        answer.frames += 1;
        let small = answer.frames < SMALL_FRAMES_MAX;
        let most = match random.below(3) {
            0 if small => random.below(100),
            1 if small => random.below(16_400),
            _ => rest.len(),
        };
        let frame = &rest[..rest.len().min(most)];
        let is_last = frame.len() == rest.len();
        let end = is_last && !answer.is_grpc && (frame.is_empty() || random.one_in(2));
        let padding = random.one_in(4).then(|| random.below(256) as u8);
        if let Some(sent) = peer.frame(answer.stream, frame, padding, end) {
            answer.sent += sent;
            answer.over = end && sent == frame.len();
            return true;
        }
    }
    false
}

/// Sends a head.
fn begin(peer: &mut Http2Peer, answer: &mut OriginStream) {
    let verdict = answer.asked.verdict(&peer.asked(answer.stream).body);
    let length = answer.content.len().to_string();
    let etag = format!("\"{:x}\"", answer.asked.id);
    let mut fields = vec![("etag", &*etag), ("cache-control", "max-age=1000")];
    fields.push(("accept-ranges", "bytes"));
    if answer.is_grpc {
        fields.push(("content-type", "application/grpc"));
    } else {
        fields.push(("x-upload", &verdict));
        if answer.asked.framing == "length" {
            fields.push(("content-length", &length));
        }
    }
    peer.respond(answer.stream, 200, &fields, false);
    answer.begun = true;
}
