//! The interface between a request and its client's connection: peer, hang-up, interim responses. The same
//! for all protocols.
//!
//! A front end implements [`Exchange`] per request, or per connection if that has one request at a
//! time; subrequests share their parent's. [`NoClient`] stands for the client of the server's own
//! requests. Handlers and filters have no access to sockets.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use nowait_front::servers::ServerId;
use nowait_front::tls::Tls;
use nowait_runtime::net::Address;
use nowait_sys::tcp_info::TcpInfo;

use crate::client::Client;
use crate::generation::Current;
use crate::response::{Header, LocalFuture};
use crate::services::Services;

/// A request's way to its client.
pub trait Exchange {
    /// The client.
    fn client(&self) -> &Client;

    /// The services of the worker.
    fn services(&self) -> &Services;

    /// The local address of the client's connection. Looked up only when needed.
    fn local(&self) -> &Address;

    /// Measurements of the client's TCP connection.
    ///
    /// # Errors
    /// There is no such connection.
    fn tcp_info(&self) -> io::Result<TcpInfo>;

    /// Calls `look` with the session, if the client uses TLS.
    fn with_tls(&self, look: &mut dyn FnMut(&Tls));

    /// The default server of the address that the client has connected to.
    fn default_server(&self, current: &Current) -> Option<ServerId>;

    /// The meaning of a hang-up for the request; [`Watch`] changes it.
    fn on_hangup(&self) -> &Cell<OnHangup>;

    /// Resolves when the client has closed its side, or the connection is broken.
    fn hangup(&self) -> LocalFuture<'_, ()>;

    /// Sends an interim response (1xx). A disconnect is detected by the final response.
    fn send_interim(&self, head: Interim, timeout: Duration) -> LocalFuture<'_, ()>;
}

/// The head of an interim response.
#[derive(Debug)]
pub struct Interim {
    /// Status code.
    pub status: u16,
    /// Header fields.
    pub headers: Vec<Header>,
}

/// The reaction of a request when its client closes its side.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum OnHangup {
    /// The request gets some time to complete, because clients may half-close.
    #[default]
    EndLater,
    /// The request ends at once.
    EndAtOnce,
    /// The request continues (`proxy_ignore_client_abort`).
    Ignore,
}

/// Changes the meaning of a client's hang-up until it is dropped.
pub struct Watch {
    exchange: Rc<dyn Exchange>,
    before: OnHangup,
}

impl Watch {
    /// For the request of an exchange.
    pub fn new(exchange: Rc<dyn Exchange>, on_hangup: OnHangup) -> Self {
        let before = exchange.on_hangup().replace(on_hangup);
        Self { exchange, before }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.exchange.on_hangup().set(self.before);
    }
}

/// A client during its handshake, for variables in names of certificates, with the session as known so far.
pub struct HandshakeExchange {
    /// The connection's exchange.
    pub exchange: Rc<dyn Exchange>,
    /// The expected session, from the client's hello.
    pub expected: Tls,
}

impl Exchange for HandshakeExchange {
    fn client(&self) -> &Client {
        self.exchange.client()
    }

    fn services(&self) -> &Services {
        self.exchange.services()
    }

    fn local(&self) -> &Address {
        self.exchange.local()
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.exchange.tcp_info()
    }

    fn with_tls(&self, look: &mut dyn FnMut(&Tls)) {
        look(&self.expected);
    }

    fn default_server(&self, current: &Current) -> Option<ServerId> {
        self.exchange.default_server(current)
    }

    fn on_hangup(&self) -> &Cell<OnHangup> {
        self.exchange.on_hangup()
    }

    fn hangup(&self) -> LocalFuture<'_, ()> {
        self.exchange.hangup()
    }

    fn send_interim(&self, head: Interim, timeout: Duration) -> LocalFuture<'_, ()> {
        self.exchange.send_interim(head, timeout)
    }
}

/// The client of the server's own requests, which never disconnects and receives no data.
pub struct NoClient {
    client: Client,
    services: Rc<Services>,
    on_hangup: Cell<OnHangup>,
}

impl NoClient {
    /// A client with these properties.
    pub fn new(client: Client, services: Rc<Services>) -> Rc<Self> {
        Rc::new(Self { client, services, on_hangup: Cell::default() })
    }
}

impl Exchange for NoClient {
    fn client(&self) -> &Client {
        &self.client
    }

    fn services(&self) -> &Services {
        &self.services
    }

    fn local(&self) -> &Address {
        self.client.local_or(|| Address::Unix(Box::default()))
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn with_tls(&self, _: &mut dyn FnMut(&Tls)) {}

    fn default_server(&self, _: &Current) -> Option<ServerId> {
        None
    }

    fn on_hangup(&self) -> &Cell<OnHangup> {
        &self.on_hangup
    }

    fn hangup(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn send_interim(&self, _: Interim, _: Duration) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
