//! Access rules by address: `allow` and `deny`. nginx: `ngx_http_access_module`,
//! `ngx_stream_access_module`. Protocols have the rows, and call [`by_address`].

use std::net::IpAddr;

use nowait_conf::{Cx, Diagnostic, Node, Scope, Span, Word};
use nowait_runtime::net::Address;
use nowait_variables::cidr::Cidr;

/// The verdict of one kind of check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessVerdict {
    /// The check does not apply.
    None,
    /// Access is allowed; with `satisfy any` that is enough.
    Allowed,
    /// Access is denied; with `satisfy any` another check may allow it.
    Refused,
}

/// One `allow` or `deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Whether access is allowed.
    pub allow: bool,
    /// The clients it applies to.
    pub who: AddressMatch,
    /// Position in the configuration.
    pub span: Span,
}

/// The clients that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressMatch {
    /// `all`
    All,
    /// `unix:`
    Unix,
    /// Rules for addresses in a network.
    Network(Cidr),
}

impl AddressMatch {
    /// Reads an argument: an address, a network, `unix:` or `all`.
    ///
    /// # Errors
    /// The argument is neither of them.
    pub fn read(cx: &mut Cx<'_>, node: &Node, word: &Word) -> Result<Self, Diagnostic> {
        let text = match &word.text[..] {
            b"all" => return Ok(Self::All),
            b"unix:" => return Ok(Self::Unix),
            text => text,
        };
        let Some((network, surplus)) = Cidr::parse(text) else {
            let expected = "an address, a network such as 192.0.2.0/24, \"unix:\" or \"all\"";
            return Err(node.parameter_error(word).expected(expected));
        };
        if surplus {
            let text = format!("low address bits of {word} are meaningless");
            cx.report(Diagnostic::warn(text).at(word.span));
        }
        Ok(Self::Network(network))
    }
}

impl Rule {
    /// Whether the rule covers IPv4 clients.
    pub fn is_v4(&self) -> bool {
        matches!(self.who, AddressMatch::All | AddressMatch::Network(Cidr::V4 { .. }))
    }
}

/// `allow` and `deny` of a location or a server.
#[derive(Debug, Clone, Default)]
pub struct AccessConf {
    /// The rules in order.
    pub rules: Box<[Rule]>,
}

/// The rules of one block.
#[derive(Default)]
struct AccessLayer(Vec<Rule>);

impl AccessConf {
    /// The rules of the innermost block that has any.
    pub fn resolve(chain: &[&Scope]) -> Self {
        let layers = chain.iter().rev().filter_map(|scope| scope.get::<AccessLayer>());
        let rules = layers.map(|layer| &layer.0).find(|rules| !rules.is_empty());
        Self { rules: rules.cloned().unwrap_or_default().into() }
    }
}

/// Reads an `allow` or a `deny`.
///
/// # Errors
/// It names no address.
pub fn rule(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let who = AddressMatch::read(cx, node, word)?;
    cx.layer::<AccessLayer>().0.push(Rule { allow: node.name == *"allow", who, span: node.span });
    Ok(())
}

/// Applies `allow` and `deny`: the first matching rule decides.
pub fn by_address(rules: &[Rule], peer: &Address) -> AccessVerdict {
    match deciding(rules, peer) {
        None => AccessVerdict::None,
        Some(rule) if rule.allow => AccessVerdict::Allowed,
        Some(_) => AccessVerdict::Refused,
    }
}

/// The first rule that matches.
pub fn deciding<'r>(rules: &'r [Rule], peer: &Address) -> Option<&'r Rule> {
    let fits = |who: &AddressMatch| match (who, peer.inet().map(|inet| inet.ip())) {
        (AddressMatch::All, _) | (AddressMatch::Unix, None) => true,
        (AddressMatch::Network(network), Some(IpAddr::V4(ip))) => network.contains_v4(ip),
        // An IPv4 client of an IPv6 socket counts as IPv4.
        (AddressMatch::Network(network), Some(IpAddr::V6(ip))) => match ip.to_ipv4_mapped() {
            Some(ip) if rules.iter().any(Rule::is_v4) => network.contains_v4(ip),
            _ => network.contains_v6(ip),
        },
        (AddressMatch::Network(_), None) | (AddressMatch::Unix, Some(_)) => false,
    };
    rules.iter().find(|rule| fits(&rule.who))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        let (verb, who) = text.split_once(' ').expect("a verb and an object");
        let who = match who {
            "all" => AddressMatch::All,
            "unix:" => AddressMatch::Unix,
            network => AddressMatch::Network(Cidr::parse(network.as_bytes()).expect("a network").0),
        };
        Rule { allow: verb == "allow", who, span: Span::BUILT_IN }
    }

    fn verdict(rules: &[&str], peer: &str) -> AccessVerdict {
        let rules: Vec<Rule> = rules.iter().map(|text| rule(text)).collect();
        let peer = Address::Inet(peer.parse().expect("an address"));
        by_address(&rules, &peer)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = ["deny 192.0.2.7", "allow 192.0.2.0/24", "allow 2001:db8::/32", "deny all"];
        assert_eq!(verdict(&rules, "192.0.2.7:1"), AccessVerdict::Refused);
        assert_eq!(verdict(&rules, "192.0.2.8:1"), AccessVerdict::Allowed);
        assert_eq!(verdict(&rules, "198.51.100.1:1"), AccessVerdict::Refused);
        assert_eq!(verdict(&rules, "[2001:db8::1]:1"), AccessVerdict::Allowed);
        assert_eq!(verdict(&rules, "[2001:db9::1]:1"), AccessVerdict::Refused);
        assert_eq!(verdict(&["deny 192.0.2.7"], "192.0.2.8:1"), AccessVerdict::None);
    }

    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        assert_eq!(verdict(&["deny 192.0.2.7"], "[::ffff:192.0.2.7]:1"), AccessVerdict::Refused);
        assert_eq!(verdict(&["deny ::/0"], "[::ffff:192.0.2.7]:1"), AccessVerdict::Refused);
        let both = ["allow 198.51.100.0/24", "deny ::/0"];
        assert_eq!(verdict(&both, "[::ffff:192.0.2.7]:1"), AccessVerdict::None);
    }

    #[test]
    fn unix_clients_are_known_as_such() {
        assert_eq!(verdict(&["deny unix:"], "192.0.2.7:1"), AccessVerdict::None);
    }
}
