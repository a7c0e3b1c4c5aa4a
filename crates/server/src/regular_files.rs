//! Configuration files of any origin, for commands that only examine them: limited in size, and regular
//! files only. [`Disk`] refuses most others, but accepts a FIFO with passwords, which only the server may
//! read. Used by `lint` and `migrate`.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nowait_conf::{Contents, Disk, Files};

use crate::builtin::WithBuiltIn;

/// The files of the disk that are not larger than this, and no FIFOs.
pub struct RegularFiles {
    /// The largest configuration file, in bytes; that of [`Disk`] counts as well.
    pub bytes_max: u64,
}

impl Files for RegularFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if fs::metadata(path)?.len() > self.bytes_max {
            let limit = self.bytes_max >> 20;
            return Err(io::Error::other(format!("is larger than {limit} MB")));
        }
        Disk.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        if fs::metadata(path)?.file_type().is_fifo() {
            return Err(io::Error::other("it is a FIFO, which may be for the server"));
        }
        Disk.read_named(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Disk.glob(pattern)
    }

    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        WithBuiltIn.fallback(path)
    }
}
