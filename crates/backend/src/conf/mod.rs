//! Settings shared by all modules that pass requests to servers, under a prefix of their own:
//! `proxy_buffering`, `fastcgi_buffering`, …
//!
//! [`upstream_rows!`](crate::upstream_rows) and [`backend_rows!`](crate::backend_rows) write the rows of a
//! module. Each location that passes requests resolves them to a [`Backend`], which the module's handler hands to the engine. nginx:
//! `ngx_http_upstream_conf_t`, whose directives its modules repeat.

mod headers;
pub mod keeping;
mod names;
mod rows;
mod store;

use std::sync::Arc;

use nowait_conf::{Buffers, Cx, Diagnostic, Node, Scope, Setting, Size, Span, arity};
use nowait_front::bind::Bind;
use nowait_front::tls::upstream::UpstreamTls;

pub use headers::{RequestHeaders, SetHeader};
pub use names::{HeaderName, NameSet};
pub use store::{Store, StoreAccess, StoreTarget};

use crate::upstream::{self, Cause, Settings};
use nowait_http::conf::body::{TempPath, TempPaths};
use nowait_http::conf::predicates::{EarlyHintsConf, Predicates};
use nowait_http::variables::complex::{Complex, HttpVariables};

/// Size of a memory page, from which nginx derives its defaults.
const PAGE_BYTES: u64 = 4096;

/// The default of `proxy_max_temp_file_size`.
const TEMP_FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

nowait_conf::setting_flags! {
    /// Conditions for passing a request to the next server.
    pub struct NextUpstream {
        /// The connection failed, or broke before a response arrived.
        ERROR = "error",
        /// The server was too slow.
        TIMEOUT = "timeout",
        /// The response is empty or malformed.
        INVALID_HEADER = "invalid_header",
        /// Applies also to requests that may have an effect each time: POST, LOCK, PATCH.
        NON_IDEMPOTENT = "non_idempotent",
        /// The response has this status.
        HTTP_500 = "http_500",
        /// The response has this status.
        HTTP_502 = "http_502",
        /// The response has this status.
        HTTP_503 = "http_503",
        /// The response has this status.
        HTTP_504 = "http_504",
        /// The response has this status.
        HTTP_403 = "http_403",
        /// The response has this status.
        HTTP_404 = "http_404",
        /// The response has this status.
        HTTP_429 = "http_429",
        /// Used by caches only.
        UPDATING = "updating",
        /// Never.
        OFF = "off",
    }
}

nowait_conf::setting_flags! {
    /// Header fields of responses that are passed on, but have no effect.
    pub struct IgnoreHeaders {
        /// An internal redirect.
        ACCEL_REDIRECT = "X-Accel-Redirect",
        /// The lifetime of the response.
        ACCEL_EXPIRES = "X-Accel-Expires",
        /// Bytes per second to the client.
        ACCEL_LIMIT_RATE = "X-Accel-Limit-Rate",
        /// Whether the response is buffered.
        ACCEL_BUFFERING = "X-Accel-Buffering",
        /// The charset of the response.
        ACCEL_CHARSET = "X-Accel-Charset",
        /// The lifetime of the response.
        EXPIRES = "Expires",
        /// The lifetime of the response, and the caches that may store it.
        CACHE_CONTROL = "Cache-Control",
        /// Set for responses to a single client.
        SET_COOKIE = "Set-Cookie",
        /// The request fields that the response depends on.
        VARY = "Vary",
    }
}

/// A number of buffers, at least two, and the size of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendBuffers(pub Buffers);

impl Setting for BackendBuffers {
    const ARITY: arity::Arity = <Buffers as Setting>::ARITY;

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let buffers = Buffers::parse(node, cx)?;
        if buffers.count < 2 {
            return Err(node.error(format!("there must be at least 2 \"{}\"", node.name)));
        }
        Ok(Self(buffers))
    }
}

/// `proxy_send_lowat`, which has no effect on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLowat(pub Size);

impl Setting for SendLowat {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let size = <Size as Setting>::parse(node, cx)?;
        let warning = format!("\"{}\" is not supported, ignored", node.name);
        cx.report(Diagnostic::warn(warning).at(node.name.span));
        Ok(Self(size))
    }
}

/// The resolved rows of [`upstream_rows!`](crate::upstream_rows) and
/// [`backend_rows!`](crate::backend_rows), for any prefix.
#[derive(Debug, Clone)]
pub struct Backend {
    /// The module's prefix without the underscore: `proxy`.
    pub module: &'static str,
    /// The engine's settings.
    pub settings: Arc<Settings>,
    /// Local address of connections.
    pub bind: Option<Bind<HttpVariables>>,
    /// Limit of the reading rate in bytes per second.
    pub limit_rate: Option<nowait_http::conf::SizeText>,
    /// Response fields that are not passed on.
    pub hide: NameSet,
    /// Response fields that have no effect.
    pub ignore: IgnoreHeaders,
    /// Whether `error_page` may replace responses of the server.
    pub intercept_errors: bool,
    /// Whether ranges are cut out of all responses, even if the server does not allow that.
    pub force_ranges: bool,
    /// The name of this server in `Via` of messages that it forwards, if it is there.
    pub via: Option<Complex>,
    /// Whether the client's header fields are passed on.
    pub pass_request_headers: bool,
    /// Whether the client's body is passed on.
    pub pass_request_body: bool,
    /// Conditions for passing on 103 (Early Hints).
    pub early_hints: Predicates,
    /// Whether `Server` and `Date` are added to responses without them.
    pub adds_fields: bool,
    /// Whether a 404 of the server becomes ours, with our page.
    pub intercept_404: bool,
    /// Whether, and where, responses are stored as files.
    pub store: Option<Store>,
}

impl Backend {
    /// The settings of a module without directives.
    pub fn new(module: &'static str) -> Self {
        Self {
            module,
            settings: Arc::default(),
            bind: None,
            limit_rate: None,
            hide: NameSet::default(),
            ignore: IgnoreHeaders::default(),
            intercept_errors: false,
            force_ranges: false,
            via: None,
            pass_request_headers: true,
            pass_request_body: true,
            early_hints: Predicates::default(),
            adds_fields: false,
            intercept_404: false,
            store: None,
        }
    }

    /// The same for servers with TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<UpstreamTls<HttpVariables>>) -> Self {
        Arc::make_mut(&mut self.settings).tls = Some(tls);
        self
    }

    /// The same for servers over HTTP/2, to which requests share connections.
    #[must_use]
    pub fn with_shared_connections(mut self) -> Self {
        Arc::make_mut(&mut self.settings).shares_connections = true;
        self
    }
}

impl NextUpstream {
    /// The conditions in the engine's form.
    pub fn causes(self) -> upstream::RetryConditions {
        /// Conditions, and the causes that they include.
        const CAUSES: &[(NextUpstream, u16)] = &[
            (NextUpstream::ERROR, Cause::Error as u16),
            (NextUpstream::TIMEOUT, Cause::Timeout as u16),
            (NextUpstream::INVALID_HEADER, Cause::InvalidHeader as u16),
            (NextUpstream::HTTP_500, Cause::Http500 as u16),
            (NextUpstream::HTTP_502, Cause::Http502 as u16),
            (NextUpstream::HTTP_503, Cause::Http503 as u16),
            (NextUpstream::HTTP_504, Cause::Http504 as u16),
            (NextUpstream::HTTP_403, Cause::Http403 as u16),
            (NextUpstream::HTTP_404, Cause::Http404 as u16),
            (NextUpstream::HTTP_429, Cause::Http429 as u16),
            (NextUpstream::NON_IDEMPOTENT, upstream::RetryConditions::NON_IDEMPOTENT),
        ];
        if self.contains(Self::OFF) {
            return upstream::RetryConditions::OFF;
        }
        let given = CAUSES.iter().filter(|(condition, _)| self.contains(*condition));
        upstream::RetryConditions(given.fold(0, |all, (_, cause)| all | cause))
    }
}

/// Sizes to check and to complete with defaults.
pub struct Sizes {
    /// `…_buffer_size`
    pub buffer: Size,
    /// `…_buffers`
    pub buffers: Buffers,
    /// `…_busy_buffers_size`
    pub busy: Option<Size>,
    /// `…_max_temp_file_size`
    pub temp_file_max: Option<Size>,
    /// `…_temp_file_write_size`
    pub temp_file_write: Option<Size>,
}

/// Sizes that are consistent, in bytes.
#[derive(Default)]
pub struct FittingSizes {
    /// On their way to the client.
    pub busy: u64,
    /// Of a temporary file.
    pub temp_file_max: u64,
    /// Written at a time.
    pub temp_file_write: u64,
}

impl Sizes {
    /// Fills in the defaults, and checks that the sizes are consistent. nginx: the end of
    /// `ngx_http_proxy_merge_loc_conf`.
    ///
    /// # Errors
    /// The inconsistency, in nginx's words; `name` is the module's prefix without its underscore.
    pub fn fit(&self, name: &str) -> Result<FittingSizes, String> {
        let largest = self.buffer.0.max(self.buffers.size.0);
        let of_largest = format!(
            "the maximum of the value of \"{name}_buffer_size\" and one of the \"{name}_buffers\""
        );
        let busy = self.busy.map_or(2 * largest, |size| size.0);
        if busy < largest {
            return Err(format!(
                "\"{name}_busy_buffers_size\" must be equal to or greater than {of_largest}"
            ));
        }
        let all_but_one = (self.buffers.count as u64 - 1).saturating_mul(self.buffers.size.0);
        if busy > all_but_one {
            return Err(format!(
                "\"{name}_busy_buffers_size\" must be less than the size of all \
                 \"{name}_buffers\" minus one buffer"
            ));
        }
        let temp_file_write = self.temp_file_write.map_or(2 * largest, |size| size.0);
        if temp_file_write < largest {
            return Err(format!(
                "\"{name}_temp_file_write_size\" must be equal to or greater than {of_largest}"
            ));
        }
        let temp_file_max = self.temp_file_max.map_or(TEMP_FILE_BYTES_MAX, |size| size.0);
        if temp_file_max != 0 && temp_file_max < largest {
            return Err(format!(
                "\"{name}_max_temp_file_size\" must be equal to zero to disable temporary files \
                 usage or must be equal to or greater than {of_largest}"
            ));
        }
        Ok(FittingSizes { busy, temp_file_max, temp_file_write })
    }

    /// The same; reports an inconsistency, after which the configuration is not used.
    pub fn check(&self, cx: &mut Cx<'_>, name: &str, at: Span) -> FittingSizes {
        self.fit(name).unwrap_or_else(|text| {
            cx.report(Diagnostic::emerg(text).at(at));
            FittingSizes::default()
        })
    }
}

/// Default size of a buffer: a page.
pub fn page(_cx: &mut Cx<'_>) -> Size {
    Size(PAGE_BYTES)
}

/// Default buffers: eight pages.
pub fn eight_pages(_cx: &mut Cx<'_>) -> BackendBuffers {
    BackendBuffers(Buffers { count: 8, size: Size(PAGE_BYTES) })
}

/// `early_hints`, which belongs to no backend's table.
pub fn early_hints(cx: &mut Cx<'_>, chain: &[&Scope]) -> Predicates {
    EarlyHintsConf::resolve(cx, chain).early_hints.clone().unwrap_or_default()
}

/// Notes a directory for temporary files, which is made at the start.
pub fn note_temp_path(cx: &mut Cx<'_>, temp_path: &TempPath) {
    cx.global::<TempPaths>().add(temp_path);
}

/// A size as the engine stores it, capped at the largest `u32`.
pub fn bytes32(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Default of `…_send_lowat`.
pub fn no_lowat(_cx: &mut Cx<'_>) -> SendLowat {
    SendLowat(Size(0))
}

/// Default of `…_ignore_headers`.
pub fn nothing_ignored(_cx: &mut Cx<'_>) -> IgnoreHeaders {
    IgnoreHeaders::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(busy: Option<u64>, max: Option<u64>, write: Option<u64>) -> Result<(), String> {
        let sizes = Sizes {
            buffer: Size(4096),
            buffers: Buffers { count: 8, size: Size(4096) },
            busy: busy.map(Size),
            temp_file_max: max.map(Size),
            temp_file_write: write.map(Size),
        };
        sizes.fit("proxy").map(drop)
    }

    #[test]
    fn inconsistent_sizes_are_rejected() {
        assert_eq!(sizes(None, None, None), Ok(()));
        assert_eq!(sizes(None, Some(0), None), Ok(()));
        let error = |result: Result<(), String>| result.expect_err("does not fit");
        assert!(error(sizes(Some(1024), None, None)).contains("proxy_busy_buffers_size"));
        assert!(error(sizes(Some(32_768), None, None)).contains("minus one buffer"));
        assert!(error(sizes(None, Some(100), None)).contains("proxy_max_temp_file_size"));
        assert!(error(sizes(None, None, Some(100))).contains("proxy_temp_file_write_size"));
    }
}
