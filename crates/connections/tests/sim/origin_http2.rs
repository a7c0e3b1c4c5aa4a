//! The scripted origin over HTTP/2: each stream is answered when it likes, so in any order.

use std::rc::Rc;
use std::time::Duration;

use nowait_h2::server::{self, ServerSide};
use nowait_h2::{ErrorCode, Limits, StreamId};
use nowait_runtime::net::Stream;
use nowait_runtime::{sim, sleep, spawn};

use super::link::{End, Link};
use super::origin::{Asked, Manner, Memory, note_departure};
use super::wire::field;

/// Serves a connection whose client begins with these bytes.
///
/// # Panics
/// If the client violates the protocol.
pub async fn serve(stream: Rc<Stream>, early: Vec<u8>, memory: Rc<Memory>) {
    let limits = Limits {
        concurrent_streams: [1, 3, 100][sim::random(3) as usize],
        stream_window: [0, 1000, 65_535, 65_536][sim::random(4) as usize],
        connection_window: [65_535, 1 << 20][sim::random(2) as usize],
        header_table_size: [0, 4096][sim::random(2) as usize],
        idle_frames_max: u32::MAX,
        resets_max: u32::MAX,
        refused_max: u32::MAX,
        ..Limits::default()
    };
    let link = Link::start(stream, server::ServerConnection::new(limits), early);
    while let Some(id) = link.request().await {
        drop(spawn(answer(link.clone(), id, memory.clone())));
    }
    if let Some(End::Malformed(what)) = link.end() {
        panic!("the proxy has violated the protocol: {what}");
    }
}

async fn answer(link: Rc<Link<ServerSide>>, id: StreamId, memory: Rc<Memory>) {
    let head = format!("\r\n{}", link.half(id).head);
    // The value of a pseudo-field, whose name has a colon.
    let target = head.lines().find_map(|line| line.strip_prefix(":path: ")).unwrap_or_default();
    let asked = Asked::parse(target);
    let Some(Asked { manner, len, id: name }) = asked else {
        return link.write(|h2, _| h2.reset(id, ErrorCode::INTERNAL_ERROR));
    };
    sim::note(format_args!("origin: {target} on stream {id}"));
    let attempt = memory.attempt(&name);
    if manner != Manner::Early && read(&link, id, &head).await.is_none() {
        return;
    }
    if sim::random(3) == 0 {
        sleep(Duration::from_millis(sim::random(800))).await;
    }
    let full = super::origin::body(&name, len);
    let length = len.to_string();
    let sized = [("content-length", &length[..])];
    match manner {
        // Streams above it may have been answered in part.
        Manner::Flaky if attempt == 1 && link.is_last(id) && sim::random(2) == 0 => {
            note_departure();
            link.go_away(StreamId::new(id.get().saturating_sub(2)));
        }
        Manner::Flaky if attempt == 1 => {
            link.write(|h2, _| h2.reset(id, ErrorCode::REFUSED_STREAM));
        }
        Manner::Plain | Manner::Flaky => send(&link, id, 200, &sized, &full, false, true).await,
        Manner::Slow => send(&link, id, 200, &sized, &full, true, true).await,
        Manner::Chunked => send(&link, id, 200, &[], &full, false, true).await,
        Manner::Echo => {
            let body = link.half(id).body;
            send(&link, id, 200, &[], &body, false, true).await;
        }
        Manner::Early => {
            send(&link, id, 200, &sized, &full, false, true).await;
            link.write(|h2, _| h2.reset(id, ErrorCode::NO_ERROR));
        }
        Manner::Error => send(&link, id, 503, &sized, &full, false, true).await,
        Manner::Close => {
            if link.is_last(id) {
                note_departure();
                link.go_away(id);
            }
            send(&link, id, 200, &[], &full, false, true).await;
        }
        Manner::Truncated => {
            let length = (len + 1).to_string();
            let sized = [("content-length", &length[..])];
            // Either side may notice.
            let ends = sim::random(2) == 0;
            send(&link, id, 200, &sized, &full, false, ends).await;
            if !ends {
                link.write(|h2, _| h2.reset(id, ErrorCode::INTERNAL_ERROR));
            }
        }
        Manner::Hang => {
            while is_wanted(&link, id) {
                link.changed().await;
            }
        }
        Manner::Garbage => {
            link.respond(id, 200, &[("content-length", "what?")], false);
        }
    }
}

/// Whether the stream is there.
fn is_wanted(link: &Link<ServerSide>, id: StreamId) -> bool {
    link.end().is_none() && link.half(id).reset.is_none()
}

/// Reads the body, with its window opened late.
async fn read(link: &Link<ServerSide>, id: StreamId, head: &str) -> Option<()> {
    loop {
        if !is_wanted(link, id) {
            return None;
        }
        let half = link.half(id);
        if half.ended {
            let announced = field(head, "content-length").map(|length| length.parse::<usize>());
            assert!(announced.is_none_or(|length| length == Ok(half.body.len())), "{head}");
            return Some(());
        }
        if sim::random(3) == 0 {
            sleep(Duration::from_millis(sim::random(1500))).await;
        }
        link.take(id, half.held);
        link.write(|h2, _| h2.grow_window(id, 1000 + sim::random(30_000) as u32));
        let waits = link.half(id).body.len() == half.body.len() && !link.half(id).ended;
        if waits && is_wanted(link, id) {
            link.changed().await;
        }
    }
}

/// Sends a response in frames of any size.
async fn send(
    link: &Link<ServerSide>,
    id: StreamId,
    status: u16,
    fields: &[(&str, &str)],
    mut body: &[u8],
    slow: bool,
    ends: bool,
) {
    if !is_wanted(link, id) {
        return;
    }
    link.respond(id, status, fields, false);
    loop {
        if !is_wanted(link, id) {
            return;
        }
        let max = if slow { body.len() / 3 + 1 } else { 1 + sim::random(20_000) as usize };
        let sent = link.content(id, body, max, ends);
        body = &body[sent..];
        if body.is_empty() {
            return;
        }
        if sent == 0 {
            link.changed().await;
        } else if slow {
            sleep(Duration::from_millis(sim::random(3000))).await;
        }
    }
}
