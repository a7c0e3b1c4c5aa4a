//! The phases of a request that is explained rather than served (`nowait explain`).
//!
//! The same phases, with the same functions between them; but handlers explain themselves, and run only if
//! they have no side effects. Called by [`explain`](crate::explain).

use nowait_conf::Span;

use super::{
    Denied, FilterResult, PhaseEnd, Start, advance, conclude, enter, granted, lacks_paths,
    rewrites_first, start_nested, start_round, weigh,
};
use crate::conf::client::Satisfy;
use crate::generation::Current;
use crate::module::{HandlerExplanation, Phase, Position, Step};
use crate::nested::Entry;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::{Body, Head, Response};
use crate::trace::{self, Trace, TraceSubject};

/// The end of the explanation.
pub enum Ended {
    /// A response, or none if the connection is closed.
    Response(Option<Box<Head>>),
    /// At a handler whose response comes from an upstream server. This is the head of an empty response
    /// with status 200 after the filters.
    Elsewhere(Box<Head>),
    /// At a handler that can't predict its result.
    Unknown,
}

/// The result of a handler.
enum Settled {
    Next,
    Granted,
    Done(Outcome),
    /// No handler has granted access.
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
    trace.add(TraceSubject::Subrequest, None, text);
    let current = request.current().clone();
    let mut own = Trace::default();
    start_nested(request);
    if request.entry() != Entry::Server {
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
    own.add(TraceSubject::Subrequest, None, text);
    trace.subrequest(own);
    ended
}

async fn follow(request: &mut Request, current: &Current, trace: &mut Trace) -> Ended {
    // Every pass advances; changes of the URI and internal redirects are counted.
    loop {
        let Position { phase, handler, location } = request.position();
        if handler == 0
            && matches!(phase, Phase::ServerRewrite | Phase::Rewrite)
            && lacks_paths(request)
        {
            request.realpath_mut().of = Some(request.location_id());
            crate::files::resolve_root(request).await;
        }
        let handlers = &current.conf.location(location).handlers;
        trace.by = "";
        let first = trace.steps.len();
        let settled = match handlers.get(phase, handler) {
            Some(next) => {
                request.pass_handler();
                match next.explain(request, trace).await {
                    HandlerExplanation::Run => settle(next.handle(request)).await,
                    HandlerExplanation::Next => Settled::Next,
                    HandlerExplanation::Done(outcome) => Settled::Done(outcome),
                    HandlerExplanation::Granted => Settled::Granted,
                    HandlerExplanation::Elsewhere => {
                        return elsewhere(request, current, trace).await;
                    }
                    HandlerExplanation::Unknown if phase == Phase::Content => {
                        return Ended::Unknown;
                    }
                    // Its objections are left out.
                    HandlerExplanation::Unknown => Settled::Next,
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
                trace.add(TraceSubject::Access, span, format!("the check is passed{others}"));
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
                trace.add(TraceSubject::Access, span, text + others);
                match weighed {
                    Denied::Collected => continue,
                    Denied::Refused(special) => {
                        enter(request, Phase::Precontent);
                        Outcome::Status(special)
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
                trace.add(TraceSubject::Access, None, text);
                outcome
            }
            Settled::Done(outcome) => outcome,
        };
        if let Outcome::Redirect(_) = &outcome {
            trace.add(TraceSubject::Redirect, None, outcome.describe());
        }
        let status = match &outcome {
            Outcome::Status(special) => Some(special.status),
            _ => None,
        };
        match conclude(request, current, outcome) {
            FilterResult::Done(response) => {
                let head = response.map(|response| response.head);
                if let Some(head) = &head {
                    let filters = &current.conf.location(request.location_id()).filters;
                    filters.explain(request, Some(head), trace).await;
                }
                return Ended::Response(head);
            }
            FilterResult::Replace(..) => return Ended::Unknown,
            FilterResult::Again(start) => {
                if let Some(status) = status {
                    trace.by = "error_page";
                    let path = String::from_utf8_lossy(&request.uri().path);
                    let text = format!("error_page for {status}: \"{path}\"");
                    trace.add(TraceSubject::Redirect, None, text);
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
fn checked(steps: &[trace::TraceStep]) -> Option<Span> {
    steps.last().filter(|step| step.about == TraceSubject::Access)?.span
}

/// The request is at a location that was not searched.
fn at_location(request: &Request, trace: &mut Trace) {
    let location = request.location();
    let text = format!("location \"{}\"", String::from_utf8_lossy(&location.name));
    trace.location(location.span, &request.uri().path, text);
    limit_except(request, trace);
}

/// The processing of an upstream server's response.
async fn elsewhere(request: &mut Request, current: &Current, trace: &mut Trace) -> Ended {
    let mut response = Response { head: Head::new(200), body: Body::Empty };
    let filters = &current.conf.location(request.location_id()).filters;
    if filters.run(0, request, &mut response).is_err() {
        response.head = Head::new(200);
    }
    filters.explain(request, None, trace).await;
    Ended::Elsewhere(response.head)
}

/// Between two phases: the core's work, above all the choice of a location.
fn between(request: &mut Request, current: &Current, trace: &mut Trace) -> Settled {
    let chooses = match request.position().phase {
        Phase::PostRead => !rewrites_first(request),
        Phase::ServerRewrite => true,
        Phase::Rewrite => request.rewriting().changed,
        _ => false,
    };
    let path = chooses.then(|| request.uri().path.clone());
    let result = advance(request, current);
    if let Some(path) = path {
        let location = request.location();
        let text = match location.name.is_empty() {
            true => "no location matches: the settings of the server apply".to_owned(),
            false => format!("location \"{}\"", String::from_utf8_lossy(&location.name)),
        };
        let (span, internal) = (location.span, location.internal && !request.is_internal());
        trace.location(span, &path, text);
        limit_except(request, trace);
        if internal {
            trace.add(TraceSubject::Location, None, "internal: requests of clients get 404");
        }
    }
    match result {
        Ok(()) => Settled::Next,
        Err(PhaseEnd::Outcome(outcome)) => Settled::Done(outcome),
        Err(PhaseEnd::Refusal(special)) => {
            enter(request, Phase::Precontent);
            Settled::Refused(Outcome::Status(*special))
        }
    }
}

/// The location's settings for other methods apply.
fn limit_except(request: &Request, trace: &mut Trace) {
    let mut limits =
        request.current().conf.locations().iter().filter_map(|l| l.limit_except.as_ref());
    if let Some(limit) = limits.find(|limit| limit.location == request.location_id()) {
        trace.inside(limit.span);
        let method = String::from_utf8_lossy(request.method_name());
        let text = format!("limit_except: its settings apply to {method}");
        trace.add(TraceSubject::Location, Some(limit.span), text);
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
