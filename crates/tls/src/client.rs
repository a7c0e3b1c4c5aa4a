//! Settings of a client, for connections to upstream servers.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::{ClientSessionMemoryCache, Resumption, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::ciphers::Ciphers;
use crate::error::Error;
use crate::groups::Groups;
use crate::identity::Identity;
use crate::server::{Versions, fragment_bytes, provider};
use crate::session::Session;
use crate::verify::{ServerVerifier, Verifier};

/// Sessions with upstream servers that a client keeps for reuse, at most; by server name.
const SESSIONS_MAX: usize = 256;

/// The same, for a client of one server; see [`TlsClient::with_own_sessions`].
const SERVER_SESSIONS_MAX: usize = 8;

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Protocol versions.
    pub versions: Versions,
    /// Cipher suites.
    pub ciphers: Ciphers,
    /// Groups for key exchange.
    pub groups: Groups,
    /// Application protocols to offer.
    pub alpn: Vec<Vec<u8>>,
    /// The client's own certificate.
    pub identity: Option<Identity>,
    /// `None`: servers are not verified.
    pub verifier: Option<Arc<Verifier>>,
    /// Whether the name of the server is sent to it.
    pub sends_name: bool,
    /// Whether sessions are reused.
    pub reuses_sessions: bool,
}

impl Default for ClientSettings {
    fn default() -> ClientSettings {
        ClientSettings {
            versions: Versions::default(),
            ciphers: Ciphers::default(),
            groups: Groups::default(),
            alpn: Vec::new(),
            identity: None,
            verifier: None,
            sends_name: false,
            reuses_sessions: true,
        }
    }
}

/// A client for connections: shared and immutable.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    has_slow_key: bool,
    verifies: bool,
    reuses_sessions: bool,
}

impl TlsClient {
    /// Combines settings.
    ///
    /// # Errors
    /// The settings exclude each other, or leave no suites.
    pub fn new(settings: ClientSettings) -> Result<TlsClient, Error> {
        let provider = provider(&settings.ciphers, &settings.groups, settings.versions)?;
        let algorithms = provider.signature_verification_algorithms;
        let verifies = settings.verifier.is_some();
        let has_slow_key = settings.identity.as_ref().is_some_and(|own| own.kind.is_slow());
        let versions = settings.versions.list();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .map_err(|_| Error::Settings("no protocol versions and ciphers".to_owned()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ServerVerifier {
                algorithms,
                verifier: settings.verifier,
            }));
        let mut config = match settings.identity {
            None => config.with_no_client_auth(),
            Some(own) => {
                let key = CertifiedKey::clone(&own.key);
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
        };
        config.alpn_protocols = settings.alpn;
        // As nginx.
        config.cert_decompressors = Vec::new();
        config.cert_compressors = Vec::new();
        config.enable_sni = settings.sends_name;
        config.max_fragment_size = fragment_bytes(0);
        // Records are protected by this crate after the handshake.
        config.enable_secret_extraction = true;
        let reuses_sessions = settings.reuses_sessions;
        config.resumption = match reuses_sessions {
            true => Resumption::store(Arc::new(ClientSessionMemoryCache::new(SESSIONS_MAX))),
            false => Resumption::disabled(),
        };
        Ok(TlsClient { config: Arc::new(config), has_slow_key, verifies, reuses_sessions })
    }

    /// The same client with sessions of its own: for one of several servers that have a name in
    /// common, but no memory of each other's sessions.
    #[must_use]
    pub fn with_own_sessions(&self) -> TlsClient {
        let mut config = ClientConfig::clone(&self.config);
        if self.reuses_sessions {
            let sessions = ClientSessionMemoryCache::new(SERVER_SESSIONS_MAX);
            config.resumption = Resumption::store(Arc::new(sessions));
        }
        TlsClient { config: Arc::new(config), ..self.clone() }
    }

    /// Whether servers are verified.
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// The settings for QUIC.
    pub(crate) fn quic_config(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.max_fragment_size = None;
        config.enable_secret_extraction = false;
        config.enable_early_data = self.reuses_sessions;
        Arc::new(config)
    }

    /// Begins a connection to the server of this name or address, which is verified and, if it is
    /// a name, sent.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn connect(&self, name: &str) -> Result<Session, Error> {
        self.connect_with_alpn(name, self.config.alpn_protocols.clone())
    }

    /// The same; offers these application protocols in place of those of the settings.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn connect_with_alpn(&self, name: &str, alpn: Vec<Vec<u8>>) -> Result<Session, Error> {
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_| Error::Settings("invalid server name".to_owned()))?;
        let config = self.config.clone();
        let connection = UnbufferedClientConnection::new_with_alpn(config, name, alpn)?;
        Ok(Session::client(connection, self.has_slow_key || self.verifies))
    }
}
