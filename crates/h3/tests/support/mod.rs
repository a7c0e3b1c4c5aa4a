//! Both sides of a connection, and the streams between them, without a network.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;

use nowait_h3::client::{ClientConnection, RequestControl};
use nowait_h3::connection::{Connection, Role};
use nowait_h3::frame::write_varint;
use nowait_h3::server::ServerConnection;
use nowait_h3::{
    ConnectionError, CriticalStream, Event, FieldLine, Limits, ReceiveStep, Sink, StreamId,
};

pub fn id(number: u64) -> StreamId {
    StreamId::new(number)
}

/// Keeps the fields of the last section.
#[derive(Debug, Default)]
pub struct FieldRecorder {
    pub fields: Vec<String>,
}

impl Sink for FieldRecorder {
    fn begin(&mut self, _: StreamId, _: bool) {
        self.fields.clear();
    }

    fn field(&mut self, field: &FieldLine<'_>) {
        let text = |octets| String::from_utf8_lossy(octets).into_owned();
        self.fields.push(format!("{}: {}", text(field.name), text(field.value)));
    }
}

pub fn request(method: &'static [u8]) -> RequestControl<'static> {
    RequestControl { method, scheme: b"https", authority: b"x", path: b"/", protocol: None }
}

/// A frame.
pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_varint(&mut out, kind);
    write_varint(&mut out, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

/// HEADERS with literal fields.
pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(1, &section(fields))
}

/// A section of literal fields.
pub fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        nowait_fields::integer::write(&mut out, 0x20, 3, name.len());
        out.extend_from_slice(name.as_bytes());
        nowait_fields::integer::write(&mut out, 0, 7, value.len());
        out.extend_from_slice(value.as_bytes());
    }
    out
}

pub const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "x")];

pub const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "x")];

/// Input of one stream, and what it has not taken.
#[derive(Debug, Default)]
pub struct Incoming {
    pub bytes: Vec<u8>,
    pub end: bool,
}

/// One side, with what has arrived on each stream.
#[derive(Debug)]
pub struct Side<R> {
    pub core: Connection<R>,
    pub sink: FieldRecorder,
    pub incoming: BTreeMap<u64, Incoming>,
    pub accepted: Vec<u64>,
    pub events: Vec<String>,
    pub body: BTreeMap<u64, Vec<u8>>,
    /// The event of [`Event::Data`] tells the octets.
    pub shows_data: bool,
}

pub type Server = Side<nowait_h3::server::ServerSide>;
pub type Client = Side<nowait_h3::client::ClientSide>;

impl Server {
    pub fn server(limits: Limits) -> Self {
        Self::of(ServerConnection::new(limits))
    }
}

impl Client {
    pub fn client(limits: Limits) -> Self {
        Self::of(ClientConnection::new(limits))
    }
}

impl<R: Role> Side<R> {
    fn of(core: Connection<R>) -> Self {
        Side {
            core,
            sink: FieldRecorder::default(),
            incoming: BTreeMap::new(),
            accepted: Vec::new(),
            events: Vec::new(),
            body: BTreeMap::new(),
            shows_data: true,
        }
    }

    /// Bytes arrive on a stream.
    pub fn receive(&mut self, stream: u64, bytes: &[u8], end: bool) -> Result<(), ConnectionError> {
        let is_own = id(stream).is_client() == R::CLIENT;
        if !is_own && !self.accepted.contains(&stream) {
            self.accepted.push(stream);
            if !self.core.accept(id(stream))? {
                self.events.push(format!("rejected {stream}"));
                return Ok(());
            }
        }
        let incoming = self.incoming.entry(stream).or_default();
        incoming.bytes.extend_from_slice(bytes);
        incoming.end |= end;
        self.advance(stream)?;
        while let Some(unblocked) = self.core.next_unblocked() {
            self.advance(unblocked.get())?;
        }
        Ok(())
    }

    fn advance(&mut self, stream: u64) -> Result<(), ConnectionError> {
        loop {
            let Some(incoming) = self.incoming.get_mut(&stream) else { return Ok(()) };
            let ReceiveStep { consumed, event } =
                self.core.receive(id(stream), &incoming.bytes, incoming.end, &mut self.sink)?;
            let taken: Vec<u8> = incoming.bytes.drain(..consumed).collect();
            let text = match event {
                Event::NeedMore => {
                    assert!(incoming.bytes.is_empty());
                    return Ok(());
                }
                Event::Blocked => {
                    self.events.push(format!("blocked {stream}"));
                    return Ok(());
                }
                Event::Data { range, end } => {
                    let data = &taken[range];
                    self.body.entry(stream).or_default().extend_from_slice(data);
                    let end = if end { " end" } else { "" };
                    if !self.shows_data && end.is_empty() {
                        continue;
                    }
                    match self.shows_data {
                        true => format!("data {stream} {:?}{end}", String::from_utf8_lossy(data)),
                        false => format!("data {stream}{end}"),
                    }
                }
                Event::Request { end: true } => format!("request {stream} end"),
                Event::Request { .. } => format!("request {stream}"),
                Event::Response { status, end } => {
                    format!("response {stream} {status}{}", if end { " end" } else { "" })
                }
                Event::Interim { status } => format!("interim {stream} {status}"),
                Event::Trailers => format!("trailers {stream}"),
                Event::StreamError { error, answerable } => {
                    let answerable = if answerable { " answerable" } else { "" };
                    format!("error {stream} {:?}{answerable}", error.code())
                }
                Event::Settings => "settings".to_string(),
                Event::Priority { stream } => format!("priority {stream}"),
                Event::GoAway { first } => format!("goaway {first}"),
                Event::Useless { code } => format!("useless {stream} {code:?}"),
            };
            self.events.push(text);
        }
    }

    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// What waits for one of the unidirectional streams.
    pub fn take_output(&mut self, stream: CriticalStream) -> Vec<u8> {
        let output = self.core.output(stream).to_vec();
        self.core.written(stream, output.len());
        output
    }
}

/// The number of a side's unidirectional stream.
pub fn number(stream: CriticalStream, client: bool) -> u64 {
    let first = if client { 2 } else { 3 };
    first
        + 4 * match stream {
            CriticalStream::Control => 0,
            CriticalStream::Encoder => 1,
            CriticalStream::Decoder => 2,
        }
}

/// Both sides.
#[derive(Debug)]
pub struct ConnectionPair {
    pub client: Client,
    pub server: Server,
}

impl ConnectionPair {
    pub fn new(client: Limits, server: Limits) -> Self {
        let mut pair =
            ConnectionPair { client: Client::client(client), server: Server::server(server) };
        pair.exchange();
        assert_eq!(pair.server.take_events(), ["settings"]);
        assert_eq!(pair.client.take_events(), ["settings"]);
        pair
    }

    /// Delivers what both sides have on their unidirectional streams, until there is nothing.
    pub fn exchange(&mut self) {
        while self.client.core.has_output() || self.server.core.has_output() {
            for stream in CriticalStream::ALL {
                let output = self.client.take_output(stream);
                if !output.is_empty() {
                    self.server.receive(number(stream, true), &output, false).unwrap();
                }
                let output = self.server.take_output(stream);
                if !output.is_empty() {
                    self.client.receive(number(stream, false), &output, false).unwrap();
                }
            }
        }
    }
}
