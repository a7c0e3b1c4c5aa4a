//! `gzip`: decides which responses are compressed for clients that accept it.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use nowait_coding::Recipe;
use nowait_conf::{Cx, Scope};
use nowait_http::accept_encoding::{is_accepted, set_varies, varies};
use nowait_http::conf::accept_encoding::AcceptEncodingConf;
use nowait_http::field_order::SeparateField;
use nowait_http::filter::recode;
use nowait_http::module::{Filter, FilterStage, LocationBuilder};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::Response;
use nowait_http::slots::Key;

use super::conf::GzipConf;
use super::{Counts, body};

/// Lengths of the response, if it is compressed.
static COUNTS: Key<Option<Rc<Counts>>> = Key::new();

pub(super) fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = GzipConf::resolve(cx, chain);
    if conf.gzip {
        let level = u32::try_from(conf.gzip_comp_level.get()).unwrap_or(1);
        let recipe = Recipe::Gzip { level, window: conf.gzip_window.0 };
        parts.filter(FilterStage::Coding, HeadFilter(conf));
        parts.filter(FilterStage::Encoding, BodyFilter(recipe));
    }
    if AcceptEncodingConf::resolve(cx, chain).gzip_vary {
        parts.filter(FilterStage::Coding, vary);
    }
}

/// The ratio that was achieved; false if there is none.
pub(super) fn ratio(request: &Request, out: &mut Vec<u8>) -> bool {
    let counts = request.state().get(&COUNTS).and_then(Option::as_ref);
    counts.is_some_and(|counts| counts.append_ratio(out))
}

/// Decides whether the response is compressed, and adjusts its head.
struct HeadFilter(Arc<GzipConf>);

impl Filter for HeadFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        let conf = &self.0;
        request.state_mut().take(&COUNTS);
        if !body::is_compressible(request, &response.head, conf.gzip_min_length.0, &conf.gzip_types)
        {
            return Ok(());
        }
        set_varies(request);
        if is_accepted(request, &response.head) {
            let counts = Counts::of(response.head.content_length);
            *request.state_mut().of_mut(&COUNTS) = Some(Rc::new(counts));
            response.head.place(SeparateField::ContentEncoding);
            response.head.content_encoding = Some(Bytes::from_static(b"gzip"));
            recode(response);
        }
        Ok(())
    }
}

/// `gzip_vary`: for all responses that depend on `Accept-Encoding`, compressed by any filter.
#[expect(clippy::unnecessary_wraps, reason = "a filter")]
fn vary(request: &mut Request, response: &mut Response) -> Result<(), Box<StatusResponse>> {
    if varies(request) {
        response.head.varies_by_encoding = true;
    }
    Ok(())
}

/// Compresses the body.
struct BodyFilter(Recipe);

impl Filter for BodyFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        let counts = request.state().get(&COUNTS).cloned().flatten();
        let Some(counts) = counts.filter(|_| !request.header_only()) else { return Ok(()) };
        body::wrap(request, response, self.0.clone(), counts)
    }
}
