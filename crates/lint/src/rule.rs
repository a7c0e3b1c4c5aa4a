//! Kinds of mistakes, and findings.

use std::fmt::Write as _;

use nowait_conf::{Diagnostic, Level, Node, Span, Word};

use crate::fix::Edit;
use crate::model::Model;

/// A kind of mistake.
pub struct Rule {
    /// The name in kebab case, as in `# lint: allow NAME`.
    pub name: &'static str,
    /// `error`: a security hole, or a directive that cannot work. `warn`: probably not what was intended.
    /// `notice`: worth a look.
    pub level: Level,
    /// Whether (some) findings can be fixed without changing intended behaviour.
    pub fixes: bool,
    /// One line: the mistake.
    pub summary: &'static str,
    /// The consequence, and the remedy.
    pub text: &'static str,
    /// A configuration, or a part of one, that has the mistake.
    pub wrong: &'static str,
    /// The same without it.
    pub right: &'static str,
    /// The documentation.
    pub source: &'static str,
    pub(crate) check: fn(&Model<'_>, &mut RuleReport),
}

impl Rule {
    /// The output of `--explain`.
    pub fn explain(&self) -> String {
        let mut out = format!("{} ({}): {}\n\n", self.name, self.level.name(), self.summary);
        out.push_str(&wrapped(self.text));
        for (title, text) in [("Wrong", self.wrong), ("Right", self.right)] {
            let _ = writeln!(out, "\n{title}:\n");
            for line in text.trim_matches('\n').lines() {
                let _ = writeln!(out, "{}", format!("    {line}").trim_end());
            }
        }
        if self.fixes {
            out.push_str("\n\"nowait lint --fix\" changes it where that is safe.\n");
        }
        let _ = writeln!(out, "\nSource: {}", self.source);
        out
    }
}

/// Text in lines of a terminal.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 88;
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        if width > 0 && width + 1 + word.chars().count() > WIDTH {
            out.push('\n');
            width = 0;
        }
        if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word.chars().count();
    }
    out.push('\n');
    out
}

/// A mistake that was found.
pub struct Finding {
    pub rule: &'static Rule,
    /// One line, without the place.
    pub message: String,
    pub span: Span,
    label: Option<String>,
    hints: Vec<String>,
    notes: Vec<(Span, String)>,
    /// The fix; empty if only the author can decide.
    pub edits: Vec<Edit>,
}

impl Finding {
    pub(crate) fn label(&mut self, label: impl Into<String>) -> &mut Finding {
        self.label = Some(label.into());
        self
    }

    pub(crate) fn hint(&mut self, hint: impl Into<String>) -> &mut Finding {
        self.hints.push(hint.into());
        self
    }

    pub(crate) fn note(&mut self, span: Span, note: impl Into<String>) -> &mut Finding {
        self.notes.push((span, note.into()));
        self
    }

    /// Fixed by writing `text` instead of a word, or of another range.
    pub(crate) fn replace(&mut self, span: Span, text: impl Into<Vec<u8>>) -> &mut Finding {
        self.edits.push(Edit { span, text: text.into() });
        self
    }

    /// Fixed by writing `text` behind a word.
    pub(crate) fn insert(&mut self, span: Span, text: impl Into<Vec<u8>>) -> &mut Finding {
        self.replace(Span { start: span.end, ..span }, text)
    }

    /// Fixed by removing arguments, each with the space between it and a word beside it in the same
    /// line.
    pub(crate) fn remove(&mut self, node: &Node, words: &[&Word]) -> &mut Finding {
        let all: Vec<&Word> = node.words().collect();
        let is_removed = |word: &Word| words.iter().any(|other| other.span == word.span);
        let mut at = 0;
        while at < all.len() {
            let end = at + all[at..].iter().take_while(|word| is_removed(word)).count();
            if end == at {
                at += 1;
                continue;
            }
            let before = at.checked_sub(1).map(|before| all[before].span);
            let mut run = &all[at..end];
            // Comments may stand between lines.
            while let [first, ..] = run {
                let line = first.span.line;
                let length = run.iter().take_while(|word| word.span.line == line).count();
                let (in_line, rest) = run.split_at(length);
                let span = in_line[0].span.to(in_line[length - 1].span);
                let after = rest.first().or(all.get(end)).map(|word| word.span);
                let span = match (before, after) {
                    (Some(before), _) if before.line == line => Span { start: before.end, ..span },
                    (_, Some(after)) if after.line == line => Span { end: after.start, ..span },
                    _ => span,
                };
                self.replace(span, "");
                run = rest;
            }
            at = end;
        }
        self
    }

    /// Converts to the form of other findings.
    pub fn diagnostic(&self) -> Diagnostic {
        let mut diagnostic =
            Diagnostic::new(self.rule.level, &*self.message).at(self.span).kind(self.rule.name);
        if let Some(label) = &self.label {
            diagnostic = diagnostic.label(label);
        }
        for hint in &self.hints {
            diagnostic = diagnostic.hint(hint);
        }
        for (span, note) in &self.notes {
            diagnostic = diagnostic.note(*span, note);
        }
        diagnostic
    }
}

/// The findings of one rule.
pub(crate) struct RuleReport {
    rule: &'static Rule,
    pub found: Vec<Finding>,
}

impl RuleReport {
    pub fn new(rule: &'static Rule) -> RuleReport {
        RuleReport { rule, found: Vec::new() }
    }

    /// Adds a finding, which may then be detailed.
    pub fn find(&mut self, span: Span, message: impl Into<String>) -> &mut Finding {
        self.found.push(Finding {
            rule: self.rule,
            message: message.into(),
            span,
            label: None,
            hints: Vec::new(),
            notes: Vec::new(),
            edits: Vec::new(),
        });
        self.found.last_mut().expect("one was just added")
    }
}
