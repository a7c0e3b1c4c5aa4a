//! The interface between an endpoint and the code that it serves: which server answers a hello, and what becomes of
//! a connection.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_runtime::pool::Pool;
use nowait_sys::listen::ListenAddress;
use nowait_tls::{Error, Hello, TlsServer};

use crate::{Connection, Settings};

/// A future of a worker's thread.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A client's first datagram.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The client.
    pub peer: SocketAddr,
    /// The address that it was sent to, with the listening socket's port.
    pub local: SocketAddr,
    /// The listening socket.
    pub listen: Arc<ListenAddress>,
    /// The client has proved that it receives what is sent to its address (RFC 9000, 8.1).
    pub validated: bool,
}

/// The answer to a first datagram.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The hello is collected, for at most this long: until the handshake is complete.
    Accept {
        /// Maximum time of the handshake.
        timeout: Duration,
    },
    /// The client must prove its address first (`quic_retry`). Asked again when it has.
    Retry,
    /// The datagram is dropped: the worker has no room.
    Drop,
}

/// A client's hello.
pub struct Greeting {
    /// The client and its addresses.
    pub arrival: Arrival,
    /// What it says.
    pub hello: Rc<Hello>,
}

/// The server of a connection.
pub struct Chosen {
    /// TLS; [`nowait_tls::ServerSettings::quic_alpn`] was set.
    pub server: TlsServer,
    /// The transport.
    pub settings: Settings,
    /// The pool for long steps of the handshake.
    pub pool: Pool,
    /// The client's number in the pool, so that one client cannot occupy all threads.
    pub client: u64,
    /// What the caller wants back with the connection.
    pub context: Box<dyn Any>,
}

/// A client that gets no connection.
#[derive(Debug)]
pub enum Refused {
    /// No server of this name (TLS alert 112).
    Name,
    /// No application protocol in common (TLS alert 120).
    Protocol,
    /// The server's own fault (TLS alert 80).
    Internal,
}

/// A connection that was never served.
#[derive(Debug)]
pub struct Failure {
    /// The client.
    pub arrival: Arrival,
    /// The context of [`Chosen`], if it came to that.
    pub context: Option<Box<dyn Any>>,
    /// The reason.
    pub reason: FailureReason,
}

/// The reason of a failed handshake.
#[derive(Debug)]
pub enum FailureReason {
    /// The client's hello, or its handshake messages.
    Tls(Error),
    /// Refused by [`Service::choose`].
    Refused(Refused),
    /// The client was too slow.
    TimedOut,
    /// The client ended it, or broke the protocol; the text names the error.
    Lost(String),
    /// The pool takes no more work.
    Pool,
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureReason::Tls(error) => error.fmt(f),
            FailureReason::Refused(Refused::Name) => f.write_str("handshake rejected"),
            FailureReason::Refused(Refused::Protocol) => f.write_str("no application protocol"),
            FailureReason::Refused(Refused::Internal) => f.write_str("no certificate"),
            FailureReason::TimedOut => f.write_str("client timed out"),
            FailureReason::Lost(text) => f.write_str(text),
            FailureReason::Pool => f.write_str("thread pool queue overflow"),
        }
    }
}

/// What an endpoint serves. All calls are made on the worker's thread, and must not wait.
pub trait Service {
    /// Whether a client may begin a connection. Nothing is kept of the datagram yet. Under load, the endpoint
    /// answers by Retry without asking.
    fn admit(&self, arrival: &Arrival) -> Admission;

    /// The server of a hello. May wait, such as for a certificate; not longer than the handshake may take.
    fn choose(self: Rc<Self>, greeting: Greeting) -> LocalFuture<Result<Chosen, Refused>>;

    /// A connection that can carry streams: its handshake is complete, or early data can be read.
    fn serve(self: Rc<Self>, connection: Rc<Connection>);

    /// A handshake that failed, for the log.
    fn failed(&self, failure: Failure);
}
