//! A client's connection below every version of HTTP: the socket, its facts, bytes that were received and
//! not used yet, and the wait for the next request.
//!
//! [`start`](crate::start) detects the client's protocol; the front end of that version keeps the
//! connection from then on. Before the first request, the connection is the [`Exchange`] of what is logged
//! and of variables in names of certificates.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::handover::Handover;
use nowait_front::servers::{Listen, ServerId, Virtual};
use nowait_front::tls::Tls;
use nowait_http::client::{Client, Security};
use nowait_http::clients::ConnectionView;
use nowait_http::exchange::{Exchange, Interim, OnHangup};
use nowait_http::generation::Current;
use nowait_http::response::LocalFuture;
use nowait_http::services::Services;
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::now;
use nowait_sys::listen::ListenAddress;
use nowait_sys::tcp_info::{TcpInfo, tcp_info};

use crate::connections::{ConnectionHandle, Connections};
use crate::idle::{IdleState, IdleTimes};

/// No place in the list: there are fewer connections.
const NOWHERE: u32 = u32::MAX;

/// A connection.
pub struct Connection {
    /// The properties for requests.
    pub client: Client,
    /// The socket.
    pub stream: Stream,
    /// Bytes received but not yet used.
    pub input: RefCell<RecvBuf>,
    /// Whether `TCP_NODELAY` is set, if known.
    pub nodelay: Cell<Option<bool>>,
    /// The last known position of its listening socket among those of the configuration, which is tried
    /// first.
    listen: Cell<u16>,
    /// The place among the worker's connections; [`NOWHERE`] before it has one.
    place: Cell<u32>,
    pub(crate) idle: Cell<IdleState>,
    pub(crate) idle_times: Cell<IdleTimes>,
    pub(crate) on_hangup: Cell<OnHangup>,
    /// The worker that accepted the connection still has the descriptor.
    pub(crate) shared: Cell<bool>,
    /// The worker's connections.
    all: Rc<Connections>,
}

impl Connection {
    /// A connection that was just accepted.
    pub fn new(
        all: Rc<Connections>,
        stream: Stream,
        peer: Address,
        listen: Arc<ListenAddress>,
    ) -> Rc<Self> {
        let client = Client::new(all.services.next_number(), peer, listen, now());
        all.services.counts.opened();
        let connection = Self::uncounted(all, stream, client);
        let current = connection.all.current();
        let listen = &connection.client.listen;
        let own = current.conf.listens().iter().find(|own| own.spec.address == **listen);
        // Inherited from the listening socket.
        connection.nodelay.set(own.map(|own| own.spec.nodelay));
        connection.listed()
    }

    /// A connection that was accepted elsewhere and passed on.
    pub fn of_passed(all: Rc<Connections>, connection: Handover) -> Rc<Self> {
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
        let mut connection = Self::uncounted(all, stream, client);
        connection.input = RefCell::new(RecvBuf::of(&input));
        connection.listed()
    }

    /// A connection that the worker's counts include already, and that is not in the list yet.
    pub(crate) fn uncounted(all: Rc<Connections>, stream: Stream, client: Client) -> Self {
        Self {
            client,
            stream,
            input: RefCell::new(RecvBuf::empty()),
            nodelay: Cell::new(None),
            listen: Cell::new(0),
            place: Cell::new(NOWHERE),
            idle: Cell::default(),
            idle_times: Cell::default(),
            on_hangup: Cell::default(),
            shared: Cell::new(false),
            all,
        }
    }

    /// The worker's connections.
    pub fn all(&self) -> &Rc<Connections> {
        &self.all
    }

    /// Puts the connection on the worker's list.
    pub(crate) fn listed(self) -> Rc<Self> {
        let connection = Rc::new(self);
        let handle: Weak<dyn ConnectionHandle> = Rc::<Self>::downgrade(&connection);
        connection.enter(handle);
        connection
    }

    /// Puts a front end's connection on the worker's list, in place of this one.
    pub(crate) fn enter(&self, handle: Weak<dyn ConnectionHandle>) {
        let place = self.all.enter(handle);
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

    /// Closes the connection even if it is referenced by a background subrequest that continues, or the
    /// worker that accepted it. The client must not wait for either.
    pub(crate) fn close(self: &Rc<Self>) {
        if Rc::strong_count(self) > 1 || self.shared.get() {
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
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

    /// Whether the newest configuration listens on the address; `known`, which is that of a request, does.
    pub(crate) fn is_still_served(&self, known: &Rc<Current>) -> bool {
        self.all.is_current(known) || self.is_served_by(&self.all.current())
    }
}

impl ConnectionHandle for Connection {
    fn waits(&self) -> Option<(Instant, Duration)> {
        Connection::waits(self)
    }

    fn idle(&self) -> Option<(Instant, Duration)> {
        Connection::idle(self)
    }

    fn view(&self) -> ConnectionView<'_> {
        ConnectionView {
            client: &self.client,
            protocol: "HTTP/1.1",
            idle_since: Connection::waits(self).map(|(since, _)| since),
            bytes: Some((self.stream.bytes_received(), self.stream.bytes_sent())),
        }
    }

    fn wake(&self) {
        self.stream.wake_receiver();
    }

    fn hang_up(&self) {
        // A socket that can't be shut down is closed already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn is_served_by(&self, current: &Current) -> bool {
        self.virtual_servers(current).is_some()
    }

    /// After a request, it ends by itself: see [`is_still_served`](Connection::is_still_served).
    fn dismiss(&self) {
        if Connection::waits(self).is_some() {
            self.hang_up();
        }
    }
}

impl Exchange for Connection {
    fn client(&self) -> &Client {
        &self.client
    }

    fn services(&self) -> &Services {
        &self.all.services
    }

    fn local(&self) -> &Address {
        self.local_address()
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        tcp_info(self.stream.fd())
    }

    fn with_tls(&self, look: &mut dyn FnMut(&Tls)) {
        self.stream.with_layer(|tls: &Tls| look(tls));
    }

    fn default_server(&self, current: &Current) -> Option<ServerId> {
        self.virtual_servers(current).map(|servers| servers.default_server)
    }

    fn on_hangup(&self) -> &Cell<OnHangup> {
        &self.on_hangup
    }

    fn hangup(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {
            // A connection error counts as a disconnect, too.
            let _ = self.stream.hangup().await;
        })
    }

    /// No response: there is no request yet.
    fn send_interim(&self, _: Interim, _: Duration) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.leave(self.place.get());
        self.all.services.counts.closed();
    }
}
