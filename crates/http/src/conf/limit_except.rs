//! `limit_except`: other settings of a location for most methods. nginx: `ngx_http_core_module`.

use nowait_conf::{Context, Cx, Diagnostic, Node, Scope, Span};
use nowait_message::Method;

use super::LocationId;

nowait_conf::rows! {
    pub static LIMIT_EXCEPT_ROWS, module "core";

    /// Settings, such as access rules, for all methods except these. `GET` includes `HEAD`.
    block "limit_except" => limit_except, in LOCATION, take at_least(1), args "method ... { ... }";
}

/// A set of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Methods(u32);

/// The methods that `limit_except` accepts.
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
    /// Position in the configuration.
    pub span: Span,
}

/// The `limit_except` of a location as it was read.
#[derive(Default)]
pub struct LimitExceptLayer(pub Option<(Methods, Scope, Span)>);

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
    cx.layer::<LimitExceptLayer>().0 = Some((methods, scope, node.span));
    Ok(())
}
