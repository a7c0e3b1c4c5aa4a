//! `proxy_bind` and its relatives: the local address of upstream connections.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

use nowait_variables::{Complex, Namespace, Subject};

/// The local address of connections.
pub struct Bind<N> {
    /// The address.
    address: BindAddress<N>,
    /// The address may be non-local (`IP_TRANSPARENT`).
    pub transparent: bool,
}

enum BindAddress<N> {
    Constant(SocketAddr),
    Variable(Complex<N>),
}

/// The value of `proxy_bind`; nothing for `off`.
pub struct BindOrOff<N>(pub Option<Bind<N>>);

// A derive would require the same of the namespace.
impl<N> Clone for Bind<N> {
    fn clone(&self) -> Self {
        let address = match &self.address {
            BindAddress::Constant(address) => BindAddress::Constant(*address),
            BindAddress::Variable(text) => BindAddress::Variable(text.clone()),
        };
        Self { address, transparent: self.transparent }
    }
}

impl<N> Clone for BindOrOff<N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<N> fmt::Debug for Bind<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address: &dyn fmt::Debug = match &self.address {
            BindAddress::Constant(address) => address,
            BindAddress::Variable(text) => text,
        };
        f.debug_struct("Bind")
            .field("address", address)
            .field("transparent", &self.transparent)
            .finish()
    }
}

impl<N> fmt::Debug for BindOrOff<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<N: Namespace> Bind<N> {
    /// The address as a text, if it has variables.
    pub fn text(&self) -> Option<&Complex<N>> {
        match &self.address {
            BindAddress::Constant(_) => None,
            BindAddress::Variable(text) => Some(text),
        }
    }

    /// The address for a subject; none if the text is empty, or invalid (which is logged).
    pub fn address(&self, subject: &N::Subject) -> Option<SocketAddr> {
        let text = match &self.address {
            BindAddress::Constant(address) => return Some(*address),
            BindAddress::Variable(text) => subject.evaluate(text),
        };
        if text.is_empty() {
            return None;
        }
        let address = parse(&text);
        if address.is_none() {
            let text = String::from_utf8_lossy(&text);
            subject.fault(format_args!("invalid local address \"{text}\""));
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

impl<N: Namespace> Setting for BindOrOff<N> {
    const ARITY: arity::Arity = arity::between(1, 2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [word, rest @ ..] = &node.args[..] else { return Err(node.arity_error()) };
        if *word == *"off" && rest.is_empty() {
            return Ok(Self(None));
        }
        let text = nowait_variables::text(word, cx)?;
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
