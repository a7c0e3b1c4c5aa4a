//! Errors of the API, in the format of NGINX Plus.

use std::borrow::Cow;

use serde_json::{Value, json};

/// The documentation that errors refer to.
const HREF: &str = "https://nginx.org/en/docs/http/ngx_http_api_module.html";

/// An error: the client's fault, unless its status says otherwise. Nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: u16,
    pub(super) text: Cow<'static, str>,
    pub(super) code: &'static str,
}

impl ApiError {
    pub(super) const METHOD: Self = Self::constant(405, "method disabled", "MethodDisabled");
    pub(super) const PATH: Self = Self::constant(404, "path not found", "PathNotFound");
    pub(super) const VERSION: Self = Self::constant(404, "unknown version", "UnknownVersion");
    pub(super) const BUSY: Self = Self::constant(503, "too many requests", "TooManyRequests");
    pub(super) const FOREIGN: Self =
        Self::constant(403, "request from a page of another origin", "ForeignOrigin");
    pub(super) const JSON: Self = Self::constant(415, "json error", "JsonError");
    pub(super) const BODY: Self =
        Self::constant(400, "reading request body failed", "BodyReadError");
    pub(super) const TOO_LARGE: Self =
        Self::constant(413, "request body is too large", "BodyReadError");

    const fn constant(status: u16, text: &'static str, code: &'static str) -> Self {
        Self { status, text: Cow::Borrowed(text), code }
    }

    pub(super) fn new(status: u16, text: impl Into<Cow<'static, str>>, code: &'static str) -> Self {
        Self { status, text: text.into(), code }
    }

    /// Nothing has the last name of this path behind the version.
    pub(super) fn missing(steps: &[&str]) -> Self {
        let (text, code) = match steps {
            [_, "server_zones", _] => ("server zone not found", "ServerZoneNotFound"),
            [_, "location_zones", _] => ("location zone not found", "LocationZoneNotFound"),
            [_, "upstreams", _] => ("upstream not found", "UpstreamNotFound"),
            [_, "caches", _] => ("cache not found", "CacheNotFound"),
            [_, "limit_conns", _] => ("limit_conn not found", "LimitConnNotFound"),
            [_, "limit_reqs", _] => ("limit_req not found", "LimitReqNotFound"),
            [_, "keyvals", _] => ("keyval not found", "KeyvalNotFound"),
            ["resolvers", _] => ("resolver zone not found", "ResolverZoneNotFound"),
            ["slabs", _] => ("slab not found", "SlabNotFound"),
            ["workers", _] => ("worker not found", "WorkerNotFound"),
            _ => return Self::PATH,
        };
        Self::constant(404, text, code)
    }

    /// The body of the response.
    pub(super) fn json(&self, request_id: &str) -> Value {
        json!({
            "error": { "status": self.status, "text": self.text, "code": self.code },
            "request_id": request_id,
            "href": HREF,
        })
    }
}
