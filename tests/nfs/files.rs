//! Requests for files on NFS: no matter what they need of it, the loop does not wait.

use nowait_testkit::Driver;
use nowait_testkit::client::Arrival;
use nowait_testkit::slow_disk::mount_elsewhere;
use nowait_testkit::wait::PATIENCE;

use crate::stage::{NfsStage, RECOVERY, Setup, content, filled, on_every_loop};

on_every_loop!(opening, names, reading, a_mount_elsewhere, midway);

/// Bytes of a file that fits into no socket buffer, and that the kernel does not read ahead.
const LARGE_BYTES: usize = 16 << 20;

/// Neither names nor data are in memory.
fn opening(driver: Driver, workers: usize) {
    let Some(mut stage) = NfsStage::start(driver, workers, Setup::default()) else { return };
    let mut cold = stage.freeze_under_load();
    stage.assert_others_are_served();
    cold.assert_waits();
    stage.nfs.thaw();
    cold.assert_right();
    stage.assert_others_are_served();
    stage.finish();
}

/// Everything that looks at names.
fn names(driver: Driver, workers: usize) {
    let setup = Setup {
        locations: "location /try/ { try_files $uri $uri/ $uri.html /known; }
            location /if/ { if (!-e $request_filename) { return 404 none; } }
            location /list/ { autoindex on; }
            location /index/ { index first.html second.html; }
            location /entries/ { open_file_cache max=100; open_file_cache_valid 0; }
            location /page/ { error_page 404 /known; }",
        ..Setup::default()
    };
    let Some(mut stage) = NfsStage::start(driver, workers, setup) else { return };
    stage.nfs.write_cold("list/entry", "x");
    stage.nfs.write_cold("index/second.html", content("index/second.html"));
    stage.nfs.write_cold("entries/kept", content("entries/kept"));
    assert_eq!(stage.server.get("/entries/kept").body, content("entries/kept"));
    let expected = [
        ("/try/nothing", 200, content("known")),
        ("/if/nothing", 404, b"none".to_vec()),
        ("/index/", 200, content("index/second.html")),
        ("/page/nothing", 404, content("known")),
        ("/deep/er/nothing", 404, Vec::new()),
        ("/list", 301, Vec::new()),
        ("/list/", 200, Vec::new()),
    ];
    stage.nfs.freeze();
    let mut cold = stage.request(expected.iter().map(|(path, ..)| *path));
    // Whether this one waits is up to the kernel: it may still trust what it knows of the file.
    let mut kept = stage.request(["/entries/kept"]);
    stage.wait_stuck("nfs", expected.len() as u64);
    stage.assert_others_are_served();
    cold.assert_waits();
    stage.nfs.thaw();
    for ((path, response), (_, status, body)) in cold.responses().iter().zip(&expected) {
        assert_eq!(response.status, *status, "{path}: {response}");
        assert!(body.is_empty() || response.body == *body, "{path}: wrong content");
        assert!(*path != "/list/" || response.text().contains(">entry</a>"), "{response}");
    }
    kept.assert_right();
    stage.finish();
}

/// Names are in memory; data is not.
fn reading(driver: Driver, workers: usize) {
    let setup = Setup {
        locations: "location /unmapped/ { sendfile off; } location /mapped/ { sendfile on; }",
        ..Setup::default()
    };
    let Some(mut stage) = NfsStage::start(driver, workers, setup) else { return };
    let names: Vec<_> = ["unmapped", "mapped"]
        .iter()
        .flat_map(|kind| (0..8).map(move |n| format!("{kind}/{n}")))
        .collect();
    for name in &names {
        stage.nfs.write_cold(name, content(name));
        // What a listing of the directory leaves in memory.
        std::fs::metadata(stage.nfs.path().join(name)).unwrap();
    }
    stage.nfs.freeze();
    let mut cold = stage.request(names.iter().map(|name| format!("/{name}")));
    stage.wait_stuck("nfs", 1);
    stage.assert_others_are_served();
    cold.assert_waits();
    stage.nfs.thaw();
    cold.assert_right();
    stage.finish();
}

/// Container engines mount all the time. The server then has to find out what is where.
fn a_mount_elsewhere(driver: Driver, workers: usize) {
    let Some(mut stage) = NfsStage::start(driver, workers, Setup::default()) else { return };
    let mut cold = stage.freeze_under_load();
    mount_elsewhere();
    stage.assert_others_are_served();
    cold.assert_waits();
    stage.nfs.thaw();
    cold.assert_right();
    stage.finish();
}

/// The NFS server goes away while files are being sent.
fn midway(driver: Driver, workers: usize) {
    let setup = Setup {
        locations: "location /copied/ { sendfile off; } location /sent/ { sendfile on; }",
        ..Setup::default()
    };
    let Some(mut stage) = NfsStage::start(driver, workers, setup) else { return };
    let paths = ["/copied/0", "/sent/0"];
    let large = |path: &str| filled(path, LARGE_BYTES);
    let clients = paths.map(|path| {
        stage.nfs.write_cold(&path[1..], large(path));
        let mut client = stage.server.client();
        client.set_patience(RECOVERY);
        client.send_get(path);
        let arrival = client.arrives_within(PATIENCE);
        assert!(matches!(arrival, Arrival::Bytes(_)), "{path}: {arrival:?}");
        client
    });
    stage.nfs.freeze();
    // Now they take all there is, so that the server needs more from NFS.
    let readers = clients.map(|mut client| std::thread::spawn(move || client.response()));
    stage.wait_stuck("nfs", 1);
    stage.assert_others_are_served();
    assert!(readers.iter().all(|reader| !reader.is_finished()), "the kernel had read all of it");
    stage.nfs.thaw();
    for (path, reader) in paths.iter().zip(readers) {
        let response = reader.join().expect("the reader's own failure is above");
        assert_eq!(response.status, 200, "{path}: {response}");
        assert!(response.body == large(path), "{path}: wrong content");
    }
    stage.finish();
}
