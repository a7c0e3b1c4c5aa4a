//! Mistakes in configurations that are valid all the same: what `nowait lint` finds.
//!
//! Each kind of mistake is a [`Rule`]: a name, a severity, an explanation with a wrong and a right
//! example, and a function over the [`Model`] of a parsed configuration, its includes resolved. A
//! comment `# lint: allow KIND REASON` silences one finding.
//!
//! Sans-IO: the caller reads the files, shows the findings, and writes what [`fix`] returns. The crate
//! never decides whether a configuration is valid; that is what `nowait -t` is for.
#![forbid(unsafe_code)]

mod allow;
mod fix;
mod model;
mod pattern;
mod rule;
mod rules;
mod values;
mod words;

use std::collections::HashSet;

use nowait_conf::{Diagnostics, Registry, Tree};

pub use fix::{Edit, fix};
pub use model::Model;
pub use rule::{Finding, Rule};

/// Every kind of mistake, by topic.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    rules::TOPICS.iter().flat_map(|(_, rules)| rules.iter())
}

/// The kinds by topic, with the names of the topics.
pub fn topics() -> &'static [(&'static str, &'static [Rule])] {
    rules::TOPICS
}

/// The kind with this name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.name == name)
}

/// Looks for every kind of mistake. The registry tells how directives are inherited.
pub fn check(tree: &Tree, registry: &Registry) -> Vec<Finding> {
    let model = Model::new(tree, registry);
    let mut found: Vec<Finding> = Vec::new();
    for rule in rules() {
        let mut report = rule::Report::new(rule);
        (rule.check)(&model, &mut report);
        found.extend(report.found);
    }
    let mut remarks = allow::Remarks::of(tree);
    // A file that is included several times is found fault with once.
    let mut known = HashSet::new();
    found.retain(|finding| {
        let name = tree.sources.name(finding.span.file);
        !remarks.allow(finding)
            && known.insert((finding.rule.name, name, finding.span.start, finding.message.clone()))
    });
    found.extend(remarks.findings());
    found
}

/// The findings in the form of others, in the order of reading.
pub fn diagnostics(tree: &Tree, findings: &[Finding]) -> Diagnostics {
    let mut diagnostics = Diagnostics::new(tree.sources.clone());
    for finding in findings {
        diagnostics.push(finding.diagnostic());
    }
    diagnostics
}
