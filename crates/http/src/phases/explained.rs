//! The phases of a request that is explained rather than served (`nowait explain`).
//!
//! The same phases, with the same functions between them; but handlers are asked to explain
//! themselves, and run only if nobody else can notice. Called by [`explain`](crate::explain).

use nowait_conf::Span;

use super::{
    Concluded, Denied, End, Start, advance, conclude, enter, granted, lacks_paths, rewrites_first,
    start_nested, start_round, weigh,
};
use crate::conf::client::Satisfy;
use crate::generation::Current;
use crate::module::{Explained, Phase, Position, Step};
use crate::nested::Entry;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::{Body, Head, Response};
use crate::trace::{self, About, Trace};

/// How the explanation ended.
pub enum Ended {
    /// With this response, or without any: the connection is closed.
    Response(Option<Box<Head>>),
    /// At a handler whose response comes from an upstream server. This is the head of an empty response
    /// with status 200 after the filters.
    Elsewhere(Box<Head>),
    /// At a handler that can't tell what it would do.
    Unknown,
}

/// What a handler has done.
enum Settled {
    Next,
    Granted,
    Done(Outcome),
    /// Nothing has granted access.
    Refused(Outcome),
}

/// Goes through the phases.
pub async fn explain(request: &mut Request, current: &Current, trace: &mut Trace) -> Ended {
    enter(request, Phase::PostRead);
    follow(request, current, trace).await
}

/// Goes through the phases with a subrequest that a module has made; `text` says for what. Its steps
/// follow, one level deeper.
pub async fn subrequest(request: &mut Request, trace: &mut Trace, text: String) -> Ended {
    trace.add(About::Subrequest, None, text);
    let current = request.current.clone();
    let mut own = Trace::default();
    start_nested(request);
    if request.entry != Entry::Server {
        at_location(request, &mut own);
    }
    // Boxed: a handler that explains itself may have made it.
    let ended = Box::pin(follow(request, &current, &mut own)).await;
    let text = match &ended {
        Ended::Response(Some(head)) => format!("responds with {}", head.status),
        Ended::Response(None) => "ends without a response".to_owned(),
        Ended::Elsewhere(_) => "the response is the upstream server's".to_owned(),
        Ended::Unknown => "the response is not known in advance".to_owned(),
    };
    own.by = "";
    own.add(About::Subrequest, None, text);
    trace.subrequest(own);
    ended
}

async fn follow(request: &mut Request, current: &Current, trace: &mut Trace) -> Ended {
    // Every pass advances; changes of the URI and internal redirects are counted.
    loop {
        let Position { phase, handler, location } = request.position;
        if handler == 0
            && matches!(phase, Phase::ServerRewrite | Phase::Rewrite)
            && lacks_paths(request)
        {
            request.realpath.of = Some(request.location);
            crate::files::resolve_root(request).await;
        }
        let handlers = &current.conf.location(location).handlers;
        trace.by = "";
        let first = trace.steps.len();
        let settled = match handlers.get(phase, handler) {
            Some(next) => {
                request.position.handler += 1;
                match next.explain(request, trace).await {
                    Explained::Run => settle(next.handle(request)).await,
                    Explained::Next => Settled::Next,
                    Explained::Done(outcome) => Settled::Done(outcome),
                    Explained::Granted => Settled::Granted,
                    Explained::Elsewhere => return elsewhere(request, current, trace).await,
                    Explained::Unknown if phase == Phase::Content => return Ended::Unknown,
                    // What it may object to is left out.
                    Explained::Unknown => Settled::Next,
                }
            }
            None => between(request, current, trace),
        };
        let outcome = match settled {
            Settled::Next => continue,
            Settled::Granted => {
                let any = request.location().client.satisfy == Satisfy::Any;
                let others = if any { " (satisfy any: no other check is needed)" } else { "" };
                let span = trace.steps.get(first..).and_then(checked);
                trace.add(About::Access, span, format!("the check is passed{others}"));
                granted(request);
                continue;
            }
            Settled::Done(outcome) if phase == Phase::Access => {
                let text = outcome.describe();
                let weighed = weigh(request, outcome);
                let others = match &weighed {
                    Denied::Collected => ", unless another check is passed (satisfy any)",
                    _ => "",
                };
                let span = trace.steps.get(first..).and_then(checked);
                trace.add(About::Access, span, text + others);
                match weighed {
                    Denied::Collected => continue,
                    Denied::Refused(special) => {
                        enter(request, Phase::Precontent);
                        Outcome::Special(special)
                    }
                    Denied::Done(outcome) => {
                        enter(request, Phase::Precontent);
                        outcome
                    }
                }
            }
            Settled::Refused(outcome) => {
                trace.by = "satisfy";
                let text = format!("no check is passed: {}", outcome.describe());
                trace.add(About::Access, None, text);
                outcome
            }
            Settled::Done(outcome) => outcome,
        };
        if let Outcome::Redirect(_) = &outcome {
            trace.add(About::Redirect, None, outcome.describe());
        }
        let status = match &outcome {
            Outcome::Special(special) => Some(special.status),
            _ => None,
        };
        match conclude(request, current, outcome) {
            Concluded::Done(response) => {
                let head = response.map(|response| response.head);
                if let Some(head) = &head {
                    let filters = &current.conf.location(request.location).filters;
                    filters.explain(request, Some(head), trace).await;
                }
                return Ended::Response(head);
            }
            Concluded::Replace(..) => return Ended::Unknown,
            Concluded::Again(start) => {
                if let Some(status) = status {
                    trace.by = "error_page";
                    let path = String::from_utf8_lossy(&request.uri.path);
                    let text = format!("error_page for {status}: \"{path}\"");
                    trace.add(About::Redirect, None, text);
                }
                start_round(request, start);
                if start == Start::Location {
                    at_location(request, trace);
                }
            }
        }
    }
}

/// The directive that has decided about access, by the steps of its handler.
fn checked(steps: &[trace::Step]) -> Option<Span> {
    steps.last().filter(|step| step.about == About::Access)?.span
}

/// The request is at a location that was not looked for.
fn at_location(request: &Request, trace: &mut Trace) {
    let location = request.location();
    let text = format!("location \"{}\"", String::from_utf8_lossy(&location.name));
    trace.location(location.span, &request.uri.path, text);
    limit_except(request, trace);
}

/// What becomes of the response of an upstream server.
async fn elsewhere(request: &mut Request, current: &Current, trace: &mut Trace) -> Ended {
    let mut response = Response { head: Head::new(200), body: Body::Empty };
    let filters = &current.conf.location(request.location).filters;
    if filters.run(0, request, &mut response).is_err() {
        response.head = Head::new(200);
    }
    filters.explain(request, None, trace).await;
    Ended::Elsewhere(response.head)
}

/// Between two phases: the core's work, above all the choice of a location.
fn between(request: &mut Request, current: &Current, trace: &mut Trace) -> Settled {
    let chooses = match request.position.phase {
        Phase::PostRead => !rewrites_first(request),
        Phase::ServerRewrite => true,
        Phase::Rewrite => request.rewriting.changed,
        _ => false,
    };
    let path = chooses.then(|| request.uri.path.clone());
    let result = advance(request, current);
    if let Some(path) = path {
        let location = request.location();
        let text = match location.name.is_empty() {
            true => "no location matches: the settings of the server apply".to_owned(),
            false => format!("location \"{}\"", String::from_utf8_lossy(&location.name)),
        };
        let (span, internal) = (location.span, location.internal && !request.internal);
        trace.location(span, &path, text);
        limit_except(request, trace);
        if internal {
            trace.add(About::Location, None, "internal: requests of clients get 404");
        }
    }
    match result {
        Ok(()) => Settled::Next,
        Err(End::Outcome(outcome)) => Settled::Done(outcome),
        Err(End::Refusal(special)) => {
            enter(request, Phase::Precontent);
            Settled::Refused(Outcome::Special(*special))
        }
    }
}

/// The location's settings for other methods apply.
fn limit_except(request: &Request, trace: &mut Trace) {
    let mut limits =
        request.current.conf.locations().iter().filter_map(|l| l.limit_except.as_ref());
    if let Some(limit) = limits.find(|limit| limit.location == request.location) {
        trace.inside(limit.span);
        let method = String::from_utf8_lossy(request.method_name());
        let text = format!("limit_except: its settings apply to {method}");
        trace.add(About::Location, Some(limit.span), text);
    }
}

/// Waits until a handler has decided.
async fn settle(mut step: Step<'_>) -> Settled {
    loop {
        step = match step {
            Step::Next(_) => return Settled::Next,
            Step::Granted(_) => return Settled::Granted,
            Step::Done(_, outcome) => return Settled::Done(outcome),
            Step::Wait(rest) => rest.await,
        };
    }
}
