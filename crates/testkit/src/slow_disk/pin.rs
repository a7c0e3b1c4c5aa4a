//! Keeps files in memory under all circumstances.
//!
//! A kernel may drop a page of the page cache at any time: because memory is short, or because the
//! host of a virtual machine wants it back (some hosts reclaim everything that no process has
//! mapped for half a minute). A test that relies on data being in memory must make sure of it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

/// Maximum size of a pinned file: the largest pipe available to unprivileged users.
const BYTES_MAX: u64 = 1 << 20;

/// Keeps a file's name, its inode and its pages in memory. Drop it before the file system is unmounted.
#[derive(Debug)]
pub struct PinnedFile {
    /// Keeps name and inode.
    _file: File,
    /// The contents refer to the pages of the page cache, which keeps them in use.
    _pipe: (OwnedFd, OwnedFd),
}

/// Reads a file of at most 1 MB and keeps it in memory.
///
/// # Panics
/// If it cannot be read, or is larger.
#[track_caller]
pub fn pin(path: &Path) -> PinnedFile {
    try_pin(path).unwrap_or_else(|e| panic!("keep {} in memory: {e}", path.display()))
}

fn try_pin(path: &Path) -> io::Result<PinnedFile> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let (read, write) = pipe()?;
    fcntl_setpipe_size(&write, BYTES_MAX as usize)?;
    let mut offset = 0;
    while offset < size {
        let rest = (size - offset) as usize;
        // Full before the end: this is an error then.
        let flags = SpliceFlags::NONBLOCK;
        if splice(&file, Some(&mut offset), &write, None, rest, flags)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(PinnedFile { _file: file, _pipe: (read, write) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn keeps_files_of_all_sizes() {
        let dir = TempDir::new("pin");
        for size in [0, 1, 5000, 1 << 20] {
            let path = dir.write("file", vec![b'x'; size]);
            pin(&path);
        }
        let path = dir.write("file", vec![b'x'; (1 << 20) + 1]);
        assert!(try_pin(&path).is_err());
    }
}
