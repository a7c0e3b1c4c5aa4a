//! The [`Wire`] of versions with streams: one response on its stream: the head, parts of the body, trailers.
//!
//! The connection decides when a stream's content becomes frames; a part is taken when all of it has.

use std::rc::Rc;
use std::time::Duration;

use nowait_front::servers::Virtual;
use nowait_http::generation::Current;
use nowait_http::limit_rate::Rate;
use nowait_http::log::Level;
use nowait_http::logs::debug;
use nowait_http::request::{BodyLength, Request};
use nowait_http::request_body::CountingReader;
use nowait_http::response::{Body, BodyError, Head, Part, Takeover};

use super::body_reader::StreamBodyReader;
use super::connection::StreamConnection;
use super::stream::RequestStream;
use super::{outgoing, tunnel};
use crate::body::Remainder;
use crate::life::{Following, PutError, Wire};
use crate::send_error::SendError;

/// A response on its way.
pub(crate) struct StreamResponse<'a, S> {
    stream: &'a Rc<S>,
    /// A field section may follow the body.
    has_trailers: bool,
    /// The last frame has ended the response.
    is_ended: bool,
}

impl<'a, S> StreamResponse<'a, S> {
    /// The response to the request of a stream.
    pub(crate) fn new(stream: &'a Rc<S>) -> Self {
        Self { stream, has_trailers: false, is_ended: false }
    }
}

impl<S: RequestStream + 'static> Wire for StreamResponse<'_, S> {
    fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        self.stream.connection().virtual_servers(current)
    }

    fn prepare(&mut self, request: &mut Request, servers: Option<&Virtual>) -> Option<u16> {
        let stream = self.stream;
        let ended = stream.has_ended();
        let body_length = match request.head().content_length() {
            // The following data is not content of this request.
            _ if stream.state().asks_for_tunnel.get() => BodyLength::None,
            None if ended => BodyLength::None,
            None => BodyLength::Unknown,
            Some(0) if ended => BodyLength::None,
            // Whether it is as long as it says is known at its end, even if it says that it is empty.
            Some(length) => BodyLength::Known(length),
        };
        request.set_body_length(body_length);
        if request.body_length() != BodyLength::None {
            let reader = StreamBodyReader::new(stream.clone(), request.head().expects_continue());
            request.set_body(CountingReader::unread(reader, request.received_counter()));
        }
        if stream.is_enabled(request, servers) {
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
        self.stream.state().presence.gone().await;
    }

    async fn gone_for_good(&self) {
        self.stream.state().presence.gone().await;
    }

    async fn flush(&mut self, _: Duration) -> Result<(), SendError> {
        self.stream.flush();
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
            if !stream.state().asks_for_tunnel.get() {
                // There is no `Upgrade`.
                return Err(BodyError::Upstream("unexpected switch of protocols".to_owned()).into());
            }
            tunnel::open(&mut head);
            nowait_http::response_head::complete(request, &mut head);
            stream.write_head(request, &head, false)?;
            request.set_out(head);
            return Ok(Some(Remainder { body: std::mem::take(body), declared: None }));
        }
        if stream.state().asks_for_tunnel.get() && (200..300).contains(&head.status) {
            request.log(Level::Info, format_args!("{} does not open a tunnel", head.status));
            *head = Head { status: 501, ..Head::default() };
            *body = Body::Empty;
        }
        nowait_http::response_head::complete(request, &mut head);
        self.has_trailers =
            head.expects_trailers || head.trailers_follow || !head.trailers.is_empty();
        let bodiless = request.header_only() || matches!(head.status, 204 | 304);
        let end = bodiless || (body.is_empty() && !self.has_trailers);
        stream.write_head(request, &head, end)?;
        debug!(request, "{} response: {}", S::NAME, head.status);
        let declared = head.content_length;
        request.set_out(head);
        if end {
            return Ok(None);
        }
        stream.begin_content(request, declared);
        if let Some(length) = declared
            && body.len() == declared
            && !self.has_trailers
            && !Rate::applies(request)
            && stream.send_whole(body)?
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
        let put =
            outgoing::put(&**self.stream, part, ends, request.send_timeout(), &mut unread).await;
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
        if self.is_ended || (self.has_trailers && send_trailers(&**self.stream, request)) {
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
        self.stream.flush();
        tunnel::run(&**self.stream, request, tunnel).await?;
        self.stream.end();
        Ok(())
    }

    async fn finish(&mut self, request: &Request) -> Result<(), SendError> {
        self.stream.flushed(request.send_timeout()).await
    }
}

/// Ends the response with the trailers of an upstream and those of `add_trailer`; false: there are
/// none.
fn send_trailers(stream: &impl RequestStream, request: &mut Request) -> bool {
    nowait_http::response_head::complete_trailers(request);
    if request.out().trailers.is_empty() {
        return false;
    }
    let bytes = stream.write_trailers(&request.out().trailers);
    count(request, bytes);
    true
}

fn count(request: &Request, bytes: u64) {
    request.sent().count(bytes);
}
