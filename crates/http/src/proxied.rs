//! Receives the header of the PROXY protocol before the first request of a connection.
//!
//! Called by the connection task where `listen` has `proxy_protocol`; the format is in
//! [`crate::proxy_protocol`].

use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::buf::RecvBuf;
use nowait_runtime::now;

use crate::connection::Connection;
use crate::log::Level;
use crate::proxy_protocol;
use crate::request::Request;

/// Whether a proxy speaks first on this connection.
pub(crate) fn is_proxied(connection: &Connection) -> bool {
    let current = connection.worker.current();
    connection.virtual_servers(&current).is_some_and(|servers| servers.proxy_protocol)
}

/// Receives what the proxy says first. False: the connection can't go on.
pub(crate) async fn receive(connection: &Rc<Connection>, timeout: Duration) -> bool {
    let until = now() + timeout;
    let mut bytes = Vec::new();
    // A connection that was passed on may have brought something along.
    let mut brought = Some(connection.input.replace(RecvBuf::empty()));
    loop {
        let left = until.saturating_duration_since(now());
        let mut received = match brought.take().filter(|input| !input.is_empty()) {
            Some(input) => input,
            None => match connection.stream.recv(left).await {
                Ok(received) if !received.is_empty() => received,
                _ => return false,
            },
        };
        let before = bytes.len();
        bytes.extend_from_slice(&received);
        match proxy_protocol::parse(&bytes) {
            Ok(Some((header, length))) => {
                // It was not whole before: it ends in what has just come.
                received.advance(length.saturating_sub(before));
                connection.input.replace(received);
                if let Some(header) = header {
                    // The cell is filled here only, once.
                    let _ = connection.proxy_protocol.set(Box::new(header));
                }
                return true;
            }
            Ok(None) if bytes.len() < proxy_protocol::HEADER_BYTES_MAX => {}
            Ok(None) | Err(proxy_protocol::Broken) => {
                broken_header(connection, &bytes);
                return false;
            }
        }
    }
}

/// Logs what came in place of a header of the PROXY protocol.
fn broken_header(connection: &Rc<Connection>, bytes: &[u8]) {
    /// So much of it is shown.
    const SHOWN: usize = 107;
    let current = connection.worker.current();
    let Some(servers) = connection.virtual_servers(&current) else { return };
    let server = servers.default_server;
    let request = Request::new(connection.clone(), current.clone(), server, now());
    let shown = bytes[..bytes.len().min(SHOWN)].escape_ascii();
    request
        .log(Level::Error, format_args!("broken header: \"{shown}\" while reading PROXY protocol"));
}
