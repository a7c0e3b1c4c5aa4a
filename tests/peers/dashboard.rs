//! The dashboard in Chromium: what it shows, that it follows, and that axe finds no barrier. With the variable
//! `NOWAIT_PICTURES` in the environment, the pictures of `docs/images` are written there.

use nowait_testkit::slow_disk::{DiskOptions, Ops, SlowDisk};
use nowait_testkit::{Binary, Driver, Server, TempDir};

use crate::stage::{fetched, program, skipped, source, succeed};

#[test]
fn dashboard() {
    let (Some(mut node), Some(chromium)) = (program("node"), program("chromium")) else { return };
    let axe = fetched().join("node_modules/axe-core/axe.min.js");
    if !axe.is_file() {
        return skipped("axe-core is not installed");
    }
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    (0..12).for_each(|n| drop(disk.write_cold(&format!("media/{n}"), "film")));
    let server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
        .driver(Driver::IoUring)
        .workers(2)
        .main("thread_pool media threads=2 max_queue=10;")
        .variable("DISK", disk.path().display())
        .http(
            "limit_req_zone $uri zone=api:1m rate=1r/s;
            upstream app { server 127.0.0.1:%%PORT_1%%; server 127.0.0.1:%%PORT_2%% backup; }
            server {
                listen 127.0.0.1:%%PORT%%;
                root %%DIR%%/html;
                status_zone www;
                location /dashboard/ { dashboard on interval=200ms; }
                location /status/ { status_api; }
                location /media/ { root %%DISK%%; aio threads=media; }
                location /api/ { status_zone \"<b>bold</b>\"; limit_req zone=api; proxy_pass http://app; }
            }
            server { listen 127.0.0.1:%%PORT_2%%; location / { return 200 backup; } }",
        )
        .file("html/a.txt", "text")
        .allow_log("Connection refused")
        .start();
    assert_eq!(server.get("/a.txt").text(), "text");
    assert_eq!(server.get("/api/").text(), "backup");
    assert_eq!(server.get("/api/").status, 503);
    // The disk hangs from now on: two requests are at it, and nine wait.
    assert_eq!(server.get("/media/0").text(), "film");
    let gate = disk.hold(Ops::LOOKUP | Ops::OPEN | Ops::READ);
    let mut waiting: Vec<_> = (0..12).map(|_| server.client()).collect();
    for (n, client) in waiting.iter_mut().enumerate().skip(1) {
        client.send_get(&format!("/media/{n}"));
    }
    gate.wait_waiting(1);
    let home = TempDir::new("peers-dashboard");
    node.arg("--experimental-websocket").arg(source("dashboard.mjs"));
    node.arg(format!("http://127.0.0.1:{}/dashboard/", server.port()));
    node.args([chromium.get_program(), home.path().as_os_str(), axe.as_os_str()]);
    node.args(std::env::var_os("NOWAIT_PICTURES"));
    eprintln!("{}", succeed(&mut node));
    gate.open();
    for client in waiting.iter_mut().skip(1) {
        assert_eq!(client.response().text(), "film");
    }
    assert_eq!(server.stop().code(), Some(0));
}
