//! Settings of the real client address. nginx: `ngx_http_realip_module`.

use std::net::ToSocketAddrs;

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

use crate::cidr::Cidr;

nowait_conf::directives! {
    /// Addresses of clients behind trusted proxies.
    #[derive(Debug)]
    module "realip";
    pub struct RealIpConf with RealIpConfLayer;

    /// Proxies whose word about the client's address is trusted.
    set_real_ip_from: Vec<Trusted>, in HTTP | SERVER | LOCATION, args "address | CIDR | unix: | hostname";
    /// Header with the client's address, or `proxy_protocol`. `X-Forwarded-For` may name several
    /// addresses: the last counts.
    real_ip_header: Source = "X-Real-IP", in HTTP | SERVER | LOCATION, args "field | X-Real-IP | X-Forwarded-For | proxy_protocol";
    /// Whether addresses of trusted proxies in the header are passed over: the last that is none
    /// counts.
    real_ip_recursive: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

/// One `set_real_ip_from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trusted {
    /// Peers of Unix sockets.
    Unix,
    /// Peers with addresses in these networks.
    Networks(Box<[Cidr]>),
}

impl Setting for Trusted {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        if word.text[..] == *b"unix:" {
            return Ok(Self::Unix);
        }
        if let Some((network, surplus)) = Cidr::parse(&word.text) {
            if surplus {
                let text = format!("low address bits of {word} are meaningless");
                cx.report(Diagnostic::warn(text).at(word.span));
            }
            return Ok(Self::Networks(Box::new([network])));
        }
        let expected = "an address, a network such as 192.0.2.0/24, \"unix:\" or a host name";
        let text = word.to_str()?;
        if text.is_empty() || text.contains(['/', ':']) {
            return Err(node.parameter_error(word).expected(expected));
        }
        let found = (text, 0)
            .to_socket_addrs()
            .map_err(|_| word.error(format!("host not found in set_real_ip_from \"{word}\"")))?;
        let networks = found.filter_map(|found| {
            Cidr::parse(found.ip().to_string().as_bytes()).map(|(network, _)| network)
        });
        Ok(Self::Networks(networks.collect()))
    }
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
