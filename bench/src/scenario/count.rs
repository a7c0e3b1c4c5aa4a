//! What a request takes, counted instead of timed: instructions in user space and system calls.
//!
//! Called for `--count`, and for the counts that are kept. Instructions are those of a server of one
//! process under `valgrind --tool=callgrind`, which vgdb tells when to count; system calls are counted by
//! `strace -c`. Neither the start nor the end of a server is in the counts.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::multiplexed::Multiplexed;
use super::throughput::{Throughput, ThroughputTarget, Uri};
use crate::bench::{Bench, Subject};
use crate::load::Expect;
use crate::report;
use crate::server::{ADDRESS, ServerProcess, Setup, Side, Variant};

/// Requests before those that are counted.
const WARM_UP: usize = 200;

/// Requests that are counted.
const COUNTED: usize = 2000;

/// How often many files are asked for before that.
const PASSES: usize = 4;

/// Responses up to this size are counted in full; of larger ones there are fewer.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
const LARGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Connections that send at the same time, so that a turn of an event loop has several requests.
const CONNECTIONS: usize = 16;

/// For a server under valgrind, which is fifty times slower.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What one request takes.
struct RequestCost {
    /// `None`: valgrind is missing, or does not know what the server does.
    instructions: Option<f64>,
    calls: Option<BTreeMap<String, f64>>,
}

/// A server that runs, and what it is asked.
struct Running<'a> {
    server: ServerProcess,
    /// Sends so many requests, on so many connections at a time.
    send: Box<dyn Fn(usize, usize) -> Result<(), String> + 'a>,
    /// How many requests are counted.
    counted: usize,
}

/// Starts a server of this variant under this program.
type Start<'a> = dyn Fn(&Variant, &[String]) -> Result<Running<'a>, String> + 'a;

/// Counts for all variants, and prints the table.
pub fn run(bench: &Bench, scenario: &Subject, what: &Throughput) -> Result<(), String> {
    let (variants, _) = what.variants(bench);
    let target = ThroughputTarget::prepare(bench, what)?;
    table(bench, scenario, &variants, &|variant, wrapper| start(bench, &target, variant, wrapper));
    Ok(())
}

/// Like [`run`], for encrypted connections.
pub fn run_multiplexed(
    bench: &Bench,
    scenario: &Subject,
    what: &Multiplexed,
) -> Result<(), String> {
    let setup = what.prepare(bench)?;
    let start = |variant: &Variant, wrapper: &[String]| {
        start_multiplexed(bench, &setup, what, variant, wrapper)
    };
    table(bench, scenario, &what.variants(bench), &start);
    Ok(())
}

fn table(bench: &Bench, scenario: &Subject, variants: &[Variant], start: &Start<'_>) {
    let header = ["", "user instructions", "system calls", "which"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for variant in variants {
        let failed = |what: &str, error: String| {
            println!("{:18} {:34} {what}: {error}", scenario.name, variant.label);
        };
        let counts = RequestCost {
            instructions: instructions(bench, variant, start, CONNECTIONS)
                .map_err(|error| failed("instructions", error))
                .ok(),
            calls: calls(bench, variant, start).map_err(|error| failed("system calls", error)).ok(),
        };
        lines.push(counts.line(&variant.label));
    }
    println!("\n{}, per request\n\n{}", scenario.title, report::aligned(&lines));
}

impl RequestCost {
    fn line(&self, label: &str) -> Vec<String> {
        let total = self.calls.as_ref().map(|calls| calls.values().sum::<f64>());
        let which = self.calls.iter().flatten().filter(|(_, count)| **count >= 0.01);
        let which: Vec<String> = which.map(|(name, count)| format!("{name} {count:.2}")).collect();
        vec![
            label.to_owned(),
            self.instructions.map(|count| format!("{count:.0}")).unwrap_or_default(),
            total.map(|count| format!("{count:.2}")).unwrap_or_default(),
            which.join(", "),
        ]
    }
}

/// How many requests are counted, by the bytes of a response.
fn counted(bytes: u64) -> usize {
    if bytes <= SMALL_BYTES_MAX {
        COUNTED
    } else if bytes <= LARGE_BYTES_MAX {
        COUNTED / 20
    } else {
        COUNTED / 200
    }
}

/// User instructions per request of the variant with this label, so exactly that runs can be compared:
/// with one request per turn of the loop.
pub fn steady_instructions(bench: &Bench, what: &Throughput, label: &str) -> Result<f64, String> {
    let variant = named(what.variants(bench).0, label)?;
    let target = ThroughputTarget::prepare(bench, what)?;
    let start = |variant: &Variant, wrapper: &[String]| start(bench, &target, variant, wrapper);
    instructions(bench, &variant, &start, 1)
}

/// Like [`steady_instructions`], for encrypted connections: one, with one stream. The handshake is counted, too.
pub fn steady_multiplexed(bench: &Bench, what: &Multiplexed, label: &str) -> Result<f64, String> {
    let what = Multiplexed { streams: 1, ..*what };
    let variant = named(what.variants(bench), label)?;
    let setup = what.prepare(bench)?;
    let start = |variant: &Variant, wrapper: &[String]| {
        start_multiplexed(bench, &setup, &what, variant, wrapper)
    };
    instructions(bench, &variant, &start, 1)
}

/// User instructions per request of a server with this configuration; `send` makes so many requests.
pub(super) fn configured(
    bench: &Bench,
    setup: &Setup,
    variant: &Variant,
    send: &dyn Fn(usize) -> Result<(), String>,
) -> Result<f64, String> {
    let start = |variant: &Variant, wrapper: &[String]| {
        let directory = bench.directory.join("server");
        let binary = bench.binary(variant.side);
        let server = ServerProcess::start_under(wrapper, binary, &directory, setup, variant)?;
        Ok(Running { server, send: Box::new(|_, requests| send(requests)), counted: COUNTED })
    };
    instructions(bench, variant, &start, 1)
}

/// The variant with this label.
fn named(variants: Vec<Variant>, label: &str) -> Result<Variant, String> {
    let found = variants.into_iter().find(|variant| variant.label == label);
    found.ok_or_else(|| format!("no variant \"{label}\""))
}

fn start_multiplexed<'a>(
    bench: &Bench,
    setup: &Setup,
    what: &'a Multiplexed,
    variant: &Variant,
    wrapper: &[String],
) -> Result<Running<'a>, String> {
    let directory = bench.directory.join("server");
    let binary = bench.binary(variant.side);
    let server = ServerProcess::start_under(wrapper, binary, &directory, setup, variant)?;
    let send = |connections, requests| Multiplexed { connections, ..*what }.requests(requests);
    Ok(Running { server, send: Box::new(send), counted: counted(what.bytes as u64) })
}

/// User instructions per request, with so many connections.
fn instructions(
    bench: &Bench,
    variant: &Variant,
    start: &Start<'_>,
    connections: usize,
) -> Result<f64, String> {
    if variant.events.contains("io_uring") {
        return Err("valgrind does not know enough of io_uring".to_owned());
    }
    if matches!(variant.side, Side::Peer(_)) {
        return Err("only nginx and Nowait can be told to be one process".to_owned());
    }
    // One process, so that there is one count.
    let main = format!("{} master_process off;", variant.main);
    let variant = Variant { main, ..variant.clone() };
    let counts = bench.directory.join("callgrind");
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts).map_err(|error| format!("{}: {error}", counts.display()))?;
    let wrapper = [
        "valgrind".to_owned(),
        "--quiet".to_owned(),
        "--tool=callgrind".to_owned(),
        format!("--callgrind-out-file={}/all", counts.display()),
    ];
    let Running { server, send, counted } = start(&variant, &wrapper)?;
    let send =
        |requests| send(connections, requests).map_err(|error| format!("{error} {}", server.log()));
    send(WARM_UP)?;
    command_valgrind(server.pid(), "zero")?;
    send(counted)?;
    command_valgrind(server.pid(), "dump")?;
    let dumped = fs::read_to_string(counts.join("all.1")).map_err(|error| error.to_string())?;
    let total = dumped.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.and_then(|total| total.trim().parse::<f64>().ok());
    Ok(total.ok_or("callgrind has not counted")? / counted as f64)
}

/// Has callgrind do something while the server runs.
fn command_valgrind(pid: u32, what: &str) -> Result<(), String> {
    let output = Command::new("vgdb").arg(format!("--pid={pid}")).arg(what).output();
    let output = output.map_err(|error| format!("vgdb: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("vgdb: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// System calls per request, by name.
fn calls(
    bench: &Bench,
    variant: &Variant,
    start: &Start<'_>,
) -> Result<BTreeMap<String, f64>, String> {
    let Running { server, send, counted } = start(variant, &[])?;
    send(CONNECTIONS, WARM_UP)?;
    let summary = bench.directory.join("strace");
    let trace = Trace::attach(&server.processes(), &summary)?;
    send(CONNECTIONS, counted)?;
    trace.end()?;
    let text = fs::read_to_string(&summary).map_err(|error| error.to_string())?;
    let per_request = |(name, count): (String, u64)| (name, count as f64 / counted as f64);
    Ok(summed(&text).into_iter().map(per_request).collect())
}

/// The names and numbers in a summary of strace.
fn summed(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Share, seconds, microseconds per call, calls, sometimes errors, name.
        let (calls, name) = (words.get(3)?.parse().ok()?, words.get(4..)?.last()?);
        (*name != "total").then(|| ((*name).to_owned(), calls))
    };
    text.lines().filter_map(line).collect()
}

/// A running strace.
struct Trace(Child);

impl Trace {
    /// Attaches to all threads of these processes.
    fn attach(pids: &[u32], summary: &Path) -> Result<Trace, String> {
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-o"]).arg(summary);
        command.args(pids.iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("strace: {error}"))?;
        let trace = Trace(child);
        let begin = Instant::now();
        while !pids.iter().all(|pid| is_traced(*pid)) {
            if begin.elapsed() > TIMEOUT {
                return Err("strace does not attach".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(trace)
    }

    /// Detaches, and has the summary written.
    fn end(mut self) -> Result<(), String> {
        self.interrupt();
        self.0.wait().map(drop).map_err(|error| format!("strace: {error}"))
    }

    fn interrupt(&self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, Signal::INT);
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.interrupt();
            let _ = self.0.wait();
        }
    }
}

/// Whether all threads of a process have a tracer.
fn is_traced(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        // One that has just ended needs none.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { return true };
        status
            .lines()
            .any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
    })
}

fn start<'a>(
    bench: &Bench,
    target: &ThroughputTarget<'a>,
    variant: &Variant,
    wrapper: &[String],
) -> Result<Running<'a>, String> {
    if !wrapper.is_empty() && variant.is_nowait() && matches!(target.what.uri, Uri::Files(..)) {
        return Err("a comparison of each file per second needs openat2".to_owned());
    }
    let _ = fs::remove_dir_all(bench.cache());
    let directory = bench.directory.join("server");
    let setup = target.setup(bench);
    let wrapper = [wrapper, &target.wrapper(bench, variant.side)].concat();
    let binary = bench.binary(variant.side);
    let server = ServerProcess::start_under(&wrapper, binary, &directory, &setup, variant)?;
    let (texts, expect) = target.probe()?;
    let bytes = texts.first().map_or(0, |text| text.len() as u64);
    let (what, counted) = (target.what, counted(expect.total().max(bytes)));
    if texts.len() > 1 {
        // What is asked for often enough may be in memory.
        for _ in 0..PASSES {
            exchange(what, &mut texts.iter(), &expect, CONNECTIONS, texts.len())?;
        }
    }
    let next = Cell::new(0);
    let send = move |connections, requests| {
        let first = next.replace((next.get() + requests) % texts.len());
        let texts = &mut texts.iter().cycle().skip(first);
        exchange(what, texts, &expect, connections, requests)
    };
    Ok(Running { server, send: Box::new(send), counted })
}

/// Sends so many requests, on so many connections at a time, and compares the length of each
/// response.
fn exchange(
    what: &Throughput,
    texts: &mut dyn Iterator<Item = &Vec<u8>>,
    expect: &Expect,
    connections: usize,
    requests: usize,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut sent = 0;
    while sent < requests {
        if what.close {
            streams.clear();
        }
        let batch = connections.min(requests - sent);
        while streams.len() < batch {
            let stream = TcpStream::connect(ADDRESS).map_err(text)?;
            stream.set_read_timeout(Some(TIMEOUT)).map_err(text)?;
            streams.push(stream);
        }
        for (stream, request) in streams[..batch].iter_mut().zip(&mut *texts) {
            stream.write_all(request).map_err(text)?;
        }
        for stream in &mut streams[..batch] {
            let length = expect.total();
            let copied = std::io::copy(&mut stream.take(length), &mut std::io::sink());
            if copied.map_err(text)? != length {
                return Err("a response ended too early".to_owned());
            }
            if what.close && stream.read(&mut [0]).map_err(text)? != 0 {
                return Err("there are bytes after a response".to_owned());
            }
        }
        sent += batch;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000100           1       100           close
 40.00    0.000050           1        50         3 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000150           1       150         3 total
";
        let expected = [("close".to_owned(), 100), ("recvfrom".to_owned(), 50)];
        assert_eq!(summed(text), expected.into());
    }
}
