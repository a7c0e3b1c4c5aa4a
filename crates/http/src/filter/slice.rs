//! Responses fetched in parts. nginx: `ngx_http_slice_filter_module`.

use crate::conf::slice::SliceConf;
use crate::module::{Module, Parts, Place};
use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;
use nowait_conf::{Cx, Scope};

/// This module.
pub(crate) static MODULE: Module = Module {
    rows: &[SliceConf::ROWS],
    build: Some(build),
    variables: crate::slice::BUILTINS,
    ..Module::EMPTY
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    if SliceConf::resolve(cx, chain).slice.0 != 0 {
        parts.filter(Place::Part, apply);
    }
}

/// Comes first: later filters see the whole response.
pub(super) fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if crate::slice::begin(request, response) {
        return Ok(());
    }
    crate::slice::set(request, None);
    // nginx closes the connection.
    Err(Box::new(Special { status: 502, ..Special::default() }))
}
