//! The other side of TLS: certificates for the servers, and clients that cost little.
//!
//! The clients offer what both servers have (X25519, both versions of TLS) and verify nothing, so that
//! most of a handshake's cost is the server's.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, SignatureScheme,
    StreamOwned,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The type of a server's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// P-256.
    Ecdsa,
    /// 2,048 bits.
    Rsa,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub chain: PathBuf,
    pub key: PathBuf,
    /// Both in one file.
    pub both: PathBuf,
}

impl Certificate {
    /// The lines that name them, for nginx and Nowait.
    pub fn lines(&self) -> String {
        format!(
            "ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.2 TLSv1.3;",
            self.chain.display(),
            self.key.display()
        )
    }
}

/// Writes a certificate and its key.
///
/// # Errors
/// The files can't be written.
pub fn certificate(directory: &Path, key: KeyType) -> Result<Certificate, String> {
    let pair = match key {
        KeyType::Ecdsa => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        KeyType::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
    };
    let pair = pair.map_err(|error| error.to_string())?;
    let params = CertificateParams::new(vec!["localhost".to_owned()]);
    let signed = params.and_then(|params| params.self_signed(&pair));
    let signed = signed.map_err(|error| error.to_string())?.pem();
    let path = |name| directory.join(name);
    let written =
        Certificate { chain: path("own.pem"), key: path("own.key"), both: path("both.pem") };
    std::fs::write(&written.chain, &signed)
        .and_then(|()| std::fs::write(&written.key, pair.serialize_pem()))
        .and_then(|()| std::fs::write(&written.both, signed + &pair.serialize_pem()))
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(written)
}

/// A client's settings; `resumes`: with the sessions of earlier connections.
pub fn client(resumes: bool) -> Arc<ClientConfig> {
    let provider = rustls::crypto::CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything))
        .with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Arc::new(config)
}

/// A connection after its handshake.
pub struct TlsConnection(StreamOwned<ClientConnection, TcpStream>);

impl TlsConnection {
    /// Connects.
    ///
    /// # Errors
    /// Those of the socket and of the handshake.
    pub fn open(target: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<TlsConnection> {
        let socket = TcpStream::connect_timeout(&target, TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        TlsConnection::over(socket, config)
    }

    /// Makes the handshake on a connection.
    pub fn over(mut socket: TcpStream, config: &Arc<ClientConfig>) -> io::Result<TlsConnection> {
        let name = ServerName::try_from("localhost").expect("a valid name");
        let mut connection =
            ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(TlsConnection(StreamOwned::new(connection, socket)))
    }

    /// The socket, and what encrypts.
    pub fn into_parts(self) -> (TcpStream, ClientConnection) {
        (self.0.sock, self.0.conn)
    }

    /// Whether it goes on with a session.
    pub fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

impl Read for TlsConnection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for TlsConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Accepts every certificate.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
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
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256]
    }
}
