//! The state of one worker thread, and its look-up by the free functions.
//!
//! [`Local`] is shared by `Rc` between the loop and every handle that tasks hold. Its parts are in
//! separate cells; one rule keeps the borrows apart: *while one part is borrowed, no foreign code
//! runs* — wakers are woken and user values dropped after the borrow has ended.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use async_task::Runnable;
use nowait_sys::clock::monotonic_ns;
use slab::Slab;

use crate::driver::Driver;
use crate::handovers::Handovers;
use crate::hooks::Hooks;
use crate::inbox::Inbox;
use crate::time::wheel::Wheel;
use crate::time::{WallClock, turn};
use crate::workers::Workers;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// The state of one worker.
pub(crate) struct Local {
    pub(crate) index: usize,
    pub(crate) workers: Arc<Workers>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) hooks: Rc<dyn Hooks>,
    pub(crate) driver: RefCell<Driver>,
    pub(crate) wheel: RefCell<Wheel>,
    pub(crate) wall: Rc<WallClock>,
    pub(crate) handovers: RefCell<Handovers>,
    /// Tasks ready to run, first in first out.
    pub(crate) queue: RefCell<VecDeque<Runnable>>,
    /// A waker of every living task: used to find all of them when the worker is forced to end.
    pub(crate) tasks: RefCell<Slab<Waker>>,
    /// Open connections of this worker, and their maximum.
    pub(crate) connections: Cell<usize>,
    pub(crate) connections_max: Cell<usize>,
    /// Accept futures waiting for room for another connection.
    pub(crate) room_waiters: RefCell<Vec<Waker>>,
    /// Whether the worker was told to stop, and the futures waiting for that.
    pub(crate) stopping: Cell<bool>,
    pub(crate) stop_waiters: RefCell<Slab<Waker>>,
    pub(crate) killed: Cell<bool>,
    /// How long accepting pauses when descriptors have run out.
    pub(crate) accept_delay: Duration,
    pub(crate) start: Instant,
    /// The same moment as the clock counts it.
    pub(crate) start_ns: u64,
    /// Time from the start to this turn.
    pub(crate) elapsed_ns: Cell<u64>,
    /// The last tick of the wheel that this turn's time has reached, and the first one not before
    /// that time.
    pub(crate) tick: Cell<u64>,
    pub(crate) next_tick: Cell<u64>,
}

impl Local {
    /// The wheel's tick (ms since the worker's start) at which `at` has surely been reached.
    pub(crate) fn tick_of(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start);
        since.as_millis() as u64 + u64::from(!since.subsec_nanos().is_multiple_of(1_000_000))
    }

    /// The last tick that has been reached.
    pub(crate) fn tick(&self) -> u64 {
        self.tick.get()
    }

    /// The tick at which `timeout` from now on has surely passed.
    pub(crate) fn tick_after(&self, timeout: Duration) -> u64 {
        let ms = timeout.as_secs().saturating_mul(1000);
        let ms = ms.saturating_add(u64::from(timeout.subsec_nanos().div_ceil(1_000_000)));
        self.next_tick.get().saturating_add(ms)
    }

    /// Reads the clocks for this turn.
    pub(crate) fn refresh_clocks(&self) {
        let elapsed_ns = self.read_elapsed_ns();
        let tick = elapsed_ns / TICK_NS;
        if self.driver.borrow().virtual_time().is_none() {
            self.wall.refresh();
        } else {
            self.wall.set(SIM_EPOCH_MS + tick);
        }
        turn::set(Some(self.start + Duration::from_nanos(elapsed_ns)));
        self.elapsed_ns.set(elapsed_ns);
        self.tick.set(tick);
        self.next_tick.set(elapsed_ns.div_ceil(TICK_NS));
    }

    /// Time from the start until now, which is not the time of the turn. In nanoseconds, since
    /// every turn uses it: arithmetic with one number is far cheaper than with a `Duration`.
    pub(crate) fn read_elapsed_ns(&self) -> u64 {
        match self.driver.borrow().virtual_time() {
            None => monotonic_ns().saturating_sub(self.start_ns),
            Some(elapsed) => elapsed.as_nanos() as u64,
        }
    }

    /// Queues a task to run in this or the next turn.
    pub(crate) fn enqueue(&self, runnable: Runnable) {
        self.queue.borrow_mut().push_back(runnable);
    }

    /// Counts an opened connection. One handed over by another worker is already part of the load
    /// that the others see.
    pub(crate) fn connection_opened(&self, handed_over: bool) {
        self.connections.set(self.connections.get() + 1);
        if !handed_over {
            self.workers.load(self.index).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a closed connection and lets one waiting acceptor continue.
    pub(crate) fn connection_closed(&self) {
        self.connections.set(self.connections.get() - 1);
        self.workers.unload(self.index);
        let waiters = std::mem::take(&mut *self.room_waiters.borrow_mut());
        waiters.into_iter().for_each(Waker::wake);
    }

    /// A connection that another worker has accepted for this listener has arrived.
    pub(crate) fn deliver(&self, listener: u64, fd: OwnedFd) {
        let delivered = self.handovers.borrow_mut().deliver(listener, fd);
        match delivered {
            Ok(waker) => waker.into_iter().for_each(Waker::wake),
            // Without a listener, the connection is closed; `Listener::drop` leaves no connections behind.
            Err(_closed) => self.workers.unload(self.index),
        }
    }

    /// How long the driver may wait for events: until the next timer, or indefinitely.
    pub(crate) fn wait_max(&self) -> Option<Duration> {
        let next = self.wheel.borrow().next_tick()?;
        let left_ns = next.saturating_mul(TICK_NS).saturating_sub(self.elapsed_ns.get());
        Some(Duration::from_nanos(left_ns))
    }
}

/// A tick of the wheel.
const TICK_NS: u64 = 1_000_000;

/// 2024-01-01T00:00:00Z: where the simulated calendar begins, in ms since 1970.
pub(crate) const SIM_EPOCH_MS: u64 = 1_704_067_200_000;

/// Runs `f` with this thread's worker, if it has one.
pub(crate) fn with<R>(f: impl FnOnce(&Rc<Local>) -> R) -> Option<R> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(f)).ok().flatten()
}

/// This thread's worker.
///
/// # Panics
/// Outside of a worker: a mistake of the program, never of its input.
pub(crate) fn current() -> Rc<Local> {
    with(Rc::clone).expect("called on a worker's thread")
}

/// Makes `local` this thread's worker; returns the previous one.
pub(crate) fn set(local: Option<Rc<Local>>) -> Option<Rc<Local>> {
    CURRENT.with(|current| current.replace(local))
}
