//! One request: runs its [life](crate::life), and decides how its stream ends.
//!
//! Started by the connection for each stream. Most requests are done at their first step, and never
//! become a task.

use std::rc::Rc;

use nowait_h2::ErrorCode;
use nowait_http::request::Request;
use nowait_http::special_pages::REQUEST_TIMEOUT;

use super::response::Http2Response;
use super::stream::{Stream, StreamEnd, StreamGuard};
use crate::life;
use crate::send_error::SendError;

/// Responds to a request whose head is known; `refused`: with this status.
pub(super) async fn serve(stream: Rc<Stream>, mut request: Box<Request>, refused: Option<u16>) {
    let connection = stream.connection.clone();
    let mut guard = StreamGuard(stream, StreamEnd::Reset(ErrorCode::INTERNAL_ERROR));
    let mut counted = connection.all().services.counts.request();
    counted.answering();
    let mut response = Http2Response::new(&guard.0);
    let ended = life::serve(&mut response, &mut request, refused).await;
    guard.1 = end(&request, &ended);
    let client = &request.location().client;
    let keep = client.keepalive_min_timeout.duration();
    request.end();
    drop(counted);
    drop(guard);
    connection.keep(keep);
    connection.all().keep_spare(request);
}

/// The end of a request's stream.
fn end(request: &Request, ended: &life::Ending) -> StreamEnd {
    StreamEnd::Reset(match ended {
        // The content was not requested, so none follows.
        life::Ending::Sent if request.head().expects_continue() => ErrorCode::NO_ERROR,
        life::Ending::Sent => return StreamEnd::Complete,
        life::Ending::Abandoned => ErrorCode::CANCEL,
        life::Ending::Unanswered if request.out().status == REQUEST_TIMEOUT => {
            ErrorCode::PROTOCOL_ERROR
        }
        life::Ending::Unanswered => ErrorCode::INTERNAL_ERROR,
        life::Ending::Failed(SendError::Client(_)) => ErrorCode::PROTOCOL_ERROR,
        life::Ending::Failed(SendError::Body(_)) => ErrorCode::INTERNAL_ERROR,
    })
}
