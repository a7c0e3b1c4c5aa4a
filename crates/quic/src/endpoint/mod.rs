//! QUIC in one worker: its sockets, its connections, and the way of datagrams between them.
//!
//! A task per socket receives: each datagram goes to its connection, whose tasks are woken. Another task, which runs
//! behind them, sends what they have written, and looks after time: one pass per turn.

mod receiving;
mod router;
mod sending;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use nowait_runtime::net::DatagramTrains;
use nowait_runtime::spawn;
use nowait_sys::listen::ListenAddress;
use nowait_tls::Session;
use quinn_proto::{ConnectionId, TokenMemoryCache};
use slab::Slab;

use self::receiving::receive;
use self::sending::Sending;
use crate::bundle::{endpoint_config, server_config};
use crate::connection_id::{Home, PLACES_MAX, Place};
use crate::crypto::ServerSide;
use crate::directory::Mailbox;
use crate::handshake::Pending;
use crate::live::{Live, LiveState};
use crate::moved::{MovedConnection, Transit};
use crate::service::Service;
use crate::socket::Socket;
use crate::{Connection, Counters, Directory};

/// Handshakes in progress of a worker, at most; further first packets are dropped, and clients try again.
pub const HANDSHAKES_MAX: usize = 4096;

/// From this many handshakes in progress on, clients must prove their addresses first.
pub const HANDSHAKES_WITHOUT_RETRY_MAX: usize = 512;

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
    /// Tokens that servers have given to this side as a client.
    pub(crate) client_tokens: Arc<TokenMemoryCache>,
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
    /// Sizes of the socket's buffers for receiving and for sending.
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

/// Lets the endpoint of this process and with this number take its mail; called on its thread.
fn look_into_mailbox(process: u16, number: u16) {
    let endpoint = ENDPOINTS.with_borrow(|endpoints| {
        endpoints.iter().filter_map(Weak::upgrade).find(|endpoint| {
            endpoint.number == number && endpoint.directory.processes().number() == process
        })
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
        let (number, mailbox) =
            directory.register(look_into_mailbox).expect("there are fewer workers");
        let keys = directory.keys();
        // Retry packets carry IDs without a connection.
        let process = directory.processes().number();
        let home = Home::new(Place { process, worker: number, slot: Place::NONE });
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
            client_tokens: Arc::default(),
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
        Ok(self.listen_with(DatagramTrains::from_fd(fd)?, address))
    }

    /// The same with a socket of the runtime, such as one of a simulation.
    pub fn listen_with(
        self: &Rc<Self>,
        trains: DatagramTrains,
        address: Arc<ListenAddress>,
    ) -> Listening {
        Listening { socket: self.attach(Socket::new(trains, Some(address))) }
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

/// Places of connections.
impl Endpoint {
    /// The home of a connection in a slot.
    pub(crate) fn home(&self, slot: usize) -> Home {
        Home::new(self.place(slot))
    }

    fn place(&self, slot: usize) -> Place {
        let process = self.directory.processes().number();
        Place { process, worker: self.number, slot: slot as u32 }
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

    /// Gives a connection away.
    pub(crate) fn depart(
        &self,
        live: &Rc<Live>,
        listen: &Arc<ListenAddress>,
        session: impl FnOnce() -> Option<Session>,
    ) -> Option<Box<MovedConnection>> {
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
        Some(Box::new(MovedConnection {
            bundle,
            listen: listen.clone(),
            local: live.local.get(),
            idle_timeout: live.idle_timeout,
            transit: Transit::begin(self.directory.clone(), places),
            session: session(),
        }))
    }

    /// Continues a connection that another worker has given up by [`Connection::depart`]. Its datagrams find it
    /// here from now on.
    ///
    /// # Errors
    /// The worker has no room, or no socket for it; the connection is given back.
    pub fn arrive(
        self: &Rc<Self>,
        moved: Box<MovedConnection>,
    ) -> Result<Rc<Connection>, Box<MovedConnection>> {
        let Some(socket) = self.socket_of(&moved.listen) else { return Err(moved) };
        let Some(slot) = self.reserve() else { return Err(moved) };
        let MovedConnection { bundle, listen, local, idle_timeout, transit, session } = *moved;
        let here = self.place(slot);
        bundle.home.set(here);
        let state = LiveState::new(bundle, true);
        let live = Live::new(self, (slot, None), socket, local, idle_timeout, state);
        self.settle(slot, &live);
        live.earlier_places.replace(transit.end(here));
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
