//! CONNECT as a [`Protocol`](nowait_backend::protocol::Protocol) of backends: no request is sent to the
//! server, and this server makes the response. nginx: `ngx_http_tunnel_handler`.

use std::rc::Rc;
use std::sync::Arc;

use nowait_backend::conf::Backend;
use nowait_backend::pass::{Addressed, Pass};
use nowait_backend::response::Rewriter;
use nowait_backend::upstream::{
    BodyEvent, BodyStep, Codec, CodecFactory, Content, Fault, HeadEvent, HeadStep, UpstreamRequest,
    UpstreamStream,
};
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_message::{ResponseBuilder, Span, Version};
use nowait_runtime::buf::OutBuf;

use super::conf::{CONF, Tunnel};

/// Makes the codec of tunnels.
struct TunnelFactory;

impl CodecFactory for TunnelFactory {
    fn codec(&self, _: &Request, _: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec> {
        Box::new(TunnelCodec)
    }
}

/// The codec of a tunnel.
struct TunnelCodec;

impl Codec for TunnelCodec {
    fn begin(&mut self, _: &Request, _: &UpstreamRequest, _: &mut OutBuf) -> Result<Content, u16> {
        Ok(Content::None)
    }

    /// The server may wait for the client to speak first.
    fn responds_by_itself(&self) -> bool {
        true
    }

    fn receive_head(&mut self, _: &[u8]) -> Result<HeadStep, Fault> {
        let mut head = ResponseBuilder::new();
        let start = head.text_mut().len();
        head.text_mut().extend_from_slice(b"OK");
        head.set_status(200, Span::new(start, start + 2), Version::Http11);
        // There is no field that could be malformed.
        let _ = head.finish(0);
        Ok(HeadStep { consumed: 0, event: HeadEvent::Final(Rc::new(head.take())) })
    }

    fn receive_body(&mut self, _: &[u8]) -> Result<BodyStep, Fault> {
        Ok(BodyStep { consumed: 0, event: BodyEvent::End })
    }

    fn receive_eof(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn body_left(&self) -> Option<u64> {
        None
    }

    fn is_tunnel(&self) -> bool {
        true
    }

    fn is_reusable(&self, _: bool) -> bool {
        false
    }
}

impl Rewriter for Tunnel {}

impl Addressed for Tunnel {
    const CODECS: &'static dyn CodecFactory = &TunnelFactory;
    const TAKES_CONNECT: bool = true;
    const SETTINGS: &'static Key<Arc<Self>> = &CONF;

    fn pass(&self) -> &Pass {
        &self.pass
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    /// nginx differs: it takes the destination `unix:80` for a socket in the file system.
    fn refusal(&self, request: &Request) -> Option<u16> {
        let host = request.head().host().unwrap_or_default();
        host.eq_ignore_ascii_case(b"unix").then_some(400)
    }

    fn streams(&self, _: &Request) -> bool {
        true
    }
}
