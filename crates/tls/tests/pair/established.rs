//! A server after its handshake, whose records are sealed by this program, and later by another party:
//! here, in place of the kernel, by this test, as the kernel does it. The client is rustls itself.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::sync::Arc;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use nowait_tls::{
    Acceptor, Ciphers, Error, PLAINTEXT_BYTES_MAX, Sealing, SealingCipher, ServerSettings, Session,
    Stop, TlsServer, split_record,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore};

use crate::certificates::{ecdsa, root};

const SUITES: [CipherSuite; 6] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Seals as the kernel does (tls_sw.c): explicit nonces of TLS 1.2 are counted up.
pub struct Kernel {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    tls13: bool,
    explicit: bool,
}

impl Kernel {
    pub fn new(sealing: &Sealing) -> Kernel {
        let algorithm = match sealing.cipher() {
            SealingCipher::Aes128Gcm => &aead::AES_128_GCM,
            SealingCipher::Aes256Gcm => &aead::AES_256_GCM,
            SealingCipher::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        let tls13 = sealing.is_tls13();
        Kernel {
            key: LessSafeKey::new(UnboundKey::new(algorithm, sealing.key()).unwrap()),
            iv: *sealing.iv(),
            sequence: sealing.sequence(),
            tls13,
            explicit: !tls13 && sealing.cipher() != SealingCipher::Chacha20Poly1305,
        }
    }

    pub fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        if !self.explicit {
            let sequence = self.sequence.to_be_bytes();
            nonce[4..].iter_mut().zip(sequence).for_each(|(byte, with)| *byte ^= with);
        }
        let mut data = content.to_vec();
        let explicit = if self.explicit { nonce[4..].to_vec() } else { Vec::new() };
        let outer = if self.tls13 { 23 } else { kind };
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = if self.tls13 {
            data.push(kind);
            let [high, low] = (data.len() as u16 + 16).to_be_bytes();
            vec![23, 3, 3, high, low]
        } else {
            let [high, low] = (data.len() as u16).to_be_bytes();
            [&self.sequence.to_be_bytes()[..], &[kind, 3, 3, high, low]].concat()
        };
        self.key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut data).unwrap();
        self.sequence += 1;
        if self.explicit {
            let next = u64::from_be_bytes(self.iv[4..].try_into().unwrap()).wrapping_add(1);
            self.iv[4..].copy_from_slice(&next.to_be_bytes());
        }
        let [high, low] = ((explicit.len() + data.len()) as u16).to_be_bytes();
        [&[outer, 3, 3, high, low][..], &explicit, &data].concat()
    }
}

/// A client and a server after the handshake.
struct EstablishedPair {
    client: ClientConnection,
    server: Session,
    kernel: Option<Kernel>,
    /// What the server had sent before.
    sealed: Vec<u8>,
    /// What the server has read.
    read: Vec<u8>,
    /// What the client has read.
    answered: Vec<u8>,
    /// Why the client has failed.
    told: Option<rustls::Error>,
}

fn settings() -> ServerSettings {
    ServerSettings {
        identities: vec![ecdsa()],
        ciphers: Ciphers::default(),
        offloads: true,
        ..Default::default()
    }
}

fn client(suite: CipherSuite) -> ClientConnection {
    let mut provider = default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    let version = provider.cipher_suites[0].version();
    let mut roots = RootCertStore::empty();
    roots.add(root().certificate.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[version]).unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::try_from("example.com").unwrap()).unwrap()
}

impl EstablishedPair {
    fn new(suite: CipherSuite) -> EstablishedPair {
        EstablishedPair::of(suite, settings())
    }

    fn of(suite: CipherSuite, settings: ServerSettings) -> EstablishedPair {
        let server = TlsServer::new(settings).unwrap();
        let mut client = client(suite);
        let mut acceptor = Acceptor::default();
        let hello = acceptor.receive(&written(&mut client)).unwrap().unwrap();
        let (server, input) = hello.begin(&server).unwrap();
        let mut pair = EstablishedPair {
            client,
            server,
            kernel: None,
            sealed: Vec::new(),
            read: Vec::new(),
            answered: Vec::new(),
            told: None,
        };
        pair.serve(input).unwrap();
        while pair.client.is_handshaking() || pair.server.is_handshaking() {
            assert_eq!(pair.receive().unwrap(), Stop::Input);
        }
        pair
    }

    /// The server opens what it has received; what it sends goes to the client.
    fn serve(&mut self, mut input: Vec<u8>) -> Result<Stop, Error> {
        let mut plain = vec![0; 4 * PLAINTEXT_BYTES_MAX];
        let mut output = Vec::new();
        let opened = self.server.open(&mut input, &mut plain, &mut output, true);
        self.hand_over(output);
        let opened = opened?;
        assert!(opened.stop == Stop::Ended || opened.consumed == input.len());
        self.read.extend_from_slice(&plain[..opened.written]);
        Ok(opened.stop)
    }

    /// The server has appended this to output.
    fn hand_over(&mut self, mut output: Vec<u8>) {
        while self.kernel.is_some()
            && let Some((kind, content, len)) = split_record(&output)
        {
            self.send(kind, content);
            if kind == 22
                && let Some(keys) = self.server.take_keys()
            {
                self.kernel = Some(Kernel::new(&keys));
            }
            output.drain(..len);
        }
        self.tell(&output);
    }

    /// The kernel seals and sends.
    fn send(&mut self, kind: u8, content: &[u8]) {
        let sealed = self.kernel.as_mut().unwrap().seal(kind, content);
        self.tell(&sealed);
    }

    fn tell(&mut self, mut bytes: &[u8]) {
        self.sealed.extend_from_slice(bytes);
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).unwrap();
            self.told = self.told.take().or(self.client.process_new_packets().err());
            // It ends in an error: there is no more, yet.
            let _ = self.client.reader().read_to_end(&mut self.answered);
        }
    }

    fn receive(&mut self) -> Result<Stop, Error> {
        let sent = written(&mut self.client);
        self.serve(sent)
    }

    fn offload(&mut self, rekeys: bool) {
        assert!(self.server.offloadable().is_some());
        let sealing = self.server.offload(rekeys).unwrap();
        self.kernel = Some(Kernel::new(&sealing));
    }

    #[track_caller]
    fn expect(&mut self, text: &[u8]) {
        assert!(std::mem::take(&mut self.answered) == text);
    }

    /// A request and its response.
    #[track_caller]
    fn ask(&mut self) {
        self.client.writer().write_all(b"question").unwrap();
        assert_eq!(self.receive().unwrap(), Stop::Input);
        assert_eq!(std::mem::take(&mut self.read), b"question");
        match &self.kernel {
            Some(_) => self.send(23, b"answer"),
            None => {
                let mut output = Vec::new();
                self.server.seal(&[b"answer"], &mut output).unwrap();
                self.tell(&output);
            }
        }
        self.expect(b"answer");
    }
}

fn written(client: &mut ClientConnection) -> Vec<u8> {
    let mut sent = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut sent).unwrap();
    }
    sent
}

#[test]
fn both_directions_go_on_with_every_suite() {
    for suite in SUITES {
        // At once, and after some records.
        for before in [0, 1, 5] {
            let mut pair = EstablishedPair::new(suite);
            (0..before).for_each(|_| pair.ask());
            let facts = |session: &Session| {
                let facts =
                    (session.protocol(), session.cipher(), session.curve(), session.sigalg());
                (facts, session.is_reused(), session.server_name().map(str::to_owned))
            };
            let known = facts(&pair.server);
            pair.offload(false);
            assert_eq!(facts(&pair.server), known);
            assert!(pair.server.offloadable().is_none());
            assert!(pair.server.seal(&[b"here"], &mut Vec::new()).is_err());
            (0..5).for_each(|_| pair.ask());
            // Large records, several at once.
            let large = vec![7; 3 * PLAINTEXT_BYTES_MAX];
            pair.client.writer().write_all(&large).unwrap();
            pair.receive().unwrap();
            assert!(pair.read == large);
            // The server ends its side, and the client its own.
            let mut output = Vec::new();
            pair.server.end(&mut output);
            assert_eq!(output, [21, 3, 3, 0, 2, 1, 0]);
            pair.hand_over(output);
            assert_eq!(pair.client.reader().read(&mut [0]).unwrap(), 0, "close_notify");
            pair.client.send_close_notify();
            assert_eq!(pair.receive().unwrap(), Stop::Ended);
            assert!(pair.server.has_ended() && !pair.server.needs_keys());
        }
    }
}

/// In TLS 1.2, a nonce must not be used twice with a key (RFC 5288, 3): those of rustls and of the
/// kernel have nothing in common.
#[test]
fn explicit_nonces_differ() {
    for suite in &SUITES[3..5] {
        let mut pair = EstablishedPair::new(*suite);
        (0..300).for_each(|_| pair.ask());
        pair.offload(false);
        (0..300).for_each(|_| pair.ask());
        let (mut rest, mut nonces, mut records) = (&pair.sealed[..], HashSet::new(), 0);
        while let Some((kind, content, len)) = split_record(rest) {
            if kind == 23 {
                nonces.insert(content[..8].to_vec());
                records += 1;
            }
            rest = &rest[len..];
        }
        assert_eq!((records, nonces.len()), (600, 600));
    }
}

#[test]
fn parts_fill_records() {
    for suite in SUITES {
        for (record_bytes, counts) in [(0, [1, 2, 4]), (1400, [12, 12, 44])] {
            let mut pair =
                EstablishedPair::of(suite, ServerSettings { record_bytes, ..settings() });
            // A frame's header and its content in one record, a byte more, and many.
            for (parts, count) in [vec![9, 16_375], vec![9, 0, 16_375, 1], vec![1, 60_000, 1000]]
                .into_iter()
                .zip(counts)
            {
                let parts: Vec<Vec<u8>> =
                    parts.into_iter().zip(b'a'..).map(|(len, byte)| vec![byte; len]).collect();
                let plain: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
                let mut output = Vec::new();
                pair.server.seal(&plain, &mut output).unwrap();
                let (mut rest, mut records) = (&output[..], 0);
                while let Some((kind, _, len)) = split_record(rest) {
                    assert_eq!(kind, 23);
                    records += 1;
                    rest = &rest[len..];
                }
                assert_eq!(records, count, "{suite:?}, {record_bytes}");
                pair.tell(&output);
                pair.expect(&parts.concat());
            }
            let mut output = Vec::new();
            pair.server.seal(&[], &mut output).unwrap();
            pair.server.seal(&[b""], &mut output).unwrap();
            assert!(output.is_empty(), "nothing has no record");
        }
    }
}

#[test]
fn the_client_replaces_its_keys_while_they_are_used_here() {
    for suite in &SUITES[..3] {
        let mut pair = EstablishedPair::new(*suite);
        for _ in 0..3 {
            pair.ask();
            // rustls asks for an answer.
            pair.client.refresh_traffic_keys().unwrap();
        }
        pair.ask();
        // The keys that are handed over are those of the moment.
        pair.offload(false);
        pair.ask();
    }
}

#[test]
fn the_end_is_sealed() {
    for suite in SUITES {
        let mut pair = EstablishedPair::new(suite);
        pair.ask();
        let mut output = Vec::new();
        pair.server.end(&mut output);
        assert_ne!(output, [21, 3, 3, 0, 2, 1, 0]);
        pair.tell(&output);
        assert_eq!(pair.client.reader().read(&mut [0]).unwrap(), 0, "close_notify");
        assert!(pair.server.seal(&[b"more"], &mut output).is_err());
    }
}

#[test]
fn the_client_replaces_its_keys() {
    for suite in &SUITES[..3] {
        for rekeys in [false, true] {
            let mut pair = EstablishedPair::new(*suite);
            pair.ask();
            pair.offload(rekeys);
            pair.ask();
            // rustls asks for an answer.
            pair.client.refresh_traffic_keys().unwrap();
            if rekeys {
                pair.ask();
                pair.client.refresh_traffic_keys().unwrap();
                pair.ask();
            } else {
                pair.client.writer().write_all(b"lost").unwrap();
                assert_eq!(pair.receive().unwrap(), Stop::Ended);
                assert!(pair.server.needs_keys());
                assert_eq!(pair.read, b"", "nothing is answered with the old keys");
            }
        }
    }
}

#[test]
fn an_answer_to_a_key_update_leaves_before() {
    for suite in &SUITES[..3] {
        let mut pair = EstablishedPair::new(*suite);
        pair.client.refresh_traffic_keys().unwrap();
        assert_eq!(pair.receive().unwrap(), Stop::Input);
        pair.offload(false);
        pair.ask();
    }
}

#[test]
fn key_updates_without_data_are_limited() {
    let mut pair = EstablishedPair::new(SUITES[0]);
    pair.offload(true);
    let mut updates = 0;
    let error = loop {
        pair.client.refresh_traffic_keys().unwrap();
        match pair.receive() {
            Ok(stop) => assert_eq!(stop, Stop::Input),
            Err(error) => break error,
        }
        updates += 1;
        assert!(updates < 100);
    };
    assert_eq!(updates, 32);
    let alert = rustls::AlertDescription::UnexpectedMessage;
    assert_eq!(pair.told, Some(rustls::Error::AlertReceived(alert)));
    assert!(matches!(error, Error::Connection(rustls::Error::PeerMisbehaved(_))), "{error}");
}

/// Near the limit of a cipher, this side replaces its keys by itself, once; or it fails.
#[test]
fn keys_are_replaced_in_time() {
    let most = (1 << 23) - 10_000;
    for (suite, rekeys) in [(SUITES[0], true), (SUITES[0], false), (SUITES[3], false)] {
        let mut pair = EstablishedPair::new(suite);
        pair.offload(rekeys);
        let mut output = Vec::new();
        pair.server.sealed(most, &mut output).unwrap();
        assert!(output.is_empty());
        let sealed = pair.server.sealed(1 << 24, &mut output);
        assert_eq!(sealed.is_ok(), rekeys, "{suite:?}");
        if rekeys {
            pair.server.sealed(1, &mut output).unwrap();
            assert_eq!(output, [22, 3, 3, 0, 5, 24, 0, 0, 1, 0]);
            pair.hand_over(output);
            pair.ask();
            let mut output = Vec::new();
            pair.server.sealed(most, &mut output).unwrap();
            assert!(output.is_empty());
        }
    }
    // ChaCha20 has no limit.
    let mut pair = EstablishedPair::new(SUITES[2]);
    pair.offload(false);
    pair.server.sealed(1 << 60, &mut Vec::new()).unwrap();
}

#[test]
fn broken_records_are_answered_by_an_alert() {
    for suite in SUITES {
        for (record, alert) in [
            // No record of this session.
            (&b"\x17\x03\x03\x00\x28no record of this session, but long enough"[..], 20),
            // Too short.
            (&b"\x17\x03\x03\x00\x02no"[..], 20),
            // Too long: its header is enough to know.
            (&b"\x17\x03\x03\x48\x01"[..], 22),
            // Without protection, which TLS 1.3 does not have any more, and TLS 1.2 cannot open.
            (&b"\x14\x03\x03\x00\x01\x01"[..], if SUITES[..3].contains(&suite) { 10 } else { 20 }),
        ] {
            let mut pair = EstablishedPair::new(suite);
            pair.offload(false);
            let mut input = record[..record.len().min(45)].to_vec();
            let mut output = Vec::new();
            let mut plain = vec![0; PLAINTEXT_BYTES_MAX];
            let result = pair.server.open(&mut input, &mut plain, &mut output, true);
            assert!(result.is_err());
            assert_eq!(output, [21, 3, 3, 0, 2, 2, alert], "{suite:?}");
            // Nothing more is sent, or opened.
            pair.server.end(&mut output);
            assert_eq!(output.len(), 7);
            assert!(pair.server.open(&mut input, &mut plain, &mut output, true).is_err());
            // Sealed here.
            let mut pair = EstablishedPair::new(suite);
            assert!(pair.serve(record[..record.len().min(45)].to_vec()).is_err());
            assert!(pair.told.is_some(), "{suite:?}");
        }
    }
}

#[test]
fn sessions_are_handed_over_only_after_the_handshake() {
    let mut client = client(SUITES[0]);
    let mut acceptor = Acceptor::default();
    let hello = acceptor.receive(&written(&mut client)).unwrap().unwrap();
    let (mut session, _) = hello.begin(&TlsServer::new(settings()).unwrap()).unwrap();
    assert!(session.offloadable().is_none());
    assert!(session.offload(false).is_err());
    assert!(session.seal(&[b"x"], &mut Vec::new()).is_err());
}
