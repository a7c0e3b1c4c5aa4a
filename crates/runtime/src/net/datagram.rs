//! UDP sockets.
//!
//! Datagrams are sent one by one and received into lent buffers. Batches and offloads, which QUIC needs and a
//! resolver does not, are in [`DatagramTrains`](super::DatagramTrains).

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nowait_sys::udp::{DatagramBatch, SendTrain};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto};

use super::{ConnectError, ConnectOptions, Packet};
use crate::buf::RecvBuf;
use crate::driver::{DatagramAddresses, Driver, Role, SocketKey, Wait};
use crate::local::{self, Local};

/// A UDP socket. It does not count against `connections_max`. Closed on drop.
///
/// All operations take `&self`: one receive and one send may be in progress at the same time.
pub struct Datagram {
    local: Rc<Local>,
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    key: SocketKey,
}

impl Datagram {
    /// Binds a socket to this local address. Port 0: the kernel chooses one.
    ///
    /// # Errors
    /// When the address is in use or not local, or descriptors have run out.
    ///
    /// # Panics
    /// Outside of a worker.
    pub fn bind(address: SocketAddr) -> io::Result<Datagram> {
        let local = local::current();
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
        let key = match &mut *local.driver.borrow_mut() {
            // The descriptor is only a placeholder.
            Driver::Sim(driver) => driver.bind(address)?,
            driver => {
                // Without an address and a port, connecting and sending choose both.
                if !address.ip().is_unspecified() || address.port() != 0 {
                    net::bind(&fd, &address)?;
                }
                driver.attach(fd.as_fd(), Role::Datagram)?
            }
        };
        Ok(Datagram { local, fd: Some(fd), key })
    }

    /// A socket connected to this peer, from an unpredictable port.
    ///
    /// # Errors
    /// Like [`bind`](Datagram::bind); when there is no route to the peer.
    pub fn connect(peer: SocketAddr) -> io::Result<Datagram> {
        let any = match peer {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = Datagram::bind(any)?;
        socket.set_peer(peer)?;
        Ok(socket)
    }

    /// Like [`connect`](Datagram::connect), from the local address and with the other socket
    /// options in `options`; the local port may be 0.
    ///
    /// # Errors
    /// [`ConnectError`], which names the failed call.
    pub fn connect_with(
        peer: SocketAddr,
        options: &ConnectOptions<'_>,
    ) -> Result<Datagram, ConnectError> {
        let fd = super::connect::open(&peer.into(), SocketType::DGRAM, options)?;
        let key = local::current().driver.borrow_mut().attach(fd.as_fd(), Role::Datagram);
        let key = key.map_err(ConnectError::Socket)?;
        let socket = Datagram { local: local::current(), fd: Some(fd), key };
        socket.set_peer(peer).map_err(ConnectError::Connect)?;
        Ok(socket)
    }

    /// Takes over a socket that is already bound, such as one opened by the master.
    ///
    /// # Errors
    /// When the descriptor cannot be watched.
    ///
    /// # Panics
    /// Outside of a worker.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Datagram> {
        let local = local::current();
        let key = local.driver.borrow_mut().attach(fd.as_fd(), Role::Datagram)?;
        Ok(Datagram { local, fd: Some(fd), key })
    }

    /// Restricts receiving to datagrams from this peer.
    ///
    /// # Errors
    /// When there is no route to the peer.
    pub fn set_peer(&self, peer: SocketAddr) -> io::Result<()> {
        if let Driver::Sim(driver) = &mut *self.local.driver.borrow_mut() {
            return driver.connect(self.key, peer);
        }
        Ok(net::connect(self.fd(), &peer)?)
    }

    /// Receives a datagram from the peer. It may be empty. One that is longer than a receive buffer
    /// ([`RECV_BUF_BYTES`](crate::buf::RECV_BUF_BYTES)) is truncated.
    ///
    /// # Errors
    /// `TimedOut` when none arrived within `timeout`; `ConnectionRefused` when the peer's host
    /// reports that the port is closed.
    pub async fn recv(&self, timeout: Duration) -> io::Result<RecvBuf> {
        Ok(self.receive(timeout).await?.0)
    }

    /// Receives a datagram from any sender, and returns the sender's address.
    ///
    /// # Errors
    /// Like [`recv`](Datagram::recv).
    pub async fn recv_from(&self, timeout: Duration) -> io::Result<(RecvBuf, SocketAddr)> {
        let (data, from) = self.receive(timeout).await?;
        Ok((data, from.ok_or(io::ErrorKind::InvalidData)?))
    }

    async fn receive(&self, timeout: Duration) -> io::Result<(RecvBuf, Option<SocketAddr>)> {
        let _interest = Interest { socket: self, wait: Wait::Read };
        let received =
            poll_fn(|cx| self.local.driver.borrow_mut().poll_recv_from(self.key, self.fd(), cx));
        match crate::time::now().checked_add(timeout) {
            Some(_) => crate::time::timeout(timeout, received).await?,
            None => received.await,
        }
    }

    /// Receives a datagram of any length, from any sender. Also returns network errors caused by
    /// earlier sends.
    ///
    /// # Errors
    /// Like [`recv`](Datagram::recv), without a timeout.
    pub async fn recv_packet(&self) -> io::Result<Packet> {
        let _interest = Interest { socket: self, wait: Wait::Read };
        poll_fn(|cx| self.poll_recv_packet(cx)).await
    }

    /// Like [`recv_packet`](Datagram::recv_packet), for callers that also wait for other events:
    /// the waker stays registered until the next call.
    ///
    /// # Errors
    /// As those of `recv_packet`.
    pub fn poll_recv_packet(&self, cx: &mut Context<'_>) -> Poll<io::Result<Packet>> {
        self.local.driver.borrow_mut().poll_recv_packet(self.key, self.fd(), cx)
    }

    /// Sends a datagram to the peer. Waits only while the socket's buffer is full.
    ///
    /// # Errors
    /// `ConnectionRefused` for an earlier send; errors reported by the network (too long, no
    /// route).
    pub async fn send(&self, data: &[u8]) -> io::Result<()> {
        self.transmit(data, DatagramAddresses::default()).await
    }

    /// Sends a datagram to this address.
    ///
    /// # Errors
    /// Like [`send`](Datagram::send).
    pub async fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
        self.transmit(data, DatagramAddresses { to: Some(to), local: None }).await
    }

    /// Sends a datagram to this address, from `local` (one of the addresses of a wildcard socket),
    /// if the socket's buffer has room. Returns false if it has none.
    ///
    /// # Errors
    /// Like [`send`](Datagram::send).
    pub fn try_send_from(
        &self,
        data: &[u8],
        to: SocketAddr,
        local: Option<IpAddr>,
    ) -> io::Result<bool> {
        let ends = DatagramAddresses { to: Some(to), local };
        let mut cx = Context::from_waker(Waker::noop());
        let mut driver = self.local.driver.borrow_mut();
        match driver.poll_send_to(self.key, self.fd(), data, ends, &mut cx) {
            Poll::Ready(sent) => sent.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    async fn transmit(&self, data: &[u8], ends: DatagramAddresses) -> io::Result<()> {
        let _interest = Interest { socket: self, wait: Wait::Write };
        poll_fn(|cx| {
            let mut driver = self.local.driver.borrow_mut();
            driver.poll_send_to(self.key, self.fd(), data, ends, cx)
        })
        .await
    }

    /// Receives a batch of datagrams from any senders.
    pub(super) fn poll_receive_batch(
        &self,
        batch: &mut DatagramBatch,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        self.local.driver.borrow_mut().poll_receive_batch(self.key, self.fd(), batch, cx)
    }

    /// Sends a train of datagrams, without waiting.
    pub(super) fn send_train(&self, data: &[u8], train: SendTrain) -> io::Result<()> {
        self.local.driver.borrow_mut().send_train(self.key, self.fd(), data, train)
    }

    /// Resolves when sending may be tried again after `WouldBlock`.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.local.driver.borrow_mut().poll_datagram_writable(self.key, self.fd(), cx)
    }

    /// Whether the socket exists in a simulation only.
    pub(super) fn is_simulated(&self) -> bool {
        matches!(&*self.local.driver.borrow(), Driver::Sim(_))
    }

    /// The local address.
    ///
    /// # Errors
    /// When memory has run out.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        if let Driver::Sim(driver) = &mut *self.local.driver.borrow_mut() {
            return driver.local_addr(self.key);
        }
        SocketAddr::try_from(net::getsockname(self.fd())?).map_err(Into::into)
    }

    /// The descriptor, for socket options.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("present until drop").as_fd()
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        let fd = self.fd.take().expect("present until drop");
        let mut dropped = Vec::new();
        self.local.driver.borrow_mut().detach(self.key, fd, &mut dropped);
    }
}

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// Withdraws the interest of a future that has completed or was dropped.
struct Interest<'a> {
    socket: &'a Datagram,
    wait: Wait,
}

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        let waker = self.socket.local.driver.borrow_mut().forget(self.socket.key, self.wait);
        drop(waker);
    }
}
