//! The same tests on every driver that this machine has.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{Address, Listener, ListenerOptions, SendOptions, Stream};
use nowait_runtime::worker::{self, End, WorkerConfig, Workers};

const LONG: Duration = Duration::from_secs(30);

fn drivers() -> Vec<DriverKind> {
    let (kind, why) = driver::choose(Requested::IoUring);
    if kind == DriverKind::IoUring {
        return vec![DriverKind::Epoll, DriverKind::IoUring];
    }
    eprintln!("io_uring is not tested here: {why}");
    vec![DriverKind::Epoll]
}

/// Runs a future as the root task of a worker, on each driver.
fn on_each<F: Future<Output = ()> + 'static>(test: impl Fn(DriverKind) -> F) {
    for kind in drivers() {
        eprintln!("on {kind}");
        let passed = Rc::new(RefCell::new(false));
        let set = passed.clone();
        let body = test(kind);
        let end =
            worker::run(WorkerConfig::new(0, kind), &Workers::new(1).unwrap(), |_| async move {
                body.await;
                *set.borrow_mut() = true;
            });
        assert_eq!(end.unwrap(), End::Graceful);
        assert!(*passed.borrow(), "the root task panicked on {kind}");
    }
}

fn listen() -> (Listener, Address) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Inet(socket.local_addr().unwrap());
    let options = ListenerOptions { id: 7, shared: true };
    (Listener::from_fd(socket.into(), options).unwrap(), address)
}

/// A connection: (client's end, server's end).
async fn pair() -> (Stream, Stream) {
    let (listener, address) = listen();
    let client = Stream::connect(&address, LONG).await.unwrap();
    let accepted = listener.accept().await.unwrap();
    assert_eq!(accepted.peer, client.local_addr().unwrap());
    (client, accepted.stream)
}

fn options() -> SendOptions {
    SendOptions::new(LONG)
}

async fn recv_exactly(stream: &Stream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let buf = stream.recv(LONG).await.unwrap();
        assert!(!buf.is_empty(), "ended after {} of {len} bytes", all.len());
        all.extend_from_slice(&buf);
    }
    all
}

#[test]
fn echo_many_times() {
    on_each(|_| async {
        let (client, server) = pair().await;
        let echo = nowait_runtime::spawn(async move {
            loop {
                let buf = server.recv(LONG).await.unwrap();
                if buf.is_empty() {
                    return server.bytes_received();
                }
                server.send(buf, options()).await.unwrap();
            }
        });
        let mut total = 0;
        for round in 0..1000u32 {
            let text = round.to_string().into_bytes();
            total += text.len() as u64;
            client.send(bytes::Bytes::from(text.clone()), options()).await.unwrap();
            assert_eq!(recv_exactly(&client, text.len()).await, text);
        }
        drop(client);
        assert_eq!(echo.await.unwrap(), total);
    });
}

#[test]
fn receive_times_out_and_goes_on() {
    on_each(|_| async {
        let (client, server) = pair().await;
        let before = nowait_runtime::now();
        let timeout = Duration::from_millis(20);
        let error = server.recv(timeout).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(nowait_runtime::now() - before >= timeout);
        client.send(&b"late"[..], options()).await.unwrap();
        assert_eq!(recv_exactly(&server, 4).await, b"late");
    });
}
