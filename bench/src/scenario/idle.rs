//! Memory of idle keep-alive connections, and of idle sessions of a TCP proxy: what the server's
//! processes grow by.

use std::time::Duration;

use super::multiplexed::quic_lines;
use crate::bench::{Bench, Subject};
use crate::paced::{self, Connect, PacedSocket};
use crate::probe;
use crate::process;
use crate::quic::{IdleConnections, QuicLoad};
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ADDRESS, ServerProcess, Setup, Variant};
use crate::tls::{self, KeyType, TlsConnection};

/// Connections opened and closed before the first look, so that lazily made tables exist.
const WARM_UP: usize = 200;

/// Until both sides of a QUIC connection have nothing more to say.
const SETTLED: Duration = Duration::from_secs(3);

/// Who is idle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// A client of a web server.
    Plain,
    /// The same, encrypted.
    Tls,
    /// The same, over HTTP/3.
    Quic,
    /// A client whose connection the server passes on to the origin.
    Session,
}

/// Measures the memory of so many.
pub fn run(
    bench: &Bench,
    scenario: &Subject,
    connections: usize,
    idle: Idle,
) -> Result<ScenarioResult, String> {
    raise_limit(connections)?;
    let mut variants = match idle {
        Idle::Session => bench.stream_variants(),
        Idle::Plain | Idle::Tls | Idle::Quic => bench.plain_variants(),
    };
    // Who is idle has no use for large buffers.
    variants.retain(|variant| variant.http.is_empty());
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds.min(3) {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let memory = process::memory_bytes;
            let (before, after) = measure(bench, variant, connections, idle, memory)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            let each = after.saturating_sub(before) as f64 / connections as f64;
            let total = after as f64 / (1 << 20) as f64;
            let text = format!("{each:9.0} bytes each, {total:.1} MB in all");
            bench.progress(scenario, round, &variant.label, &text);
            samples.push(each, &[("all processes MB", total)]);
        }
    }
    let unit = match idle {
        Idle::Session => "bytes per idle session",
        Idle::Plain | Idle::Tls | Idle::Quic => "bytes per idle connection",
    };
    let mut outcome = bench.outcome(scenario, unit, Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

/// Memory of the server before and with the connections.
pub(super) fn measure(
    bench: &Bench,
    variant: &Variant,
    connections: usize,
    idle: Idle,
    memory: fn(&[u32]) -> u64,
) -> Result<(u64, u64), String> {
    let stream = idle == Idle::Session;
    // Held to the end: it answers.
    let _origin = stream.then(|| bench.origin()).transpose()?;
    let mut setup = Setup { stream, ..bench.setup(1) };
    if idle == Idle::Quic {
        setup.server = quic_lines();
    }
    if matches!(idle, Idle::Tls | Idle::Quic) {
        setup.listen = "ssl".to_owned();
        setup.http = tls::certificate(&bench.directory, KeyType::Ecdsa)?.lines();
    }
    let directory = bench.directory.join("server");
    let server = ServerProcess::start(bench.binary(variant.side), &directory, &setup, variant)?;
    if idle == Idle::Quic {
        return measure_quic(&server, connections, memory);
    }
    let config = tls::client(false);
    let connect = || match idle {
        Idle::Tls => Ok(Box::new(TlsConnection::open(ADDRESS, &config)?) as Box<dyn PacedSocket>),
        Idle::Plain | Idle::Session | Idle::Quic => paced::plain(ADDRESS),
    };
    drop(open(WARM_UP, &connect)?);
    let pids = server.processes();
    let before = memory(&pids);
    let idle = open(connections, &connect)?;
    let after = memory(&pids);
    drop(idle);
    Ok((before, after))
}

/// As [`measure`], of connections over QUIC.
fn measure_quic(
    server: &ServerProcess,
    connections: usize,
    memory: fn(&[u32]) -> u64,
) -> Result<(u64, u64), String> {
    let failed = |error: String| format!("{error} {}", server.log());
    let load = QuicLoad {
        target: ADDRESS,
        path: "/tiny",
        body_bytes: "OK".len() as u64,
        upload_bytes: None,
        connections: WARM_UP,
        streams: 1,
    };
    let mut early = IdleConnections::open(&load).map_err(failed)?;
    early.close(SETTLED).map_err(failed)?;
    drop(early);
    let pids = server.processes();
    let before = memory(&pids);
    let mut idle = IdleConnections::open(&QuicLoad { connections, ..load }).map_err(failed)?;
    idle.settle(SETTLED).map_err(failed)?;
    let after = memory(&pids);
    drop(idle);
    Ok((before, after))
}

/// Connections that have each made one request and stay.
fn open(count: usize, connect: Connect<'_>) -> Result<Vec<Box<dyn PacedSocket>>, String> {
    let request = probe::request("/tiny", false);
    let mut sockets = Vec::with_capacity(count);
    for nth in 0..count {
        let socket = connect().and_then(|mut socket| {
            socket.write_all(&request)?;
            let mut response = Vec::new();
            while !response.ends_with(b"\r\n\r\nOK") {
                let mut buffer = [0; 1024];
                match socket.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    read => response.extend_from_slice(&buffer[..read]),
                }
            }
            Ok(socket)
        });
        sockets.push(socket.map_err(|error| format!("connection {nth}: {error}"))?);
    }
    Ok(sockets)
}

/// Lets this process hold so many sockets.
pub(super) fn raise_limit(connections: usize) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let want = connections as u64 + 100;
    if maximum.is_some_and(|maximum| maximum < want) {
        return Err(format!("{want} open files are needed, the hard limit is {maximum:?}"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|error| format!("setrlimit: {error}"))
}
