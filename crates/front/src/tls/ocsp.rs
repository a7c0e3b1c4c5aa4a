//! OCSP requests: for certificates of clients (`ssl_ocsp`), and for responses to staple (`ssl_stapling`).
//! nginx: `ngx_event_openssl_stapling.c`.
//!
//! Certificates of clients are checked right after the handshake. Responses to staple are fetched by
//! separate tasks, which handshakes start but never wait for.

use std::fmt;
use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashlink::LinkedHashMap;
use nowait_resolver::{Resolver, ResolverLog};
use nowait_runtime::pool::{Class, Op, Pool};
use nowait_runtime::spawn;
use nowait_runtime::time::timeout;
use nowait_tls::ocsp::{self, OcspResult, Question, RESPONSE_BYTES_MAX, Signer, Status};
use nowait_tls::{CertificateDer, Distrust, Identity};

use super::fetch::{self, TIMEOUT};
use crate::resolver_directives::Resolving;

/// Seconds until a failed attempt is repeated, and at least between two attempts. nginx's value.
const PAUSE_S: u64 = 300;

/// Seconds after which a response is replaced, if it does not expire before. nginx's value.
const REFRESH_S: u64 = 3600;

/// Seconds for which a status without an end is kept. nginx's value.
const KEPT_S: u64 = 3600;

/// Memory for one status in a cache.
const ENTRY_BYTES: u64 = 256;

/// No answer that counts was received.
pub(super) const FAILED: Distrust = Distrust("certificate status request failed");

/// A responder's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder {
    host: String,
    port: u16,
    uri: String,
}

impl Responder {
    /// Reads a URL.
    ///
    /// # Errors
    /// The reason why the URL is invalid; the text precedes `in OCSP responder`.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let prefix = url.get(..7).filter(|prefix| prefix.eq_ignore_ascii_case("http://"));
        prefix.ok_or("invalid URL prefix")?;
        let rest = &url[7..];
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, uri) = rest.split_at(end);
        // The brackets of an address contain colons, too.
        let colon = authority.rfind(':').filter(|colon| authority[*colon..].find(']').is_none());
        let (host, port) = match colon {
            Some(colon) => (&authority[..colon], authority[colon + 1..].parse().ok()),
            None => (authority, Some(80)),
        };
        let port = port.filter(|port| *port > 0).ok_or("invalid port")?;
        let is_safe = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        match host.is_empty() || !is_safe(host) || !is_safe(uri) {
            true if host.is_empty() => Err("empty host"),
            true => Err("invalid character"),
            false => Ok(Self { host: host.to_owned(), port, uri: uri.to_owned() }),
        }
    }

    /// The request line and the fields of a request.
    fn head(&self, question: &Question) -> String {
        let slash = if self.uri.ends_with('/') { "" } else { "/" };
        let Self { host, uri, .. } = self;
        format!("GET {uri}{slash}{} HTTP/1.0\r\nHost: {host}\r\n\r\n", question.path())
    }
}

/// The means of requests.
pub struct Asking {
    /// Finds the responder.
    pub resolver: Resolver,
    /// The pool for checking signatures.
    pub pool: Pool,
    /// The pool for writing files.
    pub files: Pool,
    /// Takes errors.
    pub log: ResolverLog,
}

impl Asking {
    /// Sends a request to a responder; returns its response, raw and parsed.
    async fn ask(
        &self,
        responder: &Responder,
        question: &Question,
        signer: Signer,
        resolving: Resolving,
    ) -> Result<(Vec<u8>, OcspResult), String> {
        let fetched = timeout(TIMEOUT, self.fetch(responder, question, resolving)).await;
        let response = fetched.unwrap_or_else(|_| Err("OCSP responder timed out".to_owned()))?;
        let question = question.clone();
        let check = move || {
            let verdict = question.check(&response, signer, SystemTime::now());
            verdict.map(|verdict| (response, verdict))
        };
        let checked = self.pool.run(Class::Bulk, 0, Op::Blocking, check).await;
        checked.map_err(|error| error.to_string())?
    }

    async fn fetch(
        &self,
        responder: &Responder,
        question: &Question,
        resolving: Resolving,
    ) -> Result<Vec<u8>, String> {
        let Responder { host, port, .. } = responder;
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let timeout = resolving.timeout.duration();
        let stream = fetch::open(&self.resolver, timeout, bare, *port).await?;
        let head = responder.head(question);
        let answer = fetch::exchange(&stream, head, false, RESPONSE_BYTES_MAX).await;
        let answer = answer.map_err(|why| format!("OCSP responder failed: {why}"))?;
        if answer.status != 200 {
            return Err(format!("OCSP responder sent status {}", answer.status));
        }
        // As nginx: any other type is an error page.
        let kind = answer.field("content-type").unwrap_or_default();
        if !kind.eq_ignore_ascii_case("application/ocsp-response") {
            return Err(format!("OCSP responder sent invalid \"Content-Type\" header: \"{kind}\""));
        }
        Ok(answer.body)
    }
}

/// Statuses of certificates, until their next update (`ssl_ocsp_cache`).
#[derive(Debug)]
pub struct StatusCache {
    entries_max: usize,
    state: Mutex<Statuses>,
}

/// Oldest first.
type Statuses = LinkedHashMap<Vec<u8>, (Status, SystemTime), RandomState>;

impl StatusCache {
    /// A cache of this size.
    pub fn new(bytes: u64) -> Self {
        let entries_max = usize::try_from(bytes / ENTRY_BYTES).unwrap_or(usize::MAX);
        Self { entries_max: entries_max.max(1), state: Mutex::default() }
    }

    /// Takes over the statuses of another cache.
    pub fn adopt(&self, other: &Self) {
        if std::ptr::eq(self, other) {
            return;
        }
        for (id, (status, until)) in std::mem::take(&mut *other.lock()) {
            self.put(id, status, until);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Statuses> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &[u8], now: SystemTime) -> Option<Status> {
        let state = self.lock();
        state.get(id).filter(|(_, until)| now < *until).map(|(status, _)| *status)
    }

    fn put(&self, id: Vec<u8>, status: Status, until: SystemTime) {
        let mut state = self.lock();
        state.insert(id, (status, until));
        if state.len() > self.entries_max {
            state.pop_front();
        }
        debug_assert!(state.len() <= self.entries_max, "it grows by one at a time");
    }
}

/// `ssl_ocsp`: whether certificates of clients are revoked.
#[derive(Debug)]
pub struct ClientOcsp {
    /// Only the client's own certificate is checked.
    pub leaf_only: bool,
    /// `None`: the responder named by each certificate.
    pub responder: Option<Responder>,
    /// `ssl_ocsp_cache`
    pub cache: Option<Arc<StatusCache>>,
    /// The resolver for names of responders.
    pub resolving: Resolving,
}

impl ClientOcsp {
    /// Checks a path from a client's certificate to a trusted one.
    ///
    /// # Errors
    /// The reason why it is not trusted.
    pub(super) async fn check(
        &self,
        path: &[CertificateDer<'static>],
        asking: &Asking,
    ) -> Result<(), Distrust> {
        let pairs = path.windows(2).take(if self.leaf_only { 1 } else { usize::MAX });
        for pair in pairs {
            let status = match self.status(&pair[0], &pair[1], asking).await {
                Ok(status) => status,
                Err(why) => {
                    (asking.log)(format_args!("{why} while requesting certificate status"));
                    return Err(FAILED);
                }
            };
            match status {
                Status::Good => {}
                Status::Revoked => return Err(Distrust("certificate revoked")),
                Status::Unknown => return Err(Distrust("certificate status unknown")),
            }
        }
        Ok(())
    }

    async fn status(
        &self,
        certificate: &CertificateDer<'static>,
        issuer: &CertificateDer<'static>,
        asking: &Asking,
    ) -> Result<Status, String> {
        let responder = match &self.responder {
            Some(responder) => responder.clone(),
            None => {
                let url = ocsp::responder(certificate);
                let url = url.ok_or("no OCSP responder URL in certificate")?;
                Responder::parse(&url).map_err(|why| {
                    format!("{why} in OCSP responder \"{}\" in certificate", url.escape_debug())
                })?
            }
        };
        let question = Question::new(certificate, issuer, Vec::new());
        let question = question.ok_or("malformed certificate")?;
        if let Some(cache) = &self.cache
            && let Some(status) = cache.get(&question.id(), SystemTime::now())
        {
            return Ok(status);
        }
        let asked = asking.ask(&responder, &question, Signer::Authorized, self.resolving).await;
        let (_, OcspResult { status, until }) =
            asked.map_err(|why| format!("{why}, responder: {}", responder.host))?;
        if let Some(cache) = &self.cache {
            let until = until.unwrap_or_else(|| SystemTime::now() + Duration::from_secs(KEPT_S));
            cache.put(question.id(), status, until);
        }
        Ok(status)
    }
}

/// A certificate whose status is stapled (`ssl_stapling`), and the source of the status.
pub struct Stapling {
    /// The certificate.
    pub identity: Identity,
    /// The file.
    pub name: String,
    /// The request.
    pub question: Question,
    /// The responder.
    pub responder: Responder,
    /// `ssl_stapling_verify`
    pub signer: Signer,
    /// The resolver for the responder's name.
    pub resolving: Resolving,
    /// The time of the next request, in seconds since 1970.
    pub due: AtomicU64,
}

impl fmt::Debug for Stapling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stapling({}, {:?})", self.name, self.responder)
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Stapling {
    /// Starts a task that fetches a newer response when due; `asking` is called only then.
    pub(super) fn refresh(self: &Arc<Self>, asking: impl FnOnce() -> Asking) {
        let now = seconds(SystemTime::now());
        let due = self.due.load(Ordering::Relaxed);
        // After a failure, too, the next attempt is made after the pause.
        let next = now + PAUSE_S;
        if due > now
            || self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let (own, asking) = (self.clone(), asking());
        drop(spawn(async move {
            if let Err(why) = own.fetch(&asking, now).await {
                let Self { name, responder, .. } = &*own;
                (asking.log)(format_args!(
                    "{why} while requesting certificate status, responder: {}, certificate: \
                     \"{name}\"",
                    responder.host
                ));
            }
        }));
    }

    async fn fetch(&self, asking: &Asking, now: u64) -> Result<(), String> {
        let Self { responder, question, signer, resolving, .. } = self;
        let (response, OcspResult { status, until }) =
            asking.ask(responder, question, *signer, *resolving).await?;
        if status != Status::Good {
            let status = status.name();
            return Err(format!("certificate status \"{status}\" in the OCSP response"));
        }
        self.identity.staple(response, until);
        let end = until.map_or(u64::MAX, |until| seconds(until).saturating_sub(PAUSE_S));
        self.due.store(end.min(now + REFRESH_S).max(now + PAUSE_S), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_responders() {
        let parse = |url| Responder::parse(url).map(|r| (r.host, r.port, r.uri));
        let is = |host: &str, port, uri: &str| Ok((host.to_owned(), port, uri.to_owned()));
        assert_eq!(parse("http://ocsp.example"), is("ocsp.example", 80, ""));
        assert_eq!(parse("HTTP://ocsp.example:81/a/b"), is("ocsp.example", 81, "/a/b"));
        assert_eq!(parse("http://[::1]:8080/"), is("[::1]", 8080, "/"));
        assert_eq!(parse("http://[::1]"), is("[::1]", 80, ""));
        assert_eq!(parse("https://ocsp.example"), Err("invalid URL prefix"));
        assert_eq!(parse("http:/"), Err("invalid URL prefix"));
        assert_eq!(parse("http:///a"), Err("empty host"));
        assert_eq!(parse("http://a:0"), Err("invalid port"));
        assert_eq!(parse("http://a:x"), Err("invalid port"));
        assert_eq!(parse("http://a/\r\nX: y"), Err("invalid character"));
        assert_eq!(parse("http://ä.example"), Err("invalid character"));
    }

    #[test]
    fn statuses_are_kept_within_bounds() {
        let now = SystemTime::now();
        let later = now + Duration::from_secs(60);
        let cache = StatusCache::new(10 * ENTRY_BYTES);
        for id in 0..20u8 {
            cache.put(vec![id], Status::Good, later);
        }
        assert_eq!((cache.get(&[9], now), cache.get(&[10], now)), (None, Some(Status::Good)));
        cache.put(vec![10], Status::Revoked, later);
        assert_eq!(cache.get(&[10], now), Some(Status::Revoked));
        assert_eq!(cache.get(&[10], later), None);
        let next = StatusCache::new(2 * ENTRY_BYTES);
        next.adopt(&cache);
        assert_eq!((next.get(&[17], now), next.get(&[19], now)), (None, Some(Status::Good)));
        next.adopt(&next);
        assert_eq!(next.lock().len(), 2);
    }
}
