//! Listing directories: the whole listing in one task of the pool.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, statat};

use super::{Io, Kind, Metadata, offload};
use crate::pool::{Class, Op};

/// What to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirOptions {
    /// How many entries at most; the listing says when there were more.
    pub entries_max: usize,
    /// Look at each entry (following links): kind, size and times.
    pub metadata: bool,
}

/// One name in a directory; `.` and `..` are left out.
#[derive(Clone, Debug)]
pub struct ListingEntry {
    pub name: Vec<u8>,
    /// As the directory says it, of the name itself: a link is a link. [`Kind::Other`]: not said.
    pub kind: Kind,
    /// Of what the name leads to, or of the link itself if it leads nowhere. `None` when not asked
    /// for or not allowed.
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
    let (path, options) = (path.to_vec(), *options);
    offload(io, Class::Bulk, Op::ReadDir, move || list(&path, options)).await
}

fn list(path: &[u8], options: ReadDirOptions) -> io::Result<Listing> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(CWD, path, flags, Mode::empty())?;
    let mut listing = Listing::default();
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if listing.entries.len() == options.entries_max {
            listing.truncated = true;
            break;
        }
        let metadata = if options.metadata { look(fd.as_fd(), name) } else { None };
        listing.entries.push(ListingEntry {
            name: name.to_vec(),
            kind: Kind::from_type(entry.file_type()),
            metadata,
        });
    }
    Ok(listing)
}

fn look(dir: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> Option<Metadata> {
    statat(dir, name, AtFlags::empty())
        .or_else(|_| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))
        .ok()
        .map(|stat| Metadata::from_stat(&stat))
}
