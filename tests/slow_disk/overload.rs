//! Pools that are full: a documented refusal, and nothing that was accepted is lost.

use nowait_testkit::slow_disk::{DiskOptions, Ops, SlowDisk};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Driver, Server};

use crate::stage::{Case, Stage, content, on_every_case, paths};

on_every_case!(overflow, no_queue);

/// Two threads and four places: of sixteen requests six are accepted and ten refused at once.
fn overflow(case: Case) {
    overflow_with(case, "thread_pool tiny threads=2 max_queue=4;", 2 + 4);
}

/// `max_queue=0` accepts as many as there are threads.
fn no_queue(case: Case) {
    overflow_with(case, "thread_pool tiny threads=2 max_queue=0;", 2);
}

fn overflow_with(case: Case, pool: &str, accepted: usize) {
    const REQUESTS: usize = 16;
    let Some(stage) = Stage::new(case) else { return };
    let names: Vec<_> = (0..REQUESTS).map(|n| format!("cold/{n}")).collect();
    for name in &names {
        stage.write(name, content(name));
    }
    let Some(mut run) = stage.start_with(pool, "location /cold/ { aio threads=tiny; }") else {
        return;
    };
    let gate = run.hold(Ops::LOOKUP | Ops::OPEN);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(1);
    // How many wait depends on whether those accepted last have met their threads yet.
    run.server.wait_log("thread pool \"tiny\" queue overflow: ");
    // One that arrived only after the gate has opened would be served beyond the places.
    let refused = || run.server.log().matches("thread pool \"tiny\" queue overflow: ").count();
    until("all requests to be accepted or refused", PATIENCE, || {
        (refused() >= REQUESTS - accepted).then_some(())
    });
    run.assert_hot_is_served();
    gate.open();
    let responses = cold.responses();
    let served = responses.iter().filter(|(_, response)| response.status == 200).count();
    for (path, response) in &responses {
        match response.status {
            200 => assert!(response.body == content(path.trim_start_matches('/')), "{path}"),
            status => assert_eq!(status, 500, "{path}: {response}"),
        }
    }
    // A request takes more than one trip to the pool; after the first it may be refused as well,
    // and a place that became free may be taken by another. None may be served beyond the places.
    assert!((1..=accepted).contains(&served), "{served} of {REQUESTS} served");
    // Refusal is for the moment only.
    run.request(["/cold/0"]).assert_right();
    run.finish();
}

/// One disk's pool is stuck; another's, named by a variable, serves cold files as ever.
#[test]
fn one_disk_does_not_hold_up_another() {
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let names = |of: &str| (0..8).map(|n| format!("{of}/{n}")).collect::<Vec<_>>();
    let (stuck, sound) = (names("a"), names("b"));
    for name in stuck.iter().chain(&sound) {
        disk.write_cold(name, content(name));
    }
    let server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
        .driver(Driver::Epoll)
        .main("thread_pool pool_a threads=2; thread_pool pool_b threads=2;")
        .variable("DISK", disk.path().display())
        .http(
            "server {
                listen 127.0.0.1:%%PORT%%;
                root %%DISK%%;
                location ~ ^/(?<disk>[ab])/ { aio threads=pool_$disk; }
            }",
        )
        .start();
    let gate = disk.hold((Ops::LOOKUP | Ops::OPEN | Ops::READ).under("a"));
    let mut waiting: Vec<_> = stuck
        .iter()
        .map(|name| {
            let mut client = server.client();
            client.send_get(&format!("/{name}"));
            client
        })
        .collect();
    // The directory's name is looked up once for all.
    gate.wait_waiting(1);
    for name in &sound {
        let response = server.get(&format!("/{name}"));
        assert!(response.status == 200 && response.body == content(name), "{name}: {response}");
    }
    gate.open();
    for (client, name) in waiting.iter_mut().zip(&stuck) {
        assert!(client.response().body == content(name), "{name}");
    }
    assert_eq!(server.stop().code(), Some(0));
}

/// All threads of a disk's pool wait; work that takes processor time runs in another pool.
#[test]
fn a_stuck_disk_does_not_hold_up_compression() {
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    disk.write_cold("cold", content("cold"));
    let text = "a text that is worth compressing, ".repeat(20_000);
    let server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
        .driver(Driver::Epoll)
        .main("thread_pool one threads=1;")
        .variable("DISK", disk.path().display())
        .http(
            "open_file_cache max=10 inactive=1h; open_file_cache_valid 1h;
            server {
                listen 127.0.0.1:%%PORT%%;
                root %%DISK%%; default_type text/html; aio threads=one; gzip on;
                location = /hot.html { root %%DIR%%/html; }
            }",
        )
        .file("html/hot.html", &text)
        .start();
    assert!(server.get("/hot.html").text() == text);
    let gate = disk.hold(Ops::LOOKUP | Ops::OPEN | Ops::READ);
    let mut cold = server.client();
    cold.send_get("/cold");
    gate.wait_waiting(1);
    let mut client = server.client();
    client.send("GET /hot.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.header("Content-Encoding")), (200, Some("gzip")));
    gate.open();
    assert!(cold.response().body == content("cold"));
    assert_eq!(server.stop().code(), Some(0));
}
