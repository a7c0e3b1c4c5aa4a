//! What happens when a server fails.

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, Server};

use super::{group, letters};
use crate::stage::{ask, on_each_driver};

/// Tells which servers were asked.
const TRIED: &str = "add_header X-Tried $upstream_addr always;";

/// How many servers each of so many requests has asked; all are answered by `letter`.
#[track_caller]
fn tries(server: &Server, count: usize, letter: &str) -> Vec<usize> {
    let one = |_| {
        let response = ask(server, "/", &[]);
        assert_eq!(response.text(), letter);
        response.header("x-tried").unwrap().split(", ").count()
    };
    (0..count).map(one).collect()
}

#[test]
fn a_server_that_fails_is_left_alone_for_a_while() {
    on_each_driver(&group("server DEAD; server A;", TRIED), |server| {
        assert_eq!(tries(server, 4, "a"), [2, 1, 1, 1]);
        server.wait_log("connect() failed (111: Connection refused)");
        server.wait_log("upstream server temporarily disabled");
    });
}

#[test]
fn failures_are_forgiven_as_often_as_allowed() {
    on_each_driver(&group("server DEAD max_fails=0 weight=9; server A;", TRIED), |server| {
        assert_eq!(tries(server, 4, "a"), [2; 4]);
    });
}

#[test]
fn failures_count_for_fail_timeout() {
    on_each_driver(&group("server DEAD fail_timeout=0 weight=9; server A;", TRIED), |server| {
        assert_eq!(tries(server, 1, "a"), [2]);
        // nginx counts in seconds.
        let again = || tries(server, 1, "a").contains(&2).then_some(());
        nowait_testkit::wait::until("another try", nowait_testkit::wait::PATIENCE, again);
    });
}

#[test]
fn backups_take_over() {
    on_each_driver(&group("server DEAD; server B backup;", TRIED), |server| {
        assert_eq!(tries(server, 3, "b"), [2, 1, 1]);
    });
}

#[test]
fn nobody_is_left() {
    on_each_driver(&group("server DEAD; server DEAD;", TRIED), |server| {
        let tried = |_| {
            let response = ask(server, "/", &[]);
            assert_eq!(response.status, 502);
            response.header("x-tried").unwrap().to_owned()
        };
        let tried: Vec<String> = (0..2).map(tried).collect();
        assert_eq!(tried[0].split(", ").count(), 2);
        assert_eq!(tried[1], "u");
        server.wait_log("no live upstreams while connecting to upstream");
    });
}

#[test]
fn the_only_server_is_always_tried() {
    on_each_driver(&group("server DEAD;", TRIED), |server| {
        for _ in 0..3 {
            let response = ask(server, "/", &[]);
            assert_eq!(response.status, 502);
            assert!(response.header("x-tried").unwrap().starts_with("127.0.0.1:"));
        }
    });
}

#[test]
fn a_reload_forgets_no_failure() {
    on_each_driver(&group("server DEAD fail_timeout=1h; server A;", TRIED), |server| {
        assert_eq!(tries(server, 2, "a"), [2, 1]);
        server.reload();
        if !server.binary().is_nginx() {
            assert_eq!(tries(server, 4, "a"), [1; 4]);
        }
    });
}

/// A server that is there again gets its share little by little.
#[test]
fn a_server_that_comes_back_starts_slowly() {
    for (slow_start, share) in [("", 10..=10), ("slow_start=10h", 0..=2)] {
        for driver in [Driver::Epoll, Driver::IoUring] {
            // It breaks off once, and is well from then on.
            let reply = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nback";
            let well = || vec![Step::expect("\r\n\r\n"), Step::reply(reply)];
            let mut scripts = vec![vec![Step::expect("\r\n\r\n")]];
            scripts.extend((0..30).map(|_| well()));
            let origin = Origin::start(scripts);
            let block = format!("server {} fail_timeout=1s {slow_start}; server B;", origin.addr());
            let mut server = group(&block, "").driver(driver).start();
            if server.binary().is_nginx() {
                // Only its commercial build has it.
                return;
            }
            server.allow_log("upstream");
            assert_eq!(letters(&server, 1, "/", &[]), "b", "the other one fails");
            nowait_testkit::wait::until("it to be tried", nowait_testkit::wait::PATIENCE, || {
                letters(&server, 1, "/", &[]).contains("back").then_some(())
            });
            let times = letters(&server, 20, "/", &[]).matches("back").count();
            assert!(share.contains(&times), "{slow_start}: {times} of 20");
            server.stop();
        }
    }
}
