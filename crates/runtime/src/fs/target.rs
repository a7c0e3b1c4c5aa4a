//! What a task of a pool works on: the file, for the order of service, and the file system, for its counters.

use super::known;
use crate::mounts::{Mount, places};

/// The file and the file system of a task, as far as known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Target {
    /// [`known::file_id`] or [`known::path_id`]; 0: nothing shared with other tasks.
    pub(super) file: u64,
    pub(super) disk: Option<&'static Mount>,
}

impl Target {
    /// A name: its directory tells where it most likely is.
    pub(super) fn of_path(path: &[u8]) -> Target {
        let place = places::place_of_name(path).or_else(|| {
            let found = places::place_of_dir(places::parent(path));
            found.map(|(mount, _)| mount)
        });
        Target { file: known::path_id(path), disk: place }
    }
}

impl From<u64> for Target {
    /// On a file system that is not known.
    fn from(file: u64) -> Target {
        Target { file, disk: None }
    }
}
