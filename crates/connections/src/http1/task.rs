//! The task of a connection, which serves it from one request to the next.
//!
//! While a connection is idle it holds no buffers and no request: the part that serves requests is a
//! separate boxed future ([`active`]), created when bytes have arrived.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use nowait_h1::Limits;
use nowait_http::conf::ServerId;
use nowait_http::conf::client::HeadConf;
use nowait_http::request::Request;
use nowait_runtime::buf::{OutBuf, RecvBuf};
use nowait_runtime::pool::metered;
use nowait_runtime::{now, spawn, yield_now};

use super::common::Common;
use super::connection::Connection;
use super::leaving::Moved;
use super::serving::Next;
use super::waiting::{Received, Wait};
use super::{leaving, preface, proxied, serving};
use crate::connections::Connections;
use crate::secured::{self, Handshaken};

/// After this time without a request a connection releases the memory for serving requests.
const BUSY: Duration = Duration::from_secs(1);

/// Most connections of a worker that keep this memory meanwhile; further ones release it at once.
const BUSY_MAX: usize = 256;

/// Pipelined requests that are served before others get their turn.
const PIPELINED_MAX: usize = 32;

/// Serves a connection until it is closed. An idle connection keeps this future, hence no `async
/// fn`, which would hold its argument twice.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub fn serve(mut connection: Rc<Connection>) -> impl Future<Output = ()> {
    async move {
        if connection.rest().is_none()
            && proxied::is_proxied(&connection)
            && !Box::pin(proxied::receive(&connection, connection.first_timeout())).await
        {
            return;
        }
        let mut wait = connection.first_wait();
        let next = loop {
            let mut received = connection.wait(wait).await;
            if received == Received::Leave {
                received = match Box::pin(leaving::leave(&connection)).await {
                    Ok(received) => received,
                    Err(moved) => {
                        arrive(&connection.common, *moved);
                        return;
                    }
                };
            }
            match received {
                Received::Bytes if preface::has_begun(&connection) => {
                    match Box::pin(preface::switch(connection)).await {
                        Ok(()) => return,
                        Err(stays) => connection = stays,
                    }
                }
                Received::Bytes => {}
                Received::TimedOut if connection.client.requests.get() == 0 => {
                    break if resets_timed_out(&connection) { Next::Reset } else { Next::Close };
                }
                Received::Leave => return,
                Received::TimedOut | Received::Closed => break Next::Close,
            }
            if secured::is_due(&connection) {
                match Box::pin(secured::handshake(
                    &connection,
                    connection.clone(),
                    connection.first_timeout(),
                ))
                .await
                {
                    Handshaken::Encrypted if preface::is_negotiated(&connection) => {
                        return Box::pin(preface::pass_on(connection)).await;
                    }
                    Handshaken::Encrypted => {
                        wait = connection.first_wait();
                        continue;
                    }
                    Handshaken::Plain => {}
                    Handshaken::Failed => break Next::Close,
                }
            }
            match Box::pin(active(&connection)).await {
                (Next::Idle, idle) => wait = idle,
                (next, _) => break next,
            }
        };
        match next {
            Next::Linger { time, timeout } => Box::pin(connection.linger(time, timeout)).await,
            // A socket that can't be set is closed already.
            Next::Reset => drop(connection.stream.set_reset_on_close()),
            Next::Idle | Next::Close => {}
        }
        if Rc::strong_count(&connection) > 1 || connection.shared.get() {
            // A background subrequest continues; the client must not wait for it.
            let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Continues to serve a connection on this worker.
pub fn arrive(common: &Rc<Common>, moved: Moved) {
    // A socket that can't be watched is lost; there is nobody to report it to.
    if let Ok(connection) = Connection::of_moved(common.clone(), moved) {
        drop(spawn(serve(connection)));
    }
}

fn resets_timed_out(connection: &Connection) -> bool {
    let current = connection.common.current();
    connection.virtual_servers(&current).is_some_and(|servers| {
        let root = current.conf.server(servers.default_server).root;
        current.conf.location(root).client.reset_timedout_connection
    })
}

/// Limits of a head, from the settings of the address's default server.
fn limits(head: &HeadConf) -> Limits {
    let bytes = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
    Limits {
        header_buffer: bytes(head.client_header_buffer_size.0),
        large_buffers: bytes(head.large_client_header_buffers.count as u64),
        large_buffer: bytes(head.large_client_header_buffers.size.0),
        headers_max: u16::try_from(head.max_headers).unwrap_or(u16::MAX),
        ignore_invalid_headers: head.ignore_invalid_headers,
        underscores_in_headers: head.underscores_in_headers,
        control_characters: false,
        icy: false,
    }
}

/// Drops the protocol state when a connection becomes idle.
struct Forget<'a>(&'a Connection);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.h1.replace(None);
    }
}

/// A request between two uses on a connection. When the connection no longer needs it, its memory
/// becomes a spare of the worker.
struct Kept<'a>(&'a Connections, Option<Box<Request>>);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.1.take() {
            self.0.keep_spare(request);
        }
    }
}

/// Serves requests that follow each other closely; returns how long to wait for more.
async fn active(connection: &Rc<Connection>) -> (Next, Wait) {
    let mut out = OutBuf::new();
    let mut pipelined = false;
    // The memory of a request is reused for the next one.
    let mut kept = Kept(&connection.common, None);
    let mut default_server = ServerId(0);
    let mut served = 0;
    let _idle = Forget(connection);
    loop {
        let current = connection.common.current();
        let known = kept.1.as_ref().filter(|request| Rc::ptr_eq(&request.current, &current));
        let server = match known {
            Some(_) => default_server,
            None => match connection.virtual_servers(&current) {
                Some(servers) => {
                    let server = secured::server_of(connection, servers);
                    connection.h1().set_limits(limits(&current.conf.server(server).head));
                    server
                }
                None => {
                    return (Next::Close, Wait { timeout: Duration::ZERO, keep: Duration::ZERO });
                }
            },
        };
        default_server = server;
        let requests = &connection.client.requests;
        requests.set(requests.get().saturating_add(1));
        let mut request = match kept.1.take() {
            Some(mut request) => {
                Request::renew(&mut request, current, server, now());
                request
            }
            None => connection.common.first_request(connection.clone(), current, server),
        };
        request.persistence.pipelined = pipelined;
        let meter = request.spent.clone();
        let next = metered(meter, serving::one(connection, &mut request, &mut out)).await;
        request.end();
        let client = &request.location().client;
        let wait = Wait {
            timeout: client.keepalive_timeout.timeout.duration(),
            keep: client.keepalive_min_timeout.duration(),
        };
        kept.1 = Some(request);
        if next != Next::Idle {
            return (next, wait);
        }
        pipelined = !connection.input.borrow().is_empty();
        if pipelined {
            served += 1;
            if served == PIPELINED_MAX {
                served = 0;
                yield_now().await;
            }
            continue;
        }
        // The buffer goes back to the runtime: idle connections hold none.
        drop(connection.input.replace(RecvBuf::empty()));
        // A busy connection soon sends the next request; this future is kept for it.
        let Some(_busy) = connection.common.enter_busy(BUSY_MAX) else {
            return (Next::Idle, wait);
        };
        let Wait { timeout, keep } = wait;
        match connection.wait(Wait { timeout: timeout.min(BUSY), keep }).await {
            Received::Bytes => {}
            Received::TimedOut if timeout > BUSY => {
                let keep = keep.saturating_sub(BUSY);
                return (Next::Idle, Wait { timeout: timeout - BUSY, keep });
            }
            Received::Leave => {
                let Wait { timeout: rest, keep } = connection.first_wait();
                return (Next::Idle, Wait { timeout: rest + timeout.saturating_sub(BUSY), keep });
            }
            Received::TimedOut | Received::Closed => return (Next::Close, wait),
        }
    }
}

#[cfg(test)]
mod tests {
    fn size<A, F>(_: fn(A) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size(super::serve) <= 56, "the future of a connection: {}", size(super::serve));
        let facts = std::mem::size_of::<crate::http1::Connection>();
        assert!(facts <= 224, "its facts: {facts}");
    }
}
