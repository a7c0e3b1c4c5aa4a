//! Listing directories: the whole listing in one task of the pool, or in several.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Dir, DirEntry, Mode, OFlags, openat, statat};

use super::symlinks::open_path;
use super::{Io, Kind, Metadata, Name, known, names, offload};
use crate::pool::{Class, Op};

/// What to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirOptions {
    /// Maximum number of entries; the listing tells whether there were more.
    pub entries_max: usize,
    /// Look at each entry (following links): kind, size and times.
    pub metadata: bool,
}

/// One name in a directory; `.` and `..` are left out.
#[derive(Clone, Debug)]
pub struct ListingEntry {
    pub name: Vec<u8>,
    /// The kind of the name itself as the directory stores it: a link is a link. [`Kind::Other`]:
    /// not stored.
    pub kind: Kind,
    /// Metadata of the file that the name leads to, or of the link itself if it is dangling. `None`
    /// if not requested or not permitted.
    pub metadata: Option<Metadata>,
}

/// A directory's entries, in the directory's order.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub entries: Vec<ListingEntry>,
    /// There are more than [`ReadDirOptions::entries_max`].
    pub truncated: bool,
}

/// Lists the directory `path`.
///
/// # Errors
/// `NotADirectory`, and those of openat(2) and getdents(2).
pub async fn read_dir(io: &Io, path: &[u8], options: &ReadDirOptions) -> io::Result<Listing> {
    let (id, path, options) = (known::path_id(path), path.to_vec(), *options);
    offload(io, Class::Bulk, Op::ReadDir, id, move || list(&path, options)).await
}

fn list(path: &[u8], options: ReadDirOptions) -> io::Result<Listing> {
    Open::new(path)?.list(options)
}

/// A directory that is listed in several trips, for directories with more entries than should be in
/// memory at once.
#[derive(Debug)]
pub struct DirReader {
    open: Arc<Mutex<Open>>,
    /// See [`known::path_id`].
    id: u64,
}

impl DirReader {
    /// Opens the directory `path`.
    ///
    /// # Errors
    /// `NotADirectory`, and those of openat(2).
    pub async fn open(io: &Io, path: &[u8]) -> io::Result<DirReader> {
        let id = known::path_id(path);
        let path = path.to_vec();
        let work = move || {
            let open = Arc::new(Mutex::new(Open::new(&path)?));
            Ok(DirReader { open, id })
        };
        offload(io, Class::Path, Op::Open, id, work).await
    }

    /// Opens the directory that a name leads to, under its rules for links.
    ///
    /// # Errors
    /// `NotADirectory`, and those of openat2(2).
    pub async fn open_name(io: &Io, name: &Name) -> io::Result<DirReader> {
        let (id, name) = (name.id(), name.clone());
        let work = move || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = Open::of(open_path(&name.path, name.symlinks, flags)?)?;
            Ok(DirReader { open: Arc::new(Mutex::new(open)), id })
        };
        offload(io, Class::Path, Op::Open, id, work).await
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
        offload(io, Class::Bulk, Op::Read, self.id, work).await
    }

    /// The next entries. If not [truncated](Listing::truncated), these were the last.
    ///
    /// # Errors
    /// Those of getdents(2).
    pub async fn next(&mut self, io: &Io, options: &ReadDirOptions) -> io::Result<Listing> {
        let (open, options) = (self.open.clone(), *options);
        let work = move || open.lock().unwrap_or_else(PoisonError::into_inner).list(options);
        offload(io, Class::Bulk, Op::ReadDir, self.id, work).await
    }
}

#[derive(Debug)]
struct Open {
    fd: OwnedFd,
    dir: Dir,
    /// Already read, but did not fit into the last listing.
    kept: Option<DirEntry>,
}

impl Open {
    fn new(path: &[u8]) -> io::Result<Open> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Open::of(openat(CWD, path, flags, Mode::empty())?)
    }

    fn of(fd: OwnedFd) -> io::Result<Open> {
        let dir = Dir::read_from(&fd)?;
        Ok(Open { fd, dir, kept: None })
    }

    fn list(&mut self, options: ReadDirOptions) -> io::Result<Listing> {
        let mut listing = Listing::default();
        loop {
            let entry = match self.kept.take() {
                Some(entry) => entry,
                None => match self.dir.read() {
                    Some(entry) => entry?,
                    None => return Ok(listing),
                },
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if listing.entries.len() == options.entries_max {
                listing.truncated = true;
                self.kept = Some(entry);
                return Ok(listing);
            }
            let metadata = if options.metadata { look(self.fd.as_fd(), name) } else { None };
            listing.entries.push(ListingEntry {
                name: name.to_vec(),
                kind: Kind::from_type(entry.file_type()),
                metadata,
            });
        }
    }
}

fn look(dir: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> Option<Metadata> {
    statat(dir, name, AtFlags::empty())
        .or_else(|_| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))
        .ok()
        .map(|stat| Metadata::from_stat(&stat))
}
