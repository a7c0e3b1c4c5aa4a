//! Many messages by seed: however the input of each stream is cut, and in whatever order the streams arrive, both
//! sides see what was sent.

mod support;

use std::collections::BTreeMap;

use nowait_h3::{CriticalStream, Limits};
use support::*;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Bytes on their way on one stream.
#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    end: bool,
    is_done: bool,
}

/// Everything on its way in one direction.
#[derive(Default)]
struct Link(BTreeMap<u64, Wire>);

impl Link {
    fn put(&mut self, stream: u64, bytes: &[u8], end: bool) {
        let wire = self.0.entry(stream).or_default();
        wire.bytes.extend_from_slice(bytes);
        wire.end |= end;
    }

    /// A piece of any stream, and whether the stream ends with it.
    fn take(&mut self, random: &mut Random) -> Option<(u64, Vec<u8>, bool)> {
        let open: Vec<u64> = self
            .0
            .iter()
            .filter(|(_, wire)| !wire.bytes.is_empty() || (wire.end && !wire.is_done))
            .map(|(stream, _)| *stream)
            .collect();
        if open.is_empty() {
            return None;
        }
        let stream = open[random.below(open.len())];
        let wire = self.0.get_mut(&stream).unwrap();
        let length = match random.below(3) {
            0 => wire.bytes.len().min(1),
            1 => random.below(wire.bytes.len() + 1),
            _ => wire.bytes.len(),
        };
        let piece: Vec<u8> = wire.bytes.drain(..length).collect();
        // The end may come by itself.
        let end = wire.end && wire.bytes.is_empty() && random.below(2) == 0;
        wire.is_done |= end;
        Some((stream, piece, end))
    }
}

fn text(random: &mut Random, max: usize) -> String {
    "abcdefgh".chars().cycle().skip(random.below(8)).take(random.below(max)).collect()
}

#[test]
fn both_sides_see_what_was_sent() {
    for seed in 0..200 {
        converse(seed);
    }
}

fn converse(seed: u64) {
    let random = &mut Random(seed);
    let table = |random: &mut Random| Limits {
        table_capacity: [0, 100, 4096][random.below(3)],
        ..Limits::default()
    };
    let mut client = Client::client(table(random));
    let mut server = Server::server(table(random));
    (client.shows_data, server.shows_data) = (false, false);
    let (mut to_server, mut to_client) = (Link::default(), Link::default());
    let mut sent: BTreeMap<u64, (String, String)> = BTreeMap::new();
    let (mut next, mut answered) = (0, 0);
    for _ in 0..100_000 {
        for (stream, number) in CriticalStream::ALL.into_iter().map(|s| (s, number(s, true))) {
            to_server.put(number, &client.take_output(stream), false);
            to_client.put(number + 1, &server.take_output(stream), false);
        }
        match random.below(4) {
            0 if next < 160 => {
                let (body, tag) = (text(random, 3000), text(random, 20));
                let mut out = Vec::new();
                let mut head = client.core.open(id(next), &request(b"POST"), &mut out).unwrap();
                head.field(b"user-agent", b"the same each time").field(b"x-tag", tag.as_bytes());
                if random.below(2) == 0 {
                    head.field_number(b"content-length", body.len() as u64);
                }
                head.finish(false);
                for part in body.as_bytes().chunks(1 + random.below(2000)) {
                    client.core.data_header(id(next), part.len() as u64, &mut out).unwrap();
                    out.extend_from_slice(part);
                }
                match random.below(2) {
                    0 => client.core.end(id(next)),
                    _ => {
                        let mut trailers = client.core.trailers_of(id(next), &mut out).unwrap();
                        trailers.field(b"x-tag", tag.as_bytes());
                        trailers.finish(true);
                    }
                }
                to_server.put(next, &out, true);
                sent.insert(next, (body, tag));
                next += 4;
            }
            1 | 2 => {
                if let Some((stream, piece, end)) = to_server.take(random) {
                    server.receive(stream, &piece, end).unwrap();
                }
                for event in server.take_events() {
                    let stream: u64 = event.split(' ').nth(1).map_or(0, |id| id.parse().unwrap());
                    let ends = event.starts_with("request") && event.ends_with("end");
                    if ends || event.starts_with("trailers") || event.starts_with("data") {
                        let (body, tag) = &sent[&stream];
                        let got = server.body.remove(&stream).unwrap_or_default();
                        assert_eq!(got, body.as_bytes(), "seed {seed}");
                        // Echo it.
                        let mut out = Vec::new();
                        let mut head = server.core.respond(id(stream), 200, &mut out).unwrap();
                        head.field(b"server", b"always this one").field(b"x-tag", tag.as_bytes());
                        head.finish(false);
                        server.core.data_header(id(stream), got.len() as u64, &mut out).unwrap();
                        out.extend(got);
                        server.core.end(id(stream));
                        to_client.put(stream, &out, true);
                    } else {
                        let is_expected = ["settings", "request ", "blocked "];
                        assert!(is_expected.iter().any(|one| event.starts_with(one)), "{event}");
                        if event.starts_with("request") {
                            let tag = format!("x-tag: {}", sent[&stream].1);
                            assert!(server.sink.fields.contains(&tag), "seed {seed}");
                        }
                    }
                }
            }
            _ => {
                if let Some((stream, piece, end)) = to_client.take(random) {
                    client.receive(stream, &piece, end).unwrap();
                }
                for event in client.take_events() {
                    assert!(!event.starts_with("error"), "seed {seed}: {event}");
                    if let Some(rest) = event.strip_prefix("data ") {
                        let stream: u64 = rest.strip_suffix(" end").unwrap().parse().unwrap();
                        let got = client.body.remove(&stream).unwrap_or_default();
                        assert_eq!(got, sent[&stream].0.as_bytes(), "seed {seed}");
                        answered += 1;
                    }
                }
                if answered == 40 {
                    assert_eq!(client.core.open_streams(), 0);
                    assert_eq!(server.core.open_streams(), 0);
                    return;
                }
            }
        }
    }
    panic!("seed {seed}: {answered} responses");
}
