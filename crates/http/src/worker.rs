//! HTTP in one worker: its listeners, its connections, its view of the configuration.
//!
//! Made by the program on each worker's thread. Everything in it belongs to that thread.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nowait_runtime::net::{Listener, ListenerOptions};
use nowait_runtime::{now, spawn};
use nowait_sys::listen::ListenAddress;
use slab::Slab;

use crate::conf::ServerId;
use crate::connection::{Connection, serve};
use crate::generation::{Current, Generation};
use crate::log::Level;
use crate::request::Request;

/// Unused requests that a worker keeps for the next ones.
const REQUESTS_KEPT: usize = 64;

/// Numbers the connections of the process.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// HTTP in one worker.
pub struct Worker {
    current: RefCell<Rc<Current>>,
    /// Connections that wait for a request.
    idle: RefCell<Slab<Weak<Connection>>>,
    /// Accept loops by the address and the number of the socket.
    listeners: RefCell<Vec<Accepting>>,
    #[allow(clippy::vec_box, reason = "the boxes are kept, a request is large")]
    requests: RefCell<Vec<Box<Request>>>,
    closing: Cell<bool>,
}

struct Accepting {
    address: ListenAddress,
    task: nowait_runtime::JoinHandle<()>,
}

/// A listening socket for a worker.
pub struct WorkerListener {
    /// The socket.
    pub fd: OwnedFd,
    /// Its address, as in the configuration.
    pub address: ListenAddress,
    /// Identity of the address in the process, the same in all workers.
    pub id: u64,
    /// Other workers accept from the same socket.
    pub shared: bool,
}

impl Worker {
    /// A worker that serves this generation.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        Rc::new(Self {
            current: RefCell::new(Current::new(generation)),
            idle: RefCell::default(),
            listeners: RefCell::default(),
            requests: RefCell::default(),
            closing: Cell::new(false),
        })
    }

    /// The newest generation.
    pub fn current(&self) -> Rc<Current> {
        self.current.borrow().clone()
    }

    /// Serves this generation from now on; requests under way keep theirs. Returns a handle that
    /// tells when no request uses the old one any more.
    pub fn activate(&self, generation: Arc<Generation>) -> Weak<Current> {
        let old = self.current.replace(Current::new(generation));
        self.requests.borrow_mut().clear();
        Rc::downgrade(&old)
    }

    /// Accepts connections from these sockets too.
    ///
    /// # Errors
    /// When a descriptor is not a listening socket.
    pub fn listen(self: &Rc<Self>, listeners: Vec<WorkerListener>) -> io::Result<()> {
        for WorkerListener { fd, address, id, shared } in listeners {
            let listener = Listener::from_fd(fd, ListenerOptions { id, shared })?;
            let task = spawn(accept(self.clone(), listener, Rc::new(address.clone())));
            self.listeners.borrow_mut().push(Accepting { address, task });
        }
        Ok(())
    }

    /// Stops accepting at addresses for which `keep` is false.
    pub fn close_listeners(&self, keep: impl Fn(&ListenAddress) -> bool) {
        let mut listeners = self.listeners.borrow_mut();
        let mut kept = Vec::new();
        for accepting in listeners.drain(..) {
            if keep(&accepting.address) {
                kept.push(accepting);
            } else {
                accepting.task.abort();
            }
        }
        *listeners = kept;
    }

    /// Graceful end: accepts no more, closes idle connections at once and the others after their
    /// current request.
    pub fn close(&self) {
        self.closing.set(true);
        self.close_listeners(|_| false);
        self.close_idle();
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    fn close_idle(&self) {
        let idle: Vec<_> = self.idle.borrow().iter().filter_map(|(_, c)| c.upgrade()).collect();
        for connection in idle.iter().filter(|connection| connection.requests.get() > 0) {
            // Its task receives the end of the stream and closes it.
            let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Notes that a connection waits for a request.
    pub(crate) fn enter_idle(&self, connection: &Rc<Connection>) -> usize {
        self.idle.borrow_mut().insert(Rc::downgrade(connection))
    }

    /// Notes that it no longer does.
    pub(crate) fn leave_idle(&self, key: usize) {
        self.idle.borrow_mut().remove(key);
    }

    /// The next connection's number.
    pub(crate) fn next_number(&self) -> u64 {
        CONNECTIONS.fetch_add(1, Ordering::Relaxed)
    }

    /// A request for a connection, with the memory of an earlier one.
    pub(crate) fn take_request(
        &self,
        connection: &Rc<Connection>,
        current: Rc<Current>,
        server: ServerId,
    ) -> Box<Request> {
        match self.requests.borrow_mut().pop() {
            Some(mut request) => {
                request.renew(connection.clone(), current, server, now());
                request
            }
            None => Box::new(Request::new(connection.clone(), current, server, now())),
        }
    }

    /// Keeps the memory of a finished request.
    pub(crate) fn give_request(&self, request: Box<Request>) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() < REQUESTS_KEPT {
            requests.push(request);
        }
    }

    /// The longest pause between two writes of collected output.
    pub(crate) fn send_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// Accepts until the listener fails or is told to stop.
async fn accept(worker: Rc<Worker>, listener: Listener, address: Rc<ListenAddress>) {
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                let connection = Connection::new(
                    worker.clone(),
                    accepted.stream,
                    accepted.peer,
                    address.clone(),
                );
                drop(spawn(serve(connection)));
            }
            Err(error) => {
                worker.current().logs.error(
                    Level::Alert,
                    format_args!("accept() failed {}", crate::files::errno(&error)),
                );
                return;
            }
        }
    }
}
