//! `brotli` and `zstd`: compress responses as they are sent.
//!
//! Two steps as for `gzip`, which both precede: before ranges are cut, they decide whether to compress
//! the response; after charset conversion, they compress the body.

use nowait_conf::{Cx, Scope};
use std::rc::Rc;

use bytes::Bytes;
use nowait_coding::Recipe;

use super::compress::{self, recode};
use crate::codings::{CODED, Coded, Coding, weight};
use crate::conf::codings::{BrotliConf, ZstdConf};
use crate::gzip::Counts;
use crate::module::{Module, Parts, Place};
use crate::order::Apart;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::{Head, Response};

/// This module.
pub(crate) static MODULE: Module = Module {
    rows: &[BrotliConf::ROWS, ZstdConf::ROWS],
    build: Some(build),
    variables: crate::codings::BUILTINS,
    ..Module::EMPTY
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    if BrotliConf::resolve(cx, chain).brotli || ZstdConf::resolve(cx, chain).zstd {
        parts.filter(Place::Coding, decide);
        parts.filter(Place::Encoding, compress);
    }
}

/// Decides whether the response is compressed, and adjusts its head.
pub(super) fn decide(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    *request.state.of_mut(&CODED) = None;
    let location = request.location();
    if !location.brotli.brotli && !location.zstd.zstd {
        return Ok(());
    }
    let possible = [Coding::Brotli, Coding::Zstd]
        .map(|coding| is_compressible(coding, request, &response.head).then_some(coding));
    let mut best: Option<(Coding, u16)> = None;
    for coding in possible.into_iter().flatten() {
        let weight = weight(request, coding);
        if weight > best.map_or(0, |(_, best)| best) {
            best = Some((coding, weight));
        }
    }
    if possible != [None, None] {
        crate::gzip::state(request).vary = true;
    }
    if let Some((coding, _)) = best {
        let counts = Rc::new(Counts::of(response.head.content_length));
        *request.state.of_mut(&CODED) = Some(Coded { coding, counts });
        response.head.place(Apart::ContentEncoding);
        response.head.content_encoding = Some(Bytes::from_static(coding.name()));
        recode(response);
    }
    Ok(())
}

fn is_compressible(coding: Coding, request: &Request, head: &Head) -> bool {
    let location = request.location();
    let (on, min, types) = match coding {
        Coding::Brotli => {
            let conf = &location.brotli;
            (conf.brotli, conf.brotli_min_length, &conf.brotli_types)
        }
        Coding::Zstd => {
            let conf = &location.zstd;
            (conf.zstd, conf.zstd_min_length, &conf.zstd_types)
        }
    };
    on && compress::is_compressible(request, head, min.0, types)
}

/// Compresses the body.
pub(super) fn compress(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let coded = request.state.get(&CODED).and_then(Option::as_ref);
    let Some(Coded { coding, counts }) = coded else { return Ok(()) };
    if request.header_only {
        return Ok(());
    }
    let location = request.location();
    let recipe = match coding {
        Coding::Brotli => Recipe::Brotli {
            level: u32::try_from(location.brotli.brotli_comp_level.get()).unwrap_or(6),
            window: location.brotli.brotli_window.0,
        },
        Coding::Zstd => Recipe::Zstd {
            level: u32::try_from(location.zstd.zstd_comp_level.get()).unwrap_or(1),
            dictionary: location.zstd.zstd_dict_file.as_ref().map(|file| file.0.clone()),
        },
    };
    compress::wrap(request, response, recipe, counts.clone())
}
