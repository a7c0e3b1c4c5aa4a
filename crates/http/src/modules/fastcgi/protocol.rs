//! FastCGI as a [`Protocol`](crate::backend::protocol::Protocol) of backends.

use std::sync::Arc;

use super::codec::FastcgiFactory;
use super::conf::{CONF, FastcgiConf};
use crate::backend::conf::Backend;
use crate::backend::pass::{Addressed, Pass};
use crate::backend::response::Rewriter;
use crate::request::Request;
use crate::slots::Key;
use crate::upstream::CodecFactory;

impl Rewriter for FastcgiConf {}

impl Addressed for FastcgiConf {
    const CODECS: &'static dyn CodecFactory = &FastcgiFactory;
    const SETTINGS: &'static Key<Arc<Self>> = &CONF;

    fn pass(&self) -> &Pass {
        &self.pass
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn fields(&self, request: &Request, put: &mut dyn FnMut(&[u8], &[u8])) {
        let passes = self.backend.pass_request_headers;
        self.params.explain(request, passes, put);
    }

    fn streams(&self, request: &Request) -> bool {
        self.backend.pass_request_body
            && !self.pass.depends_on_content(request)
            && !self.params.depend_on_content(request)
    }
}
