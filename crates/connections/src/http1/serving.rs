//! One exchange: receives a request, processes it, sends the response and logs it.
//!
//! Called by the connection's task, which decides how to continue. Small responses in memory need
//! no future.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nowait_h1::{RequestError, Stage};
use nowait_http::conf::client::LingeringClose;
use nowait_http::generation::Current;
use nowait_http::interpret;
use nowait_http::log::Level;
use nowait_http::logs::debug;
use nowait_http::phases::{self, Progress, Waiting};
use nowait_http::request::{BodyLength, Request, RequestBody};
use nowait_http::request_body::Counted;
use nowait_http::response::Response;
use nowait_http::upstream_state::UpstreamState;
use nowait_message::Method;
use nowait_runtime::buf::OutBuf;
use nowait_runtime::net::SendOptions;
use nowait_runtime::now;

use super::body_reader::Reader;
use super::connection::Connection;
use super::sender;
use crate::secured::Admission;
use crate::{secured, sending};

/// Number of bytes received to find out whether unread input is waiting.
const UNREAD_BYTES_MAX: usize = 4096;

/// Pipelined responses up to this size are held back and sent together with the next ones.
const BATCH_BYTES_MAX: usize = 16 * 1024;

/// What happens to a connection after some requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for another request.
    Idle,
    /// Close it.
    Close,
    /// Close it after reading the client's further input, for at most this time.
    Linger { time: Duration, timeout: Duration },
    /// Close it with a reset.
    Reset,
}

/// Receives one request and responds to it. On return the response was sent, unless more input
/// waits.
pub(super) async fn one(
    connection: &Rc<Connection>,
    request: &mut Request,
    out: &mut OutBuf,
) -> Next {
    let mut counted = connection.common.services.counts.request();
    // Most heads have arrived whole; these need no future.
    let received = match parse_head(connection, request) {
        Ok(true) => Ok(()),
        Ok(false) => Box::pin(receive_head(connection, request, out)).await,
        Err(error) => Err(error),
    };
    match received {
        Ok(()) => {}
        Err(HeadError::Closed) => {
            // Between requests this is how connections end; within a head the client has given up.
            if connection.h1().has_begun() {
                request.log(Level::Info, format_args!("client prematurely closed connection"));
                request.closed_by_client();
                nowait_http::logs::access(request);
            }
            return Next::Close;
        }
        Err(HeadError::TimedOut) => {
            request.log(Level::Info, format_args!("client timed out (110: Connection timed out)"));
            if !connection.h1().has_begun() {
                return Next::Close;
            }
            request.timed_out();
            nowait_http::logs::access(request);
            return if request.location().client.reset_timedout_connection {
                Next::Reset
            } else {
                Next::Close
            };
        }
        Err(HeadError::Refused(error)) => {
            return Box::pin(refuse(connection, request, out, error)).await;
        }
    }
    counted.answering();
    let current = request.current.clone();
    let refused = match prepare(connection, request, &current) {
        Admission::Passed => None,
        Admission::Refused(status) => Some(status),
        // Boxed: most requests don't need it.
        Admission::Pending => Box::pin(secured::judge(request)).await,
    };
    let timeout = request.location().client.send_timeout;
    let answer = {
        let progress = match refused {
            None => phases::respond(request, &current),
            Some(status) => phases::refuse(request, &current, status),
        };
        match progress {
            Progress::Done(answer) => Some(answer),
            Progress::Wait(waiting) => {
                connection.release_input();
                wait(connection, waiting, out, timeout.duration()).await
            }
        }
    };
    let Some(mut answer) = answer else { return abandon(request) };
    if let RequestBody::Unread(_) = request.body {
        answer = Box::pin(discard_unwanted(connection, request, answer)).await;
    }
    let Some(Response { head, mut body }) = answer else {
        match request.out.status {
            // The client has gone, or was too slow.
            408 | 499 => end_request(request),
            _ => nowait_http::logs::access(request),
        }
        // Earlier responses may have been held back. nginx closes at once, whatever the client
        // still sends.
        let _ = flush(connection, out, request.send_timeout()).await;
        return Next::Close;
    };
    let started = sender::start(connection, request, head, &mut body, out);
    let left = match started {
        Ok(Some(rest)) => rest.send_at_once(connection, request, out),
        started => started,
    };
    let sent = match left {
        Ok(None) => Ok(()),
        Ok(Some(rest)) => {
            connection.release_input();
            Box::pin(sender::send_rest(connection, request, rest, out)).await
        }
        Err(error) => Err(error),
    };
    let keep = match sent {
        Ok(()) => request.persistence.keep_alive,
        Err(error) => {
            sending::log_error(request, &error);
            end_request(request);
            if !error.is_client() {
                // The part of the response that exists is sent, so that the client sees where it
                // was cut off.
                let _ = flush(connection, out, request.send_timeout()).await;
            }
            return if error.is_timeout() && request.location().client.reset_timedout_connection {
                Next::Reset
            } else {
                Next::Close
            };
        }
    };
    let flushed = flush_or_hold(connection, out, keep);
    // Most responses leave at once, and nothing of the request is missing.
    if keep && matches!(flushed, Ok(true)) && connection.h1().next_request() {
        complete(request);
        return Next::Idle;
    }
    finish(connection, request, out, keep, flushed).await
}

/// Ends a request whose response was sent.
fn complete(request: &mut Request) {
    request.sent.complete.set(true);
    end_request(request);
    request.body = RequestBody::None;
}

/// Ends a request whose client has left while a handler waited.
fn abandon(request: &mut Request) -> Next {
    let upstream = UpstreamState::get(&request.state).and_then(|state| state.action());
    let waited = match upstream {
        Some(_) => ", so upstream connection is closed too",
        None => " while waiting for a disk",
    };
    request.log(Level::Info, format_args!("client prematurely closed connection{waited}"));
    request.closed_by_client();
    end_request(request);
    Next::Close
}

/// Ends a request: its response was sent or never will be.
fn end_request(request: &Request) {
    debug!(request, "http request ended: {} bytes sent", request.sent.bytes.get());
    nowait_http::logs::access(request);
    nowait_http::post_action::run(request);
}

/// Discards the part of an unwanted body that has arrived. A malformed body makes the request fail
/// with 400, unless the request was refused already.
async fn discard_unwanted(
    connection: &Connection,
    request: &mut Request,
    answer: Option<Response>,
) -> Option<Response> {
    if answer.as_ref().is_none_or(|response| response.head.status >= 400) {
        return answer;
    }
    let dropped = {
        let mut input = connection.input.borrow_mut();
        let dropped = connection.h1().discard_body(&input);
        if let Ok((consumed, _)) = dropped {
            input.advance(consumed);
        }
        dropped
    };
    if dropped.is_ok() {
        return answer;
    }
    request.log(Level::Info, format_args!("client sent invalid chunked body"));
    let current = request.current.clone();
    phases::refuse(request, &current, 400).finish().await
}

/// Waits for a handler. `None`: the client has gone.
async fn wait(
    connection: &Connection,
    waiting: Waiting<'_>,
    out: &mut OutBuf,
    timeout: Duration,
) -> Option<Option<Response>> {
    let mut answer = pin!(waiting.finish());
    // A response that is ready at once goes out together with earlier ones.
    if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
        return Some(answer);
    }
    // Meanwhile nothing has happened that it waits for.
    let mut just_polled = out.is_empty();
    if !just_polled && Box::pin(flush(connection, out, timeout)).await.is_err() {
        return None;
    }
    let mut gone = pin!(connection.gone());
    poll_fn(|cx| {
        if !std::mem::take(&mut just_polled)
            && let Poll::Ready(answer) = answer.as_mut().poll(cx)
        {
            return Poll::Ready(Some(answer));
        }
        gone.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Sends the rest of the output, logs, and prepares the connection for another request.
async fn finish(
    connection: &Rc<Connection>,
    request: &mut Request,
    out: &mut OutBuf,
    keep: bool,
    flushed: io::Result<bool>,
) -> Next {
    let body_complete = connection.h1().is_body_complete();
    let more = !connection.input.borrow().is_empty();
    let flushed = match flushed {
        Ok(false) => flush_rest(connection, out, request.send_timeout()).await,
        flushed => flushed.map(drop),
    };
    if let Err(error) = flushed {
        request
            .log(Level::Info, format_args!("send() failed {}", nowait_http::files::errno(&error)));
        end_request(request);
        return Next::Close;
    }
    complete(request);
    if keep && body_complete && connection.h1().next_request() {
        return Next::Idle;
    }
    let client = &request.location().client;
    let linger = Next::Linger {
        time: client.lingering_time.duration(),
        timeout: client.lingering_timeout.duration(),
    };
    if keep && !body_complete {
        let reads = discard(
            connection,
            client.lingering_time.duration(),
            client.lingering_timeout.duration(),
        );
        match reads.await {
            Discarded::Whole if connection.h1().next_request() => return Next::Idle,
            Discarded::Whole => {}
            // The next request can't be found behind it, but the client must see the response.
            Discarded::Malformed if client.lingering_close != LingeringClose::Off => return linger,
            Discarded::Malformed | Discarded::Gone => return Next::Close,
        }
    }
    let lingers = match client.lingering_close {
        LingeringClose::Off => false,
        LingeringClose::On if request.persistence.skip_lingering => false,
        LingeringClose::On => {
            more || !body_complete || (request.out.status >= 400 && has_unread(connection))
        }
        LingeringClose::Always => true,
    };
    if lingers { linger } else { Next::Close }
}

/// Whether unread input waits: closing the connection would reset it, and the client might not see
/// the response.
fn has_unread(connection: &Connection) -> bool {
    let received = connection.stream.try_recv_large(UNREAD_BYTES_MAX);
    received.is_ok_and(|received| received.is_some_and(|bytes| !bytes.is_empty()))
}

/// Why no head was received.
enum HeadError {
    Closed,
    TimedOut,
    Refused(RequestError),
}

/// Parses the received part of a head; returns whether the head is complete.
fn parse_head(connection: &Connection, request: &mut Request) -> Result<bool, HeadError> {
    let mut input = connection.input.borrow_mut();
    let step = connection.h1().receive_head(&mut request.head, &input);
    let step = step.map_err(HeadError::Refused)?;
    input.advance(step.consumed);
    Ok(step.complete)
}

/// Receives the rest of a head.
async fn receive_head(
    connection: &Connection,
    request: &mut Request,
    out: &mut OutBuf,
) -> Result<(), HeadError> {
    let timeout = request.server().head.client_header_timeout.duration();
    loop {
        if flush(connection, out, request.send_timeout()).await.is_err() {
            return Err(HeadError::Closed);
        }
        let left = timeout.saturating_sub(now().saturating_duration_since(request.started));
        match connection.stream.recv(left).await {
            Ok(bytes) if bytes.is_empty() => return Err(HeadError::Closed),
            Ok(bytes) => {
                connection.input.replace(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(HeadError::TimedOut);
            }
            Err(_) => return Err(HeadError::Closed),
        }
        if parse_head(connection, request)? {
            return Ok(());
        }
    }
}

/// Responds to a head that can't be accepted; afterwards the connection can only be closed.
async fn refuse(
    connection: &Rc<Connection>,
    request: &mut Request,
    out: &mut OutBuf,
    error: RequestError,
) -> Next {
    let text = error.describe(&connection.h1(), &request.head);
    let stage = match error.stage() {
        Stage::RequestLine => "reading client request line",
        Stage::Headers => "reading client request headers",
        Stage::Body => "reading client request body",
    };
    request.log(Level::Info, format_args!("{} while {stage}", String::from_utf8_lossy(&text)));
    request.persistence.keep_alive = false;
    request.persistence.body_discarded = true;
    request.received.set(request.head.length() as u64);
    if error.stage() == Stage::Headers
        && let Some(servers) = connection.virtual_servers(&request.current.clone())
    {
        interpret::choose_server(request, servers);
    }
    // An error page is requested with GET, which then shows in `$request_method`.
    request.method = match request.head.method() {
        Method::Head => Method::Head,
        method if !request.head.is_malformed() => method,
        _ => Method::Other,
    };
    request.header_only = request.method == Method::Head;
    let current = request.current.clone();
    let answer = phases::refuse(request, &current, error.status()).finish().await;
    let Some(Response { head, mut body }) = answer else { return Next::Close };
    let sent = match sender::start(connection, request, head, &mut body, out) {
        Ok(None) => Ok(()),
        Ok(Some(rest)) => sender::send_rest(connection, request, rest, out).await,
        Err(error) => Err(error),
    };
    let flushed = flush(connection, out, request.send_timeout()).await;
    request.sent.complete.set(sent.is_ok() && flushed.is_ok());
    end_request(request);
    let client = &request.location().client;
    // More input may be on its way, even if the head was rejected at its end.
    match client.lingering_close {
        LingeringClose::Off => Next::Close,
        LingeringClose::On | LingeringClose::Always => Next::Linger {
            time: client.lingering_time.duration(),
            timeout: client.lingering_timeout.duration(),
        },
    }
}

/// Interprets a complete head. Returns whether the request may pass. nginx:
/// `ngx_http_process_request_uri`, `ngx_http_process_request_header`.
fn prepare(connection: &Rc<Connection>, request: &mut Request, current: &Current) -> Admission {
    if !interpret::head(request) {
        request.persistence.keep_alive = false;
        return Admission::Refused(400);
    }
    let mut misdirected = None;
    if let Some(servers) = connection.virtual_servers(current) {
        interpret::choose_server(request, servers);
        misdirected = secured::misdirected(request, servers);
    }
    request.log_head();
    let h1 = connection.h1();
    for line in h1.ignored_lines(&request.head) {
        request.log(
            Level::Info,
            format_args!(
                "client sent invalid header line: \"{}\" while reading client request headers",
                String::from_utf8_lossy(line)
            ),
        );
    }
    request.body_length = match h1.body_length(&request.head) {
        nowait_h1::BodyLength::Empty => BodyLength::None,
        nowait_h1::BodyLength::Known(length) => BodyLength::Known(length),
        _ => BodyLength::Unknown,
    };
    request.persistence.keep_alive = h1.keep_alive(&request.head);
    drop(h1);
    // A stated length of zero is no content, but `client_body_in_file_only` makes a file of it; and a client
    // that waits for `100 Continue` without content gets it, too.
    let is_read = request.body_length != BodyLength::None
        || request.head.content_length().is_some()
        || request.head.expects_continue();
    if is_read {
        let expects_continue = request.head.expects_continue();
        let reader = Reader::new(connection.clone(), expects_continue, request.send_timeout());
        request.body = Counted::unread(reader, &request.received);
    }
    if let Some(status) = misdirected {
        return Admission::Refused(status);
    }
    if matches!(request.method, Method::Connect | Method::Trace) {
        // The bytes after the head may be meant for the other end of a tunnel.
        request.persistence.keep_alive = false;
    }
    match interpret::refused_method(request) {
        Some(status) => Admission::Refused(status),
        None => secured::check(request),
    }
}

/// Sends the output as [`flush_at_once`] does, unless another request has come with this one, whose
/// response may follow.
fn flush_or_hold(connection: &Connection, out: &mut OutBuf, keep: bool) -> io::Result<bool> {
    let holds = keep
        && !connection.input.borrow().is_empty()
        && out.len() < BATCH_BYTES_MAX
        && connection.h1().is_body_complete();
    if holds { Ok(true) } else { flush_at_once(connection, out) }
}

/// Sends the output as far as the kernel takes it at once; returns whether that was all. If not,
/// [`flush_rest`] must follow, even if the output is empty by then.
fn flush_at_once(connection: &Connection, out: &mut OutBuf) -> io::Result<bool> {
    if out.is_empty() {
        return Ok(true);
    }
    connection.stream.begin_send(out, &mut Bytes::new())
}

/// Sends the output.
pub(crate) async fn flush(
    connection: &Connection,
    out: &mut OutBuf,
    timeout: Duration,
) -> io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    flush_rest(connection, out, timeout).await
}

/// Goes on where [`flush_at_once`] has stopped.
async fn flush_rest(
    connection: &Connection,
    out: &mut OutBuf,
    timeout: Duration,
) -> io::Result<()> {
    let options = SendOptions::new(timeout);
    connection.stream.send(std::mem::take(out), options).await
}

/// Result of discarding an unwanted body.
enum Discarded {
    /// The whole body was read; the connection can be reused.
    Whole,
    /// Its framing is malformed.
    Malformed,
    /// The client has left or was too slow.
    Gone,
}

/// Reads and discards the rest of an unwanted request body. nginx:
/// `ngx_http_discarded_request_body_handler`.
async fn discard(connection: &Connection, time: Duration, timeout: Duration) -> Discarded {
    let until = now() + time;
    loop {
        let step = {
            let mut input = connection.input.borrow_mut();
            let step = connection.h1().discard_body(&input);
            if let Ok((consumed, _)) = &step {
                input.advance(*consumed);
            }
            step
        };
        match step {
            Ok((_, true)) => return Discarded::Whole,
            Ok((_, false)) => {}
            Err(_) => return Discarded::Malformed,
        }
        let left = until.saturating_duration_since(now()).min(timeout);
        match connection.stream.recv(left).await {
            Ok(bytes) if !bytes.is_empty() => {
                connection.input.replace(bytes);
            }
            _ => return Discarded::Gone,
        }
    }
}
