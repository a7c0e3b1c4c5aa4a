//! `set_real_ip_from`: proxies that are trusted to state the client's address. nginx:
//! `ngx_http_realip_module`, `ngx_stream_realip_module`. Protocols have the row.

use std::net::{IpAddr, ToSocketAddrs};

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_runtime::net::Address;
use nowait_variables::cidr::Cidr;

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

/// Whether an address belongs to one of the networks; an IPv4 address mapped into IPv6 is one of
/// IPv4.
pub fn is_trusted(address: IpAddr, trusted: &[Cidr]) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => trusted.iter().any(|network| network.contains_v4(ip)),
        IpAddr::V6(ip) => trusted.iter().any(|network| network.contains_v6(ip)),
    }
}

/// Whether a peer is one of the proxies.
pub fn trusts(proxies: &[Trusted], peer: &Address) -> bool {
    let ip = peer.inet().map(|inet| inet.ip());
    proxies.iter().any(|proxy| match (proxy, ip) {
        (Trusted::Unix, None) => true,
        (Trusted::Networks(networks), Some(ip)) => is_trusted(ip, networks),
        (Trusted::Unix, Some(_)) | (Trusted::Networks(_), None) => false,
    })
}
