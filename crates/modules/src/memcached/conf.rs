//! Directives of the memcached module.

use std::sync::Arc;

use nowait_backend::conf::{self, Backend, early_hints};
use nowait_backend::pass::{Pass, set_pass};
use nowait_backend::upstream::Settings;
use nowait_backend::url::Schemes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Word};
use nowait_http::slots::Key;
use nowait_http::variables::complex::Complex;

/// Addresses need no scheme.
pub(super) const SCHEMES: Schemes = Schemes { plain: "memcached://", tls: None, bare: true };

nowait_conf::setting_flags! {
    /// `memcached_next_upstream`
    pub struct MemcachedNextUpstream {
        /// The connection failed, or broke before a response arrived.
        ERROR = "error",
        /// The server was too slow.
        TIMEOUT = "timeout",
        /// The response is malformed.
        INVALID_RESPONSE = "invalid_response",
        /// The server has no value for the key.
        NOT_FOUND = "not_found",
        /// Never.
        OFF = "off",
    }
}

impl MemcachedNextUpstream {
    /// Converts to the conditions of other modules.
    fn conditions(self) -> conf::NextUpstream {
        use conf::NextUpstream;
        let same = [
            (Self::ERROR, NextUpstream::ERROR),
            (Self::TIMEOUT, NextUpstream::TIMEOUT),
            (Self::INVALID_RESPONSE, NextUpstream::INVALID_HEADER),
            (Self::NOT_FOUND, NextUpstream::HTTP_404),
            (Self::OFF, NextUpstream::OFF),
        ];
        let given = same.into_iter().filter(|(own, _)| self.contains(*own));
        given.fold(NextUpstream::default(), |all, (_, one)| all.or(one))
    }
}

nowait_backend::connection_rows! {
    module "memcached", prefix "memcached_";
    /// Responses from memcached.
    pub struct MemcachedConf with MemcachedLayer;

    /// When to ask another server: after a connection error, a timeout, a malformed response, or if the
    /// server has no value for the key.
    next_upstream: MemcachedNextUpstream = "error timeout", in HTTP | SERVER | LOCATION, args "error | timeout | invalid_response | not_found | off ...";
    /// Values with one of these flags are sent with `Content-Encoding: gzip`.
    gzip_flag: u32 = "0", in HTTP | SERVER | LOCATION, args "flag";
}

nowait_conf::rows! {
    pub static PASS_ROWS, module "memcached";

    /// Responds with the value that a memcached server has for the key in `$memcached_key`, which `set`
    /// must set; without a value, with 404. The server is an address with a port, a name, a Unix-domain
    /// socket or an `upstream`. With variables, it is looked up among the `upstream`s and then resolved.
    "memcached_pass" => memcached_pass, in LOCATION | LOCATION_IF, take exactly(1), inheritance Own, args "address";
}

/// nginx: `ngx_http_memcached_pass`.
fn memcached_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let at = Word { text: b"$memcached_key".to_vec(), ..node.name.clone() };
    let key = nowait_http::conf::complex(&at, cx)?;
    set_pass(cx, node, SCHEMES, None, move |cx, chain, pass| {
        Memcached::resolve(cx, chain, pass, key.clone())
    })
}

/// A location's settings for taking responses from memcached.
#[derive(Debug)]
pub(super) struct Memcached {
    /// The destination.
    pub(super) pass: Pass,
    /// Settings shared with other modules.
    pub(super) backend: Backend,
    /// The key.
    pub(super) key: Complex,
    /// The flags of compressed values; zero: none.
    pub(super) gzip_flag: u64,
}

/// The settings of locations that take responses from memcached, for codecs.
pub(super) static CONF: Key<Arc<Memcached>> = Key::new();

impl Memcached {
    /// Resolves a chain of blocks.
    fn resolve(cx: &mut Cx<'_>, chain: &[&Scope], pass: Pass, key: Complex) -> Self {
        let own = Arc::unwrap_or_clone(MemcachedConf::resolve(cx, chain));
        let settings =
            Settings { next_upstream: own.next_upstream.conditions().causes(), ..own.settings() };
        let backend = Backend {
            settings: Arc::new(settings),
            bind: own.bind.and_then(|bind| bind.0),
            intercept_errors: true,
            intercept_404: true,
            force_ranges: true,
            adds_fields: true,
            early_hints: early_hints(cx, chain),
            ..Backend::new("memcached")
        };
        Self { pass, backend, key, gzip_flag: own.gzip_flag.into() }
    }
}
