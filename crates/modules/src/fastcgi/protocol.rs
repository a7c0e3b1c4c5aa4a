//! FastCGI as a [`Protocol`](nowait_backend::protocol::Protocol) of backends.

use std::sync::Arc;

use nowait_backend::conf::Backend;
use nowait_backend::pass::{Addressed, Pass};
use nowait_backend::response::Rewriter;
use nowait_backend::upstream::CodecFactory;
use nowait_http::request::Request;
use nowait_http::slots::Key;

use super::codec::FastcgiFactory;
use super::conf::{CONF, FastcgiConf};

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
