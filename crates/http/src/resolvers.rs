//! The resolvers of a configuration, and what uses them: names of upstream servers, kept current by
//! tasks of the workers, and names in variables.
//!
//! Called by the program when a configuration comes into use, by each worker then, and by handlers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nowait_resolver::{Log, Resolver, Settings};
use nowait_runtime::net::Address;
use nowait_runtime::pool::Pool;
use nowait_runtime::task::select;
use nowait_runtime::{JoinHandle, now, worker};
use nowait_upstream::Group;
use nowait_upstream::conf::Target;

use crate::conf::HttpConf;
use crate::conf::resolver::ResolverId;
use crate::conf::upstream::Upstream;
use crate::generation::{Current, Generation};
use crate::log::Level;
use crate::request::Request;

/// The resolvers of a configuration.
pub struct Resolvers {
    system: Resolver,
    all: Box<[Resolver]>,
}

impl Resolvers {
    /// Makes those that the configuration names. One whose settings stay is taken over from the
    /// previous configuration with all that it knows. Files are read in `pool`.
    pub fn new(conf: &HttpConf, pool: &Pool, previous: Option<&Self>) -> Self {
        let system = match previous {
            Some(previous) => {
                previous.system.set_pool(pool.clone());
                previous.system.clone()
            }
            None => Resolver::system(pool.clone()),
        };
        let make = |settings: &Arc<Settings>| {
            let same = |old: &&Resolver| old.settings() == Some(settings);
            let old = previous.and_then(|previous| previous.all.iter().find(same)).cloned();
            old.unwrap_or_else(|| Resolver::new(Settings::clone(settings), &system))
        };
        Self { all: conf.resolvers.iter().map(make).collect(), system }
    }

    /// What name servers do wrong goes to the error log of this generation.
    fn report_to(&self, generation: &Arc<Generation>) {
        let generation = Arc::downgrade(generation);
        let log: Log = Arc::new(move |message| {
            if let Some(generation) = generation.upgrade() {
                generation.logs.error(Level::Error, message);
            }
        });
        self.all.iter().chain([&self.system]).for_each(|resolver| resolver.set_log(log.clone()));
    }

    /// A resolver; `None`: the system's.
    pub fn get(&self, id: Option<ResolverId>) -> &Resolver {
        id.and_then(|id| self.all.get(id.0 as usize)).unwrap_or(&self.system)
    }

    /// Those that directives name, for status pages.
    pub fn iter(&self) -> impl Iterator<Item = &Resolver> {
        self.all.iter()
    }
}

/// Starts the tasks of this worker that keep names of servers current. Each name is one worker's.
/// They end with their handles, and when the worker is told to stop.
pub fn watch_names(current: &Current) -> Vec<JoinHandle<()>> {
    let (index, workers) = (worker::index(), worker::count());
    if index == 0 {
        current.resolvers.report_to(current.shared());
    }
    let upstreams = &current.conf.upstreams;
    let mut seen: Vec<&Arc<Group>> = Vec::new();
    let mut number = 0;
    let mut tasks = Vec::new();
    for upstream in upstreams.iter() {
        if seen.iter().any(|group| Arc::ptr_eq(group, &upstream.group)) {
            continue;
        }
        seen.push(&upstream.group);
        for (server, conf) in upstream.group.names() {
            number += 1;
            if number % workers != index {
                continue;
            }
            let follows = matches!(conf.target, Target::Name { resolve: true, .. });
            let own = upstream.resolver.or(current.conf.resolving.resolver);
            let resolver = current.resolvers.get(own.filter(|_| follows)).clone();
            let timeout = upstream.group.conf().resolver_timeout;
            let timeout = timeout.unwrap_or(current.conf.resolving.timeout).duration();
            tasks.push(watch(current, upstream.group.clone(), server, resolver, timeout));
        }
    }
    tasks
}

/// The servers that a text with variables names: those of an `upstream` block, else those that its
/// host has now. A name is resolved by the location's resolver. nginx:
/// `ngx_http_upstream_init_request`.
///
/// # Errors
/// The status to answer with. What went wrong has been logged.
pub async fn find(
    request: &Request,
    host: &[u8],
    port: Option<u16>,
    default_port: u16,
) -> Result<Upstream, u16> {
    let current = &request.current;
    if port.is_none()
        && let Some(named) = current.conf.upstreams.named(host)
    {
        return Ok(named.clone());
    }
    let resolving = request.location().resolving;
    let resolver = current.resolvers.get(resolving.resolver);
    let found = match resolver.known(host, now()) {
        Some(found) => Ok(found),
        None => resolver.resolve(host, resolving.timeout.duration()).await,
    };
    let shown = String::from_utf8_lossy(host);
    match found {
        Ok(found) => {
            let port = port.unwrap_or(default_port);
            let addresses = found.sockets(port).map(Address::Inet).collect();
            Ok(Upstream::of_group(Group::of_addresses(&shown, addresses)))
        }
        Err(error) => {
            let text = format_args!("{shown} could not be resolved ({error})");
            request.log(Level::Error, text);
            Err(502)
        }
    }
}

fn watch(
    current: &Current,
    group: Arc<Group>,
    server: usize,
    resolver: Resolver,
    timeout: Duration,
) -> JoinHandle<()> {
    let generation = Arc::downgrade(current.shared());
    let log = move |message: fmt::Arguments<'_>| {
        if let Some(generation) = generation.upgrade() {
            generation.logs.error(Level::Error, message);
        }
    };
    nowait_runtime::spawn(async move {
        let watch = nowait_upstream::names::watch(group, server, resolver, timeout, log);
        select(worker::stopping(), watch).await;
    })
}
