//! Sends a response on its stream: the head, then the body as it is pulled, then trailers.
//!
//! Called by the stream's task. The connection decides when a stream's content becomes frames; a body is
//! asked for its next part only when all of the last one has.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use nowait_http::limit_rate::Rate;
use nowait_http::log::Level;
use nowait_http::logs::debug;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, Head, Part};
use nowait_runtime::task::{Either, select};
use nowait_runtime::{now, sleep};

use super::response_head;
use super::stream::Stream;
use super::tunnel;
use crate::sending::{SendError, left};

/// The part of a response that [`start`] left.
pub(super) struct Rest {
    body: Body,
    /// The length that the head states.
    declared: Option<u64>,
    has_trailers: bool,
}

/// Starts to send a response: the head, and the body if it is small, in memory, and alone. `None`: the
/// response is complete. Otherwise the body is taken.
///
/// # Errors
/// [`SendError`]; the stream can only be reset then.
pub(super) fn start(
    stream: &Stream,
    request: &mut Request,
    mut head: Box<Head>,
    body: &mut Body,
) -> Result<Option<Rest>, SendError> {
    if let Body::Tunnel(_) = body {
        if !stream.asks_for_tunnel.get() {
            // HTTP/2 has no `Upgrade`.
            return Err(BodyError::Upstream("unexpected switch of protocols".to_owned()).into());
        }
        tunnel::open(&mut head);
        nowait_http::response_head::complete(request, &mut head);
        write_head(stream, request, &head, false)?;
        request.set_out(head);
        let body = std::mem::take(body);
        return Ok(Some(Rest { body, declared: None, has_trailers: false }));
    }
    if stream.asks_for_tunnel.get() && (200..300).contains(&head.status) {
        request.log(Level::Info, format_args!("{} does not open a tunnel", head.status));
        *head = Head { status: 501, ..Head::default() };
        *body = Body::Empty;
    }
    nowait_http::response_head::complete(request, &mut head);
    let has_trailers = head.expects_trailers || head.trailers_follow || !head.trailers.is_empty();
    let bodiless = request.header_only || matches!(head.status, 204 | 304);
    let end = bodiless || (body.is_empty() && !has_trailers);
    write_head(stream, request, &head, end)?;
    debug!(request, "http2 response: {}", head.status);
    let declared = head.content_length;
    request.set_out(head);
    if end {
        return Ok(None);
    }
    stream.frame_bytes_max.set(request.location().http2.bytes());
    if let Some(length) = declared
        && body.len() == declared
        && !has_trailers
        && !Rate::applies(request)
        && stream.connection.send_whole(stream, body)?
    {
        count(request, length);
        return Ok(None);
    }
    Ok(Some(Rest { body: std::mem::take(body), declared, has_trailers }))
}

/// Sends the part that [`start`] left.
///
/// # Errors
/// [`SendError`]; the stream can only be reset then.
pub(super) async fn send_rest(
    stream: &Rc<Stream>,
    request: &mut Request,
    rest: Rest,
) -> Result<(), SendError> {
    let Rest { body, declared, has_trailers } = rest;
    if let Body::Tunnel(tunnel) = body {
        tunnel::run(stream, request, tunnel).await?;
        stream.end();
        return Ok(());
    }
    let mut sender = Sender {
        stream,
        request,
        timeout: request.send_timeout(),
        rate: Rate::of(request),
        left: declared,
        has_trailers,
        ended: false,
        unread: None,
    };
    sender.body(body).await?;
    if sender.ended {
        return Ok(());
    }
    if sender.left.is_some_and(|left| left > 0) {
        return Err(BodyError::Truncated.into());
    }
    if has_trailers && send_trailers(stream, request) {
        return Ok(());
    }
    stream.end();
    Ok(())
}

fn write_head(stream: &Stream, request: &Request, head: &Head, end: bool) -> Result<(), SendError> {
    let connection = &stream.connection;
    let mut output = connection.output.borrow_mut();
    let mut h2 = connection.h2.borrow_mut();
    let out = output.tail();
    h2.poll_output(out);
    let start = out.len();
    response_head::write(&mut h2, stream.id, request, head, end, out).map_err(|_| left())?;
    let bytes = (out.len() - start) as u64;
    request.sent.head_bytes.set(bytes);
    request.sent.bytes.set(bytes);
    drop((h2, output));
    connection.flush();
    Ok(())
}

/// Ends the response with the trailers of an upstream and those of `add_trailer`; false: there are
/// none.
fn send_trailers(stream: &Stream, request: &mut Request) -> bool {
    nowait_http::response_head::complete_trailers(request);
    if request.out.trailers.is_empty() {
        return false;
    }
    let connection = &stream.connection;
    let mut output = connection.output.borrow_mut();
    let mut h2 = connection.h2.borrow_mut();
    let start = output.len();
    // A stream that is gone takes none.
    if let Ok(mut trailers) = h2.trailers_of(stream.id, output.tail()) {
        for trailer in &request.out.trailers {
            trailers.field(&trailer.name, &trailer.value);
        }
        trailers.finish(true);
    }
    count(request, (output.len() - start) as u64);
    drop((h2, output));
    connection.flush();
    true
}

fn count(request: &Request, bytes: u64) {
    let sent = &request.sent.bytes;
    sent.set(sent.get() + bytes);
}

/// The state of sending one body.
struct Sender<'a> {
    stream: &'a Rc<Stream>,
    request: &'a Request,
    timeout: Duration,
    rate: Option<Rate>,
    /// Bytes still missing, if the head states a length.
    left: Option<u64>,
    has_trailers: bool,
    /// The last frame has ended the response.
    ended: bool,
    /// Bytes of the last part that could not be read from its file.
    unread: Option<u64>,
}

impl Sender<'_> {
    async fn body(&mut self, body: Body) -> Result<(), SendError> {
        // A file with another source switches to it by itself.
        match body.safe(self.request) {
            Body::Empty | Body::Tunnel(_) => Ok(()),
            Body::Bytes(bytes) => self.part(Part::Bytes(bytes), true).await,
            Body::File(file) => self.part(Part::File(file), true).await,
            Body::Parts(parts) => self.parts(parts).await,
            Body::Stream(mut source) => Box::pin(self.stream(&mut *source)).await,
        }
    }

    async fn parts(&mut self, mut parts: VecDeque<Part>) -> Result<(), SendError> {
        while let Some(part) = parts.pop_front() {
            let last = parts.is_empty();
            match part {
                Part::File(file) if file.elsewhere.is_some() => {
                    let body = Body::File(file).safe(self.request);
                    match body {
                        Body::Stream(mut source) => Box::pin(self.stream(&mut *source)).await?,
                        Body::File(file) => self.part(Part::File(file), last).await?,
                        _ => {}
                    }
                }
                part => self.part(part, last).await?,
            }
        }
        Ok(())
    }

    async fn stream(&mut self, source: &mut dyn BodySource) -> Result<(), SendError> {
        while let Some(part) = self.pull(source).await? {
            let last = self.left == Some(part.len());
            let Err(error) = self.part(part, last).await else { continue };
            let Some(unsent) = self.unread.take() else { return Err(error) };
            if !source.retry(unsent) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for the next piece; unless somebody else wants it, too, only as long as the client does.
    async fn pull(&mut self, source: &mut dyn BodySource) -> Result<Option<Part>, SendError> {
        let mut next = source.next();
        if let Poll::Ready(part) = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            return Ok(part?);
        }
        match select(next, self.stream.gone()).await {
            Either::Left(part) => Ok(part?),
            Either::Right(()) => Err(left()),
        }
    }

    /// Sends one piece; `last`: no content follows.
    async fn part(&mut self, part: Part, last: bool) -> Result<(), SendError> {
        let mut next = Some(part);
        while let Some(mut part) = next.take() {
            let allowed = self.allowed(part.len()).await?;
            if allowed < part.len() {
                next = Some(part.split_off(allowed));
            }
            // More than what the head states would be a malformed response.
            if self.left.is_some_and(|left| left < part.len()) {
                let text = "the body is longer than its declared length".to_owned();
                return Err(BodyError::Upstream(text).into());
            }
            let length = part.len();
            let ends = last && next.is_none() && !self.has_trailers;
            let ends = ends && self.left.is_none_or(|left| left == length);
            let put = self.stream.put(part, ends, self.timeout, &mut self.unread).await;
            let sent = match (&put, self.unread) {
                (Err(_), Some(unread)) => length.saturating_sub(unread),
                (Err(_), None) => 0,
                (Ok(()), _) => length,
            };
            self.left = self.left.map(|left| left.saturating_sub(sent));
            count(self.request, sent);
            if let Some(rate) = &mut self.rate {
                rate.sent += sent;
            }
            if put.is_err()
                && let (Some(unread), Some(rest)) = (&mut self.unread, &next)
            {
                *unread += rest.len();
            }
            put?;
            self.ended = ends;
        }
        Ok(())
    }

    /// How many of `len` bytes may be sent now; waits until at least one may.
    async fn allowed(&mut self, len: u64) -> Result<u64, SendError> {
        let Some(rate) = &self.rate else { return Ok(len) };
        match rate.allowed(now()) {
            Ok(allowed) => Ok(allowed.min(len)),
            Err(wait) => {
                if let Either::Right(()) = select(sleep(wait), self.stream.gone()).await {
                    return Err(left());
                }
                let allowed = rate.allowed(now()).unwrap_or(1);
                Ok(allowed.min(len).max(1.min(len)))
            }
        }
    }
}
