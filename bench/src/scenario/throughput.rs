//! Server CPU per request at saturation: the main figure.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Bench, Scenario, USUAL};
use crate::load::{self, Group, Load, Seen};
use crate::probe;
use crate::process;
use crate::results::{Better, Outcome, Samples};
use crate::server::{ADDRESS, Server, Variant};

/// Part of a measurement's length that is spent before it, at most `WARM_UP_MAX`.
const WARM_UP: f64 = 0.3;
const WARM_UP_MAX: f64 = 1.0;
/// Below this share of its processors in use the server was waiting for the load generator.
pub const SATURATED_PERCENT: f64 = 95.0;

/// One kind of load.
#[derive(Clone, Copy)]
pub struct Throughput {
    pub uri: Uri,
    pub workers: usize,
    pub connections: usize,
    /// A new connection for every request.
    pub close: bool,
}

#[derive(Clone, Copy)]
pub enum Uri {
    /// A response made by `return`.
    Tiny,
    /// A file of so many bytes, in memory.
    File(usize),
}

/// From this share of a processor on, other programs spoil a measurement.
const OTHERS_PERCENT_MAX: f64 = 5.0;

/// One measurement of one variant.
struct Sample {
    cpu_us: f64,
    requests_per_second: f64,
    /// Of the server's processors.
    used_percent: f64,
    /// Of one processor, by this program.
    client_percent: f64,
    /// Of one processor, by everything else on the machine.
    others_percent: f64,
    seen: Seen,
}

/// The accounts at the beginning or the end of the measured time.
#[derive(Clone, Copy)]
struct Edge {
    time: Instant,
    server: Duration,
    client: Duration,
    machine: Duration,
}

impl Edge {
    fn now(server: &[u32]) -> Edge {
        Edge {
            time: Instant::now(),
            server: process::cpu_time(server),
            client: process::cpu_time(&[std::process::id()]),
            machine: process::machine_time(),
        }
    }
}

/// Measures all variants, one after the other, in every round.
pub fn run(bench: &Bench, scenario: &Scenario, what: &Throughput) -> Result<Outcome, String> {
    let (uri, body, variants) = match what.uri {
        Uri::Tiny => ("/tiny".to_owned(), None, bench.plain_variants()),
        Uri::File(bytes) => {
            let name = format!("{bytes}.bin");
            let body = write_file(&bench.directory.join("www").join(&name), bytes)?;
            (format!("/{name}"), Some(body), bench.file_variants())
        }
    };
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    let mut broken = vec![false; variants.len()];
    for round in 0..bench.options.rounds {
        for index in 0..variants.len() {
            // Every other round backwards, so that no variant always follows the same one.
            let index = if round % 2 == 0 { index } else { variants.len() - 1 - index };
            let variant = &variants[index];
            if broken[index] {
                continue;
            }
            match measure_undisturbed(bench, what, variant, &uri, body.as_deref()) {
                Ok(sample) => {
                    bench.progress(scenario, round, &variant.label, &sample.to_string());
                    samples[index].push(sample.cpu_us, &sample.also());
                }
                Err(error) => {
                    bench.progress(scenario, round, &variant.label, &format!("FAILED: {error}"));
                    broken[index] = true;
                    samples[index].values.clear();
                }
            }
        }
    }
    let mut outcome = bench.outcome(scenario, "µs of server CPU per request", Better::Lower);
    outcome.fill(&samples, matches!(what.uri, Uri::File(_)).then_some(USUAL));
    Ok(outcome)
}

/// Measures again when other programs disturbed; gives back the least disturbed measurement.
fn measure_undisturbed(
    bench: &Bench,
    what: &Throughput,
    variant: &Variant,
    uri: &str,
    body: Option<&[u8]>,
) -> Result<Sample, String> {
    let mut best = measure(bench, what, variant, uri, body)?;
    for _ in 0..bench.options.retries {
        if best.others_percent <= OTHERS_PERCENT_MAX {
            break;
        }
        let again = measure(bench, what, variant, uri, body)?;
        if again.others_percent < best.others_percent {
            best = again;
        }
    }
    Ok(best)
}

fn measure(
    bench: &Bench,
    what: &Throughput,
    variant: &Variant,
    uri: &str,
    body: Option<&[u8]>,
) -> Result<Sample, String> {
    let setup = bench.setup(what.workers);
    let directory = bench.directory.join("server");
    let server = Server::start(bench.binary(variant.side), &directory, &setup, variant)?;
    let request = probe::request(uri, what.close);
    let expect = probe::fetch(ADDRESS, &request)?;
    if body.is_some_and(|body| body != &*expect.body) {
        return Err("the body is not the file".to_owned());
    }
    let groups = [Group {
        connections: what.connections,
        requests: vec![request],
        expect,
        close: what.close,
    }];
    let seconds = bench.options.seconds;
    let load = Load {
        target: ADDRESS,
        groups: &groups,
        warm_up: Duration::from_secs_f64((seconds * WARM_UP).min(WARM_UP_MAX)),
        length: Duration::from_secs_f64(seconds),
    };
    let pids = server.processes();
    let mut edges = Vec::new();
    let seen = load::run(&load, || edges.push(Edge::now(&pids)))
        .map_err(|error| format!("{error} {}", server.log()))?;
    let (&[begin, end], Ok([seen])) = (&edges[..], <[Seen; 1]>::try_from(seen)) else {
        return Err("the measurement has no two edges".to_owned());
    };
    if seen.failures > 0 {
        return Err(format!("{} connections failed {}", seen.failures, server.log()));
    }
    let spent = |of: fn(&Edge) -> Duration| of(&end).saturating_sub(of(&begin)).as_secs_f64();
    let wall = (end.time - begin.time).as_secs_f64();
    let (cpu, client) = (spent(|edge| edge.server), spent(|edge| edge.client));
    let others = spent(|edge| edge.machine) - cpu - client;
    let processors = what.workers.min(setup.cpus.len()) as f64;
    Ok(Sample {
        cpu_us: cpu * 1e6 / seen.requests(),
        requests_per_second: seen.requests() / wall,
        used_percent: 100.0 * cpu / wall / processors,
        client_percent: 100.0 * client / wall,
        others_percent: 100.0 * others.max(0.0) / wall,
        seen,
    })
}

impl Sample {
    fn also(&self) -> [(&'static str, f64); 5] {
        let micros = |percent| self.seen.latency_at(percent).as_secs_f64() * 1e6;
        [
            ("requests/s", self.requests_per_second),
            ("server CPU %", self.used_percent),
            ("others CPU %", self.others_percent),
            ("p50 µs", micros(50.0)),
            ("p99 µs", micros(99.0)),
        ]
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sample { cpu_us, requests_per_second, used_percent, client_percent, .. } = self;
        write!(
            f,
            "{cpu_us:9.2} µs  {requests_per_second:9.0}/s  server {used_percent:3.0} %  \
             client {client_percent:3.0} %"
        )?;
        if *used_percent < SATURATED_PERCENT {
            write!(f, "  not saturated")?;
        }
        if self.others_percent > OTHERS_PERCENT_MAX {
            write!(f, "  others {:.0} %", self.others_percent)?;
        }
        Ok(())
    }
}

fn write_file(path: &Path, bytes: usize) -> Result<Vec<u8>, String> {
    let body = random_bytes(bytes);
    std::fs::write(path, &body).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(body)
}

/// Bytes without a pattern that a file system could compress; the same for the same length.
pub fn random_bytes(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ bytes as u64;
    let mut body = Vec::with_capacity(bytes + 8);
    while body.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        body.extend_from_slice(&state.to_le_bytes());
    }
    body.truncate(bytes);
    body
}
