//! Verified downloads and uploads under way while workers and binaries are exchanged: every request is answered, unless
//! GOAWAY says that it was not processed.
//!
//! A sample here; `cargo xtask upgrades` runs as many rounds as it is told (`NOWAIT_UPGRADES_RELOADS`,
//! `NOWAIT_UPGRADES`), and prints how long the slowest request took. Nothing here depends on that.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nowait_testkit::Driver;
use nowait_testkit::http3::{Http3, Http3Exchange, code};
use nowait_testkit::server::{Signal, signal};
use nowait_testkit::wait::{PATIENCE, until};

use crate::stage::{pattern, server, writable};
use crate::upgrade::{begin_upgrade, end_upgrade, quit};

const CLIENTS: usize = 6;

/// Answered requests between two changes, at least.
const ANSWERS: u64 = 12;

/// Bytes of a file, and of one whose response takes about a second.
const FILE: usize = 200_000;
const SLOW: usize = 300_000;

/// The parts in which an upload is sent.
const PARTS: usize = 8;

struct Load {
    port: u16,
    over: AtomicBool,
    answered: AtomicU64,
    connections: AtomicU64,
    slowest: Mutex<(Duration, String)>,
}

/// What has become of a request.
enum Outcome {
    Answered(Http3Exchange),
    /// GOAWAY says that it was not processed.
    Refused,
}

struct Client<'a> {
    load: &'a Load,
    number: usize,
    /// With the time of its beginning.
    connection: Option<(Http3, Instant)>,
}

impl Client<'_> {
    /// The connection, unless the server has asked to leave it.
    fn connection(&mut self) -> (&mut Http3, Instant) {
        let leaves = |http3: &Http3| http3.goaway().is_some() || http3.quic.lost().is_some();
        if self.connection.as_ref().is_none_or(|(http3, _)| leaves(http3)) {
            if let Some((mut left, _)) = self.connection.take() {
                left.quic.close(code::NO_ERROR);
            }
            let begun = Instant::now();
            self.connection = Some((Http3::to_port(self.load.port), begun));
            self.load.connections.fetch_add(1, Ordering::Relaxed);
            self.note(begun, "a connection");
        }
        let (http3, since) = self.connection.as_mut().expect("there is one now");
        (http3, *since)
    }

    fn note(&self, begun: Instant, what: &str) {
        let took = begun.elapsed();
        let mut slowest = self.load.slowest.lock().unwrap();
        if took > slowest.0 {
            *slowest = (took, what.to_owned());
        }
    }

    /// Sends a request, again if it was refused, and returns what was answered.
    fn ask(&mut self, method: &str, path: &str, content: &[u8]) -> Http3Exchange {
        let begun = Instant::now();
        loop {
            if let Outcome::Answered(exchange) = self.try_ask(method, path, content) {
                self.load.answered.fetch_add(1, Ordering::Relaxed);
                self.note(begun, &format!("{method} {path}"));
                return exchange;
            }
        }
    }

    fn try_ask(&mut self, method: &str, path: &str, content: &[u8]) -> Outcome {
        let (number, begun) = (self.number, Instant::now());
        let (http3, since) = self.connection();
        let length = content.len().to_string();
        let fields = [("content-length", &length[..])];
        let fields = if content.is_empty() { &[][..] } else { &fields[..] };
        let id = http3.open(method, path, fields, content.is_empty());
        let parts = content.chunks(content.len().div_ceil(PARTS).max(1));
        let last = parts.len();
        for (n, part) in parts.enumerate() {
            if http3.quic.lost().is_none() && http3.exchange(id).reset.is_none() {
                http3.data(id, part, n + 1 == last);
                http3.turn();
            }
        }
        let exchange = http3.end_of(id);
        http3.forget(id);
        if exchange.ended {
            return Outcome::Answered(exchange);
        }
        // RFC 9114, 5.2: requests from this stream on were not processed.
        let refused = http3.goaway().is_some_and(|from| u64::from(id) >= from)
            || exchange.reset == Some(code::REQUEST_REJECTED);
        assert!(
            refused,
            "client {number} at port {} lost {method} {path} on {id} after {:?}: status {}, {} bytes of content, reset \
             {:?}, stopped {:?}, GOAWAY {:?}, connection of {:?}: {:?}",
            http3.quic.port(),
            begun.elapsed(),
            exchange.status,
            exchange.body.len(),
            exchange.reset,
            exchange.stopped,
            http3.goaway(),
            since.elapsed(),
            http3.quic.lost()
        );
        Outcome::Refused
    }

    fn play(&mut self) {
        let (file, slow) = (pattern(FILE), pattern(SLOW));
        for round in self.number.. {
            if self.load.over.load(Ordering::Relaxed) {
                return;
            }
            match round % 3 {
                0 => {
                    let got = self.ask("GET", "/file", &[]);
                    assert!(got.status == 200 && got.body == file);
                }
                1 => {
                    let got = self.ask("GET", "/slow", &[]);
                    assert!(got.status == 200 && got.body == slow);
                }
                _ => {
                    let path = format!("/up/{}", self.number);
                    let content = &file[round % 100..];
                    let put = self.ask("PUT", &path, content);
                    assert!(matches!(put.status, 201 | 204), "{}", put.status);
                    let got = self.ask("GET", &path, &[]);
                    assert!(got.status == 200 && got.body == content);
                }
            }
        }
    }
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Reloads with changing numbers of workers, and upgrades between them.
fn changes_under_load(driver: Driver, reloads: usize, upgrades: usize) {
    let content = "location /slow { limit_rate 300k; } location /up/ { dav_methods PUT; }\n\
                   access_log off; keepalive_requests 50;";
    let builder = server(content).file("html/file", pattern(FILE)).file("html/slow", pattern(SLOW));
    let mut server = builder.file("html/up/x", "").workers(2).driver(driver).start();
    writable(&server, "html/up");
    let load = Load {
        port: server.port(),
        over: AtomicBool::new(false),
        answered: AtomicU64::new(0),
        connections: AtomicU64::new(0),
        slowest: Mutex::default(),
    };
    let mut master = server.pid();
    std::thread::scope(|scope| {
        let load = &load;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut client = Client { load, number, connection: None };
                scope.spawn(move || client.play())
            })
            .collect();
        let failed = || clients.iter().any(|client| client.is_finished());
        let answers = || {
            let before = load.answered.load(Ordering::Relaxed);
            until("answers", PATIENCE, || {
                let more = load.answered.load(Ordering::Relaxed) >= before + ANSWERS;
                (more || failed()).then_some(())
            });
        };
        answers();
        for n in 0..reloads {
            if failed() {
                break;
            }
            server.set_workers([3, 1, 2, 4][n % 4]);
            let generations = || server.log().matches("is in use").count();
            let before = generations();
            signal(master, Signal::HUP);
            until("the reload", PATIENCE, || (generations() > before).then_some(()));
            answers();
            // Spread among the reloads.
            if (n + 1) * upgrades / reloads > n * upgrades / reloads {
                let new = begin_upgrade(&server, master);
                answers();
                end_upgrade(&server, master);
                master = new;
                answers();
            }
        }
        load.over.store(true, Ordering::Relaxed);
    });
    let (took, what) = load.slowest.lock().unwrap().clone();
    eprintln!(
        "{driver:?}: {reloads} reloads, {upgrades} upgrades, {} requests on {} connections, none lost; the \
         slowest, {what}, took {} ms",
        load.answered.load(Ordering::Relaxed),
        load.connections.load(Ordering::Relaxed),
        took.as_millis()
    );
    quit(&server, master);
    server.check_logs();
}

#[test]
fn no_request_is_lost_on_epoll() {
    changes_under_load(Driver::Epoll, 10, 2);
}

#[test]
fn no_request_is_lost_on_io_uring() {
    changes_under_load(Driver::IoUring, 10, 2);
}

#[test]
#[ignore = "takes minutes: cargo xtask upgrades"]
fn many_changes() {
    let reloads = setting("NOWAIT_UPGRADES_RELOADS", 200);
    let upgrades = setting("NOWAIT_UPGRADES", 20);
    for driver in [Driver::Epoll, Driver::IoUring] {
        changes_under_load(driver, reloads, upgrades);
    }
}
