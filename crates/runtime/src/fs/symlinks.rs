//! Opens a path through symbolic links as far as `disable_symlinks` allows.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::{FileKind, Metadata};

/// The symbolic links that a path may lead through (directive `disable_symlinks`). `from` is the length of
/// the trusted part of the path: links in it are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Symlinks {
    #[default]
    Follow,
    /// None: ELOOP.
    Deny { from: usize },
    /// Only those owned by the owner of their target: otherwise ELOOP.
    IfNotOwner { from: usize },
    /// Only those that end inside the trusted part, and unless `hidden`, at no name there that begins
    /// with a dot, or below one: otherwise ELOOP.
    Inside { from: usize, hidden: bool },
}

/// Opens `path` under these rules; may wait.
pub(super) fn open_path(path: &[u8], symlinks: Symlinks, flags: OFlags) -> io::Result<OwnedFd> {
    match symlinks {
        Symlinks::Follow => Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?),
        Symlinks::Deny { from } => {
            open_below(path, from, |dir, rest| Ok(open_without_links(dir, rest, flags)?))
        }
        Symlinks::IfNotOwner { from } => {
            open_below(path, from, |dir, rest| open_owned_links(dir, rest, flags))
        }
        Symlinks::Inside { from, hidden } => {
            open_below(path, from, |dir, rest| open_inside(dir, rest, flags, hidden))
        }
    }
}

/// openat2 implements these rules itself.
fn open_without_links(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(dir, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Splits `path` into the trusted directory and the rest, neither of them empty.
pub(super) fn split_trusted(path: &[u8], from: usize) -> (&[u8], &[u8]) {
    let from = from.min(path.len());
    // Only whole components are trusted.
    let from = if from == path.len() || path[from] == b'/' {
        from
    } else {
        path[..from].iter().rposition(|byte| *byte == b'/').unwrap_or(0)
    };
    let (prefix, rest) = path.split_at(from);
    let rest = rest.iter().position(|byte| *byte != b'/').map_or(&b"."[..], |at| &rest[at..]);
    match prefix {
        b"" if path.first() == Some(&b'/') => (b"/", rest),
        b"" => (b".", rest),
        prefix => (prefix, rest),
    }
}

/// Splits `path` at `from`, opens the first part as a directory and gives the rest to `open`.
fn open_below(
    path: &[u8],
    from: usize,
    open: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<OwnedFd>,
) -> io::Result<OwnedFd> {
    let (prefix, rest) = split_trusted(path, from);
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
    // A name followed by a slash must be a directory.
    let last = match path.last() {
        Some(b'/') => flags | OFlags::DIRECTORY,
        _ => flags,
    };
    while let Some(name) = components.next() {
        let is_last = components.peek().is_none();
        let step = |follow: bool| {
            let base = if is_last { last } else { OFlags::PATH | OFlags::CLOEXEC };
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
        if link.kind != FileKind::Symlink {
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

/// Opens the target of `path` if it is below `dir`. RESOLVE_BENEATH alone would refuse every absolute link,
/// and follow those to hidden names.
fn open_inside(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    hidden: bool,
) -> io::Result<OwnedFd> {
    match open_without_links(dir, path, flags) {
        Err(Errno::LOOP) => {}
        result => return Ok(result?),
    }
    // O_PATH avoids opening files outside, which might have effects.
    let target = rustix::fs::openat(dir, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let (top, real) = (real_path(dir)?, real_path(target.as_fd())?);
    let top = top.strip_suffix(b"/").unwrap_or(&top);
    let below = match real.strip_prefix(top) {
        Some(b"") => &b"."[..],
        Some([b'/', below @ ..]) if !below.is_empty() => below,
        _ => return Err(Errno::LOOP.into()),
    };
    let is_hidden = |name: &[u8]| name.first() == Some(&b'.') && name != b".";
    if !hidden && below.split(|byte| *byte == b'/').any(is_hidden) {
        return Err(Errno::LOOP.into());
    }
    // By the checked path, without links: a file moved meanwhile is not found.
    let flags = if path.last() == Some(&b'/') { flags | OFlags::DIRECTORY } else { flags };
    Ok(open_without_links(dir, below, flags)?)
}

/// The path of an open file without links, as the kernel knows it. It is no absolute one for a file that
/// this process cannot reach by any path.
pub(super) fn real_path(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::readlinkat(CWD, link, Vec::new())?.into_bytes())
}
