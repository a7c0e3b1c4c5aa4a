//! Decides which responses are processed. nginx: the header filter of `ngx_http_ssi_filter_module`.
//!
//! Two steps: the head is changed where nginx does it; the body is wrapped after charset conversion.

use std::sync::Arc;

use nowait_http::module::Filter;
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{AcceptRanges, Body, Head, LocalFuture, Response};
use nowait_http::slots::Key;
use nowait_http::subrequest;
use nowait_http::trace::{Trace, TraceSubject};
use nowait_message::etag;

use super::SsiBody;
use super::conf::SsiConf;

/// Whether SSI commands in the body are executed.
#[derive(Default)]
struct SsiFlag(bool);

static APPLIES: Key<SsiFlag> = Key::new();

/// Decides whether SSI commands are executed, and changes the head.
pub(super) struct HeadFilter(pub(super) Arc<SsiConf>);

impl Filter for HeadFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        let head = &mut response.head;
        let applies =
            head.content_length != Some(0) && self.0.ssi_types.mean(head.content_type.as_ref());
        request.state_mut().of_mut(&APPLIES).0 = applies;
        if applies && !request.is_nested() {
            head.content_length = None;
            head.accept_ranges = AcceptRanges::No;
            if self.0.ssi_last_modified {
                head.etag = head.etag.as_ref().and_then(etag::weaken);
            } else {
                head.last_modified = None;
                head.etag = None;
            }
        }
        Ok(())
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        head: Option<&'a Head>,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, ()> {
        trace.by = "ssi";
        let text = match head {
            Some(_) if !request.state().of(&APPLIES).0 => return Box::pin(async {}),
            Some(_) => "ssi: commands in the body are executed, each include by a subrequest",
            None => {
                "ssi: if the type fits, commands in the body are executed, each include by a \
                     subrequest"
            }
        };
        trace.add(TraceSubject::Filter, None, text);
        trace.conditions.push(
            "the body depends on its SSI commands, which are neither read nor executed".to_owned(),
        );
        Box::pin(async {})
    }
}

/// Wraps the body.
pub(super) struct BodyFilter(pub(super) Arc<SsiConf>);

impl Filter for BodyFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        if request.state().of(&APPLIES).0 && !request.header_only() {
            let mut shadow = subrequest::shadow(request);
            shadow.set_out(response.head.clone());
            let body = std::mem::take(&mut response.body);
            response.body = Body::Stream(Box::new(SsiBody::new(&self.0, shadow, body)));
        }
        Ok(())
    }
}
