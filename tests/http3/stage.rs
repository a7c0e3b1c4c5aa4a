//! What the tests share: a server with HTTP/3 per driver, and connections to it.

use std::sync::Arc;

use nowait_testkit::http3::{Http3, Http3Options, trusting};
use nowait_testkit::quic::QuicOptions;
use nowait_testkit::{Binary, Driver, Server, ServerBuilder};

use crate::client::Authority;

/// Describes a server with this `http` block.
pub fn site(http: &str) -> ServerBuilder {
    let own = Authority::new("authority").issue("localhost");
    Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
        .http(http)
        .file("own.pem", own.chain)
        .file("own.key", own.key)
}

/// A server `localhost` for HTTP/1.1, HTTP/2 and HTTP/3 at `%%PORT%%`, with this content.
pub fn server(content: &str) -> ServerBuilder {
    site(&block(content))
}

/// The block of [`server`].
pub fn block(content: &str) -> String {
    format!(
        "server {{\nlisten 127.0.0.1:%%PORT%% ssl;\nlisten 127.0.0.1:%%PORT%% quic;\nhttp2 on;\n\
         server_name localhost;\nssl_certificate %%DIR%%/own.pem;\n\
         ssl_certificate_key %%DIR%%/own.key;\nroot %%DIR%%/html;\n{content}\n}}"
    )
}

/// Runs a test on each driver, with a server of its own each time.
#[track_caller]
pub fn on_each_driver(builder: &ServerBuilder, test: impl Fn(&mut Server)) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        // Shown with a failure.
        eprintln!("driver: {driver:?}");
        let mut server = builder.clone().driver(driver).start();
        test(&mut server);
        server.stop();
    }
}

/// A connection.
#[track_caller]
pub fn http3(server: &Server) -> Http3 {
    Http3::to_port(server.port())
}

/// A connection with these settings, which allow the server a QPACK table.
#[track_caller]
pub fn with_table(server: &Server, capacity: u64, blocked: u64) -> Http3 {
    let settings = vec![(1, capacity), (7, blocked)];
    let options = Http3Options { settings, ..Http3Options::default() };
    Http3::connect(server.port(), &options).unwrap()
}

/// What a client of this TLS needs.
pub fn options_of(tls: Arc<rustls::ClientConfig>) -> Http3Options {
    Http3Options { quic: QuicOptions::new(tls), ..Http3Options::default() }
}

/// The TLS of a client that trusts this authority.
pub fn tls_of(config: &rustls::ClientConfig) -> Arc<rustls::ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h3".to_vec()];
    config.enable_early_data = true;
    Arc::new(config)
}

/// A client that trusts everyone.
pub fn trusting_options() -> Http3Options {
    options_of(trusting("h3"))
}

/// Lets the server write to a directory below its own.
pub fn writable(server: &Server, directory: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = server.dir().join(directory);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// Bytes in which every position can be recognised.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 * 31 % 251) as u8).collect()
}
