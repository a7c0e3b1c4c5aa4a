//! Failures, recovery, names, reloads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_conf::Seconds;
use nowait_runtime::net::Address;
use nowait_upstream::{
    Availability, BalanceInput, Balancer, Group, GroupConf, NextPeer, Resolved, SelectedPeer,
    ServerConf, ServerLocation,
};

fn address(n: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8080 + n))
}

fn server(n: u16) -> ServerConf {
    let target = ServerLocation::Addresses(vec![Address::Inet(address(n))]);
    ServerConf::new(address(n).to_string(), target)
}

fn group(servers: Vec<ServerConf>) -> Arc<Group> {
    Group::new(GroupConf::of_servers("u", servers))
}

fn next(group: &Arc<Group>, now: Instant) -> Option<SelectedPeer> {
    match group.begin(BalanceInput::default()).next(now) {
        NextPeer::Peer(peer) => Some(peer),
        _ => None,
    }
}

/// Fails on the peer with this number, if it is chosen.
fn fail(group: &Arc<Group>, n: usize, now: Instant) -> bool {
    let mut attempt = group.begin(BalanceInput::default());
    while let NextPeer::Peer(peer) = attempt.next(now) {
        if peer.peer().server() == n {
            return peer.failed(now);
        }
    }
    panic!("peer {n} was not chosen");
}

fn chosen(group: &Arc<Group>, count: usize, now: Instant) -> Vec<usize> {
    let one = |_| {
        let peer = next(group, now).unwrap();
        let n = peer.peer().server();
        peer.succeeded(now, None);
        n
    };
    (0..count).map(one).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_peer_that_failed_rests() {
    let start = Instant::now();
    let group = group(vec![server(0), server(1)]);
    assert!(fail(&group, 0, start));
    assert_eq!(chosen(&group, 4, start), [1; 4]);
    assert_eq!(group.peers()[0].availability(start), Availability::Unavailable);
    assert_eq!(chosen(&group, 4, start + 10 * SECOND), [1; 4]);
    // One try, then all is well.
    let later = start + 11 * SECOND;
    let mut seen = chosen(&group, 4, later);
    seen.sort_unstable();
    assert!(seen.contains(&0));
    assert_eq!(group.peers()[0].availability(later), Availability::Up);
}

#[test]
fn one_request_tries_a_resting_peer_at_a_time() {
    let start = Instant::now();
    let group = group(vec![server(0), server(1)]);
    fail(&group, 0, start);
    let later = start + 11 * SECOND;
    let mut trying = Vec::new();
    for _ in 0..6 {
        trying.push(next(&group, later).unwrap());
    }
    assert_eq!(trying.iter().filter(|peer| peer.peer().server() == 0).count(), 1);
}

#[test]
fn a_request_that_is_given_up_says_nothing() {
    let start = Instant::now();
    let group = group(vec![server(0), server(1)]);
    fail(&group, 0, start);
    let later = start + 11 * SECOND;
    let mut trying: Vec<SelectedPeer> = (0..6).map(|_| next(&group, later).unwrap()).collect();
    assert!(trying.iter().any(|peer| peer.peer().server() == 0));
    trying.clear();
    assert_eq!(group.peers()[0].availability(later), Availability::Unavailable);
}

#[test]
fn failures_are_counted_within_the_time() {
    let start = Instant::now();
    let three = ServerConf { max_fails: 3, weight: 3, ..server(0) };
    let group = group(vec![three, server(1)]);
    assert!(!fail(&group, 0, start));
    assert!(!fail(&group, 0, start));
    // A success after `fail_timeout` forgets them.
    let later = start + 11 * SECOND;
    chosen(&group, 8, later);
    assert!(!fail(&group, 0, later));
    assert!(!fail(&group, 0, later));
    assert!(fail(&group, 0, later));
}

#[test]
fn without_max_fails_nothing_is_held_against_it() {
    let now = Instant::now();
    let group = group(vec![ServerConf { max_fails: 0, ..server(0) }, server(1)]);
    for _ in 0..10 {
        assert!(!fail(&group, 0, now));
    }
    assert!(chosen(&group, 4, now).contains(&0));
}

#[test]
fn the_only_peer_is_never_given_up() {
    let now = Instant::now();
    let group = group(vec![server(0)]);
    for _ in 0..10 {
        assert!(!fail(&group, 0, now));
    }
    assert_eq!(chosen(&group, 1, now), [0]);
}

#[test]
fn no_peer_is_left() {
    let now = Instant::now();
    let group = group(vec![server(0), server(1)]);
    fail(&group, 0, now);
    fail(&group, 1, now);
    assert!(matches!(group.begin(BalanceInput::default()).next(now), NextPeer::NoLive));
}

#[test]
fn weights_shrink_and_grow_again() {
    let start = Instant::now();
    let servers = vec![
        ServerConf { weight: 10, max_fails: 2, ..server(0) },
        ServerConf { weight: 10, ..server(1) },
    ];
    let group = group(servers);
    fail(&group, 0, start);
    let first = chosen(&group, 8, start).iter().filter(|n| **n == 0).count();
    assert!(first < 4, "{first}");
    chosen(&group, 100, start);
    let later = chosen(&group, 20, start).iter().filter(|n| **n == 0).count();
    assert_eq!(later, 10);
}

#[test]
fn unhealthy_peers_get_nothing_and_come_back_slowly() {
    let start = Instant::now();
    let slow = |n| ServerConf { slow_start: Seconds(100), ..server(n) };
    let group = group(vec![slow(0), slow(1)]);
    group.peers()[0].set_healthy(false, start);
    assert_eq!(chosen(&group, 4, start), [1; 4]);
    assert_eq!(group.peers()[0].availability(start), Availability::Unhealthy);
    group.set_healthy(&group.peers()[0], true, start);
    let share = |now| chosen(&group, 100, now).iter().filter(|n| **n == 0).count();
    assert!(share(start + SECOND) < 5);
    let half = share(start + 50 * SECOND);
    assert!((25..=42).contains(&half), "{half}");
    assert_eq!(share(start + 101 * SECOND), 50);
}

#[test]
fn mandatory_checks_come_first() {
    let now = Instant::now();
    let group = group(vec![server(0)]);
    let peer = group.peers()[0].clone();
    peer.set_unchecked();
    assert_eq!(peer.availability(now), Availability::Checking);
    assert!(next(&group, now).is_none());
    peer.set_healthy(true, now);
    assert!(next(&group, now).is_some());
    // One that was found unhealthy stays so.
    peer.set_healthy(false, now);
    peer.set_unchecked();
    assert_eq!(peer.availability(now), Availability::Unhealthy);
}

fn named(host: &str) -> ServerConf {
    let target =
        ServerLocation::Name { host: host.into(), port: 80, service: None, resolve: false };
    ServerConf::new(host.to_owned(), target)
}

#[test]
fn names_wait_for_their_addresses() {
    let now = Instant::now();
    let group = group(vec![named("backend.example")]);
    let mut attempt = group.begin(BalanceInput::default());
    assert!(matches!(attempt.next(now), NextPeer::Unresolved));
    assert!(!group.is_resolved());
    group.set_addresses(0, &[Resolved::address(address(0)), Resolved::address(address(1))]);
    let NextPeer::Peer(peer) = attempt.next(now) else { panic!("resolved") };
    assert_eq!(peer.name(), "127.0.0.1:8080");
    assert_eq!(peer.server_name(), b"backend.example");
    assert!(group.is_resolved());
    group.set_addresses(0, &[]);
    assert!(matches!(group.begin(BalanceInput::default()).next(now), NextPeer::NoLive));
}

#[test]
fn addresses_that_stay_keep_their_state() {
    let now = Instant::now();
    let group = group(vec![named("backend.example")]);
    group.set_addresses(0, &[Resolved::address(address(0)), Resolved::address(address(1))]);
    fail(&group, 0, now);
    let failed = group.peers().iter().position(|p| p.availability(now) != Availability::Up);
    assert_eq!(failed, Some(0));
    group.set_addresses(0, &[Resolved::address(address(2)), Resolved::address(address(0))]);
    let states: Vec<_> =
        group.peers().iter().map(|p| (p.name().to_owned(), p.availability(now))).collect();
    let expected = [
        ("127.0.0.1:8080".to_owned(), Availability::Unavailable),
        ("127.0.0.1:8082".to_owned(), Availability::Up),
    ];
    assert_eq!(states, expected);
}

/// Name servers rotate their answers: clients must not be led to other servers by that.
#[test]
fn the_order_of_an_answer_does_not_matter() {
    let now = Instant::now();
    let at = |n: u8| SocketAddr::from(([127, 0, 0, n], 80));
    let answer = |order: &[u8]| -> Vec<Resolved> {
        order.iter().map(|n| Resolved::address(at(*n))).collect()
    };
    let led = |group: &Arc<Group>| -> Vec<String> {
        let clients = (0..50u8).map(|n| std::net::IpAddr::from([10, n, 3, 4]));
        let to = |client| match group
            .begin(BalanceInput { client: Some(client), ..BalanceInput::default() })
            .next(now)
        {
            NextPeer::Peer(peer) => peer.name().to_owned(),
            other => panic!("{other:?}"),
        };
        clients.map(to).collect()
    };
    let make = || {
        let servers = vec![named("backend.example")];
        Group::new(GroupConf { balancer: Balancer::IpHash, ..GroupConf::of_servers("u", servers) })
    };
    let group = make();
    group.set_addresses(0, &answer(&[2, 3, 4]));
    let first = led(&group);
    for order in [[3, 4, 2], [4, 2, 3], [4, 3, 2]] {
        group.set_addresses(0, &answer(&order));
        assert_eq!(led(&group), first);
        // On another machine, or after a restart.
        let other = make();
        other.set_addresses(0, &answer(&order));
        assert_eq!(led(&other), first);
    }
    // A new one stands behind those that stay; a reload keeps the places.
    group.set_addresses(0, &answer(&[1, 3, 4, 2]));
    let names = |group: &Group| -> Vec<String> {
        group.peers().iter().map(|peer| peer.name().to_owned()).collect()
    };
    let expected = [2, 3, 4, 1].map(|n| at(n).to_string());
    assert_eq!(names(&group), expected);
    let reloaded = make();
    reloaded.adopt(&group);
    assert_eq!(names(&reloaded), expected);
}

/// What is known of a name after the first answer decides how many servers may be asked.
#[test]
fn a_request_that_has_waited_for_a_name_may_try_all_its_addresses() {
    let now = Instant::now();
    let group = group(vec![named("backend.example")]);
    let mut attempt = group.begin(BalanceInput::default());
    assert!(matches!(attempt.next(now), NextPeer::Unresolved));
    group.set_addresses(0, &[Resolved::address(address(0)), Resolved::address(address(1))]);
    let NextPeer::Peer(peer) = attempt.next(now) else { panic!("resolved") };
    peer.failed(now);
    assert_eq!(attempt.tries_left(), 1);
}

#[test]
fn an_attempt_keeps_its_peers() {
    let now = Instant::now();
    let group = group(vec![named("backend.example")]);
    group.set_addresses(0, &[Resolved::address(address(0)), Resolved::address(address(1))]);
    let mut attempt = group.begin(BalanceInput::default());
    let NextPeer::Peer(first) = attempt.next(now) else { panic!("resolved") };
    group.set_addresses(0, &[Resolved::address(address(2))]);
    let NextPeer::Peer(second) = attempt.next(now) else { panic!("it had another one") };
    assert_eq!((first.name(), second.name()), ("127.0.0.1:8080", "127.0.0.1:8081"));
}

#[test]
fn records_of_services_have_weights_and_ranks() {
    let now = Instant::now();
    let target = ServerLocation::Name {
        host: "example".into(),
        port: 80,
        service: Some("http".into()),
        resolve: true,
    };
    let group = group(vec![ServerConf::new("example", target)]);
    let record = |n: u16, weight, backup| Resolved {
        address: address(n),
        target: Some(format!("host{n}:{}", 8080 + n).into()),
        weight,
        backup,
    };
    group.set_addresses(0, &[record(0, 1, false), record(1, 3, false), record(2, 1, true)]);
    let names: Vec<String> = (0..4)
        .map(|_| String::from_utf8_lossy(next(&group, now).unwrap().server_name()).into_owned())
        .collect();
    assert_eq!(names.iter().filter(|name| *name == "host1:8081").count(), 3);
    assert!(group.peers()[2].is_backup());
}

#[test]
fn a_reload_keeps_what_is_known() {
    let now = Instant::now();
    let old = group(vec![server(0), server(1), named("backend.example")]);
    old.set_addresses(2, &[Resolved::address("127.0.0.2:80".parse().unwrap())]);
    fail(&old, 0, now);
    let under_way = next(&old, now).unwrap();
    let balancer = Balancer::LeastConn;
    let servers = vec![named("backend.example"), server(1), server(0), server(3)];
    let new = Group::new(GroupConf { balancer, ..GroupConf::of_servers("u", servers) });
    new.adopt(&old);
    let states: Vec<_> = new
        .peers()
        .iter()
        .map(|p| (p.name().to_owned(), p.availability(now), p.stats().active))
        .collect();
    let expected = [
        ("127.0.0.2:80".to_owned(), Availability::Up, 0),
        ("127.0.0.1:8081".to_owned(), Availability::Up, 1),
        ("127.0.0.1:8080".to_owned(), Availability::Unavailable, 0),
        ("127.0.0.1:8083".to_owned(), Availability::Up, 0),
    ];
    assert_eq!(under_way.name(), "127.0.0.1:8081");
    assert_eq!(states, expected);
    drop(under_way);
    assert!(new.stats().iter().all(|(_, stats)| stats.active == 0));
}

#[test]
fn addresses_of_a_name_serve_its_new_port() {
    let old = group(vec![named("backend.example")]);
    old.set_addresses(0, &[Resolved::address(address(5))]);
    let mut server = named("backend.example");
    let ServerLocation::Name { port, .. } = &mut server.target else { panic!("it is a name") };
    *port = 81;
    let new = group(vec![server]);
    new.adopt(&old);
    assert_eq!(new.peers()[0].name(), "127.0.0.1:81");
}
