//! The rows of `resolver` and `resolver_timeout`. nginx: `ngx_http_core_module`.

use nowait_conf::{Cx, Msec, Scope};
use nowait_front::resolving::Resolving;
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

/// How names of the innermost of the blocks are resolved.
pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Resolving {
    let conf = ResolverConf::resolve(cx, chain);
    Resolving::new(cx, conf.resolver.as_ref(), conf.resolver_timeout)
}
