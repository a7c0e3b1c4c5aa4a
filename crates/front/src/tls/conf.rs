//! `ssl_*` of servers: the rows, and the server that results from them. nginx:
//! `ngx_http_ssl_module`, `ngx_stream_ssl_module`.
//!
//! Called by protocols when the blocks of a server are resolved. What OpenSSL does and this server
//! does not is refused or warned about here.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nowait_conf::{Cx, Diagnostic, Seconds, Word};
use nowait_tls::KeyLog;
use nowait_tls::ocsp::{self, Question, Signer};
use nowait_tls::{
    CertificateDer, ClientCertificates, Identity, ServerSettings, SessionCache, TicketKeys,
    TlsServer, Versions,
};
use nowait_variables::Namespace;

use super::cache_settings::{BUILTIN_SESSIONS, OcspCaching, SessionCaching, ZoneSetting};
use super::certificate_loader::{CertificateCaching, NamedPairs};
use super::certificates::{self, CertificateUse};
use super::commands::{self, Command};
use super::files::{self, FileName, Passwords};
use super::kernel::KernelUse;
use super::key_log::KeyLogFile;
use super::ocsp::{Asking, ClientOcsp, Responder, Stapling, StatusCache};
use super::settings::{CipherList, CurveList, Placed, Protocols};
use super::trust::ClientTrust;
use super::{Chosen, KeyLogging, OcspCheck};
use crate::resolver_directives::Resolving;
use crate::servers::{Listen, ServerId};

/// Memory for one session of such a cache.
const BUILTIN_SESSION_BYTES: usize = 512;

/// Early data of a connection, at most. OpenSSL's default.
const EARLY_DATA_BYTES_MAX: u32 = 16 * 1024;

nowait_conf::setting_enum! {
    /// `ssl_verify_client`
    pub enum VerifyClient {
        /// Certificates of clients are not requested.
        Off = "off",
        /// A certificate is required.
        On = "on",
        /// A certificate is verified if the client sends one.
        Optional = "optional",
        /// A certificate's issuer need not be known.
        OptionalNoCa = "optional_no_ca",
    }
}

nowait_conf::setting_enum! {
    /// `ssl_ocsp`
    pub enum Ocsp {
        /// No check.
        Off = "off",
        /// Every certificate of a chain is checked.
        On = "on",
        /// Only the client's own certificate is checked.
        Leaf = "leaf",
    }
}

nowait_conf::directives! {
    /// TLS of servers.
    #[derive(Debug)]
    module "ssl";
    pub struct SslConf with SslConfLayer;

    /// The file with the server's certificate, followed by the intermediate ones, in PEM; or
    /// `data:` and its contents. Relative names are resolved against the directory of the
    /// configuration file. Repeat it for certificates with keys of other types, such as ECDSA and
    /// RSA; each client gets the first that suits it.
    ///
    /// Files are read when the configuration is read, with the rights of the master process. If any
    /// name has variables, such as `$ssl_server_name`, all files of the server are looked up for each
    /// handshake, with the rights of the server process, and read when they have changed; see
    /// `ssl_certificate_cache`.
    ssl_certificate: Vec<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file | data:...";
    /// The file with the private key of the certificate, in PEM; or `data:` and its contents. One
    /// for each `ssl_certificate`, in the same order. Variables are allowed, as in `ssl_certificate`.
    /// `store:file:` may precede the name. Keys in OpenSSL's engines and other stores are not
    /// supported.
    ssl_certificate_key: Vec<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file | data:...";
    /// Certificates and keys whose names have variables are used without being looked up: at most `max`,
    /// each until it was not used for the time of `inactive` (10 seconds by default), or for the time of
    /// `valid` (60 seconds by default). A certificate and its key count as two. Without this directive, up
    /// to 1,000 pairs are kept for as long as their files do not change. Encrypted keys are kept decrypted.
    ssl_certificate_cache: CertificateCaching = "off", in HTTP | SERVER | STREAM | STREAM_SERVER, args "off | max=number [inactive=time] [valid=time]";
    /// Encrypted Client Hello does not exist here: ignored with a warning.
    ssl_ech_file: Vec<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file";
    /// The file with passwords of encrypted keys, one per line. They are tried in turn.
    ssl_password_file: Option<Passwords>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file";
    /// Certificates are compressed, by Brotli or zlib, for clients of TLS 1.3 that allow it.
    ssl_certificate_compression: bool = "off", in HTTP | SERVER | STREAM | STREAM_SERVER, args "on | off";
    /// Accepted for compatibility: no cipher suite uses these parameters.
    ssl_dhparam: Option<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file";
    /// Groups for the key exchange, in order of preference. `auto` is
    /// `X25519MLKEM768:X25519:prime256v1:secp384r1`; besides, there are `secp521r1`,
    /// `SecP256r1MLKEM768`, `MLKEM768` and `MLKEM1024`. Others are ignored with a warning.
    ssl_ecdh_curve: CurveList = "auto", in HTTP | SERVER | STREAM | STREAM_SERVER, args "curve[:curve]...";
    /// Protocol versions. Those before TLS 1.2 do not exist here: they are ignored with a warning, or
    /// refused if no other one is named.
    ssl_protocols: Protocols = "TLSv1.2 TLSv1.3", in HTTP | SERVER | STREAM | STREAM_SERVER, args "[SSLv2] [SSLv3] [TLSv1] [TLSv1.1] [TLSv1.2] [TLSv1.3]";
    /// Cipher suites of TLS 1.2, in OpenSSL's language. ECDHE suites with AES-GCM or
    /// ChaCha20-Poly1305 exist here; others are ignored with a warning.
    ssl_ciphers: CipherList = "HIGH:!aNULL:!MD5", in HTTP | SERVER | STREAM | STREAM_SERVER, args "ciphers";
    /// Whether clients are asked for a certificate. `on`: requests without a valid one are answered
    /// with 400 (`error_page` may name 495 and 496). `optional`: a certificate is verified if there
    /// is one. `optional_no_ca`: its issuer need not be known; the backend has to verify it.
    ssl_verify_client: Placed<VerifyClient> = "off", in HTTP | SERVER | STREAM | STREAM_SERVER, args "on | off | optional | optional_no_ca";
    /// Maximum number of intermediate certificates in the chain of a client.
    ssl_verify_depth: usize = "1", in HTTP | SERVER | STREAM | STREAM_SERVER, args "number";
    /// The file with trusted certificates of authorities, in PEM, whose names are sent to clients.
    ssl_client_certificate: Option<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file";
    /// The file with trusted certificates of authorities, in PEM, whose names are not sent to
    /// clients.
    ssl_trusted_certificate: Option<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file";
    /// Cipher suites are chosen by the server's preference, not the client's.
    ssl_prefer_server_ciphers: bool = "off", in HTTP | SERVER | STREAM | STREAM_SERVER, args "on | off";
    /// Where sessions are kept for clients that do not use tickets: in a cache that servers share by
    /// its name, and that survives reloads (`shared`), in one of the server's own (`builtin`), or
    /// not at all (`off`, `none`).
    ssl_session_cache: SessionCaching = "none", in HTTP | SERVER | STREAM | STREAM_SERVER, args "off | none | [builtin[:size]] [shared:name:size]";
    /// Session tickets, with which clients keep their sessions themselves.
    ssl_session_tickets: bool = "on", in HTTP | SERVER | STREAM | STREAM_SERVER, args "on | off";
    /// A file of 48 or 80 random bytes with a key for session tickets. The first seals new ones, all
    /// open old ones. By default keys are generated, replaced after `ssl_session_timeout`, and kept
    /// by reloads.
    ssl_session_ticket_key: Vec<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file";
    /// How long clients may resume their sessions.
    ssl_session_timeout: Seconds = "5m", in HTTP | SERVER | STREAM | STREAM_SERVER, args "time";
    /// The file with certificate revocation lists, in PEM. Each issuer of a chain needs one.
    ssl_crl: Option<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file";
    /// Asks OCSP responders whether certificates of clients are revoked: about the whole chain
    /// (`on`), or about the client's own certificate (`leaf`). Clients whose certificate is revoked,
    /// or whose responder gives no valid answer, are refused as those without a valid certificate.
    ssl_ocsp: Ocsp = "off", in HTTP | SERVER | STREAM | STREAM_SERVER, args "on | off | leaf";
    /// The responder that is asked, in place of those that certificates name. Only `http://` is
    /// supported, as in nginx. Names are resolved by `resolver`.
    ssl_ocsp_responder: Option<Word>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "url";
    /// Keeps what responders say, until they promise something newer. Servers share it by its name;
    /// it survives reloads.
    ssl_ocsp_cache: Option<OcspCaching>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "off | shared:name:size";
    /// Sends clients an OCSP response with the certificate, so that they need not ask a responder.
    /// It is fetched when the first client connects, and replaced before it expires. Needs the
    /// certificate of the issuer, in the file of `ssl_certificate` or of `ssl_trusted_certificate`.
    ssl_stapling: bool = "off", in HTTP | SERVER | STREAM | STREAM_SERVER, args "on | off";
    /// The file with the OCSP response, in DER, as written by `openssl ocsp -respout`: no responder
    /// is asked.
    ssl_stapling_file: Option<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "file";
    /// The responder that is asked, in place of the one that the certificate names. Only `http://`
    /// is supported, as in nginx. Names are resolved by `resolver`.
    ssl_stapling_responder: Option<Word>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "url";
    /// Responses have to be signed by the certificate's issuer, or by whom it has authorized.
    ssl_stapling_verify: bool = "off", in HTTP | SERVER | STREAM | STREAM_SERVER, args "on | off";
    /// A command of OpenSSL's configuration: `Ciphersuites`, `CipherString`, `Groups`, `Curves`,
    /// `MinProtocol`, `MaxProtocol`, `Protocol`, `Certificate` with `PrivateKey`, and of `Options`
    /// those about tickets, renegotiation, the server's preference and kernel TLS (`KTLS`, `-KTLS`;
    /// without either, the kernel encrypts from a file of 4 MB on). Others are refused.
    ssl_conf_command: Vec<Command>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "name value";
    /// A file to which the secrets of connections are appended, for the analysis of recorded traffic
    /// (the format of `SSLKEYLOGFILE`, as Wireshark reads it). A reader of this file can read the
    /// traffic. It is written with the rights of the server process. In nginx, a directive of the
    /// commercial version.
    ssl_key_log: Option<FileName>, in HTTP | SERVER | STREAM | STREAM_SERVER, args "path";
    /// Refuses handshakes with clients that ask for a name of this server, or for none.
    ssl_reject_handshake: bool = "off", in HTTP | SERVER | STREAM | STREAM_SERVER, args "on | off";
}

/// The parts of the settings that depend on the protocol.
#[derive(Clone, Debug, Default)]
pub struct Added {
    /// `ssl_buffer_size`; zero: the largest records.
    pub record_bytes: usize,
    /// `ssl_early_data`
    pub early_data: bool,
    /// Application protocols in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Those over QUIC; empty: QUIC is not spoken.
    pub quic_alpn: Vec<Vec<u8>>,
    /// The resolver for names of OCSP responders.
    pub resolving: Resolving,
}

/// TLS of a virtual server; `N`: whose variables may be in names of certificates.
pub struct ServerTls<N> {
    /// The server; `None`: it has no certificate.
    pub server: Option<TlsServer>,
    /// The certificates, if their names have variables: then those of `server` are missing.
    pub named: Option<Arc<NamedPairs<N>>>,
    /// `ssl_reject_handshake`
    pub rejects: bool,
    /// `ssl_protocols` has TLS 1.3.
    pub tls13: bool,
    /// `ssl_verify_client`
    pub verify: VerifyClient,
    /// The verifier of client certificates; `None`: no certificates are requested.
    pub judge: Option<Arc<ClientTrust>>,
    /// `ssl_ocsp`
    pub ocsp: Option<Arc<ClientOcsp>>,
    /// `ssl_stapling` by responders.
    pub staples: Vec<Arc<Stapling>>,
    /// The resolver for names of responders.
    pub resolving: Resolving,
    /// `ssl_key_log`
    pub key_log: Option<Arc<KeyLogFile>>,
    /// `Options KTLS` of `ssl_conf_command`.
    pub kernel: KernelUse,
    /// Its certificates in the list of those in use.
    pub listed: Vec<Arc<CertificateUse>>,
}

// A derive would require the same of the namespace.
impl<N> Clone for ServerTls<N> {
    fn clone(&self) -> Self {
        let Self { server, named, rejects, tls13, verify, judge, .. } = self;
        let Self { ocsp, staples, resolving, key_log, kernel, listed, .. } = self;
        Self {
            server: server.clone(),
            named: named.clone(),
            rejects: *rejects,
            tls13: *tls13,
            verify: *verify,
            judge: judge.clone(),
            ocsp: ocsp.clone(),
            staples: staples.clone(),
            resolving: *resolving,
            key_log: key_log.clone(),
            kernel: *kernel,
            listed: listed.clone(),
        }
    }
}

impl<N> fmt::Debug for ServerTls<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("verify", &self.verify).finish_non_exhaustive()
    }
}

impl<N> Default for ServerTls<N> {
    fn default() -> Self {
        Self {
            server: None,
            named: None,
            rejects: false,
            tls13: false,
            verify: VerifyClient::Off,
            judge: None,
            ocsp: None,
            staples: Vec::new(),
            resolving: Resolving::default(),
            key_log: None,
            kernel: KernelUse::default(),
            listed: Vec::new(),
        }
    }
}

impl<N> ServerTls<N> {
    /// Whether connections can be made to it: with a certificate, or to be refused.
    pub fn is_usable(&self) -> bool {
        self.server.is_some() || self.rejects
    }

    /// The choice of this server for a client. Has newer responses fetched to be stapled, if it is
    /// time.
    pub fn choice(
        &self,
        server: &TlsServer,
        keeps_offers: bool,
        asking: impl Fn(Resolving) -> Asking,
    ) -> Chosen {
        let asking = || asking(self.resolving);
        for stapling in &self.staples {
            stapling.refresh(asking);
        }
        let ocsp = self.ocsp.clone().map(|of| OcspCheck { of, asking: asking() });
        let key_log = self.key_log.clone().map(|file| {
            let Asking { files, log, .. } = asking();
            KeyLogging { file, pool: files, log }
        });
        let (kernel, server) = (self.kernel, server.clone());
        let kernel_log = (kernel == KernelUse::Always).then(|| asking().log);
        let judge = self.judge.clone();
        Chosen { server, keeps_offers, judge, ocsp, key_log, kernel, kernel_log }
    }

    /// The verifier of client certificates for requests to this server: without a certificate and
    /// authorities of its own, that of the default server, whose handshakes it shares.
    pub fn judge_or_default<'s>(
        &'s self,
        default: impl FnOnce() -> Option<&'s Self>,
    ) -> Option<&'s Arc<ClientTrust>> {
        match &self.judge {
            None if self.server.is_none() => default()?.judge.as_ref(),
            own => own.as_ref(),
        }
    }

    /// The settings for a client that has chosen this server: without a certificate, those of the
    /// default server. `None`: the client is refused.
    pub fn or_default<'s>(&'s self, default: &'s Self) -> Option<(&'s Self, &'s TlsServer)> {
        let own = if self.server.is_some() { self } else { default };
        own.server.as_ref().filter(|_| !self.rejects).map(|server| (own, server))
    }
}

/// State shared by the servers of one configuration, and kept by reloads: caches and ticket keys.
#[derive(Debug, Default)]
pub struct SharedTls {
    caches: BTreeMap<String, CacheZone<SessionCache>>,
    statuses: BTreeMap<String, CacheZone<StatusCache>>,
    key_logs: BTreeMap<PathBuf, Arc<KeyLogFile>>,
    tickets: Option<Arc<TicketKeys>>,
}

#[derive(Debug)]
struct CacheZone<C> {
    bytes: u64,
    cache: Arc<C>,
}

impl<C> CacheZone<C> {
    /// The cache of a zone; `make` makes it.
    fn find(
        all: &mut BTreeMap<String, Self>,
        zone: &ZoneSetting,
        make: impl FnOnce(u64) -> C,
    ) -> Result<Arc<C>, Diagnostic> {
        let ZoneSetting { name, bytes, word } = zone;
        let known = all
            .entry(name.clone())
            .or_insert_with(|| Self { bytes: *bytes, cache: Arc::new(make(*bytes)) });
        match known.bytes == *bytes {
            true => Ok(known.cache.clone()),
            false => Err(word.error(format!(
                "the size {bytes} of shared memory zone \"{name}\" conflicts with already \
                 declared size {}",
                known.bytes
            ))),
        }
    }
}

impl SharedTls {
    /// Takes over the sessions of the configuration before.
    pub fn adopt(&self, previous: &Self) {
        for (name, zone) in &self.caches {
            if let Some(before) = previous.caches.get(name) {
                zone.cache.adopt(&before.cache);
            }
        }
        for (name, zone) in &self.statuses {
            if let Some(before) = previous.statuses.get(name) {
                zone.cache.adopt(&before.cache);
            }
        }
        if let (Some(own), Some(before)) = (&self.tickets, &previous.tickets) {
            own.adopt(before);
        }
    }

    /// The cache of a zone.
    fn cache(
        &mut self,
        zone: &ZoneSetting,
        timeout: Duration,
    ) -> Result<Arc<SessionCache>, Diagnostic> {
        CacheZone::find(&mut self.caches, zone, |bytes| {
            SessionCache::new(usize::try_from(bytes).unwrap_or(usize::MAX), timeout)
        })
    }

    fn tickets(&mut self) -> Result<Arc<TicketKeys>, Diagnostic> {
        if let Some(keys) = &self.tickets {
            return Ok(keys.clone());
        }
        let keys = TicketKeys::generated().map_err(|error| Diagnostic::emerg(error.to_string()))?;
        Ok(self.tickets.insert(Arc::new(keys)).clone())
    }
}

impl SslConf {
    /// Makes the server of these settings.
    ///
    /// # Errors
    /// A file can't be used, or settings exclude each other.
    pub fn build<N: Namespace>(
        &self,
        cx: &mut Cx<'_>,
        added: Added,
    ) -> Result<ServerTls<N>, Diagnostic> {
        let mut tls = ServerTls {
            rejects: self.ssl_reject_handshake,
            verify: self.ssl_verify_client.value,
            ..ServerTls::default()
        };
        let pairs = self.pairs()?;
        if pairs.is_empty() && !tls.rejects {
            // Requests arrive on connections with other servers' handshakes, but the authorities are its
            // own.
            let files = [&self.ssl_client_certificate, &self.ssl_trusted_certificate];
            let named = files.iter().any(|file| file.as_ref().and_then(FileName::word).is_some());
            if named && self.ssl_verify_client.value != VerifyClient::Off {
                let (_, client_certificates) = self.client_certificates(cx)?;
                let ocsp = self.client_ocsp(cx, added.resolving)?;
                tls.judge = client_certificates.map(|wanted| judge(&wanted, ocsp));
            }
            return Ok(tls);
        }
        tls.resolving = added.resolving;
        tls.key_log = self.ssl_key_log.as_ref().and_then(FileName::word).map(|word| {
            let path = cx.paths().full(&word.text);
            let path = PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
            let known = cx.global::<SharedTls>().key_logs.entry(path.clone());
            known.or_insert_with(|| Arc::new(KeyLogFile::new(path))).clone()
        });
        tls.ocsp = self.client_ocsp(cx, added.resolving)?;
        self.warn(cx);
        tls.named = self.named(cx, &pairs)?;
        let identities = match tls.named {
            Some(_) => Vec::new(),
            None => self.identities(cx, &pairs)?,
        };
        let used = pairs.iter().zip(&identities).filter_map(|((certificate, _), identity)| {
            let path = cx.paths().conf_full(files::name(&certificate.text));
            let path = String::from_utf8_lossy(&path).into_owned();
            certificates::note(path, identity.chain())
        });
        tls.listed = used.collect();
        let (trusted, client_certificates) = self.client_certificates(cx)?;
        tls.judge = client_certificates.as_ref().map(|wanted| judge(wanted, tls.ocsp.clone()));
        tls.staples = self.staples(cx, &identities, &trusted, added.resolving)?;
        if let Some(dhparam) = self.ssl_dhparam.as_ref().and_then(FileName::word) {
            files::der(cx, dhparam)?;
        }
        let mut settings = ServerSettings {
            identities,
            names: match tls.named {
                Some(_) => pairs.iter().map(|(certificate, _)| certificate.text.clone()).collect(),
                None => Vec::new(),
            },
            versions: self.ssl_protocols.versions,
            ciphers: self.ssl_ciphers.0.clone(),
            prefers_own_ciphers: self.ssl_prefer_server_ciphers,
            groups: self.ssl_ecdh_curve.0.clone(),
            alpn: added.alpn,
            quic_alpn: added.quic_alpn,
            client_certificates,
            tickets: None,
            cache: None,
            session_timeout: Some(Duration::from_secs(self.ssl_session_timeout.0)),
            early_data_bytes_max: if added.early_data { EARLY_DATA_BYTES_MAX } else { 0 },
            record_bytes: added.record_bytes,
            compresses_certificates: self.ssl_certificate_compression,
            offloads: false,
            key_log: tls.key_log.clone().map(|file| file as Arc<dyn KeyLog>),
        };
        let mut tickets = self.ssl_session_tickets;
        let mut pair = (None, None);
        for command in &self.ssl_conf_command {
            let target = commands::CommandTarget {
                versions: &mut settings.versions,
                ciphers: &mut settings.ciphers,
                groups: &mut settings.groups,
                prefers_own_ciphers: &mut settings.prefers_own_ciphers,
                tickets: &mut tickets,
                pair: &mut pair,
                kernel: Some(&mut tls.kernel),
            };
            command.apply(cx, target)?;
        }
        settings.offloads = tls.kernel != KernelUse::Never;
        let passwords = self.ssl_password_file.clone().unwrap_or_default();
        settings.identities.extend(commands::identity(cx, &pair, &passwords)?);
        self.resumption(cx, &mut settings, tickets)?;
        if pairs.is_empty() {
            return Ok(tls);
        }
        let Versions { tls12, tls13 } = settings.versions;
        let server = TlsServer::new(settings).map_err(|error| {
            let error = Diagnostic::emerg(error.to_string());
            let error = match pairs.first() {
                Some((certificate, _)) => error.at(certificate.span),
                None => error,
            };
            match (tls12, tls13) {
                (true, false) => error.hint("add TLSv1.3 to ssl_protocols, or correct ssl_ciphers"),
                _ => error,
            }
        })?;
        tls.server = Some(server);
        tls.tls13 = tls13;
        Ok(tls)
    }

    /// Certificates with their keys.
    fn pairs(&self) -> Result<Vec<(&Word, &Word)>, Diagnostic> {
        let all = self.ssl_certificate.iter().enumerate();
        all.map(|(n, FileName(certificate))| match self.ssl_certificate_key.get(n) {
            Some(FileName(key)) => Ok((certificate, key)),
            None => Err(certificate
                .error(format!(
                    "no \"ssl_certificate_key\" is defined for certificate \"{certificate}\""
                ))
                .hint("add a line with ssl_certificate_key and the file of its private key")),
        })
        .collect()
    }

    /// The pairs, if a name has variables.
    fn named<N: Namespace>(
        &self,
        cx: &mut Cx<'_>,
        pairs: &[(&Word, &Word)],
    ) -> Result<Option<Arc<NamedPairs<N>>>, Diagnostic> {
        let mut texts = Vec::with_capacity(pairs.len());
        for (certificate, key) in pairs {
            texts.push((
                nowait_variables::text::<N>(certificate, cx)?,
                nowait_variables::text::<N>(key, cx)?,
            ));
        }
        let fixed = texts
            .iter()
            .all(|(certificate, key)| certificate.literal().is_some() && key.literal().is_some());
        if fixed {
            return Ok(None);
        }
        let passwords = self.ssl_password_file.clone().unwrap_or_default();
        Ok(Some(Arc::new(NamedPairs::new(cx, texts, self.ssl_certificate_cache, passwords))))
    }

    fn identities(
        &self,
        cx: &mut Cx<'_>,
        pairs: &[(&Word, &Word)],
    ) -> Result<Vec<Identity>, Diagnostic> {
        let staple = self.ssl_stapling_file.as_ref().and_then(FileName::word);
        let staple = match staple.filter(|_| self.ssl_stapling) {
            Some(file) => Some(files::der(cx, file)?),
            None => None,
        };
        let passwords = self.ssl_password_file.clone().unwrap_or_default();
        let mut identities = Vec::with_capacity(pairs.len());
        for (certificate, key) in pairs {
            identities.push(files::identity(cx, certificate, key, &passwords, staple.clone())?);
        }
        Ok(identities)
    }

    fn client_certificates(
        &self,
        cx: &mut Cx<'_>,
    ) -> Result<(Vec<CertificateDer<'static>>, Option<ClientCertificates>), Diagnostic> {
        let client = self.ssl_client_certificate.as_ref().and_then(FileName::word);
        let trusted = self.ssl_trusted_certificate.as_ref().and_then(FileName::word);
        let crl = self.ssl_crl.as_ref().and_then(FileName::word);
        let is_asked = self.ssl_verify_client.value != VerifyClient::Off;
        let needs = is_asked && self.ssl_verify_client.value != VerifyClient::OptionalNoCa;
        if needs && client.is_none() && trusted.is_none() {
            let error = Diagnostic::emerg(
                "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
            );
            return Err(error.at(self.ssl_verify_client.span).hint(
                "name the file with the certificates of those who issue certificates to clients",
            ));
        }
        let named = match client.filter(|_| is_asked) {
            Some(word) => files::certificates(cx, word)?,
            None => Vec::new(),
        };
        let mut all = named.clone();
        if let Some(word) = trusted {
            all.extend(files::certificates(cx, word)?);
        }
        let verifier = Arc::new(files::verifier(cx, all.clone(), crl, self.ssl_verify_depth)?);
        let keeps_path = self.ssl_ocsp != Ocsp::Off;
        Ok((all, is_asked.then_some(ClientCertificates { verifier, named, keeps_path })))
    }

    fn client_ocsp(
        &self,
        cx: &mut Cx<'_>,
        resolving: Resolving,
    ) -> Result<Option<Arc<ClientOcsp>>, Diagnostic> {
        if self.ssl_ocsp == Ocsp::Off {
            return Ok(None);
        }
        if self.ssl_verify_client.value == VerifyClient::OptionalNoCa {
            return Err(Diagnostic::emerg(
                "\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"",
            )
            .at(self.ssl_verify_client.span)
            .hint("use ssl_verify_client optional"));
        }
        let responder = match &self.ssl_ocsp_responder {
            None => None,
            Some(url) => Some(Responder::parse(url.to_str()?).map_err(|why| {
                let what = "OCSP responder";
                url.error(format!("{why} in {what} \"{url}\" in \"ssl_ocsp_responder\""))
                    .expected("http:// and a host")
            })?),
        };
        let cache = match &self.ssl_ocsp_cache {
            Some(OcspCaching(Some(zone))) => {
                let statuses = &mut cx.global::<SharedTls>().statuses;
                Some(CacheZone::find(statuses, zone, StatusCache::new)?)
            }
            _ => None,
        };
        let leaf_only = self.ssl_ocsp == Ocsp::Leaf;
        Ok(Some(Arc::new(ClientOcsp { leaf_only, responder, cache, resolving })))
    }

    /// The OCSP responses to staple to these certificates. Warns about missing ones.
    fn staples(
        &self,
        cx: &mut Cx<'_>,
        identities: &[Identity],
        trusted: &[CertificateDer<'static>],
        resolving: Resolving,
    ) -> Result<Vec<Arc<Stapling>>, Diagnostic> {
        let has_file = self.ssl_stapling_file.as_ref().and_then(FileName::word).is_some();
        if !self.ssl_stapling || has_file {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for (identity, FileName(file)) in identities.iter().zip(&self.ssl_certificate) {
            let mut ignore = |why: String, hint: &str| {
                let text = format!("\"ssl_stapling\" ignored, {why} \"{file}\"");
                cx.report(Diagnostic::warn(text).at(file.span).hint(hint));
            };
            let Some((own, sent)) = identity.chain().split_first() else { continue };
            let mut issuers = sent.iter().chain(trusted);
            let Some(issuer) = issuers.find(|issuer| ocsp::is_issuer(issuer, own)) else {
                let hint = "append the certificate of its issuer to the file";
                ignore("issuer certificate not found for certificate".to_owned(), hint);
                continue;
            };
            let url = match &self.ssl_stapling_responder {
                Some(url) => Some(url.to_str()?.to_owned()),
                None => ocsp::responder(own),
            };
            let Some(url) = url else {
                let hint = "remove the line: the authority has no responder";
                ignore("no OCSP responder URL in the certificate".to_owned(), hint);
                continue;
            };
            let responder = match Responder::parse(&url) {
                Ok(responder) => responder,
                Err(why) => {
                    let url = url.escape_debug();
                    let why = format!("{why} in OCSP responder \"{url}\" in the certificate");
                    ignore(why, "name one that begins with http:// by ssl_stapling_responder");
                    continue;
                }
            };
            let Some(question) = Question::new(own, issuer, sent.to_vec()) else { continue };
            let signer = match self.ssl_stapling_verify {
                true => Signer::Authorized,
                false => Signer::Any,
            };
            all.push(Arc::new(Stapling {
                identity: identity.clone(),
                name: file.to_string(),
                question,
                responder,
                signer,
                resolving,
                due: AtomicU64::new(0),
            }));
        }
        Ok(all)
    }

    /// The settings of session resumption.
    fn resumption(
        &self,
        cx: &mut Cx<'_>,
        settings: &mut ServerSettings,
        tickets: bool,
    ) -> Result<(), Diagnostic> {
        let timeout = Duration::from_secs(self.ssl_session_timeout.0);
        let own = |sessions: usize| {
            let bytes = sessions.saturating_mul(BUILTIN_SESSION_BYTES);
            Some(Arc::new(SessionCache::new(bytes, timeout)))
        };
        settings.cache = match &self.ssl_session_cache {
            SessionCaching::Shared(zone) => Some(cx.global::<SharedTls>().cache(zone, timeout)?),
            SessionCaching::Builtin(sessions) => own(*sessions),
            // Early data needs a cache, so that it can't be replayed.
            SessionCaching::None if settings.early_data_bytes_max > 0 => own(BUILTIN_SESSIONS),
            SessionCaching::None => None,
        };
        if !tickets {
            return Ok(());
        }
        settings.tickets = Some(match &self.ssl_session_ticket_key[..] {
            [] => cx.global::<SharedTls>().tickets()?,
            words => {
                let mut keys = Vec::with_capacity(words.len());
                for FileName(word) in words {
                    keys.push(files::ticket_key(cx, word)?);
                }
                let keys = TicketKeys::fixed(keys);
                Arc::new(keys.map_err(|error| words[0].0.error(error.to_string()))?)
            }
        });
        Ok(())
    }

    /// Warns about settings without effect.
    fn warn(&self, cx: &mut Cx<'_>) {
        let place = self.ssl_certificate.first().map(|FileName(word)| word.span);
        let mut warn = |text: &str, hint: &str| {
            let warning = Diagnostic::warn(text).hint(hint);
            cx.report(match place {
                Some(span) => warning.at(span),
                None => warning,
            });
        };
        if !self.ssl_ech_file.is_empty() {
            warn("\"ssl_ech_file\" ignored", "Encrypted Client Hello does not exist here");
        }
    }
}

fn judge(wanted: &ClientCertificates, ocsp: Option<Arc<ClientOcsp>>) -> Arc<ClientTrust> {
    Arc::new(ClientTrust::new(wanted.verifier.clone(), ocsp))
}

/// Reports addresses with `ssl` whose servers have no certificate. nginx: `ngx_http_ssl_init`,
/// `ngx_stream_ssl_init`.
pub fn check<'s, N: 's>(
    cx: &mut Cx<'_>,
    listens: &[Listen],
    tls: impl Fn(ServerId) -> &'s ServerTls<N>,
) {
    if cx.diagnostics().has_errors() {
        return;
    }
    for servers in listens.iter().flat_map(Listen::all) {
        let (parameter, span) = match (servers.quic, servers.ssl) {
            (Some(span), _) => ("quic", span),
            (None, Some(span)) => ("ssl", span),
            (None, None) => continue,
        };
        let default = tls(servers.default_server);
        // A default server that refuses handshakes leaves it to the others to have certificates.
        let is_complete = default.server.is_some()
            || default.rejects && servers.all.iter().all(|id| tls(*id).is_usable());
        if !is_complete {
            cx.report(
                Diagnostic::emerg(format!(
                    "no \"ssl_certificate\" is defined for the \"listen ... {parameter}\" directive"
                ))
                .at(span)
                .hint("add ssl_certificate and ssl_certificate_key with the files to the server"),
            );
        } else if servers.quic.is_some() && default.server.is_some() && !default.tls13 {
            let text =
                "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive";
            cx.report(Diagnostic::emerg(text).at(span).hint("QUIC has no older version of TLS"));
        }
    }
}
