//! Receiving on the ring: single-shot, into provided buffers; by direct calls after a poll where
//! data may be large or the socket must stay non-blocking. The ownership rules are in `mod.rs`.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, Waker};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::super::calls::receive_large;
use super::super::socket::SocketKey;
use super::super::waiters::remember;
use super::Uring;
use super::buffers::GROUP;
use super::slot::{SlotFlag, UringOp};
use crate::buf::{self, ReceivedBuf, RecvBuf};

/// IORING_RECVSEND_POLL_FIRST: do not try before the socket is readable.
const POLL_FIRST: u16 = 1;

impl Uring {
    pub(crate) fn poll_recv(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<RecvBuf>> {
        let slot = &mut self.slots[key.0 as usize];
        if let Some(place) = slot.received.take() {
            return Poll::Ready(Ok(self.received.remove(place.get() as usize - 1)?));
        }
        remember(&mut slot.read, cx);
        slot.waiters.trim();
        if !slot.has(UringOp::Recv) {
            self.start_recv(key.0 as usize);
        }
        Poll::Pending
    }

    /// Large receives are polls, each followed by a direct call: the ring's own buffers are small.
    pub(crate) fn poll_recv_large(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ReceivedBuf>> {
        let slot = &mut self.slots[key.0 as usize];
        if let Some(place) = slot.received.take() {
            let received = self.received.remove(place.get() as usize - 1)?;
            return Poll::Ready(Ok(ReceivedBuf::Lent(received)));
        }
        if !slot.has(UringOp::Recv) && (slot.is(SlotFlag::CanRead) || slot.is(SlotFlag::TryFirst)) {
            slot.set(SlotFlag::TryFirst, false);
            match receive_large(fd, max) {
                Ok((buf, full)) => {
                    slot.set(SlotFlag::CanRead, full);
                    return Poll::Ready(Ok(buf));
                }
                Err(Errno::AGAIN) => slot.set(SlotFlag::CanRead, false),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        remember(&mut slot.read, cx);
        if !slot.has(UringOp::Recv) {
            slot.set(SlotFlag::RecvByPoll, true);
            slot.set(SlotFlag::RecvLarge, true);
            self.poll_for(key.0 as usize, UringOp::Recv, PollFlags::IN | PollFlags::RDHUP);
        }
        Poll::Pending
    }

    pub(crate) fn reads_directly(&self, key: SocketKey) -> bool {
        let slot = &self.slots[key.0 as usize];
        slot.received.is_none() && (!slot.has(UringOp::Recv) || slot.is(SlotFlag::RecvLarge))
    }

    /// `armed` is the caller's state between polls, initially false. No data is received meanwhile.
    pub(crate) fn poll_readable(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
        armed: &mut bool,
    ) -> Poll<()> {
        let slot = &mut self.slots[key.0 as usize];
        if !std::mem::replace(armed, true) {
            slot.set(SlotFlag::CanRead, false);
        }
        if slot.is(SlotFlag::CanRead) && !slot.has(UringOp::Recv) {
            return Poll::Ready(());
        }
        remember(&mut slot.read, cx);
        if !slot.has(UringOp::Recv) {
            slot.set(SlotFlag::RecvByPoll, true);
            slot.set(SlotFlag::RecvLarge, true);
            self.poll_for(key.0 as usize, UringOp::Recv, PollFlags::IN | PollFlags::RDHUP);
        }
        Poll::Pending
    }

    pub(super) fn start_recv(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.closing.is_none()) else {
            return;
        };
        if slot.is(SlotFlag::Nonblocking) && slot.is(SlotFlag::Direct) {
            slot.set(SlotFlag::RecvByPoll, true);
            self.poll_for(index, UringOp::Recv, PollFlags::IN | PollFlags::RDHUP);
            return;
        }
        slot.make_blocking();
        slot.set(SlotFlag::RecvByPoll, false);
        let hint = if slot.is(SlotFlag::TryFirst) { 0 } else { POLL_FIRST };
        let recv = opcode::Recv::new(Fd(slot.fd), std::ptr::null_mut(), 0)
            .buf_group(GROUP)
            .ioprio(hint)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        self.push_for(index, UringOp::Recv, recv);
    }

    pub(super) fn recv_done(
        &mut self,
        index: usize,
        result: Result<usize, Errno>,
        flags: u32,
        woken: &mut Vec<Waker>,
    ) {
        // Regardless of the result, a selected buffer must be taken back.
        let memory = cqueue::buffer_select(flags).and_then(|id| self.buffers.take(id));
        let slot = &mut self.slots[index];
        if slot.is(SlotFlag::Datagram) {
            woken.extend(slot.read.take());
            return;
        }
        if slot.take(SlotFlag::RecvLarge) {
            // The next receive decides how to use the readiness.
            slot.set(SlotFlag::CanRead, true);
            woken.extend(slot.read.take());
            return;
        }
        slot.set(SlotFlag::TryFirst, cqueue::sock_nonempty(flags));
        let result = if slot.is(SlotFlag::RecvByPoll) && result.is_ok() {
            slot.recv_direct()
        } else {
            match (result, memory) {
                (Ok(len), Some(memory)) => Ok(RecvBuf::filled(memory, len)),
                (Ok(_), None) => Ok(RecvBuf::empty()),
                (Err(error), memory) => {
                    memory.into_iter().for_each(buf::put_recv_memory);
                    Err(error)
                }
            }
        };
        match result {
            Err(Errno::NOBUFS) => {
                // More arrived in one turn than there were buffers; those have been replenished by
                // now.
                self.buffers.grow();
                self.retries.push(index);
                // The waker may belong to a wait for the end of a cancelled operation.
                woken.extend(slot.read.take());
            }
            Err(error @ (Errno::AGAIN | Errno::INTR)) => {
                // The socket was made non-blocking meanwhile: it is set back to blocking.
                if error == Errno::AGAIN {
                    slot.set(SlotFlag::Nonblocking, true);
                }
                self.retries.push(index);
                woken.extend(slot.read.take());
            }
            result => {
                if slot.closing.is_none() {
                    let place = self.received.insert(result) as u32;
                    slot.received = Some(NonZeroU32::MIN.saturating_add(place));
                }
                woken.extend(slot.read.take());
            }
        }
    }
}
