//! The io_uring driver's record of one socket: operations in flight, their results, and waiting
//! tasks. The ownership rules are at the top of `mod.rs`.

use std::net::Shutdown;
use std::num::{NonZeroU16, NonZeroU32};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::task::Waker;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::super::calls::{SLICES_MAX, shutdown};
use super::super::socket::Role;
use super::super::waiters::Waiters;
use crate::buf::{self, Chain, Chunk, RecvBuf};

/// The largest serial of a socket: the 64 bits of user data also hold the slot's 32 bits and the 3
/// of an [`UringOp`].
pub(super) const SERIAL_MAX: u32 = u32::MAX >> 3;

/// The purpose of an operation; part of its user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum UringOp {
    Recv = 0,
    Send = 1,
    Accept = 2,
    Hangup = 3,
    Writable = 4,
    /// Cancellations and closing: their own outcome does not matter.
    Cancel = 5,
    Inbox = 6,
}

impl UringOp {
    pub(super) const OF_SLOTS: [UringOp; 5] =
        [UringOp::Recv, UringOp::Send, UringOp::Accept, UringOp::Hangup, UringOp::Writable];

    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Identifies an operation of the socket with this serial in this slot. No operation of an
    /// earlier socket in the slot has the same user data, so neither its completion nor a
    /// cancellation of it can be mistaken for one of this socket.
    pub(super) fn user_data(self, index: usize, serial: u32) -> u64 {
        debug_assert!(index <= u32::MAX as usize && serial <= SERIAL_MAX);
        index as u64 | (self as u64) << 32 | u64::from(serial) << 35
    }

    pub(super) fn serial_of(user_data: u64) -> u32 {
        (user_data >> 35) as u32
    }

    pub(super) fn of(user_data: u64) -> Option<UringOp> {
        let kind = (user_data >> 32) as u8 & 0b111;
        UringOp::OF_SLOTS
            .into_iter()
            .chain([UringOp::Cancel, UringOp::Inbox])
            .find(|op| *op as u8 == kind)
    }
}

/// A send: owned by the kernel while in flight, see `mod.rs`.
pub(super) struct Sending {
    pub(super) chain: Chain,
    /// To be sent right after a send that was reported as done.
    pub(super) after: Chain,
    pub(super) slices: [libc::iovec; SLICES_MAX],
    pub(super) header: libc::msghdr,
    /// Total length of the slices.
    pub(super) offered: usize,
    /// The turn after which it was submitted.
    pub(super) turn: u32,
    /// Its success has no completion; see `skipped.rs`.
    pub(super) skips: bool,
    /// Set by the completion; not yet seen by the sending future.
    pub(super) result: Option<Result<usize, Errno>>,
}

/// An optional error, in two bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct SendError(Option<NonZeroU16>);

impl SendError {
    pub(super) fn set(&mut self, error: Errno) {
        self.0 = u16::try_from(error.raw_os_error()).ok().and_then(NonZeroU16::new);
    }

    pub(super) fn is_none(self) -> bool {
        self.0.is_none()
    }

    pub(super) fn take(&mut self) -> Option<Errno> {
        self.0.take().map(|error| Errno::from_raw_os_error(i32::from(error.get())))
    }
}

/// Flags of a socket: a bit each.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum SlotFlag {
    /// O_NONBLOCK is set, or may be.
    Nonblocking,
    /// A direct send is under way: O_NONBLOCK must stay.
    Direct,
    /// The receive in flight is a poll, to be followed by `recv`.
    RecvByPoll,
    /// Not even `recv` follows: the waiting task receives by a direct call.
    RecvLarge,
    /// A direct receive or a direct accept may succeed.
    CanRead,
    /// A UDP socket: its receive operations are polls.
    Datagram,
    /// The last receive left data behind, or there was none yet: an immediate try may succeed.
    TryFirst,
    PeerClosed,
    CanWrite,
    /// The future of the send in flight was dropped: its result is ignored.
    SendAbandoned,
    /// The send in flight was reported as done.
    SendBehind,
    /// The last send was cut short, or did not complete at once: the peer does not keep up.
    Full,
    /// Closed by its owner while the send in flight had been reported as done.
    Lingering,
    /// A lingering send that has outlived the turn in which it was closed.
    Late,
    /// A listener shared with others.
    Shared,
    /// A listener whose poll is being cancelled.
    Paused,
}

/// One socket.
pub(super) struct UringSlot {
    pub(super) fd: RawFd,
    /// Distinguishes the socket from earlier ones in this slot; at most [`SERIAL_MAX`].
    pub(super) serial: u32,
    /// Bits of [`SlotFlag`].
    facts: u16,
    /// Error of a send that had been reported as done; the next send returns it.
    pub(super) send_error: SendError,
    /// Bits of the operations in flight.
    pub(super) in_flight: u8,
    /// To be performed after the send in flight.
    pub(super) shutdown: Option<Shutdown>,
    /// Index in `Uring::received`, plus one.
    pub(super) received: Option<NonZeroU32>,
    pub(super) sending: Option<Box<Sending>>,
    /// Detached; to be closed with the last completion.
    pub(super) closing: Option<OwnedFd>,
    pub(super) read: Option<Waker>,
    pub(super) waiters: Waiters,
}

// Part of the memory cost of an idle connection.
const _: () = assert!(size_of::<UringSlot>() <= 56);

impl UringSlot {
    /// A socket without operations in flight.
    pub(super) fn new(fd: RawFd, role: Role, serial: u32) -> UringSlot {
        let mut slot = UringSlot {
            fd,
            serial,
            facts: 0,
            send_error: SendError::default(),
            in_flight: 0,
            shutdown: None,
            received: None,
            sending: None,
            closing: None,
            read: None,
            waiters: Waiters::default(),
        };
        slot.set(SlotFlag::Nonblocking, matches!(role, Role::Stream | Role::Connecting));
        slot.set(SlotFlag::Datagram, role == Role::Datagram);
        slot.set(SlotFlag::Shared, role == Role::Listener { shared: true });
        slot.set(SlotFlag::TryFirst, role != Role::Connecting);
        slot
    }

    pub(super) fn is(&self, what: SlotFlag) -> bool {
        self.facts & 1 << what as u8 != 0
    }

    /// Returns the flag and clears it.
    pub(super) fn take(&mut self, what: SlotFlag) -> bool {
        let so = self.is(what);
        self.set(what, false);
        so
    }

    pub(super) fn set(&mut self, what: SlotFlag, so: bool) {
        let bit = 1 << what as u8;
        self.facts = if so { self.facts | bit } else { self.facts & !bit };
    }

    /// Whether this operation is in flight.
    pub(super) fn has(&self, op: UringOp) -> bool {
        self.in_flight & op.bit() != 0
    }

    pub(super) fn make_blocking(&mut self) {
        if self.is(SlotFlag::Nonblocking) {
            // SAFETY: the descriptor is open: its slot is there, and closes it only on removal.
            let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
            // Cannot fail on a socket; if it did, operations would return EAGAIN and be repeated.
            let _ = rustix::io::ioctl_fionbio(fd, false);
            self.set(SlotFlag::Nonblocking, false);
        }
    }

    pub(super) fn shutdown_if_asked(&mut self) {
        if let Some(how) = self.shutdown.take() {
            // SAFETY: the descriptor is open: its slot is there, and closes it only on removal.
            let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
            // Fails if the peer has reset the connection, which has then ended anyway.
            let _ = shutdown(fd, how);
        }
    }

    /// `recv` after a poll, for a socket that is currently non-blocking.
    pub(super) fn recv_direct(&mut self) -> Result<RecvBuf, Errno> {
        // SAFETY: the descriptor is open: its slot is there, and closes it only on removal.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let mut memory = buf::take_recv_memory();
        match rustix::net::recv(fd, &mut memory[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => Ok(RecvBuf::filled(memory, len)),
            Err(error) => {
                buf::put_recv_memory(memory);
                Err(error)
            }
        }
    }
}

impl Sending {
    pub(super) fn new() -> Sending {
        const NO_SLICE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Sending {
            chain: Chain::new(),
            after: Chain::new(),
            slices: [NO_SLICE; SLICES_MAX],
            // SAFETY: all zeros is a valid `msghdr`: integers and null pointers.
            header: unsafe { std::mem::zeroed() },
            offered: 0,
            turn: 0,
            skips: false,
            result: None,
        }
    }

    /// Points the slices and the header to the chunks; returns the number of slices.
    pub(super) fn fill(&mut self) -> usize {
        let mut count = 0;
        self.offered = 0;
        for memory in self.chain.iter().map(Chunk::memory).take(SLICES_MAX) {
            // The kernel only reads the memory of a send.
            let iov_base = memory.as_ptr().cast_mut().cast();
            self.slices[count] = libc::iovec { iov_base, iov_len: memory.len() };
            self.offered += memory.len();
            count += 1;
        }
        self.header.msg_iov = self.slices.as_mut_ptr();
        self.header.msg_iovlen = count as _;
        count
    }
}
