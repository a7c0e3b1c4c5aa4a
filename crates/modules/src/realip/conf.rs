//! Settings of the real client address. nginx: `ngx_http_realip_module`.

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_front::realip::Trusted;

nowait_conf::directives! {
    /// Addresses of clients behind trusted proxies.
    #[derive(Debug)]
    module "realip";
    pub struct RealIpConf with RealIpConfLayer;

    /// Proxies that are trusted to state the client's address.
    set_real_ip_from: Vec<Trusted>, in HTTP | SERVER | LOCATION, args "address | CIDR | unix: | hostname";
    /// The header field with the client's address, or `proxy_protocol`. If `X-Forwarded-For`
    /// contains several addresses, the last one is used.
    real_ip_header: Source = "X-Real-IP", in HTTP | SERVER | LOCATION, args "field | X-Real-IP | X-Forwarded-For | proxy_protocol";
    /// Controls whether addresses of trusted proxies in the field are skipped, so that the last
    /// untrusted address is used.
    real_ip_recursive: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

/// `real_ip_header`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The PROXY protocol.
    ProxyProtocol,
    /// All lines of `X-Forwarded-For`.
    ForwardedFor,
    /// The first line with this name, in lower case.
    Field(Box<[u8]>),
}

impl Setting for Source {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(match word.text.to_ascii_lowercase().as_slice() {
            b"proxy_protocol" => Self::ProxyProtocol,
            b"x-forwarded-for" => Self::ForwardedFor,
            field => Self::Field(field.into()),
        })
    }
}
