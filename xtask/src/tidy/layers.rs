//! Who may depend on whom: the workspace's manifests against the tables in xtask/structure.md.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::Code;
use super::tree::{Finding, STRUCTURE, Tree};

/// The binary's package is named after the program, its directory after the role.
const SERVER_PACKAGE: &str = "nowait";

/// One dependency on a crate of ours, as a manifest states it.
struct Edge {
    line: usize,
    to: String,
    /// For tests alone: they may use any crate.
    dev: bool,
}

/// Every dependency between our crates stands in the table `layers`.
pub fn dependencies(tree: &Tree) -> Vec<Finding> {
    let table = match tree.table("layers") {
        Ok(lines) => lines,
        Err(finding) => return vec![finding],
    };
    let allowed: BTreeMap<&str, BTreeSet<&str>> = table
        .iter()
        .filter_map(|line| line.split_once("->"))
        .map(|(from, to)| (from.trim(), to.split_whitespace().collect()))
        .collect();

    let mut findings = Vec::new();
    for (path, manifest) in members(tree) {
        let name = crate_name(path);
        let Some(may) = allowed.get(name) else {
            findings.push(Finding::file(path, format!("crate \"{name}\" is not in the layers")));
            continue;
        };
        for edge in edges(manifest) {
            let fine = edge.dev || may.contains(edge.to.as_str());
            if !fine {
                let message = format!("\"{name}\" may not depend on \"{}\"", edge.to);
                findings.push(Finding::at(path, edge.line, message));
            }
        }
    }
    findings
}

/// A crate of the table `users` is named only by the files and folders that the table lists for it:
/// a protocol's core by those that speak the protocol.
pub fn users(tree: &Tree) -> Vec<Finding> {
    let table = match tree.table("users") {
        Ok(lines) => lines,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    for line in &table {
        let Some((used, users)) = line.split_once("<-") else {
            let message = format!("the table \"users\" has a line without an arrow: {line}");
            findings.push(Finding::file(STRUCTURE, message));
            continue;
        };
        let used = used.trim();
        let path = format!("nowait_{used}");
        let users: Vec<&str> = users.split_whitespace().collect();
        let mut unused: BTreeSet<&str> = users.iter().copied().collect();
        for (file, text) in tree.with_suffix(".rs") {
            let in_crate = file.split_once("/src/").is_some_and(|(directory, _)| {
                directory.starts_with("crates/") && directory != format!("crates/{used}")
            });
            let names_it = |line: &str| {
                line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == path)
            };
            if !in_crate || !Code::of(text).production().any(|(_, line)| names_it(line)) {
                continue;
            }
            match users.iter().find(|user| file.starts_with(**user)) {
                Some(user) => drop(unused.remove(user)),
                None => {
                    let message = format!("uses \"{used}\", but is not in the table \"users\"");
                    findings.push(Finding::file(file, message));
                }
            }
        }
        findings.extend(unused.into_iter().map(|user| {
            let message = format!("the table \"users\" lets {user} use \"{used}\": it does not");
            Finding::file(STRUCTURE, message)
        }));
    }
    findings
}

/// The code map names every crate's directory.
pub fn code_map(tree: &Tree) -> Vec<Finding> {
    let page = tree.text("ARCHITECTURE.md").unwrap_or_default();
    members(tree)
        .map(|(path, _)| path.trim_end_matches("/Cargo.toml"))
        .filter(|directory| !page.contains(&format!("`{directory}`")))
        .map(|directory| {
            Finding::file("ARCHITECTURE.md", format!("the code map lacks `{directory}`"))
        })
        .collect()
}

/// The manifests of all crates; not the workspace's own.
pub fn members(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.with_suffix("/Cargo.toml")
}

/// The name of a crate in the tables: the last directory of its path.
pub fn crate_name(manifest: &str) -> &str {
    let directory = manifest.trim_end_matches("/Cargo.toml");
    directory.rsplit('/').next().unwrap_or(directory)
}

/// The dependencies on our own crates that a manifest states. Reads the subset of TOML that
/// manifests use: a section header and one dependency per line.
fn edges(manifest: &str) -> Vec<Edge> {
    let mut edges = Vec::new();
    let mut section = "";
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            continue;
        }
        if !section.ends_with("dependencies") {
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let to = match name.strip_prefix("nowait-") {
            Some(to) => to,
            None if name == SERVER_PACKAGE => "server",
            None => continue,
        };
        let dev = section.ends_with("dev-dependencies");
        edges.push(Edge { line: index + 1, to: to.to_owned(), dev });
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "map: `crates/runtime` `crates/sys`\n```layers\nsys ->\nruntime -> sys\n```\n";

    fn check(manifest: &str) -> Vec<String> {
        let tree = Tree::of(&[
            (STRUCTURE, PAGE),
            ("Cargo.toml", "[workspace.dependencies]\nnowait-http = { path = \"\" }\n"),
            ("crates/runtime/Cargo.toml", manifest),
        ]);
        dependencies(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn allowed_edges_pass() {
        let manifest = "[package]\nname = \"nowait-runtime\"\n[dependencies]\n\
                        nowait-sys.workspace = true\nlibc = \"0.2\"\n\
                        [dev-dependencies]\nnowait-testkit = { workspace = true }\n";
        assert!(check(manifest).is_empty());
    }

    #[test]
    fn an_edge_upwards_is_found() {
        assert_eq!(
            check("[dependencies]\nnowait-http = { workspace = true }\n"),
            ["\"runtime\" may not depend on \"http\""]
        );
        assert_eq!(
            check("[target.'cfg(unix)'.dependencies]\nnowait = { path = \"../server\" }\n"),
            ["\"runtime\" may not depend on \"server\""]
        );
        assert_eq!(
            check("[dependencies]\nnowait-testkit.workspace = true\n"),
            ["\"runtime\" may not depend on \"testkit\""]
        );
    }

    #[test]
    fn only_listed_files_use_a_protocol() {
        let page = "```users\nh1 <- crates/connections/src/http1/ crates/http/src/old.rs\n```\n";
        let tree = Tree::of(&[
            (STRUCTURE, page),
            ("crates/h1/src/lib.rs", "//! As in `use nowait_h1::X`.\nuse nowait_h1::X;\n"),
            ("crates/connections/src/http1/sender.rs", "use nowait_h1::encode;\n"),
            ("crates/http/src/old.rs", "// nowait_h1\n"),
            ("crates/http/src/phases/mod.rs", "fn f(head: &nowait_h1::Head) {}\n"),
        ]);
        let found: Vec<String> = users(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/http/src/phases/mod.rs: uses \"h1\", but is not in the table \"users\"",
                "xtask/structure.md: the table \"users\" lets crates/http/src/old.rs use \"h1\": it does \
                 not",
            ]
        );
    }

    #[test]
    fn an_unlisted_crate_is_found() {
        let tree = Tree::of(&[("ARCHITECTURE.md", PAGE), ("crates/new/Cargo.toml", "")]);
        assert_eq!(dependencies(&tree).len(), 1);
        assert_eq!(code_map(&tree).len(), 1);
        let tree = Tree::of(&[("ARCHITECTURE.md", PAGE), ("crates/sys/Cargo.toml", "")]);
        assert!(code_map(&tree).is_empty());
    }
}
