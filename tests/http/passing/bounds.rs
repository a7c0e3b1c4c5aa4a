//! Sizes, times and rates of passing requests on.

use std::time::{Duration, Instant};

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin};

use super::{Gate, answer, ok, on_each};
use crate::stage::{FullQueue, pattern, refused, server, site};

#[test]
fn a_head_has_a_buffer_of_its_own() {
    let line = "x".repeat(5000);
    let response = format!("HTTP/1.1 200 OK\r\nX-Long: {line}\r\nContent-Length: 2\r\n\r\nok");
    let conf = "location / { proxy_pass http://u; }
                location /8k { proxy_pass http://u; proxy_buffer_size 8k; proxy_buffers 8 8k; }";
    on_each(
        || vec![answer(&response), answer(&response)],
        conf,
        |server, _| {
            server.allow_log("upstream sent too big header");
            assert_eq!(server.get("/").status, 502);
            assert_eq!(server.get("/8k").header("X-Long"), Some(&line[..]));
        },
    );
}

#[test]
fn sizes_have_to_fit_together() {
    for (conf, reason) in [
        (
            "proxy_busy_buffers_size 2k;",
            "\"proxy_busy_buffers_size\" must be equal to or greater than the maximum of the value \
             of \"proxy_buffer_size\" and one of the \"proxy_buffers\"",
        ),
        (
            "proxy_buffers 4 4k; proxy_busy_buffers_size 16k;",
            "\"proxy_busy_buffers_size\" must be less than the size of all \"proxy_buffers\" minus \
             one buffer",
        ),
        // The other one's default is twice the larger one.
        (
            "proxy_buffer_size 16k;",
            "\"proxy_busy_buffers_size\" must be less than the size of all \"proxy_buffers\" minus \
             one buffer",
        ),
        (
            "proxy_temp_file_write_size 2k;",
            "\"proxy_temp_file_write_size\" must be equal to or greater than the maximum",
        ),
        (
            "proxy_max_temp_file_size 2k;",
            "\"proxy_max_temp_file_size\" must be equal to zero to disable temporary files usage or \
             must be equal to or greater than the maximum",
        ),
    ] {
        refused(
            &server(&format!("location / {{ proxy_pass http://127.0.0.1:1; {conf} }}")),
            reason,
        );
    }
    let fits = "proxy_buffers 5 4k; proxy_busy_buffers_size 16k; proxy_max_temp_file_size 0; \
                proxy_temp_file_write_size 4k; proxy_send_lowat 1k; proxy_headers_hash_max_size 64; \
                proxy_headers_hash_bucket_size 64;";
    let mut server =
        server(&format!("location / {{ proxy_pass http://127.0.0.1:1; {fits} }}")).start();
    server.allow_log("\"proxy_send_lowat\" is not supported, ignored");
    server.stop();
}

/// A server whose queue of connections is full answers nothing.
#[test]
fn a_connection_that_does_not_stand_in_time() {
    let full = FullQueue::new();
    let address = full.address();
    let conf =
        format!("location / {{ proxy_pass http://{address}; proxy_connect_timeout 100ms; }}");
    for driver in [Driver::Epoll, Driver::IoUring] {
        let mut server = server(&conf).driver(driver).start();
        server.allow_log("upstream timed out");
        assert_eq!(server.get("/").status, 504);
        server.wait_log(
            "upstream timed out (110: Connection timed out) while connecting to upstream",
        );
        server.stop();
    }
}

#[test]
fn a_server_that_takes_no_content_in_time() {
    let gate = Gate::default();
    let script = || vec![vec![gate.step()]];
    let conf = "proxy_send_timeout 100ms; client_max_body_size 0; client_body_buffer_size 64m;";
    on_each(script, conf, |server, _| {
        server.allow_log("upstream timed out");
        let mut client = server.client();
        let length = 48 << 20;
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        client.send(vec![b'x'; length]);
        assert_eq!(client.response().status, 504);
        server.wait_log(
            "upstream timed out (110: Connection timed out) while sending request to upstream",
        );
        gate.open();
    });
}

#[test]
fn no_other_server_is_asked_too_late() {
    for (limit, status, asked) in [("100ms", 504, 0), ("0", 200, 1), ("1h", 200, 1)] {
        let one = Origin::start([[Step::expect("\r\n\r\n"), Step::Closed]]);
        let two = Origin::start([answer(ok("second"))]);
        let http = format!(
            "upstream u {{ server {}; server {} backup; }}
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u;
             proxy_read_timeout 300ms; proxy_next_upstream_timeout {limit}; }} }}",
            one.addr(),
            two.addr()
        );
        let mut server = site(&http).driver(Driver::Epoll).start();
        server.allow_log("upstream");
        assert_eq!(server.get("/").status, status, "{limit}");
        assert_eq!(two.received().len(), asked, "{limit}");
        server.stop();
        drop((one, two));
    }
}

/// The first second's bytes come at once, each further part not before its second.
#[test]
fn a_server_may_be_read_slowly() {
    let content = pattern(110_000);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
    let response = [head.as_bytes(), &content].concat();
    let conf = "set $rate 50k; proxy_limit_rate $rate;";
    on_each(
        || vec![answer(&response)],
        conf,
        |server, _| {
            let began = Instant::now();
            assert!(server.get("/").body == content);
            // Two further parts of 50 KB.
            assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
        },
    );
}

/// What is beyond the buffers goes to the file in steps of `proxy_temp_file_write_size`: less than one
/// step stays in memory. `proxy_max_temp_file_size` bounds the file, and 0 forbids it.
#[test]
fn a_file_takes_what_buffers_do_not() {
    let content = pattern(12 << 20);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
    for (conf, file) in [
        ("proxy_temp_file_write_size 64k;", true),
        ("proxy_temp_file_write_size 64k; proxy_max_temp_file_size 128k;", true),
        ("proxy_temp_file_write_size 64m;", false),
        ("proxy_max_temp_file_size 0;", false),
    ] {
        let gate = Gate::default();
        let script = || {
            let mut steps = answer(&head);
            steps.extend([Step::reply(&content), gate.step()]);
            vec![steps]
        };
        on_each(script, conf, |server, _| {
            server.allow_log("is buffered to a temporary file");
            server.allow_log("prematurely closed connection");
            let mut client = server.client();
            client.send_get("/");
            // A second step is written after the first one has been noted for the log.
            if file && !super::bodies::wait_spilled_beyond(server, 64 << 10) {
                return gate.open();
            }
            assert!(client.response().body == content, "{conf}");
            gate.open();
            match file {
                true => server.wait_log("is buffered to a temporary file"),
                false => assert!(!server.log().contains("to a temporary file"), "{conf}"),
            }
        });
    }
}
