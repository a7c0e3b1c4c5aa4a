//! Directives whose arguments are texts with variables, of which one that is neither empty nor `0`
//! decides: `early_hints`, `proxy_cache_bypass`. nginx: `ngx_http_set_predicate_slot`.

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_variables::Subject;

use crate::variables::complex::{Complex, HttpVariables};

nowait_conf::directives! {
    /// Early hints.
    #[derive(Debug)]
    module "core";
    pub struct EarlyHintsConf with EarlyHintsConfLayer;

    /// Passes interim responses 103 (Early Hints) and 102 (Processing) of upstream servers on to
    /// clients if one of the values is neither empty nor `0`. nginx passes only 103.
    early_hints: Option<Predicates>, in HTTP | SERVER | LOCATION, args "string ...";
}

nowait_conf::directives! {
    /// Conditions for reading the bodies of requests.
    #[derive(Debug)]
    module "core";
    pub struct EarlyReadConf with EarlyReadConfLayer;

    /// Reads the request body first if one of the values is neither empty nor `0`, so that `if`
    /// and `map` can already use `$request_body`. The body settings are then those of the server,
    /// regardless of the location.
    client_body_early_read: Option<Predicates>, in HTTP | SERVER, args "string ...";
}

/// Texts of which at least one must hold. Several directives of one block accumulate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predicates(pub Vec<Complex>);

impl Predicates {
    /// Whether any of them is neither empty nor `0`. nginx: `ngx_http_test_predicates`, which
    /// returns `NGX_DECLINED` in this case.
    pub fn any(&self, subject: &impl Subject<Namespace = HttpVariables>) -> bool {
        self.0.iter().any(|text| holds(&subject.evaluate(text)))
    }

    /// Whether all of them are neither empty nor `0`.
    pub fn all(&self, subject: &impl Subject<Namespace = HttpVariables>) -> bool {
        self.0.iter().all(|text| holds(&subject.evaluate(text)))
    }
}

/// Neither empty nor `0`.
pub(super) fn holds(value: &[u8]) -> bool {
    !matches!(value, b"" | b"0")
}

impl Setting for Predicates {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let texts = node.args.iter().map(|word| super::values::complex(word, cx));
        Ok(Self(texts.collect::<Result<_, _>>()?))
    }

    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        self.0.extend(Self::parse(node, cx)?.0);
        Ok(())
    }
}
