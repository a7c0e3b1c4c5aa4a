//! Checks of every file of the repository: its size.

use super::tree::{Finding, Tree};

/// No file is so large that only a program can have written it.
pub fn size(tree: &Tree) -> Vec<Finding> {
    let finding = |(path, size)| Finding::file(path, format!("{size} bytes: is it build output?"));
    tree.large().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_found() {
        assert_eq!(size(&Tree::with_large("target/x", 2 << 20)).len(), 1);
    }
}
