//! QUIC in one worker: its sockets, its connections, and the way of datagrams between them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use nowait_sys::listen::ListenAddress;
use nowait_tls::TlsClient;

use crate::{ConnectError, Connection, Directory, MovedConnection, Service, Settings};

/// QUIC in one worker.
pub struct Endpoint {
    directory: Arc<Directory>,
}

/// A listening socket of an endpoint. When it is dropped, no connections begin there any more; those that did
/// continue, as long as the socket is open anywhere in the process.
pub struct Listening {
    _endpoint: Rc<Endpoint>,
}

impl Endpoint {
    /// The endpoint of this worker, without sockets.
    ///
    /// # Panics
    /// Outside of a worker.
    pub fn new(directory: Arc<Directory>, service: Rc<dyn Service>) -> Rc<Endpoint> {
        let _ = service;
        Rc::new(Endpoint { directory })
    }

    /// Serves a bound UDP socket: this worker's own (`reuseport`), or one that workers share.
    ///
    /// # Errors
    /// When the descriptor cannot be watched.
    pub fn listen(
        self: &Rc<Self>,
        fd: OwnedFd,
        address: Arc<ListenAddress>,
    ) -> io::Result<Listening> {
        let _ = (fd, address);
        todo!()
    }

    /// Opens a connection as a client, from a socket of its own. Resolves when the handshake is complete.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub async fn connect(
        self: &Rc<Self>,
        peer: SocketAddr,
        server_name: &str,
        client: &TlsClient,
        settings: &Settings,
    ) -> Result<Rc<Connection>, ConnectError> {
        let _ = (peer, server_name, client, settings);
        todo!()
    }

    /// Continues a connection that another worker has given up by [`Connection::depart`]. Its datagrams find it
    /// here from now on.
    ///
    /// # Errors
    /// The worker has no room; the connection is given back.
    pub fn arrive(
        self: &Rc<Self>,
        moved: MovedConnection,
    ) -> Result<Rc<Connection>, MovedConnection> {
        let _ = moved;
        todo!()
    }

    /// Connections, and handshakes in progress.
    pub fn counts(&self) -> (usize, usize) {
        todo!()
    }

    /// Begins no more connections. Those that there are continue; [`idle`](Self::idle) resolves when the last one
    /// has ended or moved.
    pub fn close(&self) {
        todo!()
    }

    /// Resolves when no connection is left, with everything sent.
    pub async fn idle(&self) {
        todo!()
    }

    /// The workers of the process.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }
}
