//! The kinds of file system operations that the slow disk distinguishes, and sets of them.

use std::fmt;
use std::ops::BitOr;
use std::path::{Path, PathBuf};

/// One kind of operation that the kernel requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Op {
    Lookup,
    Getattr,
    Setattr,
    Open,
    Create,
    Read,
    Write,
    Fsync,
    Readdir,
    Rename,
    Unlink,
    Mkdir,
    Other,
}

impl Op {
    pub(super) const COUNT: usize = Op::Other as usize + 1;

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// A set of operations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ops(u16);

impl Ops {
    /// Resolving one name of a path.
    pub const LOOKUP: Ops = Ops::of(Op::Lookup);
    /// `stat`, `fstat`.
    pub const GETATTR: Ops = Ops::of(Op::Getattr);
    /// `chmod`, `chown`, `truncate`, `utimes`.
    pub const SETATTR: Ops = Ops::of(Op::Setattr);
    /// `open` of an existing file or directory.
    pub const OPEN: Ops = Ops::of(Op::Open);
    /// `open` with `O_CREAT` of a new file.
    pub const CREATE: Ops = Ops::of(Op::Create);
    pub const READ: Ops = Ops::of(Op::Read);
    pub const WRITE: Ops = Ops::of(Op::Write);
    pub const FSYNC: Ops = Ops::of(Op::Fsync);
    pub const READDIR: Ops = Ops::of(Op::Readdir);
    pub const RENAME: Ops = Ops::of(Op::Rename);
    /// Removing the name of a file or directory.
    pub const UNLINK: Ops = Ops::of(Op::Unlink);
    pub const MKDIR: Ops = Ops::of(Op::Mkdir);
    /// All operations that can wait: everything except closing files and `statfs`.
    pub const ALL: Ops = Ops((1 << Op::Other as u16) - 1);

    const fn of(op: Op) -> Ops {
        Ops(1 << op as u16)
    }

    pub(super) fn contains(self, op: Op) -> bool {
        self.0 & Ops::of(op).0 != 0
    }

    /// The same operations, but only on files below `directory` (relative to the disk's root).
    pub fn under(self, directory: impl AsRef<Path>) -> OpScope {
        OpScope { ops: self, under: Some(directory.as_ref().to_owned()) }
    }
}

impl BitOr for Ops {
    type Output = Ops;

    fn bitor(self, other: Ops) -> Ops {
        Ops(self.0 | other.0)
    }
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; Op::COUNT] = [
            "lookup", "getattr", "setattr", "open", "create", "read", "write", "fsync", "readdir",
            "rename", "unlink", "mkdir", "other",
        ];
        let names = NAMES.iter().enumerate().filter(|(n, _)| self.0 & (1 << n) != 0);
        f.debug_set().entries(names.map(|(_, name)| name)).finish()
    }
}

/// The scope of a rule: a set of operations, optionally below one directory only.
#[derive(Clone, Debug)]
pub struct OpScope {
    ops: Ops,
    under: Option<PathBuf>,
}

impl From<Ops> for OpScope {
    fn from(ops: Ops) -> OpScope {
        OpScope { ops, under: None }
    }
}

impl OpScope {
    pub(super) fn matches(&self, op: Op, path: &Path) -> bool {
        self.ops.contains(op)
            && self.under.as_ref().is_none_or(|directory| path.starts_with(directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_match_kind_and_directory() {
        let target = (Ops::READ | Ops::OPEN).under("cold");
        assert!(target.matches(Op::Read, Path::new("cold/a")));
        assert!(!target.matches(Op::Write, Path::new("cold/a")));
        assert!(!target.matches(Op::Read, Path::new("colder/a")));
        assert!(Ops::ALL.contains(Op::Mkdir) && !Ops::ALL.contains(Op::Other));
    }
}
