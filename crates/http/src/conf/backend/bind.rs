//! `proxy_bind` and its like: the local address of connections to servers.

use std::net::{IpAddr, SocketAddr};

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

use super::BindOrOff;
use crate::log::Level;
use crate::request::Request;
use crate::variables::complex::Complex;

/// The local address of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The address.
    address: BindAddress,
    /// It need not be one of the machine's own (`IP_TRANSPARENT`).
    pub transparent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum BindAddress {
    Constant(SocketAddr),
    Variable(Complex),
}

impl Bind {
    /// The address for a request; none if the text is empty or, which is logged, no address.
    pub fn address(&self, request: &Request) -> Option<SocketAddr> {
        let text = match &self.address {
            BindAddress::Constant(address) => return Some(*address),
            BindAddress::Variable(text) => request.evaluate(text),
        };
        if text.is_empty() {
            return None;
        }
        let address = parse(&text);
        if address.is_none() {
            let text = String::from_utf8_lossy(&text);
            request.log(Level::Error, format_args!("invalid local address \"{text}\""));
        }
        address
    }
}

/// Reads an address with or without a port. nginx: `ngx_parse_addr_port`.
fn parse(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let plain = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    match plain.parse::<IpAddr>() {
        Ok(ip) => Some(SocketAddr::new(ip, 0)),
        Err(_) => text.parse().ok(),
    }
}

impl Setting for BindOrOff {
    const ARITY: arity::Arity = arity::between(1, 2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [word, rest @ ..] = &node.args[..] else { return Err(node.arity_error()) };
        if *word == *"off" && rest.is_empty() {
            return Ok(Self(None));
        }
        let text = crate::conf::complex(word, cx)?;
        let address = match text.literal() {
            None => BindAddress::Variable(text),
            Some(text) => BindAddress::Constant(
                parse(text).ok_or_else(|| word.error(format!("invalid address \"{word}\"")))?,
            ),
        };
        match rest {
            [] => Ok(Self(Some(Bind { address, transparent: false }))),
            [last] if *last == *"transparent" => {
                Ok(Self(Some(Bind { address, transparent: true })))
            }
            _ => Err(node.parameter_error(&rest[0]).expected("transparent")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let shown = |text: &str| parse(text.as_bytes()).map(|address| address.to_string());
        assert_eq!(shown("127.0.0.1").as_deref(), Some("127.0.0.1:0"));
        assert_eq!(shown("127.0.0.1:80").as_deref(), Some("127.0.0.1:80"));
        assert_eq!(shown("::1").as_deref(), Some("[::1]:0"));
        assert_eq!(shown("[::1]").as_deref(), Some("[::1]:0"));
        assert_eq!(shown("[::1]:8080").as_deref(), Some("[::1]:8080"));
        assert_eq!(shown("localhost"), None);
        assert_eq!(shown(""), None);
    }
}
