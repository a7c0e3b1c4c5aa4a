//! One request: through the phases, its response, its log.
//!
//! Started by the connection for each stream. Most requests are done at their first step, and never
//! become a task.

use std::rc::Rc;

use nowait_h2::ErrorCode;
use nowait_http::generation::Current;
use nowait_http::interpret;
use nowait_http::log::Level;
use nowait_http::logs::debug;
use nowait_http::phases::{self, Progress};
use nowait_http::request::{BodyLength, Request, RequestBody};
use nowait_http::request_body::Counted;
use nowait_http::response::Response;
use nowait_http::upstream_state::UpstreamState;
use nowait_runtime::task::{Either, select};

use super::body_reader::Reader;
use super::sender;
use super::stream::{End, Ending, Stream};
use crate::secured::Admission;
use crate::sending::SendError;
use crate::{secured, sending};

/// Responds to a request whose head is known; `refused`: with this status.
pub(super) async fn serve(stream: Rc<Stream>, mut request: Box<Request>, refused: Option<u16>) {
    let connection = stream.connection.clone();
    let mut ending = Ending(stream, End::Reset(ErrorCode::INTERNAL_ERROR));
    let mut counted = connection.all().services.counts.request();
    counted.answering();
    ending.1 = one(&ending.0, &mut request, refused).await;
    let client = &request.location().client;
    let keep = client.keepalive_min_timeout.duration();
    request.end();
    drop(counted);
    drop(ending);
    connection.keep(keep);
    connection.all().keep_spare(request);
}

/// Returns how the stream ends.
async fn one(stream: &Rc<Stream>, request: &mut Request, refused: Option<u16>) -> End {
    let current = request.current.clone();
    let refused = match prepare(stream, request, &current, refused) {
        Admission::Passed => None,
        Admission::Refused(status) => Some(status),
        // Boxed: most requests don't need it.
        Admission::Pending => Box::pin(secured::judge(request)).await,
    };
    let answer = {
        let progress = match refused {
            None => phases::respond(request, &current),
            Some(status) => phases::refuse(request, &current, status),
        };
        match progress {
            Progress::Done(answer) => Some(answer),
            Progress::Wait(waiting) => match select(waiting.finish(), stream.gone()).await {
                Either::Left(answer) => Some(answer),
                Either::Right(()) => None,
            },
        }
    };
    let Some(answer) = answer else {
        let upstream = UpstreamState::get(&request.state).and_then(|state| state.action());
        let waited = upstream.map_or("", |_| ", so upstream connection is closed too");
        request.log(Level::Info, format_args!("client prematurely closed connection{waited}"));
        request.closed_by_client();
        end_request(request);
        return End::Reset(ErrorCode::CANCEL);
    };
    let Some(Response { head, mut body }) = answer else {
        match request.out.status {
            // The client has gone, or was too slow.
            408 | 499 => end_request(request),
            _ => nowait_http::logs::access(request),
        }
        return End::Reset(match request.out.status {
            408 => ErrorCode::PROTOCOL_ERROR,
            _ => ErrorCode::INTERNAL_ERROR,
        });
    };
    let sent = match sender::start(stream, request, head, &mut body) {
        Ok(None) => Ok(()),
        // Boxed: most requests don't need it.
        Ok(Some(rest)) => Box::pin(sender::send_rest(stream, request, rest)).await,
        Err(error) => Err(error),
    };
    let end = match sent {
        Ok(()) => {
            request.sent.complete.set(true);
            match request.head.expects_continue() {
                // It was not invited: nothing follows.
                true => End::Reset(ErrorCode::NO_ERROR),
                false => End::Complete,
            }
        }
        Err(error) => {
            sending::log_error(request, &error);
            End::Reset(match error {
                SendError::Client(_) => ErrorCode::PROTOCOL_ERROR,
                SendError::Body(_) => ErrorCode::INTERNAL_ERROR,
            })
        }
    };
    end_request(request);
    request.body = RequestBody::None;
    end
}

/// Ends a request: its response was sent or never will be.
fn end_request(request: &Request) {
    debug!(request, "http request ended: {} bytes sent", request.sent.bytes.get());
    nowait_http::logs::access(request);
    nowait_http::post_action::run(request);
}

/// Interprets the head. Returns whether the request may pass.
fn prepare(
    stream: &Rc<Stream>,
    request: &mut Request,
    current: &Current,
    refused: Option<u16>,
) -> Admission {
    if let Some(status) = refused {
        request.persistence.body_discarded = true;
        request.received.set(request.head.length() as u64);
        request.method = request.head.method();
        request.header_only = request.method == nowait_message::Method::Head;
        return Admission::Refused(status);
    }
    if !interpret::head(request) {
        return Admission::Refused(400);
    }
    let connection = &stream.connection;
    let servers = connection.virtual_servers(current);
    let mut misdirected = None;
    if let Some(servers) = servers {
        interpret::choose_server(request, servers);
        misdirected = secured::misdirected(request, servers);
    }
    request.log_head();
    let ended = stream.input.borrow().ended;
    request.body_length = match request.head.content_length() {
        // What follows is no content of this request.
        _ if stream.asks_for_tunnel.get() => BodyLength::None,
        None if ended => BodyLength::None,
        None => BodyLength::Unknown,
        Some(0) if ended => BodyLength::None,
        // Whether it is as long as it says is known at its end, even if it says that it is empty.
        Some(length) => BodyLength::Known(length),
    };
    if request.body_length != BodyLength::None {
        let reader = Reader::new(stream.clone(), request.head.expects_continue());
        request.body = Counted::unread(reader, &request.received);
    }
    if !request.server().http2.http2 && !servers.is_some_and(|servers| servers.http2) {
        request.log(
            Level::Info,
            format_args!(
                "client attempted to request the server name for which the negotiated protocol is \
                 disabled"
            ),
        );
        return Admission::Refused(421);
    }
    match misdirected.or_else(|| interpret::refused_method(request)) {
        Some(status) => Admission::Refused(status),
        None => secured::check(request),
    }
}
