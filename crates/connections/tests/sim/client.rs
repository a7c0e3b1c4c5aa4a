//! The scripted client: connects, asks as the seed says, and checks every answer.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::{sim, sleep, spawn};

use super::ask::{Ask, Response};
use super::serve::Server;
use super::wire::{Broken, PATIENCE, Reader, field};
use super::{ADDRESS, SECURE_ADDRESS, client_http2, origin, tls};

/// What excuses an incomplete answer, besides what the request asked for.
#[derive(Clone, Copy, Debug)]
pub struct Excuses {
    /// The network resets connections.
    pub resets: bool,
    /// The server closes connections without reading what else the client sends, which resets them
    /// and may cost the client the last answers.
    pub closes_unread: bool,
    /// Large uploads are lost if an origin over HTTP/2 refuses them.
    pub streams_uploads: bool,
}

impl Excuses {
    /// Whether an origin may have refused a request that can't be sent again.
    pub fn loses(&self, ask: &Ask) -> bool {
        self.streams_uploads && ask.body.len() > 65_536
    }
}

/// What happened to one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// Complete answers.
    pub complete: u64,
    /// Answers that are incomplete for a reason.
    pub excused: u64,
    /// Answers from the cache.
    pub hits: u64,
    /// Complete answers over HTTP/2.
    pub over_http2: u64,
    /// Complete answers with TLS.
    pub over_tls: u64,
    /// Connections with TLS that origins have accepted.
    pub origins_over_tls: u64,
    /// Complete answers over HTTP/1.1 by FastCGI, uwsgi and SCGI.
    pub by_gateways: u64,
}

impl Score {
    pub fn add(&mut self, other: Score) {
        self.complete += other.complete;
        self.excused += other.excused;
        self.hits += other.hits;
        self.over_http2 += other.over_http2;
        self.over_tls += other.over_tls;
        self.origins_over_tls += other.origins_over_tls;
        self.by_gateways += other.by_gateways;
    }
}

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    /// It asks, reads, asks again.
    Good,
    /// Like `Good`, but takes its time to read.
    Slow,
    /// It ends its side after its last request.
    HalfClosing,
    /// It leaves in the middle of an answer.
    Leaving,
    /// It never completes its head.
    Stalling,
    /// It sends all its requests at once.
    Pipelining,
}

/// Runs a client.
///
/// # Errors
/// What was wrong.
pub async fn run(server: Rc<Server>, number: u16, excuses: Excuses) -> Result<Score, String> {
    let score = Score::default();
    let from = SocketAddr::from(([203, 0, 113, (number % 4) as u8], 1024 + number));
    let secure = sim::random(2) == 0;
    let address = if secure { SECURE_ADDRESS } else { ADDRESS };
    let stream = match sim::connect(from, address, Duration::from_secs(60)).await {
        Ok(stream) => Rc::new(stream),
        Err(error) if server.is_stopped() => {
            sim::note(format_args!("client {number}: {error}"));
            return Ok(score);
        }
        Err(error) => return Err(format!("connect: {error}")),
    };
    let http2 = sim::random(2) == 0;
    if secure && let Err(failure) = tls::connect(&stream, server.pool(), http2).await {
        // Threads may hang, and a server that ends accepts no more.
        if excuses.resets || sim::disk_faults() > 0 || server.is_stopped() {
            sim::note(format_args!("client {number}: handshake: {failure}"));
            return Ok(score);
        }
        return Err(format!("client {number}: handshake: {failure}"));
    }
    let mut score = match http2 {
        true => client_http2::run(server, number, stream, excuses).await,
        false => run_http1(server, number, stream, excuses).await,
    }?;
    score.over_tls = if secure { score.complete } else { 0 };
    Ok(score)
}

/// Runs a client of HTTP/1.1 on a connection.
async fn run_http1(
    server: Rc<Server>,
    number: u16,
    stream: Rc<Stream>,
    excuses: Excuses,
) -> Result<Score, String> {
    use Manners::*;
    let mut score = Score::default();
    let all = [Good, Good, Good, Slow, HalfClosing, Leaving, Stalling, Pipelining];
    let manners = all[sim::random(all.len() as u64) as usize];
    let mut asks: Vec<Ask> = (0..1 + sim::random(6)).map(|at| Ask::draw(number, at)).collect();
    if manners == HalfClosing {
        asks.truncate(1);
    }
    sim::note(format_args!("client {number}: {manners:?}, {} requests", asks.len()));
    let mut reader = Reader::new(stream.clone());
    if manners == Slow {
        reader.pause_max = Duration::from_millis(1500);
    }
    if manners == Stalling {
        let _ = stream.send(Bytes::from("GET /files/one HTTP/1.1\r\nHo"), options()).await;
        return match reader.head().await {
            Err(Broken::Forgotten) => Err("a client that stalls is not timed out".to_owned()),
            _ => Ok(score),
        };
    }
    let mut sending = None;
    if manners == Pipelining {
        let all: Vec<u8> = asks.iter().flat_map(|ask| ask.bytes(false)).collect();
        let stream = stream.clone();
        sending = Some(spawn(async move { drop(send(&stream, all).await) }));
    }
    let count = asks.len();
    for (at, ask) in asks.into_iter().enumerate() {
        let label = format!("client {number}, request {at} ({manners:?}): {}", ask.target);
        let before = server.generation();
        let faults = sim::disk_faults();
        let departures = if manners == Pipelining { 0 } else { origin::departures() };
        sim::note(format_args!("client {number}: {} {}", ask.method, ask.target));
        if manners != Pipelining {
            // The server may answer, and even close, before it has everything.
            if let Some(sending) = sending.take() {
                let _ = sending.await;
            }
            let (bytes, stream) = (ask.bytes(false), stream.clone());
            let send = async move {
                let _ = send(&stream, bytes).await;
                if manners == HalfClosing {
                    let _ = stream.shutdown_write();
                }
            };
            match ask.body.is_empty() {
                true => send.await,
                false => sending = Some(spawn(send)),
            }
        }
        if manners == Leaving && at + 1 == count {
            for _ in 0..sim::random(4) {
                let _ = reader.more().await;
            }
            return Ok(score);
        }
        let received = receive(&mut reader, ask.method).await;
        // The first generation of a pipelined request is the one at its arrival.
        let since = if manners == Pipelining { 1 } else { before };
        let faulty = sim::disk_faults() > faults || manners == Pipelining && faults > 0;
        let response = match received {
            Ok(response) => response,
            Err(Broken::Forgotten) => return Err(format!("{label}: forgotten")),
            Err(Broken::Malformed(what)) => return Err(format!("{label}: malformed {what}")),
            Err(broken) => {
                let excused = excuses.resets
                    || faulty
                    || ask.may_break
                    // Like nginx, the server takes a client that ends its side for gone.
                    || manners == HalfClosing
                    || excuses.closes_unread
                        && (manners == Pipelining || !ask.body.is_empty())
                    || broken == Broken::Nothing && (at > 0 || server.is_stopped());
                if !excused {
                    return Err(format!("{label}: {broken:?}"));
                }
                sim::note(format_args!("client {number}: {broken:?}"));
                score.excused += 1;
                return Ok(score);
            }
        };
        sim::note(format_args!("client {number}: {}", response.status));
        let generation = field(&response.head, "x-generation").and_then(|n| n.parse().ok());
        let Some(generation) = generation else {
            return Err(format!("{label}: no generation in {}", response.head));
        };
        if !(since..=server.generation()).contains(&generation) {
            return Err(format!("{label}: generation {generation}, not from {since} on"));
        }
        score.hits += u64::from(field(&response.head, "x-cache") == Some("HIT"));
        let unavailable = matches!(response.status, 500 | 502 | 504);
        match ask.check(generation, &response) {
            Ok(()) => {
                score.complete += 1;
                score.by_gateways += u64::from(field(&response.head, "x-own").is_some());
            }
            Err(_) if unavailable && excuses.loses(&ask) => score.excused += 1,
            Err(_) if unavailable && ask.is_proxied && origin::departures() > departures => {
                score.excused += 1;
            }
            Err(_) if unavailable && (faulty || excuses.resets && ask.is_proxied) => {
                score.excused += 1;
            }
            Err(wrong) => {
                return Err(format!("{label}: {wrong}\n{}", response.head));
            }
        }
        if field(&response.head, "connection").is_some_and(|value| value == "close") {
            while reader.more().await.map_err(|broken| format!("{label}: {broken:?}"))? {}
            return Ok(score);
        }
        if sim::random(4) == 0 && manners != Pipelining {
            sleep(Duration::from_millis(sim::random(3000))).await;
        }
    }
    drop(sending);
    if sim::random(3) == 0 {
        // The server closes idle connections.
        reader.pause_max = Duration::ZERO;
        while reader.more().await.map_err(|broken| format!("client {number}: {broken:?}"))? {}
    }
    Ok(score)
}

fn options() -> SendOptions {
    SendOptions::new(PATIENCE)
}

/// Sends in pieces, with pauses.
async fn send(stream: &Stream, data: Vec<u8>) -> std::io::Result<()> {
    let mut data = Bytes::from(data);
    while !data.is_empty() {
        let most = data.len() as u64;
        let piece = if sim::random(2) == 0 { most } else { 1 + sim::random(most) };
        stream.send(data.split_to(piece as usize), options()).await?;
        if sim::random(4) == 0 {
            sleep(Duration::from_millis(sim::random(400))).await;
        }
    }
    Ok(())
}

async fn receive(reader: &mut Reader, method: &str) -> Result<Response, Broken> {
    let head = reader.head().await?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let Some(status) = status else { return Err(Broken::Malformed(head)) };
    if (100..200).contains(&status) {
        return Box::pin(receive(reader, method)).await;
    }
    let body = match method == "HEAD" || status == 304 || status == 204 {
        true => Vec::new(),
        false => reader.body(&head, true).await?,
    };
    Ok(Response { status, head, body })
}
