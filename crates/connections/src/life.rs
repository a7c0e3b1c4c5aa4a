//! The life of a request, the same for every version of HTTP: admission, the phases, the response, the log.
//! What differs is a [`Wire`], which each version implements.
//!
//! ```text
//! head ─ admit ─ phases ─┬ begin ─ body::send ─ finish ─ log      Ending::Sent
//!                        ├ no response                  ─ log      Ending::Unanswered
//!                        └ the client has left          ─ log      Ending::Abandoned
//! ```
//!
//! Called by front ends for each request whose head has been received, well-formed or not. Most responses are
//! in memory, and need no future of their own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use nowait_front::servers::Virtual;
use nowait_http::generation::Current;
use nowait_http::interpret;
use nowait_http::log::Level;
use nowait_http::logs::debug;
use nowait_http::phases::{self, PendingPhases, PhaseResult};
use nowait_http::request::{Request, RequestBody};
use nowait_http::response::{Body, Head, Part, Response, Takeover};
use nowait_http::special_pages::REQUEST_TIMEOUT;
use nowait_http::special_pages::internal::CLIENT_CLOSED;
use nowait_http::upstream_state::UpstreamState;
use nowait_runtime::net::Piped;

use crate::admission::{self, Admission};
use crate::body::{self, Pace, Remainder};
use crate::send_error::{self, SendError};

/// A request's way to its client in one version of HTTP: what it takes to send one response.
///
/// Methods with a default are for versions that differ there.
pub(crate) trait Wire {
    /// The servers behind the connection's address; `None` if it is no longer listened on.
    fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual>;

    /// Prepares a request whose head is well-formed: the length of its content, and who reads it. Returns
    /// the status, if the request can't be served here.
    fn prepare(&mut self, request: &mut Request, servers: Option<&Virtual>) -> Option<u16>;

    /// Resolves when the client has left, and the request has to end for that reason.
    async fn gone(&self);

    /// The same while a response is being sent, which a client that has closed its side may still read.
    async fn gone_for_good(&self);

    /// Whether something is held back for [`flush`](Self::flush).
    fn holds_output(&self) -> bool {
        false
    }

    /// Sends what is held back of earlier responses and of this one, before a wait.
    async fn flush(&mut self, timeout: Duration) -> Result<(), SendError>;

    /// Looks at what has arrived of content that no handler has read. False: its framing is wrong.
    fn check_unread(&mut self) -> bool {
        true
    }

    /// Begins a response: the head, and the body if it is small and in memory. `None`: the response is
    /// complete. Otherwise the body is taken.
    fn begin(
        &mut self,
        request: &mut Request,
        head: Box<Head>,
        body: &mut Body,
    ) -> Result<Option<Remainder>, SendError>;

    /// Sends what [`begin`](Self::begin) has left of the head. False: no body follows.
    async fn head(&mut self, _request: &mut Request, _pace: &mut Pace) -> Result<bool, SendError> {
        Ok(true)
    }

    /// Sends a part of the body, or takes it over: the next part is asked for when this one is on its way.
    async fn put(&mut self, request: &Request, part: Part, next: Following)
    -> Result<(), PutError>;

    /// Whether [`put_piped`](Self::put_piped) may be called: a body's bytes are sent as they are.
    fn takes_piped(&self) -> bool {
        false
    }

    /// Sends a part of the body that is in a pipe, when nothing is held back. Bytes that the client does not
    /// accept within [`PATIENCE`](nowait_http::response::PATIENCE) stay in the pipe.
    async fn put_piped(&mut self, _request: &Request, _part: &mut Piped) -> Result<(), SendError> {
        Ok(())
    }

    /// Ends the body: trailers, or that there are none.
    async fn end(&mut self, request: &mut Request) -> Result<(), SendError>;

    /// Passes bytes on in both directions until the tunnel ends.
    async fn tunnel(
        &mut self,
        request: &Request,
        tunnel: Box<dyn Takeover>,
    ) -> Result<(), SendError>;

    /// Hands what is left of a response to the system, as far as the next response does not take it along.
    async fn finish(&mut self, request: &Request) -> Result<(), SendError>;
}

/// What follows a part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    /// Nothing.
    Nothing,
    /// A part that is at hand.
    Part,
    /// What its source has next.
    Unknown,
}

/// Why a part could not be sent.
pub(crate) struct PutError {
    pub(crate) error: SendError,
    /// How many bytes of the part could not be read from its file, if that is the reason.
    pub(crate) unread: Option<u64>,
}

impl From<SendError> for PutError {
    fn from(error: SendError) -> Self {
        Self { error, unread: None }
    }
}

impl From<PutError> for SendError {
    fn from(failed: PutError) -> Self {
        failed.error
    }
}

/// How a request ended. It is logged.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The response was sent.
    Sent,
    /// There is no response. The status is in the log.
    Unanswered,
    /// The client left before there was one.
    Abandoned,
    /// A part of the response was not sent.
    Failed(SendError),
}

/// Responds to a request whose head has been received; `refused`: with this status.
pub(crate) async fn serve<W: Wire>(
    wire: &mut W,
    request: &mut Request,
    refused: Option<u16>,
) -> Ending {
    let current = request.current().clone();
    let refused = match refused {
        Some(status) => {
            interpret::refused_head(request);
            Some(status)
        }
        None => match admit(wire, request, &current) {
            Admission::Passed => None,
            Admission::Refused(status) => Some(status),
            // Boxed: most requests don't need it.
            Admission::Pending => Box::pin(admission::judge(request)).await,
        },
    };
    let timeout = request.send_timeout();
    let answer = {
        let progress = match refused {
            None => phases::respond(request, &current),
            Some(status) => phases::refuse(request, &current, status),
        };
        match progress {
            PhaseResult::Done(answer) => Some(answer),
            PhaseResult::Wait(waiting) => wait(wire, waiting, timeout).await,
        }
    };
    let Some(mut answer) = answer else { return abandon(request) };
    if let RequestBody::Unread(_) = request.body()
        && answer.as_ref().is_some_and(|response| response.head.status < 400)
        && !wire.check_unread()
    {
        answer = Box::pin(refuse_content(request, &current)).await;
    }
    let Some(Response { head, mut body }) = answer else { return unanswered(request) };
    let sent = match wire.begin(request, head, &mut body) {
        Ok(None) => Ok(()),
        // Boxed: most responses don't need it.
        Ok(Some(rest)) => Box::pin(body::send(wire, request, rest)).await,
        Err(error) => Err(error),
    };
    let sent = match sent {
        Ok(()) => wire.finish(request).await,
        failed => failed,
    };
    let ending = match sent {
        Ok(()) => {
            request.sent().set_complete(true);
            Ending::Sent
        }
        Err(error) => {
            send_error::log_error(request, &error);
            Ending::Failed(error)
        }
    };
    end(request);
    request.set_body(RequestBody::None);
    ending
}

/// Interprets a head, and chooses the server. Returns whether the request may pass. nginx:
/// `ngx_http_process_request_uri`, `ngx_http_process_request_header`.
fn admit<W: Wire>(wire: &mut W, request: &mut Request, current: &Current) -> Admission {
    if !interpret::head(request) {
        return Admission::Refused(400);
    }
    let servers = wire.virtual_servers(current);
    let mut misdirected = None;
    if let Some(servers) = servers {
        interpret::choose_server(request, servers);
        misdirected = admission::misdirected(request, servers);
    }
    request.log_head();
    let refused = wire.prepare(request, servers);
    match misdirected.or(refused).or_else(|| interpret::refused_method(request)) {
        Some(status) => Admission::Refused(status),
        None => admission::check(request),
    }
}

/// Waits for a handler. `None`: the client has gone.
async fn wait<W: Wire>(
    wire: &mut W,
    waiting: PendingPhases<'_>,
    timeout: Duration,
) -> Option<Option<Response>> {
    let mut answer = pin!(waiting.finish());
    // A response that is ready at once goes out together with earlier ones.
    if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
        return Some(answer);
    }
    // Unless there is something to flush, nothing that the handler waits for can have happened.
    let mut just_polled = !wire.holds_output();
    if wire.flush(timeout).await.is_err() {
        return None;
    }
    let mut gone = pin!(wire.gone());
    poll_fn(|cx| {
        if !std::mem::take(&mut just_polled)
            && let Poll::Ready(answer) = answer.as_mut().poll(cx)
        {
            return Poll::Ready(Some(answer));
        }
        gone.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// The response to content whose framing is wrong.
async fn refuse_content(request: &mut Request, current: &Current) -> Option<Response> {
    request.log(Level::Info, format_args!("client sent invalid chunked body"));
    phases::refuse(request, current, 400).finish().await
}

/// Ends a request whose client has left while a handler waited.
fn abandon(request: &mut Request) -> Ending {
    let upstream = UpstreamState::get(request.state()).and_then(|state| state.action());
    let waited = match upstream {
        Some(_) => ", so upstream connection is closed too",
        None => " while waiting for a disk",
    };
    request.log(Level::Info, format_args!("client prematurely closed connection{waited}"));
    request.closed_by_client();
    end(request);
    Ending::Abandoned
}

/// Ends a request that gets no response.
fn unanswered(request: &Request) -> Ending {
    match request.out().status {
        // The client has gone, or was too slow.
        REQUEST_TIMEOUT | CLIENT_CLOSED => end(request),
        _ => nowait_http::logs::access(request),
    }
    Ending::Unanswered
}

/// Logs a request that has ended: its response was sent or never will be.
fn end(request: &Request) {
    debug!(request, "http request ended: {} bytes sent", request.sent().bytes());
    nowait_http::logs::access(request);
    nowait_http::post_action::run(request);
}
