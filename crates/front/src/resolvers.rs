//! The resolvers of a configuration and their users: names of upstream servers, kept current by
//! tasks of the workers, and names in variables.
//!
//! Called by protocols when a configuration comes into use, then by each worker, and for requests
//! and sessions whose server is named by a variable.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nowait_resolver::{ResolveError, Resolver, ResolverLog, ResolverSettings};
use nowait_runtime::net::Address;
use nowait_runtime::pool::Pool;
use nowait_runtime::task::select;
use nowait_runtime::{JoinHandle, now, worker};
use nowait_upstream::Group;
use nowait_upstream::conf::{ServerConf, ServerLocation};

use crate::resolver_directives::{ResolverId, Resolving};
use crate::upstreams::{Upstream, Upstreams, is_unix};

/// The resolvers of a configuration.
pub struct Resolvers {
    system: Resolver,
    all: Box<[Resolver]>,
}

impl Resolvers {
    /// Makes the resolvers of the configuration. A resolver with unchanged settings is taken over from the
    /// previous configuration with its cache. Files are read in `pool`.
    pub fn new(settings: &[Arc<ResolverSettings>], pool: &Pool, previous: Option<&Self>) -> Self {
        let system = match previous {
            Some(previous) => {
                previous.system.set_pool(pool.clone());
                previous.system.clone()
            }
            None => Resolver::system(pool.clone()),
        };
        let make = |settings: &Arc<ResolverSettings>| {
            let same = |old: &&Resolver| old.settings() == Some(settings);
            let old = previous.and_then(|previous| previous.all.iter().find(same)).cloned();
            old.unwrap_or_else(|| Resolver::new(ResolverSettings::clone(settings), &system))
        };
        Self { all: settings.iter().map(make).collect(), system }
    }

    /// Errors of name servers are reported to `log`.
    fn report_to(&self, log: &ResolverLog) {
        self.all.iter().chain([&self.system]).for_each(|resolver| resolver.set_log(log.clone()));
    }

    /// A resolver; `None`: the system's.
    pub fn get(&self, id: Option<ResolverId>) -> &Resolver {
        id.and_then(|id| self.all.get(id.0 as usize)).unwrap_or(&self.system)
    }

    /// The resolvers of directives, for status pages.
    pub fn iter(&self) -> impl Iterator<Item = &Resolver> {
        self.all.iter()
    }
}

/// Starts the tasks of this worker that keep names of servers current. Each name is assigned to
/// one worker. The tasks end with their handles, and when the worker is told to stop. `default`:
/// the resolver of groups without their own; `log`: the error log of the configuration.
pub fn watch_names<N>(
    upstreams: &Upstreams<N>,
    resolvers: &Resolvers,
    default: Resolving,
    log: &ResolverLog,
) -> Vec<JoinHandle<()>> {
    let (index, workers) = (worker::index(), worker::count());
    if index == 0 {
        resolvers.report_to(log);
    }
    let mut seen: Vec<&Arc<Group>> = Vec::new();
    let mut number = 0;
    let mut tasks = Vec::new();
    for upstream in upstreams.iter() {
        if seen.iter().any(|group| Arc::ptr_eq(group, &upstream.group)) {
            continue;
        }
        seen.push(&upstream.group);
        let own = upstream.resolver.or(default.resolver);
        let timeout = upstream.group.conf().resolver_timeout.unwrap_or(default.timeout);
        let group = WatchedGroup {
            group: upstream.group.clone(),
            resolver: resolvers.get(own).clone(),
            system: resolvers.get(None).clone(),
            timeout: timeout.duration(),
            log: log.clone(),
        };
        if group.group.is_changeable() {
            number += 1;
            if number % workers == index {
                tasks.push(group.follow());
            }
            continue;
        }
        for (server, conf) in group.group.names() {
            number += 1;
            if number % workers == index {
                tasks.push(group.watch(server, &conf));
            }
        }
    }
    tasks
}

/// A group whose names are kept current.
struct WatchedGroup {
    group: Arc<Group>,
    /// For names with `resolve`.
    resolver: Resolver,
    /// For others.
    system: Resolver,
    timeout: Duration,
    log: ResolverLog,
}

/// The task of a name, which ends with this.
struct WatchedName {
    number: usize,
    task: Option<JoinHandle<()>>,
}

impl Drop for WatchedName {
    fn drop(&mut self) {
        self.task.take().into_iter().for_each(JoinHandle::abort);
    }
}

impl WatchedGroup {
    /// Keeps the addresses of one name current.
    fn watch(&self, server: usize, conf: &ServerConf) -> JoinHandle<()> {
        let follows = matches!(conf.target, ServerLocation::Name { resolve: true, .. });
        let resolver = if follows { &self.resolver } else { &self.system };
        let log = self.log.clone();
        let log = move |message: fmt::Arguments<'_>| log(message);
        let (group, timeout) = (self.group.clone(), self.timeout);
        let watch = nowait_upstream::names::watch(group, server, resolver.clone(), timeout, log);
        nowait_runtime::spawn(async move {
            select(worker::stopping(), watch).await;
        })
    }

    /// The same for all names of a group, those that are added while it is in use, too.
    fn follow(self) -> JoinHandle<()> {
        nowait_runtime::spawn(async move {
            let follow = async {
                let mut watched: Vec<WatchedName> = Vec::new();
                loop {
                    let version = self.group.version();
                    let names = self.group.names();
                    watched.retain(|one| names.iter().any(|(known, _)| *known == one.number));
                    for (number, conf) in names {
                        if !watched.iter().any(|one| one.number == number) {
                            let task = Some(self.watch(number, &conf));
                            watched.push(WatchedName { number, task });
                        }
                    }
                    self.group.changed(version).await;
                }
            };
            select(worker::stopping(), follow).await;
        })
    }
}

/// A server that a text with variables names.
#[derive(Debug, Clone, Copy)]
pub struct NamedServer<'a> {
    /// Host and port, or `unix:` and a path.
    pub text: &'a [u8],
    /// A name or an address; the name of an `upstream` block.
    pub host: &'a [u8],
    /// The port, if there is one.
    pub port: Option<u16>,
    /// The port of the protocol; `None`: one has to be there, but for a block.
    pub default_port: Option<u16>,
}

/// A name has no servers. Displayed in nginx's words.
#[derive(Debug)]
pub enum NotFound {
    /// No name server knows the name, or none has replied.
    Unresolved(String, ResolveError),
    /// The name has no block and no port.
    NoPort(String),
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved(host, error) => write!(f, "{host} could not be resolved ({error})"),
            Self::NoPort(text) => write!(f, "no port in upstream \"{text}\""),
        }
    }
}

impl std::error::Error for NotFound {}

/// The servers named by a text with variables: those of an `upstream` block, or else the current addresses
/// of the host. Names are resolved according to `resolver_directives`. nginx:
/// `ngx_http_upstream_init_request`, `ngx_stream_proxy_handler`.
///
/// # Errors
/// [`NotFound`].
pub async fn find<N>(
    named: NamedServer<'_>,
    upstreams: &Upstreams<N>,
    resolvers: &Resolvers,
    resolving: Resolving,
) -> Result<Upstream<N>, NotFound> {
    let NamedServer { text, host, port, default_port } = named;
    if is_unix(text) {
        let address = Address::Unix(text[5..].into());
        let shown = String::from_utf8_lossy(text);
        return Ok(Upstream::of_group(Group::of_addresses(&shown, vec![address])));
    }
    if port.is_none()
        && let Some(block) = upstreams.named(host)
    {
        return Ok(block.clone());
    }
    let Some(port) = port.or(default_port) else {
        return Err(NotFound::NoPort(String::from_utf8_lossy(text).into_owned()));
    };
    let resolver = resolvers.get(resolving.resolver);
    let found = match resolver.known(host, now()) {
        Some(found) => Ok(found),
        None => resolver.resolve(host, resolving.timeout.duration()).await,
    };
    let shown = String::from_utf8_lossy(host);
    match found {
        Ok(found) => {
            let addresses = found.sockets(port).map(Address::Inet).collect();
            Ok(Upstream::of_group(Group::of_addresses(&shown, addresses)))
        }
        Err(error) => Err(NotFound::Unresolved(shown.into_owned(), error)),
    }
}
