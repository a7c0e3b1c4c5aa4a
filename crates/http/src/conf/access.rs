//! `allow`, `deny` and `limit_except`. nginx: `ngx_http_access_module`, `ngx_http_core_module`.

use nowait_conf::{Context, Cx, Diagnostic, Node, Scope};
use nowait_h1::Method;

use super::LocationId;
use crate::cidr::Cidr;

nowait_conf::rows! {
    pub static ACCESS_ROWS, module "access";

    /// Lets clients with these addresses in. The rules are tried in order, the first that fits
    /// decides; without one that fits everyone may come in.
    "allow" => rule, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, take exactly(1), args "address | CIDR | unix: | all";
    /// Keeps clients with these addresses out.
    "deny" => rule, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, take exactly(1), args "address | CIDR | unix: | all";
    /// Settings, such as rules of access, for all methods but these. `GET` stands for `HEAD` too.
    block "limit_except" => limit_except, in LOCATION, take at_least(1), args "method ... { ... }";
}

/// One `allow` or `deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Whether the clients are let in.
    pub allow: bool,
    /// Which clients.
    pub who: Who,
}

/// The clients that a rule means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// `all`
    All,
    /// `unix:`
    Unix,
    /// Those with addresses in a network.
    Network(Cidr),
}

impl Rule {
    /// Whether the rule is about IPv4 clients.
    pub fn is_v4(&self) -> bool {
        matches!(self.who, Who::All | Who::Network(Cidr::V4 { .. }))
    }
}

/// `allow` and `deny` of a location.
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

fn rule(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let who = match &word.text[..] {
        b"all" => Who::All,
        b"unix:" => Who::Unix,
        text => {
            let Some((network, surplus)) = Cidr::parse(text) else {
                let expected = "an address, a network such as 192.0.2.0/24, \"unix:\" or \"all\"";
                return Err(node.parameter_error(word).expected(expected));
            };
            if surplus {
                let text = format!("low address bits of {word} are meaningless");
                cx.report(Diagnostic::warn(text).at(word.span));
            }
            Who::Network(network)
        }
    };
    cx.layer::<AccessLayer>().0.push(Rule { allow: node.name == *"allow", who });
    Ok(())
}

/// A set of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Methods(u32);

/// The methods that `limit_except` knows.
const METHODS: [&str; 14] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "MKCOL",
    "COPY",
    "MOVE",
    "OPTIONS",
    "PROPFIND",
    "PROPPATCH",
    "LOCK",
    "UNLOCK",
    "PATCH",
];

impl Methods {
    /// Whether the method is in the set.
    pub fn contains(self, method: Method) -> bool {
        self.0 & Self::bit(method) != 0
    }

    fn bit(method: Method) -> u32 {
        1 << method as u32
    }
}

/// `limit_except`: other settings for most methods.
#[derive(Debug)]
pub struct LimitExcept {
    /// The methods that keep the settings of the location.
    pub except: Methods,
    /// The settings for all others.
    pub location: LocationId,
}

/// The `limit_except` of a location as it was read.
#[derive(Default)]
pub struct LimitExceptLayer(pub Option<(Methods, Scope)>);

fn limit_except(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let mut methods = Methods(0);
    for word in &node.args {
        let known = METHODS.iter().find(|name| name.as_bytes().eq_ignore_ascii_case(&word.text));
        let Some(name) = known else {
            let expected = format!("one of {}", METHODS.join(", "));
            return Err(word.error(format!("invalid method \"{word}\"")).expected(expected));
        };
        methods.0 |= Methods::bit(Method::from_bytes(name.as_bytes()));
    }
    if methods.contains(Method::Get) {
        methods.0 |= Methods::bit(Method::Head);
    }
    let scope = cx.block(Context::LIMIT_EXCEPT, node.children());
    cx.layer::<LimitExceptLayer>().0 = Some((methods, scope));
    Ok(())
}
