//! HAProxy, H2O and Varnish, beside which some scenarios are measured: what each can do, and its configuration.
//!
//! Each one gets the settings that its documentation recommends for the task, without a log. What they have
//! in common with nginx and Nowait: one process or thread per worker, keep-alive without a limit, the same
//! certificate, the same origin.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{ADDRESS, ORIGIN, Setup};

/// Another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    Haproxy,
    H2o,
    Varnish,
}

/// What a server does in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// `return 200`.
    Respond,
    /// Files below the root.
    Files,
    /// The origin's responses, below `/proxied/`.
    Proxy,
    /// The origin's responses from a cache, below `/cached/`.
    Cache,
    /// TCP to the origin.
    Relay,
}

/// How a peer is started.
pub struct PeerStart {
    /// Name and text of its configuration.
    pub file: (&'static str, String),
    pub arguments: Vec<String>,
}

impl Peer {
    pub const ALL: [Peer; 3] = [Peer::Haproxy, Peer::H2o, Peer::Varnish];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Haproxy => "HAProxy",
            Peer::H2o => "H2O",
            Peer::Varnish => "Varnish",
        }
    }

    /// The program, where it is in `PATH`.
    pub fn program(self) -> &'static str {
        match self {
            Peer::Haproxy => "haproxy",
            Peer::H2o => "h2o",
            Peer::Varnish => "varnishd",
        }
    }

    /// Whether it has what a scenario asks for.
    pub fn can(self, duty: Duty, tls: bool) -> bool {
        match self {
            Peer::Haproxy => duty != Duty::Files,
            Peer::H2o => matches!(duty, Duty::Respond | Duty::Files | Duty::Proxy),
            Peer::Varnish => duty == Duty::Cache && !tls,
        }
    }

    /// The version, as the program states it.
    pub fn version(self, binary: &Path) -> Result<String, String> {
        let argument = if self == Peer::Varnish { "-V" } else { "-v" };
        let output = Command::new(binary)
            .arg(argument)
            .output()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let words = text.lines().next().unwrap_or_default().split_whitespace();
        let word = words.map(|word| word.trim_matches(['(', ')'])).find(|word| is_version(word));
        let version = word.ok_or_else(|| format!("{}: no version", binary.display()))?;
        Ok(format!("{} {}", self.name(), version.trim_start_matches("varnish-")))
    }

    /// The configuration for a scenario, with files in `directory`.
    pub fn start(self, directory: &Path, duty: Duty, setup: &Setup) -> PeerStart {
        let path = |name: &str| directory.join(name).display().to_string();
        match self {
            Peer::Haproxy => PeerStart {
                file: ("haproxy.cfg", haproxy(duty, setup)),
                arguments: vec!["-db".to_owned(), "-f".to_owned(), path("haproxy.cfg")],
            },
            Peer::H2o => PeerStart {
                file: ("h2o.conf", h2o(setup)),
                arguments: vec!["-c".to_owned(), path("h2o.conf")],
            },
            Peer::Varnish => PeerStart {
                file: ("default.vcl", VCL.replace("%%PORT%%", &ORIGIN.port().to_string())),
                arguments: [
                    "-F",
                    "-j",
                    "none",
                    "-f",
                    &path("default.vcl"),
                    "-n",
                    &path("varnish"),
                    "-a",
                    &ADDRESS.to_string(),
                    "-s",
                    "malloc,512m",
                    "-p",
                    "thread_pools=1",
                    "-p",
                    "listen_depth=8192",
                    "-p",
                    "timeout_idle=600",
                ]
                .map(str::to_owned)
                .to_vec(),
            },
        }
    }
}

/// `3.4.1-0a1b2c`, `2.2.5`, `varnish-7.1.1`.
fn is_version(word: &str) -> bool {
    let word = word.trim_start_matches("varnish-");
    word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.')
}

fn haproxy(duty: Duty, setup: &Setup) -> String {
    let workers = setup.workers;
    let mode = if duty == Duty::Relay { "tcp" } else { "http" };
    let tls = match &setup.certificate {
        Some(certificate) => {
            format!(" ssl crt {} alpn h2,http/1.1", certificate.both.display())
        }
        None => String::new(),
    };
    let drop_root = match setup.main.is_empty() {
        true => "",
        false => "user nobody\n    group nogroup",
    };
    let (front, rest) = match duty {
        Duty::Respond | Duty::Files => {
            let answer = "return status 200 content-type text/plain string \"OK\"";
            (format!("http-request {answer} if {{ path /tiny }}"), String::new())
        }
        Duty::Relay => (String::new(), String::new()),
        Duty::Proxy => {
            ("http-request set-path %[path,regsub(^/[a-z]*,)]".to_owned(), String::new())
        }
        Duty::Cache => (
            "http-request set-path %[path,regsub(^/cached,)]
    http-request cache-use objects
    http-response cache-store objects
    http-after-response set-header X-Cache HIT if { res.cache_hit }
    http-after-response del-header Age"
                .to_owned(),
            "cache objects
    total-max-size 64
    max-object-size 4000000
    max-age 3600
"
            .to_owned(),
        ),
    };
    let reuse = if mode == "http" { "http-reuse always" } else { "" };
    format!(
        "global
    nbthread {workers}
    maxconn 4096
    {drop_root}
    ssl-default-bind-options ssl-min-ver TLSv1.2
    tune.ssl.cachesize 100000
defaults
    mode {mode}
    maxconn 4096
    timeout connect 10s
    timeout client 600s
    timeout server 600s
    option splice-auto
    {reuse}
frontend clients
    bind {ADDRESS} backlog 8192{tls}
    {front}
    default_backend origin
backend origin
    server origin {ORIGIN}
{rest}"
    )
}

fn h2o(setup: &Setup) -> String {
    let (host, port, workers) = (ADDRESS.ip(), ADDRESS.port(), setup.workers);
    let root = setup.root.display();
    let user = if setup.main.is_empty() { "" } else { "user: nobody" };
    let tls = match &setup.certificate {
        Some(certificate) => format!(
            "
  ssl:
    certificate-file: {}
    key-file: {}
    minimum-version: TLSv1.2",
            certificate.chain.display(),
            certificate.key.display()
        ),
        None => String::new(),
    };
    format!(
        "{user}
num-threads: {workers}
max-connections: 16384
http1-request-timeout: 600
http2-idle-timeout: 600
http2-max-concurrent-requests-per-connection: 128
file.mime.setdefaulttype: application/octet-stream
listen:
  host: {host}
  port: {port}{tls}
hosts:
  default:
    paths:
      \"/tiny\":
        file.file: {root}/tiny
      \"/proxied/\":
        proxy.reverse.url: http://{ORIGIN}/
      \"/passed/\":
        proxy.reverse.url: http://{ORIGIN}/
      \"/\":
        file.dir: {root}
"
    )
}

/// Fields whose length changes with time and use are removed: the load generator expects heads of one length.
const VCL: &str = "vcl 4.1;
backend origin { .host = \"127.0.0.1\"; .port = \"%%PORT%%\"; }
sub vcl_recv {
    set req.url = regsub(req.url, \"^/cached/\", \"/\");
}
sub vcl_backend_response {
    set beresp.ttl = 1h;
}
sub vcl_deliver {
    if (obj.hits > 0) { set resp.http.X-Cache = \"HIT\"; }
    unset resp.http.Age;
    unset resp.http.X-Varnish;
}
";

/// Programs of peers: as named, or those in `PATH`.
#[derive(Debug, Clone, Default)]
pub struct Programs(pub Vec<(Peer, PathBuf)>);

impl Programs {
    /// The program of a peer.
    pub fn of(&self, peer: Peer) -> Option<&PathBuf> {
        self.0.iter().find(|(known, _)| *known == peer).map(|(_, path)| path)
    }

    /// Keeps those that run, and returns their versions. A named one has to run.
    pub fn check(&mut self, named: &[Peer]) -> Result<Vec<String>, String> {
        let mut versions = Vec::new();
        let mut kept = Vec::new();
        for (peer, path) in std::mem::take(&mut self.0) {
            match peer.version(&path) {
                Ok(version) => {
                    versions.push(version);
                    kept.push((peer, path));
                }
                Err(why) if named.contains(&peer) => return Err(why),
                Err(why) => println!("{} is not measured: {why}", peer.name()),
            }
        }
        self.0 = kept;
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        for (word, is) in [
            ("3.5-dev3-4a9e2c", true),
            ("2.2.5", true),
            ("varnish-7.1.1", true),
            ("version", false),
            ("h2o", false),
            ("2026/01/01", false),
        ] {
            assert_eq!(is_version(word), is, "{word}");
        }
    }
}
