//! A blocking HTTP/2 client with prior knowledge, over the client's side of `nowait_h2`.
//!
//! One value is one connection with any number of streams. Requests are opened, and responses awaited,
//! in any order; content is taken, and windows opened, only as the test says. What the protocol's core
//! would not send is sent as bytes ([`Http2::send_raw`]).

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use nowait_h2::hpack::HpackField;
pub use nowait_h2::{ErrorCode, Limits, StreamId};
use nowait_h2::{Event, Sink, client};

use crate::link::{Link, PatientSocket, data_frame};
use crate::response::Response;
use crate::wait::{PATIENCE, STEP};

/// How long a client with nothing else to do looks for input.
const MOMENT: Duration = Duration::from_millis(20);

/// Bytes read from the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// What has come for a stream.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    /// Heads of interim responses: status and fields.
    pub interim: Vec<(u16, Vec<(String, String)>)>,
    /// The response so far; its status is 0 before there is one.
    pub status: u16,
    /// The fields.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Vec<(String, String)>,
    /// It is complete.
    pub ended: bool,
    /// How many responses were complete before it.
    pub place: Option<usize>,
    /// The stream was reset.
    pub reset: Option<ErrorCode>,
}

#[derive(Default)]
struct FieldList(Vec<(String, String)>);

impl Sink for FieldList {
    fn begin(&mut self, _: StreamId) {
        self.0.clear();
    }

    fn field(&mut self, field: &HpackField<'_>) {
        if field.name.first() != Some(&b':') {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.0.push((text(field.name), text(field.value)));
        }
    }
}

/// A connection to a server.
pub struct Http2 {
    link: Box<dyn Link>,
    /// The socket below, if there is nothing between.
    socket: Option<TcpStream>,
    /// `:scheme` of requests.
    scheme: &'static str,
    h2: client::ClientConnection,
    fields: FieldList,
    pending: Vec<u8>,
    exchanges: BTreeMap<StreamId, Exchange>,
    /// Whether content is taken at once, which opens the windows again.
    takes: bool,
    /// The last stream and the code of GOAWAY.
    pub goaway: Option<(u32, ErrorCode)>,
    /// The server has closed the connection.
    pub closed: bool,
}

impl Http2 {
    /// Connects to 127.0.0.1.
    ///
    /// # Panics
    /// If the port is closed.
    #[track_caller]
    pub fn to_port(port: u16) -> Http2 {
        Http2::with(port, Limits::default())
    }

    /// Connects with these settings.
    ///
    /// # Panics
    /// If the port is closed.
    #[track_caller]
    pub fn with(port: u16, limits: Limits) -> Http2 {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server listens");
        Http2::over(stream, limits)
    }

    /// Speaks over this connection, which may lead through a relay that adds TLS.
    ///
    /// # Panics
    /// If it is broken.
    #[track_caller]
    pub fn over(stream: TcpStream, limits: Limits) -> Http2 {
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(STEP)).expect("a TCP socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a TCP socket");
        let socket = stream.try_clone().expect("a descriptor");
        Http2 { socket: Some(socket), ..Http2::above(PatientSocket(stream), "http", limits) }
    }

    /// Speaks above a connection, such as TLS, with these settings. Its reads wait as long as the test does.
    pub fn above(link: impl Link + 'static, scheme: &'static str, limits: Limits) -> Http2 {
        Http2 {
            link: Box::new(link),
            socket: None,
            scheme,
            h2: client::ClientConnection::new(limits),
            fields: FieldList::default(),
            pending: Vec::new(),
            exchanges: BTreeMap::new(),
            takes: true,
            goaway: None,
            closed: false,
        }
    }

    /// The same with another `:scheme` in its requests.
    #[must_use]
    pub fn scheme(self, scheme: &'static str) -> Http2 {
        Http2 { scheme, ..self }
    }

    /// Leaves content untaken from now on, so that windows close.
    pub fn take_nothing(&mut self) {
        self.takes = false;
    }

    /// Takes all content so far, and what follows at once.
    pub fn take(&mut self) {
        self.takes = true;
        for (stream, exchange) in &self.exchanges {
            self.h2.taken(*stream, exchange.body.len());
        }
        self.flush(Vec::new());
    }

    /// Enlarges the windows of all streams, in one write.
    pub fn grow_windows(&mut self, size: u32) {
        for stream in self.exchanges.keys() {
            self.h2.grow_window(*stream, size);
        }
        self.flush(Vec::new());
    }

    /// Opens a stream for a request of the host `localhost`.
    ///
    /// # Panics
    /// If the server takes no more.
    #[track_caller]
    pub fn open(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        end: bool,
    ) -> StreamId {
        self.open_with((method, b"localhost", path), None, fields, end)
    }

    /// Opens a stream for GET of another host.
    ///
    /// # Panics
    /// If the server takes no more.
    #[track_caller]
    pub fn send_get_of(&mut self, host: &str, path: &str) -> StreamId {
        self.open_with(("GET", host.as_bytes(), path), None, &[], true)
    }

    /// Asks for a tunnel with another protocol (RFC 8441).
    ///
    /// # Panics
    /// If the server takes no more.
    #[track_caller]
    pub fn connect(&mut self, protocol: &str, path: &str, fields: &[(&str, &str)]) -> StreamId {
        self.open_with(("CONNECT", b"localhost", path), Some(protocol), fields, false)
    }

    /// Asks for a connection to `authority` (RFC 9113 section 8.5).
    ///
    /// # Panics
    /// If the server takes no more.
    #[track_caller]
    pub fn connect_to(&mut self, authority: &str, fields: &[(&str, &str)]) -> StreamId {
        self.open_with(("CONNECT", authority.as_bytes(), ""), None, fields, false)
    }

    #[track_caller]
    fn open_with(
        &mut self,
        (method, authority, path): (&str, &[u8], &str),
        protocol: Option<&str>,
        fields: &[(&str, &str)],
        end: bool,
    ) -> StreamId {
        let mut out = Vec::new();
        let request = client::RequestControl {
            method: method.as_bytes(),
            // CONNECT has neither.
            scheme: if path.is_empty() { b"" } else { self.scheme.as_bytes() },
            authority,
            path: path.as_bytes(),
            protocol: protocol.map(str::as_bytes),
        };
        let mut head = self.h2.open(&request, &mut out).expect("the server takes streams");
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes());
        }
        let stream = head.finish(end);
        self.exchanges.insert(stream, Exchange::default());
        self.flush(out);
        stream
    }

    /// Opens a stream for GET.
    #[track_caller]
    pub fn send_get(&mut self, path: &str) -> StreamId {
        self.open("GET", path, &[], true)
    }

    /// Requests `path` and returns the response.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Response {
        let stream = self.send_get(path);
        self.response(stream)
    }

    /// Sends content, as windows open, until the stream is complete or reset.
    ///
    /// # Panics
    /// If its window stays closed.
    #[track_caller]
    pub fn data(&mut self, stream: StreamId, mut content: &[u8], end: bool) {
        loop {
            let exchange = &self.exchanges[&stream];
            if exchange.ended || exchange.reset.is_some() {
                return;
            }
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
    /// `end` ends the request with the last byte.
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

    /// Forgets a stream. Returns what has come for it.
    pub fn forget(&mut self, stream: StreamId) -> Exchange {
        self.exchanges.remove(&stream).unwrap_or_default()
    }

    /// How much content may be sent at once.
    pub fn window(&mut self, stream: StreamId) -> usize {
        self.h2.reserve(stream, usize::MAX)
    }

    /// Ends a request with trailers.
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
        self.flush(Vec::new());
        self.flush(bytes.to_vec());
    }

    /// The response to a request, once it is complete.
    ///
    /// # Panics
    /// If it does not come, or the stream is reset before.
    #[track_caller]
    pub fn response(&mut self, stream: StreamId) -> Response {
        let exchange = self.end_of(stream);
        assert!(exchange.ended, "stream {stream} was reset: {exchange:?}");
        Response {
            version: "HTTP/2.0".to_owned(),
            status: exchange.status,
            reason: String::new(),
            headers: exchange.headers,
            body: exchange.body,
            trailers: exchange.trailers,
        }
    }

    /// What has come for a stream until it was complete or reset.
    ///
    /// # Panics
    /// If neither happens.
    #[track_caller]
    pub fn end_of(&mut self, stream: StreamId) -> Exchange {
        loop {
            let exchange = &self.exchanges[&stream];
            if exchange.ended || exchange.reset.is_some() {
                return exchange.clone();
            }
            self.receive("a response");
        }
    }

    /// What has come for a stream so far.
    pub fn so_far(&self, stream: StreamId) -> &Exchange {
        &self.exchanges[&stream]
    }

    /// Receives until a condition holds.
    ///
    /// # Panics
    /// If nothing more comes.
    #[track_caller]
    pub fn until(&mut self, what: &str, holds: impl Fn(&Http2) -> bool) {
        while !holds(self) {
            self.receive(what);
        }
    }

    /// Receives until the server closes the connection.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn until_closed(&mut self) {
        self.until("the end of the connection", |client| client.closed);
    }

    /// A PING and its answer: the server has processed everything sent before.
    #[track_caller]
    pub fn round_trip(&mut self) {
        self.h2.ping(*b"testkit.");
        self.flush(Vec::new());
        while !self.receive("PONG") {}
    }

    #[track_caller]
    fn flush(&mut self, frames: Vec<u8>) {
        let mut out = Vec::new();
        // Those that precede the frames are in them already.
        if frames.is_empty() {
            self.h2.poll_output(&mut out);
        }
        out.extend_from_slice(&frames);
        if let Err(error) = self.link.write_all(&out)
            && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        {
            panic!("send: {error}");
        }
    }

    /// Receives something; whether it was the answer to a PING.
    #[track_caller]
    fn receive(&mut self, what: &str) -> bool {
        if self.closed {
            panic!("the server has closed instead of {what} ({:?}); {}", self.goaway, self.shown());
        }
        let mut buffer = vec![0; READ_BYTES];
        match self.link.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = true,
            Err(error) => panic!("no {what}: {error}; {}", self.shown()),
        }
        self.process()
    }

    /// Receives what comes within a moment, if anything does.
    ///
    /// # Panics
    /// If it speaks over another connection than its own socket.
    #[track_caller]
    pub fn receive_for_a_moment(&mut self) {
        let socket = self.socket.take().expect("a socket of its own");
        let end = Instant::now() + MOMENT;
        let mut buffer = vec![0; READ_BYTES];
        while !self.closed
            && let left = end.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            socket.set_read_timeout(Some(left)).expect("a TCP socket");
            match (&socket).read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = true,
                Err(_) => {}
            }
            self.process();
        }
        socket.set_read_timeout(Some(STEP)).expect("a TCP socket");
        self.socket = Some(socket);
    }

    /// Processes what has been received; whether the answer to a PING was in it.
    #[track_caller]
    fn process(&mut self) -> bool {
        let mut ponged = false;
        loop {
            let step = self.h2.receive(&self.pending, &mut self.fields);
            let step = step.unwrap_or_else(|error| panic!("the server has sent {error}"));
            let fields = || self.fields.0.clone();
            match step.event {
                Event::NeedMore => {
                    self.pending.drain(..step.consumed);
                    break;
                }
                Event::Interim { stream, status } => {
                    let fields = fields();
                    self.exchange(stream).interim.push((status, fields));
                }
                Event::Response { stream, status, end } => {
                    let fields = fields();
                    let exchange = self.exchange(stream);
                    (exchange.status, exchange.headers, exchange.ended) = (status, fields, end);
                }
                Event::Data { stream, range, end } => {
                    let data = self.pending[range].to_vec();
                    if self.takes {
                        self.h2.taken(stream, data.len());
                    }
                    let exchange = self.exchange(stream);
                    exchange.body.extend_from_slice(&data);
                    exchange.ended |= end;
                }
                Event::Trailers { stream } => {
                    let fields = fields();
                    let exchange = self.exchange(stream);
                    (exchange.trailers, exchange.ended) = (fields, true);
                }
                Event::Reset { stream, code } => self.exchange(stream).reset = Some(code),
                Event::StreamError { stream, error, .. } => {
                    panic!("the server has sent {error} on stream {stream}")
                }
                Event::GoAway { last, code } => self.goaway = Some((last.get(), code)),
                Event::Pong { .. } => ponged = true,
                Event::OutputFull | Event::Window { .. } | Event::Settings => {}
                Event::Request { .. } => unreachable!("seen by servers only"),
            }
            self.pending.drain(..step.consumed);
            let complete = self.exchanges.values().filter(|one| one.place.is_some()).count();
            for one in self.exchanges.values_mut().filter(|one| one.ended) {
                one.place.get_or_insert(complete);
            }
        }
        self.flush(Vec::new());
        ponged
    }

    /// What has come so far, without contents.
    fn shown(&self) -> String {
        let shown = self.exchanges.iter().map(|(stream, exchange)| {
            let Exchange { status, headers, body, ended, reset, .. } = exchange;
            let length = body.len();
            format!("\n  stream {stream}: {status} {headers:?}, {length} bytes, ended: {ended}, {reset:?}")
        });
        shown.collect()
    }

    fn exchange(&mut self, stream: StreamId) -> &mut Exchange {
        self.exchanges.entry(stream).or_default()
    }
}
