//! An issuer of our own, which is honest or lies (`programs/issuer.py`), and sites that it certifies.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nowait_testkit::{Binary, Server, ServerBuilder, TempDir};

use crate::stage::{Authority, Background, program, source};

/// An issuer that runs until it is dropped.
pub struct Issuer {
    _running: Background,
    dir: TempDir,
    authority: Authority,
    port: u16,
}

impl Issuer {
    /// Starts it; the arguments are described in the program. `None`, with a message, without the programs.
    pub fn start(arguments: &[&str]) -> Option<Issuer> {
        for name in ["openssl", "python3"] {
            program(name)?;
        }
        let (dir, authority) = (TempDir::new("issuer"), Authority::new("issuers"));
        let own = authority.issue("localhost");
        for (name, text) in [
            ("ca.pem", &authority.pem),
            ("ca.key", &authority.key().serialize_pem()),
            ("own.pem", &own.chain),
            ("own.key", &own.key),
        ] {
            dir.write(name, text);
        }
        let mut command = program("python3")?;
        command.arg(source("issuer.py")).args(arguments);
        let mut running = Background::start(command.current_dir(dir.path()).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(running.output()).read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("the issuer says its port");
        Some(Issuer { _running: running, dir, authority, port })
    }

    /// `nowait serve` with a certificate of this issuer.
    pub fn serve(&self, state: &str, port: u16, http_port: u16) -> Command {
        self.dir.write("site/index.html", "hello");
        let mut command = Binary::nowait(env!("CARGO_BIN_EXE_nowait")).command();
        command.current_dir(self.dir.path());
        command.args(["serve", "--domain", "localhost", "--issuer-ca", "ca.pem", "--issuer"]);
        command.arg(format!("https://localhost:{}/dir", self.port));
        command.args(["--accept-terms", "--state", state, "--listen", "localhost"]);
        command.args(["--port", &port.to_string(), "--http-port", &http_port.to_string(), "site"]);
        command
    }

    /// Whether a site of [`serve`](Self::serve) has stored a certificate.
    pub fn has_stored(&self, state: &str) -> Option<()> {
        let mut files = std::fs::read_dir(self.dir.path().join(state)).ok()?.flatten();
        files
            .any(|file| {
                let text = std::fs::read_to_string(file.path()).unwrap_or_default();
                file.path().extension().is_some_and(|end| end == "pem")
                    && text.contains("BEGIN CERTIFICATE")
            })
            .then_some(())
    }

    /// The directory of the sites' common state.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// A site for `localhost` with a certificate of this issuer, with further directives for the issuer and
    /// other servers.
    pub fn site(&self, issuer: &str, servers: &str) -> ServerBuilder {
        let own =
            "server { listen 127.0.0.1:%%PORT%% ssl; server_name localhost; acme_certificate own;
                 ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }";
        self.servers(issuer, &format!("{own} {servers}"))
    }

    /// Servers, beside the issuer's block.
    pub fn servers(&self, issuer: &str, servers: &str) -> ServerBuilder {
        let (port, state) = (self.port, self.state());
        let state = state.display();
        let http = format!(
            "acme_issuer own {{ uri https://localhost:{port}/dir; state_path {state};
                 ssl_trusted_certificate ca.pem; {issuer} }}
             {servers}"
        );
        let builder = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")));
        builder.http(&http).file("ca.pem", &self.authority.pem)
    }
}
