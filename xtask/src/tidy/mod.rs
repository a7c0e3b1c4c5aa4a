//! `cargo xtask tidy`: the rules of the repository that the compiler cannot see.
//!
//! Each check is a pure function over a [`Tree`] (the texts of the repository) that returns its
//! findings; `run` reads the tree once, runs all of them and prints every finding. The tables of
//! the rules that a reader should know (who may depend on whom, where unsafe code may stand) are
//! fenced blocks in xtask/structure.md, so that the page and the check cannot disagree.

mod cycles;
mod layers;
mod links;
mod names;
mod rust;
mod text;
mod tree;

use tree::{Finding, Tree};

use crate::workspace::Outcome;

/// A check: its name in the report, and the function.
type Check = (&'static str, fn(&Tree) -> Vec<Finding>);

const CHECKS: &[Check] = &[
    ("layers", layers::dependencies),
    ("users", layers::users),
    ("code map", layers::code_map),
    ("cycles", cycles::import_cycles),
    ("modules", cycles::modules_apart),
    ("folders", cycles::folders_apart),
    ("unsafe", rust::unsafe_code),
    ("headers", rust::headers),
    ("length", rust::length),
    ("words", rust::words),
    ("file calls", rust::file_calls),
    ("names", names::unique_types),
    ("size", text::size),
    ("links", links::links),
    ("paths", links::paths),
    ("attacks", links::attacks),
];

/// Runs every check and reports all findings at once.
pub fn run(args: &[String]) -> Outcome {
    if let Some(extra) = args.first() {
        return Err(format!("unexpected argument \"{extra}\""));
    }
    let tree = Tree::read()?;
    let mut count = 0;
    for (name, check) in CHECKS {
        let mut findings = check(&tree);
        findings.sort();
        for finding in &findings {
            println!("{finding} [{name}]");
        }
        count += findings.len();
    }
    match count {
        0 => {
            println!("tidy: {} files, {} checks, nothing to report", tree.len(), CHECKS.len());
            Ok(())
        }
        n => Err(format!("{n} findings")),
    }
}
