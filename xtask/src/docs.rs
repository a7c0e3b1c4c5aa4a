//! `cargo xtask docs [--check]`: the reference pages in `docs/reference/`.
//!
//! The pages come from the directive tables that the server is built from: `nowait reference
//! PAGE` prints one, so that the program, not this crate, links the tables, and an operator can
//! read the reference of the very binary that runs.

use std::fs;

use crate::workspace::{Outcome, cargo, root};

/// The pages that the program can print, each `docs/reference/PAGE.md`.
const PAGES: &[&str] = &["directives", "mistakes", "variables", "unsupported"];

/// Writes the reference pages, or with `--check` fails when they are not up to date.
pub fn run(args: &[String]) -> Outcome {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err("usage: cargo xtask docs [--check]".to_owned()),
    };
    let mut stale = Vec::new();
    for page in PAGES {
        let path = root().join("docs/reference").join(format!("{page}.md"));
        let fresh = render(page)?;
        let old = fs::read_to_string(&path).unwrap_or_default();
        if old == fresh {
            continue;
        }
        if check {
            stale.push(first_difference(page, &old, &fresh));
        } else {
            fs::create_dir_all(root().join("docs/reference"))
                .and_then(|()| fs::write(&path, fresh))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            println!("wrote docs/reference/{page}.md");
        }
    }
    match stale.len() {
        0 => Ok(()),
        _ => Err(format!("not up to date, run cargo xtask docs:\n{}", stale.join("\n"))),
    }
}

/// One page as the program prints it.
fn render(page: &str) -> Result<String, String> {
    let output = cargo()
        .args(["run", "--quiet", "-p", "nowait", "--", "reference", page])
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("nowait reference {page}: {error}"))?;
    if !output.status.success() {
        return Err(format!("nowait reference {page}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("nowait reference {page}: {error}"))
}

/// The first line in which a page differs, for the report.
fn first_difference(page: &str, old: &str, fresh: &str) -> String {
    let same = old.lines().zip(fresh.lines()).take_while(|(old, fresh)| old == fresh).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(end)").to_owned();
    let number = same + 1;
    format!("docs/reference/{page}.md:{number}\n  - {}\n  + {}", line(old), line(fresh))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let report = first_difference("p", "a\nb\nc\n", "a\nx\nc\n");
        assert_eq!(report, "docs/reference/p.md:2\n  - b\n  + x");
        assert!(first_difference("p", "a\n", "a\nb\n").contains("- (end)"));
    }
}
