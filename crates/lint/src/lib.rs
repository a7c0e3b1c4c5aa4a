//! Mistakes in valid configurations, found by `nowait lint`.
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
mod index;
mod model;
mod pattern;
mod rule;
mod rules;
mod surroundings;
mod values;
mod words;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use nowait_conf::{Diagnostics, Registry, Tree};

pub use fix::{Edit, fix};
pub use model::Model;
pub use rule::{Finding, Rule};
pub use surroundings::{DirectoryState, Surroundings, Unknown};

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

/// Searches for every kind of mistake. The registry defines the inheritance of directives.
pub fn check(tree: &Tree, registry: &Registry, surroundings: &dyn Surroundings) -> Vec<Finding> {
    let model = Model::new(tree, registry, surroundings);
    let mut found: Vec<Finding> = Vec::new();
    for rule in rules() {
        let mut report = rule::RuleReport::new(rule);
        (rule.check)(&model, &mut report);
        found.extend(report.found);
    }
    let mut remarks = allow::Remarks::of(tree);
    found.retain(|finding| !remarks.allow(finding));
    let mut found = once(tree, found);
    found.extend(remarks.findings());
    found
}

/// A finding in a file that is included several times is reported once. A fix stays if all its edits are in the file
/// of its finding, and it is the same wherever the file is included.
fn once(tree: &Tree, found: Vec<Finding>) -> Vec<Finding> {
    let mut inclusions: HashMap<&Path, usize> = HashMap::new();
    for (_, name, _) in tree.sources.texts() {
        *inclusions.entry(name).or_default() += 1;
    }
    let mut known: HashMap<_, (usize, usize)> = HashMap::new();
    let mut kept: Vec<Finding> = Vec::new();
    for mut finding in found {
        if finding.edits.iter().any(|edit| edit.span.file != finding.span.file) {
            finding.edits.clear();
        }
        let name = tree.sources.name(finding.span.file);
        let key = (finding.rule.name, name, finding.span.start, finding.message.clone());
        match known.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert((kept.len(), 1));
                kept.push(finding);
            }
            Entry::Occupied(mut entry) => {
                let (index, count) = entry.get_mut();
                *count += 1;
                let first = &mut kept[*index];
                if !are_same(&first.edits, &finding.edits) {
                    first.edits.clear();
                }
            }
        }
    }
    for ((_, name, ..), (index, count)) in known {
        if name.is_some_and(|name| inclusions.get(name).is_some_and(|all| count < *all)) {
            kept[index].edits.clear();
        }
    }
    kept
}

/// Whether edits are the same, in the same file or in another inclusion of it.
fn are_same(one: &[Edit], two: &[Edit]) -> bool {
    let parts = |edit: &Edit| (edit.span.start, edit.span.end, edit.text.clone());
    one.iter().map(parts).eq(two.iter().map(parts))
}

/// The findings in the form of others, in the order of reading. If there are more than `max`, the most
/// severe ones.
pub fn diagnostics(tree: &Tree, findings: &[Finding], max: usize) -> Diagnostics {
    let mut findings: Vec<&Finding> = findings.iter().collect();
    if findings.len() > max {
        findings.sort_by_key(|finding| Reverse(finding.rule.level));
        findings.truncate(max);
    }
    let mut diagnostics = Diagnostics::new(tree.sources.clone());
    for finding in findings {
        diagnostics.push(finding.diagnostic());
    }
    diagnostics
}
