//! The source of configuration texts: the disk, or a recorded bundle of the same texts.
//!
//! The master reads from [`Disk`] and passes the [`Bundle`] of its texts to the server process,
//! which parses the same texts without reading a file. Files that directives name, such as
//! certificates and keys, travel with them; `-T` prints only the texts.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::{Zeroize, Zeroizing};

use crate::{glob, irregular};

/// The contents of a file that may be a secret; wiped on drop.
pub type Contents = Zeroizing<Vec<u8>>;

/// A source of configuration files.
pub trait Files {
    /// The whole content of a file.
    ///
    /// # Errors
    /// It can't be read, or could be waited for forever: it is [irregular](crate::IrregularFile).
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Like [`read`](Self::read), with contents shared by all readers.
    ///
    /// # Errors
    /// Like [`read`](Self::read).
    fn shared(&self, path: &Path) -> io::Result<Arc<Vec<u8>>> {
        self.read(path).map(Arc::new)
    }

    /// The whole content of a file that a directive names, which may be a secret.
    ///
    /// # Errors
    /// It can't be read, or is larger than [`NAMED_BYTES_MAX`].
    fn read_named(&self, path: &Path) -> io::Result<Contents>;

    /// The paths that match a glob(3) pattern, sorted bytewise; none is no error.
    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>>;

    /// The built-in replacement of an included file that does not exist; with a warning if the name
    /// has a directory.
    fn fallback(&self, _path: &Path) -> Option<&'static [u8]> {
        None
    }
}

/// The largest file that a directive may name, in bytes.
pub const NAMED_BYTES_MAX: u64 = 16 << 20;

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Disk {
    /// The largest configuration file accepted, in bytes.
    pub const FILE_BYTES_MAX: u64 = 64 << 20;
}

/// Reads a file of at most `bytes_max`.
fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::from_raw_os_error(EISDIR));
    }
    // With room for all of it from the beginning, so that growing leaves no copies behind.
    let size = metadata.len().min(bytes_max) + 1;
    let mut text = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(bytes_max + 1).read_to_end(&mut text)?;
    if text.len() as u64 > bytes_max {
        text.zeroize();
        return Err(io::Error::from_raw_os_error(EFBIG));
    }
    Ok(text)
}

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        irregular::check(path, false)?;
        read(path, Self::FILE_BYTES_MAX)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        // nginx reads passwords from FIFOs, into which the operator writes them at each start.
        irregular::check(path, true)?;
        read(path, NAMED_BYTES_MAX).map(Zeroizing::new)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        glob::glob(pattern)
    }
}

/// Recorded texts and glob results, in the order of their first reading.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    files: Vec<(PathBuf, Arc<Vec<u8>>)>,
    index: HashMap<PathBuf, usize>,
    globs: HashMap<Vec<u8>, Vec<PathBuf>>,
    named: HashMap<PathBuf, Contents>,
    /// The files that the server itself writes, whether they exist or not. Not in the bytes: only the process that
    /// interpreted the texts needs them.
    states: BTreeSet<PathBuf>,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle")
            .field("files", &self.files)
            .field("globs", &self.globs)
            .field("named", &self.named.keys())
            .finish_non_exhaustive()
    }
}

impl Bundle {
    /// Adds a file; a path that is there already keeps its first text.
    pub fn add(&mut self, path: impl Into<PathBuf>, text: impl Into<Vec<u8>>) {
        self.add_shared(path.into(), Arc::new(text.into()));
    }

    /// Like [`add`](Self::add); returns the kept text if it is the same.
    pub(crate) fn add_shared(&mut self, path: PathBuf, text: Arc<Vec<u8>>) -> Arc<Vec<u8>> {
        match self.index.get(&path) {
            Some(&at) => match &self.files[at].1 {
                known if *known == text => known.clone(),
                _ => text,
            },
            None => {
                self.index.insert(path.clone(), self.files.len());
                self.files.push((path, text.clone()));
                text
            }
        }
    }

    /// Adds the result of a glob pattern.
    pub fn add_glob(&mut self, pattern: &[u8], paths: Vec<PathBuf>) {
        self.globs.entry(pattern.to_vec()).or_insert(paths);
    }

    /// Adds a file that a directive names.
    pub fn add_named(&mut self, path: impl Into<PathBuf>, contents: Contents) {
        self.named.entry(path.into()).or_insert(contents);
    }

    /// Sets the files that the server itself writes.
    pub(crate) fn set_states(&mut self, paths: BTreeSet<PathBuf>) {
        self.states = paths;
    }

    /// Whether there are files that the server itself writes.
    pub fn has_states(&self) -> bool {
        !self.states.is_empty()
    }

    /// Whether the server itself writes a file.
    pub fn is_state(&self, path: &Path) -> bool {
        self.states.contains(path)
    }

    /// The files that directives name and only operators write, with their contents.
    pub fn named_by_operators(&self) -> impl Iterator<Item = (&Path, &Contents)> {
        self.named().filter(|(path, _)| !self.is_state(path))
    }

    /// The files that directives name, with their contents.
    pub fn named(&self) -> impl Iterator<Item = (&Path, &Contents)> {
        self.named.iter().map(|(path, contents)| (path.as_path(), contents))
    }

    /// The files with their texts, in the order of their first reading: what `-T` prints.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.files.iter().map(|(path, text)| (path.as_path(), text.as_slice()))
    }

    /// The output of `-T`: each file once, under a line with its name, byte for byte.
    pub fn dump(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, text) in self.iter() {
            out.extend_from_slice(b"# configuration file ");
            out.extend_from_slice(path.as_os_str().as_bytes());
            out.extend_from_slice(b":\n");
            out.extend_from_slice(text);
            out.push(b'\n');
        }
        out
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&[u8]> {
        self.index.get(path).map(|&n| self.files[n].1.as_slice())
    }

    /// A byte string that [`Bundle::from_bytes`] turns back into this bundle.
    pub fn to_bytes(&self) -> Contents {
        let named: usize = self.named.values().map(|contents| contents.len()).sum();
        let texts: usize = self.files.iter().map(|(_, text)| text.len()).sum();
        let paths = self.globs.values().map(Vec::len).sum::<usize>() + self.globs.len();
        let paths = paths + self.files.len() + self.named.len();
        let mut out = Vec::with_capacity(named + texts + paths * ENTRY_BYTES);
        // Contents to be wiped come first: they fit, so growing leaves no copy of them behind.
        let mut named: Vec<_> = self.named.iter().collect();
        named.sort_by_key(|(path, _)| *path);
        put_count(&mut out, named.len());
        for (path, contents) in named {
            put_bytes(&mut out, path.as_os_str().as_bytes());
            put_bytes(&mut out, contents);
        }
        put_count(&mut out, self.files.len());
        for (path, text) in &self.files {
            put_bytes(&mut out, path.as_os_str().as_bytes());
            put_bytes(&mut out, text);
        }
        let mut globs: Vec<_> = self.globs.iter().collect();
        globs.sort();
        put_count(&mut out, globs.len());
        for (pattern, paths) in globs {
            put_bytes(&mut out, pattern);
            put_count(&mut out, paths.len());
            for path in paths {
                put_bytes(&mut out, path.as_os_str().as_bytes());
            }
        }
        Zeroizing::new(out)
    }

    /// The bundle that [`Bundle::to_bytes`] wrote; `None` if the bytes are not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Bundle> {
        let mut rest = bytes;
        let mut bundle = Bundle::default();
        for _ in 0..take_count(&mut rest)? {
            let path = take_path(&mut rest)?;
            let contents = Zeroizing::new(take_bytes(&mut rest)?.to_vec());
            bundle.add_named(path, contents);
        }
        for _ in 0..take_count(&mut rest)? {
            let path = take_path(&mut rest)?;
            let text = take_bytes(&mut rest)?.to_vec();
            bundle.add(path, text);
        }
        for _ in 0..take_count(&mut rest)? {
            let pattern = take_bytes(&mut rest)?.to_vec();
            let mut paths = Vec::new();
            for _ in 0..take_count(&mut rest)? {
                paths.push(take_path(&mut rest)?);
            }
            bundle.globs.insert(pattern, paths);
        }
        rest.is_empty().then_some(bundle)
    }
}

impl Files for Bundle {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.get(path).map(<[u8]>::to_vec).ok_or_else(|| io::Error::from_raw_os_error(ENOENT))
    }

    fn shared(&self, path: &Path) -> io::Result<Arc<Vec<u8>>> {
        let known = self.index.get(path).map(|&at| self.files[at].1.clone());
        known.ok_or_else(|| io::Error::from_raw_os_error(ENOENT))
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        self.named.get(path).cloned().ok_or_else(|| io::Error::from_raw_os_error(ENOENT))
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Ok(self.globs.get(pattern).cloned().unwrap_or_default())
    }
}

/// The usual size of a path and its lengths on the wire; longer paths only cost a reallocation.
const ENTRY_BYTES: usize = 512;

const ENOENT: i32 = 2;
const EISDIR: i32 = 21;
const EFBIG: i32 = 27;

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u64).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn take_count(rest: &mut &[u8]) -> Option<usize> {
    let (count, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    usize::try_from(u64::from_le_bytes(*count)).ok()
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = take_count(rest)?;
    let (bytes, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    Some(bytes)
}

fn take_path(rest: &mut &[u8]) -> Option<PathBuf> {
    Some(PathBuf::from(OsString::from_vec(take_bytes(rest)?.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_survives_the_wire() {
        let mut bundle = Bundle::default();
        bundle.add("/etc/a.conf", "first");
        bundle.add("/etc/b.conf", vec![0xff, 0]);
        bundle.add("/etc/a.conf", "second reading is not recorded");
        bundle.add_glob(b"/etc/*.conf", vec!["/etc/a.conf".into(), "/etc/b.conf".into()]);
        bundle.add_named("/etc/key.pem", Zeroizing::new(b"secret".to_vec()));
        let bytes = bundle.to_bytes();
        assert_eq!(Bundle::from_bytes(&bytes), Some(bundle.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(Bundle::from_bytes(&bytes[..cut]), None);
        }
        assert_eq!(bundle.read(Path::new("/etc/a.conf")).unwrap(), b"first");
        assert_eq!(bundle.read(Path::new("/x")).unwrap_err().raw_os_error(), Some(2));
        let dump = b"# configuration file /etc/a.conf:\nfirst\n# configuration file /etc/b.conf:\n\xff\0\n";
        assert_eq!(bundle.dump(), dump);
        assert_eq!(**bundle.read_named(Path::new("/etc/key.pem")).unwrap(), *b"secret");
        assert!(bundle.read_named(Path::new("/etc/a.conf")).is_err());
        assert!(!format!("{bundle:?}").contains("115, 101"));
        let names: Vec<_> = bundle.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(names, ["/etc/a.conf", "/etc/b.conf"]);
    }
}
