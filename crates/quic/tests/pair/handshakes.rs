//! The beginning of connections: servers, sessions, and clients that get none.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_quic::{
    ConnectError, ConnectionLost, Dir, HANDSHAKE_DATAGRAM_BYTES_MAX, HANDSHAKE_DATAGRAMS_MAX,
    HANDSHAKES_WITHOUT_RETRY_MAX, Refused, Settings,
};
use nowait_runtime::net::DatagramTrains;
use nowait_runtime::spawn;
use nowait_sys::listen::ListenAddress;
use nowait_tls::{
    ClientCertificates, ClientSettings, Identity, ServerSettings, SessionCache, TicketKeys,
    TlsClient, TlsServer, Verifier,
};

use crate::stage::{
    Behaviour, LONG, Stage, client_settings, count, exchange, identity_of, on_each_driver, pattern,
    receive, send, server_settings,
};

async fn refused(stage: &Stage, client: &TlsClient) -> ConnectionLost {
    let settings = Settings::default();
    match stage.clients.connect(stage.address, "example.com", client, &settings).await {
        Err(ConnectError::Lost(lost)) => lost,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_is_told_by_its_alert() {
    for (refuse, alert, text) in [
        ((|| Refused::Name) as fn() -> Refused, 112, "handshake rejected"),
        (|| Refused::Protocol, 120, "no application protocol"),
        (|| Refused::Internal, 80, "no certificate"),
    ] {
        on_each_driver(move || async move {
            let stage = Stage::new(Behaviour { refuse: Some(refuse), ..Default::default() });
            let lost = refused(&stage, &stage.client).await;
            assert!(matches!(lost, ConnectionLost::Transport(code, _) if code == 0x100 + alert));
            assert_eq!(stage.service.next_failure().await, text);
            assert_eq!(stage.endpoint.counts().1, 0);
        });
    }
}

#[test]
fn a_client_without_a_common_protocol_is_refused_by_tls() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let alpn = vec![b"other".to_vec()];
        let client = TlsClient::new(ClientSettings { alpn, ..client_settings() }).unwrap();
        let lost = refused(&stage, &client).await;
        assert!(matches!(lost, ConnectionLost::Transport(0x178, _)), "{lost:?}");
        let text = stage.service.next_failure().await;
        assert!(text.starts_with("SSL_do_handshake() failed"), "{text}");
    });
}

#[test]
fn a_server_that_does_not_speak_quic_refuses() {
    on_each_driver(|| async {
        let settings = ServerSettings { quic_alpn: Vec::new(), ..server_settings() };
        let tls = TlsServer::new(settings).unwrap();
        let stage = Stage::new(Behaviour { tls, ..Default::default() });
        let lost = refused(&stage, &stage.client).await;
        assert!(matches!(lost, ConnectionLost::Transport(0x178, _)), "{lost:?}");
    });
}

#[test]
fn slow_keys_are_used_in_the_pool() {
    on_each_driver(|| async {
        let identities = vec![identity_of(&rcgen::PKCS_RSA_SHA256)];
        let tls = TlsServer::new(ServerSettings { identities, ..server_settings() }).unwrap();
        let stage = Stage::new(Behaviour { tls, ..Default::default() });
        let (client, server) = stage.connect().await;
        let stream = client.open(Dir::Bi).unwrap();
        send(&client, stream, pattern(9)).await.unwrap();
        let same = poll_fn(|cx| server.poll_accept(Dir::Bi, cx)).await.unwrap();
        assert_eq!(receive(&server, same).await.unwrap(), pattern(9));
        // The hello, with the first flight: one step.
        assert_eq!(stage.service.steps_in_pool(), 1);
        let session = server.take_session().unwrap();
        assert_eq!(session.sigalg(), Some("rsa_pss_rsae_sha512"));
        assert_eq!(session.protocol(), Some("TLSv1.3"));
        assert_eq!(session.cipher(), Some("TLS_AES_256_GCM_SHA384"));
        assert_eq!(session.curve(), Some("X25519MLKEM768"));
        assert_eq!(session.alpn(), Some(&b"h3"[..]));
        assert_eq!(session.server_name(), Some("example.com"));
        assert!(!session.is_handshaking() && !session.is_reused());
        assert!(session.peer_certificates().is_empty() && session.trust().is_none());
        assert_eq!(*server.take_context().unwrap().downcast::<&str>().unwrap(), "context");
    });
}

fn with_client_certificates(trusted: &Identity) -> TlsServer {
    let authorities = trusted.chain().to_vec();
    let verifier = Arc::new(Verifier::new(authorities, &[], 1).unwrap());
    let wanted = ClientCertificates { verifier, named: Vec::new(), keeps_path: true };
    let settings = ServerSettings { client_certificates: Some(wanted), ..server_settings() };
    TlsServer::new(settings).unwrap()
}

#[test]
fn client_certificates_are_verified_in_the_pool() {
    on_each_driver(|| async {
        let own = identity_of(&rcgen::PKCS_ECDSA_P256_SHA256);
        let tls = with_client_certificates(&own);
        let stage = Stage::new(Behaviour { tls, ..Default::default() });
        let settings = ClientSettings { identity: Some(own.clone()), ..client_settings() };
        let client = TlsClient::new(settings).unwrap();
        let (_client, server) = stage.connect_as(&client).await;
        let session = server.take_session().unwrap();
        assert_eq!(session.trust(), Some(Ok(())));
        assert_eq!(session.peer_certificates(), own.chain());
        assert_eq!(session.client_sigalg(), Some("ecdsa_secp256r1_sha256"));
        assert!(!session.path().is_empty());
        assert!(stage.service.steps_in_pool() > 0);
        // Without one, the request decides.
        let (_client, server) = stage.connect().await;
        assert_eq!(server.take_session().unwrap().trust(), None);
    });
}

#[test]
fn sessions_are_resumed_by_tickets() {
    on_each_driver(|| async {
        let tickets = Some(Arc::new(TicketKeys::generated().unwrap()));
        let tls = TlsServer::new(ServerSettings { tickets, ..server_settings() }).unwrap();
        let stage = Stage::new(Behaviour { tls, ..Default::default() });
        let (client, server) = stage.connect().await;
        assert!(!server.take_session().unwrap().is_reused());
        // A ticket has come when a stream that was opened behind it has.
        exchange(&client, &server, 20).await;
        let (_client, server) = stage.connect().await;
        assert!(server.take_session().unwrap().is_reused());
    });
}

#[test]
fn early_data_is_served_before_the_handshake_is_complete() {
    on_each_driver(|| async {
        let cache = Some(Arc::new(SessionCache::new(1 << 20, LONG)));
        let settings = ServerSettings { cache, early_data_bytes_max: 16_384, ..server_settings() };
        let tls = TlsServer::new(settings).unwrap();
        let stage = Stage::new(Behaviour { tls, ..Default::default() });
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 20).await;
        let socket = DatagramTrains::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = stage
            .clients
            .connect_from(socket, stage.address, "example.com", &stage.client, &Settings::default())
            .unwrap();
        let stream = client.open(Dir::Bi).expect("the session allows early data");
        assert!(!client.is_confirmed());
        send(&client, stream, pattern(5_000)).await.unwrap();
        let server = stage.service.next().await;
        let session = server.take_session().unwrap();
        assert!(!server.is_confirmed());
        assert!(session.is_handshaking() && session.is_reused());
        assert_eq!(session.alpn(), Some(&b"h3"[..]));
        let same = poll_fn(|cx| server.poll_accept(Dir::Bi, cx)).await.unwrap();
        assert_eq!(receive(&server, same).await.unwrap(), pattern(5_000));
        poll_fn(|cx| server.poll_confirmed(cx)).await.unwrap();
        assert!(server.is_confirmed() && !session.is_handshaking());
        send(&server, same, pattern(20)).await.unwrap();
        assert_eq!(receive(&client, stream).await.unwrap(), pattern(20));
    });
}

#[test]
fn retry_proves_the_address() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour { retry: true, ..Default::default() });
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 20).await;
        let count = |name| count(&stage.endpoint, name);
        // Each datagram of the hello is answered; the client heeds the first.
        assert!(count("retries_sent") >= 1);
        assert_eq!(count("handshakes"), 1);
        // The next connection shows a token of the first.
        let before = count("retries_sent");
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 20).await;
        assert_eq!((count("retries_sent"), count("handshakes")), (before, 2));
    });
}

#[test]
fn a_client_that_is_too_slow_is_given_up() {
    on_each_driver(|| async {
        let handshake = Duration::from_millis(30);
        let stage = Stage::new(Behaviour { handshake, ..Default::default() });
        // The first datagram of a hello that takes two.
        let first = first_datagram(&stage).await;
        let socket = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
        socket.send(&first).await.unwrap();
        assert_eq!(stage.service.next_failure().await, "client timed out");
        assert_eq!(stage.endpoint.counts(), (0, 0));
    });
}

/// The first datagram of a client.
async fn first_datagram(stage: &Stage) -> Vec<u8> {
    let trap = nowait_runtime::net::Datagram::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = trap.local_addr().unwrap();
    let (endpoint, tls) = (stage.clients.clone(), stage.client.clone());
    let connecting = spawn(async move {
        let settings = Settings::default();
        drop(endpoint.connect(address, "example.com", &tls, &settings).await);
    });
    let packet = trap.recv_packet().await.unwrap();
    connecting.abort();
    packet.data.to_vec()
}

#[test]
fn other_versions_are_answered_with_ours() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let socket = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
        let mut packet = vec![0xc0, 0x0a, 0x0b, 0x0c, 0x0d, 4, 1, 2, 3, 4, 2, 8, 9];
        packet.resize(1200, 0);
        // Too short to be answered.
        socket.send(&packet[..1199]).await.unwrap();
        socket.send(&packet).await.unwrap();
        let answer = socket.recv(LONG).await.unwrap();
        assert!(answer[0] & 0x80 != 0);
        assert_eq!(answer[1..15], [0, 0, 0, 0, 2, 8, 9, 4, 1, 2, 3, 4, answer[13], answer[14]]);
        assert!(answer[13..].chunks(4).any(|version| version == [0, 0, 0, 1]));
        assert_eq!(count(&stage.endpoint, "datagrams_dropped"), 1);
    });
}

#[test]
fn garbage_is_dropped_without_an_answer() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let socket = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
        let hello = first_datagram(&stage).await;
        let mut sent = 0;
        let mut seed = 1u64;
        for len in [1, 5, 6, 7, 20, 100, 1200, 1472] {
            for first in [0x00, 0x40, 0x7f, 0x80, 0xc0, 0xd0, 0xe0, 0xf0, 0xff] {
                let mut packet: Vec<u8> = (0..len)
                    .map(|_| {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (seed >> 33) as u8
                    })
                    .collect();
                packet[0] = first;
                if len > 5 {
                    packet[1..5].copy_from_slice(&[0, 0, 0, 1]);
                }
                socket.send(&packet).await.unwrap();
                sent += 1;
            }
        }
        // A hello with a bit changed, anywhere.
        for at in (0..hello.len()).step_by(37) {
            let mut packet = hello.clone();
            packet[at] ^= 0x10;
            socket.send(&packet).await.unwrap();
            sent += 1;
        }
        // Those that came before this connection were processed before it.
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 20).await;
        assert!(count(&stage.endpoint, "datagrams_received") > sent);
        assert_eq!(count(&stage.endpoint, "panics"), 0);
    });
}

#[test]
fn little_is_sent_to_an_address_that_is_not_proved() {
    on_each_driver(|| async {
        // A long chain: its flight is longer than three times the hello.
        let identities = vec![crate::stage::long_identity()];
        let tls = TlsServer::new(ServerSettings { identities, ..server_settings() }).unwrap();
        let stage = Stage::new(Behaviour { tls, ..Default::default() });
        // A client that says hello, and nothing more. It has no token of an earlier connection.
        let hello = whole_hello(&stage).await;
        let sent: usize = hello.iter().map(Vec::len).sum();
        let socket = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
        for datagram in &hello {
            socket.send(datagram).await.unwrap();
        }
        let mut received = 0;
        while let Ok(answer) = socket.recv(Duration::from_millis(300)).await {
            received += answer.len();
        }
        assert!(received > 0 && received <= 3 * sent, "{received} for {sent}");
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 20).await;
    });
}

/// All datagrams of a hello.
async fn whole_hello(stage: &Stage) -> Vec<Vec<u8>> {
    let trap = nowait_runtime::net::Datagram::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = trap.local_addr().unwrap();
    let (endpoint, tls) = (stage.clients.clone(), stage.client.clone());
    let connecting = spawn(async move {
        let settings = Settings::default();
        drop(endpoint.connect(address, "example.com", &tls, &settings).await);
    });
    let mut all = Vec::new();
    for _ in 0..2 {
        all.push(trap.recv_packet().await.unwrap().data.to_vec());
    }
    connecting.abort();
    all
}

#[test]
fn a_flood_of_hellos_is_answered_by_retry_and_bounded() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let hello = first_datagram(&stage).await;
        // The same hello from many ports: one datagram of two, so that none is complete.
        let mut sockets = Vec::new();
        for n in 0..HANDSHAKES_WITHOUT_RETRY_MAX + 50 {
            let socket = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
            socket.send(&hello).await.unwrap();
            sockets.push(socket);
            if n % 50 == 0 {
                // The socket's buffer holds no more.
                while (count(&stage.endpoint, "datagrams_received") as usize) <= n {
                    nowait_runtime::yield_now().await;
                }
            }
        }
        while count(&stage.endpoint, "retries_sent") < 50 {
            nowait_runtime::yield_now().await;
        }
        assert_eq!(stage.endpoint.counts(), (0, HANDSHAKES_WITHOUT_RETRY_MAX));
        // Further datagrams of one of them have a bound, too.
        for _ in 0..HANDSHAKE_DATAGRAMS_MAX * 2 {
            sockets[0].send(&hello).await.unwrap();
        }
        let failure = stage.service.next_failure().await;
        assert!(failure.contains("excessive message size"), "{failure}");
        // Clients that can prove their addresses are served meanwhile.
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 20).await;
    });
}

#[test]
fn a_first_packet_without_a_hello_takes_no_place() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let mut hello = first_datagram(&stage).await;
        // Its tag is wrong, so that nothing of it can be read.
        *hello.last_mut().unwrap() ^= 1;
        let socket = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
        socket.send(&hello).await.unwrap();
        let failure = stage.service.next_failure().await;
        assert_eq!(failure, "client sent a first packet without a hello");
        assert_eq!(stage.endpoint.counts(), (0, 0));
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 20).await;
    });
}

#[test]
fn a_first_datagram_may_be_longer_than_ethernet_carries() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let mut hello = whole_hello(&stage).await;
        // As if early data followed, which is left to the transport.
        hello[0].resize(HANDSHAKE_DATAGRAM_BYTES_MAX, 0);
        let socket = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
        for datagram in &hello {
            socket.send(datagram).await.unwrap();
        }
        let answer = socket.recv_packet().await.unwrap();
        // The form and the type, without the fixed bit, which may be greased (RFC 9287).
        assert_eq!(answer.data[0] & 0xb0, 0x80, "an Initial packet");
        assert_eq!(count(&stage.endpoint, "stateless_sent"), 0);
        assert_eq!(stage.endpoint.counts(), (0, 1));
    });
}

#[test]
fn a_socket_for_both_families_serves_both() {
    on_each_driver(|| async {
        let Ok(socket) = DatagramTrains::bind("[::]:0".parse().unwrap()) else { return };
        let stage = Stage::new(Behaviour::default());
        let port = socket.local_addr().port();
        let listen = Arc::new(ListenAddress::Udp(socket.local_addr()));
        let _listening = stage.endpoint.listen_with(socket, listen);
        for ip in ["127.0.0.1", "127.0.0.2", "::1"] {
            let address = (ip.parse::<IpAddr>().unwrap(), port).into();
            let settings = Settings::default();
            let connecting =
                stage.clients.connect(address, "example.com", &stage.client, &settings);
            let (client, server) = (connecting.await.unwrap(), stage.service.next().await);
            exchange(&client, &server, 30_000).await;
            assert_eq!(server.local(), address);
            assert_eq!(server.peer().ip().is_ipv4(), address.is_ipv4());
        }
    });
}

/// The packets of a client's hello that has been told to retry, with the answers to its first ones.
async fn retried_hello(stage: &Stage) -> (nowait_runtime::net::Datagram, Vec<u8>) {
    let trap = nowait_runtime::net::Datagram::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = trap.local_addr().unwrap();
    let (endpoint, tls) = (stage.clients.clone(), stage.client.clone());
    let connecting = spawn(async move {
        let settings = Settings::default();
        drop(endpoint.connect(address, "example.com", &tls, &settings).await);
    });
    let outer = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
    let first = trap.recv_packet().await.unwrap();
    outer.send(&first.data).await.unwrap();
    let retry = outer.recv(LONG).await.unwrap();
    trap.send_to(&retry, first.from.unwrap()).await.unwrap();
    // The one that follows has a token; those of the first hello have none.
    let second = loop {
        let packet = trap.recv_packet().await.unwrap().data.to_vec();
        if token_of(&packet).1 > 0 {
            break packet;
        }
    };
    connecting.abort();
    (outer, second)
}

/// Where the token of an Initial packet begins, and its length.
fn token_of(packet: &[u8]) -> (usize, usize) {
    let destination = usize::from(packet[5]);
    let source = usize::from(packet[6 + destination]);
    let at = 7 + destination + source;
    match packet[at] {
        short @ 0..0x40 => (at + 1, short.into()),
        long => (at + 2, usize::from(long & 0x3f) << 8 | usize::from(packet[at + 1])),
    }
}

#[test]
fn a_retry_token_that_is_not_valid_is_refused_at_once() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour { retry: true, ..Default::default() });
        let count = |name| count(&stage.endpoint, name);
        let (from, hello) = retried_hello(&stage).await;
        let (at, len) = token_of(&hello);
        let other = nowait_runtime::net::Datagram::connect(stage.address).unwrap();
        let retries = count("retries_sent");
        // Changed, from another address, and both: all are answered by one small packet, and leave nothing behind.
        let mut refused = 0;
        for (socket, changed) in [(&from, true), (&other, false), (&other, true)] {
            for bit in 0..if changed { len - 20 } else { 1 } {
                let mut packet = hello.clone();
                packet[at + bit] ^= u8::from(changed);
                socket.send(&packet).await.unwrap();
                let answer = socket.recv(LONG).await.unwrap();
                refused += 1;
                assert!(answer.len() < 100 && answer[0] & 0xf0 == 0xc0, "{answer:?}");
            }
        }
        assert_eq!(count("first_packets_refused"), refused);
        assert_eq!((count("retries_sent"), stage.endpoint.counts()), (retries, (0, 0)));
        // With a token of another kind, the client may be told to retry.
        let mut packet = hello.clone();
        packet[at + len - 17] ^= 1;
        from.send(&packet).await.unwrap();
        let answer = from.recv(LONG).await.unwrap();
        assert_eq!(answer[0] & 0xf0, 0xf0, "a Retry packet");
        // The one that is valid begins a handshake. What came before this connection was processed before it.
        from.send(&hello).await.unwrap();
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 20).await;
        assert_eq!((count("first_packets_refused"), stage.endpoint.counts()), (refused, (1, 1)));
    });
}

#[test]
fn a_client_learns_why_its_token_is_refused() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour { retry: true, ..Default::default() });
        let trap = nowait_runtime::net::Datagram::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let trap = Rc::new(trap);
        let address = trap.local_addr().unwrap();
        let relay = trap.clone();
        let server = stage.address;
        let relaying = spawn(async move {
            // The client has another address after the Retry packet.
            let sockets =
                [(), ()].map(|()| nowait_runtime::net::Datagram::connect(server).unwrap());
            while let Ok(packet) = relay.recv_packet().await {
                let socket = &sockets[usize::from(token_of(&packet.data).1 > 0)];
                socket.send(&packet.data).await.unwrap();
                let answer = socket.recv(LONG).await.unwrap();
                relay.send_to(&answer, packet.from.unwrap()).await.unwrap();
            }
        });
        let settings = Settings::default();
        let connecting = stage.clients.connect(address, "example.com", &stage.client, &settings);
        let lost = match connecting.await {
            Err(ConnectError::Lost(lost)) => lost,
            other => panic!("{other:?}"),
        };
        relaying.abort();
        const INVALID_TOKEN: u64 = 0x0b;
        assert!(matches!(lost, ConnectionLost::Transport(INVALID_TOKEN, _)), "{lost:?}");
    });
}

#[test]
fn a_connection_gives_few_tokens() {
    on_each_driver(|| async {
        for retry in [false, true] {
            let stage = Stage::new(Behaviour { retry, ..Default::default() });
            let mut fewest = u64::MAX;
            // A client that has to wait sends more packets, each of which proves its address again.
            for _ in 0..10 {
                let (client, server) = stage.connect().await;
                exchange(&client, &server, 20_000).await;
                assert!(client.statistics().new_tokens.1 > 0);
                fewest = fewest.min(server.statistics().new_tokens.0);
            }
            assert!(fewest <= 3, "{fewest}");
        }
    });
}
