//! The life of the program: command line, start, stop, reload, upgrade, what survives what.
//!
//! Every server runs on ports of its own below a temporary directory; nothing needs root, and as
//! root the server process runs as nobody.

mod command_line;
mod freed;
mod modes;
mod no_configuration;
mod proxy;
mod reload;
mod start;
mod upgrade;
mod watchdog;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use nowait_testkit::server::{Signal, children, signal};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Driver, Server, ServerBuilder, TempDir};

fn binary() -> Binary {
    Binary::nowait(env!("CARGO_BIN_EXE_nowait"))
}

fn nowait(arguments: &[&str]) -> Output {
    binary().command().args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn serving(text: &str) -> String {
    format!("server {{ listen 127.0.0.1:%%PORT%%; return 200 {text}; }}")
}

fn server(text: &str) -> ServerBuilder {
    Server::of(binary()).http(&serving(text))
}

/// `nowait -p DIR -c nginx.conf ...` for a running server, as an operator would call it.
fn control(server: &Server, arguments: &[&str]) -> Output {
    let dir = server.dir().to_str().unwrap();
    binary().command().args(["-p", dir, "-c", "nginx.conf"]).args(arguments).output().unwrap()
}

fn listing(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Ends a daemon, no matter what becomes of the test.
struct EndOnDrop(u32);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if std::path::Path::new(&format!("/proc/{}", self.0)).exists() {
            signal(self.0, Signal::TERM);
        }
    }
}
