//! `brotli` and `zstd`: decide which responses are compressed by which coding.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use nowait_coding::Recipe;
use nowait_conf::{Cx, Scope};
use nowait_http::accept_encoding::{Coding, set_varies, weight};
use nowait_http::conf::content_types::ContentTypes;
use nowait_http::field_order::SeparateField;
use nowait_http::filter::recode;
use nowait_http::module::{Filter, FilterStage, LocationBuilder};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::Response;
use nowait_http::slots::Key;

use super::conf::{BrotliConf, ZstdConf};
use super::{Counts, body};

/// Compression of a response.
#[derive(Debug)]
struct AppliedCoding {
    /// The coding used.
    coding: Coding,
    /// Lengths before and after.
    counts: Rc<Counts>,
}

/// The compression of the body, if any.
static CODED: Key<Option<AppliedCoding>> = Key::new();

/// A coding that is enabled, with its settings.
struct EnabledCoding {
    coding: Coding,
    bytes_min: u64,
    types: ContentTypes,
    recipe: Recipe,
}

pub(super) fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let brotli = BrotliConf::resolve(cx, chain);
    let zstd = ZstdConf::resolve(cx, chain);
    let mut enabled = Vec::new();
    if brotli.brotli {
        enabled.push(EnabledCoding {
            coding: Coding::Brotli,
            bytes_min: brotli.brotli_min_length.0,
            types: brotli.brotli_types.clone(),
            recipe: Recipe::Brotli {
                level: u32::try_from(brotli.brotli_comp_level.get()).unwrap_or(6),
                window: brotli.brotli_window.0,
            },
        });
    }
    if zstd.zstd {
        enabled.push(EnabledCoding {
            coding: Coding::Zstd,
            bytes_min: zstd.zstd_min_length.0,
            types: zstd.zstd_types.clone(),
            recipe: Recipe::Zstd {
                level: u32::try_from(zstd.zstd_comp_level.get()).unwrap_or(1),
                dictionary: zstd.zstd_dict_file.as_ref().map(|file| file.0.clone()),
            },
        });
    }
    if !enabled.is_empty() {
        let enabled: Arc<[EnabledCoding]> = enabled.into();
        parts.filter(FilterStage::Coding, HeadFilter(enabled.clone()));
        parts.filter(FilterStage::Encoding, BodyFilter(enabled));
    }
}

/// The ratio that a coding has achieved; false if there is none.
pub(super) fn ratio(request: &Request, coding: Coding, out: &mut Vec<u8>) -> bool {
    let coded = request.state().get(&CODED).and_then(Option::as_ref);
    let coded = coded.filter(|coded| coded.coding == coding);
    coded.is_some_and(|coded| coded.counts.append_ratio(out))
}

/// Decides whether the response is compressed, and adjusts its head. If the client accepts both
/// codings alike, Brotli is used.
struct HeadFilter(Arc<[EnabledCoding]>);

impl Filter for HeadFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        *request.state_mut().of_mut(&CODED) = None;
        let mut best: Option<(Coding, u16)> = None;
        for EnabledCoding { coding, bytes_min, types, .. } in &self.0[..] {
            if !body::is_compressible(request, &response.head, *bytes_min, types) {
                continue;
            }
            set_varies(request);
            let weight = weight(request, *coding);
            if weight > best.map_or(0, |(_, best)| best) {
                best = Some((*coding, weight));
            }
        }
        if let Some((coding, _)) = best {
            let counts = Rc::new(Counts::of(response.head.content_length));
            *request.state_mut().of_mut(&CODED) = Some(AppliedCoding { coding, counts });
            response.head.place(SeparateField::ContentEncoding);
            response.head.content_encoding = Some(Bytes::from_static(coding.name()));
            recode(response);
        }
        Ok(())
    }
}

/// Compresses the body.
struct BodyFilter(Arc<[EnabledCoding]>);

impl Filter for BodyFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        let coded = request.state().get(&CODED).and_then(Option::as_ref);
        let Some(AppliedCoding { coding, counts }) = coded else { return Ok(()) };
        let enabled = self.0.iter().find(|enabled| enabled.coding == *coding);
        let Some(enabled) = enabled.filter(|_| !request.header_only()) else { return Ok(()) };
        let counts = counts.clone();
        body::wrap(request, response, enabled.recipe.clone(), counts)
    }
}
