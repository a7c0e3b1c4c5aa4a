//! A connection on its way from one listening socket to another: `pass` of `stream`. nginx:
//! `ngx_stream_pass_module`.
//!
//! The passing protocol finds the destination through [`ListenerDirectory`], where the connection starts
//! over as if it had just been accepted.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use nowait_runtime::net::{Address, Stream};
use nowait_sys::listen::ListenAddress;

use crate::proxy_protocol::ProxyProtocol;

/// Maximum number of times a connection can be passed on. nginx: `NGX_STREAM_PASS_MAX_PASSES`.
pub const PASSES_MAX: u8 = 10;

/// A connection that is handed over.
pub struct Handover {
    /// The connection.
    pub stream: Stream,
    /// The client's address.
    pub peer: Address,
    /// The local address from now on.
    pub local: Address,
    /// The listening socket from now on.
    pub listen: Arc<ListenAddress>,
    /// Data received but not yet used.
    pub input: Vec<u8>,
    /// The PROXY protocol header.
    pub proxy_protocol: Option<Box<ProxyProtocol>>,
    /// How many times it was passed on, including this one.
    pub passes: u8,
}

/// The listening sockets of all protocols, on one worker.
pub trait ListenerDirectory {
    /// The listening socket of an address, if there is one.
    fn find(&self, address: &Address) -> Option<Arc<ListenAddress>>;

    /// Serves a connection as if it had been accepted there.
    fn enter(&self, connection: Handover);
}

/// Whether connections to an address come to this socket.
pub fn receives(listen: &ListenAddress, address: &Address) -> bool {
    match (listen, address) {
        (ListenAddress::Inet(listen), Address::Inet(address)) => {
            let wildcard = listen.ip().is_unspecified()
                && listen.is_ipv4() == address.is_ipv4()
                && listen.port() == address.port();
            listen == address || wildcard
        }
        (ListenAddress::Unix(path), Address::Unix(address)) => {
            path.as_os_str().as_bytes() == &**address
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_addresses() {
        let listen = |text: &str| ListenAddress::Inet(text.parse().unwrap());
        let address = |text: &str| Address::Inet(text.parse().unwrap());
        assert!(receives(&listen("127.0.0.1:80"), &address("127.0.0.1:80")));
        assert!(receives(&listen("0.0.0.0:80"), &address("127.0.0.1:80")));
        assert!(!receives(&listen("0.0.0.0:80"), &address("[::1]:80")));
        assert!(!receives(&listen("127.0.0.1:80"), &address("127.0.0.1:81")));
        let unix = ListenAddress::Unix("/run/x".into());
        assert!(receives(&unix, &Address::Unix(b"/run/x".as_slice().into())));
        assert!(!receives(&unix, &address("127.0.0.1:80")));
    }
}
