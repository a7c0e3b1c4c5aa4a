//! The cryptography of packets for `quinn-proto`: TLS sessions of `nowait_tls`, and the integrity tag of Retry packets
//! (RFC 9001).

use std::any::Any;
use std::io::Cursor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::BytesMut;
use nowait_tls::quic::{QuicFailure, QuicSession, QuicStart, initial_keys};
use nowait_tls::{Error, Session as TlsSession, TlsClient};
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::quic;

use crate::packet::varint;

/// The version of QUIC that is spoken (RFC 9000).
pub(crate) const VERSION: u32 = 1;

/// Bytes of the integrity tag (RFC 9001, 5.8).
const TAG_BYTES: usize = 16;

/// The key and the nonce of Retry packets (RFC 9001, 5.8).
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const RETRY_NONCE: [u8; 12] =
    [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];

static RETRY: LazyLock<LessSafeKey> = LazyLock::new(|| {
    let key = UnboundKey::new(&AES_128_GCM, &RETRY_KEY);
    LessSafeKey::new(key.expect("the key has the length of the algorithm"))
});

/// The integrity tag of a Retry packet.
fn retry_tag(original: &ConnectionId, packet: &[&[u8]]) -> [u8; TAG_BYTES] {
    let mut covered = vec![original.len() as u8];
    covered.extend_from_slice(original);
    packet.iter().for_each(|part| covered.extend_from_slice(part));
    let nonce = Nonce::assume_unique_for_key(RETRY_NONCE);
    let tag = RETRY.seal_in_place_separate_tag(nonce, Aad::from(covered), &mut []);
    let mut bytes = [0; TAG_BYTES];
    if let Ok(tag) = tag {
        bytes.copy_from_slice(tag.as_ref());
    }
    bytes
}

/// A header key of rustls.
struct HeaderProtection(Box<dyn quic::HeaderProtectionKey>);

/// Bytes of a packet number, at most: the sample is taken behind as many (RFC 9001, 5.4.2).
const NUMBER_BYTES_MAX: usize = 4;

impl HeaderProtection {
    /// Applies `protect` to the sample, the first byte and the packet number.
    fn apply(
        &self,
        offset: usize,
        packet: &mut [u8],
        protect: impl FnOnce(
            &dyn quic::HeaderProtectionKey,
            &[u8],
            &mut u8,
            &mut [u8],
        ) -> Result<(), rustls::Error>,
    ) {
        let (header, rest) = packet.split_at_mut(offset + NUMBER_BYTES_MAX);
        let (first, header) = header.split_at_mut(1);
        let done = protect(
            &*self.0,
            &rest[..self.0.sample_len()],
            &mut first[0],
            &mut header[offset - 1..],
        );
        debug_assert!(done.is_ok(), "the sample has the length that the key wants");
    }
}

impl HeaderKey for HeaderProtection {
    fn decrypt(&self, offset: usize, packet: &mut [u8]) {
        self.apply(offset, packet, |key, sample, first, number| {
            key.decrypt_in_place(sample, first, number)
        });
    }

    fn encrypt(&self, offset: usize, packet: &mut [u8]) {
        self.apply(offset, packet, |key, sample, first, number| {
            key.encrypt_in_place(sample, first, number)
        });
    }

    fn sample_size(&self) -> usize {
        self.0.sample_len()
    }
}

/// A packet key of rustls.
struct PacketProtection(Box<dyn quic::PacketKey>);

impl PacketKey for PacketProtection {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let (header, rest) = buf.split_at_mut(header_len);
        let (payload, tag) = rest.split_at_mut(rest.len() - self.0.tag_len());
        // Fails only for payloads of gigabytes. Then the tag stays wrong, and the peer drops the packet.
        if let Ok(made) = self.0.encrypt_in_place(packet, header, payload) {
            tag.copy_from_slice(made.as_ref());
        }
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let plain = self.0.decrypt_in_place(packet, header, payload).map_err(|_| CryptoError)?;
        let len = plain.len();
        payload.truncate(len);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

fn keys_of(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(HeaderProtection(keys.local.header)),
            remote: Box::new(HeaderProtection(keys.remote.header)),
        },
        packet: packet_keys(keys.local.packet, keys.remote.packet),
    }
}

fn packet_keys(
    local: Box<dyn quic::PacketKey>,
    remote: Box<dyn quic::PacketKey>,
) -> KeyPair<Box<dyn PacketKey>> {
    KeyPair { local: Box::new(PacketProtection(local)), remote: Box::new(PacketProtection(remote)) }
}

/// What the code around a connection knows of its handshake.
#[derive(Default)]
pub(crate) struct HandshakeState {
    /// The next step takes long.
    slow: AtomicBool,
    /// Early data may be read.
    early: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl HandshakeState {
    /// `slow`: the first step takes long.
    pub(crate) fn new(slow: bool) -> HandshakeState {
        HandshakeState { slow: AtomicBool::new(slow), ..HandshakeState::default() }
    }

    /// Whether the next step takes long.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    /// Whether early data may be read.
    pub(crate) fn has_early_data(&self) -> bool {
        self.early.load(Ordering::Relaxed)
    }

    /// The reason why TLS has failed, if it has.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A TLS session.
struct TlsHandshake {
    inner: QuicSession,
    state: Arc<HandshakeState>,
}

impl TlsHandshake {
    fn new(inner: QuicSession, state: Arc<HandshakeState>) -> TlsHandshake {
        let session = TlsHandshake { inner, state };
        session.note();
        session
    }

    fn note(&self) {
        self.state.slow.store(self.inner.is_slow(), Ordering::Relaxed);
    }

    fn side(&self) -> Side {
        match self.inner.is_early_data_accepted() {
            Some(_) => Side::Client,
            None => Side::Server,
        }
    }
}

impl Session for TlsHandshake {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        keys_of(initial_keys(id, side.is_server()))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.inner.early_keys()?;
        self.state.early.store(true, Ordering::Relaxed);
        Some((Box::new(HeaderProtection(keys.header)), Box::new(PacketProtection(keys.packet))))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.is_early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let read = self.inner.read(buf);
        self.note();
        read.map(|()| false).map_err(|QuicFailure { alert, error }| {
            let reason = match &error {
                Error::Connection(error) => error.to_string(),
                error => error.to_string(),
            };
            *self.state.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            TransportError { code: TransportErrorCode::crypto(alert), frame: None, reason }
        })
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = self.inner.peer_params() else { return Ok(None) };
        Ok(Some(TransportParameters::read(self.side(), &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.inner.write(buf);
        self.note();
        keys.map(keys_of)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_keys()?;
        Some(packet_keys(keys.local, keys.remote))
    }

    fn is_valid_retry(&self, original: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(len) = payload.len().checked_sub(TAG_BYTES) else { return false };
        let (token, tag) = payload.split_at(len);
        retry_tag(original, &[header, token]) == *tag
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export(output, label, context).map_err(|_| ExportKeyingMaterialError)
    }
}

/// A session that ends the handshake with an alert.
struct RefusingSession {
    alert: u8,
}

impl Session for RefusingSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        keys_of(initial_keys(id, side.is_server()))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        true
    }

    fn read_handshake(&mut self, _: &[u8]) -> Result<bool, TransportError> {
        let code = TransportErrorCode::crypto(self.alert);
        Err(TransportError { code, frame: None, reason: String::new() })
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(None)
    }

    fn write_handshake(&mut self, _: &mut Vec<u8>) -> Option<Keys> {
        None
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        None
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

/// How the handshake of a client begins.
pub(crate) enum ServerSide {
    /// By this session.
    Start {
        /// The session; taken when it begins, because the library keeps this as long as the connection.
        start: Mutex<Option<Box<QuicStart>>>,
        /// Told of its progress.
        state: Arc<HandshakeState>,
        /// Connection IDs that the client may have in use at a time.
        ids_max: u32,
    },
    /// It is ended by this alert.
    Refuse(u8),
    /// It does not: only stateless answers are made.
    Stateless,
}

/// TLS alert: internal_error (RFC 8446, 6.2).
pub(crate) const INTERNAL_ERROR: u8 = 80;

impl ServerConfig for ServerSide {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        match version {
            VERSION => Ok(keys_of(initial_keys(id, true))),
            _ => Err(UnsupportedVersion),
        }
    }

    fn retry_tag(&self, _: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag(original, &[packet])
    }

    fn start_session(self: Arc<Self>, _: u32, params: &TransportParameters) -> Box<dyn Session> {
        let alert = match &*self {
            ServerSide::Start { start, state, ids_max } => {
                let start = start.lock().unwrap_or_else(PoisonError::into_inner).take();
                let params = limit_ids(encoded(params), *ids_max);
                match start.map(|start| start.session(params)) {
                    Some(Ok(session)) => {
                        return Box::new(TlsHandshake::new(session, state.clone()));
                    }
                    Some(Err(error)) => {
                        *state.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        INTERNAL_ERROR
                    }
                    None => INTERNAL_ERROR,
                }
            }
            ServerSide::Refuse(alert) => *alert,
            ServerSide::Stateless => INTERNAL_ERROR,
        };
        Box::new(RefusingSession { alert })
    }
}

fn encoded(params: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    bytes
}

/// Lowers the transport parameter `active_connection_id_limit` (RFC 9000, 18.2) to `max`, at least 2. The library has
/// no setting for it: what it states is what it has room for.
fn limit_ids(params: Vec<u8>, max: u32) -> Vec<u8> {
    const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
    /// The largest number of one byte.
    const ONE_BYTE_MAX: u64 = 63;
    let mut params = params;
    let mut at = 0;
    while let Some((id, id_len)) = varint(&params[at..])
        && let Some((len, len_len)) = varint(&params[at + id_len..])
    {
        let value = at + id_len + len_len;
        if id == ACTIVE_CONNECTION_ID_LIMIT
            && let Some((stated, 1)) = params.get(value..).and_then(varint)
        {
            params[value] = stated.min(u64::from(max).clamp(2, ONE_BYTE_MAX)) as u8;
            break;
        }
        at = value.saturating_add(len as usize).min(params.len());
    }
    params
}

/// A client's session to begin.
pub(crate) struct ClientSide {
    pub(crate) client: TlsClient,
    pub(crate) state: Arc<HandshakeState>,
    /// Shows the facts of the session, once it has begun.
    pub(crate) session: Mutex<Option<TlsSession>>,
}

impl ClientConfig for ClientSide {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let begun = self.client.connect_quic(server_name, encoded(params));
        let (inner, session) = begun.map_err(|error| match error {
            Error::Settings(_) => ConnectError::InvalidServerName(server_name.to_owned()),
            _ => ConnectError::EndpointStopping,
        })?;
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        Ok(Box::new(TlsHandshake::new(inner, self.state.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_ids_is_lowered_and_nothing_else_changes() {
        let before = [0x04, 2, 0x40, 0x0e, 0x0e, 1, 5, 0x40, 0xff, 3, 0x0e, 1, 5, 0x0c, 0];
        for (max, stated) in [(0, 2), (2, 2), (4, 4), (5, 5), (100, 5)] {
            let mut expected = before;
            expected[6] = stated;
            assert_eq!(limit_ids(before.to_vec(), max), expected);
        }
        // Without the parameter, and malformed.
        for other in [&[][..], &[0x0e], &[0x0e, 1], &[0x0c, 0], &[0x04, 0x3f, 1], &[0xc0]] {
            assert_eq!(limit_ids(other.to_vec(), 2), other);
        }
    }

    #[test]
    fn the_tag_is_that_of_the_rfc() {
        // RFC 9001, appendix A.4.
        let original = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
        let packet = [
            0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62,
            0xb5, 0x74, 0x6f, 0x6b, 0x65, 0x6e,
        ];
        let tag = [
            0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24,
            0x96, 0xba,
        ];
        assert_eq!(retry_tag(&original, &[&packet]), tag);
    }
}
