//! Directives of the SCGI module.

use std::sync::Arc;

use nowait_backend::cache::conf::CacheConf;
use nowait_backend::cgi::{self, Param, Params};
use nowait_backend::conf::Backend;
use nowait_backend::conf::keeping::{self, Keeps, keeps};
use nowait_backend::pass::{Pass, set_pass};
use nowait_backend::url::Schemes;
use nowait_conf::{Cx, Diagnostic, Node, Scope};
use nowait_gateway::scgi::Headers;
use nowait_http::module::LocationBuilder;
use nowait_http::slots::Key;

/// Addresses need no scheme.
pub(super) const SCHEMES: Schemes = Schemes { plain: "scgi://", tls: None, bare: true };

nowait_backend::upstream_rows! {
    module "scgi", prefix "scgi_";
    /// The directives that all modules with upstream servers have.
    pub struct ScgiUpstreamConf with ScgiUpstreamLayer;
}

nowait_backend::backend_rows! {
    module "scgi", prefix "scgi_", temp "scgi_temp 1 2";
    /// The directives that all modules have that buffer.
    pub struct ScgiBackendConf with ScgiBackendLayer;
}

nowait_backend::cache_path_rows! {
    pub static CACHE_PATH_ROWS, module "scgi", name "scgi_cache_path";
}

nowait_backend::cache_rows! {
    module "scgi", prefix "scgi_";
    /// Caching of responses: which ones, how long, for which requests.
    pub struct ScgiCacheConf with ScgiCacheLayer;
}

nowait_conf::directives! {
    /// Passing requests to SCGI servers.
    #[derive(Debug)]
    module "scgi", prefix "scgi_";
    pub struct ScgiRequestConf with ScgiRequestLayer;

    /// A parameter of requests; variables are allowed. With `if_not_empty` it is sent only if it has a
    /// value. The client's header fields are parameters, too: `User-Agent` is `HTTP_USER_AGENT`. A
    /// directive with such a name replaces the client's field, and removes it if the value is empty.
    /// The client's `Proxy` is passed on only by a directive. `include scgi_params;` sets what an
    /// application expects. Inherited unless the block has its own.
    param: Vec<Param>, in HTTP | SERVER | LOCATION, args "parameter value [if_not_empty]";
}

nowait_conf::rows! {
    pub static PASS_ROWS, module "scgi";

    /// Passes requests to an SCGI server: an address with a port, a name, a Unix-domain socket
    /// (`unix:/run/app.sock`) or an `upstream`. With variables, the server is looked up among the
    /// `upstream`s and then resolved.
    "scgi_pass" => scgi_pass, in LOCATION | LOCATION_IF, take exactly(1), inheritance Own, args "address";
}

/// nginx: `ngx_http_scgi_pass`.
fn scgi_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_pass(cx, node, SCHEMES, Some(&CACHE), ScgiConf::resolve)
}

/// A location's settings for passing requests to SCGI servers.
#[derive(Debug)]
pub(super) struct ScgiConf {
    /// The destination.
    pub(super) pass: Pass,
    /// Settings shared with other modules.
    pub(super) backend: Backend,
    /// Parameters of requests.
    pub(super) params: Params<Headers>,
}

/// The settings of locations that pass requests on, for codecs.
pub(super) static CONF: Key<Arc<ScgiConf>> = Key::new();

/// The cache of a location, for the handler of its content.
static CACHE: Key<Arc<CacheConf>> = Key::new();

/// Resolves the cache of a location.
pub(super) fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    keeping::build::<ScgiBackendLayer, ScgiCacheLayer>(cx, chain, parts, &CACHE);
    if let Some(cache) = parts.settings.get(&CACHE).cloned() {
        cgi::check_key(cx, "scgi", chain, &cache);
    }
}

impl ScgiConf {
    /// Resolves a chain of blocks for a location that passes requests on.
    fn resolve(cx: &mut Cx<'_>, chain: &[&Scope], pass: Pass) -> Self {
        let backend = ScgiUpstreamConf::backend(cx, chain, cgi::HIDDEN);
        let mut backend = ScgiBackendConf::complete(cx, chain, pass.span, backend);
        backend.adds_fields = true;
        if keeps::<ScgiBackendLayer, ScgiCacheLayer>(chain) == Some(Keeps::Cache) {
            backend.store = None;
        }
        let conf = ScgiRequestConf::resolve(cx, chain);
        Self { pass, backend, params: Params::new(conf.param.clone()) }
    }
}
