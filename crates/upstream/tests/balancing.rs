//! Which peer is chosen: by each method, by weight, by what peers can take.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_conf::Template;
use nowait_runtime::net::Address;
use nowait_upstream::conf::{BalanceCriterion, ServerMode, Time};
use nowait_upstream::{
    BalanceInput, Balancer, Group, GroupConf, NextPeer, SelectedPeer, ServerConf, ServerLocation,
    Times,
};

fn server(n: u16) -> ServerConf {
    let address = SocketAddr::from(([127, 0, 0, 1], 8080 + n));
    let target = ServerLocation::Addresses(vec![Address::Inet(address)]);
    ServerConf::new(address.to_string(), target)
}

/// Servers of these weights, on ports from 8080 on.
fn weighted(weights: &[u32]) -> Vec<ServerConf> {
    let servers = weights.iter().enumerate();
    servers.map(|(n, weight)| ServerConf { weight: *weight, ..server(n as u16) }).collect()
}

fn group(balancer: Balancer, servers: Vec<ServerConf>) -> Arc<Group> {
    Group::new(GroupConf { balancer, ..GroupConf::of_servers("u", servers) })
}

fn key() -> Template {
    Template::literal("")
}

fn peer(next: NextPeer) -> SelectedPeer {
    match next {
        NextPeer::Peer(peer) => peer,
        other => panic!("{other:?}"),
    }
}

fn ask(group: &Arc<Group>, ask: BalanceInput<'_>, now: Instant) -> SelectedPeer {
    peer(group.begin(ask).next(now))
}

/// The number of the server that is chosen; it answers at once.
fn once(group: &Arc<Group>, how: BalanceInput<'_>, now: Instant) -> usize {
    let picked = ask(group, how, now);
    let n = picked.peer().server();
    picked.succeeded(now, None);
    n
}

fn letters(group: &Arc<Group>, count: usize, now: Instant) -> String {
    (0..count).map(|_| (b'a' + once(group, BalanceInput::default(), now) as u8) as char).collect()
}

#[test]
fn round_robin_is_smooth() {
    let now = Instant::now();
    let group = group(Balancer::RoundRobin, weighted(&[5, 1, 1]));
    assert_eq!(letters(&group, 14, now), "aabacaaaabacaa");
    let group = Group::new(GroupConf::of_servers("u", weighted(&[1, 1, 1])));
    assert_eq!(letters(&group, 6, now), "abcabc");
}

#[test]
fn round_robin_gives_each_its_weight() {
    let now = Instant::now();
    for weights in [&[1, 2, 3][..], &[7, 1], &[3, 3, 3, 1], &[100, 1, 50, 2], &[1; 70]] {
        let group = group(Balancer::RoundRobin, weighted(weights));
        let total: u32 = weights.iter().sum();
        let mut counts = vec![0; weights.len()];
        for _ in 0..3 * total {
            counts[once(&group, BalanceInput::default(), now)] += 1;
        }
        let expected: Vec<u32> = weights.iter().map(|weight| 3 * weight).collect();
        assert_eq!(counts, expected);
    }
}

#[test]
fn each_peer_is_tried_once() {
    let now = Instant::now();
    let group = group(Balancer::RoundRobin, weighted(&[1, 1, 1]));
    let mut attempt = group.begin(BalanceInput::default());
    let mut seen = Vec::new();
    while let NextPeer::Peer(peer) = attempt.next(now) {
        seen.push(peer.peer().server());
    }
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!(attempt.tries_left(), 0);
}

#[test]
fn tries_are_limited() {
    let now = Instant::now();
    let group = group(Balancer::RoundRobin, weighted(&[1, 1, 1]));
    let mut attempt = group.begin(BalanceInput::default());
    attempt.limit_tries(2);
    drop(attempt.next(now));
    assert_eq!(attempt.tries_left(), 1);
    attempt.add_try();
    assert_eq!(attempt.tries_left(), 2);
}

#[test]
fn who_has_not_acted_on_a_request_may_be_tried_again_after_all_others() {
    let now = Instant::now();
    let group = group(Balancer::RoundRobin, weighted(&[1, 1, 1]));
    let mut attempt = group.begin(BalanceInput::default());
    let mut next = |again: bool| {
        let NextPeer::Peer(peer) = attempt.next(now) else { return (None, 0) };
        if again {
            attempt.add_try();
        }
        (Some(peer.peer().server()), attempt.tries_left())
    };
    assert_eq!(next(false), (Some(0), 2));
    assert_eq!(next(true), (Some(1), 2));
    assert_eq!(next(true), (Some(2), 2));
    let mut repeated = [next(false), next(false)];
    assert_eq!(repeated.map(|(_, left)| left), [1, 0]);
    repeated.sort();
    assert_eq!(repeated.map(|(server, _)| server), [Some(1), Some(2)]);
    assert_eq!(next(false), (None, 0));
}

#[test]
fn down_and_draining_peers_get_nothing() {
    let now = Instant::now();
    let servers = vec![
        ServerConf { down: ServerMode::Down, ..server(0) },
        server(1),
        ServerConf { down: ServerMode::Draining, ..server(2) },
        server(3),
    ];
    let methods = [
        Balancer::RoundRobin,
        Balancer::LeastConn,
        Balancer::LeastTime { time: Time::Header, inflight: true },
        Balancer::Hash { key: key() },
        Balancer::ConsistentHash { key: key() },
        Balancer::IpHash,
        Balancer::Random,
        Balancer::RandomTwo(BalanceCriterion::Connections),
    ];
    for method in methods {
        let group = group(method.clone(), servers.clone());
        for n in 0..200u32 {
            let text = n.to_string();
            let how = BalanceInput {
                client: Some(IpAddr::from(n.to_be_bytes())),
                hash_key: text.as_bytes(),
                sticky: None,
            };
            assert!([1, 3].contains(&once(&group, how, now)), "{method:?}");
        }
    }
}

#[test]
fn backups_come_last() {
    let now = Instant::now();
    let backup = |n| ServerConf { backup: true, ..server(n) };
    let group = group(Balancer::RoundRobin, vec![backup(0), server(1), backup(2), server(3)]);
    let mut attempt = group.begin(BalanceInput::default());
    let mut seen = Vec::new();
    while let NextPeer::Peer(peer) = attempt.next(now) {
        seen.push(peer.peer().server());
    }
    assert_eq!(seen, [1, 3, 0, 2]);
}

#[test]
fn least_conn_goes_by_weight_and_takes_turns() {
    let now = Instant::now();
    let group = group(Balancer::LeastConn, weighted(&[1, 2]));
    let mut under_way: Vec<SelectedPeer> = Vec::new();
    let mut counts = [0; 2];
    for _ in 0..9 {
        let picked = ask(&group, BalanceInput::default(), now);
        counts[picked.peer().server()] += 1;
        under_way.push(picked);
    }
    assert_eq!(counts, [3, 6]);
    drop(under_way);
    // Equal ones take turns as in round robin.
    let group = self::group(Balancer::LeastConn, weighted(&[1, 1, 1]));
    assert_eq!(letters(&group, 6, now), "abcabc");
}

#[test]
fn connections_are_limited() {
    let now = Instant::now();
    let limited = |n| ServerConf { max_conns: 1, ..server(n) };
    for method in [Balancer::RoundRobin, Balancer::LeastConn, Balancer::Random] {
        let group = group(method, vec![limited(0), limited(1)]);
        let first = ask(&group, BalanceInput::default(), now);
        let second = ask(&group, BalanceInput::default(), now);
        assert_ne!(first.peer().server(), second.peer().server());
        assert!(matches!(group.begin(BalanceInput::default()).next(now), NextPeer::NoLive));
        let free = first.peer().server();
        drop(first);
        assert_eq!(once(&group, BalanceInput::default(), now), free);
    }
    // The only peer, too.
    let group = group(Balancer::RoundRobin, vec![limited(0)]);
    let _first = ask(&group, BalanceInput::default(), now);
    assert!(matches!(group.begin(BalanceInput::default()).next(now), NextPeer::NoLive));
}

#[test]
fn addresses_are_hashed_by_network() {
    let now = Instant::now();
    let group = group(Balancer::IpHash, weighted(&[1, 1, 1]));
    let of = |ip: [u8; 4]| {
        once(&group, BalanceInput { client: Some(ip.into()), ..BalanceInput::default() }, now)
    };
    assert_eq!(of([10, 0, 0, 1]), of([10, 0, 0, 200]));
    let seen: std::collections::HashSet<usize> = (0..50).map(|n| of([10, n, 0, 1])).collect();
    assert_eq!(seen.len(), 3);
}

/// Where the keys go.
fn places(group: &Arc<Group>, keys: usize) -> Vec<usize> {
    let now = Instant::now();
    let place = |n: usize| {
        let key = format!("/file/{n}.jpg");
        once(group, BalanceInput { hash_key: key.as_bytes(), ..BalanceInput::default() }, now)
    };
    (0..keys).map(place).collect()
}

#[test]
fn consistent_hashing_moves_few_keys() {
    const KEYS: usize = 20_000;
    let method = Balancer::ConsistentHash { key: key() };
    let ten = places(&group(method.clone(), weighted(&[1; 10])), KEYS);
    let eleven = places(&group(method, weighted(&[1; 11])), KEYS);
    let moved = ten.iter().zip(&eleven).filter(|(a, b)| a != b).count();
    // A key moves to the new server or not at all.
    assert!(ten.iter().zip(&eleven).all(|(a, b)| a == b || *b == 10));
    assert!((KEYS / 16..KEYS / 8).contains(&moved), "{moved}");
    let mut counts = [0; 10];
    ten.iter().for_each(|n| counts[*n] += 1);
    assert!(counts.iter().all(|count| (KEYS / 16..KEYS / 7).contains(count)), "{counts:?}");
}

#[test]
fn consistent_hashing_goes_by_weight() {
    let method = Balancer::ConsistentHash { key: key() };
    let places = places(&group(method, weighted(&[1, 3])), 20_000);
    let second = places.iter().filter(|n| **n == 1).count();
    assert!((14_000..16_000).contains(&second), "{second}");
}

#[test]
fn a_key_has_another_server_when_its_own_is_not_there() {
    let now = Instant::now();
    for method in [Balancer::Hash { key: key() }, Balancer::ConsistentHash { key: key() }] {
        let group = group(method, weighted(&[1, 1, 1]));
        let how = BalanceInput { hash_key: b"key", ..BalanceInput::default() };
        let mut attempt = group.begin(how);
        let mut seen: Vec<usize> = Vec::new();
        while let NextPeer::Peer(peer) = attempt.next(now) {
            seen.push(peer.peer().server());
        }
        assert_eq!(seen.len(), 3);
        assert_eq!(once(&group, how, now), seen[0]);
    }
}

/// Values computed by the formula of Cache::Memcached: `(crc32(key) >> 16) & 0x7fff`, modulo the sum
/// of weights. `crc32("key")` is 0x18fe1aa8... by zlib.
#[test]
fn hashes_are_those_of_memcached() {
    let now = Instant::now();
    let group = group(Balancer::Hash { key: key() }, weighted(&[1; 7]));
    for (text, crc) in [("123456789", 0xCBF4_3926u32), ("a", 0xE8B7_BE43), ("abc", 0x3524_41C2)] {
        let expected = ((crc >> 16) & 0x7fff) as usize % 7;
        let how = BalanceInput { hash_key: text.as_bytes(), ..BalanceInput::default() };
        assert_eq!(once(&group, how, now), expected, "{text}");
    }
}

#[test]
fn random_choices_go_by_weight() {
    let now = Instant::now();
    let group = group(Balancer::Random, weighted(&[1, 3]));
    let second = (0..20_000).filter(|_| once(&group, BalanceInput::default(), now) == 1).count();
    assert!((14_000..16_000).contains(&second), "{second}");
}

#[test]
fn the_better_one_of_two() {
    let now = Instant::now();
    let group = group(Balancer::RandomTwo(BalanceCriterion::Connections), weighted(&[1, 1]));
    let mut under_way = Vec::new();
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for _ in 0..1000 {
        let picked = ask(&group, BalanceInput::default(), now);
        *counts.entry(picked.peer().server()).or_default() += 1;
        under_way.push(picked);
    }
    // Of two peers both are looked at each time.
    assert_eq!(counts[&0], 500);
}

#[test]
fn the_fastest_is_asked_most() {
    let start = Instant::now();
    let method = Balancer::LeastTime { time: Time::LastByte, inflight: false };
    let group = group(method, weighted(&[1, 1]));
    let mut now = start;
    let mut counts = [0; 2];
    for _ in 0..100 {
        let picked = ask(&group, BalanceInput::default(), now);
        let n = picked.peer().server();
        counts[n] += 1;
        let took = Duration::from_millis(if n == 0 { 1000 } else { 10 });
        now += Duration::from_millis(1);
        picked.succeeded(now, Some(Times { header: took, response: took }));
    }
    assert!(counts[1] > 90, "{counts:?}");
}

#[test]
fn sticky_requests_go_to_their_peer() {
    let now = Instant::now();
    let routed = |n, route: &'static str| ServerConf { route: Some(route.into()), ..server(n) };
    for method in
        [Balancer::RoundRobin, Balancer::LeastConn, Balancer::Random, Balancer::Hash { key: key() }]
    {
        let group = group(method, vec![routed(0, "a"), routed(1, "b"), server(2)]);
        let bound = |id: &str| {
            let how = BalanceInput {
                sticky: Some(id.as_bytes()),
                hash_key: b"k",
                ..BalanceInput::default()
            };
            once(&group, how, now)
        };
        for _ in 0..10 {
            assert_eq!(bound("a"), 0);
            assert_eq!(bound("b"), 1);
            // printf 127.0.0.1:8082 | md5sum
            assert_eq!(bound("91d8c8e93642cca5c0f2be69d199ee22"), 2);
        }
    }
}

#[test]
fn a_draining_peer_keeps_its_sessions() {
    let now = Instant::now();
    let draining = ServerConf { down: ServerMode::Draining, route: Some("a".into()), ..server(0) };
    let group = group(Balancer::RoundRobin, vec![draining, server(1)]);
    let how = BalanceInput { sticky: Some(b"a"), ..BalanceInput::default() };
    assert_eq!(once(&group, how, now), 0);
    assert_eq!(letters(&group, 3, now), "bbb");
}

#[test]
fn counters_return_to_zero() {
    let now = Instant::now();
    let methods = [
        Balancer::RoundRobin,
        Balancer::LeastConn,
        Balancer::LeastTime { time: Time::Header, inflight: true },
        Balancer::Random,
    ];
    for method in methods {
        let servers = weighted(&[1, 2, 3]).into_iter();
        let servers = servers.map(|server| ServerConf { max_fails: 0, ..server }).collect();
        let group = group(method, servers);
        let mut under_way = Vec::new();
        for n in 0..100 {
            under_way.push(ask(&group, BalanceInput::default(), now));
            if n % 3 == 0 {
                let mut picked = under_way.swap_remove(n % under_way.len());
                picked.header_received(now, Duration::from_millis(1));
                match n % 4 {
                    0 => picked.succeeded(now, Some(Times::default())),
                    1 => drop(picked.failed(now)),
                    2 => picked.passed_on(now),
                    _ => drop(picked),
                }
            }
        }
        let active: u32 = group.stats().iter().map(|(_, stats)| stats.active).sum();
        assert_eq!(active as usize, under_way.len());
        drop(under_way);
        assert!(group.stats().iter().all(|(_, stats)| stats.active == 0));
        let requests: u64 = group.stats().iter().map(|(_, stats)| stats.requests).sum();
        assert_eq!(requests, 100);
    }
}
