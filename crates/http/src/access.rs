//! The access phase: who may see a location. nginx: `ngx_http_core_access_phase`,
//! `ngx_http_access_module`.
//!
//! Called by the phases when the location of a request is certain. What needs no file is decided by
//! [`check`], which never waits; the rest, and the delay of refusals, by [`authenticate`].

use std::net::IpAddr;

use nowait_runtime::sleep;

use crate::auth::{self, Authentication};
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

/// What the phase has come to.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made and taken once per request")]
pub enum Access {
    /// The request goes on.
    Granted,
    /// It is answered.
    Denied(Outcome),
    /// [`authenticate`] decides.
    Wait,
}

/// Runs the checks of the location, as far as they need no file.
pub fn check(request: &Request) -> Access {
    let location = request.location();
    let asks = location.auth.auth_basic.is_some();
    if location.access.rules.is_empty() && !asks {
        return Access::Granted;
    }
    let address = by_address(&location.access.rules, request.peer());
    match (location.client.satisfy, address) {
        (Satisfy::All, Verdict::Refused) => return forbidden(request),
        (Satisfy::Any, Verdict::Allowed) => return Access::Granted,
        (Satisfy::Any, Verdict::Refused) if !asks => return forbidden(request),
        _ if !asks => return Access::Granted,
        _ => {}
    }
    match auth::begin(request) {
        // Nothing but the address counts: with `satisfy any` it was not good enough.
        Some(Authentication::Settled(_)) if address == Verdict::Refused => forbidden(request),
        Some(Authentication::Settled(_)) => Access::Granted,
        Some(Authentication::Unauthorized(realm))
            if location.client.auth_delay.duration().is_zero() =>
        {
            Access::Denied(auth::unauthorized(&realm))
        }
        Some(Authentication::Failed(outcome)) => Access::Denied(outcome),
        // The answer is delayed there.
        Some(Authentication::Unauthorized(_)) | None => Access::Wait,
    }
}

/// Runs the checks that look at files. By now the address is not decisive: with `satisfy all` it was
/// not refused, with `satisfy any` it was not good enough, and the user is. `None`: the request goes
/// on.
pub(crate) async fn authenticate(request: &Request) -> Option<Outcome> {
    match auth::finish(request).await {
        Authentication::Settled(Verdict::Allowed | Verdict::None) => None,
        Authentication::Settled(Verdict::Refused) => {
            if request.location().client.satisfy == Satisfy::Any {
                request.log(Level::Error, format_args!("access forbidden by rule"));
            }
            Some(Outcome::status(FORBIDDEN))
        }
        Authentication::Failed(outcome) => Some(outcome),
        Authentication::Unauthorized(realm) => {
            let delay = request.location().client.auth_delay.duration();
            if !delay.is_zero() {
                request.log(Level::Info, format_args!("delaying unauthorized request"));
                sleep(delay).await;
            }
            Some(auth::unauthorized(&realm))
        }
    }
}

fn forbidden(request: &Request) -> Access {
    request.log(Level::Error, format_args!("access forbidden by rule"));
    Access::Denied(Outcome::status(FORBIDDEN))
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
