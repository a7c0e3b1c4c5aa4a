//! Receives the header of the PROXY protocol before the first request of a connection.
//!
//! Called where `listen` has `proxy_protocol`; the format is in [`nowait_front::proxy_protocol`].

use std::rc::Rc;
use std::time::Duration;

use nowait_front::proxy_protocol;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::now;

use crate::connection::Connection;

/// Whether this connection begins with a PROXY protocol header.
pub(crate) fn is_due(connection: &Connection) -> bool {
    let current = connection.all().current();
    connection.virtual_servers(&current).is_some_and(|servers| servers.proxy_protocol)
}

/// Receives the PROXY protocol header. False: the connection must be closed.
pub(crate) async fn receive(connection: &Rc<Connection>, timeout: Duration) -> bool {
    let until = now() + timeout;
    let mut bytes = Vec::new();
    // A connection that was passed on may come with received bytes.
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
                // The header was incomplete before: it ends in the bytes just received.
                received.advance(length.saturating_sub(before));
                connection.input.replace(received);
                if let Some(header) = header {
                    // Only this code fills the cell, once.
                    let _ = connection.client.proxy_protocol.set(Box::new(header));
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

/// Logs the bytes received in place of a PROXY protocol header.
fn broken_header(connection: &Rc<Connection>, bytes: &[u8]) {
    /// Number of bytes shown.
    const SHOWN: usize = 107;
    let current = connection.all().current();
    let Some(servers) = connection.virtual_servers(&current) else { return };
    let server = servers.default_server;
    let request = Request::new(connection.clone(), current.clone(), server, now());
    let shown = bytes[..bytes.len().min(SHOWN)].escape_ascii();
    request
        .log(Level::Error, format_args!("broken header: \"{shown}\" while reading PROXY protocol"));
}
