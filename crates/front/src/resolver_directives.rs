//! `resolver` and `resolver_timeout`. nginx: `ngx_http_core_module`, `ngx_stream_core_module`.
//! Protocols have the rows.
//!
//! Equal directives share one resolver, and with it one cache: they are numbered when blocks are
//! resolved, and the resolvers are made when the configuration comes into use.

use std::sync::Arc;

use nowait_conf::{Cx, Msec};
use nowait_resolver::ResolverSettings;
use nowait_upstream::conf::ResolverSetting;

/// Number of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResolverId(pub u32);

/// The resolver of a location or a server.
#[derive(Clone, Copy, Debug)]
pub struct Resolving {
    /// The number of the resolver; `None`: the system's.
    pub resolver: Option<ResolverId>,
    /// Time limit of a resolution.
    pub timeout: Msec,
}

impl Default for Resolving {
    fn default() -> Self {
        Self { resolver: None, timeout: Msec(30_000) }
    }
}

/// The resolvers that were named so far, each once.
#[derive(Debug, Default)]
pub struct NamedResolvers(Vec<Arc<ResolverSettings>>);

impl NamedResolvers {
    /// The number of a resolver with these settings.
    pub fn number(&mut self, setting: &ResolverSetting) -> ResolverId {
        let known = self.0.iter().position(|settings| *settings == setting.0);
        let at = known.unwrap_or_else(|| {
            self.0.push(setting.0.clone());
            self.0.len() - 1
        });
        ResolverId(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// All of them, by number.
    pub fn settings(&self) -> &[Arc<ResolverSettings>] {
        &self.0
    }
}

impl Resolving {
    /// The values of the directives.
    pub fn new(cx: &mut Cx<'_>, resolver: Option<&ResolverSetting>, timeout: Msec) -> Self {
        let named = cx.global::<NamedResolvers>();
        Self { resolver: resolver.map(|setting| named.number(setting)), timeout }
    }
}
