//! One request of a connection: receives its head, runs its [life](crate::life), and decides how the
//! connection continues.
//!
//! Called by the connection's task. Small responses in memory need no future.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use nowait_h1::{RequestError, Stage};
use nowait_http::conf::client::LingeringClose;
use nowait_http::interpret;
use nowait_http::log::Level;
use nowait_http::request::{BodyLength, Request};
use nowait_http::request_body::CountingReader;
use nowait_message::Method;
use nowait_runtime::buf::OutBuf;
use nowait_runtime::net::SendOptions;
use nowait_runtime::now;

use super::body_reader::Http1BodyReader;
use super::connection::Http1Connection;
use super::response::Http1Response;
use crate::life::{self, Ending};

/// Number of bytes received to find out whether unread input is waiting.
const UNREAD_BYTES_MAX: usize = 4096;

/// The continuation of a connection after some requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterRequest {
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
    connection: &Rc<Http1Connection>,
    request: &mut Request,
    out: &mut OutBuf,
) -> AfterRequest {
    let mut counted = connection.all().services.counts.request();
    // Most heads have arrived whole; these need no future.
    let received = match parse_head(connection, request) {
        Ok(true) => Ok(()),
        Ok(false) => Box::pin(receive_head(connection, request, out)).await,
        Err(error) => Err(error),
    };
    let refused = match received {
        Ok(()) => None,
        Err(HeadError::Refused(error)) => Some(refuse(connection, request, error)),
        Err(HeadError::Closed) => return closed(connection, request),
        Err(HeadError::TimedOut) => return timed_out(connection, request),
    };
    counted.answering();
    let mut response = Http1Response::new(connection, out);
    match life::serve(&mut response, request, refused).await {
        // Nothing can be found behind a malformed head, but the client must see the response. More input
        // may be on its way, even if the head was rejected at its end.
        Ending::Sent if refused.is_some() => linger(request),
        Ending::Sent if request.persistence().keep_alive && connection.h1().next_request() => {
            AfterRequest::Idle
        }
        Ending::Sent => Box::pin(finish(connection, request)).await,
        Ending::Abandoned => AfterRequest::Close,
        // Earlier responses may be pending. nginx closes at once, regardless of the client's still sends.
        Ending::Unanswered => {
            response.flush_cut(request).await;
            AfterRequest::Close
        }
        Ending::Failed(error) => {
            if !error.is_client() {
                response.flush_cut(request).await;
            }
            match error.is_timeout() && request.location().client.reset_timedout_connection {
                true => AfterRequest::Reset,
                false => AfterRequest::Close,
            }
        }
    }
}

/// Ends a connection whose client has closed it instead of sending a request.
fn closed(connection: &Http1Connection, request: &mut Request) -> AfterRequest {
    // Between requests this is how connections end; within a head the client has given up.
    if connection.h1().has_begun() {
        request.log(Level::Info, format_args!("client prematurely closed connection"));
        request.closed_by_client();
        nowait_http::logs::access(request);
    }
    AfterRequest::Close
}

/// Ends a connection whose client takes too long to send a head.
fn timed_out(connection: &Http1Connection, request: &mut Request) -> AfterRequest {
    request.log(Level::Info, format_args!("client timed out (110: Connection timed out)"));
    if !connection.h1().has_begun() {
        return AfterRequest::Close;
    }
    request.timed_out();
    nowait_http::logs::access(request);
    match request.location().client.reset_timedout_connection {
        true => AfterRequest::Reset,
        false => AfterRequest::Close,
    }
}

/// Prepares a head that can't be accepted for its response, with this status; afterwards the connection can
/// only be closed.
fn refuse(connection: &Http1Connection, request: &mut Request, error: RequestError) -> u16 {
    let text = error.describe(&connection.h1(), request.head());
    let stage = match error.stage() {
        Stage::RequestLine => "reading client request line",
        Stage::Headers => "reading client request headers",
        Stage::Body => "reading client request body",
    };
    request.log(Level::Info, format_args!("{} while {stage}", String::from_utf8_lossy(&text)));
    request.set_keep_alive(false);
    if error.stage() == Stage::Headers
        && let Some(servers) = connection.virtual_servers(&request.current().clone())
    {
        interpret::choose_server(request, servers);
    }
    error.status()
}

/// Takes over the framing and connection options of the head.
pub(super) fn prepare(connection: &Rc<Http1Connection>, request: &mut Request) {
    let h1 = connection.h1();
    for line in h1.ignored_lines(request.head()) {
        request.log(
            Level::Info,
            format_args!(
                "client sent invalid header line: \"{}\" while reading client request headers",
                String::from_utf8_lossy(line)
            ),
        );
    }
    let body_length = match h1.body_length(request.head()) {
        nowait_h1::BodyLength::Empty => BodyLength::None,
        nowait_h1::BodyLength::Known(length) => BodyLength::Known(length),
        _ => BodyLength::Unknown,
    };
    request.set_body_length(body_length);
    // The bytes after the head of CONNECT may be meant for the other end of a tunnel.
    let keep_alive = !matches!(request.method(), Method::Connect | Method::Trace)
        && h1.keep_alive(request.head());
    request.set_keep_alive(keep_alive);
    drop(h1);
    // A stated length of zero is no content, but `client_body_in_file_only` makes a file of it; and a client
    // that waits for `100 Continue` without content gets it, too.
    let is_read = request.body_length() != BodyLength::None
        || request.head().content_length().is_some()
        || request.head().expects_continue();
    if is_read {
        let expects_continue = request.head().expects_continue();
        let reader =
            Http1BodyReader::new(connection.clone(), expects_continue, request.send_timeout());
        request.set_body(CountingReader::unread(reader, request.received_counter()));
    }
}

/// Decides how a connection ends or continues after a response: after the client's remaining input.
async fn finish(connection: &Rc<Http1Connection>, request: &Request) -> AfterRequest {
    let keep = request.persistence().keep_alive;
    let body_complete = connection.h1().is_body_complete();
    let client = &request.location().client;
    if keep && !body_complete {
        let reads = discard(
            connection,
            client.lingering_time.duration(),
            client.lingering_timeout.duration(),
        );
        match reads.await {
            Discarded::Whole if connection.h1().next_request() => return AfterRequest::Idle,
            Discarded::Whole => {}
            // The next request can't be found behind it, but the client must see the response.
            Discarded::Malformed => return linger(request),
            Discarded::Gone => return AfterRequest::Close,
        }
    }
    let more = !connection.input.borrow().is_empty();
    let lingers = match client.lingering_close {
        LingeringClose::Off => false,
        LingeringClose::On => {
            more || !body_complete || (request.out().status >= 400 && has_unread(connection))
        }
        LingeringClose::Always => true,
    };
    if lingers { linger(request) } else { AfterRequest::Close }
}

/// Closes a connection after its client's further input, if the location allows it.
fn linger(request: &Request) -> AfterRequest {
    let client = &request.location().client;
    match client.lingering_close {
        LingeringClose::Off => AfterRequest::Close,
        LingeringClose::On | LingeringClose::Always => AfterRequest::Linger {
            time: client.lingering_time.duration(),
            timeout: client.lingering_timeout.duration(),
        },
    }
}

/// Whether unread input waits: closing the connection would reset it, and the client might not see
/// the response.
fn has_unread(connection: &Http1Connection) -> bool {
    let received = connection.stream.try_recv_large(UNREAD_BYTES_MAX);
    received.is_ok_and(|received| received.is_some_and(|bytes| !bytes.is_empty()))
}

/// The reason why no head was received.
enum HeadError {
    Closed,
    TimedOut,
    Refused(RequestError),
}

/// Parses the received part of a head; returns whether the head is complete.
fn parse_head(connection: &Http1Connection, request: &mut Request) -> Result<bool, HeadError> {
    let mut input = connection.input.borrow_mut();
    let step = connection.h1().receive_head(request.head_mut(), &input);
    let step = step.map_err(HeadError::Refused)?;
    input.advance(step.consumed);
    Ok(step.complete)
}

/// Receives the rest of a head.
async fn receive_head(
    connection: &Http1Connection,
    request: &mut Request,
    out: &mut OutBuf,
) -> Result<(), HeadError> {
    let timeout = request.server().head.client_header_timeout.duration();
    loop {
        if !out.is_empty() {
            let options = SendOptions::new(request.send_timeout());
            let sent = connection.stream.send(std::mem::take(out), options).await;
            sent.map_err(|_| HeadError::Closed)?;
        }
        let left = timeout.saturating_sub(now().saturating_duration_since(request.started()));
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

/// Result of discarding an unwanted body.
enum Discarded {
    /// The whole body was read; the connection can be reused.
    Whole,
    /// The framing is malformed.
    Malformed,
    /// The client has left or was too slow.
    Gone,
}

/// Reads and discards the rest of an unwanted request body. nginx:
/// `ngx_http_discarded_request_body_handler`.
async fn discard(connection: &Http1Connection, time: Duration, timeout: Duration) -> Discarded {
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
        connection.release_input();
        let left = until.saturating_duration_since(now()).min(timeout);
        match connection.stream.recv(left).await {
            Ok(bytes) if !bytes.is_empty() => {
                connection.input.replace(bytes);
            }
            _ => return Discarded::Gone,
        }
    }
}
