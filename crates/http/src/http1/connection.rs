//! A client's HTTP/1.1 connection: its properties and its memory. [`task`](super::task) serves it.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

use nowait_front::handover::Handover;
use nowait_front::servers::Virtual;
use nowait_h1::{Limits, server};
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::now;
use nowait_sys::listen::ListenAddress;

use super::common::Common;
use super::waiting::{Idle, IdleTimes};
use crate::client::Client;
use crate::exchange::OnHangup;
use crate::generation::Current;

/// A connection.
pub struct Connection {
    /// What its requests may know of it.
    pub(super) client: Client,
    /// The socket.
    pub(super) stream: Stream,
    /// Its place among the worker's connections.
    pub(super) place: Cell<u32>,
    pub(super) idle: Cell<Idle>,
    pub(super) idle_times: Cell<IdleTimes>,
    pub(super) on_hangup: Cell<OnHangup>,
    /// Whether `TCP_NODELAY` is set, if known.
    pub(super) nodelay: Cell<Option<bool>>,
    /// What it has in common with others.
    pub(super) common: Rc<Common>,
    /// The protocol state; an idle connection needs none.
    pub(super) h1: RefCell<Option<Box<server::Connection>>>,
    /// Bytes received but not yet used.
    pub(super) input: RefCell<RecvBuf>,
    /// The worker that accepted it still has the descriptor.
    pub(super) shared: Cell<bool>,
}

impl Connection {
    /// A connection that was just accepted.
    pub fn new(
        common: Rc<Common>,
        stream: Stream,
        peer: Address,
        listen: Arc<ListenAddress>,
    ) -> Rc<Self> {
        let client = Client::new(common.services.next_number(), peer, listen, now());
        common.services.counts.opened();
        let connection = Rc::new(Self::uncounted(common, stream, client));
        let current = connection.common.current();
        let listen = &connection.client.listen;
        let own = current.conf.listens().iter().find(|own| own.spec.address == **listen);
        // Inherited from the listening socket.
        connection.nodelay.set(own.map(|own| own.spec.nodelay));
        connection.place.set(connection.common.enter(&connection));
        connection
    }

    /// A connection that was accepted elsewhere and passed on.
    pub fn of_passed(common: Rc<Common>, connection: Handover) -> Rc<Self> {
        let Handover { stream, peer, local, listen, input, proxy_protocol, .. } = connection;
        let mut client = Client::new(common.services.next_number(), peer, listen, now());
        client.local = OnceCell::from(Box::new(local));
        if let Some(header) = proxy_protocol {
            client.proxy_protocol = OnceCell::from(header);
        }
        common.services.counts.opened();
        let mut connection = Self::uncounted(common, stream, client);
        // The sender passes no more bytes than fit.
        connection.input = RefCell::new(RecvBuf::of(&input).unwrap_or_else(RecvBuf::empty));
        let connection = Rc::new(connection);
        connection.place.set(connection.common.enter(&connection));
        connection
    }

    pub(super) fn uncounted(common: Rc<Common>, stream: Stream, client: Client) -> Self {
        Self {
            client,
            stream,
            place: Cell::new(0),
            idle: Cell::default(),
            idle_times: Cell::default(),
            on_hangup: Cell::default(),
            nodelay: Cell::new(None),
            common,
            h1: RefCell::new(None),
            input: RefCell::new(RecvBuf::empty()),
            shared: Cell::new(false),
        }
    }

    /// The protocol state, created anew after an idle phase.
    pub(super) fn h1(&self) -> RefMut<'_, server::Connection> {
        RefMut::map(self.h1.borrow_mut(), |h1| {
            &mut **h1.get_or_insert_with(|| Box::new(server::Connection::new(Limits::default())))
        })
    }

    /// Releases the receive buffer once all of it is used, before a wait that may be long: for more
    /// input, a disk, an upstream server or the client.
    pub(super) fn release_input(&self) {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            *input = RecvBuf::empty();
        }
    }

    /// `tcp_nodelay`: a response sent in several pieces must not wait for the client's
    /// acknowledgement of the first one, which clients delay by 40 ms.
    pub(super) fn set_nodelay(&self, on: bool) {
        if self.nodelay.replace(Some(on)) != Some(on) {
            // A socket that can't be set is closed already.
            let _ = self.stream.set_nodelay(on);
        }
    }

    /// The local address; it is only looked up when needed and when it differs from the listener's.
    pub(super) fn local_address(&self) -> &Address {
        let look_up = || self.stream.local_addr();
        self.client.local_or(|| look_up().unwrap_or_else(|_| Address::Unix(Box::default())))
    }

    /// The servers for this connection; `None` if its address is no longer listened on.
    pub fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        let own = &*self.client.listen;
        let listen = current.conf.listens().iter().find(|listen| listen.spec.address == *own)?;
        Some(listen.only().unwrap_or_else(|| listen.at(self.local_address())))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.common.leave(self.place.get());
        self.common.services.counts.closed();
    }
}
