//! Requests with content: kept in memory, in a file, or sent on while they come.

use nowait_testkit::origin::Step;
use nowait_testkit::wait;

use super::{Gate, answer, ok, on_each, wait_received};
use crate::stage::pattern;

fn post(content: &[u8], lines: &str) -> Vec<u8> {
    let len = content.len();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n{lines}\r\n");
    [head.as_bytes(), content].concat()
}

#[test]
fn contents_of_every_size_arrive() {
    for buffering in ["on", "off"] {
        for len in [0, 1, 5_000, 20_000, 3_000_000] {
            let content = pattern(len);
            let script = || {
                let mut steps = vec![Step::expect("\r\n\r\n")];
                if len > 0 {
                    steps.push(Step::expect(&content));
                }
                steps.push(Step::reply(ok("got it")));
                vec![steps]
            };
            let conf = format!("proxy_request_buffering {buffering}; client_max_body_size 10m;");
            on_each(script, &conf, |server, origin| {
                server.allow_log("is buffered to a temporary file");
                let mut client = server.client();
                client.send(post(&content, ""));
                assert_eq!(client.response().text(), "got it");
                let received = origin.received();
                let line = format!("Content-Length: {len}\r\n");
                assert!(
                    String::from_utf8_lossy(&received[0][..200.min(received[0].len())])
                        .contains(&line)
                );
            });
        }
    }
}

#[test]
fn an_unbuffered_content_is_sent_on_while_it_comes() {
    let gate = Gate::default();
    let script = || {
        vec![vec![
            Step::expect("\r\n\r\n"),
            Step::expect("3\r\none\r\n"),
            Step::expect("3\r\ntwo\r\n0\r\n\r\n"),
            gate.step(),
            Step::reply(ok("got it")),
        ]]
    };
    on_each(script, "proxy_request_buffering off; proxy_http_version 1.1;", |server, origin| {
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        wait_received(origin, "3\r\none\r\n");
        client.send("3\r\ntwo\r\n0\r\n\r\n");
        wait_received(origin, "two\r\n0\r\n");
        gate.open();
        assert_eq!(client.response().text(), "got it");
        assert_eq!(client.get("/none").status, 502);
        server.allow_log("upstream prematurely closed connection");
    });
}

/// A server that has seen enough answers and closes, no matter what is still sent to it.
#[test]
fn an_answer_before_the_content_has_been_sent() {
    let refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull";
    let content = pattern(8 << 20);
    for buffering in ["on", "off"] {
        let gate = Gate::default();
        let script = || vec![vec![Step::expect("\r\n\r\n"), Step::reply(refusal), gate.step()]];
        let conf = format!("proxy_request_buffering {buffering}; client_max_body_size 10m;");
        on_each(script, &conf, |server, _| {
            server.allow_log("is buffered to a temporary file");
            let mut client = server.client();
            let (head, rest) = (post(&content, ""), Vec::<u8>::new());
            let stream = client.stream().try_clone().unwrap();
            let sender = std::thread::spawn(move || {
                use std::io::Write;
                // The server may close before it has all.
                let _ = (&stream).write_all(&[head, rest].concat());
            });
            let response = client.response();
            assert_eq!((response.status, response.text().as_ref()), (413, "full"));
            gate.open();
            drop(client);
            sender.join().unwrap();
        });
    }
}

#[test]
fn a_client_that_expects_an_invitation_gets_it() {
    for buffering in ["on", "off"] {
        let script = || {
            vec![vec![Step::expect("\r\n\r\n"), Step::expect("content"), Step::reply(ok("yes"))]]
        };
        on_each(script, &format!("proxy_request_buffering {buffering};"), |server, origin| {
            let mut client = server.client();
            client.send(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\n",
            );
            assert_eq!(client.response().status, 100);
            client.send("content");
            assert_eq!(client.response().text(), "yes");
            let received = origin.received();
            assert!(!String::from_utf8_lossy(&received[0]).to_lowercase().contains("expect"));
        });
    }
}

#[test]
fn a_client_that_leaves_within_its_content() {
    let script = || vec![vec![Step::expect("\r\n\r\n"), Step::expect("some"), Step::Closed]];
    on_each(script, "proxy_request_buffering off;", |server, origin| {
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 70\r\n\r\nsome");
        wait_received(origin, "some");
        drop(client);
        wait::until("a line of the log", wait::PATIENCE, || {
            Some(server.read("access.log"))
                .filter(|log| log.contains("\"POST / HTTP/1.1\" 4"))
                .map(drop)
        });
    });
}

#[test]
fn an_unbuffered_content_may_be_too_large() {
    let script = || vec![vec![Step::Closed]];
    let conf = "proxy_request_buffering off; client_max_body_size 1000; client_body_buffer_size 100; \
                proxy_http_version 1.1;";
    on_each(script, conf, |server, _| {
        server.allow_log("too large");
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..20 {
            client.send(format!("64\r\n{}\r\n", "x".repeat(100)));
        }
        assert_eq!(client.response().status, 413);
    });
}

#[test]
fn a_second_request_on_a_connection_that_was_closed_meanwhile() {
    // The origin closes after the second request has come, without a word.
    let script = || {
        let first = vec![
            Step::expect("\r\n\r\n"),
            Step::reply(ok("first")),
            Step::expect("GET /second"),
            Step::expect("\r\n\r\n"),
        ];
        vec![first, answer(ok("second"))]
    };
    on_each(script, "", |server, _| {
        server.allow_log("upstream prematurely closed connection");
        assert_eq!(server.get("/first").text(), "first");
        assert_eq!(server.get("/second").text(), "second");
    });
}

#[test]
fn what_may_change_something_is_not_sent_twice() {
    let script = || {
        vec![vec![
            Step::expect("\r\n\r\n"),
            Step::reply(ok("first")),
            Step::expect("POST / "),
            Step::expect("\r\n\r\n"),
        ]]
    };
    on_each(script, "", |server, _| {
        server.allow_log("upstream prematurely closed connection");
        assert_eq!(server.get("/first").text(), "first");
        let mut client = server.client();
        client.send(post(b"content", ""));
        assert_eq!(client.response().status, 502);
    });
}
