//! `queue`: requests that wait for a peer, first come, first served.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nowait_runtime::time::{Sleep, sleep_until};

use crate::attempt::{Attempt, NextPeer};
use crate::peer::ms;
use crate::selected_peer::SelectedPeer;

/// The reason why a request got no peer; both produce 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// The queue is full.
    Full,
    /// No peer became available in time.
    TimedOut,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueError::Full => "upstream queue is full",
            QueueError::TimedOut => "upstream queue timed out",
        })
    }
}

impl std::error::Error for QueueError {}

/// The future of [`Attempt::queue`].
pub struct QueueFuture<'a> {
    attempt: &'a mut Attempt,
    deadline: Instant,
    ticket: Option<u64>,
    sleep: Sleep,
}

impl<'a> QueueFuture<'a> {
    pub(crate) fn new(attempt: &'a mut Attempt, now: Instant) -> QueueFuture<'a> {
        let timeout = attempt.group.conf().queue.map_or(Duration::ZERO, |q| q.timeout.duration());
        let deadline = now + timeout;
        QueueFuture { attempt, deadline, ticket: None, sleep: sleep_until(deadline) }
    }

    fn enter(&mut self, waker: &Waker) -> Result<u64, QueueError> {
        let length = self.attempt.group.conf().queue.map_or(0, |queue| queue.length);
        let mut state = self.attempt.group.lock();
        if let Some(ticket) = self.ticket {
            state.waiting.renew(ticket, waker);
            return Ok(ticket);
        }
        if state.waiting.len() >= length {
            state.waiting.overflowed();
            return Err(QueueError::Full);
        }
        let ticket = state.waiting.enter(waker);
        self.ticket = Some(ticket);
        Ok(ticket)
    }
}

impl Future for QueueFuture<'_> {
    type Output = Result<SelectedPeer, QueueError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ticket = match this.enter(cx.waker()) {
            Ok(ticket) => ticket,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let now = nowait_runtime::now();
        let first = this.attempt.group.lock().waiting.is_first(ticket);
        if first && let NextPeer::Peer(peer) = this.attempt.next_for(now, true) {
            return Poll::Ready(Ok(peer));
        }
        if now >= this.deadline {
            return Poll::Ready(Err(QueueError::TimedOut));
        }
        // A failed peer becomes available again by the passing of time alone.
        let mut wake = this.deadline;
        if first && let Some(at) = this.attempt.available_at(ms(now)) {
            let wait = Duration::from_millis(at.saturating_sub(ms(now)));
            wake = wake.min(now + wait);
        }
        this.sleep.reset(wake);
        match Pin::new(&mut this.sleep).poll(cx) {
            Poll::Ready(()) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for QueueFuture<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let next = {
            let mut state = self.attempt.group.lock();
            state.waiting.leave(ticket);
            state.waiting.first()
        };
        // The next waiter has to check for itself.
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
