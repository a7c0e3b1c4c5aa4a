//! Connections closed while a send that had been reported as done was still in flight.
//!
//! These bytes were reported as sent: the descriptor stays open until the kernel has sent them, and
//! the worker does not end before. Most are finished by the end of the turn. The rest are bounded
//! in number and time, and count as connections of the worker, so that a client gains nothing by
//! not reading.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Uring;
use super::slot::{SlotFlag, UringOp, UringSlot};

/// How long a closed connection may take to send what was reported as sent: nginx's default for
/// `send_timeout`. After that it is cut off, as by `send_timeout`.
const LINGER: Duration = Duration::from_secs(60);

/// When this many connections have outlived the turn in which they were closed, sends are no longer
/// reported as done early: connections stay open while they send, and `send_timeout` applies to
/// them.
const LATE_MAX: usize = 64;

#[derive(Default)]
pub(super) struct LingeringSends {
    /// All lingering sends.
    count: usize,
    /// Closed since the last turn: slot and serial.
    closed: Vec<(usize, u32)>,
    /// Connections that have outlived a turn.
    late: usize,
    /// The deadlines of these connections; may include closed ones.
    limits: VecDeque<(Instant, usize, u32)>,
    /// Closed since the last query.
    gone: usize,
}

impl LingeringSends {
    /// Whether another connection may become a lingering send.
    pub(super) fn have_room(&self) -> bool {
        self.late < LATE_MAX
    }

    /// A slot was removed.
    pub(super) fn removed(&mut self, slot: &UringSlot) {
        if slot.is(SlotFlag::Lingering) {
            self.count -= 1;
            self.late -= usize::from(slot.is(SlotFlag::Late));
            self.gone += 1;
        }
    }

    /// Limits how long a turn may wait.
    pub(super) fn bound(&self, max: Option<Duration>) -> Option<Duration> {
        let Some((limit, ..)) = self.limits.front() else { return max };
        let left = limit.saturating_duration_since(Instant::now());
        Some(max.map_or(left, |max| max.min(left)))
    }
}

impl Uring {
    /// Records a socket that its owner closed while its last send is in flight.
    pub(super) fn straggles(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.set(SlotFlag::Lingering, true);
        self.lingering.closed.push((index, slot.serial));
        self.lingering.count += 1;
    }

    /// After each turn: cuts off lingering sends whose time is over.
    pub(super) fn tend_stragglers(&mut self) {
        let LingeringSends { closed, late, limits, .. } = &mut self.lingering;
        if closed.is_empty() && limits.is_empty() {
            return;
        }
        let now = Instant::now();
        for (index, serial) in closed.drain(..) {
            if let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.serial == serial) {
                slot.set(SlotFlag::Late, true);
                *late += 1;
                limits.push_back((now + LINGER, index, serial));
            }
        }
        let slots = &self.slots;
        let lives = |index, serial| slots.get(index).is_some_and(|slot| slot.serial == serial);
        let mut over = Vec::new();
        while let Some((limit, index, serial)) = limits.front().copied()
            && (limit <= now || !lives(index, serial))
        {
            limits.pop_front();
            if lives(index, serial) {
                over.push(index);
            }
        }
        // A slow lingering send keeps the entries behind it in the list: at most as many again.
        if limits.len() > 2 * *late + LATE_MAX {
            limits.retain(|(_, index, serial)| lives(*index, *serial));
        }
        for index in over {
            self.cancel(index, UringOp::Send);
        }
    }

    /// Whether a closed socket is still sending.
    pub(crate) fn is_sending(&self) -> bool {
        self.lingering.count > 0
    }

    /// Number of sockets for which [`detach`](Self::detach) returned "still sending" and that were closed
    /// since the last call.
    pub(crate) fn take_gone(&mut self) -> usize {
        std::mem::take(&mut self.lingering.gone)
    }
}
