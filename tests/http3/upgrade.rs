//! Binary upgrades, and their withdrawal, while connections are in use: none is lost.

use std::fs;
use std::path::Path;

use nowait_testkit::http3::{Http3, code};
use nowait_testkit::quic::{ConnectionError, StreamId};
use nowait_testkit::server::{Signal, children, signal};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Driver, Server, ServerBuilder};

use crate::stage::{http3, on_each_driver, pattern, server, writable};

/// Locations whose responses take a while, and one for uploads.
const CONTENT: &str = "location /slow { limit_rate 300k; } location /up/ { dav_methods PUT; }
    location = /page { default_type text/plain; }";

const SLOW: usize = 600_000;

fn site() -> ServerBuilder {
    server(CONTENT)
        .file("html/slow", pattern(SLOW))
        .file("html/page", "page")
        .file("html/up/x", "")
        .workers(2)
}

/// The master that runs, by its pid file.
pub fn master(dir: &Path) -> Option<u32> {
    fs::read_to_string(dir.join("nginx.pid")).ok()?.trim().parse().ok()
}

/// Starts the program again beside its master `old`, and returns the new master when it serves.
#[track_caller]
pub fn begin_upgrade(server: &Server, old: u32) -> u32 {
    signal(old, Signal::USR2);
    let new = until("the new master", PATIENCE, || {
        master(server.dir()).filter(|new| *new != old && !children(*new).is_empty())
    });
    server.wait_log(&format!("{new}#{new}: generation 1 is in use"));
    new
}

/// Ends the old master of an upgrade gracefully, and waits until it is gone.
#[track_caller]
pub fn end_upgrade(server: &Server, old: u32) {
    signal(old, Signal::QUIT);
    let file = server.dir().join("nginx.pid.oldbin");
    until("the old master to end", PATIENCE, || (!file.exists()).then_some(()));
}

/// Ends a master that is not the first.
#[track_caller]
pub fn quit(server: &Server, master: u32) {
    signal(master, Signal::QUIT);
    let file = server.dir().join("nginx.pid");
    until("the last master to end", PATIENCE, || (!file.exists()).then_some(()));
}

/// A download and an upload in progress.
struct UnderWay {
    client: Http3,
    down: StreamId,
    up: StreamId,
    path: String,
}

impl UnderWay {
    #[track_caller]
    fn begin(server: &Server, name: usize) -> UnderWay {
        let mut client = http3(server);
        let down = client.open("GET", "/slow", &[], true);
        let path = format!("/up/{name}");
        let length = SLOW.to_string();
        let up = client.open("PUT", &path, &[("content-length", &length)], false);
        client.data(up, &pattern(SLOW)[..SLOW / 2], false);
        client.until("a part", |client| !client.exchange(down).body.is_empty());
        UnderWay { client, down, up, path }
    }

    fn is_over(&self) -> bool {
        let over = |id| self.client.exchange(id).ended;
        over(self.down) && over(self.up) || self.client.quic.lost().is_some()
    }

    #[track_caller]
    fn check(mut self, server: &Server) {
        assert!(self.client.response(self.down).body == pattern(SLOW));
        assert_eq!(self.client.response(self.up).status, 201);
        let written = fs::read(server.dir().join("html").join(&self.path[1..])).unwrap();
        assert!(written == pattern(SLOW));
        self.client.quic.close(code::NO_ERROR);
    }
}

/// Completes and checks those under way. All have their turns, so that none seems to be absent.
#[track_caller]
fn end_all(server: &Server, mut ending: Vec<UnderWay>, staying: &mut [UnderWay]) {
    for under_way in &mut ending {
        under_way.client.data(under_way.up, &pattern(SLOW)[SLOW / 2..], true);
    }
    until("the ends of all", PATIENCE, || {
        for under_way in ending.iter_mut().chain(&mut *staying) {
            under_way.client.turn();
        }
        ending.iter().all(UnderWay::is_over).then_some(())
    });
    ending.into_iter().for_each(|under_way| under_way.check(server));
}

#[test]
fn an_upgrade_loses_no_connection() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let mut server = site().driver(driver).start();
        let server = &mut server;
        writable(server, "html/up");
        let old = server.pid();
        let mut idle: Vec<Http3> = (0..4).map(|_| http3(server)).collect();
        let first: Vec<UnderWay> = (0..4).map(|n| UnderWay::begin(server, n)).collect();
        let new = begin_upgrade(server, old);
        // Both receive from the same sockets, and each has its connections.
        let mut second: Vec<UnderWay> = (4..8).map(|n| UnderWay::begin(server, n)).collect();
        for client in &mut idle {
            for _ in 0..4 {
                assert_eq!(client.get("/page").text(), "page");
            }
            assert_eq!(client.goaway(), None);
        }
        signal(old, Signal::QUIT);
        end_all(server, first, &mut second);
        for client in &mut idle {
            client.until("to be told to leave", |client| client.goaway().is_some());
        }
        assert_eq!(http3(server).get("/page").text(), "page");
        drop(idle);
        end_all(server, second, &mut []);
        assert!(server.wait_exit(PATIENCE).success());
        assert_eq!(http3(server).get("/page").text(), "page");
        quit(server, new);
        server.check_logs();
    }
}

#[test]
fn an_upgrade_that_is_taken_back_loses_no_connection() {
    on_each_driver(&site(), |server| {
        writable(server, "html/up");
        let old = server.pid();
        let mut idle: Vec<Http3> = (0..4).map(|_| http3(server)).collect();
        let new = begin_upgrade(server, old);
        let mut under_way: Vec<UnderWay> = (0..4).map(|n| UnderWay::begin(server, n)).collect();
        signal(new, Signal::QUIT);
        // The old process takes new connections again, while the new one still has some.
        server.wait_log(&format!("{new}#{new}: signal 3 (SIGQUIT) received"));
        under_way.extend((4..8).map(|n| UnderWay::begin(server, n)));
        for client in &mut idle {
            assert_eq!(client.get("/page").text(), "page");
        }
        end_all(server, under_way, &mut []);
        until("the pid file to come back", PATIENCE, || {
            (master(server.dir()) == Some(old)).then_some(())
        });
        for client in &mut idle {
            assert_eq!(client.get("/page").text(), "page");
            assert_eq!(client.goaway(), None);
        }
    });
}

/// A reload that changes the limits of the process replaces it.
#[test]
fn another_server_process_loses_no_connection() {
    on_each_driver(&site().main("worker_rlimit_core 0;"), |server| {
        writable(server, "html/up");
        let first: Vec<UnderWay> = (0..4).map(|n| UnderWay::begin(server, n)).collect();
        let config = fs::read_to_string(server.dir().join("nginx.conf")).unwrap();
        let config = config.replace("worker_rlimit_core 0;", "worker_rlimit_core 1;");
        fs::write(server.dir().join("nginx.conf"), config).unwrap();
        server.reload();
        assert_eq!(server.children().len(), 2);
        let mut second: Vec<UnderWay> = (4..8).map(|n| UnderWay::begin(server, n)).collect();
        end_all(server, first, &mut second);
        end_all(server, second, &mut []);
        until("one process to be left", PATIENCE, || (server.children().len() == 1).then_some(()));
    });
}

/// A server process that crashes: its clients are told, by the one that follows it.
#[test]
fn clients_of_a_process_that_was_killed_are_reset() {
    let builder = site().allow_log("exited on signal 9");
    on_each_driver(&builder, |server| {
        let mut client = http3(server);
        assert_eq!(client.get("/page").text(), "page");
        let killed = server.children()[0];
        signal(killed, Signal::KILL);
        until("another process", PATIENCE, || {
            server.children().iter().any(|pid| *pid != killed).then_some(())
        });
        assert_eq!(http3(server).get("/page").text(), "page");
        client.open("GET", "/page", &[], true);
        client.until("a reset", |client| client.quic.lost().is_some());
        let lost = client.quic.lost().unwrap();
        assert!(matches!(lost, ConnectionError::Reset), "{lost:?}");
    });
}
