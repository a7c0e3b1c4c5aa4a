//! UDP sockets, on every driver that this machine has and on the simulated one.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{Datagram, DatagramTrains, NO_TIMEOUT, TrainSent};
use nowait_runtime::sim::{self, NetworkFaults};
use nowait_runtime::spawn;
use nowait_runtime::task::yield_now;
use nowait_runtime::worker::{self, WorkerConfig, Workers};
use nowait_sys::udp::{DatagramBatch, SendTrain};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(5);

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Runs the test on each driver; restricted as in production.
fn on_each_driver<F: Future<Output = ()> + 'static>(main: impl Fn() -> F) {
    let mut kinds = vec![DriverKind::Epoll];
    match driver::choose(Requested::IoUring) {
        (DriverKind::IoUring, _) => kinds.push(DriverKind::IoUring),
        (_, why) => eprintln!("io_uring is not tested here: {why}"),
    }
    for kind in kinds {
        let ran = Rc::new(Cell::new(false));
        let (main, end) = (main(), ran.clone());
        let config = WorkerConfig { guard: true, ..WorkerConfig::new(0, kind) };
        worker::run(config, &Workers::new(1).unwrap(), |_| async move {
            main.await;
            end.set(true);
        })
        .unwrap();
        assert!(ran.get(), "a panic on {kind}");
    }
    sim::run(1, NetworkFaults::fair(), main);
}

#[test]
fn datagrams_keep_their_borders_and_senders() {
    on_each_driver(|| async {
        let server = Datagram::bind(loopback()).unwrap();
        let address = server.local_addr().unwrap();
        assert_ne!(address.port(), 0);
        let client = Datagram::connect(address).unwrap();
        for data in [&b"one"[..], b"", b"three"] {
            client.send(data).await.unwrap();
        }
        for data in [&b"one"[..], b"", b"three"] {
            let (received, from) = server.recv_from(LONG).await.unwrap();
            assert_eq!(&received[..], data);
            assert_eq!(from.port(), client.local_addr().unwrap().port());
            server.send_to(&received, from).await.unwrap();
        }
        for data in [&b"one"[..], b"", b"three"] {
            assert_eq!(&client.recv(NO_TIMEOUT).await.unwrap()[..], data);
        }
    });
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    on_each_driver(|| async {
        let peer = Datagram::bind(loopback()).unwrap();
        let client = Datagram::connect(peer.local_addr().unwrap()).unwrap();
        let client_address = client.local_addr().unwrap();
        let stranger = Datagram::bind(loopback()).unwrap();
        stranger.send_to(b"false", client_address).await.unwrap();
        let received = client.recv(SHORT).await;
        assert_eq!(received.unwrap_err().kind(), io::ErrorKind::TimedOut);
        peer.send_to(b"true", client_address).await.unwrap();
        assert_eq!(&client.recv(LONG).await.unwrap()[..], b"true");
    });
}

#[test]
fn a_waiting_receive_is_woken_and_a_dropped_one_loses_nothing() {
    on_each_driver(|| async {
        let server = Datagram::bind(loopback()).unwrap();
        let address = server.local_addr().unwrap();
        // This receive waits, and is dropped.
        assert!(server.recv(SHORT).await.is_err());
        let waiting = spawn(async move { server.recv(LONG).await.unwrap().to_vec() });
        for _ in 0..3 {
            yield_now().await;
        }
        let client = Datagram::connect(address).unwrap();
        client.send(b"late").await.unwrap();
        assert_eq!(waiting.await.unwrap(), b"late");
    });
}

#[test]
fn ports_that_nobody_serves_and_addresses_in_use_are_errors() {
    let (kind, _) = driver::choose(Requested::Default);
    for kind in [DriverKind::Epoll, kind] {
        worker::run(WorkerConfig::new(0, kind), &Workers::new(1).unwrap(), |_| async {
            let socket = Datagram::bind(loopback()).unwrap();
            let address = socket.local_addr().unwrap();
            let in_use = Datagram::bind(address).unwrap_err();
            assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
            drop(socket);
            let client = Datagram::connect(address).unwrap();
            client.send(b"?").await.unwrap();
            let refused = client.recv(LONG).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        })
        .unwrap();
    }
}

#[test]
fn ipv6_works_where_there_is_one() {
    on_each_driver(|| async {
        let Ok(server) = Datagram::bind((Ipv6Addr::LOCALHOST, 0).into()) else { return };
        let client = Datagram::connect(server.local_addr().unwrap()).unwrap();
        client.send(b"six").await.unwrap();
        assert_eq!(&server.recv(LONG).await.unwrap()[..], b"six");
    });
}

#[test]
fn many_datagrams_at_once_are_all_received() {
    on_each_driver(|| async {
        let server = Datagram::bind(loopback()).unwrap();
        let client = Datagram::connect(server.local_addr().unwrap()).unwrap();
        for round in 0..10u8 {
            for number in 0..20u8 {
                client.send(&[round, number]).await.unwrap();
            }
            for number in 0..20 {
                assert_eq!(&server.recv(LONG).await.unwrap()[..], [round, number]);
            }
        }
    });
}

/// Sends numbers and counts how often each arrives.
fn arrivals(seed: u64, faults: NetworkFaults) -> Vec<u8> {
    sim::run(seed, faults, || async {
        let server = Datagram::bind(loopback()).unwrap();
        let client = Datagram::connect(server.local_addr().unwrap()).unwrap();
        for number in 0..100u8 {
            client.send(&[number]).await.unwrap();
        }
        let mut order = Vec::new();
        while let Ok(data) = server.recv(LONG).await {
            order.push(data[0]);
        }
        order
    })
}

#[test]
fn the_simulated_network_is_like_the_weather() {
    assert_eq!(arrivals(7, NetworkFaults::fair()), (0..100).collect::<Vec<u8>>());
    let mut rough = arrivals(7, NetworkFaults::rough());
    assert!(!rough.is_sorted());
    rough.sort_unstable();
    assert_eq!(rough, (0..100).collect::<Vec<u8>>());
    let stormy = arrivals(7, NetworkFaults::stormy());
    assert_eq!(stormy, arrivals(7, NetworkFaults::stormy()));
    let lost = (0..100u8).filter(|number| !stormy.contains(number)).count();
    let doubled = (0..100u8).filter(|n| stormy.iter().filter(|other| n == *other).count() == 2);
    assert!((1..40).contains(&lost) && doubled.count() > 0, "{lost}");
}

fn train(to: SocketAddr, segment: Option<u16>) -> SendTrain {
    SendTrain { to, local: None, ecn: 0, segment }
}

/// The lengths of this many datagrams.
async fn lengths(socket: &DatagramTrains, number: usize) -> Vec<usize> {
    let mut batch = DatagramBatch::default();
    let mut lengths = Vec::new();
    while lengths.len() < number {
        poll_fn(|cx| socket.poll_receive(&mut batch, cx)).await.unwrap();
        for train in batch.trains() {
            lengths.extend(train.data.chunks(train.segment.max(1)).map(<[u8]>::len));
        }
    }
    lengths
}

#[test]
fn trains_are_split_and_received_in_batches() {
    on_each_driver(|| async {
        let server = DatagramTrains::bind(loopback()).unwrap();
        let client = DatagramTrains::bind(loopback()).unwrap();
        let to = server.local_addr();
        for round in 1..5 {
            let data = vec![7; 1200 * 20 + round];
            assert_eq!(client.send(&data, 0, train(to, Some(1200))), TrainSent::All);
            let mut expected = vec![1200; 20];
            expected.push(round);
            assert_eq!(lengths(&server, 21).await, expected);
        }
        assert_eq!(client.send(&[1; 500], 0, train(to, None)), TrainSent::All);
        assert_eq!(client.send(&[1; 500], 500, train(to, None)), TrainSent::All);
        assert_eq!(client.send(&[1; 500], 400, train(to, Some(600))), TrainSent::All);
        assert_eq!(lengths(&server, 2).await, [500, 100]);
        assert!(server.buffers().0 > 0 && client.buffers().1 > 0);
    });
}

#[test]
fn a_train_that_the_kernel_does_not_split_leaves_in_pieces() {
    let run = |kind| {
        worker::run(WorkerConfig::new(0, kind), &Workers::new(1).unwrap(), |_| async {
            let server = DatagramTrains::bind(loopback()).unwrap();
            let client = DatagramTrains::bind(loopback()).unwrap();
            if !client.features().gso {
                return;
            }
            // More segments than any kernel takes.
            let sent = client.send(&[7; 2000], 0, train(server.local_addr(), Some(10)));
            assert_eq!(sent, TrainSent::Refused);
            assert_eq!(lengths(&server, 200).await, [10; 200]);
        })
        .unwrap();
    };
    run(DriverKind::Epoll);
    run(driver::choose(Requested::IoUring).0);
}
