//! The life of a request: nginx's phases in nginx's order, and what the core does between them.
//!
//! Called by the connection task of every protocol. A [handler](crate::module::Handler) of a phase
//! either lets the request continue or decides it ([`Outcome`]); an internal redirect starts another
//! round. Never writes to a socket.
//!
//! | phase | what happens here |
//! |---|---|
//! | post read | handlers of the server: the client's address |
//! | server rewrite | handlers of the server: its rewrite directives |
//! | find config | the location is chosen; `internal`, `client_max_body_size`, `limit_except` |
//! | rewrite | the rewrite directives of the location |
//! | post rewrite | a changed URI goes back to find config, ten times at most |
//! | preaccess, access | limits and access control; then `satisfy` |
//! | precontent | `try_files`, `mirror` |
//! | content | the location's handler, or index, autoindex and static files |

pub mod explained;

use nowait_runtime::sleep;
use nowait_runtime::stats::set_label;

use crate::conf::client::Satisfy;
use crate::error_page;
use crate::generation::Current;
use crate::log::Level;
use crate::logs::debug;
use crate::module::{Filter, Phase, Position, Step};
use crate::nested::{Aim, Entry};
use crate::outcome::{Outcome, RedirectTarget, StatusResponse};
use crate::request::{BodyLength, Request, Uri};
use crate::request_body;
use crate::response::{Body, Head, LocalFuture, Response};
use crate::special_pages::internal::CLIENT_CLOSED;
use crate::special_pages::{self, REQUEST_TIMEOUT};
use crate::upstream_state::UpstreamState;

/// Status of a request that is not allowed.
const FORBIDDEN: u16 = 403;

/// Status of a request that needs a name and a password.
const UNAUTHORIZED: u16 = 401;
/// The same for CONNECT, whose client authenticates itself to a proxy.
const PROXY_UNAUTHORIZED: u16 = 407;

/// Start of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// In the server: the location has to be found.
    Server,
    /// In a named location, which is set already.
    Location,
    /// At the content of a location, which is set already.
    Content,
}

/// The result of the phases so far.
pub enum PhaseResult<'r> {
    /// The response; `None`: close the connection without one.
    Done(Option<Response>),
    /// A handler waits.
    Wait(PendingPhases<'r>),
}

/// A request of which a handler waits.
pub struct PendingPhases<'r> {
    rest: LocalFuture<'r, Step<'r>>,
    current: &'r Current,
}

impl PendingPhases<'_> {
    /// Waits, and runs the remaining phases. `None`: close the connection without a response.
    pub async fn finish(self) -> Option<Response> {
        let Self { mut rest, current } = self;
        loop {
            match walk(rest.await, current) {
                PhaseResult::Done(response) => return response,
                PhaseResult::Wait(waiting) => rest = waiting.rest,
            }
        }
    }
}

impl PhaseResult<'_> {
    /// The response, if necessary after waiting.
    pub async fn finish(self) -> Option<Response> {
        match self {
            Self::Done(response) => response,
            Self::Wait(waiting) => waiting.finish().await,
        }
    }
}

/// Handles a request as far as no handler has to wait. Most responses need none that waits, and are
/// made here without a future.
///
/// `current` is the request's generation. Once there is a response, its delivery uses the settings
/// of `request.location_id()`.
pub fn respond<'r>(request: &'r mut Request, current: &'r Current) -> PhaseResult<'r> {
    set_label("http phases");
    enter(request, Phase::PostRead);
    let step = match request.server().early_read.any(request) {
        false => next(request, current),
        true => Step::wait(async move {
            match early_body(request).await {
                Ok(()) => Step::Next(request),
                Err(status) => Step::Done(request, Outcome::status(status)),
            }
        }),
    };
    walk(step, current)
}

/// Handles a subrequest as far as no handler has to wait.
pub(crate) fn respond_nested<'r>(
    request: &'r mut Request,
    current: &'r Current,
) -> PhaseResult<'r> {
    set_label("http phases");
    start_nested(request);
    walk(next(request, current), current)
}

/// Puts a subrequest where it enters the phases.
fn start_nested(request: &mut Request) {
    let start = match request.entry() {
        Entry::Server => Start::Server,
        Entry::Content => Start::Content,
        Entry::Location => Start::Location,
    };
    start_round(request, start);
}

/// Responds to a request that could not be read, with the error page for the status or a built-in
/// one.
pub fn refuse<'r>(request: &'r mut Request, current: &'r Current, status: u16) -> PhaseResult<'r> {
    walk(Step::Done(request, Outcome::status(status)), current)
}

/// Continues after a handler's decision, until there is a response or a handler waits.
fn walk<'r>(mut step: Step<'r>, current: &'r Current) -> PhaseResult<'r> {
    loop {
        let (request, outcome) = match step {
            Step::Next(request) => {
                step = next(request, current);
                continue;
            }
            Step::Granted(request) => {
                granted(request);
                step = next(request, current);
                continue;
            }
            Step::Wait(rest) => return PhaseResult::Wait(PendingPhases { rest, current }),
            Step::Done(request, outcome) if request.position().phase == Phase::Access => {
                step = denied(request, outcome);
                continue;
            }
            Step::Done(request, outcome) => (request, outcome),
        };
        match conclude(request, current, outcome) {
            FilterResult::Done(response) => return PhaseResult::Done(response),
            FilterResult::Replace(response, filter, next) => {
                step = Step::wait(async move {
                    let outcome = match filter.replace(request, response).await {
                        Ok(response) => {
                            *request.filtered_mut() = next;
                            Outcome::Response(response)
                        }
                        Err(special) => Outcome::Status(*special),
                    };
                    Step::Done(request, outcome)
                });
            }
            FilterResult::Again(start) => {
                start_round(request, start);
                step = next(request, current);
            }
        }
    }
}

/// Puts a request at the beginning of a phase.
fn enter(request: &mut Request, phase: Phase) {
    let location =
        if phase <= Phase::ServerRewrite { request.server().root } else { request.location_id() };
    request.set_position(Position { phase, handler: 0, location });
}

fn start_round(request: &mut Request, start: Start) {
    let phase = match start {
        Start::Server => Phase::ServerRewrite,
        Start::Location => Phase::Rewrite,
        Start::Content => Phase::Precontent,
    };
    // It was the other location's.
    *request.refusal_mut() = None;
    enter(request, phase);
}

/// Gives the next handler its turn; between the phases, does the work of the core. Every pass
/// advances, except after changes of the URI, which are counted.
fn next<'r>(request: &'r mut Request, current: &'r Current) -> Step<'r> {
    loop {
        let Position { phase, handler, location } = request.position();
        if phase >= Phase::Precontent && asks_for_access(request) {
            return Step::Done(request, Outcome::status(204));
        }
        if lacks_paths(request)
            && handler == 0
            && matches!(phase, Phase::ServerRewrite | Phase::Rewrite)
        {
            return Step::wait(async move {
                request.realpath_mut().of = Some(request.location_id());
                crate::files::resolve_root(request).await;
                Step::Next(request)
            });
        }
        let handlers = &current.conf.location(location).handlers;
        if let Some(handler) = handlers.get(phase, handler) {
            request.pass_handler();
            return handler.handle(request);
        }
        match advance(request, current) {
            Ok(()) => {}
            Err(PhaseEnd::Outcome(outcome)) => return Step::Done(request, outcome),
            // No handler has granted access.
            Err(PhaseEnd::Refusal(refusal)) => return refuse_access(request, *refusal),
        }
    }
}

/// The reason why no phase follows.
enum PhaseEnd {
    Outcome(Outcome),
    Refusal(Box<StatusResponse>),
}

/// Moves a request from the end of a phase to the beginning of the next one.
#[inline]
fn advance(request: &mut Request, current: &Current) -> Result<(), PhaseEnd> {
    match request.position().phase {
        Phase::PostRead if rewrites_first(request) => enter(request, Phase::ServerRewrite),
        Phase::PostRead | Phase::ServerRewrite => match find_config(request, current) {
            Some(outcome) => return Err(PhaseEnd::Outcome(outcome)),
            None => enter(request, Phase::Rewrite),
        },
        Phase::Rewrite if request.rewriting().changed => {
            match post_rewrite(request).or_else(|| find_config(request, current)) {
                Some(outcome) => return Err(PhaseEnd::Outcome(outcome)),
                None => enter(request, Phase::Rewrite),
            }
        }
        // Most locations have no handlers before the content.
        Phase::Rewrite if !request.location().handlers.precede_content() => {
            return enter_content(request);
        }
        // Limits count what clients send.
        Phase::Rewrite => {
            let next = if asks_for_access(request) { Phase::Access } else { Phase::Preaccess };
            enter(request, next);
        }
        // Access to the main request includes access to its subrequests. nginx:
        // `ngx_http_core_access_phase`
        Phase::Preaccess if request.is_nested() => enter(request, Phase::Precontent),
        Phase::Preaccess => enter(request, Phase::Access),
        Phase::Access => match request.refusal_mut().take() {
            None => enter(request, Phase::Precontent),
            Some(refusal) => return Err(PhaseEnd::Refusal(refusal)),
        },
        Phase::Precontent => return enter_content(request),
        Phase::Content => return Err(PhaseEnd::Outcome(without_content(request))),
    }
    Ok(())
}

/// Whether a request is made only to check access. At the content, access is granted.
fn asks_for_access(request: &mut Request) -> bool {
    let at_content = request.position().phase >= Phase::Precontent;
    let Some(nested) = request.nested_mut().filter(|nested| nested.aim != Aim::Response) else {
        return false;
    };
    if at_content {
        nested.aim = Aim::Granted;
    }
    true
}

/// Whether a request's server has handlers before its location is found.
fn rewrites_first(request: &Request) -> bool {
    let conf = &request.current().conf;
    conf.wants_realpath || conf.location(request.server().root).handlers.rewrite_server()
}

/// Puts a request at the beginning of the content.
fn enter_content(request: &mut Request) -> Result<(), PhaseEnd> {
    set_label("http content");
    enter(request, Phase::Content);
    match request.location().handlers.names_content() || request.has_file() {
        true => Ok(()),
        false => Err(PhaseEnd::Outcome(Outcome::status(500))),
    }
}

/// The outcome if no handler has produced the content. nginx: `ngx_http_core_content_phase`.
fn without_content(request: &mut Request) -> Outcome {
    if request.uri().path.last() == Some(&b'/') {
        let mut path = Vec::new();
        request.append_file(&mut path);
        request.log(
            Level::Error,
            format_args!("directory index of \"{}\" is forbidden", String::from_utf8_lossy(&path)),
        );
        return Outcome::status(403);
    }
    request.log(Level::Error, format_args!("no handler found"));
    Outcome::status(404)
}

/// A handler has granted access: with `satisfy any`, the others are skipped.
fn granted(request: &mut Request) {
    if request.location().client.satisfy == Satisfy::Any {
        *request.refusal_mut() = None;
        enter(request, Phase::Precontent);
    }
}

/// A handler has refused access: another one may still grant it, or the decision stands. nginx:
/// `ngx_http_core_access_phase`.
fn denied(request: &mut Request, outcome: Outcome) -> Step<'_> {
    match weigh(request, outcome) {
        Denied::Collected => Step::Next(request),
        Denied::Refused(refusal) => refuse_access(request, refusal),
        Denied::Done(outcome) => {
            enter(request, Phase::Precontent);
            Step::Done(request, outcome)
        }
    }
}

/// The effect of a refusal.
enum Denied {
    /// Another handler may still grant access.
    Collected,
    /// The refusal stands.
    Refused(StatusResponse),
    /// Not a refusal, but another decision.
    Done(Outcome),
}

/// Judges a refusal by `satisfy`.
fn weigh(request: &mut Request, outcome: Outcome) -> Denied {
    let any = request.location().client.satisfy == Satisfy::Any;
    let refusal = match outcome {
        Outcome::Status(special) if special.status == FORBIDDEN || asks_who(&special) => special,
        outcome => return Denied::Done(outcome),
    };
    if !any {
        return Denied::Refused(refusal);
    }
    match request.refusal_mut() {
        // The client may satisfy either of them.
        Some(first) if asks_who(first) => {
            if refusal.status == first.status {
                first.headers.extend(refusal.headers);
            }
        }
        other => *other = Some(Box::new(refusal)),
    }
    Denied::Collected
}

/// Whether a refusal asks for a password.
fn asks_who(refusal: &StatusResponse) -> bool {
    matches!(refusal.status, UNAUTHORIZED | PROXY_UNAUTHORIZED)
}

/// Refuses access; a request for a password after the time of `auth_delay`. nginx:
/// `ngx_http_core_post_access_phase`, `ngx_http_core_auth_delay`.
fn refuse_access(request: &mut Request, refusal: StatusResponse) -> Step<'_> {
    enter(request, Phase::Precontent);
    let delay = request.location().client.auth_delay.duration();
    if refusal.status == FORBIDDEN && request.location().client.satisfy == Satisfy::Any {
        request.log(Level::Error, format_args!("access forbidden by rule"));
    }
    if !asks_who(&refusal) || delay.is_zero() {
        return Step::Done(request, Outcome::Status(refusal));
    }
    request.log(Level::Info, format_args!("delaying unauthorized request"));
    Step::wait(async move {
        sleep(delay).await;
        Step::Done(request, Outcome::Status(refusal))
    })
}

/// Result of following an outcome.
enum FilterResult<'r> {
    Done(Option<Response>),
    /// The filter has to replace the response, before the next one, with this number, runs.
    Replace(Response, &'r dyn Filter, usize),
    Again(Start),
}

/// Follows an outcome until there is a response that all filters accept, or another round begins.
fn conclude<'r>(
    request: &mut Request,
    current: &'r Current,
    mut outcome: Outcome,
) -> FilterResult<'r> {
    loop {
        outcome = match outcome {
            Outcome::Response(mut response) => {
                let first = std::mem::take(request.filtered_mut());
                if let Some(status) = request.replaced_mut().status.take() {
                    response.head.status = status;
                    response.head.status_line = None;
                    response.head.has_upstreams_status = false;
                }
                error_page::deliver(request, &mut response.head);
                if let Some(replaced) = request.replaced_mut().head.take() {
                    response.head.replace(*replaced);
                }
                if response.head.status == 204 {
                    // nginx leaves an upstream's fields about the absent content alone.
                    if !response.head.has_upstreams_status {
                        response.head.content_type = None;
                    }
                    // RFC 9110 section 8.6: "A server MUST NOT send a Content-Length header field
                    // in any response with a status code of 1xx or 204".
                    response.head.content_length = None;
                }
                let filters = &current.conf.location(request.location_id()).filters;
                match filters.run(first, request, &mut response) {
                    Ok(None) => return FilterResult::Done(Some(response)),
                    Ok(Some((filter, next))) => {
                        request.out_mut().status = response.head.status;
                        return FilterResult::Replace(response, filter, next);
                    }
                    Err(special) => {
                        // As in nginx, an error page that sets no status has this one.
                        request.out_mut().status = response.head.status;
                        Outcome::Status(*special)
                    }
                }
            }
            Outcome::Close => {
                request.close_status(special_pages::internal::CLOSE);
                return FilterResult::Done(None);
            }
            // There is no client to receive a response.
            Outcome::Status(StatusResponse {
                status: status @ (REQUEST_TIMEOUT | CLIENT_CLOSED),
                ..
            }) => {
                request.close_status(status);
                return FilterResult::Done(None);
            }
            Outcome::Status(special) if request.nested().is_some_and(|nested| nested.bare) => {
                let mut head = Head::new(special_pages::sent_status(special.status));
                head.headers = special.headers;
                return FilterResult::Done(Some(Response { head, body: Body::Empty }));
            }
            Outcome::Status(special) => error_page::answer(request, special),
            Outcome::Redirect(target) => match redirect(request, target) {
                Ok(start) => return FilterResult::Again(start),
                Err(outcome) => outcome,
            },
        }
    }
}

/// Changes the request for an internal redirect. nginx: `ngx_http_internal_redirect`,
/// `ngx_http_named_location`.
fn redirect(request: &mut Request, target: RedirectTarget) -> Result<Start, Outcome> {
    request.round_mut().clear();
    if let Some(state) = UpstreamState::get(request.state()) {
        state.redirected();
    }
    let allowed = request.count_change();
    match target {
        RedirectTarget::Uri { path, args } => {
            if !allowed {
                request.log(
                    Level::Error,
                    format_args!(
                        "rewrite or internal redirection cycle while internally redirecting to \
                         \"{}\"",
                        String::from_utf8_lossy(&path)
                    ),
                );
                return Err(Outcome::status(500));
            }
            request.redirect_to(Uri { path, args });
            Ok(Start::Server)
        }
        RedirectTarget::Named(name) => {
            let named = String::from_utf8_lossy(&name).into_owned();
            if !allowed {
                request.log(
                    Level::Error,
                    format_args!(
                        "rewrite or internal redirection cycle while redirect to named location \
                         \"{named}\""
                    ),
                );
                return Err(Outcome::status(500));
            }
            if request.uri().path.is_empty() {
                request.log(
                    Level::Error,
                    format_args!("empty URI in redirect to named location \"{named}\""),
                );
                return Err(Outcome::status(500));
            }
            let Some(&location) = request.server().locations.named(&name) else {
                request
                    .log(Level::Error, format_args!("could not find named location \"{named}\""));
                return Err(Outcome::status(500));
            };
            request.redirect_to_named(location);
            limit_except(request);
            Ok(Start::Location)
        }
    }
}

/// Starts the search for the location of a changed URI again, if the limit allows. nginx:
/// `ngx_http_core_post_rewrite_phase`.
fn post_rewrite(request: &mut Request) -> Option<Outcome> {
    if !request.count_change() {
        request.log(
            Level::Error,
            format_args!(
                "rewrite or internal redirection cycle while processing \"{}\"",
                String::from_utf8_lossy(&request.uri().path)
            ),
        );
        return Some(Outcome::status(500));
    }
    request.leave_location();
    None
}

/// Replaces the location's settings by those of `limit_except`.
fn limit_except(request: &mut Request) {
    if let Some(limit) = &request.location().limit_except
        && !limit.except.contains(request.method())
    {
        request.enter_location(limit.location);
    }
}

/// Chooses the location. nginx: `ngx_http_core_find_config_phase`.
fn find_config(request: &mut Request, current: &Current) -> Option<Outcome> {
    request.end_search();
    let server = current.conf.server(request.server_id());
    let found =
        server.locations.find(&request.uri().path, |test| test.holds(request, &request.uri().path));
    let (id, auto_redirect) = match found {
        Ok(Some(found)) => (*found.value, found.auto_redirect),
        Ok(None) => (server.root, false),
        Err(error) => {
            request.log(Level::Alert, format_args!("{error}"));
            return Some(Outcome::status(500));
        }
    };
    request.enter_location(id);
    let location = current.conf.location(id);
    debug!(request, "using configuration \"{}\"", String::from_utf8_lossy(&location.name));
    if location.internal && !request.is_internal() {
        return Some(Outcome::status(404));
    }
    limit_except(request);
    let location = current.conf.location(request.location_id());
    if is_too_large(request) {
        return Some(Outcome::status(413));
    }
    if auto_redirect {
        let mut to = location.escaped_name();
        if !request.uri().query().is_empty() {
            to.push(b'?');
            to.extend_from_slice(request.uri().query());
        }
        return Some(Outcome::moved(301, to));
    }
    None
}

/// Whether the body is longer than the location allows; logs it.
fn is_too_large(request: &mut Request) -> bool {
    let BodyLength::Known(length) = request.body_length() else { return false };
    let max = request.location().body.client_max_body_size.0;
    if max == 0 || length <= max || request.persistence().body_discarded {
        return false;
    }
    request
        .log(Level::Error, format_args!("client intended to send too large body: {length} bytes"));
    // The error page must not be refused in turn.
    request.discard_body();
    true
}

/// Reads the body with the settings of the server. Returns the status to respond with if that
/// fails. nginx: `ngx_http_read_early_body`.
pub async fn early_body(request: &mut Request) -> Result<(), u16> {
    if is_too_large(request) {
        return Err(413);
    }
    request_body::read(request).await
}

/// Whether a path has to be resolved on the disk before variables, which can't wait, use it:
/// `$realpath_root` of this location, if the configuration mentions it.
fn lacks_paths(request: &Request) -> bool {
    request.current().conf.wants_realpath && request.realpath().of != Some(request.location_id())
}
