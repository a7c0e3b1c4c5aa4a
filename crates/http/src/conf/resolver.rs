//! `resolver` and `resolver_timeout`. nginx: `ngx_http_core_module`.
//!
//! Equal directives share one resolver, and with it one cache: they are numbered when locations are
//! resolved, and the resolvers are made when the configuration comes into use.

use std::sync::Arc;

use nowait_conf::{Cx, Msec, Scope};
use nowait_resolver::Settings;
use nowait_upstream::conf::ResolverSetting;

nowait_conf::directives! {
    /// How names are resolved.
    #[derive(Debug)]
    module "core";
    pub struct ResolverConf with ResolverConfLayer;

    /// Name servers for names in variables (`proxy_pass http://$host`) and for servers of groups with
    /// `resolve`: addresses with an optional port (53), or names, which are resolved as the system does
    /// it. They are asked in turn; when one has not answered for 5 seconds, the next one is asked, too.
    /// Answers are remembered for their TTL, by all workers together.
    ///
    /// * `valid=time`: answers are used for this time instead.
    /// * `ipv4=off`, `ipv6=off`: addresses of this family are not asked for.
    /// * `status_zone=zone`: the name of the resolver on status pages.
    ///
    /// nginx differs: where no directive is set, names are resolved as the system does it: by the hosts
    /// file, then by the servers of resolv.conf, with its search domains and options.
    resolver: Option<ResolverSetting>, in HTTP | SERVER | LOCATION, args "address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]";
    /// How long a name may take to be resolved; then the request gets 502.
    resolver_timeout: Msec = "30s", in HTTP | SERVER | LOCATION, args "time";
}

/// Number of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResolverId(pub u32);

/// How a location's names are resolved.
#[derive(Clone, Copy, Debug)]
pub struct Resolving {
    /// Which resolver; `None`: the system's.
    pub resolver: Option<ResolverId>,
    /// How long that may take.
    pub timeout: Msec,
}

impl Default for Resolving {
    fn default() -> Self {
        Self { resolver: None, timeout: Msec(30_000) }
    }
}

/// The resolvers that were named so far, each once.
#[derive(Debug, Default)]
pub struct Named(Vec<Arc<Settings>>);

impl Named {
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
    pub fn into_settings(self) -> Vec<Arc<Settings>> {
        self.0
    }
}

impl Resolving {
    /// What the innermost of the blocks says.
    pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Self {
        let conf = ResolverConf::resolve(cx, chain);
        let named = cx.global::<Named>();
        let resolver = conf.resolver.as_ref().map(|setting| named.number(setting));
        Self { resolver, timeout: conf.resolver_timeout }
    }
}
