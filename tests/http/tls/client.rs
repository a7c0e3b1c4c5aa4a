//! A TLS client, and an authority that makes certificates.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use nowait_testkit::{Server, wait};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A certificate with its key, in PEM.
pub struct Issued {
    pub chain: String,
    pub key: String,
}

/// Issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Another handle to its key.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn key(&self) -> KeyPair {
        KeyPair::from_pem(&self.issuer.key().serialize_pem()).unwrap()
    }

    /// A certificate for a server, or a client, of this name.
    pub fn issue(&self, name: &str) -> Issued {
        self.issue_for(name, KeyPair::generate().unwrap())
    }

    /// The same for a given key.
    pub fn issue_for(&self, name: &str, key: KeyPair) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(params, key)
    }

    /// A certificate like this.
    pub fn sign(&self, params: CertificateParams, key: KeyPair) -> Issued {
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// A revocation list, in PEM.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn list(&self, params: CertificateRevocationListParams) -> String {
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }

    /// A client of TLS 1.2 that trusts it, with this cryptography.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn client_of(&self, provider: CryptoProvider) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
        Arc::new(builder.with_root_certificates(self.roots()).with_no_client_auth())
    }

    /// The same of TLS 1.3.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn client_of_tls13(&self, provider: CryptoProvider) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        Arc::new(builder.with_root_certificates(self.roots()).with_no_client_auth())
    }

    /// What a client needs to trust it; sessions are resumed by clients with the same settings.
    pub fn client(&self, own: Option<&Issued>) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(Issued { chain, key }) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

/// A connection.
pub struct TlsClient {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl TlsClient {
    /// Connects, and asks for the server of this name.
    pub fn new(server: &Server, config: &Arc<ClientConfig>, name: &str) -> TlsClient {
        TlsClient::over(TcpStream::connect(server.addr()).unwrap(), config, name)
    }

    pub fn over(socket: TcpStream, config: &Arc<ClientConfig>, name: &str) -> TlsClient {
        socket.set_read_timeout(Some(wait::PATIENCE)).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(config.clone(), name).unwrap();
        TlsClient { stream: StreamOwned::new(connection, socket) }
    }

    pub fn tls(&self) -> &ClientConnection {
        &self.stream.conn
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self.stream.flush().unwrap();
    }

    /// Sends as much as the connection takes at once.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.sock.set_nonblocking(true)?;
        self.stream.write(bytes)
    }

    /// Reads what has arrived, without waiting.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn try_read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.sock.set_nonblocking(true)?;
        self.stream.read(bytes)
    }

    pub fn reader(&mut self) -> impl Read {
        &mut self.stream
    }

    /// Asks `localhost`; returns the head and the body of the response.
    pub fn get(&mut self, target: &str) -> (String, Vec<u8>) {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        self.response()
    }

    /// Receives a response with a `Content-Length`.
    pub fn response(&mut self) -> (String, Vec<u8>) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.stream.read_exact(&mut body).unwrap();
        (head, body)
    }

    /// Asks, and returns the body as a text.
    pub fn text(&mut self, target: &str) -> String {
        String::from_utf8(self.get(target).1).unwrap()
    }

    /// Receives until the server ends its side, and checks that it says so by `close_notify`.
    pub fn expect_end(&mut self) {
        assert_eq!(self.rest(), b"");
    }

    /// Ends this side, and says so.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn end(&mut self) {
        self.stream.conn.send_close_notify();
        self.stream.flush().unwrap();
    }

    /// Replaces the keys of this side, and asks the server to do the same. Leaves with the next data.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn refresh_keys(&mut self) {
        self.stream.conn.refresh_traffic_keys().unwrap();
    }

    /// Sends what waits for the next data.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn flush(&mut self) {
        while self.stream.conn.wants_write() {
            self.stream.conn.write_tls(&mut self.stream.sock).unwrap();
        }
    }

    /// Sends bytes past TLS.
    #[allow(dead_code, reason = "only some of the tests that include this file use it")]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.sock.write_all(bytes).unwrap();
    }

    /// Receives everything until the server ends its side, and checks that it says so by
    /// `close_notify`.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        rest
    }

    /// Why the handshake fails.
    pub fn failure(mut self) -> String {
        while self.stream.conn.is_handshaking() {
            if let Err(error) = self.stream.conn.complete_io(&mut self.stream.sock) {
                return error.to_string();
            }
        }
        // With TLS 1.3, the client is done before the server looks at its certificate.
        match self.stream.read(&mut [0]) {
            Ok(_) => panic!("the handshake succeeded"),
            Err(error) => error.to_string(),
        }
    }
}
