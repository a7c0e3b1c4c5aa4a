//! A group: the servers of an `upstream` block, or of an address or a name.
//!
//! Shared by all workers. One lock guards the choice of a peer; it is held for some dozens of
//! nanoseconds per peer. Addresses come from the resolver through [`Group::set_addresses`], results
//! of health checks through [`Peer::set_healthy`].

use std::collections::HashSet;
use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use nowait_runtime::net::Address;

use crate::conf::{GroupConf, ServerConf, ServerLocation, Sticky};
use crate::idle::PoolToken;
use crate::peer::{Availability, Peer};
use crate::peer_events;
use crate::removal::Watchers;
use crate::roster::Roster;
use crate::servers::{Server, Servers};
use crate::stats::PeerStats;
use crate::sticky::Sessions;
use crate::wait_queue::WaitQueue;

/// Maximum number of addresses of a name; further ones are ignored.
const ADDRESSES_MAX: usize = 1024;

/// Maximum number of peers that [`Group::reasons`] names.
const REASONS_MAX: usize = 4;

/// A group of servers.
pub struct Group {
    conf: GroupConf,
    pub(crate) state: Mutex<GroupState>,
    /// Identifies the group's idle connections in every worker.
    pool_id: AtomicU64,
    /// The owner of that number.
    pool: Mutex<Arc<PoolToken>>,
    /// The sessions of `sticky learn`.
    sessions: Mutex<Option<Arc<Sessions>>>,
    /// New addresses of names wait for their first health check.
    mandatory: AtomicBool,
    /// Waiters for the removal of peers.
    watchers: Mutex<Arc<Watchers>>,
}

/// The mutable state of a group.
pub(crate) struct GroupState {
    pub(crate) roster: Arc<Roster>,
    /// The servers that the peers belong to.
    pub(crate) servers: Servers,
    /// The tasks that wait for addresses of names.
    waiters: Vec<Waker>,
    /// `queue`
    pub(crate) waiting: WaitQueue,
}

/// An address that a name was resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The address, with the port of the `server` or the one of the SRV record.
    pub address: SocketAddr,
    /// The target of the SRV record with its port (`a.backend.example:8080`); `None` without one.
    pub target: Option<Box<str>>,
    /// The weight of the SRV record, used unless the `server` sets one. 1 without a record.
    pub weight: u32,
    /// The record does not have the best priority.
    pub backup: bool,
}

impl Resolved {
    /// An address of a name.
    pub fn address(address: SocketAddr) -> Resolved {
        Resolved { address, target: None, weight: 1, backup: false }
    }
}

impl GroupState {
    pub(crate) fn is_resolved(&self) -> bool {
        self.servers.all.iter().all(|server| server.known)
    }

    /// Puts other peers to use, in the order of the configuration.
    pub(crate) fn publish(&mut self, mut peers: Vec<Arc<Peer>>) {
        peers.sort_by_key(|peer| peer.server);
        self.roster = Arc::new(Roster::new(peers));
        self.servers.version += 1;
    }
}

impl Group {
    /// The group that a block describes. Names in it have no addresses yet.
    pub fn new(conf: GroupConf) -> Arc<Group> {
        let pool = PoolToken::new();
        let (servers, peers) = Servers::of(&conf.servers);
        let sessions = match &conf.sticky {
            Some(Sticky::Learn(learn)) => Some(Arc::new(Sessions::new(learn))),
            _ => None,
        };
        let group = Arc::new(Group {
            conf,
            state: Mutex::new(GroupState {
                roster: Arc::new(Roster::new(peers)),
                servers,
                waiters: Vec::new(),
                waiting: WaitQueue::default(),
            }),
            pool_id: AtomicU64::new(pool.id()),
            pool: Mutex::new(Arc::new(pool)),
            sessions: Mutex::new(sessions),
            mandatory: AtomicBool::new(false),
            watchers: Mutex::default(),
        });
        group.note_state_file();
        group
    }

    /// A group of these addresses that no block describes.
    pub fn of_addresses(name: &str, addresses: Vec<Address>) -> Arc<Group> {
        Group::new(GroupConf::of_addresses(name.to_owned(), addresses))
    }

    /// The settings of the block.
    pub fn conf(&self) -> &GroupConf {
        &self.conf
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.conf.name
    }

    /// All peers, in the order of their servers, the backups last.
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        self.lock().roster.peers().cloned().collect()
    }

    /// Whether the address of a peer still belongs to its server.
    pub(crate) fn has(&self, peer: &Peer) -> bool {
        if let Some(next) = self.heir() {
            return next.has(peer);
        }
        let state = self.lock();
        state.roster.peers().any(|one| one.server == peer.server && one.address == peer.address)
    }

    /// The servers whose names have to be resolved: their numbers and settings.
    pub fn names(&self) -> Vec<(usize, Arc<ServerConf>)> {
        let state = self.lock();
        let servers = state.servers.all.iter();
        let named = servers.filter(|s| matches!(s.conf.target, ServerLocation::Name { .. }));
        named.map(|server| (server.number, server.conf.clone())).collect()
    }

    /// The settings of the server with this number; `None` if it was removed.
    pub(crate) fn server_conf(&self, number: usize) -> Option<Arc<ServerConf>> {
        self.lock().servers.of_number(number).map(|server| server.conf.clone())
    }

    /// Whether servers can be added, changed and removed while the group is in use (`zone`).
    pub fn is_changeable(&self) -> bool {
        self.conf.zone.is_some()
    }

    /// Sets the addresses that were found for a server; none if its name does not exist. Peers
    /// whose address remains keep their state and position. Requests that wait for the first result
    /// continue.
    ///
    /// The selection by `hash`, `ip_hash` and `random` depends on the order of the peers, while
    /// name servers vary the order of addresses: new ones are appended, in order.
    pub fn set_addresses(&self, server: usize, addresses: &[Resolved]) {
        let mut addresses = addresses[..addresses.len().min(ADDRESSES_MAX)].to_vec();
        addresses.sort_by_key(|resolved| resolved.address);
        self.put_addresses(server, &addresses);
    }

    /// The same, with new addresses in this order.
    fn put_addresses(&self, server: usize, addresses: &[Resolved]) {
        let mut state = self.lock();
        let Some(conf) = state.servers.of_number(server).map(|server| server.conf.clone()) else {
            return;
        };
        let old = state.roster.clone();
        let mut peers: Vec<Arc<Peer>> =
            old.peers().filter(|peer| peer.server != server).cloned().collect();
        let mut found = Vec::with_capacity(addresses.len());
        for resolved in addresses {
            let id = || state.servers.id();
            let (peer, place) = resolved_peer(server, &conf, resolved, &old, id);
            if place.is_none() {
                self.prepare(&peer);
            }
            found.push((place.unwrap_or(usize::MAX), peer));
        }
        found.sort_by_key(|(place, _)| *place);
        peers.extend(found.into_iter().map(|(_, peer)| peer));
        // Regardless of the order of results.
        state.publish(peers);
        state.servers.set_known(server);
        self.announce(state);
    }

    /// A new peer may have to wait for its first health check.
    pub(crate) fn prepare(&self, peer: &Peer) {
        if self.mandatory.load(Relaxed) {
            peer.set_unchecked();
        }
    }

    /// The peers have changed: those who wait for that continue.
    pub(crate) fn announce(&self, mut state: MutexGuard<'_, GroupState>) {
        let waiters = std::mem::take(&mut state.waiters);
        let queued = state.waiting.take_all();
        drop(state);
        waiters.into_iter().chain(queued).for_each(Waker::wake);
        self.watchers().wake();
    }

    /// Resolving a server's name failed: requests that wait for the first result continue without.
    /// The addresses, if any, stay.
    pub fn resolve_failed(&self, server: usize) {
        let mut state = self.lock();
        state.servers.set_known(server);
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Whether every name has been resolved or has failed once.
    pub fn is_resolved(&self) -> bool {
        self.lock().is_resolved()
    }

    /// Resolves when a name has its first result, or at once if all have one. Limit it by
    /// `resolver_timeout`.
    pub fn resolved(&self) -> ResolvedFuture<'_> {
        ResolvedFuture { group: self, peers: None }
    }

    /// Takes over the state of the group of the same name in the previous generation: the state of
    /// equal servers, addresses of names, idle connections, sessions. Call it before the group is
    /// used.
    pub fn adopt(self: &Arc<Self>, old: &Group) {
        if std::ptr::eq(&**self, old) {
            return;
        }
        self.inherit_servers(old);
        let (previous, servers) = {
            let state = old.lock();
            (state.roster.clone(), state.servers.clone())
        };
        for (n, server) in self.names() {
            let same = |old: &&Server| old.known && same_name(&old.conf, &server);
            let Some(old) = servers.all.iter().find(same) else { continue };
            let addresses: Vec<Resolved> = previous
                .peers()
                .filter(|peer| peer.server == old.number)
                .filter_map(|peer| {
                    let mut address = peer.address.inet()?;
                    if let ServerLocation::Name { port, service: None, .. } = server.target {
                        address.set_port(port);
                    }
                    Some(Resolved {
                        address,
                        target: srv_target(&server, peer),
                        weight: peer.weight,
                        backup: peer.backup,
                    })
                })
                .collect();
            if !addresses.is_empty() {
                self.put_addresses(n, &addresses);
            }
        }
        let mut state = self.lock();
        // Servers that are written twice have a state each: one of them may be removed.
        let mut taken = HashSet::new();
        let peers = state.roster.peers().map(|peer| {
            let same = previous.peers().find(|old| {
                old.address == peer.address
                    && old.server_name == peer.server_name
                    && !taken.contains(&old.state.id)
            });
            match same {
                Some(old) => {
                    taken.insert(old.state.id);
                    Arc::new(peer.with_state(&old.state))
                }
                None => peer.clone(),
            }
        });
        let roster = Roster::new(peers.collect());
        state.roster = Arc::new(roster);
        drop(state);
        let pool = old.pool_token();
        self.pool_id.store(pool.id(), Relaxed);
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = pool;
        let learnt = old.sessions();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(new), Some(old)) = (sessions.as_mut(), learnt)
            && new.is_like(&old)
        {
            *new = old;
        }
    }

    /// The counters of each peer.
    pub fn stats(&self) -> Vec<(Arc<Peer>, PeerStats)> {
        self.peers().into_iter().map(|peer| (peer.clone(), peer.stats())).collect()
    }

    /// Why no peer takes a request, for a log line: `127.0.0.1:8001 is unavail, 127.0.0.1:8002 is down`. Empty if it
    /// is not known: peers may have come back since. Names [`REASONS_MAX`] peers at most.
    pub fn reasons(&self, now: Instant) -> String {
        let mut text = String::new();
        let mut more = 0_usize;
        let busy = |peer: &Peer| peer.max_conns() > 0 && peer.stats().active >= peer.max_conns();
        for (at, peer) in self.peers().iter().enumerate() {
            let state = match peer.availability(now) {
                Availability::Up if busy(peer) => "has max_conns connections",
                Availability::Up => "was tried",
                Availability::Draining => "is draining",
                Availability::Down => "is down",
                Availability::Unavailable => "has failed max_fails times within fail_timeout",
                Availability::Checking => "has not passed a health check yet",
                Availability::Unhealthy => "has failed health checks",
            };
            if at < REASONS_MAX {
                let comma = if at > 0 { ", " } else { "" };
                let _ = write!(text, "{comma}{} {state}", peer.name());
            } else {
                more += 1;
            }
        }
        if more > 0 {
            let _ = write!(text, ", and {more} more");
        }
        text
    }

    /// The number of queued requests, and of those that the `queue` had no room for so far.
    pub fn queued(&self) -> (usize, u64) {
        let state = self.lock();
        (state.waiting.len(), state.waiting.overflows())
    }

    /// Starts health checks, before the group is used: `mandatory` and `persistent` as in NGINX
    /// Plus's `health_check`.
    pub fn begin_checks(&self, mandatory: bool, persistent: bool) {
        self.mandatory.store(mandatory, Relaxed);
        self.peers().iter().for_each(|peer| peer.begin_checks(mandatory, persistent));
    }

    /// Ends health checks: all peers may get requests.
    pub fn end_checks(&self) {
        self.mandatory.store(false, Relaxed);
        self.peers().iter().for_each(|peer| peer.clear_health());
    }

    /// Sets the result of a health check: as [`Peer::set_healthy`], and queued requests check
    /// again.
    pub fn set_healthy(&self, peer: &Peer, healthy: bool, now: Instant) {
        match peer.set_healthy(healthy, now) {
            true if healthy => peer_events::is_healthy(self.name(), peer),
            true => peer_events::is_down(self.name(), peer, "has failed health checks"),
            false => {}
        }
        let first = self.lock().waiting.first();
        if let Some(waker) = first.filter(|_| healthy) {
            waker.wake();
        }
    }

    /// The ID of its idle connections.
    pub(crate) fn pool_id(&self) -> u64 {
        self.pool_id.load(Relaxed)
    }

    /// The parameters for keeping them.
    pub(crate) fn pool_token(&self) -> Arc<PoolToken> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn watchers(&self) -> Arc<Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uses the list of another group.
    pub(crate) fn share_watchers(&self, other: &Group) {
        *self.watchers.lock().unwrap_or_else(PoisonError::into_inner) = other.watchers();
    }

    pub(crate) fn sessions(&self) -> Option<Arc<Sessions>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state is valid after every statement: a panic elsewhere cannot corrupt it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether both have the same queries to the resolver.
fn same_name(one: &ServerConf, other: &ServerConf) -> bool {
    match (&one.target, &other.target) {
        (
            ServerLocation::Name { host, service, .. },
            ServerLocation::Name { host: other_host, service: other_service, .. },
        ) => host == other_host && service == other_service,
        _ => false,
    }
}

/// The target of the SRV record that a peer came from.
fn srv_target(server: &ServerConf, peer: &Peer) -> Option<Box<str>> {
    let service = matches!(&server.target, ServerLocation::Name { service: Some(_), .. });
    service.then(|| String::from_utf8_lossy(&peer.server_name).into())
}

/// A peer for an address: an equal existing one, with its position, or a new one.
fn resolved_peer(
    server: usize,
    conf: &ServerConf,
    found: &Resolved,
    old: &Roster,
    id: impl FnOnce() -> u32,
) -> (Arc<Peer>, Option<usize>) {
    let weight = if conf.weight == 1 { found.weight.max(1) } else { conf.weight };
    let name = match &found.target {
        Some(target) => target.as_bytes().into(),
        None => conf.text.as_ref().into(),
    };
    let backup = conf.backup || found.backup;
    let address = Address::Inet(found.address);
    let same = old.peers().enumerate().find(|(_, peer)| {
        peer.server == server
            && peer.address == address
            && peer.server_name == name
            && peer.weight == weight
            && peer.backup == backup
    });
    match same {
        Some((place, peer)) => (peer.clone(), Some(place)),
        None => {
            let peer = Peer::new((server, id()), conf, address, name, weight, backup);
            (Arc::new(peer), None)
        }
    }
}

/// The future of [`Group::resolved`].
#[derive(Debug)]
pub struct ResolvedFuture<'a> {
    group: &'a Group,
    /// Number of unresolved names when the wait began.
    peers: Option<usize>,
}

impl Future for ResolvedFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let group = self.group;
        let mut state = group.lock();
        let unknown = state.servers.all.iter().filter(|server| !server.known).count();
        let before = *self.peers.get_or_insert(unknown);
        if unknown == 0 || unknown < before {
            return Poll::Ready(());
        }
        if !state.waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiters.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("name", &String::from_utf8_lossy(&self.conf.name))
            .finish_non_exhaustive()
    }
}
