//! Logs, cached objects and request bodies on NFS.

use nowait_testkit::Driver;
use nowait_testkit::server::Signal;
use nowait_testkit::wait::{PATIENCE, until};

use crate::lifecycle::{end_master_without_nfs, reload_by_command};
use crate::stage::{NfsStage, RECOVERY, Setup, content, on_every_loop};

on_every_loop!(logs, logs_at_the_end, cache, bodies);

const LOGS: Setup<'_> = Setup {
    main: "error_log %%NFS%%/error.log info;",
    http: "access_log %%NFS%%/access.log;",
    locations: "",
};

/// No line is lost that fits into the rings, and nothing waits for them.
fn logs(driver: Driver, workers: usize) {
    let Some(mut stage) = NfsStage::start(driver, workers, LOGS) else { return };
    let mut cold = stage.freeze_under_load();
    stage.assert_others_are_served();
    let http = stage.http.replace("return 200 old;", "return 200 new;");
    stage.server.set_http(&http);
    reload_by_command(&stage);
    assert_eq!(stage.server.get("/generation?reloaded").text(), "new");
    stage.assert_others_are_served();
    stage.nfs.thaw();
    cold.assert_right();
    for (log, line) in [("error.log", "reconfiguring"), ("access.log", "/generation?reloaded")] {
        until(&format!("{line:?} in {log}"), RECOVERY, || {
            let text = std::fs::read(stage.nfs.exported().join(log)).unwrap_or_default();
            String::from_utf8_lossy(&text).contains(line).then_some(())
        });
    }
    stage.finish();
}

/// The master ends. The server process may have to stay: what it wrote to the mount has to be
/// flushed when it ends, and this wait can't be killed.
fn logs_at_the_end(driver: Driver, workers: usize) {
    let Some(mut stage) = NfsStage::start(driver, workers, LOGS) else { return };
    let cold = stage.freeze_under_load();
    end_master_without_nfs(&mut stage, Signal::TERM, cold);
    stage.nfs.thaw();
}

/// What is not in the cache comes from the origin; what is waits for the disk, alone.
fn cache(driver: Driver, workers: usize) {
    let setup = Setup {
        http: "proxy_cache_path %%NFS%%/cache levels=1:2 keys_zone=nfs:1m use_temp_path=off;",
        locations: "location /stored/ {
            proxy_pass http://127.0.0.1:%%PORT_1%%/origin/;
            proxy_cache nfs;
            proxy_cache_valid 1h;
            add_header X-Cache $upstream_cache_status;
        }",
        ..Setup::default()
    };
    let Some(mut stage) = NfsStage::start(driver, workers, setup) else { return };
    for n in 0..8 {
        stage.server.write(&format!("origin/{n}"), content(&format!("stored/{n}")));
    }
    for n in 0..4 {
        until("a hit", PATIENCE, || {
            let response = stage.server.get(&format!("/stored/{n}"));
            assert!(response.body == content(&format!("stored/{n}")), "wrong content");
            (response.header("X-Cache") == Some("HIT")).then_some(())
        });
    }
    let mut cold = stage.freeze_under_load();
    // Hits wait or come from memory, as it happens.
    let mut hits = stage.request((0..4).map(|n| format!("/stored/{n}")));
    stage.assert_others_are_served();
    stage.request((4..6).map(|n| format!("/stored/{n}"))).assert_right();
    stage.nfs.thaw();
    cold.assert_right();
    hits.assert_right();
    stage.request((4..8).map(|n| format!("/stored/{n}"))).assert_right();
    stage.finish();
}

/// Request bodies that go to files on NFS.
fn bodies(driver: Driver, workers: usize) {
    let setup = Setup {
        locations: "location /upload/ {
            client_body_temp_path %%NFS%%/bodies;
            client_body_buffer_size 8k;
            proxy_pass http://127.0.0.1:%%PORT_2%%/;
        }",
        http: "server { listen 127.0.0.1:%%PORT_2%%; location / { return 200 taken; } }",
        ..Setup::default()
    };
    let Some(mut stage) = NfsStage::start(driver, workers, setup) else { return };
    let body = content("body");
    let upload = |stage: &NfsStage| {
        let mut client = stage.server.client();
        client.set_patience(RECOVERY);
        client.send(format!(
            "POST /upload/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        client.send(&body);
        client
    };
    assert_eq!(upload(&stage).response().text(), "taken");
    stage.nfs.freeze();
    let mut clients: Vec<_> = (0..4).map(|_| upload(&stage)).collect();
    // Temporary files belong to the default pool, no matter what `aio` says.
    stage.wait_stuck("default", clients.len() as u64);
    stage.assert_others_are_served();
    stage.nfs.thaw();
    for client in &mut clients {
        assert_eq!(client.response().text(), "taken");
    }
    stage.finish();
}
