//! Accepting with the ring: a poll reports queued connections, and direct calls take them.
//!
//! Accept operations would save calls, but are not used: a multishot accept takes everything that
//! is queued, whether or not the worker has room for it or another worker is idle, and holds
//! descriptors that nothing serves. So a connection is taken when a task asks for one, and the rest
//! stays in the kernel's queue, bounded by `listen ... backlog`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll, Waker};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::super::calls::accept;
use super::super::socket::SocketKey;
use super::super::waiters::remember;
use super::Uring;
use super::slot::{SlotFlag, UringOp};
use crate::net::Address;

/// EPOLLEXCLUSIVE: one waiter of a shared socket is woken per connection.
const EXCLUSIVE: u32 = 1 << 28;

impl Uring {
    pub(crate) fn poll_accept(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(OwnedFd, Option<Address>)>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(SlotFlag::CanRead) {
            // The connection itself is blocking, as the ring needs it.
            match accept(fd, SocketFlags::CLOEXEC) {
                Ok(accepted) => {
                    slot.set(SlotFlag::CanRead, self.batch.taken() || self.multi_accept);
                    return Poll::Ready(Ok(accepted));
                }
                Err(Errno::AGAIN) => {
                    slot.set(SlotFlag::CanRead, false);
                    self.batch.found_none();
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        remember(&mut slot.read, cx);
        if !slot.has(UringOp::Accept) {
            let exclusive = if slot.is(SlotFlag::Shared) { EXCLUSIVE } else { 0 };
            let events = u32::from(PollFlags::IN.bits()) | exclusive;
            self.start_poll(key.0 as usize, UringOp::Accept, events);
        }
        Poll::Pending
    }

    pub(super) fn accept_done(
        &mut self,
        index: usize,
        result: Result<usize, Errno>,
        woken: &mut Vec<Waker>,
    ) {
        let slot = &mut self.slots[index];
        slot.set(SlotFlag::Paused, false);
        // Any other failure is reported by the call itself.
        if result != Err(Errno::CANCELED) {
            slot.set(SlotFlag::CanRead, true);
            self.batch.begin();
        }
        woken.extend(slot.read.take());
    }

    pub(crate) fn pause_accept(&mut self, key: SocketKey) {
        let slot = &mut self.slots[key.0 as usize];
        slot.set(SlotFlag::CanRead, false);
        if slot.has(UringOp::Accept) && !slot.is(SlotFlag::Paused) {
            slot.set(SlotFlag::Paused, true);
            self.cancel(key.0 as usize, UringOp::Accept);
        }
    }

    /// Resolves once a paused listener is no longer notified of connections.
    pub(crate) fn poll_paused(&mut self, key: SocketKey, cx: &mut Context<'_>) -> Poll<()> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.has(UringOp::Accept) {
            remember(&mut slot.read, cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
