//! Files that the program contains, for configurations that include them where none are installed, and the
//! configuration of a built-in site in the form of a file.
//!
//! Used by `config`, which reads configurations through these.

use std::io;
use std::path::{Path, PathBuf};

use nowait_conf::{Contents, Disk, Files};

/// `mime.types`
pub const MIME_TYPES: &str = include_str!("../../../../conf/mime.types");

/// Files of the repository's `conf` that configurations include.
const INCLUDED: &[(&str, &[u8])] = &[
    ("mime.types", MIME_TYPES.as_bytes()),
    ("fastcgi.conf", include_bytes!("../../../../conf/fastcgi.conf")),
    ("fastcgi_params", include_bytes!("../../../../conf/fastcgi_params")),
    ("scgi_params", include_bytes!("../../../../conf/scgi_params")),
    ("uwsgi_params", include_bytes!("../../../../conf/uwsgi_params")),
];

/// The disk plus the built-in files.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithBuiltIn;

impl Files for WithBuiltIn {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Disk.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        Disk.read_named(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Disk.glob(pattern)
    }

    // nginx differs: it installs the files beside its configuration, and fails without them.
    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        let name = path.file_name()?;
        INCLUDED.iter().find(|(known, _)| name == *known).map(|(_, text)| *text)
    }
}

/// The configuration of `nowait serve` or `nowait proxy` as a file, with the disk for the files that it names.
#[derive(Clone, Debug)]
pub struct BuiltinFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The contents.
    pub text: String,
}

impl Files for BuiltinFile {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == self.path {
            return Ok(self.text.clone().into_bytes());
        }
        Disk.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        Disk.read_named(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Disk.glob(pattern)
    }
}
