//! A client's HTTP/1.1 connection: its properties, and the task that serves it from one request to
//! the next.
//!
//! One task per connection. While it is idle it holds no buffers and no request: the part that
//! serves requests is a separate boxed future ([`active`]), created when bytes have arrived.

mod exchange;
mod hangup;
mod leaving;
mod waiting;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::handover::Handover;
use nowait_h1::{Limits, server};
use nowait_runtime::buf::{OutBuf, RecvBuf};
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::now;
use nowait_runtime::pool::metered;
use nowait_sys::listen::ListenAddress;

use crate::conf::ServerId;
use crate::conf::client::HeadConf;
use crate::generation::Current;
use crate::proxied;
use crate::proxy_protocol::ProxyProtocol;
use crate::request::Request;
use crate::worker::Worker;
pub(crate) use exchange::{flush, send_timeout};
pub use hangup::{OnHangup, Watch};
pub use leaving::{Heir, Moved, arrive};
use nowait_front::servers::Virtual;
use waiting::{Idle, Received, Wait};

/// After this time without a request a connection releases the memory for serving requests.
const BUSY: Duration = Duration::from_secs(1);

/// Most connections of a worker that keep this memory meanwhile; further ones release it at once.
const BUSY_MAX: usize = 256;

/// A connection as requests see it.
pub struct Connection {
    /// Serial number in this process.
    pub number: u64,
    /// The socket.
    pub stream: Stream,
    /// The client's address.
    pub peer: Address,
    /// Address of the listening socket that accepted it.
    pub listen: Arc<ListenAddress>,
    /// When it was accepted.
    pub started: Instant,
    /// Requests so far, the current one included.
    pub requests: Cell<u32>,
    /// Its place among the worker's connections.
    place: Cell<u32>,
    idle: Cell<Idle>,
    on_hangup: Cell<OnHangup>,
    /// Whether `TCP_NODELAY` is set, if known.
    nodelay: Cell<Option<bool>>,
    /// The header of the PROXY protocol.
    pub proxy_protocol: OnceCell<Box<ProxyProtocol>>,
    /// The worker that serves it.
    pub worker: Rc<Worker>,
    /// The protocol state; an idle connection needs none.
    h1: RefCell<Option<Box<server::Connection>>>,
    /// Bytes received but not yet used.
    pub(crate) input: RefCell<RecvBuf>,
    local: OnceCell<Box<Address>>,
    /// The worker that accepted it still has the descriptor.
    shared: Cell<bool>,
    /// Whether it was opened by a client and is counted.
    counted: bool,
}

/// What happens to a connection after some requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Wait for another request.
    Idle,
    /// Close it.
    Close,
    /// Close it after reading the client's further input, for at most this time.
    Linger { time: Duration, timeout: Duration },
    /// Close it with a reset.
    Reset,
}

impl Connection {
    /// A connection that was just accepted.
    pub fn new(
        worker: Rc<Worker>,
        stream: Stream,
        peer: Address,
        listen: Arc<ListenAddress>,
    ) -> Rc<Self> {
        worker.counts.opened();
        let connection = Rc::new(Self::uncounted(worker, stream, peer, listen, true));
        let current = connection.worker.current();
        let own = current.conf.listens().iter().find(|own| own.spec.address == *connection.listen);
        // Inherited from the listening socket.
        connection.nodelay.set(own.map(|own| own.spec.nodelay));
        connection.place.set(connection.worker.enter(&connection));
        connection
    }

    /// A connection that was accepted elsewhere and passed on.
    pub fn of_passed(worker: Rc<Worker>, connection: Handover) -> Rc<Self> {
        let Handover { stream, peer, local, listen, input, proxy_protocol, .. } = connection;
        worker.counts.opened();
        let mut connection = Self::uncounted(worker, stream, peer, listen, true);
        connection.local = OnceCell::from(Box::new(local));
        // The sender passes no more bytes than fit.
        connection.input = RefCell::new(RecvBuf::of(&input).unwrap_or_else(RecvBuf::empty));
        if let Some(header) = proxy_protocol {
            connection.proxy_protocol = OnceCell::from(header);
        }
        let connection = Rc::new(connection);
        connection.place.set(connection.worker.enter(&connection));
        connection
    }

    /// A placeholder connection for the server's own requests: for the variables of health checks.
    /// It is neither counted nor closed.
    pub(crate) fn of_nobody(
        worker: Rc<Worker>,
        stream: Stream,
        listen: Arc<ListenAddress>,
    ) -> Rc<Self> {
        Rc::new(Self::uncounted(worker, stream, Address::Unix(Box::default()), listen, false))
    }

    fn uncounted(
        worker: Rc<Worker>,
        stream: Stream,
        peer: Address,
        listen: Arc<ListenAddress>,
        counted: bool,
    ) -> Self {
        Self {
            number: worker.next_number(),
            stream,
            peer,
            listen,
            started: now(),
            requests: Cell::new(0),
            place: Cell::new(0),
            idle: Cell::default(),
            on_hangup: Cell::default(),
            nodelay: Cell::new(None),
            proxy_protocol: OnceCell::new(),
            worker,
            h1: RefCell::new(None),
            input: RefCell::new(RecvBuf::empty()),
            local: OnceCell::new(),
            shared: Cell::new(false),
            counted,
        }
    }

    /// The protocol state, created anew after an idle phase.
    pub(crate) fn h1(&self) -> RefMut<'_, server::Connection> {
        RefMut::map(self.h1.borrow_mut(), |h1| {
            &mut **h1.get_or_insert_with(|| Box::new(server::Connection::new(Limits::default())))
        })
    }

    /// Releases the receive buffer once all of it is used, before a wait that may be long: for more
    /// input, a disk, an upstream server or the client.
    pub(crate) fn release_input(&self) {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            *input = RecvBuf::empty();
        }
    }

    /// `tcp_nodelay`: a response sent in several pieces must not wait for the client's
    /// acknowledgement of the first one, which clients delay by 40 ms.
    pub(crate) fn set_nodelay(&self, on: bool) {
        if self.nodelay.replace(Some(on)) != Some(on) {
            // A socket that can't be set is closed already.
            let _ = self.stream.set_nodelay(on);
        }
    }

    /// The local address; it is only looked up when needed and when it differs from the listener's.
    pub fn local(&self) -> &Address {
        self.local.get_or_init(|| {
            if let ListenAddress::Inet(address) = &*self.listen
                && !address.ip().is_unspecified()
            {
                return Box::new(Address::Inet(*address));
            }
            Box::new(self.stream.local_addr().unwrap_or_else(|_| Address::Unix(Box::default())))
        })
    }

    /// The servers for this connection; `None` if its address is no longer listened on.
    pub fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        let listen = current.conf.listens().iter().find(|l| l.spec.address == *self.listen)?;
        Some(listen.only().unwrap_or_else(|| listen.at(self.local())))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.counted {
            self.worker.leave(self.place.get());
            self.worker.counts.closed();
        }
    }
}

/// Serves a connection until it is closed. An idle connection keeps this future, hence no `async
/// fn`, which would hold its argument twice.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub fn serve(connection: Rc<Connection>) -> impl Future<Output = ()> {
    async move {
        if connection.rest().is_none()
            && proxied::is_proxied(&connection)
            && !Box::pin(proxied::receive(&connection, first_timeout(&connection))).await
        {
            return;
        }
        let mut wait = first_wait(&connection);
        let next = loop {
            let mut received = connection.wait(wait).await;
            if received == Received::Leave {
                received = Box::pin(leaving::leave(&connection)).await;
            }
            match received {
                Received::Bytes => {}
                Received::TimedOut if connection.requests.get() == 0 => {
                    break if resets_timed_out(&connection) { Next::Reset } else { Next::Close };
                }
                Received::Leave => return,
                Received::TimedOut | Received::Closed => break Next::Close,
            }
            match Box::pin(active(&connection)).await {
                (Next::Idle, idle) => wait = idle,
                (next, _) => break next,
            }
        };
        match next {
            Next::Linger { time, timeout } => Box::pin(linger(&connection, time, timeout)).await,
            // A socket that can't be set is closed already.
            Next::Reset => drop(connection.stream.set_reset_on_close()),
            Next::Idle | Next::Close => {}
        }
        if Rc::strong_count(&connection) > 1 || connection.shared.get() {
            // A background subrequest continues; the client must not wait for it.
            let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// The next wait, if no request sets it.
fn first_wait(connection: &Connection) -> Wait {
    let first = || Wait { timeout: first_timeout(connection), keep: Duration::ZERO };
    connection.rest().unwrap_or_else(first)
}

fn first_timeout(connection: &Connection) -> Duration {
    let current = connection.worker.current();
    let Some(servers) = connection.virtual_servers(&current) else { return Duration::ZERO };
    current.conf.server(servers.default_server).head.client_header_timeout.duration()
}

fn resets_timed_out(connection: &Connection) -> bool {
    let current = connection.worker.current();
    connection.virtual_servers(&current).is_some_and(|servers| {
        let root = current.conf.server(servers.default_server).root;
        current.conf.location(root).client.reset_timedout_connection
    })
}

/// Limits of a head, from the settings of the address's default server.
fn limits(head: &HeadConf) -> Limits {
    let bytes = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
    Limits {
        header_buffer: bytes(head.client_header_buffer_size.0),
        large_buffers: bytes(head.large_client_header_buffers.count as u64),
        large_buffer: bytes(head.large_client_header_buffers.size.0),
        headers_max: u16::try_from(head.max_headers).unwrap_or(u16::MAX),
        ignore_invalid_headers: head.ignore_invalid_headers,
        underscores_in_headers: head.underscores_in_headers,
        control_characters: false,
    }
}

/// Drops the protocol state when a connection becomes idle.
struct Forget<'a>(&'a Connection);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.h1.replace(None);
    }
}

/// A request between two uses on a connection. When the connection no longer needs it, its memory
/// becomes a spare of the worker.
struct Kept<'a>(&'a Worker, Option<Box<Request>>);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.1.take() {
            self.0.keep_spare(request);
        }
    }
}

/// Serves requests that follow each other closely; returns how long to wait for more.
async fn active(connection: &Rc<Connection>) -> (Next, Wait) {
    let mut out = OutBuf::new();
    let mut pipelined = false;
    // The memory of a request is reused for the next one.
    let mut kept = Kept(&connection.worker, None);
    let mut default_server = ServerId(0);
    let _idle = Forget(connection);
    loop {
        let current = connection.worker.current();
        let known = kept.1.as_ref().filter(|request| Rc::ptr_eq(&request.current, &current));
        let server = match known {
            Some(_) => default_server,
            None => match connection.virtual_servers(&current) {
                Some(servers) => {
                    let head = &current.conf.server(servers.default_server).head;
                    connection.h1().set_limits(limits(head));
                    servers.default_server
                }
                None => {
                    return (Next::Close, Wait { timeout: Duration::ZERO, keep: Duration::ZERO });
                }
            },
        };
        default_server = server;
        connection.requests.set(connection.requests.get().saturating_add(1));
        let mut request = match kept.1.take() {
            Some(mut request) => {
                Request::renew(&mut request, current, server, now());
                request
            }
            None => connection.worker.first_request(connection, current, server),
        };
        request.pipelined = pipelined;
        let meter = request.spent.clone();
        let next = metered(meter, exchange::one(connection, &mut request, &mut out)).await;
        request.end();
        let client = &request.location().client;
        let wait = Wait {
            timeout: client.keepalive_timeout.timeout.duration(),
            keep: client.keepalive_min_timeout.duration(),
        };
        kept.1 = Some(request);
        if next != Next::Idle {
            return (next, wait);
        }
        pipelined = !connection.input.borrow().is_empty();
        if pipelined {
            continue;
        }
        // The buffer goes back to the runtime: idle connections hold none.
        drop(connection.input.replace(RecvBuf::empty()));
        // A busy connection soon sends the next request; this future is kept for it.
        let Some(_busy) = connection.worker.enter_busy(BUSY_MAX) else {
            return (Next::Idle, wait);
        };
        let Wait { timeout, keep } = wait;
        match connection.wait(Wait { timeout: timeout.min(BUSY), keep }).await {
            Received::Bytes => {}
            Received::TimedOut if timeout > BUSY => {
                let keep = keep.saturating_sub(BUSY);
                return (Next::Idle, Wait { timeout: timeout - BUSY, keep });
            }
            Received::Leave => {
                let Wait { timeout: rest, keep } = first_wait(connection);
                return (Next::Idle, Wait { timeout: rest + timeout.saturating_sub(BUSY), keep });
            }
            Received::TimedOut | Received::Closed => return (Next::Close, wait),
        }
    }
}

/// Reads and discards the client's further input, so that the client can read the response before
/// the connection is reset. nginx: `ngx_http_lingering_close_handler`.
async fn linger(connection: &Connection, time: Duration, timeout: Duration) {
    let until = now() + time;
    if connection.stream.shutdown_write().is_err() {
        return;
    }
    loop {
        let left = until.saturating_duration_since(now()).min(timeout);
        match connection.stream.recv(left).await {
            Ok(bytes) if !bytes.is_empty() => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    fn size<A, F>(_: fn(A) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size(super::serve) <= 56, "the future of a connection");
        assert!(std::mem::size_of::<super::Connection>() <= 192, "its facts");
    }
}
