//! The way of a datagram to its connection: on this worker or another one, or to an answer that needs no state.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::{now, spawn};
use quinn_proto::{ConnectionId, DatagramEvent, EcnCodepoint};

use super::{Endpoint, HANDSHAKES_MAX, HANDSHAKES_WITHOUT_RETRY_MAX, Slot};
use crate::Counters;
use crate::connection::no_listen;
use crate::connection_id::{PLACES_MAX, Place};
use crate::datagram::Datagram;
use crate::directory::{Forwarded, MOVES_MAX};
use crate::handshake::{self, HANDSHAKE_DATAGRAM_BYTES_MAX, Pending};
use crate::live::Live;
use crate::packet::{CONNECTION_ID_BYTES_MAX, Destination, destination, is_of_version};
use crate::processes::Passed;
use crate::service::{Admission, Arrival};
use crate::socket::Socket;

/// Workers that a datagram is handed to, at most.
const FORWARDS_MAX: u8 = 4;

impl Endpoint {
    /// Takes a datagram that arrived here.
    pub(super) fn route(&self, datagram: Datagram, socket: Option<&Rc<Socket>>, forwards: u8) {
        let Some(Destination { id, long }) = destination(&datagram.data) else {
            Counters::add(&self.counters().datagrams_dropped, 1);
            return;
        };
        let place = self.directory.ids().place(id);
        if long && self.route_first(&datagram, id, socket) {
            return;
        }
        match place.filter(|place| place.slot != Place::NONE) {
            Some(place) if place.process == self.directory.processes().number() => {
                self.route_to(place, datagram, socket, forwards);
            }
            Some(place) => self.route_out(place.process, datagram, socket, forwards),
            None => self.begin(datagram, socket, forwards),
        }
    }

    /// Takes a datagram for a connection of another process.
    fn route_out(
        &self,
        process: u16,
        datagram: Datagram,
        socket: Option<&Rc<Socket>>,
        forwards: u8,
    ) {
        let listen = socket.and_then(|socket| socket.listen.as_deref()).filter(|_| forwards == 0);
        let processes = self.directory.processes();
        let passed = listen.map(|listen| processes.pass(process, &datagram, listen));
        match passed.map(|passed| self.directory.count(passed)) {
            Some(Passed::Gone) | None => self.begin(datagram, socket, forwards),
            Some(Passed::Yes | Passed::Full | Passed::Unborn) => {}
        }
    }

    /// Takes a datagram of a client that may not know the ID of its connection yet; false: it belongs to none.
    pub(super) fn route_first(
        &self,
        datagram: &Datagram,
        id: &[u8],
        socket: Option<&Rc<Socket>>,
    ) -> bool {
        if id.len() > CONNECTION_ID_BYTES_MAX {
            return false;
        }
        let key = (datagram.from, ConnectionId::new(id));
        let slot = self.first_packets.borrow().get(&key).copied();
        slot.is_some_and(|slot| self.put(slot, datagram.clone(), socket).is_ok())
    }

    /// Takes a datagram for the connection at a place.
    pub(super) fn route_to(
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
                Some(Some(next)) => place = next,
                // A reset would end it.
                Some(None) => {
                    Counters::add(&self.counters().datagrams_dropped, 1);
                    return;
                }
                None => break,
            }
        }
        if place.worker != self.number && forwards < FORWARDS_MAX {
            let listen = socket.and_then(|socket| socket.listen.clone());
            let copy = Forwarded { datagram: datagram.clone(), listen, forwards: forwards + 1 };
            if self.directory.forward(place.worker, copy).is_ok() {
                return;
            }
        }
        self.begin(datagram, socket, forwards);
    }

    /// Gives a datagram to the connection in a slot. Returned if there is none.
    pub(super) fn put(
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
    pub(super) fn guarded<T: Default>(
        &self,
        live: &Rc<Live>,
        act: impl FnOnce(&Rc<Live>) -> T,
    ) -> T {
        catch_unwind(AssertUnwindSafe(|| act(live))).unwrap_or_else(|_| {
            Counters::add(&self.counters().panics, 1);
            live.abandon();
            T::default()
        })
    }

    /// Distributes the news of the connections that have received something.
    pub(super) fn absorb_received(&self) {
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
    pub(super) fn begin(&self, datagram: Datagram, socket: Option<&Rc<Socket>>, forwards: u8) {
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
        if datagram.data.len() > HANDSHAKE_DATAGRAM_BYTES_MAX && first & LONG != 0 {
            Counters::add(&self.counters().datagrams_dropped, 1);
            return;
        }
        let datagram = match first & LONG {
            0 => datagram,
            _ => match self.direct_first(datagram, socket, forwards) {
                Some(datagram) => datagram,
                None => return,
            },
        };
        let mut buffer = Vec::new();
        let Datagram { data, from, local, ecn } = datagram.clone();
        let ecn = EcnCodepoint::from_bits(ecn);
        let mut gate = self.gate.borrow_mut();
        match gate.handle(now(), from, local, ecn, data, &mut buffer) {
            None => Counters::add(&self.counters().datagrams_dropped, 1),
            Some(DatagramEvent::Response(transmit)) => {
                let counters = self.counters();
                let counter = match is_of_version(&datagram.data) {
                    true => &counters.first_packets_refused,
                    false => &counters.stateless_sent,
                };
                Counters::add(counter, 1);
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

    /// Finds the worker that begins a connection; the datagram is returned if it is this one.
    fn direct_first(
        &self,
        datagram: Datagram,
        socket: &Rc<Socket>,
        forwards: u8,
    ) -> Option<Datagram> {
        let takes = socket.accepting.get() && !self.closing.get();
        let processes = self.directory.processes();
        // From the kernel, while others receive from the same sockets.
        let is_shared = forwards == 0 && processes.has_others();
        if takes && !is_shared {
            return Some(datagram);
        }
        let listen = socket.listen.clone();
        let pass = |passed| self.directory.count(passed) != Passed::Gone;
        if is_shared
            && let Some(listen) = &listen
            && pass(processes.pass_up(&datagram, listen))
        {
            return None;
        }
        let forwarded = Forwarded { datagram, listen, forwards: forwards + 1 };
        let stays = !takes && self.mailbox.is_accepting() || forwards >= FORWARDS_MAX;
        let left = if stays { Err(forwarded) } else { self.directory.forward_first(forwarded) };
        if let Err(Forwarded { datagram, listen, .. }) = left
            && !listen.is_some_and(|listen| pass(processes.pass_down(&datagram, &listen)))
        {
            Counters::add(&self.counters().datagrams_dropped, 1);
        }
        None
    }

    /// Whether a client may begin a connection.
    pub(super) fn admit(
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
            listen: socket.listen.clone().unwrap_or_else(no_listen),
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
    pub(super) fn start(
        &self,
        datagram: Datagram,
        socket: &Rc<Socket>,
        arrival: Arrival,
        timeout: Duration,
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

    /// Takes what other workers have left.
    pub(super) fn take_mail(&self) {
        for Forwarded { datagram, listen, forwards } in self.mailbox.take() {
            let socket = listen.and_then(|listen| self.socket_of(&listen));
            self.route_mail(datagram, socket.as_ref(), forwards);
        }
        self.absorb_received();
    }

    /// As [`route`](Self::route); a connection goes on to send through its own socket.
    pub(super) fn route_mail(&self, datagram: Datagram, socket: Option<&Rc<Socket>>, forwards: u8) {
        let place = destination(&datagram.data)
            .and_then(|found| self.directory.ids().place(found.id))
            .filter(|place| place.slot != Place::NONE && place.worker == self.number)
            .filter(|place| place.process == self.directory.processes().number());
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

/// An IPv4 address that an IPv6 socket has reported as a mapped one.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
