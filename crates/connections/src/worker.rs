//! HTTP in one worker: its view of the configuration, and its front ends.
//!
//! Made by the program on each worker's thread. Everything in it belongs to that thread.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use nowait_front::handover::Handover;
use nowait_front::resolvers::watch_names;
use nowait_http::generation::{Current, Generation};
use nowait_http::services::Services;
use nowait_runtime::JoinHandle;
use nowait_runtime::net::{Address, Stream};
use nowait_sys::listen::ListenAddress;

use crate::connection::Connection;
use crate::connections::Connections;
use crate::{migration, start};

pub use crate::migration::{MovedConnection, Successor};

/// HTTP in one worker.
pub struct Worker {
    /// Tasks of the newest generation besides its connections.
    tasks: RefCell<Vec<JoinHandle<()>>>,
    services: Rc<Services>,
    connections: Rc<Connections>,
}

impl Worker {
    /// A worker that serves this generation.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        let services: Rc<Services> = Rc::default();
        let connections = Connections::new(Current::new(generation), services.clone());
        Rc::new(Self { tasks: RefCell::default(), services, connections })
    }

    /// The newest generation.
    pub fn current(&self) -> Rc<Current> {
        self.connections.current()
    }

    /// Makes this the newest generation; requests in flight keep theirs. Called on the running
    /// worker, for the first generation too.
    pub fn activate(&self, generation: Arc<Generation>) {
        let current = Current::new(generation);
        let (conf, resolvers) = (&current.conf, &current.resolvers);
        let log = current.error_log();
        let mut tasks = watch_names(&conf.upstreams, resolvers, conf.resolving, &log);
        let starts = current.conf.modules.iter().filter_map(|module| module.start);
        tasks.extend(starts.flat_map(|start| start(&self.services, &current)));
        self.tasks.replace(tasks).into_iter().for_each(JoinHandle::abort);
        self.connections.set_current(current);
    }

    /// Serves a connection that was just accepted, until it is closed.
    pub fn serve(
        &self,
        stream: Stream,
        peer: Address,
        listen: Arc<ListenAddress>,
    ) -> impl Future<Output = ()> + use<> {
        start::serve(Connection::new(self.connections.clone(), stream, peer, listen))
    }

    /// Serves a connection that was accepted elsewhere and passed on.
    pub fn serve_passed(&self, connection: Handover) -> impl Future<Output = ()> + use<> {
        start::serve(Connection::of_passed(self.connections.clone(), connection))
    }

    /// Continues to serve a connection of another worker.
    pub fn arrive(&self, moved: MovedConnection) {
        migration::arrive(&self.connections, moved);
    }

    /// Ends gracefully. Connections leave when they wait for a request: at once, or after the
    /// current one. They move to the successor; without a successor, or when it accepts none, idle
    /// connections are closed, after `keepalive_min_timeout` at the earliest.
    pub fn close(&self, successor: Option<Successor>) {
        self.connections.close(successor);
    }

    /// Ends all connections as if their clients had left.
    pub fn cut(&self) {
        self.connections.cut();
    }

    /// Closes some of the connections that have been idle for longest, so that new ones can be
    /// accepted; false if there are none.
    pub fn make_room(&self) -> bool {
        self.connections.make_room()
    }
}
