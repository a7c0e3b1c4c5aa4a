//! Directives of the proxy module. nginx: `ngx_http_proxy_module`.
//!
//! [`backend`](nowait_backend) holds what other modules share with it. A location that passes requests
//! on has a [`ProxyConf`]; the others have none.

mod cookies;
mod pass;
mod redirect;
mod set_fields;

use std::sync::Arc;

use nowait_conf::{Cx, Scope};

pub use cookies::{CookieFlags, CookieName, CookiePattern, CookieRule, FlagsRule, Rules};
pub use pass::{Pass, PassLayer, StaticPass};
pub use redirect::{Redirect, RedirectPattern, Redirects};
pub use set_fields::{ContentFields, SetFields};

use crate::proxy::hops::Via;
use nowait_backend::cache::conf::CacheConf;
use nowait_backend::conf::keeping::{self, Keeps, keeps};
use nowait_backend::conf::{Backend, RequestHeaders, SendLowat, SetHeader, no_lowat};
use nowait_backend::url::Schemes;
use nowait_http::module::LocationBuilder;
use nowait_http::slots::Key;
use nowait_http::variables::complex::{Complex, HttpVariables};

/// The schemes of URLs.
pub const SCHEMES: Schemes = Schemes { plain: "http://", tls: Some(TLS_SCHEME), bare: false };

/// The scheme of URLs with TLS.
pub const TLS_SCHEME: &str = "https://";

/// Response fields that are not passed on unless `proxy_pass_header` names them.
const HIDDEN: &[&str] = &[
    "Date",
    "Server",
    "X-Pad",
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

nowait_backend::upstream_rows! {
    module "proxy", prefix "proxy_";
    /// The directives that all modules with upstream servers have.
    pub struct ProxyUpstreamConf with ProxyUpstreamLayer;
}

nowait_backend::backend_rows! {
    module "proxy", prefix "proxy_", temp "proxy_temp 1 2";
    /// The directives that the proxy module shares with others that buffer.
    pub struct ProxyBackendConf with ProxyBackendLayer;
}

nowait_backend::cache_path_rows! {
    pub static CACHE_PATH_ROWS, module "proxy", name "proxy_cache_path";
}

nowait_backend::cache_rows! {
    module "proxy", prefix "proxy_";
    /// Caching of responses: which ones, how long, for which requests.
    pub struct ProxyCacheConf with ProxyCacheConfLayer;
}

nowait_front::upstream_tls_rows! {
    module "proxy", prefix "proxy_", variables HttpVariables, in HTTP | SERVER | LOCATION;
    /// TLS to servers whose URL begins with `https://`.
    pub struct ProxyTlsConf with ProxyTlsLayer;
}

nowait_conf::directives! {
    /// Passing requests to HTTP servers.
    #[derive(Debug)]
    module "proxy", prefix "proxy_";
    pub struct ProxyRequestConf with ProxyRequestLayer;

    /// Sets a header field of the request to the upstream server, replacing the client's. An empty
    /// value removes it. By default `Host` is `$proxy_host`; `Connection`, `Upgrade` and other
    /// hop-by-hop fields are not passed on. Inherited unless the block has its own.
    set_header: Vec<SetHeader>, in HTTP | SERVER | LOCATION, args "field value";
    /// Accepted for compatibility: the table needs no tuning.
    headers_hash_max_size: u32 = "512", in HTTP | SERVER | LOCATION, args "size";
    /// Accepted for compatibility: the table needs no tuning.
    headers_hash_bucket_size: u32 = "64", in HTTP | SERVER | LOCATION, args "size";
    /// Accepted for compatibility: Linux has no low-water mark for sending.
    send_lowat: SendLowat = "0" => no_lowat, in HTTP | SERVER | LOCATION, args "size";
    /// Replaces the body of the request to the upstream server.
    set_body: Option<Complex>, in HTTP | SERVER | LOCATION, args "value";
    /// Replaces the method of the request to the upstream server.
    method: Option<Complex>, in HTTP | SERVER | LOCATION, args "method";
    /// HTTP version for upstream connections. 1.0 does not keep connections alive. With 2, requests
    /// share connections, at most 128 on each; servers at `https://` must select `h2` by ALPN, and
    /// others must take HTTP/2 without being asked (h2c with prior knowledge). The `keepalive`
    /// directives of the upstream apply; without `keepalive`, a connection ends with its last request.
    http_version: HttpVersion = "1.1", in HTTP | SERVER | LOCATION, args "1.0 | 1.1 | 2";
    /// Adds this server to `Via` of requests and responses that it forwards, with the version of the
    /// protocol by which it has received them: `1.1 nowait`, or with another name, which may have
    /// variables. It also counts `Max-Forwards` down; an OPTIONS request that has `0` is answered with
    /// 204 instead of being forwarded, and TRACE never is forwarded. RFC 9110, section 7.6, demands all
    /// this. By default it is `on` in locations with `proxy_cache_rfc9111 on`, elsewhere `off`. nginx
    /// does not have it. A `Via` of `proxy_set_header` replaces that of requests, and with
    /// `proxy_hide_header Via` responses have none.
    via: Option<Via>, in HTTP | SERVER | LOCATION, args "on | off | name";
    /// Accepts `ICY 200 OK`, with which SHOUTcast servers and many radio stations begin their responses,
    /// as the status line of an HTTP/1.0 response: its header fields are passed on as those of any
    /// response, and clients get HTTP. Without it such a response is 502.
    allow_icy: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether trailers are passed on. Fields that only a head may have, such as
    /// `Content-Length` and `Transfer-Encoding`, never are.
    pass_trailers: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Changes `Location` and `Refresh` of responses: in a value that begins with the first
    /// argument, this beginning is replaced by the second; a value that matches a regular
    /// expression (`~`; `~*` ignores case) is replaced completely. `default` replaces the URI of
    /// `proxy_pass` by the location's. Several are tried in order; variables are allowed.
    redirect: Option<Redirects>, in HTTP | SERVER | LOCATION, args "default | off | redirect replacement";
    /// Changes the `Domain` attribute of cookies; `~` starts a regular expression. Several are
    /// tried in order; variables are allowed.
    cookie_domain: Option<Rules<cookies::Domain>>, in HTTP | SERVER | LOCATION, args "off | domain replacement";
    /// Changes the `Path` attribute of cookies; `~` and `~*` start a regular expression. Several
    /// are tried in order; variables are allowed.
    cookie_path: Option<Rules<cookies::Path>>, in HTTP | SERVER | LOCATION, args "off | path replacement";
    /// Sets or removes flags of cookies with this name; `~` starts a regular expression. The first
    /// match applies; variables are allowed.
    cookie_flags: Option<Rules<FlagsRule>>, in HTTP | SERVER | LOCATION, args "off | cookie [secure | nosecure] [httponly | nohttponly] [samesite=strict|lax|none | nosamesite]";
}

nowait_conf::setting_enum! {
    /// `proxy_http_version`
    pub enum HttpVersion {
        /// `1.0`
        Http10 = "1.0",
        /// `1.1`
        Http11 = "1.1",
        /// `2`
        Http2 = "2",
    }
}

/// A location's settings for passing requests to HTTP servers.
#[derive(Debug)]
pub struct ProxyConf {
    /// The destination.
    pub pass: Pass,
    /// Settings shared with other modules.
    pub backend: Backend,
    /// Headers of requests.
    pub headers: RequestHeaders,
    /// The fields that are set, as HTTP/1 writes them.
    pub set_fields: SetFields,
    /// Body in place of the client's.
    pub set_body: Option<Complex>,
    /// Method in place of the client's.
    pub method: Option<Complex>,
    /// Version of the protocol.
    pub http_version: HttpVersion,
    /// Whether `ICY 200 OK` is a status line.
    pub allow_icy: bool,
    /// Whether trailers are passed on.
    pub pass_trailers: bool,
    /// How `Location` and `Refresh` are changed.
    pub redirects: Vec<Redirect>,
    /// How the domains of cookies are changed.
    pub cookie_domains: Vec<CookieRule>,
    /// How the paths of cookies are changed.
    pub cookie_paths: Vec<CookieRule>,
    /// How the flags of cookies are changed.
    pub cookie_flags: Vec<FlagsRule>,
}

/// The cache of a location, for the handler of its content.
pub static CACHE: Key<Arc<CacheConf>> = Key::new();

/// Resolves the cache of a location.
pub fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    keeping::build::<ProxyBackendLayer, ProxyCacheConfLayer>(cx, chain, parts, &CACHE);
}

impl ProxyConf {
    /// Resolves a chain of blocks for a location that passes requests on. `strict`: it follows RFCs.
    pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope], pass: Pass, strict: bool) -> Self {
        let conf = Arc::unwrap_or_clone(ProxyRequestConf::resolve(cx, chain));
        let backend = ProxyUpstreamConf::backend(cx, chain, HIDDEN);
        let mut backend = ProxyBackendConf::complete(cx, chain, pass.span(), backend);
        if keeps::<ProxyBackendLayer, ProxyCacheConfLayer>(chain) == Some(Keeps::Cache) {
            backend.store = None;
        }
        if conf.http_version == HttpVersion::Http2 {
            backend = backend.with_shared_connections();
        }
        if pass.may_need_tls() {
            let alpn = match conf.http_version {
                HttpVersion::Http2 => vec![Complex::from_literal("h2")],
                HttpVersion::Http10 | HttpVersion::Http11 => Vec::new(),
            };
            let tls = Arc::unwrap_or_clone(ProxyTlsConf::resolve(cx, chain)).tls(cx, alpn);
            if let Some(tls) = cx.accept(tls) {
                backend = backend.with_tls(tls);
            }
        }
        backend.via = Via::name(conf.via, strict);
        let headers = RequestHeaders::new(&conf.set_header);
        let needs_host = conf.http_version == HttpVersion::Http11;
        Self {
            redirects: Redirects::resolve(conf.redirect, &pass),
            set_fields: SetFields::new(&headers, pass.host(), needs_host),
            pass,
            backend,
            headers,
            set_body: conf.set_body,
            method: conf.method,
            http_version: conf.http_version,
            allow_icy: conf.allow_icy,
            pass_trailers: conf.pass_trailers,
            cookie_domains: Rules::list(conf.cookie_domain),
            cookie_paths: Rules::list(conf.cookie_path),
            cookie_flags: Rules::list(conf.cookie_flags),
        }
    }

    /// Whether cookies are changed.
    pub fn rewrites_cookies(&self) -> bool {
        !self.cookie_domains.is_empty()
            || !self.cookie_paths.is_empty()
            || !self.cookie_flags.is_empty()
    }
}
