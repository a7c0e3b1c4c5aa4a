//! Applications that do wrong, or nothing.

use nowait_testkit::Origin;
use nowait_testkit::origin::Step;

use super::{ASKED, END, STDERR, answer, end, on_each, out, record, whole};
use crate::stage::site;

/// One response that can't be used, and what the log says of it.
#[track_caller]
fn refused(response: impl AsRef<[u8]>, log: &str) {
    let response = response.as_ref();
    on_each(
        || vec![answer(response)],
        "",
        |server, _| {
            server.allow_log("upstream");
            assert_eq!(server.get("/").status, 502, "{}", server.log());
            server.wait_log(log);
        },
    );
}

#[test]
fn records_that_are_none() {
    refused("HTTP/1.1 200 OK\r\n\r\n", "upstream sent unsupported FastCGI protocol version: 72");
    refused([1, 11, 0, 1, 0, 0, 0, 0], "upstream sent invalid FastCGI record type: 11");
    refused([1, 6, 0, 2, 0, 0, 0, 0], "upstream sent unexpected FastCGI request id");
    refused(record(END, [0; 8]), "upstream sent unexpected FastCGI record: 3");
    refused(record(END, [0, 0, 0, 0, 2, 0, 0, 0]), "it is overloaded");
    refused(end(), "upstream prematurely closed FastCGI stdout");
}

#[test]
fn heads_that_are_none() {
    refused(whole("no colon\r\n\r\n"), "upstream sent invalid header");
    refused(whole("Status: two\r\n\r\n"), "upstream sent invalid status \"two\"");
    refused(whole("Status: 100 Continue\r\n\r\n"), "upstream sent unexpected interim response");
    refused(whole(&"X: 0123456789\r\n".repeat(1000)), "upstream sent too big header");
    // A record that announces more than it has.
    let cut = &out("Content-Type: text/plain\r\n\r\n")[..20];
    refused(cut, "upstream prematurely closed connection while reading response header");
    refused("", "upstream prematurely closed connection");
}

/// A response whose head was sent already: the client sees that it is cut.
#[track_caller]
fn cut(response: Vec<u8>, log: &str) {
    for conf in ["", "fastcgi_buffering off;"] {
        on_each(
            || vec![answer(&response)],
            conf,
            |server, _| {
                server.allow_log("upstream");
                let mut client = server.client();
                client.send_get("/");
                assert!(client.try_response(false).is_err(), "{log}");
                server.wait_log(log);
            },
        );
    }
}

#[test]
fn lengths_that_lie() {
    let short = out("Content-Length: 9\r\n\r\nbody");
    cut([&short[..], &end()].concat(), "upstream prematurely closed FastCGI stdout");
    cut([&short[..], &record(END, [0; 8])].concat(), "upstream prematurely closed FastCGI request");
    cut(short, "upstream prematurely closed connection");
    let mut record = out("Content-Type: text/plain\r\n\r\nbody");
    record.truncate(record.len() - 5);
    cut(record, "upstream prematurely closed connection");
    // Nothing says that the response is complete.
    cut(out("Content-Type: text/plain\r\n\r\nbody"), "upstream prematurely closed connection");
}

#[test]
fn more_than_was_announced() {
    let response = whole("Content-Length: 4\r\n\r\nbody and more");
    on_each(
        || vec![answer(&response)],
        "",
        |server, _| {
            server.allow_log("upstream sent more data");
            assert_eq!(server.get("/").text(), "body");
            server.wait_log("upstream sent more data than specified in \"Content-Length\" header");
        },
    );
}

#[test]
fn an_error_stream_without_end() {
    let flood = record(STDERR, "x".repeat(65_000)).repeat(270);
    let script = || vec![vec![Step::expect(ASKED), Step::reply_some(&flood), Step::Closed]];
    on_each(script, "", |server, _| {
        server.allow_log("FastCGI");
        assert_eq!(server.get("/").status, 502);
        server.wait_log("FastCGI sent more in stderr, which is not logged");
        server.wait_log("upstream sent too much in FastCGI stderr");
    });
}

#[test]
fn a_caught_text_makes_a_response_invalid() {
    let conf = "fastcgi_catch_stderr 'PHP Fatal error'; fastcgi_next_upstream invalid_header;";
    let fatal = [record(STDERR, "PHP Fatal error: x\n"), whole("A: b\r\n\r\nbody")].concat();
    on_each(
        || vec![answer(&fatal)],
        conf,
        |server, _| {
            server.allow_log("FastCGI sent in stderr");
            assert_eq!(server.get("/").status, 502);
            server.wait_log(
                "FastCGI sent in stderr: \"PHP Fatal error: x\" while reading response header",
            );
        },
    );
}

#[test]
fn another_server_is_tried() {
    let backup = Origin::start([answer(whole("A: b\r\n\r\nbackup"))]);
    let first = Origin::start([answer(whole("Status: 503 No\r\n\r\n"))]);
    let server = site(&format!(
        "upstream both {{ server {}; server {} backup; }}
         server {{ listen 127.0.0.1:%%PORT%%;
             location / {{ fastcgi_pass both; fastcgi_next_upstream http_503; }} }}",
        first.addr(),
        backup.addr()
    ))
    .start();
    assert_eq!(server.get("/").text(), "backup");
    server.stop();
    first.finish();
    backup.finish();
}

#[test]
fn a_silent_server() {
    let script = || vec![vec![Step::expect(ASKED), Step::Closed]];
    on_each(script, "fastcgi_read_timeout 50ms;", |server, _| {
        server.allow_log("upstream timed out");
        assert_eq!(server.get("/").status, 504);
        server.wait_log("upstream timed out (110: Connection timed out)");
    });
}
