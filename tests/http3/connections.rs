//! Connections: their bounds, their ends, other addresses of a client, and what is no packet.

use std::time::Duration;

use nowait_testkit::Driver;
use nowait_testkit::http3::{Http3, code};
use nowait_testkit::quic::{ConnectionError, Quic};
use nowait_testkit::server::{Signal, signal};
use nowait_testkit::wait::PATIENCE;

use crate::stage::{http3, on_each_driver, pattern, server, trusting_options};

#[test]
fn keepalive_requests_ends_a_connection_gracefully() {
    let builder = server("keepalive_requests 3;").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        for _ in 0..3 {
            assert_eq!(http3.get("/page").text(), "page");
        }
        assert_eq!(http3.close_code(), code::NO_ERROR);
        // A first one has admitted requests that were on their way.
        assert!(http3.goaway().is_some());
        assert_eq!(crate::stage::http3(server).get("/page").text(), "page");
    });
}

#[test]
fn idle_connections_end() {
    let builder = server("keepalive_timeout 1s;").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        assert_eq!(http3.get("/page").text(), "page");
        http3.until("the end", |http3| http3.quic.lost().is_some());
        match http3.quic.lost() {
            Some(ConnectionError::TimedOut) => {}
            Some(ConnectionError::ApplicationClosed(close)) => {
                assert_eq!(close.error_code.into_inner(), code::NO_ERROR);
            }
            other => panic!("{other:?}"),
        }
    });
}

/// Otherwise it could not know that a request on its way was not processed.
#[test]
fn a_client_that_misses_goaway_gets_it_again_before_the_end() {
    let builder = server("").file("html/page", "page");
    for driver in [Driver::Epoll, Driver::IoUring] {
        let mut server = builder.clone().driver(driver).start();
        let mut http3 = http3(&server);
        assert_eq!(http3.get("/page").text(), "page");
        http3.quic.miss(2);
        signal(server.pid(), Signal::QUIT);
        assert_eq!(http3.close_code(), code::NO_ERROR);
        assert!(http3.goaway().is_some(), "{driver:?}");
        assert!(server.wait_exit(PATIENCE).success());
        server.check_logs();
    }
}

#[test]
fn the_number_of_streams_is_bounded() {
    let content = "http3_max_concurrent_streams 4; location /slow { limit_rate 1k; }";
    let builder = server(content).file("html/slow", pattern(1 << 20));
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        let ids: Vec<_> = (0..4).map(|_| http3.open("GET", "/slow", &[], true)).collect();
        assert_eq!(http3.quic.try_open(nowait_testkit::quic::Dir::Bi), None);
        http3.quic.stop(ids[0], code::REQUEST_CANCELLED);
        let another = http3.open_stream();
        http3.quic.finish(another);
    });
}

#[test]
fn a_client_behind_another_port_continues() {
    let content = pattern(4 << 20);
    let builder = server("").file("html/large", &content).file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        for migrates in [false, true] {
            let large = http3.open("GET", "/large", &[], true);
            http3.until("a part", |http3| http3.exchange(large).body.len() > 100_000);
            match migrates {
                true => http3.quic.migrate(),
                false => http3.quic.rebind(),
            }
            assert!(http3.response(large).body == content);
            assert_eq!(http3.get("/page").text(), "page");
        }
        let port = http3.quic.port();
        assert_eq!(http3.get("/page").text(), "page");
        assert!(port > 0);
    });
}

#[test]
fn a_client_that_moves_often_is_answered_at_each_place() {
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        for answered in [true, false] {
            let mut http3 = http3(server);
            // "An endpoint MUST NOT initiate connection migration before the handshake is confirmed" (RFC 9000, 9).
            assert_eq!(http3.get("/page").text(), "page");
            for _ in 0..20 {
                http3.quic.migrate();
                if answered {
                    assert_eq!(http3.get("/page").text(), "page");
                }
            }
            assert_eq!(http3.get("/page").text(), "page");
        }
    });
}

#[test]
fn keys_are_updated() {
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        for _ in 0..3 {
            assert_eq!(http3.get("/page").text(), "page");
            http3.quic.update_keys();
        }
        assert_eq!(http3.get("/page").text(), "page");
    });
}

#[test]
fn a_retry_proves_the_address() {
    let builder = server("quic_retry on;").file("html/page", "page");
    on_each_driver(&builder, |server| {
        assert_eq!(http3(server).get("/page").text(), "page");
    });
}

#[test]
fn handshakes_that_are_never_completed_end() {
    let builder = server("client_header_timeout 1s;").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let options = trusting_options();
        let mut lost: Vec<Quic> = (0..20)
            .map(|_| {
                let mut quic = Quic::begin(server.port(), &options.quic);
                quic.lose(true);
                quic
            })
            .collect();
        assert_eq!(http3(server).get("/page").text(), "page");
        server.wait_log("while SSL handshaking");
        lost.clear();
    });
}

#[test]
fn what_is_no_packet_is_ignored() {
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        let mut state = 0x1234_5678_u32;
        for n in 0..2000_usize {
            let bytes: Vec<u8> = (0..n % 1400)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            http3.quic.send_datagram(&bytes);
            // A long header of the right version, and of another.
            let mut long = vec![0xc0, 0, 0, 0, 1, 8];
            long.extend(&bytes);
            http3.quic.send_datagram(&long);
            long[1..5].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
            http3.quic.send_datagram(&long);
            // A short header for a connection that does not exist.
            http3.quic.send_datagram(&[&[0x40], &bytes[..]].concat());
            if n % 100 == 0 {
                assert_eq!(http3.get("/page").text(), "page");
            }
        }
        assert_eq!(http3.get("/page").text(), "page");
        assert_eq!(crate::stage::http3(server).get("/page").text(), "page");
    });
}

#[test]
fn a_graceful_end_completes_requests() {
    let builder = server("location /slow { limit_rate 300k; }")
        .file("html/slow", pattern(600_000))
        .file("html/page", "page");
    for driver in [nowait_testkit::Driver::Epoll, nowait_testkit::Driver::IoUring] {
        let server = builder.clone().driver(driver).start();
        let mut http3 = http3(&server);
        let mut idle = Http3::to_port(server.port());
        assert_eq!(idle.get("/page").text(), "page");
        let slow = http3.open("GET", "/slow", &[], true);
        http3.until("a part", |http3| !http3.exchange(slow).body.is_empty());
        let pid = server.pid();
        nowait_testkit::server::signal(pid, nowait_testkit::server::Signal::QUIT);
        assert_eq!(idle.close_code(), code::NO_ERROR);
        http3.until("GOAWAY", |http3| http3.goaway().is_some());
        assert!(http3.response(slow).body == pattern(600_000));
        assert_eq!(http3.close_code(), code::NO_ERROR);
        assert!(server.quit().success());
    }
}

#[test]
fn a_flood_of_first_packets_leaves_others_served() {
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let options = trusting_options();
        let mut other = http3(server);
        for round in 0..20 {
            for _ in 0..50 {
                // Each is given up at once.
                let mut quic = Quic::begin(server.port(), &options.quic);
                quic.lose(true);
            }
            assert_eq!(other.get("/page").text(), "page", "{round}");
        }
        other.quic.for_time(Duration::from_millis(50));
        assert_eq!(http3(server).get("/page").text(), "page");
    });
}
