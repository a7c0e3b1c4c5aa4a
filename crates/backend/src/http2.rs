//! HTTP/2 towards servers, as the engine needs it: one request on its [`UpstreamStream`].
//!
//! Protocols over HTTP/2 (`proxy_http_version 2`, gRPC) differ in the head of the request, which they
//! write themselves.

use std::rc::Rc;

use bytes::Bytes;
use nowait_http::exchange::Interim;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::response::Header;
use nowait_message::{Known, ResponseBuilder, ResponseHead, Span, Version};
use nowait_runtime::buf::{Chain, OutBuf};
use sha1::{Digest, Sha1};

use super::conf::Backend;
use super::early_hints;
use crate::upstream::{
    BodyEvent, BodyStep, Codec, Content, Fault, HeadEvent, HeadStep, UpstreamRequest,
    UpstreamStream,
};

/// The content of a request, and whether there is any; or the status of the error response.
pub type Opened = Result<(Content, bool), u16>;

/// The specifics of a protocol over HTTP/2.
#[derive(Clone, Copy)]
pub struct Http2Protocol {
    /// Opens the stream with the head of a request.
    pub open: fn(&Request, &UpstreamRequest, &Rc<UpstreamStream>) -> Opened,
    /// Whether the request asks for a WebSocket.
    pub asks_for_socket: fn(&Request) -> bool,
    /// The settings of the request's location.
    pub backend: fn(&Request) -> Option<&Backend>,
}

/// One request to a server.
pub struct Http2Codec {
    lane: Rc<UpstreamStream>,
    way: Http2Protocol,
    /// The request has content.
    has_content: bool,
    /// Bytes of interim responses received until now.
    hints: usize,
    /// The request asks for a WebSocket: the `Sec-WebSocket-Accept` of its response.
    accept: Option<Vec<u8>>,
    /// The stream is a tunnel.
    switched: bool,
}

impl Http2Codec {
    /// A codec for one try.
    pub fn new(lane: Rc<UpstreamStream>, way: Http2Protocol) -> Box<Self> {
        Box::new(Self { lane, way, has_content: false, hints: 0, accept: None, switched: false })
    }
}

impl Codec for Http2Codec {
    fn begin(
        &mut self,
        request: &Request,
        order: &UpstreamRequest,
        _: &mut OutBuf,
    ) -> Result<Content, u16> {
        let (content, has_content) = (self.way.open)(request, order, &self.lane)?;
        self.has_content = has_content;
        if (self.way.asks_for_socket)(request) {
            let key = request
                .head()
                .fields()
                .iter()
                .find(|field| field.name.eq_ignore_ascii_case(b"sec-websocket-key"));
            self.accept = Some(accept(key.map_or(&[][..], |field| field.value)));
        }
        Ok(if has_content { content } else { Content::None })
    }

    fn frames_content(&self) -> bool {
        self.has_content
    }

    fn encode_body(&mut self, piece: Bytes, _: &mut Chain) {
        self.lane.put(piece);
    }

    fn encode_end(&mut self, _: &mut Chain) {
        self.lane.end();
    }

    fn takes_content(&self) -> bool {
        self.lane.has_room()
    }

    fn receive_head(&mut self, _: &[u8]) -> Result<HeadStep, Fault> {
        let event = match self.lane.take_head()? {
            None => HeadEvent::NeedMore,
            Some((true, head)) => HeadEvent::Interim(head),
            Some((false, head)) => match self.accept.take_if(|_| (200..300).contains(&head.status))
            {
                Some(accept) => {
                    self.switched = true;
                    HeadEvent::Final(switched(&head, &accept))
                }
                None => HeadEvent::Final(head),
            },
        };
        Ok(HeadStep { consumed: 0, event })
    }

    fn interim(&mut self, request: &Request, head: &ResponseHead) -> Option<Interim> {
        let backend = (self.way.backend)(request)?;
        self.hints += head.length;
        if self.hints > backend.settings.buffer_size as usize {
            let text = format_args!("upstream sent too big early hints");
            request.log(Level::Info, text);
            return None;
        }
        early_hints::interim(request, backend, head)
    }

    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault> {
        let event = match input.len() {
            0 if self.lane.is_complete()? => BodyEvent::End,
            0 => BodyEvent::NeedMore,
            length => BodyEvent::Data(0..length),
        };
        Ok(BodyStep { consumed: input.len(), event })
    }

    fn receive_eof(&mut self) -> Result<(), Fault> {
        match self.lane.is_complete()? {
            true => Ok(()),
            false => Err(Fault::PrematureClose),
        }
    }

    fn body_left(&self) -> Option<u64> {
        None
    }

    fn trailers(&mut self) -> Vec<Header> {
        self.lane.take_trailers()
    }

    fn is_tunnel(&self) -> bool {
        self.switched
    }

    /// The stream is for one request; its connection is handled by its own task.
    fn is_reusable(&self, _: bool) -> bool {
        false
    }
}

/// The value of `Sec-WebSocket-Accept` for a key (RFC 6455 section 4.2.2).
fn accept(key: &[u8]) -> Vec<u8> {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    nowait_http::base64::encode(&hash.finalize())
}

/// The head of a response that opens a tunnel, as HTTP/1.1 has it.
fn switched(head: &ResponseHead, accept: &[u8]) -> Rc<ResponseHead> {
    let mut builder = ResponseBuilder::new();
    let mut add = |name: &[u8], value: &[u8]| builder.field(Known::from_bytes(name), name, value);
    for field in head.fields().filter(|field| field.known != Some(Known::ContentLength)) {
        add(field.name, field.value);
    }
    add(b"Upgrade", b"websocket");
    add(b"Connection", b"upgrade");
    add(b"Sec-WebSocket-Accept", accept);
    let text = builder.text_mut();
    let start = text.len();
    text.extend_from_slice(b"Switching Protocols");
    let reason = Span::new(start, text.len());
    builder.set_status(101, reason, Version::Http11);
    // It has no length that could be invalid.
    let _ = builder.finish(head.length);
    builder.share()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_accepted_as_in_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
