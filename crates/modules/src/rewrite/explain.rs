//! The steps of a program for `nowait explain`: the program itself runs, and after each step its
//! effect on the request is noted.

use nowait_http::module::HandlerExplanation;
use nowait_http::request::Request;
use nowait_http::trace::{Trace, TraceSubject};
use nowait_http::variables::complex::SetTarget;

use super::{Cursor, Flow, Op, Program};

/// Runs a program to its end.
pub async fn run(
    program: &Program,
    request: &mut Request,
    trace: &mut Trace,
) -> HandlerExplanation {
    let mut cursor = Cursor::START;
    while let Some(op) = program.ops.get(cursor.at) {
        let (at, groups) = (cursor.at, cursor.groups);
        cursor.at += 1;
        let before = target(request);
        let mut flow = program.apply(op, request, &mut cursor);
        let (mut tested, mut held) = (None, None);
        if let Flow::Test(test) = &flow {
            let mut path = Vec::new();
            test.path.append_with(request, groups, &mut path);
            tested = Some(shown(&path));
            flow = match test.run(request, &mut cursor).await {
                Ok(holds) => {
                    held = Some(holds);
                    Flow::Continue
                }
                Err(outcome) => Flow::Done(outcome),
            };
        }
        let text = match op {
            Op::Rewrite(rewrite) => {
                let pattern = shown(rewrite.regex.pattern());
                match (&flow, target(request)) {
                    (Flow::Done(outcome), _) => {
                        format!("rewrite: \"{pattern}\" matches: {}", outcome.describe())
                    }
                    (_, after) if after != before => {
                        format!("rewrite: \"{pattern}\" matches: {before} becomes {after}")
                    }
                    (Flow::Stop, _) => format!("rewrite: \"{pattern}\" matches: {before} stays"),
                    _ => format!("rewrite: \"{pattern}\" does not match {before}"),
                }
            }
            Op::Return(_) => match &flow {
                Flow::Done(outcome) => format!("return: {}", outcome.describe()),
                _ => "return".to_owned(),
            },
            Op::Break => "break: the request stays in this location".to_owned(),
            Op::Set { place, value } => {
                let mut text = Vec::new();
                match place {
                    SetTarget::Slot(slot) => text.extend(request.slot(*slot).unwrap_or_default()),
                    SetTarget::Builtin(_) => value.append_with(request, groups, &mut text),
                }
                format!("set: the value is \"{}\"", shown(&text))
            }
            Op::Call(call) => match (&flow, call.place) {
                (Flow::Done(outcome), _) => format!("{}: {}", call.name, outcome.describe()),
                (_, SetTarget::Slot(slot)) => {
                    let value = request.slot(slot).unwrap_or_default();
                    format!("{}: the value is \"{}\"", call.name, shown(&value))
                }
                (_, SetTarget::Builtin(_)) => format!("{}: the value is set", call.name),
            },
            Op::If { otherwise, location, .. } => {
                let holds = held.unwrap_or_else(|| match location {
                    Some(location) => request.location_id() == *location,
                    // An empty block makes no difference.
                    None => cursor.at != *otherwise,
                });
                if holds && location.is_some() {
                    trace.inside(program.spans[at]);
                }
                let file = tested.map(|path| format!(" for \"{path}\"")).unwrap_or_default();
                let holds = if holds { "holds" } else { "does not hold" };
                format!("if: the condition {holds}{file}")
            }
        };
        trace.add(TraceSubject::Rewrite, program.spans.get(at).copied(), text);
        match flow {
            Flow::Continue | Flow::Test(_) => {}
            Flow::Stop => return HandlerExplanation::Next,
            Flow::Done(outcome) => return HandlerExplanation::Done(outcome),
        }
    }
    HandlerExplanation::Next
}

/// The URI with its query string.
fn target(request: &Request) -> String {
    match &request.uri().args {
        Some(args) if !args.is_empty() => {
            format!("{}?{}", shown(&request.uri().path), shown(args))
        }
        _ => shown(&request.uri().path),
    }
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
