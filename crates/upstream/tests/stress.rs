//! Workers that put connections back, take them from each other, and origins that close them at any
//! time: no answer is another request's, and nothing is left behind.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::worker::{self, WorkerConfig, WorkerEnd, Workers};
use nowait_runtime::{now, spawn};
use nowait_upstream::{
    BalanceInput, Group, GroupConf, IdleConnection, Keepalive, NextPeer, ServerConf,
    ServerLocation, Tag,
};

const LONG: Duration = Duration::from_secs(30);
const WORKERS: usize = 2;
const TASKS: u64 = 8;
const REQUESTS: u64 = 100;

/// Answers each question of eight bytes with the same bytes, and closes connections after some
/// answers.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let Ok(stream) = stream else { return };
            std::thread::spawn(move || answer(stream, 1 + n % 7));
        }
    });
    address
}

fn answer(mut stream: TcpStream, answers: usize) {
    let mut bytes = [0; 8];
    for _ in 0..answers {
        if stream.read_exact(&mut bytes).is_err() || stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// One question; `None`: the connection was closed first.
async fn ask(connection: &IdleConnection, number: u64) -> Option<u64> {
    let question = bytes::Bytes::copy_from_slice(&number.to_be_bytes());
    connection.stream.send(question, SendOptions::new(LONG)).await.ok()?;
    let mut answer = Vec::new();
    while answer.len() < 8 {
        let received = connection.stream.recv(LONG).await.ok()?;
        if received.is_empty() {
            return None;
        }
        answer.extend_from_slice(&received);
    }
    Some(u64::from_be_bytes(answer.try_into().ok()?))
}

/// Asks until there is an answer.
async fn request(group: &Arc<Group>, number: u64) {
    loop {
        let NextPeer::Peer(peer) = group.begin(BalanceInput::default()).next(now()) else {
            panic!("the only peer is always there");
        };
        let connection = match peer.idle_take_any(Tag::default()).await {
            Some(connection) => connection,
            None => {
                let stream = Stream::connect(peer.address(), LONG).await.unwrap();
                IdleConnection::new(stream, now())
            }
        };
        let reused = connection.requests > 1;
        match ask(&connection, number).await {
            Some(answer) => {
                assert_eq!(answer, number, "an answer to another question");
                peer.idle_put(connection, Tag::default());
                return peer.succeeded(now(), None);
            }
            None => assert!(reused, "a new connection answers at least once"),
        }
    }
}

fn on(kind: DriverKind) {
    let address = origin();
    let servers = vec![ServerConf::new("peer", ServerLocation::Addresses(vec![address.into()]))];
    let keepalive = Keepalive { connections: 4, local: false, ..Keepalive::default() };
    let group = Group::new(GroupConf { keepalive, ..GroupConf::of_servers("u", servers) });
    let workers = Workers::new(WORKERS).unwrap();
    let left = Arc::new(AtomicUsize::new(WORKERS));
    let threads: Vec<_> = (0..WORKERS)
        .map(|n| {
            let (all, group, left) = (workers.clone(), group.clone(), left.clone());
            std::thread::spawn(move || {
                let stop = all.clone();
                let main = |_| async move {
                    let task = |task: u64| {
                        let group = group.clone();
                        spawn(async move {
                            for number in 0..REQUESTS {
                                request(&group, (n as u64) << 32 | task << 16 | number).await;
                            }
                        })
                    };
                    let tasks: Vec<_> = (0..TASKS).map(task).collect();
                    for task in tasks {
                        task.await.expect("it does not panic");
                    }
                    // A task that is done goes on giving connections to the others.
                    if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                        (0..WORKERS).for_each(|n| stop.remote(n).stop());
                    }
                    worker::stopping().await;
                };
                worker::run(WorkerConfig::new(n, kind), &all, main)
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap().unwrap(), WorkerEnd::Graceful);
    }
    let stats = group.stats()[0].1.clone();
    assert_eq!((stats.active, stats.idle), (0, 0));
    assert!(stats.requests >= WORKERS as u64 * TASKS * REQUESTS);
}

#[test]
fn connections_go_from_hand_to_hand() {
    on(DriverKind::Epoll);
    match driver::choose(Requested::IoUring) {
        (DriverKind::IoUring, _) => on(DriverKind::IoUring),
        (_, why) => eprintln!("io_uring is not tested here: {why}"),
    }
}
