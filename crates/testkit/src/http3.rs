//! A blocking HTTP/3 client (RFC 9114): requests in any order, and any bytes on any stream.
//!
//! What comes is parsed strictly: a frame in a wrong place, or fields that can't be decoded, fail the test. What a
//! client must not send is sent with [`Http3::frame`], or on streams of [`Http3::quic`].

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::qpack::{self, FieldPair};
use crate::quic::{ConnectionError, Dir, Quic, QuicOptions, StreamId};
use crate::response::Response;

/// Types of frames (RFC 9114, 7.2).
pub mod frame {
    /// DATA
    pub const DATA: u64 = 0;
    /// HEADERS
    pub const HEADERS: u64 = 1;
    /// CANCEL_PUSH
    pub const CANCEL_PUSH: u64 = 3;
    /// SETTINGS
    pub const SETTINGS: u64 = 4;
    /// PUSH_PROMISE
    pub const PUSH_PROMISE: u64 = 5;
    /// GOAWAY
    pub const GOAWAY: u64 = 7;
    /// MAX_PUSH_ID
    pub const MAX_PUSH_ID: u64 = 0xd;
    /// PRIORITY_UPDATE of a request (RFC 9218, 7.2)
    pub const PRIORITY_UPDATE: u64 = 0xf_0700;
}

/// Codes of errors (RFC 9114, 8.1; RFC 9204, 6).
pub mod code {
    /// H3_NO_ERROR
    pub const NO_ERROR: u64 = 0x100;
    /// H3_GENERAL_PROTOCOL_ERROR
    pub const GENERAL_PROTOCOL_ERROR: u64 = 0x101;
    /// H3_INTERNAL_ERROR
    pub const INTERNAL_ERROR: u64 = 0x102;
    /// H3_STREAM_CREATION_ERROR
    pub const STREAM_CREATION_ERROR: u64 = 0x103;
    /// H3_CLOSED_CRITICAL_STREAM
    pub const CLOSED_CRITICAL_STREAM: u64 = 0x104;
    /// H3_FRAME_UNEXPECTED
    pub const FRAME_UNEXPECTED: u64 = 0x105;
    /// H3_FRAME_ERROR
    pub const FRAME_ERROR: u64 = 0x106;
    /// H3_EXCESSIVE_LOAD
    pub const EXCESSIVE_LOAD: u64 = 0x107;
    /// H3_ID_ERROR
    pub const ID_ERROR: u64 = 0x108;
    /// H3_SETTINGS_ERROR
    pub const SETTINGS_ERROR: u64 = 0x109;
    /// H3_MISSING_SETTINGS
    pub const MISSING_SETTINGS: u64 = 0x10a;
    /// H3_REQUEST_REJECTED
    pub const REQUEST_REJECTED: u64 = 0x10b;
    /// H3_REQUEST_CANCELLED
    pub const REQUEST_CANCELLED: u64 = 0x10c;
    /// H3_REQUEST_INCOMPLETE
    pub const REQUEST_INCOMPLETE: u64 = 0x10d;
    /// H3_MESSAGE_ERROR
    pub const MESSAGE_ERROR: u64 = 0x10e;
    /// QPACK_DECOMPRESSION_FAILED
    pub const QPACK_DECOMPRESSION_FAILED: u64 = 0x200;
    /// QPACK_ENCODER_STREAM_ERROR
    pub const QPACK_ENCODER_STREAM_ERROR: u64 = 0x201;
    /// QPACK_DECODER_STREAM_ERROR
    pub const QPACK_DECODER_STREAM_ERROR: u64 = 0x202;
}

/// Settings (RFC 9114, 7.2.4.1; RFC 9204, 5; RFC 9220, 3).
pub mod setting {
    /// SETTINGS_QPACK_MAX_TABLE_CAPACITY
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 1;
    /// SETTINGS_MAX_FIELD_SECTION_SIZE
    pub const MAX_FIELD_SECTION_SIZE: u64 = 6;
    /// SETTINGS_QPACK_BLOCKED_STREAMS
    pub const QPACK_BLOCKED_STREAMS: u64 = 7;
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 8;
}

/// Types of unidirectional streams (RFC 9114, 6.2; RFC 9204, 4.2).
mod stream {
    pub const CONTROL: u64 = 0;
    pub const PUSH: u64 = 1;
    pub const ENCODER: u64 = 2;
    pub const DECODER: u64 = 3;
}

/// TLS that trusts everyone, for an application protocol such as `h3`.
///
/// # Panics
/// Never: the cryptography has TLS 1.3.
pub fn trusting(protocol: &str) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider()));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).expect("TLS 1.3");
    let verifier = Arc::new(TrustsAll(provider()));
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    config.enable_early_data = true;
    Arc::new(config)
}

fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

#[derive(Debug)]
struct TrustsAll(CryptoProvider);

impl ServerCertVerifier for TrustsAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What has come for a request.
#[derive(Clone, Debug, Default)]
pub struct Http3Exchange {
    /// Heads of interim responses: status and fields.
    pub interim: Vec<(u16, Vec<FieldPair>)>,
    /// The status; 0 before there is a response.
    pub status: u16,
    /// The fields.
    pub headers: Vec<FieldPair>,
    /// The content.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Vec<FieldPair>,
    /// It is complete.
    pub ended: bool,
    /// The code with which the response was reset.
    pub reset: Option<u64>,
    /// The code with which the server refused to read more of the request.
    pub stopped: Option<u64>,
    /// Bytes of the stream that were parsed.
    parsed: usize,
    /// Bytes of a DATA frame that are still to come.
    data_left: usize,
    /// DATA has come.
    has_data: bool,
}

impl Http3Exchange {
    /// As a response.
    pub fn response(&self) -> Response {
        Response {
            version: "HTTP/3".to_owned(),
            status: self.status,
            reason: String::new(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            trailers: self.trailers.clone(),
        }
    }
}

/// What a client states on its control stream besides nothing.
#[derive(Clone, Debug)]
pub struct Http3Options {
    /// The transport.
    pub quic: QuicOptions,
    /// The settings.
    pub settings: Vec<(u64, u64)>,
}

impl Default for Http3Options {
    fn default() -> Http3Options {
        Http3Options { quic: QuicOptions::new(trusting("h3")), settings: Vec::new() }
    }
}

/// A connection to a server.
pub struct Http3 {
    /// The transport.
    pub quic: Quic,
    /// The client's control stream.
    pub control: StreamId,
    /// The client's QPACK encoder stream.
    pub encoder: StreamId,
    /// The client's QPACK decoder stream.
    pub decoder: StreamId,
    name: String,
    qpack: qpack::Decoder,
    exchanges: BTreeMap<StreamId, Http3Exchange>,
    /// The server's streams by their type.
    opened: BTreeMap<u64, StreamId>,
    /// Bytes of them that were parsed.
    parsed: BTreeMap<StreamId, usize>,
    settings: Option<BTreeMap<u64, u64>>,
    goaway: Option<u64>,
}

impl Http3 {
    /// Connects to a port of 127.0.0.1, without a QPACK table.
    ///
    /// # Panics
    /// If there is no connection.
    #[track_caller]
    pub fn to_port(port: u16) -> Http3 {
        Http3::connect(port, &Http3Options::default()).expect("a connection")
    }

    /// Connects to a port of 127.0.0.1.
    ///
    /// # Errors
    /// The reason why there is no connection.
    ///
    /// # Panics
    /// If that takes too long.
    #[track_caller]
    pub fn connect(port: u16, options: &Http3Options) -> Result<Http3, ConnectionError> {
        let quic = Quic::connect(port, &options.quic)?;
        Ok(Http3::over(quic, options))
    }

    /// Begins the protocol on a connection, whose handshake may not be complete yet.
    #[track_caller]
    pub fn over(mut quic: Quic, options: &Http3Options) -> Http3 {
        let [control, encoder, decoder] =
            [stream::CONTROL, stream::ENCODER, stream::DECODER].map(|kind| {
                let id = quic.open(Dir::Uni);
                quic.write(id, &varint(kind));
                id
            });
        let mut settings = Vec::new();
        for (name, value) in &options.settings {
            settings.extend(varint(*name));
            settings.extend(varint(*value));
        }
        quic.write(control, &frame_of(frame::SETTINGS, &settings));
        let mut capacity = options.settings.iter();
        let capacity = capacity.find(|(name, _)| *name == setting::QPACK_MAX_TABLE_CAPACITY);
        let capacity = capacity.map_or(0, |(_, value)| usize::try_from(*value).expect("memory"));
        Http3 {
            quic,
            control,
            encoder,
            decoder,
            name: options.quic.name.clone(),
            qpack: qpack::Decoder::new(capacity),
            exchanges: BTreeMap::new(),
            opened: BTreeMap::new(),
            parsed: BTreeMap::new(),
            settings: None,
            goaway: None,
        }
    }

    /// Sends the head of a request, which `end` completes.
    #[track_caller]
    pub fn open(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        end: bool,
    ) -> StreamId {
        let name = self.name.clone();
        let mut head =
            vec![(":method", method), (":scheme", "https"), (":authority", &name), (":path", path)];
        head.extend(fields);
        self.open_head(&head, end)
    }

    /// Sends a head with just these fields.
    #[track_caller]
    pub fn open_head(&mut self, head: &[(&str, &str)], end: bool) -> StreamId {
        let id = self.open_stream();
        if end {
            self.quic.write_last(id, &frame_of(frame::HEADERS, &qpack::encode(head)));
        } else {
            self.fields(id, head);
        }
        id
    }

    /// Opens a stream for a request, and sends nothing.
    #[track_caller]
    pub fn open_stream(&mut self) -> StreamId {
        let id = self.quic.open(Dir::Bi);
        self.exchanges.insert(id, Http3Exchange::default());
        id
    }

    /// Sends a section of fields: trailers, after a head.
    #[track_caller]
    pub fn fields(&mut self, id: StreamId, fields: &[(&str, &str)]) {
        self.frame(id, frame::HEADERS, &qpack::encode(fields));
    }

    /// Sends content, which `end` completes.
    #[track_caller]
    pub fn data(&mut self, id: StreamId, content: &[u8], end: bool) {
        if !content.is_empty() {
            self.frame(id, frame::DATA, content);
        }
        if end {
            self.quic.finish(id);
        }
    }

    /// Sends a frame on any stream.
    #[track_caller]
    pub fn frame(&mut self, id: StreamId, kind: u64, payload: &[u8]) {
        self.quic.write(id, &frame_of(kind, payload));
    }

    /// Opens a unidirectional stream of a type.
    #[track_caller]
    pub fn open_uni(&mut self, kind: u64) -> StreamId {
        let id = self.quic.open(Dir::Uni);
        self.quic.write(id, &varint(kind));
        id
    }

    /// Requests a path and awaits the response.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Response {
        let id = self.open("GET", path, &[], true);
        self.response(id)
    }

    /// Sends a request with content and awaits the response.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        content: &[u8],
    ) -> Response {
        let id = self.open(method, path, fields, content.is_empty());
        if !content.is_empty() {
            self.data(id, content, true);
        }
        self.response(id)
    }

    /// The complete response to a request.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn response(&mut self, id: StreamId) -> Response {
        let exchange = self.end_of(id);
        assert!(exchange.ended, "no response: {exchange:?}, {:?}", self.quic.lost());
        exchange.response()
    }

    /// What has come for a request when it has ended in one way or another.
    ///
    /// # Panics
    /// If it does not end.
    #[track_caller]
    pub fn end_of(&mut self, id: StreamId) -> Http3Exchange {
        self.until("the end of a response", |http3| {
            let exchange = &http3.exchanges[&id];
            exchange.ended || exchange.reset.is_some() || http3.quic.lost().is_some()
        });
        self.exchanges[&id].clone()
    }

    /// What has come for a request so far.
    pub fn exchange(&self, id: StreamId) -> &Http3Exchange {
        &self.exchanges[&id]
    }

    /// What has come for a request so far, which is not looked at any more.
    pub fn forget(&mut self, id: StreamId) -> Http3Exchange {
        self.exchanges.remove(&id).unwrap_or_default()
    }

    /// Receives what comes within a moment, and parses it.
    #[track_caller]
    pub fn turn(&mut self) {
        self.quic.step();
        self.look();
    }

    /// The code with which the server closes the connection.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn close_code(&mut self) -> u64 {
        self.until("the end of the connection", |http3| http3.quic.lost().is_some());
        match self.quic.close_code() {
            Some(code) => code,
            None => panic!("not closed by HTTP/3: {:?}", self.quic.lost()),
        }
    }

    /// The server's settings.
    ///
    /// # Panics
    /// If it sends none.
    #[track_caller]
    pub fn settings(&mut self) -> BTreeMap<u64, u64> {
        self.until("settings", |http3| http3.settings.is_some());
        self.settings.clone().unwrap_or_default()
    }

    /// The stream of the server's GOAWAY, if there was one.
    pub fn goaway(&self) -> Option<u64> {
        self.goaway
    }

    /// Entries that the server has put into the QPACK table.
    pub fn inserted(&self) -> usize {
        self.qpack.inserted()
    }

    /// Continues until a condition holds.
    ///
    /// # Panics
    /// If that takes too long.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Http3) -> bool) {
        crate::wait::until(what, crate::wait::PATIENCE, || {
            self.look();
            if holds(self) {
                return Some(());
            }
            self.quic.step();
            self.look();
            holds(self).then_some(())
        });
    }

    /// Parses what has come.
    #[track_caller]
    fn look(&mut self) {
        for id in self.quic.streams() {
            if id.dir() == Dir::Uni && id.initiator() != quinn_proto::Side::Client {
                self.look_uni(id);
            }
        }
        let ids: Vec<_> = self.exchanges.keys().copied().collect();
        for id in ids {
            self.look_request(id);
        }
    }

    /// A stream that the server has opened.
    #[track_caller]
    fn look_uni(&mut self, id: StreamId) {
        let mut at = self.parsed.get(&id).copied().unwrap_or(0);
        let bytes = self.quic.bytes(id).to_vec();
        let Some((kind, len)) = read_varint(&bytes) else { return };
        if at == 0 {
            assert_ne!(kind, stream::PUSH, "nothing is pushed");
            let before = self.opened.insert(kind, id);
            assert!(before.is_none() || kind > stream::DECODER, "a second stream of type {kind}");
            at = len;
        }
        match kind {
            stream::CONTROL => {
                while let Some((kind, payload, len)) = read_frame(&bytes[at..]) {
                    self.control(kind, payload);
                    at += len;
                }
            }
            stream::ENCODER => {
                let decoded = self.qpack.instructions(&bytes[at..]);
                decoded.unwrap_or_else(|fault| panic!("the encoder stream: {fault}"));
                at = bytes.len();
            }
            _ => at = bytes.len(),
        }
        self.parsed.insert(id, at);
    }

    #[track_caller]
    fn control(&mut self, kind: u64, payload: &[u8]) {
        assert!(self.settings.is_some() || kind == frame::SETTINGS, "settings come first");
        match kind {
            frame::SETTINGS => {
                assert!(self.settings.is_none(), "second settings");
                let mut settings = BTreeMap::new();
                let mut rest = payload;
                while !rest.is_empty() {
                    let (name, len) = read_varint(rest).expect("a whole setting");
                    let (value, len) = read_varint(&rest[len..])
                        .map(|(value, more)| (value, len + more))
                        .expect("a whole setting");
                    assert!(settings.insert(name, value).is_none(), "{name:#x} is stated twice");
                    rest = &rest[len..];
                }
                self.settings = Some(settings);
            }
            frame::GOAWAY => {
                let (id, len) = read_varint(payload).expect("a stream");
                assert_eq!(len, payload.len());
                assert!(self.goaway.is_none_or(|before| id <= before), "GOAWAY that grows");
                self.goaway = Some(id);
            }
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE | frame::MAX_PUSH_ID => {
                panic!("a frame of type {kind} on the control stream")
            }
            _ => {}
        }
    }

    #[track_caller]
    fn look_request(&mut self, id: StreamId) {
        let input = self.quic.input(id);
        let mut exchange = self.exchanges.remove(&id).unwrap_or_default();
        (exchange.reset, exchange.stopped) = (input.reset, input.stopped);
        let mut blocked = false;
        loop {
            let rest = &input.bytes[exchange.parsed..];
            if exchange.data_left > 0 {
                let len = exchange.data_left.min(rest.len());
                exchange.body.extend_from_slice(&rest[..len]);
                exchange.data_left -= len;
                exchange.parsed += len;
                if exchange.data_left > 0 {
                    break;
                }
                continue;
            }
            let Some((kind, head)) = read_varint(rest) else { break };
            let Some((len, more)) = read_varint(&rest[head..]) else { break };
            let (head, len) = (head + more, usize::try_from(len).expect("memory"));
            if kind == frame::DATA {
                assert!(exchange.status >= 200, "content before a head");
                assert!(exchange.trailers.is_empty(), "content after trailers");
                exchange.has_data = true;
                exchange.parsed += head;
                exchange.data_left = len;
                continue;
            }
            let Some(payload) = rest.get(head..head + len) else { break };
            match kind {
                frame::HEADERS => match self.qpack.section(payload) {
                    Ok(Some((fields, required))) => {
                        if required > 0 {
                            let mut acknowledgement = Vec::new();
                            let id = usize::try_from(u64::from(id)).expect("memory");
                            nowait_fields::integer::write(&mut acknowledgement, 0x80, 7, id);
                            self.quic.write(self.decoder, &acknowledgement);
                        }
                        take_head(&mut exchange, fields);
                    }
                    Ok(None) => {
                        blocked = true;
                        break;
                    }
                    Err(fault) => panic!("a section of fields: {fault}"),
                },
                frame::SETTINGS | frame::GOAWAY | frame::MAX_PUSH_ID | frame::PUSH_PROMISE => {
                    panic!("a frame of type {kind} on a request's stream")
                }
                _ => {}
            }
            exchange.parsed += head + len;
        }
        if input.ended && !blocked {
            assert_eq!(exchange.parsed, input.bytes.len(), "the last frame is cut off");
            assert_eq!(exchange.data_left, 0, "the last frame is cut off");
            assert!(exchange.status >= 200, "no final response");
            exchange.ended = true;
        }
        self.exchanges.insert(id, exchange);
    }
}

#[track_caller]
fn take_head(exchange: &mut Http3Exchange, mut fields: Vec<FieldPair>) {
    for (name, _) in &fields {
        assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase()), "a name in capitals: {name}");
    }
    if exchange.status >= 200 {
        assert!(exchange.trailers.is_empty(), "second trailers");
        assert!(!fields.iter().any(|(name, _)| name.starts_with(':')), "a status in trailers");
        exchange.trailers = fields;
        return;
    }
    assert_eq!(fields.first().map(|(name, _)| &name[..]), Some(":status"), "no status");
    let status: u16 = fields.remove(0).1.parse().expect("a number");
    assert!(!fields.iter().any(|(name, _)| name.starts_with(':')), "another pseudo-field");
    match status {
        100..=199 => exchange.interim.push((status, fields)),
        _ => (exchange.status, exchange.headers) = (status, fields),
    }
}

/// A variable-length integer (RFC 9000, 16).
pub fn varint(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![u8::try_from(value).unwrap_or_default()],
        0x40..0x4000 => (u16::try_from(value).unwrap_or_default() | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => {
            (u32::try_from(value).unwrap_or_default() | 0x8000_0000).to_be_bytes().to_vec()
        }
        _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

/// A variable-length integer, and its length.
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let rest = bytes.get(1..len)?;
    let begin = u64::from(first & 0x3f);
    Some((rest.iter().fold(begin, |value, byte| value << 8 | u64::from(*byte)), len))
}

/// A frame.
pub fn frame_of(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = varint(kind);
    out.extend(varint(payload.len() as u64));
    out.extend_from_slice(payload);
    out
}

/// A complete frame: its type, its payload, and its length.
fn read_frame(bytes: &[u8]) -> Option<(u64, &[u8], usize)> {
    let (kind, head) = read_varint(bytes)?;
    let (len, more) = read_varint(&bytes[head..])?;
    let head = head + more;
    let end = head + usize::try_from(len).ok()?;
    Some((kind, bytes.get(head..end)?, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_in_all_lengths() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1] {
            let bytes = varint(value);
            assert_eq!(read_varint(&bytes), Some((value, bytes.len())));
            assert_eq!(read_varint(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn frames_are_read_when_they_are_complete() {
        let bytes = frame_of(frame::DATA, b"abc");
        assert_eq!(read_frame(&bytes), Some((0, &b"abc"[..], 5)));
        assert_eq!(read_frame(&bytes[..4]), None);
    }
}
