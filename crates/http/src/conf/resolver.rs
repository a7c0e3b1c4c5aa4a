//! The rows of `resolver` and `resolver_timeout`. nginx: `ngx_http_core_module`.

use nowait_conf::{Cx, Msec, Scope};
use nowait_front::resolver_directives::Resolving;
use nowait_upstream::conf::ResolverSetting;

nowait_conf::directives! {
    /// Settings of the resolver.
    #[derive(Debug)]
    module "core";
    pub struct ResolverConf with ResolverConfLayer;

    /// Name servers for names in variables (`proxy_pass http://$host`) and for servers with
    /// `resolve`: addresses with an optional port (53), or names, which the system configuration
    /// resolves. They are queried in turn; if one does not respond within 5 seconds, the next is
    /// queried too. All workers share the results, which are cached for their TTL.
    ///
    /// * `valid=time`: overrides the TTL.
    /// * `ipv4=off`, `ipv6=off`: no queries for addresses of this family.
    /// * `status_zone=zone`: the name of the resolver on status pages.
    ///
    /// nginx differs: it requires this directive for names in variables. Without it, Nowait uses
    /// the system configuration: the hosts file, then the servers in resolv.conf, with its search
    /// domains and options.
    resolver: Option<ResolverSetting>, in HTTP | SERVER | LOCATION, args "address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]";
    /// Maximum time for resolving a name; after that the request fails with 502.
    resolver_timeout: Msec = "30s", in HTTP | SERVER | LOCATION, args "time";
}

/// The resolver of the innermost of the blocks.
pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Resolving {
    let conf = ResolverConf::resolve(cx, chain);
    Resolving::new(cx, conf.resolver.as_ref(), conf.resolver_timeout)
}
