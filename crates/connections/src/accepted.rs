//! A client's connection before and below its protocol: the socket, its facts, and bytes that were
//! received and not used yet. Front ends wrap it; one may pass it on to another.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use nowait_front::handover::Handover;
use nowait_front::servers::{Listen, Virtual};
use nowait_http::client::{Client, Security};
use nowait_http::generation::Current;
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::now;
use nowait_sys::listen::ListenAddress;

use crate::connections::{Connections, Held};

/// No place in the list: there are fewer connections.
const NOWHERE: u32 = u32::MAX;

/// An accepted connection.
pub struct Accepted {
    /// What its requests may know of it.
    pub client: Client,
    /// The socket.
    pub stream: Stream,
    /// Bytes received but not yet used.
    pub input: RefCell<RecvBuf>,
    /// Whether `TCP_NODELAY` is set, if known.
    pub nodelay: Cell<Option<bool>>,
    /// Where its listening socket was last among those of the configuration: it is looked for there first.
    listen: Cell<u16>,
    /// Its place among the worker's connections; [`NOWHERE`] before it has one.
    place: Cell<u32>,
    /// The worker's connections.
    all: Rc<Connections>,
}

impl Accepted {
    /// A connection that was just accepted.
    pub fn new(
        all: Rc<Connections>,
        stream: Stream,
        peer: Address,
        listen: Arc<ListenAddress>,
    ) -> Self {
        let client = Client::new(all.services.next_number(), peer, listen, now());
        all.services.counts.opened();
        let accepted = Self::uncounted(all, stream, client);
        let current = accepted.all.current();
        let listen = &accepted.client.listen;
        let own = current.conf.listens().iter().find(|own| own.spec.address == **listen);
        // Inherited from the listening socket.
        accepted.nodelay.set(own.map(|own| own.spec.nodelay));
        accepted
    }

    /// A connection that was accepted elsewhere and passed on.
    pub fn of_passed(all: Rc<Connections>, connection: Handover) -> Self {
        let Handover { stream, peer, local, listen, input, proxy_protocol, .. } = connection;
        let mut client = Client::new(all.services.next_number(), peer, listen, now());
        client.local = OnceCell::from(Box::new(local));
        if let Some(header) = proxy_protocol {
            client.proxy_protocol = OnceCell::from(header);
        }
        if stream.has_layer() {
            client.security.set(Security::Tls);
        }
        all.services.counts.opened();
        let mut accepted = Self::uncounted(all, stream, client);
        accepted.input = RefCell::new(RecvBuf::of(&input));
        accepted
    }

    /// A connection that the worker's counts include already.
    pub fn uncounted(all: Rc<Connections>, stream: Stream, client: Client) -> Self {
        Self {
            client,
            stream,
            input: RefCell::new(RecvBuf::empty()),
            nodelay: Cell::new(None),
            listen: Cell::new(0),
            place: Cell::new(NOWHERE),
            all,
        }
    }

    /// The worker's connections.
    pub fn all(&self) -> &Rc<Connections> {
        &self.all
    }

    /// Registers it in the worker's list, as its front end serves it from now on.
    pub fn enter(&self, held: Weak<dyn Held>) {
        let place = self.all.enter(held);
        self.all.leave(self.place.replace(place));
    }

    /// Releases the receive buffer once all of it is used, before a wait that may be long: for more
    /// input, a disk, an upstream server or the client.
    pub fn release_input(&self) {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            *input = RecvBuf::empty();
        }
    }

    /// Takes the received bytes that were not used yet.
    pub fn take_input(&self) -> RecvBuf {
        self.input.replace(RecvBuf::empty())
    }

    /// `tcp_nodelay`: a response sent in several pieces must not wait for the client's
    /// acknowledgement of the first one, which clients delay by 40 ms.
    pub fn set_nodelay(&self, on: bool) {
        if self.nodelay.replace(Some(on)) != Some(on) {
            // A socket that can't be set is closed already.
            let _ = self.stream.set_nodelay(on);
        }
    }

    /// The local address; it is only looked up when needed and when it differs from the listener's.
    pub fn local_address(&self) -> &Address {
        let look_up = || self.stream.local_addr();
        self.client.local_or(|| look_up().unwrap_or_else(|_| Address::Unix(Box::default())))
    }

    /// The servers for this connection; `None` if its address is no longer listened on.
    pub fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        let own = &*self.client.listen;
        let listens = current.conf.listens();
        let is_own = |listen: &Listen| listen.spec.address == *own;
        // A reload may have moved it.
        let listen = match listens.get(usize::from(self.listen.get())) {
            Some(listen) if is_own(listen) => listen,
            _ => {
                let at = listens.iter().position(is_own)?;
                self.listen.set(u16::try_from(at).unwrap_or_default());
                &listens[at]
            }
        };
        Some(listen.only().unwrap_or_else(|| listen.at(self.local_address())))
    }

    /// Reads and discards the client's further input, so that the client can read what was sent
    /// before the connection is reset. nginx: `ngx_http_lingering_close_handler`.
    pub async fn linger(&self, time: Duration, timeout: Duration) {
        let until = now() + time;
        if self.stream.shutdown_write().is_err() {
            return;
        }
        loop {
            let left = until.saturating_duration_since(now()).min(timeout);
            match self.stream.recv(left).await {
                Ok(bytes) if !bytes.is_empty() => {}
                _ => return,
            }
        }
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.all.leave(self.place.get());
        self.all.services.counts.closed();
    }
}
