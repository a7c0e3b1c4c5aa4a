//! An issuer that lies: `programs/issuer.py`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nowait_testkit::{Binary, Server, TempDir};

use super::pebble::presented;
use crate::stage::{Authority, Background, program, source};

#[test]
fn lies_are_found_out() {
    for name in ["openssl", "python3"] {
        if program(name).is_none() {
            return;
        }
    }
    for (lie, expected) in [
        ("redirect", "the issuer refused the request for its directory with status 307"),
        ("oversized", "the response is too large, while asking https://localhost:"),
        ("key", "the issuer sent an unusable certificate: SSL_CTX_use_PrivateKey() failed"),
        ("names", "the issuer sent an unusable certificate: the certificate is not for localhost"),
        ("private", "the issuer sent more than certificates"),
        ("garbage", "the issuer sent an unusable certificate: "),
    ] {
        let (dir, authority) = (TempDir::new("liar"), Authority::new("liars"));
        let own = authority.issue("localhost");
        for (name, text) in [
            ("ca.pem", &authority.pem),
            ("ca.key", &authority.key().serialize_pem()),
            ("own.pem", &own.chain),
            ("own.key", &own.key),
        ] {
            dir.write(name, text);
        }
        let mut command = program("python3").unwrap();
        command.arg(source("issuer.py")).arg(lie).current_dir(dir.path()).stdout(Stdio::piped());
        let mut issuer = Background::start(&mut command);
        let mut line = String::new();
        BufReader::new(issuer.output()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().expect("the issuer says its port");
        let http = format!(
            "acme_issuer liar {{ uri https://localhost:{port}/dir; state_path state;
                 ssl_trusted_certificate ca.pem; }}
             server {{ listen 127.0.0.1:%%PORT%% ssl; server_name localhost; acme_certificate liar;
                 ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }}"
        );
        let builder = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait"))).http(&http);
        let server = builder.file("ca.pem", &authority.pem).start();
        server.wait_log("next attempt in");
        assert!(server.log().contains(expected), "{lie}: {}", server.log());
        assert!(presented(&server).is_none(), "{lie}");
        server.stop();
    }
}
