//! A connection at work on its worker: the state in the library, and the tasks that wait for it.
//!
//! Called by the endpoint, which brings datagrams and time, and by [`Connection`](crate::Connection), the handle of the
//! code that speaks the application protocol. Wakers are woken when no borrow is left.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_runtime::now;
use quinn_proto::{Connection, Event, StreamEvent, Transmit, VarInt};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bundle::Bundle;
use crate::connection_id::Place;
use crate::datagram::Datagram;
use crate::endpoint::Endpoint;
use crate::socket::Socket;
use crate::{ConnectionEvent, ConnectionLost, Counters, Dir, StreamId};

/// Bytes that a connection sends per turn, about: then others have theirs.
const TURN_BYTES_MAX: usize = 128 * 1024;

/// Pings are sent this many times per idle timeout, while a connection is held open.
const PINGS_PER_TIMEOUT: u32 = 3;

/// A connection of this worker.
pub(crate) struct Live {
    pub(crate) endpoint: Weak<Endpoint>,
    pub(crate) slot: Cell<usize>,
    /// The address and the ID of the client's first packet.
    pub(crate) first: Option<(SocketAddr, quinn_proto::ConnectionId)>,
    /// Places that earlier IDs lead to.
    pub(crate) earlier_places: RefCell<Vec<Place>>,
    pub(crate) socket: RefCell<Rc<Socket>>,
    pub(crate) local: Cell<Option<IpAddr>>,
    pub(crate) idle_timeout: Duration,
    /// In the list of connections that have something to send.
    pub(crate) is_dirty: Cell<bool>,
    /// The entry in the list of timeouts.
    pub(crate) timeout: Cell<Option<Instant>>,
    pub(crate) state: RefCell<LiveState>,
}

/// What changes.
pub(crate) struct LiveState {
    /// `None`: it has moved to another worker, or was lost by a panic.
    pub(crate) bundle: Option<Box<Bundle>>,
    pub(crate) lost: Option<ConnectionLost>,
    pub(crate) confirmed: bool,
    peer: SocketAddr,
    /// Pings keep the connection open; the time of the next one.
    next_ping: Option<Instant>,
    pub(crate) waiting: Waiting,
    /// Bytes written to streams that have not ended: those with few have their turn first when there is room again.
    pub(crate) written: FxHashMap<StreamId, u64>,
    events: Events,
}

/// The tasks that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) read: FxHashMap<StreamId, Waker>,
    pub(crate) write: FxHashMap<StreamId, Waker>,
    pub(crate) stopped: FxHashMap<StreamId, Waker>,
    pub(crate) accept: [Option<Waker>; 2],
    pub(crate) open: [Option<Waker>; 2],
    pub(crate) closed: Vec<Waker>,
    pub(crate) confirmed: Vec<Waker>,
}

/// Tasks that wait for the end or for the handshake of one connection, at most: one that comes later replaces one.
const WAITERS_MAX: usize = 256;

impl Waiting {
    /// Adds a waker to a list, unless it is there.
    pub(crate) fn add(list: &mut Vec<Waker>, cx: &Context<'_>) {
        if !list.iter().any(|waker| waker.will_wake(cx.waker())) {
            if list.len() >= WAITERS_MAX {
                list.remove(0).wake();
            }
            list.push(cx.waker().clone());
        }
    }

    fn take_all(&mut self, woken: &mut Vec<Waker>) {
        let Waiting { read, write, stopped, accept, open, closed, confirmed } =
            std::mem::take(self);
        woken.extend(read.into_values());
        woken.extend(write.into_values());
        woken.extend(stopped.into_values());
        woken.extend(accept.into_iter().chain(open).flatten());
        woken.extend(closed);
        woken.extend(confirmed);
    }
}

/// Events for a task that looks after the whole connection. Each stream is in the queue once for each kind of news.
#[derive(Default)]
struct Events {
    /// A task asks for events.
    wanted: bool,
    queue: VecDeque<ConnectionEvent>,
    readable: FxHashSet<StreamId>,
    writable: FxHashSet<StreamId>,
    waker: Option<Waker>,
}

impl Events {
    fn push(&mut self, event: ConnectionEvent) {
        let is_new = match &event {
            _ if !self.wanted => false,
            ConnectionEvent::Readable(stream) => self.readable.insert(*stream),
            ConnectionEvent::Writable(stream) => self.writable.insert(*stream),
            ConnectionEvent::Opened(_) | ConnectionEvent::Available(_) => {
                !self.queue.contains(&event)
            }
            _ => true,
        };
        if is_new {
            self.queue.push_back(event);
        }
    }

    fn pop(&mut self) -> Option<ConnectionEvent> {
        let event = self.queue.pop_front()?;
        match &event {
            ConnectionEvent::Readable(stream) => drop(self.readable.remove(stream)),
            ConnectionEvent::Writable(stream) => drop(self.writable.remove(stream)),
            _ => {}
        }
        Some(event)
    }
}

impl LiveState {
    /// A connection whose handshake is complete, or that has early data.
    pub(crate) fn new(bundle: Box<Bundle>, confirmed: bool) -> LiveState {
        LiveState {
            peer: bundle.connection.remote_address(),
            bundle: Some(bundle),
            lost: None,
            confirmed,
            next_ping: None,
            waiting: Waiting::default(),
            written: FxHashMap::default(),
            events: Events::default(),
        }
    }

    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        self.bundle.as_mut().map(|bundle| &mut bundle.connection)
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        // An IPv6 socket reports IPv4 addresses as mapped ones.
        SocketAddr::new(self.peer.ip().to_canonical(), self.peer.port())
    }

    /// The next event; `wanted`: keep them from now on.
    pub(crate) fn next_event(&mut self, cx: &Context<'_>) -> Option<ConnectionEvent> {
        if !self.events.wanted {
            self.events.wanted = true;
            self.events.push(ConnectionEvent::Opened(Dir::Bi));
            self.events.push(ConnectionEvent::Opened(Dir::Uni));
            if let Some(lost) = &self.lost {
                self.events.push(ConnectionEvent::Lost(lost.clone()));
            }
        }
        let event = self.events.pop();
        if event.is_none() {
            self.events.waker = Some(cx.waker().clone());
        }
        event
    }

    /// The connection has ended.
    fn lose(&mut self, lost: ConnectionLost, woken: &mut Vec<Waker>) {
        if self.lost.is_none() {
            self.lost = Some(lost.clone());
            self.events.push(ConnectionEvent::Lost(lost));
            self.waiting.take_all(woken);
        }
    }

    /// Distributes news of the library.
    fn absorb(&mut self, woken: &mut Vec<Waker>) {
        let mut writable = Vec::new();
        while let Some(event) = self.bundle.as_mut().and_then(|bundle| bundle.event()) {
            match event {
                Event::Connected => {
                    woken.append(&mut self.waiting.confirmed);
                    if !std::mem::replace(&mut self.confirmed, true) {
                        self.events.push(ConnectionEvent::Confirmed);
                    }
                }
                Event::ConnectionLost { reason } => self.lose(ConnectionLost::of(&reason), woken),
                Event::Stream(StreamEvent::Writable { id }) => writable.push(id),
                Event::Stream(event) => self.absorb_stream(event, woken),
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {
                }
            }
        }
        self.absorb_writable(writable, woken);
        if !self.events.queue.is_empty() {
            woken.extend(self.events.waker.take());
        }
    }

    /// Streams can be written to again. Whoever is first may take all the room: this is not a large response while a
    /// small one waits.
    fn absorb_writable(&mut self, mut streams: Vec<StreamId>, woken: &mut Vec<Waker>) {
        if streams.len() > 1 {
            streams.sort_by_cached_key(|stream| {
                let priority = self
                    .connection()
                    .and_then(|connection| connection.send_stream(*stream).priority().ok());
                let written = self.written.get(stream).copied().unwrap_or(0);
                (Reverse(priority.unwrap_or(0)), written, *stream)
            });
        }
        for stream in streams {
            match self.waiting.write.remove(&stream) {
                Some(waker) => woken.push(waker),
                None => self.events.push(ConnectionEvent::Writable(stream)),
            }
        }
    }

    fn absorb_stream(&mut self, event: StreamEvent, woken: &mut Vec<Waker>) {
        let waiting = &mut self.waiting;
        let (waker, event) = match event {
            StreamEvent::Opened { dir } => {
                (waiting.accept[dir as usize].take(), ConnectionEvent::Opened(dir))
            }
            StreamEvent::Readable { id } => {
                (waiting.read.remove(&id), ConnectionEvent::Readable(id))
            }
            // Collected, to be put in order.
            StreamEvent::Writable { id } => (None, ConnectionEvent::Writable(id)),
            StreamEvent::Finished { id } => {
                (waiting.stopped.remove(&id), ConnectionEvent::Finished(id))
            }
            StreamEvent::Stopped { id, error_code } => {
                woken.extend(waiting.write.remove(&id));
                let event = ConnectionEvent::Stopped(id, error_code.into_inner());
                (waiting.stopped.remove(&id), event)
            }
            StreamEvent::Available { dir } => {
                (waiting.open[dir as usize].take(), ConnectionEvent::Available(dir))
            }
        };
        match waker {
            Some(waker) => woken.push(waker),
            None => self.events.push(event),
        }
    }
}

impl Live {
    /// A connection in a slot; `first`: the address and the ID of the client's first packet.
    pub(crate) fn new(
        endpoint: &Rc<Endpoint>,
        (slot, first): (usize, Option<(SocketAddr, quinn_proto::ConnectionId)>),
        socket: Rc<Socket>,
        local: Option<IpAddr>,
        idle_timeout: Duration,
        state: LiveState,
    ) -> Rc<Live> {
        Rc::new(Live {
            endpoint: Rc::downgrade(endpoint),
            slot: Cell::new(slot),
            first,
            earlier_places: RefCell::default(),
            socket: RefCell::new(socket),
            local: Cell::new(local),
            idle_timeout,
            is_dirty: Cell::new(false),
            timeout: Cell::new(None),
            state: RefCell::new(state),
        })
    }

    /// Takes a datagram. Returns an answer that needs no state: to an ID that is not of this connection.
    pub(crate) fn receive(
        &self,
        datagram: Datagram,
        socket: Option<&Rc<Socket>>,
    ) -> Option<(Transmit, Vec<u8>)> {
        if let Some(local) = datagram.local {
            self.local.set(Some(local));
        }
        if let Some(socket) = socket
            && !Rc::ptr_eq(&self.socket.borrow(), socket)
        {
            self.socket.replace(socket.clone());
        }
        self.state.borrow_mut().bundle.as_mut()?.receive(datagram, now())
    }

    /// Distributes the news after datagrams have come, or after time has passed.
    pub(crate) fn absorb(&self, counters: &Counters) {
        let mut woken = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            if let Some(bundle) = &mut state.bundle {
                bundle.settle();
                let peer = bundle.connection.remote_address();
                if std::mem::replace(&mut state.peer, peer) != peer {
                    Counters::add(&counters.migrations, 1);
                }
            }
            state.absorb(&mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Lets time have its effects; false: it is too early.
    pub(crate) fn time_out(&self) {
        let now = now();
        let mut state = self.state.borrow_mut();
        let pings = state.next_ping.is_some_and(|at| at <= now);
        if let Some(bundle) = &mut state.bundle {
            if pings {
                bundle.connection.ping();
            }
            if bundle.timeout().is_some_and(|at| at <= now) {
                bundle.time_out(now);
            }
        }
        if pings {
            state.next_ping = Some(now + self.ping_interval());
        }
    }

    fn ping_interval(&self) -> Duration {
        (self.idle_timeout / PINGS_PER_TIMEOUT).max(Duration::from_secs(1))
    }

    /// Keeps the connection open by pings, or no more.
    pub(crate) fn set_keep_alive(&self, on: bool) {
        let mut state = self.state.borrow_mut();
        if on != state.next_ping.is_some() {
            state.next_ping = on.then(|| now() + self.ping_interval());
        }
    }

    /// Sends what there is. True: there is more, for the next turn.
    pub(crate) fn send(&self, buffer: &mut Vec<u8>, counters: &Counters) -> bool {
        let socket = self.socket.borrow().clone();
        let mut state = self.state.borrow_mut();
        let Some(bundle) = &mut state.bundle else { return false };
        let now = now();
        let (mut more, mut sent) = (true, 0);
        while sent < TURN_BYTES_MAX && !socket.is_blocked() {
            let datagrams = socket.datagrams_max(bundle.connection.current_mtu());
            buffer.clear();
            let Some(transmit) = bundle.transmit(datagrams, buffer, now) else {
                more = false;
                break;
            };
            socket.send(buffer, &transmit, counters);
            sent += transmit.size.max(1);
        }
        bundle.settle();
        more
    }

    /// When time has an effect next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let mut state = self.state.borrow_mut();
        let ping = state.next_ping;
        let timeout = state.bundle.as_mut().and_then(|bundle| bundle.timeout());
        timeout.into_iter().chain(ping).min()
    }

    /// Whether nothing is left of the connection.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.borrow();
        state.bundle.as_ref().is_none_or(|bundle| bundle.connection.is_drained())
    }

    /// Ends the connection with an error code of the application.
    pub(crate) fn close(&self, code: VarInt, reason: Bytes) {
        let mut woken = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            match state.connection() {
                Some(connection) if !connection.is_closed() => {
                    connection.close(now(), code, reason);
                    state.lose(ConnectionLost::Closed, &mut woken);
                    woken.extend(state.events.waker.take());
                }
                _ => {}
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends the connection for its users, without telling the peer.
    pub(crate) fn abandon(&self) {
        let mut woken = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            state.bundle = None;
            state.lose(ConnectionLost::Dropped, &mut woken);
            woken.extend(state.events.waker.take());
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// There is something to send: at the end of the turn.
    pub(crate) fn touch(self: &Rc<Self>) {
        if let Some(endpoint) = self.endpoint.upgrade() {
            endpoint.touch(self);
        }
    }
}
