//! From a request to the head of its response: peers are tried until one answers.
//!
//! Called by protocol modules. What follows the head is [`UpstreamBody`]'s matter.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use nowait_h1::Method;
use nowait_runtime::now;

use super::body::UpstreamBody;
use super::exchange::Exchange;
use super::{Cause, Codec, Content, Fault, Settings, State, Target, UpstreamHead};
use super::{connect, receive, send};
use crate::connection::OnHangup;
use crate::log::Level;
use crate::request::{Request, RequestBody};
use crate::request_body;

/// The response of an upstream.
pub struct Reply {
    /// Its head; [`State::head`] has it, too.
    pub head: Rc<UpstreamHead>,
    /// What follows.
    pub body: UpstreamBody,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// What the client gets.
    pub status: u16,
    /// What the last try came to; `None`: it is not an upstream's fault.
    pub cause: Option<Cause>,
}

/// Sends a request to an upstream, perhaps to one after the other, and receives the head of a
/// response. What went wrong has been logged.
///
/// # Errors
/// [`Failed`]: the status to answer with.
pub async fn run(
    request: &mut Request,
    codec: Box<dyn Codec>,
    settings: &Arc<Settings>,
    target: Target,
) -> Result<Reply, Failed> {
    let state = State::of(request);
    state.set_url(target.scheme, target.uri.clone());
    if settings.request_buffering {
        let read = request_body::read(request).await;
        read.map_err(|status| Failed { status, cause: None })?;
    }
    let on_hangup =
        if settings.ignore_client_abort { OnHangup::Ignore } else { OnHangup::EndAtOnce };
    let connection = request.connection.clone();
    let watch = connection.watch(on_hangup);
    let run = Run { request, settings, target, state, codec: Some(codec), started: now() };
    let mut reply = run.tries().await?;
    reply.body.keep(watch);
    Ok(reply)
}

impl State {
    /// The state of a request, made when it is first needed.
    pub fn of(request: &mut Request) -> Rc<State> {
        request.upstream.get_or_insert_default().clone()
    }
}

/// A request on its way to upstreams.
struct Run<'a> {
    request: &'a mut Request,
    settings: &'a Arc<Settings>,
    target: Target,
    state: Rc<State>,
    /// Not there while a try has it.
    codec: Option<Box<dyn Codec>>,
    started: Instant,
}

/// How a try failed.
pub(super) enum Miss {
    /// The upstream's fault.
    Upstream(Cause),
    /// Ours or the client's: there is no sense in another try.
    Final(u16),
}

/// A try that failed.
struct Missed {
    miss: Miss,
    codec: Box<dyn Codec>,
    /// Something was sent.
    sent: bool,
}

impl Run<'_> {
    async fn tries(mut self) -> Result<Reply, Failed> {
        loop {
            let Missed { miss, codec, sent } = match self.attempt().await {
                Ok(reply) => return Ok(reply),
                Err(missed) => missed,
            };
            let cause = match miss {
                Miss::Upstream(cause) => cause,
                Miss::Final(status) => return Err(Failed { status, cause: None }),
            };
            self.codec = Some(codec);
            if !self.may_try_again(cause, sent) {
                return Err(Failed { status: cause.status(), cause: Some(cause) });
            }
        }
    }

    /// Whether another peer may be asked. nginx: `ngx_http_upstream_next`.
    fn may_try_again(&self, cause: Cause, sent: bool) -> bool {
        let _ = (self.started, is_non_idempotent(self.request.method), cause, sent);
        false
    }

    async fn attempt(&mut self) -> Result<Reply, Missed> {
        let codec = self.codec.take().expect("given back after each failed try");
        self.state.set_action(Some("connecting to upstream"));
        let number = self.state.begin_try(Some(self.target.name.clone()));
        let began = now();
        let stream = match connect::connect(&self.target, self.settings).await {
            Ok(stream) => stream,
            Err(error) => {
                let cause = self.network_error("connect() failed", &error);
                self.state.update(number, |one| {
                    one.status = cause.status();
                    one.response = Some(now().saturating_duration_since(began));
                });
                return Err(Missed { miss: Miss::Upstream(cause), codec, sent: false });
            }
        };
        let mut exchange = Exchange::new(
            stream,
            codec,
            self.settings.clone(),
            self.state.clone(),
            self.request.connection.clone(),
            (number, began),
        );
        exchange.connected();
        match self.exchange(&mut exchange).await {
            Ok(head) => {
                let head = Rc::new(head);
                self.state.set_head(Some(head.clone()));
                exchange.head_received(head.status);
                let body = UpstreamBody::new(exchange, self.target.limit_rate, self.request.io());
                Ok(Reply { head, body })
            }
            Err(miss) => {
                if let Miss::Upstream(cause) = miss {
                    exchange.failed(cause);
                }
                let sent = exchange.bytes_sent() > 0;
                Err(Missed { miss, codec: exchange.into_codec(), sent })
            }
        }
    }

    /// Sends the request and receives a head.
    async fn exchange(&mut self, exchange: &mut Exchange) -> Result<UpstreamHead, Miss> {
        self.state.set_action(Some("sending request to upstream"));
        let sent = send::request(self.request, exchange).await;
        sent.map_err(|error| self.send_miss(error))?;
        self.state.set_action(Some("reading response header from upstream"));
        let received = receive::head(self.request, exchange).await;
        received.map_err(|error| self.receive_miss(&error))
    }

    fn send_miss(&self, error: send::SendFault) -> Miss {
        match error {
            send::SendFault::Upstream(error) => {
                Miss::Upstream(self.network_error("send() failed", &error))
            }
            send::SendFault::Refused(status) => Miss::Final(status),
        }
    }

    fn receive_miss(&self, error: &receive::ReceiveFault) -> Miss {
        match error {
            receive::ReceiveFault::Network(error) => {
                Miss::Upstream(self.network_error("recv() failed", error))
            }
            receive::ReceiveFault::Protocol(fault) => {
                self.request.log(Level::Error, format_args!("{fault}"));
                Miss::Upstream(match fault {
                    Fault::PrematureClose => Cause::Error,
                    Fault::Malformed(_) | Fault::HeadTooBig => Cause::InvalidHeader,
                })
            }
        }
    }

    /// Logs an error of the network.
    fn network_error(&self, what: &str, error: &io::Error) -> Cause {
        if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
            self.request
                .log(Level::Error, format_args!("upstream timed out (110: Connection timed out)"));
            return Cause::Timeout;
        }
        self.request.log(Level::Error, format_args!("{what}{}", crate::log::OsError(error)));
        Cause::Error
    }
}

/// Whether asking twice may do twice what was asked for (RFC 9110 section 9.2.2, as nginx reads
/// it).
pub(super) fn is_non_idempotent(method: Method) -> bool {
    matches!(method, Method::Post | Method::Lock | Method::Patch)
}

/// What is sent after the head of a request.
pub(super) fn content(request: &Request, content: Content) -> send::Source {
    match content {
        Content::None => send::Source::None,
        Content::Bytes(bytes) => send::Source::Memory(bytes),
        Content::Request => match &request.body {
            RequestBody::None => send::Source::None,
            RequestBody::Memory(bytes) => send::Source::Memory(bytes.clone()),
            RequestBody::File(file) => send::Source::File(file.part()),
            RequestBody::Unread(_) => send::Source::Stream,
        },
    }
}
