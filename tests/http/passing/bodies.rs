//! Contents of responses: every length and framing, slow clients, buffers in memory and in files.

use std::io::Write;
use std::path::Path;

use nowait_testkit::origin::Step;
use nowait_testkit::{Server, wait};

use super::{answer, ok, on_each, wait_received};
use crate::stage::{pattern, wait_file};

/// Larger than what sockets hold on the way.
const LARGER_THAN_BUFFERS: usize = 24 << 20;

#[test]
fn bodies_of_every_size_and_framing() {
    for len in [0, 1, 100, 4096, 16_000, 16_384, 40_000, 200_000, 1_000_000] {
        let content = pattern(len);
        let known =
            [format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n").as_bytes(), &content]
                .concat();
        let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in content.chunks(777) {
            write!(chunked, "{:x}\r\n", piece.len()).unwrap();
            chunked.extend_from_slice(piece);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(b"0\r\n\r\n");
        let until_close = [&b"HTTP/1.0 200 OK\r\n\r\n"[..], &content].concat();
        let script = || {
            let all = [&known, &chunked, &until_close];
            [all, all].concat().into_iter().map(answer).collect()
        };
        let conf = "location /on { proxy_pass http://u; }
                    location /off { proxy_pass http://u; proxy_buffering off; }";
        on_each(script, conf, |server, _| {
            for target in ["/on", "/on", "/on", "/off", "/off", "/off"] {
                let response = server.get(target);
                assert!(response.body == content, "{target}, {len}: {}", response.body.len());
            }
        });
    }
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let script = || {
        let mut steps = Vec::new();
        for n in 0..3 {
            steps.push(Step::expect(format!("GET /{n} HTTP/1.1\r\n")));
            steps.push(Step::expect("\r\n\r\n"));
            steps.push(Step::reply(ok(&n.to_string())));
        }
        vec![steps]
    };
    on_each(script, "location / { proxy_pass http://u; }", |server, _| {
        for n in 0..3 {
            assert_eq!(server.get(&format!("/{n}")).text(), n.to_string());
        }
    });
}

/// The connection is free when the response has come, not when the client has read it.
#[test]
fn a_slow_client_does_not_keep_its_upstream() {
    let content = pattern(LARGER_THAN_BUFFERS);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
    let script = || {
        vec![vec![
            Step::expect("\r\n\r\n"),
            Step::reply(&head),
            Step::reply(&content),
            Step::expect("GET /second"),
            Step::expect("\r\n\r\n"),
            Step::reply(ok("second")),
        ]]
    };
    on_each(script, "", |server, origin| {
        server.allow_log("is buffered to a temporary file");
        server.allow_log("upstream prematurely closed connection");
        server.allow_log("recv() failed");
        let mut slow = server.client();
        slow.send_get("/first");
        wait_received(origin, "GET /first");
        // It gets the same connection, once that is free.
        let response = wait::until("the connection", wait::PATIENCE, || {
            Some(server.get("/second")).filter(|response| response.status == 200)
        });
        assert_eq!(response.text(), "second");
        let response = slow.response();
        assert!(response.body == content, "{}", response.body.len());
        wait_file(server, "access.log", "\"GET /first HTTP/1.1\" 200 ");
        server.wait_log("an upstream response is buffered to a temporary file");
    });
}

/// Waits until a temporary file is in use, which has no name by then. False: it can't be seen here.
pub(super) fn wait_spilled(server: &Server) -> bool {
    wait_spilled_beyond(server, 0)
}

/// The same, until the file has more than this many bytes.
pub(super) fn wait_spilled_beyond(server: &Server, bytes: u64) -> bool {
    wait::until("a temporary file", wait::PATIENCE, || {
        let Some(open) = server.descriptors() else { return Some(false) };
        let is_temp = |path: &Path| path.to_string_lossy().contains("proxy_temp");
        let mut temporary = open.iter().filter(|descriptor| is_temp(&descriptor.target));
        let length = |pid, number| {
            let path = format!("/proc/{pid}/fd/{number}");
            std::fs::metadata(path).map_or(0, |metadata| metadata.len())
        };
        let enough = |length: u64| bytes == 0 || length > bytes;
        temporary.any(|file| enough(length(file.pid, file.number))).then_some(true)
    })
}

/// Peak memory of a process in bytes.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kb: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kb * 1024
}

#[test]
fn a_slow_client_stops_its_upstream() {
    let content = pattern(LARGER_THAN_BUFFERS);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
    let script = || vec![vec![Step::expect("\r\n\r\n"), Step::reply(&head), Step::reply(&content)]];
    for conf in ["proxy_max_temp_file_size 0;", "proxy_buffering off;"] {
        let conf = format!("{conf} location /warm {{ return 200; }}");
        on_each(script, &conf, |server, _| {
            server.get("/warm");
            let pids = [vec![server.pid()], server.children()].concat();
            let before: u64 = pids.iter().map(|pid| peak(*pid)).sum();
            let mut client = server.client();
            client.send_get("/");
            let mut got = Vec::new();
            while !got.ends_with(&content[content.len() - 8..]) {
                got.extend(client.read_some(4096));
            }
            assert!(got.ends_with(&content), "{}", got.len());
            let after: u64 = pids.iter().map(|pid| peak(*pid)).sum();
            assert!(after - before < 4 << 20, "{conf}: {} bytes more", after - before);
        });
    }
}

#[test]
fn the_temporary_file_has_its_limit() {
    let content = pattern(LARGER_THAN_BUFFERS);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
    let script = || vec![vec![Step::expect("\r\n\r\n"), Step::reply(&head), Step::reply(&content)]];
    on_each(script, "proxy_max_temp_file_size 100k;", |server, _| {
        server.allow_log("is buffered to a temporary file");
        let mut client = server.client();
        client.send_get("/");
        if !wait_spilled(server) {
            return;
        }
        let response = client.response();
        server.wait_log("is buffered to a temporary file");
        assert!(response.body == content, "{}", response.body.len());
    });
}

#[test]
fn unbuffered_pieces_come_as_they_are_sent() {
    let gate = super::Gate::default();
    let script = || {
        vec![vec![
            Step::expect("\r\n\r\n"),
            Step::reply("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none"),
            gate.step(),
            Step::reply("two"),
        ]]
    };
    on_each(script, "proxy_buffering off;", |server, _| {
        let mut client = server.client();
        client.send_get("/");
        super::read_until(&mut client, "one");
        gate.open();
        super::read_until(&mut client, "two");
    });
}

/// No matter what stands between the server and the compression, it knows that nothing may be held back.
#[test]
fn unbuffered_pieces_are_compressed_as_they_are_sent() {
    let gzip = "proxy_buffering off; gzip on; gzip_types *; gzip_min_length 0;";
    for (status, conf) in [
        ("200 OK", ""),
        ("200 OK", "add_before_body /before; add_after_body /before; addition_types *;"),
        (
            "206 Part\r\nContent-Range: bytes 0-5/6",
            "slice 10; proxy_set_header Range $slice_range;",
        ),
    ] {
        let gate = super::Gate::default();
        let script = || {
            vec![vec![
                Step::expect("\r\n\r\n"),
                Step::reply(format!("HTTP/1.1 {status}\r\nContent-Length: 6\r\n\r\none")),
                gate.step(),
                Step::reply("two"),
            ]]
        };
        let conf = format!("{gzip} {conf} location /before {{ return 200 ''; }}");
        on_each(script, &conf, |server, _| {
            let mut client = server.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
            // What zlib ends a flush with, and the end of a chunk.
            let flushed = b"\x00\x00\xff\xff\r\n";
            let mut got = Vec::new();
            while !got.ends_with(flushed) {
                got.extend(client.read_some(usize::MAX));
            }
            gate.open();
            while !got.ends_with(b"\r\n0\r\n\r\n") {
                got.extend(client.read_some(usize::MAX));
            }
        });
    }
}

#[test]
fn trailers_pass() {
    let response = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                    3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n";
    let conf = "proxy_pass_trailers on;";
    on_each(
        || vec![answer(response)],
        conf,
        |server, _| {
            let mut client = server.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n");
            let all = String::from_utf8(client.rest()).unwrap();
            assert!(all.ends_with("3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n"), "{all}");
        },
    );
}

#[test]
fn a_response_to_head_has_no_body() {
    let script = || {
        vec![vec![
            Step::expect("\r\n\r\n"),
            Step::reply("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
            Step::expect("\r\n\r\n"),
            Step::reply(ok("next")),
        ]]
    };
    on_each(script, "", |server, _| {
        let mut client = server.client();
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_to_head().header("content-length"), Some("100"));
        assert_eq!(client.get("/").text(), "next");
    });
}
