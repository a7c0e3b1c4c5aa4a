//! Settings of `sub_filter`. nginx: `ngx_http_sub_filter_module`.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Setting, arity};
use nowait_http::conf::content_types::ContentTypes;
use nowait_http::variables::complex::Complex;

use super::replace::Patterns;

/// Maximum number of `sub_filter` directives of one level, as in nginx.
const PAIRS_MAX: usize = 255;

nowait_conf::directives! {
    /// Replacements in responses.
    #[derive(Debug)]
    module "sub";
    pub struct SubConf with SubConfLayer;

    /// Replaces a string in responses, ignoring case. May be given several times; if two match at
    /// the same place, the first is used. Both strings may contain variables; an empty search
    /// string is ignored.
    sub_filter: Vec<Substitution>, in HTTP | SERVER | LOCATION, args "string replacement";
    /// Content types of responses to process, in addition to `text/html`; `*` means all.
    sub_filter_types: ContentTypes = "text/html", in HTTP | SERVER | LOCATION, args "mime-type ...";
    /// Controls whether only the first occurrence of each string is replaced.
    sub_filter_once: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether responses keep `Last-Modified`, and `ETag` as a weak one.
    sub_filter_last_modified: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

/// One `sub_filter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Substitution {
    /// The search string, in lower case if it is literal.
    pub string: Complex,
    /// The replacement.
    pub replacement: Complex,
}

impl Setting for Substitution {
    const ARITY: arity::Arity = arity::exactly(2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [string, replacement] = &node.args[..] else { return Err(node.arity_error()) };
        if string.text.is_empty() {
            return Err(string.error("empty search pattern"));
        }
        let mut lower = string.clone();
        lower.text.make_ascii_lowercase();
        Ok(Self {
            string: nowait_http::conf::complex(&lower, cx)?,
            replacement: nowait_http::conf::complex(replacement, cx)?,
        })
    }
}

/// The replacements of a location.
#[derive(Debug)]
pub struct SubFilter {
    /// The settings as given.
    pub conf: Arc<SubConf>,
    /// The search strings, if they contain no variables.
    pub fixed: Option<Arc<Patterns>>,
}

impl SubFilter {
    /// Resolves a chain of blocks; `None` if nothing is replaced.
    pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Self> {
        let conf = SubConf::resolve(cx, chain);
        if conf.sub_filter.is_empty() {
            return None;
        }
        if conf.sub_filter.len() > PAIRS_MAX {
            cx.report(Diagnostic::emerg(format!("number of search patterns exceeds {PAIRS_MAX}")));
            return None;
        }
        let literals = conf.sub_filter.iter().map(|pair| pair.string.literal().cloned());
        let literals: Option<Vec<Bytes>> = literals.collect();
        Some(Self { conf, fixed: literals.map(|all| Arc::new(Patterns::new(all))) })
    }
}
