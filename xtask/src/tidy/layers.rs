//! Who may depend on whom: the workspace's manifests against the tables in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Finding, Tree};

/// The kit of the tests: any crate may use it as a dev-dependency.
const TEST_KIT: &str = "testkit";

/// The binary's package is named after the program, its directory after the role.
const SERVER_PACKAGE: &str = "nowait";

/// One dependency on a crate of ours, as a manifest states it.
struct Edge {
    line: usize,
    to: String,
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
            let fine = may.contains(edge.to.as_str()) || (edge.dev && edge.to == TEST_KIT);
            if !fine {
                let message = format!("\"{name}\" may not depend on \"{}\"", edge.to);
                findings.push(Finding::at(path, edge.line, message));
            }
        }
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
            ("ARCHITECTURE.md", PAGE),
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
    fn an_unlisted_crate_is_found() {
        let tree = Tree::of(&[("ARCHITECTURE.md", PAGE), ("crates/new/Cargo.toml", "")]);
        assert_eq!(dependencies(&tree).len(), 1);
        assert_eq!(code_map(&tree).len(), 1);
        let tree = Tree::of(&[("ARCHITECTURE.md", PAGE), ("crates/sys/Cargo.toml", "")]);
        assert!(code_map(&tree).is_empty());
    }
}
