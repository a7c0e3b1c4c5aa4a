//! FastCGI as a [`Protocol`] of backends.

use std::sync::Arc;

use super::codec::FastcgiFactory;
use super::conf::{CONF, FastcgiConf};
use crate::backend::cgi;
use crate::backend::conf::Backend;
use crate::backend::protocol::{Protocol, Server, Transport};
use crate::backend::response::Rewriter;
use crate::conf::Location;
use crate::conf::upstream::GroupId;
use crate::request::Request;
use crate::upstream::{CodecFactory, LogUri};

impl Rewriter for FastcgiConf {}

impl Protocol for FastcgiConf {
    const CODECS: &'static dyn CodecFactory = &FastcgiFactory;

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

    fn streams(&self, _: &Request) -> bool {
        self.backend.pass_request_body
    }

    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        cgi::append_key(request, self.pass.destination(request), out);
    }
}
