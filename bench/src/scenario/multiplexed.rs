//! Server CPU per request of encrypted connections, of HTTP/2, and of HTTP/3.

use std::time::{Duration, Instant};

use super::throughput::{self, random_bytes, write_file};
use crate::bench::{Bench, Measured, Subject, variant};
use crate::encrypted::{self, EncryptedLoad, Protocol};
use crate::peer::Duty;
use crate::process;
use crate::quic::{self, QuicLoad};
use crate::results::{Better, ScenarioResult};
use crate::server::{ADDRESS, ServerProcess, Setup, Side, Variant};
use crate::tls::{self, KeyType};

/// Part of a measurement's length that is spent before it, at most `WARM_UP_MAX`.
const WARM_UP: f64 = 0.3;
const WARM_UP_MAX: f64 = 1.0;

/// What carries requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tls(Protocol),
    /// HTTP/3.
    Quic,
}

/// The label of nginx with the setting that makes HTTP/3 fast.
const NGINX_GSO: &str = "nginx quic_gso";

/// What a server needs to serve HTTP/3 as well.
pub(super) fn quic_lines() -> String {
    format!("listen {ADDRESS} quic;")
}

/// nginx without and with `quic_gso`, which Nowait has on by default.
pub(super) fn quic_variants(bench: &Bench) -> Vec<Variant> {
    let mut variants = bench.plain_variants();
    variants.insert(1, variant(NGINX_GSO, Side::Nginx, "", "quic_gso on;"));
    variants
}

/// One kind of load.
#[derive(Clone, Copy)]
pub struct Multiplexed {
    pub transport: Transport,
    /// A file of so many bytes; 0: what `return 200` answers.
    pub bytes: usize,
    pub connections: usize,
    /// Requests at a time on each connection.
    pub streams: usize,
}

struct MultiplexedSample {
    cpu_us: f64,
    requests_per_second: f64,
    used_percent: f64,
    client_percent: f64,
}

impl Multiplexed {
    /// Writes the file and the certificate; returns what the configuration says.
    pub(super) fn prepare(&self, bench: &Bench) -> Result<Setup, String> {
        bench.write_tiny()?;
        if self.bytes > 0 {
            let path = bench.directory.join("www").join(format!("{}.bin", self.bytes));
            write_file(&path, random_bytes(self.bytes))?;
        }
        let certificate = tls::certificate(&bench.directory, KeyType::Ecdsa)?;
        let (listen, server) = match self.transport {
            Transport::Tls(Protocol::Https) => ("ssl", String::new()),
            Transport::Tls(Protocol::Http2) => ("ssl http2", String::new()),
            Transport::Quic => ("ssl", quic_lines()),
        };
        let files = "sendfile on; open_file_cache max=1000; http2_max_concurrent_streams 128;";
        Ok(Setup {
            listen: listen.to_owned(),
            server,
            http: format!("{} {files}", certificate.lines()),
            duty: self.duty(),
            certificate: Some(certificate),
            ..bench.setup(1)
        })
    }

    fn duty(&self) -> Duty {
        if self.bytes == 0 { Duty::Respond } else { Duty::Files }
    }

    fn path(&self) -> String {
        match self.bytes {
            0 => "/tiny".to_owned(),
            bytes => format!("/{bytes}.bin"),
        }
    }

    fn body_bytes(&self) -> u64 {
        self.bytes.max("OK".len()) as u64
    }

    fn load<'a>(&self, path: &'a str, protocol: Protocol) -> EncryptedLoad<'a> {
        EncryptedLoad {
            target: ADDRESS,
            protocol,
            path,
            body_bytes: self.body_bytes(),
            connections: self.connections,
            streams: self.streams,
        }
    }

    fn quic_load<'a>(&self, path: &'a str) -> QuicLoad<'a> {
        QuicLoad {
            target: ADDRESS,
            path,
            body_bytes: self.body_bytes(),
            upload_bytes: None,
            connections: self.connections,
            streams: self.streams,
        }
    }

    /// Sends so many requests.
    pub(super) fn requests(&self, count: usize) -> Result<(), String> {
        let (path, count) = (self.path(), count as u64);
        match self.transport {
            Transport::Tls(protocol) => encrypted::requests(&self.load(&path, protocol), count),
            Transport::Quic => quic::requests(&self.quic_load(&path), count),
        }
    }

    /// Sends requests for some time; `edge` is called when it begins and when it ends. Returns the number of responses.
    fn run(&self, warm_up: Duration, length: Duration, edge: impl FnMut()) -> Result<u64, String> {
        let path = self.path();
        match self.transport {
            Transport::Tls(protocol) => {
                encrypted::run(&self.load(&path, protocol), warm_up, length, edge)
            }
            Transport::Quic => quic::run(&self.quic_load(&path), warm_up, length, edge),
        }
    }

    /// What is compared.
    pub(super) fn variants(&self, bench: &Bench) -> Vec<Variant> {
        let variants = match self.transport {
            Transport::Tls(_) => bench.with_peers(bench.plain_variants(), self.duty(), true),
            Transport::Quic => quic_variants(bench),
        };
        bench.with_other_build(variants)
    }
}

/// Measures all variants, one after the other, in every round.
pub fn run(
    bench: &Bench,
    scenario: &Subject,
    what: &Multiplexed,
) -> Result<ScenarioResult, String> {
    let setup = what.prepare(bench)?;
    let variants = what.variants(bench);
    let samples = bench.alternate(scenario, &variants, |variant| {
        let sample = measure(bench, &setup, what, variant)?;
        let (value, also, text) = (sample.cpu_us, sample.also().to_vec(), sample.to_string());
        Ok(Measured { value, also, text })
    })?;
    let mut outcome = bench.outcome(scenario, "µs of server CPU per request", Better::Lower);
    outcome.fill(&samples, (what.transport == Transport::Quic).then_some("nginx"));
    Ok(outcome)
}

fn measure(
    bench: &Bench,
    setup: &Setup,
    what: &Multiplexed,
    variant: &Variant,
) -> Result<MultiplexedSample, String> {
    let directory = bench.directory.join("server");
    let server = ServerProcess::start(bench.binary(variant.side), &directory, setup, variant)?;
    let failed = |error: String| format!("{error} {}", server.log());
    let seconds = bench.options.seconds;
    let warm_up = Duration::from_secs_f64((seconds * WARM_UP).min(WARM_UP_MAX));
    // When it answers, all its processes are there.
    Multiplexed { connections: 1, streams: 1, ..*what }.requests(1).map_err(failed)?;
    let pids = server.processes();
    let mut edges = Vec::new();
    let edge = || {
        edges.push((
            Instant::now(),
            process::cpu_time(&pids),
            process::cpu_time(&[std::process::id()]),
        ))
    };
    let length = Duration::from_secs_f64(seconds);
    let responses = what.run(warm_up, length, edge).map_err(failed)?;
    let &[begin, end] = &edges[..] else {
        return Err("the measurement has no two edges".to_owned());
    };
    let cpu = end.1.saturating_sub(begin.1).as_secs_f64();
    let client = end.2.saturating_sub(begin.2).as_secs_f64();
    let wall = (end.0 - begin.0).as_secs_f64();
    Ok(MultiplexedSample {
        cpu_us: cpu * 1e6 / responses as f64,
        requests_per_second: responses as f64 / wall,
        used_percent: 100.0 * cpu / wall,
        client_percent: 100.0 * client / wall,
    })
}

impl MultiplexedSample {
    fn also(&self) -> [(&'static str, f64); 2] {
        [("requests/s", self.requests_per_second), ("server CPU %", self.used_percent)]
    }
}

impl std::fmt::Display for MultiplexedSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MultiplexedSample { cpu_us, requests_per_second, used_percent, client_percent } = self;
        write!(
            f,
            "{cpu_us:9.2} µs  {requests_per_second:9.0}/s  server {used_percent:3.0} %  \
             client {client_percent:3.0} %"
        )?;
        if *used_percent < throughput::SATURATED_PERCENT {
            write!(f, "  not saturated")?;
        }
        Ok(())
    }
}
