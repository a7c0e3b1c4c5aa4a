//! Remarks in configurations that silence findings: `# lint: allow KIND REASON`.
//!
//! A remark at the end of a line applies to that line; a remark in its own line applies to the next line
//! that is not a comment.

use std::collections::HashMap;
use std::path::PathBuf;

use nowait_conf::{FileId, Span, Tree, comments};

use crate::rule::{Finding, RuleReport};
use crate::rules;

/// A remark.
struct Remark {
    kind: String,
    has_reason: bool,
    span: Span,
    /// The line that it applies to.
    line: u32,
}

/// The remarks of a configuration, by file.
pub(crate) struct Remarks<'t> {
    tree: &'t Tree,
    /// Sorted by their lines and kinds.
    by_file: HashMap<PathBuf, Vec<Remark>>,
}

impl<'t> Remarks<'t> {
    pub fn of(tree: &'t Tree) -> Remarks<'t> {
        let mut by_file = HashMap::new();
        for (id, name, text) in tree.sources.texts() {
            by_file.entry(name.to_owned()).or_insert_with(|| remarks(id, text));
        }
        Remarks { tree, by_file }
    }

    /// Whether a remark silences a finding.
    pub fn allow(&mut self, finding: &Finding) -> bool {
        let Some(name) = self.tree.sources.name(finding.span.file) else { return false };
        let remarks = self.by_file.get(name).map(Vec::as_slice).unwrap_or_default();
        let key = (finding.span.line, finding.rule.name);
        remarks.binary_search_by(|remark| (remark.line, &*remark.kind).cmp(&key)).is_ok()
    }

    /// Remarks that silence no finding, or lack a reason.
    pub fn findings(&self) -> Vec<Finding> {
        let mut report = RuleReport::new(&rules::REMARK);
        let mut remarks: Vec<&Remark> = self.by_file.values().flatten().collect();
        remarks.sort_by_key(|remark| remark.span);
        for remark in remarks {
            let kind = &remark.kind;
            if crate::rule(kind).is_none() {
                let finding = report.find(remark.span, format!("there is no kind \"{kind}\""));
                let names = crate::rules().map(|rule| rule.name);
                if let Some(near) = nowait_conf::nearest(kind, names) {
                    finding.hint(format!("did you mean \"{near}\"?"));
                }
            } else if !remark.has_reason {
                let message = format!("the remark does not say why \"{kind}\" is allowed");
                report.find(remark.span, message).hint("write the reason behind the name");
            }
        }
        report.found
    }
}

fn remarks(file: FileId, text: &[u8]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    // The comment of its own below, and the line behind it and those that follow it.
    let mut below: Option<(u32, u32)> = None;
    for comment in comments(text).iter().rev() {
        // More comments may stand between the remark and the line.
        let line = match below {
            _ if !comment.is_alone => comment.line,
            Some((line, behind)) if line == comment.line + 1 => behind,
            _ => comment.line + 1,
        };
        if comment.is_alone {
            below = Some((comment.line, line));
        }

        let words = String::from_utf8_lossy(comment.text);
        let Some(rest) = words.trim().strip_prefix("lint:") else { continue };
        let mut words = rest.split_whitespace();
        if words.next() != Some("allow") {
            continue;
        }
        let kind = words.next().unwrap_or_default().to_owned();
        let has_reason = words.next().is_some();
        let end = comment.start + comment.text.len() as u32;
        let span = Span { file, line: comment.line, start: comment.start - 1, end };
        remarks.push(Remark { kind, has_reason, span, line });
    }
    remarks.sort_by(|one: &Remark, two| (one.line, &one.kind).cmp(&(two.line, &two.kind)));
    remarks
}
