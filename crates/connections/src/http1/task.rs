//! The task of an HTTP/1.1 connection, which serves its requests one after the other.
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
use nowait_runtime::{now, yield_now};

use super::connection::Http1Connection;
use super::serving::{self, AfterRequest};
use crate::connection::Connection;
use crate::connections::Connections;
use crate::idle::{IdleTimeouts, WaitEnd};
use crate::{handshake, migration};

/// After this time without a request a connection releases the memory for serving requests.
const BUSY: Duration = Duration::from_secs(1);

/// Maximum number of connections of a worker that keep this memory meanwhile; further ones release it at once.
const BUSY_MAX: usize = 256;

/// Pipelined requests that are served before others get their turn.
const PIPELINED_MAX: usize = 32;

/// Serves a connection that has received bytes, until it is closed. An idle connection keeps this future,
/// hence no `async fn`, which would hold its argument twice.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub fn serve(connection: Rc<Connection>) -> impl Future<Output = ()> {
    async move {
        let next = loop {
            let wait = match Box::pin(active(&connection)).await {
                (AfterRequest::Idle, wait) => wait,
                (next, _) => break next,
            };
            let mut end = connection.wait(wait).await;
            if end == WaitEnd::Leave {
                end = Box::pin(migration::leave(&connection)).await;
            }
            match end {
                WaitEnd::Bytes => {}
                WaitEnd::Leave => return,
                WaitEnd::TimedOut | WaitEnd::Closed => break AfterRequest::Close,
            }
        };
        match next {
            AfterRequest::Linger { time, timeout } => {
                Box::pin(connection.linger(time, timeout)).await
            }
            // A socket that can't be set is closed already.
            AfterRequest::Reset => drop(connection.stream.set_reset_on_close()),
            AfterRequest::Idle | AfterRequest::Close => {}
        }
        connection.close();
    }
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

/// A request between two uses on a connection. When the connection no longer needs it, its memory
/// becomes a spare of the worker.
struct RequestMemory<'a>(&'a Connections, Option<Box<Request>>);

impl Drop for RequestMemory<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.1.take() {
            self.0.keep_spare(request);
        }
    }
}

/// Serves requests that follow each other closely; returns how long to wait for more.
async fn active(base: &Rc<Connection>) -> (AfterRequest, IdleTimeouts) {
    let connection = &Http1Connection::new(base.clone());
    let mut out = OutBuf::new();
    let mut pipelined = false;
    // The memory of a request is reused for the next one.
    let mut memory = RequestMemory(connection.all(), None);
    let mut default_server = ServerId(0);
    let mut served = 0;
    loop {
        let current = connection.all().current();
        let known = memory.1.as_ref().filter(|request| Rc::ptr_eq(request.current(), &current));
        let server = match known {
            Some(_) => default_server,
            None => match connection.virtual_servers(&current) {
                Some(servers) => {
                    let server = handshake::server_of(connection, servers);
                    connection.h1().set_limits(limits(&current.conf.server(server).head));
                    server
                }
                None => {
                    return (
                        AfterRequest::Close,
                        IdleTimeouts { timeout: Duration::ZERO, keep: Duration::ZERO },
                    );
                }
            },
        };
        default_server = server;
        let requests = &connection.client.requests;
        requests.set(requests.get().saturating_add(1));
        let mut request = match memory.1.take() {
            Some(mut request) => {
                Request::renew(&mut request, current, server, now());
                request
            }
            None => connection.all().first_request(connection.clone(), current, server),
        };
        request.set_pipelined(pipelined);
        let meter = request.spent().clone();
        let next = metered(meter, serving::one(connection, &mut request, &mut out)).await;
        request.end();
        let client = &request.location().client;
        let wait = IdleTimeouts {
            timeout: client.keepalive_timeout.timeout.duration(),
            keep: client.keepalive_min_timeout.duration(),
        };
        let is_served = connection.is_still_served(request.current());
        memory.1 = Some(request);
        if next != AfterRequest::Idle {
            return (next, wait);
        }
        pipelined = !connection.input.borrow().is_empty();
        // A reload during the response has removed the address: the next request would get no response.
        if !is_served && !pipelined {
            return (AfterRequest::Close, wait);
        }
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
        let Some(_busy) = connection.all().enter_busy(BUSY_MAX) else {
            return (AfterRequest::Idle, wait);
        };
        let IdleTimeouts { timeout, keep } = wait;
        match connection.wait(IdleTimeouts { timeout: timeout.min(BUSY), keep }).await {
            WaitEnd::Bytes => {}
            WaitEnd::TimedOut if timeout > BUSY => {
                let keep = keep.saturating_sub(BUSY);
                return (AfterRequest::Idle, IdleTimeouts { timeout: timeout - BUSY, keep });
            }
            WaitEnd::Leave => {
                let IdleTimeouts { timeout: rest, keep } = connection.first_wait();
                return (
                    AfterRequest::Idle,
                    IdleTimeouts { timeout: rest + timeout.saturating_sub(BUSY), keep },
                );
            }
            WaitEnd::TimedOut | WaitEnd::Closed => return (AfterRequest::Close, wait),
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
        let first = size(crate::start::serve);
        assert!(first <= 64, "the future of a connection without a request: {first}");
        let facts = std::mem::size_of::<crate::connection::Connection>();
        assert!(facts <= 208, "its facts: {facts}");
    }
}
