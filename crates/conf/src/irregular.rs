//! Rejects files that a configuration may not consist of: reading them could block forever.
//!
//! Used by [`Disk`](crate::Disk). Reading a FIFO waits for a writer, and a device may have no end. Allowed
//! are `/dev/null`, which does not block, and the descriptors of the process (`/dev/stdin`, `/dev/fd/63`),
//! which the operator has chosen.

use std::fmt;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// `st_rdev` of `/dev/null`: the numbers 1 and 3, as Linux encodes them.
const NULL_DEVICE: u64 = 0x103;

/// The descriptors of this process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// A file that is not regular, and is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrregularFile(&'static str);

impl IrregularFile {
    /// The hint of the diagnostic.
    pub const HINT: &'static str =
        "name a regular file; a program can pass its output as /dev/stdin";

    /// The error as an [`IrregularFile`], if it is one.
    pub fn of(error: &io::Error) -> Option<IrregularFile> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// The reason with this text, from another process.
    pub fn of_text(text: &str) -> Option<IrregularFile> {
        let kinds = ["a FIFO", "a socket", "a device"].map(IrregularFile);
        kinds.into_iter().find(|irregular| irregular.to_string() == text)
    }

    fn kind(kind: FileType) -> &'static str {
        match kind {
            kind if kind.is_fifo() => "a FIFO",
            kind if kind.is_socket() => "a socket",
            _ => "a device",
        }
    }
}

impl fmt::Display for IrregularFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is not a regular file but {}", self.0)
    }
}

impl std::error::Error for IrregularFile {}

/// Refuses irregular files before they are opened, because opening may block. FIFOs are accepted only if
/// `waits`.
///
/// # Errors
/// [`IrregularFile`], or the system's error. Directories are left to the caller.
pub fn check(path: &Path, waits: bool) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    let kind = metadata.file_type();
    let is_null = kind.is_char_device() && metadata.rdev() == NULL_DEVICE;
    let is_accepted = kind.is_file() || kind.is_dir() || is_null || (waits && kind.is_fifo());
    if is_accepted || is_own(&metadata) {
        return Ok(());
    }
    Err(io::Error::other(IrregularFile(IrregularFile::kind(kind))))
}

/// Whether a descriptor of this process leads to the file.
fn is_own(metadata: &Metadata) -> bool {
    let Ok(descriptors) = std::fs::read_dir(DESCRIPTORS) else { return false };
    descriptors.flatten().any(|entry| {
        std::fs::metadata(entry.path())
            .is_ok_and(|open| (open.dev(), open.ino()) == (metadata.dev(), metadata.ino()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_never_waits_is_read() {
        let directory = std::env::temp_dir().join(format!("irregular-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let fifo = directory.join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for (path, kind) in
            [(&*fifo, "a FIFO"), (&*socket, "a socket"), (Path::new("/dev/zero"), "a device")]
        {
            let error = check(path, false).unwrap_err();
            assert_eq!(IrregularFile::of(&error), Some(IrregularFile(kind)));
        }
        drop(listener);
        let (reader, writer) = io::pipe().unwrap();
        let own = format!("{DESCRIPTORS}/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        for path in [Path::new("/dev/null"), Path::new(&own), &*directory] {
            assert!(check(path, false).is_ok(), "{}", path.display());
        }
        drop((reader, writer));
        assert!(check(&fifo, true).is_ok() && check(&socket, true).is_err());
        let missing = check(&directory.join("missing"), false).unwrap_err();
        assert_eq!((missing.kind(), IrregularFile::of(&missing)), (io::ErrorKind::NotFound, None));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
