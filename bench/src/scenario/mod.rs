//! The scenarios: what is measured, and under which names.

mod cold;
mod count;
pub mod curves;
mod goodput;
mod growth;
mod handshake;
mod idle;
mod lifecycle;
mod multiplexed;
mod read_cache;
mod slow;
mod tail;
pub mod throughput;

use crate::bench::{Bench, Subject};
use crate::results::ScenarioResult;
use crate::tls::KeyType;

/// One scenario of the list.
pub struct Scenario {
    pub subject: Subject,
    pub what: What,
}

/// What a scenario measures.
pub enum What {
    Throughput(throughput::Throughput),
    /// Encrypted connections, and HTTP/2.
    Multiplexed(multiplexed::Multiplexed),
    Handshakes(handshake::Handshakes),
    /// A large transfer over an emulated path.
    Goodput(goodput::Goodput),
    /// Established connections beside too many new ones.
    Flood,
    /// Memory of so many idle connections.
    Idle(idle::Idle, usize),
    /// Memory of so many clients that send or take little.
    Slow(slow::Slow, usize),
    Start,
    Reload,
    /// A large configuration.
    Growth(growth::Large, growth::Figure),
    /// Hot files while cold ones wait for a slow disk.
    Cold,
    /// Hot files in little memory while far more is read.
    ReadCache,
    /// Hot objects of a cache while cold ones meet the spikes of its disk.
    Tail,
}

const KB: usize = 1024;
const MB: usize = 1024 * KB;

/// All scenarios, in the order of the report.
pub fn all() -> Vec<Scenario> {
    use crate::encrypted::Protocol;
    use growth::{Figure, Large};
    use handshake::Handshakes;
    use multiplexed::{Multiplexed, Transport};
    use slow::SlowWork;
    use throughput::{Coding, Throughput, UploadForm, Uri};
    let tiny = Throughput {
        uri: Uri::Tiny,
        workers: 1,
        reuseport: false,
        connections: 64,
        close: false,
        fields: "",
        log: None,
    };
    let file = |bytes| Throughput { uri: Uri::File(bytes), ..tiny };
    let coded = |coding, level, bytes| Throughput { uri: Uri::Coded(coding, level, bytes), ..tiny };
    let throughput = |name, title, what| Scenario {
        subject: Subject { name, title },
        what: What::Throughput(what),
    };
    let multiplexed = |name, title, what| Scenario {
        subject: Subject { name, title },
        what: What::Multiplexed(what),
    };
    let encrypted =
        |transport, connections, streams| Multiplexed { transport, bytes: 0, connections, streams };
    let https = encrypted(Transport::Tls(Protocol::Https), 64, 1);
    let http2 = encrypted(Transport::Tls(Protocol::Http2), 16, 32);
    let http3 = encrypted(Transport::Quic, 16, 32);
    let handshakes = |name, title, key, resumed| Scenario {
        subject: Subject { name, title },
        what: What::Handshakes(Handshakes { key, resumed, quic: false }),
    };
    let growth = |name, title, large, figure| Scenario {
        subject: Subject { name, title },
        what: What::Growth(large, figure),
    };
    let slow = |name, title, work, tls| Scenario {
        subject: Subject { name, title },
        what: What::Slow(slow::Slow { work, tls }, 1_000),
    };
    let goodput = |name, title, round_trip, mbit, percent, upload| Scenario {
        subject: Subject { name, title },
        what: What::Goodput(goodput::Goodput { round_trip, mbit, percent, upload }),
    };
    let (servers, entries) = (Large::Servers(10_000), Large::Entries(50_000));
    let networks = Large::Networks(1_000_000);
    vec![
        throughput("tiny", "return 200, keep-alive", tiny),
        throughput("file-1k", "1 KB file, keep-alive", file(KB)),
        throughput(
            "file-1k-10000",
            "10,000 files of 1 KB, keep-alive",
            Throughput { uri: Uri::Files(10_000, KB), ..tiny },
        ),
        throughput(
            "file-1k-100000",
            "100,000 files of 1 KB, keep-alive",
            Throughput { uri: Uri::Files(100_000, KB), ..tiny },
        ),
        throughput(
            "file-1k-browser",
            "100 files of 1 KB, with the fields of a browser, keep-alive",
            Throughput { uri: Uri::Files(100, KB), fields: throughput::BROWSER, ..tiny },
        ),
        throughput(
            "file-1k-log",
            "1 KB file, buffered access log, keep-alive",
            Throughput { log: Some("buffer=64k flush=1s"), ..file(KB) },
        ),
        throughput(
            "file-1k-log-each",
            "1 KB file, access log without a buffer, keep-alive",
            Throughput { log: Some(""), ..file(KB) },
        ),
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
            "fastcgi-tiny",
            "tiny response by FastCGI",
            Throughput { uri: Uri::FastcgiTiny, ..tiny },
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
            "upload-16k",
            "Upload of 16 KB to an origin",
            Throughput { uri: Uri::Upload(UploadForm::Buffered, 16 * KB), ..tiny },
        ),
        throughput(
            "upload-100m",
            "Upload of 100 MB to an origin, buffered",
            Throughput { uri: Uri::Upload(UploadForm::Buffered, 100 * MB), connections: 4, ..tiny },
        ),
        throughput(
            "upload-100m-passed",
            "Upload of 100 MB to an origin, passed on as it arrives",
            Throughput { uri: Uri::Upload(UploadForm::Passed, 100 * MB), connections: 4, ..tiny },
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
            "cache-100b-10000",
            "10,000 objects of 100 bytes from the disk cache",
            Throughput { uri: Uri::CachedMany(10_000, 100), ..tiny },
        ),
        throughput(
            "cache-16k-10000",
            "10,000 objects of 16 KB from the disk cache",
            Throughput { uri: Uri::CachedMany(10_000, 16 * KB), ..tiny },
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
        multiplexed("h3-tiny", "return 200, HTTP/3, 16 connections of 32 streams", http3),
        multiplexed(
            "h3-1k",
            "1 KB file, HTTP/3, 16 connections of 32 streams",
            Multiplexed { bytes: KB, ..http3 },
        ),
        multiplexed(
            "h3-1m",
            "1 MB file, HTTP/3, 16 connections of 4 streams",
            Multiplexed { bytes: MB, streams: 4, ..http3 },
        ),
        Scenario {
            subject: Subject { name: "h3-handshake", title: "A connection over QUIC, ECDSA P-256" },
            what: What::Handshakes(Handshakes { key: KeyType::Ecdsa, resumed: false, quic: true }),
        },
        handshakes("handshake-ecdsa", "A connection over TLS, ECDSA P-256", KeyType::Ecdsa, false),
        handshakes(
            "handshake-rsa",
            "A connection over TLS, RSA of 2,048 bits",
            KeyType::Rsa,
            false,
        ),
        handshakes("handshake-resumed", "A connection over TLS, resumed", KeyType::Ecdsa, true),
        goodput(
            "path-16ms-1",
            "20 MB from the server, 16 ms, 100 Mbit/s, 1 % loss",
            16,
            100,
            1.0,
            false,
        ),
        goodput(
            "path-16ms-3",
            "20 MB from the server, 16 ms, 100 Mbit/s, 3 % loss",
            16,
            100,
            3.0,
            false,
        ),
        goodput("path-50ms", "20 MB from the server, 50 ms, 100 Mbit/s", 50, 100, 0.0, false),
        goodput("path-100ms", "20 MB from the server, 100 ms, 100 Mbit/s", 100, 100, 0.0, false),
        goodput("path-200ms", "20 MB from the server, 200 ms, 100 Mbit/s", 200, 100, 0.0, false),
        goodput("path-50ms-1g", "20 MB from the server, 50 ms, 1 Gbit/s", 50, 1000, 0.0, false),
        goodput("path-100ms-1g", "20 MB from the server, 100 ms, 1 Gbit/s", 100, 1000, 0.0, false),
        goodput("path-200ms-1g", "20 MB from the server, 200 ms, 1 Gbit/s", 200, 1000, 0.0, false),
        goodput(
            "path-up-16ms-1",
            "20 MB to the server, 16 ms, 100 Mbit/s, 1 % loss",
            16,
            100,
            1.0,
            true,
        ),
        goodput(
            "path-up-16ms-3",
            "20 MB to the server, 16 ms, 100 Mbit/s, 3 % loss",
            16,
            100,
            3.0,
            true,
        ),
        goodput("path-up-50ms", "20 MB to the server, 50 ms, 100 Mbit/s", 50, 100, 0.0, true),
        goodput("path-up-100ms", "20 MB to the server, 100 ms, 100 Mbit/s", 100, 100, 0.0, true),
        goodput("path-up-200ms", "20 MB to the server, 200 ms, 100 Mbit/s", 200, 100, 0.0, true),
        goodput("path-up-50ms-1g", "20 MB to the server, 50 ms, 1 Gbit/s", 50, 1000, 0.0, true),
        goodput("path-up-100ms-1g", "20 MB to the server, 100 ms, 1 Gbit/s", 100, 1000, 0.0, true),
        goodput("path-up-200ms-1g", "20 MB to the server, 200 ms, 1 Gbit/s", 200, 1000, 0.0, true),
        Scenario {
            subject: Subject {
                name: "tls-flood",
                title: "500 requests/s over TLS beside more new RSA handshakes than the server can make",
            },
            what: What::Flood,
        },
        Scenario {
            subject: Subject {
                name: "idle-tls",
                title: "5,000 idle keep-alive connections over TLS",
            },
            what: What::Idle(idle::Idle::Tls, 5_000),
        },
        Scenario {
            subject: Subject { name: "idle-h3", title: "2,000 idle connections over QUIC" },
            what: What::Idle(idle::Idle::Quic, 2_000),
        },
        Scenario {
            subject: Subject { name: "idle", title: "10,000 idle keep-alive connections" },
            what: What::Idle(idle::Idle::Plain, 10_000),
        },
        Scenario {
            subject: Subject { name: "stream-idle", title: "5,000 idle sessions of a TCP proxy" },
            what: What::Idle(idle::Idle::Session, 5_000),
        },
        slow(
            "slow-upload",
            "1,000 clients that stop within a request's content",
            SlowWork::Upload,
            false,
        ),
        slow(
            "slow-upload-tls",
            "1,000 clients that stop within a request's content, TLS",
            SlowWork::Upload,
            true,
        ),
        slow(
            "slow-proxied",
            "1,000 clients that stop within a proxied response of 1 MB",
            SlowWork::Proxied,
            false,
        ),
        slow(
            "slow-proxied-tls",
            "1,000 clients that stop within a proxied response of 1 MB, TLS",
            SlowWork::Proxied,
            true,
        ),
        slow(
            "slow-unbuffered",
            "1,000 clients that stop within a proxied response of 1 MB, not buffered",
            SlowWork::Unbuffered,
            false,
        ),
        slow(
            "slow-cached",
            "1,000 clients that stop within a cached object of 1 MB",
            SlowWork::Cached,
            false,
        ),
        slow(
            "slow-file",
            "1,000 clients that stop within a file of 1 MB, sendfile off",
            SlowWork::File,
            false,
        ),
        slow(
            "slow-file-tls",
            "1,000 clients that stop within a file of 1 MB, sendfile off, TLS",
            SlowWork::File,
            true,
        ),
        Scenario {
            subject: Subject { name: "start", title: "Start to first accept" },
            what: What::Start,
        },
        Scenario {
            subject: Subject { name: "reload", title: "Reload to first new answer" },
            what: What::Reload,
        },
        growth("servers-start", "Start with 10,000 servers", servers, Figure::Start),
        growth("servers-reload", "Reload of 10,000 servers", servers, Figure::Reload),
        growth("servers-memory", "Memory with 10,000 servers", servers, Figure::Memory),
        growth("map-start", "Start with 50,000 entries of map", entries, Figure::Start),
        growth("map-reload", "Reload of 50,000 entries of map", entries, Figure::Reload),
        growth("map-memory", "Memory with 50,000 entries of map", entries, Figure::Memory),
        growth("geo-start", "Start with a million networks of geo", networks, Figure::Start),
        growth("geo-reload", "Reload of a million networks of geo", networks, Figure::Reload),
        growth("geo-memory", "Memory with a million networks of geo", networks, Figure::Memory),
        Scenario {
            subject: Subject {
                name: "cold",
                title: "A hot 4 MB file while 200 connections wait for a slow disk",
            },
            what: What::Cold,
        },
        Scenario {
            subject: Subject {
                name: "read-cache",
                title: "Hot files in half of the memory while ten times the memory is read once",
            },
            what: What::ReadCache,
        },
        Scenario {
            subject: Subject {
                name: "cache-tail",
                title: "Hot objects of a cache while cold ones meet the spikes of its disk",
            },
            what: What::Tail,
        },
    ]
}

impl Scenario {
    /// Counts what a request takes; prints a table.
    pub fn count(&self, bench: &Bench) -> Result<(), String> {
        match &self.what {
            What::Throughput(what) => count::run(bench, &self.subject, what),
            What::Multiplexed(what) => count::run_multiplexed(bench, &self.subject, what),
            _ => Err("only throughput scenarios can be counted".to_owned()),
        }
    }

    /// User instructions per request of the variant with this label, exact enough to be compared.
    pub fn instructions(&self, bench: &Bench, label: &str) -> Result<f64, String> {
        match &self.what {
            What::Throughput(what) => count::steady_instructions(bench, what, label),
            What::Multiplexed(what) => count::steady_multiplexed(bench, what, label),
            _ => Err("only throughput scenarios can be counted".to_owned()),
        }
    }

    /// Measures it.
    pub fn run(&self, bench: &Bench) -> Result<ScenarioResult, String> {
        match &self.what {
            What::Throughput(what) => throughput::run(bench, &self.subject, what),
            What::Multiplexed(what) => multiplexed::run(bench, &self.subject, what),
            What::Handshakes(what) => handshake::run(bench, &self.subject, what),
            What::Goodput(what) => goodput::run(bench, &self.subject, what),
            What::Flood => handshake::flood(bench, &self.subject),
            What::Idle(who, connections) => idle::run(bench, &self.subject, *connections, *who),
            What::Slow(kind, clients) => slow::run(bench, &self.subject, *kind, *clients),
            What::Start => lifecycle::start(bench, &self.subject),
            What::Reload => lifecycle::reload(bench, &self.subject),
            What::Growth(large, figure) => growth::run(bench, &self.subject, *large, *figure),
            What::Cold => cold::run(bench, &self.subject),
            What::ReadCache => read_cache::run(bench, &self.subject),
            What::Tail => tail::run(bench, &self.subject),
        }
    }
}
