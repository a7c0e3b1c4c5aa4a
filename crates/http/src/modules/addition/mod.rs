//! `add_before_body` and `add_after_body`. nginx: `ngx_http_addition_filter_module`.
//!
//! Two steps: the head is changed where nginx does it; the added bodies pass through the filters of
//! their own locations, so they are inserted after the filters of this response.

pub mod conf;

use crate::body::{Piece, Sequence};
use crate::module::{Module, Parts, Place};
use crate::modules::addition::conf::AdditionConf;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;
use crate::slots::Key;
use crate::subrequest::Subrequest;
use nowait_conf::{Cx, Scope};

/// This module.
pub(crate) static MODULE: Module =
    Module { rows: &[AdditionConf::ROWS], build: Some(build), ..Module::EMPTY };

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    if AdditionConf::resolve(cx, chain).uris() != [None, None] {
        parts.filter(Place::Content, decide);
        parts.filter(Place::Surroundings, apply);
    }
}

/// Whether something is added to the body.
#[derive(Default)]
struct Adds(bool);

static ADDS: Key<Adds> = Key::new();

/// Decides whether something is added, and adjusts the head.
pub(crate) fn decide(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let conf = &request.location().addition;
    let adds = response.head.status == 200
        && conf.uris() != [None, None]
        && !request.is_nested()
        && conf.addition_types.mean(response.head.content_type.as_ref());
    request.state.of_mut(&ADDS).0 = adds;
    if adds {
        crate::filter::recode(response);
    }
    Ok(())
}

/// Adds it to the body.
pub(crate) fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if !request.state.of(&ADDS).0 || request.header_only {
        return Ok(());
    }
    let current = request.current.clone();
    let [before, after] = current.conf.location(request.location).addition.uris();
    let begin = |uri: &[u8]| {
        let begun = Subrequest::get(uri, None).begin(request);
        begun.map(Piece::Subrequest).map_err(|_| Special { status: 500, ..Special::default() })
    };
    let before = before.map(begin).transpose()?;
    let after = after.map(begin).transpose()?;
    let own = Piece::Body(std::mem::take(&mut response.body));
    let pieces = before.into_iter().chain([own]).chain(after);
    response.body = Sequence::new(pieces).into_body();
    Ok(())
}
