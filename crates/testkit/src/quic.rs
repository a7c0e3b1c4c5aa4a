//! A blocking QUIC client over `quinn-proto`: one connection, and any number of streams of bytes.
//!
//! The connection lives while the test calls it: every call that waits receives, answers and sends. Bytes of streams
//! are collected as they come, unless the test says otherwise ([`Quic::take_nothing`]).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event, IdleTimeout,
    ReadError, StreamEvent, TokenStore, TransportConfig, WriteError,
};
pub use quinn_proto::{ConnectionError, Dir, StreamId, VarInt};

use crate::wait::{self, PATIENCE};

/// Longest wait for a datagram within a step.
const STEP: Duration = Duration::from_millis(20);

/// The largest datagram.
const DATAGRAM_BYTES: usize = 65_535;

/// What a client offers and permits.
#[derive(Clone, Debug)]
pub struct QuicOptions {
    /// TLS, with the application protocol. Clients with the same one resume sessions.
    pub tls: Arc<rustls::ClientConfig>,
    /// The server's name.
    pub name: String,
    /// The window of each stream, in bytes.
    pub stream_window: u32,
    /// Unidirectional streams that the server may open.
    pub uni_streams: u32,
    /// The largest datagrams, in bytes.
    pub mtu: u16,
    /// The idle timeout that the client states.
    pub idle_timeout: Duration,
    /// Proves the client's address to a server that knows it. Clients with the same store share its tokens.
    pub tokens: Arc<Tokens>,
    /// Datagrams that are sent are kept ([`Quic::sent`]).
    pub records: bool,
}

/// Tokens of servers, each of which proves the client's address once (RFC 9000, 8.1.3).
#[derive(Debug, Default)]
pub struct Tokens(Mutex<Vec<Bytes>>);

impl Tokens {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl TokenStore for Tokens {
    fn insert(&self, _: &str, token: Bytes) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(token);
    }

    fn take(&self, _: &str) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl QuicOptions {
    /// With this TLS, for the server `localhost`.
    pub fn new(tls: Arc<rustls::ClientConfig>) -> QuicOptions {
        QuicOptions {
            tls,
            name: "localhost".to_owned(),
            stream_window: 1 << 20,
            uni_streams: 16,
            mtu: 1452,
            idle_timeout: PATIENCE,
            tokens: Arc::default(),
            records: false,
        }
    }

    fn config(&self) -> ClientConfig {
        let tls = QuicClientConfig::try_from(self.tls.clone()).expect("TLS 1.3 is offered");
        let mut transport = TransportConfig::default();
        transport
            .max_idle_timeout(Some(IdleTimeout::try_from(self.idle_timeout).expect("short")))
            .stream_receive_window(VarInt::from_u32(self.stream_window))
            .max_concurrent_uni_streams(VarInt::from_u32(self.uni_streams))
            .initial_mtu(self.mtu)
            .min_mtu(self.mtu.min(1200))
            .mtu_discovery_config(None);
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport)).token_store(self.tokens.clone());
        config
    }
}

/// What has come on a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamInput {
    /// All bytes, in order.
    pub bytes: Vec<u8>,
    /// The server has sent everything.
    pub ended: bool,
    /// The code with which the server has reset it.
    pub reset: Option<u64>,
    /// The code with which the server has refused to read more of it.
    pub stopped: Option<u64>,
    /// The server has acknowledged everything that was sent, and its end.
    pub acknowledged: bool,
    /// Bytes are there that were not taken.
    readable: bool,
}

/// A connection to a server.
pub struct Quic {
    socket: UdpSocket,
    server: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: quinn_proto::Connection,
    streams: BTreeMap<StreamId, StreamInput>,
    connected: bool,
    lost: Option<ConnectionError>,
    takes: bool,
    /// Datagrams that are not sent, as if the network had lost them.
    loses: bool,
    /// As many of those that come are lost.
    misses: usize,
    /// Datagrams that were sent, if they are kept.
    sent: Option<Vec<Vec<u8>>>,
    received: Vec<u8>,
}

impl Quic {
    /// Begins a connection to a port of 127.0.0.1; does not wait for it.
    ///
    /// # Panics
    /// Without a socket.
    pub fn begin(port: u16, options: &QuicOptions) -> Quic {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let (handle, connection) = endpoint
            .connect(Instant::now(), options.config(), server, &options.name)
            .expect("usable settings");
        let mut quic = Quic {
            socket: socket(),
            server,
            endpoint,
            handle,
            connection,
            streams: BTreeMap::new(),
            connected: false,
            lost: None,
            takes: true,
            loses: false,
            misses: 0,
            sent: options.records.then(Vec::new),
            received: vec![0; DATAGRAM_BYTES],
        };
        quic.send();
        quic
    }

    /// Connects to a port of 127.0.0.1.
    ///
    /// # Errors
    /// The reason why there is no connection.
    ///
    /// # Panics
    /// If that takes too long.
    #[track_caller]
    pub fn connect(port: u16, options: &QuicOptions) -> Result<Quic, ConnectionError> {
        let mut quic = Quic::begin(port, options);
        quic.until("a handshake", |quic| quic.connected || quic.lost.is_some());
        match quic.lost.take() {
            Some(lost) => Err(lost),
            None => Ok(quic),
        }
    }

    /// Whether data can be sent before the handshake is complete.
    pub fn has_early_data(&self) -> bool {
        self.connection.has_0rtt()
    }

    /// Whether the server has accepted early data.
    pub fn is_early_data_accepted(&self) -> bool {
        self.connection.accepted_0rtt()
    }

    /// Whether the handshake is complete.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// The reason why the connection has ended.
    pub fn lost(&self) -> Option<&ConnectionError> {
        self.lost.as_ref()
    }

    /// The code with which the server's application has closed the connection.
    pub fn close_code(&self) -> Option<u64> {
        match &self.lost {
            Some(ConnectionError::ApplicationClosed(close)) => Some(close.error_code.into_inner()),
            _ => None,
        }
    }

    /// The facts of the TLS session: the certificates of the server, in DER.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        let identity = self.connection.crypto_session().peer_identity();
        let chain = identity
            .and_then(|chain| chain.downcast::<Vec<rustls::pki_types::CertificateDer<'_>>>().ok());
        chain.map(|chain| chain.iter().map(|one| one.to_vec()).collect()).unwrap_or_default()
    }

    /// What has come on a stream.
    pub fn input(&self, stream: StreamId) -> StreamInput {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    /// The bytes that have come on a stream.
    pub fn bytes(&self, stream: StreamId) -> &[u8] {
        self.streams.get(&stream).map_or(&[], |input| &input.bytes)
    }

    /// The streams with input.
    pub fn streams(&self) -> Vec<StreamId> {
        self.streams.keys().copied().collect()
    }

    /// Leaves input untaken from now on, so that windows close.
    pub fn take_nothing(&mut self) {
        self.takes = false;
    }

    /// Takes input again.
    pub fn take(&mut self) {
        self.takes = true;
        let readable = self.streams.iter().filter(|(_, input)| input.readable);
        let ids: Vec<_> = readable.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.read(id));
        self.send();
    }

    /// Loses everything that is sent from now on, or no more.
    pub fn lose(&mut self, loses: bool) {
        self.loses = loses;
    }

    /// Loses the next datagrams that come.
    pub fn miss(&mut self, number: usize) {
        self.misses = number;
    }

    /// The datagrams that were sent so far. None unless [`QuicOptions::records`] says so.
    pub fn sent(&self) -> &[Vec<u8>] {
        self.sent.as_deref().unwrap_or_default()
    }

    /// Opens a stream.
    ///
    /// # Panics
    /// If the server permits no more for too long.
    #[track_caller]
    pub fn open(&mut self, dir: Dir) -> StreamId {
        for _ in 0..2 {
            if let Some(id) = self.try_open(dir) {
                return id;
            }
            let mut opened = None;
            self.until("a stream", |quic| {
                opened = quic.try_open(dir);
                opened.is_some() || quic.lost.is_some()
            });
            if let Some(id) = opened {
                return id;
            }
        }
        panic!("no stream: {:?}", self.lost);
    }

    /// Opens a stream, if the server permits it.
    pub fn try_open(&mut self, dir: Dir) -> Option<StreamId> {
        self.connection.streams().open(dir)
    }

    /// Sends bytes on a stream.
    ///
    /// # Panics
    /// If the server does not let them pass for too long, or the stream is closed.
    #[track_caller]
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() {
            let written = self.try_write(stream, left);
            left = &left[written..];
            if written == 0 {
                assert!(self.lost.is_none(), "the connection has ended: {:?}", self.lost);
                let mut room = 0;
                self.until("a window", |quic| {
                    room = quic.try_write(stream, &left[..left.len().min(1)]);
                    room > 0 || quic.lost.is_some() || quic.input(stream).stopped.is_some()
                });
                if room == 0 {
                    return;
                }
                left = &left[room..];
            }
        }
        self.send();
    }

    /// Sends bytes and the end of a stream, in one packet if they fit.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[track_caller]
    pub fn write_last(&mut self, stream: StreamId, bytes: &[u8]) {
        let written = self.connection.send_stream(stream).write(bytes).unwrap_or_default();
        if written < bytes.len() {
            self.write(stream, &bytes[written..]);
        }
        self.finish(stream);
    }

    /// Sends as many bytes as the windows permit. Zero if none, or the server reads no more.
    pub fn try_write(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        let written = match self.connection.send_stream(stream).write(bytes) {
            Ok(written) => written,
            Err(WriteError::Stopped(code)) => {
                self.streams.entry(stream).or_default().stopped = Some(code.into_inner());
                0
            }
            Err(WriteError::Blocked | WriteError::ClosedStream) => 0,
        };
        self.send();
        written
    }

    /// Ends a stream.
    pub fn finish(&mut self, stream: StreamId) {
        // Stopped by the server meanwhile.
        let _ = self.connection.send_stream(stream).finish();
        self.send();
    }

    /// Gives a stream up.
    pub fn reset(&mut self, stream: StreamId, code: u64) {
        let code = VarInt::from_u64(code).expect("62 bits");
        let _ = self.connection.send_stream(stream).reset(code);
        self.send();
    }

    /// Reads no more of a stream.
    pub fn stop(&mut self, stream: StreamId, code: u64) {
        let code = VarInt::from_u64(code).expect("62 bits");
        let _ = self.connection.recv_stream(stream).stop(code);
        self.send();
    }

    /// Closes the connection with a code of the application.
    pub fn close(&mut self, code: u64) {
        let code = VarInt::from_u64(code).expect("62 bits");
        self.connection.close(Instant::now(), code, Bytes::new());
        self.send();
    }

    /// Continues from another port, as after a NAT has forgotten the first one. A packet tells the server, which otherwise
    /// could not reach the client.
    pub fn rebind(&mut self) {
        self.socket = socket();
        self.connection.ping();
        self.send();
    }

    /// Continues from another port, and says so (RFC 9000, 9).
    pub fn migrate(&mut self) {
        self.socket = socket();
        self.connection.local_address_changed();
        self.send();
    }

    /// Replaces the keys (RFC 9001, 6).
    pub fn update_keys(&mut self) {
        self.connection.force_key_update();
        self.connection.ping();
        self.send();
    }

    /// Sends a datagram that is none of the connection's.
    pub fn send_datagram(&self, bytes: &[u8]) {
        // Whether the server is there shows later.
        let _ = self.socket.send_to(bytes, self.server);
    }

    /// The client's port.
    ///
    /// # Panics
    /// Never: the socket is bound.
    pub fn port(&self) -> u16 {
        self.socket.local_addr().expect("a bound socket").port()
    }

    /// Continues until a condition holds.
    ///
    /// # Panics
    /// If that takes too long.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Quic) -> bool) {
        wait::until(what, PATIENCE, || {
            if holds(self) {
                return Some(());
            }
            self.step();
            holds(self).then_some(())
        });
    }

    /// Continues for a time, such as to see that nothing comes.
    pub fn for_time(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step();
        }
    }

    /// Receives what comes within a moment, and answers.
    pub fn step(&mut self) {
        self.send();
        let now = Instant::now();
        let due = self.connection.poll_timeout();
        let wait = due.map_or(STEP, |due| due.saturating_duration_since(now)).min(STEP);
        // Zero would mean no timeout.
        let wait = wait.max(Duration::from_millis(1));
        self.socket.set_read_timeout(Some(wait)).expect("a UDP socket");
        let mut buffer = std::mem::take(&mut self.received);
        let mut first = true;
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            self.receive(&buffer[..len], from);
            if first {
                self.socket.set_nonblocking(true).expect("a UDP socket");
                first = false;
            }
        }
        if !first {
            self.socket.set_nonblocking(false).expect("a UDP socket");
        }
        self.received = buffer;
        let now = Instant::now();
        if self.connection.poll_timeout().is_some_and(|due| due <= now) {
            self.connection.handle_timeout(now);
        }
        self.look();
        self.send();
    }

    fn receive(&mut self, bytes: &[u8], from: SocketAddr) {
        if self.misses > 0 {
            self.misses -= 1;
            return;
        }
        let mut answer = Vec::new();
        let data = BytesMut::from(bytes);
        let event = self.endpoint.handle(Instant::now(), from, None, None, data, &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) if handle == self.handle => {
                self.connection.handle_event(event);
            }
            Some(DatagramEvent::Response(transmit)) => {
                let _ = self.socket.send_to(&answer[..transmit.size], transmit.destination);
            }
            _ => {}
        }
    }

    /// Handles what happened.
    fn look(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = self.connection.streams().accept(dir) {
                        self.streams.entry(id).or_default();
                        self.read(id);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read(id),
                Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                    self.streams.entry(id).or_default().stopped = Some(error_code.into_inner());
                }
                Event::Stream(StreamEvent::Finished { id }) => {
                    self.streams.entry(id).or_default().acknowledged = true;
                }
                _ => {}
            }
        }
    }

    fn read(&mut self, id: StreamId) {
        let input = self.streams.entry(id).or_default();
        input.readable = !self.takes;
        if !self.takes {
            return;
        }
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => input.bytes.extend_from_slice(&chunk.bytes),
                Ok(None) => {
                    input.ended = true;
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(ReadError::Reset(code)) => {
                    input.reset = Some(code.into_inner());
                    break;
                }
            }
        }
        // Whether windows have to be announced: the connection is asked for datagrams anyway.
        let _ = chunks.finalize();
    }

    /// Sends everything that is ready.
    fn send(&mut self) {
        let mut datagram = Vec::new();
        loop {
            datagram.clear();
            let transmit = self.connection.poll_transmit(Instant::now(), 1, &mut datagram);
            let Some(transmit) = transmit else { return };
            if self.loses {
                continue;
            }
            let bytes = &datagram[..transmit.size];
            // A refused or full socket is as good as a lossy network.
            let _ = self.socket.send_to(bytes, transmit.destination);
            if let Some(sent) = &mut self.sent {
                sent.push(bytes.to_vec());
            }
        }
    }
}

fn socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP socket")
}
