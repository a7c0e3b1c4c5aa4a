//! Recognises clients that speak HTTP/2: by the result of the TLS handshake (RFC 9113 section 3.2), or, on
//! plain connections where it is enabled, by their first bytes (section 3.3): the preface is no request.
//! nginx: `ngx_http_wait_request_handler`, `ngx_http_ssl_handshake_handler`.

use std::rc::Rc;

use nowait_front::tls::Tls;
use nowait_runtime::buf::{RECV_BUF_BYTES, RecvBuf};
use nowait_runtime::now;

use super::connection::Connection;

/// What such a client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether the first bytes of a connection are those of the preface, so far.
pub(super) fn has_begun(connection: &Connection) -> bool {
    let input = connection.input.borrow();
    if connection.client.requests.get() > 0 || !begins(&input) {
        return false;
    }
    let current = connection.common.current();
    connection.virtual_servers(&current).is_some_and(|servers| {
        // With TLS, the handshake decides.
        let plain = servers.ssl.is_none();
        plain && (servers.http2 || current.conf.server(servers.default_server).http2.http2)
    })
}

/// Whether bytes and preface begin alike.
fn begins(bytes: &[u8]) -> bool {
    let len = bytes.len().min(PREFACE.len());
    bytes[..len] == PREFACE[..len]
}

/// Receives the rest of the preface, and serves the connection as HTTP/2.
///
/// # Errors
/// The connection, whose client sends something else after all.
pub(super) async fn switch(connection: Rc<Connection>) -> Result<(), Rc<Connection>> {
    let until = now() + connection.first_timeout();
    while connection.input.borrow().len() < PREFACE.len() {
        let left = until.saturating_duration_since(now());
        let Ok(received) = connection.stream.recv_large(left, RECV_BUF_BYTES).await else {
            return Ok(());
        };
        if received.is_empty() {
            return Ok(());
        }
        let input = RecvBuf::of(&[&connection.input.borrow()[..], &received[..]].concat());
        let fits = begins(&input);
        connection.input.replace(input);
        if !fits {
            return Err(connection);
        }
    }
    pass_on(connection).await;
    Ok(())
}

/// Whether client and server have agreed on HTTP/2.
pub(super) fn is_negotiated(connection: &Connection) -> bool {
    connection.stream.with_layer(|tls: &Tls| tls.session().alpn() == Some(b"h2")) == Some(true)
}

/// Serves the connection as HTTP/2.
pub(super) async fn pass_on(connection: Rc<Connection>) {
    let http2 = connection.common.http2;
    // No request has seen the connection yet.
    if let Some(connection) = Rc::into_inner(connection) {
        http2(connection.into_accepted()).await;
    }
}
