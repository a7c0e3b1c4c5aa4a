//! What the tests share: a site with TLS and HTTP/2, the application behind it, and programs to run.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use nowait_testkit::server::{Signal, signal};
use nowait_testkit::{Binary, Driver, Server, ServerBuilder, skip, wait};

#[path = "../http/tls/client.rs"]
#[allow(dead_code, reason = "the client of other tests")]
mod client;

pub use client::{Authority, Issued};

/// What [`skip::skip_rare`] is told: `cargo xtask peers` requires it.
const NEED: &str = "peers";

pub const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];

/// Sizes of the files that clients get: around the limits of frames, records, and buffers.
const SIZES: [usize; 10] =
    [0, 1, 1_000, 16_375, 16_384, 16_385, 65_536, 100_000, 1_000_003, 3_000_000];

/// Where `cargo xtask peers` puts what Debian does not have.
pub fn fetched() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers")
}

/// A program, or `None` with a message.
pub fn program(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = [fetched().join("bin"), fetched().join("venv/bin")];
    let mut files = dirs.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join(name));
    let Some(file) = files.find(|file| file.is_file()) else {
        skipped(&format!("{name} is not installed"));
        return None;
    };
    let mut command = Command::new(file);
    // What talks to the servers of a test needs no proxy.
    command.env("no_proxy", "*").stdin(Stdio::null());
    Some(command)
}

/// Reports that a test is skipped.
#[track_caller]
pub fn skipped(reason: &str) {
    skip::skip_rare(NEED, &format!("{reason} (cargo xtask peers)"));
}

/// A file of `programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/programs").join(name)
}

/// Runs a command to its end; it must succeed.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = said(&output);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

/// What a program has written, errors last.
pub fn said(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    text
}

/// A program that runs until it is dropped.
pub struct Background(Child);

impl Background {
    /// Starts it.
    #[track_caller]
    pub fn start(command: &mut Command) -> Background {
        Background(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// The same for a server, whose output nothing reads; waits until it listens.
    #[track_caller]
    pub fn serve(command: &mut Command, port: u16) -> Background {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Background::start(command);
        wait::until("a server to listen", wait::PATIENCE, || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        });
        server
    }

    /// The same for a server at a Unix socket.
    #[track_caller]
    pub fn serve_at(command: &mut Command, socket: &Path) -> Background {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Background::start(command);
        wait::until("a server to listen", wait::PATIENCE, || UnixStream::connect(socket).ok());
        server
    }

    /// The output, if that is a pipe that nothing has taken yet.
    #[track_caller]
    pub fn output(&mut self) -> ChildStdout {
        self.0.stdout.take().expect("a pipe")
    }

    /// Sends it a signal.
    pub fn signal(&self, number: Signal) {
        signal(self.0.id(), number);
    }

    /// Ends it, with the processes that it has started.
    pub fn end(&mut self) {
        // It may have ended by itself, which its clients have noticed.
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal(self.0.id(), Signal::TERM);
            wait::try_until(wait::PATIENCE, || self.0.try_wait().ok().flatten());
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

/// The application: `programs/origin.py`.
pub struct Application {
    _running: Background,
    pub addr: SocketAddr,
}

impl Application {
    pub fn start() -> Option<Application> {
        Application::run("origin.py")
    }

    /// Another program of Python that says its port.
    pub fn run(name: &str) -> Option<Application> {
        let mut command = program("python3")?;
        command.arg(source(name)).stdout(Stdio::piped());
        let mut running = Background::start(&mut command);
        let mut line = String::new();
        BufReader::new(running.output()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().expect("the application says its port");
        Some(Application { _running: running, addr: (Ipv4Addr::LOCALHOST, port).into() })
    }
}

/// Contents that differ from place to place, so that a mistake in an offset shows.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 * 31 % 251) as u8).collect()
}

/// A site for `localhost`: TLS at `%%PORT%%`, HTTP/2 and HTTP/1.1 without TLS at `%%PORT_1%%`, the
/// application below `/app/`, files below `/files/`.
pub fn site(authority: &Authority, application: SocketAddr, more: &str) -> ServerBuilder {
    let own = authority.issue("localhost");
    let mut names = String::new();
    let mut builder = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")));
    for size in SIZES {
        names += &format!("{size}\n");
        builder = builder.file(&format!("html/files/{size}"), content(size));
    }
    let http = format!(
        "ssl_certificate own.pem; ssl_certificate_key own.key;
         client_max_body_size 20m; sendfile on;
         server {{
             listen 127.0.0.1:%%PORT%% ssl;
             listen 127.0.0.1:%%PORT_1%%;
             server_name localhost;
             http2 on;
             root %%DIR%%/html;
             location /app/ {{
                 proxy_pass http://{application};
                 proxy_http_version 1.1;
                 proxy_set_header Upgrade $http_upgrade;
                 proxy_set_header Connection $connection_upgrade;
                 proxy_buffering off;
             }}
             {more}
         }}
         map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}"
    );
    builder
        .http(&http)
        .file("own.pem", own.chain)
        .file("own.key", own.key)
        .file("html/files/list", names)
        .file("html/index.html", "<!doctype html><title>Home</title>It works.")
        .file("ca.pem", &authority.pem)
}

/// Tests a peer with each driver against a [`site`]; not at all without the application's Python.
#[track_caller]
pub fn on_each(more: &str, test: impl Fn(&Server)) {
    let Some(application) = Application::start() else { return };
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let authority = Authority::new("Test CA");
        let server = site(&authority, application.addr, more).driver(driver).start();
        test(&server);
        server.stop();
    }
}

/// The address of the site with TLS.
pub fn https(server: &Server) -> String {
    format!("https://localhost:{}", server.port())
}

/// The address without.
pub fn http(server: &Server) -> String {
    format!("http://localhost:{}", server.port_n(1))
}

/// The certificate of the authority.
pub fn ca(server: &Server) -> PathBuf {
    server.dir().join("ca.pem")
}
