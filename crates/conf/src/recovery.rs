//! A forgotten `;`: the next line's directive has become an argument of this one.

use crate::context::Context;
use crate::diagnostic::Diagnostic;
use crate::registry::Registry;
use crate::source::Span;
use crate::tree::{Node, Word};

/// Maximum number of directives found after consecutive forgotten `;`.
pub(crate) const SWALLOWED_MAX: usize = 16;

/// A directive found among the arguments of another.
pub(crate) struct SwallowedDirective {
    /// The last word before it.
    before: Span,
    /// The directive and everything after it.
    pub rest: Node,
}

/// Looks for an argument that starts a line, is not quoted, and names a directive that could stand
/// in this context.
pub(crate) fn swallowed(
    registry: &Registry,
    context: Context,
    node: &Node,
) -> Option<SwallowedDirective> {
    // Most directives are in one line.
    if node.args.last().is_none_or(|word| word.span.line == node.name.span.line) {
        return None;
    }
    let words: Vec<&Word> = node.words().collect();
    let at = (1..words.len()).find(|&n| {
        let word = words[n];
        word.span.line > words[n - 1].span.line
            && !word.quoted
            && is_directive(registry, context, &word.text)
    })?;
    let name = words[at].clone();
    let rest = Node {
        span: Span { start: name.span.start, line: name.span.line, ..node.span },
        name,
        args: words[at + 1..].iter().map(|&word| word.clone()).collect(),
        block: node.block.clone(),
        entries: node.entries.clone(),
        close: node.close,
    };
    Some(SwallowedDirective { before: words[at - 1].span, rest })
}

fn is_directive(registry: &Registry, context: Context, name: &[u8]) -> bool {
    registry.find(name, context).is_some()
        || registry.missing(name, context).is_some_and(|m| m.contexts.intersects(context))
}

impl SwallowedDirective {
    /// The error of the directive, with its likely cause.
    pub fn explain(&self, node: &Node, error: Diagnostic) -> Diagnostic {
        let end = Span { start: self.before.end.saturating_sub(1), ..self.before };
        if self.before == node.name.span && error.message().contains("has no opening") {
            return error.note(end, "a \"{\" is missing after this");
        }
        error.note(end, "a \";\" is missing after this").hint(format!(
            "\"{}\" in line {} is read as an argument of \"{}\"",
            self.rest.name, self.rest.name.span.line, node.name
        ))
    }

    /// Whether its line reads like a directive with arguments: the word alone may well be intended
    /// as an argument (a host or a file with that name).
    pub fn is_complete(&self, registry: &Registry, context: Context) -> bool {
        let Node { name, args, .. } = &self.rest;
        let row = registry.find(&name.text, context);
        args.first().is_some_and(|first| first.span.line == name.span.line)
            && row.is_some_and(|row| row.arity.allows(args.len()))
    }

    /// Accepted, as in nginx, but probably not intended.
    pub fn warning(&self, node: &Node) -> Diagnostic {
        let end = Span { start: self.before.end.saturating_sub(1), ..self.before };
        let name = &self.rest.name;
        let message = format!("\"{name}\" is read as an argument of \"{}\"", node.name);
        Diagnostic::warn(message).at(name.span).note(end, "is a \";\" missing after this?")
    }
}
