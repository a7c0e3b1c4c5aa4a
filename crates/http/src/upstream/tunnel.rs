//! Another protocol over both connections, after `101 Switching Protocols`. nginx:
//! `ngx_http_upstream_process_upgraded`.
//!
//! The runtime's [`relay`] moves the bytes. If one side closes its direction, that is passed on, and the
//! other direction continues. The tunnel ends when both have closed, or after `read_timeout` without
//! data. Most upstreams that close their direction are gone, so `lingering_timeout` applies then. nginx
//! ends the tunnel when the first side closes.

use nowait_runtime::buf::{Chain, Received};
use nowait_runtime::net::{AfterEnd, Observer, RelayEnd, RelayOptions, Side, Sides, relay};

use super::exchange::Exchange;
use crate::connection::{Connection, Watch};
use crate::log::Level;
use crate::request::Request;
use crate::response::{LocalFuture, Takeover};

/// An upstream connection that is joined to a client's connection.
pub(super) struct Tunnel {
    exchange: Box<Exchange>,
}

/// Counts the bytes sent to the client.
struct Counter<'a>(&'a Request);

impl Observer for Counter<'_> {
    fn sent(&self, to: Side, bytes: usize) {
        if to == Side::Client {
            let sent = &self.0.sent.bytes;
            sent.set(sent.get() + bytes as u64);
        }
    }
}

impl Tunnel {
    pub(super) fn new(exchange: Box<Exchange>, watch: Option<Watch>) -> Self {
        // From here on the client's end of sending is passed to the upstream.
        drop(watch);
        Self { exchange }
    }

    async fn run(mut self, client: &Connection, request: &Request) {
        self.exchange.state.set_action(Some("proxying upgraded connection"));
        let upstream = self.exchange.stream().clone();
        let settings = self.exchange.settings.clone();
        let from_upstream = std::mem::replace(&mut self.exchange.input, Received::empty());
        let first =
            Sides { client: Chain::from(from_upstream), upstream: client.take_input().into() };
        let linger = request.location().client.lingering_timeout.duration();
        let mut options = RelayOptions::new(settings.read_timeout, AfterEnd::Linger(linger));
        options.stuck = Sides {
            client: crate::connection::send_timeout(request),
            upstream: settings.send_timeout,
        };
        let streams = Sides { client: &client.stream, upstream: &*upstream };
        let ended = relay(streams, first, &options, &Counter(request)).await;
        if let RelayEnd::Idle | RelayEnd::Stuck(_) = ended {
            request
                .log(Level::Error, format_args!("upstream timed out (110: Connection timed out)"));
        }
        self.exchange.content = upstream.bytes_received();
        self.exchange.state.set_action(None);
    }
}

impl Takeover for Tunnel {
    fn run<'a>(
        self: Box<Self>,
        client: &'a Connection,
        request: &'a Request,
    ) -> LocalFuture<'a, ()> {
        Box::pin((*self).run(client, request))
    }
}
