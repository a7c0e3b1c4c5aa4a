//! A session after its handshake, on either side.
//!
//! Called by [`Session`](crate::Session). Received records are opened with rustls' own ciphers, and
//! keys are derived by rustls; this module counts the sequence numbers, and acts upon alerts and key
//! updates. Records are sealed here, which copies their content at most once (rustls' connections: twice),
//! or by the kernel. For the kernel, what the session has to send by itself are records without
//! protection (TLSPlaintext, RFC 8446, 5.1): the code that hands them over tells it their type.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::cipher::{InboundOpaqueMessage, MessageDecrypter};
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{
    AlertDescription, CommonState, ConnectionTrafficSecrets, ContentType, ExtractedSecrets,
    HandshakeKind, HandshakeType, InvalidMessage, PeerMisbehaved, ProtocolVersion,
    SupportedCipherSuite,
};

use crate::error::Error;
use crate::seal::{APPLICATION_DATA, Sealer, Sealing, SealingCipher, parts};
use crate::session::CIPHERTEXT_BYTES_MAX;

/// Types of records.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// Bytes of a record's header.
const HEADER_BYTES: usize = 5;

/// Types of handshake messages, and bytes of their header (RFC 8446, 4).
const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const MESSAGE_HEADER_BYTES: usize = 4;

/// Longest content of a NewSessionTicket; rustls' own limit for messages.
const TICKET_BYTES_MAX: usize = 0xffff;

/// Key updates of the peer without data between them, at most; rustls' own number.
const KEY_UPDATES_MAX: u8 = 32;

/// Warnings of the peer, at most; rustls' own number.
const WARNINGS_MAX: u8 = 4;

/// Keys are replaced this many records before the limit of a cipher. More than one call sends.
const RECORDS_MARGIN: u64 = 4096;

/// Another party seals the records of this session.
pub(crate) const NOT_HERE: Error = Error::State("records are not sealed here");

/// Facts of the session that rustls drops.
pub(crate) struct SessionFacts {
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) suite: Option<SupportedCipherSuite>,
    pub(crate) group: Option<&'static dyn SupportedKxGroup>,
    pub(crate) handshake: Option<HandshakeKind>,
    pub(crate) alpn: Option<Box<[u8]>>,
    pub(crate) peer_certificates: Box<[CertificateDer<'static>]>,
}

impl SessionFacts {
    pub(crate) fn of(common: &CommonState) -> SessionFacts {
        SessionFacts {
            version: common.protocol_version(),
            suite: common.negotiated_cipher_suite(),
            group: common.negotiated_key_exchange_group(),
            handshake: common.handshake_kind(),
            alpn: common.alpn_protocol().map(Into::into),
            peer_certificates: common.peer_certificates().unwrap_or_default().into(),
        }
    }

    /// Whether an earlier session was resumed.
    pub(crate) fn is_resumed(&self) -> bool {
        self.handshake == Some(HandshakeKind::Resumed)
    }
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordContent<'a> {
    /// Plaintext, perhaps none.
    Data(&'a [u8]),
    /// The peer has ended its side.
    End,
    /// The peer requests new keys, which the kernel does not support: this side must not send data any
    /// more.
    NeedsKeys,
}

/// The party that seals records.
enum RecordSealer {
    /// This module.
    Here {
        sealer: Sealer,
        /// The same keys, for another party; `None`: they are not to be handed over.
        keys: Option<Sealing>,
    },
    /// The kernel.
    Elsewhere {
        /// Keys can be replaced.
        rekeys: bool,
        /// To be used for what follows the KeyUpdate that was appended to output.
        next: Option<Sealing>,
        /// Records sealed with the present keys, at most.
        sealed: u64,
    },
}

/// The side of the session, and the source of its secrets.
enum Side {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

impl Side {
    fn update_tx_secret(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Side::Server(connection) => connection.update_tx_secret(),
            Side::Client(connection) => connection.update_tx_secret(),
        }
    }

    fn update_rx_secret(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Side::Server(connection) => connection.update_rx_secret(),
            Side::Client(connection) => connection.update_rx_secret(),
        }
    }
}

/// The session.
pub(crate) struct Established {
    pub(crate) kept: SessionFacts,
    side: Side,
    suite: SupportedCipherSuite,
    tls13: bool,
    decrypter: Box<dyn MessageDecrypter>,
    /// Number of the next record of the peer.
    sequence: u64,
    /// An incomplete handshake message.
    message: Vec<u8>,
    key_updates_left: u8,
    warnings_left: u8,
    renegotiated: bool,
    tx: RecordSealer,
}

impl Established {
    /// Takes a server's session that has sent all of its own, and has received no part of a message.
    /// `offloads`: the keys may be handed over later.
    ///
    /// # Errors
    /// It is in the wrong state.
    pub(crate) fn server(
        connection: UnbufferedServerConnection,
        offloads: bool,
    ) -> Result<Established, Error> {
        let kept = SessionFacts::of(&connection);
        let (secrets, connection) = connection.dangerous_into_kernel_connection()?;
        let suite = connection.negotiated_cipher_suite();
        Self::new(kept, suite, secrets, Side::Server(connection), offloads)
    }

    /// Takes a client's session in the same state.
    ///
    /// # Errors
    /// It is in the wrong state.
    pub(crate) fn client(connection: UnbufferedClientConnection) -> Result<Established, Error> {
        let kept = SessionFacts::of(&connection);
        let (secrets, connection) = connection.dangerous_into_kernel_connection()?;
        let suite = connection.negotiated_cipher_suite();
        Self::new(kept, suite, secrets, Side::Client(connection), false)
    }

    fn new(
        kept: SessionFacts,
        suite: SupportedCipherSuite,
        secrets: ExtractedSecrets,
        side: Side,
        offloads: bool,
    ) -> Result<Established, Error> {
        let tls13 = suite.tls13().is_some();
        let keys = Sealing::new(secrets.tx.1, tls13, secrets.tx.0)?;
        Ok(Established {
            kept,
            decrypter: decrypter(suite, secrets.rx.1)?,
            side,
            suite,
            tls13,
            sequence: secrets.rx.0,
            message: Vec::new(),
            key_updates_left: KEY_UPDATES_MAX,
            warnings_left: WARNINGS_MAX,
            renegotiated: false,
            tx: RecordSealer::Here { sealer: Sealer::new(&keys)?, keys: offloads.then_some(keys) },
        })
    }

    /// The version (TLS 1.3, or else 1.2) and the cipher of keys that can be handed over.
    pub(crate) fn offloadable(&self) -> Option<(bool, SealingCipher)> {
        match &self.tx {
            RecordSealer::Here { keys: Some(keys), .. } => Some((keys.is_tls13(), keys.cipher())),
            _ => None,
        }
    }

    /// Hands the keys for sending over, for all that follows. `rekeys`: they can be replaced later.
    ///
    /// # Errors
    /// They are not to be handed over.
    pub(crate) fn offload(&mut self, rekeys: bool) -> Result<Sealing, Error> {
        let RecordSealer::Here { sealer, keys } = &mut self.tx else { return Err(NOT_HERE) };
        let (keys, sealed) = (keys.take().ok_or(NOT_HERE)?, sealer.sequence());
        self.tx = RecordSealer::Elsewhere { rekeys: rekeys && self.tls13, next: None, sealed };
        Ok(keys.hand_over(sealed))
    }

    /// Writes records with all of `content`, each with at most `record_bytes` of it, at `at`: over what stands
    /// there, and beyond the end of `output`. Returns where they end.
    ///
    /// # Errors
    /// Another party seals, or a cipher has reached its limit.
    pub(crate) fn seal(
        &mut self,
        content: &[&[u8]],
        record_bytes: usize,
        output: &mut Vec<u8>,
        mut at: usize,
    ) -> Result<usize, Error> {
        let limit = confidentiality_limit(self.suite);
        let RecordSealer::Here { sealer, .. } = &self.tx else { return Err(NOT_HERE) };
        if sealer.sequence() >= limit.saturating_sub(RECORDS_MARGIN) {
            if !self.tls13 {
                return Err(rustls::Error::EncryptError.into());
            }
            output.truncate(at);
            self.replace_keys(output)?;
            at = output.len();
        }
        match &mut self.tx {
            RecordSealer::Here { sealer, .. } => {
                sealer.seal(APPLICATION_DATA, content, record_bytes, output, at)
            }
            RecordSealer::Elsewhere { .. } => Err(NOT_HERE),
        }
    }

    /// Appends `close_notify`.
    pub(crate) fn end(&mut self, output: &mut Vec<u8>) {
        self.append_alert(output, false, AlertDescription::CloseNotify);
    }

    fn append_alert(&mut self, output: &mut Vec<u8>, fatal: bool, alert: AlertDescription) {
        self.append(output, ALERT, &[1 + u8::from(fatal), u8::from(alert)]);
    }

    /// Appends a message of the session itself. If it cannot be sealed, no more data can be sent.
    fn append(&mut self, output: &mut Vec<u8>, kind: u8, content: &[u8]) {
        match &mut self.tx {
            RecordSealer::Here { sealer, .. } => {
                let begin = output.len();
                if sealer.seal(kind, &[content], content.len(), output, begin).is_err() {
                    output.truncate(begin);
                }
            }
            RecordSealer::Elsewhere { .. } => append_record(output, kind, content),
        }
    }

    /// Whether no received data is buffered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// Opens a whole record, in place. Data to be sent is appended to `output`, also in case of an error.
    pub(crate) fn open<'a>(
        &mut self,
        record: &'a mut [u8],
        output: &mut Vec<u8>,
    ) -> Result<RecordContent<'a>, Error> {
        let begin = output.len();
        self.open_record(record, output).map_err(|error| {
            output.truncate(begin);
            if let Some(alert) = alert_of(&error) {
                self.append_alert(output, true, alert);
            }
            error.into()
        })
    }

    fn open_record<'a>(
        &mut self,
        record: &'a mut [u8],
        output: &mut Vec<u8>,
    ) -> Result<RecordContent<'a>, rustls::Error> {
        let Some((header, payload)) = record.split_at_mut_checked(HEADER_BYTES) else {
            return Err(InvalidMessage::MessageTooShort.into());
        };
        let kind = header[0];
        if usize::from(u16::from_be_bytes([header[3], header[4]])) > CIPHERTEXT_BYTES_MAX {
            return Err(rustls::Error::PeerSentOversizedRecord);
        }
        if self.tls13 && kind != APPLICATION_DATA {
            return Err(unexpected(kind));
        }
        let kind = ContentType::from(kind);
        let message = InboundOpaqueMessage::new(kind, ProtocolVersion::TLSv1_2, payload);
        let opened = self.decrypter.decrypt(message, self.sequence)?;
        self.sequence += 1;
        let kind = u8::from(opened.typ);
        if kind != HANDSHAKE && !self.message.is_empty() {
            return Err(InvalidMessage::InvalidKeyUpdate.into());
        }
        match kind {
            APPLICATION_DATA => {
                if !opened.payload.is_empty() {
                    self.key_updates_left = KEY_UPDATES_MAX;
                }
                Ok(RecordContent::Data(opened.payload))
            }
            ALERT => self.alert(opened.payload),
            HANDSHAKE if self.tls13 => self.messages(opened.payload, output),
            HANDSHAKE if opened.payload.first() == Some(&self.renegotiation()) => {
                if std::mem::replace(&mut self.renegotiated, true) {
                    return Err(PeerMisbehaved::TooManyRenegotiationRequests.into());
                }
                self.append_alert(output, false, AlertDescription::NoRenegotiation);
                Ok(RecordContent::Data(&[]))
            }
            kind => Err(unexpected(kind)),
        }
    }

    /// The type of the peer's message that asks for renegotiation.
    fn renegotiation(&self) -> u8 {
        match self.side {
            Side::Server(_) => CLIENT_HELLO,
            Side::Client(_) => HELLO_REQUEST,
        }
    }

    fn alert(&mut self, payload: &[u8]) -> Result<RecordContent<'static>, rustls::Error> {
        let &[level, description] = payload else {
            return Err(InvalidMessage::MessageTooShort.into());
        };
        let description = AlertDescription::from(description);
        if description == AlertDescription::CloseNotify {
            return Ok(RecordContent::End);
        }
        let is_ignored = !self.tls13 || description == AlertDescription::UserCanceled;
        if level != 1 || !is_ignored {
            return Err(rustls::Error::AlertReceived(description));
        }
        match self.warnings_left.checked_sub(1) {
            Some(left) => self.warnings_left = left,
            None => return Err(PeerMisbehaved::TooManyWarningAlertsReceived.into()),
        }
        Ok(RecordContent::Data(&[]))
    }

    /// Acts upon handshake messages of TLS 1.3, of which the last may be incomplete: a client sends only
    /// KeyUpdates, a server also tickets.
    fn messages(
        &mut self,
        part: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<RecordContent<'static>, rustls::Error> {
        let mut all = std::mem::take(&mut self.message);
        all.extend_from_slice(part);
        let mut rest = &all[..];
        let mut seen = RecordContent::Data(&[]);
        while let Some(&kind) = rest.first() {
            let max = match (kind, &self.side) {
                (KEY_UPDATE, _) => 1,
                (NEW_SESSION_TICKET, Side::Client(_)) => TICKET_BYTES_MAX,
                _ => return Err(unexpected_message(kind)),
            };
            let Some((header, content)) = rest.split_first_chunk::<MESSAGE_HEADER_BYTES>() else {
                break;
            };
            let len = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
            if len > max {
                return Err(InvalidMessage::HandshakePayloadTooLarge.into());
            }
            let Some((content, after)) = content.split_at_checked(len) else { break };
            rest = after;
            match (kind, &mut self.side) {
                (NEW_SESSION_TICKET, Side::Client(connection)) => {
                    connection.handle_new_session_ticket(content)?;
                }
                // Following records must use the new keys.
                _ if !rest.is_empty() => return Err(InvalidMessage::InvalidKeyUpdate.into()),
                _ => seen = self.key_update(content, output)?,
            }
        }
        self.message = rest.to_vec();
        Ok(seen)
    }

    /// Acts upon the content of a KeyUpdate: whether one is requested in return (RFC 8446, 4.6.3).
    fn key_update(
        &mut self,
        content: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<RecordContent<'static>, rustls::Error> {
        match self.key_updates_left.checked_sub(1) {
            Some(left) => self.key_updates_left = left,
            None => return Err(PeerMisbehaved::TooManyKeyUpdateRequests.into()),
        }
        let &[request @ (0 | 1)] = content else {
            return Err(InvalidMessage::InvalidKeyUpdate.into());
        };
        let (sequence, secrets) = self.side.update_rx_secret()?;
        self.decrypter = decrypter(self.suite, secrets)
            .map_err(|_| rustls::Error::General("no cipher for new keys".to_owned()))?;
        self.sequence = sequence;
        match (request, &self.tx) {
            (0, _) => Ok(RecordContent::Data(&[])),
            (_, RecordSealer::Elsewhere { rekeys: false, .. }) => Ok(RecordContent::NeedsKeys),
            _ => self.replace_keys(output).map(|()| RecordContent::Data(&[])),
        }
    }

    /// Replaces the keys for sending; those of another party not while that is under way.
    fn replace_keys(&mut self, output: &mut Vec<u8>) -> Result<(), rustls::Error> {
        if matches!(self.tx, RecordSealer::Elsewhere { next: Some(_), .. }) {
            return Ok(());
        }
        let (sequence, secrets) = self.side.update_tx_secret()?;
        let unknown = |_| rustls::Error::General("no cipher for new keys".to_owned());
        let fresh = Sealing::new(secrets, true, sequence).map_err(unknown)?;
        self.append(output, HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0]);
        match &mut self.tx {
            RecordSealer::Here { sealer, keys } => {
                *sealer = Sealer::new(&fresh).map_err(unknown)?;
                if keys.is_some() {
                    *keys = Some(fresh);
                }
            }
            RecordSealer::Elsewhere { next, .. } => *next = Some(fresh),
        }
        Ok(())
    }

    /// Another party's keys that follow a KeyUpdate.
    pub(crate) fn take_keys(&mut self) -> Option<Sealing> {
        let RecordSealer::Elsewhere { next, sealed, .. } = &mut self.tx else { return None };
        let next = next.take();
        if next.is_some() {
            *sealed = 0;
        }
        next
    }

    /// Another party has sealed at most this many records. In time before a cipher's limit, begins to
    /// replace the keys.
    ///
    /// # Errors
    /// The limit is reached, and keys cannot be replaced.
    pub(crate) fn sealed(&mut self, records: u64, output: &mut Vec<u8>) -> Result<(), Error> {
        let limit = confidentiality_limit(self.suite);
        let RecordSealer::Elsewhere { rekeys, sealed, .. } = &mut self.tx else { return Ok(()) };
        *sealed = sealed.saturating_add(records);
        if *sealed < limit.saturating_sub(RECORDS_MARGIN) {
            return Ok(());
        }
        match *rekeys {
            true => Ok(self.replace_keys(output)?),
            false => Err(rustls::Error::EncryptError.into()),
        }
    }
}

/// Records that may be sealed with one key.
fn confidentiality_limit(suite: SupportedCipherSuite) -> u64 {
    match suite {
        SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
    }
}

fn decrypter(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageDecrypter>, Error> {
    let (_, key, iv) = parts(secrets)?;
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let implicit = suite.aead_alg.key_block_shape().fixed_iv_len;
            suite.aead_alg.decrypter(key, &iv.as_ref()[..implicit])
        }
    })
}

/// A record of a type that must not be sent after the handshake.
fn unexpected(kind: u8) -> rustls::Error {
    rustls::Error::InappropriateMessage {
        expect_types: vec![ContentType::ApplicationData],
        got_type: ContentType::from(kind),
    }
}

/// A handshake message of a type that must not be sent after the handshake.
fn unexpected_message(kind: u8) -> rustls::Error {
    rustls::Error::InappropriateHandshakeMessage {
        expect_types: vec![HandshakeType::KeyUpdate],
        got_type: HandshakeType::from(kind),
    }
}

/// The alert about an error for the peer; `None`: the peer itself has failed.
fn alert_of(error: &rustls::Error) -> Option<AlertDescription> {
    use rustls::Error as Is;
    Some(match error {
        Is::AlertReceived(_) => return None,
        Is::DecryptError => AlertDescription::BadRecordMac,
        Is::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
        Is::InvalidMessage(InvalidMessage::InvalidKeyUpdate)
        | Is::InappropriateMessage { .. }
        | Is::InappropriateHandshakeMessage { .. }
        | Is::PeerMisbehaved(_) => AlertDescription::UnexpectedMessage,
        Is::InvalidMessage(_) => AlertDescription::DecodeError,
        _ => AlertDescription::InternalError,
    })
}

fn append_record(output: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let len = u16::try_from(content.len()).expect("alerts and key updates are short");
    let [high, low] = len.to_be_bytes();
    output.extend_from_slice(&[kind, 3, 3, high, low]);
    output.extend_from_slice(content);
}

/// Splits the first record off what a session has appended to output since another party seals: its type,
/// its content, and its length with the header.
pub fn split_record(output: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (&[kind, _, _, high, low], rest) = output.split_first_chunk()?;
    let len = usize::from(u16::from_be_bytes([high, low]));
    Some((kind, rest.get(..len)?, HEADER_BYTES + len))
}
