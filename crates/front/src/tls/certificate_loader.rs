//! Certificates and keys whose names have variables: read through `fs` when a connection needs
//! them, prepared in a pool, and kept. nginx: `ngx_ssl_connection_certificate`.
//!
//! Prepared certificates are reused while the metadata of the files, usually from memory, are the same;
//! `ssl_certificate_cache` allows for not even asking. Both keep bounded numbers.
//!
//! Called for each handshake of such a server, and for each connection to an upstream server with
//! such a certificate.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::RandomState;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashlink::LinkedHashMap;
use nowait_conf::{
    Arity, Contents, Cx, Diagnostic, NAMED_BYTES_MAX, Node, Paths, Seconds, Setting, Span, Value,
    arity,
};
use nowait_runtime::fs::{self, Io, Stamp, Symlinks};
use nowait_runtime::now;
use nowait_runtime::pool::{Class, Op};
use nowait_tls::pem::{self, PrivateKey};
use nowait_tls::{Error, Identity, TlsServer};
use nowait_variables::{Complex, Namespace, Subject};

use super::certificates::{self, CertificateUse};
use super::files::{self, Passwords};
use super::{Handshake, HandshakeError, Hello, Tls};
use crate::log::OsError;

/// Names of a certificate and of its key.
pub type Files = (Bytes, Bytes);

/// `ssl_certificate_cache` and its relatives.
#[derive(Clone, Copy, Debug)]
pub struct CertificateCaching {
    caching: Option<Caching>,
    /// The position of the directive, which identifies its cache.
    span: Span,
}

#[derive(Clone, Copy, Debug)]
struct Caching {
    pairs_max: usize,
    inactive: Duration,
    valid: Duration,
}

impl Setting for CertificateCaching {
    const ARITY: Arity = arity::between(1, 3);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (mut inactive, mut valid) = (Duration::from_secs(10), Duration::from_secs(60));
        let (mut max, mut off) = (0, false);
        for word in &node.args {
            let invalid = || word.error(format!("invalid parameter \"{word}\""));
            let value = |name: &[u8]| word.text.strip_prefix(name);
            let time =
                |text| Seconds::from_word(text).map(Seconds::duration).map_err(|_| invalid());
            if let Some(number) = value(b"max=") {
                max = usize::from_word(number).ok().filter(|max| *max > 0).ok_or_else(invalid)?;
            } else if let Some(text) = value(b"inactive=") {
                inactive = time(text)?;
            } else if let Some(text) = value(b"valid=") {
                valid = time(text)?;
            } else if *word == "off" {
                off = true;
            } else {
                return Err(invalid());
            }
        }
        // nginx counts a certificate and its key as two.
        let pairs_max = max.div_ceil(2);
        let caching = match (off, max) {
            (true, _) => None,
            (false, 0) => {
                let text = format!("\"{}\" must have the \"max\" parameter", node.name);
                return Err(node.error(text));
            }
            (false, _) => Some(Caching { pairs_max, inactive, valid }),
        };
        Ok(Self { caching, span: node.span })
    }
}

/// Pairs whose files have not changed, per configuration and use.
const CURRENT_MAX: usize = 1000;

/// Loads pairs, as the `T` that their user makes of them.
pub struct Loader<T> {
    paths: Paths,
    passwords: Passwords,
    kept: Arc<LoadedCertificates<T>>,
}

impl<T> fmt::Debug for Loader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").finish_non_exhaustive()
    }
}

/// The prepared pairs.
struct LoadedCertificates<T> {
    /// If unset, a pair is used only while its files are the same.
    caching: Option<Caching>,
    /// In the order of their last use.
    entries: Mutex<LoadedEntries<T>>,
}

type LoadedEntries<T> = LinkedHashMap<Files, LoadedEntry<T>, RandomState>;

struct LoadedEntry<T> {
    made: T,
    /// In the list of certificates in use.
    _listed: Option<Arc<CertificateUse>>,
    /// The state of the files that it was made of; `None`: one of them had just changed.
    state: Option<FileStamps>,
    loaded: Instant,
    used: Instant,
}

/// What was made of a pair, and its place in the list of certificates in use.
struct Made<T> {
    made: T,
    listed: Option<Arc<CertificateUse>>,
}

/// The state of both files; those of contents are the same for ever.
type FileStamps = [Option<Stamp>; 2];

impl<T: Clone> LoadedCertificates<T> {
    /// Pairs that need no comparison with the files.
    fn cached(&self, files: &Files, now: Instant) -> Option<T> {
        let caching = self.caching.as_ref()?;
        let mut entries = self.entries();
        let entry = entries.get(files)?;
        let age = |since| now.saturating_duration_since(since);
        if age(entry.loaded) >= caching.valid || age(entry.used) >= caching.inactive {
            return None;
        }
        let entry = entries.to_back(files)?;
        entry.used = now;
        Some(entry.made.clone())
    }

    /// The pair made of files in this state.
    fn current(&self, files: &Files, state: &FileStamps, now: Instant) -> Option<T> {
        let mut entries = self.entries();
        let entry = entries.to_back(files)?;
        if entry.state.as_ref() != Some(state) {
            entries.remove(files);
            return None;
        }
        (entry.loaded, entry.used) = (now, now);
        Some(entry.made.clone())
    }

    fn put(&self, files: Files, made: Made<T>, state: Option<FileStamps>, now: Instant) {
        let Made { made, listed } = made;
        let pairs_max = self.caching.map_or(CURRENT_MAX, |caching| caching.pairs_max);
        let mut entries = self.entries();
        if entries.len() >= pairs_max && !entries.contains_key(&files) {
            entries.pop_front();
        }
        entries.insert(files, LoadedEntry { made, _listed: listed, state, loaded: now, used: now });
    }

    fn entries(&self) -> MutexGuard<'_, LoadedEntries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Send + 'static> Loader<T> {
    /// A loader with memory of its own.
    pub fn new(cx: &Cx<'_>, caching: CertificateCaching, passwords: Passwords) -> Self {
        let kept = Arc::new(LoadedCertificates::new(caching.caching));
        Self { paths: cx.paths().clone(), passwords, kept }
    }

    /// The result of `make` for a pair; `make` is called in a pool.
    ///
    /// # Errors
    /// A file can't be used. The text is for the log.
    pub async fn load(
        &self,
        pair: &Files,
        handshake: &Handshake,
        io: impl FnOnce() -> Rc<Io>,
        make: impl FnOnce(Identity) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, String> {
        if let Some(made) = self.kept.cached(pair, now()) {
            return Ok(made);
        }
        if pair.0.is_empty() {
            return Err("no certificate: the value of ssl_certificate is empty".to_owned());
        }
        let io = io();
        let state = self.state(&io, pair).await;
        if let Some(state) = &state
            && let Some(made) = self.kept.current(pair, state, now())
        {
            return Ok(made);
        }
        let certificate = self.read(&io, &pair.0, "certificate").await?;
        let key = self.read(&io, &pair.1, "certificate key").await?;
        let passwords = self.passwords.clone();
        let names = pair.clone();
        let source = match names.0.starts_with(b"data:") {
            true => certificates::DATA.to_owned(),
            false => {
                let path = self.paths.conf_full(files::name(&names.0));
                String::from_utf8_lossy(&path).into_owned()
            }
        };
        let prepare = move || -> Result<Made<T>, String> {
            let failed = |what: &str, name: &[u8], error: Error| {
                format!("cannot load {what} \"{}\": {error}", shown(name))
            };
            let chain = pem::certificates(&certificate)
                .map_err(|error| failed("certificate", &names.0, error))?;
            let key = PrivateKey::from_pem(&key, &passwords.list())
                .map_err(|error| failed("certificate key", &names.1, error))?;
            let identity = Identity::new(chain, &key, None);
            let listed =
                identity.as_ref().ok().map(|identity| certificates::note(source, identity.chain()));
            let made =
                identity.and_then(make).map_err(|error| failed("certificate", &names.0, error))?;
            Ok(Made { made, listed: listed.flatten() })
        };
        let pool = &handshake.pool;
        let made = pool.run(Class::Bulk, handshake.client, Op::Blocking, prepare).await;
        let made = made.map_err(|error| error.to_string())??;
        let result = made.made.clone();
        if state.is_some() || self.kept.caching.is_some() {
            self.kept.put(pair.clone(), made, state, now());
        }
        Ok(result)
    }

    /// The state of the files of a pair; `None` if no state would reveal changes.
    async fn state(&self, io: &Io, pair: &Files) -> Option<FileStamps> {
        let mut state = FileStamps::default();
        for (name, state) in [&pair.0, &pair.1].into_iter().zip(&mut state) {
            if !name.starts_with(b"data:") {
                let path = self.paths.conf_full(files::name(name));
                // A key is in no memory but where it is needed.
                let found = fs::stat_only(io, &path, Symlinks::Follow).await.ok()?;
                *state = Some(found.stamp()?);
            }
        }
        Some(state)
    }

    /// The contents of a file.
    async fn read(&self, io: &Io, name: &[u8], what: &str) -> Result<Contents, String> {
        if let Some(data) = name.strip_prefix(b"data:") {
            return Ok(Contents::new(data.to_vec()));
        }
        let path = self.paths.conf_full(files::name(name));
        let read = fs::read(io, &path, NAMED_BYTES_MAX as usize).await;
        read.map(|contents| Contents::new(contents.to_vec())).map_err(|error| {
            let path = String::from_utf8_lossy(&path);
            let error = OsError(&error);
            format!("cannot load {what} \"{path}\": open() failed{error}")
        })
    }
}

impl<T> LoadedCertificates<T> {
    fn new(caching: Option<Caching>) -> Self {
        Self { caching, entries: Mutex::default() }
    }
}

/// A file's name for the log, where no contents must appear.
fn shown(name: &[u8]) -> String {
    match name.starts_with(b"data:") {
        true => "data:...".to_owned(),
        false => String::from_utf8_lossy(name).into_owned(),
    }
}

/// The certificates of a server, if their names have variables.
pub struct NamedPairs<N> {
    /// Certificates and their keys.
    texts: Vec<(Complex<N>, Complex<N>)>,
    loader: Loader<Identity>,
}

impl<N> fmt::Debug for NamedPairs<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The texts may be contents.
        write!(f, "NamedPairs({})", self.texts.len())
    }
}

/// The caches of one configuration. Servers that inherit `ssl_certificate_cache` from the same place, and
/// have the same passwords, share a cache.
#[derive(Default)]
struct LoaderCaches(BTreeMap<(Span, usize), Arc<LoadedCertificates<Identity>>>);

impl<N: Namespace> NamedPairs<N> {
    /// Pairs of texts with variables.
    pub(super) fn new(
        cx: &mut Cx<'_>,
        texts: Vec<(Complex<N>, Complex<N>)>,
        setting: CertificateCaching,
        passwords: Passwords,
    ) -> Self {
        let shared = cx.global::<LoaderCaches>().0.entry((setting.span, passwords.address()));
        let kept =
            shared.or_insert_with(|| Arc::new(LoadedCertificates::new(setting.caching))).clone();
        Self { texts, loader: Loader { paths: cx.paths().clone(), passwords, kept } }
    }

    /// The properties of a client's hello that variables in the names may use.
    ///
    /// # Errors
    /// The server's settings exclude each other.
    pub fn facts(hello: &Hello, server: &TlsServer) -> Result<Tls, HandshakeError> {
        Tls::expected(hello, server)
    }

    /// The server with the pairs of a subject.
    ///
    /// # Errors
    /// A file can't be used.
    pub async fn complete(
        &self,
        server: &TlsServer,
        subject: &N::Subject,
        handshake: &Handshake,
        io: &Rc<Io>,
    ) -> Result<TlsServer, HandshakeError>
    where
        N::Subject: Subject<Namespace = N>,
    {
        let mut identities = Vec::with_capacity(self.texts.len());
        for (certificate, key) in &self.texts {
            let files = (subject.evaluate(certificate), subject.evaluate(key));
            let loaded = self.loader.load(&files, handshake, || io.clone(), Ok).await;
            identities.push(loaded.map_err(HandshakeError::Certificate)?);
        }
        Ok(server.with_identities(identities))
    }
}
