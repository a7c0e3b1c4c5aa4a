//! `sub_filter`: replaces strings in a response as it is sent. nginx: `ngx_http_sub_filter_module`.
//!
//! [`self::replace`] searches; this module wraps bodies.

pub mod conf;
mod replace;

use std::sync::Arc;

use nowait_conf::{Cx, Scope};
use nowait_http::filter::Pull;
use nowait_http::module::{Filter, FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{
    AcceptRanges, Body, BodyError, BodySource, LocalFuture, Part, Response,
};
use nowait_message::etag;

use self::conf::{SubConf, SubFilter};
use self::replace::{Patterns, Replacer};

/// This module.
pub static MODULE: Module = Module { rows: &[SubConf::ROWS], build: Some(build), ..Module::EMPTY };

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    if let Some(filter) = SubFilter::resolve(cx, chain) {
        parts.filter(FilterStage::Content, filter);
    }
}

impl Filter for SubFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        apply(self, request, response);
        Ok(())
    }
}

/// Changes the head, and wraps the body.
fn apply(filter: &SubFilter, request: &mut Request, response: &mut Response) {
    let conf = &filter.conf;
    let head = &mut response.head;
    let applies =
        head.content_length != Some(0) && conf.sub_filter_types.mean(head.content_type.as_ref());
    if !applies {
        return;
    }
    let patterns = match &filter.fixed {
        Some(patterns) => patterns.clone(),
        None => {
            let strings = conf.sub_filter.iter().map(|pair| request.evaluate(&pair.string));
            Arc::new(Patterns::new(strings.collect()))
        }
    };
    if patterns.is_empty() {
        return;
    }
    if !request.is_nested() {
        head.content_length = None;
        head.accept_ranges = AcceptRanges::No;
        if conf.sub_filter_last_modified {
            head.etag = head.etag.as_ref().and_then(etag::weaken);
        } else {
            head.last_modified = None;
            head.etag = None;
        }
    }
    if request.header_only() {
        return;
    }
    let replacements = conf.sub_filter.iter().map(|pair| request.evaluate(&pair.replacement));
    response.body = Body::Stream(Box::new(SubstitutionBody {
        pull: Pull::new(std::mem::take(&mut response.body).safe(request)),
        replacer: Replacer::new(patterns, replacements.collect(), conf.sub_filter_once),
        ended: false,
    }));
}

/// A body in which strings are replaced while it is sent.
struct SubstitutionBody {
    pull: Pull,
    replacer: Replacer,
    ended: bool,
}

impl BodySource for SubstitutionBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            loop {
                if let Some(text) = self.replacer.pop() {
                    return Ok(Some(Part::Bytes(text)));
                }
                if self.ended {
                    return Ok(None);
                }
                let piece = self.pull.next().await?;
                self.ended = piece.is_none();
                self.replacer.push(piece);
            }
        })
    }

    fn is_urgent(&self) -> bool {
        self.pull.is_urgent()
    }
}
