//! How a connection waits for a request. An idle connection consists of this: every byte counts, so
//! nothing here is an `async fn`.
//!
//! Called by the connection task, and by the worker, which closes idle connections.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::Recv;
use nowait_runtime::now;

use super::connection::Connection;

/// How long a connection waits for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// The connection is closed after this time.
    pub(super) timeout: Duration,
    /// The connection is not closed before this time, even if its place is needed.
    pub(super) keep: Duration,
}

/// Result of waiting for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    Bytes,
    TimedOut,
    Closed,
    /// No bytes: the connection has to leave this worker (`leaving.rs`), or has left it.
    Leave,
}

/// State of a connection's wait for a request. Its times are in [`IdleTimes`]: as fields of the
/// variants they would cost every connection eight bytes.
#[derive(Clone, Copy, Default)]
pub(super) enum Idle {
    /// The connection is not waiting.
    #[default]
    No,
    /// The connection is waiting.
    Since,
    /// The wait was interrupted, perhaps by a move to another worker.
    Rest,
}

/// Times of a connection's wait for a request.
#[derive(Clone, Copy, Default)]
pub(super) struct IdleTimes {
    /// [`Idle::Since`]: when the wait began, by the worker's clock in milliseconds, modulo 2³². [`Idle::Rest`]:
    /// the remaining time.
    wait_ms: u32,
    /// How long the connection must be kept, or the rest of this time.
    keep_ms: u32,
}

/// Whole milliseconds, capped at the largest `u32` (49 days).
fn as_ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn of_ms(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

/// The future of [`Connection::wait`]. It is no `async fn`, because every idle connection keeps
/// one.
pub(super) enum Waiting<'a> {
    Known(Received),
    For(&'a Connection, Recv<'a>),
}

impl Future for Waiting<'_> {
    type Output = Received;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Received> {
        match &mut *self {
            Waiting::Known(received) => Poll::Ready(*received),
            Waiting::For(connection, recv) if connection.common.is_left_by(*connection) => {
                connection.cut_short(recv.left());
                Poll::Ready(Received::Leave)
            }
            Waiting::For(connection, recv) => {
                Pin::new(recv).poll(cx).map(|received| connection.end_wait(received))
            }
        }
    }
}

impl Connection {
    /// When the wait for another request began, and how long the connection must be kept; `None` if
    /// it is not idle.
    pub(crate) fn idle(&self) -> Option<(Instant, Duration)> {
        self.waits().filter(|_| self.client.requests.get() > 0)
    }

    /// When the wait for a request began, the first one included, and how long the connection must
    /// be kept.
    pub(crate) fn waits(&self) -> Option<(Instant, Duration)> {
        match self.idle.get() {
            Idle::Since => {
                let IdleTimes { wait_ms, keep_ms } = self.idle_times.get();
                let now = now();
                let waited = (self.stream.clock_ms() as u32).wrapping_sub(wait_ms);
                Some((now.checked_sub(of_ms(waited)).unwrap_or(now), of_ms(keep_ms)))
            }
            Idle::No | Idle::Rest => None,
        }
    }

    /// The next wait, if no request sets it.
    pub(super) fn first_wait(&self) -> Wait {
        let first = || Wait { timeout: self.first_timeout(), keep: Duration::ZERO };
        self.rest().unwrap_or_else(first)
    }

    /// How long the first request, or what precedes it, may take to arrive.
    pub(super) fn first_timeout(&self) -> Duration {
        let current = self.common.current();
        let Some(servers) = self.virtual_servers(&current) else { return Duration::ZERO };
        current.conf.server(servers.default_server).head.client_header_timeout.duration()
    }

    /// Waits for a request.
    pub(super) fn wait(&self, wait: Wait) -> Waiting<'_> {
        // The request may have arrived together with a PROXY protocol header.
        if !self.input.borrow().is_empty() {
            return Waiting::Known(Received::Bytes);
        }
        let wait_ms = self.stream.clock_ms() as u32;
        self.idle_times.set(IdleTimes { wait_ms, keep_ms: as_ms(wait.keep) });
        self.idle.set(Idle::Since);
        Waiting::For(self, self.stream.recv(wait.timeout))
    }

    /// Ends the wait for a request.
    fn end_wait(&self, received: io::Result<RecvBuf>) -> Received {
        self.idle.set(Idle::No);
        self.received(received)
    }

    /// Interrupts the wait.
    fn cut_short(&self, timeout: Duration) {
        let until = self.waits().map(|(since, keep)| since + keep);
        let keep = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now()));
        self.interrupt(Wait { timeout, keep });
    }

    /// Stores the remaining times of an interrupted wait.
    pub(super) fn interrupt(&self, wait: Wait) {
        let Wait { timeout, keep } = wait;
        self.idle_times.set(IdleTimes { wait_ms: as_ms(timeout), keep_ms: as_ms(keep) });
        self.idle.set(Idle::Rest);
    }

    /// The remaining times of an interrupted wait.
    pub(super) fn rest(&self) -> Option<Wait> {
        match self.idle.get() {
            Idle::Rest => {
                let IdleTimes { wait_ms, keep_ms } = self.idle_times.get();
                Some(Wait { timeout: of_ms(wait_ms), keep: of_ms(keep_ms) })
            }
            Idle::No | Idle::Since => None,
        }
    }

    /// Stores received bytes.
    pub(super) fn received(&self, received: io::Result<RecvBuf>) -> Received {
        match received {
            Ok(bytes) if bytes.is_empty() => Received::Closed,
            Ok(bytes) => {
                self.input.replace(bytes);
                Received::Bytes
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Received::TimedOut,
            Err(_) => Received::Closed,
        }
    }
}
