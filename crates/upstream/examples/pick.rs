//! What the choice of a peer costs: a request's attempt, its pick, and its success.
//!
//! `cargo run --release -p nowait-upstream --example pick [THREADS]`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use nowait_conf::Template;
use nowait_runtime::net::Address;
use nowait_upstream::{
    BalanceInput, Balancer, Group, GroupConf, NextPeer, ServerConf, ServerLocation,
};

const ROUNDS: u32 = 2_000_000;

fn group(balancer: Balancer, peers: u16) -> Arc<Group> {
    let servers = (0..peers).map(|n| {
        let address = SocketAddr::from(([127, 0, 0, 1], 8000 + n));
        ServerConf::new(
            address.to_string(),
            ServerLocation::Addresses(vec![Address::Inet(address)]),
        )
    });
    Group::new(GroupConf { balancer, ..GroupConf::of_servers("u", servers.collect()) })
}

fn rounds(group: &Arc<Group>) {
    let now = Instant::now();
    for n in 0..ROUNDS {
        let key = n.to_le_bytes();
        let how = BalanceInput { hash_key: &key, ..BalanceInput::default() };
        if let NextPeer::Peer(peer) = group.begin(how).next(now) {
            peer.succeeded(now, None);
        }
    }
}

fn main() {
    let threads: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    let key = || Template::literal("");
    for (name, balancer) in [
        ("round robin", Balancer::RoundRobin),
        ("least_conn", Balancer::LeastConn),
        ("hash", Balancer::Hash { key: key() }),
        ("hash consistent", Balancer::ConsistentHash { key: key() }),
        ("random", Balancer::Random),
    ] {
        for peers in [1, 2, 4, 16, 64] {
            let group = group(balancer.clone(), peers);
            let start = Instant::now();
            std::thread::scope(|scope| {
                (0..threads).for_each(|_| drop(scope.spawn(|| rounds(&group))));
            });
            let each = start.elapsed() / (ROUNDS * threads);
            println!("{name}, {peers} peers, {threads} threads: {} ns", each.as_nanos());
        }
    }
}
