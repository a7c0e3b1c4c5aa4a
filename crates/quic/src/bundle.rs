//! The state of one connection in the library: an endpoint of its own, and the connection.
//!
//! They are together so that they can move: to the pool for the steps of a handshake that take long, and to another
//! worker. Sans-IO: datagrams go in, datagrams come out.
//!
//! Called by handshakes and by connections. Never waits, never reads a clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::{
    AcceptError, ConnectError, Connection, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointConfig, Event, ServerConfig, StreamId, TokenStore, Transmit, ValidationTokenConfig,
    WriteError,
};

use crate::connection_id::{Home, IdGenerator};
use crate::crypto::{ClientSide, HandshakeState, ServerSide, VERSION};
use crate::datagram::Datagram;
use crate::keys::Keys;
use crate::settings::{SEND_AHEAD_BYTES, SEND_WINDOW_BYTES_MAX, SEND_WINDOW_BYTES_MIN, Settings};
use crate::tokens::{self, Judged};

/// The largest datagram that is accepted: any.
const UDP_PAYLOAD_MAX: u16 = 65_527;

/// The library's settings for an endpoint that makes IDs for this home.
pub(crate) fn endpoint_config(keys: &Keys, home: &Home) -> Arc<EndpointConfig> {
    let (key, home) = (keys.ids.clone(), home.clone());
    let mut seed = [0; 32];
    // The random numbers of a thread do not fail once they were prepared.
    let _ = aws_lc_rs::rand::fill(&mut seed);
    let mut config = EndpointConfig::new(keys.reset.clone());
    config
        .cid_generator(move || Box::new(IdGenerator { key: key.clone(), home: home.clone() }))
        .supported_versions(vec![VERSION])
        .rng_seed(Some(seed));
    let sized = config.max_udp_payload_size(UDP_PAYLOAD_MAX);
    debug_assert!(sized.is_ok(), "the size is within the RFC's bounds");
    Arc::new(config)
}

/// The library's settings for a server.
pub(crate) fn server_config(
    keys: &Keys,
    crypto: ServerSide,
    tokens: Arc<dyn quinn_proto::TokenLog>,
) -> ServerConfig {
    let mut validation = ValidationTokenConfig::default();
    validation.lifetime(tokens::LIFETIME).log(tokens).sent(tokens::SENT);
    let mut config = ServerConfig::new(Arc::new(crypto), keys.tokens.clone());
    config.validation_token_config(validation);
    config
}

/// A connection.
pub(crate) struct Bundle {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub(crate) connection: Connection,
    pub(crate) home: Home,
    send_window: u64,
    /// The window is closed, to learn when the peer has acknowledged everything.
    awaits_all: bool,
}

/// A client's connection that is not begun yet.
pub(crate) struct Beginning {
    pub(crate) keys: Arc<Keys>,
    pub(crate) home: Home,
    pub(crate) settings: Settings,
    pub(crate) crypto: ServerSide,
    pub(crate) state: Arc<HandshakeState>,
    /// The client has proved its address.
    pub(crate) validated: bool,
    pub(crate) dont_fragment: bool,
}

/// What else a client's connection needs.
pub(crate) struct ClientOptions {
    /// Tokens of servers that prove this side's address to them.
    pub(crate) tokens: Arc<dyn TokenStore>,
    pub(crate) dont_fragment: bool,
    pub(crate) now: Instant,
}

/// A beginning that led to nothing: the reason, and the last datagram, if there is one to send.
pub(crate) struct Failed {
    pub(crate) reason: String,
    pub(crate) last: Option<(Transmit, Vec<u8>)>,
}

impl Bundle {
    /// Begins the connection of a client, with its first datagram.
    pub(crate) fn accept(
        beginning: Beginning,
        first: Datagram,
        now: Instant,
    ) -> Result<Bundle, Box<Failed>> {
        let Beginning { keys, home, settings, crypto, validated, dont_fragment, .. } = beginning;
        let mut server = server_config(&keys, crypto, Judged::new(validated));
        server.transport_config(settings.transport());
        let config = endpoint_config(&keys, &home);
        let mut endpoint = Endpoint::new(config, Some(Arc::new(server)), dont_fragment, None);
        let mut buffer = Vec::new();
        let Datagram { data, from, local, ecn } = first;
        let event =
            endpoint.handle(now, from, local, EcnCodepoint::from_bits(ecn), data, &mut buffer);
        let incoming = match event {
            Some(DatagramEvent::NewConnection(incoming)) => incoming,
            Some(DatagramEvent::Response(transmit)) => {
                let reason = "first packet refused".to_owned();
                return Err(Box::new(Failed { reason, last: Some((transmit, buffer)) }));
            }
            Some(DatagramEvent::ConnectionEvent(..)) | None => {
                let reason = "first packet is unusable".to_owned();
                return Err(Box::new(Failed { reason, last: None }));
            }
        };
        match endpoint.accept(incoming, now, &mut buffer, None) {
            Ok((handle, connection)) => {
                let send_window = SEND_WINDOW_BYTES_MIN;
                Ok(Bundle { endpoint, handle, connection, home, send_window, awaits_all: false })
            }
            Err(AcceptError { cause, response }) => {
                let last = response.map(|transmit| (transmit, buffer));
                Err(Box::new(Failed { reason: cause.to_string(), last }))
            }
        }
    }

    /// Begins a connection as a client.
    pub(crate) fn connect(
        keys: &Keys,
        home: Home,
        peer: SocketAddr,
        server_name: &str,
        crypto: Arc<ClientSide>,
        settings: &Settings,
        options: ClientOptions,
    ) -> Result<Bundle, ConnectError> {
        let ClientOptions { tokens, dont_fragment, now } = options;
        let mut endpoint = Endpoint::new(endpoint_config(keys, &home), None, dont_fragment, None);
        let mut config = quinn_proto::ClientConfig::new(crypto);
        config.transport_config(settings.transport()).token_store(tokens);
        let (handle, connection) = endpoint.connect(now, config, peer, server_name)?;
        let send_window = SEND_WINDOW_BYTES_MIN;
        Ok(Bundle { endpoint, handle, connection, home, send_window, awaits_all: false })
    }

    /// Takes a datagram. Returns an answer that needs no state: to an ID that is not of this connection.
    pub(crate) fn receive(
        &mut self,
        datagram: Datagram,
        now: Instant,
    ) -> Option<(Transmit, Vec<u8>)> {
        let Datagram { data, from, local, ecn } = datagram;
        let mut buffer = Vec::new();
        let ecn = EcnCodepoint::from_bits(ecn);
        match self.endpoint.handle(now, from, local, ecn, data, &mut buffer)? {
            DatagramEvent::ConnectionEvent(_, event) => self.connection.handle_event(event),
            DatagramEvent::NewConnection(incoming) => self.endpoint.ignore(incoming),
            DatagramEvent::Response(transmit) => return Some((transmit, buffer)),
        }
        None
    }

    /// Lets both parts exchange their news. After whatever may have caused some.
    pub(crate) fn settle(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Option<Event> {
        self.connection.poll()
    }

    /// Writes the next datagrams into the buffer, at most this many.
    pub(crate) fn transmit(
        &mut self,
        datagrams_max: usize,
        buffer: &mut Vec<u8>,
        now: Instant,
    ) -> Option<Transmit> {
        self.follow_path();
        self.connection.poll_transmit(now, datagrams_max, buffer)
    }

    /// Sets what is kept of written data by what the path carries. What waits to be sent is little, so that it is still in
    /// the processor's cache then.
    fn follow_path(&mut self) {
        if self.awaits_all {
            return;
        }
        let window = self.connection.congestion_state().window();
        let ahead = (window / 8).max(SEND_AHEAD_BYTES);
        let wanted = (window + ahead).clamp(SEND_WINDOW_BYTES_MIN, SEND_WINDOW_BYTES_MAX);
        // Small changes are not worth waking those who write; but a window that lags must exceed what may be in flight.
        if wanted > self.send_window + self.send_window / 16 || wanted < self.send_window / 2 {
            self.send_window = wanted;
            self.connection.set_send_window(wanted);
        }
    }

    /// Whether the peer has acknowledged everything that was written to streams. Otherwise this one of our streams, which
    /// is open, becomes writable when it has.
    pub(crate) fn is_acknowledged(&mut self, stream: StreamId) -> bool {
        // The library does not say. But this window lets it take a byte only when it keeps none for another attempt.
        self.awaits_all = true;
        self.connection.set_send_window(1);
        !matches!(self.connection.send_stream(stream).write(&[]), Err(WriteError::Blocked))
    }

    /// Something more is to be written.
    pub(crate) fn open_window(&mut self) {
        if std::mem::take(&mut self.awaits_all) {
            self.connection.set_send_window(self.send_window);
        }
    }

    /// When time has an effect next.
    pub(crate) fn timeout(&mut self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    /// Lets time have its effects.
    pub(crate) fn time_out(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
    }
}
