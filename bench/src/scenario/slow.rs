//! Memory of slow clients: those that have sent a part of a request's content, or have taken the
//! begin of a response, and then stay.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, sockopt};

use super::idle;
use crate::bench::{Bench, Subject};
use crate::paced::PacedSocket;
use crate::process;
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ADDRESS, ORIGIN, ServerProcess, Setup, Variant};
use crate::tls::{self, KeyType, TlsConnection};

/// Slow clients.
#[derive(Debug, Clone, Copy)]
pub struct Slow {
    pub work: SlowWork,
    pub tls: bool,
}

/// What slow clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowWork {
    /// Send a body that is passed on when it is complete.
    Upload,
    /// Take a proxied response that is read ahead of them.
    Proxied,
    /// Take a proxied response that is read as they take it.
    Unbuffered,
    /// Take an object of the disk cache.
    Cached,
    /// Take a file that is not sent by sendfile.
    File,
}

/// Clients opened and closed before the first look, so that lazily made tables exist.
const WARM_UP: usize = 50;

/// Bytes of the file, and of the body.
const LARGE_BYTES: usize = 1_000_000;

/// The client's kernel takes little of what its program does not read.
const RECEIVE_BUFFER_BYTES: usize = 4096;

/// What the server's kernel takes of a response: by default all of it fits, and nothing is left for
/// the server to hold.
const SEND_BUFFER: (&str, &str) = ("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 65536");

/// What is sent of a body, more than `client_body_buffer_size`, and in how many pieces.
const SENT_BYTES: usize = 20_000;
const PIECES: usize = 10;

/// Memory is taken for settled when it has not changed by 1 % for so long.
const QUIET: Duration = Duration::from_secs(1);
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// After the clients have left, a server has so long to give memory back.
const LEFT: Duration = Duration::from_secs(15);

pub fn run(
    bench: &Bench,
    scenario: &Subject,
    kind: Slow,
    clients: usize,
) -> Result<ScenarioResult, String> {
    idle::raise_limit(clients)?;
    let _kernel = SendBuffer::limit(bench)?;
    let file = bench.directory.join("www/slow");
    std::fs::write(&file, vec![b'x'; LARGE_BYTES]).map_err(|error| error.to_string())?;
    let variants = bench.plain_variants();
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds.min(3) {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let seen = measure(bench, variant, kind, clients)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            let each = seen.with.saturating_sub(seen.before) as f64 / clients as f64;
            let mb = |bytes: u64| bytes as f64 / (1 << 20) as f64;
            let text = format!(
                "{each:9.0} bytes each, {:.1} MB in all, {:.1} MB when they have left",
                mb(seen.with),
                mb(seen.left)
            );
            bench.progress(scenario, round, &variant.label, &text);
            let also =
                [("all processes MB", mb(seen.with)), ("MB after they have left", mb(seen.left))];
            samples.push(each, &also);
        }
    }
    let mut outcome = bench.outcome(scenario, "bytes per slow client", Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

/// A limit of the kernel's send buffers in our namespace, until it is dropped.
struct SendBuffer(String);

impl SendBuffer {
    fn limit(bench: &Bench) -> Result<SendBuffer, String> {
        if bench.options.in_place {
            return Err("slow clients are measured in a network namespace only".to_owned());
        }
        let (path, value) = SEND_BUFFER;
        let error = |error: std::io::Error| format!("{path}: {error}");
        let before = std::fs::read_to_string(path).map_err(error)?;
        std::fs::write(path, value).map_err(error)?;
        Ok(SendBuffer(before))
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        // The namespace ends with this program.
        let _ = std::fs::write(SEND_BUFFER.0, &self.0);
    }
}

/// Memory of the server, bytes.
struct MemoryUse {
    before: u64,
    with: u64,
    left: u64,
}

fn measure(
    bench: &Bench,
    variant: &Variant,
    kind: Slow,
    clients: usize,
) -> Result<MemoryUse, String> {
    // Held to the end: it answers.
    let _origin = bench.origin()?;
    let setup = setup(bench, kind)?;
    let _ = std::fs::remove_dir_all(bench.cache());
    let directory = bench.directory.join("server");
    let server = ServerProcess::start(bench.binary(variant.side), &directory, &setup, variant)?;

    if kind.work == SlowWork::Cached {
        crate::probe::fetch(ADDRESS, &crate::probe::request("/cached/slow", true))?;
    }
    drop(open(kind, WARM_UP)?);
    // The workers may be younger than the listening socket: they exist once they have answered.
    let pids = server.processes();
    let before = settled(&pids);
    let slow = open(kind, clients)?;
    let with = settled(&pids);
    drop(slow);
    std::thread::sleep(LEFT);
    let left = settled(&pids);
    Ok(MemoryUse { before, with, left })
}

fn setup(bench: &Bench, kind: Slow) -> Result<Setup, String> {
    let mut http = format!(
        "send_timeout 600s; client_body_timeout 600s;
    proxy_cache_path {} keys_zone=objects:1m use_temp_path=off;\n",
        bench.cache().display()
    );
    if kind.tls {
        http += &tls::certificate(&bench.directory, KeyType::Ecdsa)?.lines();
    }
    let server = format!(
        "location /proxied/ {{ proxy_pass http://{ORIGIN}/; }}
        location /unbuffered/ {{ proxy_buffering off; proxy_pass http://{ORIGIN}/; }}
        location /cached/ {{ proxy_cache objects; proxy_cache_valid 1h; proxy_pass http://{ORIGIN}/; }}
        location /read/ {{ alias {}/; sendfile off; }}",
        bench.setup(1).root.display()
    );
    let listen = if kind.tls { "ssl" } else { "" }.to_owned();
    Ok(Setup { server, http, listen, ..bench.setup(1) })
}

fn settled(pids: &[u32]) -> u64 {
    let begin = Instant::now();
    let mut last = process::memory_bytes(pids);
    loop {
        std::thread::sleep(QUIET);
        let memory = process::memory_bytes(pids);
        if memory.abs_diff(last) < last / 100 || begin.elapsed() > SETTLE_MAX {
            return memory;
        }
        last = memory;
    }
}

fn open(kind: Slow, clients: usize) -> Result<Vec<Box<dyn PacedSocket>>, String> {
    let config = tls::client(false);
    let connect = || -> std::io::Result<Box<dyn PacedSocket>> {
        let socket = connect()?;
        Ok(match kind.tls {
            true => Box::new(TlsConnection::over(socket, &config)?),
            false => Box::new(socket),
        })
    };
    let connected = (0..clients).map(|_| connect()).collect::<std::io::Result<Vec<_>>>();
    let mut streams = connected.map_err(|error| format!("connecting: {error}"))?;
    begin(kind.work, &mut streams).map_err(|error| format!("a client: {error}"))?;
    Ok(streams)
}

fn connect() -> std::io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    // Before the connection is made: the window depends on it.
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
    rustix::net::connect(&socket, &ADDRESS)?;
    Ok(TcpStream::from(socket))
}

/// Sends requests and what there is of their content, or reads until responses begin.
fn begin(work: SlowWork, streams: &mut [Box<dyn PacedSocket>]) -> std::io::Result<()> {
    let request = match work {
        SlowWork::Upload => format!(
            "POST /proxied/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE_BYTES}\r\n\r\n"
        )
        .into_bytes(),
        SlowWork::Proxied => crate::probe::request("/proxied/slow", false),
        SlowWork::Unbuffered => crate::probe::request("/unbuffered/slow", false),
        SlowWork::Cached => crate::probe::request("/cached/slow", false),
        SlowWork::File => crate::probe::request("/read/slow", false),
    };
    for stream in streams.iter_mut() {
        stream.write_all(&request)?;
    }
    if work != SlowWork::Upload {
        for stream in streams {
            let mut begin = [0; 12];
            stream.read_exact(&mut begin)?;
            if &begin != b"HTTP/1.1 200" {
                let text = String::from_utf8_lossy(&begin).into_owned();
                return Err(std::io::Error::other(text));
            }
        }
        return Ok(());
    }
    for _ in 0..PIECES {
        for stream in streams.iter_mut() {
            stream.write_all(&[b'x'; SENT_BYTES / PIECES])?;
        }
    }
    Ok(())
}
