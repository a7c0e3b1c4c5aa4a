//! Configuration files of any origin, for commands that look at them: regular files of a limited size.
//!
//! Opening a FIFO would wait for a writer, and a device may never end. Used by `lint` and `migrate`; the
//! server itself reads whatever the operator names, as nginx does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nowait_conf::{Contents, Disk, Files};

use crate::builtin::WithBuiltIn;

/// The files of the disk that are regular, and not larger than this.
pub struct RegularFiles {
    /// The largest configuration file, in bytes; that of [`Disk`] counts as well.
    pub bytes_max: u64,
}

impl RegularFiles {
    /// The size of a file.
    ///
    /// # Errors
    /// There is none, or it is not a regular file.
    fn size(path: &Path) -> io::Result<u64> {
        let metadata = fs::metadata(path)?;
        match metadata.is_file() {
            true => Ok(metadata.len()),
            false => Err(io::Error::other("is not a regular file")),
        }
    }
}

impl Files for RegularFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if Self::size(path)? > self.bytes_max {
            let limit = self.bytes_max >> 20;
            return Err(io::Error::other(format!("is larger than {limit} MB")));
        }
        Disk.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        Self::size(path)?;
        Disk.read_named(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Disk.glob(pattern)
    }

    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        WithBuiltIn.fallback(path)
    }
}
