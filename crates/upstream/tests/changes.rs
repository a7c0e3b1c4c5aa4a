//! Servers that are added, changed and removed while requests are under way.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use nowait_runtime::net::Address;
use nowait_upstream::{
    Availability, BalanceInput, Balancer, ChangeError, Group, GroupConf, NextPeer, Resolved,
    ServerChange, ServerConf, ServerLocation, StateFile,
};

fn address(n: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8080 + n))
}

fn server(n: u16) -> ServerConf {
    let target = ServerLocation::Addresses(vec![Address::Inet(address(n))]);
    ServerConf::new(address(n).to_string(), target)
}

fn named(host: &str) -> ServerConf {
    let host_name = host.into();
    let target = ServerLocation::Name { host: host_name, port: 80, service: None, resolve: true };
    ServerConf::new(host.to_owned(), target)
}

fn conf(servers: Vec<ServerConf>) -> GroupConf {
    GroupConf { zone: Some("u".into()), ..GroupConf::of_servers("u", servers) }
}

fn group(servers: Vec<ServerConf>) -> Arc<Group> {
    Group::new(conf(servers))
}

/// The ports of the next peers, which succeed.
fn chosen(group: &Arc<Group>, count: usize, now: Instant) -> Vec<u16> {
    let one = |_| match group.begin(BalanceInput::default()).next(now) {
        NextPeer::Peer(peer) => {
            let port = peer.address().inet().unwrap().port() - 8080;
            peer.succeeded(now, None);
            port
        }
        other => panic!("{other:?}"),
    };
    (0..count).map(one).collect()
}

fn count(list: &[u16], n: u16) -> usize {
    list.iter().filter(|one| **one == n).count()
}

fn down(down: bool) -> ServerChange {
    ServerChange { down: Some(down), ..ServerChange::default() }
}

#[test]
fn a_server_is_added_changed_and_removed() {
    let now = Instant::now();
    let group = group(vec![server(0)]);
    let added = group.add_server(server(1)).unwrap();
    assert_eq!((added.id, &added.server[..]), (1, "127.0.0.1:8081"));
    assert_eq!(count(&chosen(&group, 4, now), 1), 2);
    let change = ServerChange { weight: Some(3), max_conns: Some(9), ..ServerChange::default() };
    assert_eq!(group.change_server(1, &change).unwrap().conf.weight, 3);
    assert_eq!(count(&chosen(&group, 4, now), 1), 3);
    assert_eq!(group.peers()[1].max_conns(), 9);
    // The state of the server stays.
    assert_eq!(group.peers()[1].stats().requests, 5);
    group.change_server(0, &down(true)).unwrap();
    assert_eq!(chosen(&group, 3, now), [1, 1, 1]);
    group.change_server(0, &down(false)).unwrap();
    group.remove_server(1).unwrap();
    assert_eq!(chosen(&group, 2, now), [0, 0]);
    // IDs are not used again.
    assert_eq!(group.add_server(server(1)).unwrap().id, 2);
    assert_eq!(group.peers()[1].stats().requests, 0);
    let ids: Vec<u32> = group.servers().iter().map(|server| server.id).collect();
    assert_eq!(ids, [0, 2]);
}

#[test]
fn another_address_is_another_server() {
    let now = Instant::now();
    let group = group(vec![server(0)]);
    chosen(&group, 2, now);
    let conf = server(5);
    let change = ServerChange { target: Some((conf.text, conf.target)), ..Default::default() };
    assert_eq!(group.change_server(0, &change).unwrap().server, "127.0.0.1:8085");
    assert_eq!(group.peers()[0].stats().requests, 0);
    assert_eq!(chosen(&group, 1, now), [5]);
    assert_eq!(group.peers()[0].id(), 0);
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let refused = |group: &Arc<Group>, conf| group.add_server(conf).unwrap_err();
    let no_zone = Group::new(GroupConf::of_servers("u", vec![server(0)]));
    assert_eq!(refused(&no_zone, server(1)), ChangeError::Static);
    assert_eq!(no_zone.remove_server(0).unwrap_err(), ChangeError::Static);
    let group = group(vec![server(0), named("backend.example")]);
    assert_eq!(refused(&group, server(0)), ChangeError::Exists);
    assert_eq!(group.remove_server(7).unwrap_err(), ChangeError::NotFound);
    group.set_addresses(1, &[Resolved::address(address(3))]);
    let listed: Vec<_> = group.servers().into_iter().map(|s| (s.id, s.server, s.parent)).collect();
    let expected = [
        (0, "127.0.0.1:8080".to_owned(), None),
        (1, "backend.example:80".to_owned(), None),
        (2, "127.0.0.1:8083".to_owned(), Some(1)),
    ];
    assert_eq!(listed, expected);
    assert_eq!(group.remove_server(2).unwrap_err(), ChangeError::Resolved { parent: 1 });
    let conf = server(5);
    let change = ServerChange { target: Some((conf.text, conf.target)), ..Default::default() };
    assert_eq!(group.change_server(1, &change).unwrap_err(), ChangeError::Name);
    let random = Group::new(GroupConf { balancer: Balancer::Random, ..conf_of_one() });
    let backup = ServerConf { backup: true, ..server(1) };
    assert_eq!(refused(&random, backup), ChangeError::NoBackup);
    let slow = ServerConf { slow_start: nowait_conf::Seconds(3), ..server(1) };
    assert_eq!(refused(&random, slow), ChangeError::NoSlowStart);
    let full = self::group((0..4096).map(server_of_many).collect());
    assert_eq!(refused(&full, server(1)), ChangeError::Full);
}

fn conf_of_one() -> GroupConf {
    conf(vec![server(0)])
}

fn server_of_many(n: u16) -> ServerConf {
    let target = ServerLocation::Addresses(vec![Address::Inet(SocketAddr::from((
        [127, 1, (n >> 8) as u8, n as u8],
        80,
    )))]);
    ServerConf::new("many", target)
}

#[test]
fn all_addresses_of_a_name_change_together() {
    let now = Instant::now();
    let group = group(vec![named("backend.example"), server(0)]);
    group.set_addresses(0, &[Resolved::address(address(3)), Resolved::address(address(4))]);
    group.change_server(0, &down(true)).unwrap();
    assert_eq!(chosen(&group, 2, now), [0, 0]);
    // And those that are found later.
    group.set_addresses(0, &[Resolved::address(address(4)), Resolved::address(address(5))]);
    assert_eq!(chosen(&group, 2, now), [0, 0]);
    group.remove_server(0).unwrap();
    assert_eq!(group.servers().len(), 1);
    // A late result is for nobody.
    group.set_addresses(0, &[Resolved::address(address(6))]);
    assert_eq!(group.peers().len(), 1);
}

/// The request that began when there was only the server that is gone now.
#[test]
fn a_request_goes_on_with_the_servers_of_now() {
    let now = Instant::now();
    let group = group(vec![server(0)]);
    let mut attempt = group.begin(BalanceInput::default());
    let NextPeer::Peer(first) = attempt.next(now) else { panic!("there is one") };
    group.add_server(server(1)).unwrap();
    group.remove_server(0).unwrap();
    // An idle connection of the removed server was closed.
    drop(first);
    attempt.add_try();
    let NextPeer::Peer(second) = attempt.next(now) else { panic!("there is another one") };
    assert_eq!(second.name(), "127.0.0.1:8081");
    assert_eq!(attempt.tries_left(), 0);
}

#[test]
fn changes_wake_those_who_watch() {
    let group = group(vec![server(0)]);
    let mut cx = Context::from_waker(Waker::noop());
    let version = group.version();
    let mut changed = pin!(group.changed(version));
    assert_eq!(changed.as_mut().poll(&mut cx), Poll::Pending);
    group.add_server(server(1)).unwrap();
    assert_eq!(changed.as_mut().poll(&mut cx), Poll::Ready(()));
}

fn with_state(text: &[u8], servers: Vec<ServerConf>) -> Arc<Group> {
    let state = StateFile { path: b"/state".to_vec(), text: text.into() };
    Group::new(GroupConf { state: Some(state), ..conf(servers) })
}

fn names(group: &Group) -> Vec<String> {
    group.servers().into_iter().map(|server| server.server).collect()
}

#[test]
fn servers_are_handed_on_with_a_state_file() {
    let now = Instant::now();
    let old = with_state(b"# by hand\nserver 127.0.0.1:8080;", vec![server(0)]);
    old.add_server(server(1)).unwrap();
    chosen(&old, 2, now);
    old.remove_server(0).unwrap();
    assert_eq!(old.state_text(), b"server 127.0.0.1:8081;\n");
    // Each text of before: the file may not have been written yet.
    for (text, servers) in [
        (&b"# by hand\nserver 127.0.0.1:8080;"[..], vec![server(0)]),
        (b"server 127.0.0.1:8080;\n", vec![server(0)]),
        (b"server 127.0.0.1:8081;\n", vec![server(1)]),
    ] {
        let new = with_state(text, servers);
        new.adopt(&old);
        assert_eq!(names(&new), ["127.0.0.1:8081"]);
        assert_eq!(new.servers()[0].id, 1);
        assert_eq!(new.peers()[0].stats().requests, 1);
    }
    // An operator's text wins.
    let new = with_state(b"server 127.0.0.1:8087;\n", vec![server(7)]);
    new.adopt(&old);
    assert_eq!(names(&new), ["127.0.0.1:8087"]);
    // Without the file, the configuration does.
    let new = group(vec![server(7)]);
    new.adopt(&old);
    assert_eq!(names(&new), ["127.0.0.1:8087"]);
}

/// A worker may still use the old generation when the servers have been handed on.
#[test]
fn a_change_of_the_old_generation_reaches_the_new_one() {
    let old = with_state(b"server 127.0.0.1:8080;\n", vec![server(0)]);
    let new = with_state(b"server 127.0.0.1:8080;\n", vec![server(0)]);
    new.adopt(&old);
    old.add_server(server(1)).unwrap();
    assert_eq!(names(&new), ["127.0.0.1:8080", "127.0.0.1:8081"]);
    assert_eq!(old.state_text(), new.state_text());
    assert_eq!(names(&old).len(), 1);
    // It was not put to use after all.
    drop(new);
    old.add_server(server(1)).unwrap();
    assert_eq!(names(&old).len(), 2);
}

#[test]
fn statistics_begin_anew() {
    let now = Instant::now();
    let group = group(vec![server(0)]);
    chosen(&group, 2, now);
    let held = match group.begin(BalanceInput::default()).next(now) {
        NextPeer::Peer(peer) => peer,
        other => panic!("{other:?}"),
    };
    group.reset_statistics();
    let stats = group.peers()[0].stats();
    assert_eq!((stats.requests, stats.active), (0, 1));
    drop(held);
    assert_eq!(group.peers()[0].availability(now), Availability::Up);
}

/// A request of the previous generation does not take a peer from the next one, which has its state.
#[test]
fn a_reload_without_state_ends_changes() {
    let now = Instant::now();
    let old = group(vec![server(0), server(1)]);
    let new = group(vec![server(0), server(1)]);
    new.adopt(&old);
    assert_eq!(old.remove_server(0).unwrap_err(), ChangeError::Reloaded);
    let mut ports = chosen(&new, 2, now);
    ports.sort_unstable();
    assert_eq!(ports, [0, 1]);
    // The reload has failed after all.
    drop(new);
    old.remove_server(0).unwrap();
}

#[test]
fn one_of_two_equal_servers_is_removed() {
    let now = Instant::now();
    let old = group(vec![server(0), server(0)]);
    let new = group(vec![server(0), server(0)]);
    new.adopt(&old);
    new.remove_server(1).unwrap();
    assert_eq!(chosen(&new, 1, now), [0]);
}

/// A session keeps its generation, and learns of later changes.
#[test]
fn removal_is_noticed_after_a_reload() {
    let now = Instant::now();
    let file = StateFile { path: b"/state".to_vec(), text: Arc::default() };
    let with_file = || Group::new(GroupConf { state: Some(file.clone()), ..conf(Vec::new()) });
    let (old, new) = (with_file(), with_file());
    old.add_server(server(0)).unwrap();
    let NextPeer::Peer(peer) = old.begin(BalanceInput::default()).next(now) else {
        panic!("a peer")
    };
    let mut removed = pin!(peer.removed());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(removed.as_mut().poll(&mut cx).is_pending());
    new.adopt(&old);
    assert!(removed.as_mut().poll(&mut cx).is_pending());
    new.remove_server(0).unwrap();
    assert!(woken.0.load(Ordering::Relaxed));
    assert!(removed.as_mut().poll(&mut cx).is_ready());
    peer.succeeded(now, None);
}

/// A request may take longer than the generation after its own lasts.
#[test]
fn changes_reach_the_newest_generation() {
    let file = StateFile { path: b"/state".to_vec(), text: Arc::default() };
    let with_file = || Group::new(GroupConf { state: Some(file.clone()), ..conf(Vec::new()) });
    let (first, second, third) = (with_file(), with_file(), with_file());
    second.adopt(&first);
    third.adopt(&second);
    drop(second);
    first.add_server(server(0)).unwrap();
    assert_eq!(third.servers().len(), 1);
    assert_eq!(first.state_text(), third.state_text());
    // A reload that fails leaves them to the one before.
    let failed = with_file();
    failed.adopt(&third);
    drop(failed);
    first.add_server(server(1)).unwrap();
    assert_eq!(third.servers().len(), 2);
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
