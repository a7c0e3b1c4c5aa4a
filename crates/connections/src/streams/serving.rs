//! One request: runs its [life](crate::life), and decides how its stream ends.
//!
//! Started by the connection for each stream. Most requests are done at their first step, and never
//! become a task.

use std::rc::Rc;

use nowait_http::request::Request;
use nowait_http::special_pages::REQUEST_TIMEOUT;

use super::response::StreamResponse;
use super::{RequestStream, StreamEnd};
use crate::life;
use crate::send_error::SendError;

/// Ends a stream when its request's task ends, for any reason.
struct StreamGuard<S: RequestStream>(Rc<S>, StreamEnd);

impl<S: RequestStream> Drop for StreamGuard<S> {
    fn drop(&mut self) {
        self.0.finish(self.1);
    }
}

/// Responds to a request whose head is known; `refused`: with this status.
pub(crate) async fn serve<S: RequestStream + 'static>(
    stream: Rc<S>,
    mut request: Box<Request>,
    refused: Option<u16>,
) {
    let kept = stream.clone();
    let mut guard = StreamGuard(stream, StreamEnd::OwnFault);
    let mut counted = kept.all().services.counts.request();
    counted.answering();
    let mut response = StreamResponse::new(&guard.0);
    let ended = life::serve(&mut response, &mut request, refused).await;
    guard.1 = end(&request, &ended);
    let client = &request.location().client;
    let keep = client.keepalive_min_timeout.duration();
    request.end();
    drop(counted);
    drop(guard);
    kept.keep(keep);
    kept.all().keep_spare(request);
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
