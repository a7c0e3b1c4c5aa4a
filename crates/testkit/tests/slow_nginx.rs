//! The kit measures what it claims: on its disk nginx behaves as an nginx on a slow disk does.
//! A worker without a thread pool waits for one cold read with every connection it has; a pool
//! takes the read away, but not the `open()`.

use std::time::{Duration, Instant};

use nowait_testkit::client::Arrival;
use nowait_testkit::slow_disk::{DiskImage, ImageOptions, Ops};
use nowait_testkit::{Binary, Server, ServerBuilder, skip, wait};

/// How long a blocked worker is given to prove that it is not. Long enough that an answer would
/// have come on any machine; a false "blocked" can only hide a surprise about nginx.
const SILENCE: Duration = Duration::from_millis(300);

/// An nginx with one worker that serves `hot/file` from memory and `cold/file` from the disk.
fn setup() -> Option<(DiskImage, ServerBuilder)> {
    let Some(nginx) = Binary::nginx() else {
        skip("nginx", "nginx is not installed");
        return None;
    };
    let mut image = DiskImage::or_skip(ImageOptions::default())?;
    image.write("hot/file", "hot");
    image.write("cold/file", vec![b'c'; 100_000]);
    image.make_cold();
    let builder = Server::of(nginx).variable("DISK", image.path().display());
    Some((image, builder))
}

const WITHOUT_POOL: &str = "server { listen 127.0.0.1:%%PORT%%; root %%DISK%%; }";
const WITH_POOL: &str =
    "server { listen 127.0.0.1:%%PORT%%; root %%DISK%%; aio threads; sendfile off; }";

#[test]
fn one_cold_read_blocks_a_worker_without_a_pool() {
    let Some((image, builder)) = setup() else { return };
    let server = builder.http(WITHOUT_POOL).start();
    let (mut hot, mut cold) = (server.client(), server.client());
    assert_eq!(hot.get("/hot/file").text(), "hot");
    // Names and inode are in memory; the data is not.
    std::fs::metadata(image.path().join("cold/file")).unwrap();
    let gate = image.hold();
    cold.send_get("/cold/file");
    gate.wait_waiting(1);
    hot.send_get("/hot/file");
    assert_eq!(hot.arrives_within(SILENCE), Arrival::Nothing);
    gate.open();
    assert_eq!(hot.response().text(), "hot");
    assert_eq!(cold.response().body.len(), 100_000);
}

/// The same in time, as a user sees it: what is in memory takes as long as the disk.
#[test]
fn a_hot_request_takes_as_long_as_the_disk() {
    const LATENCY: Duration = Duration::from_millis(400);
    let Some((image, builder)) = setup() else { return };
    let server = builder.http(WITHOUT_POOL).start();
    let (mut hot, mut cold) = (server.client(), server.client());
    assert_eq!(hot.get("/hot/file").text(), "hot");
    std::fs::metadata(image.path().join("cold/file")).unwrap();
    image.disk().delay(Ops::READ, LATENCY);
    let reads = image.disk().seen(Ops::READ);
    let began = Instant::now();
    cold.send_get("/cold/file");
    wait::until("the disk to be at work", wait::PATIENCE, || {
        (image.disk().seen(Ops::READ) > reads).then_some(())
    });
    assert_eq!(hot.get("/hot/file").text(), "hot");
    assert!(began.elapsed() >= LATENCY, "{:?}", began.elapsed());
    image.disk().heal();
    assert_eq!(cold.response().body.len(), 100_000);
}

#[test]
fn a_pool_takes_the_read_away() {
    let Some((image, builder)) = setup() else { return };
    let server = builder.http(WITH_POOL).start();
    let (mut hot, mut cold) = (server.client(), server.client());
    assert_eq!(hot.get("/hot/file").text(), "hot");
    std::fs::metadata(image.path().join("cold/file")).unwrap();
    let gate = image.hold();
    cold.send_get("/cold/file");
    gate.wait_waiting(1);
    assert_eq!(hot.get("/hot/file").text(), "hot");
    assert_eq!(gate.waiting(), 1);
    gate.open();
    assert_eq!(cold.response().body.len(), 100_000);
}

#[test]
fn a_pool_does_not_take_the_open_away() {
    let Some((image, builder)) = setup() else { return };
    let server = builder.http(WITH_POOL).start();
    let (mut hot, mut cold) = (server.client(), server.client());
    assert_eq!(hot.get("/hot/file").text(), "hot");
    let gate = image.hold();
    cold.send_get("/cold/file");
    gate.wait_waiting(1);
    hot.send_get("/hot/file");
    assert_eq!(hot.arrives_within(SILENCE), Arrival::Nothing);
    gate.open();
    assert_eq!(hot.response().text(), "hot");
    assert_eq!(cold.response().body.len(), 100_000);
}
