//! Clients that are libraries: Go's net/http, Python's httpx, Node's `https` and `http2`.

use crate::stage::{ca, https, on_each, program, source, succeed};

#[test]
fn go() {
    let Some(mut build) = program("go") else { return };
    let dir = nowait_testkit::TempDir::new("peers-go");
    let client = dir.path().join("client");
    succeed(build.arg("build").arg("-o").arg(&client).arg(source("client.go")));
    on_each("", |server| {
        let mut client = std::process::Command::new(&client);
        succeed(client.env("NO_PROXY", "*").arg(https(server)).arg(ca(server)));
    });
}

#[test]
fn python() {
    // Comes with the environment that has httpx.
    if program("httpx").is_none() {
        return;
    }
    on_each("", |server| {
        let Some(mut python) = program("python") else { return };
        succeed(python.arg(source("client.py")).arg(https(server)).arg(ca(server)));
    });
}

#[test]
fn node() {
    if program("node").is_none() {
        return;
    }
    on_each("", |server| {
        let Some(mut node) = program("node") else { return };
        succeed(node.arg(source("client.mjs")).arg(https(server)).arg(ca(server)));
    });
}
