//! Directories that are listed: their bound, and what errors mean to the client.

use std::io::ErrorKind;

use nowait_runtime::pool::PoolError;

use crate::files;
use crate::log::Level;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::slots::Key;

/// Uploads that the server accepts into the directories of a location, for pages that offer them. Set by the module that
/// accepts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploads {
    /// Files may be replaced.
    pub may_replace: bool,
}

/// The uploads of a location, if it accepts any.
pub static UPLOADS: Key<Uploads> = Key::new();

/// Maximum number of entries of a directory that are read; a larger directory is listed in part, and the error log says so.
pub const ENTRIES_MAX: usize = 100_000;

/// The response for a directory that can't be read.
pub fn refuse(request: &Request, path: &[u8], error: &std::io::Error) -> Outcome {
    if PoolError::of(error).is_some() {
        request.log(Level::Error, format_args!("{error}"));
        return Outcome::status(500);
    }
    let status = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => 404,
        ErrorKind::PermissionDenied => 403,
        _ if files::is_symlink(error) => 403,
        _ => 500,
    };
    let level = if status == 500 { Level::Crit } else { Level::Error };
    if status != 404 || request.location().pages.log_not_found {
        request.log(
            level,
            format_args!(
                "opendir() \"{}\" failed {}",
                String::from_utf8_lossy(path),
                files::errno(error)
            ),
        );
    }
    Outcome::status(status)
}
