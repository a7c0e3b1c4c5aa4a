//! Servers that do wrong, or nothing: the client gets 502, 504, or sees where it was cut.

use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use nowait_testkit::origin::Step;

use super::{Gate, answer, ok, on_each, read_until, wait_received};
use crate::stage::{on_each_driver, server, wait_file};

/// One response that can't be used, and what the log says of it.
#[track_caller]
fn refused(response: impl AsRef<[u8]>, log: &str) {
    let response = response.as_ref();
    // The server may close the connection before it has read all.
    on_each(
        || vec![vec![Step::expect("\r\n\r\n"), Step::reply_some(response)]],
        "",
        |server, _| {
            server.allow_log("upstream");
            assert_eq!(server.get("/").status, 502, "{}", server.log());
            server.wait_log(log);
        },
    );
}

#[test]
fn nobody_listens() {
    // The origin closes what it has no script for.
    on_each(Vec::new, "location / { proxy_pass http://127.0.0.1:1; }", |server, _| {
        server.allow_log("connect() failed");
        assert_eq!(server.get("/").status, 502);
        server.wait_log(
                "connect() failed (111: Connection refused) while connecting to upstream, client: \
                 127.0.0.1, server: , request: \"GET / HTTP/1.1\", upstream: \"http://127.0.0.1:1/\"",
            );
    });
}

#[test]
fn an_early_close() {
    let log = "upstream prematurely closed connection while reading response header from upstream";
    for response in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        refused(response, log);
    }
}

#[test]
fn a_flood_of_header_lines() {
    let flood = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Flood: 0123456789\r\n".repeat(1000));
    refused(&flood, "upstream sent too big header while reading response header from upstream");
    let line = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(10_000));
    refused(&line, "upstream sent too big header");
}

#[test]
fn framing_that_is_in_doubt() {
    for lines in [
        "Content-Length: 1\r\nContent-Length: 1",
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
        "Content-Length: -1",
        "Content-Length: 1x",
    ] {
        refused(format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n"), "upstream sent ");
    }
}

/// What a client could take for another header, or for a response of its own.
#[test]
fn header_lines_that_split_a_response() {
    for line in [
        "X: a\rSet-Cookie: b",
        "X: a\r\r\nSet-Cookie: b",
        "X: a\0b",
        "X\0: a",
        "no colon",
        ": no name",
        "X : a",
    ] {
        refused(
            format!("HTTP/1.1 200 OK\r\n{line}\r\nContent-Length: 0\r\n\r\n"),
            "upstream sent ",
        );
    }
}

/// Bytes where there must be none are no response to the next request.
#[test]
fn content_where_there_is_none() {
    let second = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";
    for (method, response) in [
        ("HEAD", format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{second}", second.len())),
        ("GET", format!("HTTP/1.1 204 No Content\r\n\r\n{second}")),
        ("GET", format!("HTTP/1.1 304 Not Modified\r\n\r\n{second}")),
    ] {
        on_each(
            || vec![answer(&response), answer(ok("second"))],
            "",
            |server, _| {
                let mut client = server.client();
                client.send(format!("{method} /first HTTP/1.1\r\nHost: a\r\n\r\n"));
                let first = client.response_to_head();
                assert!([200, 204, 304].contains(&first.status), "{first}");
                assert_eq!(server.get("/").text(), "second");
            },
        );
    }
}

/// However slowly a head comes, it is one as long as it comes in time.
#[test]
fn a_head_byte_by_byte() {
    let script = || {
        let mut steps = vec![Step::expect("\r\n\r\n")];
        steps.extend(ok("whole").bytes().map(|byte| Step::reply([byte])));
        vec![steps]
    };
    on_each(script, "", |server, _| assert_eq!(server.get("/").text(), "whole"));
}

/// Requests whose length is in doubt never get to the server behind.
#[test]
fn requests_that_hide_another_one() {
    on_each(
        || vec![answer(ok("asked"))],
        "",
        |server, origin| {
            server.allow_log("client sent");
            for lines in [
                "Content-Length: 4\r\nTransfer-Encoding: chunked",
                "Transfer-Encoding: chunked, identity",
                "Transfer-Encoding: xchunked",
                "Content-Length: 4\r\nContent-Length: 5",
                "Content-Length: +4",
                "Content-Length: 4, 4",
            ] {
                let mut client = server.client();
                client.send(format!(
                    "POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\n\
                     Host: a\r\n\r\n"
                ));
                let status = client.response().status;
                assert!(matches!(status, 400 | 501), "{lines}: {status}");
                client.expect_closed();
            }
            assert_eq!(server.get("/").text(), "asked");
            assert_eq!(origin.received().len(), 1);
        },
    );
}

#[test]
fn an_endless_series_of_interim_responses() {
    let storm = "HTTP/1.1 102 Processing\r\n\r\n".repeat(50_000);
    refused(storm, "upstream sent too many interim responses");
}

#[test]
fn interim_responses_are_not_the_response() {
    let response =
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 A\r\nX: y\r\n\r\n{}", ok("yes"));
    on_each(|| vec![answer(&response)], "", |server, _| assert_eq!(server.get("/").text(), "yes"));
}

#[test]
fn a_response_without_head_in_time() {
    on_each(
        || vec![vec![Step::expect("\r\n\r\n"), Step::Closed]],
        "proxy_read_timeout 100ms;",
        |server, _| {
            server.allow_log("upstream timed out");
            assert_eq!(server.get("/").status, 504);
            server.wait_log(
                "upstream timed out (110: Connection timed out) while reading response header",
            );
        },
    );
}

/// Pauses within a head don't give it more time.
#[test]
fn a_head_that_drips() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = server(&format!(
        "location / {{ proxy_pass http://{}; proxy_read_timeout 300ms; }}",
        origin.local_addr().unwrap()
    ));
    let drip = move || {
        for stream in origin.incoming() {
            let mut stream = stream.unwrap();
            let head =
                format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(40));
            for byte in head.as_bytes() {
                if stream.write_all(&[*byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    };
    std::thread::spawn(drip);
    on_each_driver(&site, |server| {
        server.allow_log("upstream timed out");
        assert_eq!(server.get("/").status, 504);
    });
}

#[test]
fn a_body_that_stops_is_cut() {
    let start = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234";
    for buffering in ["on", "off"] {
        on_each(
            || vec![vec![Step::expect("\r\n\r\n"), Step::reply(start), Step::Closed]],
            &format!("proxy_read_timeout 1s; proxy_buffering {buffering};"),
            |server, _| {
                server.allow_log("upstream timed out");
                let mut client = server.client();
                client.send_get("/");
                client.try_response(false).expect_err("five bytes are missing");
                server.wait_log(
                    "upstream timed out (110: Connection timed out) while reading upstream",
                );
            },
        );
    }
}

#[test]
fn a_body_cut_short_is_cut_short_for_the_client() {
    let cases = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n01234",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n",
    ];
    for (response, buffering) in cases.iter().flat_map(|r| [(r, "on"), (r, "off")]) {
        on_each(
            || vec![answer(response)],
            &format!("proxy_buffering {buffering};"),
            |server, _| {
                server.allow_log("upstream prematurely closed");
                let mut client = server.client();
                client.send_get("/");
                client.try_response(false).expect_err("the rest is missing");
                server.wait_log("upstream prematurely closed connection while reading upstream");
            },
        );
    }
}

#[test]
fn broken_chunks_end_the_response() {
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n";
    on_each(
        || vec![answer(response)],
        "",
        |server, _| {
            server.allow_log("upstream sent invalid chunked response");
            let mut client = server.client();
            client.send_get("/");
            client.try_response(false).expect_err("the last chunk is missing");
            server.wait_log("upstream sent invalid chunked response");
        },
    );
}

#[test]
fn a_reset_within_the_body() {
    let start = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234";
    on_each(
        || vec![vec![Step::expect("\r\n\r\n"), Step::reply(start), Step::Reset]],
        "",
        |server, _| {
            server.allow_log("recv() failed");
            server.allow_log("upstream prematurely closed");
            let mut client = server.client();
            client.send_get("/");
            client.try_response(false).expect_err("five bytes are missing");
        },
    );
}

#[test]
fn a_body_that_ends_with_the_connection() {
    on_each(
        || vec![answer("HTTP/1.0 200 OK\r\n\r\nall of it")],
        "",
        |server, _| assert_eq!(server.get("/").text(), "all of it"),
    );
}

/// What comes after a response could be taken for the next one.
#[test]
fn a_connection_with_more_than_its_response_is_not_used_again() {
    let more = format!("{}HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled", ok("first"));
    on_each(
        || vec![answer(&more), answer(ok("second"))],
        "location / { proxy_pass http://u; }",
        |server, _| {
            assert_eq!(server.get("/").text(), "first");
            assert_eq!(server.get("/").text(), "second");
        },
    );
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    on_each(
        || vec![vec![Step::expect("\r\n\r\n"), Step::Closed]],
        "",
        |server, origin| {
            let mut client = server.client();
            client.send_get("/left");
            wait_received(origin, "\r\n\r\n");
            drop(client);
            wait_file(server, "access.log", "\"GET /left HTTP/1.1\" 499 0 ");
        },
    );
}

#[test]
fn a_client_that_leaves_within_the_body_takes_the_connection_along() {
    let start = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234";
    for buffering in ["on", "off"] {
        on_each(
            || vec![vec![Step::expect("\r\n\r\n"), Step::reply(start), Step::Closed]],
            &format!("proxy_buffering {buffering};"),
            |server, _| {
                let mut client = server.client();
                client.send_get("/");
                read_until(&mut client, "01234");
                drop(client);
                wait_file(server, "access.log", "\"GET / HTTP/1.1\" 200 ");
            },
        );
    }
}

/// A file that can't be written does not keep a response going that nothing reads.
#[test]
fn nobody_wants_the_rest() {
    let start = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n01234";
    let conf = "location / { proxy_pass http://u; proxy_store %%DIR%%/stored; \
                proxy_temp_path %%DIR%%/temp; }";
    on_each(
        || vec![vec![Step::expect("\r\n\r\n"), Step::reply(start), Step::Closed]],
        conf,
        |server, _| {
            server.allow_log("temp");
            let temp = server.dir().join("temp");
            if temp.exists() {
                std::fs::remove_dir_all(&temp).unwrap();
            }
            std::fs::write(&temp, "no directory").unwrap();
            let mut client = server.client();
            client.send_get("/");
            read_until(&mut client, "01234");
            server.wait_log("/temp");
            drop(client);
        },
    );
}

#[test]
fn a_client_may_be_ignored_when_it_leaves() {
    let gate = Gate::default();
    let script =
        || vec![vec![Step::expect("\r\n\r\n"), gate.step(), Step::reply(ok("late")), Step::Closed]];
    on_each(script, "proxy_ignore_client_abort on;", |server, origin| {
        let mut client = server.client();
        client.send_get("/ignored");
        wait_received(origin, "\r\n\r\n");
        drop(client);
        gate.open();
        wait_file(server, "access.log", "\"GET /ignored HTTP/1.1\" 200 ");
    });
}
