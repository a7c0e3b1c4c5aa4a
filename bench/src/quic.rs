//! The load generator of HTTP/3: one thread, one epoll, a socket and a `quinn-proto` endpoint per connection, so that
//! the server sees as many clients as there are connections.
//!
//! It receives and sends in trains (GRO, GSO), to cost less than the server. Of each response, only status and length
//! are looked at.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use nowait_sys::udp::{self, DatagramBatch, SEGMENTS_MAX, SEND_BYTES_MAX, SendTrain};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint,
    Endpoint, EndpointConfig, Event, IdleTimeout, MtuDiscoveryConfig, ReadError, StreamEvent,
    StreamId, TransportConfig, VarInt, WriteError,
};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;

use crate::h3::{self, ResponseReader};
use crate::tls;

/// A server that answers nothing for so long has failed.
const STALLED: Duration = Duration::from_secs(60);
const SOCKET_BYTES: usize = 4 << 20;
/// What a server may send before it is read, of a stream and of all: as browsers have it. With more, a path that loses
/// each fifth packet leaves more gaps than `quinn-proto` keeps.
const WINDOW_BYTES: u32 = 6 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 15 << 20;
/// Of an upload, kept until it is acknowledged.
const SEND_WINDOW_BYTES: u64 = 64 << 20;
/// The longest datagrams that are sent: those of Ethernet.
const MTU_MAX: u16 = 1472;
/// Written at once.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
const EVENTS_MAX: usize = 256;

/// What to run.
#[derive(Clone, Copy)]
pub struct QuicLoad<'a> {
    pub target: SocketAddr,
    pub path: &'a str,
    /// Of every response.
    pub body_bytes: u64,
    /// Of every request; `None`: it has no content.
    pub upload_bytes: Option<u64>,
    pub connections: usize,
    /// Requests at a time on each connection.
    pub streams: usize,
}

/// Runs a load for some time, and returns the number of responses in it; `edge` is called when that time begins and
/// when it ends.
///
/// # Errors
/// A response that is not the expected one, a connection that ends, or a server that stalls.
pub fn run(
    load: &QuicLoad<'_>,
    warm_up: Duration,
    length: Duration,
    edge: impl FnMut(),
) -> Result<u64, String> {
    QuicRun::start(load, After::Again, u64::MAX)?.measure(warm_up, length, edge)
}

/// As [`run`], but each request has a connection of its own, which is closed behind the response.
///
/// # Errors
/// Those of [`run`].
pub fn handshakes(
    load: &QuicLoad<'_>,
    warm_up: Duration,
    length: Duration,
    edge: impl FnMut(),
) -> Result<u64, String> {
    let mut run = QuicRun::start(load, After::Connect, u64::MAX)?;
    let complete = run.measure(warm_up, length, edge)?;
    // Servers take a client from a port that has just been used for the one before.
    match run.failed * FAILURES_DIVISOR > run.complete {
        true => Err(format!("{} connections failed", run.failed)),
        false => Ok(complete),
    }
}

/// One handshake of so many may fail.
const FAILURES_DIVISOR: u64 = 50;

/// Sends exactly so many requests, and returns when they are answered.
///
/// # Errors
/// Those of [`run`].
pub fn requests(load: &QuicLoad<'_>, count: u64) -> Result<(), String> {
    let mut run = QuicRun::start(load, After::Again, count)?;
    run.until(|run| run.complete == count)?;
    run.close_all();
    Ok(())
}

/// What a transfer was like.
pub struct Transfer {
    /// From the request to the last byte of the response, or to the limit; without the handshake.
    pub time: Duration,
    /// Of content, by then.
    pub bytes: u64,
    pub lost_packets: u64,
    pub sent_packets: u64,
}

/// Makes one request on a new connection; a response that takes longer than the limit is given up.
///
/// # Errors
/// Those of [`run`].
pub fn transfer(load: &QuicLoad<'_>, limit: Duration) -> Result<Transfer, String> {
    let mut run = QuicRun::start(load, After::Again, 0)?;
    run.until(|run| run.connections.iter().all(|connection| connection.is_ready))?;
    let begin = Instant::now();
    run.unsent = 1;
    run.ask(0)?;
    run.flush(0).map_err(|error| format!("sending: {error}"))?;
    run.until(|run| run.complete == 1 || run.now >= begin + limit)?;
    let time = begin.elapsed();
    let here = &run.connections[0];
    let read = here.responses.values().map(|reader| reader.body_bytes).sum();
    let bytes = match (run.complete, load.upload_bytes) {
        (1, None) => load.body_bytes,
        (1, Some(bytes)) => bytes,
        (_, None) => read,
        // What is written is not what has come.
        (_, Some(_)) => return Err("the upload takes too long".to_owned()),
    };
    let stats = here.connection.stats();
    let (lost_packets, sent_packets) = (stats.path.lost_packets, stats.path.sent_packets);
    run.close_all();
    Ok(Transfer { time, bytes, lost_packets, sent_packets })
}

/// Connections that have each had one response, and stay.
pub struct IdleConnections<'a>(QuicRun<'a>);

impl<'a> IdleConnections<'a> {
    /// Opens them.
    ///
    /// # Errors
    /// Those of [`run`].
    pub fn open(load: &QuicLoad<'a>) -> Result<IdleConnections<'a>, String> {
        let wanted = load.connections;
        let mut run = QuicRun::start(&QuicLoad { connections: 0, ..*load }, After::Stay, u64::MAX)?;
        // A few at a time: handshakes beyond what a server takes without a proof of the address would cost a Retry.
        while run.connections.len() < wanted {
            let here = OPENED_AT_ONCE.min(wanted - run.connections.len());
            for _ in 0..here {
                run.connect().map_err(|error| format!("connecting: {error}"))?;
            }
            let complete = run.connections.len() as u64;
            run.until(|run| run.complete >= complete)?;
        }
        Ok(IdleConnections(run))
    }

    /// Lets both sides say what they still have to.
    ///
    /// # Errors
    /// Those of [`run`].
    pub fn settle(&mut self, length: Duration) -> Result<(), String> {
        let end = Instant::now() + length;
        self.0.until(|run| run.now >= end)
    }

    /// Closes them, and lets the server take its time.
    ///
    /// # Errors
    /// Those of [`run`].
    pub fn close(&mut self, length: Duration) -> Result<(), String> {
        self.0.close_all();
        self.settle(length)
    }
}

const OPENED_AT_ONCE: usize = 50;

/// What follows a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// Another request on its connection.
    Again,
    /// Another connection in place of this one.
    Connect,
    /// Nothing.
    Stay,
}

struct QuicConnection {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    responses: HashMap<StreamId, ResponseReader>,
    /// Bytes of uploads still to be written.
    uploads: HashMap<StreamId, u64>,
    /// The handshake is complete.
    is_ready: bool,
    has_asked: bool,
    timeout: Option<Instant>,
}

struct QuicRun<'a> {
    load: QuicLoad<'a>,
    after: After,
    request: Vec<u8>,
    config: ClientConfig,
    endpoint_config: Arc<EndpointConfig>,
    epoll: OwnedFd,
    connections: Vec<QuicConnection>,
    /// Requests that may still be sent, and responses.
    unsent: u64,
    complete: u64,
    /// Connections that ended otherwise, and were replaced, where each has one request.
    failed: u64,
    now: Instant,
    batch: DatagramBatch,
    buffer: Vec<u8>,
}

/// The settings of clients.
fn config() -> Result<ClientConfig, String> {
    let mut tls = Arc::unwrap_or_clone(tls::client(false));
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicClientConfig::try_from(tls).map_err(|error| error.to_string())?;
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(MTU_MAX);
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(600_000))))
        .mtu_discovery_config(Some(mtu));
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

impl<'a> QuicRun<'a> {
    fn start(load: &QuicLoad<'a>, after: After, count: u64) -> Result<QuicRun<'a>, String> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| e.to_string())?;
        let authority = load.target.to_string();
        let mut run = QuicRun {
            request: h3::request(&authority, load.path, "nowait-bench", load.upload_bytes),
            load: *load,
            after,
            config: config()?,
            endpoint_config: Arc::default(),
            epoll,
            connections: Vec::new(),
            unsent: count,
            complete: 0,
            failed: 0,
            now: Instant::now(),
            batch: DatagramBatch::default(),
            buffer: Vec::new(),
        };
        for _ in 0..load.connections {
            run.connect().map_err(|error| format!("connecting: {error}"))?;
        }
        Ok(run)
    }

    /// Begins a connection.
    fn connect(&mut self) -> io::Result<()> {
        let index = self.connections.len();
        let connection = self.new_connection(index)?;
        self.connections.push(connection);
        self.flush(index)
    }

    fn new_connection(&self, index: usize) -> io::Result<QuicConnection> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(self.load.target)?;
        socket.set_nonblocking(true)?;
        udp::prepare(&socket, false)?;
        udp::raise_buffers(&socket, SOCKET_BYTES)?;
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &socket, data, EventFlags::IN)?;
        let mut endpoint = Endpoint::new(self.endpoint_config.clone(), None, true, None);
        let begun =
            endpoint.connect(Instant::now(), self.config.clone(), self.load.target, "localhost");
        let (handle, connection) = begun.map_err(io::Error::other)?;
        Ok(QuicConnection {
            socket,
            endpoint,
            handle,
            connection,
            responses: HashMap::new(),
            uploads: HashMap::new(),
            is_ready: false,
            has_asked: false,
            timeout: None,
        })
    }

    /// The number of responses within some time; `edge` is called when it begins and when it ends.
    fn measure(
        &mut self,
        warm_up: Duration,
        length: Duration,
        mut edge: impl FnMut(),
    ) -> Result<u64, String> {
        let end = Instant::now() + warm_up;
        self.until(|run| run.now >= end)?;
        edge();
        let (before, end) = (self.complete, Instant::now() + length);
        self.until(|run| run.now >= end)?;
        edge();
        self.close_all();
        Ok(self.complete - before)
    }

    /// Serves events until a condition holds.
    fn until(&mut self, ends: impl Fn(&QuicRun<'_>) -> bool) -> Result<(), String> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut progress = (self.progress(), Instant::now());
        while !ends(self) {
            let timeout = self.time_out()?;
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("epoll_wait: {error}")),
            }
            self.now = Instant::now();
            for event in events.drain(..) {
                self.ready(event.data.u64() as usize)?;
            }
            let here = self.progress();
            if here != progress.0 || self.after == After::Stay {
                progress = (here, self.now);
            } else if self.now - progress.1 > STALLED {
                return Err("no response came".to_owned());
            }
        }
        Ok(())
    }

    /// Changes as long as something comes.
    fn progress(&self) -> u64 {
        let bytes = |connection: &QuicConnection| {
            let readers = connection.responses.values().map(|reader| reader.body_bytes);
            readers.sum::<u64>() + connection.uploads.values().sum::<u64>()
        };
        self.complete + self.connections.iter().map(bytes).sum::<u64>()
    }

    /// Lets time have its effects; returns how long nothing else will happen.
    fn time_out(&mut self) -> Result<rustix::time::Timespec, String> {
        const WAIT_MAX: Duration = Duration::from_millis(5);
        let now = Instant::now();
        let mut next = now + WAIT_MAX;
        for index in 0..self.connections.len() {
            match self.connections[index].timeout {
                Some(at) if at <= now => {
                    self.connections[index].connection.handle_timeout(now);
                    self.now = now;
                    self.settle(index)?;
                }
                Some(at) => next = next.min(at),
                None => {}
            }
        }
        let wait = next.saturating_duration_since(Instant::now());
        Ok(rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) })
    }

    /// Receives what has come for a connection.
    fn ready(&mut self, index: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        loop {
            match self.batch.receive(&connection.socket) {
                Ok(more) => {
                    connection.take(&self.batch, self.now, &mut self.buffer);
                    if !more {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("receiving: {error}")),
            }
        }
        self.settle(index)
    }

    /// Lets a connection have the effects of what has happened.
    fn settle(&mut self, index: usize) -> Result<(), String> {
        let mut complete = 0;
        let connection = &mut self.connections[index];
        while let Some(event) = connection.connection.poll() {
            match event {
                Event::Connected => {
                    connection.is_ready = true;
                    connection.begin();
                }
                Event::ConnectionLost { reason: ConnectionError::LocallyClosed } => {}
                Event::ConnectionLost { .. } if self.after != After::Again => {
                    self.failed += 1;
                    return self.connect_again(index);
                }
                Event::ConnectionLost { reason } => return Err(format!("lost: {reason}")),
                Event::Stream(StreamEvent::Readable { id }) => {
                    complete += u64::from(connection.read(id, self.load.body_bytes)?);
                }
                Event::Stream(StreamEvent::Writable { id }) => connection.upload(id)?,
                Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                    return Err(format!("{id} was stopped: {error_code}"));
                }
                _ => {}
            }
        }
        self.complete += complete;
        if complete > 0 && self.after == After::Connect {
            return self.connect_again(index);
        }
        self.ask(index)?;
        self.flush(index).map_err(|error| format!("sending: {error}"))
    }

    /// Replaces a connection.
    fn connect_again(&mut self, index: usize) -> Result<(), String> {
        let failed = |error: io::Error| format!("connecting: {error}");
        let now = Instant::now();
        self.connections[index].connection.close(now, VarInt::from_u32(0x100), "".into());
        self.flush(index).map_err(failed)?;
        self.connections[index] = self.new_connection(index).map_err(failed)?;
        self.flush(index).map_err(failed)
    }

    /// Sends as many requests as there may be at a time.
    fn ask(&mut self, index: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let streams = self.load.streams;
        while connection.is_ready && connection.responses.len() < streams && self.unsent > 0 {
            if self.after == After::Stay && std::mem::replace(&mut connection.has_asked, true) {
                break;
            }
            let Some(id) = connection.connection.streams().open(Dir::Bi) else { break };
            self.unsent -= 1;
            let mut stream = connection.connection.send_stream(id);
            let written = stream.write(&self.request).map_err(|error| error.to_string())?;
            if written < self.request.len() {
                return Err("the server's window is smaller than a request".to_owned());
            }
            match self.load.upload_bytes {
                None => stream.finish().map_err(|error| error.to_string())?,
                Some(bytes) => drop(connection.uploads.insert(id, bytes)),
            }
            connection.responses.insert(id, ResponseReader::default());
            connection.upload(id)?;
        }
        Ok(())
    }

    /// Sends what a connection has.
    fn flush(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        let now = Instant::now();
        loop {
            let mtu = usize::from(connection.connection.current_mtu());
            let datagrams = (SEND_BYTES_MAX / mtu).clamp(1, SEGMENTS_MAX);
            self.buffer.clear();
            let transmit = connection.connection.poll_transmit(now, datagrams, &mut self.buffer);
            let Some(transmit) = transmit else { break };
            let train = SendTrain {
                to: transmit.destination,
                local: None,
                ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
                segment: transmit.segment_size.and_then(|size| u16::try_from(size).ok()),
            };
            let data = &self.buffer[..transmit.size];
            loop {
                match udp::send(&connection.socket, data, train) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let mut fds = [rustix::event::PollFd::new(
                            &connection.socket,
                            rustix::event::PollFlags::OUT,
                        )];
                        rustix::event::poll(&mut fds, None)?;
                    }
                    // A probe of the path's size, or a server that ends.
                    Ok(()) | Err(_) => break,
                }
            }
        }
        while let Some(event) = connection.connection.poll_endpoint_events() {
            if let Some(event) = connection.endpoint.handle_event(connection.handle, event) {
                connection.connection.handle_event(event);
            }
        }
        connection.timeout = connection.connection.poll_timeout();
        Ok(())
    }

    fn close_all(&mut self) {
        for index in 0..self.connections.len() {
            let now = Instant::now();
            self.connections[index].connection.close(now, VarInt::from_u32(0x100), "".into());
            // The server would find out by its timeout.
            let _ = self.flush(index);
        }
    }
}

impl QuicConnection {
    /// Takes a batch of datagrams.
    fn take(&mut self, batch: &DatagramBatch, now: Instant, buffer: &mut Vec<u8>) {
        for train in batch.trains() {
            for datagram in train.data.chunks(train.segment.max(1)) {
                buffer.clear();
                let (data, ecn) = (BytesMut::from(datagram), EcnCodepoint::from_bits(train.ecn));
                let event = self.endpoint.handle(now, train.from, None, ecn, data, buffer);
                if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                    self.connection.handle_event(event);
                }
            }
        }
    }

    /// Opens the control stream.
    fn begin(&mut self) {
        if let Some(control) = self.connection.streams().open(Dir::Uni) {
            // There is room for three bytes, or the server stalls, which is noticed.
            let _ = self.connection.send_stream(control).write(&h3::CONTROL_STREAM);
        }
    }

    /// Reads what has come of a response; returns whether it is complete.
    fn read(&mut self, id: StreamId, body_bytes: u64) -> Result<bool, String> {
        // The server's own streams say nothing that is needed.
        let Some(reader) = self.responses.get_mut(&id) else { return Ok(false) };
        let mut stream = self.connection.recv_stream(id);
        let mut chunks = stream.read(true).map_err(|error| error.to_string())?;
        let ended = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => reader.receive(&chunk.bytes)?,
                Ok(None) => break true,
                Err(ReadError::Blocked) => break false,
                Err(error) => return Err(format!("{id}: {error}")),
            }
        };
        let _ = chunks.finalize();
        if ended {
            reader.end(body_bytes)?;
            self.responses.remove(&id);
        }
        Ok(ended)
    }

    /// Continues an upload.
    fn upload(&mut self, id: StreamId) -> Result<(), String> {
        let Some(left) = self.uploads.get_mut(&id) else { return Ok(()) };
        let mut stream = self.connection.send_stream(id);
        while *left > 0 {
            let here = (*left).min(ZEROS.len() as u64) as usize;
            match stream.write(&ZEROS[..here]) {
                Ok(written) => *left -= written as u64,
                Err(WriteError::Blocked) => return Ok(()),
                Err(error) => return Err(format!("{id}: {error}")),
            }
        }
        self.uploads.remove(&id);
        stream.finish().map_err(|error| error.to_string())
    }
}
