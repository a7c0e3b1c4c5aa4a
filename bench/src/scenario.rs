//! The scenarios: what is measured, under which names, with which variants of the servers.

mod cold;
mod count;
mod handshake;
mod idle;
mod lifecycle;
mod multiplexed;
mod slow;
mod tail;
mod throughput;

use std::path::PathBuf;

use crate::floor;
use crate::machine;
use crate::options::Options;
use crate::results::{Better, Outcome};
use crate::server::{ORIGIN, Server, Setup, Side, Variant, origin_configuration};
use crate::tls::Key;

/// The label of nginx with the settings that its guides recommend for static files.
pub const USUAL: &str = "nginx sendfile, open_file_cache";

/// The label of nginx with the setting that its guides recommend for a cache.
pub const USUAL_CACHE: &str = "nginx sendfile";

/// What the scenarios share: programs, directories, processors.
pub struct Bench {
    pub options: Options,
    /// This program.
    pub own: PathBuf,
    /// Configurations, logs and served files; removed at the end.
    pub directory: PathBuf,
    /// What `--nowait` names is Nowait, or an nginx that checks the benchmark; `None`: not there.
    pub candidate: Option<Candidate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    Nowait,
    Nginx,
}

/// One scenario of the list.
pub struct Scenario {
    pub name: &'static str,
    pub title: &'static str,
    pub what: What,
}

/// What a scenario measures.
pub enum What {
    Throughput(throughput::Throughput),
    /// Encrypted connections, and HTTP/2.
    Multiplexed(multiplexed::Multiplexed),
    Handshakes(handshake::Handshakes),
    /// Established connections beside too many new ones.
    Flood,
    /// Memory of so many idle connections.
    Idle(idle::Idle, usize),
    /// Memory of so many clients that send or take little.
    Slow(slow::Slow, usize),
    Start,
    Reload,
    /// Hot files while cold ones wait for a slow disk.
    Cold,
    /// Hot objects of a cache while cold ones meet the spikes of its disk.
    Tail,
}

const KB: usize = 1024;
const MB: usize = 1024 * KB;

/// All scenarios, in the order of the report.
pub fn all() -> Vec<Scenario> {
    use handshake::Handshakes;
    use multiplexed::{Multiplexed, Protocol};
    use throughput::{Coding, Throughput, Uri};
    let tiny =
        Throughput { uri: Uri::Tiny, workers: 1, reuseport: false, connections: 64, close: false };
    let file = |bytes| Throughput { uri: Uri::File(bytes), ..tiny };
    let coded = |coding, level, bytes| Throughput { uri: Uri::Coded(coding, level, bytes), ..tiny };
    let throughput = |name, title, what| Scenario { name, title, what: What::Throughput(what) };
    let multiplexed = |name, title, what| Scenario { name, title, what: What::Multiplexed(what) };
    let https = Multiplexed { protocol: Protocol::Https, bytes: 0, connections: 64, streams: 1 };
    let http2 = Multiplexed { protocol: Protocol::Http2, bytes: 0, connections: 16, streams: 32 };
    let handshakes = |name, title, key, resumed| Scenario {
        name,
        title,
        what: What::Handshakes(Handshakes { key, resumed }),
    };
    vec![
        throughput("tiny", "return 200, keep-alive", tiny),
        throughput("file-1k", "1 KB file, keep-alive", file(KB)),
        throughput("file-16k", "16 KB file, keep-alive", file(16 * KB)),
        throughput("file-1m", "1 MB file, keep-alive", file(MB)),
        throughput(
            "file-100m",
            "100 MB file, keep-alive",
            Throughput { connections: 8, ..file(100 * MB) },
        ),
        throughput(
            "tiny-close",
            "return 200, connection per request",
            Throughput { close: true, ..tiny },
        ),
        throughput(
            "file-1k-close",
            "1 KB file, connection per request",
            Throughput { close: true, ..file(KB) },
        ),
        throughput(
            "proxy-tiny",
            "return 200 of an origin, proxied",
            Throughput { uri: Uri::ProxiedTiny, ..tiny },
        ),
        throughput(
            "proxy-16k",
            "16 KB of an origin, proxied",
            Throughput { uri: Uri::ProxiedFile(16 * KB), ..tiny },
        ),
        throughput(
            "proxy-1m",
            "1 MB of an origin, proxied",
            Throughput { uri: Uri::ProxiedFile(MB), ..tiny },
        ),
        throughput(
            "stream-tiny",
            "return 200 of an origin, through a TCP proxy",
            Throughput { uri: Uri::PassedTiny, ..tiny },
        ),
        throughput(
            "stream-1m",
            "1 MB of an origin, through a TCP proxy",
            Throughput { uri: Uri::PassedFile(MB), ..tiny },
        ),
        throughput(
            "stream-session",
            "return 200 of an origin, through a TCP proxy, a session per request",
            Throughput { uri: Uri::PassedTiny, close: true, ..tiny },
        ),
        throughput(
            "cache-100b",
            "100 bytes from the disk cache",
            Throughput { uri: Uri::Cached(100), ..tiny },
        ),
        throughput(
            "cache-16k",
            "16 KB from the disk cache",
            Throughput { uri: Uri::Cached(16 * KB), ..tiny },
        ),
        throughput(
            "cache-1m",
            "1 MB from the disk cache",
            Throughput { uri: Uri::Cached(MB), ..tiny },
        ),
        throughput("gzip-1k", "1 KB of text, gzip level 1", coded(Coding::Gzip, 1, KB)),
        throughput("gzip-16k", "16 KB of text, gzip level 6", coded(Coding::Gzip, 6, 16 * KB)),
        throughput("gzip-100k", "100 KB of text, gzip level 6", coded(Coding::Gzip, 6, 100 * KB)),
        throughput("brotli-1k", "1 KB of text, Brotli level 6", coded(Coding::Brotli, 6, KB)),
        throughput(
            "brotli-16k",
            "16 KB of text, Brotli level 6",
            coded(Coding::Brotli, 6, 16 * KB),
        ),
        throughput(
            "brotli-100k",
            "100 KB of text, Brotli level 6",
            coded(Coding::Brotli, 6, 100 * KB),
        ),
        throughput("tiny-2w", "return 200, 2 workers", Throughput { workers: 2, ..tiny }),
        throughput(
            "tiny-2w-reuseport",
            "return 200, 2 workers with reuseport",
            Throughput { workers: 2, reuseport: true, ..tiny },
        ),
        throughput("file-1k-2w", "1 KB file, 2 workers", Throughput { workers: 2, ..file(KB) }),
        multiplexed("tls-tiny", "return 200 over TLS, keep-alive", https),
        multiplexed("tls-1k", "1 KB file over TLS, keep-alive", Multiplexed { bytes: KB, ..https }),
        multiplexed(
            "tls-1m",
            "1 MB file over TLS, keep-alive",
            Multiplexed { bytes: MB, connections: 16, ..https },
        ),
        multiplexed("h2-tiny", "return 200, HTTP/2, 16 connections of 32 streams", http2),
        multiplexed(
            "h2-1k",
            "1 KB file, HTTP/2, 16 connections of 32 streams",
            Multiplexed { bytes: KB, ..http2 },
        ),
        multiplexed(
            "h2-1m",
            "1 MB file, HTTP/2, 16 connections of 32 streams",
            Multiplexed { bytes: MB, ..http2 },
        ),
        multiplexed(
            "h2-tiny-1",
            "return 200, HTTP/2, 64 connections of one stream",
            Multiplexed { connections: 64, streams: 1, ..http2 },
        ),
        handshakes("handshake-ecdsa", "A connection over TLS, ECDSA P-256", Key::Ecdsa, false),
        handshakes("handshake-rsa", "A connection over TLS, RSA of 2,048 bits", Key::Rsa, false),
        handshakes("handshake-resumed", "A connection over TLS, resumed", Key::Ecdsa, true),
        Scenario {
            name: "tls-flood",
            title: "500 requests/s over TLS beside more new RSA handshakes than the server can make",
            what: What::Flood,
        },
        Scenario {
            name: "idle-tls",
            title: "5,000 idle keep-alive connections over TLS",
            what: What::Idle(idle::Idle::Tls, 5_000),
        },
        Scenario {
            name: "idle",
            title: "10,000 idle keep-alive connections",
            what: What::Idle(idle::Idle::Plain, 10_000),
        },
        Scenario {
            name: "stream-idle",
            title: "5,000 idle sessions of a TCP proxy",
            what: What::Idle(idle::Idle::Session, 5_000),
        },
        Scenario {
            name: "slow-upload",
            title: "1,000 clients that stop within a request's content",
            what: What::Slow(slow::Slow::Upload, 1_000),
        },
        Scenario {
            name: "slow-proxied",
            title: "1,000 clients that stop within a proxied response of 1 MB",
            what: What::Slow(slow::Slow::Proxied, 1_000),
        },
        Scenario {
            name: "slow-file",
            title: "1,000 clients that stop within a file of 1 MB, sendfile off",
            what: What::Slow(slow::Slow::File, 1_000),
        },
        Scenario { name: "start", title: "Start to first accept", what: What::Start },
        Scenario { name: "reload", title: "Reload to first new answer", what: What::Reload },
        Scenario {
            name: "cold",
            title: "A hot 4 MB file while 200 connections wait for a slow disk",
            what: What::Cold,
        },
        Scenario {
            name: "cache-tail",
            title: "Hot objects of a cache while cold ones meet the spikes of its disk",
            what: What::Tail,
        },
    ]
}

impl Bench {
    /// Counts what a request of one scenario takes; prints a table.
    pub fn count(&self, scenario: &Scenario) -> Result<(), String> {
        match &scenario.what {
            What::Throughput(what) => count::run(self, scenario, what),
            _ => Err("only throughput scenarios can be counted".to_owned()),
        }
    }

    /// Measures one scenario.
    pub fn run(&self, scenario: &Scenario) -> Result<Outcome, String> {
        match &scenario.what {
            What::Throughput(what) => throughput::run(self, scenario, what),
            What::Multiplexed(what) => multiplexed::run(self, scenario, what),
            What::Handshakes(what) => handshake::run(self, scenario, what),
            What::Flood => handshake::flood(self, scenario),
            What::Idle(who, connections) => idle::run(self, scenario, *connections, *who),
            What::Slow(kind, clients) => slow::run(self, scenario, *kind, *clients),
            What::Start => lifecycle::start(self, scenario),
            What::Reload => lifecycle::reload(self, scenario),
            What::Cold => cold::run(self, scenario),
            What::Tail => tail::run(self, scenario),
        }
    }

    /// The program of a variant.
    pub fn binary(&self, side: Side) -> &PathBuf {
        match side {
            Side::Nginx => &self.options.nginx,
            Side::Nowait => &self.options.nowait,
            Side::Floor => &self.own,
        }
    }

    /// What runs the program of a variant, with its arguments; empty if it runs by itself.
    pub fn wrapper(&self, side: Side, workers: usize) -> Vec<String> {
        match side {
            Side::Nginx | Side::Nowait => Vec::new(),
            Side::Floor => vec![
                self.own.display().to_string(),
                floor::ARGUMENT.to_owned(),
                workers.to_string(),
            ],
        }
    }

    /// Processors of the server and of the load generator. With one worker each has its own; more
    /// workers share what there is with the generator.
    pub fn processors(&self, workers: usize) -> (Vec<usize>, Vec<usize>) {
        let all = machine::processors_at_start();
        let (first, rest) = all.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        let client = rest.last().copied().unwrap_or(first);
        let server = if workers == 1 { vec![first] } else { all.clone() };
        (server, vec![client])
    }

    pub fn setup(&self, workers: usize) -> Setup {
        let (cpus, client_cpus) = self.processors(workers);
        // Both programs drop root in the same way.
        let root = rustix::process::geteuid().is_root();
        let main = if root { "user nobody nogroup;" } else { "" };
        Setup {
            workers,
            root: self.directory.join("www"),
            main: main.to_owned(),
            http: String::new(),
            server: String::new(),
            listen: String::new(),
            reuseport: false,
            stream: false,
            cpus,
            client_cpus,
        }
    }

    /// An outcome without rows yet.
    pub fn outcome(&self, scenario: &Scenario, unit: &str, better: Better) -> Outcome {
        Outcome {
            title: scenario.title.to_owned(),
            unit: unit.to_owned(),
            processor: String::new(),
            better,
            rounds: self.options.rounds,
            seconds: self.options.seconds,
            reference: None,
            usual: None,
            rows: Vec::new(),
        }
    }

    /// nginx as it is and Nowait with each driver.
    pub fn plain_variants(&self) -> Vec<Variant> {
        let mut variants = vec![variant("nginx", Side::Nginx, "", "")];
        for (name, events) in self.drivers() {
            variants.push(variant(&name, Side::Nowait, events, ""));
        }
        variants
    }

    /// [`Bench::plain_variants`], and the floor: for responses that need neither file nor origin.
    ///
    /// Workers that share a listening socket have none: the floor's threads share nothing.
    pub fn tiny_variants(&self, shares_socket: bool) -> Vec<Variant> {
        let mut variants = self.plain_variants();
        if !shares_socket {
            variants.push(variant("floor", Side::Floor, "", ""));
        }
        variants
    }

    /// nginx with sendfile off and on, each without and with open_file_cache; Nowait with the
    /// usual setting, without and with open_file_cache, with each driver.
    pub fn file_variants(&self) -> Vec<Variant> {
        const CACHE: &str = "open_file_cache max=10000 inactive=60s; open_file_cache_valid 60s;";
        let sendfile = format!("sendfile on; {CACHE}");
        let read = format!("sendfile off; {CACHE}");
        let mut variants = vec![
            variant("nginx read", Side::Nginx, "", "sendfile off;"),
            variant("nginx sendfile", Side::Nginx, "", "sendfile on;"),
            variant("nginx read, open_file_cache", Side::Nginx, "", &read),
            variant(USUAL, Side::Nginx, "", &sendfile),
        ];
        for (name, events) in self.drivers() {
            variants.push(variant(&name, Side::Nowait, events, "sendfile on;"));
            let label = format!("{name}, open_file_cache");
            variants.push(variant(&label, Side::Nowait, events, &sendfile));
        }
        variants
    }

    /// nginx with the buffers that it has without being asked, and with large ones; Nowait as it
    /// is, with each driver.
    pub fn proxy_variants(&self) -> Vec<Variant> {
        const LARGE: &str = "proxy_buffer_size 64k; proxy_buffers 16 64k; \
                             proxy_busy_buffers_size 128k;";
        let mut variants = self.plain_variants();
        variants.insert(1, variant("nginx large buffers", Side::Nginx, "", LARGE));
        variants
    }

    /// nginx with the buffers that it has without being asked, and with large ones; Nowait as it
    /// is, with each driver.
    pub fn stream_variants(&self) -> Vec<Variant> {
        let mut variants = self.plain_variants();
        let large = variant("nginx large buffers", Side::Nginx, "", "proxy_buffer_size 64k;");
        variants.insert(1, large);
        for variant in variants.iter_mut().filter(|variant| variant.side == Side::Nginx) {
            // Distributions build it as a module.
            if let Some(module) = self.options.nginx_stream_module() {
                variant.main = format!("load_module {};", module.display());
            }
        }
        variants
    }

    /// nginx without and with sendfile and open_file_cache; Nowait with the usual setting on each
    /// driver, without and with a memory tier.
    pub fn cache_variants(&self) -> Vec<Variant> {
        const FILES: &str = "open_file_cache max=10000 inactive=60s; open_file_cache_valid 60s;";
        let directory = self.cache();
        let cache = |parameters: &str| {
            let directory = directory.display();
            format!(
                "proxy_cache_path {directory} levels=1:2 keys_zone=objects:10m \
                 use_temp_path=off{parameters};"
            )
        };
        let disk = cache("");
        let mut variants = vec![
            variant("nginx read", Side::Nginx, "", &format!("{disk} sendfile off;")),
            variant(USUAL_CACHE, Side::Nginx, "", &format!("{disk} sendfile on;")),
            variant("nginx read, open_file_cache", Side::Nginx, "", &format!("{disk} {FILES}")),
            variant(
                "nginx sendfile, open_file_cache",
                Side::Nginx,
                "",
                &format!("{disk} sendfile on; {FILES}"),
            ),
        ];
        for (name, events) in self.drivers() {
            let disk = format!("{disk} sendfile on;");
            variants.push(variant(&name, Side::Nowait, events, &disk));
            if self.candidate == Some(Candidate::Nowait) {
                let label = format!("{name}, memory tier");
                let memory = format!("{} sendfile on;", cache(" memory=64m"));
                variants.push(variant(&label, Side::Nowait, events, &memory));
            }
        }
        variants
    }

    /// Both servers with the same compression and open_file_cache.
    fn coding_variants(&self, coding: throughput::Coding, level: u8) -> Vec<Variant> {
        const MODULE: &str = "load_module /usr/lib/nginx/modules/ngx_http_brotli_filter_module.so;";
        let mut variants = self.plain_variants();
        for variant in &mut variants {
            let lines = coding.lines(level);
            variant.http = format!("sendfile on; open_file_cache max=1000; {lines}");
            if variant.side == Side::Nginx && coding == throughput::Coding::Brotli {
                variant.main = MODULE.to_owned();
            }
        }
        variants
    }

    /// Where the caches of proxies stand.
    pub fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    /// The block that names the origin.
    pub fn upstream(&self) -> String {
        format!("upstream origin {{ server {ORIGIN}; keepalive 128; }}")
    }

    /// Starts an origin, on the load generator's processor.
    pub fn origin(&self) -> Result<Server, String> {
        let setup = self.setup(1);
        let directory = self.directory.join("origin");
        let text = origin_configuration(&directory, &setup.root, &setup.main);
        let (binary, cpus) = (&self.options.nginx, &setup.client_cpus);
        Server::launch(binary, &directory, ORIGIN, &text, cpus, cpus)
            .map_err(|error| format!("origin: {error}"))
    }

    /// The names and `use` lines of what is compared with nginx.
    fn drivers(&self) -> Vec<(String, &'static str)> {
        match self.candidate {
            Some(Candidate::Nowait) => vec![
                ("nowait epoll".to_owned(), "use epoll;"),
                ("nowait io_uring".to_owned(), "use io_uring;"),
            ],
            Some(Candidate::Nginx) => vec![("nginx again".to_owned(), "use epoll;")],
            None => Vec::new(),
        }
    }

    /// A line of progress.
    pub fn progress(&self, scenario: &Scenario, round: usize, label: &str, text: &str) {
        let (name, rounds) = (scenario.name, self.options.rounds);
        println!("{name:18} {:2}/{rounds}  {label:34} {text}", round + 1);
    }
}

fn variant(label: &str, side: Side, events: &str, http: &str) -> Variant {
    Variant {
        label: label.to_owned(),
        side,
        main: String::new(),
        events: events.to_owned(),
        http: http.to_owned(),
    }
}
