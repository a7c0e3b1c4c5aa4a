//! Data sent before a connection is closed, and workers that end meanwhile.

use std::cell::Cell;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::sleep;
use nowait_runtime::worker::{self, WorkerConfig, WorkerEnd, Workers};
use nowait_testkit::wait::{PATIENCE, until};

const LONG: Duration = Duration::from_secs(30);

/// Bytes sent before a close: fewer than the driver reports as sent at once.
const LAST: usize = 8 * 1024;

fn drivers() -> Vec<DriverKind> {
    let (kind, why) = driver::choose(Requested::IoUring);
    if kind == DriverKind::IoUring {
        return vec![DriverKind::Epoll, DriverKind::IoUring];
    }
    eprintln!("io_uring is not tested here: {why}");
    vec![DriverKind::Epoll]
}

/// Runs a future as the root task of a worker; a panic in it fails the test.
fn run<F: Future<Output = ()> + 'static>(kind: DriverKind, main: F) -> WorkerEnd {
    let passed = Rc::new(Cell::new(false));
    let set = passed.clone();
    let end = worker::run(WorkerConfig::new(0, kind), &Workers::new(1).unwrap(), |_| async move {
        main.await;
        set.set(true);
    });
    assert!(passed.get(), "the root task has panicked on {kind}");
    end.unwrap()
}

fn options() -> SendOptions {
    SendOptions::new(LONG)
}

fn last() -> bytes::Bytes {
    bytes::Bytes::from_static(&[b'l'; LAST])
}

/// A connection whose kernel buffers are full until the peer reads: (server's end, peer, bytes in
/// transit).
fn full() -> (OwnedFd, UnixStream, usize) {
    let (mut server, peer) = UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&server, 4096).unwrap();
    server.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(count) = server.write(&[b'f'; 512]) {
        sent += count;
    }
    (server.into(), peer, sent)
}

/// Polls once.
fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Waits until the loop has polled its driver at least once.
async fn a_turn() {
    sleep(Duration::from_millis(1)).await;
}

/// Number of bytes waiting at the peer.
fn waiting(peer: &UnixStream) -> usize {
    rustix::io::ioctl_fionread(peer).unwrap() as usize
}

#[test]
fn a_worker_ends_when_all_has_been_sent() {
    for kind in drivers() {
        let (server, mut peer, before) = full();
        let workers = Workers::new(1).unwrap();
        let remote = workers.remote(0);
        let (closed, is_closed) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            worker::run(WorkerConfig::new(0, kind), &workers, |_| async move {
                let stream = Stream::from_fd(server).unwrap();
                // Epoll waits for the peer here; the ring accepts the bytes.
                if kind == DriverKind::Epoll {
                    closed.send(()).unwrap();
                }
                stream.send(last(), options()).await.unwrap();
                drop(stream);
                let _ = closed.send(());
            })
            .unwrap()
        });
        is_closed.recv().unwrap();
        until("the worker to wait or to end", PATIENCE, || {
            (remote.is_waiting() || thread.is_finished()).then_some(())
        });
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), before + LAST, "{kind}");
        assert_eq!(thread.join().unwrap(), WorkerEnd::Graceful);
    }
}

#[test]
fn a_killed_worker_waits_for_nobody() {
    for kind in drivers() {
        let (server, peer, _) = full();
        let end = worker::run(
            WorkerConfig::new(0, kind),
            &Workers::new(1).unwrap(),
            |remote| async move {
                let stream = Stream::from_fd(server).unwrap();
                let _ = now_or_never(stream.send(last(), options()));
                drop(stream);
                remote.kill();
            },
        );
        assert_eq!(end.unwrap(), WorkerEnd::Killed);
        drop(peer);
    }
}

/// Otherwise `send_timeout` would not apply to the end of a response, and the response would count
/// as complete while its client has yet to receive it.
#[test]
fn the_end_of_what_a_slow_peer_reads_is_waited_for() {
    // The capacity of a socket, and a bit more.
    let (mut like, _peer) = UnixStream::pair().unwrap();
    like.set_nonblocking(true).unwrap();
    let total = like.write(&[0; 1024 * 1024]).unwrap() + LAST;
    for kind in drivers() {
        let (server, mut peer) = UnixStream::pair().unwrap();
        let end = run(kind, async move {
            let stream = Stream::from_fd(server.into()).unwrap();
            let mut send = pin!(stream.send(bytes::Bytes::from(vec![0; total]), options()));
            let mut read = 0;
            let mut piece = [0; 4096];
            std::future::poll_fn(|cx| {
                if send.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                let count = piece.len().min(waiting(&peer));
                peer.read_exact(&mut piece[..count]).unwrap();
                read += count;
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            assert_eq!(read + waiting(&peer), total, "{kind}");
        });
        assert_eq!(end, WorkerEnd::Graceful);
    }
}

#[test]
fn a_closed_connection_counts_until_all_has_been_sent() {
    for kind in drivers() {
        let (server, mut peer, _) = full();
        let end = run(kind, async move {
            let stream = Stream::from_fd(server).unwrap();
            let reported = now_or_never(stream.send(last(), options())).is_some();
            drop(stream);
            a_turn().await;
            assert_eq!(worker::connections(), usize::from(reported), "{kind}");
            let mut piece = [0; 4096];
            while worker::connections() > 0 {
                let count = piece.len().min(waiting(&peer));
                peer.read_exact(&mut piece[..count]).unwrap();
                a_turn().await;
            }
        });
        assert_eq!(end, WorkerEnd::Graceful);
    }
}

#[test]
fn few_closed_connections_are_still_sending() {
    for kind in drivers() {
        let end = run(kind, async move {
            let mut peers = Vec::new();
            let mut reported = 0;
            for _ in 0..200 {
                let (server, peer, _) = full();
                let stream = Stream::from_fd(server).unwrap();
                reported += i32::from(now_or_never(stream.send(last(), options())).is_some());
                peers.push(peer);
                drop(stream);
                a_turn().await;
            }
            // The other connections would wait and stay open.
            assert!(reported <= 64, "{kind}: {reported}");
            drop(peers);
        });
        assert_eq!(end, WorkerEnd::Graceful);
    }
}
