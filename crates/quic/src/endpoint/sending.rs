//! Sending, and time: a task that runs behind those that write, once per turn.

use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nowait_runtime::now;
use nowait_runtime::time::{Sleep, sleep_until};

use super::{Endpoint, Slot};
use crate::live::Live;
use crate::socket::Socket;

impl Endpoint {
    /// A connection may have something to send.
    pub(crate) fn touch(&self, live: &Rc<Live>) {
        if !live.is_dirty.replace(true) {
            self.dirty.borrow_mut().push_back(live.clone());
            if let Some(waker) = self.sender.take() {
                waker.wake();
            }
        }
    }

    /// Sends what connections have, each some of it. True: some have more.
    pub(super) fn send_all(&self) -> bool {
        let mut more = false;
        // Those that are added meanwhile have their turn later.
        let connections = self.dirty.borrow().len();
        for _ in 0..connections {
            let Some(live) = self.dirty.borrow_mut().pop_front() else { break };
            live.is_dirty.set(false);
            let again = {
                let mut buffer = self.buffer.borrow_mut();
                self.guarded(&live, |live| live.send(&mut buffer, self.counters()))
            };
            self.guarded(&live, |live| live.absorb(self.counters()));
            if again && !live.is_over() {
                more = true;
                live.is_dirty.set(true);
                self.dirty.borrow_mut().push_back(live.clone());
            }
            self.keep_time(&live);
        }
        more
    }

    /// Notes when time has an effect on a connection next, or that it has ended.
    pub(super) fn keep_time(&self, live: &Rc<Live>) {
        if live.is_over() {
            self.remove(live);
            return;
        }
        let Some(wanted) = self.guarded(live, |live| live.next_timeout()) else { return };
        // A later one is noted when the earlier one comes: timers of losses are moved with each packet.
        if live.timeout.get().is_none_or(|noted| wanted < noted) {
            let mut timeouts = self.timeouts.borrow_mut();
            if let Some(noted) = live.timeout.replace(Some(wanted)) {
                timeouts.remove(&(noted, live.slot.get()));
            }
            timeouts.insert((wanted, live.slot.get()));
        }
    }

    /// Lets time have its effects on connections. Returns when it has the next.
    pub(super) fn time_out_due(&self) -> Option<Instant> {
        let soon = now() + EARLY;
        loop {
            let first = self.timeouts.borrow().first().copied();
            let (at, slot) = first?;
            if at > soon {
                return Some(at);
            }
            self.timeouts.borrow_mut().remove(&(at, slot));
            let live = match self.slots.borrow().get(slot) {
                Some(Slot::Live(live)) => live.clone(),
                _ => continue,
            };
            live.timeout.set(None);
            if self.guarded(&live, |live| live.next_timeout()).is_some_and(|at| at > soon) {
                self.keep_time(&live);
                continue;
            }
            self.guarded(&live, |live| live.time_out());
            self.guarded(&live, |live| live.absorb(self.counters()));
            self.touch(&live);
        }
    }

    /// Removes a connection that is over.
    pub(super) fn remove(&self, live: &Rc<Live>) {
        let slot = live.slot.get();
        let is_here = match self.slots.borrow().get(slot) {
            Some(Slot::Live(other)) => Rc::ptr_eq(other, live),
            _ => false,
        };
        if !is_here {
            return;
        }
        let left = self.slots.borrow_mut().try_remove(slot);
        drop(left);
        self.forget(live);
        self.directory.forget_moved(&live.earlier_places.borrow());
    }

    /// Forgets a connection that has left its slot.
    pub(super) fn forget(&self, live: &Rc<Live>) {
        if let Some(first) = &live.first {
            self.first_packets.borrow_mut().remove(first);
        }
        if let Some(noted) = live.timeout.take() {
            self.timeouts.borrow_mut().remove(&(noted, live.slot.get()));
        }
        self.connections.set(self.connections.get() - 1);
        self.wake_if_idle();
    }
}

/// Timers of the runtime fire up to a millisecond late, and pacing gives up what it cannot send in time: rounded to the
/// nearest, they are early as often as late. What must not be early looks at the clock itself.
const EARLY: Duration = Duration::from_micros(500);

/// The task that sends, and keeps time.
pub(super) struct Sending {
    pub(super) endpoint: Weak<Endpoint>,
    pub(super) sleep: Option<Sleep>,
}

impl Future for Sending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(endpoint) = self.endpoint.upgrade() else { return Poll::Ready(()) };
        // What becomes dirty below is looked at below.
        drop(endpoint.sender.take());
        let next = endpoint.time_out_due();
        let more = endpoint.send_all();
        let next = endpoint.timeouts.borrow().first().map(|(at, _)| *at).or(next);
        let unblocked = endpoint.poll_unblocked(cx);
        if unblocked && (more || !endpoint.dirty.borrow().is_empty()) {
            cx.waker().wake_by_ref();
        }
        endpoint.sender.replace(Some(cx.waker().clone()));
        if let Some(next) = next {
            let early = next.checked_sub(EARLY).filter(|early| *early > now()).unwrap_or(next);
            let sleep = self.sleep.get_or_insert_with(|| sleep_until(early));
            sleep.reset(early);
            if Pin::new(sleep).poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl Endpoint {
    /// Whether all sockets have room; otherwise the task is woken when they have.
    fn poll_unblocked(&self, cx: &mut Context<'_>) -> bool {
        let is_blocked = |socket: &Rc<Socket>| {
            socket.count_sent(self.counters());
            socket.is_blocked()
        };
        let sockets: Vec<Rc<Socket>> =
            self.sockets.borrow().iter().filter_map(Weak::upgrade).filter(is_blocked).collect();
        let mut ready = true;
        for socket in &sockets {
            ready &= socket.poll_unblocked(self.counters(), cx).is_ready();
        }
        ready
    }
}
