//! Datagrams on the io_uring driver: by direct calls, and by polls where these would have to wait,
//! since the ring's receive does not return the source address.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::super::calls::{has_room, send_datagram};
use super::super::socket::{DatagramAddresses, SocketKey};
use super::super::waiters::remember;
use super::Uring;
use super::slot::UringOp;

impl Uring {
    /// Receives a datagram by `receive`, which returns EAGAIN when there is none.
    pub(crate) fn poll_datagram<T>(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
        receive: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Poll<io::Result<T>> {
        match receive(fd) {
            Ok(received) => return Poll::Ready(Ok(received)),
            Err(Errno::AGAIN) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        let slot = &mut self.slots[key.0 as usize];
        remember(&mut slot.read, cx);
        slot.waiters.trim();
        if !slot.has(UringOp::Recv) {
            self.poll_for(key.0 as usize, UringOp::Recv, PollFlags::IN);
        }
        Poll::Pending
    }

    pub(crate) fn poll_send_to(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        data: &[u8],
        ends: DatagramAddresses,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match send_datagram(fd, data, ends) {
            Ok(()) => return Poll::Ready(Ok(())),
            Err(Errno::AGAIN) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        let slot = &mut self.slots[key.0 as usize];
        slot.waiters.remember_write(cx);
        if !slot.has(UringOp::Writable) {
            self.poll_for(key.0 as usize, UringOp::Writable, PollFlags::OUT);
        }
        Poll::Pending
    }

    /// Resolves when datagrams can be sent again; the last attempt found no room.
    pub(crate) fn poll_datagram_writable(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match has_room(fd) {
            Ok(()) => return Poll::Ready(Ok(())),
            Err(Errno::AGAIN) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        let slot = &mut self.slots[key.0 as usize];
        slot.waiters.remember_write(cx);
        if !slot.has(UringOp::Writable) {
            self.poll_for(key.0 as usize, UringOp::Writable, PollFlags::OUT);
        }
        Poll::Pending
    }
}
