//! Time per request of the protocol core, without anything around it:
//! `cargo bench -p nowait-h1`. Prints; asserts nothing.
//!
//! Each figure is the best of several rounds, in nanoseconds per operation.

use std::hint::black_box;
use std::time::Instant;

use nowait_h1::{BodyDecoder, BodyEvent, BodyLength, Limits, encode, server};
use nowait_message::{RequestHead, uri};

const ROUNDS: usize = 200;
const OPERATIONS: u32 = 1_000;

const TINY: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const CURL: &[u8] = b"GET /files/1k.bin HTTP/1.1\r\nHost: localhost:8080\r\n\
    User-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n";
const BROWSER: &[u8] = b"GET /assets/css/site.min.css?v=20260101 HTTP/1.1\r\n\
    Host: www.example.com\r\nConnection: keep-alive\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/126.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8\r\n\
    Referer: https://www.example.com/articles/2026/01/why-we-wait-for-disks.html\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    If-None-Match: \"65a0b1c2-3d4\"\r\nIf-Modified-Since: Mon, 01 Jan 2026 00:00:00 GMT\r\n\r\n";

fn main() {
    for (name, request) in [("tiny", TINY), ("curl", CURL), ("browser", BROWSER)] {
        measure(&format!("request head, {name} ({} bytes)", request.len()), keep_alive(request));
        measure(&format!("request head, {name}, in two pieces"), two_pieces(request));
    }
    measure("uri, plain", || {
        let _ = black_box(uri::normalize(black_box(b"/assets/css/site.min.css?v=2026"), true));
    });
    measure("uri, escaped", || {
        let _ = black_box(uri::normalize(black_box(b"/assets//css/../a%20b.css?v=2026"), true));
    });
    let mut out = Vec::with_capacity(1024);
    measure("response head, 6 fields", || {
        out.clear();
        let mut head = encode::HeadWriter::response(&mut out, black_box(200));
        head.lines("Server: nowait\r\n").field(b"Date", b"Mon, 01 Jan 2026 00:00:00 GMT");
        head.field(b"Content-Type", b"text/plain").content_length(1024);
        head.lines("Connection: keep-alive\r\n").field(b"ETag", b"\"65a0b1c2-3d4\"");
        head.finish();
        black_box(&out);
    });
    let mut chunked = Vec::new();
    for _ in 0..16 {
        encode::chunk_start(&mut chunked, 1024);
        chunked.resize(chunked.len() + 1024, b'x');
        chunked.extend_from_slice(encode::CHUNK_END);
    }
    chunked.extend_from_slice(encode::LAST_CHUNK);
    measure("chunked body, 16 chunks of 1 KB", || decode(black_box(&chunked)));
}

/// Requests on one connection with a recycled head.
fn keep_alive(request: &'static [u8]) -> impl FnMut() {
    let mut connection = server::ServerConnection::new(Limits::default());
    let mut head = RequestHead::new();
    move || {
        let step = connection.receive_head(&mut head, black_box(request));
        assert!(step.is_ok_and(|step| step.complete));
        black_box(head.normalize(true).is_ok());
        assert!(connection.next_request());
        head.recycle();
    }
}

fn two_pieces(request: &'static [u8]) -> impl FnMut() {
    let mut connection = server::ServerConnection::new(Limits::default());
    let mut head = RequestHead::new();
    let (first, second) = request.split_at(request.len() / 2);
    move || {
        for piece in [first, second] {
            assert!(connection.receive_head(&mut head, black_box(piece)).is_ok());
        }
        assert!(connection.next_request());
        head.recycle();
    }
}

fn decode(body: &[u8]) {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, &Limits::default());
    let mut at = 0;
    while let Ok(step) = decoder.receive(&body[at..]) {
        at += step.consumed;
        if step.event == BodyEvent::End {
            return;
        }
    }
}

fn measure(name: &str, mut operation: impl FnMut()) {
    let best = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..OPERATIONS {
                operation();
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{best:8.1} ns  {name}");
}
