//! Active health checks: one task per server of a group, on one of the workers, sends probes and sets
//! whether the server may receive requests. nginx Plus: `ngx_http_upstream_hc_module`.
//!
//! Started by each worker for the newest configuration, stopped with it. Requests never wait for it. The
//! engine sends probes in the protocol of the location; this module decides when, and what follows.

mod check;
pub mod conf;
mod grpc;
pub mod matcher;

use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use check::{Checker, Failure};
use conf::{HEALTH_ROWS, HealthCheck, checks};
use nowait_http::conf::HttpConf;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::module::Module;
use nowait_http::services::Services;
use nowait_runtime::task::select;
use nowait_runtime::{JoinHandle, now, sleep, spawn, worker};
use nowait_upstream::{Availability, Group, Peer};
use rustc_hash::FxHasher;

/// This module.
pub static MODULE: Module = Module {
    rows: &[HEALTH_ROWS],
    build: Some(conf::build),
    finish: Some(conf::finish),
    start: Some(start),
    ..Module::EMPTY
};

/// Sets the initial state of servers, before the first request of a new configuration: those with
/// `mandatory` checks wait, and those without checks are no longer unhealthy.
pub fn prepare(conf: &HttpConf) {
    for upstream in conf.upstreams.iter() {
        let group = &upstream.group;
        let numbers = of_group(conf, group);
        if numbers.is_empty() {
            group.end_checks();
            continue;
        }
        let all = checks(conf);
        let checks = || numbers.iter().map(|number| &all[*number].check);
        let mandatory = checks().any(|check| check.mandatory);
        let persistent = checks().filter(|check| check.mandatory).all(|check| check.persistent);
        group.begin_checks(mandatory, persistent);
    }
}

/// The numbers of a group's checks; several locations may have one.
fn of_group(conf: &HttpConf, group: &Arc<Group>) -> Vec<usize> {
    let same = |check: &HealthCheck| Arc::ptr_eq(&conf.upstreams.get(check.group).group, group);
    let checks = checks(conf).iter().enumerate();
    checks.filter(|(_, check)| same(check)).map(|(number, _)| number).collect()
}

/// Starts this worker's part of the checks. They end when their handles are dropped or the worker
/// is told to stop.
pub fn start(services: &Rc<Services>, current: &Rc<Current>) -> Vec<JoinHandle<()>> {
    let groups = current.conf.upstreams.iter().map(|upstream| &upstream.group);
    let watched = groups.map(|group| (group, of_group(&current.conf, group)));
    watched
        .filter(|(_, numbers)| !numbers.is_empty())
        .map(|(group, numbers)| {
            let (services, current) = (services.clone(), current.clone());
            let watch = Rc::new(Watch { services, current, group: group.clone(), numbers });
            spawn(async move {
                select(worker::stopping(), watch.run()).await;
            })
        })
        .collect()
}

/// A worker's view of the checks of one group.
struct Watch {
    services: Rc<Services>,
    current: Rc<Current>,
    group: Arc<Group>,
    /// Numbers of the configuration's checks.
    numbers: Vec<usize>,
}

/// The tasks of a server, one for each check; dropping this aborts them.
struct Checked {
    peer: Arc<Peer>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Checked {
    fn drop(&mut self) {
        self.tasks.drain(..).for_each(JoinHandle::abort);
    }
}

/// The findings of a group's checks about a server, which is as healthy as the worst of them.
struct Verdict(RefCell<Vec<Finding>>);

/// The finding of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    /// No result yet.
    Nothing,
    /// No result yet, and requests wait for it (`mandatory`).
    Awaited,
    Passed,
    Failed,
}

impl Verdict {
    fn new(peer: &Peer, checks: impl Iterator<Item = bool>) -> Self {
        // A server that was unhealthy before a reload, for any reason, has to pass all checks.
        let failed = peer.availability(now()) == Availability::Unhealthy;
        let first = |mandatory| match mandatory {
            _ if failed => Finding::Failed,
            true => Finding::Awaited,
            false => Finding::Nothing,
        };
        Self(RefCell::new(checks.map(first).collect()))
    }

    fn note(&self, check: usize, finding: Finding) {
        self.0.borrow_mut()[check] = finding;
    }

    fn is_good(&self) -> bool {
        self.0.borrow().iter().all(|one| matches!(one, Finding::Nothing | Finding::Passed))
    }
}

impl Watch {
    /// The group's check with this number.
    fn health_check(&self, place: usize) -> &HealthCheck {
        &checks(&self.current.conf)[self.numbers[place]]
    }

    /// Runs the tasks of this worker's servers.
    async fn run(self: Rc<Self>) {
        let mut checked: Vec<Checked> = Vec::new();
        loop {
            let version = self.group.version();
            let peers = self.group.peers();
            checked.retain(|known| peers.iter().any(|peer| Arc::ptr_eq(peer, &known.peer)));
            for peer in peers {
                let known = checked.iter().any(|known| Arc::ptr_eq(&known.peer, &peer));
                if !known && is_mine(&peer) {
                    let places = 0..self.numbers.len();
                    let mandatory = places.clone().map(|n| self.health_check(n).check.mandatory);
                    let verdict = Rc::new(Verdict::new(&peer, mandatory));
                    let check = |n| self.clone().check(peer.clone(), n, verdict.clone());
                    let tasks = places.map(|place| spawn(check(place))).collect();
                    checked.push(Checked { peer, tasks });
                }
            }
            // Servers were added or removed, or names have other addresses.
            self.group.changed(version).await;
        }
    }

    /// Checks a server repeatedly.
    async fn check(self: Rc<Self>, peer: Arc<Peer>, place: usize, verdict: Rc<Verdict>) {
        let health_check = self.health_check(place);
        let check = &health_check.check;
        let Some(mut checker) = Checker::new(&self.services, &self.current, health_check) else {
            // No client can reach the location either.
            return;
        };
        let mut row = Row::default();
        loop {
            if !check.jitter.is_zero() {
                sleep(random_part(check.jitter)).await;
            }
            if peer.availability(now()) != Availability::Down {
                let result = checker.check(&peer).await;
                self.judge(&peer, place, (&mut row, &verdict), result);
            }
            sleep(check.interval).await;
        }
    }

    /// Evaluates a result.
    fn judge(
        &self,
        peer: &Peer,
        place: usize,
        (row, verdict): (&mut Row, &Verdict),
        result: Result<(), Failure>,
    ) {
        let check = &self.health_check(place).check;
        let availability = peer.availability(now());
        let healthy = !matches!(availability, Availability::Unhealthy | Availability::Checking);
        let log = |level, what: fmt::Arguments<'_>| {
            let (name, group) = (&check.match_name, self.group.name());
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
                if row.passes >= check.passes {
                    verdict.note(place, Finding::Passed);
                    if !healthy && verdict.is_good() {
                        self.group.set_healthy(peer, true, now());
                        log(Level::Notice, format_args!("peer is healthy"));
                    }
                }
            }
            Err(failure) => {
                row.passes = 0;
                row.fails = row.fails.saturating_add(1);
                if let Some(fault) = failure.fault().filter(|_| row.fails == 1) {
                    log(Level::Error, format_args!("{fault} while {}", failure.action()));
                }
                if row.fails >= check.fails {
                    verdict.note(place, Finding::Failed);
                    if availability != Availability::Unhealthy {
                        self.group.set_healthy(peer, false, now());
                        let action = failure.action();
                        log(Level::Warn, format_args!("peer is unhealthy while {action}"));
                    }
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

/// Whether this worker checks a server. Each server is always assigned to one worker.
fn is_mine(peer: &Peer) -> bool {
    let hash = BuildHasherDefault::<FxHasher>::default().hash_one(peer.name());
    hash % worker::count() as u64 == worker::index() as u64
}

/// A random time up to `most`.
fn random_part(most: Duration) -> Duration {
    let bytes = nowait_http::random::bytes();
    let parts = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    most * parts / u32::from(u16::MAX)
}
