//! TLS within QUIC (RFC 9001): handshake messages without records, and keys for packets.
//!
//! QUIC carries the messages in CRYPTO frames and protects its packets itself; rustls' connections for QUIC do the
//! rest. A client's hello is collected first, as over TCP: [`Acceptor`](crate::Acceptor) takes it in the form of records
//! ([`hello_records`]), and [`Hello::begin_quic`] makes of it what starts the session once the transport's parameters
//! are known. What is known of the session afterwards shows a [`Session`] that seals nothing.
//!
//! Called by `nowait_quic` alone. Never sees a packet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{
    ClientConnection, Connection, DirectionalKeys, KeyChange, Keys, PacketKeySet, Secrets,
    ServerConnection, Suite, Version,
};
use rustls::{AlertDescription, CommonState, ServerConfig};

use crate::acceptor::{HELLO_BYTES_MAX, Hello, offer_of};
use crate::client::TlsClient;
use crate::client_offer::sigalg_name;
use crate::error::Error;
use crate::established_session::SessionFacts;
use crate::server::{ClientCertificates, TlsServer};
use crate::session::{NO_IDENTITY, Session};
use crate::transcript::{self, MaskedHello};
use crate::verify::{self, Distrust, Role};

/// Plaintext of a record, at most (RFC 8446, 5.1).
const RECORD_BYTES: usize = 16 * 1024;

/// The header of a record with a part of a hello, but for its length.
const RECORD_HEAD: [u8; 3] = [22, 3, 1];

/// Bytes of a record's header, and of a handshake message's.
const HEADER_BYTES: usize = 5;
const MESSAGE_HEADER_BYTES: usize = 4;

/// Early data of a QUIC connection is bounded by the windows of its streams (RFC 9001, 4.6.1).
const EARLY_DATA_BYTES: u32 = u32::MAX;

/// The suite of Initial packets (RFC 9001, 5.2).
static INITIAL: LazyLock<Suite> = LazyLock::new(|| {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    suite.expect("AWS-LC has the suite, and its keys for QUIC")
});

/// The keys of Initial packets for a server or a client; `id`: the destination of the client's first packet.
pub fn initial_keys(id: &[u8], is_server: bool) -> Keys {
    let side = if is_server { rustls::Side::Server } else { rustls::Side::Client };
    INITIAL.keys(id, side, Version::V1)
}

/// A handshake message in records, as [`Acceptor`](crate::Acceptor) takes it.
pub fn hello_records(message: &[u8]) -> Vec<u8> {
    let mut records = Vec::with_capacity(message.len() + HEADER_BYTES);
    for part in message.chunks(RECORD_BYTES) {
        records.extend_from_slice(&RECORD_HEAD);
        records.extend_from_slice(&(part.len() as u16).to_be_bytes());
        records.extend_from_slice(part);
    }
    records
}

/// The message of records made by [`hello_records`].
fn message_of(records: &[u8]) -> Vec<u8> {
    let chunks = records.chunks(RECORD_BYTES + HEADER_BYTES);
    chunks.flat_map(|record| record.get(HEADER_BYTES..).unwrap_or_default()).copied().collect()
}

/// The settings of a server for QUIC, from those for TCP. `None`: it does not speak QUIC.
pub(crate) fn server_config(
    config: &ServerConfig,
    alpn: &[Vec<u8>],
    tls13: bool,
) -> Option<Arc<ServerConfig>> {
    if alpn.is_empty() || !tls13 {
        return None;
    }
    let mut config = config.clone();
    config.alpn_protocols = alpn.to_vec();
    config.max_fragment_size = None;
    config.enable_secret_extraction = false;
    if config.max_early_data_size > 0 {
        config.max_early_data_size = EARLY_DATA_BYTES;
    }
    Some(Arc::new(config))
}

/// A server's session before the transport's parameters are known.
pub struct QuicStart {
    config: Arc<ServerConfig>,
    slow: bool,
    hello: ExpectedHello,
    client_certificates: Option<Arc<ClientCertificates>>,
    facts: Arc<QuicFacts>,
}

/// The hello by which the server was chosen: the handshake goes on with no other.
struct ExpectedHello {
    message: Vec<u8>,
    /// As the client has sent it, if it was changed for rustls.
    sent: Option<(MaskedHello, Vec<u8>)>,
    at: usize,
}

/// What is known of a session, for [`Session`] and for the transport.
pub(crate) struct QuicFacts {
    pub(crate) handshaking: AtomicBool,
    /// Known from the server's first flight on, for requests in early data.
    pub(crate) early: OnceLock<SessionFacts>,
    pub(crate) complete: OnceLock<CompleteFacts>,
}

/// What is known when the handshake is complete.
pub(crate) struct CompleteFacts {
    pub(crate) session: SessionFacts,
    pub(crate) client_sigalg: Option<&'static str>,
    pub(crate) trust: Option<Result<(), Distrust>>,
    pub(crate) path: Vec<CertificateDer<'static>>,
}

impl QuicFacts {
    fn new() -> Arc<QuicFacts> {
        let handshaking = AtomicBool::new(true);
        Arc::new(QuicFacts { handshaking, early: OnceLock::new(), complete: OnceLock::new() })
    }

    /// The newest facts.
    pub(crate) fn session(&self) -> Option<&SessionFacts> {
        self.complete.get().map(|complete| &complete.session).or(self.early.get())
    }
}

impl Hello {
    /// Begins a session within QUIC. The hello came as [`hello_records`].
    ///
    /// # Errors
    /// The server does not speak QUIC.
    pub fn begin_quic(&self, server: &TlsServer) -> Result<(QuicStart, Session), Error> {
        let Some(config) = server.quic.clone() else {
            return Err(Error::Settings("QUIC is not spoken".to_owned()));
        };
        let server_name = self.server_name();
        let (identity, sigalg) = offer_of(self, server);
        let slow = identity.is_none_or(|identity| identity.kind.is_slow());
        let facts = QuicFacts::new();
        let session = Session::quic(facts.clone(), server_name, sigalg);
        let (records, hidden) = self.parts();
        let message = message_of(records);
        let sent = hidden.map(|hidden| {
            let mut sent = Vec::with_capacity(message.len());
            let whole = std::slice::from_ref(hidden);
            transcript::with(whole, || {
                transcript::restored(&message, |part| sent.extend_from_slice(part));
            });
            (hidden.clone(), sent)
        });
        let hello = ExpectedHello { message, sent, at: 0 };
        let client_certificates = server.client_certificates.clone();
        Ok((QuicStart { config, slow, hello, client_certificates, facts }, session))
    }
}

impl QuicStart {
    /// Whether the first step takes long: it needs a large private key.
    pub fn is_slow(&self) -> bool {
        self.slow
    }

    /// The session, with the transport's parameters of this side.
    ///
    /// # Errors
    /// The server's settings exclude each other.
    pub fn session(self, params: Vec<u8>) -> Result<QuicSession, Error> {
        let connection = ServerConnection::new(self.config, Version::V1, params)?;
        Ok(QuicSession {
            inner: Connection::Server(connection),
            next: None,
            hidden: self.hello.sent.iter().map(|(hidden, _)| hidden.clone()).collect(),
            expected: Some(Box::new(self.hello)),
            second: Vec::new(),
            slow: self.slow,
            has_flight: false,
            client_certificates: self.client_certificates,
            facts: self.facts,
        })
    }
}

impl TlsClient {
    /// Begins a session within QUIC with the server of this name or address.
    ///
    /// # Errors
    /// The name is invalid, or TLS 1.3 is excluded.
    pub fn connect_quic(
        &self,
        name: &str,
        params: Vec<u8>,
    ) -> Result<(QuicSession, Session), Error> {
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_| Error::Settings("invalid server name".to_owned()))?;
        let connection = ClientConnection::new(self.quic_config(), Version::V1, name, params)?;
        let facts = QuicFacts::new();
        let session = Session::quic(facts.clone(), None, None);
        let session_of_transport = QuicSession {
            inner: Connection::Client(connection),
            next: None,
            expected: None,
            hidden: Vec::new(),
            second: Vec::new(),
            slow: false,
            has_flight: false,
            client_certificates: None,
            facts,
        };
        Ok((session_of_transport, session))
    }
}

/// A failed handshake.
#[derive(Debug)]
pub struct QuicFailure {
    /// The TLS alert that tells the peer.
    pub alert: u8,
    /// The reason.
    pub error: Error,
}

/// The TLS session of a QUIC connection.
pub struct QuicSession {
    inner: Connection,
    next: Option<Secrets>,
    /// The hello that is to come, until it has.
    expected: Option<Box<ExpectedHello>>,
    /// Hellos of the client that were changed for rustls.
    hidden: Vec<MaskedHello>,
    /// The beginning of a second hello, if the first one was changed.
    second: Vec<u8>,
    slow: bool,
    /// The server's first flight was made.
    has_flight: bool,
    client_certificates: Option<Arc<ClientCertificates>>,
    facts: Arc<QuicFacts>,
}

impl QuicSession {
    /// Takes handshake messages, or parts of them, of one encryption level.
    ///
    /// # Errors
    /// The handshake has failed.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), QuicFailure> {
        let expected = self.expect(bytes)?;
        let Self { inner, hidden, .. } = self;
        let _ = verify::take_verified();
        let read = transcript::with(hidden, || inner.read_hs(expected.as_deref().unwrap_or(bytes)));
        if let Err(error) = read {
            return Err(self.failure(error));
        }
        let client_sigalg = verify::take_verified().and_then(sigalg_name);
        self.note_progress(client_sigalg);
        Ok(())
    }

    /// The bytes for rustls, if they differ from those of the client.
    fn expect(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, QuicFailure> {
        let Some(hello) = &mut self.expected else {
            let is_second = !self.hidden.is_empty() && !self.has_flight;
            return if is_second { self.hide_second(bytes) } else { Ok(None) };
        };
        let end = (hello.at + bytes.len()).min(hello.message.len());
        let sent = hello.sent.as_ref().map_or(&hello.message, |(_, sent)| sent);
        let (of_hello, behind) = bytes.split_at(end - hello.at);
        if sent[hello.at..end] != *of_hello {
            const ILLEGAL_PARAMETER: u8 = 47;
            let error = Error::State("the client's hello has changed");
            return Err(QuicFailure { alert: ILLEGAL_PARAMETER, error });
        }
        let changed = hello.sent.is_some();
        let passed = changed.then(|| [&hello.message[hello.at..end], behind].concat());
        hello.at = end;
        if end == hello.message.len() {
            self.expected = None;
        }
        Ok(passed)
    }

    /// Collects the client's second hello, which the server has requested, and changes it as the first one.
    fn hide_second(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, QuicFailure> {
        self.second.extend_from_slice(bytes);
        if self.second.len() > HELLO_BYTES_MAX {
            const ILLEGAL_PARAMETER: u8 = 47;
            return Err(QuicFailure { alert: ILLEGAL_PARAMETER, error: Error::TooLong });
        }
        let announced = self.second.first_chunk().map(|[_, high, middle, low]| {
            MESSAGE_HEADER_BYTES + u32::from_be_bytes([0, *high, *middle, *low]) as usize
        });
        if announced.is_none_or(|len| self.second.len() < len) {
            return Ok(Some(Vec::new()));
        }
        let mut records = hello_records(&std::mem::take(&mut self.second));
        self.hidden.extend(transcript::hide(&mut records).map(|(hidden, _)| hidden));
        Ok(Some(message_of(&records)))
    }

    fn failure(&self, error: rustls::Error) -> QuicFailure {
        const HANDSHAKE_FAILURE: AlertDescription = AlertDescription::HandshakeFailure;
        let lacks_identity = matches!(&error, rustls::Error::General(text) if text == NO_IDENTITY);
        let alert = match self.inner.alert() {
            // rustls reports a missing certificate of the server; OpenSSL and the RFC treat that as no parameters
            // in common.
            _ if lacks_identity => HANDSHAKE_FAILURE,
            Some(alert) => alert,
            None => AlertDescription::InternalError,
        };
        let error = match lacks_identity {
            true => rustls::PeerIncompatible::NoSignatureSchemesInCommon.into(),
            false => error,
        };
        QuicFailure { alert: alert.into(), error: error.into() }
    }

    /// Appends handshake messages to be sent. With keys: what follows is protected by these.
    pub fn write(&mut self, output: &mut Vec<u8>) -> Option<Keys> {
        let Self { inner, hidden, .. } = self;
        let change = transcript::with(hidden, || inner.write_hs(output));
        self.has_flight |= change.is_some();
        if self.has_flight && self.facts.early.get().is_none() {
            let _ = self.facts.early.set(SessionFacts::of(&self.inner));
        }
        self.note_progress(None);
        match change? {
            KeyChange::Handshake { keys } => Some(keys),
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                Some(keys)
            }
        }
    }

    /// Notes the end of the handshake.
    fn note_progress(&mut self, client_sigalg: Option<&'static str>) {
        if self.inner.is_handshaking() || self.facts.complete.get().is_some() {
            return;
        }
        self.hidden = Vec::new();
        let (mut trust, mut path) = (None, Vec::new());
        // The verifier is not kept, because a later generation may have another one.
        let wanted = self.client_certificates.take();
        if let (Some(wanted), Some(chain)) = (wanted, self.inner.peer_certificates()) {
            let found = wanted.verifier.find_path(chain, Role::Client, SystemTime::now());
            trust = Some(found.map(|found| {
                if wanted.keeps_path {
                    path = found;
                }
            }));
        }
        let session = SessionFacts::of(&self.inner);
        let complete = CompleteFacts { session, client_sigalg, trust, path };
        let _ = self.facts.complete.set(complete);
        self.facts.handshaking.store(false, Ordering::Release);
    }

    /// Whether the next message may take long: the handshake needs a large private key, or verifies a chain.
    pub fn is_slow(&self) -> bool {
        let resumed = self.facts.early.get().is_some_and(SessionFacts::is_resumed);
        match self.has_flight {
            false => self.slow,
            true => !resumed && self.client_certificates.is_some() && self.is_handshaking(),
        }
    }

    /// Whether the handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    /// The transport's parameters of the peer, when they have come.
    pub fn peer_params(&self) -> Option<&[u8]> {
        self.inner.quic_transport_parameters()
    }

    /// The keys of early data, if there may be any.
    pub fn early_keys(&self) -> Option<DirectionalKeys> {
        self.inner.zero_rtt_keys()
    }

    /// On a client: whether the server takes early data. `None` on a server.
    pub fn is_early_data_accepted(&self) -> Option<bool> {
        match &self.inner {
            Connection::Client(connection) => Some(connection.is_early_data_accepted()),
            Connection::Server(_) => None,
        }
    }

    /// The keys after the next key update.
    pub fn next_keys(&mut self) -> Option<PacketKeySet> {
        self.next.as_mut().map(Secrets::next_packet_keys)
    }

    /// The application protocol.
    pub fn alpn(&self) -> Option<&[u8]> {
        CommonState::alpn_protocol(&self.inner)
    }

    /// Derives keying material (RFC 8446, 7.5).
    ///
    /// # Errors
    /// The handshake is not complete, or the length is too large.
    pub fn export(&self, output: &mut [u8], label: &[u8], context: &[u8]) -> Result<(), Error> {
        self.inner.export_keying_material(output, label, Some(context))?;
        Ok(())
    }
}
