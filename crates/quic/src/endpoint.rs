//! QUIC in one worker: its sockets, its connections, and the way of datagrams between them.
//!
//! A task per socket receives: each datagram goes to its connection, whose tasks are woken. Another task, which runs
//! behind them, sends what they have written, and looks after time: one pass per turn.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::BytesMut;
use nowait_runtime::net::DatagramTrains;
use nowait_runtime::time::{Sleep, sleep_until};
use nowait_runtime::{now, spawn};
use nowait_sys::listen::ListenAddress;
use nowait_sys::udp::DatagramBatch;
use nowait_tls::Session;
use quinn_proto::{ConnectionId, DatagramEvent, EcnCodepoint};
use slab::Slab;

use crate::bundle::{Datagram, endpoint_config, server_config};
use crate::connection_id::{Home, PLACES_MAX, Place};
use crate::crypto::ServerSide;
use crate::directory::{Forwarded, Mailbox};
use crate::handshake::{self, Pending};
use crate::live::{Live, LiveState};
use crate::moved::MovedConnection;
use crate::packet::{Destination, destination};
use crate::service::{Admission, Arrival, Service};
use crate::socket::Socket;
use crate::{Connection, Counters, Directory};

/// Handshakes in progress of a worker, at most; further first packets are dropped, and clients try again.
pub const HANDSHAKES_MAX: usize = 4096;

/// From this many handshakes in progress on, clients must prove their addresses first.
pub const HANDSHAKES_WITHOUT_RETRY_MAX: usize = 512;

/// Batches that a socket's task receives before other tasks have their turn.
const BATCHES_MAX: usize = 4;

/// QUIC in one worker.
pub struct Endpoint {
    me: Weak<Endpoint>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) service: Rc<dyn Service>,
    number: u16,
    mailbox: Arc<Mailbox>,
    sockets: RefCell<Vec<Weak<Socket>>>,
    slots: RefCell<Slab<Slot>>,
    /// Connections by what their client's first packets carry. Never iterated.
    first_packets: RefCell<HashMap<(SocketAddr, ConnectionId), usize>>,
    /// Makes the answers that need no state.
    gate: RefCell<quinn_proto::Endpoint>,
    /// Connections that have received something in this turn.
    received: RefCell<Vec<Rc<Live>>>,
    /// Connections that may have something to send.
    dirty: RefCell<VecDeque<Rc<Live>>>,
    timeouts: RefCell<BTreeSet<(Instant, usize)>>,
    sender: RefCell<Option<Waker>>,
    /// What the library writes, before it is sent.
    buffer: RefCell<Vec<u8>>,
    handshakes: Cell<usize>,
    connections: Cell<usize>,
    closing: Cell<bool>,
    idle: RefCell<Vec<Waker>>,
}

/// A place for a connection.
enum Slot {
    /// Its handshake is in progress.
    Pending(Rc<Pending>),
    /// It is at work.
    Live(Rc<Live>),
    /// It has moved to another worker; its IDs lead here.
    Gone,
}

/// A listening socket of an endpoint. When it is dropped, no connections begin there any more; those that did continue,
/// and keep the socket open.
pub struct Listening {
    socket: Rc<Socket>,
}

impl Listening {
    /// Sizes of the socket's buffers for receiving and for sending. Less than
    /// [`SOCKET_BUFFER_BYTES`](nowait_runtime::net::SOCKET_BUFFER_BYTES): the kernel permits no more.
    pub fn buffers(&self) -> (usize, usize) {
        self.socket.trains().buffers()
    }

    /// The address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Another descriptor of the socket, for the worker that follows.
    ///
    /// # Errors
    /// When descriptors have run out.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.socket.trains().try_clone_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.socket.accepting.set(false);
    }
}

thread_local! {
    /// The endpoints of this thread, for their mailboxes.
    static ENDPOINTS: RefCell<Vec<Weak<Endpoint>>> = const { RefCell::new(Vec::new()) };
}

/// Lets the endpoint with this number take its mail; called on its thread.
pub(crate) fn look_into_mailbox(number: u16) {
    let endpoint = ENDPOINTS.with_borrow(|endpoints| {
        endpoints.iter().filter_map(Weak::upgrade).find(|endpoint| endpoint.number == number)
    });
    if let Some(endpoint) = endpoint {
        endpoint.take_mail();
    }
}

impl Endpoint {
    /// The endpoint of this worker, without sockets.
    ///
    /// # Panics
    /// Outside of a worker, or in a process with 65,536 endpoints.
    pub fn new(directory: Arc<Directory>, service: Rc<dyn Service>) -> Rc<Endpoint> {
        let (number, mailbox) = directory.register().expect("there are fewer workers");
        let keys = directory.keys();
        // Retry packets carry IDs without a connection.
        let home = Home::new(Place { worker: number, slot: Place::NONE });
        let server = server_config(&keys, ServerSide::Stateless, directory.used_tokens());
        let config = endpoint_config(&keys, &home);
        let gate = quinn_proto::Endpoint::new(config, Some(Arc::new(server)), false, None);
        let endpoint = Rc::new_cyclic(|me| Endpoint {
            me: me.clone(),
            directory,
            service,
            number,
            mailbox,
            sockets: RefCell::default(),
            slots: RefCell::default(),
            first_packets: RefCell::default(),
            gate: RefCell::new(gate),
            received: RefCell::default(),
            dirty: RefCell::default(),
            timeouts: RefCell::default(),
            sender: RefCell::default(),
            buffer: RefCell::default(),
            handshakes: Cell::new(0),
            connections: Cell::new(0),
            closing: Cell::new(false),
            idle: RefCell::default(),
        });
        ENDPOINTS.with_borrow_mut(|endpoints| {
            endpoints.retain(|other| other.strong_count() > 0);
            endpoints.push(endpoint.me.clone());
        });
        drop(spawn(Sending { endpoint: endpoint.me.clone(), sleep: None }));
        endpoint
    }

    /// Takes the keys of the directory again, after [`Directory::set_key`].
    pub fn renew_keys(&self) {
        let keys = self.directory.keys();
        let server = server_config(&keys, ServerSide::Stateless, self.directory.used_tokens());
        self.gate.borrow_mut().set_server_config(Some(Arc::new(server)));
    }

    /// Serves a bound UDP socket: this worker's own (`reuseport`), or one that workers share.
    ///
    /// # Errors
    /// When the descriptor cannot be watched, or reports no local addresses.
    pub fn listen(
        self: &Rc<Self>,
        fd: OwnedFd,
        address: Arc<ListenAddress>,
    ) -> io::Result<Listening> {
        self.listen_with(DatagramTrains::from_fd(fd)?, address)
    }

    /// The same with a socket of the runtime, such as one of a simulation.
    ///
    /// # Errors
    /// None for now.
    pub fn listen_with(
        self: &Rc<Self>,
        trains: DatagramTrains,
        address: Arc<ListenAddress>,
    ) -> io::Result<Listening> {
        Ok(Listening { socket: self.attach(Socket::new(trains, Some(address))) })
    }

    /// Begins to receive from a socket.
    pub(crate) fn attach(&self, socket: Socket) -> Rc<Socket> {
        let socket = Rc::new(socket);
        let mut sockets = self.sockets.borrow_mut();
        sockets.retain(|other| other.strong_count() > 0);
        sockets.push(Rc::downgrade(&socket));
        drop(spawn(receive(self.me.clone(), Rc::downgrade(&socket))));
        socket
    }

    /// The socket that listens at this address.
    fn socket_of(&self, listen: &ListenAddress) -> Option<Rc<Socket>> {
        let sockets = self.sockets.borrow();
        let mut open = sockets.iter().filter_map(Weak::upgrade);
        open.find(|socket| socket.listen.as_deref() == Some(listen))
    }

    /// The socket that takes new connections at the address of one that does not.
    fn accepting_beside(&self, socket: &Socket) -> Option<Rc<Socket>> {
        if socket.accepting.get() {
            return None;
        }
        let sockets = self.sockets.borrow();
        let mut open = sockets.iter().filter_map(Weak::upgrade);
        open.find(|other| other.accepting.get() && other.listen == socket.listen)
    }

    /// Connections, and handshakes in progress.
    pub fn counts(&self) -> (usize, usize) {
        (self.connections.get(), self.handshakes.get())
    }

    /// Begins no more connections: other workers do, if they can. Those that there are continue;
    /// [`idle`](Self::idle) resolves when the last one has ended or moved.
    pub fn close(&self) {
        self.closing.set(true);
        self.mailbox.stop_accepting();
        self.wake_if_idle();
    }

    /// Resolves when no connection is left, with everything sent.
    pub async fn idle(&self) {
        poll_fn(|cx| match self.is_idle() {
            true => Poll::Ready(()),
            false => {
                self.idle.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }

    fn is_idle(&self) -> bool {
        self.connections.get() == 0 && self.handshakes.get() == 0
    }

    fn wake_if_idle(&self) {
        if self.is_idle() {
            self.idle.take().into_iter().for_each(Waker::wake);
        }
    }

    /// The workers of the process.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.directory.counters()
    }
}

/// Routing.
impl Endpoint {
    /// Takes a datagram that arrived here.
    fn route(&self, datagram: Datagram, socket: Option<&Rc<Socket>>, forwards: u8) {
        let Some(Destination { id, long }) = destination(&datagram.data) else {
            Counters::add(&self.counters().datagrams_dropped, 1);
            return;
        };
        let place = self.directory.ids().place(id);
        if long && self.route_first(&datagram, id, socket) {
            return;
        }
        match place.filter(|place| place.slot != Place::NONE) {
            Some(place) => self.route_to(place, datagram, socket, forwards),
            None => self.begin(datagram, socket, forwards),
        }
    }

    /// Takes a datagram of a client that may not know the ID of its connection yet; false: it belongs to none.
    fn route_first(&self, datagram: &Datagram, id: &[u8], socket: Option<&Rc<Socket>>) -> bool {
        if id.len() > quinn_max_id() {
            return false;
        }
        let key = (datagram.from, ConnectionId::new(id));
        let slot = self.first_packets.borrow().get(&key).copied();
        slot.is_some_and(|slot| self.put(slot, datagram.clone(), socket).is_ok())
    }

    /// Takes a datagram for the connection at a place.
    fn route_to(
        &self,
        place: Place,
        datagram: Datagram,
        socket: Option<&Rc<Socket>>,
        forwards: u8,
    ) {
        let mut place = place;
        let mut datagram = datagram;
        // A connection moves less often than this.
        for _ in 0..MOVES_MAX {
            if place.worker == self.number {
                match self.put(place.slot as usize, datagram, socket) {
                    Ok(()) => return,
                    Err(back) => datagram = back,
                }
            }
            match self.directory.moved_to(place) {
                Some(next) => place = next,
                None => break,
            }
        }
        if place.worker != self.number && forwards < FORWARDS_MAX {
            let listen = socket.and_then(|socket| socket.listen.clone());
            let copy = Forwarded { datagram: datagram.clone(), listen, forwards: forwards + 1 };
            if self.directory.forward(place.worker, copy) {
                return;
            }
        }
        // On its way to another worker: a reset would end it.
        let leaves = place.worker == self.number
            && matches!(self.slots.borrow().get(place.slot as usize), Some(Slot::Gone));
        match leaves {
            true => Counters::add(&self.counters().datagrams_dropped, 1),
            false => self.begin(datagram, socket, forwards),
        }
    }

    /// Gives a datagram to the connection in a slot. Returned if there is none.
    fn put(
        &self,
        slot: usize,
        datagram: Datagram,
        socket: Option<&Rc<Socket>>,
    ) -> Result<(), Datagram> {
        let live = match self.slots.borrow().get(slot) {
            Some(Slot::Live(live)) => live.clone(),
            Some(Slot::Pending(pending)) => {
                if !pending.put(datagram) {
                    Counters::add(&self.counters().handshake_queue_full, 1);
                }
                return Ok(());
            }
            Some(Slot::Gone) | None => return Err(datagram),
        };
        let answer = self.guarded(&live, |live| live.receive(datagram, socket));
        if let (Some((transmit, buffer)), Some(socket)) = (answer, socket) {
            Counters::add(&self.counters().stateless_sent, 1);
            socket.send(&buffer, &transmit, self.counters());
        }
        self.received.borrow_mut().push(live);
        Ok(())
    }

    /// Calls `act` for a connection. A panic of the library's ends only this connection.
    fn guarded<T: Default>(&self, live: &Rc<Live>, act: impl FnOnce(&Rc<Live>) -> T) -> T {
        catch_unwind(AssertUnwindSafe(|| act(live))).unwrap_or_else(|_| {
            Counters::add(&self.counters().panics, 1);
            live.abandon();
            T::default()
        })
    }

    /// Distributes the news of the connections that have received something.
    fn absorb_received(&self) {
        let mut received = self.received.take();
        for live in received.drain(..) {
            self.guarded(&live, |live| live.absorb(self.counters()));
            self.touch(&live);
        }
        let mut place = self.received.borrow_mut();
        if place.is_empty() {
            *place = received;
        }
    }

    /// Takes a datagram that belongs to no connection: the first one of a client, or one for an answer without state.
    fn begin(&self, datagram: Datagram, socket: Option<&Rc<Socket>>, forwards: u8) {
        let datagram = match socket.and_then(|socket| Some((socket, socket.only.get()?))) {
            None => datagram,
            Some((socket, slot)) => match self.put(slot, datagram, Some(socket)) {
                Ok(()) => return,
                Err(back) => back,
            },
        };
        let Some(socket) = socket.filter(|socket| socket.listen.is_some()) else {
            Counters::add(&self.counters().datagrams_dropped, 1);
            return;
        };
        // An address that was given up and is listened on again: the kernel still delivers to the socket that earlier
        // connections keep open.
        let accepting = self.accepting_beside(socket);
        let socket = accepting.as_ref().unwrap_or(socket);
        let first = datagram.data.first().copied().unwrap_or_default();
        const LONG: u8 = 0x80;
        let takes = socket.accepting.get() && !self.closing.get();
        if first & LONG != 0 && !takes {
            // Another worker begins it.
            let listen = socket.listen.clone();
            let forwarded = Forwarded { datagram, listen, forwards: forwards + 1 };
            let stays = self.mailbox.is_accepting() || forwards >= FORWARDS_MAX;
            if stays || !self.directory.forward_first(forwarded) {
                Counters::add(&self.counters().datagrams_dropped, 1);
            }
            return;
        }
        let mut buffer = Vec::new();
        let Datagram { data, from, local, ecn } = datagram.clone();
        let ecn = EcnCodepoint::from_bits(ecn);
        let mut gate = self.gate.borrow_mut();
        match gate.handle(now(), from, local, ecn, data, &mut buffer) {
            None => Counters::add(&self.counters().datagrams_dropped, 1),
            Some(DatagramEvent::Response(transmit)) => {
                Counters::add(&self.counters().stateless_sent, 1);
                socket.send(&buffer, &transmit, self.counters());
            }
            Some(DatagramEvent::ConnectionEvent(..)) => {}
            Some(DatagramEvent::NewConnection(incoming)) => {
                let validated = incoming.remote_address_validated();
                let (admission, arrival) = self.admit(&datagram, socket, validated);
                match admission {
                    Admission::Retry if incoming.may_retry() => {
                        if let Ok(transmit) = gate.retry(incoming, &mut buffer) {
                            Counters::add(&self.counters().retries_sent, 1);
                            socket.send(&buffer, &transmit, self.counters());
                        }
                    }
                    Admission::Accept { timeout } => {
                        gate.ignore(incoming);
                        drop(gate);
                        self.start(datagram, socket, arrival, timeout);
                    }
                    Admission::Retry | Admission::Drop => gate.ignore(incoming),
                }
            }
        }
    }

    /// Whether a client may begin a connection.
    fn admit(
        &self,
        datagram: &Datagram,
        socket: &Rc<Socket>,
        validated: bool,
    ) -> (Admission, Arrival) {
        let bound = socket.local_addr();
        let ip = datagram.local.map_or(bound.ip(), |ip| ip.to_canonical());
        let arrival = Arrival {
            peer: canonical(datagram.from),
            local: SocketAddr::new(ip, bound.port()),
            listen: socket.listen.clone().unwrap_or_else(crate::connection::no_listen),
            validated,
        };
        let admission =
            if self.handshakes.get() >= HANDSHAKES_MAX || self.slots.borrow().len() >= PLACES_MAX {
                Counters::add(&self.counters().handshakes_full, 1);
                Admission::Drop
            } else if !validated && self.handshakes.get() >= HANDSHAKES_WITHOUT_RETRY_MAX {
                Admission::Retry
            } else {
                self.service.admit(&arrival)
            };
        (admission, arrival)
    }

    /// Starts the handshake of a client.
    fn start(
        &self,
        datagram: Datagram,
        socket: &Rc<Socket>,
        arrival: Arrival,
        timeout: std::time::Duration,
    ) {
        let Some(endpoint) = self.me.upgrade() else { return };
        let id = destination(&datagram.data).map(|found| ConnectionId::new(found.id));
        let Some(id) = id else { return };
        let first = (datagram.from, id);
        let slot = self.slots.borrow_mut().insert(Slot::Gone);
        let pending = Pending::new(slot, first, datagram);
        self.slots.borrow_mut()[slot] = Slot::Pending(pending.clone());
        self.first_packets.borrow_mut().insert(first, slot);
        self.handshakes.set(self.handshakes.get() + 1);
        drop(spawn(handshake::run(endpoint, pending, socket.clone(), arrival, timeout)));
    }

    /// The home of a connection in a slot.
    pub(crate) fn home(&self, slot: usize) -> Home {
        Home::new(Place { worker: self.number, slot: slot as u32 })
    }

    /// The handshake in a slot has ended without a connection.
    pub(crate) fn give_up(&self, pending: &Pending) {
        self.first_packets.borrow_mut().remove(&pending.first);
        self.slots.borrow_mut().try_remove(pending.slot);
        self.handshakes.set(self.handshakes.get() - 1);
        self.wake_if_idle();
    }

    /// The handshake in a slot has led to a connection.
    pub(crate) fn establish(&self, pending: &Pending, live: &Rc<Live>) {
        self.slots.borrow_mut()[pending.slot] = Slot::Live(live.clone());
        self.handshakes.set(self.handshakes.get() - 1);
        self.connections.set(self.connections.get() + 1);
    }

    /// A place for a connection that begins without a handshake of a client's: `None`: there is none.
    pub(crate) fn reserve(&self) -> Option<usize> {
        let mut slots = self.slots.borrow_mut();
        (slots.len() < PLACES_MAX).then(|| slots.insert(Slot::Gone))
    }

    /// Puts a connection into a reserved place.
    pub(crate) fn settle(&self, slot: usize, live: &Rc<Live>) {
        self.slots.borrow_mut()[slot] = Slot::Live(live.clone());
        self.connections.set(self.connections.get() + 1);
    }

    /// Frees a reserved place.
    pub(crate) fn release(&self, slot: usize) {
        self.slots.borrow_mut().try_remove(slot);
    }

    /// Takes what other workers have left.
    fn take_mail(&self) {
        for Forwarded { datagram, listen, forwards } in self.mailbox.take() {
            let socket = listen.and_then(|listen| self.socket_of(&listen));
            self.route_mail(datagram, socket.as_ref(), forwards);
        }
        self.absorb_received();
    }

    /// As [`route`](Self::route); a connection goes on to send through its own socket.
    fn route_mail(&self, datagram: Datagram, socket: Option<&Rc<Socket>>, forwards: u8) {
        let place = destination(&datagram.data)
            .and_then(|found| self.directory.ids().place(found.id))
            .filter(|place| place.slot != Place::NONE && place.worker == self.number);
        let datagram = match place {
            Some(place) => match self.put(place.slot as usize, datagram, None) {
                Ok(()) => return,
                Err(back) => back,
            },
            None => datagram,
        };
        self.route(datagram, socket, forwards);
    }
}

/// Moves of a connection, at most, that a datagram follows.
const MOVES_MAX: usize = 64;

/// Workers that a datagram is handed to, at most.
const FORWARDS_MAX: u8 = 4;

/// The longest connection ID of version 1.
const fn quinn_max_id() -> usize {
    20
}

/// An IPv4 address that an IPv6 socket has reported as a mapped one.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Sending, time, and the end of connections.
impl Endpoint {
    /// A connection may have something to send.
    pub(crate) fn touch(&self, live: &Rc<Live>) {
        if !live.is_dirty.replace(true) {
            self.dirty.borrow_mut().push_back(live.clone());
            if let Some(waker) = self.sender.take() {
                waker.wake();
            }
        }
    }

    /// Sends what connections have, each some of it. True: some have more.
    fn send_all(&self) -> bool {
        let mut more = false;
        // Those that are added meanwhile have their turn later.
        let connections = self.dirty.borrow().len();
        for _ in 0..connections {
            let Some(live) = self.dirty.borrow_mut().pop_front() else { break };
            live.is_dirty.set(false);
            let again = {
                let mut buffer = self.buffer.borrow_mut();
                self.guarded(&live, |live| live.send(&mut buffer, self.counters()))
            };
            self.guarded(&live, |live| live.absorb(self.counters()));
            if again && !live.is_over() {
                more = true;
                live.is_dirty.set(true);
                self.dirty.borrow_mut().push_back(live.clone());
            }
            self.keep_time(&live);
        }
        more
    }

    /// Notes when time has an effect on a connection next, or that it has ended.
    fn keep_time(&self, live: &Rc<Live>) {
        if live.is_over() {
            self.remove(live);
            return;
        }
        let Some(wanted) = self.guarded(live, |live| live.next_timeout()) else { return };
        // A later one is noted when the earlier one comes: timers of losses are moved with each packet.
        if live.timeout.get().is_none_or(|noted| wanted < noted) {
            let mut timeouts = self.timeouts.borrow_mut();
            if let Some(noted) = live.timeout.replace(Some(wanted)) {
                timeouts.remove(&(noted, live.slot.get()));
            }
            timeouts.insert((wanted, live.slot.get()));
        }
    }

    /// Lets time have its effects on connections. Returns when it has the next.
    fn time_out_due(&self) -> Option<Instant> {
        let now = now();
        loop {
            let first = self.timeouts.borrow().first().copied();
            let (at, slot) = first?;
            if at > now {
                return Some(at);
            }
            self.timeouts.borrow_mut().remove(&(at, slot));
            let live = match self.slots.borrow().get(slot) {
                Some(Slot::Live(live)) => live.clone(),
                _ => continue,
            };
            live.timeout.set(None);
            if self.guarded(&live, |live| live.next_timeout()).is_some_and(|at| at > now) {
                self.keep_time(&live);
                continue;
            }
            self.guarded(&live, |live| live.time_out());
            self.guarded(&live, |live| live.absorb(self.counters()));
            self.touch(&live);
        }
    }

    /// Removes a connection that is over.
    fn remove(&self, live: &Rc<Live>) {
        let slot = live.slot.get();
        let is_here = match self.slots.borrow().get(slot) {
            Some(Slot::Live(other)) => Rc::ptr_eq(other, live),
            _ => false,
        };
        if !is_here {
            return;
        }
        let left = self.slots.borrow_mut().try_remove(slot);
        drop(left);
        self.forget(live);
        self.directory.forget_moved(&live.earlier_places.borrow());
    }

    /// Forgets a connection that has left its slot.
    fn forget(&self, live: &Rc<Live>) {
        if let Some(first) = &live.first {
            self.first_packets.borrow_mut().remove(first);
        }
        if let Some(noted) = live.timeout.take() {
            self.timeouts.borrow_mut().remove(&(noted, live.slot.get()));
        }
        self.connections.set(self.connections.get() - 1);
        self.wake_if_idle();
    }

    /// Gives a connection away.
    pub(crate) fn depart(
        &self,
        live: &Rc<Live>,
        listen: &Arc<ListenAddress>,
        session: impl FnOnce() -> Option<Session>,
    ) -> Option<MovedConnection> {
        let can_move = |state: &LiveState| state.confirmed && state.lost.is_none();
        if !can_move(&live.state.borrow()) {
            return None;
        }
        let bundle = live.state.borrow_mut().bundle.take()?;
        let mut places = live.earlier_places.take();
        places.push(bundle.home.get());
        // The place is kept: what arrives for it must not reach another connection.
        self.slots.borrow_mut()[live.slot.get()] = Slot::Gone;
        self.forget(live);
        live.abandon();
        Some(MovedConnection {
            bundle,
            listen: listen.clone(),
            local: live.local.get(),
            idle_timeout: live.idle_timeout,
            places,
            session: session(),
        })
    }

    /// Continues a connection that another worker has given up by [`Connection::depart`]. Its datagrams find it
    /// here from now on.
    ///
    /// # Errors
    /// The worker has no room, or no socket for it; the connection is given back.
    pub fn arrive(
        self: &Rc<Self>,
        moved: MovedConnection,
    ) -> Result<Rc<Connection>, MovedConnection> {
        let Some(socket) = self.socket_of(&moved.listen) else { return Err(moved) };
        let Some(slot) = self.reserve() else { return Err(moved) };
        let MovedConnection { bundle, listen, local, idle_timeout, places, session } = moved;
        let here = Place { worker: self.number, slot: slot as u32 };
        bundle.home.set(here);
        for place in &places {
            self.directory.note_moved(*place, here);
        }
        let state = LiveState::new(bundle, true);
        let live = Live::new(self, (slot, None), socket, local, idle_timeout, state);
        live.earlier_places.replace(places);
        self.settle(slot, &live);
        self.touch(&live);
        Ok(Connection::new(live, listen, session, None))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.directory.unregister(self.number);
        for (_, slot) in self.slots.take() {
            if let Slot::Live(live) = slot {
                live.abandon();
            }
        }
        if let Some(waker) = self.sender.take() {
            waker.wake();
        }
    }
}

/// The task that sends, and keeps time.
struct Sending {
    endpoint: Weak<Endpoint>,
    sleep: Option<Sleep>,
}

impl Future for Sending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(endpoint) = self.endpoint.upgrade() else { return Poll::Ready(()) };
        let next = endpoint.time_out_due();
        let more = endpoint.send_all();
        let next = endpoint.timeouts.borrow().first().map(|(at, _)| *at).or(next);
        let unblocked = endpoint.poll_unblocked(cx);
        if more && unblocked || !endpoint.dirty.borrow().is_empty() && unblocked {
            cx.waker().wake_by_ref();
        }
        endpoint.sender.replace(Some(cx.waker().clone()));
        if let Some(next) = next {
            let sleep = self.sleep.get_or_insert_with(|| sleep_until(next));
            sleep.reset(next);
            if Pin::new(sleep).poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl Endpoint {
    /// Whether all sockets have room; otherwise the task is woken when they have.
    fn poll_unblocked(&self, cx: &mut Context<'_>) -> bool {
        let sockets: Vec<Rc<Socket>> =
            self.sockets.borrow().iter().filter_map(Weak::upgrade).collect();
        let mut ready = true;
        for socket in sockets.iter().filter(|socket| socket.is_blocked()) {
            ready &= socket.poll_unblocked(self.counters(), cx).is_ready();
        }
        ready
    }
}

thread_local! {
    /// Memory for receiving, used by one task at a time.
    static BATCH: RefCell<Option<Box<DatagramBatch>>> = const { RefCell::new(None) };
}

/// Receives from a socket, until it is closed.
async fn receive(endpoint: Weak<Endpoint>, socket: Weak<Socket>) {
    poll_fn(|cx| {
        let (Some(endpoint), Some(socket)) = (endpoint.upgrade(), socket.upgrade()) else {
            return Poll::Ready(());
        };
        socket.set_receiver(cx);
        let mut batch = BATCH.take().unwrap_or_default();
        let mut result = Poll::Pending;
        let mut waits = false;
        for _ in 0..BATCHES_MAX {
            match socket.trains().poll_receive(&mut batch, cx) {
                Poll::Ready(Ok(_)) => endpoint.take_batch(&batch, &socket),
                Poll::Ready(Err(_)) => {
                    // The descriptor is unusable: connections end by their timeouts.
                    result = Poll::Ready(());
                    break;
                }
                Poll::Pending => {
                    waits = true;
                    break;
                }
            }
        }
        BATCH.set(Some(batch));
        endpoint.absorb_received();
        if !waits && result.is_pending() {
            cx.waker().wake_by_ref();
        }
        result
    })
    .await;
}

impl Endpoint {
    fn take_batch(&self, batch: &DatagramBatch, socket: &Rc<Socket>) {
        for train in batch.trains() {
            let segment = train.segment.max(1);
            let datagrams = train.data.len().div_ceil(segment).max(1);
            Counters::add(&self.counters().datagrams_received, datagrams as u64);
            let mut rest = BytesMut::from(train.data);
            while !rest.is_empty() {
                let data = rest.split_to(segment.min(rest.len()));
                let (from, local, ecn) = (train.from, train.local, train.ecn);
                self.route(Datagram { data, from, local, ecn }, Some(socket), 0);
            }
        }
    }
}
