//! SCGI as a [`Protocol`](nowait_backend::protocol::Protocol) of backends, and the beginning of its requests. nginx:
//! `ngx_http_scgi_create_request`.

use std::rc::Rc;
use std::sync::Arc;

use nowait_backend::cgi::plain;
use nowait_backend::conf::Backend;
use nowait_backend::pass::{Addressed, Pass};
use nowait_backend::response::Rewriter;
use nowait_backend::upstream::{Codec, CodecFactory, UpstreamRequest, UpstreamStream};
use nowait_gateway::scgi::{Headers, ZeroByte};
use nowait_http::log::Level;
use nowait_http::request::{BodyLength, Request};
use nowait_http::slots::Key;

use super::conf::{CONF, ScgiConf};

fn conf(request: &Request) -> Option<&ScgiConf> {
    request.location().settings.get(&CONF).map(|conf| &**conf)
}

/// SCGI towards servers.
pub(super) struct ScgiFactory;

impl CodecFactory for ScgiFactory {
    fn codec(&self, _: &Request, _: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec> {
        plain::PlainCodec::new(WAY)
    }
}

const WAY: plain::PlainProtocol = plain::PlainProtocol {
    write,
    backend: |request| Some(&conf(request)?.backend),
    upgrades: false,
};

/// Appends the head of a request.
fn write(
    request: &Request,
    order: &UpstreamRequest,
    length: u64,
    out: &mut Vec<u8>,
) -> Result<(), u16> {
    let conf = conf(request).ok_or(500u16)?;
    let headers = Headers::begin(length, out);
    let passes = conf.backend.pass_request_headers;
    let appended = conf.params.append(request, &order.wanted, passes, out);
    appended.map_err(|ZeroByte(name)| {
        let name = String::from_utf8_lossy(&name);
        let text = format_args!("SCGI can't pass on a zero byte: in parameter \"{name}\"");
        request.log(Level::Error, text);
        400u16
    })?;
    headers.end(out);
    Ok(())
}

impl Rewriter for ScgiConf {}

impl Addressed for ScgiConf {
    const CODECS: &'static dyn CodecFactory = &ScgiFactory;
    const SETTINGS: &'static Key<Arc<Self>> = &CONF;

    fn pass(&self) -> &Pass {
        &self.pass
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The head states the length of the content.
    fn fields(&self, request: &Request, put: &mut dyn FnMut(&[u8], &[u8])) {
        let passes = self.backend.pass_request_headers;
        self.params.explain(request, passes, put);
    }

    fn streams(&self, request: &Request) -> bool {
        self.backend.pass_request_body
            && request.body_length() != BodyLength::Unknown
            && !self.pass.depends_on_content(request)
            && !self.params.depend_on_content(request)
    }
}
