//! HTTP in one worker: its connections, its view of the configuration.
//!
//! Made by the program on each worker's thread. Everything in it belongs to that thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slab::Slab;

use crate::connection::Connection;
use crate::generation::{Current, Generation};

/// Numbers the connections of the process.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// HTTP in one worker.
pub struct Worker {
    current: RefCell<Rc<Current>>,
    /// Connections that wait for a request.
    idle: RefCell<Slab<Weak<Connection>>>,
    closing: Cell<bool>,
    /// Connections that keep their memory for the next request.
    busy: Cell<usize>,
}

/// The right to keep the memory of a request while waiting for the next one.
pub(crate) struct Busy<'a>(&'a Cell<usize>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Worker {
    /// A worker that serves this generation.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        Rc::new(Self {
            current: RefCell::new(Current::new(generation)),
            idle: RefCell::default(),
            closing: Cell::new(false),
            busy: Cell::new(0),
        })
    }

    /// The newest generation.
    pub fn current(&self) -> Rc<Current> {
        self.current.borrow().clone()
    }

    /// Serves this generation from now on; requests under way keep theirs.
    pub fn activate(&self, generation: Arc<Generation>) {
        drop(self.current.replace(Current::new(generation)));
    }

    /// Graceful end: closes idle connections at once and the others after their current request.
    pub fn close(&self) {
        self.closing.set(true);
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

    /// Lets one more connection keep its memory, if fewer than `max` do.
    pub(crate) fn enter_busy(&self, max: usize) -> Option<Busy<'_>> {
        (self.busy.get() < max).then(|| {
            self.busy.set(self.busy.get() + 1);
            Busy(&self.busy)
        })
    }

    /// The longest pause between two writes of collected output.
    pub(crate) fn send_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}
