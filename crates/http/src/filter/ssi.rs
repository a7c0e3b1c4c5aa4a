//! `ssi`: decides which responses are processed. nginx: the header filter of
//! `ngx_http_ssi_filter_module`.
//!
//! Two steps: the head is changed where nginx does it; the body is wrapped after charset conversion.

use crate::conf::ssi::SsiConf;
use crate::module::{Module, Parts, Place};
use crate::outcome::Special;
use crate::request::Request;
use crate::response::{AcceptRanges, Body, Response};
use crate::slots::Key;
use crate::ssi::Page;
use crate::subrequest;
use nowait_conf::{Cx, Scope};
use nowait_message::etag;

/// This module.
pub(crate) static MODULE: Module = Module {
    rows: &[SsiConf::ROWS],
    build: Some(build),
    variables: crate::ssi::BUILTINS,
    ..Module::EMPTY
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    if SsiConf::resolve(cx, chain).ssi {
        parts.filter(Place::Content, decide);
        parts.filter(Place::Inclusion, apply);
    }
}

/// Whether SSI commands in the body are executed.
#[derive(Default)]
struct Applies(bool);

static APPLIES: Key<Applies> = Key::new();

/// Decides whether SSI commands are executed, and changes the head.
pub(super) fn decide(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let head = &mut response.head;
    let conf = &request.location().ssi;
    let applies = conf.ssi
        && head.content_length != Some(0)
        && conf.ssi_types.mean(head.content_type.as_ref());
    let keeps_time = conf.ssi_last_modified;
    request.state.of_mut(&APPLIES).0 = applies;
    if applies && !request.is_nested() {
        head.content_length = None;
        head.accept_ranges = AcceptRanges::No;
        if keeps_time {
            head.etag = head.etag.as_ref().and_then(etag::weaken);
        } else {
            head.last_modified = None;
            head.etag = None;
        }
    }
    Ok(())
}

/// Wraps the body.
pub(super) fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if request.state.of(&APPLIES).0 && !request.header_only {
        let mut shadow = subrequest::shadow(request);
        shadow.out = response.head.clone();
        let body = std::mem::take(&mut response.body);
        response.body = Body::Stream(Box::new(Page::new(shadow, body)));
    }
    Ok(())
}
