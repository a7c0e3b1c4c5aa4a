//! Listing directories: the whole listing in one task of the pool, or in several.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, fstat, openat, statat};
use rustix::io::Errno;

use super::symlinks::open_path;
use super::target::Target;
use super::{FileKind, Io, Metadata, Name, Symlinks, names, offload};
use crate::pool::{Class, Op};

/// Options of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirOptions {
    /// Maximum number of entries; the listing records whether there were more.
    pub entries_max: usize,
    /// Look at each entry (following links): kind, size and times. Links that [`Symlinks::Inside`] forbids
    /// are left out then.
    pub metadata: bool,
}

/// One name in a directory; `.` and `..` are left out.
#[derive(Clone, Debug)]
pub struct ListingEntry {
    pub name: Vec<u8>,
    /// The kind of the name itself as the directory stores it: a link is a link. [`FileKind::Other`]:
    /// not stored.
    pub kind: FileKind,
    /// Metadata of the file that the name leads to, or of the link itself if it is dangling. `None`
    /// if not requested or not permitted.
    pub metadata: Option<Metadata>,
}

/// A directory's entries, in no particular order.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub entries: Vec<ListingEntry>,
    /// There are more than [`ReadDirOptions::entries_max`].
    pub truncated: bool,
}

/// Lists a directory.
///
/// # Errors
/// `NotADirectory`, and those of openat2(2) and getdents(2).
pub async fn read_dir(io: &Io, name: &Name, options: &ReadDirOptions) -> io::Result<Listing> {
    let (target, name, options) = (name.target(), name.clone(), *options);
    let work = move || OpenDirectory::new(name)?.list(options);
    offload(io, Class::Bulk, Op::ReadDir, target, work).await
}

/// A directory that is listed in several trips, for directories with more entries than should be in
/// memory at once.
#[derive(Debug)]
pub struct DirReader {
    open: Arc<Mutex<OpenDirectory>>,
    target: Target,
}

impl DirReader {
    /// Opens the directory `path`.
    ///
    /// # Errors
    /// `NotADirectory`, and those of openat(2).
    pub async fn open(io: &Io, path: &[u8]) -> io::Result<DirReader> {
        let name = Name { path: path.to_vec(), symlinks: Symlinks::Follow };
        DirReader::open_name(io, &name).await
    }

    /// Opens the directory that a name leads to, under its rules for links.
    ///
    /// # Errors
    /// `NotADirectory`, and those of openat2(2).
    pub async fn open_name(io: &Io, name: &Name) -> io::Result<DirReader> {
        let (target, name) = (name.target(), name.clone());
        let work = move || {
            let open = Arc::new(Mutex::new(OpenDirectory::new(name)?));
            Ok(DirReader { open, target })
        };
        offload(io, Class::Path, Op::Open, target, work).await
    }

    /// The values of an extended attribute of some of its files and directories, in one trip; empty where
    /// it is not set, or can't be read.
    ///
    /// # Errors
    /// The pool does not accept the work.
    pub async fn attributes(
        &self,
        io: &Io,
        names: Vec<Vec<u8>>,
        attribute: &'static CStr,
    ) -> io::Result<Vec<Vec<u8>>> {
        let open = self.open.clone();
        let work = move || {
            let open = open.lock().unwrap_or_else(PoisonError::into_inner);
            let flags = OFlags::RDONLY
                | OFlags::NONBLOCK
                | OFlags::NOFOLLOW
                | OFlags::CLOEXEC
                | OFlags::NOCTTY;
            let value = |name: Vec<u8>| {
                let file = openat(&open.fd, name, flags, Mode::empty()).ok()?;
                names::get(file.as_fd(), attribute).ok()
            };
            Ok(names.into_iter().map(|name| value(name).unwrap_or_default()).collect())
        };
        offload(io, Class::Bulk, Op::Read, self.target, work).await
    }

    /// The next entries. If not [truncated](Listing::truncated), these were the last.
    ///
    /// # Errors
    /// Those of getdents(2).
    pub async fn next(&mut self, io: &Io, options: &ReadDirOptions) -> io::Result<Listing> {
        let (open, options) = (self.open.clone(), *options);
        let work = move || open.lock().unwrap_or_else(PoisonError::into_inner).list(options);
        offload(io, Class::Bulk, Op::ReadDir, self.target, work).await
    }
}

/// Bytes of entries that are asked for at once: some hundred names.
const BUFFER_BYTES: usize = 64 * 1024;

#[derive(Debug)]
struct OpenDirectory {
    fd: OwnedFd,
    /// The directory's path, if rules apply to its links.
    ruled: Option<Name>,
    /// Already read, but did not fit into the last listing.
    kept: VecDeque<RawEntry>,
}

/// An entry as the directory has it.
#[derive(Debug)]
struct RawEntry {
    name: CString,
    kind: FileKind,
    ino: u64,
}

impl OpenDirectory {
    fn new(name: Name) -> io::Result<OpenDirectory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open_path(&name.path, name.symlinks, flags)?;
        let ruled = matches!(name.symlinks, Symlinks::Inside { .. }).then_some(name);
        Ok(OpenDirectory { fd, ruled, kept: VecDeque::new() })
    }

    fn list(&mut self, options: ReadDirOptions) -> io::Result<Listing> {
        let mut found = Vec::new();
        let truncated = self.read(options.entries_max, &mut found)?;
        if options.metadata {
            // Most file systems keep inodes in this order: a cold directory is then read from one end of
            // the disk to the other.
            found.sort_unstable_by_key(|found| found.ino);
        }
        let entry = |found: RawEntry| {
            let metadata = match options.metadata {
                true => self.look(&found).ok()?,
                false => None,
            };
            Some(ListingEntry { name: found.name.into_bytes(), kind: found.kind, metadata })
        };
        Ok(Listing { entries: found.into_iter().filter_map(entry).collect(), truncated })
    }

    /// Reads at most `max` entries; true: there are more.
    fn read(&mut self, max: usize, found: &mut Vec<RawEntry>) -> io::Result<bool> {
        let kept = self.kept.len().min(max);
        found.extend(self.kept.drain(..kept));
        if !self.kept.is_empty() {
            return Ok(true);
        }
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut dir = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        // Entries already read from the kernel are kept, even if the listing is full, because they can't be
        // read again.
        while found.len() <= max || !dir.is_buffer_empty() {
            let Some(entry) = dir.next() else { break };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = FileKind::from_type(entry.file_type());
            found.push(RawEntry { name: name.to_owned(), kind, ino: entry.ino() });
        }
        if found.len() > max {
            self.kept.extend(found.drain(max..));
        }
        Ok(!self.kept.is_empty())
    }

    /// Metadata of the file that a name leads to; an error if the rules for links forbid that.
    fn look(&self, found: &RawEntry) -> io::Result<Option<Metadata>> {
        let stat =
            |flags| statat(&self.fd, &found.name, flags).map(|stat| Metadata::from_stat(&stat));
        let own = || stat(AtFlags::SYMLINK_NOFOLLOW).ok();
        let Some(dir) = self.ruled.as_ref().filter(|_| may_be_link(found.kind)) else {
            return Ok(stat(AtFlags::empty()).ok().or_else(own));
        };
        if own().is_some_and(|own| own.kind != FileKind::Symlink) {
            return Ok(own());
        }
        let path = [&dir.path, &b"/"[..], found.name.to_bytes()].concat();
        match open_path(&path, dir.symlinks, OFlags::PATH | OFlags::CLOEXEC) {
            Ok(target) => Ok(Some(Metadata::from_stat(&fstat(&target)?))),
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Err(error),
            Err(_) => Ok(own()),
        }
    }
}

/// Whether an entry may be a link: some file systems store no kinds.
fn may_be_link(kind: FileKind) -> bool {
    matches!(kind, FileKind::Symlink | FileKind::Other)
}
