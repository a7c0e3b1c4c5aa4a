//! Opening and looking at names.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::file::Handle;
use super::{File, Io, Kind, Metadata, offload};
use crate::mounts;
use crate::pool::{Class, Op, Pool};

/// Which symbolic links a path may lead through (directive `disable_symlinks`). `from` is the length
/// of the path's part that is trusted: links in it are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    #[default]
    Follow,
    /// None: ELOOP.
    Deny { from: usize },
    /// Only those that have the owner of what they lead to: else ELOOP.
    IfNotOwner { from: usize },
}

/// How a file is opened for reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    pub symlinks: Symlinks,
    /// When the opening needs the pool, read so many first bytes in the same trip (at most
    /// [`PREFETCH_MAX`]); [`File::read_at`] then serves them from memory. 0: none, as for HEAD.
    pub prefetch: usize,
}

/// Bound of [`OpenOptions::prefetch`] in bytes.
pub const PREFETCH_MAX: usize = 64 * 1024;

/// Flags of every opening: a FIFO without a writer never blocks, a terminal is never taken over.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens what `path` leads to, for reading. It may be anything, also a directory: see
/// [`Metadata::kind`] of the result before reading.
///
/// # Errors
/// Those of openat2(2); EINVAL for a path with a NUL byte; ELOOP for links that
/// [`OpenOptions::symlinks`] forbids.
pub async fn open(io: &Io, path: &[u8], options: &OpenOptions) -> io::Result<File> {
    let (path, options, pool, settings) =
        (path.to_vec(), *options, io.pool.clone(), Settings::of(io));
    let work = move || open_waiting(pool, &path, &options, settings);
    offload(io, Class::Path, Op::Open, work).await
}

/// Metadata of what `path` leads to. With [`Symlinks::Deny`] or [`Symlinks::IfNotOwner`] a forbidden
/// link is ELOOP.
///
/// # Errors
/// Those of openat2(2).
pub async fn stat(io: &Io, path: &[u8], symlinks: Symlinks) -> io::Result<Metadata> {
    let path = path.to_vec();
    let work = move || {
        let fd = open_path(&path, symlinks, OFlags::PATH | OFlags::CLOEXEC)?;
        Ok(Metadata::from_stat(&rustix::fs::fstat(&fd)?))
    };
    offload(io, Class::Path, Op::Stat, work).await
}

/// Reads a whole small file in one trip.
///
/// # Errors
/// `FileTooLarge` (EFBIG) when it has more than `max` bytes; EISDIR and the like.
pub async fn read(io: &Io, path: &[u8], max: usize) -> io::Result<Bytes> {
    let path = path.to_vec();
    let work = move || {
        let fd = rustix::fs::openat(CWD, path, FLAGS, Mode::empty())?;
        let mut buffer = Vec::new();
        nowait_sys::fs::read_at(fd.as_fd(), 0, max.saturating_add(1), &mut buffer)?;
        if buffer.len() > max {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(Bytes::from(buffer))
    };
    offload(io, Class::Path, Op::Read, work).await
}

/// What of [`Io`] an opening in the pool needs.
#[derive(Clone, Copy)]
struct Settings {
    directio: Option<u64>,
    directio_alignment: u32,
}

impl Settings {
    fn of(io: &Io) -> Settings {
        Settings { directio: io.directio, directio_alignment: io.directio_alignment }
    }
}

/// Opens and touches; may wait.
fn open_waiting(
    pool: Pool,
    path: &[u8],
    options: &OpenOptions,
    settings: Settings,
) -> io::Result<File> {
    let fd = open_path(path, options.symlinks, FLAGS)?;
    let metadata = Metadata::from_stat(&rustix::fs::fstat(&fd)?);
    let mount = mounts::of(fd.as_fd(), metadata.dev);
    mounts::count(&mount.counters.open_pool);
    let direct = set_direct(fd.as_fd(), &metadata, settings);
    let handle = Handle::new(fd, metadata, mount, direct, pool);
    let mut head = Vec::new();
    if metadata.is_file() && direct.is_none() {
        let len = options.prefetch.min(PREFETCH_MAX).min(metadata.size as usize);
        if len > 0 {
            nowait_sys::fs::read_at(handle.as_fd(), 0, len, &mut head)?;
            handle.touched.store(true, Relaxed);
        }
    }
    Ok(File { handle: Arc::new(handle), head: Bytes::from(head) })
}

/// Turns on direct I/O for large files. Not every file system can; then the page cache is used, as
/// nginx does (with an alert there).
fn set_direct(fd: BorrowedFd<'_>, metadata: &Metadata, settings: Settings) -> Option<u32> {
    if !metadata.is_file() || settings.directio.is_none_or(|least| metadata.size < least) {
        return None;
    }
    rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK | OFlags::DIRECT).ok()?;
    Some(settings.directio_alignment)
}

fn open_path(path: &[u8], symlinks: Symlinks, flags: OFlags) -> io::Result<OwnedFd> {
    match symlinks {
        Symlinks::Follow => Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?),
        Symlinks::Deny { from } => {
            open_below(path, from, |dir, rest| Ok(open_without_links(dir, rest, flags)?))
        }
        Symlinks::IfNotOwner { from } => {
            open_below(path, from, |dir, rest| open_owned_links(dir, rest, flags))
        }
    }
}

fn open_without_links(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(dir, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Splits `path` at `from`, opens the first part as a directory and gives the rest to `open`.
fn open_below(
    path: &[u8],
    from: usize,
    open: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<OwnedFd>,
) -> io::Result<OwnedFd> {
    let from = from.min(path.len());
    // Only whole components are trusted.
    let from = if from == path.len() || path[from] == b'/' {
        from
    } else {
        path[..from].iter().rposition(|byte| *byte == b'/').unwrap_or(0)
    };
    let (prefix, rest) = path.split_at(from);
    let rest = rest.iter().position(|byte| *byte != b'/').map_or(&b"."[..], |at| &rest[at..]);
    if prefix.is_empty() {
        let start: &[u8] = if path.first() == Some(&b'/') { b"/" } else { b"." };
        let dir = open_dir(CWD, start)?;
        return open(dir.as_fd(), rest);
    }
    let dir = open_dir(CWD, prefix)?;
    open(dir.as_fd(), rest)
}

fn open_dir(at: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

/// Walks `path` one component at a time and follows only links that have the owner of their target.
fn open_owned_links(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let mut current = open_dir(dir, b".")?;
    let mut components =
        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = components.next() {
        let is_last = components.peek().is_none();
        let step = |follow: bool| {
            let base = if is_last { flags } else { OFlags::PATH | OFlags::CLOEXEC };
            let flags = if follow { base } else { base | OFlags::NOFOLLOW };
            rustix::fs::openat(&current, name, flags, Mode::empty())
        };
        let link = rustix::fs::openat(
            &current,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let link = Metadata::from_stat(&rustix::fs::fstat(&link)?);
        if link.kind != Kind::Symlink {
            current = step(false)?;
            continue;
        }
        let target = step(true)?;
        if rustix::fs::fstat(&target)?.st_uid != link.uid {
            return Err(Errno::LOOP.into());
        }
        current = target;
    }
    if path.iter().all(|byte| *byte == b'/' || *byte == b'.') {
        return Ok(rustix::fs::openat(&current, ".", flags, Mode::empty())?);
    }
    Ok(current)
}
