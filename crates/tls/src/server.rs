//! Settings of a server, and what results from them.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{KeyLog, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use crate::cache::{SessionCache, Sessions};
use crate::ciphers::Ciphers;
use crate::compression;
use crate::error::Error;
use crate::groups::Groups;
use crate::identity::{self, Identities, Identity};
use crate::quic;
use crate::tickets::{TicketKeys, Tickets};
use crate::transcript;
use crate::verify::{self, AnyClientVerifier, Verifier};

/// nginx's default of `ssl_session_timeout`.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(300);

/// Plaintext in a record: at least, and at most.
const RECORD_BYTES: std::ops::RangeInclusive<usize> = 32..=16384;

/// The header of a record, which rustls includes in its size of fragments.
const HEADER_BYTES: usize = 5;

/// Tickets that a client gets after a full handshake with TLS 1.3.
const TICKETS: usize = 2;

/// Versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// TLS 1.2.
    pub tls12: bool,
    /// TLS 1.3.
    pub tls13: bool,
}

impl Default for Versions {
    fn default() -> Versions {
        Versions { tls12: true, tls13: true }
    }
}

impl Versions {
    /// Newest first.
    pub(crate) fn list(self) -> Vec<&'static SupportedProtocolVersion> {
        let all = [(self.tls13, &TLS13), (self.tls12, &TLS12)];
        all.into_iter().filter(|(on, _)| *on).map(|(_, version)| version).collect()
    }
}

/// The request for client certificates (`ssl_verify_client`). The code that serves the request handles a
/// missing or untrusted certificate.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// Trusted authorities; with `optional_no_ca`, possibly none.
    pub verifier: Arc<Verifier>,
    /// Certificates whose subjects are sent to the client (`ssl_client_certificate`).
    pub named: Vec<CertificateDer<'static>>,
    /// Sessions remember the path to the trusted certificate ([`Session::path`](crate::Session::path)).
    pub keeps_path: bool,
}

/// The settings of a server.
#[derive(Debug, Default)]
pub struct ServerSettings {
    /// Certificates with keys, of different types.
    pub identities: Vec<Identity>,
    /// For identities that are added later ([`TlsServer::with_identities`]): an identifier that differs
    /// from those of other servers, so that no session is resumed with another one.
    pub names: Vec<Vec<u8>>,
    /// Protocol versions.
    pub versions: Versions,
    /// Cipher suites.
    pub ciphers: Ciphers,
    /// The server's order of suites counts, not the client's.
    pub prefers_own_ciphers: bool,
    /// Groups for key exchange.
    pub groups: Groups,
    /// Application protocols in order of preference; empty: none is negotiated.
    pub alpn: Vec<Vec<u8>>,
    /// Application protocols over QUIC, in order of preference (`h3`); empty: QUIC is not spoken.
    pub quic_alpn: Vec<Vec<u8>>,
    /// `None`: no certificates are requested.
    pub client_certificates: Option<ClientCertificates>,
    /// `None`: no tickets.
    pub tickets: Option<Arc<TicketKeys>>,
    /// `None`: no cache. Used without tickets, and with early data.
    pub cache: Option<Arc<SessionCache>>,
    /// The time during which sessions can be resumed; `None`: [`SESSION_TIMEOUT`].
    pub session_timeout: Option<Duration>,
    /// Maximum of early data in bytes; zero: none is accepted. Needs the cache: only with it can a
    /// session be used once, which keeps early data from being replayed.
    pub early_data_bytes_max: u32,
    /// Maximum of plaintext in a record (`ssl_buffer_size`); zero: 16,384.
    pub record_bytes: usize,
    /// Certificates are compressed for clients that allow it (`ssl_certificate_compression`).
    pub compresses_certificates: bool,
    /// Sessions may leave sealing to another party ([`Session::offload`](crate::Session::offload)).
    pub offloads: bool,
    /// The log of secrets (`ssl_key_log`).
    pub key_log: Option<Arc<dyn KeyLog>>,
}

/// A server for connections: shared and immutable.
#[derive(Clone, Debug)]
pub struct TlsServer {
    pub(crate) config: Arc<ServerConfig>,
    /// The same for QUIC, if it is spoken.
    pub(crate) quic: Option<Arc<ServerConfig>>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) client_certificates: Option<Arc<ClientCertificates>>,
    pub(crate) early_data: bool,
    /// Maximum of plaintext in a record.
    pub(crate) record_bytes: usize,
    pub(crate) offloads: bool,
}

impl TlsServer {
    /// Combines settings.
    ///
    /// # Errors
    /// The settings exclude each other, or leave no suites.
    pub fn new(settings: ServerSettings) -> Result<TlsServer, Error> {
        let mut provider = provider(&settings.ciphers, &settings.groups, settings.versions)?;
        provider.cipher_suites.iter_mut().for_each(|suite| *suite = transcript::restoring(*suite));
        let algorithms = provider.signature_verification_algorithms;
        let versions = settings.versions.list();
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .map_err(|_| Error::Settings("no protocol versions and ciphers".to_owned()))?;
        let verifier = match &settings.client_certificates {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(wanted) => {
                Arc::new(AnyClientVerifier { algorithms, hints: verify::subjects(&wanted.named) })
            }
        };
        let context = context(&settings);
        let identities = Arc::new(Identities {
            all: identity::last_of_each_type(settings.identities),
            tls13: settings.versions.tls13,
        });
        let mut config =
            config.with_client_cert_verifier(verifier).with_cert_resolver(identities.clone());

        config.cert_decompressors = Vec::new();
        config.cert_compressors = match settings.compresses_certificates {
            true => compression::ALL.to_vec(),
            false => Vec::new(),
        };
        config.cert_compression_cache = Arc::new(compression::cache());
        config.alpn_protocols = settings.alpn;
        config.ignore_client_order = settings.prefers_own_ciphers;
        config.max_fragment_size = fragment_bytes(settings.record_bytes);
        let early_data = settings.early_data_bytes_max > 0 && settings.cache.is_some();
        config.session_storage = match settings.cache {
            Some(cache) => Arc::new(Sessions { cache, context: context.clone() }),
            None => Arc::new(NoServerSessionStorage {}),
        };
        match settings.tickets {
            Some(keys) if !early_data => {
                let lifetime = settings.session_timeout.unwrap_or(SESSION_TIMEOUT);
                config.ticketer = Arc::new(Tickets { keys, lifetime, context });
            }
            _ => {}
        }
        config.send_tls13_tickets = TICKETS;
        if early_data {
            config.max_early_data_size = settings.early_data_bytes_max;
            config.send_half_rtt_data = true;
        }
        // Records are protected by this crate after the handshake.
        config.enable_secret_extraction = true;
        if let Some(key_log) = settings.key_log {
            config.key_log = key_log;
        }
        let quic = quic::server_config(&config, &settings.quic_alpn, settings.versions.tls13);
        Ok(TlsServer {
            config: Arc::new(config),
            quic,
            identities,
            client_certificates: settings.client_certificates.map(Arc::new),
            early_data,
            record_bytes: record_bytes(settings.record_bytes),
            offloads: settings.offloads,
        })
    }
}

impl TlsServer {
    /// The same server with these certificates.
    #[must_use]
    pub fn with_identities(&self, all: Vec<Identity>) -> TlsServer {
        let all = identity::last_of_each_type(all);
        let identities = Arc::new(Identities { all, tls13: self.identities.tls13 });
        let with = |config: &Arc<ServerConfig>| {
            let mut config = ServerConfig::clone(config);
            config.cert_resolver = identities.clone();
            Arc::new(config)
        };
        let (config, quic) = (with(&self.config), self.quic.as_ref().map(with));
        TlsServer { config, quic, identities, ..self.clone() }
    }
}

/// A hash of the properties that a session must not carry into another server: the certificates, and the
/// requirements for clients.
fn context(settings: &ServerSettings) -> Vec<u8> {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for identity in &settings.identities {
        add(identity.key.cert.first().map_or(&[], |certificate| certificate));
    }
    settings.names.iter().for_each(|name| add(name));
    if let Some(wanted) = &settings.client_certificates {
        add(b"client certificates");
        wanted.named.iter().for_each(|certificate| add(certificate));
        add(wanted.verifier.digest());
    }
    hash.finish().as_ref().to_vec()
}

/// rustls' size of fragments for this much plaintext.
pub(crate) fn fragment_bytes(bytes: usize) -> Option<usize> {
    let wanted = record_bytes(bytes);
    (wanted < *RECORD_BYTES.end()).then_some(wanted + HEADER_BYTES)
}

/// Maximum of plaintext in a record; zero asks for the default.
fn record_bytes(wanted: usize) -> usize {
    match wanted {
        0 => *RECORD_BYTES.end(),
        wanted => wanted.clamp(*RECORD_BYTES.start(), *RECORD_BYTES.end()),
    }
}

/// The cryptography of these suites and groups.
pub(crate) fn provider(
    ciphers: &Ciphers,
    groups: &Groups,
    versions: Versions,
) -> Result<CryptoProvider, Error> {
    if versions.tls12 && !versions.tls13 && ciphers.lacks_tls12() {
        return Err(Error::Settings(
            "SSL_CTX_set_cipher_list() failed (SSL: error:0A0000B9:SSL routines::no cipher match)"
                .to_owned(),
        ));
    }
    if groups.is_empty() {
        return Err(Error::Settings("SSL_CTX_set1_curves_list() failed".to_owned()));
    }
    // A hello with suites of versions that it does not offer would only mislead.
    let mut cipher_suites = ciphers.suites.clone();
    cipher_suites.retain(|suite| match suite {
        SupportedCipherSuite::Tls12(_) => versions.tls12,
        SupportedCipherSuite::Tls13(_) => versions.tls13,
    });
    Ok(CryptoProvider { cipher_suites, kx_groups: groups.groups.clone(), ..default_provider() })
}
