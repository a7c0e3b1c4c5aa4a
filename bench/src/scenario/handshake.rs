//! Handshakes of TLS, over TCP and QUIC: what one costs a server, and what other clients notice of too many.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::multiplexed::{quic_lines, quic_variants};
use crate::bench::{Bench, Measured, Subject};
use crate::paced::{self, PacedStream, StreamResult};
use crate::peer::Duty;
use crate::probe;
use crate::process;
use crate::quic::{self, QuicLoad};
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ADDRESS, ServerProcess, Setup, Variant};
use crate::tls::{self, KeyType, TlsConnection};

/// Connections at a time.
const CLIENTS: usize = 16;

/// Of a flood.
const FLOOD_CLIENTS: usize = 256;
const PER_SECOND: f64 = 500.0;
const PER_SECOND_CONNECTIONS: usize = 32;
/// The highest there is.
const FLOOD_NICE: i32 = 19;
/// Percentiles need some requests.
const FLOOD_SECONDS_MIN: f64 = 5.0;

/// So many of the connections that should go on with a session must do it.
const RESUMED_MIN: f64 = 0.95;

/// What clients do: connect, request `return 200`, and close.
#[derive(Clone, Copy)]
pub struct Handshakes {
    pub key: KeyType,
    /// With the session of an earlier connection.
    pub resumed: bool,
    /// Over QUIC; not resumed.
    pub quic: bool,
}

/// What the clients of a measurement have counted.
#[derive(Default)]
struct HandshakeCounts {
    ends: AtomicBool,
    done: AtomicU64,
    resumed: AtomicU64,
    failed: AtomicU64,
}

/// Server CPU per connection.
pub fn run(bench: &Bench, scenario: &Subject, what: &Handshakes) -> Result<ScenarioResult, String> {
    let setup = setup(bench, what.key)?;
    let variants = match what.quic {
        true => quic_variants(bench),
        false => bench.with_peers(bench.plain_variants(), Duty::Respond, true),
    };
    let setup = match what.quic {
        true => Setup { server: quic_lines(), ..setup },
        false => setup,
    };
    bench.write_tiny()?;
    let samples = bench.alternate(scenario, &variants, |variant| {
        let (value, rate, used) = match what.quic {
            true => measure_quic(bench, &setup, variant)?,
            false => measure(bench, &setup, what, variant)?,
        };
        let text = format!("{value:9.1} µs  {rate:7.0}/s  server {used:3.0} %");
        let also = vec![("connections/s", rate), ("server CPU %", used)];
        Ok(Measured { value, also, text })
    })?;
    let mut outcome = bench.outcome(scenario, "µs of server CPU per connection", Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

fn setup(bench: &Bench, key: KeyType) -> Result<Setup, String> {
    let certificate = tls::certificate(&bench.directory, key)?;
    Ok(Setup {
        listen: "ssl".to_owned(),
        http: format!("{} ssl_session_cache shared:sessions:10m;", certificate.lines()),
        certificate: Some(certificate),
        ..bench.setup(1)
    })
}

fn measure(
    bench: &Bench,
    setup: &Setup,
    what: &Handshakes,
    variant: &Variant,
) -> Result<(f64, f64, f64), String> {
    let directory = bench.directory.join("server");
    let server = ServerProcess::start(bench.binary(variant.side), &directory, setup, variant)?;
    let (config, counts) = (tls::client(what.resumed), HandshakeCounts::default());
    // When it answers, all its processes are there.
    TlsConnection::open(ADDRESS, &config).map_err(|error| format!("{error} {}", server.log()))?;
    let pids = server.processes();
    let (cpu, wall, done, resumed) = std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| client(&config, &counts));
        }
        let edge = || {
            let done = counts.done.load(Ordering::Relaxed);
            let resumed = counts.resumed.load(Ordering::Relaxed);
            (process::cpu_time(&pids), Instant::now(), done, resumed)
        };
        std::thread::sleep(Duration::from_secs_f64(bench.options.seconds * 0.3));
        let begin = edge();
        std::thread::sleep(Duration::from_secs_f64(bench.options.seconds));
        let end = edge();
        counts.ends.store(true, Ordering::Relaxed);
        let cpu = end.0.saturating_sub(begin.0).as_secs_f64();
        let wall = (end.1 - begin.1).as_secs_f64();
        (cpu, wall, (end.2 - begin.2) as f64, (end.3 - begin.3) as f64)
    });
    let failed = counts.failed.load(Ordering::Relaxed);
    if failed > 0 || done == 0.0 {
        return Err(format!("{failed} connections failed {}", server.log()));
    }
    let share = resumed / done;
    if what.resumed != (share > RESUMED_MIN) || (!what.resumed && share > 0.0) {
        return Err(format!("{:.0} % of the sessions were resumed", share * 100.0));
    }
    Ok((cpu * 1e6 / done, done / wall, 100.0 * cpu / wall))
}

/// As [`measure`], over QUIC.
fn measure_quic(
    bench: &Bench,
    setup: &Setup,
    variant: &Variant,
) -> Result<(f64, f64, f64), String> {
    let directory = bench.directory.join("server");
    let server = ServerProcess::start(bench.binary(variant.side), &directory, setup, variant)?;
    let failed = |error: String| format!("{error} {}", server.log());
    let load = QuicLoad {
        target: ADDRESS,
        path: "/tiny",
        body_bytes: "OK".len() as u64,
        upload_bytes: None,
        connections: CLIENTS,
        streams: 1,
    };
    quic::requests(&QuicLoad { connections: 1, ..load }, 1).map_err(failed)?;
    let pids = server.processes();
    let mut edges = Vec::new();
    let edge = || edges.push((process::cpu_time(&pids), Instant::now()));
    let length = Duration::from_secs_f64(bench.options.seconds);
    let done = quic::handshakes(&load, length.mul_f64(0.3), length, edge).map_err(failed)?;
    let &[begin, end] = &edges[..] else {
        return Err("the measurement has no two edges".to_owned());
    };
    let cpu = end.0.saturating_sub(begin.0).as_secs_f64();
    let wall = (end.1 - begin.1).as_secs_f64();
    Ok((cpu * 1e6 / done as f64, done as f64 / wall, 100.0 * cpu / wall))
}

/// One connection after the other until told to end.
fn client(config: &Arc<ClientConfig>, counts: &HandshakeCounts) {
    let mut response = Vec::new();
    let request = probe::request("/tiny", true);
    while !counts.ends.load(Ordering::Relaxed) {
        response.clear();
        let outcome = TlsConnection::open(ADDRESS, config).and_then(|mut connection| {
            connection.write_all(&request)?;
            connection.read_to_end(&mut response)?;
            Ok(connection.is_resumed())
        });
        match outcome {
            Ok(resumed) if response.starts_with(b"HTTP/1.1 200") => {
                counts.done.fetch_add(1, Ordering::Relaxed);
                counts.resumed.fetch_add(u64::from(resumed), Ordering::Relaxed);
            }
            _ => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Latency on established connections, beside more new RSA handshakes than the server can make.
pub fn flood(bench: &Bench, scenario: &Subject) -> Result<ScenarioResult, String> {
    let setup = setup(bench, KeyType::Rsa)?;
    let variants = bench.plain_variants();
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let Flooded { alone, beside, rate, used } = flooded(bench, &setup, variant)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            let (alone, beside) = (alone.ms_at(99.0), beside.ms_at(99.0));
            let times = beside / alone;
            let text = format!(
                "{times:7.1} times  p99 {alone:.2} ms alone, {beside:.2} beside {rate:.0} handshakes/s  \
                 server {used:3.0} %"
            );
            bench.progress(scenario, round, &variant.label, &text);
            let also = [
                ("p99 alone µs", alone * 1e3),
                ("p99 beside µs", beside * 1e3),
                ("handshakes/s", rate),
                ("server CPU %", used),
            ];
            samples.push(times, &also);
        }
    }
    let unit = "times its p99 alone is the p99 beside the flood";
    let mut outcome = bench.outcome(scenario, unit, Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

/// What a flood did.
struct Flooded {
    alone: StreamResult,
    beside: StreamResult,
    /// Handshakes per second.
    rate: f64,
    /// Of a processor, by the server beside the flood, in percent.
    used: f64,
}

fn flooded(bench: &Bench, setup: &Setup, variant: &Variant) -> Result<Flooded, String> {
    let directory = bench.directory.join("server");
    let server = ServerProcess::start(bench.binary(variant.side), &directory, setup, variant)?;
    let (config, counts) = (tls::client(false), HandshakeCounts::default());
    let requests = [(probe::request("/tiny", false), "OK".len())];
    let stream = || PacedStream {
        rate: PER_SECOND,
        connections: PER_SECOND_CONNECTIONS,
        requests: &requests,
        first: 0,
    };
    let length = Duration::from_secs_f64(bench.options.seconds.max(FLOOD_SECONDS_MIN));
    let connect =
        || Ok(Box::new(TlsConnection::open(ADDRESS, &config)?) as Box<dyn paced::PacedSocket>);
    let measure = || {
        let seen = <[StreamResult; 1]>::try_from(paced::run(&connect, &[stream()], length));
        seen.map(|[seen]| seen).map_err(|_| "one stream has one result".to_owned())
    };
    let alone = measure()?;
    let pids = server.processes();
    let (beside, rate, used) = std::thread::scope(|scope| {
        for _ in 0..FLOOD_CLIENTS {
            scope.spawn(|| {
                // Clients on other processors would not compete with those whose latency is measured.
                let _ = rustix::process::nice(FLOOD_NICE);
                // The other connections are established by then.
                std::thread::sleep(paced::CONNECTING);
                client(&config, &counts);
            });
        }
        let (begin, cpu) = (Instant::now(), process::cpu_time(&pids));
        let beside = measure();
        let wall = begin.elapsed().as_secs_f64();
        let cpu = process::cpu_time(&pids).saturating_sub(cpu).as_secs_f64();
        let rate = counts.done.load(Ordering::Relaxed) as f64 / wall;
        counts.ends.store(true, Ordering::Relaxed);
        (beside, rate, 100.0 * cpu / wall)
    });
    let beside = beside?;
    match alone.failures + beside.failures {
        0 => Ok(Flooded { alone, beside, rate, used }),
        failures => Err(format!("{failures} requests failed {}", server.log())),
    }
}
