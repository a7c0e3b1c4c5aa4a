//! Timeouts: short values, and waits for what they cause.

use std::time::Duration;

use nowait_testkit::client::Arrival;

use crate::stage::{on_each_driver, pattern, server, wait_file};

/// Larger than what the sockets of both sides hold.
const LARGER_THAN_BUFFERS: usize = 24 << 20;

#[test]
fn a_head_must_come_in_time() {
    let site = server("client_header_timeout 100ms; location / { return 200 OK; }");
    on_each_driver(&site, |server| {
        for start in ["", "GET /", "GET / HTTP/1.1\r\nHost: x\r\n"] {
            let mut client = server.client();
            client.send(start);
            client.expect_closed();
        }
        // It is a limit for each head, not for the connection.
        let mut client = server.client();
        assert_eq!(client.get("/").text(), "OK");
        client.send("GET / HTTP/1.1\r\n");
        client.expect_closed();
        let log = wait_file(server, "access.log", "\" 408 0 ");
        assert!(log.contains("\"GET / HTTP/1.1\" 408 0 "), "{log}");
    });
}

#[test]
fn an_idle_connection_is_closed_in_time() {
    let site = server("keepalive_timeout 100ms; location / { return 200 OK; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        assert_eq!(client.get("/").header("connection"), Some("keep-alive"));
        client.expect_closed();
        // Nothing is logged for a connection that just ends.
        assert_eq!(server.get("/again").status, 200);
        let log = wait_file(server, "access.log", "\"GET /again ");
        assert_eq!(log.matches(" 200 ").count(), 2);
        assert!(!log.contains(" 408 "));
    });
}

#[test]
fn a_client_that_reads_nothing_is_given_up() {
    let site = server("sendfile on; send_timeout 100ms; location /mem { sendfile off; }")
        .file("html/big", pattern(LARGER_THAN_BUFFERS))
        .file("html/mem", pattern(LARGER_THAN_BUFFERS));
    on_each_driver(&site, |server| {
        for path in ["/big", "/mem"] {
            let mut client = server.client();
            client.send_get(path);
            wait_file(server, "access.log", &format!("GET {path}"));
            let why = client.try_response(false).expect_err("the response is cut short");
            assert!(why.contains("closed the connection") || why.contains("reset"), "{why}");
        }
        server.wait_log("client timed out");
    });
}

#[test]
fn a_connection_that_timed_out_can_be_reset() {
    let site = server("sendfile on; send_timeout 100ms; reset_timedout_connection on;")
        .file("html/big", pattern(LARGER_THAN_BUFFERS));
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send_get("/big");
        wait_file(server, "access.log", "GET /big");
        let why = client.try_response(false).expect_err("the response is cut short");
        assert!(why.contains("reset"), "{why}");
    });
}

#[test]
fn a_slow_reader_is_served_as_long_as_it_reads() {
    let body = pattern(3 << 20);
    let site = server("sendfile on; send_timeout 3s;").file("html/big", &body);
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send_get("/big");
        let mut got = 0;
        while got < 100_000 {
            got += client.read_some(1000).len();
        }
        let mut rest = vec![];
        while got + rest.len() < body.len() {
            rest.extend(client.read_some(1 << 20));
        }
        assert!(rest.ends_with(&body[body.len() - 1000..]) || got + rest.len() >= body.len());
    });
}

#[test]
fn a_body_that_stops_coming_ends_the_connection() {
    let site =
        server("lingering_timeout 100ms; client_body_timeout 100ms; location / { return 200 OK; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nstart");
        assert_eq!(client.response().text(), "OK");
        assert_eq!(client.arrives_within(Duration::from_secs(20)), Arrival::End);
    });
}
