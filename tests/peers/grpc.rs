//! grpc-go's interoperability client and server, with the server under test between them.

use nowait_testkit::ports::free_port;
use nowait_testkit::{Binary, Server};

use crate::stage::{Authority, Background, DRIVERS, program, succeed};

/// The cases that need no account.
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// Starts the server; returns it with its port.
fn interop_server(arguments: &[String]) -> Option<(Background, u16)> {
    let mut server = program("grpc-interop-server")?;
    let port = free_port();
    server.arg(format!("--port={port}")).args(arguments);
    Some((Background::serve(&mut server, port), port))
}

/// Runs all cases between a client and a server that both use TLS, or neither.
fn interoperates(tls: bool) {
    if program("grpc-interop-client").is_none() {
        return;
    }
    let authority = Authority::new("Test CA");
    let (own, origin) = (authority.issue("localhost"), authority.issue("localhost"));
    let dir = nowait_testkit::TempDir::new("peers-grpc");
    let path = |name: &str| dir.path().join(name).display().to_string();
    dir.write("origin.pem", &origin.chain);
    dir.write("origin.key", &origin.key);
    dir.write("ca.pem", &authority.pem);
    let arguments = [
        format!("--use_tls={tls}"),
        format!("--tls_cert_file={}", path("origin.pem")),
        format!("--tls_key_file={}", path("origin.key")),
    ];
    let Some((_origin, port)) = interop_server(&arguments) else { return };
    let (listen, scheme) = if tls { ("ssl", "grpcs") } else { ("", "grpc") };
    for driver in DRIVERS {
        let http = format!(
            "server {{ listen 127.0.0.1:%%PORT%% {listen}; http2 on; server_name localhost;
                 ssl_certificate own.pem; ssl_certificate_key own.key;
                 location / {{
                     grpc_pass {scheme}://127.0.0.1:{port};
                     grpc_ssl_name localhost; grpc_ssl_server_name on;
                     grpc_ssl_verify on; grpc_ssl_trusted_certificate ca.pem;
                 }} }}"
        );
        let server = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
            .http(&http)
            .file("own.pem", &own.chain)
            .file("own.key", &own.key)
            .file("ca.pem", &authority.pem)
            .driver(driver)
            .start();
        for case in CASES {
            eprintln!("driver: {driver:?}, TLS: {tls}, case: {case}");
            let Some(mut client) = program("grpc-interop-client") else { return };
            client.args([format!("--server_port={}", server.port()), format!("--use_tls={tls}")]);
            client.args(["--server_host=localhost", "--use_test_ca=true"]);
            client.arg(format!("--ca_file={}", path("ca.pem")));
            succeed(client.arg(format!("--test_case={case}")));
        }
        server.stop();
    }
}

#[test]
fn grpc_go() {
    interoperates(false);
}

#[test]
fn grpc_go_with_tls() {
    interoperates(true);
}
