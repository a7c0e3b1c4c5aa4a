//! The life of a request: nginx's phases in nginx's order, one function each.
//!
//! Called by the connection task of every protocol. A phase either lets the request continue or
//! decides it ([`Outcome`]); an internal redirect starts another round. Never writes to a socket.
//!
//! | phase | what happens here |
//! |---|---|
//! | server rewrite | the rewrite directives of the server |
//! | find config | the location is chosen; `internal`, `client_max_body_size`, `limit_except` |
//! | rewrite | the rewrite directives of the location |
//! | post rewrite | a changed URI goes back to find config, ten times at most |
//! | preaccess, access | limits and access control |
//! | precontent | `try_files`, `mirror` |
//! | content | the location's handler, or index, autoindex and static files |

use std::io;
use std::time::Duration;

use nowait_runtime::buf::RecvBuf;
use nowait_runtime::sleep;
use nowait_runtime::stats::set_label;
use nowait_runtime::task::{Either, select};

use crate::access::{self, Access};
use crate::conf::Content;
use crate::error_page;
use crate::filter;
use crate::handler;
use crate::handler::precompressed::Tried;
use crate::limit::{self, Turn};
use crate::log::Level;
use crate::logs::debug;
use crate::outcome::{Outcome, Special, Target};
use crate::proxy;
use crate::request::{BodyLength, Request};
use crate::request_body;
use crate::response::{Body, Head, Response};
use crate::rewrite::{Cursor, Step};
use crate::special_pages;
use crate::status;
use crate::subrequest::Entry;

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

/// Position of a request in the phases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Stage {
    /// At the beginning.
    #[default]
    Server,
    /// The body has to be read before everything else.
    EarlyBody,
    /// In the server's rewrite code.
    ServerCode(Cursor),
    /// The location has to be found.
    FindConfig,
    /// At the beginning of the location.
    Location,
    /// In the location's rewrite code.
    LocationCode(Cursor),
    /// The URI is final; limits, except the one on connections.
    Preaccess,
    /// Waits for its turn for this time. A request that ends here was given up by its client.
    Delayed(Duration),
    /// The request's turn has come; limit on connections.
    Connections,
    /// Access control.
    Access,
    /// Access control that needs files, or delays its response.
    Authentication,
    /// `try_files` and the content.
    Content,
}

/// Progress of a request.
pub enum Progress {
    /// The response; `None`: close the connection without one.
    Done(Option<Response>),
    /// Files are needed, or it is not the request's turn yet: [`resume`] continues. It also
    /// continues after the request was sent to an [upstream](Request::asked), unless [`received`]
    /// has the response.
    Files,
}

/// Handles a request as far as no file is needed. Most responses that are not files need none and
/// are made here without a future.
///
/// Once there is a response, its delivery uses the settings of `request.location`.
pub fn respond(request: &mut Request) -> Progress {
    if request.server().early_read.any(request) {
        request.stage = Stage::EarlyBody;
        return Progress::Files;
    }
    post_read(request);
    advance(request, Start::Server)
}

/// The phase before the rewrite directives of the server.
fn post_read(request: &mut Request) {
    if request.current.conf.wants_realip {
        crate::realip::apply(request, request.server().root);
    }
}

/// Handles a subrequest as far as no file is needed.
pub(crate) fn respond_nested(request: &mut Request) -> Progress {
    let start = match request.entry {
        Entry::Server => Start::Server,
        Entry::Content => Start::Content,
        Entry::Location => Start::Location,
    };
    advance(request, start)
}

/// Responds to a request that could not be read, with the error page for the status or a built-in
/// one.
pub fn refuse(request: &mut Request, status: u16) -> Progress {
    match conclude(request, Outcome::status(status)) {
        Concluded::Done(response) => Progress::Done(response),
        Concluded::Again(start) => advance(request, start),
    }
}

/// Responds with the bytes that an upstream has just sent for the [request in
/// flight](Request::asked), if they suffice; otherwise [`resume`] continues.
pub(crate) fn received(request: &mut Request, received: io::Result<RecvBuf>) -> Progress {
    let Some(outcome) = proxy::try_answer(request, received) else { return Progress::Files };
    match conclude(request, outcome) {
        Concluded::Done(response) => Progress::Done(response),
        Concluded::Again(start) => advance(request, start),
    }
}

/// Handles a request that needs files or has to wait for its turn.
pub async fn resume(request: &mut Request) -> Option<Response> {
    loop {
        let Some(outcome) = wait(request).await else { continue };
        match conclude(request, outcome) {
            Concluded::Done(response) => return response,
            Concluded::Again(start) => match advance(request, start) {
                Progress::Done(response) => return response,
                Progress::Files => {}
            },
        }
    }
}

/// Waits for the request's turn, or runs the stage that needs files, and continues from there.
/// `None`: another stage needs files.
async fn wait(request: &mut Request) -> Option<Outcome> {
    request.stage = match request.stage {
        Stage::EarlyBody => match Box::pin(early_body(request)).await {
            Ok(()) => {
                post_read(request);
                Stage::Server
            }
            Err(status) => return Some(Outcome::status(status)),
        },
        Stage::ServerCode(cursor) => match cursor.test_file(request).await {
            Ok(cursor) => Stage::ServerCode(cursor),
            Err(outcome) => return Some(outcome),
        },
        Stage::LocationCode(cursor) => match cursor.test_file(request).await {
            Ok(cursor) => Stage::LocationCode(cursor),
            Err(outcome) => return Some(outcome),
        },
        Stage::Delayed(time) => {
            let connection = request.connection.clone();
            match select(sleep(time), connection.stream.hangup()).await {
                Either::Left(()) => Stage::Connections,
                // Nothing was started for a client that has gone meanwhile. nginx:
                // `ngx_http_test_reading`.
                Either::Right(_) => return Some(Outcome::Close),
            }
        }
        Stage::Authentication => match Box::pin(access::authenticate(request)).await {
            None => Stage::Content,
            Some(outcome) => return Some(outcome),
        },
        Stage::Server | Stage::Location if lacks_paths(request) => {
            request.realpath_of = Some(request.location);
            crate::files::resolve_root(request).await;
            request.stage
        }
        _ => {
            return Some(match precontent(request).await {
                Some(outcome) => outcome,
                None => content(request).await,
            });
        }
    };
    phases(request)
}

/// Runs the phases that need no file, and follows the redirects that they return.
fn advance(request: &mut Request, mut start: Start) -> Progress {
    loop {
        let Some(outcome) = round(request, start) else { return Progress::Files };
        match conclude(request, outcome) {
            Concluded::Done(response) => return Progress::Done(response),
            Concluded::Again(again) => start = again,
        }
    }
}

/// Runs a round up to the point where it needs files.
fn round(request: &mut Request, start: Start) -> Option<Outcome> {
    request.stage = match start {
        Start::Server => Stage::Server,
        Start::Location => Stage::Location,
        Start::Content => Stage::Content,
    };
    phases(request)
}

/// Runs the phases from the request's stage up to one that needs files, and stores the stage. Every
/// pass advances, except after changes of the URI, which are counted.
fn phases(request: &mut Request) -> Option<Outcome> {
    let mut stage = request.stage;
    set_label("http phases");
    loop {
        stage = match stage {
            Stage::Server if lacks_paths(request) => {
                request.stage = stage;
                return None;
            }
            Stage::Server => {
                let root = request.server().root;
                Cursor::start(request, root).map_or(Stage::FindConfig, Stage::ServerCode)
            }
            Stage::ServerCode(cursor) => match cursor.run(request) {
                Step::Finished => Stage::FindConfig,
                Step::Decided(outcome) => return Some(outcome),
                Step::File(cursor) => {
                    request.stage = Stage::ServerCode(cursor);
                    return None;
                }
            },
            Stage::FindConfig => match find_config(request) {
                Some(outcome) => return Some(outcome),
                None => Stage::Location,
            },
            // Without a location the server's code, which was run already, is not run again.
            Stage::Location if lacks_paths(request) => {
                request.stage = stage;
                return None;
            }
            Stage::Location if request.location == request.server().root => Stage::Preaccess,
            Stage::Location => Cursor::start(request, request.location)
                .map_or(Stage::Preaccess, Stage::LocationCode),
            Stage::LocationCode(cursor) => match cursor.run(request) {
                Step::Finished if request.uri_changed => match post_rewrite(request) {
                    Some(outcome) => return Some(outcome),
                    None => Stage::FindConfig,
                },
                Step::Finished => Stage::Preaccess,
                Step::Decided(outcome) => return Some(outcome),
                Step::File(cursor) => {
                    request.stage = Stage::LocationCode(cursor);
                    return None;
                }
            },
            Stage::Preaccess => {
                if request.current.conf.wants_realip && !request.is_nested() {
                    crate::realip::apply(request, request.location);
                }
                match &request.location().limits {
                    None => Stage::Access,
                    Some(_) => match limit::requests(request) {
                        Turn::Go => Stage::Connections,
                        Turn::Wait(time) => Stage::Delayed(time),
                        Turn::Refuse(status) => return Some(Outcome::status(status)),
                    },
                }
            }
            Stage::Delayed(_) => {
                request.stage = stage;
                return None;
            }
            Stage::Connections => match limit::connections(request) {
                Turn::Go | Turn::Wait(_) => Stage::Access,
                Turn::Refuse(status) => return Some(Outcome::status(status)),
            },
            // Access to the main request includes access to its subrequests. nginx:
            // `ngx_http_core_access_phase`
            Stage::Access if request.is_nested() => Stage::Content,
            Stage::Access => match access::check(request) {
                Access::Granted => Stage::Content,
                Access::Denied(outcome) => return Some(outcome),
                Access::Wait => Stage::Authentication,
            },
            Stage::Authentication | Stage::EarlyBody => {
                request.stage = stage;
                return None;
            }
            Stage::Content => {
                set_label("http content");
                request.stage = stage;
                let location = request.location();
                let mirrors = !location.mirror.uris().is_empty() && !request.is_nested();
                let lost = request.uri_rewritten && location.path.is_alias();
                if mirrors
                    || location.try_files.is_some()
                    || request.current.conf.wants_realpath
                    || lost
                {
                    return None;
                }
                return match location.content {
                    Content::EmptyGif => Some(handler::empty_gif::run(request)),
                    Content::StubStatus => Some(handler::stub_status::run(request)),
                    Content::StatusApi => Some(status::api(request)),
                    Content::Metrics => Some(status::metrics(request)),
                    Content::Proxy => proxy::try_run(request),
                    Content::Files => file_at_once(request),
                };
            }
        }
    }
}

/// Responds with a file that can be opened without waiting for a disk.
fn file_at_once(request: &mut Request) -> Option<Outcome> {
    match handler::precompressed::try_run(request) {
        Tried::Answered(outcome) => Some(outcome),
        Tried::Declined => handler::static_file::try_run(request),
        Tried::Waits => None,
    }
}

/// Result of following an outcome.
enum Concluded {
    Done(Option<Response>),
    Again(Start),
}

/// Follows an outcome until there is a response that all filters accept, or another round begins.
fn conclude(request: &mut Request, mut outcome: Outcome) -> Concluded {
    loop {
        outcome = match outcome {
            Outcome::Response(mut response) => {
                if let Some(status) = request.error_status.take() {
                    response.head.status = status;
                    response.head.status_line = None;
                    response.head.has_upstreams_status = false;
                }
                error_page::deliver(request, &mut response.head);
                proxy::accel::deliver(request, &mut response.head);
                if response.head.status == 204 {
                    // nginx leaves an upstream's fields about the absent content alone.
                    if !response.head.has_upstreams_status {
                        response.head.content_type = None;
                    }
                    // RFC 9110 section 8.6: "A server MUST NOT send a Content-Length header field
                    // in any response with a status code of 1xx or 204".
                    response.head.content_length = None;
                }
                match filter::run(request, &mut response) {
                    Ok(()) => return Concluded::Done(Some(response)),
                    Err(special) => Outcome::Special(*special),
                }
            }
            Outcome::Close => {
                request.close_status(crate::special_pages::internal::CLOSE);
                return Concluded::Done(None);
            }
            // There is no client to receive a response.
            Outcome::Special(Special { status: status @ (408 | 499), .. }) => {
                request.close_status(status);
                return Concluded::Done(None);
            }
            Outcome::Special(special) if request.nested.is_some_and(|nested| nested.bare) => {
                let mut head = Head::new(special_pages::sent_status(special.status));
                head.headers = special.headers;
                return Concluded::Done(Some(Response { head, body: Body::Empty }));
            }
            Outcome::Special(special) => error_page::answer(request, special),
            Outcome::Redirect(target) => match redirect(request, target) {
                Ok(start) => return Concluded::Again(start),
                Err(outcome) => outcome,
            },
        }
    }
}

/// Changes the request for an internal redirect. nginx: `ngx_http_internal_redirect`,
/// `ngx_http_named_location`.
fn redirect(request: &mut Request, target: Target) -> Result<Start, Outcome> {
    request.proxy = proxy::Context::default();
    if let Some(state) = &request.upstream {
        state.redirected();
    }
    request.uri_changes = request.uri_changes.saturating_sub(1);
    match target {
        Target::Uri { path, args } => {
            if request.uri_changes == 0 {
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
            request.uri.path = path;
            request.uri.args = args;
            request.uri_is_file = false;
            request.uri_rewritten = false;
            request.uri_unparsed = false;
            request.internal = true;
            request.location = request.server().root;
            Ok(Start::Server)
        }
        Target::Named(name) => {
            let named = String::from_utf8_lossy(&name).into_owned();
            if request.uri_changes == 0 {
                request.log(
                    Level::Error,
                    format_args!(
                        "rewrite or internal redirection cycle while redirect to named location \
                         \"{named}\""
                    ),
                );
                return Err(Outcome::status(500));
            }
            if request.uri.path.is_empty() {
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
            request.internal = true;
            request.uri_changed = false;
            request.location = location;
            limit_except(request);
            Ok(Start::Location)
        }
    }
}

/// Starts the search for the location of a changed URI again, if the limit allows. nginx:
/// `ngx_http_core_post_rewrite_phase`.
fn post_rewrite(request: &mut Request) -> Option<Outcome> {
    request.uri_changes = request.uri_changes.saturating_sub(1);
    if request.uri_changes == 0 {
        request.log(
            Level::Error,
            format_args!(
                "rewrite or internal redirection cycle while processing \"{}\"",
                String::from_utf8_lossy(&request.uri.path)
            ),
        );
        return Some(Outcome::status(500));
    }
    request.location = request.server().root;
    None
}

/// Replaces the location's settings by those of `limit_except`.
fn limit_except(request: &mut Request) {
    if let Some(limit) = &request.location().limit_except
        && !limit.except.contains(request.method)
    {
        request.location = limit.location;
    }
}

/// Chooses the location. nginx: `ngx_http_core_find_config_phase`.
fn find_config(request: &mut Request) -> Option<Outcome> {
    request.uri_changed = false;
    let current = request.current.clone();
    let server = current.conf.server(request.server);
    let found = server
        .locations
        .find(&request.uri.path, |regex| regex.search_in(request, &request.uri.path));
    let (id, auto_redirect) = match found {
        Ok(Some(found)) => (*found.value, found.auto_redirect),
        Ok(None) => (server.root, false),
        Err(error) => {
            request.log(Level::Alert, format_args!("{error}"));
            return Some(Outcome::status(500));
        }
    };
    request.location = id;
    let location = current.conf.location(id);
    debug!(request, "using configuration \"{}\"", String::from_utf8_lossy(&location.name));
    if location.internal && !request.internal {
        return Some(Outcome::status(404));
    }
    limit_except(request);
    let location = current.conf.location(request.location);
    if is_too_large(request) {
        return Some(Outcome::status(413));
    }
    if auto_redirect {
        let mut to = location.escaped_name();
        if !request.uri.query().is_empty() {
            to.push(b'?');
            to.extend_from_slice(request.uri.query());
        }
        return Some(Outcome::moved(301, to));
    }
    None
}

/// Whether the body is longer than the location allows; logs it.
fn is_too_large(request: &mut Request) -> bool {
    let BodyLength::Known(length) = request.body_length else { return false };
    let max = request.location().body.client_max_body_size.0;
    if max == 0 || length <= max || request.body_discarded {
        return false;
    }
    request
        .log(Level::Error, format_args!("client intended to send too large body: {length} bytes"));
    // The error page must not be refused in turn.
    request.body_discarded = true;
    true
}

/// Reads the body with the settings of the server. Returns the status to respond with if that
/// fails. nginx: `ngx_http_read_early_body`.
async fn early_body(request: &mut Request) -> Result<(), u16> {
    if is_too_large(request) {
        return Err(413);
    }
    request_body::read(request).await
}

/// Whether a path has to be resolved on the disk before variables, which can't wait, use it:
/// `$realpath_root` of this location, if the configuration mentions it.
fn lacks_paths(request: &Request) -> bool {
    request.current.conf.wants_realpath && request.realpath_of != Some(request.location)
}

async fn precontent(request: &mut Request) -> Option<Outcome> {
    if request.location().try_files.is_some() {
        if !request.location().path.is_usable(request) {
            return Some(Outcome::status(500));
        }
        let outcome = handler::try_files::run(request).await;
        if outcome.is_some() {
            return outcome;
        }
    }
    if !request.location().mirror.uris().is_empty() && !request.is_nested() {
        return crate::mirror::run(request).await;
    }
    None
}

/// Runs the handler that makes the response. nginx: `ngx_http_core_content_phase`.
async fn content(request: &mut Request) -> Outcome {
    match request.location().content {
        Content::EmptyGif => return handler::empty_gif::run(request),
        Content::StubStatus => return handler::stub_status::run(request),
        Content::StatusApi => return status::api(request),
        Content::Metrics => return status::metrics(request),
        Content::Proxy => return proxy::run(request).await,
        Content::Files => {}
    }
    if !request.location().path.is_usable(request) {
        return Outcome::status(500);
    }
    if request.uri.path.last() == Some(&b'/') {
        if request.location().random_index.random_index
            && let Some(outcome) = handler::random_index::run(request).await
        {
            return outcome;
        }
        if let Some(outcome) = handler::index::run(request).await {
            return outcome;
        }
        if let Some(outcome) = handler::autoindex::run(request).await {
            return outcome;
        }
    }
    if let Some(outcome) = handler::precompressed::run(request).await {
        return outcome;
    }
    if let Some(outcome) = handler::static_file::run(request).await {
        return outcome;
    }
    if request.uri.path.last() == Some(&b'/') {
        let mut path = Vec::new();
        request.location().path.append_file(request, &mut path);
        request.log(
            Level::Error,
            format_args!("directory index of \"{}\" is forbidden", String::from_utf8_lossy(&path)),
        );
        return Outcome::status(403);
    }
    request.log(Level::Error, format_args!("no handler found"));
    Outcome::status(404)
}
