//! Settings shared by all modules that pass requests to servers, under a prefix of their own:
//! `proxy_buffering`, `fastcgi_buffering`, …
//!
//! [`upstream_rows!`](crate::upstream_rows) and [`backend_rows!`](crate::backend_rows) write the rows of a
//! module. Each location that passes
//! requests resolves them to a [`Backend`], which the module's handler hands to the engine. nginx:
//! `ngx_http_upstream_conf_t`, whose directives its modules repeat.

mod headers;
mod names;
mod store;

use std::sync::Arc;

use nowait_conf::{Buffers, Cx, Diagnostic, Node, Scope, Setting, Size, Span, arity};
use nowait_front::bind::Bind;
use nowait_front::tls::upstream::UpstreamTls;

pub use headers::{RequestHeaders, SetHeader};
pub use names::{HeaderName, NameSet};
pub use store::{Store, StoreAccess, StoreTarget};

use crate::conf::body::{TempPath, TempPaths};
use crate::conf::predicates::{EarlyHintsConf, Predicates};
use crate::upstream::{self, Cause, Settings};
use crate::variables::complex::HttpVariables;

/// Size of a memory page, from which nginx derives its defaults.
const PAGE_BYTES: u64 = 4096;

/// The default of `proxy_max_temp_file_size`.
const TEMP_FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

nowait_conf::setting_flags! {
    /// When a request is passed to the next server.
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
        /// How long the response may be cached.
        ACCEL_EXPIRES = "X-Accel-Expires",
        /// Bytes per second to the client.
        ACCEL_LIMIT_RATE = "X-Accel-Limit-Rate",
        /// Whether the response is buffered.
        ACCEL_BUFFERING = "X-Accel-Buffering",
        /// The charset of the response.
        ACCEL_CHARSET = "X-Accel-Charset",
        /// How long the response may be cached.
        EXPIRES = "Expires",
        /// How long the response may be cached, and by whom.
        CACHE_CONTROL = "Cache-Control",
        /// The response is for one client only.
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
/// [`backend_rows!`](crate::backend_rows), whatever the prefix.
#[derive(Debug, Clone)]
pub struct Backend {
    /// The module's prefix without the underscore: `proxy`.
    pub module: &'static str,
    /// The engine's settings.
    pub settings: Arc<Settings>,
    /// Local address of connections.
    pub bind: Option<Bind<HttpVariables>>,
    /// Limit of the reading rate in bytes per second.
    pub limit_rate: Option<crate::conf::SizeText>,
    /// Response fields that are not passed on.
    pub hide: NameSet,
    /// Response fields that have no effect.
    pub ignore: IgnoreHeaders,
    /// Whether `error_page` may replace responses of the server.
    pub intercept_errors: bool,
    /// Whether ranges are cut out of responses whatever the server states.
    pub force_ranges: bool,
    /// Whether the client's header fields are passed on.
    pub pass_request_headers: bool,
    /// Whether the client's body is passed on.
    pub pass_request_body: bool,
    /// When 103 (Early Hints) is passed on.
    pub early_hints: Predicates,
    /// Whether, and where, responses are stored as files.
    pub store: Option<Store>,
}

impl Backend {
    /// The same for servers with TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<UpstreamTls<HttpVariables>>) -> Self {
        self.settings = Arc::new(Settings { tls: Some(tls), ..Settings::clone(&self.settings) });
        self
    }
}

impl NextUpstream {
    /// The conditions in the engine's form.
    pub fn causes(self) -> upstream::NextUpstream {
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
            (NextUpstream::NON_IDEMPOTENT, upstream::NextUpstream::NON_IDEMPOTENT),
        ];
        if self.contains(Self::OFF) {
            return upstream::NextUpstream::OFF;
        }
        let given = CAUSES.iter().filter(|(condition, _)| self.contains(*condition));
        upstream::NextUpstream(given.fold(0, |all, (_, cause)| all | cause))
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

/// Generates the rows that all modules with upstream servers share, under a module's prefix, and a
/// function that converts them to a [`Backend`] that buffers nothing.
///
/// `upstream_rows! { module "grpc", prefix "grpc_"; pub struct GrpcUpstreamConf with
/// GrpcUpstreamLayer; }`
#[macro_export]
macro_rules! upstream_rows {
    (
        module $module:literal, prefix $prefix:literal;
        $(#[$meta:meta])*
        pub struct $conf:ident with $layer:ident;
    ) => {
        nowait_conf::directives! {
            $(#[$meta])*
            #[derive(Debug)]
            module $module, prefix $prefix;
            pub struct $conf with $layer;

            /// Maximum size of a response head; a longer head is an error. By default one memory
            /// page.
            buffer_size: nowait_conf::Size = "4k" => $crate::backend::conf::page, in HTTP | SERVER | LOCATION, args "size";
            /// Maximum time for connecting to a server.
            connect_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
            /// Maximum time between two writes of a request.
            send_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
            /// Maximum time for receiving the response head as a whole, and then between two reads
            /// of the body. If the head is late, the client gets 504 unless another server is
            /// tried; if the body is late, the response is cut off.
            read_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
            /// When to try another server: after a connection error, a timeout, a malformed or
            /// empty response, or a response with one of these statuses. Non-idempotent requests
            /// (POST, LOCK, PATCH) are not repeated once they were sent, unless `non_idempotent` is
            /// given. Nothing is repeated once a part of the response was sent to the client.
            next_upstream: $crate::backend::conf::NextUpstream = "error timeout", in HTTP | SERVER | LOCATION, args "error | timeout | invalid_header | http_500 | http_502 | http_503 | http_504 | http_403 | http_404 | http_429 | non_idempotent | off ...";
            /// Maximum number of servers to try per request; zero means all of them.
            next_upstream_tries: u32 = "0", in HTTP | SERVER | LOCATION, args "number";
            /// Maximum time for trying servers per request; zero means no limit.
            next_upstream_timeout: nowait_conf::Msec = "0", in HTTP | SERVER | LOCATION, args "time";
            /// Local address, optionally with a port, of upstream connections. With `transparent`
            /// it may be a non-local address, such as `$remote_addr`. Variables are allowed; an
            /// empty value means `off`.
            bind: Option<nowait_front::bind::BindOrOff<$crate::variables::complex::HttpVariables>>, in HTTP | SERVER | LOCATION, args "address [transparent] | off";
            /// Enables or disables TCP keepalive probes on upstream connections (`SO_KEEPALIVE`).
            socket_keepalive: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Receive buffer of upstream connections (`SO_RCVBUF`); zero leaves the choice to the
            /// kernel.
            socket_rcvbuf: nowait_conf::Size = "0", in HTTP | SERVER | LOCATION, args "size";
            /// Send buffer of upstream connections (`SO_SNDBUF`); zero leaves the choice to the
            /// kernel.
            socket_sndbuf: nowait_conf::Size = "0", in HTTP | SERVER | LOCATION, args "size";
            /// A response field that is passed on although it is hidden by default.
            pass_header: Vec<$crate::backend::conf::HeaderName>, in HTTP | SERVER | LOCATION, args "field";
            /// A response field that is not passed to clients, in addition to those hidden by
            /// default.
            hide_header: Vec<$crate::backend::conf::HeaderName>, in HTTP | SERVER | LOCATION, args "field";
            /// Response fields that are passed on but have no effect.
            ignore_headers: $crate::backend::conf::IgnoreHeaders = "" => $crate::backend::conf::nothing_ignored, in HTTP | SERVER | LOCATION, args "field ...";
            /// Controls whether responses with a status that an `error_page` names are replaced by
            /// that page.
            intercept_errors: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
        }

        impl $conf {
            /// The engine's settings for a location. `hidden`: the response fields that are hidden by
            /// default.
            pub fn backend(
                cx: &mut nowait_conf::Cx<'_>,
                chain: &[&nowait_conf::Scope],
                hidden: &[&str],
            ) -> $crate::backend::conf::Backend {
                use $crate::backend::conf::{Backend, NameSet, bytes32, early_hints};
                let own = Self::resolve(cx, chain);
                let settings = $crate::upstream::Settings {
                    connect_timeout: own.connect_timeout.duration(),
                    send_timeout: own.send_timeout.duration(),
                    read_timeout: own.read_timeout.duration(),
                    buffer_size: bytes32(own.buffer_size.0),
                    buffering: false,
                    request_buffering: false,
                    next_upstream: own.next_upstream.causes(),
                    next_upstream_tries: own.next_upstream_tries,
                    next_upstream_timeout: own.next_upstream_timeout.duration(),
                    socket_keepalive: own.socket_keepalive,
                    socket_rcvbuf: bytes32(own.socket_rcvbuf.0),
                    socket_sndbuf: bytes32(own.socket_sndbuf.0),
                    ..$crate::upstream::Settings::default()
                };
                Backend {
                    module: $module,
                    settings: std::sync::Arc::new(settings),
                    bind: own.bind.and_then(|bind| bind.0),
                    limit_rate: None,
                    hide: NameSet::hidden(hidden, &own.hide_header, &own.pass_header),
                    ignore: own.ignore_headers,
                    intercept_errors: own.intercept_errors,
                    force_ranges: false,
                    pass_request_headers: true,
                    pass_request_body: true,
                    early_hints: early_hints(cx, chain),
                    store: None,
                }
            }
        }
    };
}

/// Generates the rows of modules that buffer requests and responses, in addition to those of
/// [`upstream_rows!`](crate::upstream_rows), and a function that completes their [`Backend`].
///
/// `backend_rows! { module "proxy", prefix "proxy_", temp "proxy_temp 1 2"; pub struct
/// ProxyBackendConf
/// with ProxyBackendLayer; }`
#[macro_export]
macro_rules! backend_rows {
    (
        module $module:literal, prefix $prefix:literal, temp $temp:literal;
        $(#[$meta:meta])*
        pub struct $conf:ident with $layer:ident;
    ) => {
        nowait_conf::directives! {
            $(#[$meta])*
            #[derive(Debug)]
            module $module, prefix $prefix;
            pub struct $conf with $layer;

            /// Controls whether a response is read as fast as the server sends it, into buffers and
            /// then into a temporary file, or only as fast as the client accepts it. The server can
            /// override this with `X-Accel-Buffering: yes` or `no`.
            buffering: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether the whole request body is read before a server is contacted.
            /// Otherwise it is forwarded as it arrives, and no other server can be tried once a
            /// part of it was sent.
            request_buffering: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Number and size of the buffers for a response body; at least two.
            buffers: $crate::backend::conf::BackendBuffers = "8 4k" => $crate::backend::conf::eight_pages, in HTTP | SERVER | LOCATION, args "number size";
            /// How much of the buffers may be in flight to a slow client while the rest is being
            /// filled or written to a temporary file. By default twice the larger of the two buffer
            /// sizes.
            busy_buffers_size: Option<nowait_conf::Size>, in HTTP | SERVER | LOCATION, args "size";
            /// Maximum size of the temporary file for a response that exceeds the buffers; by
            /// default `1024m`. Zero disables temporary files, and the response is then read only
            /// as fast as the client accepts it.
            max_temp_file_size: Option<nowait_conf::Size>, in HTTP | SERVER | LOCATION, args "size";
            /// How much is written to a temporary file at once. By default twice the larger of the
            /// two buffer sizes.
            temp_file_write_size: Option<nowait_conf::Size>, in HTTP | SERVER | LOCATION, args "size";
            /// Directory for temporary files, with up to three levels of subdirectories.
            temp_path: $crate::conf::body::TempPath = $temp, in HTTP | SERVER | LOCATION, args "path [level1 [level2 [level3]]]";
            /// Accepted for compatibility: Linux has no low-water mark for sending.
            send_lowat: $crate::backend::conf::SendLowat = "0" => $crate::backend::conf::no_lowat, in HTTP | SERVER | LOCATION, args "size";
            /// Controls whether a request is completed after its client has disconnected.
            ignore_client_abort: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Limits the rate at which a buffered response is read, in bytes per second; zero
            /// means no limit. Variables are allowed.
            limit_rate: Option<$crate::conf::SizeText>, in HTTP | SERVER | LOCATION, args "rate";
            /// Controls whether ranges are served from all responses, whatever the server states
            /// about them.
            force_ranges: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether the header of the client's request is passed on.
            pass_request_headers: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether the body of the client's request is passed on.
            pass_request_body: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Saves responses with status 200 as files: with `on` at the path given by `root` or
            /// `alias`, otherwise at this path, in which variables are allowed. A file appears when
            /// it is complete, with the response's `Last-Modified` as its modification time.
            store: $crate::backend::conf::StoreTarget = "off", in HTTP | SERVER | LOCATION, args "on | off | path";
            /// Permissions of the files and directories that `store` creates.
            store_access: $crate::backend::conf::StoreAccess = "user:rw", in HTTP | SERVER | LOCATION, args "users:permissions ...";
        }

        impl $conf {
            /// Completes the settings of a location. `at`: the directive that passes requests on, for
            /// errors.
            pub fn complete(
                cx: &mut nowait_conf::Cx<'_>,
                chain: &[&nowait_conf::Scope],
                at: nowait_conf::Span,
                backend: $crate::backend::conf::Backend,
            ) -> $crate::backend::conf::Backend {
                use $crate::backend::conf::{Backend, Sizes, Store, bytes32, note_temp_path};
                let own = Self::resolve(cx, chain);
                let sizes = Sizes {
                    buffer: nowait_conf::Size(backend.settings.buffer_size.into()),
                    buffers: own.buffers.0,
                    busy: own.busy_buffers_size,
                    temp_file_max: own.max_temp_file_size,
                    temp_file_write: own.temp_file_write_size,
                };
                let fitting = sizes.check(cx, $module, at);
                note_temp_path(cx, &own.temp_path);
                let settings = $crate::upstream::Settings {
                    buffers: $crate::upstream::Buffers {
                        count: bytes32(own.buffers.0.count as u64),
                        size: bytes32(own.buffers.0.size.0),
                    },
                    busy_buffers_size: fitting.busy,
                    max_temp_file_size: fitting.temp_file_max,
                    temp_file_write_size: fitting.temp_file_write,
                    temp_path: own.temp_path,
                    buffering: own.buffering,
                    request_buffering: own.request_buffering,
                    ignore_client_abort: own.ignore_client_abort,
                    ..$crate::upstream::Settings::clone(&backend.settings)
                };
                Backend {
                    settings: std::sync::Arc::new(settings),
                    limit_rate: own.limit_rate,
                    force_ranges: own.force_ranges,
                    pass_request_headers: own.pass_request_headers,
                    pass_request_body: own.pass_request_body,
                    store: Store::new(own.store, own.store_access),
                    ..backend
                }
            }
        }
    };
}

/// `early_hints`, which belongs to no backend's table.
pub fn early_hints(cx: &mut Cx<'_>, chain: &[&Scope]) -> Predicates {
    EarlyHintsConf::resolve(cx, chain).early_hints.unwrap_or_default()
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
