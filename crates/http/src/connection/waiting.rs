//! How a connection waits for a request. An idle connection consists of this: every byte counts, so
//! nothing here is an `async fn`.
//!
//! Called by the connection task, and by the worker, which closes idle connections.

use std::future::Future;
use std::io;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::Recv;
use nowait_runtime::now;

use super::Connection;

/// How long a connection waits for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// Then it is closed.
    pub(super) timeout: Duration,
    /// It is not closed earlier, whoever needs its place.
    pub(super) keep: Duration,
}

/// What came while a connection waited for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    Bytes,
    TimedOut,
    Closed,
}

/// Since when a connection waits for a request.
#[derive(Clone, Copy)]
pub(super) struct Idle {
    /// Milliseconds after it was accepted, plus one.
    since: NonZeroU32,
    /// Milliseconds for which it must be kept.
    keep: u32,
}

/// The future of [`Connection::wait`]: no `async fn`, since idle connections keep it.
pub(super) enum Waiting<'a> {
    Known(Received),
    For(&'a Connection, Recv<'a>),
}

impl Future for Waiting<'_> {
    type Output = Received;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Received> {
        match &mut *self {
            Waiting::Known(received) => Poll::Ready(*received),
            Waiting::For(connection, recv) => {
                Pin::new(recv).poll(cx).map(|received| connection.end_wait(received))
            }
        }
    }
}

impl Connection {
    /// Since when it waits for another request, and how long it must be kept; `None` while it does
    /// not.
    pub(crate) fn idle(&self) -> Option<(Instant, Duration)> {
        let idle = self.idle.get().filter(|_| self.requests.get() > 0)?;
        let ms = |ms| Duration::from_millis(u64::from(ms));
        Some((self.started + ms(idle.since.get() - 1), ms(idle.keep)))
    }

    /// Waits for a request.
    pub(super) fn wait(&self, wait: Wait) -> Waiting<'_> {
        // The request may have come together with what a proxy said first.
        if !self.input.borrow().is_empty() {
            return Waiting::Known(Received::Bytes);
        }
        if self.worker.is_closing() && self.requests.get() > 0 {
            return Waiting::Known(Received::Closed);
        }
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let since = ms(now().saturating_duration_since(self.started)).saturating_add(1);
        let since = NonZeroU32::MIN.saturating_add(since - 1);
        self.idle.set(Some(Idle { since, keep: ms(wait.keep) }));
        Waiting::For(self, self.stream.recv(wait.timeout))
    }

    /// Ends the wait for a request.
    fn end_wait(&self, received: io::Result<RecvBuf>) -> Received {
        self.idle.set(None);
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
