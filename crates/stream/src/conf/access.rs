//! `allow`, `deny` and `set_real_ip_from`. nginx: `ngx_stream_access_module`,
//! `ngx_stream_realip_module`.

use nowait_front::access;
use nowait_front::realip::Trusted;

nowait_conf::rows! {
    pub static ACCESS_ROWS, module "stream_access";

    /// Lets clients with these addresses in. The rules are tried in order, the first that fits
    /// decides; without one that fits everyone may come in.
    "allow" => access::rule, in STREAM | STREAM_SERVER, take exactly(1), args "address | CIDR | unix: | all";
    /// Keeps clients with these addresses out.
    "deny" => access::rule, in STREAM | STREAM_SERVER, take exactly(1), args "address | CIDR | unix: | all";
}

nowait_conf::directives! {
    /// Addresses of clients behind trusted proxies.
    #[derive(Debug)]
    module "stream_realip";
    pub struct RealIpConf with RealIpLayer;

    /// Proxies whose word about the client's address, in the header of the PROXY protocol, is trusted.
    set_real_ip_from: Vec<Trusted>, in STREAM | STREAM_SERVER, args "address | CIDR | unix: | hostname";
}
