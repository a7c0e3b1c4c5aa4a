//! h2spec, the conformance tests of HTTP/2, in its strict mode.

use crate::stage::{on_each, program, said};

/// Runs all of it against a port; returns what it reports.
fn h2spec(port: u16, tls: bool) -> String {
    let Some(mut h2spec) = program("h2spec") else { return String::new() };
    h2spec.args(["--strict", "--host", "localhost", "--timeout", "5"]);
    h2spec.args(["--port", &port.to_string()]);
    if tls {
        h2spec.args(["--tls", "--insecure"]);
    }
    let output = h2spec.output().expect("h2spec starts");
    said(&output)
}

#[test]
fn h2spec_in_strict_mode() {
    if program("h2spec").is_none() {
        return;
    }
    on_each("", |server| {
        for (port, tls) in [(server.port(), true), (server.port_n(1), false)] {
            let said = h2spec(port, tls);
            let faults: Vec<&str> = said.lines().filter(|line| line.contains('×')).collect();
            // Without TLS the socket speaks HTTP/1.1, too, and answers what is no preface in it: 400.
            let others = |fault: &&str| tls || !fault.contains("Sends invalid connection preface");
            assert!(!faults.into_iter().any(|fault| others(&fault)), "TLS: {tls}\n{said}");
            assert!(said.contains("146 tests, "), "{said}");
        }
    });
}
