//! The phases of a request that is explained rather than served (`nowait explain`).
//!
//! The same phases, with the same functions between them; but handlers are asked to explain
//! themselves, and run only if nobody else can notice. Called by [`explain`](crate::explain).

use super::{
    Concluded, Denied, End, Start, advance, conclude, enter, granted, lacks_paths, start_round,
    weigh,
};
use crate::generation::Current;
use crate::module::{Explained, Phase, Position, Step};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::Head;
use crate::trace::{About, Trace};

/// How the explanation ended.
pub enum Ended {
    /// With this response, or without any: the connection is closed.
    Response(Option<Box<Head>>),
    /// At a handler whose response comes from an upstream server.
    Elsewhere,
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
        let settled = match handlers.get(phase, handler) {
            Some(next) => {
                request.position.handler += 1;
                match next.explain(request, trace).await {
                    Explained::Run => settle(next.handle(request)).await,
                    Explained::Next => Settled::Next,
                    Explained::Done(outcome) => Settled::Done(outcome),
                    Explained::Elsewhere => return Ended::Elsewhere,
                    Explained::Unknown if phase == Phase::Content => return Ended::Unknown,
                    // What it may object to is left out.
                    Explained::Unknown => Settled::Next,
                }
            }
            None => between(request, trace),
        };
        let outcome = match settled {
            Settled::Next => continue,
            Settled::Granted => {
                granted(request);
                continue;
            }
            Settled::Done(outcome) if phase == Phase::Access => {
                trace.add(About::Access, None, outcome.describe());
                match weigh(request, outcome) {
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
            Settled::Refused(outcome) => outcome,
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
                return Ended::Response(response.map(|response| response.head));
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
                    let span = request.location().span;
                    let name = String::from_utf8_lossy(&request.location().name).into_owned();
                    let path = request.uri.path.clone();
                    trace.location(span, &path, format!("location \"{name}\""));
                }
            }
        }
    }
}

/// Between two phases: the core's work, above all the choice of a location.
fn between(request: &mut Request, trace: &mut Trace) -> Settled {
    let phase = request.position.phase;
    let chooses =
        phase == Phase::ServerRewrite || (phase == Phase::Rewrite && request.rewriting.changed);
    let path = chooses.then(|| request.uri.path.clone());
    let result = advance(request);
    if let Some(path) = path {
        let location = request.location();
        let text = match location.name.is_empty() {
            true => "no location matches: the settings of the server apply".to_owned(),
            false => format!("location \"{}\"", String::from_utf8_lossy(&location.name)),
        };
        let (span, internal) = (location.span, location.internal && !request.internal);
        trace.location(span, &path, text);
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
