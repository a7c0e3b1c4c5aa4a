//! Probes of servers: one request to one server, outside of balancing, for health checks.
//!
//! A backend stores its [`Probing`] in the settings of its locations. A [`Prober`] sends requests with the
//! engine's exchange, and keeps its connection if configured.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_front::tls::upstream::{ConnectFailure, HandshakeParams};
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::upstream_state::{LogUri, UpstreamState};
use nowait_message::ResponseHead;
use nowait_runtime::buf::ReceivedBuf;
use nowait_runtime::net::{Address, ConnectError};
use nowait_runtime::now;
use nowait_upstream::IdleConnection;

use super::connect::{self, ConnectParams, ConnectionError, Link, Reuse};
use super::exchange::{More, ReceiveFault, UpstreamExchange};
use super::receive::{self, HeadFault};
use super::send::{self, SendFault};
use super::{CodecFactory, Fault, Settings, UpstreamRequest, UpstreamVariation};

/// The interface of a backend for probes.
pub trait Probing: Send + Sync {
    /// The engine's settings.
    fn settings(&self) -> &Arc<Settings>;

    /// Local address of connections, and whether this machine may lack it.
    fn bind(&self, request: &Request) -> Option<(SocketAddr, bool)>;

    /// The TLS parameters of connections, if any.
    fn tls(&self, request: &Request) -> Option<Box<HandshakeParams>>;

    /// Whether the protocol is gRPC, so that servers can report their health.
    fn is_grpc(&self) -> bool;

    /// The protocol.
    fn codecs(&self) -> &'static dyn CodecFactory;
}

/// That of a location whose content passes requests to servers.
pub static PROBING: Key<Box<dyn Probing>> = Key::new();

/// The reason why a probe has no complete response.
#[derive(Debug)]
pub enum ProbeFault {
    /// The server can't be reached.
    Connect(ConnectError),
    /// There is no session with the server.
    Tls(ConnectFailure),
    /// The connection failed while the request was sent.
    Send(std::io::Error),
    /// The connection failed while the response was received.
    Receive(std::io::Error),
    /// The response violates the protocol, or is not complete.
    Protocol(Fault),
    /// The request can't be made; the status.
    Ours(u16),
}

/// Sends probes to one server.
#[derive(Default)]
pub struct Prober {
    /// The connection kept from the last probe.
    kept: Option<Box<IdleConnection>>,
}

/// A probe whose response's head has arrived. Dropping it closes the connection.
pub struct Probed {
    /// The head.
    pub head: Rc<ResponseHead>,
    exchange: UpstreamExchange,
    /// The place where the exchange stores its connection.
    slot: connect::Slot,
}

impl Prober {
    /// Requests this URI with this method, on the kept connection unless it was opened more than
    /// `keepalive_time` ago. `request`: at the content of a location that passes requests on. If the kept
    /// connection turns out to have ended, a new one is opened.
    ///
    /// # Errors
    /// [`ProbeFault`]
    pub async fn probe(
        &mut self,
        request: &mut Request,
        address: &Address,
        (method, uri): (&'static str, Bytes),
        keepalive_time: Duration,
    ) -> Result<Probed, ProbeFault> {
        let current = request.current().clone();
        let location = current.conf.location(request.location_id());
        let probing = location.settings.get(&PROBING).ok_or(ProbeFault::Ours(500))?;
        let wanted = UpstreamVariation { method: Some(method), ..UpstreamVariation::default() };
        let order = UpstreamRequest { uri: LogUri::Text(uri), wanted };
        let is_fresh = |opened: Instant| now().saturating_duration_since(opened) < keepalive_time;
        if let Some(kept) = self.kept.take().filter(|kept| is_fresh(kept.opened)) {
            let link = Link::of_probe(kept, true);
            match exchange(request, &**probing, link, &order).await {
                // The server may have closed the connection meanwhile, which is not a failure.
                Err(ProbeFault::Send(_) | ProbeFault::Receive(_) | ProbeFault::Protocol(_)) => {}
                result => return result,
            }
        }
        let connection = open(request, &**probing, address).await?;
        let link = match probing.settings().shares_connections {
            true => Link::of_probe_alone(&connection, probing.settings()),
            false => Link::of_probe(connection, false),
        };
        exchange(request, &**probing, link, &order).await
    }

    /// Opens a connection to the server, with its TLS session if it has one, and closes it.
    ///
    /// # Errors
    /// [`ProbeFault`]
    pub async fn connect(request: &Request, address: &Address) -> Result<(), ProbeFault> {
        let current = request.current().clone();
        let location = current.conf.location(request.location_id());
        let probing = location.settings.get(&PROBING).ok_or(ProbeFault::Ours(500))?;
        open(request, &**probing, address).await.map(drop)
    }

    /// Keeps the connection for the next probe, if the response is complete and allows that.
    pub fn keep(&mut self, probed: Probed) {
        self.kept = probed.slot.take();
    }
}

/// Opens a connection.
async fn open(
    request: &Request,
    probing: &dyn Probing,
    address: &Address,
) -> Result<Box<IdleConnection>, ProbeFault> {
    let bind = probing.bind(request);
    let bind = bind.map(|(address, transparent)| (Address::Inet(address), transparent));
    let tls = probing.tls(request);
    let how = ConnectParams {
        tunnels: false,
        bind: bind.as_ref(),
        tls: tls.as_deref(),
        settings: probing.settings(),
        reuse: Reuse::Any,
        state: &UpstreamState::default(),
    };
    let opened = connect::open(request, address, &how).await;
    opened.map_err(|error| match error {
        ConnectionError::Failed(error) | ConnectionError::Ours(error) => ProbeFault::Connect(error),
        ConnectionError::Tls(failure) => ProbeFault::Tls(failure),
        ConnectionError::NoHttp2 | ConnectionError::NoTunnels | ConnectionError::Overflow => {
            let text = "upstream did not select \"h2\" by ALPN";
            ProbeFault::Protocol(Fault::Malformed(text.into()))
        }
    })
}

/// Sends a request and receives the head of its response.
async fn exchange(
    request: &mut Request,
    probing: &dyn Probing,
    (link, slot): (Link, connect::Slot),
    order: &UpstreamRequest,
) -> Result<Probed, ProbeFault> {
    let state = Rc::new(UpstreamState::default());
    let began = (state.begin_try(None), now());
    let codec = probing.codecs().codec(request, link.pipe.lane());
    let settings = probing.settings().clone();
    let mut exchange = UpstreamExchange::new(link, codec, settings, state, began);
    send::request(request, order, &mut exchange).await.map_err(|fault| match fault {
        SendFault::Upstream(error) => ProbeFault::Send(error),
        SendFault::Ours(status) => ProbeFault::Ours(status),
    })?;
    let head = receive::head(request, &mut exchange).await.map_err(|fault| match fault {
        HeadFault::Receive(fault) => received(fault),
        HeadFault::Protocol(fault) => ProbeFault::Protocol(fault),
        HeadFault::Closed => ProbeFault::Protocol(Fault::PrematureClose),
    })?;
    exchange.head_received(head.status);
    Ok(Probed { head, exchange, slot })
}

fn received(fault: ReceiveFault) -> ProbeFault {
    match fault {
        ReceiveFault::Network(error) => ProbeFault::Receive(error),
        // A probe has no content.
        ReceiveFault::Client(_) | ReceiveFault::Ours(_) => ProbeFault::Ours(500),
    }
}

impl Probed {
    /// Makes the response available to `$upstream_…` variables.
    pub fn tell_variables(&self, request: &mut Request) {
        let state = self.exchange.state.clone();
        state.set_head(Some(self.head.clone()));
        state.share(request.state_mut());
    }

    /// A trailer, once the body is complete.
    pub fn trailer(&self, name: &[u8]) -> Option<Bytes> {
        let trailers = self.exchange.state.trailers();
        let found = trailers.iter().find(|trailer| trailer.name.eq_ignore_ascii_case(name));
        found.map(|trailer| trailer.value.clone())
    }

    /// The body, up to this many bytes.
    ///
    /// # Errors
    /// [`ProbeFault`]
    pub async fn body(&mut self, most: usize) -> Result<Vec<u8>, ProbeFault> {
        let mut body = Vec::new();
        let mut more = match self.exchange.is_tunnel() {
            true => return Ok(body),
            false => self.exchange.decode(),
        };
        loop {
            let room = most - body.len();
            let input = std::mem::replace(&mut self.exchange.input, ReceivedBuf::empty());
            body.extend_from_slice(&input[..input.len().min(room)]);
            match more {
                More::Complete => return Ok(body),
                More::Broken(fault) => return Err(ProbeFault::Protocol(fault)),
                More::Yes if body.len() == most => return Ok(body),
                More::Yes => {}
            }
            let input = self.exchange.receive(0).await.map_err(received)?;
            more = match input.is_empty() {
                true => self.exchange.eof(),
                false => {
                    self.exchange.input = input;
                    self.exchange.decode()
                }
            };
        }
    }
}
