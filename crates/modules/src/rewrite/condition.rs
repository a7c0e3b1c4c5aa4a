//! Conditions of `if`. nginx: `ngx_http_script_if_code` and what precedes it on the stack.

use nowait_http::conf::Regex;
use nowait_http::files;
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::variables::complex::{Complex, Groups};
use nowait_runtime::fs::{FileKind, Metadata};
use nowait_variables::Index;

use super::replace::search_failed;

/// A condition of `if`.
#[derive(Debug, Clone)]
pub enum IfCondition {
    /// The variable is neither empty nor `0`.
    True(Index),
    /// The variable has this value (or, negated, another value).
    Equal {
        /// The variable.
        variable: Index,
        /// The value to compare with, byte by byte.
        value: Complex,
        /// `!=`
        negated: bool,
    },
    /// The expression matches the variable's value (or, negated, does not).
    Matches {
        /// The variable.
        variable: Index,
        /// The expression; its groups can be used afterwards.
        regex: Regex,
        /// `!~`
        negated: bool,
    },
    /// A test in the file system, which may take time.
    File {
        /// Path of the file.
        path: Complex,
        /// The test.
        test: FileTest,
        /// `!-f` and so on.
        negated: bool,
    },
}

/// A test of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileTest {
    /// `-f`: it is a regular file.
    Plain,
    /// `-d`: it is a directory.
    Directory,
    /// `-e`: it is a file, a directory or a symbolic link.
    Exists,
    /// `-x`: its owner may execute it.
    Executable,
}

impl IfCondition {
    /// Evaluates the condition. File tests are not run here: they are `false`.
    ///
    /// # Errors
    /// The response if an expression could not be matched.
    pub(super) fn holds(
        &self,
        request: &Request,
        groups: Groups,
        log: bool,
    ) -> Result<bool, Outcome> {
        match self {
            Self::True(variable) => {
                let value = value_of(request, *variable);
                Ok(!value.is_empty() && value != b"0")
            }
            Self::Equal { variable, value, negated } => {
                let left = value_of(request, *variable);
                let mut right = Vec::new();
                value.append_with(request, groups, &mut right);
                Ok((left == right) != *negated)
            }
            Self::Matches { variable, regex, negated } => {
                let text = value_of(request, *variable);
                let found = regex
                    .search_in(request, &text)
                    .map_err(|error| search_failed(request, regex, &text, &error))?;
                if !found {
                    request.clear_captures();
                }
                if log {
                    log_match(request, regex, &text, found);
                }
                Ok(found != *negated)
            }
            Self::File { .. } => Ok(false),
        }
    }
}

fn value_of(request: &Request, variable: Index) -> Vec<u8> {
    let mut value = Vec::new();
    request.current().conf.variables.append(variable, request, &mut value);
    value
}

/// Logs the result of a match (`rewrite_log`).
pub(super) fn log_match(request: &Request, regex: &Regex, text: &[u8], found: bool) {
    request.log(
        Level::Notice,
        format_args!(
            "\"{}\" {} \"{}\"",
            String::from_utf8_lossy(regex.pattern()),
            if found { "matches" } else { "does not match" },
            String::from_utf8_lossy(text)
        ),
    );
}

impl FileTest {
    /// Runs the test. A file that can't be accessed does not exist.
    ///
    /// # Errors
    /// The response if the thread pool is full.
    pub(super) async fn holds(self, request: &Request, path: &[u8]) -> Result<bool, Outcome> {
        match files::stat(request, path).await {
            Ok(found) => Ok(self.accepts(&found)),
            Err(error) if error.is_overflow() => Err(error.answer(request, path)),
            Err(error) => {
                if !error.is_not_found() {
                    request.log(
                        Level::Crit,
                        format_args!(
                            "stat() \"{}\" failed {}",
                            String::from_utf8_lossy(path),
                            error.errno()
                        ),
                    );
                }
                Ok(false)
            }
        }
    }

    fn accepts(self, found: &Metadata) -> bool {
        /// The owner may execute it (`S_IXUSR`).
        const OWNER_EXECUTES: u32 = 0o100;
        match self {
            Self::Plain => found.kind == FileKind::File,
            Self::Directory => found.kind == FileKind::Directory,
            Self::Exists => {
                matches!(found.kind, FileKind::File | FileKind::Directory | FileKind::Symlink)
            }
            Self::Executable => found.mode & OWNER_EXECUTES != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_file_types() {
        let found = std::env::temp_dir();
        let directory = metadata_of(&found);
        assert!(FileTest::Directory.accepts(&directory));
        assert!(FileTest::Exists.accepts(&directory));
        assert!(FileTest::Executable.accepts(&directory));
        assert!(!FileTest::Plain.accepts(&directory));
    }

    fn metadata_of(path: &std::path::Path) -> Metadata {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(path).expect("the directory exists");
        Metadata {
            kind: if found.is_dir() { FileKind::Directory } else { FileKind::File },
            size: found.size(),
            mtime: found.mtime(),
            mtime_nsec: 0,
            ctime: found.ctime(),
            ctime_nsec: 0,
            dev: found.dev(),
            ino: found.ino(),
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            nlink: found.nlink(),
            blocks: found.blocks(),
        }
    }
}
