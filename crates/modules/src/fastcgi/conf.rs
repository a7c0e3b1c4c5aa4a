//! Directives of the FastCGI module.

use std::sync::Arc;

use nowait_backend::cache::conf::CacheConf;
use nowait_backend::cgi::{self, Param, Params};
use nowait_backend::conf::keeping::{self, Keeps, keeps};
use nowait_backend::conf::{Backend, SendLowat, no_lowat};
use nowait_backend::pass::Pass;
use nowait_backend::url::Schemes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Setting, arity};
use nowait_gateway::fastcgi;
use nowait_http::module::LocationBuilder;
use nowait_http::slots::Key;

use super::split;

/// Addresses need no scheme.
pub(super) const SCHEMES: Schemes = Schemes { plain: "fastcgi://", tls: None, bare: true };

nowait_backend::upstream_rows! {
    module "fastcgi", prefix "fastcgi_";
    /// The directives that all modules with upstream servers have.
    pub struct FastcgiUpstreamConf with FastcgiUpstreamLayer;
}

nowait_backend::backend_rows! {
    module "fastcgi", prefix "fastcgi_", temp "fastcgi_temp 1 2";
    /// The directives that all modules have that buffer.
    pub struct FastcgiBackendConf with FastcgiBackendLayer;
}

nowait_backend::cache_path_rows! {
    pub static CACHE_PATH_ROWS, module "fastcgi", name "fastcgi_cache_path";
}

nowait_backend::cache_rows! {
    module "fastcgi", prefix "fastcgi_";
    /// Caching of responses: which ones, how long, for which requests.
    pub struct FastcgiCacheConf with FastcgiCacheLayer;
}

nowait_conf::directives! {
    /// Passing requests to FastCGI servers.
    #[derive(Debug)]
    module "fastcgi", prefix "fastcgi_";
    pub struct FastcgiRequestConf with FastcgiRequestLayer;

    /// A parameter of requests; variables are allowed. With `if_not_empty` it is sent only if it has a
    /// value. The client's header fields are parameters, too: `User-Agent` is `HTTP_USER_AGENT`. A
    /// directive with such a name replaces the client's field, and removes it if the value is empty.
    /// The client's `Proxy` is passed on only by a directive. `include fastcgi.conf;` sets what an
    /// application expects. Inherited unless the block has its own.
    param: Vec<Param>, in HTTP | SERVER | LOCATION, args "parameter value [if_not_empty]";
    /// A text in the server's error stream that makes a response invalid, so that another server is
    /// tried (`fastcgi_next_upstream invalid_header`) or the client gets 502. Looked for before the
    /// head of the response is complete.
    catch_stderr: Vec<ErrorPattern>, in HTTP | SERVER | LOCATION, args "string";
    /// Asks servers to keep connections open for further requests, if the `upstream` has `keepalive`.
    keep_conn: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: Linux has no low-water mark for sending.
    send_lowat: SendLowat = "0" => no_lowat, in HTTP | SERVER | LOCATION, args "size";
}

/// A text that an error stream may contain.
#[derive(Clone, Debug)]
pub(super) struct ErrorPattern(pub(super) Box<[u8]>);

impl Setting for ErrorPattern {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(word.text.as_slice().into()))
    }
}

/// A location's settings for passing requests to FastCGI servers.
#[derive(Debug)]
pub(super) struct FastcgiConf {
    /// The destination.
    pub(super) pass: Pass,
    /// Settings shared with other modules.
    pub(super) backend: Backend,
    /// Parameters of requests.
    pub(super) params: Params<fastcgi::Params>,
    /// Texts in the error stream that make a response invalid.
    pub(super) catch_stderr: Vec<ErrorPattern>,
    /// Whether servers keep connections.
    pub(super) keep_conn: bool,
}

/// The settings of locations that pass requests on, for codecs.
pub(super) static CONF: Key<Arc<FastcgiConf>> = Key::new();

/// The cache of a location, for the handler of its content.
pub(super) static CACHE: Key<Arc<CacheConf>> = Key::new();

/// Resolves the cache of a location, and how it finds the name of a script.
pub(super) fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    keeping::build::<FastcgiBackendLayer, FastcgiCacheLayer>(cx, chain, parts, &CACHE);
    if let Some(cache) = parts.settings.get(&CACHE).cloned() {
        cgi::check_key(cx, "fastcgi", chain, &cache);
    }
    split::build(cx, chain, parts);
}

impl FastcgiConf {
    /// Resolves a chain of blocks for a location that passes requests on.
    pub(super) fn resolve(cx: &mut Cx<'_>, chain: &[&Scope], pass: Pass) -> Self {
        let backend = FastcgiUpstreamConf::backend(cx, chain, cgi::HIDDEN);
        let mut backend = FastcgiBackendConf::complete(cx, chain, pass.span, backend);
        backend.adds_fields = true;
        if keeps::<FastcgiBackendLayer, FastcgiCacheLayer>(chain) == Some(Keeps::Cache) {
            backend.store = None;
        }
        let conf = FastcgiRequestConf::resolve(cx, chain);
        let params = Params::new(conf.param.clone());
        let catch_stderr = conf.catch_stderr.clone();
        let keep_conn = conf.keep_conn;
        Self { pass, backend, params, catch_stderr, keep_conn }
    }
}
