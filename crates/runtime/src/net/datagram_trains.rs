//! A UDP socket for protocols with many datagrams: receives in batches, and sends trains of datagrams that the
//! kernel splits.
//!
//! Called by QUIC. What the kernel refuses, offloads or large datagrams, falls back here: the caller only learns what
//! it should not try again. Datagrams that find no room in the socket are returned to the caller, who decides how many
//! wait.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use nowait_sys::listen::QUIC_BUFFER_BYTES;
use nowait_sys::udp::{self, DatagramBatch, SendTrain, UdpFeatures};
use rustix::io::Errno;

use super::Datagram;

/// The result of sending a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainSent {
    /// Everything has left, or was dropped by the network.
    All,
    /// The socket has no room from this byte on: try again when [`DatagramTrains::poll_writable`] is ready.
    Blocked(usize),
    /// Everything has left, but the kernel or the network card splits nothing towards this receiver: only single
    /// datagrams from now on.
    Refused,
}

/// A socket.
pub struct DatagramTrains {
    socket: Datagram,
    features: UdpFeatures,
    /// Sizes of the buffers for receiving and for sending, as far as the kernel raised them.
    buffers: (usize, usize),
    local: SocketAddr,
}

impl DatagramTrains {
    /// Takes over a bound socket, such as one opened by the master, with the buffers that it has.
    ///
    /// # Errors
    /// When the descriptor cannot be watched, or reports no local addresses.
    ///
    /// # Panics
    /// Outside of a worker.
    pub fn from_fd(fd: OwnedFd) -> io::Result<DatagramTrains> {
        Self::of(Datagram::from_fd(fd)?, 0)
    }

    /// Binds a socket to this local address. Port 0: the kernel chooses one.
    ///
    /// # Errors
    /// When the address is in use or not local, or descriptors have run out.
    ///
    /// # Panics
    /// Outside of a worker.
    pub fn bind(address: SocketAddr) -> io::Result<DatagramTrains> {
        let socket = Datagram::bind(address)?;
        // Left to the first send otherwise: but this one waits for datagrams first.
        if !socket.is_simulated() && socket.local_addr()?.port() == 0 {
            rustix::net::bind(socket.fd(), &address)?;
        }
        Self::of(socket, QUIC_BUFFER_BYTES as usize)
    }

    fn of(socket: Datagram, buffer_bytes: usize) -> io::Result<DatagramTrains> {
        let local = socket.local_addr()?;
        let (features, buffers) = match socket.is_simulated() {
            true => {
                let features = UdpFeatures { gso: true, dont_fragment: true };
                (features, (buffer_bytes, buffer_bytes))
            }
            false => {
                let features = udp::prepare(socket.fd(), local.is_ipv6())?;
                let buffers = udp::raise_buffers(socket.fd(), buffer_bytes);
                (features, buffers.unwrap_or_default())
            }
        };
        Ok(DatagramTrains { socket, features, buffers, local })
    }

    /// What the kernel supports.
    pub fn features(&self) -> UdpFeatures {
        self.features
    }

    /// Sizes of the buffers for receiving and for sending. Less than [`QUIC_BUFFER_BYTES`]: the kernel permits no more
    /// (`net.core.rmem_max`, `net.core.wmem_max`), or the operator wants it so.
    pub fn buffers(&self) -> (usize, usize) {
        self.buffers
    }

    /// The address that the socket is bound to; its IP may be a wildcard.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Another descriptor of the socket.
    ///
    /// # Errors
    /// When descriptors have run out.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.socket.fd().try_clone_to_owned()
    }

    /// Receives a batch. True: there may be more.
    ///
    /// # Errors
    /// Errors that make the socket unusable. Errors of earlier sends, which the kernel reports here, are skipped.
    pub fn poll_receive(
        &self,
        batch: &mut DatagramBatch,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        for _ in 0..SKIPPED_MAX {
            match self.socket.poll_receive_batch(batch, cx) {
                Poll::Ready(Err(error)) if !is_final(&error) => {}
                result => return result,
            }
        }
        // The rest of them waits for the next turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends datagrams to one receiver: `data`, from byte `at` on, cut as `train` says. What a path does not carry is
    /// lost: the protocol detects that.
    pub fn send(&self, data: &[u8], at: usize, train: SendTrain) -> TrainSent {
        let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) else {
            return TrainSent::All;
        };
        let segment = train.segment.map_or(rest.len(), usize::from);
        let many = rest.len() > segment;
        let whole = SendTrain { segment: train.segment.filter(|_| many), ..train };
        if many && !self.features.gso {
            return self.send_each(data, at, segment, train);
        }
        match self.socket.send_train(rest, whole) {
            Ok(()) => TrainSent::All,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => TrainSent::Blocked(at),
            // `EIO`: the card cannot split; `EINVAL`, `EMSGSIZE`: the segments are too many or too long for it.
            Err(error) if many && refuses_segments(&error) => {
                match self.send_each(data, at, segment, train) {
                    TrainSent::All => TrainSent::Refused,
                    blocked => blocked,
                }
            }
            Err(_) => TrainSent::All,
        }
    }

    /// Sends datagrams one by one.
    fn send_each(&self, data: &[u8], at: usize, segment: usize, train: SendTrain) -> TrainSent {
        let single = SendTrain { segment: None, ..train };
        let mut begin = at;
        for datagram in data[at..].chunks(segment.max(1)) {
            match self.socket.send_train(datagram, single) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return TrainSent::Blocked(begin);
                }
                _ => begin += datagram.len(),
            }
        }
        TrainSent::All
    }

    /// Resolves when the socket has room again.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        // A failure shows when sending.
        self.socket.poll_writable(cx).map(drop)
    }
}

impl fmt::Debug for DatagramTrains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramTrains").field("local", &self.local).finish_non_exhaustive()
    }
}

/// Errors skipped per call, at most.
const SKIPPED_MAX: usize = 64;

/// Whether the socket is unusable. Everything else concerns an earlier datagram, which is nothing to a socket with many
/// peers, or passes: a lack of memory.
fn is_final(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, None | Some(Errno::BADF | Errno::NOTSOCK | Errno::INVAL | Errno::FAULT))
}

fn refuses_segments(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP))
}
