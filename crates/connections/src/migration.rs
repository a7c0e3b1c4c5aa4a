//! How a connection leaves a worker that ends: it moves to another worker and waits there, or it
//! closes. A request that arrived before is served in either case.
//!
//! Called by the connection's task while it waits for a request. The socket is taken from the driver
//! first: later input stays in the socket's queue for the next reader.

use std::cell::{Cell, OnceCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::proxy_protocol::ProxyProtocol;
use nowait_http::client::{Client, Security};
use nowait_quic::Endpoint;
use nowait_runtime::net::{Address, DetachedLayer, Stream};
use nowait_runtime::spawn;
use nowait_runtime::time::timeout;
use nowait_sys::listen::ListenAddress;

use crate::connection::Connection;
use crate::connections::Connections;
use crate::idle::{IdleTimeouts, WaitEnd};
use crate::start;

/// Time for a client to read the last response before its connection is moved or closed.
const RELEASE_MAX: Duration = Duration::from_secs(30);

/// Time for the rest of a request that has begun to arrive when the server ends. Its bytes are in
/// the socket already.
const ARRIVED: Duration = Duration::from_secs(1);

/// A connection on its way to another worker.
pub enum MovedConnection {
    /// One over TCP or a Unix socket.
    Socket(MovedSocket),
    /// One over QUIC.
    Quic(MovedQuic),
}

/// Continues a connection over QUIC on the worker where it has arrived, which may lack an endpoint.
pub type MovedQuic = Box<dyn FnOnce(&Rc<Connections>, Option<&Rc<Endpoint>>) + Send>;

/// A connection over a socket on its way to another worker.
pub struct MovedSocket {
    fd: OwnedFd,
    number: u64,
    peer: Address,
    listen: Arc<ListenAddress>,
    started: Instant,
    requests: u32,
    nodelay: Option<bool>,
    proxy_protocol: Option<Box<ProxyProtocol>>,
    local: Option<Box<Address>>,
    security: Security,
    layer: Option<DetachedLayer>,
    wait: IdleTimeouts,
    /// A background subrequest still has the descriptor.
    shared: bool,
}

/// Takes connections of a worker that ends. Gives them back when no worker accepts them any more.
pub type Successor = Box<dyn Fn(Box<MovedConnection>) -> Result<(), Box<MovedConnection>>>;

impl MovedSocket {
    /// The state of a connection, with a descriptor of its socket.
    fn of(
        connection: &Rc<Connection>,
        fd: OwnedFd,
        layer: Option<DetachedLayer>,
        wait: IdleTimeouts,
    ) -> MovedSocket {
        MovedSocket {
            fd,
            number: connection.client.number,
            peer: connection.client.peer.clone(),
            listen: connection.client.listen.clone(),
            started: connection.client.started,
            requests: connection.client.requests.get(),
            nodelay: connection.nodelay.get(),
            proxy_protocol: connection.client.proxy_protocol.get().cloned(),
            local: connection.client.local.get().cloned(),
            security: connection.client.security.get(),
            layer,
            wait,
            shared: connection.shared.get() || Rc::strong_count(connection) > 1,
        }
    }
}

impl Connection {
    /// A connection that another worker has served until now.
    pub(crate) fn of_moved(all: Rc<Connections>, moved: MovedSocket) -> io::Result<Rc<Connection>> {
        let stream = Stream::from_fd(moved.fd)?;
        if let Some(layer) = moved.layer {
            stream.attach_layer(layer);
        }
        all.services.counts.moved();
        let client = Client {
            number: moved.number,
            peer: moved.peer,
            listen: moved.listen,
            started: moved.started,
            proxy_protocol: moved.proxy_protocol.map_or_else(OnceCell::new, OnceCell::from),
            local: moved.local.map_or_else(OnceCell::new, OnceCell::from),
            requests: Cell::new(moved.requests),
            security: Cell::new(moved.security),
        };
        let connection = Self::uncounted(all, stream, client);
        connection.nodelay.set(moved.nodelay);
        connection.shared.set(moved.shared);
        connection.interrupt(moved.wait);
        Ok(connection.listed())
    }
}

/// Continues to serve a connection of another worker.
pub(crate) fn arrive(
    all: &Rc<Connections>,
    endpoint: Option<&Rc<Endpoint>>,
    moved: MovedConnection,
) {
    match moved {
        MovedConnection::Socket(moved) => arrive_socket(all, moved),
        MovedConnection::Quic(resume) => resume(all, endpoint),
    }
}

fn arrive_socket(all: &Rc<Connections>, moved: MovedSocket) {
    // A socket that can't be watched is lost; there is nothing to report the loss to.
    if let Ok(connection) = Connection::of_moved(Rc::clone(all), moved) {
        drop(spawn(start::serve(connection)));
    }
}

/// Moves a connection that waits for a request away from this worker. `Leave`: another task serves the
/// connection from now on. `Bytes`: a request arrived first and is served here. Otherwise the connection
/// ends.
pub(crate) async fn leave(connection: &Rc<Connection>) -> WaitEnd {
    let wait = connection.first_wait();
    match timeout(RELEASE_MAX, connection.stream.release()).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => {
            return connection.received(connection.stream.recv(RELEASE_MAX).await);
        }
        _ => return WaitEnd::Closed,
    }
    let has_bytes = connection.stream.has_bytes();
    let layer = connection.stream.detach_layer();
    let Ok(fd) = connection.stream.parted() else { return WaitEnd::Closed };
    let moved = MovedConnection::Socket(MovedSocket::of(connection, fd, layer, wait));
    let Err(moved) = connection.all().hand_over(Box::new(moved)) else { return WaitEnd::Leave };
    let MovedConnection::Socket(mut moved) = *moved else { return WaitEnd::Leave };
    // nginx differs: at its end it closes idle connections without looking for input that has just
    // arrived.
    if has_bytes {
        moved.wait = IdleTimeouts { timeout: ARRIVED, keep: ARRIVED };
    } else if moved.requests > 0 {
        if let Some(layer) = moved.layer.take() {
            layer.end(moved.fd.as_fd());
        }
        return WaitEnd::Closed;
    }
    // No worker takes the connection, which stays here until it ends.
    arrive_socket(connection.all(), moved);
    WaitEnd::Leave
}
