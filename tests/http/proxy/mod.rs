//! `proxy_pass` and the directives of its module: what servers are asked, and what clients get.

mod conf;
mod connection;
mod cookies;
mod fields;
mod hops;
mod request;
mod response;
mod store;
mod variables;

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, check_on};

use crate::stage::server;

/// One exchange through the server.
pub struct Case<'a> {
    /// What the client sends, as in [`nowait_testkit::check`].
    pub exchange: &'a str,
    /// What the origin gets, with `\n` as line end and `ORIGIN` for its address; `*`: anything.
    pub passed: &'a str,
    /// What the origin answers, with `\n` as line end up to the body.
    pub reply: &'a str,
    /// What the client gets, as in [`nowait_testkit::check`].
    pub expected: &'a str,
}

/// A response that says nothing.
pub const OK: &str = "HTTP/1.1 200 OK\nContent-Length: 2\n\nok";

/// Has exchanges on each driver, one connection to the origin each; `%%ORIGIN%%` is its address.
#[track_caller]
pub fn through(content: &str, cases: &[Case<'_>]) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        eprintln!("driver: {driver:?}");
        let scripts = cases.iter().map(|case| {
            let body = case.passed.split_once("\n\n").map_or("", |(_, body)| body);
            let expect = format!("\r\n\r\n{body}");
            vec![Step::expect(expect), Step::reply(wire(case.reply))]
        });
        let origin = Origin::start(scripts.collect::<Vec<_>>());
        let address = origin.addr().to_string();
        let server = server(&content.replace("%%ORIGIN%%", &address)).driver(driver).start();
        for (n, case) in cases.iter().enumerate() {
            eprintln!("exchange: {}", case.exchange);
            check_on(&server, case.exchange, &case.expected.replace("ORIGIN", &address));
            if case.passed != "*" {
                let got = origin.received()[n].clone();
                let got = String::from_utf8_lossy(&got).replace("\r\n", "\n");
                assert_eq!(got.replace(&address, "ORIGIN"), case.passed, "passed on");
            }
        }
        let nginx = server.binary().is_nginx();
        server.stop();
        origin.finish();
        if nginx {
            break;
        }
    }
}

/// Requests targets; gives what the origin was asked for.
#[track_caller]
pub fn asked(content: &str, cases: &[(&str, &str)]) {
    let texts: Vec<(String, String)> = cases
        .iter()
        .map(|(target, line)| {
            let exchange = format!("GET {target} HTTP/1.1\nHost: localhost");
            (exchange, format!("GET {line} HTTP/1.1\nHost: ORIGIN\n\n"))
        })
        .collect();
    let cases: Vec<Case<'_>> = texts
        .iter()
        .map(|(exchange, passed)| Case { exchange, passed, reply: OK, expected: "200\n\nok" })
        .collect();
    through(content, &cases);
}

/// Requests `/`; gives what the client gets for what the origin answers.
#[track_caller]
pub fn answered(content: &str, cases: &[(&str, &str)]) {
    let cases: Vec<Case<'_>> = cases
        .iter()
        .map(|(reply, expected)| Case {
            exchange: "GET / HTTP/1.1\nHost: localhost",
            passed: "*",
            reply,
            expected,
        })
        .collect();
    through(content, &cases);
}

/// A response as it goes over the wire.
pub fn wire(text: &str) -> String {
    match text.split_once("\n\n") {
        Some((head, body)) => format!("{}\r\n\r\n{body}", head.replace('\n', "\r\n")),
        None => text.replace('\n', "\r\n"),
    }
}
