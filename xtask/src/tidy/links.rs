//! Links of Markdown pages, and tests that they name: what they point at in the repository exists.

use std::collections::BTreeSet;

use super::tree::{Finding, Tree};

/// Every relative link leads to a file or directory, every `#fragment` to a heading.
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_suffix(".md") {
        for (line, target) in targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
            let resolved =
                if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
            let Some(resolved) = resolved.filter(|file| tree.exists(file)) else {
                findings.push(Finding::at(path, line, format!("no such file: {target}")));
                continue;
            };
            let headings = tree.text(&resolved).unwrap_or_default();
            if !fragment.is_empty() && !has_heading(headings, fragment) {
                findings.push(Finding::at(path, line, format!("no such heading: {target}")));
            }
        }
    }
    findings
}

/// The paths that ARCHITECTURE.md names in code spans exist, whole or as a prefix.
pub fn paths(tree: &Tree) -> Vec<Finding> {
    const PAGE: &str = "ARCHITECTURE.md";
    const ROOTS: &[&str] = &["crates/", "tests/", "bench/", "xtask/", "fuzz/", "docs/"];
    let mut findings = Vec::new();
    for (index, line) in tree.text(PAGE).unwrap_or_default().lines().enumerate() {
        // Between backticks stand the odd parts.
        for span in line.split('`').skip(1).step_by(2) {
            let ours = ROOTS.iter().any(|root| span.starts_with(root));
            if ours && !tree.has_prefix(span) {
                findings.push(Finding::at(PAGE, index + 1, format!("no such path: {span}")));
            }
        }
    }
    findings
}

/// The tests that the page of known attacks names exist, and it names all tests made for it.
pub fn attacks(tree: &Tree) -> Vec<Finding> {
    const PAGE: &str = "docs/security/known-attacks.md";
    const TESTS: &str = "tests/http/attacks/";
    let page = tree.text(PAGE).unwrap_or_default();
    let mut named = BTreeSet::new();
    let mut findings = Vec::new();
    for (index, line) in page.lines().enumerate() {
        // Between backticks stand the odd parts.
        for span in line.split('`').skip(1).step_by(2) {
            let Some((file, test)) = span.rsplit_once("::").filter(|(file, _)| file.contains('/'))
            else {
                continue;
            };
            let text = tree.text(&format!("{file}.rs")).unwrap_or_default();
            if !tests(text).any(|name| name == test) {
                findings.push(Finding::at(PAGE, index + 1, format!("no such test: {span}")));
            }
            named.insert(span);
        }
    }
    for (path, text) in tree.with_suffix(".rs").filter(|(path, _)| path.starts_with(TESTS)) {
        for test in tests(text) {
            if !named.contains(&*format!("{}::{test}", path.trim_end_matches(".rs"))) {
                findings.push(Finding::file(path, format!("{test} is not named in {PAGE}")));
            }
        }
    }
    findings
}

/// The names of the tests of a file.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("#[test]").skip(1);
    parts.filter_map(|part| part.split_once("fn ")?.1.split('(').next())
}

/// The targets of inline links and images, `](target)`, outside fenced blocks.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for part in line.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                // A title may follow the target: `](page.md "title")`.
                targets.extend(target.split_whitespace().next().map(|target| (index + 1, target)));
            }
        }
    }
    targets
}

/// `file` relative to the directory of `page`; `None` when it leaves the repository.
fn resolve(page: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a heading or an explicit `<a name>` of the page has this fragment.
fn has_heading(page: &str, fragment: &str) -> bool {
    let anchor = [format!("name=\"{fragment}\""), format!("id=\"{fragment}\"")];
    page.lines().any(|line| {
        (line.starts_with('#') && slug(line.trim_start_matches('#').trim()) == fragment)
            || anchor.iter().any(|anchor| line.contains(anchor.as_str()))
    })
}

/// The fragment that code hosts give a heading.
fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_found() {
        let page = "# Top\n[a](docs/b.md) [b](docs) [c](https://x/y) [d](#top)\n\
                    [e](docs/none.md)\n[f](#bottom)\n```\n[g](none)\n```\n[h](docs/b.md#two-words)\n";
        let tree = Tree::of(&[("a.md", page), ("docs/b.md", "## `Two` words\n[up](../a.md)\n")]);
        let findings = links(&tree);
        assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn paths_that_are_gone_are_found() {
        let page = "| `crates/a/src/` | `crates/a/src/old.rs`, `nothing` |\n";
        let tree = Tree::of(&[("ARCHITECTURE.md", page), ("crates/a/src/new.rs", "")]);
        assert_eq!(paths(&tree).len(), 1);
    }

    #[test]
    fn attacks_and_tests_belong_together() {
        let page = "| `tests/http/attacks/a::one` | `crates/b::gone`, `none` |\n";
        let (attacks, other) =
            ("#[test]\nfn one() {}\n#[test]\n#[x]\nfn two() {}\n", "fn gone() {}\n");
        let tree = Tree::of(&[
            ("docs/security/known-attacks.md", page),
            ("tests/http/attacks/a.rs", attacks),
            ("crates/b.rs", other),
        ]);
        let messages: Vec<_> = super::attacks(&tree).into_iter().map(|f| f.message).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("crates/b::gone") && messages[1].starts_with("two "));
    }

    #[test]
    fn links_out_of_the_repository_are_found() {
        assert_eq!(links(&Tree::of(&[("a.md", "[x](../y)\n")])).len(), 1);
    }
}
