//! The beginning of every connection: the header of the PROXY protocol, TLS, and the version of HTTP, which
//! the result of the handshake decides (RFC 9113 section 3.2), or, on plain connections where HTTP/2 is
//! enabled, the first bytes (section 3.3): the preface is no request of HTTP/1.1. nginx:
//! `ngx_http_wait_request_handler`, `ngx_http_ssl_handshake_handler`.
//!
//! ```text
//! accepted, or passed on by `stream`
//!   └ PROXY header ─ first bytes ─┬ TLS handshake ─ ALPN ─┬ Protocol::Http1 → http1::serve
//!                                 └ plain: preface? ──────┴ Protocol::Http2 → http2::serve
//! ```
//!
//! [`handshake`] chooses the server whose certificate and protocols count. HTTP/3 begins elsewhere: ALPN is a part
//! of QUIC's handshake, and `http3` tells its versions apart.
//!
//! A connection that another worker has served comes here, too: its first bytes are its next request.

use std::future::Future;
use std::rc::Rc;

use nowait_front::tls::Tls;
use nowait_runtime::buf::{RECV_BUF_BYTES, RecvBuf};
use nowait_runtime::now;

use crate::connection::Connection;
use crate::handshake::{self, HandshakeResult};
use crate::idle::WaitEnd;
use crate::{http1, http2, migration, proxy_protocol};

/// What clients that speak HTTP/2 send first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the first bytes of a connection lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// HTTP/1.1, or an older version.
    Http1,
    Http2,
    /// TLS, and HTTP/1.1 when the first request comes.
    AwaitsRequest,
    /// None: the connection must be closed.
    Failed,
}

/// Serves a connection until it is closed. A connection without a request keeps this future, hence no
/// `async fn`, which would hold its argument twice.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub(crate) fn serve(connection: Rc<Connection>) -> impl Future<Output = ()> {
    async move {
        if connection.interrupted().is_none()
            && proxy_protocol::is_due(&connection)
            && !Box::pin(proxy_protocol::receive(&connection, connection.first_timeout())).await
        {
            return;
        }
        loop {
            let mut end = connection.wait(connection.first_wait()).await;
            if end == WaitEnd::Leave {
                end = Box::pin(migration::leave(&connection)).await;
            }
            match end {
                WaitEnd::Bytes => {}
                WaitEnd::TimedOut => {
                    reset_timed_out(&connection);
                    return connection.close();
                }
                WaitEnd::Closed => return connection.close(),
                WaitEnd::Leave => return,
            }
            let protocol = match handshake::is_due(&connection) || begins_preface(&connection) {
                true => Box::pin(protocol(&connection)).await,
                false => Protocol::Http1,
            };
            match protocol {
                Protocol::Http1 => return http1::serve(connection).await,
                Protocol::Http2 => return http2::serve(connection).await,
                Protocol::AwaitsRequest => {}
                Protocol::Failed => return,
            }
        }
    }
}

/// `reset_timedout_connection` of the address's default server, for a connection that has had no request.
fn reset_timed_out(connection: &Connection) {
    let current = connection.all().current();
    let resets = connection.virtual_servers(&current).is_some_and(|servers| {
        let root = current.conf.server(servers.default_server).root;
        current.conf.location(root).client.reset_timedout_connection
    });
    if resets && connection.client.requests.get() == 0 {
        // A socket that can't be set is closed already.
        let _ = connection.stream.set_reset_on_close();
    }
}

/// Makes the handshake, or receives the rest of the preface.
async fn protocol(connection: &Rc<Connection>) -> Protocol {
    if !handshake::is_due(connection) {
        return receive_preface(connection).await;
    }
    match handshake::handshake(connection, connection.first_timeout()).await {
        HandshakeResult::Encrypted if has_negotiated_http2(connection) => Protocol::Http2,
        HandshakeResult::Encrypted => Protocol::AwaitsRequest,
        HandshakeResult::Plain => Protocol::Http1,
        HandshakeResult::Failed => Protocol::Failed,
    }
}

fn has_negotiated_http2(connection: &Connection) -> bool {
    connection.stream.with_layer(|tls: &Tls| tls.session().alpn() == Some(b"h2")) == Some(true)
}

/// Whether the first bytes of a connection are those of the preface, so far.
fn begins_preface(connection: &Connection) -> bool {
    if connection.client.requests.get() > 0 || !is_preface(&connection.input.borrow()) {
        return false;
    }
    let current = connection.all().current();
    connection.virtual_servers(&current).is_some_and(|servers| {
        // With TLS, the handshake decides.
        let plain = servers.ssl.is_none();
        plain && (servers.http2 || current.conf.server(servers.default_server).http2.http2)
    })
}

/// Whether bytes and preface begin alike.
fn is_preface(bytes: &[u8]) -> bool {
    let len = bytes.len().min(PREFACE.len());
    bytes[..len] == PREFACE[..len]
}

/// Receives the rest of the preface. A client may send something else after all.
async fn receive_preface(connection: &Connection) -> Protocol {
    let until = now() + connection.first_timeout();
    while connection.input.borrow().len() < PREFACE.len() {
        let left = until.saturating_duration_since(now());
        let Ok(received) = connection.stream.recv_large(left, RECV_BUF_BYTES).await else {
            return Protocol::Failed;
        };
        if received.is_empty() {
            return Protocol::Failed;
        }
        let input = RecvBuf::of(&[&connection.input.borrow()[..], &received[..]].concat());
        let fits = is_preface(&input);
        connection.input.replace(input);
        if !fits {
            return Protocol::Http1;
        }
    }
    Protocol::Http2
}
