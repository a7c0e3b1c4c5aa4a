//! The resolver: a handle shared by all workers.
//!
//! The first task to request a name starts a lookup task on its worker; all others that want the
//! same name wait for it, on any worker. When no task waits any more, the lookup ends after the
//! message in flight. If the worker of a lookup ends, the next waiting task takes over.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nowait_runtime::pool::Pool;
use nowait_runtime::task::{Either, select};
use nowait_runtime::time::timeout;
use nowait_runtime::{sleep, worker};

use crate::answer::{Addresses, ResolveError, Service, Services};
use crate::counters::{ResolverCounters, Statistics};
use crate::message::{Question, SrvRecord};
use crate::name::DomainName;
use crate::query::{Lookup, Timing};
use crate::settings::{NameServer, ResolverSettings};
use crate::system::{self, Paths, System, SystemFiles};
use crate::table::{
    LookupAnswer, LookupKey, LookupOutcome, LookupStep, LookupTable, PendingLookup,
};

/// Validity of an IP address given as a name.
const LITERAL_VALID: Duration = Duration::from_secs(24 * 3600);

/// After this time without a response the next server is queried. nginx: `resend_timeout`.
const RESEND: Duration = Duration::from_secs(5);

/// Upper limit for caching "no such name". nginx caches none, but resolves the names of upstream
/// servers again after this time.
const NEGATIVE_MAX: Duration = Duration::from_secs(10);

/// How long other failures are cached, and a "no such name" without a lifetime: short, but long
/// enough that a busy proxy does not send a query for every request. nginx caches no failures, and
/// neither does Nowait where a `resolver` directive names several servers, which take turns.
const FAILURE_VALID: Duration = Duration::from_secs(1);

/// Maximum wait if `resolver_timeout` is zero, which means no limit for nginx: by then the last
/// message of a lookup has been sent.
const UNLIMITED: Duration = Duration::from_secs(320);

/// The time limit set by `resolver_timeout`; zero means unlimited.
pub fn limit(timeout: Duration) -> Duration {
    if timeout.is_zero() { UNLIMITED } else { timeout }
}

/// How often a waiting task takes over a lookup that another worker has abandoned.
const TAKE_OVERS_MAX: usize = 3;

/// How often a worker that is about to end checks whether its lookups are still wanted.
const STOP_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of service targets whose addresses are looked up.
const TARGETS_MAX: usize = 64;

/// Receives messages for the error log; called on workers, must not block.
pub type ResolverLog = Arc<dyn Fn(fmt::Arguments<'_>) + Send + Sync>;

/// A DNS client with its cache. Clones are handles to the same client. `Send + Sync`; the futures
/// run on any worker.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

struct Inner {
    source: ServerSource,
    table: Mutex<LookupTable>,
    /// Counts lookups: servers take turns at being first.
    turn: AtomicUsize,
    counters: ResolverCounters,
    log: Mutex<Option<ResolverLog>>,
}

/// Source of the server list.
enum ServerSource {
    /// A `resolver` directive; the system's resolver looks up the names of its servers.
    Configured(ResolverSettings, Resolver),
    System(System),
}

impl Resolver {
    /// For a `resolver` directive. No socket is opened before the first look-up. `system` resolves the
    /// names of name servers.
    pub fn new(settings: ResolverSettings, system: &Resolver) -> Resolver {
        Resolver::from_source(ServerSource::Configured(settings, system.clone()))
    }

    /// The system's resolver: `/etc/hosts`, then the servers of `/etc/resolv.conf`. Both are read
    /// in `pool` when first needed, and again when they have changed.
    pub fn system(pool: Pool) -> Resolver {
        Resolver::system_at(pool, Paths::default())
    }

    /// Like [`system`](Resolver::system), from other files.
    pub fn system_at(pool: Pool, paths: Paths) -> Resolver {
        Resolver::from_source(ServerSource::System(System::new(pool, paths)))
    }

    /// Sets the log for errors of name servers.
    pub fn set_log(&self, log: ResolverLog) {
        *self.0.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
    }

    /// Sets the pool in which the system's resolver reads files.
    pub fn set_pool(&self, pool: Pool) {
        if let ServerSource::System(system) = &self.0.source {
            system.set_pool(pool);
        }
    }

    fn from_source(source: ServerSource) -> Resolver {
        Resolver(Arc::new(Inner {
            source,
            table: Mutex::default(),
            turn: AtomicUsize::new(0),
            counters: ResolverCounters::default(),
            log: Mutex::default(),
        }))
    }

    /// The settings of the directive; `None` for the system's resolver.
    pub fn settings(&self) -> Option<&ResolverSettings> {
        match &self.0.source {
            ServerSource::Configured(settings, _) => Some(settings),
            ServerSource::System(_) => None,
        }
    }

    /// Statistics so far.
    pub fn statistics(&self) -> Statistics {
        self.0.counters.snapshot()
    }

    /// Number of cached names.
    pub fn remembered(&self) -> usize {
        self.table().len()
    }

    /// The addresses of `name`, which may be an IP address itself.
    ///
    /// # Errors
    /// [`ResolveError::TimedOut`] after `timeout` (`resolver_timeout`; zero: none); errors of the
    /// servers.
    pub async fn resolve(&self, name: &[u8], timeout: Duration) -> Result<Addresses, ResolveError> {
        if let Some(address) = literal(name) {
            return Ok(address_itself(address, nowait_runtime::now()));
        }
        let key = self.host_key(name).ok_or(ResolveError::NotFound)?;
        let (answer, valid) = self.look_up(key, timeout).await;
        match answer? {
            LookupAnswer::Addresses(list) => Ok(Addresses { list, valid }),
            LookupAnswer::Services(_) => Err(ResolveError::NotFound),
        }
    }

    /// The addresses of `name`, if they are already known, which saves creating a future.
    pub fn known(&self, name: &[u8], now: Instant) -> Option<Addresses> {
        if let Some(address) = literal(name) {
            return Some(address_itself(address, now));
        }
        let key = self.host_key(name)?;
        let (answer, valid) = self.table().peek(&key, now)?;
        match answer {
            Ok(LookupAnswer::Addresses(list)) => Some(Addresses { list, valid }),
            Ok(LookupAnswer::Services(_)) | Err(_) => None,
        }
    }

    /// The servers of `service` at `name` (`service=` of nginx's `server` directive), with the
    /// addresses of each.
    ///
    /// # Errors
    /// As for [`resolve`](Resolver::resolve); also when no target has an address.
    pub async fn services(
        &self,
        service: &[u8],
        name: &[u8],
        timeout: Duration,
    ) -> Result<Services, ResolveError> {
        let name = DomainName::new(name).and_then(|name| name.service(service));
        let key = LookupKey::Service(name.ok_or(ResolveError::NotFound)?);
        let (answer, valid) = self.look_up(key, timeout).await;
        match answer? {
            LookupAnswer::Services(list) => Ok(Services { list, valid }),
            LookupAnswer::Addresses(_) => Err(ResolveError::NotFound),
        }
    }

    fn host_key(&self, name: &[u8]) -> Option<LookupKey> {
        // Only the system's resolver has search domains.
        let absolute =
            name.ends_with(b".") || matches!(self.0.source, ServerSource::Configured(..));
        Some(LookupKey::Host { name: DomainName::new(name)?, absolute })
    }

    fn table(&self) -> MutexGuard<'_, LookupTable> {
        // Plain data, valid after every statement.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From the table, or by a query.
    async fn look_up(&self, key: LookupKey, limit: Duration) -> LookupOutcome {
        let limit = self::limit(limit);
        let start = nowait_runtime::now();
        let failed = |error| (Err(error), nowait_runtime::now());
        for _ in 0..TAKE_OVERS_MAX {
            let now = nowait_runtime::now();
            let found = self.table().find(&key, now);
            let (pending, ask) = match found {
                LookupStep::Known(outcome) => {
                    ResolverCounters::add(&self.0.counters.cached);
                    return outcome;
                }
                LookupStep::Full => {
                    ResolverCounters::add(&self.0.counters.overloaded);
                    return failed(ResolveError::Overloaded);
                }
                LookupStep::Wait(pending) => (pending, false),
                LookupStep::Ask(pending) => (pending, true),
            };
            let wait = pending.wait();
            if ask {
                let asking = LookupGuard { resolver: self.clone(), key: key.clone(), pending };
                nowait_runtime::spawn(asking.run());
            }
            let Some(wait) = wait else {
                ResolverCounters::add(&self.0.counters.overloaded);
                return failed(ResolveError::Overloaded);
            };
            let left = limit.saturating_sub(now.saturating_duration_since(start));
            match timeout(left, wait).await {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => {}
                Err(_) => {
                    ResolverCounters::add(&self.0.counters.timedout);
                    return failed(ResolveError::TimedOut);
                }
            }
        }
        failed(ResolveError::ServerFailure)
    }

    /// Queries the servers for `key`.
    async fn ask(&self, key: &LookupKey, wanted: &dyn Fn() -> bool) -> LookupOutcome {
        let (settings, known) = match &self.0.source {
            ServerSource::Configured(settings, _) => (Some(settings), None),
            ServerSource::System(system) => (None, Some(system.known().await)),
        };
        if let (LookupKey::Host { name, .. }, Some(known)) = (key, &known)
            && let Some(addresses) = known.hosts.find(name)
        {
            let valid = nowait_runtime::now() + system::HOSTS_VALID;
            return (Ok(LookupAnswer::Addresses(addresses.into())), valid);
        }
        let servers = self.servers(known.as_deref()).await;
        let timing = match &known {
            None => Timing { resend: RESEND, rounds: None, fail_over: false },
            Some(known) => Timing {
                resend: known.conf.timeout,
                rounds: Some(known.conf.attempts),
                fail_over: true,
            },
        };
        let lookup = Lookup {
            servers: &servers,
            timing,
            counters: &self.0.counters,
            wanted,
            odd: &|question, code| self.report(question, code),
        };
        let ipv4 = settings.is_none_or(|settings| settings.ipv4);
        let ipv6 = match (settings, &known) {
            (Some(settings), _) => settings.ipv6,
            (None, known) => known.as_ref().is_some_and(|known| known.ipv6),
        };
        let fixed = settings.and_then(|settings| settings.valid);
        let found = match key {
            LookupKey::Host { name, absolute } => {
                let candidates = match &known {
                    Some(known) => known.conf.candidates(name, *absolute),
                    None => vec![name.clone()],
                };
                let found = first_of(&lookup, &candidates, ipv4, ipv6).await;
                found.map(|(list, ttl)| (LookupAnswer::Addresses(list.into()), ttl))
            }
            LookupKey::Service(name) => {
                let found = lookup.services(name).await;
                match found {
                    Ok((records, ttl)) => {
                        let targets = targets(&lookup, records, ipv4, ipv6).await;
                        targets.map(|(list, least)| (LookupAnswer::Services(list), ttl.min(least)))
                    }
                    Err(error) => Err(error),
                }
            }
        };
        let now = nowait_runtime::now();
        match found {
            Ok((answer, ttl)) => (Ok(answer), now + fixed.unwrap_or(ttl)),
            Err((error, negative)) => {
                let most = fixed.unwrap_or(NEGATIVE_MAX).min(NEGATIVE_MAX);
                // The next lookup begins with another server, which may have a result.
                let others = settings.is_some() && servers.len() > 1;
                let unknown = if others { Duration::ZERO } else { FAILURE_VALID };
                (Err(error), now + negative.unwrap_or(unknown).min(most))
            }
        }
    }

    /// The servers in the order in which to query them now.
    async fn servers(&self, known: Option<&SystemFiles>) -> Vec<SocketAddr> {
        let (mut servers, rotate) = match (&self.0.source, known) {
            (ServerSource::Configured(settings, system), _) => {
                let mut servers = Vec::with_capacity(settings.servers.len());
                for server in &settings.servers {
                    match server {
                        NameServer::Address(address) => servers.push(*address),
                        NameServer::Name { host, port } => {
                            // The system's resolver, whose own servers have no names.
                            let found = Box::pin(system.resolve(host.as_bytes(), RESEND)).await;
                            servers.extend(found.iter().flat_map(|found| found.sockets(*port)));
                        }
                    }
                }
                (servers, true)
            }
            (ServerSource::System(_), Some(known)) => {
                (known.conf.servers.clone(), known.conf.rotate)
            }
            (ServerSource::System(_), None) => (Vec::new(), false),
        };
        if rotate && !servers.is_empty() {
            let turn = self.0.turn.fetch_add(1, Ordering::Relaxed);
            let first = turn % servers.len();
            servers.rotate_left(first);
        }
        servers
    }

    /// Logs nginx's line for a response that counts as none.
    fn report(&self, question: &Question, code: u8) {
        let log = self.0.log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(log) = log {
            let text = if code == 1 { "Format error" } else { "Unknown error" };
            let (id, name) = (question.id, &question.name);
            log(format_args!("DNS error ({code}: {text}), query id:{id}, name:\"{name}\""));
        }
    }
}

/// The first of these names that has addresses.
async fn first_of(
    lookup: &Lookup<'_>,
    candidates: &[DomainName],
    ipv4: bool,
    ipv6: bool,
) -> Result<(Vec<IpAddr>, Duration), (ResolveError, Option<Duration>)> {
    let mut error = (ResolveError::NotFound, None);
    for name in candidates {
        match lookup.addresses(name, ipv4, ipv6).await {
            Ok(found) => return Ok(found),
            Err(failure) => {
                let over = failure.0 != ResolveError::NotFound;
                error = failure;
                if over {
                    break;
                }
            }
        }
    }
    Err(error)
}

/// The services with the addresses of their targets, one after the other: many share a target, and
/// each is looked up once.
async fn targets(
    lookup: &Lookup<'_>,
    records: Vec<SrvRecord>,
    ipv4: bool,
    ipv6: bool,
) -> Result<(Arc<[Service]>, Duration), (ResolveError, Option<Duration>)> {
    type Target = (DomainName, Result<Arc<[IpAddr]>, ResolveError>);
    let mut known: Vec<Target> = Vec::new();
    let mut least = Duration::MAX;
    for record in &records {
        if known.len() == TARGETS_MAX {
            break;
        }
        if known.iter().any(|(name, _)| *name == record.target) {
            continue;
        }
        let found = lookup.addresses(&record.target, ipv4, ipv6).await;
        let found = match found {
            Ok((list, ttl)) => {
                least = least.min(ttl);
                Ok(list.into())
            }
            Err((error, _)) => Err(error),
        };
        known.push((record.target.clone(), found));
    }
    // As in nginx: having no address at all is an error, with "no such host" taking precedence.
    if known.iter().all(|(_, found)| found.is_err()) {
        let errors: Vec<_> = known.iter().filter_map(|(_, found)| found.clone().err()).collect();
        let not_found = errors.contains(&ResolveError::NotFound);
        let error = if not_found { Some(ResolveError::NotFound) } else { errors.first().copied() };
        return Err((error.unwrap_or(ResolveError::NotFound), None));
    }
    let services = records.into_iter().filter_map(|record| {
        let SrvRecord { priority, weight, port, target } = record;
        let addresses = known.iter().find(|(name, _)| *name == target)?.1.clone();
        Some(Service { priority, weight, port, target, addresses })
    });
    Ok((services.collect(), least))
}

/// A lookup in progress. When its task is dropped, the waiting tasks are notified.
struct LookupGuard {
    resolver: Resolver,
    key: LookupKey,
    pending: Arc<PendingLookup>,
}

impl LookupGuard {
    async fn run(self) {
        let wanted = || self.pending.is_wanted();
        let ask = self.resolver.ask(&self.key, &wanted);
        // A worker that is about to end is not delayed by an unwanted lookup.
        let needless = async {
            worker::stopping().await;
            while wanted() {
                sleep(STOP_PAUSE).await;
            }
        };
        let Either::Left(outcome) = select(ask, needless).await else { return };
        self.resolver.table().finish(&self.key, &self.pending, outcome.clone());
        self.pending.end(Some(outcome));
    }
}

impl Drop for LookupGuard {
    fn drop(&mut self) {
        // Has no effect after a normal end.
        let abandoned = (Err(ResolveError::TimedOut), nowait_runtime::now());
        self.resolver.table().finish(&self.key, &self.pending, abandoned);
        self.pending.end(None);
    }
}

fn address_itself(address: IpAddr, now: Instant) -> Addresses {
    Addresses { list: Arc::new([address]), valid: now + LITERAL_VALID }
}

/// An IP address given as a name, IPv6 optionally in brackets.
fn literal(name: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(name).ok()?;
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("settings", &self.settings()).finish_non_exhaustive()
    }
}
