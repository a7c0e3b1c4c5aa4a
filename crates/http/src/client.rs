//! The properties of a client's connection that requests may use, independent of the protocol.
//!
//! Made by a front end for each connection, and shared by all of its requests. Has no socket.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_runtime::net::Address;
use nowait_runtime::now;
use nowait_sys::listen::ListenAddress;

use crate::proxy_protocol::ProxyProtocol;

/// Facts about a client's connection.
pub struct Client {
    /// Serial number in this process.
    pub number: u64,
    /// The client's address.
    pub peer: Address,
    /// Address of the listening socket that accepted the connection.
    pub listen: Arc<ListenAddress>,
    /// The time at which it was accepted.
    pub started: Instant,
    /// The header of the PROXY protocol.
    pub proxy_protocol: OnceCell<Box<ProxyProtocol>>,
    /// The local address, once it was needed.
    pub local: OnceCell<Box<Address>>,
    /// Requests so far, the current one included.
    pub requests: Cell<u32>,
    /// Whether it uses TLS.
    pub security: Cell<Security>,
}

/// The TLS state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// None: the listening socket has no `ssl`, or the handshake has not been made yet.
    #[default]
    Plain,
    /// The client sent plain HTTP to a socket with `ssl`.
    PlainOnTls,
    /// The connection uses TLS.
    Tls,
}

impl Client {
    /// A client without a request yet.
    pub fn new(number: u64, peer: Address, listen: Arc<ListenAddress>, started: Instant) -> Self {
        Self {
            number,
            peer,
            listen,
            started,
            proxy_protocol: OnceCell::new(),
            local: OnceCell::new(),
            requests: Cell::new(0),
            security: Cell::default(),
        }
    }

    /// Whether it uses TLS.
    pub fn is_tls(&self) -> bool {
        self.security.get() == Security::Tls
    }

    /// Whether it was accepted longer ago than this.
    pub fn is_older_than(&self, time: Duration) -> bool {
        self.started.checked_add(time).is_some_and(|end| end < now())
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }

    /// The local address; `look_up` finds it, if the listening socket has no definite one.
    pub fn local_or(&self, look_up: impl FnOnce() -> Address) -> &Address {
        self.local.get_or_init(|| match &*self.listen {
            ListenAddress::Inet(address) if !address.ip().is_unspecified() => {
                Box::new(Address::Inet(*address))
            }
            _ => Box::new(look_up()),
        })
    }
}
