//! Two connections joined, on every driver that this machine has.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::buf::Chain;
use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{
    Address, AfterEnd, Listener, ListenerOptions, Observer, RelayEnd, RelayOptions, SendOptions,
    Side, Sides, Stream, relay,
};
use nowait_runtime::sim::{self, NetworkFaults};
use nowait_runtime::worker::{self, WorkerConfig, WorkerEnd, Workers};
use nowait_runtime::{JoinHandle, now, spawn};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

fn on_each<F: Future<Output = ()> + 'static>(test: impl Fn() -> F) {
    let mut kinds = vec![DriverKind::Epoll];
    match driver::choose(Requested::IoUring) {
        (DriverKind::IoUring, _) => kinds.push(DriverKind::IoUring),
        (DriverKind::Epoll, why) => eprintln!("io_uring is not tested here: {why}"),
    }
    for kind in kinds {
        let passed = Rc::new(RefCell::new(false));
        let set = passed.clone();
        let body = test();
        let workers = Workers::new(1).unwrap();
        let end = worker::run(WorkerConfig::new(0, kind), &workers, |_| async move {
            body.await;
            *set.borrow_mut() = true;
        });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        assert!(*passed.borrow(), "the root task panicked on {kind}");
    }
}

/// A connection: (the far end, ours).
async fn pair() -> (Stream, Stream) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Inet(socket.local_addr().unwrap());
    let listener =
        Listener::from_fd(socket.into(), ListenerOptions { id: 7, shared: true }).unwrap();
    let far = Stream::connect(&address, LONG).await.unwrap();
    (far, listener.accept().await.unwrap().stream)
}

#[derive(Default)]
struct MessageLog(RefCell<Vec<String>>);

impl Observer for MessageLog {
    fn failed(&self, side: Side, call: &'static str, _error: &io::Error) {
        self.0.borrow_mut().push(format!("{call} {side:?}"));
    }
}

/// A running relay: the client, the upstream, and its end.
async fn joined(options: RelayOptions) -> (Stream, Stream, JoinHandle<(RelayEnd, Vec<String>)>) {
    joined_with(options, Sides::default()).await
}

async fn joined_with(
    options: RelayOptions,
    first: Sides<Chain>,
) -> (Stream, Stream, JoinHandle<(RelayEnd, Vec<String>)>) {
    let (client, ours) = pair().await;
    let (upstream, theirs) = pair().await;
    let end = between(ours, theirs, options, first);
    (client, upstream, end)
}

fn between(
    ours: Stream,
    theirs: Stream,
    options: RelayOptions,
    first: Sides<Chain>,
) -> JoinHandle<(RelayEnd, Vec<String>)> {
    spawn(async move {
        let log = MessageLog::default();
        let ends = Sides { client: (&ours).into(), upstream: (&theirs).into() };
        let end = relay(ends, first, &options, &log).await;
        (end, log.0.take())
    })
}

/// With a virtual clock that only advances while all tasks wait: for tests of timeouts.
fn simulated<F: Future<Output = ()> + 'static>(
    options: RelayOptions,
    test: impl FnOnce(Stream, Stream, JoinHandle<(RelayEnd, Vec<String>)>) -> F + 'static,
) {
    sim::run(1, NetworkFaults::fair(), move || async move {
        let ((client, ours), (upstream, theirs)) = (sim::pair(), sim::pair());
        let end = between(ours, theirs, options, Sides::default());
        test(client, upstream, end).await;
    });
}

async fn send(stream: &Stream, bytes: &'static [u8]) {
    stream.send(bytes, SendOptions::new(LONG)).await.unwrap();
}

/// Reads this many bytes.
async fn take(stream: &Stream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let piece = stream.recv(LONG).await.unwrap();
        assert!(!piece.is_empty(), "ended after {} of {len}", all.len());
        all.extend_from_slice(&piece);
    }
    all
}

async fn ended(stream: &Stream) -> bool {
    stream.recv(LONG).await.is_ok_and(|piece| piece.is_empty())
}

#[test]
fn both_directions_and_the_end_of_one() {
    on_each(|| async {
        let first =
            Sides { client: Chain::from(&b"hello "[..]), upstream: Chain::from(&b"head "[..]) };
        let options = RelayOptions::new(LONG, AfterEnd::Close);
        let (client, upstream, end) = joined_with(options, first).await;
        send(&client, b"question").await;
        assert_eq!(take(&upstream, 13).await, b"head question");
        send(&upstream, b"answer").await;
        assert_eq!(take(&client, 12).await, b"hello answer");
        // Data sent before the end is still delivered.
        send(&upstream, b"last").await;
        upstream.shutdown_write().unwrap();
        assert_eq!(take(&client, 4).await, b"last");
        assert!(ended(&client).await);
        assert_eq!(end.await.unwrap(), (RelayEnd::Closed(Side::Upstream), vec![]));
    });
}

#[test]
fn half_closed_connections_go_on() {
    on_each(|| async {
        let options = RelayOptions::new(LONG, AfterEnd::HalfClose);
        let (client, upstream, end) = joined(options).await;
        send(&client, b"question").await;
        client.shutdown_write().unwrap();
        assert_eq!(take(&upstream, 8).await, b"question");
        assert!(ended(&upstream).await);
        send(&upstream, b"answer").await;
        assert_eq!(take(&client, 6).await, b"answer");
        upstream.shutdown_write().unwrap();
        assert!(ended(&client).await);
        assert_eq!(end.await.unwrap().0, RelayEnd::Closed(Side::Upstream));
    });
}

#[test]
fn a_client_that_pauses_after_the_end_of_the_upstream_is_left() {
    on_each(|| async {
        let options = RelayOptions::new(LONG, AfterEnd::Linger(SHORT));
        let (client, upstream, end) = joined(options).await;
        upstream.shutdown_write().unwrap();
        assert!(ended(&client).await);
        assert_eq!(end.await.unwrap().0, RelayEnd::Closed(Side::Upstream));
        drop((client, upstream));
    });
}

#[test]
fn silence_ends_it() {
    let options = RelayOptions::new(SHORT, AfterEnd::Close);
    simulated(options, |client, upstream, end| async move {
        let began = now();
        assert_eq!(end.await.unwrap().0, RelayEnd::Idle);
        assert!(now() - began >= SHORT && now() - began < 2 * SHORT, "{:?}", now() - began);
        assert!(ended(&client).await);
        drop(upstream);
    });
}

#[test]
fn much_data_passes_a_slow_reader_in_bounded_memory() {
    const TOTAL: usize = 24 * 1024 * 1024;
    on_each(|| async {
        let options = RelayOptions::new(LONG, AfterEnd::Close);
        let (client, upstream, end) = joined(options).await;
        let sender = spawn(async move {
            let block: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
            let block = bytes::Bytes::from(block);
            for _ in 0..TOTAL / block.len() {
                upstream.send(block.clone(), SendOptions::new(LONG)).await.unwrap();
            }
        });
        let mut count = 0;
        loop {
            let piece = client.recv_large(LONG, 100_000).await.unwrap();
            if piece.is_empty() {
                break;
            }
            for (n, byte) in piece.iter().enumerate() {
                assert_eq!(usize::from(*byte), ((count + n) % (1 << 20)) % 251);
            }
            count += piece.len();
        }
        assert_eq!(count, TOTAL);
        sender.await.unwrap();
        assert_eq!(end.await.unwrap(), (RelayEnd::Closed(Side::Upstream), vec![]));
    });
}

#[test]
fn a_side_that_takes_nothing_is_noticed() {
    on_each(|| async {
        let mut options = RelayOptions::new(LONG, AfterEnd::Close);
        options.stuck.client = SHORT;
        let (_client, upstream, end) = joined(options).await;
        let sender = spawn(async move {
            let block = bytes::Bytes::from(vec![0; 64 << 20]);
            upstream.send(block, SendOptions::new(LONG)).await
        });
        assert_eq!(end.await.unwrap().0, RelayEnd::Stuck(Side::Client));
        // Its upstream is reset with data in transit.
        assert!(sender.await.unwrap().is_err());
    });
}

#[test]
fn a_rate_holds_up_one_direction() {
    let mut options = RelayOptions::new(SHORT, AfterEnd::Close);
    options.rate.upstream = 1000;
    simulated(options, |client, upstream, end| async move {
        let began = now();
        send(&upstream, &[b'x'; 1500]).await;
        upstream.shutdown_write().unwrap();
        // The first second's share arrives at once; `idle` is much shorter than the pause after it.
        take(&client, 1500).await;
        assert!(now() - began >= Duration::from_millis(900), "{:?}", now() - began);
        assert!(ended(&client).await);
        assert_eq!(end.await.unwrap().0, RelayEnd::Closed(Side::Upstream));
    });
}

#[test]
fn a_reset_is_told_and_is_an_end() {
    on_each(|| async {
        let options = RelayOptions::new(LONG, AfterEnd::Close);
        let (client, upstream, end) = joined(options).await;
        client.set_reset_on_close().unwrap();
        drop(client);
        assert!(ended(&upstream).await);
        assert_eq!(
            end.await.unwrap(),
            (RelayEnd::Closed(Side::Client), vec!["recv() Client".to_owned()])
        );
    });
}
