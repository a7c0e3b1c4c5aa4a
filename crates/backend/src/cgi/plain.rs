//! Requests to SCGI and uwsgi servers: a head that each of them writes in its own way, the content as it
//! is, and a response in the form of CGI.

use std::rc::Rc;

use nowait_gateway::cgi::{CgiContext, CgiResponse};
use nowait_gateway::{BodyEvent as Body, Error, HeadEvent as Head};
use nowait_http::request::Request;
use nowait_message::{Known, ResponseBuilder};
use nowait_runtime::buf::OutBuf;

use super::excess;
use crate::conf::Backend;
use crate::upstream::{
    BodyEvent, BodyStep, Codec, Content, Fault, HeadEvent, HeadStep, UpstreamRequest,
};

/// The specifics of such a protocol.
#[derive(Clone, Copy)]
pub struct PlainProtocol {
    /// Appends the head of a request whose content has this length.
    pub write: fn(&Request, &UpstreamRequest, u64, &mut Vec<u8>) -> Result<(), u16>,
    /// The settings of the request's location.
    pub backend: fn(&Request) -> Option<&Backend>,
    /// Whether 101 turns the connection into a tunnel for a client that has asked for it.
    pub upgrades: bool,
}

/// One request to such a server.
pub struct PlainCodec {
    way: PlainProtocol,
    response: CgiResponse,
    head: ResponseBuilder,
}

impl PlainCodec {
    /// A codec for one try.
    pub fn new(way: PlainProtocol) -> Box<Self> {
        let response = CgiResponse::new(CgiContext::default());
        Box::new(Self { way, response, head: ResponseBuilder::new() })
    }
}

/// Converts an application's error to the engine's form.
pub fn fault(error: Error) -> Fault {
    match error {
        Error::Closed => Fault::PrematureClose,
        Error::Head(nowait_gateway::HeadError::HeaderTooLarge) => Fault::HeadTooBig,
        other => Fault::Malformed(other.to_string().into()),
    }
}

impl Codec for PlainCodec {
    fn begin(
        &mut self,
        request: &Request,
        order: &UpstreamRequest,
        out: &mut OutBuf,
    ) -> Result<Content, u16> {
        let backend = (self.way.backend)(request).ok_or(500u16)?;
        let (content, length) = super::content(request, backend);
        // Content of unknown length is not streamed.
        let length = length.ok_or(500u16)?;
        (self.way.write)(request, order, length, out)?;
        self.response = CgiResponse::new(CgiContext {
            head: super::is_head(request, order),
            upgrade: self.way.upgrades && request.head().header(Known::Upgrade).is_some(),
            head_bytes_max: backend.settings.buffer_size,
        });
        Ok(content)
    }

    fn receive_head(&mut self, input: &[u8]) -> Result<HeadStep, Fault> {
        let step = self.response.receive_head(&mut self.head, input).map_err(fault)?;
        let event = match step.event {
            Head::NeedMore => HeadEvent::NeedMore,
            // There is no such stream.
            Head::Stderr(_) | Head::StderrPart => HeadEvent::Apart(None),
            Head::Done => HeadEvent::Final(Rc::new(self.head.take())),
        };
        Ok(HeadStep { consumed: step.consumed, event })
    }

    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault> {
        let step = self.response.receive_body(input).map_err(fault)?;
        let event = match step.event {
            Body::NeedMore => BodyEvent::NeedMore,
            Body::Data(range) => BodyEvent::Data(range),
            Body::Stderr(_) => BodyEvent::Apart(None),
            Body::Excess => BodyEvent::Apart(Some(excess())),
            Body::End => BodyEvent::End,
        };
        Ok(BodyStep { consumed: step.consumed, event })
    }

    fn receive_eof(&mut self) -> Result<(), Fault> {
        self.response.receive_eof().map_err(fault)
    }

    fn body_left(&self) -> Option<u64> {
        self.response.body_left()
    }

    fn is_tunnel(&self) -> bool {
        self.response.is_switched()
    }

    /// The server closes the connection after the response.
    fn is_reusable(&self, _: bool) -> bool {
        false
    }
}
