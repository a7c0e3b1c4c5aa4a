//! How a connection leaves a worker that ends: for another worker, where it waits on, or for good.
//! A request that has come before is answered in either case.
//!
//! Called by the connection task while it waits for a request. The socket is taken from the driver
//! first: after that, what comes stays in its queue for whoever looks next.

use std::cell::{Cell, OnceCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::proxy_protocol::ProxyProtocol;
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::spawn;
use nowait_runtime::time::timeout;
use nowait_sys::listen::ListenAddress;

use super::waiting::{Received, Wait};
use super::{Connection, first_wait};
use crate::worker::Worker;

/// How long a client may take to read what was sent last before its connection can leave.
const RELEASE_MAX: Duration = Duration::from_secs(30);

/// How long a request that has begun to arrive is waited for when the server ends: its bytes are
/// there already.
const ARRIVED: Duration = Duration::from_secs(1);

/// A connection on its way to another worker.
pub struct Moved {
    fd: OwnedFd,
    number: u64,
    peer: Address,
    listen: Arc<ListenAddress>,
    started: Instant,
    requests: u32,
    nodelay: Option<bool>,
    proxy_protocol: Option<Box<ProxyProtocol>>,
    local: Option<Box<Address>>,
    wait: Wait,
    /// A background subrequest still has the descriptor.
    shared: bool,
}

/// Takes connections of a worker that ends. Gives them back when nobody serves any more.
pub type Heir = Box<dyn Fn(Box<Moved>) -> Result<(), Box<Moved>>>;

impl Moved {
    /// The facts of a connection with a descriptor of its socket.
    fn of(connection: &Rc<Connection>, fd: OwnedFd, wait: Wait) -> Box<Moved> {
        Box::new(Moved {
            fd,
            number: connection.number,
            peer: connection.peer.clone(),
            listen: connection.listen.clone(),
            started: connection.started,
            requests: connection.requests.get(),
            nodelay: connection.nodelay.get(),
            proxy_protocol: connection.proxy_protocol.get().cloned(),
            local: connection.local.get().cloned(),
            wait,
            shared: connection.shared.get() || Rc::strong_count(connection) > 1,
        })
    }
}

impl Connection {
    /// A connection that another worker has served so far.
    fn of_moved(worker: Rc<Worker>, moved: Moved) -> io::Result<Rc<Connection>> {
        let stream = Stream::from_fd(moved.fd)?;
        worker.counts.moved();
        let mut connection = Self::uncounted(worker, stream, moved.peer, moved.listen, true);
        connection.number = moved.number;
        connection.started = moved.started;
        connection.requests = Cell::new(moved.requests);
        connection.nodelay = Cell::new(moved.nodelay);
        connection.proxy_protocol = moved.proxy_protocol.map_or_else(OnceCell::new, OnceCell::from);
        connection.local = moved.local.map_or_else(OnceCell::new, OnceCell::from);
        connection.shared = Cell::new(moved.shared);
        connection.goes_on(moved.wait);
        let connection = Rc::new(connection);
        connection.place.set(connection.worker.enter(&connection));
        Ok(connection)
    }
}

/// Goes on with a connection on this worker.
pub fn arrive(worker: &Rc<Worker>, moved: Moved) {
    // A socket that can't be watched is lost; nobody could be told.
    if let Ok(connection) = Connection::of_moved(worker.clone(), moved) {
        drop(spawn(super::serve(connection)));
    }
}

/// Takes a connection that waits for a request away from this worker. `Leave`: it is served
/// elsewhere from now on. `Bytes`: a request has come before that, and is answered here. Else it
/// ends.
pub(super) async fn leave(connection: &Rc<Connection>) -> Received {
    let wait = first_wait(connection);
    match timeout(RELEASE_MAX, connection.stream.release()).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return connection.received(connection.stream.recv(RELEASE_MAX).await),
        _ => return Received::Closed,
    }
    let has_bytes = connection.stream.has_bytes();
    let Ok(fd) = connection.stream.parted() else { return Received::Closed };
    let Err(mut moved) = connection.worker.hand_over(Moved::of(connection, fd, wait)) else {
        return Received::Leave;
    };
    // nginx differs: when it ends it closes idle connections without a look at what has just come.
    if has_bytes {
        moved.wait = Wait { timeout: ARRIVED, keep: ARRIVED };
    } else if moved.requests > 0 {
        return Received::Closed;
    }
    arrive(&connection.worker, *moved);
    Received::Leave
}
