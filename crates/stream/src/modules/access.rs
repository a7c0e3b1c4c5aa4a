//! `allow`, `deny` and `set_real_ip_from`. nginx: `ngx_stream_access_module`,
//! `ngx_stream_realip_module`.

use nowait_front::access;
use nowait_front::realip::Trusted;

nowait_conf::rows! {
    pub static ACCESS_ROWS, module "stream_access";

    /// Allows access from these addresses. Rules are tried in order, and the first match decides.
    /// If no rule matches, access is allowed.
    "allow" => access::rule, in STREAM | STREAM_SERVER, take exactly(1), args "address | CIDR | unix: | all";
    /// Denies access from these addresses.
    "deny" => access::rule, in STREAM | STREAM_SERVER, take exactly(1), args "address | CIDR | unix: | all";
}

nowait_conf::directives! {
    /// Addresses of clients behind trusted proxies.
    #[derive(Debug)]
    module "stream_realip";
    pub struct RealIpConf with RealIpLayer;

    /// Proxies that are trusted to state the client's address in the header of the PROXY protocol.
    set_real_ip_from: Vec<Trusted>, in STREAM | STREAM_SERVER, args "address | CIDR | unix: | hostname";
}
