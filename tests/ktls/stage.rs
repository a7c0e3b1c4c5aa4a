//! What the tests share: a site with files, its counters, and programs that are its clients.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nowait_testkit::{Binary, Driver, Server, ServerBuilder, skip};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{CipherSuite, ClientConfig};

#[path = "../http/tls/client.rs"]
#[allow(dead_code, reason = "the client of other tests")]
mod client;

pub use client::{Authority, TlsClient};

/// What [`skip::skip_rare`] is told: `cargo xtask ktls` requires it.
const NEED: &str = "ktls";

const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];

/// From this size on, a file is sent by the kernel without having been asked to.
pub const LARGE: usize = 4 * 1024 * 1024;

/// Has the kernel seal from the first byte.
pub const ALWAYS: &str = "ssl_conf_command Options KTLS;";

/// Suites that the kernel knows: the version for curl, its option, OpenSSL's name, and rustls'.
pub const SUITES: [(&str, &str, &str, CipherSuite); 6] = [
    ("1.3", "--tls13-ciphers", "TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("1.3", "--tls13-ciphers", "TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    (
        "1.3",
        "--tls13-ciphers",
        "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "1.2",
        "--ciphers",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "1.2",
        "--ciphers",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "1.2",
        "--ciphers",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Whether the kernel has TLS; without, the test is reported as skipped.
#[track_caller]
pub fn has_ktls() -> bool {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp").unwrap_or_default();
    let has = known.split_whitespace().any(|name| name == "tls");
    if !has {
        skip::skip_rare(NEED, "the kernel has no module \"tls\", or it is not loaded");
    }
    has
}

/// A program, or `None` with a message.
#[track_caller]
pub fn program(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let file = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    let Some(file) = file else {
        skip::skip_rare(NEED, &format!("{name} is not installed"));
        return None;
    };
    let mut command = Command::new(file);
    command.env("no_proxy", "*").stdin(Stdio::null());
    Some(command)
}

/// Contents that differ from place to place, so that a mistake in an offset shows.
pub fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 * 31 % 251) as u8).collect()
}

/// A site with TLS for `localhost`: its files at `/files/SIZE`, its counters below `/status/`.
/// `content` is for the server.
pub fn site(authority: &Authority, sizes: &[usize], server: &str) -> ServerBuilder {
    let own = authority.issue("localhost");
    let http = format!(
        "ssl_certificate own.pem; ssl_certificate_key own.key; sendfile on; send_timeout 1h;
         keepalive_timeout 1h; client_max_body_size 100m;
         server {{
             listen 127.0.0.1:%%PORT%% ssl;
             listen 127.0.0.1:%%PORT_1%%;
             server_name localhost;
             root %%DIR%%/html;
             location /status/ {{ status_api; }}
             location = /small {{ return 200 $connection_requests; }}
             {server}
         }}"
    );
    let mut builder = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait"))).http(&http);
    for size in sizes {
        builder = builder.file(&format!("html/files/{size}"), content(*size));
    }
    builder.file("own.pem", own.chain).file("own.key", own.key).file("ca.pem", &authority.pem)
}

/// Runs a test on each driver that this machine has.
pub fn on_each(builder: &ServerBuilder, test: impl Fn(&mut Server)) {
    for driver in DRIVERS {
        let mut server = builder.clone().driver(driver).start();
        if driver == Driver::IoUring && !server.log().contains("\"io_uring\"") {
            skip::skip("io_uring", "the kernel lacks what the driver needs");
            server.stop();
            continue;
        }
        test(&mut server);
        server.stop();
    }
}

/// Counters of the server: connections that the kernel seals, fallbacks, connections closed for want
/// of new keys. Read without TLS.
pub fn counters(server: &Server) -> [u64; 3] {
    let mut client = nowait_testkit::Client::to_port(server.port_n(1));
    let text = client.get("/status/ssl/ktls").text();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    ["connections", "fallbacks", "keys_refused"].map(|name| report[name].as_u64().unwrap())
}

/// The file with the authority's certificate.
pub fn ca(server: &Server) -> PathBuf {
    server.dir().join("ca.pem")
}

/// Has curl fetch something; the content of the response.
#[track_caller]
pub fn curl(server: &Server, target: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut curl = program("curl")?;
    curl.args(["-sS", "--fail", "--http1.1", "--cacert"]).arg(ca(server)).args(arguments);
    curl.arg(format!("https://localhost:{}{target}", server.port()));
    curl.args(["--resolve", &format!("localhost:{}:127.0.0.1", server.port())]);
    let output = curl.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{curl:?}: {}: {said}\n{}", output.status, server.log());
    Some(output.stdout)
}

/// Checks what was received, without printing it.
#[track_caller]
pub fn assert_same(received: &[u8], expected: &[u8], what: &str) {
    let differs = received.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(
        (received.len(), differs),
        (expected.len(), None),
        "{what}: length, first difference"
    );
}

/// A client with one suite.
pub fn client_of(authority: &Authority, suite: CipherSuite) -> Arc<ClientConfig> {
    let mut provider = default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    match provider.cipher_suites[0].tls13() {
        None => authority.client_of(provider),
        Some(_) => authority.client_of_tls13(provider),
    }
}
