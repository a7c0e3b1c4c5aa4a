//! Requests at fixed times, no matter what the server does: for latencies.
//!
//! A generator that waits for one response before it sends the next request sends fewest requests
//! when the server is slowest, and so hides what it should measure. Here every request has its
//! time, and its latency counts from that time, also when no connection was free for it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Until the first request is due: all connections are open then.
pub const CONNECTING: Duration = Duration::from_millis(200);

/// Longer waits are counted as this long.
const LATENCY_MAX: Duration = Duration::from_secs(60);
/// A response that takes longer is a failure.
const TIMEOUT: Duration = Duration::from_secs(30);
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A stream of requests of its own rate.
pub struct PacedStream<'a> {
    /// Requests per second, evenly spaced.
    pub rate: f64,
    /// Connections that carry them: as many can wait at a time.
    pub connections: usize,
    /// The texts of the requests and the lengths of the bodies that answer them; taken in turn.
    pub requests: &'a [(Vec<u8>, usize)],
    /// The request to begin with.
    pub first: u64,
}

/// What a stream saw.
pub struct StreamResult {
    /// From the time when the request was due to the last byte of its response, in microseconds.
    pub latency: Histogram<u64>,
    /// Responses other than a 200 of the expected length, and connections that broke.
    pub failures: u64,
}

impl StreamResult {
    fn new() -> StreamResult {
        let micros = LATENCY_MAX.as_micros() as u64;
        let latency = Histogram::new_with_max(micros, 3).expect("constant bounds are valid");
        StreamResult { latency, failures: 0 }
    }

    /// A percentile of the latency in milliseconds.
    pub fn ms_at(&self, percent: f64) -> f64 {
        self.latency.value_at_percentile(percent) as f64 / 1e3
    }
}

/// A connection.
pub trait PacedSocket: Read + Write {}

impl<S: Read + Write> PacedSocket for S {}

/// Opens a connection.
pub type Connect<'a> = &'a (dyn Fn() -> std::io::Result<Box<dyn PacedSocket>> + Sync);

/// A connection without encryption.
///
/// # Errors
/// Those of the socket.
pub fn plain(target: SocketAddr) -> std::io::Result<Box<dyn PacedSocket>> {
    let new = TcpStream::connect_timeout(&target, TIMEOUT)?;
    new.set_read_timeout(Some(TIMEOUT))?;
    new.set_nodelay(true)?;
    Ok(Box::new(new))
}

/// Runs streams side by side for `length`; ends when their last responses have come.
pub fn run(
    connect: Connect<'_>,
    streams: &[PacedStream<'_>],
    length: Duration,
) -> Vec<StreamResult> {
    let begin = Instant::now() + CONNECTING;
    std::thread::scope(|scope| {
        let running: Vec<Vec<_>> = streams
            .iter()
            .map(|stream| {
                let next = std::sync::Arc::new(AtomicU64::new(0));
                let client = |_| {
                    let next = next.clone();
                    scope.spawn(move || client(connect, stream, &next, begin, length))
                };
                (0..stream.connections).map(client).collect()
            })
            .collect();
        running
            .into_iter()
            .map(|clients| {
                clients.into_iter().fold(StreamResult::new(), |mut all, client| {
                    let one = client.join().expect("a client thread does not panic");
                    all.failures += one.failures;
                    all.latency.add(&one.latency).expect("all histograms have the same bounds");
                    all
                })
            })
            .collect()
    })
}

/// One connection: takes the next request that is due until the time is over.
fn client(
    connect: Connect<'_>,
    stream: &PacedStream<'_>,
    next: &AtomicU64,
    begin: Instant,
    length: Duration,
) -> StreamResult {
    let mut seen = StreamResult::new();
    // A request that finds none tries again, and reports why.
    let mut socket = connect().ok();
    let mut buffer = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let at = Duration::from_secs_f64(number as f64 / stream.rate);
        if at >= length {
            return seen;
        }
        let due = begin + at;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let at = (stream.first + number) % stream.requests.len() as u64;
        let (request, body_bytes) = &stream.requests[at as usize];
        match exchange(connect, &mut socket, request, *body_bytes, &mut buffer) {
            Ok(()) => {
                let micros = due.elapsed().min(LATENCY_MAX).as_micros() as u64;
                seen.latency.saturating_record(micros);
            }
            Err(_) => {
                seen.failures += 1;
                socket = None;
            }
        }
    }
}

/// Sends a request on the connection, which is opened when there is none, and reads the response.
fn exchange(
    connect: Connect<'_>,
    socket: &mut Option<Box<dyn PacedSocket>>,
    request: &[u8],
    body_bytes: usize,
    buffer: &mut Vec<u8>,
) -> std::io::Result<()> {
    let socket = match socket {
        Some(socket) => socket,
        None => socket.insert(connect()?),
    };
    socket.write_all(request)?;
    buffer.clear();
    buffer.resize(HEAD_BYTES_MAX + body_bytes, 0);
    let mut filled = 0;
    let head_bytes = loop {
        let read = socket.read(&mut buffer[filled..])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        let end = buffer[..filled.min(HEAD_BYTES_MAX)].windows(4).position(|w| w == b"\r\n\r\n");
        match end {
            Some(at) => break at + 4,
            None if filled >= HEAD_BYTES_MAX => return Err(std::io::ErrorKind::InvalidData.into()),
            None => {}
        }
    };
    let total = head_bytes + body_bytes;
    if !buffer.starts_with(b"HTTP/1.1 200") || filled > total {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    socket.read_exact(&mut buffer[filled..total])
}
