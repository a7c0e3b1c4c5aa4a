//! The simulated driver: virtual time and in-memory connections, all decided by a seed.
//!
//! Events that a connection task rarely meets in production happen here all the time: data split at
//! any byte, partial writes, delays, spurious wake-ups, resets. The same seed gives the same run.
//! Time passes only when every task waits, and then at once.
//!
//! Called by [`crate::sim`]. Has no other threads: work given to a pool with threads would make a run
//! depend on real time, so a simulation has pools of its own ([`crate::sim::pool`]).

mod network_faults;
mod trace;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustc_hash::FxHashMap;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use slab::Slab;

use super::socket::{SocketKey, Wait};
use super::waiters::remember;
use crate::buf::{self, Chain, Chunk, RECV_BUF_BYTES, RecvBuf};

pub use network_faults::NetworkFaults;

use crate::net::Address;
use trace::SimTrace;

/// Number of random attempts to find a free port.
const PORT_TRIES_MAX: usize = 64;

/// One in this many operations wakes its task spuriously.
const SPURIOUS_ONE_IN: u64 = 16;

/// Connections that wait to be accepted at a listener; further ones are refused.
const BACKLOG_MAX: usize = 256;

/// Ports of clients that do not choose one.
const PORTS: std::ops::Range<u16> = 32_768..61_000;

/// Maximum number of consecutive turns without a change of time. More mean that tasks wake each other
/// endlessly. On a network without delays, 10,000 exchanges of a test take more than 20,000 such turns.
const STILL_TURNS_MAX: u32 = 50_000;

/// An arrival at a socket.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
    Data(Vec<u8>),
    /// The peer has ended its side.
    End,
    /// The peer has reset the connection.
    Reset,
    /// A datagram and its sender.
    Datagram(SocketAddr, Vec<u8>),
    /// The socket's attempt to connect reaches its destination.
    Connection {
        from: SocketAddr,
        to: SocketAddr,
    },
    /// Nothing: a spurious wake-up.
    Nothing,
}

/// An arrival, ordered by time, then by the order in which it was sent.
type TimedArrival = Reverse<(Duration, u64, usize, u32, Arrival)>;

/// A listening socket of the simulation.
struct SimListener {
    address: SocketAddr,
    /// Established connections: sockets and their clients' addresses.
    arrived: VecDeque<(usize, SocketAddr)>,
}

/// The state of the connection of a client's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Connected,
    Connecting,
    Refused,
}

/// A descriptor that represents a socket: real but unconnected, so that setting options works.
///
/// # Errors
/// When descriptors have run out.
pub(crate) fn placeholder() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

#[derive(Default)]
struct SimSocket {
    /// Distinguishes it from earlier sockets in its slot.
    serial: u32,
    peer: Option<usize>,
    arrived: VecDeque<u8>,
    ended: bool,
    reset: bool,
    /// Our side has been shut down.
    shut: bool,
    /// Bytes sent to the peer and not yet read there.
    outstanding: usize,
    /// Arrival time of the last item sent to the peer: later items arrive no earlier.
    last_arrival: Duration,
    read: Option<Waker>,
    write: Option<Waker>,
    hangup: Option<Waker>,
    /// Encrypted data differs between two runs of a seed, so only its length is recorded.
    encrypted: bool,
    /// Additional state of a UDP socket.
    datagram: Option<Box<Mailbox>>,
    /// Additional state of a listening socket.
    listens: Option<Box<SimListener>>,
    progress: Progress,
}

/// A UDP socket of the simulation.
struct Mailbox {
    address: SocketAddr,
    /// Accepts datagrams from this peer only.
    peer: Option<SocketAddr>,
    arrived: VecDeque<(SocketAddr, Vec<u8>)>,
}

/// Datagrams that wait to be received at a socket; further ones are lost.
const MAILBOX_MAX: usize = 256;

/// The driver; one per simulated worker.
pub(crate) struct Sim {
    faults: NetworkFaults,
    random: u64,
    now: Duration,
    sockets: Slab<SimSocket>,
    events: BinaryHeap<TimedArrival>,
    next_event: u64,
    next_serial: u32,
    /// UDP sockets by address.
    bound: FxHashMap<SocketAddr, usize>,
    /// Listening sockets by address.
    listening: FxHashMap<SocketAddr, usize>,
    /// Sockets represented by a descriptor only.
    unattached: FxHashMap<RawFd, usize>,
    still_turns: u32,
    trace: SimTrace,
}

impl Sim {
    pub(crate) fn new(seed: u64, faults: NetworkFaults) -> Sim {
        Sim {
            faults,
            random: seed,
            now: Duration::ZERO,
            sockets: Slab::new(),
            events: BinaryHeap::new(),
            next_event: 0,
            next_serial: 0,
            bound: FxHashMap::default(),
            listening: FxHashMap::default(),
            unattached: FxHashMap::default(),
            still_turns: 0,
            trace: SimTrace::default(),
        }
    }

    /// Number of sockets that exist.
    pub(crate) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// The record of what happened.
    pub(crate) fn trace(&mut self) -> &mut SimTrace {
        &mut self.trace
    }

    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// A number below `bound`, which is at least 1 (SplitMix64).
    pub(crate) fn random(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.random;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        count > 0 && self.random(count) == 0
    }

    pub(crate) fn turn(&mut self, max: Option<Duration>, woken: &mut Vec<Waker>) -> io::Result<()> {
        let next = self.events.peek().map(|Reverse((at, ..))| *at);
        let until = match (next, max.map(|max| self.now + max)) {
            (Some(next), Some(limit)) => next.min(limit),
            (Some(next), None) => next,
            (None, Some(limit)) => limit,
            // All tasks wait for events that can't happen: the test has found a bug.
            (None, None) => {
                return Err(io::Error::other("simulation: deadlock, all tasks wait forever"));
            }
        };
        self.still_turns = if until > self.now { 0 } else { self.still_turns + 1 };
        if self.still_turns > STILL_TURNS_MAX {
            return Err(io::Error::other("simulation: livelock, time stands still"));
        }
        self.now = self.now.max(until);
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
            let Some(Reverse((at, _, index, serial, arrival))) = self.events.pop() else { break };
            let socket = self.sockets.get_mut(index).filter(|socket| socket.serial == serial);
            let Some(socket) = socket else { continue };
            record(&mut self.trace, at, socket, &arrival);
            match arrival {
                Arrival::Connection { from, to } => self.establish(index, from, to, woken),
                arrival => socket.arrive(arrival, woken),
            }
        }
        Ok(())
    }

    /// Creates two connected sockets.
    pub(crate) fn pair(&mut self) -> (SocketKey, SocketKey) {
        let left = self.socket(None);
        let right = self.socket(Some(left));
        self.sockets[left].peer = Some(right);
        (SocketKey(left as u32), SocketKey(right as u32))
    }

    fn socket(&mut self, peer: Option<usize>) -> usize {
        self.next_serial += 1;
        self.sockets.insert(SimSocket { serial: self.next_serial, peer, ..SimSocket::default() })
    }

    pub(crate) fn detach(&mut self, key: SocketKey, fd: &OwnedFd, dropped: &mut Vec<Waker>) {
        let index = key.0 as usize;
        // As in TCP: closing with unread data resets the connection, and so does SO_LINGER of zero.
        let unread = !self.sockets[index].arrived.is_empty();
        if unread || sockopt::socket_linger(fd).is_ok_and(|time| time == Some(Duration::ZERO)) {
            self.send_off(index, Arrival::Reset);
        } else if !self.sockets[index].shut {
            self.send_off(index, Arrival::End);
        }
        let mut socket = self.sockets.remove(index);
        self.stop_listening(&mut socket);
        if let Some(mailbox) = &socket.datagram {
            self.bound.remove(&mailbox.address);
        }
        if let Some(peer) = socket.peer {
            self.sockets[peer].peer = None;
        }
        dropped.extend([socket.read, socket.write, socket.hangup].into_iter().flatten());
    }

    /// Sends to the peer, if there is one. Arrivals are in order, after some delay.
    fn send_off(&mut self, from: usize, arrival: Arrival) {
        let Some(peer) = self.sockets[from].peer else { return };
        let delay = self.delay();
        let socket = &mut self.sockets[from];
        let at = (self.now + delay).max(socket.last_arrival);
        if arrival != Arrival::Nothing {
            socket.last_arrival = at;
        }
        let serial = self.sockets[peer].serial;
        self.next_event += 1;
        self.events.push(Reverse((at, self.next_event, peer, serial, arrival)));
    }

    /// The time in transit.
    fn delay(&mut self) -> Duration {
        let delay_max = self.faults.delay_max.as_nanos() as u64;
        Duration::from_nanos(self.random(delay_max + 1))
    }

    /// Occasionally sends the peer a meaningless event.
    fn confuse(&mut self, index: usize) {
        if self.one_in(SPURIOUS_ONE_IN) {
            self.send_off(index, Arrival::Nothing);
        }
    }

    pub(crate) fn poll_recv(
        &mut self,
        key: SocketKey,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<RecvBuf>> {
        let index = key.0 as usize;
        self.confuse(index);
        let socket = &mut self.sockets[index];
        if socket.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if socket.arrived.is_empty() {
            if socket.ended {
                return Poll::Ready(Ok(RecvBuf::empty()));
            }
            remember(&mut socket.read, cx);
            return Poll::Pending;
        }
        let most = socket.arrived.len().min(max.clamp(1, RECV_BUF_BYTES));
        let count = self.part(most);
        let socket = &mut self.sockets[index];
        let mut memory = buf::take_recv_memory();
        for (to, from) in memory.iter_mut().zip(socket.arrived.drain(..count)) {
            *to = from;
        }
        if let Some(peer) = socket.peer {
            let peer = &mut self.sockets[peer];
            peer.outstanding -= count;
            // The peer may write again; it is woken by an arrival, to keep the event order.
            self.send_off(index, Arrival::Nothing);
        }
        Poll::Ready(Ok(RecvBuf::filled(memory, count)))
    }

    /// How much of `most` bytes is moved at once: usually all, often some, sometimes one.
    fn part(&mut self, most: usize) -> usize {
        match self.random(4) {
            _ if !self.faults.split => most,
            0 => 1,
            1 => 1 + self.random(most as u64) as usize,
            _ => most,
        }
    }

    pub(crate) fn poll_send(
        &mut self,
        key: SocketKey,
        chain: &mut Chain,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let index = key.0 as usize;
        self.confuse(index);
        if self.one_in(self.faults.reset_one_in) {
            self.sockets[index].reset = true;
            self.send_off(index, Arrival::Reset);
        }
        let window = self.faults.window_bytes;
        let socket = &mut self.sockets[index];
        if socket.reset || socket.peer.is_none() || socket.shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = window.saturating_sub(socket.outstanding);
        if room == 0 {
            remember(&mut socket.write, cx);
            return Poll::Pending;
        }
        let memory: Vec<u8> =
            chain.memory_prefix().flat_map(Chunk::memory).copied().take(room).collect();
        let count = self.part(memory.len());
        self.sockets[index].outstanding += count;
        self.send_off(index, Arrival::Data(memory[..count].to_vec()));
        chain.advance(count as u64);
        Poll::Ready(Ok(count))
    }

    /// Creates a UDP socket at this address; port 0: at a free one.
    pub(crate) fn bind(&mut self, address: SocketAddr) -> io::Result<SocketKey> {
        let mut address = address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        // Like the kernel: an unpredictable port.
        for _ in 0..PORT_TRIES_MAX {
            if address.port() != 0 {
                break;
            }
            let port = 1024 + self.random(u64::from(u16::MAX) - 1024) as u16;
            if !self.bound.contains_key(&SocketAddr::new(address.ip(), port)) {
                address.set_port(port);
            }
        }
        if address.port() == 0 || self.bound.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let index = self.socket(None);
        let mailbox = Mailbox { address, peer: None, arrived: VecDeque::new() };
        self.sockets[index].datagram = Some(Box::new(mailbox));
        self.bound.insert(address, index);
        Ok(SocketKey(index as u32))
    }

    /// Restricts the socket to datagrams from and to this peer.
    pub(crate) fn connect(&mut self, key: SocketKey, peer: SocketAddr) -> io::Result<()> {
        self.mailbox(key)?.peer = Some(peer);
        Ok(())
    }

    /// The address that a UDP socket is bound to.
    pub(crate) fn local_addr(&mut self, key: SocketKey) -> io::Result<SocketAddr> {
        Ok(self.mailbox(key)?.address)
    }

    fn mailbox(&mut self, key: SocketKey) -> io::Result<&mut Mailbox> {
        let socket = self.sockets.get_mut(key.0 as usize);
        let mailbox = socket.and_then(|socket| socket.datagram.as_deref_mut());
        mailbox.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn poll_recv_from(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(RecvBuf, Option<SocketAddr>)>> {
        self.confuse(key.0 as usize);
        let mailbox = self.mailbox(key)?;
        let peer = mailbox.peer;
        while let Some((from, data)) = mailbox.arrived.pop_front() {
            if peer.is_none_or(|peer| peer == from) {
                let mut memory = buf::take_recv_memory();
                let len = data.len().min(memory.len());
                memory[..len].copy_from_slice(&data[..len]);
                return Poll::Ready(Ok((RecvBuf::filled(memory, len), Some(from))));
            }
        }
        remember(&mut self.sockets[key.0 as usize].read, cx);
        Poll::Pending
    }

    /// Sends a datagram: it arrives once, twice or never, and not always in order.
    pub(crate) fn send_to(
        &mut self,
        key: SocketKey,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> io::Result<()> {
        let mailbox = self.mailbox(key)?;
        let from = mailbox.address;
        let to = to.or(mailbox.peer).ok_or(io::ErrorKind::NotConnected)?;
        let Some(index) = self.bound.get(&to).copied() else { return Ok(()) };
        let lose_one_in = self.faults.lose_one_in;
        let copies =
            1 + usize::from(self.one_in(lose_one_in)) - usize::from(self.one_in(lose_one_in));
        for _ in 0..copies {
            let at = self.now + self.delay();
            let serial = self.sockets[index].serial;
            self.next_event += 1;
            let arrival = Arrival::Datagram(from, data.to_vec());
            self.events.push(Reverse((at, self.next_event, index, serial, arrival)));
        }
        Ok(())
    }

    pub(crate) fn poll_hangup(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &mut self.sockets[key.0 as usize];
        if socket.ended || socket.reset {
            return Poll::Ready(Ok(()));
        }
        remember(&mut socket.hangup, cx);
        Poll::Pending
    }

    pub(crate) fn shutdown(&mut self, key: SocketKey, how: Shutdown) -> io::Result<()> {
        let index = key.0 as usize;
        if self.sockets[index].reset {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if how != Shutdown::Read && !self.sockets[index].shut {
            self.sockets[index].shut = true;
            self.send_off(index, Arrival::End);
        }
        if how != Shutdown::Write {
            self.sockets[index].ended = true;
        }
        Ok(())
    }

    pub(crate) fn forget(&mut self, key: SocketKey, wait: Wait) -> Option<Waker> {
        let socket = self.sockets.get_mut(key.0 as usize)?;
        match wait {
            Wait::Read => socket.read.take(),
            Wait::Write => socket.write.take(),
            Wait::Hangup => socket.hangup.take(),
        }
    }
}

/// Listening sockets, and connections to them. A descriptor stands for each socket until it is
/// attached, since the code under test passes descriptors around; they are never read or written.
impl Sim {
    /// Starts listening at this address; returns the socket's descriptor.
    pub(crate) fn listen(&mut self, address: SocketAddr, encrypted: bool) -> io::Result<OwnedFd> {
        if self.listening.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let fd = placeholder()?;
        let index = self.socket(None);
        let queue = SimListener { address, arrived: VecDeque::new() };
        self.sockets[index].listens = Some(Box::new(queue));
        self.sockets[index].encrypted = encrypted;
        self.listening.insert(address, index);
        self.unattached.insert(fd.as_raw_fd(), index);
        Ok(fd)
    }

    /// Begins to connect the socket of this descriptor. `from`: the client's address.
    pub(crate) fn begin_connect(&mut self, fd: RawFd, from: Option<SocketAddr>, to: SocketAddr) {
        let index = self.socket(None);
        let port = PORTS.start + self.random(PORTS.len() as u64) as u16;
        let from = from.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], port)));
        self.sockets[index].progress = Progress::Connecting;
        self.unattached.insert(fd, index);
        let (at, serial) = (self.now + self.delay(), self.sockets[index].serial);
        self.next_event += 1;
        let arrival = Arrival::Connection { from, to };
        self.events.push(Reverse((at, self.next_event, index, serial, arrival)));
    }

    /// A client's attempt reaches its destination.
    fn establish(
        &mut self,
        client: usize,
        from: SocketAddr,
        to: SocketAddr,
        woken: &mut Vec<Waker>,
    ) {
        let listener = self.listening.get(&to).copied();
        let accepts = |index: &usize| {
            let queue = self.sockets[*index].listens.as_ref();
            queue.is_some_and(|queue| queue.arrived.len() < BACKLOG_MAX)
        };
        match listener.filter(accepts) {
            Some(listener) => {
                let server = self.socket(Some(client));
                self.sockets[client].peer = Some(server);
                let encrypted = self.sockets[listener].encrypted;
                self.sockets[client].encrypted = encrypted;
                self.sockets[server].encrypted = encrypted;
                self.sockets[client].progress = Progress::Connected;
                let socket = &mut self.sockets[listener];
                if let Some(queue) = &mut socket.listens {
                    queue.arrived.push_back((server, from));
                }
                woken.extend(socket.read.take());
            }
            None => self.sockets[client].progress = Progress::Refused,
        }
        let socket = &mut self.sockets[client];
        woken.extend(socket.read.take());
        woken.extend(socket.write.take());
    }

    /// The socket represented by this descriptor.
    pub(crate) fn attach(&mut self, fd: RawFd) -> io::Result<SocketKey> {
        let index = self.unattached.remove(&fd).ok_or(io::ErrorKind::Unsupported)?;
        Ok(SocketKey(index as u32))
    }

    /// The next connection of a listener.
    pub(crate) fn poll_accept(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(OwnedFd, Option<Address>)>> {
        self.confuse(key.0 as usize);
        if let Some(accepted) = self.take_queued(key) {
            return Poll::Ready(accepted);
        }
        remember(&mut self.sockets[key.0 as usize].read, cx);
        Poll::Pending
    }

    /// Takes a connection that waits at a listener; `None`: none waits.
    pub(crate) fn take_queued(
        &mut self,
        key: SocketKey,
    ) -> Option<io::Result<(OwnedFd, Option<Address>)>> {
        let queue = self.sockets.get_mut(key.0 as usize)?.listens.as_mut()?;
        let (server, from) = queue.arrived.pop_front()?;
        Some(placeholder().map(|fd| {
            self.unattached.insert(fd.as_raw_fd(), server);
            (fd, Some(Address::Inet(from)))
        }))
    }

    /// Waits until a client's connection is established, or the socket has room.
    pub(crate) fn poll_writable(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let window = self.faults.window_bytes;
        let socket = &mut self.sockets[key.0 as usize];
        match socket.progress {
            Progress::Refused => return Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            Progress::Connected if socket.reset || socket.outstanding < window => {
                return Poll::Ready(Ok(()));
            }
            Progress::Connected | Progress::Connecting => {}
        }
        remember(&mut socket.write, cx);
        Poll::Pending
    }

    /// A listener is closed: connections that were not accepted are reset.
    fn stop_listening(&mut self, socket: &mut SimSocket) {
        let Some(queue) = socket.listens.take() else { return };
        self.listening.remove(&queue.address);
        for (server, _) in queue.arrived {
            self.send_off(server, Arrival::Reset);
            let server = self.sockets.remove(server);
            if let Some(client) = server.peer {
                self.sockets[client].peer = None;
            }
        }
    }
}

impl SimSocket {
    fn arrive(&mut self, arrival: Arrival, woken: &mut Vec<Waker>) {
        match arrival {
            Arrival::Data(data) => self.arrived.extend(data),
            Arrival::End => self.ended = true,
            Arrival::Reset => {
                self.reset = true;
                self.arrived.clear();
            }
            Arrival::Datagram(from, data) => {
                if let Some(mailbox) = &mut self.datagram
                    && mailbox.arrived.len() < MAILBOX_MAX
                {
                    mailbox.arrived.push_back((from, data));
                }
            }
            Arrival::Connection { .. } | Arrival::Nothing => {}
        }
        woken.extend(self.read.take());
        woken.extend(self.write.take());
        woken.extend(self.hangup.take());
    }
}

/// Records what arrives at a socket.
fn record(trace: &mut SimTrace, at: Duration, socket: &SimSocket, arrival: &Arrival) {
    let serial = socket.serial;
    match arrival {
        // Wake-ups matter only by their effects.
        Arrival::Nothing => {}
        Arrival::Data(data) => {
            if !socket.encrypted {
                trace.data(data);
            }
            trace.line(at, format_args!("socket {serial}: {} bytes", data.len()));
        }
        Arrival::End => trace.line(at, format_args!("socket {serial}: end")),
        Arrival::Reset => trace.line(at, format_args!("socket {serial}: reset")),
        Arrival::Datagram(from, data) => {
            trace.data(data);
            let len = data.len();
            trace.line(at, format_args!("socket {serial}: datagram of {len} bytes from {from}"));
        }
        Arrival::Connection { from, to } => {
            trace.line(at, format_args!("socket {serial}: connection from {from} to {to}"));
        }
    }
}
