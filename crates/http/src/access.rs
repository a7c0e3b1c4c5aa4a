//! The access phase: who may see a location. nginx: `ngx_http_core_access_phase`,
//! `ngx_http_access_module`.
//!
//! Called by the phases when the location of a request is certain. Never waits.

use std::net::IpAddr;

use crate::conf::access::{Rule, Who};
use crate::conf::client::Satisfy;
use crate::log::Level;
use crate::outcome::Outcome;
use crate::request::Request;

/// Status of a request that may not be answered.
const FORBIDDEN: u16 = 403;

/// What one kind of check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It has no opinion.
    None,
    /// The client is welcome: with `satisfy any` that is enough.
    Allowed,
    /// The client is not; with `satisfy any` another check may be content.
    Refused,
}

/// Runs the checks of the location. `None`: the request goes on.
pub fn check(request: &Request) -> Option<Outcome> {
    let location = request.location();
    if location.access.rules.is_empty() {
        return None;
    }
    let verdict = by_address(&location.access.rules, request.peer());
    // With `satisfy any` a refusal would be for the checks that follow to overrule; as long as
    // there are none, it is final.
    match (location.client.satisfy, verdict) {
        (Satisfy::All | Satisfy::Any, Verdict::Refused) => {
            request.log(Level::Error, format_args!("access forbidden by rule"));
            Some(Outcome::status(FORBIDDEN))
        }
        (_, Verdict::None | Verdict::Allowed) => None,
    }
}

/// `allow` and `deny`: the first rule that fits decides.
fn by_address(rules: &[Rule], peer: &nowait_runtime::net::Address) -> Verdict {
    let fits = |who: &Who| match (who, peer.inet().map(|inet| inet.ip())) {
        (Who::All, _) | (Who::Unix, None) => true,
        (Who::Network(network), Some(IpAddr::V4(ip))) => network.contains_v4(ip),
        // An IPv4 client of an IPv6 socket is one of IPv4.
        (Who::Network(network), Some(IpAddr::V6(ip))) => match ip.to_ipv4_mapped() {
            Some(ip) if rules.iter().any(Rule::is_v4) => network.contains_v4(ip),
            _ => network.contains_v6(ip),
        },
        (Who::Network(_), None) | (Who::Unix, Some(_)) => false,
    };
    match rules.iter().find(|rule| fits(&rule.who)) {
        None => Verdict::None,
        Some(rule) if rule.allow => Verdict::Allowed,
        Some(_) => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cidr::Cidr;
    use nowait_runtime::net::Address;

    fn rule(text: &str) -> Rule {
        let (verb, who) = text.split_once(' ').expect("a verb and an object");
        let who = match who {
            "all" => Who::All,
            "unix:" => Who::Unix,
            network => Who::Network(Cidr::parse(network.as_bytes()).expect("a network").0),
        };
        Rule { allow: verb == "allow", who }
    }

    fn verdict(rules: &[&str], peer: &str) -> Verdict {
        let rules: Vec<Rule> = rules.iter().map(|text| rule(text)).collect();
        let peer = Address::Inet(peer.parse().expect("an address"));
        by_address(&rules, &peer)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = ["deny 192.0.2.7", "allow 192.0.2.0/24", "allow 2001:db8::/32", "deny all"];
        assert_eq!(verdict(&rules, "192.0.2.7:1"), Verdict::Refused);
        assert_eq!(verdict(&rules, "192.0.2.8:1"), Verdict::Allowed);
        assert_eq!(verdict(&rules, "198.51.100.1:1"), Verdict::Refused);
        assert_eq!(verdict(&rules, "[2001:db8::1]:1"), Verdict::Allowed);
        assert_eq!(verdict(&rules, "[2001:db9::1]:1"), Verdict::Refused);
        assert_eq!(verdict(&["deny 192.0.2.7"], "192.0.2.8:1"), Verdict::None);
    }

    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        assert_eq!(verdict(&["deny 192.0.2.7"], "[::ffff:192.0.2.7]:1"), Verdict::Refused);
        assert_eq!(verdict(&["deny ::/0"], "[::ffff:192.0.2.7]:1"), Verdict::Refused);
        let both = ["allow 198.51.100.0/24", "deny ::/0"];
        assert_eq!(verdict(&both, "[::ffff:192.0.2.7]:1"), Verdict::None);
    }

    #[test]
    fn unix_clients_are_known_as_such() {
        assert_eq!(verdict(&["deny unix:"], "192.0.2.7:1"), Verdict::None);
    }
}
