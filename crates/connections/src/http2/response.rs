//! The [`Wire`] of HTTP/2: one response on its stream: the head, parts of the body, trailers.
//!
//! The connection decides when a stream's content becomes frames; a part is taken when all of it has.

use std::rc::Rc;
use std::time::Duration;

use nowait_front::servers::Virtual;
use nowait_http::limit_rate::Rate;
use nowait_http::log::Level;
use nowait_http::logs::debug;
use nowait_http::request::{BodyLength, Request};
use nowait_http::request_body::CountingReader;
use nowait_http::response::{Body, BodyError, Head, Part, Takeover};

use super::body_reader::Http2BodyReader;
use super::response_head;
use super::stream::Stream;
use super::tunnel;
use crate::body::Remainder;
use crate::connection::Connection;
use crate::life::{Following, PutError, Wire};
use crate::send_error::{SendError, left};

/// A response on its way.
pub(super) struct Http2Response<'a> {
    stream: &'a Rc<Stream>,
    /// A field block may follow the body.
    has_trailers: bool,
    /// The last frame has ended the response.
    is_ended: bool,
}

impl<'a> Http2Response<'a> {
    /// The response to the request of a stream.
    pub(super) fn new(stream: &'a Rc<Stream>) -> Self {
        Self { stream, has_trailers: false, is_ended: false }
    }
}

impl Wire for Http2Response<'_> {
    fn connection(&self) -> &Connection {
        &self.stream.connection
    }

    fn prepare(&mut self, request: &mut Request, servers: Option<&Virtual>) -> Option<u16> {
        let stream = self.stream;
        let ended = stream.input.borrow().ended;
        let body_length = match request.head().content_length() {
            // The following data is not content of this request.
            _ if stream.asks_for_tunnel.get() => BodyLength::None,
            None if ended => BodyLength::None,
            None => BodyLength::Unknown,
            Some(0) if ended => BodyLength::None,
            // Whether it is as long as it says is known at its end, even if it says that it is empty.
            Some(length) => BodyLength::Known(length),
        };
        request.set_body_length(body_length);
        if request.body_length() != BodyLength::None {
            let reader = Http2BodyReader::new(stream.clone(), request.head().expects_continue());
            request.set_body(CountingReader::unread(reader, request.received_counter()));
        }
        if request.server().http2.http2 || servers.is_some_and(|servers| servers.http2) {
            return None;
        }
        request.log(
            Level::Info,
            format_args!(
                "client attempted to request the server name for which the negotiated protocol is \
                 disabled"
            ),
        );
        Some(421)
    }

    async fn gone(&self) {
        self.stream.gone().await;
    }

    async fn gone_for_good(&self) {
        self.stream.gone().await;
    }

    async fn flush(&mut self, _: Duration) -> Result<(), SendError> {
        // The connection's task sends frames as soon as they are made.
        Ok(())
    }

    fn begin(
        &mut self,
        request: &mut Request,
        mut head: Box<Head>,
        body: &mut Body,
    ) -> Result<Option<Remainder>, SendError> {
        let stream = self.stream;
        if let Body::Tunnel(_) = body {
            if !stream.asks_for_tunnel.get() {
                // HTTP/2 has no `Upgrade`.
                return Err(BodyError::Upstream("unexpected switch of protocols".to_owned()).into());
            }
            tunnel::open(&mut head);
            nowait_http::response_head::complete(request, &mut head);
            write_head(stream, request, &head, false)?;
            request.set_out(head);
            return Ok(Some(Remainder { body: std::mem::take(body), declared: None }));
        }
        if stream.asks_for_tunnel.get() && (200..300).contains(&head.status) {
            request.log(Level::Info, format_args!("{} does not open a tunnel", head.status));
            *head = Head { status: 501, ..Head::default() };
            *body = Body::Empty;
        }
        nowait_http::response_head::complete(request, &mut head);
        self.has_trailers =
            head.expects_trailers || head.trailers_follow || !head.trailers.is_empty();
        let bodiless = request.header_only() || matches!(head.status, 204 | 304);
        let end = bodiless || (body.is_empty() && !self.has_trailers);
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
            && !self.has_trailers
            && !Rate::applies(request)
            && stream.connection.send_whole(stream, body)?
        {
            count(request, length);
            return Ok(None);
        }
        Ok(Some(Remainder { body: std::mem::take(body), declared }))
    }

    async fn put(
        &mut self,
        request: &Request,
        part: Part,
        next: Following,
    ) -> Result<(), PutError> {
        let length = part.len();
        let ends = next == Following::Nothing && !self.has_trailers;
        let mut unread = None;
        let put = self.stream.put(part, ends, request.send_timeout(), &mut unread).await;
        count(
            request,
            match &put {
                Ok(()) => length,
                Err(_) => unread.map_or(0, |unread| length.saturating_sub(unread)),
            },
        );
        put.map_err(|error| PutError { error, unread })?;
        self.is_ended = ends;
        Ok(())
    }

    async fn end(&mut self, request: &mut Request) -> Result<(), SendError> {
        if self.is_ended || (self.has_trailers && send_trailers(self.stream, request)) {
            return Ok(());
        }
        self.stream.end();
        Ok(())
    }

    async fn tunnel(
        &mut self,
        request: &Request,
        tunnel: Box<dyn Takeover>,
    ) -> Result<(), SendError> {
        tunnel::run(self.stream, request, tunnel).await?;
        self.stream.end();
        Ok(())
    }

    async fn finish(&mut self, _: &Request) -> Result<(), SendError> {
        Ok(())
    }
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
    request.sent().count_head(bytes);
    drop((h2, output));
    connection.flush();
    Ok(())
}

/// Ends the response with the trailers of an upstream and those of `add_trailer`; false: there are
/// none.
fn send_trailers(stream: &Stream, request: &mut Request) -> bool {
    nowait_http::response_head::complete_trailers(request);
    if request.out().trailers.is_empty() {
        return false;
    }
    let connection = &stream.connection;
    let mut output = connection.output.borrow_mut();
    let mut h2 = connection.h2.borrow_mut();
    let start = output.len();
    // A closed stream accepts none.
    if let Ok(mut trailers) = h2.trailers_of(stream.id, output.tail()) {
        for trailer in &request.out().trailers {
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
    request.sent().count(bytes);
}
