//! Checks of every file of the repository: its size, and that it speaks of the product only.

use super::tree::{Finding, Tree};

/// Words of one machine or of one way of working, which mean nothing to a reader. Split, so that
/// this file does not find itself.
const WORKPLACE: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/root", "/.cargo"),
    concat!("helper", " session"),
    concat!("fixed ", "by the brief"),
];

/// No file is so large that only a program can have written it.
pub fn size(tree: &Tree) -> Vec<Finding> {
    let finding = |(path, size)| Finding::file(path, format!("{size} bytes: is it build output?"));
    tree.large().map(finding).collect()
}

/// No text names the place it was written at.
pub fn workplace(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_suffix("") {
        for (index, line) in text.lines().enumerate() {
            for word in WORKPLACE.iter().filter(|word| line.contains(**word)) {
                let message = format!("\"{word}\" speaks of the place it was written at");
                findings.push(Finding::at(path, index + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_found() {
        assert_eq!(size(&Tree::with_large("target/x", 2 << 20)).len(), 1);
    }

    #[test]
    fn machine_paths_are_found() {
        let line = format!("a\nsee /{}/x\n", "work");
        let tree = Tree::of(&[("a.md", &line), ("b.md", "framework/x, a TLS session\n")]);
        let findings = workplace(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
    }
}
