//! HTTP in one worker: its view of the configuration, and its front ends.
//!
//! Made by the program on each worker's thread. Everything in it belongs to that thread.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use nowait_front::handover::Handover;
use nowait_front::resolvers::watch_names;
use nowait_http::generation::{Current, Generation};
use nowait_http::services::Services;
use nowait_quic::{Directory, Endpoint, Listening};
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::{JoinHandle, spawn};
use nowait_sys::listen::ListenAddress;

use crate::connection::Connection;
use crate::connections::Connections;
use crate::quic::QuicService;
use crate::{migration, start};

pub use crate::migration::{MovedConnection, Successor};

/// HTTP in one worker.
pub struct Worker {
    /// Tasks of the newest generation besides its connections.
    tasks: RefCell<Vec<JoinHandle<()>>>,
    services: Rc<Services>,
    connections: Rc<Connections>,
    /// QUIC, once there was a socket for it.
    endpoint: RefCell<Option<Rc<Endpoint>>>,
}

impl Worker {
    /// A worker that serves this generation.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        let services: Rc<Services> = Rc::default();
        let connections = Connections::new(Current::new(generation), services.clone());
        let (tasks, endpoint) = (RefCell::default(), RefCell::default());
        Rc::new(Self { tasks, services, connections, endpoint })
    }

    /// The newest generation.
    pub fn current(&self) -> Rc<Current> {
        self.connections.current()
    }

    /// Makes this the newest generation; requests in flight keep theirs. Called on the running
    /// worker, for the first generation too.
    pub fn activate(&self, generation: Arc<Generation>) {
        self.connections.publish();
        let current = Current::new(generation);
        let (conf, resolvers) = (&current.conf, &current.resolvers);
        let log = current.error_log();
        let mut tasks = watch_names(&conf.upstreams, resolvers, conf.resolving, &log);
        let starts = current.conf.modules.iter().filter_map(|module| module.start);
        tasks.extend(starts.flat_map(|start| start(&self.services, &current)));
        self.tasks.replace(tasks).into_iter().for_each(JoinHandle::abort);
        self.connections.set_current(current);
        if let Some(endpoint) = &*self.endpoint.borrow() {
            // `quic_host_key` may have changed.
            endpoint.renew_keys();
        }
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

    /// Serves HTTP/3 from a socket with `quic`, until the result is dropped. `directory`: the workers of the
    /// process.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub fn receive(
        &self,
        directory: &Arc<Directory>,
        listen: Arc<ListenAddress>,
        socket: OwnedFd,
    ) -> io::Result<Listening> {
        let mut endpoint = self.endpoint.borrow_mut();
        let endpoint = endpoint.get_or_insert_with(|| {
            let service = QuicService::new(self.connections.clone());
            let endpoint = Endpoint::new(directory.clone(), service.clone());
            service.set_endpoint(&endpoint);
            endpoint
        });
        endpoint.listen(socket, listen)
    }

    /// Serves a connection that was accepted elsewhere and passed on.
    pub fn serve_passed(&self, connection: Handover) -> impl Future<Output = ()> + use<> {
        start::serve(Connection::of_passed(self.connections.clone(), connection))
    }

    /// Continues to serve a connection of another worker.
    pub fn arrive(&self, moved: MovedConnection) {
        migration::arrive(&self.connections, self.endpoint.borrow().as_ref(), moved);
    }

    /// Ends gracefully. Connections leave when they wait for a request: at once, or after the
    /// current one. They move to the successor; without a successor, or when it accepts none, idle
    /// connections are closed, after `keepalive_min_timeout` at the earliest.
    pub fn close(&self, successor: Option<Successor>) {
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.close();
            // It lives as long as its connections, and the worker as long as it does.
            drop(spawn(async move { endpoint.idle().await }));
        }
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
