//! Reload, shutdown and exhaustion, as a client with an open connection sees them.

use nowait_testkit::client::Arrival;
use nowait_testkit::server::Signal;
use nowait_testkit::wait::PATIENCE;
use nowait_testkit::{Client, check_on, wait};

use crate::stage::{exchanges, on_each_driver, pattern, server, site};

fn answering(text: &str) -> String {
    format!(
        "server {{ listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; location / {{ return 200 {text}; }} \
         location /big {{ }} }}"
    )
}

#[test]
fn a_kept_connection_sees_the_new_configuration() {
    let site = site(&answering("old"));
    on_each_driver(&site, |server| {
        if server.binary().is_nginx() {
            return; // its old worker closes the connection
        }
        let mut client = server.client();
        assert_eq!(client.get("/").text(), "old");
        server.set_http(&answering("new"));
        server.reload();
        assert_eq!(client.get("/").text(), "new");
        // One that is wrong changes nothing.
        server.allow_log("[emerg]");
        server.set_http("nonsense;");
        server.reload();
        assert_eq!(client.get("/").text(), "new");
        assert_eq!(server.get("/").text(), "new");
    });
}

#[test]
fn a_closed_connection_keeps_no_generation_alive() {
    let logged = |log: &str| {
        format!(
            "server {{ listen 127.0.0.1:%%PORT%%; access_log %%DIR%%/{log}; \
             location / {{ return 200 {log}; }} }}"
        )
    };
    let site = site(&logged("old.log"));
    on_each_driver(&site, |server| {
        let close = "GET / HTTP/1.1\nHost: localhost\nConnection: close";
        for _ in 0..3 {
            check_on(server, close, "200\n\nold.log\n---\nclosed");
        }
        server.set_http(&logged("new.log"));
        server.reload();
        // The log belongs to the generation: it is closed when nothing refers to that any more.
        wait::until("the old log is closed", PATIENCE, || {
            let Some(open) = server.descriptors() else { return Some(()) };
            open.iter().all(|open| !open.target.ends_with("old.log")).then_some(())
        });
        check_on(server, close, "200\n\nnew.log\n---\nclosed");
    });
}

#[test]
fn a_connection_sees_nothing_of_an_earlier_one() {
    let site = server(
        "uninitialized_variable_warn off;
        location ~ ^/set/(.+) { set $v $1; return 200 [$v|$1|$args|$http_x|$connection_requests]; }
        location / { return 200 [$v|$1|$args|$http_x|$connection_requests]; }",
    );
    let first = "GET /set/a?b HTTP/1.1\nHost: x\nX: c\nConnection: close";
    let plain = "GET / HTTP/1.1\nHost: x\nConnection: close";
    exchanges(
        &site,
        &[
            (first, "200\n\n[a|a|b|c|1]\n---\nclosed"),
            (plain, "200\n\n[||||1]\n---\nclosed"),
            (first, "200\n\n[a|a|b|c|1]\n---\nclosed"),
            (plain, "200\n\n[||||1]\n---\nclosed"),
        ],
    );
}

#[test]
fn a_download_survives_a_reload() {
    let body = pattern(24 << 20);
    let site = site(&answering("old")).file("html/big", &body);
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send_get("/big");
        assert!(matches!(client.arrives_within(PATIENCE), Arrival::Bytes(_)));
        server.set_http(&answering("new"));
        server.reload();
        assert!(client.response().body == body);
        assert_eq!(server.get("/").text(), "new");
    });
}

#[test]
fn a_graceful_end_finishes_requests_and_closes_idle_connections_at_once() {
    let body = pattern(24 << 20);
    let site =
        server("keepalive_timeout 1h; location /r { return 200 OK; }").file("html/big", &body);
    for driver in [nowait_testkit::Driver::Epoll, nowait_testkit::Driver::IoUring] {
        let server = site.clone().driver(driver).start();
        let mut idle = server.client();
        assert_eq!(idle.get("/r").text(), "OK");
        let mut busy = server.client();
        busy.send_get("/big");
        let mut all = busy.read_some(100);
        server.signal(Signal::QUIT);
        idle.expect_closed();
        wait::until("the listener to be closed", wait::PATIENCE, || {
            Client::try_to(server.addr()).is_err().then_some(())
        });
        while let Arrival::Bytes(_) = busy.arrives_within(PATIENCE) {
            all.append(&mut busy.read_some(usize::MAX));
        }
        assert!(all.ends_with(&body), "{} bytes came", all.len());
        assert!(server.quit().success());
    }
}

#[test]
fn connections_beyond_the_limit_wait_for_room() {
    let site = server("keepalive_timeout 1h; location / { return 200 OK; }")
        .events("worker_connections 16;")
        .allow_log("worker_connections are not enough");
    on_each_driver(&site, |server| {
        if server.binary().is_nginx() {
            return; // sacrifices idle connections instead
        }
        let mut open: Vec<_> = (0..40)
            .map(|_| {
                let mut client = server.client();
                client.send_get("/");
                client
            })
            .collect();
        // Who leaves makes room for who waits.
        for mut client in open.drain(..) {
            assert_eq!(client.response().text(), "OK");
        }
    });
}

#[test]
fn a_graceful_end_takes_no_longer_than_allowed() {
    let site = server("sendfile on; send_timeout 1h;")
        .main("worker_shutdown_timeout 100ms;")
        .file("html/big", pattern(24 << 20));
    for driver in [nowait_testkit::Driver::Epoll, nowait_testkit::Driver::IoUring] {
        let mut server = site.clone().driver(driver).start();
        let mut client = server.client();
        client.send_get("/big");
        assert!(matches!(client.arrives_within(PATIENCE), Arrival::Bytes(_)));
        // The client reads no further, and would keep the server for an hour.
        server.signal(Signal::QUIT);
        assert!(server.wait_exit(PATIENCE).success());
        assert!(client.try_response(false).is_err(), "the response can't have been completed");
        assert!(server.read("access.log").contains("GET /big"));
    }
}

#[test]
fn what_the_server_says_of_itself() {
    let site =
        server("location /off { server_tokens off; } location /build { server_tokens build; }");
    on_each_driver(&site, |server| {
        let said = |path: &str| {
            let response = server.get(path);
            let name = response.header("server").unwrap().to_owned();
            assert!(response.text().contains(&format!("<center>{name}</center>")), "{response}");
            name
        };
        assert!(said("/on").contains('/'));
        assert!(!said("/off").contains('/'));
        assert!(said("/build").starts_with(&said("/on")));
    });
}

/// What a process that is not dumpable has in `/proc` belongs to root.
#[test]
fn a_server_process_gains_no_privileges_and_hides_its_memory() {
    use std::os::unix::fs::MetadataExt;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    for (core, is_open) in [("", false), ("worker_rlimit_core 1m;", true)] {
        // As root, it changes to another user.
        let site = site(&answering("ok")).main(core);
        on_each_driver(&site, |server| {
            if server.binary().is_nginx() {
                return;
            }
            assert_eq!(server.get("/").text(), "ok");
            for child in server.children() {
                let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
                assert!(status.contains("NoNewPrivs:\t1"), "{status}");
                let owner = std::fs::metadata(format!("/proc/{child}/maps")).unwrap().uid();
                assert_eq!(owner != 0, is_open || !is_root, "{core}");
            }
        });
    }
}
