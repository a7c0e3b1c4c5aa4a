//! Round robin and `least_conn` against a model: the rules as one reads them, without atomics, locks
//! or scaled weights, on the same sequences of requests, failures and pauses.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nowait_conf::Seconds;
use nowait_runtime::net::Address;
use nowait_upstream::conf::ServerMode;
use nowait_upstream::{
    BalanceInput, Balancer, Group, GroupConf, NextPeer, SelectedPeer, ServerConf, ServerLocation,
};

/// SplitMix64.
struct ModelRng(u64);

impl ModelRng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }
}

#[derive(Clone, Debug, Default)]
struct ModelPeer {
    weight: i64,
    effective: i64,
    current: i64,
    conns: i64,
    max_conns: i64,
    fails: u32,
    max_fails: u32,
    fail_timeout: u64,
    down: bool,
    /// In ms, from long after 0.
    failed_at: u64,
    checked_at: u64,
}

impl ModelPeer {
    fn is_available(&self, now: u64) -> bool {
        let rests = self.max_fails > 0
            && self.fails >= self.max_fails
            && now - self.checked_at <= self.fail_timeout;
        !self.down && !rests && (self.max_conns == 0 || self.conns < self.max_conns)
    }
}

struct Model {
    least_conn: bool,
    peers: Vec<ModelPeer>,
}

impl Model {
    /// Gives each of them its weight; the greatest loses the sum.
    fn turn(&mut self, candidates: &[usize]) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<usize> = None;
        for &n in candidates {
            let peer = &mut self.peers[n];
            peer.current += peer.effective;
            total += peer.effective;
            peer.effective += i64::from(peer.effective < peer.weight);
            if best.is_none_or(|best| self.peers[n].current > self.peers[best].current) {
                best = Some(n);
            }
        }
        self.peers[best?].current -= total;
        best
    }

    fn next(&mut self, tried: &mut Vec<usize>, now: u64) -> Option<usize> {
        let may = |n: &usize| !tried.contains(n) && self.peers[*n].is_available(now);
        let mut candidates: Vec<usize> = (0..self.peers.len()).filter(may).collect();
        let chosen = if self.least_conn {
            let load = |n: usize| (self.peers[n].conns, self.peers[n].weight);
            let less = |a: usize, b: usize| load(a).0 * load(b).1 < load(b).0 * load(a).1;
            let least = candidates.iter().copied().reduce(|a, b| if less(b, a) { b } else { a })?;
            candidates.retain(|n| !less(least, *n));
            match candidates.len() {
                1 => least,
                _ => self.turn(&candidates)?,
            }
        } else {
            self.turn(&candidates)?
        };
        tried.push(chosen);
        let peer = &mut self.peers[chosen];
        peer.conns += 1;
        if now - peer.checked_at > peer.fail_timeout {
            peer.checked_at = now;
        }
        Some(chosen)
    }

    fn failed(&mut self, n: usize, now: u64) {
        let peer = &mut self.peers[n];
        peer.conns -= 1;
        peer.fails += 1;
        (peer.failed_at, peer.checked_at) = (now, now);
        if let Some(loss) = peer.weight.checked_div(i64::from(peer.max_fails)) {
            peer.effective = (peer.effective - loss).max(0);
        }
    }

    fn worked(&mut self, n: usize) {
        let peer = &mut self.peers[n];
        peer.conns -= 1;
        if peer.failed_at < peer.checked_at {
            peer.fails = 0;
        }
    }
}

const LONG_AGO: u64 = 1 << 40;

fn run(seed: u64, least_conn: bool) {
    let mut random = ModelRng(seed);
    let count = 2 + random.below(4) as usize;
    let mut peers = Vec::new();
    let mut servers = Vec::new();
    for n in 0..count {
        let weight = 1 + random.below(5);
        let peer = ModelPeer {
            weight: weight as i64,
            effective: weight as i64,
            max_conns: random.below(2) as i64 * 3,
            max_fails: random.below(4) as u32,
            fail_timeout: 1000 * random.below(5),
            down: random.below(8) == 0,
            ..ModelPeer::default()
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 8080 + n as u16));
        let target = ServerLocation::Addresses(vec![Address::Inet(address)]);
        servers.push(ServerConf {
            weight: weight as u32,
            max_conns: peer.max_conns as u32,
            max_fails: peer.max_fails,
            fail_timeout: Seconds(peer.fail_timeout / 1000),
            down: if peer.down { ServerMode::Down } else { ServerMode::Up },
            ..ServerConf::new(address.to_string(), target)
        });
        peers.push(peer);
    }
    let mut model = Model { least_conn, peers };
    let balancer = if least_conn { Balancer::LeastConn } else { Balancer::RoundRobin };
    let group = Group::new(GroupConf { balancer, ..GroupConf::of_servers("u", servers) });
    let start = Instant::now();
    let mut elapsed = 0;
    let mut under_way: Vec<(usize, SelectedPeer)> = Vec::new();
    for step in 0..300 {
        elapsed += random.below(3) * random.below(700);
        let (now, at) = (start + Duration::from_millis(elapsed), LONG_AGO + elapsed);
        let mut attempt = group.begin(BalanceInput::default());
        let mut tried = Vec::new();
        for _ in 0..=random.below(2) {
            let expected = model.next(&mut tried, at);
            let got = match attempt.next(now) {
                NextPeer::Peer(peer) => Some(peer),
                _ => None,
            };
            let chosen = got.as_ref().map(|peer| peer.peer().server());
            assert_eq!(chosen, expected, "seed {seed}, step {step}: {:?}", model.peers);
            let Some(peer) = got else { break };
            let n = peer.peer().server();
            match random.below(4) {
                0 => {
                    model.failed(n, at);
                    peer.failed(now);
                }
                1 => under_way.push((n, peer)),
                _ => {
                    model.worked(n);
                    peer.succeeded(now, None);
                }
            }
        }
        while under_way.len() > random.below(8) as usize {
            let (n, peer) = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
            model.worked(n);
            peer.succeeded(now, None);
        }
    }
    drop(under_way);
    assert!(group.stats().iter().all(|(_, stats)| stats.active == 0));
}

#[test]
fn round_robin_is_as_the_model() {
    (0..300).for_each(|seed| run(seed, false));
}

#[test]
fn least_conn_is_as_the_model() {
    (0..300).for_each(|seed| run(seed, true));
}
