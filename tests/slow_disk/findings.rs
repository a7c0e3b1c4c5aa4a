//! What the status says while a disk hangs: which disk it is, who waits for it, and what to do.

use std::process::Command;

use serde_json::Value;

use nowait_testkit::slow_disk::{DiskOptions, Ops, SlowDisk};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Driver, Server};

use crate::stage::{content, on_every_loop};

on_every_loop!(a_disk_that_hangs_is_named);

fn a_disk_that_hangs_is_named(driver: Driver, workers: usize) {
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let names: Vec<String> = (0..12).map(|n| format!("cold/{n}")).collect();
    for name in &names {
        disk.write_cold(name, content(name));
    }
    disk.write_cold("warm", content("warm"));
    let server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
        .driver(driver)
        .workers(workers)
        .main("thread_pool slow threads=2 max_queue=10;")
        .variable("DISK", disk.path().display())
        .http(
            "server {
                listen 127.0.0.1:%%PORT%%;
                location / { root %%DISK%%; aio threads=slow; }
                location /status/ { status_api; }
            }",
        )
        .start();
    let part = |part: &str| -> Value {
        let response = server.get(&format!("/status/{part}"));
        assert_eq!(response.status, 200, "{part}: {response}");
        serde_json::from_str(&response.text()).unwrap()
    };
    // The directory is known from now on, so that what waits is attributed to its disk.
    assert!(server.get("/warm").body == content("warm"));
    assert!(server.get("/cold/0").body == content("cold/0"));
    let quiet = part("findings");
    assert!(quiet.as_array().unwrap().iter().all(|one| one["severity"] != "error"), "{quiet}");

    let gate = disk.hold(Ops::LOOKUP | Ops::OPEN | Ops::READ);
    let mut waiting: Vec<_> = names[1..]
        .iter()
        .map(|name| {
            let mut client = server.client();
            client.send_get(&format!("/{name}"));
            client
        })
        .collect();
    gate.wait_waiting(1);
    let place = disk.path().display().to_string();
    let find = |words: [&str; 2]| {
        until(words[1], PATIENCE, || {
            let all = part("findings");
            let said = |one: &&Value| {
                one["text"]
                    .as_str()
                    .is_some_and(|text| words.iter().all(|word| text.contains(word)))
            };
            all.as_array().unwrap().iter().find(said).cloned()
        })
    };
    let hangs = find([&place, "hangs: no operation has ended for"]);
    assert_eq!(hangs["of"], "file_system");
    assert_eq!(hangs["severity"], "error");
    assert!(hangs["hint"].as_str().unwrap().contains("thread_pool"), "{hangs}");
    // Two threads are busy, and nine of ten places are taken.
    let full = find(["slow", "nearly full: 9 tasks wait of 10 at most, 11 clients"]);
    assert_eq!((&full["of"], &full["subject"]), (&"thread_pool".into(), &"slow".into()));
    assert!(full["hint"].as_str().unwrap().starts_with("a disk is slow"), "{full}");

    let systems = part("file_systems");
    let mine = systems.as_array().unwrap().iter().find(|one| one["directory"] == *place).unwrap();
    assert_eq!((&mine["waiting"], &mine["in_progress"]), (&9.into(), &2.into()), "{mine}");
    assert!(mine["stalled_us"].as_u64() >= Some(1_000_000), "{mine}");
    let events = part("events");
    let nearly = events.as_array().unwrap().iter().find(|one| one["kind"] == "pool_nearly_full");
    let text = nearly.and_then(|event| event["text"].as_str()).unwrap_or_default();
    assert!(text.contains("\"slow\" is nearly full") && text.contains(&place), "{events}");
    server.wait_log("the queue of thread pool \"slow\" is nearly full");

    // The same in a terminal, by the text alone.
    let url = format!("http://127.0.0.1:{}/status/", server.port());
    let mut top = Command::new(env!("CARGO_BIN_EXE_nowait"));
    let output = top.args(["top", "--once", "--interval", "0.2", &url]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said =
        |words: [&str; 3]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(said(["error", &place, "hangs: no operation has ended for"]), "{text}");
    assert!(said(["error", "thread pool slow is nearly full", "11 clients"]), "{text}");
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with(&*place) && line.contains("hangs for")),
        "{text}"
    );

    gate.open();
    for (client, name) in waiting.iter_mut().zip(&names[1..]) {
        assert!(client.response().body == content(name), "{name}");
    }
    server.wait_log("the queue of thread pool \"slow\" is short again");
    until("an idle disk", PATIENCE, || {
        let systems = part("file_systems");
        let mine = systems.as_array().unwrap().iter().find(|one| one["directory"] == *place)?;
        (mine["waiting"] == 0 && mine["in_progress"] == 0).then_some(())
    });
    assert_eq!(server.stop().code(), Some(0));
}
