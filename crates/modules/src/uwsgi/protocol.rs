//! uwsgi as a [`Protocol`](nowait_backend::protocol::Protocol) of backends, and the beginning of its requests. nginx:
//! `ngx_http_uwsgi_create_request`.

use std::rc::Rc;
use std::sync::Arc;

use nowait_backend::cgi::plain;
use nowait_backend::conf::Backend;
use nowait_backend::pass::{Addressed, Pass};
use nowait_backend::response::Rewriter;
use nowait_backend::upstream::{Codec, CodecFactory, UpstreamRequest, UpstreamStream};
use nowait_gateway::uwsgi::{PacketTooLarge, Vars};
use nowait_http::log::Level;
use nowait_http::request::{BodyLength, Request};
use nowait_http::slots::Key;

use super::conf::{CONF, UwsgiConf};

fn conf(request: &Request) -> Option<&UwsgiConf> {
    request.location().settings.get(&CONF).map(|conf| &**conf)
}

/// uwsgi towards servers.
pub(super) struct UwsgiFactory;

impl CodecFactory for UwsgiFactory {
    fn codec(&self, _: &Request, _: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec> {
        plain::PlainCodec::new(WAY)
    }
}

const WAY: plain::PlainProtocol = plain::PlainProtocol {
    write,
    backend: |request| Some(&conf(request)?.backend),
    upgrades: true,
};

/// Appends the head of a request.
fn write(request: &Request, order: &UpstreamRequest, _: u64, out: &mut Vec<u8>) -> Result<(), u16> {
    let conf = conf(request).ok_or(500u16)?;
    let vars = Vars::begin(out);
    let passes = conf.backend.pass_request_headers;
    let Ok(()) = conf.params.append(request, &order.wanted, passes, out);
    vars.end(conf.modifiers, out).map_err(|PacketTooLarge(bytes)| {
        request.log(Level::Alert, format_args!("uwsgi request is too big: {bytes}"));
        500u16
    })?;
    if let Some(text) = &conf.string {
        text.append(request, out);
    }
    Ok(())
}

impl Rewriter for UwsgiConf {}

impl Addressed for UwsgiConf {
    const CODECS: &'static dyn CodecFactory = &UwsgiFactory;
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
            && !self.string.as_ref().is_some_and(|text| request.depends_on_content(text))
    }
}
