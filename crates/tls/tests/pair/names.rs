//! Server names that rustls does not accept. Its client does not send them either: what this one sends is
//! changed on the way, and so is what it hashes.

use std::sync::Arc;

use nowait_tls::{Acceptor, ClientCertificates, ServerSettings, TicketKeys, Versions};
use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::crypto::{CipherSuiteCommon, CryptoProvider, aws_lc_rs};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite, Tls12CipherSuite,
    Tls13CipherSuite,
};

use crate::certificates::{CertificateSpec, ecdsa, intermediate, root, verifier};
use crate::link::{LinkEnd, server};

/// With their type and length, as in the extension; the name is in certificates, too.
const SENT: &[u8] = b"\0\0\x0bexample.com";
pub const ODD: &[u8] = b"\0\0\x0b-xample.com";

pub fn renamed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let found = bytes.windows(SENT.len()).position(|part| part == SENT);
    if let Some(at) = found {
        bytes[at..at + SENT.len()].copy_from_slice(ODD);
    }
    bytes
}

struct Renaming(&'static dyn Hash);
struct Renamed(Box<dyn Context>);

impl Hash for Renaming {
    fn start(&self) -> Box<dyn Context> {
        Box::new(Renamed(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(&renamed(data))
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }
}

impl Context for Renamed {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Renamed(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        self.0.update(&renamed(data));
    }
}

fn renaming(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let common = |common: &CipherSuiteCommon| CipherSuiteCommon {
        suite: common.suite,
        hash_provider: Box::leak(Box::new(Renaming(common.hash_provider))),
        confidentiality_limit: common.confidentiality_limit,
    };
    match suite {
        SupportedCipherSuite::Tls12(suite) => {
            let Tls12CipherSuite { prf_provider, kx, sign, aead_alg, .. } = *suite;
            let common = common(&suite.common);
            let own = Tls12CipherSuite { common, prf_provider, kx, sign, aead_alg };
            SupportedCipherSuite::Tls12(Box::leak(Box::new(own)))
        }
        SupportedCipherSuite::Tls13(suite) => {
            let Tls13CipherSuite { hkdf_provider, aead_alg, quic, .. } = *suite;
            let common = common(&suite.common);
            let own = Tls13CipherSuite { common, hkdf_provider, aead_alg, quic };
            SupportedCipherSuite::Tls13(Box::leak(Box::new(own)))
        }
    }
}

/// A client that first guesses the server's second group.
pub fn client(versions: Versions, certified: bool, guesses_wrong: bool) -> Arc<ClientConfig> {
    let groups = match guesses_wrong {
        true => vec![aws_lc_rs::kx_group::SECP384R1, aws_lc_rs::kx_group::X25519],
        false => vec![aws_lc_rs::kx_group::X25519],
    };
    let provider = aws_lc_rs::default_provider();
    let cipher_suites = provider.cipher_suites.iter().copied().map(renaming).collect();
    let provider = CryptoProvider { cipher_suites, kx_groups: groups, ..provider };
    let mut roots = RootCertStore::empty();
    roots.add(root().certificate.clone()).unwrap();
    let list: &[_] = match versions.tls13 {
        true => &[&rustls::version::TLS13],
        false => &[&rustls::version::TLS12],
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(list).unwrap().with_root_certificates(roots);
    Arc::new(match certified {
        false => builder.with_no_client_auth(),
        true => {
            let (certificate, key) = CertificateSpec::default().make(intermediate());
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let chain = vec![certificate, intermediate().certificate.clone()];
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

/// Makes a handshake, and exchanges data afterwards.
fn handshake(config: &Arc<ClientConfig>, on: &nowait_tls::TlsServer, record: usize) -> LinkEnd {
    let name = "example.com".try_into().unwrap();
    let mut client = ClientConnection::new(config.clone(), name).unwrap();
    let mut sent = Vec::new();
    client.write_tls(&mut sent).unwrap();
    // The hello in records of this size.
    let sent = renamed(&sent);
    let mut acceptor = Acceptor::default();
    let hello = sent[5..].chunks(record).find_map(|part| {
        let len = (part.len() as u16).to_be_bytes();
        acceptor.receive(&[&[22, 3, 1], &len[..], part].concat()).unwrap()
    });
    let hello = hello.unwrap();
    assert_eq!(hello.server_name().unwrap().as_bytes(), &ODD[3..]);
    let (session, input) = hello.begin(on).unwrap();
    let mut server = LinkEnd::new(session, input);
    for _ in 0..6 {
        server.open().unwrap();
        let output = std::mem::take(&mut server.output);
        let mut rest = &output[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        server.input.extend_from_slice(&renamed(&sent));
    }
    assert!(!client.is_handshaking() && !server.session.is_handshaking());
    assert_eq!(server.session.server_name().unwrap().as_bytes(), &ODD[3..]);
    std::io::Write::write_all(&mut client.writer(), b"data").unwrap();
    client.write_tls(&mut server.input).unwrap();
    server.open().unwrap();
    assert_eq!(server.read, b"data");
    server
}

#[test]
fn handshakes_with_them_are_made() {
    for tls13 in [true, false] {
        for (certified, guesses_wrong) in [(false, false), (true, false), (true, true)] {
            let versions = Versions { tls12: !tls13, tls13 };
            if certified && !tls13 {
                // This client signs what it believes to have sent; OpenSSL's does better (tests/peers).
                continue;
            }
            let client_certificates = certified.then(|| ClientCertificates {
                verifier: verifier(5),
                named: Vec::new(),
                keeps_path: false,
            });
            let settings = ServerSettings {
                identities: vec![ecdsa()],
                groups: nowait_tls::Groups::parse("X25519"),
                client_certificates,
                tickets: Some(Arc::new(TicketKeys::generated().unwrap())),
                ..ServerSettings::default()
            };
            let server = server(settings);
            let client = client(versions, certified, guesses_wrong);
            for (record, resumed) in [(16_384, false), (100, true), (1, true)] {
                let end = handshake(&client, &server, record);
                assert_eq!(end.session.is_reused(), resumed, "{tls13} {certified} {record}");
                assert_eq!(end.session.trust(), certified.then_some(Ok(())));
            }
        }
    }
}

#[test]
fn a_changed_hello_is_noticed() {
    // The client hashes a name that it has not sent.
    let on = server(ServerSettings { identities: vec![ecdsa()], ..ServerSettings::default() });
    let config = client(Versions::default(), false, false);
    let name = "example.com".try_into().unwrap();
    let mut client = ClientConnection::new(config, name).unwrap();
    let mut sent = Vec::new();
    client.write_tls(&mut sent).unwrap();
    let at = sent.windows(SENT.len()).position(|part| part == SENT).unwrap();
    sent[at..at + SENT.len()].copy_from_slice(b"\0\0\x0b-another.co");
    let hello = Acceptor::default().receive(&sent).unwrap().unwrap();
    let (session, input) = hello.begin(&on).unwrap();
    let mut end = LinkEnd::new(session, input);
    end.open().unwrap();
    let mut rest = &end.output[..];
    client.read_tls(&mut rest).unwrap();
    assert!(client.process_new_packets().is_err());
}

#[test]
fn the_fingerprint_does_not_depend_on_the_name() {
    let fingerprint = |name: &[u8]| {
        let config = client(Versions::default(), false, false);
        let mut client = ClientConnection::new(config, "example.com".try_into().unwrap()).unwrap();
        let mut sent = Vec::new();
        client.write_tls(&mut sent).unwrap();
        let at = sent.windows(SENT.len()).position(|part| part == SENT).unwrap();
        sent[at..at + SENT.len()].copy_from_slice(&[b"\0\0\x0b", name].concat());
        let hello = Acceptor::default().receive(&sent).unwrap().unwrap();
        hello.offered().ja4
    };
    let accepted = fingerprint(b"example.com");
    assert!(accepted.starts_with("t13d"), "{accepted}");
    assert_eq!(fingerprint(b"-another.co"), accepted);
}
