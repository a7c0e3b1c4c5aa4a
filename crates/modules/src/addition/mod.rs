//! `add_before_body` and `add_after_body`. nginx: `ngx_http_addition_filter_module`.
//!
//! Two steps: the head is changed where nginx does it; the added bodies pass through the filters of
//! their own locations, so they are inserted after the filters of this response.

pub mod conf;

use std::sync::Arc;

use nowait_conf::{Cx, Scope};
use nowait_http::body::{Piece, Sequence};
use nowait_http::module::{Filter, FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::phases::explained;
use nowait_http::request::Request;
use nowait_http::response::{Head, LocalFuture, Response};
use nowait_http::slots::Key;
use nowait_http::subrequest::Subrequest;
use nowait_http::trace::{Trace, quoted};

use self::conf::AdditionConf;

/// This module.
pub static MODULE: Module =
    Module { rows: &[AdditionConf::ROWS], build: Some(build), ..Module::EMPTY };

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = AdditionConf::resolve(cx, chain);
    if conf.uris() == [None, None] {
        return;
    }
    parts.filter(FilterStage::Content, HeadFilter(conf.clone()));
    parts.filter(
        FilterStage::Surroundings,
        move |request: &mut Request, response: &mut Response| apply(&conf, request, response),
    );
}

/// Whether text is added to the body.
#[derive(Default)]
struct AdditionFlag(bool);

static ADDS: Key<AdditionFlag> = Key::new();

struct HeadFilter(Arc<AdditionConf>);

impl Filter for HeadFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        decide(&self.0, request, response);
        Ok(())
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        head: Option<&'a Head>,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let adds = request.state().of(&ADDS).0 && !request.header_only();
            if request.is_nested() || (head.is_some() && !adds) {
                return;
            }
            let when = if head.is_some() { "" } else { " if its status is 200 and its type fits" };
            let [before, after] = self.0.uris();
            for (name, place, uri) in
                [("add_before_body", "precedes", before), ("add_after_body", "follows", after)]
            {
                trace.by = name;
                let Some(uri) = uri else { continue };
                let Ok(mut begun) = Subrequest::get(uri, None).begin(request) else { continue };
                let text = format!("{name}: {} {place} the body{when}", quoted(uri));
                explained::subrequest(&mut begun, trace, text).await;
            }
        })
    }
}

/// Decides whether text is added, and adjusts the head.
fn decide(conf: &AdditionConf, request: &mut Request, response: &mut Response) {
    let adds = response.head.status == 200
        && !request.is_nested()
        && conf.addition_types.mean(response.head.content_type.as_ref());
    request.state_mut().of_mut(&ADDS).0 = adds;
    if adds {
        nowait_http::filter::recode(response);
    }
}

/// Adds the text to the body.
fn apply(
    conf: &AdditionConf,
    request: &mut Request,
    response: &mut Response,
) -> Result<(), Box<StatusResponse>> {
    if !request.state().of(&ADDS).0 || request.header_only() {
        return Ok(());
    }
    let [before, after] = conf.uris();
    let begin = |uri: &[u8]| {
        let begun = Subrequest::get(uri, None).begin(request);
        begun
            .map(Piece::Subrequest)
            .map_err(|_| StatusResponse { status: 500, ..StatusResponse::default() })
    };
    let before = before.map(begin).transpose()?;
    let after = after.map(begin).transpose()?;
    let own = Piece::Body(std::mem::take(&mut response.body));
    let pieces = before.into_iter().chain([own]).chain(after);
    response.body = Sequence::new(pieces).into_body();
    Ok(())
}
