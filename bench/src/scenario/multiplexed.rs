//! Server CPU per request of encrypted connections and of HTTP/2, loaded by h2load.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::throughput::{self, random_bytes, write_file};
use crate::bench::{Bench, Subject};
use crate::process;
use crate::results::{Better, Outcome, Samples};
use crate::server::{ADDRESS, Server, Setup, Variant};
use crate::tls::{self, Key};

/// Requests of the run that finds out how fast a server is, and warms it up.
const FIRST_BYTES: usize = 64 << 20;
const FIRST_REQUESTS_MAX: usize = 4000;

/// What clients speak.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 over TLS.
    Http2,
}

/// One kind of load.
#[derive(Clone, Copy)]
pub struct Multiplexed {
    pub protocol: Protocol,
    /// A file of so many bytes; 0: what `return 200` answers.
    pub bytes: usize,
    pub connections: usize,
    /// Requests at a time on each connection.
    pub streams: usize,
}

struct Sample {
    cpu_us: f64,
    requests_per_second: f64,
    used_percent: f64,
}

impl Multiplexed {
    /// Writes the file and the certificate; returns what the configuration says.
    pub(super) fn prepare(&self, bench: &Bench) -> Result<Setup, String> {
        if self.bytes > 0 {
            let path = bench.directory.join("www").join(format!("{}.bin", self.bytes));
            write_file(&path, random_bytes(self.bytes))?;
        }
        let certificate = tls::certificate(&bench.directory, Key::Ecdsa)?;
        let listen = match self.protocol {
            Protocol::Https => "ssl",
            Protocol::Http2 => "ssl http2",
        };
        let files = "sendfile on; open_file_cache max=1000; http2_max_concurrent_streams 128;";
        Ok(Setup {
            listen: listen.to_owned(),
            http: format!("{certificate} {files}"),
            ..bench.setup(1)
        })
    }

    /// What is compared.
    pub(super) fn variants(&self, bench: &Bench) -> Vec<Variant> {
        bench.with_other_build(bench.plain_variants())
    }
}

/// Measures all variants, one after the other, in every round.
pub fn run(bench: &Bench, scenario: &Subject, what: &Multiplexed) -> Result<Outcome, String> {
    let setup = what.prepare(bench)?;
    let variants = what.variants(bench);
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds {
        for index in 0..variants.len() {
            let index = if round % 2 == 0 { index } else { variants.len() - 1 - index };
            let variant = &variants[index];
            let sample = measure(bench, &setup, what, variant)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            bench.progress(scenario, round, &variant.label, &sample.to_string());
            samples[index].push(sample.cpu_us, &sample.also());
        }
    }
    let mut outcome = bench.outcome(scenario, "µs of server CPU per request", Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

fn measure(
    bench: &Bench,
    setup: &Setup,
    what: &Multiplexed,
    variant: &Variant,
) -> Result<Sample, String> {
    let directory = bench.directory.join("server");
    let server = Server::start(bench.binary(variant.side), &directory, setup, variant)?;
    let failed = |error: String| format!("{error} {}", server.log());
    let first = (FIRST_BYTES / what.bytes.max(1)).clamp(1, FIRST_REQUESTS_MAX);
    let first = first.max(what.connections * what.streams);
    let begin = Instant::now();
    load(what, first).map_err(failed)?;
    let rate = first as f64 / begin.elapsed().as_secs_f64();
    let requests = ((rate * bench.options.seconds) as usize).max(first);
    let pids = server.processes();
    let (begin, before) = (Instant::now(), process::cpu_time(&pids));
    load(what, requests).map_err(failed)?;
    let cpu = process::cpu_time(&pids).saturating_sub(before).as_secs_f64();
    let wall = begin.elapsed().as_secs_f64();
    Ok(Sample {
        cpu_us: cpu * 1e6 / requests as f64,
        requests_per_second: requests as f64 / wall,
        used_percent: 100.0 * cpu / wall,
    })
}

/// Runs h2load, which inherits the processors of this program, and checks what it says.
pub(super) fn load(what: &Multiplexed, requests: usize) -> Result<(), String> {
    let path = match what.bytes {
        0 => "tiny".to_owned(),
        bytes => format!("{bytes}.bin"),
    };
    let mut command = Command::new("h2load");
    command.args(["-t", "1", "-n", &requests.to_string(), "-c", &what.connections.to_string()]);
    command.args(["-m", &what.streams.to_string()]);
    if what.protocol == Protocol::Https {
        command.arg("--h1");
    }
    command.arg(format!("https://{ADDRESS}/{path}")).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("h2load: {error} (on Debian: apt-get install nghttp2-client)"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let succeeded = format!(" {requests} succeeded, 0 failed, 0 errored, 0 timeout");
    let received = what.bytes.max("OK".len()) * requests;
    let complete = text.contains(&succeeded)
        && text.contains(&format!("status codes: {requests} 2xx,"))
        && text.contains(&format!("({received}) data"));
    if complete { Ok(()) } else { Err(format!("not all responses were right: {text}")) }
}

impl Sample {
    fn also(&self) -> [(&'static str, f64); 2] {
        [("requests/s", self.requests_per_second), ("server CPU %", self.used_percent)]
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sample { cpu_us, requests_per_second, used_percent } = self;
        write!(f, "{cpu_us:9.2} µs  {requests_per_second:9.0}/s  server {used_percent:3.0} %")?;
        if *used_percent < throughput::SATURATED_PERCENT {
            write!(f, "  not saturated")?;
        }
        Ok(())
    }
}
