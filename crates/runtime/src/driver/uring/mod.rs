//! The io_uring driver: one `io_uring_enter` per turn submits, waits and reaps.
//!
//! Receive is single-shot with memory from the provided buffers (multishot receive gained 1 % and
//! cost 10 % on short connections); small sends own their memory until they complete, and larger ones
//! are direct calls (`uring/send.rs`); hang-up, writability and accepting are polls, the last followed
//! by direct calls (`uring/accept.rs`).
//!
//! Sockets are in blocking mode: on a non-blocking one the ring would return EAGAIN instead of
//! waiting for readiness. For direct system calls (`sendfile`) [`Uring::prepare_direct`] makes a
//! socket non-blocking, and it is set back before the next operation of the ring; while a direct
//! send is in progress, perhaps in a pool thread, it stays non-blocking and receives use poll and
//! `recv`.
//!
//! # Ownership
//! The kernel holds three things on our behalf, each until its operation completes, or, where success has no
//! completion, until it is known to have succeeded (`skipped.rs`):
//!
//! * *Descriptors.* A slot counts its operations in `in_flight`. `detach` closes the descriptor only
//!   if there are none; otherwise it cancels them, and the descriptor moves into the slot and is
//!   closed after the last completion. Closing is an operation of the ring as well, which saves a
//!   system call per connection; from its submission on, nothing names the descriptor. So no
//!   operation ever names a number that was reused.
//! * *Memory to be sent.* It is in the slot's boxed [`Sending`]: the chunks themselves, and the
//!   `msghdr` with its slices that point to them. From submission to completion nothing moves the
//!   pointee of the box, changes the chunks, or drops either; a future that was dropped leaves the
//!   box where it is. Chunks are reference-counted or heap memory, so moving the box's *owner* (the
//!   slab grows) does not move bytes.
//! * *Memory to be received into*: see `buffers.rs`.
//!
//! A worker that ends normally first waits for sends that were reported as done (`lingering_sends.rs`).
//! On drop the driver cancels everything and waits for the completions. If they do not arrive, it
//! leaks the memory rather than free it while the kernel may still use it.

mod accept;
mod buffers;
mod datagram;
mod lingering_sends;
mod receive;
mod release;
mod ring;
mod send;
pub(super) mod setup;
mod skipped;
mod slot;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd};
use io_uring::{cqueue, opcode, squeue};
use nowait_spare::LocalSpares;
use rustix::event::PollFlags;
use rustix::io::Errno;
use slab::Slab;

use super::accept_batch::AcceptBatch;
use super::options::DriverOptions;
use super::socket::{Role, SocketKey, Wait};
use crate::buf::RecvBuf;
use buffers::Buffers;
use lingering_sends::LingeringSends;
use ring::SubmissionRing;
use slot::{SERIAL_MAX, Sending, SlotFlag, UringOp, UringSlot};

/// How long a dropped driver waits for the kernel to return its memory.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// The driver; one per worker.
pub(crate) struct Uring {
    // Dropped in this order: the ring before the memory that it uses.
    ring: SubmissionRing,
    slots: Slab<UringSlot>,
    /// Received data that was not taken yet: kept outside the slots, where it would cost idle
    /// connections memory.
    received: Slab<Result<RecvBuf, Errno>>,
    buffers: std::mem::ManuallyDrop<Buffers>,
    next_serial: u32,
    /// Number of turns so far, modulo 2^32.
    turns: u32,
    lingering: LingeringSends,
    /// Sends whose success has no completion: slot, and the turn after which they were submitted.
    skipped: Vec<(usize, u32)>,
    /// Receives to be resubmitted once buffers have been provided.
    retries: Vec<usize>,
    completions: Vec<(u64, i32, u32)>,
    /// Boxed, because their addresses must not change once pointers to them exist.
    spare: LocalSpares<Box<Sending>>,
    /// The state of accepting connections, shared by all listeners of a worker.
    batch: AcceptBatch,
    multi_accept: bool,
    /// The inbox's eventfd.
    event: Arc<OwnedFd>,
}

impl Uring {
    pub(crate) fn new(options: DriverOptions, event: Arc<OwnedFd>) -> io::Result<Uring> {
        let (ring, buffers) = setup::ring(options.guard)?;
        let mut driver = Uring {
            ring: SubmissionRing::new(ring),
            slots: Slab::new(),
            received: Slab::new(),
            buffers: std::mem::ManuallyDrop::new(buffers),
            next_serial: 0,
            turns: 0,
            lingering: LingeringSends::default(),
            skipped: Vec::new(),
            retries: Vec::new(),
            completions: Vec::new(),
            spare: LocalSpares::new(send::SPARE_MAX),
            batch: AcceptBatch::new(),
            multi_accept: options.multi_accept,
            event,
        };
        driver.watch_inbox();
        Ok(driver)
    }

    fn watch_inbox(&mut self) {
        let fd = Fd(self.event.as_raw_fd());
        let poll = opcode::PollAdd::new(fd, u32::from(PollFlags::IN.bits())).multi(true).build();
        self.ring.push(poll.user_data(UringOp::Inbox.user_data(0, 0)));
    }

    fn push_for(&mut self, index: usize, op: UringOp, entry: squeue::Entry) {
        let slot = &mut self.slots[index];
        slot.in_flight |= op.bit();
        self.ring.push(entry.user_data(op.user_data(index, slot.serial)));
    }

    fn cancel(&mut self, index: usize, op: UringOp) {
        let cancel = opcode::AsyncCancel::new(op.user_data(index, self.slots[index].serial));
        self.ring.push(cancel.build().user_data(UringOp::Cancel.user_data(0, 0)));
    }

    /// Closes a socket with the next call, behind everything that was submitted before it. The kernel
    /// closes the descriptor even if it reports an error, so the completion doesn't matter.
    fn close(&mut self, fd: OwnedFd) {
        let close = opcode::Close::new(Fd(fd.into_raw_fd())).build();
        self.ring.push(close.user_data(UringOp::Cancel.user_data(0, 0)));
    }

    fn poll_for(&mut self, index: usize, op: UringOp, flags: PollFlags) {
        self.start_poll(index, op, u32::from(flags.bits()));
    }

    fn start_poll(&mut self, index: usize, op: UringOp, events: u32) {
        let poll = opcode::PollAdd::new(Fd(self.slots[index].fd), events).build();
        self.push_for(index, op, poll);
    }

    pub(crate) fn turn(&mut self, max: Option<Duration>, woken: &mut Vec<Waker>) -> io::Result<()> {
        self.turns = self.turns.wrapping_add(1);
        match self.ring.enter(self.bound_wait(max)) {
            Ok(()) | Err(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        let skipped = self.take_skipped();
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(self.ring.completions());
        for (user_data, result, flags) in completions.drain(..) {
            self.complete(user_data, result, flags, woken);
        }
        self.completions = completions;
        self.complete_skipped(skipped, woken);
        self.buffers.publish();
        for index in std::mem::take(&mut self.retries) {
            self.start_recv(index);
        }
        self.tend_stragglers();
        Ok(())
    }

    fn complete(&mut self, user_data: u64, result: i32, flags: u32, woken: &mut Vec<Waker>) {
        let index = user_data as u32 as usize;
        let Some(op) = UringOp::of(user_data) else { return };
        match op {
            UringOp::Cancel => return,
            UringOp::Inbox => {
                if !cqueue::more(flags) {
                    self.watch_inbox();
                }
                return;
            }
            _ => {}
        }
        let more = cqueue::more(flags);
        let known =
            self.slots.get_mut(index).filter(|slot| slot.serial == UringOp::serial_of(user_data));
        // A slot stays until its last completion, so an unknown one is a bug in this driver. Other sockets
        // must not be affected.
        let Some(slot) = known else {
            debug_assert!(cqueue::buffer_select(flags).is_none(), "a buffer would be lost");
            return;
        };
        if !more {
            slot.in_flight &= !op.bit();
        }
        let result = match u32::try_from(result) {
            Ok(value) => Ok(value as usize),
            Err(_) => Err(Errno::from_raw_os_error(-result)),
        };
        match op {
            UringOp::Recv => self.recv_done(index, result, flags, woken),
            UringOp::Send => self.send_done(index, result, woken),
            UringOp::Accept => self.accept_done(index, result, woken),
            UringOp::Hangup => {
                slot.set(SlotFlag::PeerClosed, slot.is(SlotFlag::PeerClosed) || result.is_ok());
                woken.extend(slot.waiters.take_hangup());
            }
            UringOp::Writable => {
                slot.set(SlotFlag::CanWrite, true);
                woken.extend(slot.waiters.take_write());
            }
            UringOp::Cancel | UringOp::Inbox => {}
        }
        self.close_if_done(index);
    }

    /// Closes a detached socket without operations in flight.
    fn close_if_done(&mut self, index: usize) {
        if self.slots.get(index).is_some_and(|slot| slot.closing.is_some() && slot.in_flight == 0) {
            // Frees the memory to be sent, too.
            let mut slot = self.remove(index);
            if let Some(fd) = slot.closing.take() {
                self.close(fd);
            }
        }
    }

    pub(crate) fn attach(&mut self, fd: BorrowedFd<'_>, role: Role) -> io::Result<SocketKey> {
        self.next_serial = (self.next_serial + 1) & SERIAL_MAX;
        if matches!(role, Role::Listener { .. }) {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        let slot = UringSlot::new(fd.as_raw_fd(), role, self.next_serial);
        Ok(SocketKey(self.slots.insert(slot) as u32))
    }

    fn remove(&mut self, index: usize) -> UringSlot {
        let slot = self.slots.remove(index);
        self.lingering.removed(&slot);
        slot
    }

    /// Returns whether the socket is still sending; see `lingering_sends.rs`.
    pub(crate) fn detach(&mut self, key: SocketKey, fd: OwnedFd, dropped: &mut Vec<Waker>) -> bool {
        let index = key.0 as usize;
        let slot = &mut self.slots[index];
        let waiters = [slot.waiters.take_write(), slot.waiters.take_hangup()];
        dropped.extend(slot.read.take().into_iter().chain(waiters.into_iter().flatten()));
        if slot.in_flight == 0 {
            let slot = self.remove(index);
            if let Some(place) = slot.received {
                drop(self.received.remove(place.get() as usize - 1));
            }
            self.close(fd);
            return false;
        }
        slot.closing = Some(fd);
        if let Some(place) = slot.received.take() {
            drop(self.received.remove(place.get() as usize - 1));
        }
        slot.set(SlotFlag::SendAbandoned, !slot.is(SlotFlag::SendBehind));
        let behind = slot.is(SlotFlag::SendBehind);
        for op in UringOp::OF_SLOTS {
            if self.slots[index].has(op) && !(op == UringOp::Send && behind) {
                self.cancel(index, op);
            }
        }
        if behind {
            self.straggles(index);
        }
        behind
    }

    pub(crate) fn poll_hangup(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(SlotFlag::PeerClosed) {
            return Poll::Ready(Ok(()));
        }
        slot.waiters.remember_hangup(cx);
        if !slot.has(UringOp::Hangup) {
            self.poll_for(key.0 as usize, UringOp::Hangup, PollFlags::RDHUP);
        }
        Poll::Pending
    }

    /// `armed` is the caller's memory between polls, false at first.
    pub(crate) fn poll_writable(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
        armed: &mut bool,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if !*armed {
            *armed = true;
            slot.set(SlotFlag::CanWrite, false);
        }
        if slot.is(SlotFlag::CanWrite) {
            return Poll::Ready(Ok(()));
        }
        slot.waiters.remember_write(cx);
        if !slot.has(UringOp::Writable) {
            self.poll_for(key.0 as usize, UringOp::Writable, PollFlags::OUT);
        }
        Poll::Pending
    }

    /// Makes direct calls on the descriptor non-blocking; receives use poll from now on.
    pub(crate) fn prepare_direct(&mut self, key: SocketKey, fd: BorrowedFd<'_>) -> io::Result<()> {
        let slot = &mut self.slots[key.0 as usize];
        slot.set(SlotFlag::Direct, true);
        if !slot.is(SlotFlag::Nonblocking) {
            rustix::io::ioctl_fionbio(fd, true)?;
            slot.set(SlotFlag::Nonblocking, true);
        }
        Ok(())
    }

    /// Ends the period of direct calls.
    pub(crate) fn finish_direct(&mut self, key: SocketKey) {
        self.slots[key.0 as usize].set(SlotFlag::Direct, false);
    }

    pub(crate) fn forget(&mut self, key: SocketKey, wait: Wait) -> Option<Waker> {
        let slot = self.slots.get_mut(key.0 as usize)?;
        match wait {
            // The receive continues, and its result waits for the next future.
            Wait::Read => slot.read.take(),
            Wait::Write => {
                if slot.has(UringOp::Send) && !slot.is(SlotFlag::SendBehind) {
                    slot.set(SlotFlag::SendAbandoned, true);
                }
                slot.waiters.take_write()
            }
            Wait::Hangup => slot.waiters.take_hangup(),
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        self.ring.push(cancel.user_data(UringOp::Cancel.user_data(0, 0)));
        let limit = Instant::now() + DROP_WAIT;
        let mut woken = Vec::new();
        // Sockets still attached no longer have an owner: tasks are dropped before their driver.
        while self.slots.iter().any(|(_, slot)| slot.in_flight != 0) && Instant::now() < limit {
            if self.turn(Some(Duration::from_millis(10)), &mut woken).is_err() {
                break;
            }
        }
        // The sockets closed by the last completions.
        let _ = self.ring.enter(Some(Duration::ZERO));
        if self.slots.iter().any(|(_, slot)| slot.in_flight != 0) {
            std::mem::forget(std::mem::take(&mut self.slots));
            return;
        }
        // SAFETY: no operation is in flight, so none uses the buffers; they are not used again.
        unsafe { std::mem::ManuallyDrop::drop(&mut self.buffers) };
    }
}

#[cfg(test)]
mod tests;
