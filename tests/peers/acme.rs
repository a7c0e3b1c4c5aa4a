//! pebble as an issuer of certificates: with refused nonces, denied names, and dead.

use std::path::Path;

use nowait_testkit::ports::free_port;
use nowait_testkit::{Binary, Driver, Server, ServerBuilder, wait};

use crate::stage::{Authority, Background, DRIVERS, program, said};

/// An issuer.
struct Pebble {
    port: u16,
    /// Where it asks for challenges.
    http_port: u16,
}

impl Pebble {
    fn new() -> Self {
        Self { port: free_port(), http_port: free_port() }
    }

    /// Starts it, with its files in `dir`.
    fn start(&self, dir: &Path, authority: &Authority) -> Option<Background> {
        let mut command = program("pebble")?;
        let own = authority.issue("localhost");
        std::fs::write(dir.join("pebble.pem"), &own.chain).unwrap();
        std::fs::write(dir.join("pebble.key"), &own.key).unwrap();
        let Self { port, http_port } = self;
        let (management, tls) = (free_port(), free_port());
        let settings = format!(
            r#"{{ "pebble": {{ "listenAddress": "127.0.0.1:{port}",
                "managementListenAddress": "127.0.0.1:{management}",
                "certificate": "pebble.pem", "privateKey": "pebble.key",
                "httpPort": {http_port}, "tlsPort": {tls},
                "domainBlocklist": ["blocked.example"],
                "retryAfter": {{ "authz": 1, "order": 1 }},
                "profiles": {{ "default": {{ "description": "", "validityPeriod": 7776000 }} }} }} }}"#
        );
        std::fs::write(dir.join("pebble.json"), settings).unwrap();
        command.args(["-config", "pebble.json"]).current_dir(dir);
        command.env("PEBBLE_WFE_NONCEREJECT", "40").env("PEBBLE_VA_NOSLEEP", "1");
        Some(Background::serve(&mut command, *port))
    }

    /// A server that gets its certificate there.
    fn site(&self, authority: &Authority, driver: Driver, names: &str) -> ServerBuilder {
        let Self { port, http_port } = self;
        let http = format!(
            "acme_issuer local {{
                 uri https://localhost:{port}/dir;
                 contact admin@example.test;
                 accept_terms_of_service;
                 ssl_trusted_certificate ca.pem;
                 state_path state;
             }}
             server {{
                 listen 127.0.0.1:%%PORT%% ssl;
                 server_name localhost;
                 acme_certificate local {names};
                 ssl_certificate $acme_certificate;
                 ssl_certificate_key $acme_certificate_key;
                 ssl_certificate_cache max=4;
                 return 200 secure;
             }}
             server {{ listen 127.0.0.1:{http_port}; deny all; }}
             server {{ listen 127.0.0.1:%%PORT_1%%; return 200 plain; }}"
        );
        let builder = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")));
        builder.driver(driver).http(&http).file("ca.pem", &authority.pem)
    }
}

/// The certificate that a server presents, or why there is none.
fn presented(server: &Server) -> Option<String> {
    let mut openssl = program("openssl")?;
    openssl.args(["s_client", "-servername", "localhost", "-connect"]);
    openssl.arg(format!("127.0.0.1:{}", server.port()));
    let said = said(&openssl.output().unwrap());
    said.contains("issuer=CN = Pebble").then_some(said)
}

#[test]
fn a_certificate_is_ordered_served_and_kept() {
    if program("openssl").is_none() || program("pebble").is_none() {
        return;
    }
    for driver in DRIVERS {
        let (pebble, authority) = (Pebble::new(), Authority::new("issuers"));
        let server = pebble.site(&authority, driver, "").start();
        // The issuer is still dead: that harms no other server, and the attempt is repeated.
        wait::until("a failed attempt", wait::PATIENCE, || {
            server.log().contains("next attempt in").then_some(())
        });
        assert!(presented(&server).is_none());
        assert!(server.log().contains("no certificate for localhost yet"));
        let Some(_issuer) = pebble.start(server.dir(), &authority) else { return };
        server.reload();
        let first = wait::until("a certificate", wait::PATIENCE, || presented(&server));
        server.reload();
        assert_eq!(serial(&presented(&server).unwrap()), serial(&first));
        let state = server.dir().join("state");
        let files: Vec<_> = std::fs::read_dir(state).unwrap().map(Result::unwrap).collect();
        for file in &files {
            use std::os::unix::fs::PermissionsExt;
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{:?}", file.path());
        }
        assert_eq!(files.len(), 4, "{files:?}");
    }
}

/// The lines of the certificate.
fn serial(said: &str) -> &str {
    let begin = said.find("-----BEGIN CERTIFICATE-----").unwrap();
    &said[begin..said.find("-----END CERTIFICATE-----").unwrap()]
}

#[test]
fn a_refused_name_is_reported() {
    let (pebble, authority) = (Pebble::new(), Authority::new("issuers"));
    let dir = std::env::temp_dir().join(format!("nowait-pebble-{}", pebble.port));
    std::fs::create_dir_all(&dir).unwrap();
    if let Some(_issuer) = pebble.start(&dir, &authority) {
        let server = pebble.site(&authority, Driver::Epoll, "blocked.example").start();
        wait::until("a refusal", wait::PATIENCE, || {
            let log = server.log();
            (log.contains("the issuer refused the order") && log.contains("rejectedIdentifier"))
                .then_some(())
        });
        assert!(presented(&server).is_none());
    }
    let _ = std::fs::remove_dir_all(&dir);
}
