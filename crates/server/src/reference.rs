//! `nowait reference PAGE`: prints the reference of what this binary has, from its own tables.
//!
//! Called by `main` before the options are parsed, as nginx's command line has no words; and by
//! `cargo xtask docs`, which keeps `docs/reference/` equal to it. Reads no file.

use std::ffi::OsString;
use std::fmt::Write as _;

use nowait_conf::docs;
use nowait_variables::Subject;

use crate::config;

/// Writes a page.
type Writer = fn() -> String;

/// The pages, each with what writes it.
const PAGES: &[(&str, Writer)] = &[
    ("directives", || docs::directives(&config::registry())),
    ("unsupported", || docs::unsupported(&config::registry())),
    ("variables", variables_page),
];

/// The page that the arguments ask for; `None` if they ask for something else.
///
/// # Errors
/// There is no such page.
pub fn asked(arguments: impl IntoIterator<Item = OsString>) -> Option<Result<String, String>> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != "reference" {
        return None;
    }
    let name = arguments.next().unwrap_or_default();
    let page = PAGES.iter().find(|(page, _)| name == *page);
    let names = || PAGES.iter().map(|(page, _)| *page).collect::<Vec<_>>().join("|");
    Some(
        page.map(|(_, write)| write())
            .ok_or_else(|| format!("usage: nowait reference {}", names())),
    )
}

/// The variables of requests, then those of sessions.
fn variables_page() -> String {
    format!(
        "# Variables\n\n## In http\n\n{}\n## In stream\n\n{}",
        table::<nowait_http::request::Request>(),
        table::<nowait_stream::session::Session>()
    )
}

/// Variables by name, then the families with a common prefix.
fn table<S: Subject>() -> String {
    let mut rows: Vec<(String, &str)> =
        S::builtins().map(|variable| (format!("`${}`", variable.name), variable.doc)).collect();
    rows.extend(S::families().map(|f| (format!("`${}`*name*", f.prefix), f.doc)));
    rows.sort();
    let mut page = "| Variable | Meaning |\n|---|---|\n".to_owned();
    for (name, doc) in rows {
        let doc = doc.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let _ = writeln!(page, "| {name} | {doc} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(line: &str) -> Option<Result<String, String>> {
        asked(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn pages_are_written() {
        assert!(page("reference directives").unwrap().unwrap().contains("worker_processes"));
        assert!(page("reference variables").unwrap().unwrap().contains("| `$uri` |"));
        assert!(page("reference unsupported").unwrap().is_ok());
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

    #[test]
    fn other_arguments_are_left_alone() {
        assert!(page("").is_none() && page("-t").is_none());
        assert!(page("reference").unwrap().is_err());
        assert!(page("reference nothing").unwrap().is_err());
    }
}
