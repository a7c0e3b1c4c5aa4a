//! `proxy_ssl_*` and its relatives: TLS to upstream servers. nginx: `ngx_http_upstream_ssl_*`,
//! `ngx_stream_proxy_ssl_*`.
//!
//! [`upstream_tls_rows!`](crate::upstream_tls_rows) writes the rows of a module. Protocols evaluate
//! the texts with variables to a [`HandshakeParams`] and make handshakes with [`UpstreamTls::connect`]; which
//! connections may serve which requests is told by [`UpstreamTls::kind`].

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use nowait_conf::{Arity, Cx, Diagnostic, Node, Setting, Word, arity};
use nowait_runtime::fs::Io;
use nowait_runtime::net::{Address, Stream};
use nowait_tls::{ClientSettings, Error, Groups, Identity, Session, TlsClient};
use nowait_variables::{Complex, Namespace, Subject};

use super::certificate_loader::{CertificateCaching, Files, Loader};
use super::commands::{self, Command, CommandTarget};
use super::files::{self, FileName, Passwords};
use super::settings::{CipherList, Placed, Protocols};
use super::{Handshake, HandshakeError};
use crate::log::OsError;

/// Maximum number of servers whose sessions are kept for reuse; the oldest is dropped first.
const SERVERS_MAX: usize = 256;

/// Keys of the hashes that identify connections: requests may choose the names.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Distinguishes settings with variables in the names of certificates from those of other generations.
static VARIABLE: AtomicU64 = AtomicU64::new(0);

/// Generates the rows of a module for TLS to its upstream servers, under its prefix, and a function
/// that converts them to [`Rows`].
///
/// `upstream_tls_rows! { module "proxy", prefix "proxy_", variables HttpVariables, in HTTP | SERVER;
/// pub struct ProxyTlsConf with ProxyTlsLayer; }`
#[macro_export]
macro_rules! upstream_tls_rows {
    (
        module $module:literal, prefix $prefix:literal, variables $variables:ty,
        in $($context:ident)|+;
        $(#[$meta:meta])*
        pub struct $conf:ident with $layer:ident;
    ) => {
        nowait_conf::directives! {
            $(#[$meta])*
            #[derive(Debug)]
            module $module, prefix $prefix;
            pub struct $conf with $layer;

            /// Controls whether sessions are resumed, which makes handshakes cheaper.
            ssl_session_reuse: bool = "on", in $($context)|+, args "on | off";
            /// Protocol versions. Those before TLS 1.2 do not exist here: they are ignored with a
            /// warning, or refused if no other one is named.
            ssl_protocols: $crate::tls::settings::Protocols = "TLSv1.2 TLSv1.3", in $($context)|+, args "[SSLv2] [SSLv3] [TLSv1] [TLSv1.1] [TLSv1.2] [TLSv1.3]";
            /// Cipher suites of TLS 1.2, in OpenSSL's language. ECDHE suites with AES-GCM or
            /// ChaCha20-Poly1305 exist here; others are ignored with a warning.
            ssl_ciphers: $crate::tls::settings::CipherList = "DEFAULT", in $($context)|+, args "ciphers";
            /// The name that the server's certificate is verified against, and that is sent with
            /// `ssl_server_name`. A port in it is removed. By default the host of the server's URL.
            /// Variables are allowed.
            ssl_name: Option<nowait_variables::Complex<$variables>>, in $($context)|+, args "name";
            /// Controls whether the name is sent to the server (SNI). Addresses are never sent.
            ssl_server_name: bool = "off", in $($context)|+, args "on | off";
            /// Controls whether the server's certificate and name are verified.
            ssl_verify: $crate::tls::settings::Placed<bool> = "off", in $($context)|+, args "on | off";
            /// Maximum number of intermediate certificates in the chain of the server.
            ssl_verify_depth: u32 = "1", in $($context)|+, args "number";
            /// The file with the certificates of trusted authorities, in PEM.
            ssl_trusted_certificate: Option<$crate::tls::files::FileName>, in $($context)|+, args "file";
            /// The file with certificate revocation lists, in PEM. Each issuer of a chain needs one.
            ssl_crl: Option<$crate::tls::files::FileName>, in $($context)|+, args "file";
            /// The file with the certificate that is presented to the server, followed by the
            /// intermediate ones, in PEM; or `data:` and its contents. With variables, files are read
            /// for each new connection, with the rights of the server process; otherwise when the
            /// configuration is read, with those of the master process. Empty: none.
            ssl_certificate: Option<$crate::tls::upstream::FileText<$variables>>, in $($context)|+, args "file | data:...";
            /// The file with the private key of the certificate, in PEM; or `data:` and its
            /// contents. Variables are allowed, as in `ssl_certificate`. Keys in OpenSSL's engines
            /// and stores are not supported.
            ssl_certificate_key: Option<$crate::tls::upstream::FileText<$variables>>, in $($context)|+, args "file | data:...";
            /// Keeps certificates and keys whose names have variables: at most `max`, each until it
            /// was not used for the time of `inactive` (10 seconds by default), or for the time of
            /// `valid` (60 seconds by default). A certificate and its key count as two. Encrypted keys
            /// are kept decrypted.
            ssl_certificate_cache: $crate::tls::certificate_loader::CertificateCaching = "off", in $($context)|+, args "off | max=number [inactive=time] [valid=time]";
            /// The file with passwords of encrypted keys, one per line. They are tried in turn.
            ssl_password_file: Option<$crate::tls::files::Passwords>, in $($context)|+, args "file";
            /// A command of OpenSSL's configuration: `Ciphersuites`, `CipherString`, `Groups`,
            /// `Curves`, `MinProtocol`, `MaxProtocol`, `Protocol`, `Certificate` with `PrivateKey`,
            /// and of `Options` those about tickets and renegotiation. Others are refused.
            ssl_conf_command: Vec<$crate::tls::commands::Command>, in $($context)|+, args "name value";
        }

        impl $conf {
            /// The settings of a location or server.
            pub fn tls(
                self,
                cx: &mut nowait_conf::Cx<'_>,
                alpn: Vec<nowait_variables::Complex<$variables>>,
            ) -> Result<
                std::sync::Arc<$crate::tls::upstream::UpstreamTls<$variables>>,
                nowait_conf::Diagnostic,
            > {
                let rows = $crate::tls::upstream::Rows {
                    prefix: $prefix,
                    session_reuse: self.ssl_session_reuse,
                    protocols: self.ssl_protocols,
                    ciphers: self.ssl_ciphers,
                    name: self.ssl_name,
                    server_name: self.ssl_server_name,
                    verify: self.ssl_verify,
                    verify_depth: self.ssl_verify_depth,
                    trusted_certificate: self.ssl_trusted_certificate,
                    crl: self.ssl_crl,
                    certificate: self.ssl_certificate,
                    certificate_key: self.ssl_certificate_key,
                    certificate_cache: self.ssl_certificate_cache,
                    passwords: self.ssl_password_file.unwrap_or_default(),
                    commands: self.ssl_conf_command,
                    alpn,
                };
                rows.build(cx)
            }
        }
    };
}

/// The resolved rows of [`upstream_tls_rows!`](crate::upstream_tls_rows), regardless of the prefix.
#[expect(missing_docs, reason = "named after the rows")]
#[derive(Debug)]
pub struct Rows<N> {
    pub prefix: &'static str,
    pub session_reuse: bool,
    pub protocols: Protocols,
    pub ciphers: CipherList,
    pub name: Option<Complex<N>>,
    pub server_name: bool,
    pub verify: Placed<bool>,
    pub verify_depth: u32,
    pub trusted_certificate: Option<FileName>,
    pub crl: Option<FileName>,
    pub certificate: Option<FileText<N>>,
    pub certificate_key: Option<FileText<N>>,
    pub certificate_cache: CertificateCaching,
    pub passwords: Passwords,
    pub commands: Vec<Command>,
    /// Application protocols to offer.
    pub alpn: Vec<Complex<N>>,
}

/// A file name that may have variables.
pub struct FileText<N> {
    word: Word,
    text: Complex<N>,
}

// A derive would require the same of the namespace.
impl<N> Clone for FileText<N> {
    fn clone(&self) -> Self {
        Self { word: self.word.clone(), text: self.text.clone() }
    }
}

impl<N> fmt::Debug for FileText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name may be the contents themselves.
        f.write_str("FileText")
    }
}

impl<N: Namespace> Setting for FileText<N> {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?.clone();
        Ok(Self { text: Complex::parse(node, cx)?, word })
    }
}

impl<N: Namespace> Rows<N> {
    /// The settings, with the contents of the files that they name. Blocks that inherit the same settings
    /// share them and their sessions.
    ///
    /// # Errors
    /// A file can't be used, or settings exclude each other.
    pub fn build(self, cx: &mut Cx<'_>) -> Result<Arc<UpstreamTls<N>>, Diagnostic> {
        let same = self.identity();
        if let Some(known) = cx.global::<Built<N>>().0.get(&same) {
            return Ok(known.clone());
        }
        let built = self.build_anew(cx)?;
        cx.global::<Built<N>>().0.insert(same, built.clone());
        Ok(built)
    }

    /// A key that is equal only for equal rows. Files are identified by the position of the directive,
    /// which also identifies secret contents.
    fn identity(&self) -> String {
        let Self {
            prefix,
            session_reuse,
            protocols,
            ciphers,
            name,
            server_name,
            verify,
            verify_depth,
            trusted_certificate,
            crl,
            certificate,
            certificate_key,
            certificate_cache,
            passwords,
            commands,
            alpn,
        } = self;
        let files = [certificate, certificate_key];
        let files = files.map(|file| file.as_ref().map(|file| file.word.span));
        format!(
            "{prefix} {session_reuse} {protocols:?} {ciphers:?} {name:?} {server_name} {verify:?} \
             {verify_depth} {trusted_certificate:?} {crl:?} {files:?} {certificate_cache:?} {} \
             {commands:?} {alpn:?}",
            passwords.address()
        )
    }

    fn build_anew(self, cx: &mut Cx<'_>) -> Result<Arc<UpstreamTls<N>>, Diagnostic> {
        let mut hasher = KEYS.build_hasher();
        let settings = self.settings(cx, &mut hasher)?;
        let certificate = self.certificate.filter(|file| !file.text.is_empty());
        let own = match (certificate, self.certificate_key) {
            (None, _) => ClientCertificate::Fixed(Clients::new(client(settings)?)),
            (Some(certificate), None) => {
                let prefix = self.prefix;
                return Err(certificate.word.error(format!(
                    "no \"{prefix}ssl_certificate_key\" is defined for certificate \"{}\"",
                    certificate.word
                )));
            }
            (Some(certificate), Some(key)) => {
                let fixed = [&certificate, &key].iter().all(|file| file.text.literal().is_some());
                if fixed {
                    let chain = files::certificates(cx, &certificate.word)?;
                    chain.iter().for_each(|one| one.as_ref().hash(&mut hasher));
                    let (certificate, key) = (&certificate.word, &key.word);
                    let own = files::identity(cx, certificate, key, &self.passwords, None)?;
                    let identity = settings.identity.or(Some(own));
                    let settings = ClientSettings { identity, ..settings };
                    ClientCertificate::Fixed(Clients::new(client(settings)?))
                } else {
                    // The contents of the files are not known in advance: no connection survives a reload.
                    VARIABLE.fetch_add(1, Ordering::Relaxed).hash(&mut hasher);
                    ClientCertificate::Variable(Box::new(Variable {
                        settings,
                        certificate: certificate.text,
                        key: key.text,
                        loader: Loader::new(cx, self.certificate_cache, self.passwords),
                    }))
                }
            }
        };
        let fingerprint = hasher.finish();
        let (verifies, name, alpn) = (self.verify.value, self.name, self.alpn);
        Ok(Arc::new(UpstreamTls { name, alpn, verifies, fingerprint, own }))
    }

    /// Builds all settings except the client's own certificate; adds properties that distinguish
    /// connections to the fingerprint.
    fn settings(
        &self,
        cx: &mut Cx<'_>,
        hasher: &mut impl Hasher,
    ) -> Result<ClientSettings, Diagnostic> {
        let verifier = match (&self.verify.value, &self.trusted_certificate) {
            (false, _) => None,
            (true, trusted) => {
                let trusted = trusted.as_ref().and_then(FileName::word);
                let trusted = trusted.ok_or_else(|| {
                    let prefix = self.prefix;
                    Diagnostic::emerg(format!(
                        "no {prefix}ssl_trusted_certificate for {prefix}ssl_verify"
                    ))
                    .at(self.verify.span)
                    .hint("name a file with the certificates of the authorities to trust")
                })?;
                let trusted = files::certificates(cx, trusted)?;
                trusted.iter().for_each(|one| one.as_ref().hash(hasher));
                let crl = self.crl.as_ref().and_then(FileName::word);
                if let Some(crl) = crl {
                    let lists = files::revocation_lists(cx, crl)?;
                    lists.iter().for_each(|one| one.as_ref().hash(hasher));
                }
                let depth = usize::try_from(self.verify_depth).unwrap_or(usize::MAX);
                (1, depth).hash(hasher);
                Some(Arc::new(files::verifier(cx, trusted, crl, depth)?))
            }
        };
        let mut settings = ClientSettings {
            versions: self.protocols.versions,
            ciphers: self.ciphers.0.clone(),
            groups: Groups::default(),
            alpn: Vec::new(),
            identity: None,
            verifier,
            sends_name: self.server_name,
            reuses_sessions: self.session_reuse,
        };
        let (mut prefers_own_ciphers, mut tickets) = (false, true);
        let mut pair = (None, None);
        for command in &self.commands {
            let target = CommandTarget {
                versions: &mut settings.versions,
                ciphers: &mut settings.ciphers,
                groups: &mut settings.groups,
                prefers_own_ciphers: &mut prefers_own_ciphers,
                tickets: &mut tickets,
                pair: &mut pair,
                kernel: None,
            };
            command.apply(cx, target)?;
        }
        settings.reuses_sessions &= tickets;
        settings.identity = commands::identity(cx, &pair, &self.passwords)?;
        let own = settings.identity.iter().flat_map(Identity::chain);
        own.for_each(|one| one.as_ref().hash(hasher));
        let ClientSettings { versions, ciphers, groups, sends_name, .. } = &settings;
        format!("{versions:?} {ciphers:?} {groups:?} {sends_name}").hash(hasher);
        Ok(settings)
    }
}

/// The settings that were built for one configuration.
struct Built<N>(HashMap<String, Arc<UpstreamTls<N>>>);

// A derive would require the same of the namespace.
impl<N> Default for Built<N> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

fn client(settings: ClientSettings) -> Result<TlsClient, Diagnostic> {
    TlsClient::new(settings).map_err(|error| Diagnostic::emerg(error.to_string()))
}

/// TLS to the upstream servers of a location or server.
pub struct UpstreamTls<N> {
    name: Option<Complex<N>>,
    alpn: Vec<Complex<N>>,
    verifies: bool,
    /// Identifies these settings among those of other connections.
    fingerprint: u64,
    own: ClientCertificate<N>,
}

impl<N> fmt::Debug for UpstreamTls<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls").field("verifies", &self.verifies).finish_non_exhaustive()
    }
}

impl<N> UpstreamTls<N> {
    /// The texts that a [`HandshakeParams`] is made of.
    pub fn texts(&self) -> impl Iterator<Item = &Complex<N>> {
        let own = match &self.own {
            ClientCertificate::Fixed(_) => None,
            ClientCertificate::Variable(variable) => Some([&variable.certificate, &variable.key]),
        };
        self.name.iter().chain(&self.alpn).chain(own.into_iter().flatten())
    }
}

/// The client's own certificate.
enum ClientCertificate<N> {
    /// None, or always the same one.
    Fixed(Clients),
    /// Named by variables.
    Variable(Box<Variable<N>>),
}

struct Variable<N> {
    settings: ClientSettings,
    certificate: Complex<N>,
    key: Complex<N>,
    loader: Loader<Clients>,
}

/// A client, with sessions for each server.
#[derive(Clone)]
struct Clients(Arc<ClientsInner>);

struct ClientsInner {
    client: TlsClient,
    /// By address, in the order of their first use.
    servers: Mutex<VecDeque<(Address, TlsClient)>>,
}

impl Clients {
    fn new(client: TlsClient) -> Self {
        Self(Arc::new(ClientsInner { client, servers: Mutex::default() }))
    }

    /// The settings for a server.
    fn of(&self, server: &Address) -> TlsClient {
        let mut servers = self.0.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = servers.iter().find(|(known, _)| known == server) {
            return client.clone();
        }
        if servers.len() >= SERVERS_MAX {
            servers.pop_front();
        }
        let client = self.0.client.with_own_sessions();
        servers.push_back((server.clone(), client.clone()));
        client
    }
}

/// The properties of a connection that a request requires: the evaluated texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HandshakeParams {
    /// The name to be verified and sent.
    name: Bytes,
    /// Application protocols to offer.
    alpn: Vec<Bytes>,
    /// The names of the client's certificate and key, if they have variables.
    files: Option<Files>,
}

/// The reason why there is no session with a server.
#[derive(Debug)]
pub enum ConnectFailure {
    /// The handshake failed: the server's fault, or the network's.
    Handshake {
        /// The cause.
        failure: HandshakeError,
        /// The expected name.
        name: Bytes,
    },
    /// The client's own certificate can't be used: the operator's fault. The text is for the log.
    Own(String),
}

impl ConnectFailure {
    /// The network failed before the handshake.
    pub fn of_network(error: io::Error) -> Self {
        Self::Handshake { failure: HandshakeError::Io(error), name: Bytes::new() }
    }

    /// Whether the server was too slow.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Handshake { failure: HandshakeError::Io(error), .. } => {
                error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none()
            }
            _ => false,
        }
    }

    /// Whether the server does not speak TLS: it may speak plain HTTP.
    pub fn is_no_tls(&self) -> bool {
        matches!(self, Self::Handshake { failure: HandshakeError::Tls(error), .. } if error.is_no_tls())
    }

    /// Whether another server would not help.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Own(_) | Self::Handshake { failure: HandshakeError::Pool(_), .. })
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failure, name) = match self {
            Self::Own(text) => return f.write_str(text),
            Self::Handshake { failure, name } => (failure, name),
        };
        match failure {
            HandshakeError::Tls(error) => match error.distrust() {
                Some(why) => {
                    let number = why.number();
                    write!(f, "upstream SSL certificate verify error: ({number}:{why})")
                }
                None if error.is_wrong_name() => {
                    let name = String::from_utf8_lossy(name);
                    write!(f, "upstream SSL certificate does not match \"{name}\"")
                }
                None => error.fmt(f),
            },
            HandshakeError::Io(error) => write!(f, "SSL_do_handshake() failed{}", OsError(error)),
            failure => failure.fmt(f),
        }
    }
}

impl<N: Namespace> UpstreamTls<N> {
    /// The requirements of a request; `host` is the name of the server unless another one is configured.
    pub fn wish(&self, subject: &N::Subject, host: &Bytes) -> HandshakeParams
    where
        N::Subject: Subject<Namespace = N>,
    {
        let name = match &self.name {
            Some(text) => subject.evaluate(text),
            None => host.clone(),
        };
        let files = match &self.own {
            ClientCertificate::Fixed(_) => None,
            ClientCertificate::Variable(own) => {
                Some((subject.evaluate(&own.certificate), subject.evaluate(&own.key)))
            }
        };
        let alpn = self.alpn.iter().map(|text| subject.evaluate(text));
        let alpn = alpn.filter(|name| (1..=255).contains(&name.len())).collect();
        HandshakeParams { name: without_port(name), alpn, files }
    }

    /// Identifies the connections that were made with these settings for such a wish. `own`: what
    /// else has to be equal.
    pub fn kind(&self, wish: &HandshakeParams, own: impl Hash) -> u64 {
        // Zero is that of plain connections.
        KEYS.hash_one((self.fingerprint, wish, own)) | 1
    }

    /// Makes the handshake with a server; afterwards the stream has a layer. `io` reads the files
    /// that variables name.
    ///
    /// # Errors
    /// [`ConnectFailure`]
    pub async fn connect(
        &self,
        stream: &Stream,
        server: &Address,
        wish: &HandshakeParams,
        handshake: &Handshake,
        io: impl FnOnce() -> Rc<Io>,
    ) -> Result<(), ConnectFailure> {
        let clients = match (&self.own, &wish.files) {
            (ClientCertificate::Fixed(clients), _) => clients.clone(),
            (ClientCertificate::Variable(own), Some(files)) => {
                own.clients(files, handshake, io).await?
            }
            (ClientCertificate::Variable(_), None) => {
                return Err(ConnectFailure::Own(String::new()));
            }
        };
        let failed = |failure| ConnectFailure::Handshake { failure, name: wish.name.clone() };
        let session = self.session(&clients.of(server), wish).map_err(failed)?;
        super::connect(stream, session, handshake).await.map_err(failed)
    }

    /// Begins a session.
    fn session(
        &self,
        client: &TlsClient,
        wish: &HandshakeParams,
    ) -> Result<Session, HandshakeError> {
        let name = std::str::from_utf8(&wish.name).unwrap_or_default();
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let connect = |name: &str| {
            let alpn = wish.alpn.iter().map(|name| name.to_vec()).collect();
            client.connect_with_alpn(name, alpn)
        };
        connect(bare.unwrap_or(name)).or_else(|_| match self.verifies {
            // No certificate matches such a name.
            true => Err(Error::wrong_name().into()),
            // An address is not sent.
            false => connect(&Ipv4Addr::UNSPECIFIED.to_string()).map_err(HandshakeError::Tls),
        })
    }
}

impl<N> Variable<N> {
    /// The clients with the certificate and the key of these files.
    async fn clients(
        &self,
        files: &Files,
        handshake: &Handshake,
        io: impl FnOnce() -> Rc<Io>,
    ) -> Result<Clients, ConnectFailure> {
        let settings = self.settings.clone();
        if files.0.is_empty() {
            let client = TlsClient::new(settings);
            let client = client.map_err(|error| ConnectFailure::Own(error.to_string()))?;
            return Ok(Clients::new(client));
        }
        let make = move |own| {
            let identity = Some(own);
            TlsClient::new(ClientSettings { identity, ..settings }).map(Clients::new)
        };
        self.loader.load(files, handshake, io, make).await.map_err(ConnectFailure::Own)
    }
}

/// A name without a port: it may come from `$proxy_host` or `$http_host`.
fn without_port(name: Bytes) -> Bytes {
    let start = match name.first() {
        Some(b'[') => name.iter().position(|&b| b == b']').unwrap_or(0),
        _ => 0,
    };
    match name[start..].iter().position(|&b| b == b':') {
        Some(colon) => name.slice(..start + colon),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_part_of_a_name() {
        let name = |text: &'static str| without_port(Bytes::from_static(text.as_bytes()));
        assert_eq!(name("example.com:8443"), "example.com");
        assert_eq!(name("example.com"), "example.com");
        assert_eq!(name("[::1]:443"), "[::1]");
        assert_eq!(name("[::1]"), "[::1]");
        assert_eq!(name(""), "");
    }
}
