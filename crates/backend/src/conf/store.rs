//! `proxy_store` and its relatives: responses that are saved as files.

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_http::variables::complex::Complex;

/// The path for stored responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreTarget {
    /// Nowhere.
    Off,
    /// Below `root` or `alias`.
    Root,
    /// At this path.
    Path(Complex),
}

/// Permissions of files, as for `chmod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreAccess(pub u32);

impl StoreAccess {
    /// Permissions of directories: read permission includes search permission. nginx:
    /// `ngx_dir_access`.
    pub fn directories(self) -> u32 {
        self.0 | (self.0 & 0o444) >> 2
    }
}

/// The settings for storing responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The path; none: as given by `root` or `alias`.
    pub path: Option<Complex>,
    /// Permissions of files.
    pub access: u32,
}

impl Store {
    /// Combines the two directives.
    pub fn new(target: StoreTarget, access: StoreAccess) -> Option<Self> {
        let path = match target {
            StoreTarget::Off => return None,
            StoreTarget::Root => None,
            StoreTarget::Path(path) => Some(path),
        };
        Some(Self { path, access: access.0 })
    }

    /// Permissions of directories.
    pub fn directory_access(&self) -> u32 {
        StoreAccess(self.access).directories()
    }
}

impl Setting for StoreTarget {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        match &word.text[..] {
            b"off" => Ok(Self::Off),
            b"on" => Ok(Self::Root),
            b"" => Err(word.error("empty path")),
            _ => {
                let path = nowait_http::conf::complex(word, cx)?;
                Ok(Self::Path(match path.literal() {
                    Some(text) => Complex::from_literal(cx.paths().full(text)),
                    None => path,
                }))
            }
        }
    }
}

impl Setting for StoreAccess {
    const ARITY: arity::Arity = arity::between(1, 3);

    /// nginx: `ngx_conf_set_access_slot`.
    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let mut access = 0;
        // By default, the server itself may read and write.
        let mut user = 0o600;
        for word in &node.args {
            let invalid = || {
                let expected = "user, group or all, a colon, and r or rw";
                word.error(format!("invalid value \"{word}\"")).expected(expected)
            };
            let at = word.text.iter().position(|&b| b == b':').ok_or_else(invalid)?;
            let shift = match &word.text[..at] {
                b"user" => {
                    user = 0;
                    6
                }
                b"group" => 3,
                b"all" => 0,
                _ => return Err(invalid()),
            };
            let bits = match &word.text[at + 1..] {
                b"rw" => 0o6,
                b"r" => 0o4,
                _ => return Err(invalid()),
            };
            access |= bits << shift;
        }
        Ok(Self(access | user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_permission_makes_directories_searchable() {
        let store = |access| Store { path: None, access };
        assert_eq!(store(0o600).directory_access(), 0o700);
        assert_eq!(store(0o664).directory_access(), 0o775);
    }
}
