//! The server's side of a session whose records the kernel seals: what is left to do here.
//!
//! Called by [`Session`](crate::Session) after the handshake. Received records are opened with
//! rustls' own ciphers, and keys are derived by rustls; this module counts the sequence numbers, and
//! acts upon alerts and key updates. What the session has to send by itself are records without
//! protection (TLSPlaintext, RFC 8446, 5.1): whoever hands them to the kernel gives it their type.

use std::fmt;

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::cipher::{AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, NONCE_LEN};
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{
    AlertDescription, CommonState, ConnectionTrafficSecrets, ContentType, HandshakeKind,
    InvalidMessage, PeerMisbehaved, ProtocolVersion, SupportedCipherSuite,
};

use crate::error::Error;

/// Types of records.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// Bytes of a record's header.
const HEADER_BYTES: usize = 5;

/// A KeyUpdate without its last byte, which tells whether one is requested in return
/// (RFC 8446, 4.6.3).
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

/// The type of the message that asks for renegotiation.
const CLIENT_HELLO: u8 = 1;

/// Key updates of the peer without data between them, at most; rustls' own number.
const KEY_UPDATES_MAX: u8 = 32;

/// Warnings of the peer, at most; rustls' own number.
const WARNINGS_MAX: u8 = 4;

/// So many records before the limit of a cipher, keys are replaced. More than what is sent in one
/// call.
const RECORDS_MARGIN: u64 = 4096;

/// A cipher that can be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealingCipher {
    /// AES with 128 bits in Galois counter mode.
    Aes128Gcm,
    /// AES with 256 bits in Galois counter mode.
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    Chacha20Poly1305,
}

/// What is needed to seal the records of this side. The key is wiped when it is dropped.
pub struct Sealing {
    key: AeadKey,
    cipher: SealingCipher,
    iv: [u8; NONCE_LEN],
    tls13: bool,
    sequence: u64,
}

impl Sealing {
    /// `sequence` is the number of the next record, and of those that were sealed before.
    fn new(
        secrets: ConnectionTrafficSecrets,
        tls13: bool,
        sequence: u64,
    ) -> Result<Sealing, Error> {
        let (cipher, key, iv) = parts(secrets)?;
        let mut iv: [u8; NONCE_LEN] =
            iv.as_ref().try_into().map_err(|_| Error::State("a nonce of another length"))?;
        if !tls13 && cipher != SealingCipher::Chacha20Poly1305 {
            // The explicit nonces of TLS 1.2 need only differ (RFC 5288, 3). rustls' are these eight
            // bytes, XORed with the sequence number; the kernel counts up from them. From the
            // opposite end of the range, it meets none of rustls'.
            iv[4] ^= 0x80;
        }
        Ok(Sealing { key, cipher, iv, tls13, sequence })
    }

    /// The cipher.
    pub fn cipher(&self) -> SealingCipher {
        self.cipher
    }

    /// The key: 16 or 32 bytes.
    pub fn key(&self) -> &[u8] {
        self.key.as_ref()
    }

    /// The initialization vector. For GCM in TLS 1.2: the implicit part of nonces, and the explicit
    /// part of the next one.
    pub fn iv(&self) -> &[u8; NONCE_LEN] {
        &self.iv
    }

    /// Whether this is TLS 1.3; else TLS 1.2.
    pub fn is_tls13(&self) -> bool {
        self.tls13
    }

    /// Sequence number of the next record.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

fn parts(secrets: ConnectionTrafficSecrets) -> Result<(SealingCipher, AeadKey, Iv), Error> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => Ok((SealingCipher::Aes128Gcm, key, iv)),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => Ok((SealingCipher::Aes256Gcm, key, iv)),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            Ok((SealingCipher::Chacha20Poly1305, key, iv))
        }
        _ => Err(Error::State("a cipher that can't be handed over")),
    }
}

/// The version and the cipher of a suite: what [`Sealing`] will have.
pub(crate) fn suite_of(suite: SupportedCipherSuite) -> Option<(bool, SealingCipher)> {
    use rustls::CipherSuite as Is;
    let cipher = match suite.suite() {
        Is::TLS13_AES_128_GCM_SHA256
        | Is::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | Is::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => SealingCipher::Aes128Gcm,
        Is::TLS13_AES_256_GCM_SHA384
        | Is::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | Is::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => SealingCipher::Aes256Gcm,
        Is::TLS13_CHACHA20_POLY1305_SHA256
        | Is::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | Is::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => SealingCipher::Chacha20Poly1305,
        _ => return None,
    };
    Some((suite.tls13().is_some(), cipher))
}

/// Facts of the session that rustls forgets.
pub(crate) struct Kept {
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) suite: Option<SupportedCipherSuite>,
    pub(crate) group: Option<&'static dyn SupportedKxGroup>,
    pub(crate) handshake: Option<HandshakeKind>,
    pub(crate) alpn: Option<Box<[u8]>>,
    pub(crate) peer_certificates: Box<[CertificateDer<'static>]>,
}

impl Kept {
    fn of(common: &CommonState) -> Kept {
        Kept {
            version: common.protocol_version(),
            suite: common.negotiated_cipher_suite(),
            group: common.negotiated_key_exchange_group(),
            handshake: common.handshake_kind(),
            alpn: common.alpn_protocol().map(Into::into),
            peer_certificates: common.peer_certificates().unwrap_or_default().into(),
        }
    }
}

/// What a record contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    /// Plaintext, perhaps none.
    Data(&'a [u8]),
    /// The peer has ended its side.
    End,
    /// The peer wants new keys, which the kernel cannot use: this side must not send data any more.
    NeedsKeys,
}

/// The session.
pub(crate) struct Offloaded {
    pub(crate) kept: Kept,
    connection: KernelConnection<ServerConnectionData>,
    decrypter: Box<dyn MessageDecrypter>,
    /// Number of the next record of the peer.
    sequence: u64,
    /// An incomplete KeyUpdate.
    message: Vec<u8>,
    key_updates_left: u8,
    warnings_left: u8,
    renegotiated: bool,
    /// Keys for sending can be replaced.
    rekeys: bool,
    /// To be used for what follows the KeyUpdate that was appended to output.
    next: Option<Sealing>,
    /// Records sealed with the present keys, at most.
    sealed: u64,
}

impl Offloaded {
    /// Takes a session that has sent all of its own, and has received no part of a message.
    ///
    /// # Errors
    /// It is in the wrong state.
    pub(crate) fn new(
        connection: UnbufferedServerConnection,
        rekeys: bool,
    ) -> Result<(Offloaded, Sealing), Error> {
        let kept = Kept::of(&connection);
        let (secrets, connection) = connection.dangerous_into_kernel_connection()?;
        let suite = connection.negotiated_cipher_suite();
        let tls13 = suite.tls13().is_some();
        let sealing = Sealing::new(secrets.tx.1, tls13, secrets.tx.0)?;
        let session = Offloaded {
            kept,
            decrypter: decrypter(suite, secrets.rx.1)?,
            connection,
            sequence: secrets.rx.0,
            message: Vec::new(),
            key_updates_left: KEY_UPDATES_MAX,
            warnings_left: WARNINGS_MAX,
            renegotiated: false,
            rekeys: rekeys && tls13,
            next: None,
            sealed: secrets.tx.0,
        };
        Ok((session, sealing))
    }

    fn is_tls13(&self) -> bool {
        self.connection.protocol_version() == ProtocolVersion::TLSv1_3
    }

    /// Opens a whole record, in place. What has to be sent is appended to `output`, also in case of
    /// an error.
    pub(crate) fn open<'a>(
        &mut self,
        record: &'a mut [u8],
        output: &mut Vec<u8>,
    ) -> Result<Seen<'a>, Error> {
        let begin = output.len();
        self.open_record(record, output).map_err(|error| {
            output.truncate(begin);
            if let Some(alert) = alert_of(&error) {
                append_alert(output, true, alert);
            }
            error.into()
        })
    }

    fn open_record<'a>(
        &mut self,
        record: &'a mut [u8],
        output: &mut Vec<u8>,
    ) -> Result<Seen<'a>, rustls::Error> {
        let tls13 = self.is_tls13();
        let unexpected = || PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into();
        let Some((header, payload)) = record.split_at_mut_checked(HEADER_BYTES) else {
            return Err(InvalidMessage::MessageTooShort.into());
        };
        let kind = header[0];
        if tls13 && kind != APPLICATION_DATA {
            return Err(unexpected());
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
                Ok(Seen::Data(opened.payload))
            }
            ALERT => self.alert(opened.payload),
            HANDSHAKE if tls13 => self.key_update(opened.payload, output),
            HANDSHAKE if opened.payload.first() == Some(&CLIENT_HELLO) && !self.renegotiated => {
                self.renegotiated = true;
                append_alert(output, false, AlertDescription::NoRenegotiation);
                Ok(Seen::Data(&[]))
            }
            HANDSHAKE if opened.payload.first() == Some(&CLIENT_HELLO) => {
                Err(PeerMisbehaved::TooManyRenegotiationRequests.into())
            }
            _ => Err(unexpected()),
        }
    }

    fn alert(&mut self, payload: &[u8]) -> Result<Seen<'static>, rustls::Error> {
        let &[level, description] = payload else {
            return Err(InvalidMessage::MessageTooShort.into());
        };
        let description = AlertDescription::from(description);
        if description == AlertDescription::CloseNotify {
            return Ok(Seen::End);
        }
        let is_ignored = !self.is_tls13() || description == AlertDescription::UserCanceled;
        if level != 1 || !is_ignored {
            return Err(rustls::Error::AlertReceived(description));
        }
        match self.warnings_left.checked_sub(1) {
            Some(left) => self.warnings_left = left,
            None => return Err(PeerMisbehaved::TooManyWarningAlertsReceived.into()),
        }
        Ok(Seen::Data(&[]))
    }

    /// Acts upon a handshake message: of a client, only a KeyUpdate is allowed.
    fn key_update(
        &mut self,
        part: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Seen<'static>, rustls::Error> {
        let invalid = || rustls::Error::from(InvalidMessage::InvalidKeyUpdate);
        // It must be the last message of its record.
        if self.message.len() + part.len() > KEY_UPDATE.len() + 1 {
            return Err(invalid());
        }
        self.message.extend_from_slice(part);
        let known = self.message.len().min(KEY_UPDATE.len());
        if self.message[..known] != KEY_UPDATE[..known] {
            return Err(invalid());
        }
        let Some(&request) = self.message.get(KEY_UPDATE.len()) else {
            return Ok(Seen::Data(&[]));
        };
        self.message = Vec::new();
        match self.key_updates_left.checked_sub(1) {
            Some(left) => self.key_updates_left = left,
            None => return Err(PeerMisbehaved::TooManyKeyUpdateRequests.into()),
        }
        if request > 1 {
            return Err(invalid());
        }
        let (sequence, secrets) = self.connection.update_rx_secret()?;
        let suite = self.connection.negotiated_cipher_suite();
        self.decrypter = decrypter(suite, secrets)
            .map_err(|_| rustls::Error::General("no cipher for new keys".to_owned()))?;
        self.sequence = sequence;
        match request {
            0 => Ok(Seen::Data(&[])),
            _ if !self.rekeys => Ok(Seen::NeedsKeys),
            _ => self.replace_keys(output).map(|()| Seen::Data(&[])),
        }
    }

    /// Begins to replace the keys for sending; not while that is under way.
    fn replace_keys(&mut self, output: &mut Vec<u8>) -> Result<(), rustls::Error> {
        if self.next.is_some() {
            return Ok(());
        }
        let (sequence, secrets) = self.connection.update_tx_secret()?;
        let sealing = Sealing::new(secrets, true, sequence)
            .map_err(|_| rustls::Error::General("no cipher for new keys".to_owned()))?;
        append_record(output, HANDSHAKE, &[&KEY_UPDATE[..], &[0]].concat());
        self.next = Some(sealing);
        Ok(())
    }

    /// The keys that follow a KeyUpdate.
    pub(crate) fn take_keys(&mut self) -> Option<Sealing> {
        let next = self.next.take();
        if next.is_some() {
            self.sealed = 0;
        }
        next
    }

    /// The kernel has sealed at most this many records. In time before a cipher's limit, begins to
    /// replace the keys.
    ///
    /// # Errors
    /// The limit is reached, and keys cannot be replaced.
    pub(crate) fn sealed(&mut self, records: u64, output: &mut Vec<u8>) -> Result<(), Error> {
        self.sealed = self.sealed.saturating_add(records);
        let limit = confidentiality_limit(self.connection.negotiated_cipher_suite());
        if self.sealed < limit.saturating_sub(RECORDS_MARGIN) {
            return Ok(());
        }
        match self.rekeys {
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

/// The alert that tells the peer of an error; `None`: it was the peer that has failed.
fn alert_of(error: &rustls::Error) -> Option<AlertDescription> {
    use rustls::Error as Is;
    Some(match error {
        Is::AlertReceived(_) => return None,
        Is::DecryptError => AlertDescription::BadRecordMac,
        Is::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
        Is::InvalidMessage(InvalidMessage::InvalidKeyUpdate) | Is::PeerMisbehaved(_) => {
            AlertDescription::UnexpectedMessage
        }
        Is::InvalidMessage(_) => AlertDescription::DecodeError,
        _ => AlertDescription::InternalError,
    })
}

/// Appends `close_notify`.
pub(crate) fn append_end(output: &mut Vec<u8>) {
    append_alert(output, false, AlertDescription::CloseNotify);
}

fn append_alert(output: &mut Vec<u8>, fatal: bool, alert: AlertDescription) {
    append_record(output, ALERT, &[1 + u8::from(fatal), u8::from(alert)]);
}

fn append_record(output: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let len = u16::try_from(content.len()).expect("alerts and key updates are short");
    let [high, low] = len.to_be_bytes();
    output.extend_from_slice(&[kind, 3, 3, high, low]);
    output.extend_from_slice(content);
}

/// Splits the first record off what a session has appended to output since it is offloaded: its type,
/// its content, and its length with the header.
pub fn split_record(output: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (&[kind, _, _, high, low], rest) = output.split_first_chunk()?;
    let len = usize::from(u16::from_be_bytes([high, low]));
    Some((kind, rest.get(..len)?, HEADER_BYTES + len))
}
