//! What a request takes, counted instead of timed: instructions in user space and system calls.
//!
//! Counts hold on a busy machine, too. Called for `--count`. Instructions are those of all processes
//! of a server under `valgrind --tool=callgrind`; system calls are counted by `strace -c`. Counts of
//! what a request takes are differences: of two runs, or of a run and an idle server.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::throughput::{Target, Throughput};
use crate::bench::{Bench, Subject};
use crate::load::Expect;
use crate::report;
use crate::server::{ADDRESS, Server, Variant};

/// Requests of the shorter run under valgrind, which includes what happens only once; the longer one
/// has so many more.
const WARM_UP: usize = 200;
const COUNTED: usize = 2000;

/// Requests of a run whose counts are compared with earlier ones.
const STEADY: usize = 1000;

/// Responses up to this size are counted in full; of larger ones there are fewer.
const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// Connections that send at the same time, so that a turn of an event loop has several requests.
const CONNECTIONS: usize = 16;

/// For a server under valgrind, which is fifty times slower.
const TIMEOUT: Duration = Duration::from_secs(60);

/// For the processes of a server under valgrind to end after the first one.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What one request takes.
struct Counts {
    /// `None`: valgrind is missing, or does not know what the server does.
    instructions: Option<f64>,
    calls: Option<BTreeMap<String, f64>>,
}

/// Counts for all variants, and prints the table.
pub fn run(bench: &Bench, scenario: &Subject, what: &Throughput) -> Result<(), String> {
    let (variants, _) = what.uri.variants(bench, what.shares_socket());
    let target = Target::prepare(bench, what)?;
    let header = ["", "user instructions", "system calls", "which"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for variant in &variants {
        let failed = |what: &str, error: String| {
            println!("{:18} {:34} {what}: {error}", scenario.name, variant.label);
        };
        let counts = Counts {
            instructions: instructions(bench, &target, variant)
                .map_err(|error| failed("instructions", error))
                .ok(),
            calls: calls(bench, &target, variant)
                .map_err(|error| failed("system calls", error))
                .ok(),
        };
        lines.push(counts.line(&variant.label));
    }
    println!("\n{}, per request\n\n{}", scenario.title, report::aligned(&lines));
    Ok(())
}

impl Counts {
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

/// How many requests are counted.
fn counted(expect: &Expect) -> usize {
    if expect.total() <= SMALL_BYTES_MAX { COUNTED } else { COUNTED / 20 }
}

/// User instructions per request of the variant with this label, so exactly that runs can be compared:
/// with one request per turn of the loop, and nothing counted but these requests.
pub fn steady_instructions(bench: &Bench, what: &Throughput, label: &str) -> Result<f64, String> {
    let (variants, _) = what.uri.variants(bench, what.shares_socket());
    let variant = variants.iter().find(|variant| variant.label == label);
    let mut variant = variant.ok_or_else(|| format!("no variant \"{label}\""))?.clone();
    // One process, so that there is one count.
    variant.main.push_str("master_process off;");
    let target = Target::prepare(bench, what)?;
    let counts = bench.directory.join("callgrind");
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts).map_err(|error| format!("{}: {error}", counts.display()))?;
    let wrapper = [
        "valgrind".to_owned(),
        "--quiet".to_owned(),
        "--tool=callgrind".to_owned(),
        format!("--callgrind-out-file={}/all", counts.display()),
    ];
    let server = start(bench, &target, &variant, &wrapper)?;
    let (request, expect) = target.probe()?;
    let send = |requests| {
        exchange(what, &request, &expect, 1, requests)
            .map_err(|error| format!("{error} {}", server.log()))
    };
    send(WARM_UP)?;
    let pid = server.pid();
    command_valgrind(pid, "zero")?;
    send(STEADY)?;
    command_valgrind(pid, "dump")?;
    let dumped = fs::read_to_string(counts.join("all.1")).map_err(|error| error.to_string())?;
    let total = dumped.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.and_then(|total| total.trim().parse::<f64>().ok());
    Ok(total.ok_or("callgrind has not counted")? / STEADY as f64)
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

/// User instructions per request: the difference of two runs, so that neither the start nor the end
/// is counted.
fn instructions(bench: &Bench, target: &Target<'_>, variant: &Variant) -> Result<f64, String> {
    let (few, _) = instructions_of(bench, target, variant, |_| WARM_UP)?;
    let (many, more) = instructions_of(bench, target, variant, |e| WARM_UP + counted(e))?;
    Ok((many - few) / (more - WARM_UP) as f64)
}

/// All user instructions of a server that answers so many requests.
fn instructions_of(
    bench: &Bench,
    target: &Target<'_>,
    variant: &Variant,
    requests: impl Fn(&Expect) -> usize,
) -> Result<(f64, usize), String> {
    let logs = bench.directory.join("callgrind");
    let _ = fs::remove_dir_all(&logs);
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let wrapper = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--callgrind-out-file=/dev/null".to_owned(),
        format!("--log-file={}/%p", logs.display()),
    ];
    let sent = {
        let server = start(bench, target, variant, &wrapper)?;
        let (request, expect) = target.probe()?;
        let requests = requests(&expect);
        exchange(target.what, &request, &expect, CONNECTIONS, requests)
            .map_err(|error| format!("{error} {}", server.log()))?;
        requests
    };
    // The first process of a server may end before the others have written their counts.
    let begin = Instant::now();
    loop {
        match all_collected(&logs) {
            Ok(total) => return Ok((total as f64, sent)),
            Err(error) if begin.elapsed() > END_TIMEOUT => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The sum over all processes, each of which has a log.
fn all_collected(logs: &Path) -> Result<u64, String> {
    let mut total = 0;
    for entry in fs::read_dir(logs).map_err(|error| error.to_string())?.flatten() {
        let log = fs::read_to_string(entry.path()).unwrap_or_default();
        total += collected(&log).ok_or_else(|| why_not(&log))?;
    }
    Ok(total)
}

/// Why a process was not counted to its end.
fn why_not(log: &str) -> String {
    let died = log.lines().find(|line| line.contains("Process terminating"));
    let unknown = log.lines().find(|line| line.contains("unhandled"));
    let line = died.or(unknown).unwrap_or("no count at its end");
    format!("callgrind has not counted: {}", line.trim_start_matches(['=', '-', ' ']))
}

/// What a log of callgrind says of the whole run.
fn collected(log: &str) -> Option<u64> {
    let (_, rest) = log.rsplit_once("Collected : ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// System calls per request, by name.
fn calls(
    bench: &Bench,
    target: &Target<'_>,
    variant: &Variant,
) -> Result<BTreeMap<String, f64>, String> {
    let server = start(bench, target, variant, &[])?;
    let (request, expect) = target.probe()?;
    exchange(target.what, &request, &expect, CONNECTIONS, WARM_UP)?;
    let requests = counted(&expect);
    let summary = bench.directory.join("strace");
    let trace = Trace::attach(&server.processes(), &summary)?;
    exchange(target.what, &request, &expect, CONNECTIONS, requests)?;
    trace.end()?;
    let text = fs::read_to_string(&summary).map_err(|error| error.to_string())?;
    let per_request = |(name, count): (String, u64)| (name, count as f64 / requests as f64);
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

fn start(
    bench: &Bench,
    target: &Target<'_>,
    variant: &Variant,
    wrapper: &[String],
) -> Result<Server, String> {
    let _ = fs::remove_dir_all(bench.cache());
    let directory = bench.directory.join("server");
    let setup = target.setup(bench);
    let wrapper = [wrapper, &bench.wrapper(variant.side, target.what.workers)].concat();
    Server::start_under(&wrapper, bench.binary(variant.side), &directory, &setup, variant)
}

/// Sends so many requests, on so many connections at a time, and compares the length of each
/// response.
fn exchange(
    what: &Throughput,
    request: &[u8],
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
        for stream in &mut streams[..batch] {
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
        let log = "==1== Events    : Ir\n==1== Collected : 123456\n==1==\n";
        assert_eq!(collected(log), Some(123_456));
        assert_eq!(collected("==1== Fatal"), None);
    }
}
