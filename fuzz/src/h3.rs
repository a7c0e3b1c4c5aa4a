//! What the targets of HTTP/3 share: limits to try, a sink, and connections fed in pieces.

use std::collections::BTreeMap;

use nowait_h3::connection::{Connection, Role};
use nowait_h3::{CriticalStream, Event, FieldLine, Limits, ReceiveStep, Sink, StreamId};

/// More heap memory than any of [`limits`] allows a connection, in bytes.
const HEAP_MAX: usize = 1024 * 1024;

/// Default limits, or ones so small that every bound is near.
pub fn limits(choice: u8) -> Limits {
    let small = Limits {
        table_capacity: 100,
        blocked_streams: 2,
        string_bytes_max: 60,
        list_bytes_max: 200,
        fields_max: 8,
        section_bytes_max: 300,
        kept_bytes_max: 400,
        interim_max: 1,
        extended_connect: true,
        idle_frames_max: 8,
        resets_max: 3,
        insertions_max: 8,
    };
    match choice & 3 {
        0 => Limits::default(),
        1 => small,
        2 => Limits { table_capacity: 65_535, insertions_max: 1000, ..small },
        _ => Limits { table_capacity: 0, extended_connect: true, ..Limits::default() },
    }
}

/// Keeps the last fields as text.
#[derive(Debug, Default)]
pub struct Heads(pub String);

impl Sink for Heads {
    fn begin(&mut self, stream: StreamId, trailers: bool) {
        self.0 = format!("{stream} {trailers}:");
    }

    fn field(&mut self, field: &FieldLine<'_>) {
        assert!(!field.name.is_empty());
        assert!(!field.value.iter().any(|c| matches!(c, b'\r' | b'\n' | 0)));
        assert!(!field.name.iter().any(u8::is_ascii_uppercase));
        self.0 += &format!(" {field:?}");
    }
}

/// A part of what a peer sends: on one of eight streams, perhaps its end.
#[derive(Debug, Clone)]
pub struct Packet<'a> {
    /// The stream.
    pub stream: StreamId,
    /// The bytes.
    pub bytes: &'a [u8],
    /// The stream ends with them.
    pub end: bool,
    /// The stream is reset instead.
    pub reset: bool,
}

/// Packets of an input: each has an octet for its stream and what happens to it, and one for its length.
pub fn packets(mut input: &[u8], client: bool) -> Vec<Packet<'_>> {
    let mut packets = Vec::new();
    while let [what, length, rest @ ..] = input {
        let (bytes, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        input = rest;
        // Unidirectional streams of the peer, and requests.
        let number = u64::from(what & 7);
        let stream = match (number, client) {
            (0..4, _) => 4 * number,
            (4.., false) => 4 * (number - 4) + 2,
            (4.., true) => 4 * (number - 4) + 3,
        };
        let (end, reset) = (what & 0x18 == 0x18, what & 0xe0 == 0xe0);
        packets.push(Packet { stream: StreamId::new(stream), bytes, end, reset });
    }
    packets
}

/// The state of a stream as its events tell it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Seen {
    Asked,
    Head,
    End,
}

#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    end: bool,
}

/// A connection that is fed.
pub struct Feeder<R> {
    /// The connection.
    pub core: Connection<R>,
    heads: Heads,
    inputs: BTreeMap<StreamId, Input>,
    accepted: Vec<StreamId>,
    seen: BTreeMap<StreamId, Seen>,
    bodies: BTreeMap<StreamId, Vec<u8>>,
    /// What happened on each stream.
    pub events: BTreeMap<StreamId, Vec<String>>,
}

impl<R: Role> Feeder<R> {
    /// One that has received nothing.
    pub fn new(core: Connection<R>) -> Self {
        Feeder {
            core,
            heads: Heads::default(),
            inputs: BTreeMap::new(),
            accepted: Vec::new(),
            seen: BTreeMap::new(),
            bodies: BTreeMap::new(),
            events: BTreeMap::new(),
        }
    }

    /// We have opened a stream.
    pub fn asked(&mut self, stream: StreamId) {
        self.seen.insert(stream, Seen::Asked);
    }

    /// Feeds a packet; false: the connection has ended. `act` may answer each event.
    pub fn feed(
        &mut self,
        packet: &Packet<'_>,
        act: &mut impl FnMut(&mut Connection<R>, StreamId, &Event),
    ) -> bool {
        let Packet { stream, bytes, end, reset } = *packet;
        let is_own = stream.is_client() == R::CLIENT;
        if !is_own && !self.accepted.contains(&stream) {
            self.accepted.push(stream);
            if self.core.accept(stream).is_err() {
                return false;
            }
        }
        if reset {
            self.inputs.remove(&stream);
            return self.core.peer_reset(stream).is_ok();
        }
        let input = self.inputs.entry(stream).or_default();
        if input.end {
            return true;
        }
        input.bytes.extend_from_slice(bytes);
        input.end = end;
        if !self.advance(stream, act) {
            return false;
        }
        while let Some(unblocked) = self.core.next_unblocked() {
            if !self.advance(unblocked, act) {
                return false;
            }
        }
        assert!(self.core.heap() < HEAP_MAX);
        true
    }

    fn advance(
        &mut self,
        stream: StreamId,
        act: &mut impl FnMut(&mut Connection<R>, StreamId, &Event),
    ) -> bool {
        loop {
            let Some(input) = self.inputs.get_mut(&stream) else { return true };
            let step = self.core.receive(stream, &input.bytes, input.end, &mut self.heads);
            let Ok(ReceiveStep { consumed, event }) = step else { return false };
            let taken: Vec<u8> = input.bytes.drain(..consumed).collect();
            let log = self.events.entry(stream).or_default();
            match &event {
                Event::NeedMore => {
                    assert!(input.bytes.is_empty());
                    return true;
                }
                Event::Blocked => return true,
                Event::Data { range, end } => {
                    assert_eq!(self.seen.get(&stream), Some(&Seen::Head));
                    assert!(*end || !range.is_empty());
                    let body = self.bodies.entry(stream).or_default();
                    body.extend_from_slice(&taken[range.clone()]);
                    if *end {
                        self.seen.insert(stream, Seen::End);
                        log.push(format!("body {:?}", self.bodies.remove(&stream)));
                    }
                }
                // The head alone does not tell whether the end has come with it.
                Event::Request { end } | Event::Response { end, .. } => {
                    let seen = if *end { Seen::End } else { Seen::Head };
                    let before = self.seen.insert(stream, seen);
                    assert_eq!(before, if R::CLIENT { Some(Seen::Asked) } else { None });
                    log.push(self.heads.0.clone());
                    if *end {
                        log.push(format!("body {:?}", Some(Vec::<u8>::new())));
                    } else {
                        self.bodies.insert(stream, Vec::new());
                    }
                }
                Event::Interim { .. } => log.push(self.heads.0.clone()),
                Event::Trailers => {
                    assert_eq!(self.seen.insert(stream, Seen::End), Some(Seen::Head));
                    log.push(format!("body {:?}", self.bodies.remove(&stream)));
                    log.push(self.heads.0.clone());
                }
                Event::StreamError { .. } => {
                    self.seen.insert(stream, Seen::End);
                    self.bodies.remove(&stream);
                    log.push(format!("{event:?}"));
                }
                Event::Useless { .. } => {
                    self.inputs.remove(&stream);
                    return true;
                }
                Event::Settings | Event::Priority { .. } | Event::GoAway { .. } => {}
            }
            act(&mut self.core, stream, &event);
        }
    }

    /// Drops what waits for the unidirectional streams.
    pub fn drain(&mut self) {
        for stream in CriticalStream::ALL {
            let length = self.core.output(stream).len();
            self.core.written(stream, length);
        }
    }
}
