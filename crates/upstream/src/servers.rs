//! The servers of a group, and changes to them while it is in use: for APIs.
//!
//! Every change makes a new roster, which all workers see at once. Requests that have a peer keep it to their
//! end; a peer of a removed server gets no further ones. With `state`, the servers are handed on to the next
//! generation; this module has the text of the file, and never writes it.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::Seconds;
use nowait_runtime::net::Address;
use rustc_hash::FxHasher;

use crate::conf::{Balancer, SERVERS_MAX, ServerConf, ServerLocation, ServerMode};
use crate::group::{Group, GroupState};
use crate::line::{Line, Newest, Place};
use crate::peer::Peer;
use crate::roster::Roster;

/// Number of texts of a state file that are remembered, to tell them from those that an operator wrote.
const TEXTS_MAX: usize = 1024;

/// A server of a group.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// What peers refer to: the position in the configuration, or a later number.
    pub(crate) number: usize,
    /// What operators refer to; peers of addresses have the same one.
    pub(crate) id: u32,
    pub(crate) conf: Arc<ServerConf>,
    /// Its addresses are known: a name has to be resolved first.
    pub(crate) known: bool,
}

/// All servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    pub(crate) all: Vec<Server>,
    next_number: usize,
    next_id: u32,
    /// Counts rosters.
    pub(crate) version: u64,
    /// Hashes of texts that were read from or written to the state file.
    texts: VecDeque<u64>,
    /// The generations that follow.
    line: Arc<Line>,
    place: Place,
}

/// A server as an API lists it: one of the configuration, or an address of one with a name.
#[derive(Clone, Debug)]
pub struct ListedServer {
    /// Unique within the group, never used again.
    pub id: u32,
    /// `127.0.0.1:8080`, or the name.
    pub server: String,
    /// The parameters.
    pub conf: Arc<ServerConf>,
    /// Its weight: the one of an SRV record may differ.
    pub weight: u32,
    /// Used only if the others are unavailable.
    pub backup: bool,
    /// The server whose name it is an address of.
    pub parent: Option<u32>,
}

/// New parameters of a server; `None`: as before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerChange {
    /// Its text and address.
    pub target: Option<(Bytes, ServerLocation)>,
    /// `weight`
    pub weight: Option<u32>,
    /// `max_conns`
    pub max_conns: Option<u32>,
    /// `max_fails`
    pub max_fails: Option<u32>,
    /// `fail_timeout`
    pub fail_timeout: Option<Seconds>,
    /// `slow_start`
    pub slow_start: Option<Seconds>,
    /// `route`; empty: none.
    pub route: Option<Bytes>,
    /// `down`; false ends `drain` too.
    pub down: Option<bool>,
    /// `drain`
    pub drain: Option<bool>,
}

impl ServerChange {
    /// Puts the parameters into those of a server.
    pub fn apply(self, conf: &mut ServerConf) {
        if let Some((text, target)) = self.target {
            (conf.text, conf.target) = (text, target);
        }
        conf.weight = self.weight.unwrap_or(conf.weight);
        conf.max_conns = self.max_conns.unwrap_or(conf.max_conns);
        conf.max_fails = self.max_fails.unwrap_or(conf.max_fails);
        conf.fail_timeout = self.fail_timeout.unwrap_or(conf.fail_timeout);
        conf.slow_start = self.slow_start.unwrap_or(conf.slow_start);
        if let Some(route) = self.route {
            conf.route = Some(route).filter(|route| !route.is_empty());
        }
        conf.down = match (self.down, self.drain, conf.down) {
            (Some(true), _, _) => ServerMode::Down,
            (_, Some(true), _) => ServerMode::Draining,
            (Some(false), _, _) | (None, Some(false), ServerMode::Draining) => ServerMode::Up,
            (None, _, mode) => mode,
        };
    }
}

/// The reason why servers of a group were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The group has no `zone`.
    Static,
    /// There is no such server.
    NotFound,
    /// It is an address of a name: only the server with the name can be changed.
    Resolved {
        /// That server.
        parent: u32,
    },
    /// The address of a server with a name.
    Name,
    /// There is such a server.
    Exists,
    /// There are [`SERVERS_MAX`] servers.
    Full,
    /// The balancing method has no `backup`.
    NoBackup,
    /// The balancing method has no `slow_start`.
    NoSlowStart,
    /// A reload has read the servers from the configuration again.
    Reloaded,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("it has no \"zone\""),
            Self::NotFound => f.write_str("there is no such server"),
            Self::Resolved { parent } => write!(f, "it is an address of server {parent}"),
            Self::Name => f.write_str("it has a name"),
            Self::Exists => f.write_str("there is such a server"),
            Self::Full => write!(f, "there are {SERVERS_MAX} servers"),
            Self::NoBackup => f.write_str("its balancing method does not support \"backup\""),
            Self::NoSlowStart => {
                f.write_str("its balancing method does not support \"slow_start\"")
            }
            Self::Reloaded => f.write_str("the configuration was reloaded"),
        }
    }
}

impl std::error::Error for ChangeError {}

impl Servers {
    /// Those of a configuration, with the peers of known addresses.
    pub(crate) fn of(confs: &[ServerConf]) -> (Servers, Vec<Arc<Peer>>) {
        let (mut servers, mut peers) = (Servers::default(), Vec::new());
        for conf in confs {
            servers.add(conf.clone(), &mut peers);
        }
        (servers, peers)
    }

    fn add(&mut self, conf: ServerConf, peers: &mut Vec<Arc<Peer>>) -> u32 {
        let (number, id) = (self.next_number, self.id());
        self.next_number += 1;
        let conf = Arc::new(conf);
        let known = match &conf.target {
            ServerLocation::Addresses(addresses) => {
                for (n, address) in addresses.iter().enumerate() {
                    let id = if n == 0 { id } else { self.id() };
                    peers.push(Arc::new(Peer::of_address(number, &conf, address.clone(), id)));
                }
                true
            }
            ServerLocation::Name { .. } => false,
        };
        self.all.push(Server { number, id, conf, known });
        id
    }

    /// The next ID.
    pub(crate) fn id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    pub(crate) fn of_number(&self, number: usize) -> Option<&Server> {
        self.all.iter().find(|server| server.number == number)
    }

    /// The first addresses of a name are known, or will not be.
    pub(crate) fn set_known(&mut self, number: usize) {
        if let Some(server) = self.all.iter_mut().find(|server| server.number == number) {
            server.known = true;
        }
    }

    fn newest(&self) -> Option<Newest> {
        self.line.newest(self.place)
    }

    fn remember(&mut self, text: &[u8]) {
        let hash = hash(text);
        if self.texts.contains(&hash) {
            return;
        }
        if self.texts.len() == TEXTS_MAX {
            self.texts.pop_front();
        }
        self.texts.push_back(hash);
    }
}

/// Servers as the text of a state file.
fn text(servers: &[Server]) -> Vec<u8> {
    let mut out = Vec::new();
    servers.iter().for_each(|server| server.conf.write(&mut out));
    out
}

fn hash(text: &[u8]) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one(text)
}

impl GroupState {
    /// The position of a server that operators may change.
    fn place(&self, id: u32) -> Result<usize, ChangeError> {
        if let Some(at) = self.servers.all.iter().position(|server| server.id == id) {
            return Ok(at);
        }
        let peer = self.roster.peers().find(|peer| peer.id == id).ok_or(ChangeError::NotFound)?;
        let parent = self.servers.of_number(peer.server).ok_or(ChangeError::NotFound)?;
        Err(ChangeError::Resolved { parent: parent.id })
    }

    fn listed(&self, server: &Server) -> ListedServer {
        ListedServer {
            id: server.id,
            server: shown(&server.conf),
            conf: server.conf.clone(),
            weight: server.conf.weight,
            backup: server.conf.backup,
            parent: None,
        }
    }
}

/// The address of a server with its port, or its name as written.
fn shown(conf: &ServerConf) -> String {
    match &conf.target {
        ServerLocation::Addresses(addresses) if addresses.len() == 1 => addresses[0].to_string(),
        ServerLocation::Name { host, port, service: None, .. } => format!("{host}:{port}"),
        _ => String::from_utf8_lossy(&conf.text).into_owned(),
    }
}

impl Balancer {
    /// Whether servers may have `backup` and `slow_start`.
    fn has_backup(&self) -> bool {
        match self {
            Balancer::RoundRobin | Balancer::LeastConn | Balancer::LeastTime { .. } => true,
            Balancer::IpHash
            | Balancer::Hash { .. }
            | Balancer::ConsistentHash { .. }
            | Balancer::Random
            | Balancer::RandomTwo(_) => false,
        }
    }
}

impl Group {
    /// All servers with their IDs, in the order of IDs. An address of a name follows as a server of its own.
    pub fn servers(&self) -> Vec<ListedServer> {
        let state = self.lock();
        let mut list = Vec::new();
        for server in &state.servers.all {
            list.push(state.listed(server));
            if matches!(server.conf.target, ServerLocation::Addresses(_)) {
                continue;
            }
            let peers = state.roster.peers().filter(|peer| peer.server == server.number);
            list.extend(peers.map(|peer| ListedServer {
                id: peer.id,
                server: peer.name.to_string(),
                conf: server.conf.clone(),
                weight: peer.weight,
                backup: peer.backup,
                parent: Some(server.id),
            }));
        }
        list.sort_by_key(|server| server.id);
        list
    }

    /// Whether a text is the one that was read or written last, or one of those before.
    fn is_own_text(&self, text: &[u8]) -> bool {
        let hash = hash(text);
        self.lock().servers.texts.contains(&hash)
    }

    /// The text of the state file, which is about to be written.
    pub fn state_text(&self) -> Vec<u8> {
        let path = |group: &Group| group.conf().state.as_ref().map(|file| file.path.clone());
        if let Some(Newest { group, .. }) = self.newest()
            && path(&group) == path(self)
        {
            return group.state_text();
        }
        // Requests need the lock: the text is made without it.
        let servers = self.lock().servers.all.clone();
        let text = text(&servers);
        self.remember(&text);
        text
    }

    fn remember(&self, text: &[u8]) {
        self.lock().servers.remember(text);
        // It may have taken over the servers since.
        if let Some(Newest { group, .. }) = self.newest() {
            group.remember(text);
        }
    }

    /// Adds a server, and returns its ID.
    ///
    /// # Errors
    /// The reason why it was not added.
    pub fn add_server(&self, conf: ServerConf) -> Result<ListedServer, ChangeError> {
        self.changed_by(|group, state| {
            group.check(&conf)?;
            if state.servers.all.len() >= SERVERS_MAX {
                return Err(ChangeError::Full);
            }
            if state.servers.all.iter().any(|known| known.conf.target == conf.target) {
                return Err(ChangeError::Exists);
            }
            let mut peers: Vec<Arc<Peer>> = state.roster.peers().cloned().collect();
            let before = peers.len();
            state.servers.add(conf.clone(), &mut peers);
            peers[before..].iter().for_each(|peer| group.prepare(peer));
            let added = state.servers.all.last().expect("a server was just added");
            let listed = state.listed(added);
            state.publish(peers);
            Ok(listed)
        })
    }

    /// Changes a server. A new address has the state of a new server; else its state stays.
    ///
    /// # Errors
    /// The reason why it was not changed.
    pub fn change_server(
        &self,
        id: u32,
        change: &ServerChange,
    ) -> Result<ListedServer, ChangeError> {
        self.changed_by(|group, state| {
            let at = state.place(id)?;
            let old = state.servers.all[at].conf.clone();
            let mut conf = ServerConf::clone(&old);
            change.clone().apply(&mut conf);
            let moved = conf.target != old.target;
            let is_name = |conf: &ServerConf| matches!(conf.target, ServerLocation::Name { .. });
            if moved && (is_name(&old) || is_name(&conf)) {
                return Err(ChangeError::Name);
            }
            let others = || state.servers.all.iter().filter(|server| server.id != id);
            if moved && others().any(|other| other.conf.target == conf.target) {
                return Err(ChangeError::Exists);
            }
            group.check(&conf)?;
            let conf = Arc::new(conf);
            let server = &mut state.servers.all[at];
            server.conf = conf.clone();
            let (number, id) = (server.number, server.id);
            let renew = |peer: &Arc<Peer>| match &conf.target {
                _ if peer.server != number => peer.clone(),
                ServerLocation::Addresses(addresses) if moved && addresses.len() == 1 => {
                    peer.retire();
                    let new = Peer::of_address(number, &conf, addresses[0].clone(), id);
                    group.prepare(&new);
                    Arc::new(new)
                }
                _ => Arc::new(peer.with_conf(&old, &conf)),
            };
            let peers = state.roster.peers().map(renew).collect();
            let listed = state.listed(&state.servers.all[at]);
            state.publish(peers);
            Ok(listed)
        })
    }

    /// Removes a server. Requests that it has are served to their end.
    ///
    /// # Errors
    /// The reason why it was not removed.
    pub fn remove_server(&self, id: u32) -> Result<ListedServer, ChangeError> {
        self.changed_by(|_, state| {
            let at = state.place(id)?;
            let server = state.servers.all.remove(at);
            let listed = state.listed(&server);
            let (gone, peers): (Vec<_>, Vec<_>) =
                state.roster.peers().cloned().partition(|peer| peer.server == server.number);
            gone.iter().for_each(|peer| peer.retire());
            state.publish(peers);
            Ok(listed)
        })
    }

    /// Begins the counters of all peers, and of the queue, anew.
    pub fn reset_statistics(&self) {
        let mut state = self.lock();
        state.roster.peers().for_each(|peer| peer.state.counters.reset());
        state.waiting.reset();
    }

    /// Makes a change: to the newest generation, if it has taken over the servers.
    fn changed_by(
        &self,
        change: impl Fn(&Group, &mut GroupState) -> Result<ListedServer, ChangeError>,
    ) -> Result<ListedServer, ChangeError> {
        if self.conf().zone.is_none() {
            return Err(ChangeError::Static);
        }
        let mut state = self.lock();
        if let Some(Newest { group, has_servers }) = state.servers.newest() {
            drop(state);
            // Else it has other servers, though some of them have the state of peers here.
            return if has_servers { group.changed_by(change) } else { Err(ChangeError::Reloaded) };
        }
        let listed = change(self, &mut state)?;
        self.announce(state);
        Ok(listed)
    }

    fn newest(&self) -> Option<Newest> {
        self.lock().servers.newest()
    }

    /// The newest generation, if it has taken over these servers.
    pub(crate) fn heir(&self) -> Option<Arc<Group>> {
        self.newest().filter(|newest| newest.has_servers).map(|newest| newest.group)
    }

    /// Whether the balancing method supports the parameters.
    fn check(&self, conf: &ServerConf) -> Result<(), ChangeError> {
        match self.conf().balancer.has_backup() {
            false if conf.backup => Err(ChangeError::NoBackup),
            false if conf.slow_start.0 > 0 => Err(ChangeError::NoSlowStart),
            _ => Ok(()),
        }
    }

    /// Takes over the servers of the previous generation if both have the same `state`, and its file has no
    /// other text than the previous generation read or wrote: the file may be older than the servers, unless
    /// an operator has written it.
    pub(crate) fn inherit_servers(self: &Arc<Self>, old: &Group) {
        let has_servers = match (&self.conf().state, &old.conf().state) {
            (Some(new), Some(old_file)) => new.path == old_file.path && old.is_own_text(&new.text),
            _ => false,
        };
        let previous = old.lock();
        let mut state = self.lock();
        if has_servers {
            state.servers = previous.servers.clone();
            state.roster = Arc::new(Roster::new(previous.roster.peers().cloned().collect()));
            // Users of the previous generation learn of changes here.
            self.share_watchers(old);
        }
        state.servers.line = previous.servers.line.clone();
        state.servers.place = state.servers.line.add(self, previous.servers.place, has_servers);
    }

    /// Remembers the text that the servers were read from.
    pub(crate) fn note_state_file(&self) {
        if let Some(file) = &self.conf().state {
            let mut state = self.lock();
            state.servers.remember(&file.text);
            // What would be written if nothing changed.
            let text = text(&state.servers.all);
            state.servers.remember(&text);
        }
    }
}

impl ServerConf {
    /// The line of a configuration that describes it.
    fn write(&self, out: &mut Vec<u8>) {
        let default = ServerConf::new(Bytes::new(), ServerLocation::Addresses(Vec::new()));
        out.extend_from_slice(b"server ");
        quote(&self.text, out);
        let mut number = |name: &str, value: u64, default: u64| {
            if value != default {
                out.extend_from_slice(format!(" {name}={value}").as_bytes());
            }
        };
        number("weight", self.weight.into(), default.weight.into());
        number("max_conns", self.max_conns.into(), default.max_conns.into());
        number("max_fails", self.max_fails.into(), default.max_fails.into());
        number("fail_timeout", self.fail_timeout.0, default.fail_timeout.0);
        number("slow_start", self.slow_start.0, default.slow_start.0);
        if self.backup {
            out.extend_from_slice(b" backup");
        }
        match self.down {
            ServerMode::Up => {}
            ServerMode::Down => out.extend_from_slice(b" down"),
            ServerMode::Draining => out.extend_from_slice(b" drain"),
        }
        if let Some(route) = &self.route {
            out.push(b' ');
            quote(&[b"route=", &route[..]].concat(), out);
        }
        if let ServerLocation::Name { service, resolve, .. } = &self.target {
            if *resolve {
                out.extend_from_slice(b" resolve");
            }
            if let Some(service) = service {
                out.push(b' ');
                quote(&[b"service=", service.as_bytes()].concat(), out);
            }
        }
        out.extend_from_slice(b";\n");
    }
}

/// A word of a configuration, quoted where it has to be.
fn quote(word: &[u8], out: &mut Vec<u8>) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:=/[]~+@%,*!".contains(byte);
    if word.iter().all(plain) {
        out.extend_from_slice(word);
        return;
    }
    out.push(b'"');
    for byte in word {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

impl Peer {
    /// A peer of a server with this address.
    fn of_address(number: usize, conf: &ServerConf, address: Address, id: u32) -> Peer {
        let name = conf.text.as_ref().into();
        Peer::new((number, id), conf, address, name, conf.weight, conf.backup)
    }

    /// The same peer with other parameters.
    fn with_conf(&self, old: &ServerConf, conf: &ServerConf) -> Peer {
        let weight = match conf.weight {
            // An SRV record may have another one.
            1 if old.weight == 1 => self.weight,
            weight => weight,
        };
        let (ids, name) = ((self.server, self.id), self.server_name.clone());
        let mut peer = Peer::new(ids, conf, self.address.clone(), name, weight, self.backup);
        peer.adopt(&self.state);
        peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_written_as_a_directive() {
        let written = |conf: &ServerConf| {
            let mut out = Vec::new();
            conf.write(&mut out);
            String::from_utf8(out).unwrap()
        };
        let mut conf = ServerConf::new("127.0.0.1:80", ServerLocation::Addresses(Vec::new()));
        assert_eq!(written(&conf), "server 127.0.0.1:80;\n");
        conf.weight = 5;
        conf.max_conns = 7;
        conf.max_fails = 0;
        (conf.fail_timeout, conf.slow_start) = (Seconds(90), Seconds(3));
        conf.backup = true;
        conf.down = ServerMode::Draining;
        conf.route = Some("a \"b\"; \\".into());
        let text = "server 127.0.0.1:80 weight=5 max_conns=7 max_fails=0 fail_timeout=90 \
                    slow_start=3 backup drain \"route=a \\\"b\\\"; \\\\\";\n";
        assert_eq!(written(&conf), text);
        conf = ServerConf::new(
            "a.example",
            ServerLocation::Name {
                host: "a.example".into(),
                port: 80,
                service: Some("http".into()),
                resolve: true,
            },
        );
        assert_eq!(written(&conf), "server a.example resolve service=http;\n");
    }

    #[test]
    fn down_and_drain_exclude_each_other() {
        use ServerMode::{Down, Draining, Up};
        for (before, down, drain, after) in [
            (Up, Some(true), None, Down),
            (Up, None, Some(true), Draining),
            (Down, None, Some(true), Draining),
            (Down, Some(false), Some(true), Draining),
            (Draining, Some(false), None, Up),
            (Draining, None, Some(false), Up),
            (Down, None, Some(false), Down),
            (Draining, None, None, Draining),
        ] {
            let mut conf = ServerConf::new("a", ServerLocation::Addresses(Vec::new()));
            conf.down = before;
            ServerChange { down, drain, ..ServerChange::default() }.apply(&mut conf);
            assert_eq!(conf.down, after, "{before:?} {down:?} {drain:?}");
        }
    }
}
