//! Time for tasks: the turn's cached clocks, sleeping, timeouts.
//!
//! Called by every task. All clocks are read once per loop turn: within a turn time stands still,
//! which makes reading it free. Outside a worker (tests, other threads) the system's clock is used.

pub(crate) mod turn;
mod wall;
pub(crate) mod wheel;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

pub use turn::now;
pub use wall::{ErrorTime, HttpDate, IsoTime, LogTime, WallClock, http_date, utc_time};

use crate::local::{self, Local};
use wheel::TimerId;

/// The zero of clocks that all workers share: the same moment whenever it is asked for, and for
/// simulations the moment at which each begins.
pub fn process_start() -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START
}

/// The calendar clock of this turn, with its texts for headers and logs.
pub fn clock() -> Rc<WallClock> {
    local::with(|local| local.wall.clone()).unwrap_or_else(|| Rc::new(WallClock::new()))
}

/// Resolves after `duration`, with a resolution of one millisecond, never early.
///
/// # Panics
/// When polled outside of a worker.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

/// Resolves when the turn's clock has reached `deadline`.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, timer: None }
}

/// The future of [`sleep`].
pub struct Sleep {
    deadline: Instant,
    timer: Option<Timer>,
}

impl Sleep {
    /// Moves the deadline; extending it is free.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let timer = self.timer.get_or_insert_with(|| Timer::new(local::current()));
        timer.poll_deadline(deadline, cx.waker())
    }
}

/// An entry in the worker's wheel, for futures that keep a deadline themselves.
pub(crate) struct Timer {
    local: Rc<Local>,
    id: TimerId,
}

impl Timer {
    pub(crate) fn new(local: Rc<Local>) -> Timer {
        let id = local.wheel.borrow_mut().insert();
        Timer { local, id }
    }

    /// Ready when the deadline has been reached; otherwise arranges for a wake-up.
    pub(crate) fn poll_deadline(&self, deadline: Instant, waker: &Waker) -> Poll<()> {
        if deadline <= now() {
            self.local.wheel.borrow_mut().disarm(self.id);
            return Poll::Ready(());
        }
        let tick = self.local.tick_of(deadline);
        self.local.wheel.borrow_mut().arm(self.id, tick, waker);
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let waker = self.local.wheel.borrow_mut().remove(self.id);
        drop(waker);
    }
}

/// The time limit of a future has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> std::io::Error {
        std::io::ErrorKind::TimedOut.into()
    }
}

/// Runs `future` for at most `duration`.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration) }
}

pin_project! {
    /// The future of [`timeout`].
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.sleep).poll(cx).map(|()| Err(Elapsed))
    }
}
