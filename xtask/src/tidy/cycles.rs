//! Import cycles, modules that only one list may name, and folders that few may import.
//!
//! A file imports another if its production code names a path into it: `crate::…`, `super::…`,
//! `self::…`, or a module that it declares itself; a re-export (`pub use`) counts for those who use it.
//! Files of one crate that import each other, directly or through others, are one cycle: they can only be
//! understood together. A cycle of more than [`KNOT_MAX`] files is an error unless the table `cycles` in
//! xtask/structure.md states its size; the table must be exact, so that a cycle that shrinks cannot grow
//! again unnoticed.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::{crate_name, members};
use super::rust::Code;
use super::tree::{Finding, STRUCTURE, Tree};

/// So many files may import each other: a module and its parts.
const KNOT_MAX: usize = 8;

/// The path of a module, from its crate's root.
type Path = Vec<String>;

/// The modules of a crate that have a file, with the file's path in the repository.
type Modules<'t> = BTreeMap<Path, &'t str>;

/// Every cycle above [`KNOT_MAX`] files stands in the table `cycles` with its exact size, and no other.
pub fn import_cycles(tree: &Tree) -> Vec<Finding> {
    let table = match tree.table("cycles") {
        Ok(lines) => lines,
        Err(finding) => return vec![finding],
    };
    let mut stated: BTreeSet<(String, usize)> = table
        .iter()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, size)| Some((name.to_owned(), size.trim().parse().ok()?)))
        .collect();

    let mut findings = Vec::new();
    for (manifest, _) in members(tree) {
        for cycle in of_crate(tree, manifest) {
            let name = crate_name(manifest);
            if cycle.len() <= KNOT_MAX || stated.remove(&(name.to_owned(), cycle.len())) {
                continue;
            }
            let message = format!(
                "{} files of crate \"{name}\" import each other ({}), the limit is {KNOT_MAX}; if the \
                 table \"cycles\" states a larger number, lower it",
                cycle.len(),
                sample(&cycle)
            );
            findings.push(Finding::file(cycle[0], message));
        }
    }
    findings.extend(stated.into_iter().map(|(name, size)| {
        let message =
            format!("the table \"cycles\" states {size} files of \"{name}\": no such cycle");
        Finding::file(STRUCTURE, message)
    }));
    findings
}

/// The first files of a cycle.
fn sample(cycle: &[&str]) -> String {
    const SHOWN: usize = 12;
    let more = if cycle.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", cycle.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", "))
}

/// Modules that take part in the core's work, each in a file or a folder below `src/modules/` of their
/// crate or in the crate `modules`, are named by their list alone, and by each other not at all: adding,
/// changing or removing one needs no other.
pub fn modules_apart(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (manifest, _) in members(tree) {
        let directory = manifest.trim_end_matches("Cargo.toml");
        let (below, list) = match directory.ends_with("/modules/") {
            true => (format!("{directory}src/"), format!("{directory}src/lib.rs")),
            false => (format!("{directory}src/modules/"), format!("{directory}src/modules/mod.rs")),
        };
        let module = |file: &str| {
            let inside = file.strip_prefix(&below).filter(|_| file != list)?;
            Some(inside.split('/').next()?.trim_end_matches(".rs").to_owned())
        };
        let modules = modules(tree, directory);
        let mut unlisted: BTreeMap<String, &str> =
            modules.values().rev().filter_map(|file| Some((module(file)?, *file))).collect();
        for (from, to) in imports(&modules, tree, Paths::Continued) {
            let message = match (module(from), module(to)) {
                (None, Some(listed)) if from == list => {
                    unlisted.remove(&listed);
                    continue;
                }
                (None, Some(module)) => {
                    format!("the core imports module \"{module}\"; only {list} names modules")
                }
                (Some(own), Some(other)) if own != other => {
                    format!("module \"{own}\" imports module \"{other}\"")
                }
                (Some(own), None) if to == list => {
                    format!("module \"{own}\" imports the list of modules")
                }
                _ => continue,
            };
            findings.push(Finding::file(from, message));
        }
        findings.extend(unlisted.into_iter().map(|(module, file)| {
            Finding::file(file, format!("module \"{module}\" is not in the list, {list}"))
        }));
    }
    findings
}

/// What is in a folder of the table `folders` is imported only by the files that the table names beside
/// it, and by the folder itself.
pub fn folders_apart(tree: &Tree) -> Vec<Finding> {
    let table = match tree.table("folders") {
        Ok(lines) => lines,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    for line in &table {
        let Some((folder, users)) = line.split_once("<-") else {
            let message = format!("the table \"folders\" has a line without an arrow: {line}");
            findings.push(Finding::file(STRUCTURE, message));
            continue;
        };
        let folder = folder.trim();
        let users: BTreeSet<&str> = users.split_whitespace().collect();
        let manifest = folder.split_once("src/").map_or("", |(directory, _)| directory);
        let imports = imports(&modules(tree, manifest), tree, Paths::Continued);
        let from_outside = imports
            .into_iter()
            .filter(|(from, to)| to.starts_with(folder) && !from.starts_with(folder));
        let mut unused = users.clone();
        for (from, to) in from_outside {
            unused.remove(from);
            if !users.contains(from) {
                let message = format!("imports {to}, but is not beside {folder} in \"folders\"");
                findings.push(Finding::file(from, message));
            }
        }
        findings.extend(unused.into_iter().map(|user| {
            let message = format!("the table \"folders\" lets {user} import {folder}: it does not");
            Finding::file(STRUCTURE, message)
        }));
    }
    findings
}

/// Which paths of a file count.
#[derive(Clone, Copy, PartialEq)]
enum Paths {
    /// Those that name their beginning.
    Whole,
    /// Also those that begin with an imported name: `use crate::a;` and then `a::b::C`.
    Continued,
}

/// Which file of a crate imports which.
fn imports<'t>(modules: &Modules<'t>, tree: &'t Tree, paths: Paths) -> Vec<(&'t str, &'t str)> {
    let sources: Vec<(&str, Source)> = modules
        .iter()
        .map(|(path, file)| (*file, Source::of(path, tree.text(file).unwrap_or_default())))
        .collect();
    let exports: BTreeMap<Path, Path> =
        sources.iter().flat_map(|(_, source)| source.exports.iter().cloned()).collect();
    let mut imports = Vec::new();
    for (from, source) in &sources {
        let continued = source.continued.iter().filter(|_| paths == Paths::Continued);
        let targets = source.imports.iter().chain(continued);
        let targets = targets.filter_map(|target| file_of(modules, &origin(target, &exports)));
        let targets: BTreeSet<&str> = targets.map(|path| modules[path]).collect();
        imports.extend(targets.into_iter().filter(|to| to != from).map(|to| (*from, to)));
    }
    imports
}

/// The cycles of a crate, each in the order of its files' paths.
fn of_crate<'t>(tree: &'t Tree, manifest: &str) -> Vec<Vec<&'t str>> {
    let modules = modules(tree, manifest.trim_end_matches("Cargo.toml"));
    let files: Vec<&str> = modules.values().copied().collect();
    let number: BTreeMap<&str, usize> =
        files.iter().enumerate().map(|(number, file)| (*file, number)).collect();
    let mut edges = vec![Vec::new(); files.len()];
    for (from, to) in imports(&modules, tree, Paths::Whole) {
        edges[number[from]].push(number[to]);
    }
    let mut cycles: Vec<Vec<&str>> = components(&edges)
        .into_iter()
        .filter(|component| component.len() > 1)
        .map(|component| {
            let mut cycle: Vec<&str> = component.iter().map(|at| files[*at]).collect();
            cycle.sort_unstable();
            cycle
        })
        .collect();
    cycles.sort_unstable();
    cycles
}

/// The modules below `directory`, which ends in a slash.
fn modules<'t>(tree: &'t Tree, directory: &str) -> Modules<'t> {
    const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];
    let source = format!("{directory}src/");
    let is_test = |part: &str| matches!(part, "tests.rs" | "tests" | "bin");
    tree.with_suffix(".rs")
        .filter_map(|(file, _)| Some((file.strip_prefix(&source)?, file)))
        .filter(|(inside, _)| !inside.split('/').any(is_test))
        .map(|(inside, file)| {
            let parts = inside.trim_end_matches(".rs").split('/').map(str::to_owned);
            let mut path: Path = parts.collect();
            if ROOTS.contains(&inside) || path.last().is_some_and(|last| last == "mod") {
                path.pop();
            }
            (path, file)
        })
        .collect()
}

/// The file in which `target` is: that of the innermost module on its path.
fn file_of<'m>(modules: &'m Modules<'_>, target: &[String]) -> Option<&'m Path> {
    (0..=target.len())
        .rev()
        .find_map(|length| modules.get_key_value(target.get(..length)?))
        .map(|(path, _)| path)
}

/// Where what `target` names is defined, as far as re-exports tell.
fn origin(target: &[String], exports: &BTreeMap<Path, Path>) -> Path {
    const STEPS_MAX: usize = 8;
    let mut path = target.to_vec();
    for _ in 0..STEPS_MAX {
        let step = (1..=path.len())
            .rev()
            .find_map(|length| Some((length, exports.get(path.get(..length)?)?)));
        let Some((length, to)) = step else { break };
        path = to.iter().chain(&path[length..]).cloned().collect();
    }
    path
}

/// What a file names within its crate.
#[derive(Default)]
struct Source {
    /// The paths that its production code uses.
    imports: BTreeSet<Path>,
    /// Those that begin with an imported name.
    continued: BTreeSet<Path>,
    /// `pub use`: names of this module, and what they stand for. They concern the code that uses
    /// them, not of this file.
    exports: Vec<(Path, Path)>,
}

/// A path that was read, with the name that it is given.
struct Leaf {
    path: Path,
    name: Option<String>,
}

impl Source {
    /// Of the module `own`.
    fn of(own: &[String], text: &str) -> Source {
        let code = Code::of(text);
        let production: String = code.production().map(|(_, line)| format!("{line}\n")).collect();
        let tokens = tokens(&production);
        let children: BTreeSet<&str> = tokens
            .windows(3)
            .filter(|three| three[0] == "mod" && three[2] == ";")
            .map(|three| three[1])
            .collect();

        let mut source = Source::default();
        let mut names: BTreeMap<String, Path> = BTreeMap::new();
        let mut at = 0;
        while at < tokens.len() {
            let continues = at > 0 && tokens[at - 1] == "::";
            let base: Option<Path> = match tokens[at] {
                _ if continues || tokens.get(at + 1) != Some(&"::") => None,
                "crate" => Some(Path::new()),
                "self" => Some(own.to_vec()),
                "super" => Some(own[..own.len().saturating_sub(1)].to_vec()),
                child if children.contains(child) => {
                    Some(own.iter().cloned().chain([child.to_owned()]).collect())
                }
                _ => None,
            };
            let Some(base) = base else {
                at += 1;
                continue;
            };
            let public =
                at >= 2 && tokens[at - 1] == "use" && matches!(tokens[at - 2], "pub" | ")");
            let mut leaves = Vec::new();
            let used = at >= 1 && tokens[at - 1] == "use";
            at = follow(&tokens, at + 2, base, &mut leaves);
            for Leaf { path, name } in leaves {
                if let Some(name) = name.as_ref().filter(|_| used) {
                    names.insert(name.clone(), path.clone());
                }
                match name.filter(|_| public) {
                    Some(name) => source.exports.push(([own, &[name]].concat(), path)),
                    None => drop(source.imports.insert(path)),
                }
            }
        }
        for (at, name) in tokens.iter().enumerate() {
            let begins = tokens.get(at + 1) == Some(&"::") && (at == 0 || tokens[at - 1] != "::");
            if let Some(base) = names.get(*name).filter(|_| begins) {
                let mut leaves = Vec::new();
                follow(&tokens, at + 2, base.clone(), &mut leaves);
                source.continued.extend(leaves.into_iter().map(|leaf| leaf.path));
            }
        }
        source
    }
}

/// Collects what stands behind `base::`, from the token `at` on, groups included. Returns the position
/// behind it.
fn follow(tokens: &[&str], mut at: usize, mut base: Path, leaves: &mut Vec<Leaf>) -> usize {
    loop {
        match tokens.get(at).copied() {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = match tokens[at] {
                        "," => at + 1,
                        _ => follow(tokens, at, base.clone(), leaves),
                    };
                }
                return at + 1;
            }
            Some("super") => drop(base.pop()),
            Some("self") => {}
            Some(name) if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                base.push(name.to_owned());
            }
            // A glob, or what no path continues with.
            _ => {
                leaves.push(Leaf { path: base, name: None });
                return at + 1;
            }
        }
        at += 1;
        if tokens.get(at) == Some(&"::") {
            at += 1;
            continue;
        }
        let renamed = tokens.get(at) == Some(&"as");
        let name = match renamed {
            true => tokens.get(at + 1).map(|name| (*name).to_owned()),
            false => base.last().cloned(),
        };
        leaves.push(Leaf { path: base, name });
        return if renamed { at + 2 } else { at };
    }
}

/// Words, `::`, and every other visible character on its own.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}

/// The strongly connected components of a graph (Tarjan).
fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    struct Search<'e> {
        edges: &'e [Vec<usize>],
        /// When a node was first seen, and the earliest node that it leads back to.
        seen: Vec<Option<(usize, usize)>>,
        open: Vec<usize>,
        is_open: Vec<bool>,
        count: usize,
        found: Vec<Vec<usize>>,
    }
    impl Search<'_> {
        fn visit(&mut self, node: usize) -> usize {
            let first = self.count;
            self.count += 1;
            self.seen[node] = Some((first, first));
            self.open.push(node);
            self.is_open[node] = true;
            let mut low = first;
            for &next in &self.edges[node] {
                match self.seen[next] {
                    None => low = low.min(self.visit(next)),
                    Some((when, _)) if self.is_open[next] => low = low.min(when),
                    Some(_) => {}
                }
            }
            self.seen[node] = Some((first, low));
            if low == first {
                let from = self.open.iter().rposition(|at| *at == node).unwrap_or(0);
                let component = self.open.split_off(from);
                for at in &component {
                    self.is_open[*at] = false;
                }
                self.found.push(component);
            }
            low
        }
    }
    let mut search = Search {
        edges,
        seen: vec![None; edges.len()],
        open: Vec::new(),
        is_open: vec![false; edges.len()],
        count: 0,
        found: Vec::new(),
    };
    for node in 0..edges.len() {
        if search.seen[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(own: &str, text: &str) -> Vec<String> {
        let own: Path =
            own.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Source::of(&own, text).imports.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn imports_are_read_from_every_form_of_a_path() {
        let text = "mod part;\nuse crate::a::{self, b::{C, D as E}, f};\nuse super::g;\n\
                    use std::io::crate_like;\n// crate::comment\nfn h() { part::i(); crate::j::k() }\n\
                    pub(crate) fn l() { self::m() }\n#[cfg(test)]\nmod tests { use crate::test; }\n";
        let expected =
            ["a", "a::b::C", "a::b::D", "a::f", "j::k", "x::g", "x::y::m", "x::y::part::i"];
        assert_eq!(paths("x::y", text), expected);
    }

    #[test]
    fn a_declared_module_that_is_not_used_is_no_import() {
        assert!(paths("x", "pub mod part;\nmod other;\n").is_empty());
    }

    #[test]
    fn a_re_export_is_followed_and_is_no_import() {
        let text = "mod part;\npub use part::{A, B as C};\npub(crate) use crate::d::E;\n";
        let source = Source::of(&["x".to_owned()], text);
        assert!(source.imports.is_empty());
        let exports: BTreeMap<Path, Path> = source.exports.into_iter().collect();
        let path = |text: &str| -> Path { text.split("::").map(str::to_owned).collect() };
        for (from, to) in [("x::C::new", "x::part::B::new"), ("x::E", "d::E"), ("x::F", "x::F")] {
            assert_eq!(origin(&path(from), &exports), path(to), "{from}");
        }
    }

    #[test]
    fn components_are_found() {
        // 0 → 1 → 2 → 0, 2 → 3 ⇄ 4, 5.
        let edges = [vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![]];
        let mut found = components(&edges);
        found.iter_mut().for_each(|component| component.sort_unstable());
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4], vec![5]]);
    }

    /// A crate with a ring of `count` files.
    fn ring(count: usize) -> Vec<(String, String)> {
        let file = |at: usize| {
            let text = format!("use crate::m{}::T;\n", (at + 1) % count);
            (format!("crates/a/src/m{at}.rs"), text)
        };
        (0..count).map(file).collect()
    }

    fn findings(count: usize, table: &str) -> usize {
        let page = format!("```cycles\n{table}\n```\n");
        let files = ring(count);
        let mut all = vec![(STRUCTURE, &*page), ("crates/a/Cargo.toml", "")];
        all.extend(files.iter().map(|(path, text)| (&**path, &**text)));
        import_cycles(&Tree::of(&all)).len()
    }

    /// The findings about a crate with the modules `b` and `c`.
    fn about_modules(b: &str, core: &str, list: &str) -> Vec<String> {
        let files = [
            ("Cargo.toml", "[workspace]\n"),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("crates/a/src/lib.rs", "mod core;\nmod modules;\n"),
            ("crates/a/src/core.rs", core),
            ("crates/a/src/modules/mod.rs", list),
            ("crates/a/src/modules/b/mod.rs", b),
            ("crates/a/src/modules/b/conf.rs", ""),
            ("crates/a/src/modules/c.rs", ""),
        ];
        let findings = modules_apart(&Tree::of(&files));
        findings.iter().map(ToString::to_string).collect()
    }

    /// A list of both modules.
    const LIST: &str =
        "pub mod b;\npub mod c;\nstatic MODULES: &[&Module] = &[&b::MODULE, &c::MODULE];\n";

    #[test]
    fn modules_must_not_import_each_other() {
        let found = |b: &str| about_modules(b, "", LIST);
        assert!(
            found("mod conf;\nuse crate::modules::b::conf::A;\nuse crate::core::B;\n").is_empty()
        );
        for text in ["use crate::modules::c::A;\n", "use super::c::A;\n"] {
            let expected = "crates/a/src/modules/b/mod.rs: module \"b\" imports module \"c\"";
            assert_eq!(found(text), [expected], "{text}");
        }
        let expected = "crates/a/src/modules/b/mod.rs: module \"b\" imports the list of modules";
        assert_eq!(found("use crate::modules::rows;\n"), [expected]);
    }

    #[test]
    fn only_the_list_imports_modules() {
        let found = |core: &str| about_modules("", core, LIST);
        assert!(found("use crate::modules;\nfn f() { modules::rows(); }\n").is_empty());
        for text in [
            "use crate::modules::b::A;\n",
            "fn f() { crate::modules::b::conf::g() }\n",
            "use crate::modules;\nfn f() { modules::b::conf::g() }\n",
        ] {
            let expected = "crates/a/src/core.rs: the core imports module \"b\"; only crates/a/src/modules/mod.rs names modules";
            assert_eq!(found(text), [expected], "{text}");
        }
    }

    #[test]
    fn every_module_is_in_the_list() {
        let list = "pub mod b;\npub mod c;\nstatic MODULES: &[&Module] = &[&b::MODULE];\n";
        let expected = "crates/a/src/modules/c.rs: module \"c\" is not in the list, crates/a/src/modules/mod.rs";
        assert_eq!(about_modules("", "", list), [expected]);
    }

    #[test]
    fn a_folder_is_imported_by_those_beside_it_alone() {
        let findings = |table: &str, text: &str| {
            let page = format!("```folders\n{table}\n```\n");
            let files = [
                (STRUCTURE, &*page),
                ("crates/a/Cargo.toml", ""),
                ("crates/a/src/lib.rs", "mod b;\nmod c;\nmod d;\n"),
                ("crates/a/src/b/mod.rs", "mod e;\npub use e::E;\n"),
                ("crates/a/src/b/e.rs", "use crate::d::D;\n"),
                ("crates/a/src/c.rs", "use crate::b::E;\n"),
                ("crates/a/src/d.rs", text),
            ];
            folders_apart(&Tree::of(&files)).len()
        };
        let table = "crates/a/src/b/ <- crates/a/src/c.rs";
        assert_eq!(findings(table, ""), 0);
        assert_eq!(findings(table, "use crate::b::E;\n"), 1);
        assert_eq!(findings("crates/a/src/b/ <-", ""), 1);
        // A line that allows an edge that does not exist.
        assert_eq!(findings(&format!("{table} crates/a/src/d.rs"), ""), 1);
        assert_eq!(findings("crates/a/src/b/", ""), 1);
    }

    #[test]
    fn a_knot_above_the_limit_must_be_stated_exactly() {
        assert_eq!(findings(KNOT_MAX, ""), 0);
        assert_eq!(findings(KNOT_MAX + 1, ""), 1);
        assert_eq!(findings(KNOT_MAX + 1, "a 9"), 0);
        // The cycle, and the line that is not true.
        assert_eq!(findings(KNOT_MAX + 1, "a 10"), 2);
        assert_eq!(findings(KNOT_MAX, "a 9"), 1);
    }
}
