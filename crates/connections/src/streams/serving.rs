//! One request: runs its [life](crate::life), and decides how its stream ends.
//!
//! Started by the connection for each stream. Most requests are done at their first step, and never
//! become a task.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use nowait_http::request::Request;
use nowait_http::special_pages::REQUEST_TIMEOUT;
use nowait_runtime::spawn;

use super::connection::StreamConnection;
use super::heads::DecodedHead;
use super::request_future;
use super::requests::{self, Fault};
use super::response::StreamResponse;
use super::stream::{RequestStream, StreamEnd};
use crate::life;
use crate::send_error::SendError;

/// Ends a stream when its request's task ends, for any reason.
struct StreamGuard<S: RequestStream>(Rc<S>, StreamEnd);

impl<S: RequestStream> Drop for StreamGuard<S> {
    fn drop(&mut self) {
        self.0.finish(self.1);
    }
}

/// Begins a request whose stream was added, and whose head has been received; `fault`: what the protocol's core says
/// against it.
pub(crate) fn begin<C: StreamConnection>(
    connection: &C,
    stream: Rc<C::Stream>,
    request: Box<Request>,
    received: DecodedHead,
    fault: Option<Fault>,
) {
    let (client, streams) = (connection.client(), connection.streams());
    requests::count(client);
    stream.prioritise(requests::priority(request.head()));
    stream.state().asks_for_tunnel.set(received.tunnel.is_some());
    let refused = requests::refusal(&request, received, fault);
    if requests::is_last(client, &request) && !streams.leaving.replace(true) {
        streams.used_up.set(true);
        streams.more.set(true);
    }
    let spare = streams.spare.take();
    let mut serving = spare.unwrap_or_else(|| request_future::memory(serve));
    serving.begin(stream, request, refused);
    // Most requests need no task: this step completes them.
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(&mut serving).poll(&mut cx) {
        Poll::Ready(()) => drop(streams.spare.replace(Some(serving))),
        Poll::Pending => drop(spawn(serving)),
    }
}

/// Responds to a request whose head is known; `refused`: with this status.
async fn serve<S: RequestStream + 'static>(
    stream: Rc<S>,
    mut request: Box<Request>,
    refused: Option<u16>,
) {
    let kept = stream.clone();
    let mut guard = StreamGuard(stream, StreamEnd::OwnFault);
    let mut counted = kept.connection().all().services.counts.request();
    counted.answering();
    let mut response = StreamResponse::new(&guard.0);
    let ended = life::serve(&mut response, &mut request, refused).await;
    guard.1 = end(&request, &ended);
    let client = &request.location().client;
    let keep = client.keepalive_min_timeout.duration();
    request.end();
    drop(counted);
    drop(guard);
    kept.connection().streams().keep(keep);
    kept.connection().all().keep_spare(request);
}

/// The end of a request's stream.
fn end(request: &Request, ended: &life::Ending) -> StreamEnd {
    match ended {
        // The content was not requested, so none follows.
        life::Ending::Sent if request.head().expects_continue() => {
            StreamEnd::CompleteWithoutRequest
        }
        life::Ending::Sent => StreamEnd::Complete,
        life::Ending::Abandoned => StreamEnd::Cancelled,
        life::Ending::Unanswered if request.out().status == REQUEST_TIMEOUT => {
            StreamEnd::ClientFault
        }
        life::Ending::Unanswered => StreamEnd::OwnFault,
        life::Ending::Failed(SendError::Client(_)) => StreamEnd::ClientFault,
        life::Ending::Failed(SendError::Body(_)) => StreamEnd::OwnFault,
    }
}
