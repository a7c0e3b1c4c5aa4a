//! Memory of idle keep-alive connections, and of idle sessions of a TCP proxy: what the server's
//! processes grow by.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{Bench, Scenario};
use crate::probe;
use crate::process;
use crate::results::{Better, Outcome, Samples};
use crate::server::{ADDRESS, Server, Setup, Variant};

/// Connections opened and closed before the first look, so that lazily made tables exist.
const WARM_UP: usize = 200;

/// `stream`: the server passes the connections on to the origin.
pub fn run(
    bench: &Bench,
    scenario: &Scenario,
    connections: usize,
    stream: bool,
) -> Result<Outcome, String> {
    raise_limit(connections)?;
    let mut variants = if stream { bench.stream_variants() } else { bench.plain_variants() };
    // Who is idle has no use for large buffers.
    variants.retain(|variant| variant.http.is_empty());
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds.min(3) {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let (before, after) = measure(bench, variant, connections, stream)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            let each = after.saturating_sub(before) as f64 / connections as f64;
            let total = after as f64 / (1 << 20) as f64;
            let text = format!("{each:9.0} bytes each, {total:.1} MB in all");
            bench.progress(scenario, round, &variant.label, &text);
            samples.push(each, &[("all processes MB", total)]);
        }
    }
    let unit = if stream { "bytes per idle session" } else { "bytes per idle connection" };
    let mut outcome = bench.outcome(scenario, unit, Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

/// Memory of the server before and with the connections.
fn measure(
    bench: &Bench,
    variant: &Variant,
    connections: usize,
    stream: bool,
) -> Result<(u64, u64), String> {
    // Held to the end: it answers.
    let _origin = stream.then(|| bench.origin()).transpose()?;
    let setup = Setup { stream, ..bench.setup(1) };
    let directory = bench.directory.join("server");
    let server = Server::start(bench.binary(variant.side), &directory, &setup, variant)?;
    let request = probe::request("/tiny", false);
    let expect = probe::fetch(ADDRESS, &request)?;
    let mut response = vec![0; expect.head.len() + expect.body.len()];

    drop(open(WARM_UP, &request, &mut response)?);
    let pids = server.processes();
    let before = process::memory_bytes(&pids);
    let idle = open(connections, &request, &mut response)?;
    let after = process::memory_bytes(&pids);
    drop(idle);
    Ok((before, after))
}

/// Connections that have each made one request and stay.
fn open(count: usize, request: &[u8], response: &mut [u8]) -> Result<Vec<TcpStream>, String> {
    let mut streams = Vec::with_capacity(count);
    for nth in 0..count {
        let stream = TcpStream::connect(ADDRESS).and_then(|mut stream| {
            stream.write_all(request)?;
            stream.read_exact(response)?;
            Ok(stream)
        });
        streams.push(stream.map_err(|error| format!("connection {nth}: {error}"))?);
    }
    Ok(streams)
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
