//! Another protocol over both connections, after `101 Switching Protocols`, or over a stream of HTTP/2 in
//! place of either. nginx:
//! `ngx_http_upstream_process_upgraded`.
//!
//! The runtime's [`relay`] moves the bytes. If one side closes its direction, that is passed on, and the
//! other direction continues. The tunnel ends when both have closed, or after `read_timeout` without
//! data. Most upstreams that close their direction are gone, so `lingering_timeout` applies then. nginx
//! ends the tunnel when the first side closes.

use std::cell::Cell;

use nowait_http::exchange::Watch;
use nowait_http::response::{BodyError, Duplex, LocalFuture, Takeover};
use nowait_runtime::buf::{Chain, ReceivedBuf};
use nowait_runtime::net::{AfterEnd, Observer, RelayEnd, RelayOptions, Side, Sides, relay};

use super::exchange::UpstreamExchange;

/// An upstream connection that is joined to a client's connection.
pub(super) struct Tunnel {
    exchange: Box<UpstreamExchange>,
}

/// Counts the bytes sent to the client.
struct Counter<'a>(&'a Cell<u64>);

impl Observer for Counter<'_> {
    fn sent(&self, to: Side, bytes: usize) {
        if to == Side::Client {
            self.0.set(self.0.get() + bytes as u64);
        }
    }
}

impl Tunnel {
    pub(super) fn new(exchange: Box<UpstreamExchange>, watch: Option<Watch>) -> Self {
        // From here on, the end of the client's data is passed to the upstream.
        drop(watch);
        Self { exchange }
    }

    async fn run(mut self, client: Duplex<'_>) -> Result<(), BodyError> {
        self.exchange.state.set_action(Some("proxying upgraded connection"));
        let pipe = self.exchange.pipe().clone();
        let settings = self.exchange.settings.clone();
        let from_upstream = std::mem::replace(&mut self.exchange.input, ReceivedBuf::empty());
        let first = Sides { client: Chain::from(from_upstream), upstream: client.received.into() };
        let linger = AfterEnd::Linger(client.lingering_timeout);
        let mut options = RelayOptions::new(settings.read_timeout, linger);
        options.stuck = Sides { client: client.send_timeout, upstream: settings.send_timeout };
        let ends = Sides { client: client.end, upstream: pipe.end() };
        let ended = relay(ends, first, &options, &Counter(client.sent)).await;
        self.exchange.content = pipe.bytes_received();
        if let RelayEnd::Idle | RelayEnd::Stuck(_) = ended {
            let text = "upstream timed out (110: Connection timed out)";
            return Err(BodyError::Upstream(text.to_owned()));
        }
        self.exchange.state.set_action(None);
        Ok(())
    }
}

impl Takeover for Tunnel {
    fn run<'a>(self: Box<Self>, client: Duplex<'a>) -> LocalFuture<'a, Result<(), BodyError>> {
        Box::pin((*self).run(client))
    }
}
