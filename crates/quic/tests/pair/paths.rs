//! Paths that change, and datagrams that arrive elsewhere.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use nowait_quic::{Connection, ConnectionLost, Endpoint, HostKey, Settings};
use nowait_runtime::net::Datagram;
use nowait_runtime::{sleep, spawn};
use nowait_sys::listen::ListenAddress;

use crate::stage::{
    Behaviour, LONG, Stage, TestService, count, directory_of, exchange, on_each_driver, pattern,
};

/// A translator of addresses between clients and a server, which may change its outer port, and lose datagrams.
struct Translator {
    inner: Rc<Datagram>,
    outer: RefCell<Rc<Datagram>>,
    client: Cell<Option<SocketAddr>>,
    server: SocketAddr,
    /// Of the datagrams to the server, each that many-th is lost.
    loses: Cell<Option<u32>>,
    /// Datagrams to clients longer than this are lost.
    mtu: Cell<usize>,
    passed: Cell<u32>,
    longest: Cell<usize>,
}

impl Translator {
    fn new(server: SocketAddr) -> Rc<Translator> {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let translator = Rc::new(Translator {
            inner: Rc::new(Datagram::bind(any).unwrap()),
            outer: RefCell::new(Rc::new(Datagram::bind(any).unwrap())),
            client: Cell::new(None),
            server,
            loses: Cell::new(None),
            mtu: Cell::new(usize::MAX),
            passed: Cell::new(0),
            longest: Cell::new(0),
        });
        let this = translator.clone();
        drop(spawn(async move {
            while let Ok(packet) = this.inner.recv_packet().await {
                this.client.set(packet.from);
                this.passed.set(this.passed.get() + 1);
                if this.loses.get().is_some_and(|each| this.passed.get().is_multiple_of(each)) {
                    continue;
                }
                let outer = this.outer.borrow().clone();
                outer.send_to(&packet.data, this.server).await.unwrap();
            }
        }));
        translator.clone().pass_back();
        translator
    }

    /// Passes on what comes back, to the port of now.
    fn pass_back(self: Rc<Self>) {
        let outer = self.outer.borrow().clone();
        drop(spawn(async move {
            while let Ok(packet) = outer.recv_packet().await {
                let is_current = Rc::ptr_eq(&outer, &self.outer.borrow());
                let fits = packet.data.len() <= self.mtu.get();
                if fits {
                    self.longest.set(self.longest.get().max(packet.data.len()));
                }
                if let Some(client) = self.client.get()
                    && is_current
                    && fits
                {
                    self.inner.send_to(&packet.data, client).await.unwrap();
                }
            }
        }));
    }

    /// Continues from another port; what is on its way to the old one is lost.
    fn rebind(self: &Rc<Self>) {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        self.outer.replace(Rc::new(Datagram::bind(any).unwrap()));
        self.clone().pass_back();
    }

    fn address(&self) -> SocketAddr {
        self.inner.local_addr().unwrap()
    }
}

async fn connect_through(
    stage: &Stage,
    translator: &Translator,
) -> (Rc<Connection>, Rc<Connection>) {
    let (address, settings) = (translator.address(), Settings::default());
    let client = stage.clients.connect(address, "example.com", &stage.client, &settings).await;
    (client.unwrap(), stage.service.next().await)
}

#[test]
fn a_client_with_a_new_port_is_followed() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let translator = Translator::new(stage.address);
        let (client, server) = connect_through(&stage, &translator).await;
        exchange(&client, &server, 100_000).await;
        let first = server.peer();
        for _ in 0..3 {
            translator.rebind();
            exchange(&client, &server, 100_000).await;
        }
        assert_ne!(server.peer(), first);
        assert!(count(&stage.endpoint, "migrations") >= 3);
        assert_eq!(count(&stage.endpoint, "handshakes"), 1);
    });
}

#[test]
fn losses_are_repaired() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let translator = Translator::new(stage.address);
        translator.loses.set(Some(7));
        let (client, server) = connect_through(&stage, &translator).await;
        exchange(&client, &server, 300_000).await;
        assert!(client.statistics().lost_packets > 0);
    });
}

#[test]
fn the_size_that_a_path_carries_is_found() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let translator = Translator::new(stage.address);
        // Less than Ethernet: 1432 bytes of IP.
        translator.mtu.set(1432 - 28);
        let (client, server) = connect_through(&stage, &translator).await;
        exchange(&client, &server, 1_000_000).await;
        let mtu = usize::from(server.statistics().mtu);
        assert!((1380..=1404).contains(&mtu), "{mtu}");
        // A path that carries less than before.
        translator.mtu.set(1250);
        exchange(&client, &server, 1_000_000).await;
        assert!(server.statistics().mtu <= 1250);
    });
}

#[test]
fn a_connection_that_is_unknown_is_reset() {
    on_each_driver(|| async {
        let key = HostKey::new(&[7; 32]).unwrap();
        let stage = Stage::in_directory(directory_of(&key), Behaviour::default());
        let translator = Translator::new(stage.address);
        let (client, server) = connect_through(&stage, &translator).await;
        exchange(&client, &server, 10).await;
        // The server starts again, with the same key.
        let Stage { endpoint, listening, clients, .. } = stage;
        let (fd, listen) = (listening.try_clone_fd().unwrap(), server.listen().clone());
        server.close(0, b"");
        drop((listening, server));
        drop(endpoint);
        let service = TestService::new(Behaviour::default());
        let again = Endpoint::new(directory_of(&key), service);
        let _listening = again.listen(fd, listen).unwrap();
        let stream = client.open(nowait_quic::Dir::Bi).unwrap();
        client.write(stream, &mut [pattern(100)]).unwrap();
        let lost = poll_fn(|cx| client.poll_closed(cx)).await;
        assert!(
            matches!(lost, ConnectionLost::Reset | ConnectionLost::Application(0, _)),
            "{lost:?}"
        );
        drop(clients);
    });
}

#[test]
fn datagrams_for_another_worker_are_handed_over() {
    on_each_driver(|| async {
        let directory = crate::stage::directory();
        let stage = Stage::in_directory(directory.clone(), Behaviour::default());
        let other = TestService::new(Behaviour::default());
        let second = Endpoint::new(directory, other.clone());
        let fd = stage.listening.try_clone_fd().unwrap();
        let listen = Arc::new(ListenAddress::Udp(stage.address));
        // Both receive from one socket: what arrives goes to either.
        let _listening = second.listen(fd, listen).unwrap();
        let mut pairs = VecDeque::new();
        for _ in 0..8 {
            let settings = Settings::default();
            let client = stage
                .clients
                .connect(stage.address, "example.com", &stage.client, &settings)
                .await
                .unwrap();
            let server = poll_fn(|cx| {
                for service in [&stage.service, &other] {
                    if let Poll::Ready(server) = service.poll_next(cx) {
                        return Poll::Ready(server);
                    }
                }
                Poll::Pending
            })
            .await;
            pairs.push_back((client, server));
        }
        for _ in 0..5 {
            for (client, server) in &pairs {
                exchange(client, server, 20_000).await;
            }
        }
        assert_eq!(count(&stage.endpoint, "handshakes"), 8);
    });
}

#[test]
fn a_connection_moves_between_workers_with_its_streams() {
    on_each_driver(|| async {
        let directory = crate::stage::directory();
        let stage = Stage::in_directory(directory.clone(), Behaviour::default());
        let translator = Translator::new(stage.address);
        let (client, server) = connect_through(&stage, &translator).await;
        exchange(&client, &server, 5_000).await;
        let stream = client.open(nowait_quic::Dir::Bi).unwrap();
        client.write(stream, &mut [pattern(3_000)]).unwrap();
        let same = poll_fn(|cx| server.poll_accept(nowait_quic::Dir::Bi, cx)).await.unwrap();
        // Each of these takes it over from the one before, which ends.
        let mut servers = vec![(stage.endpoint.clone(), server)];
        for _ in 0..3 {
            let next = Endpoint::new(directory.clone(), TestService::new(Behaviour::default()));
            let fd = stage.listening.try_clone_fd().unwrap();
            let listen = Arc::new(ListenAddress::Udp(stage.address));
            let listening = next.listen(fd, listen).unwrap();
            let (last, server) = servers.pop().unwrap();
            last.close();
            let moved = server.depart().unwrap();
            assert_eq!(server.lost(), Some(ConnectionLost::Dropped));
            assert_eq!(last.counts(), (0, 0));
            // What comes meanwhile is not lost for long.
            client.write(stream, &mut [pattern(10)]).unwrap();
            sleep(Duration::from_millis(5)).await;
            let arrived = next.arrive(moved).unwrap();
            drop((last, listening));
            exchange(&client, &arrived, 50_000).await;
            servers.push((next, arrived));
        }
        let (_last, server) = servers.pop().unwrap();
        client.finish(stream).unwrap();
        let all = crate::stage::receive(&server, same).await.unwrap();
        assert_eq!(all.len(), 3_000 + 3 * 10);
        drop(client);
        poll_fn(|cx| server.poll_closed(cx)).await;
    });
}

#[test]
fn an_idle_connection_ends_unless_it_is_held() {
    on_each_driver(|| async {
        let idle_timeout = Duration::from_millis(1_500);
        let settings = Settings { idle_timeout, ..Settings::default() };
        let stage = Stage::new(Behaviour { settings, ..Default::default() });
        let (_client, server) = stage.connect().await;
        let (held, holder) = stage.connect().await;
        holder.set_keep_alive(true);
        let lost = poll_fn(|cx| server.poll_closed(cx)).await;
        assert_eq!(lost, ConnectionLost::TimedOut);
        assert_eq!(held.lost(), None);
        exchange(&held, &holder, 10).await;
        let _ = LONG;
    });
}
