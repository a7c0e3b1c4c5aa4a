//! `gzip`: compresses responses as they are sent. nginx: `ngx_http_gzip_filter_module`.
//!
//! Two steps: before ranges are cut, it decides whether to compress the response; after charset
//! conversion, it compresses the body ([`compress`]).

use nowait_conf::{Cx, Scope};
use std::rc::Rc;

use bytes::Bytes;
use nowait_coding::Recipe;

use super::compress::{self, recode};
use crate::conf::gzip::GzipConf;
use crate::gzip::{Counts, is_accepted, state};
use crate::module::{Module, Parts, Place};
use crate::order::Apart;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;

/// This module.
pub(crate) static MODULE: Module = Module {
    rows: &[GzipConf::ROWS],
    build: Some(build),
    variables: crate::gzip::BUILTINS,
    ..Module::EMPTY
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    let conf = GzipConf::resolve(cx, chain);
    if conf.gzip || conf.gzip_vary {
        parts.filter(Place::Coding, decide);
    }
    if conf.gzip {
        parts.filter(Place::Encoding, compress);
    }
}

/// Decides whether the response is compressed, and adjusts its head.
pub(super) fn decide(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let on = request.location().gzip.gzip;
    if on {
        state(request).counts = None;
        let conf = &request.location().gzip;
        if compress::is_compressible(
            request,
            &response.head,
            conf.gzip_min_length.0,
            &conf.gzip_types,
        ) {
            state(request).vary = true;
            if is_accepted(request, &response.head) {
                let counts = Counts::of(response.head.content_length);
                state(request).counts = Some(Rc::new(counts));
                response.head.place(Apart::ContentEncoding);
                response.head.content_encoding = Some(Bytes::from_static(b"gzip"));
                recode(response);
            }
        }
    }
    if request.location().gzip.gzip_vary && state(request).vary {
        response.head.varies_by_encoding = true;
    }
    Ok(())
}

/// Compresses the body.
pub(super) fn compress(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let Some(counts) = state(request).counts.clone() else { return Ok(()) };
    if request.header_only {
        return Ok(());
    }
    let conf = &request.location().gzip;
    let level = u32::try_from(conf.gzip_comp_level.get()).unwrap_or(1);
    let recipe = Recipe::Gzip { level, window: conf.gzip_window.0 };
    compress::wrap(request, response, recipe, counts)
}
