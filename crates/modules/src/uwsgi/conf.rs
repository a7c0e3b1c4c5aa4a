//! Directives of the uwsgi module.

use std::sync::Arc;

use nowait_backend::cache::conf::CacheConf;
use nowait_backend::cgi::{self, Param, Params};
use nowait_backend::conf::Backend;
use nowait_backend::conf::keeping::{self, Keeps, keeps};
use nowait_backend::pass::{Pass, set_pass};
use nowait_backend::url::Schemes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Setting, arity};
use nowait_gateway::uwsgi::Vars;
use nowait_http::module::LocationBuilder;
use nowait_http::slots::Key;
use nowait_http::variables::complex::{Complex, HttpVariables};

/// The schemes of addresses.
pub(super) const SCHEMES: Schemes =
    Schemes { plain: "uwsgi://", tls: Some("suwsgi://"), bare: true };

/// Response fields that are not passed on unless `uwsgi_pass_header` names them.
const HIDDEN: &[&str] = &[
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

nowait_backend::upstream_rows! {
    module "uwsgi", prefix "uwsgi_";
    /// The directives that all modules with upstream servers have.
    pub struct UwsgiUpstreamConf with UwsgiUpstreamLayer;
}

nowait_backend::backend_rows! {
    module "uwsgi", prefix "uwsgi_", temp "uwsgi_temp 1 2";
    /// The directives that all modules have that buffer.
    pub struct UwsgiBackendConf with UwsgiBackendLayer;
}

nowait_backend::cache_path_rows! {
    pub static CACHE_PATH_ROWS, module "uwsgi", name "uwsgi_cache_path";
}

nowait_backend::cache_rows! {
    module "uwsgi", prefix "uwsgi_";
    /// Caching of responses: which ones, how long, for which requests.
    pub struct UwsgiCacheConf with UwsgiCacheLayer;
}

nowait_front::upstream_tls_rows! {
    module "uwsgi", prefix "uwsgi_", variables HttpVariables, in HTTP | SERVER | LOCATION;
    /// TLS to servers whose address begins with `suwsgi://`.
    pub struct UwsgiTlsConf with UwsgiTlsLayer;
}

nowait_conf::directives! {
    /// Passing requests to uwsgi servers.
    #[derive(Debug)]
    module "uwsgi", prefix "uwsgi_";
    pub struct UwsgiRequestConf with UwsgiRequestLayer;

    /// A parameter of requests; variables are allowed. With `if_not_empty` it is sent only if it has a
    /// value. The client's header fields are parameters, too: `User-Agent` is `HTTP_USER_AGENT`. A
    /// directive with such a name replaces the client's field, and removes it if the value is empty.
    /// The client's `Proxy` is passed on only by a directive. `include uwsgi_params;` sets what an
    /// application expects. Inherited unless the block has its own.
    param: Vec<Param>, in HTTP | SERVER | LOCATION, args "parameter value [if_not_empty]";
    /// The packet's `modifier1`: which plugin of the server handles requests.
    modifier1: Modifier = "0", in HTTP | SERVER | LOCATION, args "number";
    /// The packet's `modifier2`.
    modifier2: Modifier = "0", in HTTP | SERVER | LOCATION, args "number";
    /// A text sent after the parameters; variables are allowed.
    string: Option<Complex>, in HTTP | SERVER | LOCATION, args "string";
}

nowait_conf::rows! {
    pub static PASS_ROWS, module "uwsgi";

    /// Passes requests to a uwsgi server: an address with a port, a name, a Unix-domain socket
    /// (`unix:/run/app.sock`) or an `upstream`, with or without `uwsgi://` in front of it; `suwsgi://`
    /// stands for TLS. With variables, the server is looked up among the `upstream`s and then
    /// resolved. A response with status 101 makes the connection a tunnel, for WebSockets.
    "uwsgi_pass" => uwsgi_pass, in LOCATION | LOCATION_IF, take exactly(1), inheritance Own, args "address";
}

/// nginx: `ngx_http_uwsgi_pass`.
fn uwsgi_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_pass(cx, node, SCHEMES, Some(&CACHE), UwsgiConf::resolve)
}

/// `uwsgi_modifier1`: a byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modifier(pub(super) u8);

impl Setting for Modifier {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let Some(number) = nowait_conf::number(&word.text) else {
            return Err(word.error("invalid number"));
        };
        let number = u8::try_from(number);
        number.map(Self).map_err(|_| word.error("value must be between 0 and 255"))
    }
}

/// A location's settings for passing requests to uwsgi servers.
#[derive(Debug)]
pub(super) struct UwsgiConf {
    /// The destination.
    pub(super) pass: Pass,
    /// Settings shared with other modules.
    pub(super) backend: Backend,
    /// Parameters of requests.
    pub(super) params: Params<Vars>,
    /// The modifiers of packets.
    pub(super) modifiers: [u8; 2],
    /// Sent after the parameters.
    pub(super) string: Option<Complex>,
}

/// The settings of locations that pass requests on, for codecs.
pub(super) static CONF: Key<Arc<UwsgiConf>> = Key::new();

/// The cache of a location, for the handler of its content.
static CACHE: Key<Arc<CacheConf>> = Key::new();

/// Resolves the cache of a location.
pub(super) fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    keeping::build::<UwsgiBackendLayer, UwsgiCacheLayer>(cx, chain, parts, &CACHE);
    if let Some(cache) = parts.settings.get(&CACHE).cloned() {
        cgi::check_key(cx, "uwsgi", chain, &cache);
    }
}

impl UwsgiConf {
    /// Resolves a chain of blocks for a location that passes requests on.
    fn resolve(cx: &mut Cx<'_>, chain: &[&Scope], pass: Pass) -> Self {
        let backend = UwsgiUpstreamConf::backend(cx, chain, HIDDEN);
        let mut backend = UwsgiBackendConf::complete(cx, chain, pass.span, backend);
        backend.adds_fields = true;
        if keeps::<UwsgiBackendLayer, UwsgiCacheLayer>(chain) == Some(Keeps::Cache) {
            backend.store = None;
        }
        if pass.may_need_tls() {
            let tls = Arc::unwrap_or_clone(UwsgiTlsConf::resolve(cx, chain)).tls(cx, Vec::new());
            if let Some(tls) = cx.accept(tls) {
                backend = backend.with_tls(tls);
            }
        }
        let conf = UwsgiRequestConf::resolve(cx, chain);
        let params = Params::new(conf.param.clone());
        let modifiers = [conf.modifier1.0, conf.modifier2.0];
        Self { pass, backend, params, modifiers, string: conf.string.clone() }
    }
}
