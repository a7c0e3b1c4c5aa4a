//! A location keeps responses in one way only: as files (`proxy_store` and its relatives) or in a cache
//! (`proxy_cache` and its relatives). The innermost block with such a directive decides.

use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Scope};
use nowait_http::module::LocationBuilder;
use nowait_http::slots::Key;

use super::StoreTarget;
use crate::cache::conf::{CacheConf, CacheZone};

/// The settings of a block that may store responses: what [`backend_rows!`](crate::backend_rows) makes.
pub trait Stores: 'static {
    /// The module's prefix without its underscore: `proxy`.
    const MODULE: &'static str;

    /// `proxy_store`
    fn target(&self) -> Option<&StoreTarget>;
}

/// The settings of a block that may cache responses: what [`cache_rows!`](crate::cache_rows) makes.
pub trait Caches: 'static {
    /// `proxy_cache`
    fn zone(&self) -> Option<&CacheZone>;

    /// The cache of a location.
    fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Arc<CacheConf>>;
}

/// The way of keeping responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// `proxy_store`
    Store,
    /// `proxy_cache`
    Cache,
}

/// The way of keeping responses in the innermost block with such a directive.
pub fn keeps<S: Stores, C: Caches>(chain: &[&Scope]) -> Option<Keeps> {
    let said = |scope: &&Scope| match wants::<S, C>(scope) {
        (true, _) => Some(Keeps::Store),
        (false, true) => Some(Keeps::Cache),
        (false, false) => None,
    };
    chain.iter().rev().find_map(said)
}

/// Whether a block has `proxy_store`, and whether `proxy_cache`.
fn wants<S: Stores, C: Caches>(scope: &Scope) -> (bool, bool) {
    let store = scope.get::<S>().and_then(S::target);
    let cache = scope.get::<C>().and_then(C::zone);
    (
        matches!(store, Some(StoreTarget::Root | StoreTarget::Path(_))),
        matches!(cache, Some(CacheZone::Named(..) | CacheZone::Variable(_))),
    )
}

/// Resolves the cache of a location with any content, because the responses of other handlers to which an
/// upstream server redirects follow the same RFCs.
pub fn build<S: Stores, C: Caches>(
    cx: &mut Cx<'_>,
    chain: &[&Scope],
    parts: &mut LocationBuilder,
    key: &'static Key<Arc<CacheConf>>,
) {
    if let Some(cache) = cache::<S, C>(cx, chain) {
        parts.follows_rfcs |= cache.strict;
        parts.settings.set(key, cache);
    }
}

/// The cache of a location; none if an inner block stores responses.
fn cache<S: Stores, C: Caches>(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Arc<CacheConf>> {
    if let Some(scope) = chain.last()
        && wants::<S, C>(scope) == (true, true)
    {
        let (store, cache) = (format!("{}_store", S::MODULE), format!("{}_cache", S::MODULE));
        let text = format!("\"{store}\" directive is incompatible with \"{cache}\"");
        let mut error = Diagnostic::emerg(text);
        if let Some(span) = scope.seen(&store) {
            error = error.at(span);
        }
        cx.report(error);
    }
    if keeps::<S, C>(chain) == Some(Keeps::Store) { None } else { C::resolve(cx, chain) }
}
