//! TLS of clients and of origins: their connections are made as those to upstream servers and those of clients
//! are. The certificate is fixed, and its signatures have one length: bytes differ between two runs of a seed,
//! but no lengths.

use std::sync::Arc;
use std::time::Duration;

use nowait_front::tls::kernel::KernelUse;
use nowait_front::tls::{self, Chosen, ClientSettings, Handshake, TlsClient, TlsServer};
use nowait_runtime::net::Stream;
use nowait_runtime::pool::Pool;
use nowait_tls::pem::{self, PrivateKey};
use nowait_tls::{Identity, ServerSettings, TicketKeys};

/// The names of the files with the certificate and its key.
pub const FILES: [(&str, &str); 2] = [("/etc/own.pem", CERTIFICATE), ("/etc/own.key", KEY)];

/// The time for a handshake: more than the server gives.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Of `localhost`, until 2126.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBPjCB8aADAgECAhR++ugCYo2te4jxbOgusKU6laO/bzAFBgMrZXAwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNzA3NDM1N1oYDzIxMjYxMTAzMDc0MzU3
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwKjAFBgMrZXADIQDs0uqKtl0DOV50xSew
mzsEevWJ9xdlKnnnm5/FlvSnAqNTMFEwHQYDVR0OBBYEFMVoeBOxR6WitN810O2X
XtbMZ4sMMB8GA1UdIwQYMBaAFMVoeBOxR6WitN810O2XXtbMZ4sMMA8GA1UdEwEB
/wQFMAMBAf8wBQYDK2VwA0EASITQWsFmQO/OfIZINjTlc7Zabr4TIy44mQsyOn5n
GBziFBpFoHQj3dSeGLDAd+4Q1p2gx96IB36bup4gk1O8AQ==
-----END CERTIFICATE-----
";

/// The key, an Ed25519 one.
const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJLQEofrwxb/VzE8gLk0sz3w0+3Hks9265a2f5O0v7Q3
-----END PRIVATE KEY-----
";

/// Makes the handshake. An error is the text of the failure.
pub async fn connect(stream: &Stream, pool: Pool, http2: bool) -> Result<(), String> {
    let protocol = if http2 { &b"h2"[..] } else { b"http/1.1" };
    let alpn = vec![protocol.to_vec()];
    let settings = ClientSettings { alpn, reuses_sessions: false, ..ClientSettings::default() };
    let client = TlsClient::new(settings).map_err(|error| error.to_string())?;
    let session = client.connect("localhost").map_err(|error| error.to_string())?;
    let handshake = Handshake { timeout: TIMEOUT, pool, client: 0 };
    tls::connect(stream, session, &handshake).await.map_err(|failure| failure.to_string())
}

/// The server of origins, with tickets. It accepts every version and protocol that the proxy chooses.
pub fn server() -> TlsServer {
    let chain = pem::certificates(CERTIFICATE.as_bytes()).unwrap();
    let key = PrivateKey::from_pem(KEY.as_bytes(), &[]).unwrap();
    let settings = ServerSettings {
        identities: vec![Identity::new(chain, &key, None).unwrap()],
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        tickets: Some(Arc::new(TicketKeys::generated().unwrap())),
        ..ServerSettings::default()
    };
    TlsServer::new(settings).unwrap()
}

/// Makes the handshake of an origin. False: the proxy has left.
pub async fn accept(stream: &Stream, server: &TlsServer, pool: Pool) -> bool {
    let Ok(first) = stream.recv(TIMEOUT).await else { return false };
    let handshake = Handshake { timeout: TIMEOUT, pool, client: 0 };
    let chosen = Chosen {
        server: server.clone(),
        keeps_offers: false,
        judge: None,
        ocsp: None,
        key_log: None,
        kernel: KernelUse::Never,
        kernel_log: None,
    };
    !first.is_empty() && tls::accept(stream, &first, &handshake, async |_| Ok(chosen)).await.is_ok()
}
