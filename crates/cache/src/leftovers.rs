//! Temporary files that could not be removed: their removal is repeated until the disk permits it.

use std::io;
use std::mem::take;
use std::sync::{Mutex, PoisonError};

use nowait_runtime::fs::{self, Io};

use crate::health::ErrorClass;
use crate::key::Key;
use crate::names::{Owner, owner};
use crate::store::Store;

/// The number of files that are remembered. What exceeds it is removed by the first walk of the next
/// process.
const LEFTOVERS_MAX: usize = 16_384;

/// Paths of abandoned temporary files.
#[derive(Default)]
pub(crate) struct Leftovers(Mutex<Vec<Vec<u8>>>);

impl Leftovers {
    fn add(&self, paths: impl IntoIterator<Item = Vec<u8>>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = LEFTOVERS_MAX.saturating_sub(kept.len());
        kept.extend(paths.into_iter().take(room));
    }

    fn take(&self) -> Vec<Vec<u8>> {
        take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store {
    /// Removes a file of the store. If that fails, it is repeated for a temporary file of this process
    /// ([`remove_leftovers`](Store::remove_leftovers)), and an object is found by the next walk; any
    /// other file stays.
    pub(crate) async fn remove_file(&self, io: &Io, path: &[u8]) {
        if self.try_remove(io, path).await.is_ok() {
            return;
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if owner(name) == Some(Owner::Us) {
            self.leftovers.add([path.to_vec()]);
        } else if Key::from_file_name(name).is_some() {
            self.rescan();
        }
    }

    /// Removes a file that may already be removed. An error is recorded.
    pub(crate) async fn try_remove(&self, io: &Io, path: &[u8]) -> io::Result<()> {
        match fs::unlink(io, path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // Logged in one line, and not for each file.
                if ErrorClass::is_read_only(&error) {
                    self.note_change(self.health.seal(true));
                }
                self.note_error("unlink", path, &error);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Tries again to remove what could not be removed. Stops at the first failure: the disk is
    /// probably still in trouble.
    pub(crate) async fn remove_leftovers(&self) {
        let (io, mut paths) = (self.own_io(), self.leftovers.take());
        while let Some(path) = paths.last() {
            if self.try_remove(&io, path).await.is_err() {
                break;
            }
            paths.pop();
        }
        self.leftovers.add(paths);
    }
}
