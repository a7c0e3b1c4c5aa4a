//! OpenSSL's `s_client` and `s_server`: old and odd peers.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use nowait_testkit::ports::free_port;
use nowait_testkit::{Binary, Server};

use crate::stage::{Authority, Background, DRIVERS, Issued, ca, on_each, program, said};

/// Connects with these arguments and sends a request; what `s_client` reports.
fn s_client(server: &Server, arguments: &[&str]) -> Option<String> {
    let request = "GET /files/1000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    s_client_asks(server, request, arguments)
}

/// The same with another request.
fn s_client_asks(server: &Server, request: &str, arguments: &[&str]) -> Option<String> {
    let mut openssl = program("openssl")?;
    openssl.args(["s_client", "-connect", &format!("127.0.0.1:{}", server.port())]);
    openssl.args(["-servername", "localhost", "-ign_eof", "-CAfile"]).arg(ca(server));
    openssl.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = openssl.spawn().unwrap();
    // It may have ended already, if the handshake has failed.
    let _ = child.stdin.take().unwrap().write_all(request.as_bytes());
    Some(said(&child.wait_with_output().unwrap()))
}

#[test]
fn s_client_gets_what_it_asks_for() {
    if program("openssl").is_none() {
        return;
    }
    on_each("", |server| {
        let cases: [(&[&str], &[&str]); 8] = [
            (&["-tls1_3"], &["TLSv1.3", "Verify return code: 0"]),
            (&["-tls1_2"], &["TLSv1.2", "Verify return code: 0"]),
            (&["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"], &["CHACHA20"]),
            (&["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"], &["TLS_AES_128_GCM_SHA256"]),
            // A second flight of hellos: the client's first guess of a group is not taken.
            (&["-tls1_3", "-curves", "X448:P-384"], &["TLSv1.3", "Verify return code: 0"]),
            (&["-tls1_3", "-curves", "P-256"], &["Server Temp Key: ECDH, prime256v1"]),
            (&["-alpn", "foo,http/1.1"], &["ALPN protocol: http/1.1"]),
            // Records of half a kilobyte.
            (&["-maxfraglen", "512"], &["Verify return code: 0"]),
        ];
        for (arguments, expected) in cases {
            let Some(said) = s_client(server, arguments) else { return };
            assert!(said.contains("HTTP/1.1 200 OK"), "{arguments:?}: {said}");
            for text in expected {
                assert!(said.contains(text), "{arguments:?}: not {text}: {said}");
            }
        }
        let refused: [&[&str]; 4] = [
            &["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"],
            &["-tls1_2", "-cipher", "AES128-SHA"],
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"],
            &["-tls1_3", "-curves", "X448"],
        ];
        for arguments in refused {
            let Some(said) = s_client(server, arguments) else { return };
            assert!(!said.contains("HTTP/1.1"), "{arguments:?}: {said}");
            assert!(said.contains("alert"), "{arguments:?}: {said}");
        }
    });
}

#[test]
fn s_client_resumes() {
    if program("openssl").is_none() {
        return;
    }
    on_each("", |server| {
        for version in ["-tls1_2", "-tls1_3"] {
            let file = server.dir().join(format!("session{version}"));
            let file = file.to_str().unwrap();
            let Some(first) = s_client(server, &[version, "-sess_out", file]) else { return };
            assert!(first.contains("New, TLSv1."), "{first}");
            let Some(second) = s_client(server, &[version, "-sess_in", file]) else { return };
            assert!(second.contains("Reused, TLSv1."), "{second}");
            assert!(second.contains("HTTP/1.1 200 OK"), "{second}");
        }
    });
}

/// A server on each driver that asks for certificates, and shows the session's facts.
fn showing(content: &str, test: impl Fn(&Server)) {
    let authority = Authority::new("Test CA");
    let own = authority.issue("localhost");
    for driver in DRIVERS {
        let http = format!(
            "ssl_certificate own.pem; ssl_certificate_key own.key; {content}
             server {{ listen 127.0.0.1:%%PORT%% ssl default_server; server_name localhost;
                 return 200 \"default $ssl_server_name $ssl_client_verify $ssl_curve.\"; }}
             server {{ listen 127.0.0.1:%%PORT%% ssl; server_name -x.example.com;
                 return 200 \"own $ssl_server_name $ssl_client_verify $ssl_curve.\"; }}"
        );
        let server = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
            .http(&http)
            .file("ca.pem", &authority.pem)
            .file("own.pem", &own.chain)
            .file("own.key", &own.key)
            .driver(driver)
            .start();
        test(&server);
        server.stop();
    }
}

#[test]
fn odd_names_are_served() {
    if program("openssl").is_none() {
        return;
    }
    let long = "x".repeat(200);
    let longer = "a.".repeat(127);
    showing("ssl_verify_client optional_no_ca; ssl_client_certificate ca.pem;", |server| {
        let own = server.dir().join("own");
        let (chain, key) = (own.with_extension("pem"), own.with_extension("key"));
        let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
        let file = server.dir().join("session");
        let file = file.to_str().unwrap();
        let ways: [&[&str]; 8] = [
            &["-tls1_3"],
            &["-tls1_2"],
            // A second hello.
            &["-tls1_3", "-curves", "X448:P-384"],
            &["-tls1_3", "-cert", chain, "-key", key],
            &["-tls1_2", "-cert", chain, "-key", key],
            &["-tls1_3", "-sess_out", file],
            &["-tls1_3", "-sess_in", file],
            &["-tls1_3", "-sess_in", file, "-curves", "X448:P-384"],
        ];
        let names = [
            "-x.example.com",
            "x-.example.com",
            "x..example.com",
            "a b",
            "*.example.com",
            "1.2.3.456",
            "caf\u{e9}.example",
            "a/b",
            &long,
            &longer,
        ];
        for name in names {
            for arguments in ways {
                let arguments = [&["-servername", name], arguments].concat();
                // Without a host, the name in the handshake chooses the server.
                let said = s_client_asks(server, "GET / HTTP/1.0\r\n\r\n", &arguments);
                let Some(said) = said else { return };
                assert!(said.contains("HTTP/1.1 200 OK"), "{arguments:?}: {said}");
                let shown = match name {
                    "-x.example.com" => "own -x.example.com ",
                    "x..example.com" | "a b" | "a/b" => "default  ",
                    name => &format!("default {name} "),
                };
                assert!(said.contains(shown), "{arguments:?}: {said}");
                if arguments.contains(&"-cert") {
                    assert!(said.contains(" SUCCESS "), "{arguments:?}: {said}");
                }
                if arguments.contains(&"-sess_in") && !arguments.contains(&"-curves") {
                    assert!(said.contains("Reused, TLSv1."), "{arguments:?}: {said}");
                }
            }
        }
    });
}

#[test]
fn keys_are_exchanged_with_p521() {
    if program("openssl").is_none() {
        return;
    }
    showing("ssl_ecdh_curve secp521r1;", |server| {
        let ways: [&[&str]; 3] = [
            &["-tls1_3", "-curves", "P-521"],
            &["-tls1_3", "-curves", "X25519:P-521"],
            &["-tls1_2", "-curves", "P-256:P-521"],
        ];
        for arguments in ways {
            let Some(said) = s_client(server, arguments) else { return };
            assert!(said.contains("default localhost NONE secp521r1."), "{arguments:?}: {said}");
            assert!(said.contains("Verify return code: 0"), "{arguments:?}: {said}");
        }
        let Some(said) = s_client(server, &["-curves", "X25519"]) else { return };
        assert!(said.contains("alert"), "{said}");
    });
}

/// Starts `openssl s_server -www`, which reports on each connection; returns it with its port.
fn s_server(directory: &Path, own: &Issued, arguments: &[&str]) -> Option<(Background, u16)> {
    let mut openssl = program("openssl")?;
    std::fs::write(directory.join("own.pem"), &own.chain).unwrap();
    std::fs::write(directory.join("own.key"), &own.key).unwrap();
    let port = free_port();
    openssl.args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-www"]);
    openssl.args(["-cert", "own.pem", "-key", "own.key"]).args(arguments).current_dir(directory);
    Some((Background::serve(&mut openssl, port), port))
}

#[test]
fn s_server_as_upstream() {
    if program("openssl").is_none() {
        return;
    }
    let authority = Authority::new("Test CA");
    let own = authority.issue("localhost");
    let dir = nowait_testkit::TempDir::new("peers-openssl");
    let cases: [(&[&str], Option<&str>); 6] = [
        (&["-tls1_3"], Some("TLSv1.3")),
        (&["-tls1_2"], Some("TLSv1.2")),
        (&["-tls1_2", "-no_ticket"], Some("TLSv1.2")),
        (&["-tls1_3", "-curves", "P-384"], Some("TLSv1.3")),
        (&["-tls1_3", "-num_tickets", "5"], Some("TLSv1.3")),
        (&["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"], None),
    ];
    for (arguments, expected) in cases {
        let Some((_origin, port)) = s_server(dir.path(), &own, arguments) else { return };
        for driver in DRIVERS {
            let http = format!(
                "server {{ listen 127.0.0.1:%%PORT%%;
                 location / {{
                     proxy_pass https://127.0.0.1:{port}; proxy_ssl_name localhost;
                     proxy_ssl_server_name on;
                     proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem;
                 }} }}"
            );
            let proxy = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
                .http(&http)
                .file("ca.pem", &authority.pem)
                .driver(driver)
                .allow_log("SSL_do_handshake() failed")
                .start();
            for _ in 0..3 {
                let response = proxy.get("/");
                match expected {
                    Some(version) => {
                        assert_eq!(response.status, 200, "{arguments:?}: {}", proxy.log());
                        assert!(response.text().contains(version), "{}", response.text());
                    }
                    None => assert_eq!(response.status, 502, "{arguments:?}"),
                }
            }
            proxy.stop();
        }
    }
}
