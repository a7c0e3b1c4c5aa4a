//! The provided-buffer ring: receive memory from which the kernel picks when data arrives, so that
//! a connection that waits for data holds none.
//!
//! # Ownership
//! Each provided buffer is a `Box<[u8]>` turned into a raw pointer in `lent`, at the index that is
//! its buffer id. From `give` until a completion names the id, the memory belongs to the kernel,
//! and nothing here reads or writes it. A completion that names the id gives it back: `take` turns
//! it into a `Box` again, and the id is free for another buffer. The ring's entries are written
//! only at positions behind the tail, which the kernel does not read before the tail has moved
//! over them (a release store); the tail never runs more than the ring's size ahead, because there
//! are no more ids than entries. On drop everything still lent is freed: the owner must drop this
//! only when no operation can complete any more (see `mod.rs`, or leaks it).

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::buf;

/// Entries of the ring: the maximum number of provided buffers, 5 MB. A power of two. Connections
/// beyond that many receive in the next turn; no more tasks than this run in a turn, either. The
/// kernel never returns unused buffers: fewer are provided by not replacing those that it uses.
const ENTRIES: u16 = 256;

/// Minimum number of provided buffers, also at startup; doubled whenever they did not suffice for one turn.
const PROVIDED_MIN: u16 = 64;

/// After this many turns with receives, the number of buffers is halved if no turn needed more than a
/// quarter of them.
const LOOK_TURNS: u16 = 1000;

/// The group's number; there is one per ring.
pub(super) const GROUP: u16 = 0;

/// The ring shared with the kernel.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    /// Memory lent to the kernel, by buffer id.
    lent: Vec<Option<NonNull<[u8; buf::RECV_BUF_BYTES]>>>,
    /// Ids that are not lent.
    free: Vec<u16>,
    tail: u16,
    demand: Demand,
}

/// The required number of buffers.
#[derive(Debug, Default)]
struct Demand {
    /// The target number of provided buffers, reached once excess ones have been used.
    wanted: u16,
    /// Buffers used in this turn.
    used: u16,
    /// The maximum used in a turn since the last check.
    most: u16,
    /// Turns with a receive since then.
    turns: u16,
}

impl Demand {
    /// More are needed than there are.
    fn grow(&mut self) {
        *self =
            Demand { wanted: (2 * self.wanted).clamp(PROVIDED_MIN, ENTRIES), ..Demand::default() };
    }

    /// A turn has ended.
    fn turn(&mut self) {
        if self.used == 0 {
            return;
        }
        self.most = self.most.max(std::mem::take(&mut self.used));
        self.turns += 1;
        if self.turns == LOOK_TURNS {
            if self.most <= self.wanted / 4 {
                self.wanted = (self.wanted / 2).max(PROVIDED_MIN);
            }
            (self.most, self.turns) = (0, 0);
        }
    }
}

impl Buffers {
    /// Registers the ring and provides the first buffers.
    pub(super) fn new(submitter: &Submitter<'_>) -> io::Result<Buffers> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes(), protection, flags)? };
        let entries = NonNull::new(memory.cast()).expect("a mapping is never at address 0");
        let mut buffers = Buffers {
            entries,
            lent: Vec::new(),
            free: Vec::new(),
            tail: 0,
            demand: Demand::default(),
        };
        // SAFETY: the mapping is page-aligned, holds ENTRIES entries, and is there for as long as
        // operations use it, see `drop`.
        unsafe {
            submitter.register_buf_ring_with_flags(entries.as_ptr() as u64, ENTRIES, GROUP, 0)?;
        }
        buffers.grow();
        Ok(buffers)
    }

    /// Doubles the number of provided buffers, up to the maximum.
    pub(super) fn grow(&mut self) {
        self.demand.grow();
        while self.provided() < self.demand.wanted {
            let id = self.free.pop().unwrap_or_else(|| {
                self.lent.push(None);
                (self.lent.len() - 1) as u16
            });
            self.give(id);
        }
        self.show();
    }

    /// The number of buffers that the kernel has.
    fn provided(&self) -> u16 {
        (self.lent.len() - self.free.len()) as u16
    }

    /// Takes back memory that the kernel has filled, and provides other memory in its place unless there is
    /// more than is needed. `None` for an id that is not lent, which the kernel never names.
    pub(super) fn take(&mut self, id: u16) -> Option<buf::RecvMemory> {
        let memory = self.lent.get_mut(usize::from(id))?.take()?;
        self.demand.used += 1;
        match self.provided() > self.demand.wanted {
            true => self.free.push(id),
            false => self.give(id),
        }
        // SAFETY: the pointer came from `Box::into_raw` in `give`; it was in `lent`, so nothing has
        // taken it since; the kernel has named it in a completion and uses it no more.
        Some(unsafe { Box::from_raw(memory.as_ptr()) })
    }

    /// A turn has ended: makes the provided buffers visible to the kernel.
    pub(super) fn publish(&mut self) {
        self.demand.turn();
        self.show();
    }

    fn show(&mut self) {
        // SAFETY: `entries` is the base of a live ring; its tail is a `u16` in the first entry,
        // aligned, which the kernel only reads, and we only write here.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Lends memory under a free id. The kernel sees it after `show`.
    fn give(&mut self, id: u16) {
        debug_assert!(self.lent.len() <= usize::from(ENTRIES), "more ids than entries");
        debug_assert!(self.lent[usize::from(id)].is_none(), "the kernel has memory of this id");
        let memory = Box::into_raw(buf::take_recv_memory());
        let memory = NonNull::new(memory).expect("a box is never null");
        let position = usize::from(self.tail & (ENTRIES - 1));
        // SAFETY: `position` is within the mapping. The kernel does not read this entry now: it is
        // behind the tail, and at most ENTRIES ids are in the ring. The setters write address,
        // length and id, not the field that is the tail.
        let entry = unsafe { &mut *self.entries.as_ptr().add(position) };
        entry.set_addr(memory.as_ptr().cast::<u8>() as u64);
        entry.set_len(buf::RECV_BUF_BYTES as u32);
        entry.set_bid(id);
        self.lent[usize::from(id)] = Some(memory);
        self.tail = self.tail.wrapping_add(1);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        for memory in self.lent.drain(..).flatten() {
            // SAFETY: as in `take`; no operation is left that could use the memory.
            buf::put_recv_memory(unsafe { Box::from_raw(memory.as_ptr()) });
        }
        // SAFETY: this is the mapping made in `new`, used by nothing else. The ring that knows it has
        // no operation left, and the kernel holds its own reference to the pages.
        let _ = unsafe { munmap(self.entries.as_ptr().cast(), bytes()) };
    }
}

fn bytes() -> usize {
    usize::from(ENTRIES) * size_of::<BufRingEntry>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number used in each turn, and the target after a check.
    fn after(demand: &mut Demand, used: u16) -> u16 {
        for _ in 0..LOOK_TURNS {
            demand.used = used;
            demand.turn();
            // Turns without a receive don't count.
            demand.turn();
        }
        demand.wanted
    }

    #[test]
    fn buffers_of_a_peak_are_not_replaced() {
        let mut demand = Demand::default();
        for wanted in [64, 128, 256, 256] {
            demand.grow();
            assert_eq!(demand.wanted, wanted);
        }
        assert_eq!(after(&mut demand, 65), 256);
        assert_eq!(after(&mut demand, 64), 128);
        assert_eq!(after(&mut demand, 33), 128);
        assert_eq!(after(&mut demand, 1), 64);
        assert_eq!(after(&mut demand, 1), 64);
        demand.grow();
        assert_eq!(demand.wanted, 128);
    }
}
