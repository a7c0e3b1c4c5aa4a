//! What the checks read, and what they report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::process::Command;

use crate::workspace::root;

/// The page with the tables of structure.
pub const STRUCTURE: &str = "xtask/structure.md";

/// The texts of the repository by path relative to its root. Binary files are left out.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
    /// Binary files.
    binary: BTreeSet<String>,
    /// Files above `FILE_BYTES_MAX`, binary ones too, with their sizes.
    large: BTreeMap<String, u64>,
}

/// Nothing that people write is larger; build output is.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One broken rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    /// Counted from 1; 0 when the finding is about the file as a whole.
    pub line: usize,
    pub message: String,
}

impl Tree {
    /// Reads every file that git knows or would add.
    pub fn read() -> Result<Tree, String> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root())
            .output()
            .map_err(|error| format!("git ls-files: {error}"))?;
        if !listing.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr)));
        }
        let mut tree = Tree::default();
        for path in String::from_utf8_lossy(&listing.stdout).split('\0') {
            let size = std::fs::metadata(root().join(path)).map_or(0, |metadata| metadata.len());
            if size > FILE_BYTES_MAX {
                tree.large.insert(path.to_owned(), size);
                continue;
            }
            match std::fs::read_to_string(root().join(path)) {
                Ok(text) => drop(tree.files.insert(path.to_owned(), text)),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    tree.binary.insert(path.to_owned());
                }
                // Deleted but not yet committed.
                Err(_) => {}
            }
        }
        Ok(tree)
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Files too large to be written by hand.
    pub fn large(&self) -> impl Iterator<Item = (&str, u64)> {
        self.large.iter().map(|(path, size)| (path.as_str(), *size))
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files whose path ends in `suffix`.
    pub fn with_suffix(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(suffix))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Whether a file or a directory with files has this path.
    pub fn exists(&self, path: &str) -> bool {
        let directory = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.binary.contains(path)
            || self.files.keys().any(|file| file.starts_with(&directory))
    }

    /// Whether the path of some file begins so.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.files.keys().any(|file| file.starts_with(prefix))
    }

    /// The lines of the fenced block ` ```NAME ` in [`STRUCTURE`], comments (`#`) removed.
    pub fn table(&self, name: &str) -> Result<Vec<String>, Finding> {
        let opening = format!("```{name}");
        let page = self.text(STRUCTURE).unwrap_or_default();
        let mut lines = page.lines().skip_while(|line| line.trim() != opening);
        if lines.next().is_none() {
            return Err(Finding::file(STRUCTURE, format!("has no block {opening}")));
        }
        Ok(lines
            .take_while(|line| line.trim() != "```")
            .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
            .filter(|line| !line.is_empty())
            .collect())
    }
}

impl Finding {
    pub fn at(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }

    pub fn file(path: &str, message: impl Into<String>) -> Finding {
        Finding::at(path, 0, message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

#[cfg(test)]
impl Tree {
    pub fn with_large(path: &str, size: u64) -> Tree {
        Tree { large: BTreeMap::from([(path.to_owned(), size)]), ..Tree::default() }
    }

    /// A tree of the given files, for the tests of the checks.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Tree { files: files.collect(), ..Tree::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_read_without_comments() {
        let page = "# A\n```layers\nsys ->   # the kernel\n\nruntime -> sys\n```\nrest\n";
        let tree = Tree::of(&[(STRUCTURE, page)]);
        assert_eq!(tree.table("layers").unwrap(), ["sys ->", "runtime -> sys"]);
        assert!(tree.table("unsafe").is_err());
    }

    #[test]
    fn directories_exist_through_their_files() {
        let tree = Tree::of(&[("docs/a.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/a.md") && !tree.exists("doc"));
    }
}
