//! Connections that were closed while a send that had been reported as done was still under way.
//!
//! Their bytes were promised: the descriptor stays open until the kernel has them, and the worker
//! does not end before. Most have gone when the turn is over. Those that have not are bounded in
//! number and in time, and count as connections of the worker, so that a client that does not read
//! gains nothing by it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::uring_slot::{Is, Op, Slot};
use super::Uring;

/// How long a closed connection may take to send what was reported as sent: nginx's default of
/// `send_timeout`. It is cut then, as by that.
const LINGER: Duration = Duration::from_secs(60);

/// When so many connections have outlived the turn in which they were closed, sends are no longer
/// reported as done before they are: connections stay open while they send, and `send_timeout`
/// applies to them.
const LATE_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Stragglers {
    /// All of them.
    count: usize,
    /// Closed since the last turn: slot and serial.
    closed: Vec<(usize, u32)>,
    /// Those that have outlived a turn.
    late: usize,
    /// When each of these is cut, and some that have gone since.
    limits: VecDeque<(Instant, usize, u32)>,
    /// Gone since that was last asked for.
    gone: usize,
}

impl Stragglers {
    /// Whether another connection may become one.
    pub(super) fn have_room(&self) -> bool {
        self.late < LATE_MAX
    }

    /// A slot was removed.
    pub(super) fn removed(&mut self, slot: &Slot) {
        if slot.is(Is::Straggler) {
            self.count -= 1;
            self.late -= usize::from(slot.is(Is::Late));
            self.gone += 1;
        }
    }

    /// How long a turn may last.
    pub(super) fn bound(&self, max: Option<Duration>) -> Option<Duration> {
        let Some((limit, ..)) = self.limits.front() else { return max };
        let left = limit.saturating_duration_since(Instant::now());
        Some(max.map_or(left, |max| max.min(left)))
    }
}

impl Uring {
    /// A socket was closed by its owner, and its last send is under way.
    pub(super) fn straggles(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.set(Is::Straggler, true);
        self.stragglers.closed.push((index, slot.serial));
        self.stragglers.count += 1;
    }

    /// After each turn: cuts those whose time is over.
    pub(super) fn tend_stragglers(&mut self) {
        let Stragglers { closed, late, limits, .. } = &mut self.stragglers;
        if closed.is_empty() && limits.is_empty() {
            return;
        }
        let now = Instant::now();
        for (index, serial) in closed.drain(..) {
            if let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.serial == serial) {
                slot.set(Is::Late, true);
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
        // One that is slow to go keeps those behind it: not more than as many again.
        if limits.len() > 2 * *late + LATE_MAX {
            limits.retain(|(_, index, serial)| lives(*index, *serial));
        }
        for index in over {
            self.cancel(index, Op::Send);
        }
    }

    /// Whether a closed socket is still sending.
    pub(crate) fn is_sending(&self) -> bool {
        self.stragglers.count > 0
    }

    /// How many sockets of which [`detach`](Self::detach) said that they are still sending have gone
    /// since this was last called.
    pub(crate) fn take_gone(&mut self) -> usize {
        std::mem::take(&mut self.stragglers.gone)
    }
}
