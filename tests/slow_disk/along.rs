//! Requests that read an object while it is being stored, on a disk that fails in between: what is
//! neither in memory nor on the disk any more comes from the origin, if it certainly is the same object.
//! Else the connection is cut; no client ever gets other bytes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};

use nowait_testkit::client::Arrival;
use nowait_testkit::slow_disk::{DiskOptions, EIO, Ops, Quiet, SlowDisk, quiet};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Client, Driver, Server};

use crate::stage::on_every_loop;

/// Bytes of the object: some times what is kept in memory for those who are behind.
pub const BYTES: usize = 12 << 20;
/// Bytes that come before the disk fails.
const BEFORE: usize = 2 << 20;

/// How the origin answers.
#[derive(Clone, Copy)]
struct Manner {
    /// Validators of the first response.
    validators: &'static str,
    /// Lines of the second one besides its range.
    later: &'static str,
    /// The second one has the range that was asked for; else it is the whole.
    ranges: bool,
    /// The first one tells its length.
    length: bool,
}

const USUAL: Manner = Manner {
    validators: "ETag: \"one\"\r\n",
    later: "ETag: \"one\"\r\n",
    ranges: true,
    length: true,
};

on_every_loop!(
    the_rest_comes_from_the_origin,
    an_origin_that_knows_no_ranges_sends_all_of_it,
    a_range_ends_where_it_has_to,
    another_object_is_never_mixed_in,
    filters_get_it_too,
);

fn the_rest_comes_from_the_origin(driver: Driver, workers: usize) {
    let Some(mut stage) = StreamingStage::start(driver, workers, USUAL) else { return };
    let mut behind = stage.begin("/a", "");
    stage.fail();
    assert!(behind.response().body == content(), "wrong content");
    let again = stage.second_request();
    assert!(again.contains("\r\nIf-Range: \"one\"\r\n"), "{again}");
    assert!(again.contains("\r\nRange: bytes="), "{again}");
    stage.end();
    // Its length is unknown: chunks.
    let Some(mut stage) = StreamingStage::start(driver, workers, Manner { length: false, ..USUAL })
    else {
        return;
    };
    let mut behind = stage.begin("/a", "");
    stage.fail();
    let response = behind.response();
    assert!(response.header("Transfer-Encoding").is_some() && response.body == content());
    stage.end();
}

fn an_origin_that_knows_no_ranges_sends_all_of_it(driver: Driver, workers: usize) {
    let validators = "Date: Sun, 22 Nov 2026 04:00:00 GMT\r\n\
                      Last-Modified: Sun, 22 Nov 2026 03:00:00 GMT\r\n";
    let manner = Manner { validators, later: validators, ranges: false, ..USUAL };
    let Some(mut stage) = StreamingStage::start(driver, workers, manner) else { return };
    let mut behind = stage.begin("/a", "");
    stage.fail();
    assert!(behind.response().body == content(), "wrong content");
    let again = stage.second_request();
    assert!(again.contains("\r\nIf-Range: Sun, 22 Nov 2026 03:00:00 GMT\r\n"), "{again}");
    stage.end();
}

fn a_range_ends_where_it_has_to(driver: Driver, workers: usize) {
    let manner = Manner { validators: "ETag: \"one\"\r\nAccept-Ranges: bytes\r\n", ..USUAL };
    let Some(mut stage) = StreamingStage::start(driver, workers, manner) else { return };
    let mut behind = stage.begin("/a", "Range: bytes=1000-5000000\r\n");
    stage.fail();
    let response = behind.response();
    assert_eq!(response.status, 206);
    assert!(response.body == content()[1000..=5_000_000], "wrong content");
    assert!(stage.second_request().contains("-5000000\r\n"), "{}", stage.second_request());
    stage.end();
}

fn another_object_is_never_mixed_in(driver: Driver, workers: usize) {
    let other = Manner { later: "ETag: \"two\"\r\n", ..USUAL };
    let weak = Manner { validators: "ETag: W/\"one\"\r\n", later: "ETag: W/\"one\"\r\n", ..USUAL };
    for manner in [other, Manner { ranges: false, ..other }, weak] {
        let Some(mut stage) = StreamingStage::start(driver, workers, manner) else { return };
        stage.server.allow_log("can't be completed");
        let mut behind = stage.begin("/a", "");
        stage.fail();
        let fault = behind.try_response(false);
        assert!(fault.is_err(), "{}", manner.validators);
        let got = behind.pending();
        assert!(got.len() < BYTES && content().starts_with(got), "other bytes");
        stage.end();
    }
}

fn filters_get_it_too(driver: Driver, workers: usize) {
    let Some(mut stage) = StreamingStage::start(driver, workers, USUAL) else { return };
    let mut behind = stage.begin("/filtered", "");
    stage.fail();
    let body = behind.response().body;
    assert!(body.len() == BYTES && body.starts_with(b"Begin"), "not filtered");
    assert!(body[5..] == content()[5..], "wrong content");
    stage.end();
}

/// What the object contains.
pub fn content() -> &'static [u8] {
    static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut content = Vec::with_capacity(BYTES + 100);
        for n in 0.. {
            if content.len() >= BYTES {
                break;
            }
            let _ = writeln!(content, "begin {n:>100}");
        }
        content.truncate(BYTES);
        content
    });
    &CONTENT
}

/// A server that caches on a disk, and an origin that stops in the middle of its first response.
struct StreamingStage {
    server: Server,
    origin: StoppingOrigin,
    disk: SlowDisk,
    _quiet: Quiet,
}

impl StreamingStage {
    fn start(driver: Driver, workers: usize, manner: Manner) -> Option<StreamingStage> {
        // What was written is not read from memory.
        let options = DiskOptions { pages_cached: false, ..DiskOptions::default() };
        let disk = SlowDisk::or_skip(options)?;
        let quiet = quiet();
        let origin = StoppingOrigin::start(manner);
        let server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
            .driver(driver)
            .workers(workers)
            .allow_log("Input/output error")
            .allow_log("cache")
            .variable("DISK", disk.path().display())
            .variable("ORIGIN", origin.port)
            .http(
                "proxy_cache_path %%DISK%%/cache keys_zone=one:1m;
                server {
                    listen 127.0.0.1:%%PORT%% sndbuf=64k;
                    proxy_cache one;
                    proxy_cache_key object;
                    proxy_cache_valid 1h;
                    proxy_cache_lock on;
                    proxy_cache_lock_age 1h;
                    location / { proxy_pass http://127.0.0.1:%%ORIGIN%%; }
                    location /filtered {
                        proxy_pass http://127.0.0.1:%%ORIGIN%%;
                        sub_filter begin Begin;
                        sub_filter_types *;
                        sub_filter_last_modified on;
                    }
                }",
            )
            .start();
        Some(StreamingStage { server, origin, disk, _quiet: quiet })
    }

    /// Someone who asks for the object while it comes, and then takes nothing for some time.
    fn begin(&self, path: &str, lines: &str) -> Client {
        let mut first = self.server.client();
        first.send_get("/a");
        let mut got = 0;
        while got < BEFORE {
            got += first.read_some(1 << 20).len();
        }
        // It goes on while others stop.
        std::thread::spawn(move || while !first.read_some(1 << 20).is_empty() {});
        let mut behind = self.server.client();
        behind.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"));
        assert!(matches!(behind.arrives_within(PATIENCE), Arrival::Bytes(_)));
        behind
    }

    /// The disk fails, and the rest comes from the origin.
    fn fail(&mut self) {
        self.disk.fail(Ops::READ | Ops::WRITE | Ops::CREATE | Ops::RENAME, EIO);
        self.origin.go.send(()).unwrap();
        until("the origin to have sent everything", PATIENCE, || self.origin.sent.try_recv().ok());
        self.server.wait_log("Input/output error");
    }

    /// What the origin was asked when the disk had failed.
    fn second_request(&self) -> String {
        self.origin.requests.lock().unwrap()[1].clone()
    }

    fn end(self) {
        self.disk.heal();
        assert!(self.server.quit().success());
    }
}

/// Sends the object to every client that asks.
struct StoppingOrigin {
    port: u16,
    go: Sender<()>,
    sent: Receiver<()>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl StoppingOrigin {
    fn start(manner: Manner) -> StoppingOrigin {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ((go, halt), (done, sent)) = (channel(), channel());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        // It ends with the test program.
        std::thread::spawn(move || {
            let mut first = Some((halt, done));
            for stream in listener.incoming() {
                let (Ok(mut stream), first, seen) = (stream, first.take(), seen.clone()) else {
                    continue;
                };
                std::thread::spawn(move || {
                    let Some(request) = request(&mut stream) else { return };
                    seen.lock().unwrap().push(request.clone());
                    match first {
                        Some((halt, done)) => halting(&mut stream, manner, &halt, &done),
                        None => later(&mut stream, manner, &request),
                    }
                });
            }
        });
        StoppingOrigin { port, go, sent, requests }
    }
}

pub fn request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        request.push(byte[0]);
    }
    String::from_utf8(request).ok()
}

/// The first response.
fn halting(stream: &mut TcpStream, manner: Manner, halt: &Receiver<()>, done: &Sender<()>) {
    let length = match manner.length {
        true => format!("Content-Length: {BYTES}\r\n"),
        false => String::from("Transfer-Encoding: chunked\r\n"),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{length}{}Connection: close\r\n\r\n",
        manner.validators
    );
    let content = content();
    let _ = stream.write_all(head.as_bytes());
    let mut send = |bytes: &[u8]| {
        let framed = match manner.length {
            true => bytes.to_vec(),
            false => [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
        };
        let _ = stream.write_all(&framed);
    };
    send(&content[..BEFORE]);
    let _ = halt.recv_timeout(PATIENCE);
    send(&content[BEFORE..]);
    if !manner.length {
        let _ = stream.write_all(b"0\r\n\r\n");
    }
    let _ = done.send(());
}

/// Another one.
fn later(stream: &mut TcpStream, manner: Manner, request: &str) {
    let range = request.lines().find_map(|line| line.strip_prefix("Range: bytes="));
    let range = range.filter(|_| manner.ranges).and_then(|range| range.split_once('-'));
    let (start, end) = match range {
        Some((start, "")) => (start.parse().unwrap(), BYTES),
        Some((start, last)) => (start.parse().unwrap(), last.parse::<usize>().unwrap() + 1),
        None => (0, BYTES),
    };
    let status = match range {
        Some(_) => {
            format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{BYTES}", end - 1)
        }
        None => String::from("200 OK"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n",
        end - start,
        manner.later
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&content()[start..end]);
}
