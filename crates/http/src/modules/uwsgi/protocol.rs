//! uwsgi as a [`Protocol`] of backends, and the beginning of its requests. nginx:
//! `ngx_http_uwsgi_create_request`.

use std::rc::Rc;
use std::sync::Arc;

use nowait_gateway::uwsgi::{TooBig, Vars};

use super::conf::{CONF, UwsgiConf};
use crate::backend::cgi::{self, plain};
use crate::backend::conf::Backend;
use crate::backend::protocol::{Protocol, Server, Transport};
use crate::backend::response::Rewriter;
use crate::conf::Location;
use crate::conf::upstream::GroupId;
use crate::log::Level;
use crate::request::{BodyLength, Request};
use crate::upstream::{Codec, CodecFactory, Lane, LogUri, Order};

fn conf(request: &Request) -> Option<&UwsgiConf> {
    UwsgiConf::of_location(request.location()).map(|conf| &**conf)
}

/// uwsgi towards servers.
pub(super) struct UwsgiFactory;

impl CodecFactory for UwsgiFactory {
    fn codec(&self, _: &Request, _: Option<&Rc<Lane>>) -> Box<dyn Codec> {
        plain::Plain::new(WAY)
    }
}

const WAY: plain::Way =
    plain::Way { write, backend: |request| Some(&conf(request)?.backend), upgrades: true };

/// Appends the head of a request.
fn write(request: &Request, order: &Order, _: u64, out: &mut Vec<u8>) -> Result<(), u16> {
    let conf = conf(request).ok_or(500u16)?;
    let mut vars = Vars::new();
    let passes = conf.backend.pass_request_headers;
    conf.params.each(request, &order.wanted, passes, |name, value| vars.push(name, value));
    vars.write(conf.modifiers, out).map_err(|TooBig(bytes)| {
        request.log(Level::Alert, format_args!("uwsgi request is too big: {bytes}"));
        500u16
    })?;
    if let Some(text) = &conf.string {
        out.extend_from_slice(&request.evaluate(text));
    }
    Ok(())
}

impl Rewriter for UwsgiConf {}

impl Protocol for UwsgiConf {
    const CODECS: &'static dyn CodecFactory = &UwsgiFactory;

    fn of_location(location: &Location) -> Option<&Arc<Self>> {
        location.settings.get(&CONF)
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn group(&self) -> Option<GroupId> {
        self.pass.group()
    }

    fn settle(&self, _: &mut Request) {}

    fn evaluate(&self, request: &mut Request) -> Result<Server, u16> {
        self.pass.evaluate(request)
    }

    fn transport(&self, request: &Request) -> Transport {
        self.pass.transport(request, &self.backend)
    }

    fn uri(&self, _: &Request) -> Result<LogUri, u16> {
        Ok(cgi::no_uri())
    }

    /// The head states the length of the content.
    fn streams(&self, request: &Request) -> bool {
        self.backend.pass_request_body && request.body_length != BodyLength::Unknown
    }

    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        cgi::append_key(request, self.pass.destination(request), out);
    }
}
