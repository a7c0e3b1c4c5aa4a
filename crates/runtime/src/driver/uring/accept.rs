//! Accepting on the ring. The rules of ownership are in `uring.rs`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll, Waker};

use io_uring::opcode;
use io_uring::types::Fd;
use rustix::io::Errno;

use super::super::uring_slot::Op;
use super::super::{Key, remember};
use super::Uring;
use crate::net::Address;

impl Uring {
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
        submitted
    }

    pub(super) fn accept_done(
        &mut self,
        index: usize,
        result: Result<usize, Errno>,
        woken: &mut Vec<Waker>,
    ) {
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
    pub(super) fn sweep(&mut self, index: usize) {
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
}
