//! memcached as a [`Protocol`](nowait_backend::protocol::Protocol) of backends, and its codec. nginx: `ngx_http_memcached_handler`,
//! `ngx_http_memcached_create_request`.

use std::rc::Rc;
use std::sync::Arc;

use nowait_backend::cgi;
use nowait_backend::conf::Backend;
use nowait_backend::pass::{Addressed, Pass};
use nowait_backend::response::Rewriter;
use nowait_backend::upstream::{
    BodyEvent, BodyStep, Codec, CodecFactory, Content, Fault, HeadEvent, HeadStep, Remark,
    UpstreamRequest, UpstreamStream,
};
use nowait_gateway::memcached::{GetResponse, ResponseLine};
use nowait_gateway::{BodyEvent as Body, Error};
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::response::Head;
use nowait_http::slots::Key;
use nowait_message::escape::{self, Set};
use nowait_message::{Known, Method, ResponseBuilder, Span, Version};
use nowait_runtime::buf::OutBuf;

use super::conf::{CONF, Memcached};

/// The memcached codec of the upstream engine.
pub(super) struct MemcachedFactory;

impl CodecFactory for MemcachedFactory {
    fn codec(&self, request: &Request, _: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec> {
        let conf = request.location().settings.get(&CONF);
        let gzip_flag = conf.map_or(0, |conf| conf.gzip_flag);
        Box::new(MemcachedCodec { gzip_flag, get: None, is_head: false, missing: false })
    }
}

/// The codec of a request for one value.
struct MemcachedCodec {
    gzip_flag: u64,
    /// `None` until the request begins.
    get: Option<GetResponse>,
    /// The client gets no value.
    is_head: bool,
    /// There is no value, which is not logged yet.
    missing: bool,
}

impl MemcachedCodec {
    fn get(&mut self) -> Result<&mut GetResponse, Fault> {
        self.get.as_mut().ok_or(Fault::Malformed("no request was sent".into()))
    }

    /// Converts an error to the engine's form.
    fn fault(&self, error: Error) -> Fault {
        let key = self.get.as_ref().map(GetResponse::key).unwrap_or_default();
        let key = String::from_utf8_lossy(key);
        Fault::Malformed(match error {
            Error::Line(_) => error.to_string().into(),
            _ => format!("{error} for key \"{key}\"").into(),
        })
    }

    /// The head of a response.
    fn head(&self, answer: &ResponseLine) -> Result<HeadEvent, Fault> {
        let mut head = ResponseBuilder::new();
        let (status, length) = match answer {
            ResponseLine::Missing => (404, 0),
            ResponseLine::Value { flags, length } => {
                if self.gzip_flag != 0
                    && flags.read().map_err(|error| self.fault(error))? & self.gzip_flag != 0
                {
                    head.field(Some(Known::ContentEncoding), b"Content-Encoding", b"gzip");
                }
                (200, *length)
            }
        };
        let text = length.to_string();
        head.field(Some(Known::ContentLength), b"Content-Length", text.as_bytes());
        let reason = nowait_message::status::reason(status).unwrap_or_default().as_bytes();
        let start = head.text_mut().len();
        head.text_mut().extend_from_slice(reason);
        head.set_status(status, Span::new(start, start + reason.len()), Version::Http11);
        // A number was written.
        let _ = head.finish(0);
        Ok(HeadEvent::Final(Rc::new(head.take())))
    }
}

impl Codec for MemcachedCodec {
    fn begin(
        &mut self,
        request: &Request,
        order: &UpstreamRequest,
        out: &mut OutBuf,
    ) -> Result<Content, u16> {
        let conf = request.location().settings.get(&CONF).ok_or(500u16)?;
        let key = request.evaluate(&conf.key);
        if key.is_empty() {
            let text = format_args!("the \"$memcached_key\" variable is not set");
            request.log(Level::Error, text);
            return Err(500);
        }
        let mut escaped = Vec::with_capacity(key.len());
        escape::push_uri(&mut escaped, Set::Memcached, &key);
        self.is_head = cgi::is_head(request, order);
        self.get = Some(GetResponse::new(escaped, out));
        Ok(Content::None)
    }

    fn receive_head(&mut self, input: &[u8]) -> Result<HeadStep, Fault> {
        let received = self.get()?.receive_head(input);
        let (consumed, answer) = received.map_err(|error| self.fault(error))?;
        let event = match answer {
            None => HeadEvent::NeedMore,
            Some(answer) => {
                self.missing = answer == ResponseLine::Missing;
                self.head(&answer)?
            }
        };
        Ok(HeadStep { consumed, event })
    }

    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault> {
        if std::mem::take(&mut self.missing) {
            let key = String::from_utf8_lossy(self.get()?.key()).into_owned();
            let text = format!("key: \"{key}\" was not found by memcached").into();
            let event = BodyEvent::Apart(Some(Remark { level: Level::Info, text }));
            return Ok(BodyStep { consumed: 0, event });
        }
        if self.is_head {
            return Ok(BodyStep { consumed: 0, event: BodyEvent::End });
        }
        let step = self.get()?.receive_body(input);
        let event = match step.event {
            Body::NeedMore | Body::Stderr(_) => BodyEvent::NeedMore,
            Body::Data(range) => BodyEvent::Data(range),
            Body::Excess => BodyEvent::Apart(Some(Remark {
                level: Level::Error,
                text: "memcached sent invalid trailer".into(),
            })),
            Body::End => BodyEvent::End,
        };
        Ok(BodyStep { consumed: step.consumed, event })
    }

    fn receive_eof(&mut self) -> Result<(), Fault> {
        // The value alone is of interest.
        match &self.get {
            Some(get) if get.has_value() => Ok(()),
            _ => Err(Fault::PrematureClose),
        }
    }

    fn body_left(&self) -> Option<u64> {
        let left = self.get.as_ref().map_or(0, GetResponse::body_left);
        match self.is_head {
            true => Some(0),
            // The line after the value has not been received yet.
            false => (left > 0).then_some(left),
        }
    }

    /// After a HEAD the value is still on its way.
    fn is_reusable(&self, leftover: bool) -> bool {
        self.get.as_ref().is_some_and(|get| get.is_reusable(leftover))
    }
}

impl Rewriter for Memcached {
    /// memcached stores no content types: use the type of the URI's extension.
    fn complete(&self, request: &Request, head: &mut Head) {
        head.content_type = request.location().content_type(request.uri());
    }
}

impl Addressed for Memcached {
    const CODECS: &'static dyn CodecFactory = &MemcachedFactory;
    const SETTINGS: &'static Key<Arc<Self>> = &CONF;

    fn pass(&self) -> &Pass {
        &self.pass
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn refusal(&self, request: &Request) -> Option<u16> {
        (!matches!(request.method(), Method::Get | Method::Head)).then_some(405)
    }

    /// The value is not sent, so there is no need to receive it.
    fn streams(&self, _: &Request) -> bool {
        true
    }
}
