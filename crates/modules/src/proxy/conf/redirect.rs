//! `proxy_redirect`: changes to `Location` and `Refresh` of responses.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, Word, arity};
use nowait_http::conf::Regex;
use nowait_http::conf::compile_regex;
use nowait_http::variables::complex::Complex;

use super::{Pass, PassLayer};

/// A search pattern.
#[derive(Debug, Clone)]
pub enum RedirectPattern {
    /// A prefix, compared with regard to case.
    Prefix(Complex),
    /// An expression; the whole value is replaced.
    Regex(Regex),
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Redirect {
    /// The pattern.
    pub pattern: RedirectPattern,
    /// The replacement.
    pub replacement: Complex,
}

/// The `proxy_redirect` directives of a block.
#[derive(Debug, Clone)]
pub enum Redirects {
    /// Nothing is changed.
    Off,
    /// The first matching rule applies.
    Rules(Vec<Redirect>),
}

impl Redirects {
    /// The rules of a location, or the default one.
    pub fn resolve(given: Option<Self>, pass: &Pass) -> Vec<Redirect> {
        match given {
            Some(Self::Off) => Vec::new(),
            Some(Self::Rules(rules)) => rules,
            None => default_rule(pass).into_iter().collect(),
        }
    }
}

/// `proxy_redirect default`: the URL of `proxy_pass` becomes the URI of the location.
fn default_rule(pass: &Pass) -> Option<Redirect> {
    let Pass::Static(pass) = pass else { return None };
    let (from, to) = if pass.destination.uri.is_empty() {
        (Bytes::from([&pass.url[..], b"/"].concat()), Bytes::from_static(b"/"))
    } else {
        (pass.url.clone(), pass.location.clone())
    };
    Some(Redirect {
        pattern: RedirectPattern::Prefix(Complex::from_literal(from)),
        replacement: Complex::from_literal(to),
    })
}

impl Setting for Redirects {
    const ARITY: arity::Arity = arity::between(1, 2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        match &node.args[..] {
            [word] if *word == *"off" => Ok(Self::Off),
            _ => Ok(Self::Rules(vec![rule(node, cx)?])),
        }
    }

    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        match (self, Self::parse(node, cx)?) {
            (Self::Rules(rules), Self::Rules(more)) => rules.extend(more),
            _ => return Err(node.directive_error("is duplicate")),
        }
        Ok(())
    }
}

fn rule(node: &Node, cx: &mut Cx<'_>) -> Result<Redirect, Diagnostic> {
    match &node.args[..] {
        [word] if *word == *"default" => match cx.layer::<PassLayer>().pass.as_ref() {
            Some(pass @ Pass::Static(_)) => {
                Ok(default_rule(pass).expect("a constant URL has a default"))
            }
            Some(Pass::Variable { .. }) => Err(node.error(
                "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with \
                 variables",
            )),
            None => Err(node.error(
                "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive",
            )),
        },
        [word] => Err(node.parameter_error(word).expected("default, off, or two arguments")),
        [from, to] => {
            let pattern = match from.text.strip_prefix(b"~") {
                Some(regex) => RedirectPattern::Regex(expression(cx, from, regex)?),
                None => RedirectPattern::Prefix(nowait_http::conf::complex(from, cx)?),
            };
            Ok(Redirect { pattern, replacement: nowait_http::conf::complex(to, cx)? })
        }
        _ => Err(node.arity_error()),
    }
}

/// An expression after its first tilde; a star as the next character makes it ignore case.
pub(super) fn expression(cx: &mut Cx<'_>, word: &Word, text: &[u8]) -> Result<Regex, Diagnostic> {
    match text.strip_prefix(b"*") {
        Some(text) => compile_regex(cx, word, text, true),
        None => compile_regex(cx, word, text, false),
    }
}
