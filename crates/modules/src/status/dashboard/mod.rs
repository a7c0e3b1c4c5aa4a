//! `dashboard`: a page for browsers that shows the state of the server and follows it.
//!
//! The page is one file without external resources ([`page`]); it receives the report of `status_api` as
//! server-sent events ([`stream`]). All readers of a process share one report per interval ([`feed`]), which a
//! thread of its own makes. Never: keeps history, or does anything while nobody looks.

mod feed;
mod page;
mod stream;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Msec, Node, Value};
use nowait_http::module::{Handler, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_message::{Known, Method};

use stream::{EventStream, Reader};

/// The time between two reports, if the directive does not say otherwise.
const INTERVAL: Duration = Duration::from_secs(1);

/// The shortest one: a report of a large server takes some milliseconds of a thread.
const INTERVAL_MIN: Duration = Duration::from_millis(200);

/// The longest one.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Reads the directive.
pub fn dashboard(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let mut interval = INTERVAL;
    let (first, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let is_on = match &*first.text {
        b"on" => true,
        b"off" => false,
        _ => {
            let error = first.error(format!("invalid parameter \"{first}\""));
            return Err(error.expected("on or off"));
        }
    };
    for word in rest {
        let Some(text) = word.text.strip_prefix(b"interval=") else {
            let error = word.error(format!("invalid parameter \"{word}\""));
            return Err(error.expected("interval=time"));
        };
        let time = Msec::from_word(text).map_err(|invalid| invalid.in_parameter(word))?;
        interval = time.duration();
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
            let error = word.error(format!("invalid interval in \"{word}\""));
            return Err(error.expected("a time from 200ms to 60s"));
        }
    }
    if is_on {
        set_content(cx, node, move |_, _, _| Dashboard { interval });
    }
    Ok(())
}

/// Responds with the page, or with the stream of reports.
pub struct Dashboard {
    interval: Duration,
}

impl Default for Dashboard {
    fn default() -> Self {
        Self { interval: INTERVAL }
    }
}

impl Handler for Dashboard {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let outcome = self.respond(request);
        Step::Done(request, outcome)
    }
}

impl Dashboard {
    fn respond(&self, request: &Request) -> Outcome {
        if let Some(refusal) = super::refuse(request) {
            return refusal;
        }
        match super::part(request).as_deref() {
            Some("") => self.show(request),
            Some("events") => self.stream(request),
            _ => Outcome::status(404),
        }
    }

    /// The page, or what it asks for at its own URI.
    pub fn show(&self, request: &Request) -> Outcome {
        match names_event_stream(request.head().header(Known::Accept)) {
            true => self.stream(request),
            false => page(),
        }
    }

    fn stream(&self, request: &Request) -> Outcome {
        let Some(reader) = Reader::enter() else { return Outcome::status(503) };
        let mut head = Head::new(200);
        head.content_type = Some(Bytes::from_static(b"text/event-stream"));
        head.charset = Some(Bytes::from_static(b"utf-8"));
        head.add("Cache-Control", Bytes::from_static(b"no-store"));
        head.add("Vary", Bytes::from_static(b"Accept"));
        // A proxy in front of this server passes events on at once.
        head.add("X-Accel-Buffering", Bytes::from_static(b"no"));
        let body = match request.method() {
            Method::Head => Body::Empty,
            _ => Body::Stream(Box::new(EventStream::new(request, reader, self.interval))),
        };
        Response { head, body }.into()
    }
}

fn page() -> Outcome {
    let page = page::page();
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(b"text/html"));
    head.charset = Some(Bytes::from_static(b"utf-8"));
    head.content_length = Some(page.text.len() as u64);
    head.add("Cache-Control", Bytes::from_static(b"no-cache"));
    head.add("Vary", Bytes::from_static(b"Accept"));
    head.add("Content-Security-Policy", page.policy.clone());
    head.add("Referrer-Policy", Bytes::from_static(b"no-referrer"));
    head.add("X-Content-Type-Options", Bytes::from_static(b"nosniff"));
    Response { head, body: Body::Bytes(page.text.clone()) }.into()
}

/// Whether a client accepts events rather than a page: `EventSource` names nothing else.
fn names_event_stream(accept: Option<&[u8]>) -> bool {
    accept.unwrap_or_default().split(|&byte| byte == b',').any(|range| {
        let end = range.iter().position(|&byte| byte == b';').unwrap_or(range.len());
        range[..end].trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
    })
}

/// Whether a newer configuration than that of this generation is in use.
fn is_replaced(generation: u64) -> bool {
    super::NEWEST.load(Ordering::Relaxed) > generation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_sources_are_recognised() {
        for accept in ["text/event-stream", "TEXT/Event-Stream;q=1, */*", "a/b, text/event-stream"]
        {
            assert!(names_event_stream(Some(accept.as_bytes())), "{accept}");
        }
        for accept in ["text/html,*/*;q=0.8", "", "text/event-streams", ";", "*/*"] {
            assert!(!names_event_stream(Some(accept.as_bytes())), "{accept}");
        }
        assert!(!names_event_stream(None));
    }
}
