//! The scripted client over HTTP/2: several streams at once, each with its own habit.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nowait_h2::client::{self, ClientSide};
use nowait_h2::frame::{FrameHeader, PREFACE};
use nowait_h2::{ErrorCode, Flags, FrameType, Limits, StreamId};
use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::time::timeout;
use nowait_runtime::{sim, sleep, spawn};

use super::ask::{Ask, Response};
use super::client::{Excuses, Score};
use super::link::{End, Half, Link};
use super::origin;
use super::serve::Server;
use super::wire::{PATIENCE, field};

/// How a client treats its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    /// It asks, reads, asks again.
    Good,
    /// It leaves in the middle of answers.
    Leaving,
    /// It never completes a frame.
    Stalling,
    /// It breaks the rules of the protocol after its requests.
    Violating,
}

/// How a client treats a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// It takes what arrives.
    Prompt,
    /// It opens windows late, and little by little.
    Late,
    /// It resets the stream after a while.
    Resetting,
    /// It never opens a window again.
    Stuck,
}

/// What became of a request.
enum Fate {
    /// The answer is complete.
    Complete { hit: bool },
    /// There is a reason why it is not.
    Excused,
}

/// Runs a client on a connection.
///
/// # Errors
/// What was wrong.
pub async fn run(
    server: Rc<Server>,
    number: u16,
    stream: Rc<Stream>,
    excuses: Excuses,
) -> Result<Score, String> {
    use Manners::*;
    let all = [Good, Good, Good, Good, Leaving, Stalling, Violating];
    let manners = all[sim::random(all.len() as u64) as usize];
    let windows = [0, 1000, 65_535, 65_535, 1 << 20];
    let limits = Limits {
        stream_window: windows[sim::random(windows.len() as u64) as usize],
        connection_window: [65_535, 1 << 20, u32::MAX][sim::random(3) as usize],
        idle_frames_max: u32::MAX,
        list_bytes_max: 1 << 20,
        ..Limits::default()
    };
    if manners == Stalling {
        return stall(&stream, number).await;
    }
    let count = 1 + sim::random(12);
    sim::note(format_args!(
        "client {number}: HTTP/2, {manners:?}, {count} requests, window {}",
        limits.stream_window
    ));
    // A stream that keeps the connection's window would stop all others.
    let stuck = limits.connection_window > 65_535;
    let link = Link::start(stream, client::ClientConnection::new(limits), Vec::new());
    let leaves = Leaves(link.clone());
    let begun = sim::random(2000);
    let asks: Vec<_> = (0..count)
        .map(|at| {
            let ask = Ask::draw(number, at);
            let (server, link) = (server.clone(), link.clone());
            spawn(async move {
                sleep(Duration::from_millis(sim::random(begun + 1))).await;
                let label = format!("client {number}, request {at}: {}", ask.target);
                one(&server, &link, &ask, stuck, excuses, &label).await
            })
        })
        .collect();
    let mut score = Score::default();
    if manners == Leaving {
        sleep(Duration::from_millis(sim::random(3000))).await;
        link.leave();
    }
    for ask in asks {
        match ask.await.map_err(|_| "a request panicked".to_owned())? {
            Ok(Fate::Complete { hit }) => {
                score.complete += 1;
                score.over_http2 += 1;
                score.hits += u64::from(hit);
            }
            Ok(Fate::Excused) => score.excused += 1,
            Err(_) if manners == Leaving => score.excused += 1,
            Err(wrong) => return Err(wrong),
        }
    }
    let closes = || async {
        let closed = async {
            while link.end().is_none() {
                link.changed().await;
            }
        };
        timeout(PATIENCE, closed).await.map_err(|_| format!("client {number}: not closed"))
    };
    if manners == Violating {
        // DATA belongs to a stream.
        let stream = StreamId::CONNECTION;
        let header = FrameHeader { length: 0, kind: FrameType::Data, flags: Flags::NONE, stream };
        let was = link.goaway();
        link.write(|_, out| out.extend_from_slice(&header.octets()));
        closes().await?;
        let told = link.goaway() == Some(ErrorCode::PROTOCOL_ERROR);
        if was.is_none() && !told && !excuses.resets && !excuses.closes_unread {
            return Err(format!("client {number}: no GOAWAY tells of its fault"));
        }
    } else if manners == Good {
        match sim::random(3) {
            // The server closes idle connections, and says so.
            0 => {
                closes().await?;
                if link.is_settled() && link.goaway().is_none() && !excuses.resets {
                    return Err(format!("client {number}: closed without GOAWAY"));
                }
            }
            1 => {
                link.shutdown_write();
                closes().await?;
            }
            _ => {}
        }
    }
    drop(leaves);
    match link.end() {
        Some(End::Malformed(what)) => Err(format!("client {number}: malformed: {what}")),
        _ => Ok(score),
    }
}

/// Leaves a connection however its client ends.
struct Leaves(Rc<Link<ClientSide>>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Sends less than a frame.
async fn stall(stream: &Stream, number: u16) -> Result<Score, String> {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let headers = [0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x86];
    let whole = [PREFACE, &settings[..], &headers[..]].concat();
    // Without the last three bytes it is no request.
    let part = whole[..1 + sim::random(whole.len() as u64 - 4) as usize].to_vec();
    sim::note(format_args!("client {number}: HTTP/2, stops after {} bytes", part.len()));
    let _ = stream.send(Bytes::from(part), SendOptions::new(PATIENCE)).await;
    loop {
        match stream.recv(PATIENCE).await {
            Ok(data) if !data.is_empty() => {}
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                return Err(format!("client {number}: it stalls, and is not timed out"));
            }
            _ => return Ok(Score::default()),
        }
    }
}

/// Asks until there is an answer, or a reason for none.
async fn one(
    server: &Server,
    link: &Link<ClientSide>,
    ask: &Ask,
    stuck: bool,
    excuses: Excuses,
    label: &str,
) -> Result<Fate, String> {
    use Habit::*;
    let all = [Prompt, Prompt, Prompt, Late, Late, Resetting, Stuck];
    let habits = if stuck { &all[..] } else { &all[..all.len() - 1] };
    let habit = habits[sim::random(habits.len() as u64) as usize];
    let urgency = (sim::random(2) == 0).then(|| format!("u={}, i", sim::random(8)));
    let label = format!("{label} ({habit:?})");
    loop {
        while link.can_open() == 0 && link.takes_streams() {
            let opens = timeout(PATIENCE, link.changed()).await;
            opens.map_err(|_| format!("{label}: no stream ends"))?;
        }
        let request = client::RequestControl {
            method: ask.method.as_bytes(),
            scheme: b"http",
            authority: b"sim",
            path: ask.target.as_bytes(),
            protocol: None,
        };
        let (since, faults) = (server.generation(), sim::disk_faults());
        let departures = origin::departures();
        let opened = link.open(&request, ask.body.is_empty(), |head| {
            for (name, value) in ask.fields() {
                head.field(name.as_bytes(), value.as_bytes());
            }
            if let Some(urgency) = &urgency {
                head.field(b"priority", urgency.as_bytes());
            }
        });
        let Some(id) = opened else {
            if !link.takes_streams() {
                return Ok(Fate::Excused);
            }
            continue;
        };
        sim::note(format_args!("{label}: stream {id}"));
        let half = exchange(link, id, ask, habit).await.map_err(|why| format!("{label}: {why}"))?;
        let faulty = sim::disk_faults() > faults;
        if half.ended {
            let generations = since..=server.generation();
            let unavailable = faulty
                || excuses.loses(ask)
                || excuses.resets && ask.is_proxied
                || origin::departures() > departures && ask.is_proxied;
            return complete(ask, half, &generations, unavailable)
                .map_err(|wrong| format!("{label}: {wrong}"));
        }
        sim::note(format_args!("{label}: stream {id}: {:?}", half.reset));
        let unprocessed = half.reset == Some(ErrorCode::REFUSED_STREAM);
        if unprocessed && half.status.is_none() {
            if link.takes_streams() {
                continue;
            }
            return Ok(Fate::Excused);
        }
        let excused = excuses.resets
            || faulty
            || ask.may_break
            || matches!(habit, Resetting | Stuck)
            // It has not even read the preface.
            || half.reset.is_none() && server.is_stopped() && !link.is_settled()
            // The last answers may be lost with what the server did not read.
            || half.reset.is_none() && excuses.closes_unread && link.goaway().is_some();
        return match excused {
            true => Ok(Fate::Excused),
            false => Err(format!("{label}: stream {id} ends with {:?}", half.reset)),
        };
    }
}

/// Sends the body, and receives until the stream ends, in any way.
async fn exchange(
    link: &Link<ClientSide>,
    id: StreamId,
    ask: &Ask,
    habit: Habit,
) -> Result<Half, String> {
    let mut body = &ask.body[..];
    let patience = nowait_runtime::now() + PATIENCE;
    if habit == Habit::Resetting {
        sleep(Duration::from_millis(sim::random(2000))).await;
        if !link.half(id).ended {
            sim::note(format_args!("stream {id} is reset"));
            link.write(|h2, _| h2.reset(id, ErrorCode::CANCEL));
            return Ok(Half::default());
        }
    }
    loop {
        let half = link.half(id);
        if half.ended || half.reset.is_some() || link.end().is_some() {
            return Ok(half);
        }
        if nowait_runtime::now() > patience {
            return Err("forgotten".to_owned());
        }
        if !body.is_empty() {
            let sent = link.content(id, body, 1 + sim::random(30_000) as usize, true);
            body = &body[sent..];
            if sent > 0 {
                if sim::random(4) == 0 {
                    sleep(Duration::from_millis(sim::random(400))).await;
                }
                continue;
            }
        }
        match habit {
            Habit::Stuck => {}
            Habit::Late if sim::random(2) == 0 => {
                sleep(Duration::from_millis(sim::random(2000))).await;
                link.take(id, 1 + sim::random(50_000) as usize);
                link.write(|h2, _| h2.grow_window(id, 1 + sim::random(40_000) as u32));
            }
            _ => {
                if half.held > 0 {
                    link.take(id, half.held);
                }
                link.write(|h2, _| h2.grow_window(id, 20_000));
            }
        }
        let now = link.half(id);
        let changed = now.ended || now.reset.is_some() || now.body.len() != half.body.len();
        if !changed && (now.held == 0 || habit == Habit::Stuck) && link.end().is_none() {
            // A window may have opened before.
            let wait = if body.is_empty() { PATIENCE } else { Duration::from_secs(1) };
            let _ = timeout(wait, link.changed()).await;
        }
    }
}

/// Checks a complete answer. `unavailable`: the origin, or a disk, may not have been there.
fn complete(
    ask: &Ask,
    half: Half,
    generations: &std::ops::RangeInclusive<u64>,
    unavailable: bool,
) -> Result<Fate, String> {
    let status = half.status.ok_or("no head")?;
    let head = format!("HTTP/2 {status}\r\n{}\r\n", half.head);
    let generation = field(&head, "x-generation").and_then(|number| number.parse().ok());
    let Some(generation) = generation else { return Err(format!("no generation in {head}")) };
    if !generations.contains(&generation) {
        return Err(format!("generation {generation}, not of {generations:?}"));
    }
    let hit = field(&head, "x-cache") == Some("HIT");
    let response = Response { status, head, body: half.body };
    match ask.check(generation, &response) {
        Ok(()) => Ok(Fate::Complete { hit }),
        Err(_) if unavailable && matches!(status, 500 | 502 | 504) => Ok(Fate::Excused),
        Err(wrong) => Err(format!("{wrong}\n{}", response.head)),
    }
}
