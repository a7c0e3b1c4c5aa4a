//! Another protocol over both connections, after `101 Switching Protocols`. nginx:
//! `ngx_http_upstream_process_upgraded`.
//!
//! Each direction has one piece under way: who takes nothing stops the other side's sending. A side
//! that ends its sending has that passed on, and the other direction goes on. The tunnel ends with
//! both, or when nothing has come from either side for `read_timeout`; most upstreams that end their
//! sending are gone, so that then it is `lingering_timeout`. nginx ends it with the first.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use nowait_runtime::buf::{Chunk, LARGE_BUF_BYTES, Received};
use nowait_runtime::net::{NO_TIMEOUT, SendOptions, Stream};
use nowait_runtime::task::{Either, select};
use nowait_runtime::{now, sleep, time};

use super::exchange::Exchange;
use crate::connection::{Connection, Watch};
use crate::log::Level;
use crate::request::Request;
use crate::response::{LocalFuture, Takeover};

/// A connection to an upstream that belongs to a client's connection now.
pub(super) struct Tunnel {
    exchange: Box<Exchange>,
}

/// How one direction ended.
enum Ended {
    /// Its source sends no more.
    Source,
    /// A side is gone.
    Broken,
    /// Nobody has sent anything for too long.
    Idle,
    /// A side took nothing for too long.
    Stuck,
}

impl Tunnel {
    pub(super) fn new(exchange: Box<Exchange>, watch: Option<Watch>) -> Self {
        // The end of the client's sending is the other side's to know.
        drop(watch);
        Self { exchange }
    }

    async fn run(mut self, client: &Connection, request: &Request) {
        self.exchange.state.set_action(Some("proxying upgraded connection"));
        let upstream = self.exchange.stream().clone();
        let settings = self.exchange.settings.clone();
        let last = Cell::new(now());
        let from_upstream = std::mem::replace(&mut self.exchange.input, Received::empty());
        let from_client = Received::Lent(client.take_input());
        let client_timeout = crate::connection::send_timeout(request);
        let idle = settings.read_timeout;
        let sent = &request.sent.bytes;
        let count = |bytes: usize| sent.set(sent.get() + bytes as u64);
        let down = Direction { from: &upstream, to: &client.stream, last: &last, idle };
        let up = Direction { from: &client.stream, to: &upstream, last: &last, idle };
        let down = down.run(from_upstream, client_timeout, &count);
        let up = up.run(from_client, settings.send_timeout, &|_| {});
        let (mut down, mut up) = (std::pin::pin!(down), std::pin::pin!(up));
        let ended = match select(down.as_mut(), up.as_mut()).await {
            Either::Left(Ended::Source) => {
                let linger = request.location().client.lingering_timeout.duration();
                match select(up, silence(&last, linger)).await {
                    Either::Left(ended) => ended,
                    Either::Right(()) => Ended::Source,
                }
            }
            Either::Right(Ended::Source) => down.await,
            Either::Left(ended) | Either::Right(ended) => ended,
        };
        if let Ended::Idle | Ended::Stuck = ended {
            request
                .log(Level::Error, format_args!("upstream timed out (110: Connection timed out)"));
        }
        self.exchange.content = upstream.bytes_received();
        self.exchange.state.set_action(None);
    }
}

impl Takeover for Tunnel {
    fn run<'a>(
        self: Box<Self>,
        client: &'a Connection,
        request: &'a Request,
    ) -> LocalFuture<'a, ()> {
        Box::pin((*self).run(client, request))
    }
}

/// Resolves when nothing has come from either side for so long.
async fn silence(last: &Cell<Instant>, limit: Duration) {
    loop {
        let left = limit.saturating_sub(now().saturating_duration_since(last.get()));
        if left.is_zero() {
            return;
        }
        sleep(left).await;
    }
}

/// From one side to the other.
struct Direction<'a> {
    from: &'a Stream,
    to: &'a Stream,
    /// When either side has last sent something.
    last: &'a Cell<Instant>,
    idle: Duration,
}

impl Direction<'_> {
    async fn run(&self, first: Received, timeout: Duration, count: &dyn Fn(usize)) -> Ended {
        let mut piece = first;
        loop {
            if !piece.is_empty() {
                let bytes = piece.len();
                match self.to.send(Chunk::from(piece), SendOptions::new(timeout)).await {
                    Ok(()) => count(bytes),
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ended::Stuck,
                    Err(_) => return Ended::Broken,
                }
            }
            piece = match self.receive().await {
                Ok(received) => received,
                Err(ended) => return ended,
            };
            if piece.is_empty() {
                // One that can't be shut down is closed already.
                let _ = self.to.shutdown_write();
                return Ended::Source;
            }
            self.last.set(now());
        }
    }

    /// Receives something, unless neither side sends anything for too long.
    async fn receive(&self) -> Result<Received, Ended> {
        let mut receive = std::pin::pin!(self.from.recv_large(NO_TIMEOUT, LARGE_BUF_BYTES));
        loop {
            let limit = self.idle.saturating_sub(now().saturating_duration_since(self.last.get()));
            if limit.is_zero() {
                return Err(Ended::Idle);
            }
            match time::timeout(limit, receive.as_mut()).await {
                Ok(received) => return received.map_err(|_| Ended::Broken),
                // The other direction may have been busy meanwhile.
                Err(time::Elapsed) => continue,
            }
        }
    }
}
