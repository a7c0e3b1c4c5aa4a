//! The io_uring driver: one `io_uring_enter` per turn submits, waits and reaps.
//!
//! Accept is multishot; receive is single-shot with memory from the provided buffers (multishot
//! receive gained 1 % and cost 10 % on short connections); sends own their memory until they are
//! complete; hang-up and writability are polls.
//!
//! Sockets are in blocking mode: on a non-blocking one the ring would return EAGAIN instead of
//! waiting for readiness. For direct system calls (`sendfile`) a socket is made non-blocking by
//! [`Uring::prepare_direct`] and back before the next operation of the ring; while a direct send is
//! under way, perhaps in a pool thread, it stays non-blocking and receives go by poll and `recv`.
//!
//! # Ownership
//! The kernel holds on to three things on our behalf, each until the completion of its operation:
//!
//! * *Descriptors.* A slot counts its operations in `in_flight`. `detach` closes the descriptor at
//!   once only if there are none; otherwise it cancels them, and the descriptor moves into the slot
//!   and is closed with the last completion. So no operation ever names a number that was reused.
//! * *Memory to be sent.* It is in the slot's boxed [`Sending`]: the chunks themselves, and the
//!   `msghdr` with its slices that point to them. From submission to completion nothing moves the
//!   pointee of the box, changes the chunks, or drops either; a future that was dropped leaves the
//!   box where it is. Chunks are reference-counted or heap memory, so moving the box's *owner* (the
//!   slab grows) does not move bytes.
//! * *Memory to be received into*: see `uring_buffers.rs`.
//!
//! On drop the driver cancels everything and waits for the completions. Should they not come, it
//! leaks the memory rather than free it under the kernel's hands.

mod release;

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustc_hash::FxHashMap;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;
use slab::Slab;

use super::uring_buffers::{Buffers, GROUP};
use super::uring_slot::{Accepting, Is, Op, Sending, Slot};
use super::{
    Key, Role, SLICES_MAX, Wait, receive_large, remember, retry, send_memory, uring_setup,
};
use crate::buf::{self, Chain, Received, RecvBuf};
use crate::inbox::Inbox;
use crate::net::Address;

/// Boxes for sends kept for reuse.
const SPARE_MAX: usize = 256;

/// A send of at most this many bytes, with nothing to follow, is reported as done when it is handed
/// in: so that it and the receive that follows it go to the kernel in one call.
const BEHIND_BYTES_MAX: u64 = 16 * 1024;

/// How long a closed connection may take to send what was reported as sent.
const LINGER: Duration = Duration::from_secs(30);

/// How long a driver that is dropped waits for the kernel to give its memory back.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// IORING_RECVSEND_POLL_FIRST: do not try before the socket is readable.
const POLL_FIRST: u16 = 1;
/// IORING_ENTER_GETEVENTS, IORING_ENTER_EXT_ARG.
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;

/// The driver; one per worker.
pub(crate) struct Uring {
    // Dropped in this order: the ring before the memory that it uses.
    ring: IoUring,
    pub(super) slots: Slab<Slot>,
    /// What came for sockets and was not taken yet: apart from the slots, where it would cost idle
    /// connections memory.
    received: Slab<Result<RecvBuf, Errno>>,
    buffers: std::mem::ManuallyDrop<Buffers>,
    /// Submissions for which there was no room.
    backlog: VecDeque<squeue::Entry>,
    next_serial: u32,
    /// Closed since the last turn while sending: slot and serial.
    closed: Vec<(usize, u32)>,
    /// Closed and still sending, with the time when that ends.
    lingering: VecDeque<(Instant, usize, u32)>,
    /// Receives to be submitted again when buffers have been provided.
    retries: Vec<usize>,
    completions: Vec<(u64, i32, u32)>,
    /// Boxes, because their address must not change once pointers to them were made.
    #[expect(clippy::vec_box, reason = "reused as boxes")]
    spare: Vec<Box<Sending>>,
    /// What each listener has accepted ahead.
    accepting: FxHashMap<usize, Accepting>,
    inbox: Arc<Inbox>,
}

impl Uring {
    pub(crate) fn new(inbox: &Arc<Inbox>, restrict: bool) -> io::Result<Uring> {
        let (ring, buffers) = uring_setup::ring(restrict)?;
        let mut driver = Uring {
            ring,
            slots: Slab::new(),
            received: Slab::new(),
            buffers: std::mem::ManuallyDrop::new(buffers),
            backlog: VecDeque::new(),
            next_serial: 0,
            closed: Vec::new(),
            lingering: VecDeque::new(),
            retries: Vec::new(),
            completions: Vec::new(),
            spare: Vec::new(),
            accepting: FxHashMap::default(),
            inbox: inbox.clone(),
        };
        driver.watch_inbox();
        Ok(driver)
    }

    fn watch_inbox(&mut self) {
        let fd = Fd(self.inbox.event().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, u32::from(PollFlags::IN.bits())).multi(true).build();
        self.push(poll.user_data(Op::Inbox.user_data(0)));
    }

    /// Queues a submission.
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: (of the operation) the descriptors and memory that entries name live until their
        // completion, by the rules on top of this file.
        if unsafe { self.ring.submission().push(&entry) }.is_ok() {
            return;
        }
        // The queue is full: hand it in. What does not fit then waits for the turn.
        let _ = self.ring.submit();
        // SAFETY: as above.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    fn push_for(&mut self, index: usize, op: Op, entry: squeue::Entry) {
        self.slots[index].in_flight |= op.bit();
        self.push(entry.user_data(op.user_data(index)));
    }

    fn cancel(&mut self, index: usize, op: Op) {
        let cancel = opcode::AsyncCancel::new(op.user_data(index)).build();
        self.push(cancel.user_data(Op::Cancel.user_data(0)));
    }

    pub(super) fn poll_for(&mut self, index: usize, op: Op, flags: PollFlags) {
        let fd = Fd(self.slots[index].fd);
        let poll = opcode::PollAdd::new(fd, u32::from(flags.bits())).build();
        self.push_for(index, op, poll);
    }

    pub(crate) fn turn(&mut self, max: Option<Duration>, woken: &mut Vec<Waker>) -> io::Result<()> {
        while let Some(entry) = self.backlog.pop_front() {
            // SAFETY: as in `push`.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                break;
            }
        }
        match self.enter(if self.backlog.is_empty() { max } else { Some(Duration::ZERO) }) {
            Ok(()) | Err(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(
            self.ring.completion().map(|entry| (entry.user_data(), entry.result(), entry.flags())),
        );
        for (user_data, result, flags) in completions.drain(..) {
            self.complete(user_data, result, flags, woken);
        }
        self.completions = completions;
        self.buffers.publish();
        for index in std::mem::take(&mut self.retries) {
            self.start_recv(index);
        }
        self.bound_lingering();
        Ok(())
    }

    /// What was reported as sent mostly has gone within the turn. Where the peer takes nothing, it
    /// gets a little more time.
    fn bound_lingering(&mut self) {
        if self.closed.is_empty() && self.lingering.is_empty() {
            return;
        }
        let now = Instant::now();
        for (index, serial) in std::mem::take(&mut self.closed) {
            if self.slots.get(index).is_some_and(|slot| slot.serial == serial) {
                self.lingering.push_back((now + LINGER, index, serial));
            }
        }
        while let Some((limit, index, serial)) = self.lingering.front().copied()
            && limit <= now
        {
            self.lingering.pop_front();
            if self.slots.get(index).is_some_and(|slot| slot.serial == serial) {
                self.cancel(index, Op::Send);
            }
        }
    }

    fn enter(&mut self, max: Option<Duration>) -> Result<(), Errno> {
        let submit = self.ring.submission().len() as u32;
        let wait = u32::from(max != Some(Duration::ZERO));
        let limit = max.map(Timespec::from);
        let args = match &limit {
            Some(limit) if wait > 0 => SubmitArgs::new().timespec(limit),
            _ => SubmitArgs::new(),
        };
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: the arguments are of the form that EXT_ARG announces and outlive the call. What
        // is submitted was vouched for in `push`.
        let result = unsafe { self.ring.submitter().enter(submit, wait, flags, Some(&args)) };
        match result {
            Ok(_) => Ok(()),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    fn complete(&mut self, user_data: u64, result: i32, flags: u32, woken: &mut Vec<Waker>) {
        let index = user_data as u32 as usize;
        let Some(op) = Op::of(user_data) else { return };
        match op {
            Op::Cancel => return,
            Op::Inbox => {
                if !cqueue::more(flags) {
                    self.watch_inbox();
                }
                return;
            }
            _ => {}
        }
        let more = cqueue::more(flags);
        let Some(slot) = self.slots.get_mut(index) else { return };
        if !more {
            slot.in_flight &= !op.bit();
        }
        let result = match u32::try_from(result) {
            Ok(value) => Ok(value as usize),
            Err(_) => Err(Errno::from_raw_os_error(-result)),
        };
        match op {
            Op::Recv => self.recv_done(index, result, flags, woken),
            Op::Send => self.send_done(index, result, woken),
            Op::Accept => self.accept_done(index, result, woken),
            Op::Hangup => {
                slot.set(Is::PeerClosed, slot.is(Is::PeerClosed) || result.is_ok());
                woken.extend(slot.waiters.take_hangup());
            }
            Op::Writable => {
                slot.set(Is::CanWrite, true);
                woken.extend(slot.waiters.take_write());
            }
            Op::Cancel | Op::Inbox => {}
        }
        if self.slots.get(index).is_some_and(|slot| slot.closing.is_some() && slot.in_flight == 0) {
            // Closes the descriptor, and frees what was to be sent.
            drop(self.remove(index));
        }
    }

    pub(crate) fn attach(&mut self, fd: BorrowedFd<'_>, role: Role) -> io::Result<Key> {
        self.next_serial = self.next_serial.wrapping_add(1);
        let slot = Slot::new(fd.as_raw_fd(), role, self.next_serial);
        Ok(Key(self.slots.insert(slot) as u32))
    }

    /// Forgets a socket, and what it has accepted ahead.
    fn remove(&mut self, index: usize) -> Slot {
        self.accepting.remove(&index);
        self.slots.remove(index)
    }

    pub(crate) fn detach(&mut self, key: Key, fd: OwnedFd, dropped: &mut Vec<Waker>) {
        let index = key.0 as usize;
        let slot = &mut self.slots[index];
        let waiters = [slot.waiters.take_write(), slot.waiters.take_hangup()];
        dropped.extend(slot.read.take().into_iter().chain(waiters.into_iter().flatten()));
        if slot.in_flight == 0 {
            let slot = self.remove(index);
            if let Some(place) = slot.received {
                drop(self.received.remove(place.get() as usize - 1));
            }
            return;
        }
        slot.closing = Some(fd);
        if let Some(place) = slot.received.take() {
            drop(self.received.remove(place.get() as usize - 1));
        }
        slot.set(Is::SendAbandoned, !slot.is(Is::SendBehind));
        let (serial, behind) = (slot.serial, slot.is(Is::SendBehind));
        for op in Op::OF_SLOTS {
            if self.slots[index].has(op) && !(op == Op::Send && behind) {
                self.cancel(index, op);
            }
        }
        if behind {
            self.closed.push((index, serial));
        }
    }

    /// The connections that a listener has accepted but nobody has taken.
    pub(crate) fn take_accepted(&mut self, key: Key) -> VecDeque<OwnedFd> {
        let accepting = self.accepting.get_mut(&(key.0 as usize));
        accepting.map(|accepting| std::mem::take(&mut accepting.connections)).unwrap_or_default()
    }

    /// Takes what a paused listener has accepted ahead; `None`: nothing, and nothing will come.
    pub(crate) fn poll_accepted(
        &mut self,
        key: Key,
        cx: &mut Context<'_>,
    ) -> Poll<Option<OwnedFd>> {
        let slot = &mut self.slots[key.0 as usize];
        let accepting = self.accepting.entry(key.0 as usize).or_default();
        if let Some(fd) = accepting.connections.pop_front() {
            return Poll::Ready(Some(fd));
        }
        if !slot.has(Op::Accept) {
            return Poll::Ready(None);
        }
        remember(&mut slot.read, cx);
        Poll::Pending
    }

    // Receiving.

    pub(crate) fn poll_recv(
        &mut self,
        key: Key,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<RecvBuf>> {
        let slot = &mut self.slots[key.0 as usize];
        if let Some(place) = slot.received.take() {
            return Poll::Ready(Ok(self.received.remove(place.get() as usize - 1)?));
        }
        remember(&mut slot.read, cx);
        slot.waiters.trim();
        if !slot.has(Op::Recv) {
            self.start_recv(key.0 as usize);
        }
        Poll::Pending
    }

    /// Large receives are polls, each followed by a direct call: the ring's own buffers are small.
    pub(crate) fn poll_recv_large(
        &mut self,
        key: Key,
        fd: BorrowedFd<'_>,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Received>> {
        let slot = &mut self.slots[key.0 as usize];
        if let Some(place) = slot.received.take() {
            let received = self.received.remove(place.get() as usize - 1)?;
            return Poll::Ready(Ok(Received::Lent(received)));
        }
        if !slot.has(Op::Recv) && (slot.is(Is::CanRead) || slot.is(Is::TryFirst)) {
            slot.set(Is::TryFirst, false);
            match receive_large(fd, max) {
                Ok((buf, full)) => {
                    slot.set(Is::CanRead, full);
                    return Poll::Ready(Ok(Received::Large(buf)));
                }
                Err(Errno::AGAIN) => slot.set(Is::CanRead, false),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        remember(&mut slot.read, cx);
        if !slot.has(Op::Recv) {
            slot.set(Is::RecvByPoll, true);
            slot.set(Is::RecvLarge, true);
            self.poll_for(key.0 as usize, Op::Recv, PollFlags::IN | PollFlags::RDHUP);
        }
        Poll::Pending
    }

    /// `armed` is the caller's memory between polls, false at first. Nothing is received meanwhile.
    pub(crate) fn poll_readable(
        &mut self,
        key: Key,
        cx: &mut Context<'_>,
        armed: &mut bool,
    ) -> Poll<()> {
        let slot = &mut self.slots[key.0 as usize];
        if !std::mem::replace(armed, true) {
            slot.set(Is::CanRead, false);
        }
        if slot.is(Is::CanRead) && !slot.has(Op::Recv) {
            return Poll::Ready(());
        }
        remember(&mut slot.read, cx);
        if !slot.has(Op::Recv) {
            slot.set(Is::RecvByPoll, true);
            slot.set(Is::RecvLarge, true);
            self.poll_for(key.0 as usize, Op::Recv, PollFlags::IN | PollFlags::RDHUP);
        }
        Poll::Pending
    }

    fn start_recv(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.closing.is_none()) else {
            return;
        };
        if slot.is(Is::Nonblocking) && slot.is(Is::Direct) {
            slot.set(Is::RecvByPoll, true);
            self.poll_for(index, Op::Recv, PollFlags::IN | PollFlags::RDHUP);
            return;
        }
        slot.make_blocking();
        slot.set(Is::RecvByPoll, false);
        let hint = if slot.is(Is::TryFirst) { 0 } else { POLL_FIRST };
        let recv = opcode::Recv::new(Fd(slot.fd), std::ptr::null_mut(), 0)
            .buf_group(GROUP)
            .ioprio(hint)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        self.push_for(index, Op::Recv, recv);
    }

    fn recv_done(
        &mut self,
        index: usize,
        result: Result<usize, Errno>,
        flags: u32,
        woken: &mut Vec<Waker>,
    ) {
        // Whatever the result, a buffer that was picked must be taken back.
        let memory = cqueue::buffer_select(flags).and_then(|id| self.buffers.take(id));
        let slot = &mut self.slots[index];
        if slot.is(Is::Datagram) {
            woken.extend(slot.read.take());
            return;
        }
        if slot.take(Is::RecvLarge) {
            // What it was made for is up to whoever receives next.
            slot.set(Is::CanRead, true);
            woken.extend(slot.read.take());
            return;
        }
        slot.set(Is::TryFirst, cqueue::sock_nonempty(flags));
        let result = if slot.is(Is::RecvByPoll) && result.is_ok() {
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
                // More arrived in one turn than there were buffers; those are provided anew by now.
                self.buffers.grow();
                self.retries.push(index);
                // It may be one that waits for the end of what was cancelled.
                woken.extend(slot.read.take());
            }
            Err(error @ (Errno::AGAIN | Errno::INTR)) => {
                // Somebody has made it non-blocking: it is made blocking again.
                if error == Errno::AGAIN {
                    slot.set(Is::Nonblocking, true);
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

    // Sending.

    pub(crate) fn poll_send(
        &mut self,
        key: Key,
        fd: BorrowedFd<'_>,
        chain: &mut Chain,
        more: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let index = key.0 as usize;
        std::task::ready!(self.poll_flush(key, cx))?;
        let slot = &mut self.slots[index];
        if slot.is(Is::SendAbandoned) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !slot.has(Op::Send) {
            if let Some(mut sending) = slot.sending.take() {
                let sent = std::mem::take(&mut sending.chain);
                let result = sending.result.take();
                self.keep(sending);
                chain.prepend(sent);
                let count = result.unwrap_or(Err(Errno::IO))?;
                chain.advance(count as u64);
                return Poll::Ready(Ok(count));
            }
            // Direct calls for a file follow: to send its head so, too, saves waiting for a turn.
            if chain.first_file().is_some() {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::MORE;
                match retry(|| send_memory(fd, chain, flags)) {
                    Ok(sent) => {
                        chain.advance(sent as u64);
                        return Poll::Ready(Ok(sent));
                    }
                    Err(Errno::AGAIN) => {}
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
            let memory = chain.take_memory_prefix();
            let len = memory.len();
            let behind = !more
                && chain.is_empty()
                && len <= BEHIND_BYTES_MAX
                && memory.chunk_count() <= SLICES_MAX;
            self.start_send(index, memory, more, behind);
            if behind {
                return Poll::Ready(Ok(len as usize));
            }
        }
        self.slots[index].waiters.remember_write(cx);
        Poll::Pending
    }

    /// Resolves when what was reported as sent has been sent.
    pub(crate) fn poll_flush(&mut self, key: Key, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(Is::SendBehind) {
            slot.waiters.remember_write(cx);
            return Poll::Pending;
        }
        Poll::Ready(slot.send_error.take().map_or(Ok(()), |error| Err(error.into())))
    }

    fn start_send(&mut self, index: usize, chain: Chain, more: bool, behind: bool) {
        let mut sending = self.spare.pop().unwrap_or_else(|| Box::new(Sending::new()));
        sending.chain = chain;
        let slot = &mut self.slots[index];
        slot.make_blocking();
        slot.set(Is::SendBehind, behind);
        let fd = Fd(slot.fd);
        let mut flags = libc::MSG_NOSIGNAL;
        if more {
            flags |= libc::MSG_MORE;
        }
        if behind {
            // All of it: there is nobody to send the rest.
            flags |= libc::MSG_WAITALL;
        }
        // In its final place before pointers to it are taken.
        let sending = slot.sending.insert(sending);
        let entry = match sending.fill() {
            1 => {
                let slice = &sending.slices[0];
                let len = slice.iov_len.min(u32::MAX as usize) as u32;
                opcode::Send::new(fd, slice.iov_base.cast(), len).flags(flags).build()
            }
            _ => opcode::SendMsg::new(fd, &raw const sending.header).flags(flags as u32).build(),
        };
        self.push_for(index, Op::Send, entry);
    }

    fn send_done(&mut self, index: usize, result: Result<usize, Errno>, woken: &mut Vec<Waker>) {
        let slot = &mut self.slots[index];
        if slot.is(Is::SendAbandoned) || slot.is(Is::SendBehind) {
            if let Some(mut sending) = slot.sending.take() {
                let chain = std::mem::take(&mut sending.chain);
                if slot.is(Is::SendBehind) {
                    match result {
                        Ok(count) if count as u64 == chain.len() => {}
                        Ok(_) => slot.send_error.set(Errno::PIPE),
                        Err(error) => slot.send_error.set(error),
                    }
                }
                drop(chain);
                self.keep(sending);
            }
            let slot = &mut self.slots[index];
            slot.set(Is::SendBehind, false);
            slot.shutdown_if_asked();
            woken.extend(slot.waiters.take_write());
            return;
        }
        if let Some(sending) = &mut slot.sending {
            // Nothing was sent: the next poll starts anew.
            sending.result = Some(match result {
                Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                result => result,
            });
        }
        woken.extend(slot.waiters.take_write());
    }

    /// Ends one or both sides of the connection, after what was reported as sent.
    pub(crate) fn shutdown(
        &mut self,
        key: Key,
        fd: BorrowedFd<'_>,
        how: Shutdown,
    ) -> io::Result<()> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(Is::SendBehind) {
            slot.shutdown = Some(how);
            return Ok(());
        }
        super::shutdown(fd, how)
    }

    fn keep(&mut self, sending: Box<Sending>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(sending);
        }
    }

    // Accepting.

    pub(crate) fn poll_accept(
        &mut self,
        key: Key,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(OwnedFd, Option<Address>)>> {
        let slot = &mut self.slots[key.0 as usize];
        let accepting = self.accepting.entry(key.0 as usize).or_default();
        if let Some(fd) = accepting.connections.pop_front() {
            return Poll::Ready(Ok((fd, None)));
        }
        if let Some(error) = accepting.error.take() {
            return Poll::Ready(Err(error.into()));
        }
        remember(&mut slot.read, cx);
        if !slot.has(Op::Accept) {
            self.start_accept(key.0 as usize, fd)?;
        }
        Poll::Pending
    }

    /// The listening socket may be shared with a process that needs it non-blocking. What counts
    /// for the ring is how it is when the operation is handed in: so it is blocking just then.
    fn start_accept(&mut self, index: usize, fd: BorrowedFd<'_>) -> io::Result<()> {
        rustix::io::ioctl_fionbio(fd, false)?;
        let accept = opcode::AcceptMulti::new(Fd(self.slots[index].fd)).flags(libc::SOCK_CLOEXEC);
        self.push_for(index, Op::Accept, accept.build());
        let submitted = self.ring.submit();
        rustix::io::ioctl_fionbio(fd, true)?;
        submitted.map(|_| ())
    }

    fn accept_done(&mut self, index: usize, result: Result<usize, Errno>, woken: &mut Vec<Waker>) {
        let accepting = self.accepting.entry(index).or_default();
        match result {
            Ok(fd) => {
                // SAFETY: the kernel has just opened this descriptor for us.
                let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
                accepting.connections.push_back(fd);
            }
            Err(Errno::CANCELED) => {
                accepting.cancelling = false;
                // Of one that is closing nobody would take what is found.
                let closing = self.slots[index].closing.is_some();
                if std::mem::take(&mut accepting.sweep) && !closing {
                    self.sweep(index);
                }
            }
            // A non-blocking listener after all, or a signal: it is handed in anew.
            Err(Errno::AGAIN | Errno::INTR) => accepting.cancelling = false,
            Err(error) => accepting.error = Some(error),
        }
        woken.extend(self.slots[index].read.take());
    }

    /// Accepts what is queued, and no more: the listener is non-blocking by now. It is not if somebody
    /// who shares it is in `start_accept`: so what is not done at once is cancelled.
    fn sweep(&mut self, index: usize) {
        let accept = opcode::AcceptMulti::new(Fd(self.slots[index].fd)).flags(libc::SOCK_CLOEXEC);
        self.push_for(index, Op::Accept, accept.build());
        self.cancel(index, Op::Accept);
    }

    pub(crate) fn pause_accept(&mut self, key: Key, last: bool) {
        let index = key.0 as usize;
        let slot = &mut self.slots[index];
        if slot.has(Op::Accept)
            && let Some(accepting) = self.accepting.get_mut(&index)
        {
            accepting.sweep |= last;
            if !std::mem::replace(&mut accepting.cancelling, true) {
                self.cancel(index, Op::Accept);
            }
        }
    }

    // Readiness.

    pub(crate) fn poll_hangup(&mut self, key: Key, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(Is::PeerClosed) {
            return Poll::Ready(Ok(()));
        }
        slot.waiters.remember_hangup(cx);
        if !slot.has(Op::Hangup) {
            self.poll_for(key.0 as usize, Op::Hangup, PollFlags::RDHUP);
        }
        Poll::Pending
    }

    /// `armed` is the caller's memory between polls, false at first.
    pub(crate) fn poll_writable(
        &mut self,
        key: Key,
        cx: &mut Context<'_>,
        armed: &mut bool,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if !*armed {
            *armed = true;
            slot.set(Is::CanWrite, false);
        }
        if slot.is(Is::CanWrite) {
            return Poll::Ready(Ok(()));
        }
        slot.waiters.remember_write(cx);
        if !slot.has(Op::Writable) {
            self.poll_for(key.0 as usize, Op::Writable, PollFlags::OUT);
        }
        Poll::Pending
    }

    /// From now on direct calls on the descriptor do not wait; receives go by poll.
    pub(crate) fn prepare_direct(&mut self, key: Key, fd: BorrowedFd<'_>) -> io::Result<()> {
        let slot = &mut self.slots[key.0 as usize];
        slot.set(Is::Direct, true);
        if !slot.is(Is::Nonblocking) {
            rustix::io::ioctl_fionbio(fd, true)?;
            slot.set(Is::Nonblocking, true);
        }
        Ok(())
    }

    /// No direct call is under way any more.
    pub(crate) fn finish_direct(&mut self, key: Key) {
        self.slots[key.0 as usize].set(Is::Direct, false);
    }

    pub(crate) fn forget(&mut self, key: Key, wait: Wait) -> Option<Waker> {
        let slot = self.slots.get_mut(key.0 as usize)?;
        match wait {
            // The receive goes on, and its result waits for the next future.
            Wait::Read => slot.read.take(),
            Wait::Write => {
                if slot.has(Op::Send) && !slot.is(Is::SendBehind) {
                    slot.set(Is::SendAbandoned, true);
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
        self.push(cancel.user_data(Op::Cancel.user_data(0)));
        let limit = Instant::now() + DROP_WAIT;
        let mut woken = Vec::new();
        // Sockets still attached have no owner any more: tasks are dropped before their driver.
        while self.slots.iter().any(|(_, slot)| slot.in_flight != 0) && Instant::now() < limit {
            if self.turn(Some(Duration::from_millis(10)), &mut woken).is_err() {
                break;
            }
        }
        if self.slots.iter().any(|(_, slot)| slot.in_flight != 0) {
            std::mem::forget(std::mem::take(&mut self.slots));
            return;
        }
        // SAFETY: no operation is in flight, so none uses the buffers; they are not used again.
        unsafe { std::mem::ManuallyDrop::drop(&mut self.buffers) };
    }
}
