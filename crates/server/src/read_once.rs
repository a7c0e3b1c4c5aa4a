//! Files that can be read only once: FIFOs with passwords (`ssl_password_file`).
//!
//! Passwords are written when the server starts, and not afterwards. So a running server keeps the
//! contents: a reload and `ssl_certificate_watch` take them from [`KnownFiles`], and commands that only
//! need to find the running server skip such files ([`WithoutFifos`]).
//!
//! nginx differs: it waits for a FIFO with each reload, and with each `-s`.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use nowait_conf::{Bundle, Contents, Files};

/// Whether a file keeps its contents when it is read. True for a missing file, so that its error is
/// reported.
fn keeps_contents(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |metadata| metadata.is_file() || metadata.is_dir())
}

/// Files for what follows a running configuration.
pub struct KnownFiles<'a> {
    /// The source of texts.
    pub files: &'a dyn Files,
    /// The texts of the running configuration.
    pub running: &'a Bundle,
}

impl Files for KnownFiles<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        match self.running.read_named(path) {
            Ok(known) if !keeps_contents(path) => Ok(known),
            _ => self.files.read_named(path),
        }
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        self.files.glob(pattern)
    }

    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        self.files.fallback(path)
    }
}

/// The reason why such a file was not read.
pub const ONCE: &str = "it can be read only once, which is for the server";

/// Files of which some may be missing, because of [`ONCE`] or because a disk does not answer.
pub struct PartialFiles<'a> {
    files: &'a dyn Files,
    lacks_some: Cell<bool>,
}

impl<'a> PartialFiles<'a> {
    pub fn of(files: &'a dyn Files) -> PartialFiles<'a> {
        PartialFiles { files, lacks_some: Cell::new(false) }
    }

    /// Whether a file was missing.
    pub fn lacks_some(&self) -> bool {
        self.lacks_some.get()
    }
}

impl Files for PartialFiles<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        self.files.read_named(path).inspect_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut || error.to_string() == ONCE {
                self.lacks_some.set(true);
            }
        })
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        self.files.glob(pattern)
    }

    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        self.files.fallback(path)
    }
}

/// The files except those that can be read only once.
pub struct WithoutFifos<'a> {
    files: &'a dyn Files,
}

impl<'a> WithoutFifos<'a> {
    pub fn of(files: &'a dyn Files) -> WithoutFifos<'a> {
        WithoutFifos { files }
    }
}

impl Files for WithoutFifos<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        if keeps_contents(path) {
            return self.files.read_named(path);
        }
        Err(io::Error::other(ONCE))
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        self.files.glob(pattern)
    }

    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        self.files.fallback(path)
    }
}
