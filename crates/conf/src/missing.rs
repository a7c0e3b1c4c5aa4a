//! Directives that no table has, from a catalogue, and the summary of those that a configuration uses,
//! which is printed once per origin after the findings.
//!
//! The [`Registry`](crate::Registry) looks up names without a row in its catalogue. The catalogue only
//! explains: the findings themselves refuse the configuration.

use std::fmt::Write as _;

use crate::context::Context;

/// A directive that no table has.
#[derive(Clone, Copy, Debug)]
pub struct MissingDirective {
    /// The module or product that has it, as messages name it.
    pub origin: &'static str,
    /// Contexts in which it is allowed; empty if the directive is unknown.
    pub contexts: Context,
    pub absence: Absence,
    /// The replacement, or the consequence of removing the lines.
    pub advice: Option<&'static str>,
}

/// Why no table has a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// To the language, it is an unknown directive.
    Unknown,
    /// The reason for which it is refused; completes `directive "x" is not supported by nowait: `.
    Unsupported(&'static str),
    /// This build leaves out the Cargo feature that it belongs to.
    LeftOut { feature: &'static str },
}

/// Finds the directive of a name, preferably one that is allowed in the context.
pub type Catalogue = fn(name: &[u8], context: Context) -> Option<MissingDirective>;

/// Uses of missing directives, by origin in the order of their first use.
#[derive(Debug, Default)]
pub(crate) struct MissingUses(Vec<(MissingDirective, Vec<String>)>);

impl MissingUses {
    /// Notes the use of a directive.
    pub(crate) fn note(&mut self, missing: MissingDirective, name: &str) {
        let position = self.0.iter().position(|(known, _)| known.origin == missing.origin);
        let position = position.unwrap_or_else(|| {
            self.0.push((missing, Vec::new()));
            self.0.len() - 1
        });
        let names = &mut self.0[position].1;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }

    /// The summary; empty if no directive is missing.
    pub(crate) fn summary(&self) -> String {
        let mut out = String::new();
        if self.0.is_empty() {
            return out;
        }
        let count: usize = self.0.iter().map(|(_, names)| names.len()).sum();
        let noun = if count == 1 { "directive" } else { "directives" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "nowait: {count} {noun} not available in nowait:");
        for (missing, names) in &self.0 {
            let _ = writeln!(out, "  {}: {}", missing.origin, names.join(", "));
            if let Some(advice) = missing.advice {
                let _ = writeln!(out, "    = hint: {advice}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_is_named_once() {
        let missing = |origin, advice| MissingDirective {
            origin,
            contexts: Context::MAIN,
            absence: Absence::Unsupported("it is not there"),
            advice,
        };
        let mut uses = MissingUses::default();
        assert_eq!(uses.summary(), "");
        let (one, two) = (missing("one", Some("remove the lines")), missing("two", None));
        for (missing, name) in [(one, "a"), (two, "b"), (one, "c"), (one, "a")] {
            uses.note(missing, name);
        }
        assert_eq!(
            uses.summary(),
            "nowait: 3 directives not available in nowait:\n  \
             one: a, c\n    \
             = hint: remove the lines\n  \
             two: b\n"
        );
    }
}
