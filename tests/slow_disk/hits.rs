//! Requests for what is in the cache, on a disk that fails or hangs in the middle of the response: the
//! rest comes from the origin, if it certainly has the same object. Else the connection is cut; nothing
//! ever gets other bytes.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use nowait_testkit::slow_disk::{
    DiskImage, DiskOptions, EIO, ImageOptions, Ops, Quiet, SlowDisk, evict, quiet,
};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Client, Driver, Server};

use crate::along::{BYTES, content, request};
use crate::stage::on_every_loop;

on_every_loop!(
    the_rest_comes_from_the_origin,
    an_origin_that_knows_no_ranges_sends_all_of_it,
    what_cant_be_read_is_stored_anew,
    ranges_go_on,
    slices_go_on,
    another_object_is_never_mixed_in,
    filters_get_it_too,
    a_disk_that_hangs_is_not_waited_for,
    a_local_disk_fails,
    a_local_disk_hangs,
);

fn the_rest_comes_from_the_origin(driver: Driver, workers: usize) {
    let Some(stage) = HitStage::start(driver, workers, USUAL) else { return };
    stage.store("/a");
    let mut reader = stage.begin("/a", "");
    stage.fail();
    assert!(reader.response().body == content(), "wrong content");
    let again = stage.last_request();
    assert!(again.contains("\r\nIf-Range: \"one\"\r\n"), "{again}");
    assert!(again.contains("\r\nRange: bytes="), "{again}");
    stage.end();
}

fn an_origin_that_knows_no_ranges_sends_all_of_it(driver: Driver, workers: usize) {
    let fields = "Date: Sun, 22 Nov 2026 04:00:00 GMT\r\n\
                  Last-Modified: Sun, 22 Nov 2026 03:00:00 GMT\r\n";
    let manner = Manner { first: fields, later: fields, ranges: false };
    let Some(stage) = HitStage::start(driver, workers, manner) else { return };
    stage.store("/a");
    let mut reader = stage.begin("/a", "");
    stage.fail();
    assert!(reader.response().body == content(), "wrong content");
    let again = stage.last_request();
    assert!(again.contains("\r\nIf-Range: Sun, 22 Nov 2026 03:00:00 GMT\r\n"), "{again}");
    stage.end();
}

/// It may be one bad place on the disk: the next request gets the object stored in another.
fn what_cant_be_read_is_stored_anew(driver: Driver, workers: usize) {
    let weak = Manner { first: "ETag: W/\"one\"\r\n", later: "ETag: W/\"one\"\r\n", ..USUAL };
    for manner in [USUAL, weak] {
        let Some(mut stage) = HitStage::start(driver, workers, manner) else { return };
        stage.server.allow_log("can't be completed");
        stage.store("/a");
        let mut reader = stage.begin("/a", "");
        stage.fail();
        assert_eq!(reader.try_response(false).is_ok(), manner.first == USUAL.first);
        stage.disk().heal();
        until("the object to be fetched again", PATIENCE, || {
            (stage.server.get("/a").header("X-Cache") == Some("MISS")).then_some(())
        });
        stage.store("/a");
        stage.end();
    }
}

fn ranges_go_on(driver: Driver, workers: usize) {
    let Some(stage) = HitStage::start(driver, workers, USUAL) else { return };
    stage.store("/a");
    let mut one = stage.begin("/a", "Range: bytes=1000-9000000\r\n");
    let mut two = stage.begin("/a", "Range: bytes=0-6000000,7000000-7999999\r\n");
    stage.fail();
    let response = one.response();
    assert_eq!(response.status, 206);
    assert!(response.body == content()[1000..=9_000_000], "wrong content");
    let response = two.response();
    assert_eq!(response.status, 206);
    let holds = |part: &[u8]| response.body.windows(part.len()).any(|window| window == part);
    let length = response.body.len();
    assert!(length > 7_000_001 && length < 7_001_000, "{length} bytes");
    assert!(holds(&content()[5_999_000..=6_000_000]), "wrong end of the first part");
    assert!(holds(&content()[7_000_000..7_001_000]), "wrong beginning of the second part");
    assert!(holds(&content()[7_999_000..8_000_000]), "wrong end of the second part");
    stage.end();
}

fn slices_go_on(driver: Driver, workers: usize) {
    let Some(stage) = HitStage::start(driver, workers, USUAL) else { return };
    stage.store("/slices");
    let asked = stage.asked();
    assert!(asked >= 3, "{asked} slices");
    let mut reader = stage.begin("/slices", "");
    let mut range = stage.begin("/slices", "Range: bytes=5000000-8000000\r\n");
    assert_eq!(stage.asked(), asked, "not stored");
    stage.fail();
    assert!(reader.response().body == content(), "wrong content");
    assert!(range.response().body == content()[5_000_000..=8_000_000], "wrong content");
    stage.server.wait_log("the rest of the response is fetched from the origin");
    stage.end();
}

fn another_object_is_never_mixed_in(driver: Driver, workers: usize) {
    let other = Manner { later: "ETag: \"two\"\r\n", ..USUAL };
    let weak = Manner { first: "ETag: W/\"one\"\r\n", later: "ETag: W/\"one\"\r\n", ..USUAL };
    for manner in [other, Manner { ranges: false, ..other }, weak] {
        for path in ["/a", "/filtered"] {
            let Some(mut stage) = HitStage::start(driver, workers, manner) else { return };
            stage.server.allow_log("can't be completed");
            stage.store("/a");
            let mut reader = stage.begin(path, "");
            stage.fail();
            assert!(reader.try_response(false).is_err(), "{}", manner.first);
            if path == "/a" {
                let got = reader.pending();
                assert!(got.len() < BYTES && content().starts_with(got), "other bytes");
            }
            stage.end();
        }
    }
}

fn filters_get_it_too(driver: Driver, workers: usize) {
    let Some(stage) = HitStage::start(driver, workers, USUAL) else { return };
    stage.store("/a");
    let mut reader = stage.begin("/filtered", "");
    stage.fail();
    let body = reader.response().body;
    assert!(body.len() == BYTES && body.starts_with(b"Begin"), "not filtered");
    assert!(body[5..] == content()[5..], "wrong content");
    stage.end();
}

/// When the disk has not answered for as long as a disk may take, it is given up.
fn a_disk_that_hangs_is_not_waited_for(driver: Driver, workers: usize) {
    let Some(stage) = HitStage::start(driver, workers, USUAL) else { return };
    stage.store("/a");
    stage.store("/slices");
    let mut readers = vec![stage.begin("/a", ""), stage.begin("/slices", "")];
    readers.push(stage.begin("/limited", ""));
    let gate = stage.disk().hold(Ops::READ);
    for reader in &mut readers {
        assert!(reader.response().body == content(), "wrong content");
    }
    stage.server.wait_log("is out of use: its disk is hanging");
    gate.open();
    stage.end();
}

/// On a local disk what is in memory is sent by the loop, and the rest by the pool.
fn a_local_disk_fails(driver: Driver, workers: usize) {
    let Some(stage) = HitStage::local(driver, workers) else { return };
    stage.store("/a");
    stage.store("/slices");
    stage.make_cold();
    let mut readers = [stage.begin("/a", ""), stage.begin("/slices", "")];
    stage.fail();
    for reader in &mut readers {
        assert!(reader.response().body == content(), "wrong content");
    }
    assert!(stage.asked() > 4, "read from memory");
    stage.end();
}

fn a_local_disk_hangs(driver: Driver, workers: usize) {
    let Some(stage) = HitStage::local(driver, workers) else { return };
    stage.store("/a");
    stage.make_cold();
    let mut reader = stage.begin("/a", "");
    let gate = stage.disk().hold(Ops::READ);
    assert!(reader.response().body == content(), "wrong content");
    gate.open();
    stage.end();
}

/// How the origin answers.
#[derive(Clone, Copy)]
struct Manner {
    /// Lines of responses while the disk is well.
    first: &'static str,
    /// Lines of those after that.
    later: &'static str,
    /// Ranges are answered; else all of it is.
    ranges: bool,
}

const USUAL: Manner =
    Manner { first: "ETag: \"one\"\r\n", later: "ETag: \"one\"\r\n", ranges: true };

/// A server that caches on a disk.
struct HitStage {
    server: Server,
    origin: Arc<Mutex<OriginLog>>,
    disk: HitDisk,
    _quiet: Quiet,
}

/// What the cache is on.
enum HitDisk {
    /// Something like a network's.
    Fuse(SlowDisk),
    /// A local one.
    Ext4(Box<DiskImage>),
}

/// What the origin has seen.
#[derive(Default)]
struct OriginLog {
    requests: Vec<String>,
    /// The disk has failed.
    later: bool,
}

impl HitStage {
    fn start(driver: Driver, workers: usize, manner: Manner) -> Option<HitStage> {
        let options = DiskOptions { pages_cached: false, ..DiskOptions::default() };
        Some(HitStage::on(HitDisk::Fuse(SlowDisk::or_skip(options)?), driver, workers, manner))
    }

    fn local(driver: Driver, workers: usize) -> Option<HitStage> {
        let image = DiskImage::or_skip(ImageOptions::default())?;
        Some(HitStage::on(HitDisk::Ext4(Box::new(image)), driver, workers, USUAL))
    }

    fn on(disk: HitDisk, driver: Driver, workers: usize, manner: Manner) -> HitStage {
        let quiet = quiet();
        let (port, origin) = origin(manner);
        let server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
            .driver(driver)
            .workers(workers)
            .allow_log("Input/output error")
            .allow_log("cache")
            .variable("DISK", disk.path().display())
            .variable("ORIGIN", port)
            .http(
                "proxy_cache_path %%DISK%%/cache keys_zone=one:1m;
                server {
                    listen 127.0.0.1:%%PORT%% sndbuf=64k;
                    proxy_cache one;
                    proxy_cache_key object$slice_range;
                    proxy_cache_valid 200 206 1h;
                    add_header X-Cache $upstream_cache_status;
                    proxy_force_ranges on;
                    location / { proxy_pass http://127.0.0.1:%%ORIGIN%%; }
                    location /limited {
                        proxy_pass http://127.0.0.1:%%ORIGIN%%;
                        sendfile off;
                    }
                    location /filtered {
                        proxy_pass http://127.0.0.1:%%ORIGIN%%;
                        sub_filter begin Begin;
                        sub_filter_types *;
                        sub_filter_last_modified on;
                    }
                    location /slices {
                        proxy_pass http://127.0.0.1:%%ORIGIN%%;
                        slice 4m;
                        proxy_set_header Range $slice_range;
                    }
                }",
            )
            .start();
        HitStage { server, origin, disk, _quiet: quiet }
    }

    /// What can be made to fail.
    fn disk(&self) -> &SlowDisk {
        match &self.disk {
            HitDisk::Fuse(disk) => disk,
            HitDisk::Ext4(image) => image.disk(),
        }
    }

    /// Nothing of a local disk's files is in memory any more. (Of the other one it never is: each opening
    /// drops it.)
    fn make_cold(&self) {
        evict(&self.disk.path()).unwrap();
    }

    /// Puts the object into the cache.
    fn store(&self, path: &str) {
        until("the object to be stored", PATIENCE, || {
            let response = self.server.get(path);
            assert!(response.body == content(), "wrong content");
            (response.header("X-Cache") == Some("HIT")).then_some(())
        });
    }

    /// Someone who asks for it, and takes nothing for now but its beginning.
    fn begin(&self, path: &str, lines: &str) -> Client {
        let mut reader = self.server.client();
        reader.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"));
        reader.arrives_within(PATIENCE);
        reader
    }

    /// The disk can't be read any more.
    fn fail(&self) {
        self.origin.lock().unwrap().later = true;
        self.disk().fail(Ops::READ, EIO);
    }

    fn last_request(&self) -> String {
        self.origin.lock().unwrap().requests.last().cloned().unwrap_or_default()
    }

    fn asked(&self) -> usize {
        self.origin.lock().unwrap().requests.len()
    }

    fn end(self) {
        self.disk().heal();
        assert!(self.server.quit().success());
    }
}

impl HitDisk {
    fn path(&self) -> PathBuf {
        match self {
            HitDisk::Fuse(disk) => disk.path(),
            HitDisk::Ext4(image) => image.path().to_owned(),
        }
    }
}

/// Sends the object to every client that asks.
fn origin(manner: Manner) -> (u16, Arc<Mutex<OriginLog>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(OriginLog::default()));
    let shared = seen.clone();
    // It ends with the test program.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), seen) = (stream, shared.clone()) else { continue };
            std::thread::spawn(move || {
                let Some(request) = request(&mut stream) else { return };
                let lines = {
                    let mut seen = seen.lock().unwrap();
                    seen.requests.push(request.clone());
                    if seen.later { manner.later } else { manner.first }
                };
                let (head, body) = answer(manner, lines, &request);
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
            });
        }
    });
    (port, seen)
}

fn answer(manner: Manner, lines: &str, request: &str) -> (String, &'static [u8]) {
    let range = request.lines().find_map(|line| line.strip_prefix("Range: bytes="));
    let range = range.filter(|_| manner.ranges).and_then(|range| range.split_once('-'));
    let (start, end) = match range {
        Some((start, last)) => {
            let end = last.parse().map_or(BYTES, |last: usize| BYTES.min(last + 1));
            (start.parse().unwrap(), end)
        }
        None => (0, BYTES),
    };
    let status = match range {
        Some(_) => {
            format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{BYTES}", end - 1)
        }
        None => String::from("200 OK"),
    };
    let length = end - start;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n{lines}\
         Connection: close\r\n\r\n"
    );
    (head, &content()[start..end])
}
