//! Certificates and keys whose names have variables: read through `fs` when a connection needs
//! them, prepared in a pool, and kept in a bounded cache. nginx: `ngx_ssl_connection_certificate`.
//!
//! Called for each handshake of such a server, and for each connection to an upstream server with
//! such a certificate.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_conf::{
    Arity, Contents, Cx, Diagnostic, NAMED_BYTES_MAX, Node, Paths, Seconds, Setting, Span, Value,
    arity,
};
use nowait_runtime::fs::{self, Io};
use nowait_runtime::now;
use nowait_runtime::pool::{Class, Op};
use nowait_tls::pem::{self, PrivateKey};
use nowait_tls::{Error, Identity, Server};
use nowait_variables::{Complex, Namespace, Subject};

use super::files::{self, Passwords};
use super::{Failure, Handshake, Hello, Tls};
use crate::log::OsError;

/// Names of a certificate and of its key.
pub type Files = (Bytes, Bytes);

/// `ssl_certificate_cache` and its relatives.
#[derive(Clone, Copy, Debug)]
pub struct CertificateCaching {
    caching: Option<Caching>,
    /// The directive's place, which tells its cache from others.
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

/// Loads pairs, as the `T` that their user makes of them.
pub struct Loader<T> {
    paths: Paths,
    passwords: Passwords,
    cache: Option<Arc<Cache<T>>>,
}

impl<T> fmt::Debug for Loader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").finish_non_exhaustive()
    }
}

/// What pairs were made into.
struct Cache<T> {
    caching: Caching,
    entries: Mutex<HashMap<Files, Entry<T>>>,
}

struct Entry<T> {
    made: T,
    loaded: Instant,
    used: Instant,
}

impl<T: Clone> Cache<T> {
    fn find(&self, files: &Files, now: Instant) -> Option<T> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get_mut(files)?;
        let age = |since| now.saturating_duration_since(since);
        if age(entry.loaded) >= self.caching.valid || age(entry.used) >= self.caching.inactive {
            entries.remove(files);
            return None;
        }
        entry.used = now;
        Some(entry.made.clone())
    }

    fn put(&self, files: Files, made: T, now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.caching.pairs_max && !entries.contains_key(&files) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.used);
            let oldest = oldest.map(|(files, _)| files.clone());
            oldest.and_then(|oldest| entries.remove(&oldest));
        }
        entries.insert(files, Entry { made, loaded: now, used: now });
    }
}

impl<T: Clone + Send + 'static> Loader<T> {
    /// A loader with a cache of its own.
    pub fn new(cx: &Cx<'_>, caching: CertificateCaching, passwords: Passwords) -> Self {
        let cache = caching.caching.map(|caching| Arc::new(Cache::new(caching)));
        Self { paths: cx.paths().clone(), passwords, cache }
    }

    /// What `make` makes of a pair; it is called in a pool.
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
        if let Some(cache) = &self.cache
            && let Some(made) = cache.find(pair, now())
        {
            return Ok(made);
        }
        if pair.0.is_empty() {
            return Err("no certificate: the value of ssl_certificate is empty".to_owned());
        }
        let io = io();
        let certificate = self.read(&io, &pair.0, "certificate").await?;
        let key = self.read(&io, &pair.1, "certificate key").await?;
        let passwords = self.passwords.clone();
        let names = pair.clone();
        let prepare = move || -> Result<T, String> {
            let failed = |what: &str, name: &[u8], error: Error| {
                format!("cannot load {what} \"{}\": {error}", shown(name))
            };
            let chain = pem::certificates(&certificate)
                .map_err(|error| failed("certificate", &names.0, error))?;
            let key = PrivateKey::from_pem(&key, &passwords.list())
                .map_err(|error| failed("certificate key", &names.1, error))?;
            Identity::new(chain, &key, None)
                .and_then(make)
                .map_err(|error| failed("certificate", &names.0, error))
        };
        let pool = &handshake.pool;
        let made = pool.run(Class::Bulk, handshake.client, Op::Blocking, prepare).await;
        let made = made.map_err(|error| error.to_string())??;
        if let Some(cache) = &self.cache {
            cache.put(pair.clone(), made.clone(), now());
        }
        Ok(made)
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

impl<T> Cache<T> {
    fn new(caching: Caching) -> Self {
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

/// The caches of one configuration, which servers share that inherit the directive: by its place,
/// and by the passwords.
#[derive(Default)]
struct Caches(BTreeMap<(Span, usize), Arc<Cache<Identity>>>);

impl<N: Namespace> NamedPairs<N> {
    /// Pairs of texts with variables.
    pub(super) fn new(
        cx: &mut Cx<'_>,
        texts: Vec<(Complex<N>, Complex<N>)>,
        setting: CertificateCaching,
        passwords: Passwords,
    ) -> Self {
        let cache = setting.caching.map(|caching| {
            let shared = cx.global::<Caches>().0.entry((setting.span, passwords.address()));
            shared.or_insert_with(|| Arc::new(Cache::new(caching))).clone()
        });
        Self { texts, loader: Loader { paths: cx.paths().clone(), passwords, cache } }
    }

    /// What variables in the names may show of a client's hello.
    ///
    /// # Errors
    /// The server's settings exclude each other.
    pub fn facts(hello: &Hello, server: &Server) -> Result<Tls, Failure> {
        Tls::expected(hello, server)
    }

    /// The server with the pairs of a subject.
    ///
    /// # Errors
    /// A file can't be used.
    pub async fn complete(
        &self,
        server: &Server,
        subject: &N::Subject,
        handshake: &Handshake,
        io: &Rc<Io>,
    ) -> Result<Server, Failure>
    where
        N::Subject: Subject<Namespace = N>,
    {
        let mut identities = Vec::with_capacity(self.texts.len());
        for (certificate, key) in &self.texts {
            let files = (subject.evaluate(certificate), subject.evaluate(key));
            let loaded = self.loader.load(&files, handshake, || io.clone(), Ok).await;
            identities.push(loaded.map_err(Failure::Certificate)?);
        }
        Ok(server.with_identities(identities))
    }
}
