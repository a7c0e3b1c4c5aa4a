//! `post_action`: a subrequest after a response has been sent. nginx: `ngx_http_post_action`.
//!
//! Called when a request is logged. It runs in the background, with the variables of the response that was
//! sent, and its own response is discarded.
//!
//! nginx differs: there it is the same request, which is logged afterwards, and the client's next
//! request waits for it.

use nowait_message::Method;

use crate::log::Level;
use crate::phases::explained;
use crate::request::Request;
use crate::subrequest::{self, Entry, Subrequest};
use crate::trace::Trace;
use crate::upstream_state::UpstreamState;

/// Starts the `post_action` of the request's location, if it has one. Failures are logged.
#[inline]
pub fn run(request: &Request) {
    if request.location().client.post_action.is_some() {
        start(request);
    }
}

#[inline(never)]
fn start(request: &Request) {
    let Some(mut action) = begin(request) else { return };
    action.set_started(request.started());
    if let Some(tries) = UpstreamState::get(request.state()) {
        tries.clone().share(action.state_mut());
    }
    action.continue_response(request);
    // A refusal was logged already.
    let _ = subrequest::background(action);
}

/// Explains it.
pub(crate) async fn explain(request: &Request, trace: &mut Trace) {
    let Some(mut action) = begin(request) else { return };
    trace.by = "post_action";
    let text = "post_action: after the response, in the background";
    explained::subrequest(&mut action, trace, text.to_owned()).await;
}

/// The subrequest, which has not seen the response yet.
fn begin(request: &Request) -> Option<Box<Request>> {
    request.location().client.post_action.as_ref()?;
    let current = request.current().clone();
    let uri = current.conf.location(request.location_id()).client.post_action.as_ref()?;
    let to = match uri.0.first() {
        None => return None,
        Some(b'/') => Subrequest::get(&uri.0[..], None),
        Some(_) => Subrequest {
            entry: Entry::Location,
            ..Subrequest::get(&request.uri().path[..], request.uri().args.clone())
        },
    };
    // Without a parsed head there is no other method.
    let method = match request.method() {
        Method::Other => Method::Get,
        method => method,
    };
    let action = Subrequest { method, background: true, header_only: true, ..to };
    let mut action = action.begin(request).ok()?;
    if action.entry() == Entry::Location {
        let Some(&location) = request.server().locations.named(&uri.0) else {
            let name = String::from_utf8_lossy(&uri.0);
            request.log(Level::Error, format_args!("could not find named location \"{name}\""));
            return None;
        };
        action.enter_location(location);
    }
    Some(action)
}
