//! The life of a request: nginx's phases in nginx's order, one function each.
//!
//! Called by the connection task of every protocol. A phase either lets the request go on or
//! decides ([`Outcome`]); an internal redirect starts another round. Never writes to a socket.
//!
//! | phase | what happens here |
//! |---|---|
//! | server rewrite | `return` of the server |
//! | find config | the location is chosen; `internal`, `client_max_body_size` |
//! | rewrite | `return` of the location |
//! | preaccess, access | limits and access control |
//! | precontent | `try_files` |
//! | content | the location's handler, or index, autoindex and static files |

use crate::conf::Content;
use crate::error_page;
use crate::filter;
use crate::handler;
use crate::log::Level;
use crate::outcome::{Outcome, Target};
use crate::request::{BodyLength, Request};
use crate::response::Response;

/// Where a round begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At the server: the location has to be found.
    Server,
    /// In a named location, which is set already.
    Location,
}

/// Answers a request. `None`: close the connection without an answer.
///
/// On return `request.location` is the location whose settings the response is sent with.
pub async fn respond(request: &mut Request) -> Option<Response> {
    let outcome = round(request, Start::Server).await;
    conclude(request, outcome).await
}

/// Answers a request that could not be read: by the error page for the status, else a built-in one.
pub async fn refuse(request: &mut Request, status: u16) -> Option<Response> {
    conclude(request, Outcome::status(status)).await
}

/// Follows outcomes until there is a response that all filters accept.
async fn conclude(request: &mut Request, mut outcome: Outcome) -> Option<Response> {
    loop {
        outcome = match outcome {
            Outcome::Response(mut response) => {
                if let Some(status) = request.error_status.take() {
                    response.head.status = status;
                    response.head.status_line = None;
                }
                match filter::run(request, &mut response) {
                    Ok(()) => return Some(response),
                    Err(special) => Outcome::Special(special),
                }
            }
            Outcome::Close => return None,
            Outcome::Special(special) => error_page::answer(request, special),
            Outcome::Redirect(target) => match redirect(request, target) {
                Ok(start) => round(request, start).await,
                Err(outcome) => outcome,
            },
        }
    }
}

/// One pass through the phases.
async fn round(request: &mut Request, start: Start) -> Outcome {
    if start == Start::Server {
        if let Some(outcome) = server_rewrite(request) {
            return outcome;
        }
        if let Some(outcome) = find_config(request) {
            return outcome;
        }
    }
    if let Some(outcome) = rewrite(request) {
        return outcome;
    }
    prepare_paths(request).await;
    if let Some(outcome) = precontent(request).await {
        return outcome;
    }
    content(request).await
}

/// Changes the request for an internal redirect. nginx: `ngx_http_internal_redirect`,
/// `ngx_http_named_location`.
#[allow(clippy::result_large_err, reason = "outcomes are large, errors here are rare")]
fn redirect(request: &mut Request, target: Target) -> Result<Start, Outcome> {
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
            request.location = location;
            Ok(Start::Location)
        }
    }
}

fn server_rewrite(request: &mut Request) -> Option<Outcome> {
    let current = request.current.clone();
    let root = current.conf.location(current.conf.server(request.server).root);
    root.rewrite.run(request)
}

fn rewrite(request: &mut Request) -> Option<Outcome> {
    let current = request.current.clone();
    let location = current.conf.location(request.location);
    if request.location == current.conf.server(request.server).root {
        return None; // the server's own code ran in the phase before
    }
    location.rewrite.run(request)
}

/// Chooses the location. nginx: `ngx_http_core_find_config_phase`.
fn find_config(request: &mut Request) -> Option<Outcome> {
    let current = request.current.clone();
    let server = current.conf.server(request.server);
    let found = server.locations.find(&request.uri.path, |regex| regex.search(request));
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
    if location.internal && !request.internal {
        return Some(Outcome::status(404));
    }
    if let BodyLength::Known(length) = request.body_length {
        let max = location.body.client_max_body_size.0;
        if max != 0 && length > max && !request.body_discarded {
            request.log(
                Level::Error,
                format_args!("client intended to send too large body: {length} bytes"),
            );
            return Some(Outcome::status(413));
        }
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

/// Resolves what variables can't wait for: `$realpath_root`, if the configuration mentions it.
async fn prepare_paths(request: &mut Request) {
    if request.current.conf.wants_realpath {
        crate::files::resolve_root(request).await;
    }
}

async fn precontent(request: &mut Request) -> Option<Outcome> {
    if request.location().try_files.is_some() {
        return handler::try_files::run(request).await;
    }
    None
}

/// The handler that makes the response. nginx: `ngx_http_core_content_phase`.
async fn content(request: &mut Request) -> Outcome {
    match request.location().content {
        Content::EmptyGif => return handler::empty_gif::run(request),
        Content::Files => {}
    }
    if request.uri.path.last() == Some(&b'/') {
        if let Some(outcome) = handler::index::run(request).await {
            return outcome;
        }
        if let Some(outcome) = handler::autoindex::run(request).await {
            return outcome;
        }
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
