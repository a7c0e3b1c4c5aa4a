//! A blocking HTTP/2 server with prior knowledge, over the server's side of `nowait_h2`.
//!
//! The test accepts connections, waits for requests and answers them, in any order; content is taken,
//! and windows opened, only as the test says. What the protocol's core would not send is sent as bytes
//! ([`Http2Peer::send_raw`]).

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use nowait_h2::hpack::HpackField;
use nowait_h2::{ErrorCode, Event, Limits, Sink, StreamId, server};

use crate::link::{Link, data_frame};
use crate::wait::PATIENCE;

/// Bytes read from the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// A listening server.
#[derive(Debug)]
pub struct Http2Origin {
    listener: TcpListener,
}

impl Http2Origin {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// If no port can be bound.
    #[track_caller]
    pub fn start() -> Http2Origin {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        listener.set_nonblocking(true).expect("a TCP socket");
        Http2Origin { listener }
    }

    /// The port.
    ///
    /// # Panics
    /// Never.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().expect("a bound socket has an address").port()
    }

    /// The next connection, with default settings.
    #[track_caller]
    pub fn accept(&self) -> Http2Peer {
        self.accept_with(Limits::default())
    }

    /// The next connection, with these settings.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn accept_with(&self, limits: Limits) -> Http2Peer {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(peer) = self.try_accept(limits) {
                return peer;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("no client has connected");
    }

    /// A connection, if there is one.
    ///
    /// # Panics
    /// If the socket fails.
    #[track_caller]
    pub fn try_accept(&self, limits: Limits) -> Option<Http2Peer> {
        match self.listener.accept() {
            Ok((stream, _)) => Some(Http2Peer::new(stream, limits)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("accept: {error}"),
        }
    }
}

/// A request, as far as it has come.
#[derive(Clone, Debug, Default)]
pub struct OriginRequest {
    /// The fields, pseudo-fields included.
    pub fields: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
    /// It is complete.
    pub ended: bool,
    /// It was reset.
    pub reset: Option<ErrorCode>,
}

impl OriginRequest {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.0 == name).map(|field| &*field.1)
    }
}

#[derive(Default)]
struct FieldList(Vec<(String, String)>);

impl Sink for FieldList {
    fn begin(&mut self, _: StreamId) {
        self.0.clear();
    }

    fn field(&mut self, field: &HpackField<'_>) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.0.push((text(field.name), text(field.value)));
    }
}

/// A connection of a client.
pub struct Http2Peer {
    link: Box<dyn Link>,
    h2: server::ServerConnection,
    fields: FieldList,
    pending: Vec<u8>,
    requests: BTreeMap<StreamId, OriginRequest>,
    /// The last request that [`request`](Self::request) has returned.
    returned: StreamId,
    takes: bool,
    /// The client has closed the connection.
    pub closed: bool,
    /// The code of the client's GOAWAY.
    pub goaway: Option<ErrorCode>,
    /// Answers to PING.
    pub pongs: usize,
}

impl Http2Peer {
    fn new(stream: TcpStream, limits: Limits) -> Http2Peer {
        stream.set_nonblocking(false).expect("a TCP socket");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a TCP socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a TCP socket");
        Http2Peer::above(stream, limits)
    }

    /// Speaks above a connection, such as TLS, with these settings. Its reads wait as long as the test does.
    pub fn above(link: impl Link + 'static, limits: Limits) -> Http2Peer {
        let mut peer = Http2Peer {
            link: Box::new(link),
            h2: server::ServerConnection::new(limits),
            fields: FieldList::default(),
            pending: Vec::new(),
            requests: BTreeMap::new(),
            returned: StreamId::CONNECTION,
            takes: true,
            closed: false,
            goaway: None,
            pongs: 0,
        };
        peer.flush(Vec::new());
        peer
    }

    /// Leaves content untaken from now on, so that windows close.
    pub fn take_nothing(&mut self) {
        self.takes = false;
    }

    /// Takes all content so far, and what follows at once.
    pub fn take(&mut self) {
        self.takes = true;
        for (stream, asked) in &self.requests {
            self.h2.taken(*stream, asked.body.len());
        }
        self.flush(Vec::new());
    }

    /// Waits for the head of the next request.
    ///
    /// # Panics
    /// If none comes.
    #[track_caller]
    pub fn request(&mut self) -> StreamId {
        let next = |peer: &Http2Peer| {
            let mut later = peer.requests.keys().filter(|stream| **stream > peer.returned);
            later.next().copied()
        };
        self.until("a request", |peer| next(peer).is_some());
        self.returned = next(self).unwrap_or(self.returned);
        self.returned
    }

    /// A request, as far as it has come.
    pub fn asked(&self, stream: StreamId) -> &OriginRequest {
        &self.requests[&stream]
    }

    /// The requests so far.
    pub fn count(&self) -> usize {
        self.requests.len()
    }

    /// The streams of the requests so far.
    pub fn streams(&self) -> Vec<StreamId> {
        self.requests.keys().copied().collect()
    }

    /// Forgets a request.
    pub fn forget(&mut self, stream: StreamId) {
        self.requests.remove(&stream);
    }

    /// A request, once it is complete.
    #[track_caller]
    pub fn complete(&mut self, stream: StreamId) -> &OriginRequest {
        self.until("the end of a request", |peer| peer.requests[&stream].ended);
        &self.requests[&stream]
    }

    /// Sends a head.
    ///
    /// # Panics
    /// If the stream is gone.
    #[track_caller]
    pub fn respond(&mut self, stream: StreamId, status: u16, fields: &[(&str, &str)], end: bool) {
        let mut out = Vec::new();
        let mut head = self.h2.respond(stream, status, &mut out).expect("an open stream");
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes());
        }
        head.finish(end);
        self.flush(out);
    }

    /// Sends the head of an interim response.
    ///
    /// # Panics
    /// If the stream is gone.
    #[track_caller]
    pub fn interim(&mut self, stream: StreamId, status: u16, fields: &[(&str, &str)]) {
        let mut out = Vec::new();
        let mut head = self.h2.interim(stream, status, &mut out).expect("an open stream");
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes());
        }
        head.finish(false);
        self.flush(out);
    }

    /// Sends content, as windows open.
    ///
    /// # Panics
    /// If its window stays closed.
    #[track_caller]
    pub fn data(&mut self, stream: StreamId, mut content: &[u8], end: bool) {
        loop {
            let length = self.h2.reserve(stream, content.len());
            if length == 0 && !content.is_empty() {
                self.receive("a window");
                continue;
            }
            let (now, later) = content.split_at(length);
            let mut out = Vec::new();
            let ends = end && later.is_empty();
            self.h2.data_header(stream, length, ends, &mut out).expect("an open stream");
            out.extend_from_slice(now);
            self.flush(out);
            content = later;
            if content.is_empty() {
                return;
            }
        }
    }

    /// Sends the beginning of the content in one frame, as far as windows and frame sizes allow, with
    /// this padding if it fits. Returns how many bytes were sent; `None` if the stream takes none now.
    /// `end` ends the response with the last byte.
    ///
    /// # Panics
    /// If the stream is gone.
    #[track_caller]
    pub fn frame(
        &mut self,
        stream: StreamId,
        content: &[u8],
        padding: Option<u8>,
        end: bool,
    ) -> Option<usize> {
        let mut out = Vec::new();
        let sent = data_frame(&mut self.h2, stream, content, padding, end, &mut out)?;
        self.flush(out);
        Some(sent)
    }

    /// Receives once.
    ///
    /// # Panics
    /// If nothing more comes.
    #[track_caller]
    pub fn receive_more(&mut self) {
        self.receive("anything");
    }

    /// How much content may be sent at once.
    pub fn window(&mut self, stream: StreamId) -> usize {
        self.h2.reserve(stream, usize::MAX)
    }

    /// Responds with status 200 and this content.
    #[track_caller]
    pub fn answer(&mut self, stream: StreamId, content: &str) {
        self.respond(stream, 200, &[], content.is_empty());
        if !content.is_empty() {
            self.data(stream, content.as_bytes(), true);
        }
    }

    /// Ends a response with trailers.
    ///
    /// # Panics
    /// If the stream is gone.
    #[track_caller]
    pub fn trailers(&mut self, stream: StreamId, fields: &[(&str, &str)]) {
        let mut out = Vec::new();
        let mut trailers = self.h2.trailers_of(stream, &mut out).expect("an open stream");
        for (name, value) in fields {
            trailers.field(name.as_bytes(), value.as_bytes());
        }
        trailers.finish(true);
        self.flush(out);
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        self.h2.reset(stream, code);
        self.flush(Vec::new());
    }

    /// Sends bytes as they are, behind the protocol's own.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.flush(bytes.to_vec());
    }

    /// Sends GOAWAY: streams above `last` will not be processed.
    #[track_caller]
    pub fn go_away(&mut self, last: u32, code: ErrorCode) {
        let mut frame = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        frame.extend_from_slice(&last.to_be_bytes());
        frame.extend_from_slice(&code.0.to_be_bytes());
        self.send_raw(&frame);
    }

    /// A PING and its answer: the client has processed everything sent before.
    #[track_caller]
    pub fn round_trip(&mut self) {
        let pongs = self.pongs;
        self.h2.ping(*b"testkit.");
        self.flush(Vec::new());
        self.until("PONG", |peer| peer.pongs > pongs);
    }

    /// Receives until a condition holds.
    ///
    /// # Panics
    /// If nothing more comes.
    #[track_caller]
    pub fn until(&mut self, what: &str, holds: impl Fn(&Http2Peer) -> bool) {
        while !holds(self) {
            self.receive(what);
        }
    }

    /// Receives until the client closes the connection.
    #[track_caller]
    pub fn until_closed(&mut self) {
        self.until("the end of the connection", |peer| peer.closed);
    }

    #[track_caller]
    fn flush(&mut self, frames: Vec<u8>) {
        let mut out = Vec::new();
        // Those that precede the frames may be in them already.
        self.h2.poll_output(&mut out);
        out.extend_from_slice(&frames);
        if let Err(error) = self.link.write_all(&out)
            && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        {
            panic!("send: {error}");
        }
    }

    /// What has come so far, without contents.
    fn shown(&self) -> String {
        let shown = self.requests.iter().map(|(stream, asked)| {
            let OriginRequest { fields, body, ended, reset } = asked;
            format!(
                "\n  stream {stream}: {fields:?}, {} bytes, ended: {ended}, {reset:?}",
                body.len()
            )
        });
        shown.collect()
    }

    #[track_caller]
    fn receive(&mut self, what: &str) {
        assert!(!self.closed, "the client has closed instead of {what}; {}", self.shown());
        let mut buffer = vec![0; READ_BYTES];
        match self.link.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = true,
            Err(error) => panic!("no {what}: {error}; {}", self.shown()),
        }
        loop {
            let step = self.h2.receive(&self.pending, &mut self.fields);
            let step = step.unwrap_or_else(|error| panic!("the client has sent {error}"));
            match step.event {
                Event::NeedMore => {
                    self.pending.drain(..step.consumed);
                    break;
                }
                Event::Request { stream, end } => {
                    let fields = self.fields.0.clone();
                    let asked = OriginRequest { fields, ended: end, ..OriginRequest::default() };
                    self.requests.insert(stream, asked);
                }
                Event::Data { stream, range, end } => {
                    let data = self.pending[range].to_vec();
                    if self.takes {
                        self.h2.taken(stream, data.len());
                    }
                    let asked = self.requests.entry(stream).or_default();
                    asked.body.extend_from_slice(&data);
                    asked.ended |= end;
                }
                Event::Trailers { stream } => self.requests.entry(stream).or_default().ended = true,
                Event::Reset { stream, code } => {
                    self.requests.entry(stream).or_default().reset = Some(code);
                }
                Event::StreamError { stream, error, .. } => {
                    panic!("the client has sent {error} on stream {stream}")
                }
                Event::GoAway { code, .. } => self.goaway = Some(code),
                Event::Pong { .. } => self.pongs += 1,
                Event::OutputFull | Event::Window { .. } | Event::Settings => {}
                Event::Response { .. } | Event::Interim { .. } => {
                    unreachable!("seen by clients only")
                }
            }
            self.pending.drain(..step.consumed);
        }
        self.flush(Vec::new());
    }
}
