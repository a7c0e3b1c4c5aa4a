//! Active health checks: one task per server of a group, on one of the workers, asks for a page and
//! tells the group whether the server may get requests. nginx Plus: `ngx_http_upstream_hc_module`.
//!
//! Started by each worker for the newest configuration, ended with it. Requests never wait for it. What
//! is sent and read is the proxy module's codec's matter; here are only connections and time.

mod check;
pub mod matcher;

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_runtime::task::select;
use nowait_runtime::{JoinHandle, now, sleep, spawn, worker};
use nowait_upstream::{Availability, Group, Peer};
use rustc_hash::FxHasher;

use crate::conf::HttpConf;
use crate::conf::health::{Check, HealthCheck};
use crate::generation::Current;
use crate::log::Level;
use crate::worker::Worker;
use check::{Checker, Failure};

/// How often a group with names is looked at for servers that came and went.
const ROSTER_INTERVAL: Duration = Duration::from_secs(1);

/// Sets the state in which servers begin, before the first request of a configuration that was just
/// read: those of `mandatory` checks wait, those that are not checked any more are as healthy as any.
pub fn prepare(conf: &HttpConf) {
    for upstream in conf.upstreams.iter() {
        let group = &upstream.group;
        match of_group(conf, group) {
            Some(check) => group.begin_checks(check.mandatory, check.persistent),
            None => group.end_checks(),
        }
    }
}

fn of_group<'a>(conf: &'a HttpConf, group: &Arc<Group>) -> Option<&'a Check> {
    let same = |check: &&HealthCheck| Arc::ptr_eq(&conf.upstreams.get(check.group).group, group);
    conf.health_checks.iter().find(same).map(|check| &check.check)
}

/// Starts this worker's part of the checks. They end with their handles, and when the worker is told to
/// stop.
pub fn start(worker: &Rc<Worker>, current: &Rc<Current>) -> Vec<JoinHandle<()>> {
    let checks = 0..current.conf.health_checks.len();
    checks
        .map(|number| {
            let watch = Rc::new(Watch { worker: worker.clone(), current: current.clone(), number });
            spawn(async move {
                select(worker::stopping(), watch.run()).await;
            })
        })
        .collect()
}

/// One `health_check` as one worker sees it.
struct Watch {
    worker: Rc<Worker>,
    current: Rc<Current>,
    number: usize,
}

/// The task of a server; ends with this.
struct Checked {
    peer: Arc<Peer>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Checked {
    fn drop(&mut self) {
        self.task.take().into_iter().for_each(JoinHandle::abort);
    }
}

impl Watch {
    fn health_check(&self) -> &HealthCheck {
        &self.current.conf.health_checks[self.number]
    }

    fn group(&self) -> &Arc<Group> {
        &self.current.conf.upstreams.get(self.health_check().group).group
    }

    /// Keeps a task for each of this worker's servers.
    async fn run(self: Rc<Self>) {
        let mut checked: Vec<Checked> = Vec::new();
        let changes = self.group().names().next().is_some();
        loop {
            let peers = self.group().peers();
            checked.retain(|known| peers.iter().any(|peer| Arc::ptr_eq(peer, &known.peer)));
            for peer in peers {
                let known = checked.iter().any(|known| Arc::ptr_eq(&known.peer, &peer));
                if !known && is_mine(&peer) {
                    let task = spawn(self.clone().check(peer.clone()));
                    checked.push(Checked { peer, task: Some(task) });
                }
            }
            if changes { sleep(ROSTER_INTERVAL).await } else { std::future::pending().await }
        }
    }

    /// Checks a server again and again.
    async fn check(self: Rc<Self>, peer: Arc<Peer>) {
        let health_check = self.health_check();
        let check = &health_check.check;
        let checker = Checker::new(&self.worker, &self.current, health_check);
        let mut checker = match checker {
            Ok(checker) => checker,
            Err(error) => {
                let text = format_args!("{} can't be checked: {error}", peer.name());
                self.current.logs.error(Level::Alert, text);
                return;
            }
        };
        let mut row = Row::default();
        loop {
            if !check.jitter.is_zero() {
                sleep(random_part(check.jitter)).await;
            }
            if peer.availability(now()) != Availability::Down {
                let result = checker.check(&peer).await;
                self.judge(&peer, &mut row, result);
            }
            sleep(check.interval).await;
        }
    }

    /// Draws conclusions.
    fn judge(&self, peer: &Peer, row: &mut Row, result: Result<(), Failure>) {
        let check = &self.health_check().check;
        let availability = peer.availability(now());
        let healthy = !matches!(availability, Availability::Unhealthy | Availability::Checking);
        let log = |level, what: fmt::Arguments<'_>| {
            let (name, group) = (&check.match_name, self.group().name());
            let text = format_args!(
                "{what}, health check \"{}\" of peer {} in upstream \"{}\"",
                name.escape_ascii(),
                peer.name(),
                group.escape_ascii()
            );
            self.current.logs.error(level, text);
        };
        peer.count_check(result.is_ok());
        match result {
            Ok(()) => {
                row.fails = 0;
                row.passes = row.passes.saturating_add(1);
                if !healthy && row.passes >= check.passes {
                    self.group().set_healthy(peer, true, now());
                    log(Level::Notice, format_args!("peer is healthy"));
                }
            }
            Err(failure) => {
                row.passes = 0;
                row.fails = row.fails.saturating_add(1);
                if let Some(fault) = failure.fault().filter(|_| row.fails == 1) {
                    log(Level::Error, format_args!("{fault} while {}", failure.action()));
                }
                if availability != Availability::Unhealthy && row.fails >= check.fails {
                    self.group().set_healthy(peer, false, now());
                    let action = failure.action();
                    log(Level::Warn, format_args!("peer is unhealthy while {action}"));
                }
            }
        }
    }
}

/// Results in a row.
#[derive(Default)]
struct Row {
    fails: u32,
    passes: u32,
}

/// Whether this worker checks a server: each is one worker's, whatever else changes.
fn is_mine(peer: &Peer) -> bool {
    let hash = BuildHasherDefault::<FxHasher>::default().hash_one(peer.name());
    hash % worker::count() as u64 == worker::index() as u64
}

/// A random time up to `most`.
fn random_part(most: Duration) -> Duration {
    let bytes = crate::random::bytes();
    let parts = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    most * parts / u32::from(u16::MAX)
}
