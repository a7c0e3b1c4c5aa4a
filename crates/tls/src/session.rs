//! A connection's session: the state machine of both sides, from the first handshake message to
//! `close_notify`.
//!
//! It holds no buffers: input, plaintext and output belong to the caller. The exception is a
//! handshake message spread over several records, which rustls joins in the memory of its input:
//! these records stay here until it is complete (`joining`), so that rustls always finds them where
//! it left them.
//!
//! A session is `Send`: a step that takes long ([`Session::is_slow`]) can run on another thread.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::{CommonState, HandshakeKind, PeerIncompatible, ProtocolVersion, SupportedCipherSuite};

use crate::acceptor::HELLO_BYTES_MAX;
use crate::client_offer::sigalg_name;
use crate::error::Error;
use crate::established_session::{Established, NOT_HERE, RecordContent, SessionFacts};
use crate::identity::Identity;
use crate::quic::{CompleteFacts, QuicFacts};
use crate::seal::{Sealing, SealingCipher};
use crate::server::{ClientCertificates, TlsServer};
use crate::steps::{PlaintextSink, TlsStep, early_data, is_idle, step, take_message, write};
use crate::transcript::{self, MaskedHello};
use crate::verify::{self, Distrust, Role};
use crate::{ciphers, groups};

/// Bytes of a record's header.
const HEADER_BYTES: usize = 5;

/// Maximum of plaintext in a record (RFC 8446, 5.1).
pub const PLAINTEXT_BYTES_MAX: usize = 16 * 1024;

/// Maximum length of a protected record (RFC 5246, 6.2.3; TLS 1.3 has less).
pub(crate) const CIPHERTEXT_BYTES_MAX: usize = PLAINTEXT_BYTES_MAX + 2048;

/// Maximum size of the records of one handshake message. rustls limits the message to 64 KB, but
/// not the number of records.
const JOINING_BYTES_MAX: usize = 128 * 1024;

/// The same for a server that requests no certificate: the longest message is a second hello.
const JOINING_BYTES_MAX_ANONYMOUS: usize = HELLO_BYTES_MAX + 2 * 1024;

/// The known values of `content_type` (RFC 8446, 5.1).
const CONTENT_TYPES: RangeInclusive<u8> = 20..=23;

/// rustls' word for a client for which no certificate was chosen.
pub(crate) const NO_IDENTITY: &str = "no server certificate chain resolved";

/// A fatal alert before there are keys: no parameters in common.
const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

/// The reason why [`Session::open`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// There is no further complete record.
    Input,
    /// The next record needs more room for plaintext than is left.
    Room,
    /// The next step takes long: call again on another thread.
    Slow,
    /// The peer has ended its side by `close_notify`: no more plaintext will follow.
    Ended,
}

/// The result of [`Session::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenProgress {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Bytes of plaintext written.
    pub written: usize,
    /// The reason for stopping.
    pub stop: Stop,
}

enum SessionState {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
    /// After the handshake.
    Established(Box<Established>),
    /// It was to be established, which failed.
    Lost,
    /// Of a QUIC connection: it only shows what is known.
    Quic(Arc<QuicFacts>),
}

/// A session of either side.
pub struct Session {
    connection: SessionState,
    /// Records of an incomplete handshake message.
    joining: Vec<u8>,
    /// The connection has failed.
    failed: Option<Error>,
    /// The first step of the handshake has been made.
    begun: bool,
    /// The next step of the handshake takes long.
    slow: bool,
    /// `close_notify` was received.
    ended: bool,
    /// `close_notify` or a fatal alert was sent.
    closed: bool,
    /// It ended because of keys that cannot be replaced.
    needs_keys: bool,
    /// Early data may arrive.
    early_data: bool,
    /// No certificate suits the client.
    lacks_identity: bool,
    /// The keys may be handed over.
    offloads: bool,
    /// Maximum of plaintext in a record.
    record_bytes: usize,
    client_certificates: Option<Arc<ClientCertificates>>,
    /// The verification result of the peer's certificate; `None`: the peer presented none, or none was
    /// requested.
    trust: Option<Result<(), Distrust>>,
    /// From the peer's certificate to a trusted one.
    path: Vec<CertificateDer<'static>>,
    server_name: Option<Box<str>>,
    session_id: Option<Box<[u8]>>,
    sigalg: Option<&'static str>,
    client_sigalg: Option<&'static str>,
    /// Hellos of the client that were changed for rustls, until the handshake is complete.
    hidden: Vec<MaskedHello>,
}

impl Session {
    pub(crate) fn server(
        connection: UnbufferedServerConnection,
        server: &TlsServer,
        server_name: Option<String>,
        identity: Option<&Identity>,
        sigalg: Option<&'static str>,
    ) -> Session {
        let slow = identity.is_some_and(|identity| identity.kind.is_slow());
        let mut session = Session::new(SessionState::Server(Box::new(connection)), slow);
        session.lacks_identity = identity.is_none();
        session.client_certificates.clone_from(&server.client_certificates);
        session.early_data = server.early_data;
        session.offloads = server.offloads;
        session.record_bytes = server.record_bytes;
        session.server_name = server_name.map(String::into_boxed_str);
        session.sigalg = sigalg;
        session
    }

    pub(crate) fn client(connection: UnbufferedClientConnection, slow: bool) -> Session {
        Session::new(SessionState::Client(Box::new(connection)), slow)
    }

    /// A session of a QUIC connection, which shows these facts and seals nothing.
    pub(crate) fn quic(
        facts: Arc<QuicFacts>,
        server_name: Option<String>,
        sigalg: Option<&'static str>,
    ) -> Session {
        let mut session = Session::new(SessionState::Quic(facts), false);
        session.server_name = server_name.map(String::into_boxed_str);
        session.sigalg = sigalg;
        session
    }

    fn new(connection: SessionState, slow: bool) -> Session {
        Session {
            connection,
            joining: Vec::new(),
            failed: None,
            begun: false,
            slow,
            ended: false,
            closed: false,
            needs_keys: false,
            early_data: false,
            lacks_identity: false,
            offloads: false,
            record_bytes: PLAINTEXT_BYTES_MAX,
            client_certificates: None,
            trust: None,
            path: Vec::new(),
            server_name: None,
            session_id: None,
            sigalg: None,
            client_sigalg: None,
            hidden: Vec::new(),
        }
    }

    /// The client's hello is not as it was sent.
    pub(crate) fn hide(&mut self, hello: Option<MaskedHello>) {
        self.hidden.extend(hello);
    }

    /// Opens the records at the beginning of `input`, which it changes: handshake messages are
    /// acted upon, and plaintext is written to `plain`. Everything that the session itself has to send is
    /// appended to `output`: also in case of an error, when it is the alert. Without input, a
    /// client sends its hello.
    ///
    /// Bytes that were not consumed must be at the beginning of the next input. A step that
    /// [is slow](Self::is_slow) is not made unless `may_be_slow`.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn open(
        &mut self,
        input: &mut [u8],
        plain: &mut [u8],
        output: &mut Vec<u8>,
        may_be_slow: bool,
    ) -> Result<OpenProgress, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut plain = PlaintextSink { room: plain, written: 0 };
        let begin = output.len();
        let result = self.open_records(input, &mut plain, output, may_be_slow);
        let (consumed, stop) = result.map_err(|error| self.fail(error, output, begin))?;
        Ok(OpenProgress { consumed, written: plain.written, stop })
    }

    fn open_records(
        &mut self,
        input: &mut [u8],
        plain: &mut PlaintextSink<'_>,
        output: &mut Vec<u8>,
        may_be_slow: bool,
    ) -> Result<(usize, Stop), Error> {
        let mut consumed = 0;
        if !self.begun && matches!(self.connection, SessionState::Client(_)) {
            self.begun = true;
            self.process(&mut [], plain, output)?;
        }
        loop {
            if self.ended {
                return Ok((consumed, Stop::Ended));
            }
            let rest = &mut input[consumed..];
            let Some(len) = record_len(rest) else { return Ok((consumed, Stop::Input)) };
            let was_handshaking = self.is_handshaking();
            if self.slow && was_handshaking && !may_be_slow {
                return Ok((consumed, Stop::Slow));
            }
            let may_have_plaintext = !was_handshaking || self.early_data && self.begun;
            if may_have_plaintext && plain.room.len() - plain.written < len.min(PLAINTEXT_BYTES_MAX)
            {
                return Ok((consumed, Stop::Room));
            }
            let begin = output.len();
            if was_handshaking {
                verify::take_verified();
            }
            self.open_record(&mut rest[..len], plain, output)?;
            consumed += len;
            if was_handshaking {
                let verified = verify::take_verified().and_then(sigalg_name);
                self.client_sigalg = verified.or(self.client_sigalg);
                self.note_progress(&output[begin..]);
                self.establish()?;
            }
        }
    }

    /// Opens one record.
    fn open_record(
        &mut self,
        record: &mut [u8],
        plain: &mut PlaintextSink<'_>,
        output: &mut Vec<u8>,
    ) -> Result<(), Error> {
        if let SessionState::Established(session) = &mut self.connection {
            match session.open(record, output)? {
                RecordContent::Data(data) => plain.put(data)?,
                RecordContent::End => self.ended = true,
                RecordContent::NeedsKeys => {
                    self.ended = true;
                    self.needs_keys = true;
                }
            }
            return Ok(());
        }
        if let [first] = &self.hidden[..]
            && let Some(second) = transcript::hide_second(record, first)
        {
            // The first record is processed again at the beginning, and is already hidden.
            self.hidden.push(second);
        }
        if self.joining.is_empty() {
            let done = self.process(record, plain, output)?;
            self.joining.extend_from_slice(&record[done..]);
        } else {
            let mut joining = std::mem::take(&mut self.joining);
            joining.extend_from_slice(record);
            let done = self.process(&mut joining, plain, output)?;
            joining.drain(..done);
            self.joining = joining;
        }
        if self.joining.is_empty() {
            self.joining = Vec::new();
        }
        let is_anonymous = matches!(self.connection, SessionState::Server(_))
            && self.client_certificates.is_none();
        let bytes_max = if is_anonymous { JOINING_BYTES_MAX_ANONYMOUS } else { JOINING_BYTES_MAX };
        match self.joining.len() > bytes_max {
            true => Err(Error::TooLong),
            false => Ok(()),
        }
    }

    /// Passes records to rustls; returns the number of their bytes that it no longer needs.
    fn process(
        &mut self,
        records: &mut [u8],
        plain: &mut PlaintextSink<'_>,
        output: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let hidden = std::mem::take(&mut self.hidden);
        let done = transcript::with(&hidden, || self.process_records(records, plain, output));
        if self.is_handshaking() {
            self.hidden = hidden;
        }
        done
    }

    fn process_records(
        &mut self,
        records: &mut [u8],
        plain: &mut PlaintextSink<'_>,
        output: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let mut done = 0;
        loop {
            let rest = &mut records[done..];
            let (discard, step) = match &mut self.connection {
                SessionState::Established(_) | SessionState::Lost | SessionState::Quic(_) => {
                    return Err(NOT_HERE);
                }
                SessionState::Server(connection) => {
                    step(connection.process_tls_records(rest), plain, output, |mut early, plain| {
                        early_data(&mut early, plain)
                    })
                }
                SessionState::Client(connection) => {
                    let none =
                        |_, _: &mut PlaintextSink<'_>| Err(Error::State("early data of a server"));
                    step(connection.process_tls_records(rest), plain, output, none)
                }
            };
            done += discard;
            let step = match step {
                Ok(step) => step,
                Err(error) => {
                    self.take_alert(&mut records[done..], output);
                    return Err(error);
                }
            };
            match step {
                TlsStep::Again => {}
                TlsStep::Blocked => return Ok(done),
                TlsStep::Ended => {
                    self.ended = true;
                    return Ok(done);
                }
            }
        }
    }

    /// After a step of the handshake; `sent` is its output.
    fn note_progress(&mut self, sent: &[u8]) {
        let is_server = matches!(self.connection, SessionState::Server(_));
        if is_server && !sent.is_empty() {
            // The first flight is sent; what the client sends now may be early data, or its
            // certificate.
            self.begun = true;
            self.slow = self.client_certificates.is_some();
            self.session_id = self.session_id.take().or_else(|| sent_session_id(sent));
        }
        if self.is_handshaking() {
            return;
        }
        self.slow = false;
        self.early_data = false;
        // The verifier is not kept, because a later generation may have another one.
        let wanted = self.client_certificates.take();
        if let (Some(wanted), Some(chain)) =
            (&wanted, self.common().ok().and_then(CommonState::peer_certificates))
        {
            let (keeps_path, now) = (wanted.keeps_path, SystemTime::now());
            let path = wanted.verifier.find_path(chain, Role::Client, now);
            self.trust = Some(path.map(|path| {
                if keeps_path {
                    self.path = path;
                }
            }));
        }
    }

    /// After the handshake, records are protected here. Unless something is left over from it: then rustls
    /// keeps the connection.
    fn establish(&mut self) -> Result<(), Error> {
        let is_ready = match &self.connection {
            SessionState::Server(connection) => is_idle(connection),
            SessionState::Client(connection) => is_idle(connection),
            SessionState::Established(_) | SessionState::Lost | SessionState::Quic(_) => false,
        };
        if !is_ready || !self.joining.is_empty() || self.ended {
            return Ok(());
        }
        let established = match std::mem::replace(&mut self.connection, SessionState::Lost) {
            SessionState::Server(connection) => Established::server(*connection, self.offloads)?,
            SessionState::Client(connection) => Established::client(*connection)?,
            SessionState::Established(_) | SessionState::Lost | SessionState::Quic(_) => {
                return Err(NOT_HERE);
            }
        };
        self.connection = SessionState::Established(Box::new(established));
        Ok(())
    }

    /// Appends the alert that rustls has for a failure. rustls is not called after that, because it may
    /// refer to records that no longer exist.
    fn take_alert(&mut self, records: &mut [u8], output: &mut Vec<u8>) {
        while self.common().is_ok_and(CommonState::wants_write) {
            let taken = match &mut self.connection {
                SessionState::Established(_) | SessionState::Lost | SessionState::Quic(_) => false,
                SessionState::Server(connection) => {
                    take_message(connection.process_tls_records(records), output)
                }
                SessionState::Client(connection) => {
                    take_message(connection.process_tls_records(records), output)
                }
            };
            if !taken {
                return;
            }
        }
    }

    /// Notes a failure; `output` is what the failed call has appended.
    fn fail(&mut self, error: Error, output: &mut Vec<u8>, begin: usize) -> Error {
        let error = match error {
            // rustls reports a missing certificate of the server; OpenSSL and the RFC treat that as no
            // parameters in common.
            Error::Connection(rustls::Error::General(text)) if text == NO_IDENTITY => {
                output.truncate(begin);
                output.extend_from_slice(&HANDSHAKE_FAILURE);
                let why = match self.lacks_identity {
                    true => PeerIncompatible::NoSignatureSchemesInCommon,
                    false => PeerIncompatible::NoCipherSuitesInCommon,
                };
                rustls::Error::from(why).into()
            }
            error => error,
        };
        self.failed = Some(error.clone());
        self.closed = true;
        self.joining = Vec::new();
        error
    }

    /// Appends records with all of `plain` to `output`.
    ///
    /// # Errors
    /// The session is not ready for data, has ended its side, or has failed.
    pub fn seal(&mut self, plain: &[&[u8]], output: &mut Vec<u8>) -> Result<(), Error> {
        let at = output.len();
        let end = self.seal_over(plain, output, at)?;
        output.truncate(end);
        Ok(())
    }

    /// Writes records with all of `plain` at `at`: over what stands there, and beyond the end of `output`. Returns
    /// where they end; what follows is meaningless. So memory that is used again needs not be cleared.
    ///
    /// # Errors
    /// As for [`seal`](Self::seal).
    pub fn seal_over(
        &mut self,
        plain: &[&[u8]],
        output: &mut Vec<u8>,
        at: usize,
    ) -> Result<usize, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.closed {
            return Err(Error::State("data after the end"));
        }
        if let SessionState::Established(session) = &mut self.connection {
            return session.seal(plain, self.record_bytes, output, at);
        }
        output.truncate(at);
        match plain {
            [] | [[]] => {}
            [plain] => self.write(plain, output)?,
            parts => self.write(&parts.concat(), output)?,
        }
        Ok(output.len())
    }

    /// Appends `close_notify` to `output`, unless it has been sent: this side sends no more data.
    pub fn end(&mut self, output: &mut Vec<u8>) {
        if !self.closed && !self.is_handshaking() {
            match &mut self.connection {
                SessionState::Established(session) => session.end(output),
                // If it fails, closing the connection must do.
                _ => drop(self.write(&[], output)),
            }
        }
        self.closed = true;
    }

    /// Has rustls append records with `plain`, or without it `close_notify`.
    fn write(&mut self, plain: &[u8], output: &mut Vec<u8>) -> Result<(), Error> {
        let joining = &mut self.joining[..];
        match &mut self.connection {
            SessionState::Established(_) | SessionState::Lost | SessionState::Quic(_) => {
                Err(NOT_HERE)
            }
            SessionState::Server(connection) => loop {
                if let Some(done) = write(connection.process_tls_records(joining), plain, output) {
                    return done;
                }
            },
            SessionState::Client(connection) => loop {
                if let Some(done) = write(connection.process_tls_records(joining), plain, output) {
                    return done;
                }
            },
        }
    }

    /// The version (TLS 1.3, or else 1.2) and the cipher that another party could seal records with,
    /// after [`offload`](Self::offload). `None`: not of this session, or not yet.
    pub fn offloadable(&self) -> Option<(bool, SealingCipher)> {
        match &self.connection {
            SessionState::Established(session) if !self.closed => session.offloadable(),
            _ => None,
        }
    }

    /// Leaves sealing to another party, the kernel, for all that follows; everything that was sealed
    /// before is sent first. What [`open`](Self::open) and [`end`](Self::end) append from then on are
    /// records without protection ([`split_record`](crate::split_record)). `rekeys`: the keys can be
    /// replaced later.
    ///
    /// # Errors
    /// The session is not [`offloadable`](Self::offloadable); it has failed then.
    pub fn offload(&mut self, rekeys: bool) -> Result<Sealing, Error> {
        let sealing = match &mut self.connection {
            SessionState::Established(session) => session.offload(rekeys),
            _ => Err(NOT_HERE),
        };
        sealing.map_err(|error| self.fail(error, &mut Vec::new(), 0))
    }

    /// The keys for all that follows, when a record was sent that [`open`](Self::open) or
    /// [`sealed`](Self::sealed) has appended; `None`: the same as before.
    pub fn take_keys(&mut self) -> Option<Sealing> {
        match &mut self.connection {
            SessionState::Established(session) => session.take_keys(),
            _ => None,
        }
    }

    /// At most this many records were sealed by another party. Everything that the session has to send because
    /// of it is appended to `output`.
    ///
    /// # Errors
    /// No more records may be sealed with these keys, and they cannot be replaced.
    pub fn sealed(&mut self, records: u64, output: &mut Vec<u8>) -> Result<(), Error> {
        match &mut self.connection {
            SessionState::Established(session) => session.sealed(records, output),
            _ => Ok(()),
        }
    }

    /// Whether the session has ended because the peer requested new keys that are not supported.
    pub fn needs_keys(&self) -> bool {
        self.needs_keys
    }

    /// Whether the next step of the handshake takes long: an operation with a large private key, or
    /// the verification of a chain.
    pub fn is_slow(&self) -> bool {
        self.slow
    }

    /// Whether the handshake is not complete. With early data, plaintext may already be received,
    /// and sent (`$ssl_early_data`).
    pub fn is_handshaking(&self) -> bool {
        match &self.connection {
            SessionState::Quic(facts) => facts.handshaking.load(Ordering::Acquire),
            _ => self.common().is_ok_and(CommonState::is_handshaking),
        }
    }

    /// What is known of a QUIC connection whose handshake is complete.
    fn complete(&self) -> Option<&CompleteFacts> {
        match &self.connection {
            SessionState::Quic(facts) => facts.complete.get(),
            _ => None,
        }
    }

    /// Whether no received data is buffered: no part of a handshake message.
    pub fn is_quiet(&self) -> bool {
        match &self.connection {
            SessionState::Established(session) => session.is_quiet(),
            _ => self.joining.is_empty(),
        }
    }

    /// Whether the peer has ended its side.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    fn common(&self) -> Result<&CommonState, Option<&SessionFacts>> {
        match &self.connection {
            SessionState::Server(connection) => Ok(connection),
            SessionState::Client(connection) => Ok(connection),
            SessionState::Established(session) => Err(Some(&session.kept)),
            SessionState::Lost => Err(None),
            SessionState::Quic(facts) => Err(facts.session()),
        }
    }

    /// A fact, from rustls or from the kept copy.
    fn fact<'a, T>(
        &'a self,
        known: impl FnOnce(&'a CommonState) -> Option<T>,
        kept: impl FnOnce(&'a SessionFacts) -> Option<T>,
    ) -> Option<T> {
        match self.common() {
            Ok(common) => known(common),
            Err(facts) => facts.and_then(kept),
        }
    }

    fn version(&self) -> Option<ProtocolVersion> {
        self.fact(CommonState::protocol_version, |kept| kept.version)
    }

    fn suite(&self) -> Option<SupportedCipherSuite> {
        self.fact(CommonState::negotiated_cipher_suite, |kept| kept.suite)
    }

    fn handshake_kind(&self) -> Option<HandshakeKind> {
        self.fact(CommonState::handshake_kind, |kept| kept.handshake)
    }

    /// Whether the protocol is TLS 1.3.
    pub fn is_tls13(&self) -> bool {
        self.version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// The version of the protocol, in OpenSSL's words; `None`: not negotiated yet, as everything
    /// that follows.
    pub fn protocol(&self) -> Option<&'static str> {
        match self.version()? {
            ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
            ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
            _ => None,
        }
    }

    /// OpenSSL's name of the cipher suite.
    pub fn cipher(&self) -> Option<&'static str> {
        self.suite().map(ciphers::name)
    }

    /// OpenSSL's name of the group that keys were exchanged with.
    pub fn curve(&self) -> Option<&'static str> {
        let group = self.fact(CommonState::negotiated_key_exchange_group, |kept| kept.group);
        group.map(|group| groups::name(group.name()))
    }

    /// On a server: the algorithm of its signature; `None`: there was none, as the session was
    /// resumed.
    pub fn sigalg(&self) -> Option<&'static str> {
        self.sigalg.filter(|_| self.handshake_kind().is_some() && !self.is_reused())
    }

    /// On a server: the algorithm of the client's signature; `None`: it presented no certificate, or
    /// the session was resumed.
    pub fn client_sigalg(&self) -> Option<&'static str> {
        self.complete().map_or(self.client_sigalg, |complete| complete.client_sigalg)
    }

    /// The application protocol.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.fact(CommonState::alpn_protocol, |kept| kept.alpn.as_deref())
    }

    /// On a server: the name requested by the client.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// On a server, with TLS 1.2: the session's identifier.
    pub fn session_id(&self) -> Option<&[u8]> {
        self.session_id.as_deref().filter(|id| !id.is_empty() && self.is_tls12())
    }

    fn is_tls12(&self) -> bool {
        self.version() == Some(ProtocolVersion::TLSv1_2)
    }

    /// Whether an earlier session was resumed.
    pub fn is_reused(&self) -> bool {
        self.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The certificates that the peer presented, its own first.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.fact(CommonState::peer_certificates, |kept| Some(&kept.peer_certificates[..]))
            .unwrap_or_default()
    }

    /// On a server: the client's certificate and those above it, up to a trusted one, if the server
    /// wants that and the client is trusted.
    pub fn path(&self) -> &[CertificateDer<'static>] {
        self.complete().map_or(&self.path, |complete| &complete.path)
    }

    /// On a server: what the client's certificate is worth. `None`: it presented none.
    pub fn trust(&self) -> Option<Result<(), Distrust>> {
        self.complete().map_or(self.trust, |complete| complete.trust)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("protocol", &self.protocol())
            .field("handshaking", &self.is_handshaking())
            .finish_non_exhaustive()
    }
}

/// The length of the first record with its header; `None` if it is incomplete. Invalid records are passed
/// to rustls, which refuses them.
fn record_len(input: &[u8]) -> Option<usize> {
    let (kind, rest) = input.split_first()?;
    if !CONTENT_TYPES.contains(kind) {
        return Some(input.len());
    }
    let [_, _, high, low, ..] = *rest else { return None };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > CIPHERTEXT_BYTES_MAX {
        return Some(input.len());
    }
    (input.len() >= HEADER_BYTES + len).then_some(HEADER_BYTES + len)
}

/// The session identifier of a ServerHello at the beginning of what was sent.
fn sent_session_id(sent: &[u8]) -> Option<Box<[u8]>> {
    const SERVER_HELLO: u8 = 2;
    let hello =
        sent.get(HEADER_BYTES..).filter(|message| message.first() == Some(&SERVER_HELLO))?;
    // Behind the message's header, the version and the random number.
    let rest = hello.get(4 + 2 + 32..)?;
    let (len, rest) = rest.split_first()?;
    rest.get(..usize::from(*len)).map(Into::into)
}
