//! A session: one client's connection or datagrams, with the state for variables and logs. nginx:
//! `ngx_stream_session_t`.
//!
//! Created when a connection is accepted, and dropped at the end of the session; dropping it writes
//! its line to the access logs, however it ended.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use nowait_front::address;
use nowait_front::handover::Handover;
use nowait_front::limit::Decision;
use nowait_front::limit::connections::CountGuard;
use nowait_front::log::error::Details;
use nowait_front::log::{Level, Logged};
use nowait_front::proxy_protocol::ProxyProtocol;
use nowait_front::servers::{ServerId, Virtual};
use nowait_front::tls::Tls;
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::{now, worker};
use nowait_sys::listen::ListenAddress;
use nowait_variables::{Captures, Slots};

use crate::client_hello::ClientHello;
use crate::conf::StreamServer;
use crate::counts::CountedSession;
use crate::generation::Current;
use crate::status::Status;
use crate::tries::Try;
use crate::udp::client::UdpClient;
use crate::zone::{SessionEnd, SessionOutcome, ZonePlace};

/// Numbers the sessions of the process.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// The client side of a session.
pub enum SessionTransport {
    /// Over its own connection.
    Tcp(Stream),
    /// By datagrams.
    Udp(UdpClient),
    /// The connection was handed over (`pass`), and the session ends.
    Gone,
}

/// The initial data of a session.
pub struct Arrival {
    /// The client side.
    pub transport: SessionTransport,
    /// The client's address.
    pub peer: Address,
    /// Address of the listening socket that accepted it.
    pub listen: Arc<ListenAddress>,
    /// Counts it among the worker's sessions.
    pub counted: CountedSession,
}

/// The decisions of limits about a session.
#[derive(Default)]
pub struct SessionLimits {
    /// The last decision.
    pub decision: Cell<Option<Decision>>,
    held: RefCell<Vec<CountGuard>>,
}

impl SessionLimits {
    /// Keeps places in zones until the session ends.
    pub fn hold(&self, held: Vec<CountGuard>) {
        self.held.borrow_mut().extend(held);
    }
}

/// The state of variables in a session.
#[derive(Default)]
pub(crate) struct Values {
    pub(crate) slots: Slots,
    /// Of the last regular expression that matched.
    pub(crate) captures: RefCell<Captures>,
}

/// A session.
pub struct Session {
    /// Serial number in this process.
    pub number: u64,
    /// The generation that it began with, and keeps.
    pub current: Rc<Current>,
    /// The client side.
    pub transport: SessionTransport,
    /// The peer of the connection; see [`peer`](Self::peer).
    pub connection_peer: Address,
    /// Address of the listening socket.
    pub listen: Arc<ListenAddress>,
    /// When it began.
    pub started: Instant,
    /// The PROXY protocol header.
    pub proxy_protocol: OnceCell<Box<ProxyProtocol>>,
    /// The client's address, if a trusted proxy has stated one other than the peer's.
    pub real_peer: OnceCell<Box<Address>>,
    /// The ClientHello, if the server reads it.
    pub hello: OnceCell<Box<ClientHello>>,
    /// During a TLS handshake: its known properties, for variables in names of certificates.
    pub(crate) expected: RefCell<Option<Box<Tls>>>,
    /// The decisions of limits.
    pub limits: SessionLimits,
    /// The destination of its connection at the end (`pass`).
    pub pass_to: RefCell<Option<Box<Address>>>,
    /// How many times its connection was handed over.
    pub passes: u8,
    /// The depth of the evaluation of variables that refer to others.
    pub(crate) depth: Cell<u8>,
    /// Bytes received but not yet forwarded.
    pub input: RefCell<Vec<u8>>,
    /// Bytes received from the client.
    pub received: Cell<u64>,
    /// Bytes sent to the client.
    pub sent: Cell<u64>,
    /// The upstream servers that were tried.
    pub tries: RefCell<Vec<Try>>,
    server: Cell<ServerId>,
    status: Cell<Option<Status>>,
    local: OnceCell<Box<Address>>,
    action: Cell<Option<&'static str>>,
    /// Its count in the zone of its server.
    zone: ZonePlace,
    /// Values of variables.
    pub(crate) values: Values,
    _counted: CountedSession,
}

impl Session {
    /// A new session; `None` if no server has its address any more.
    pub fn new(current: Rc<Current>, arrival: Arrival) -> Option<Self> {
        let Arrival { transport, peer, listen, counted } = arrival;
        let session = Self {
            number: SESSIONS.fetch_add(1, Ordering::Relaxed),
            current,
            transport,
            connection_peer: peer,
            listen,
            started: now(),
            proxy_protocol: OnceCell::new(),
            real_peer: OnceCell::new(),
            hello: OnceCell::new(),
            expected: RefCell::default(),
            limits: SessionLimits::default(),
            pass_to: RefCell::default(),
            passes: 0,
            depth: Cell::default(),
            input: RefCell::default(),
            received: Cell::new(0),
            sent: Cell::new(0),
            tries: RefCell::default(),
            server: Cell::new(ServerId(0)),
            status: Cell::new(None),
            local: OnceCell::new(),
            action: Cell::new(Some("initializing session")),
            zone: ZonePlace::default(),
            values: Values::default(),
            _counted: counted,
        };
        let default = session.virtual_servers()?.default_server;
        session.set_server(default);
        Some(session)
    }

    /// A session of a connection that another listening socket accepted and handed over.
    pub(crate) fn of_passed(
        current: Rc<Current>,
        connection: Handover,
        counted: CountedSession,
    ) -> Option<Self> {
        let Handover { stream, peer, local, listen, input, proxy_protocol, passes } = connection;
        let arrival = Arrival { transport: SessionTransport::Tcp(stream), peer, listen, counted };
        let mut session = Self::new(current, arrival)?;
        session.local = OnceCell::from(Box::new(local));
        session.input = RefCell::new(input);
        session.passes = passes;
        if let Some(header) = proxy_protocol {
            session.proxy_protocol = OnceCell::from(header);
        }
        let default = session.virtual_servers()?.default_server;
        session.set_server(default);
        Some(session)
    }

    /// The servers of the address that the client connected to.
    pub fn virtual_servers(&self) -> Option<&Virtual> {
        let listen = self.current.conf.listen_at(&self.listen)?;
        Some(listen.only().unwrap_or_else(|| listen.at(self.local())))
    }

    /// The server that it belongs to.
    pub fn server_id(&self) -> ServerId {
        self.server.get()
    }

    /// The settings of that server.
    pub fn server(&self) -> &StreamServer {
        self.current.conf.server(self.server.get())
    }

    /// Makes it a session of this server: that of its address, then the one that the requested name selects.
    pub fn set_server(&self, server: ServerId) {
        self.server.set(server);
        self.zone.enter(self.server().zone.as_deref());
    }

    /// The client's connection; `None` for datagrams.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.transport {
            SessionTransport::Tcp(stream) => Some(stream),
            SessionTransport::Udp(_) | SessionTransport::Gone => None,
        }
    }

    /// Whether the connection has inherited `TCP_NODELAY` from its listening socket.
    pub(crate) fn has_nodelay(&self) -> bool {
        self.current.conf.listen_at(&self.listen).is_some_and(|listen| listen.spec.nodelay)
    }

    /// Whether the client sends datagrams.
    pub fn is_udp(&self) -> bool {
        matches!(self.transport, SessionTransport::Udp(_))
    }

    /// The client's address.
    pub fn peer(&self) -> &Address {
        self.real_peer.get().map_or(&self.connection_peer, |real| real)
    }

    /// The local address; queried only when needed and where it may differ from the listener's.
    pub fn local(&self) -> &Address {
        self.local.get_or_init(|| {
            Box::new(match (&self.transport, &*self.listen) {
                (SessionTransport::Udp(client), _) => client.local().clone(),
                (_, ListenAddress::Inet(inet)) if !inet.ip().is_unspecified() => {
                    Address::Inet(*inet)
                }
                (SessionTransport::Gone, _) => Address::Unix(Box::default()),
                (SessionTransport::Tcp(stream), _) => {
                    stream.local_addr().unwrap_or_else(|_| Address::Unix(Box::default()))
                }
            })
        })
    }

    /// The status; `None` while it is in progress.
    pub fn status(&self) -> Option<Status> {
        self.status.get()
    }

    /// Sets the status.
    pub fn set_status(&self, status: Status) {
        self.status.set(Some(status));
    }

    /// The current action, for log lines: `connecting to upstream`.
    pub fn set_action(&self, action: Option<&'static str>) {
        self.action.set(action);
    }

    /// The last upstream server that was tried.
    pub fn last_try(&self) -> Option<Ref<'_, Try>> {
        Ref::filter_map(self.tries.borrow(), |tries| tries.last()).ok()
    }

    /// Updates the record of the last upstream server that was tried.
    pub fn update_try(&self, change: impl FnOnce(&mut Try)) {
        if let Some(last) = self.tries.borrow_mut().last_mut() {
            change(last);
        }
    }

    /// Counts bytes received from the client.
    pub fn count_received(&self, bytes: u64) {
        self.received.set(self.received.get() + bytes);
    }

    /// Counts bytes sent to the client.
    pub fn count_sent(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    /// Writes a line about it to the error logs of its server, with all known context.
    pub fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        self.current.logs.about(self.about(Some(&LogContext(self))), level, message);
    }

    /// Writes a line that needs no context.
    pub fn log_bare(&self, level: Level, message: fmt::Arguments<'_>) {
        self.current.logs.about(self.about(None), level, message);
    }

    /// `udp `, for log lines.
    pub fn kind(&self) -> &'static str {
        if self.is_udp() { "udp " } else { "" }
    }

    /// The byte counts, as in log lines.
    pub fn totals(&self) -> ByteTotals<'_> {
        ByteTotals(self)
    }
}

/// Byte counts for log lines.
pub struct ByteTotals<'a>(&'a Session);

impl fmt::Display for ByteTotals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = self.0;
        let (received, sent) = session.last_try().map_or((0, 0), |last| (last.received, last.sent));
        write!(
            f,
            "bytes from/to client:{}/{}, bytes from/to upstream:{received}/{sent}",
            session.received.get(),
            session.sent.get()
        )
    }
}

/// The context of a session in error lines. nginx: `ngx_stream_log_error`,
/// `ngx_stream_proxy_log_error`.
struct LogContext<'a>(&'a Session);

impl Details for LogContext<'_> {
    fn append(&self, out: &mut Vec<u8>) {
        let session = self.0;
        if let Some(action) = session.action.get() {
            out.extend_from_slice(b" while ");
            out.extend_from_slice(action.as_bytes());
        }
        out.extend_from_slice(b", ");
        out.extend_from_slice(session.kind().as_bytes());
        out.extend_from_slice(b"client: ");
        address::append_ip(session.peer(), out);
        out.extend_from_slice(format!(", server: {}", session.listen).as_bytes());
        if let Some(last) = session.last_try() {
            out.extend_from_slice(format!(", upstream: \"{}\"", last.name()).as_bytes());
            drop(last);
            out.extend_from_slice(format!(", {}", session.totals()).as_bytes());
        }
    }

    fn fields(&self, field: &mut dyn FnMut(&str, &[u8])) {
        let session = self.0;
        if let Some(action) = session.action.get() {
            field("action", action.as_bytes());
        }
        let mut client = Vec::new();
        address::append_ip(session.peer(), &mut client);
        field("client", &client);
        field("server", session.listen.to_string().as_bytes());
        if let Some(last) = session.last_try() {
            field("upstream", last.name().to_string().as_bytes());
        }
    }
}

impl Drop for Session {
    /// The log phase: no session ends without its line.
    fn drop(&mut self) {
        // No line is logged here.
        let is_passed = matches!(self.transport, SessionTransport::Gone);
        let is_cut = self.status.get().is_none() && worker::is_stopping();
        let outcome = match self.status.get() {
            _ if is_passed => SessionOutcome::Passed,
            None if is_cut => SessionOutcome::Cut,
            status => SessionOutcome::Ended(status.unwrap_or(Status::InternalServerError)),
        };
        self.zone.leave(&SessionEnd {
            received: self.received.get(),
            sent: self.sent.get(),
            outcome,
        });
        if is_passed {
            return;
        }
        if self.status.get().is_none() {
            // The worker ends without waiting for it, or a panic has ended it.
            let ended = if is_cut { Status::Ok } else { Status::InternalServerError };
            self.status.set(Some(ended));
        }
        self.current.logs.access(self.server_id().0 as usize, self);
    }
}

impl Logged for Session {}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Takes out the rest of the input.
pub(crate) fn take_input(session: &Session) -> Bytes {
    std::mem::take(&mut *session.input.borrow_mut()).into()
}
