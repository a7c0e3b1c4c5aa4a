//! Non-blocking system calls on sockets, shared by several drivers.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use nowait_sys::udp::DatagramBatch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

use super::socket::DatagramAddresses;
use crate::buf::{self, Chain, Chunk, LargeBuf, ReceivedBuf, RecvBuf};
use crate::net::{Address, Packet};
use crate::receive_epoch;

/// Maximum number of slices passed to the kernel per send.
pub(super) const SLICES_MAX: usize = 16;

/// Shuts down one or both sides of a connection.
pub(super) fn shutdown(fd: BorrowedFd<'_>, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => net::Shutdown::Read,
        Shutdown::Write => net::Shutdown::Write,
        Shutdown::Both => net::Shutdown::Both,
    };
    Ok(net::shutdown(fd, how)?)
}

/// Takes a queued connection from a listener, which is non-blocking.
pub(super) fn accept(
    listener: BorrowedFd<'_>,
    flags: SocketFlags,
) -> Result<(OwnedFd, Option<Address>), Errno> {
    let (stream, address) = retry(|| net::acceptfrom_with(listener, flags))?;
    Ok((stream, address.map(Address::from_any)))
}

/// Repeats a call interrupted by a signal.
pub(super) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// One `recv` of at most `max` bytes, into no more memory than that needs; also returns whether
/// `max` bytes were received. Never waits.
pub(super) fn receive_large(fd: BorrowedFd<'_>, max: usize) -> Result<(ReceivedBuf, bool), Errno> {
    let receive = |memory: &mut [u8]| {
        let max = max.clamp(1, memory.len());
        let received = retry(|| net::recv(fd, &mut memory[..max], RecvFlags::DONTWAIT));
        receive_epoch::add();
        received.map(|(len, _)| (len, len == max))
    };
    if max <= buf::RECV_BUF_BYTES {
        let mut memory = buf::take_recv_memory();
        return match receive(&mut memory[..]) {
            Ok((len, full)) => Ok((ReceivedBuf::Lent(RecvBuf::filled(memory, len)), full)),
            Err(error) => {
                buf::put_recv_memory(memory);
                Err(error)
            }
        };
    }
    let mut buf = LargeBuf::take(max);
    let (len, full) = receive(buf.memory())?;
    buf.filled(len);
    Ok((ReceivedBuf::Large(buf), full))
}

/// One `send` or `sendmsg` of one piece behind the other.
pub(super) fn send_both(
    fd: BorrowedFd<'_>,
    [first, second]: [&[u8]; 2],
    flags: SendFlags,
) -> Result<usize, Errno> {
    if second.is_empty() {
        return net::send(fd, first, flags);
    }
    let slices = [IoSlice::new(first), IoSlice::new(second)];
    net::sendmsg(fd, &slices, &mut net::SendAncillaryBuffer::default(), flags)
}

/// One `send` or `sendmsg` of the in-memory chunks at the front of the chain.
pub(super) fn send_memory(
    fd: BorrowedFd<'_>,
    chain: &Chain,
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut chunks = chain.memory_prefix().map(Chunk::memory);
    let first = chunks.next().unwrap_or_default();
    let Some(second) = chunks.next() else { return net::send(fd, first, flags) };
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut count = 0;
    for memory in [first, second].into_iter().chain(chunks).take(SLICES_MAX) {
        slices[count] = IoSlice::new(memory);
        count += 1;
    }
    let mut control = net::SendAncillaryBuffer::default();
    net::sendmsg(fd.as_fd(), &slices[..count], &mut control, flags)
}

/// Receives one datagram without waiting.
pub(super) fn receive_datagram(fd: BorrowedFd<'_>) -> Result<(RecvBuf, Option<SocketAddr>), Errno> {
    let mut memory = buf::take_recv_memory();
    match retry(|| net::recvfrom(fd, &mut memory[..], RecvFlags::DONTWAIT)) {
        Ok((len, _, from)) => {
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            Ok((RecvBuf::filled(memory, len), from))
        }
        Err(error) => {
            buf::put_recv_memory(memory);
            Err(error)
        }
    }
}

/// The longest IP datagram: 65535 bytes less the IPv4 and UDP headers, rounded up.
const DATAGRAM_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    /// Datagrams of any length are received here before they get memory of their exact size.
    static SCRATCH: RefCell<Box<[u8]>> =
        RefCell::new(vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice());
}

/// Receives one datagram of any length without waiting.
pub(super) fn receive_packet(fd: BorrowedFd<'_>) -> Result<Packet, Errno> {
    SCRATCH.with_borrow_mut(|scratch| {
        let received = nowait_sys::datagram::receive(fd, scratch).map_err(errno)?;
        let nowait_sys::datagram::ReceivedDatagram { len, from, local, .. } = received;
        Ok(Packet { data: Bytes::copy_from_slice(&scratch[..len]), from, local })
    })
}

/// Receives a batch of datagrams without waiting; true: there may be more.
pub(super) fn receive_batch(fd: BorrowedFd<'_>, batch: &mut DatagramBatch) -> Result<bool, Errno> {
    batch.receive(fd).map_err(errno)
}

/// Whether the socket has room for another datagram: it is asked, since only that arms an edge-triggered event.
pub(super) fn has_room(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    match poll(&mut polled, Some(&Timespec::default())) {
        Ok(0) => Err(Errno::AGAIN),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sends one datagram without waiting.
pub(super) fn send_datagram(
    fd: BorrowedFd<'_>,
    data: &[u8],
    ends: DatagramAddresses,
) -> Result<(), Errno> {
    // A datagram is sent whole or not at all.
    nowait_sys::datagram::send(fd, data, ends.to, ends.local).map_err(errno)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
