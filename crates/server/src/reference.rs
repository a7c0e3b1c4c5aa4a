//! `nowait reference NAME`: the reference of this binary, from its own tables.
//!
//! Called by `main`, and by `cargo xtask docs`, which keeps `docs/reference/` in sync. Reads no
//! file.

use std::fmt::Write as _;

use nowait_conf::docs;
use nowait_variables::Vocabulary;

use crate::config;

/// Writes a page.
type PageWriter = fn() -> String;

/// The pages, each with its writer.
const PAGES: &[(&str, PageWriter)] = &[
    ("directives", || docs::directives(&config::registry())),
    #[cfg(feature = "lint")]
    ("mistakes", mistakes_page),
    ("unsupported", || nowait_catalogue::page(&config::registry())),
    ("variables", variables_page),
];

/// A page, all entries of a directive or a variable, or a kind of mistake.
///
/// # Errors
/// Nothing has this name; the text lists similar ones.
pub fn text(name: &str) -> Result<String, String> {
    if let Some((_, write)) = PAGES.iter().find(|(page, _)| name == *page) {
        return Ok(write());
    }
    #[cfg(feature = "lint")]
    if let Some(rule) = nowait_lint::rule(name) {
        return Ok(mistake(rule));
    }
    let registry = config::registry();
    let mut found = docs::directive_named(&registry, name);
    let variable = name.trim_start_matches('$');
    if !name.is_empty() {
        let http = entries(&nowait_http::blocks::vocabulary(nowait_modules::MODULES));
        let stream = entries(&nowait_stream::modules::vocabulary());
        for (place, entries) in [("http", http), ("stream", stream)] {
            for entry in entries.into_iter().filter(|entry| entry.is(variable)) {
                let _ = writeln!(found, "\n### {} in {place}\n\n{}", entry.name(), entry.doc());
            }
        }
    }
    if !found.is_empty() {
        return Ok(found.trim_start().to_owned());
    }
    let pages: Vec<_> = PAGES.iter().map(|(page, _)| *page).collect();
    let mut message = format!("there is no directive, variable or page \"{name}\"");
    if let Some(near) = docs::nearest_directive(&registry, name) {
        let _ = write!(message, "; did you mean \"{near}\"?");
    }
    let _ = write!(message, "\n  = hint: the pages are {}", pages.join(", "));
    Err(message)
}

/// The kinds of mistakes that `nowait lint` looks for, by topic.
#[cfg(feature = "lint")]
fn mistakes_page() -> String {
    let mut page =
        "# Mistakes\n\nWhat `nowait lint` looks for, in configurations that are valid.\n"
            .to_owned();
    for (topic, rules) in nowait_lint::topics() {
        let _ = write!(page, "\n## {topic}\n\n| Kind | Level | Mistake |\n|---|---|---|\n");
        for rule in *rules {
            let (name, summary) = (rule.name, rule.summary.replace('|', "\\|"));
            let _ = writeln!(page, "| [{name}](#{name}) | {} | {summary} |", rule.level.name());
        }
        for rule in *rules {
            let _ = writeln!(page, "\n{}", mistake(rule));
        }
    }
    page
}

#[cfg(feature = "lint")]
fn mistake(rule: &nowait_lint::Rule) -> String {
    let text = rule.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let fixes =
        if rule.fixes { "\n`nowait lint --fix` changes it where that is safe.\n" } else { "" };
    format!(
        "### {}\n\n{text}\n\nWrong:\n\n```nginx\n{}\n```\n\nRight:\n\n```nginx\n{}\n```\n{fixes}\nSource: {}",
        rule.name,
        rule.wrong.trim_matches('\n'),
        rule.right.trim_matches('\n'),
        rule.source
    )
}

/// One variable, or a family of variables with a common prefix.
struct VariableEntry {
    prefix: &'static str,
    is_family: bool,
    doc: &'static str,
}

impl VariableEntry {
    /// Whether `name` is this variable, or one of this family.
    fn is(&self, name: &str) -> bool {
        name == self.prefix || self.is_family && name.starts_with(self.prefix)
    }

    /// `` `$uri` ``, `` `$arg_`*name* ``
    fn name(&self) -> String {
        format!("`${}`{}", self.prefix, if self.is_family { "*name*" } else { "" })
    }

    /// The text in one line.
    fn doc(&self) -> String {
        self.doc.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Every variable, then the families.
fn entries<S>(vocabulary: &Vocabulary<S>) -> Vec<VariableEntry> {
    let single = |name, doc| VariableEntry { prefix: name, is_family: false, doc };
    let family = |prefix, doc| VariableEntry { prefix, is_family: true, doc };
    let mut entries: Vec<VariableEntry> =
        vocabulary.builtins().map(|v| single(v.name, v.doc)).collect();
    entries.extend(vocabulary.families().map(|f| family(f.prefix, f.doc)));
    entries
}

/// The variables of requests, then those of sessions.
fn variables_page() -> String {
    format!(
        "# Variables\n\n## In http\n\n{}\n## In stream\n\n{}",
        table(&nowait_http::blocks::vocabulary(nowait_modules::MODULES)),
        table(&nowait_stream::modules::vocabulary())
    )
}

/// Variables and families by name.
fn table<S>(vocabulary: &Vocabulary<S>) -> String {
    let mut rows: Vec<(String, String)> =
        entries(vocabulary).iter().map(|entry| (entry.name(), entry.doc())).collect();
    rows.sort();
    let mut page = "| Variable | Meaning |\n|---|---|\n".to_owned();
    for (name, doc) in rows {
        let doc = doc.replace('|', "\\|");
        let _ = writeln!(page, "| {name} | {doc} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_written() {
        assert!(text("directives").unwrap().contains("worker_processes"));
        assert!(text("variables").unwrap().contains("| `$uri` |"));
        assert!(text("unsupported").is_ok());
    }

    #[cfg(feature = "lint")]
    #[test]
    fn every_kind_of_mistake_has_its_text() {
        let mistakes = text("mistakes").unwrap();
        for rule in nowait_lint::rules() {
            assert!(mistakes.contains(&format!("\n### {}\n", rule.name)), "{}", rule.name);
            assert_eq!(text(rule.name), Ok(mistake(rule)));
        }
    }

    #[test]
    fn one_entry_is_found_wherever_it_exists() {
        let root = text("root").unwrap();
        assert!(
            root.starts_with("### root\n") && root.contains("| Syntax | `root path;` |"),
            "{root}"
        );
        assert_eq!(root.matches("### ").count(), 1);
        // Two modules have one.
        assert!(text("listen").unwrap().matches("### listen\n").count() > 1);
        for (name, heading) in [("$uri", "### `$uri` in http\n"), ("arg_x", "### `$arg_`*name* in")]
        {
            assert!(text(name).unwrap().starts_with(heading), "{name}");
        }
        let message = text("autoindx").unwrap_err();
        assert!(message.contains("did you mean \"autoindex\"?"), "{message}");
        assert!(text("").is_err());
    }

    #[test]
    fn everything_is_documented() {
        let rows: Vec<_> =
            docs::undocumented(&config::registry()).iter().map(|row| format!("{row:?}")).collect();
        assert_eq!(rows, Vec::<String>::new());
        assert_eq!(config::registry().conflicts(), Vec::<String>::new());
        let page = variables_page();
        assert!(page.contains("| `$upstream_first_byte_time` |"));
        assert!(!page.contains("|  |"), "a variable without a text");
    }
}
