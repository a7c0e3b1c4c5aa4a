//! Idle connections and the queue, on every driver that this machine has.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use nowait_conf::Msec;
use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{Address, Listener, ListenerOptions, SendOptions, Stream};
use nowait_runtime::worker::{self, LocalFuture, WorkerConfig, WorkerEnd, Workers};
use nowait_runtime::{now, sleep, spawn, yield_now};
use nowait_upstream::conf::QueueConf;
use nowait_upstream::{
    BalanceInput, Group, GroupConf, IdleConnection, Keepalive, NextPeer, QueueError, SelectedPeer,
    ServerConf, ServerLocation, Tag,
};

const LONG: Duration = Duration::from_secs(30);

fn drivers() -> Vec<DriverKind> {
    let (kind, why) = driver::choose(Requested::IoUring);
    if kind == DriverKind::IoUring {
        return vec![DriverKind::Epoll, DriverKind::IoUring];
    }
    eprintln!("io_uring is not tested here: {why}");
    vec![DriverKind::Epoll]
}

/// Runs a future as the root task of a worker, on each driver. The worker has to end: idle
/// connections do not keep it.
fn on_each<F: Future<Output = ()> + 'static>(test: impl Fn() -> F) {
    for kind in drivers() {
        let passed = Arc::new(AtomicBool::new(false));
        let set = passed.clone();
        let body = test();
        let end = worker::run(
            WorkerConfig::new(0, kind),
            &Workers::new(1).unwrap(),
            |remote| async move {
                body.await;
                set.store(true, Ordering::Relaxed);
                remote.stop();
            },
        );
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        assert!(passed.load(Ordering::Relaxed), "the root task panicked on {kind}");
    }
}

/// The server's side of a group with one peer.
struct PeerOrigin {
    listener: Listener,
    address: Address,
}

impl PeerOrigin {
    fn new() -> PeerOrigin {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Inet(socket.local_addr().unwrap());
        let options = ListenerOptions { id: 1, shared: true };
        PeerOrigin { listener: Listener::from_fd(socket.into(), options).unwrap(), address }
    }

    fn group(&self, keepalive: Keepalive) -> Arc<Group> {
        let target = ServerLocation::Addresses(vec![self.address.clone()]);
        let servers = vec![ServerConf::new("peer", target)];
        Group::new(GroupConf { keepalive, ..GroupConf::of_servers("u", servers) })
    }

    /// A new connection: (the peer that is asked, our end, the origin's end).
    async fn connect(&self, group: &Arc<Group>) -> (SelectedPeer, Box<IdleConnection>, Stream) {
        let picked = pick(group);
        let stream = Stream::connect(picked.address(), LONG).await.unwrap();
        let accepted = self.listener.accept().await.unwrap();
        (picked, IdleConnection::new(stream, now()), accepted.stream)
    }
}

fn pick(group: &Arc<Group>) -> SelectedPeer {
    match group.begin(BalanceInput::default()).next(now()) {
        NextPeer::Peer(peer) => peer,
        other => panic!("{other:?}"),
    }
}

fn shared() -> Keepalive {
    Keepalive { local: false, ..Keepalive::default() }
}

fn idle(group: &Group) -> u32 {
    group.stats()[0].1.idle
}

/// Waits until so many connections are idle.
async fn until_idle(group: &Group, count: u32) {
    while idle(group) != count {
        yield_now().await;
        sleep(Duration::from_millis(1)).await;
    }
}

/// One exchange of bytes.
async fn ping(client: &Stream, server: &Stream) {
    let options = SendOptions::new(LONG);
    client.send(&b"question"[..], options).await.unwrap();
    assert_eq!(&server.recv(LONG).await.unwrap()[..], b"question");
    server.send(&b"answer"[..], options).await.unwrap();
    assert_eq!(&client.recv(LONG).await.unwrap()[..], b"answer");
}

#[test]
fn the_newest_connection_is_used_first() {
    on_each(|| async {
        let origin = PeerOrigin::new();
        let group = origin.group(shared());
        let tag = Tag::default();
        let (first, one, _one) = origin.connect(&group).await;
        let (second, two, two_end) = origin.connect(&group).await;
        let port = two.stream.local_addr().unwrap();
        first.idle_put(one, tag);
        second.idle_put(two, tag);
        assert_eq!(idle(&group), 2);
        let taken = first.idle_take(tag).unwrap();
        assert_eq!(taken.stream.local_addr().unwrap(), port);
        assert_eq!(taken.requests, 2);
        ping(&taken.stream, &two_end).await;
        // It may lie idle again.
        second.idle_put(taken, tag);
        yield_now().await;
        let taken = second.idle_take(tag).unwrap();
        ping(&taken.stream, &two_end).await;
        assert_eq!((taken.requests, idle(&group)), (3, 1));
    });
}

#[test]
fn what_the_peer_closes_is_gone() {
    on_each(|| async {
        let origin = PeerOrigin::new();
        let group = origin.group(shared());
        let (picked, ours, theirs) = origin.connect(&group).await;
        picked.idle_put(ours, Tag::default());
        let (picked, ours, talkative) = origin.connect(&group).await;
        picked.idle_put(ours, Tag::default());
        assert_eq!(idle(&group), 2);
        drop(theirs);
        until_idle(&group, 1).await;
        // So is one that says something unasked.
        talkative.send(&b"HTTP/1.1 408"[..], SendOptions::new(LONG)).await.unwrap();
        until_idle(&group, 0).await;
        assert!(picked.idle_take(Tag::default()).is_none());
    });
}

#[test]
fn the_oldest_makes_room() {
    on_each(|| async {
        let origin = PeerOrigin::new();
        let group = origin.group(Keepalive { connections: 2, ..shared() });
        let mut ends = Vec::new();
        for _ in 0..3 {
            let (picked, ours, theirs) = origin.connect(&group).await;
            picked.idle_put(ours, Tag::default());
            ends.push(theirs);
            // Times are those of the turn.
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(idle(&group), 2);
        assert!(ends[0].recv(LONG).await.unwrap().is_empty());
    });
}

#[test]
fn idle_time_is_limited() {
    on_each(|| async {
        let origin = PeerOrigin::new();
        let timeout = Duration::from_millis(20);
        let group = origin.group(Keepalive { timeout, ..shared() });
        let (picked, ours, theirs) = origin.connect(&group).await;
        picked.idle_put(ours, Tag::default());
        assert!(theirs.recv(LONG).await.unwrap().is_empty());
        assert_eq!(idle(&group), 0);
    });
}

#[test]
fn connections_are_not_kept_for_ever() {
    on_each(|| async {
        let origin = PeerOrigin::new();
        for keepalive in [
            Keepalive { connections: 0, ..shared() },
            Keepalive { requests: 1, ..shared() },
            Keepalive { time: Duration::ZERO, ..shared() },
        ] {
            let group = origin.group(keepalive);
            let (picked, ours, theirs) = origin.connect(&group).await;
            sleep(Duration::from_millis(2)).await;
            picked.idle_put(ours, Tag::default());
            assert_eq!(idle(&group), 0);
            assert!(theirs.recv(LONG).await.unwrap().is_empty());
        }
    });
}

#[test]
fn tags_keep_apart_what_differs() {
    on_each(|| async {
        let origin = PeerOrigin::new();
        let tag = Tag { kind: 1, owner: 1 };
        let group = origin.group(shared());
        let (picked, ours, _theirs) = origin.connect(&group).await;
        picked.idle_put(ours, tag);
        assert!(picked.idle_take(Tag { kind: 2, owner: 1 }).is_none());
        let taken = picked.idle_take(Tag { kind: 1, owner: 2 }).unwrap();
        drop(taken);
        let local = origin.group(Keepalive::default());
        let (picked, ours, _theirs) = origin.connect(&local).await;
        picked.idle_put(ours, tag);
        assert!(picked.idle_take(Tag { kind: 1, owner: 2 }).is_none());
        assert!(picked.idle_take(tag).is_some());
    });
}

#[test]
fn they_end_with_the_group_but_not_with_a_generation() {
    on_each(|| async {
        let origin = PeerOrigin::new();
        let old = origin.group(shared());
        let (picked, ours, theirs) = origin.connect(&old).await;
        picked.idle_put(ours, Tag::default());
        drop(picked);
        let new = origin.group(shared());
        new.adopt(&old);
        drop(old);
        yield_now().await;
        let picked = pick(&new);
        let taken = picked.idle_take(Tag::default()).unwrap();
        ping(&taken.stream, &theirs).await;
        picked.idle_put(taken, Tag::default());
        drop((picked, new));
        assert!(theirs.recv(LONG).await.unwrap().is_empty());
    });
}

/// Runs a future on a worker of another thread and waits for it.
fn on(remote: &nowait_runtime::Remote, future: impl FnOnce() -> LocalFuture + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let build = Box::new(move || -> LocalFuture {
        let future = future();
        Box::pin(async move {
            future.await;
            done.send(()).unwrap();
        })
    });
    remote.spawn(build).unwrap();
    wait.recv_timeout(LONG).expect("the task ends without a panic");
}

#[test]
fn another_worker_gives_a_connection_away() {
    for kind in drivers() {
        let workers = Workers::new(2).unwrap();
        let threads: Vec<_> = (0..2)
            .map(|n| {
                let workers = workers.clone();
                std::thread::spawn(move || {
                    worker::run(WorkerConfig::new(n, kind), &workers, |_| worker::stopping())
                })
            })
            .collect();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = socket.local_addr().unwrap();
        let servers =
            vec![ServerConf::new("peer", ServerLocation::Addresses(vec![address.into()]))];
        let conf = GroupConf { keepalive: shared(), ..GroupConf::of_servers("u", servers) };
        let group = Group::new(conf);
        // The origin is a thread: it answers each question on any connection.
        let origin = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = socket.accept().unwrap();
            let mut bytes = [0; 8];
            let mut answered = 0;
            while stream.read_exact(&mut bytes).is_ok() {
                stream.write_all(b"answer").unwrap();
                answered += 1;
            }
            answered
        });
        let ask = |stream: std::rc::Rc<Stream>| async move {
            stream.send(&b"question"[..], SendOptions::new(LONG)).await.unwrap();
            assert_eq!(&stream.recv(LONG).await.unwrap()[..], b"answer");
        };
        let first = group.clone();
        on(&workers.remote(0), move || {
            Box::pin(async move {
                let picked = pick(&first);
                let stream = Stream::connect(picked.address(), LONG).await.unwrap();
                let connection = IdleConnection::new(stream, now());
                ask(connection.stream.clone()).await;
                picked.idle_put(connection, Tag::default());
            })
        });
        assert_eq!(idle(&group), 1);
        for n in [1, 0, 1] {
            let group = group.clone();
            on(&workers.remote(n), move || {
                Box::pin(async move {
                    let picked = pick(&group);
                    assert!(picked.idle_take(Tag::default()).is_none());
                    assert!(picked.idle_take_any(Tag { kind: 1, owner: 0 }).await.is_none());
                    let mut taken = picked.idle_take_any(Tag::default()).await;
                    // A worker that is slow to answer is given up; asked again it has not moved.
                    while taken.is_none() && idle(&group) > 0 {
                        taken = picked.idle_take_any(Tag::default()).await;
                    }
                    let Some(taken) = taken else { return };
                    ask(taken.stream.clone()).await;
                    picked.idle_put(taken, Tag::default());
                })
            });
        }
        workers.remote(0).stop();
        workers.remote(1).stop();
        for thread in threads {
            assert_eq!(thread.join().unwrap().unwrap(), WorkerEnd::Graceful);
        }
        assert_eq!(origin.join().unwrap(), 4);
    }
}

fn queued(length: usize, timeout_ms: u64) -> Arc<Group> {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let target = ServerLocation::Addresses(vec![address.into()]);
    let servers = vec![ServerConf { max_conns: 1, ..ServerConf::new("peer", target) }];
    let queue = Some(QueueConf { length, timeout: Msec(timeout_ms) });
    Group::new(GroupConf { queue, ..GroupConf::of_servers("u", servers) })
}

#[test]
fn whoever_polled_last_is_woken() {
    on_each(|| async {
        let group = queued(1, 30_000);
        let holder = pick(&group);
        let mut attempt = group.begin(BalanceInput::default());
        assert!(matches!(attempt.next(now()), NextPeer::Busy));
        let mut queue = pin!(attempt.queue(now()));
        // Polled once, to learn whether it has to wait.
        let polled = queue.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        let frees = spawn(async move {
            yield_now().await;
            drop(holder);
        });
        queue.await.unwrap();
        frees.await.unwrap();
    });
}

#[test]
fn who_waits_gets_the_peer_in_turn() {
    on_each(|| async {
        let group = queued(2, 30_000);
        let holder = pick(&group);
        let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..2)
            .map(|n| {
                let (group, order) = (group.clone(), order.clone());
                spawn(async move {
                    let mut attempt = group.begin(BalanceInput::default());
                    assert!(matches!(attempt.next(now()), NextPeer::Busy));
                    let picked = attempt.queue(now()).await.unwrap();
                    order.borrow_mut().push(n);
                    sleep(Duration::from_millis(1)).await;
                    drop(picked);
                })
            })
            .collect();
        while group.queued().0 < 2 {
            yield_now().await;
        }
        // There is no room for a third one, and nothing gets ahead of them.
        let mut third = group.begin(BalanceInput::default());
        assert!(matches!(third.next(now()), NextPeer::NoLive));
        assert_eq!(group.queued().1, 1);
        drop(holder);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [0, 1]);
        assert_eq!(group.queued().0, 0);
    });
}

#[test]
fn waiting_is_limited() {
    on_each(|| async {
        let group = queued(2, 20);
        let _holder = pick(&group);
        let mut attempt = group.begin(BalanceInput::default());
        assert!(matches!(attempt.next(now()), NextPeer::Busy));
        assert_eq!(attempt.queue(now()).await.unwrap_err(), QueueError::TimedOut);
        assert_eq!(group.queued().0, 0);
    });
}

/// A group of servers, of which those in `full` may have one connection.
fn queued_servers(full: &[u16], backup: &[u16]) -> Arc<Group> {
    let server = |n: u16| {
        let address = SocketAddr::from(([127, 0, 0, 1], n));
        let conf = ServerConf::new(n.to_string(), ServerLocation::Addresses(vec![address.into()]));
        let max_conns = u32::from(full.contains(&n));
        ServerConf { max_conns, max_fails: 0, backup: backup.contains(&n), ..conf }
    };
    let queue = Some(QueueConf { length: 2, timeout: Msec(30_000) });
    Group::new(GroupConf { queue, ..GroupConf::of_servers("u", vec![server(1), server(2)]) })
}

/// Takes the only connection that a server may have.
fn occupy(group: &Arc<Group>, name: &str) -> SelectedPeer {
    let mut attempt = group.begin(BalanceInput::default());
    while let NextPeer::Peer(peer) = attempt.next(now()) {
        if peer.name() == name {
            return peer;
        }
    }
    panic!("{name} can't be had");
}

/// A request that has failed on one server waits for another one, not for the same, no matter what the order in
/// which it has seen them.
#[test]
fn who_waits_is_not_sent_to_the_same_server_twice() {
    on_each(|| async {
        let group = queued_servers(&[2], &[]);
        let holder = occupy(&group, "127.0.0.1:2");
        let mut attempt = group.begin(BalanceInput::default());
        let NextPeer::Peer(first) = attempt.next(now()) else { panic!("one is there") };
        assert_eq!(first.name(), "127.0.0.1:1");
        first.failed(now());
        assert!(matches!(attempt.next(now()), NextPeer::Busy));
        assert_eq!(attempt.tries_left(), 1);
        let waits = spawn(async move { attempt.queue(now()).await.unwrap().name().to_owned() });
        while group.queued().0 < 1 {
            yield_now().await;
        }
        drop(holder);
        assert_eq!(waits.await.unwrap(), "127.0.0.1:2");
    });
}

/// What was tried among the backups is not taken for tried among the others.
#[test]
fn who_has_tried_a_backup_may_wait_for_the_others() {
    on_each(|| async {
        let group = queued_servers(&[1], &[2]);
        let holder = occupy(&group, "127.0.0.1:1");
        let mut attempt = group.begin(BalanceInput::default());
        let NextPeer::Peer(first) = attempt.next(now()) else { panic!("the backup is there") };
        assert_eq!(first.name(), "127.0.0.1:2");
        first.failed(now());
        assert!(matches!(attempt.next(now()), NextPeer::Busy));
        let waits = spawn(async move { attempt.queue(now()).await.unwrap().name().to_owned() });
        while group.queued().0 < 1 {
            yield_now().await;
        }
        drop(holder);
        assert_eq!(waits.await.unwrap(), "127.0.0.1:1");
    });
}

/// Where all were tried, and one may be asked still (an idle connection had ended), all count again.
#[test]
fn who_has_tried_all_may_ask_one_again() {
    on_each(|| async {
        let group = queued_servers(&[], &[]);
        let mut attempt = group.begin(BalanceInput::default());
        for _ in 0..2 {
            let NextPeer::Peer(peer) = attempt.next(now()) else { panic!("two are there") };
            drop(peer);
            attempt.add_try();
        }
        // Neither has acted on the request.
        assert_eq!(attempt.tries_left(), 2);
        for _ in 0..2 {
            assert!(matches!(attempt.next(now()), NextPeer::Peer(_)));
        }
        assert!(matches!(attempt.next(now()), NextPeer::Busy));
        attempt.queue(now()).await.unwrap();
        assert_eq!(attempt.tries_left(), 0);
    });
}
