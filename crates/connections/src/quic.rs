//! QUIC in a worker: admits clients, chooses their server by the hello, and hands complete connections to the front
//! end of HTTP/3. nginx: `ngx_http_v3_init_stream`, `ngx_quic_run`.
//!
//! The worker makes one [`QuicService`] when it gets its first socket with `quic`. It never reads or sends.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::servers::{ServerId, Virtual};
use nowait_front::tls::quic::QuicHandshake;
use nowait_front::tls::{Fault, Handshake, HandshakeError, Tls};
use nowait_http::client::{Client, Security};
use nowait_http::conf::Server;
use nowait_http::exchange::{Exchange, Interim, OnHangup};
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::response::LocalFuture;
use nowait_http::services::Services;
use nowait_quic::{
    Admission, Arrival, Chosen, Endpoint, Failure, FailureReason, Greeting, Refused, Service,
    Settings,
};
use nowait_runtime::net::Address;
use nowait_runtime::{now, spawn, worker};
use nowait_sys::listen::ListenAddress;
use nowait_sys::tcp_info::TcpInfo;

use crate::connections::{Connections, ShutdownMode};
use crate::{handshake, http3};

/// Streams of a client besides those of requests: control, and two of QPACK (RFC 9114, 6.2), and some of reserved types,
/// which are refused when they come (6.2.3).
const UNI_STREAMS: u32 = 8;

/// How often missing room for connections is logged.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

/// What an endpoint calls to serve HTTP/3.
pub(crate) struct QuicService {
    all: Rc<Connections>,
    endpoint: RefCell<Weak<Endpoint>>,
    complained: Cell<Option<Instant>>,
}

/// What is known of a connection while its handshake continues.
struct Greeted {
    number: u64,
    started: Instant,
    peer: SocketAddr,
    handshake: QuicHandshake,
}

/// A connection whose handshake is complete, for the front end of HTTP/3.
pub(crate) struct Established {
    /// The connection.
    pub connection: Rc<nowait_quic::Connection>,
    /// Its facts, for requests.
    pub client: Client,
    /// Its TLS session, for variables and certificates.
    pub tls: Tls,
    /// Where it is.
    pub endpoint: Weak<Endpoint>,
}

impl QuicService {
    /// For the connections of this worker.
    pub(crate) fn new(all: Rc<Connections>) -> Rc<Self> {
        let (endpoint, complained) = (RefCell::default(), Cell::default());
        Rc::new(Self { all, endpoint, complained })
    }

    /// The endpoint that calls this.
    pub(crate) fn set_endpoint(&self, endpoint: &Rc<Endpoint>) {
        self.endpoint.replace(Rc::downgrade(endpoint));
    }

    /// Whether `worker_connections` allows no other one.
    fn is_full(&self) -> bool {
        let own = self.endpoint.borrow().upgrade();
        let own = own.map_or(0, |endpoint| {
            let (connections, handshakes) = endpoint.counts();
            connections + handshakes
        });
        worker::connections() + own >= worker::connections_max()
    }

    /// Closes idle connections.
    fn make_room(&self, current: &Current) {
        let made = self.all.make_room();
        let quiet = |at: Instant| now().saturating_duration_since(at) < COMPLAINT_INTERVAL;
        if !self.complained.get().is_some_and(quiet) {
            self.complained.set(Some(now()));
            let (level, more) = match made {
                true => (Level::Warn, ", reusing connections"),
                false => (Level::Alert, ""),
            };
            let max = worker::connections_max();
            let text = format_args!("{max} worker_connections are not enough{more}");
            current.logs.error(level, text);
        }
    }

    /// The client of a connection that does not exist yet.
    fn client(&self, arrival: &Arrival) -> Client {
        let number = self.all.services.next_number();
        client(number, now(), arrival.peer, arrival.local, arrival.listen.clone())
    }

    async fn find(&self, greeting: Greeting) -> Result<Chosen, Refused> {
        let Greeting { arrival, hello } = greeting;
        let current = self.all.current();
        let client = self.client(&arrival);
        let (number, started) = (client.number, client.started);
        let exchange: Rc<dyn Exchange> = Rc::new(ArrivalExchange::new(client, self.all.clone()));
        let Some(servers) = servers(&current, &arrival.listen, arrival.local) else {
            return Err(Refused::Name);
        };
        let default = current.conf.server(servers.default_server);
        let pool = current.compute_pool().clone();
        let timeout = Duration::from_millis(default.head.client_header_timeout.0);
        let steps = Handshake { timeout, pool: pool.clone(), client: number };
        let chosen = handshake::choose(&exchange, &current, servers, &hello, &steps).await;
        let chosen = chosen.map_err(|error| match error {
            HandshakeError::Rejected => Refused::Name,
            error => {
                handshake::log(exchange, &current, servers, Level::Error, format_args!("{error}"));
                Refused::Internal
            }
        })?;
        let (server, handshake) = chosen.over_quic(&hello);
        Ok(Chosen {
            server,
            settings: settings(&current, default),
            pool,
            client: number,
            context: Box::new(Greeted { number, started, peer: arrival.peer, handshake }),
        })
    }
}

impl Service for QuicService {
    fn admit(&self, arrival: &Arrival) -> Admission {
        let current = self.all.current();
        if self.all.shutdown() != ShutdownMode::None {
            return Admission::Drop;
        }
        if self.is_full() {
            // Whoever has only sent a packet, perhaps in another's name, closes no connection.
            if !arrival.validated {
                return Admission::Retry;
            }
            self.make_room(&current);
            return Admission::Drop;
        }
        // A reload has removed the address, or `quic`.
        let Some(servers) = servers(&current, &arrival.listen, arrival.local) else {
            return Admission::Drop;
        };
        let default = current.conf.server(servers.default_server);
        match default.http3.quic_retry && !arrival.validated {
            true => Admission::Retry,
            false => Admission::Accept {
                timeout: Duration::from_millis(default.head.client_header_timeout.0),
            },
        }
    }

    fn choose(
        self: Rc<Self>,
        greeting: Greeting,
    ) -> nowait_quic::LocalFuture<Result<Chosen, Refused>> {
        Box::pin(async move { self.find(greeting).await })
    }

    fn serve(self: Rc<Self>, connection: Rc<nowait_quic::Connection>) {
        let context = connection.take_context().and_then(|context| context.downcast().ok());
        let (Some(context), Some(session)) = (context, connection.take_session()) else {
            return connection.close(0, b"");
        };
        let Greeted { number, started, peer, handshake } = *context;
        self.all.services.counts.handshaken();
        // nginx differs: it takes the address of a client that has moved, once it is proven. Here, requests keep the
        // one that the handshake has proven: a client that states another one must not pass access rules with it.
        let local = connection.local();
        let client = client(number, started, peer, local, connection.listen().clone());
        let (all, endpoint) = (self.all.clone(), self.endpoint.borrow().clone());
        drop(spawn(async move {
            let tls = handshake.complete(session).await;
            http3::serve(all, Established { connection, client, tls, endpoint }, None).await;
        }));
    }

    fn failed(&self, failure: Failure) {
        let Failure { arrival, context, reason } = failure;
        self.all.services.counts.handshake_failed();
        let current = self.all.current();
        let Some(servers) = servers(&current, &arrival.listen, arrival.local) else { return };
        let mut client = self.client(&arrival);
        if let Some(context) = context.and_then(|context| context.downcast::<Greeted>().ok()) {
            (client.number, client.started) = (context.number, context.started);
        }
        let exchange = Rc::new(ArrivalExchange::new(client, self.all.clone()));
        let level = match &reason {
            FailureReason::Tls(error) if error.fault() != Fault::Peer => Level::Crit,
            FailureReason::Pool => Level::Error,
            _ => Level::Info,
        };
        handshake::log(exchange, &current, servers, level, format_args!("{reason}"));
    }
}

/// The servers behind an address with `quic`; `None` if there is no such address any more.
pub(crate) fn servers<'a>(
    current: &'a Current,
    listen: &ListenAddress,
    local: SocketAddr,
) -> Option<&'a Virtual> {
    let own = current.conf.listens().iter().find(|own| own.spec.address == *listen)?;
    let servers = own.only().unwrap_or_else(|| own.at(&Address::Inet(local)));
    servers.quic.is_some().then_some(servers)
}

fn client(
    number: u64,
    started: Instant,
    peer: SocketAddr,
    local: SocketAddr,
    listen: Arc<ListenAddress>,
) -> Client {
    let mut client = Client::new(number, Address::Inet(peer), listen, started);
    client.local = OnceCell::from(Box::new(Address::Inet(local)));
    client.security.set(Security::Tls);
    client
}

/// The transport's settings: those of the address's default server.
fn settings(current: &Current, default: &Server) -> Settings {
    let http3 = &default.http3;
    let keepalive = current.conf.location(default.root).client.keepalive_timeout.timeout;
    // Without keep-alive, the connection ends after its first request, which may take its time.
    let idle = match keepalive.0 {
        0 => default.head.client_header_timeout.0,
        timeout => timeout,
    };
    Settings {
        bidi_streams_max: http3.http3_max_concurrent_streams.0,
        uni_streams_max: UNI_STREAMS,
        stream_buffer_bytes: usize::try_from(http3.http3_stream_buffer_size.0)
            .unwrap_or(usize::MAX),
        idle_timeout: Duration::from_millis(idle),
        active_connection_id_limit: http3.quic_active_connection_id_limit.0,
        gso: http3.quic_gso,
    }
}

/// A client during its handshake, for the log, and for variables in names of certificates.
struct ArrivalExchange {
    client: Client,
    all: Rc<Connections>,
    on_hangup: Cell<OnHangup>,
}

impl ArrivalExchange {
    fn new(client: Client, all: Rc<Connections>) -> Self {
        Self { client, all, on_hangup: Cell::default() }
    }
}

impl Exchange for ArrivalExchange {
    fn client(&self) -> &Client {
        &self.client
    }

    fn services(&self) -> &Services {
        &self.all.services
    }

    fn local(&self) -> &Address {
        self.client.local_or(|| Address::Unix(Box::default()))
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn with_tls(&self, _: &mut dyn FnMut(&Tls)) {}

    fn default_server(&self, current: &Current) -> Option<ServerId> {
        let local = self.local().inet()?;
        servers(current, &self.client.listen, local).map(|servers| servers.default_server)
    }

    fn on_hangup(&self) -> &Cell<OnHangup> {
        &self.on_hangup
    }

    /// Never: the handshake has its own timeout.
    fn hangup(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// No response: there is no request yet.
    fn send_interim(&self, _: Interim, _: Duration) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
