//! pebble, a site that gets its certificate there, and what that presents.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use nowait_testkit::ports::free_port;
use nowait_testkit::{Binary, Driver, Server, ServerBuilder, TempDir, wait};

use crate::stage::{Authority, Background, program, said, succeed};

/// An issuer and its clients' state.
pub struct AcmeStage {
    pub dir: TempDir,
    pub authority: Authority,
    pub port: u16,
    /// Where it asks for challenges.
    pub http_port: u16,
    pub tls_port: u16,
    management: u16,
    /// Of its environment.
    pub variables: Vec<(&'static str, &'static str)>,
    /// Further settings of it.
    pub settings: String,
    /// Seconds for which certificates are valid.
    pub validity_s: u32,
}

impl AcmeStage {
    /// `None`, with a message, without the programs.
    pub fn new() -> Option<AcmeStage> {
        for name in ["pebble", "openssl", "curl"] {
            program(name)?;
        }
        Some(AcmeStage {
            dir: TempDir::new("pebble"),
            authority: Authority::new("issuers"),
            port: free_port(),
            http_port: free_port(),
            tls_port: free_port(),
            management: free_port(),
            variables: vec![("PEBBLE_VA_NOSLEEP", "1")],
            settings: String::new(),
            validity_s: 90 * 24 * 3600,
        })
    }

    /// Starts the issuer; each time, it has forgotten everything.
    pub fn start(&self) -> Background {
        let own = self.authority.issue("localhost");
        let AcmeStage { port, http_port, tls_port, management, settings, validity_s, .. } = self;
        self.dir.write("pebble.pem", &own.chain);
        self.dir.write("pebble.key", &own.key);
        let text = format!(
            r#"{{ "pebble": {{ "listenAddress": "127.0.0.1:{port}",
                "managementListenAddress": "127.0.0.1:{management}",
                "certificate": "pebble.pem", "privateKey": "pebble.key",
                "httpPort": {http_port}, "tlsPort": {tls_port},
                "domainBlocklist": ["blocked.example"], {settings}
                "retryAfter": {{ "authz": 1, "order": 1 }},
                "profiles": {{ "short": {{ "description": "", "validityPeriod": {validity_s} }} }} }} }}"#
        );
        self.dir.write("pebble.json", text);
        let mut command = program("pebble").expect("it was found");
        command.args(["-config", "pebble.json"]).current_dir(self.dir.path());
        // By default, it refuses nonces at random.
        command.env("PEBBLE_WFE_NONCEREJECT", "0").envs(self.variables.iter().copied());
        let issuer = Background::serve(&mut command, *port);
        wait::until("the management to listen", wait::PATIENCE, || {
            std::net::TcpStream::connect(("127.0.0.1", *management)).ok()
        });
        issuer
    }

    /// A site for `names`, with further directives of the issuer and other servers. It listens at
    /// `%%PORT%%`.
    pub fn site(&self, names: &str, issuer: &str, servers: &str) -> ServerBuilder {
        let AcmeStage { port, .. } = self;
        let state = self.state();
        let state = state.display();
        let http = format!(
            "acme_issuer local {{
                 uri https://localhost:{port}/dir;
                 contact admin@example.test;
                 accept_terms_of_service;
                 ssl_trusted_certificate ca.pem;
                 state_path {state};
                 {issuer}
             }}
             server {{
                 listen 127.0.0.1:%%PORT%% ssl;
                 server_name localhost;
                 acme_certificate local {names};
                 ssl_certificate $acme_certificate;
                 ssl_certificate_key $acme_certificate_key;
                 return 200 secure;
             }}
             {servers}"
        );
        let builder = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")));
        builder.driver(Driver::Epoll).http(&http).file("ca.pem", &self.authority.pem)
    }

    /// The server that answers challenges, and nothing else.
    pub fn challenges(&self) -> String {
        format!("server {{ listen 127.0.0.1:{}; deny all; }}", self.http_port)
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The file of the only certificate.
    pub fn file(&self) -> PathBuf {
        let files = std::fs::read_dir(self.state()).unwrap().map(|file| file.unwrap().path());
        let mut files = files.filter(|file| file.extension().is_some_and(|ext| ext == "pem"));
        let file = files.next().expect("a certificate");
        assert!(files.next().is_none());
        file
    }

    /// The name of the topmost authority of the issuer's chain of this number.
    pub fn root(&self, number: usize) -> String {
        let mut curl = program("curl").expect("it was found");
        let pem = succeed(curl.args(["-skf"]).arg(self.manage(&format!("roots/{number}"))));
        self.dir.write("root.pem", pem);
        let mut openssl = program("openssl").expect("it was found");
        openssl.args(["x509", "-noout", "-subject", "-nameopt", "multiline", "-in", "root.pem"]);
        let text = succeed(openssl.current_dir(self.dir.path()));
        text.trim().rsplit('=').next().unwrap().trim().to_owned()
    }

    /// Lets the issuer answer this to questions about the renewal of a certificate.
    pub fn set_renewal(&self, pem: &str, answer: &str) {
        let escaped = |text: &str| text.replace('"', "\\\"").replace('\n', "\\n");
        let (pem, answer) = (escaped(pem), escaped(answer));
        let body = format!("{{\"certificate\": \"{pem}\", \"ariResponse\": \"{answer}\"}}");
        let mut curl = program("curl").expect("it was found");
        curl.args(["-skf", "--data-binary", "@-"]).arg(self.manage("set-renewal-info/"));
        let mut curl = curl.stdin(Stdio::piped()).spawn().unwrap();
        curl.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        assert!(curl.wait().unwrap().success());
    }

    fn manage(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}/{path}", self.management)
    }
}

/// What a client sees of the certificates at a port. `None`: no handshake.
pub fn presented_at(port: u16) -> Option<String> {
    let mut openssl = program("openssl").expect("it was found");
    openssl.args(["s_client", "-servername", "localhost", "-showcerts", "-connect"]);
    openssl.arg(format!("127.0.0.1:{port}"));
    let said = said(&openssl.output().unwrap());
    said.contains("-----BEGIN CERTIFICATE-----").then_some(said)
}

/// The certificate that a server presents.
pub fn presented(server: &Server) -> Option<String> {
    presented_at(server.port()).map(|said| first(&said).to_owned())
}

/// The first certificate.
pub fn first(said: &str) -> &str {
    let begin = said.find("-----BEGIN CERTIFICATE-----").unwrap();
    let end = said.find("-----END CERTIFICATE-----").unwrap();
    &said[begin..end + "-----END CERTIFICATE-----\n".len()]
}

/// Waits for a certificate other than this one.
#[track_caller]
pub fn wait_for_other(server: &Server, than: Option<&str>) -> String {
    let other =
        wait::try_until(wait::PATIENCE, || presented(server).filter(|now| Some(&now[..]) != than));
    other.unwrap_or_else(|| panic!("no new certificate:\n{}", server.log()))
}
