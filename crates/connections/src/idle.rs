//! How a connection waits for its first bytes, and between the requests of HTTP/1.1. An idle connection
//! consists of this: every byte counts, so nothing here is an `async fn`.
//!
//! Called by the connection's task, and by the worker, which closes idle connections.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::Recv;
use nowait_runtime::now;

use crate::connection::Connection;

/// How long a connection waits for a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleTimeouts {
    /// The connection is closed after this time.
    pub(crate) timeout: Duration,
    /// The connection is not closed before this time, even if its place is needed.
    pub(crate) keep: Duration,
}

/// Result of waiting for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    Bytes,
    TimedOut,
    Closed,
    /// No bytes: the connection has to leave this worker (`migration.rs`), or has left it.
    Leave,
}

/// State of a connection's wait for a request. Its times are in [`IdleTimes`]: as fields of the
/// variants they would cost every connection eight bytes.
#[derive(Clone, Copy, Default)]
pub(crate) enum IdleState {
    /// The connection is not waiting.
    #[default]
    Busy,
    /// The connection is waiting.
    Waiting,
    /// The wait was interrupted, perhaps by a move to another worker.
    Interrupted,
}

/// Times of a connection's wait for a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct IdleTimes {
    /// [`IdleState::Waiting`]: when the wait began, by the worker's clock in milliseconds, modulo 2³².
    /// [`IdleState::Interrupted`]: the remaining time.
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
pub(crate) enum IdleWait<'a> {
    Known(WaitEnd),
    For(&'a Connection, Recv<'a>),
}

impl Future for IdleWait<'_> {
    type Output = WaitEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WaitEnd> {
        match &mut *self {
            IdleWait::Known(received) => Poll::Ready(*received),
            IdleWait::For(connection, recv) if connection.all().is_left_by(*connection) => {
                connection.cut_short(recv.left());
                Poll::Ready(WaitEnd::Leave)
            }
            IdleWait::For(connection, recv) => {
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
            IdleState::Waiting => {
                let IdleTimes { wait_ms, keep_ms } = self.idle_times.get();
                let now = now();
                let waited = (self.stream.clock_ms() as u32).wrapping_sub(wait_ms);
                Some((now.checked_sub(of_ms(waited)).unwrap_or(now), of_ms(keep_ms)))
            }
            IdleState::Busy | IdleState::Interrupted => None,
        }
    }

    /// The next wait, if no request sets it.
    pub(crate) fn first_wait(&self) -> IdleTimeouts {
        let first = || IdleTimeouts { timeout: self.first_timeout(), keep: Duration::ZERO };
        self.interrupted().unwrap_or_else(first)
    }

    /// How long the first request, or what precedes it, may take to arrive.
    pub(crate) fn first_timeout(&self) -> Duration {
        let current = self.all().current();
        let Some(servers) = self.virtual_servers(&current) else { return Duration::ZERO };
        current.conf.server(servers.default_server).head.client_header_timeout.duration()
    }

    /// Waits for a request.
    pub(crate) fn wait(&self, wait: IdleTimeouts) -> IdleWait<'_> {
        // The request may have arrived together with a PROXY protocol header.
        if !self.input.borrow().is_empty() {
            return IdleWait::Known(WaitEnd::Bytes);
        }
        let wait_ms = self.stream.clock_ms() as u32;
        self.idle_times.set(IdleTimes { wait_ms, keep_ms: as_ms(wait.keep) });
        self.idle.set(IdleState::Waiting);
        IdleWait::For(self, self.stream.recv(wait.timeout))
    }

    /// Ends the wait for a request.
    fn end_wait(&self, received: io::Result<RecvBuf>) -> WaitEnd {
        self.idle.set(IdleState::Busy);
        self.received(received)
    }

    /// Interrupts the wait.
    fn cut_short(&self, timeout: Duration) {
        let until = self.waits().map(|(since, keep)| since + keep);
        let keep = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now()));
        self.interrupt(IdleTimeouts { timeout, keep });
    }

    /// Stores the remaining times of an interrupted wait.
    pub(crate) fn interrupt(&self, wait: IdleTimeouts) {
        let IdleTimeouts { timeout, keep } = wait;
        self.idle_times.set(IdleTimes { wait_ms: as_ms(timeout), keep_ms: as_ms(keep) });
        self.idle.set(IdleState::Interrupted);
    }

    /// The remaining times of an interrupted wait.
    pub(crate) fn interrupted(&self) -> Option<IdleTimeouts> {
        match self.idle.get() {
            IdleState::Interrupted => {
                let IdleTimes { wait_ms, keep_ms } = self.idle_times.get();
                Some(IdleTimeouts { timeout: of_ms(wait_ms), keep: of_ms(keep_ms) })
            }
            IdleState::Busy | IdleState::Waiting => None,
        }
    }

    /// Stores received bytes.
    pub(crate) fn received(&self, received: io::Result<RecvBuf>) -> WaitEnd {
        match received {
            Ok(bytes) if bytes.is_empty() => WaitEnd::Closed,
            Ok(bytes) => {
                self.input.replace(bytes);
                WaitEnd::Bytes
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => WaitEnd::TimedOut,
            Err(_) => WaitEnd::Closed,
        }
    }
}
