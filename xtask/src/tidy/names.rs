//! The check of type names: within a crate, a public name belongs to one type.

use std::collections::BTreeMap;

use super::rust::Code;
use super::tree::{Finding, Tree};

/// The crates that follow the rule. A new crate belongs here.
const CRATES: &[&str] = &[
    "bench",
    "crates/acme",
    "crates/backend",
    "crates/brotli",
    "crates/cache",
    "crates/caching",
    "crates/catalogue",
    "crates/coding",
    "crates/conf",
    "crates/connections",
    "crates/fields",
    "crates/front",
    "crates/gateway",
    "crates/h1",
    "crates/h2",
    "crates/h3",
    "crates/http",
    "crates/images",
    "crates/lint",
    "crates/message",
    "crates/migrate",
    "crates/modules",
    "crates/mp4",
    "crates/resolver",
    "crates/runtime",
    "crates/server",
    "crates/spare",
    "crates/stream",
    "crates/sys",
    "crates/testkit",
    "crates/tls",
    "crates/upstream",
    "crates/variables",
    "xtask",
];

const KEYWORDS: &[&str] = &["struct", "enum", "trait", "type", "union"];

/// No two types of one crate that other modules can see have the same name.
pub fn unique_types(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in CRATES {
        let sources = format!("{name}/src/");
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for (path, text) in tree.with_suffix(".rs") {
            if !path.starts_with(&sources) {
                continue;
            }
            for (line, word) in public_types(&Code::of(text)) {
                if let Some(first) = seen.get(&word) {
                    let message = format!("{name} has a type {word} already, in {first}");
                    findings.push(Finding::at(path, line, message));
                } else {
                    seen.insert(word, format!("{path}:{line}"));
                }
            }
        }
    }
    findings
}

/// The types that a file declares with `pub` or a restricted form of it, by line.
fn public_types(code: &Code) -> impl Iterator<Item = (usize, String)> {
    code.production().filter_map(|(number, line)| Some((number, declared(line)?.to_owned())))
}

/// The name of the public type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(restricted) => restricted.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (keyword, name) = rest.split_once(' ')?;
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
    KEYWORDS.contains(&keyword).then(|| &name[..end]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_public_type_of_a_name_is_found() {
        let tree = Tree::of(&[
            ("crates/sys/src/a.rs", "//! A.\npub struct Entry {\n"),
            ("crates/sys/src/b.rs", "//! B.\npub(crate) enum Entry<T> {\n"),
            ("crates/sys/src/c.rs", "//! C.\nstruct Entry;\n// pub struct Entry\n"),
            ("crates/tls/src/a.rs", "//! A.\npub struct Entry;\n"),
        ]);
        let findings = unique_types(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/sys/src/b.rs", 2));
    }

    #[test]
    fn declarations_are_read() {
        assert_eq!(declared("    pub(in crate::log) unsafe trait Sink: Send {"), Some("Sink"));
        assert_eq!(declared("pub type Table = Vec<u8>;"), Some("Table"));
        assert_eq!(declared("pub fn table() {}"), None);
        assert_eq!(declared("struct Table;"), None);
    }
}
