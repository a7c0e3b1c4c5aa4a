//! The findings about a configuration for programs: the output of `-t --json`.
//!
//! Made by `config` from the diagnostics while their texts are known, printed by `main`. Never prints.

use std::path::Path;

use nowait_conf::{Diagnostic, Diagnostics, Sources, Span};
use serde_json::{Value, json};

/// Every finding, in the order in which the configuration is read.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Value>,
    /// Findings and places beyond the limits of [`Diagnostics`].
    not_listed: usize,
}

impl Findings {
    /// All findings, once for each place.
    pub fn of(diagnostics: &Diagnostics) -> Findings {
        let sources = diagnostics.sources();
        let mut findings = Findings { list: Vec::new(), not_listed: diagnostics.dropped() };
        for diagnostic in diagnostics.iter() {
            let mut places = diagnostic.places().peekable();
            if places.peek().is_none() {
                findings.list.push(finding(diagnostic, sources, None));
            }
            for span in places {
                findings.list.push(finding(diagnostic, sources, Some(span)));
            }
            findings.not_listed += diagnostic.more_places();
        }
        findings
    }

    /// Adds a finding that concerns no place in the configuration.
    pub fn add(&mut self, severity: &str, message: String, hint: String) {
        let mut value = place(None, &Sources::default());
        value["severity"] = severity.into();
        value["message"] = message.into();
        value["expected"] = Value::Null;
        value["hint"] = hint.into();
        value["notes"] = json!([]);
        self.list.push(value);
    }

    /// The text to print for the configuration in `file`.
    pub fn json(self, file: &Path, ok: bool) -> String {
        let value = json!({
            "configuration": file.to_string_lossy(),
            "ok": ok,
            "findings": self.list,
            "not_listed": self.not_listed,
        });
        format!("{value:#}\n")
    }
}

fn finding(diagnostic: &Diagnostic, sources: &Sources, span: Option<Span>) -> Value {
    let notes = diagnostic.notes().iter().map(|(span, note)| {
        let mut value = place(Some(*span), sources);
        value["message"] = note.as_str().into();
        value
    });
    let notes: Vec<Value> = notes.collect();
    let hints = diagnostic.hints();
    let mut value = place(span, sources);
    if let Some(kind) = diagnostic.kind_name() {
        value["kind"] = kind.into();
    }
    value["severity"] = diagnostic.level().name().into();
    value["message"] = diagnostic.message().into();
    value["expected"] = diagnostic.expectation().into();
    value["hint"] = (!hints.is_empty()).then(|| hints.join("\n")).into();
    value["notes"] = notes.into();
    value
}

/// `file`, `line` and `column`, each `null` if unknown.
fn place(span: Option<Span>, sources: &Sources) -> Value {
    let file = span.and_then(|span| sources.name(span.file)).map(Path::to_string_lossy);
    json!({
        "file": file,
        "line": span.map(|span| span.line),
        "column": span.and_then(|span| sources.column(span)),
    })
}
