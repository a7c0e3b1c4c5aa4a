//! The base directories of relative file names.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The base directories of relative names. Prefixes end with `/` and are joined as texts, as in
/// nginx, so that messages show the same names as nginx.
#[derive(Clone, Debug)]
pub struct Paths {
    prefix: Vec<u8>,
    conf_prefix: Vec<u8>,
}

impl Paths {
    /// `prefix` is `-p` or the built-in one; `main` is the configuration file.
    pub fn new(prefix: &Path, main: &Path) -> Paths {
        let mut bytes = prefix.as_os_str().as_bytes().to_vec();
        if !bytes.is_empty() && !bytes.ends_with(b"/") {
            bytes.push(b'/');
        }
        Paths { prefix: bytes, conf_prefix: Self::directory_of(main) }
    }

    pub(crate) fn directory_of(main: &Path) -> Vec<u8> {
        let bytes = main.as_os_str().as_bytes();
        let length = bytes.iter().rposition(|&b| b == b'/').map_or(0, |n| n + 1);
        bytes[..length].to_vec()
    }

    pub(crate) fn join(prefix: &[u8], name: &[u8]) -> Vec<u8> {
        if name.starts_with(b"/") { name.to_vec() } else { [prefix, name].concat() }
    }

    /// A name relative to the prefix: document roots, logs, the pid file.
    pub fn full(&self, name: &[u8]) -> Vec<u8> {
        Self::join(&self.prefix, name)
    }

    /// A name relative to the directory of the main file: certificates, password files.
    pub fn conf_full(&self, name: &[u8]) -> Vec<u8> {
        Self::join(&self.conf_prefix, name)
    }

    /// The prefix with its final `/`.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The directory of the main file with its final `/`.
    pub fn conf_prefix(&self) -> &[u8] {
        &self.conf_prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_texts() {
        let paths = Paths::new(Path::new("/srv"), Path::new("/etc/nowait/main.conf"));
        assert_eq!(paths.full(b"html"), b"/srv/html");
        assert_eq!(paths.full(b"/html"), b"/html");
        assert_eq!(paths.conf_full(b"a.pem"), b"/etc/nowait/a.pem");
        let paths = Paths::new(Path::new(""), Path::new("main.conf"));
        assert_eq!((paths.prefix(), paths.conf_prefix()), (&b""[..], &b""[..]));
    }
}
