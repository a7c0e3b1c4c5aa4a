//! The speed of one large transfer over an emulated path, beside what TCP reaches on the same path.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::throughput::{random_bytes, write_file};
use crate::bench::{Bench, Subject, variant};
use crate::encrypted::{self, EncryptedLoad, Protocol};
use crate::floor::FloorKind;
use crate::path::{FAR, Path, PathOptions, SERVER};
use crate::quic::{self, QuicLoad};
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ServerProcess, Setup, Side, Variant};
use crate::tls::{self, KeyType, TlsConnection};

const BYTES: usize = 20_000_000;
/// A download is cut off then; what has come counts.
const LIMIT: Duration = Duration::from_secs(20);
/// An upload ends with its response.
const UPLOAD_LIMIT: Duration = Duration::from_secs(120);
const MTU: usize = 1500;
/// A round takes long: more say little more.
const ROUNDS_MAX: usize = 5;

const UPLOAD: &str = "location = /upload { client_max_body_size 0; proxy_pass http://origin; \
                      proxy_http_version 1.1; proxy_set_header Connection \"\"; }";

/// A path, and the direction.
#[derive(Clone, Copy)]
pub struct Goodput {
    /// In milliseconds.
    pub round_trip: u64,
    pub mbit: u64,
    /// Packets lost, in percent.
    pub percent: f64,
    pub upload: bool,
}

/// What carries the transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// HTTP/2, or for uploads HTTP/1.1, which has no windows of its own.
    Tcp,
    Quic,
}

impl Goodput {
    fn options(&self) -> PathOptions {
        PathOptions {
            round_trip: Duration::from_millis(self.round_trip),
            bits_per_second: self.mbit * 1_000_000,
            loss: self.percent / 100.0,
            mtu: MTU,
        }
    }

    /// Megabytes per second, and of every 100 packets of a client those that were lost.
    fn transfer(&self, carrier: Carrier) -> Result<(f64, f64), String> {
        let path = if self.upload { "/upload".to_owned() } else { format!("/{BYTES}.bin") };
        let speed = |bytes: u64, time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
        match carrier {
            Carrier::Tcp if self.upload => Ok((speed(BYTES as u64, upload_by_tcp(&path)?), 0.0)),
            Carrier::Tcp => {
                let load = EncryptedLoad {
                    target: FAR,
                    protocol: Protocol::Http2,
                    path: &path,
                    body_bytes: BYTES as u64,
                    connections: 1,
                    streams: 1,
                };
                let (time, bytes) = encrypted::transfer(&load, LIMIT)?;
                Ok((speed(bytes, time), 0.0))
            }
            Carrier::Quic => {
                let load = QuicLoad {
                    target: FAR,
                    path: &path,
                    body_bytes: if self.upload { "OK".len() } else { BYTES } as u64,
                    upload_bytes: self.upload.then_some(BYTES as u64),
                    connections: 1,
                    streams: 1,
                };
                let limit = if self.upload { UPLOAD_LIMIT } else { LIMIT };
                let seen = quic::transfer(&load, limit)?;
                let lost = 100.0 * seen.lost_packets as f64 / seen.sent_packets.max(1) as f64;
                Ok((speed(seen.bytes, seen.time), lost))
            }
        }
    }
}

/// Sends a request with content over TLS, and awaits the response.
fn upload_by_tcp(path: &str) -> Result<Duration, String> {
    let failed = |error: std::io::Error| error.to_string();
    let socket = TcpStream::connect(FAR).map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    socket.set_read_timeout(Some(UPLOAD_LIMIT)).map_err(failed)?;
    let mut connection = TlsConnection::over(socket, &tls::client(false)).map_err(failed)?;
    let begin = Instant::now();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BYTES}\r\n\r\n");
    connection.write_all(head.as_bytes()).map_err(failed)?;
    connection.write_all(&vec![0; BYTES]).map_err(failed)?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\nOK") {
        let mut buffer = [0; 1024];
        match connection.read(&mut buffer).map_err(failed)? {
            0 => return Err("the server has closed the connection".to_owned()),
            read => response.extend_from_slice(&buffer[..read]),
        }
    }
    match response.starts_with(b"HTTP/1.1 200") {
        true => Ok(begin.elapsed()),
        false => Err(String::from_utf8_lossy(&response).into_owned()),
    }
}

/// Both servers by both protocols.
fn variants(bench: &Bench) -> Vec<(Variant, Carrier)> {
    let mut sides = vec![("nginx".to_owned(), Side::Nginx, "")];
    if let Some((name, events)) = bench.drivers().into_iter().next() {
        sides.push((name.clone(), Side::Nowait, events));
        if bench.options.against.is_some() {
            sides.push((format!("against: {name}"), Side::Against, events));
        }
    }
    let both = |(name, side, events): (String, Side, &str)| {
        [("TCP", Carrier::Tcp), ("HTTP/3", Carrier::Quic)].map(|(protocol, carrier)| {
            (variant(&format!("{name} {protocol}"), side, events, ""), carrier)
        })
    };
    sides.into_iter().flat_map(both).collect()
}

/// Measures it.
pub fn run(bench: &Bench, scenario: &Subject, what: &Goodput) -> Result<ScenarioResult, String> {
    let path = bench.directory.join("www").join(format!("{BYTES}.bin"));
    write_file(&path, random_bytes(BYTES))?;
    let certificate = tls::certificate(&bench.directory, KeyType::Ecdsa)?;
    let server = format!("listen {SERVER} ssl http2; listen {SERVER} quic; {UPLOAD}");
    let http = format!("{} {}", certificate.lines(), bench.upstream());
    let setup = Setup { server, http, ..bench.setup(1) };
    // Held to the end: it answers.
    let _origin = what.upload.then(|| bench.application(FloorKind::Sink)).transpose()?;
    let variants = variants(bench);
    let mut samples: Vec<Samples> =
        variants.iter().map(|(v, _)| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds.min(ROUNDS_MAX) {
        for ((variant, carrier), samples) in variants.iter().zip(&mut samples) {
            let seed = round as u64 + 1;
            match measure(bench, &setup, what, variant, *carrier, seed) {
                Ok((speed, lost)) => {
                    let text = format!("{speed:8.3} MB/s  {lost:.1} % lost by the client");
                    bench.progress(scenario, round, &variant.label, &text);
                    samples.push(speed, &[]);
                }
                Err(error) => {
                    bench.progress(scenario, round, &variant.label, &format!("FAILED: {error}"));
                }
            }
        }
    }
    let mut outcome = bench.outcome(scenario, "MB/s", Better::Higher);
    outcome.fill(&samples, None);
    Ok(outcome)
}

fn measure(
    bench: &Bench,
    setup: &Setup,
    what: &Goodput,
    variant: &Variant,
    carrier: Carrier,
    seed: u64,
) -> Result<(f64, f64), String> {
    let _path = Path::new(what.options(), seed)?;
    let directory = bench.directory.join("server");
    let server = ServerProcess::start(bench.binary(variant.side), &directory, setup, variant)?;
    what.transfer(carrier).map_err(|error| format!("{error} {}", server.log()))
}
