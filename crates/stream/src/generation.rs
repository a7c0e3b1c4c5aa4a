//! A generation of the configuration as one worker uses it.
//!
//! The program makes a [`Generation`] per reload and hands it to every worker; a worker wraps it in
//! a [`Current`], whose reference counts stay on the worker's own core. A session keeps the
//! generation that it began with until it ends, as in nginx's old workers.
//! `worker_shutdown_timeout` limits this time after a reload.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use nowait_front::logs::Logs;
use nowait_front::resolvers::Resolvers;
use nowait_runtime::pool::Pool;
use nowait_runtime::reaper::Reaped;
use slab::Slab;

use crate::conf::StreamConf;

/// A configuration in use, shared by all workers. The thread that drops the last reference, often an event loop,
/// does not wait until it is freed.
pub type Generation = Reaped<StreamContents>;

/// The parts of a [`Generation`].
pub struct StreamContents {
    /// The `stream` block.
    pub conf: StreamConf,
    /// The resolvers.
    pub resolvers: Resolvers,
    /// The pool for files.
    pub default_pool: Pool,
    /// The pool for CPU work.
    pub compute_pool: Pool,
    /// The logs.
    pub logs: Arc<Logs>,
    /// `worker_shutdown_timeout`
    pub shutdown_timeout: Option<Duration>,
    /// `worker_connections`: maximum number of UDP sessions per worker.
    pub connections_max: usize,
    /// Dropped with the generation: signals the program that it has drained.
    pub lifeline: Box<dyn Any + Send + Sync>,
}

/// A worker's view of a generation.
pub struct Current {
    generation: Arc<Generation>,
    expired: Cell<bool>,
    /// TLS handshakes in progress.
    handshakes: Cell<usize>,
    waiting: RefCell<Slab<Waker>>,
}

impl std::ops::Deref for Current {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.generation
    }
}

impl Current {
    /// This worker's view of the generation.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        let expired = Cell::new(false);
        let (handshakes, waiting) = (Cell::new(0), RefCell::default());
        Rc::new(Self { generation, expired, handshakes, waiting })
    }

    /// Begins a handshake if fewer than `max` are in progress.
    pub(crate) fn enter_handshake(&self, max: usize) -> Option<HandshakeGuard<'_>> {
        (self.handshakes.get() < max).then(|| {
            self.handshakes.set(self.handshakes.get() + 1);
            HandshakeGuard(&self.handshakes)
        })
    }

    /// Ends the sessions that still use it.
    pub(crate) fn expire(&self) {
        self.expired.set(true);
        let waiting: Vec<Waker> = self.waiting.borrow_mut().drain().collect();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Resolves when its sessions have to end.
    pub(crate) async fn expired(&self) {
        let mut place = WaiterSlot { current: self, key: None };
        poll_fn(|cx| {
            if self.expired.get() {
                place.key = None;
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            match place.key {
                Some(key) if waiting[key].will_wake(cx.waker()) => {}
                Some(key) => waiting[key] = cx.waker().clone(),
                None => place.key = Some(waiting.insert(cx.waker().clone())),
            }
            Poll::Pending
        })
        .await;
    }
}

/// A handshake in progress.
pub(crate) struct HandshakeGuard<'a>(&'a Cell<usize>);

impl Drop for HandshakeGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A place in the list of waiters, given up on drop.
struct WaiterSlot<'a> {
    current: &'a Current,
    key: Option<usize>,
}

impl Drop for WaiterSlot<'_> {
    fn drop(&mut self) {
        // When the generation expired, all places were released at once.
        if let Some(key) = self.key
            && !self.current.expired.get()
        {
            let waker = self.current.waiting.borrow_mut().try_remove(key);
            drop(waker);
        }
    }
}
