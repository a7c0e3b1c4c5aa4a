//! Sending: small amounts on the ring, everything else by direct calls, with a poll when the socket
//! is full, as with epoll.
//!
//! A send on the ring owns its memory until the end of the turn. If larger ones did, all connections
//! that send in one turn would hold their memory at the same time, where direct calls use the same
//! memory one after the other; and for 32 KB and more, the copy costs so much that saving a call is
//! no gain. For a peer that does not keep up, the ring does no more than a poll.
//!
//! A small send is reported as done when it is submitted; everything that follows on the socket,
//! including its close, waits for it. It has no completion if the socket has room for it (`skipped.rs`).
//! The ownership rules are in `mod.rs`.

use std::io;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use io_uring::opcode;
use io_uring::types::Fd;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::super::calls::{SLICES_MAX, retry, send_memory, shutdown};
use super::super::socket::{AfterSend, SocketKey};
use super::Uring;
use super::slot::{Sending, SlotFlag, UringOp};
use crate::buf::{Chain, Chunk, OutBuf, RECV_BUF_BYTES};

/// Boxes for sends kept for reuse.
pub(super) const SPARE_MAX: usize = 256;

/// A send of at most this many bytes goes to the ring. With nothing to follow, it is reported as done
/// when it is submitted, so that it and the next receive go to the kernel in one call. The size of a
/// receive buffer: 16 KB and a head; but not a full one, which is passed on when a peer sends without
/// pause. A connection holds at most this much beyond what its owner knows of, and nothing once its peer was
/// slow: until a send completes at once again, all are direct.
const RING_BYTES_MAX: u64 = RECV_BUF_BYTES as u64 - 1;

/// How memory is given to the ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submit {
    /// The owner waits for the result.
    Plain,
    /// Like `Plain`; more follows at once.
    More,
    /// Reported as done, and sent at once as far as the socket has room.
    Behind,
    /// The rest of such a send: waits for room.
    Rest,
}

impl Submit {
    fn flags(self) -> i32 {
        libc::MSG_NOSIGNAL
            | match self {
                Submit::Plain => 0,
                Submit::More => libc::MSG_MORE,
                // All of it, or a completion: without MSG_WAITALL a part would be a success, too.
                Submit::Behind => libc::MSG_WAITALL | libc::MSG_DONTWAIT,
                // No later call would send what is left out.
                Submit::Rest => libc::MSG_WAITALL,
            }
    }
}

impl Uring {
    pub(crate) fn poll_send(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        chain: &mut Chain,
        follows: AfterSend,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let index = key.0 as usize;
        std::task::ready!(self.poll_flush(key, cx))?;
        let slot = &mut self.slots[index];
        if slot.is(SlotFlag::SendAbandoned) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !slot.has(UringOp::Send) {
            if let Some(mut sending) = slot.sending.take() {
                let sent = std::mem::take(&mut sending.chain);
                let result = sending.result.take();
                self.keep(sending);
                chain.prepend(sent);
                let count = result.unwrap_or(Err(Errno::IO))?;
                chain.advance(count as u64);
                return Poll::Ready(Ok(count));
            }
            if !self.is_for_ring(index, chain) {
                return self.send_direct(index, fd, chain, follows, cx);
            }
            let behind = follows == AfterSend::Nothing
                && chain.chunk_count() <= SLICES_MAX
                && self.lingering.have_room();
            let memory = std::mem::take(chain);
            let len = memory.len();
            let how = match follows {
                _ if behind => Submit::Behind,
                AfterSend::AtOnce => Submit::More,
                _ => Submit::Plain,
            };
            self.start_send(index, memory, how);
            if behind {
                return Poll::Ready(Ok(len as usize));
            }
        }
        self.slots[index].waiters.remember_write(cx);
        Poll::Pending
    }

    /// Whether a chain is sent by the ring: few bytes, and a peer that keeps up. Otherwise the owner
    /// must wait, so that `send_timeout` applies. The calls for a file are direct: so is that for its
    /// head, which saves waiting for a turn.
    fn is_for_ring(&self, index: usize, chain: &Chain) -> bool {
        !self.slots[index].is(SlotFlag::Full)
            && chain.first_file().is_none()
            && chain.len() <= RING_BYTES_MAX
    }

    /// Sends as much of the memory at the front of the chain as there is room for.
    fn send_direct(
        &mut self,
        index: usize,
        fd: BorrowedFd<'_>,
        chain: &mut Chain,
        follows: AfterSend,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let slot = &mut self.slots[index];
        if !slot.has(UringOp::Writable) {
            let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            flags.set(SendFlags::MORE, follows == AfterSend::AtOnce);
            match retry(|| send_memory(fd, chain, flags)) {
                Ok(sent) => {
                    let offered = chain.memory_prefix().take(SLICES_MAX).map(Chunk::len).sum();
                    slot.set(SlotFlag::Full, (sent as u64) < offered);
                    chain.advance(sent as u64);
                    return Poll::Ready(Ok(sent));
                }
                Err(Errno::AGAIN) => slot.set(SlotFlag::Full, true),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        slot.waiters.remember_write(cx);
        if !slot.has(UringOp::Writable) {
            self.poll_for(index, UringOp::Writable, PollFlags::OUT);
        }
        Poll::Pending
    }

    /// Whether [`send_behind`](Self::send_behind) is possible.
    pub(crate) fn sends_behind(&self, key: SocketKey, len: usize) -> bool {
        let slot = &self.slots[key.0 as usize];
        !slot.has(UringOp::Send)
            && slot.sending.is_none()
            && !slot.is(SlotFlag::SendAbandoned)
            && slot.send_error.is_none()
            && !slot.is(SlotFlag::Full)
            && len as u64 <= RING_BYTES_MAX
            && self.lingering.have_room()
    }

    /// Submits both pieces, which are reported as sent.
    pub(crate) fn send_behind(&mut self, key: SocketKey, first: OutBuf, second: Bytes) {
        debug_assert!(self.sends_behind(key, first.len() + second.len()));
        let mut sending = self.take_sending();
        sending.chain.push(first);
        sending.chain.push(second);
        self.submit_send(key.0 as usize, sending, Submit::Behind);
    }

    /// Resolves when all data reported as sent has been sent.
    pub(crate) fn poll_flush(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(SlotFlag::SendBehind) {
            slot.waiters.remember_write(cx);
            return Poll::Pending;
        }
        Poll::Ready(slot.send_error.take().map_or(Ok(()), |error| Err(error.into())))
    }

    fn start_send(&mut self, index: usize, chain: Chain, how: Submit) {
        let mut sending = self.take_sending();
        sending.chain = chain;
        self.submit_send(index, sending, how);
    }

    fn take_sending(&mut self) -> Box<Sending> {
        self.spare.take().unwrap_or_else(|| Box::new(Sending::new()))
    }

    fn submit_send(&mut self, index: usize, mut sending: Box<Sending>, how: Submit) {
        sending.turn = self.turns;
        sending.skips = how == Submit::Behind;
        let slot = &mut self.slots[index];
        slot.make_blocking();
        slot.set(SlotFlag::SendBehind, matches!(how, Submit::Behind | Submit::Rest));
        let fd = Fd(slot.fd);
        let flags = how.flags();
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
        let entry = if sending.skips { self.skip_success(index, entry) } else { entry };
        self.push_for(index, UringOp::Send, entry);
    }

    /// Submits what the socket had no room for.
    fn submit_rest(&mut self, index: usize, mut sending: Box<Sending>, sent: usize) {
        sending.chain.advance(sent as u64);
        self.submit_send(index, sending, Submit::Rest);
    }

    pub(super) fn send_done(
        &mut self,
        index: usize,
        result: Result<usize, Errno>,
        woken: &mut Vec<Waker>,
    ) {
        let slot = &mut self.slots[index];
        let (offered, turn) = match &slot.sending {
            Some(sending) => (sending.offered, sending.turn),
            None => (0, self.turns),
        };
        // The kernel had room for it if it took all of it in the call that submitted it.
        let at_once = turn.wrapping_add(1) == self.turns;
        slot.set(SlotFlag::Full, !at_once || result.is_ok_and(|count| count < offered));
        if let Some(sending) = slot.sending.take_if(|sending| sending.skips) {
            match result {
                Ok(count) if count < offered => return self.submit_rest(index, sending, count),
                Err(Errno::AGAIN) => return self.submit_rest(index, sending, 0),
                _ => slot.sending = Some(sending),
            }
        }
        if slot.is(SlotFlag::SendAbandoned) || slot.is(SlotFlag::SendBehind) {
            if let Some(mut sending) = slot.sending.take() {
                let after = std::mem::take(&mut sending.after);
                if slot.is(SlotFlag::SendBehind) {
                    let len = sending.chain.len();
                    match result {
                        Ok(count) if count as u64 == len && !after.is_empty() => {
                            self.keep(sending);
                            self.start_send(index, after, Submit::Behind);
                            return;
                        }
                        Ok(count) if count as u64 == len => {}
                        Ok(_) => slot.send_error.set(Errno::PIPE),
                        Err(error) => slot.send_error.set(error),
                    }
                }
                self.keep(sending);
            }
            let slot = &mut self.slots[index];
            slot.set(SlotFlag::SendBehind, false);
            slot.shutdown_if_asked();
            woken.extend(slot.waiters.take_write());
            return;
        }
        if let Some(sending) = &mut slot.sending {
            // No data was sent: the next poll starts over.
            sending.result = Some(match result {
                Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                result => result,
            });
        }
        woken.extend(slot.waiters.take_write());
    }

    /// Adds a few bytes to the send in flight if it was reported as done: they are sent right after
    /// it, before a shutdown or a close, and count as sent, too. Otherwise they stay in `chain`.
    pub(crate) fn append_behind(&mut self, key: SocketKey, chain: &mut Chain) {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(SlotFlag::SendBehind)
            && let Some(sending) = &mut slot.sending
        {
            sending.after.append(std::mem::take(chain));
        }
    }

    /// Shuts down one or both sides of the connection, after all data reported as sent.
    pub(crate) fn shutdown(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        how: Shutdown,
    ) -> io::Result<()> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(SlotFlag::SendBehind) {
            slot.shutdown = Some(how);
            return Ok(());
        }
        shutdown(fd, how)
    }

    /// Releases the memory that was sent, and keeps the rest for the next send.
    fn keep(&mut self, mut sending: Box<Sending>) {
        sending.chain.clear();
        self.spare.keep(sending);
    }
}
