//! Looks up names on the loop: only in memory, and only where that is known not to wait.
//!
//! `openat2(RESOLVE_CACHED)` covers the path walk, but not the file system's own open operation,
//! which waits for a server on network and user-space file systems. So the path must be known to
//! end on a file system where it does not: the directory of the name was looked at before, and the
//! name itself is either no symbolic link (O_NOFOLLOW) or has a known target.
//!
//! The loop may look at a directory by itself: with O_PATH no file system opens anything, and
//! statx(AT_STATX_DONT_SYNC) returns the device number from memory. It does so for an unknown
//! directory, and after any mount; the file system behind a device number was determined by a pool
//! thread.
//!
//! One gap remains: a remote file system's mount point itself, looked up as a name in a local
//! directory, is opened inline once. The device number then reveals it, and the name is remembered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, fstat, makedev, openat, openat2,
};
use rustix::io::Errno;

use super::symlinks::split_trusted;
use super::{FileKind, Metadata, Symlinks};
use crate::mounts::{self, Mount, places};

/// openat2 or RESOLVE_CACHED is unavailable (before Linux 5.12, or a container forbids it).
static UNSUPPORTED: AtomicBool = AtomicBool::new(false);

const DIR_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(super) type InlineOpen = (OwnedFd, Metadata, &'static Mount);

/// Whether names are looked up inline at all; known after the first attempt.
pub fn is_supported() -> bool {
    !UNSUPPORTED.load(Relaxed)
}

/// Opens `path` with `flags` if the whole walk is in memory. `None`: needs a pool thread.
pub(super) fn lookup(
    path: &[u8],
    symlinks: Symlinks,
    flags: OFlags,
) -> Option<io::Result<InlineOpen>> {
    if UNSUPPORTED.load(Relaxed) {
        return None;
    }
    let place = match places::place_of_dir(places::parent(path)) {
        Some((place, true)) => place,
        Some((_, false)) | None => confirm_dir(places::parent(path))?,
    };
    if !place.is_inline() || places::place_of_name(path).is_some_and(|place| !place.is_inline()) {
        return None;
    }
    let result = match symlinks {
        Symlinks::Follow => open_following(path, flags),
        Symlinks::Deny { from: 0 } => open_strict(CWD, path, flags),
        // With no links on the path, owners and targets are irrelevant.
        Symlinks::Deny { from }
        | Symlinks::IfNotOwner { from }
        | Symlinks::Inside { from, hidden: _ } => {
            let (dir, rest) = split_trusted(path, from);
            open_cached(CWD, dir, DIR_FLAGS, ResolveFlags::empty())
                .and_then(|dir| open_strict(dir.as_fd(), rest, flags))
        }
    };
    let outcome = match result {
        Ok(fd) => examine(path, fd, place, flags),
        Err(Errno::AGAIN | Errno::INTR | Errno::PERM) => None,
        // A link whose owner or target matters.
        Err(Errno::LOOP)
            if matches!(symlinks, Symlinks::IfNotOwner { .. } | Symlinks::Inside { .. }) =>
        {
            None
        }
        // A link with an unknown target is resolved in the pool.
        Err(Errno::LOOP) if symlinks == Symlinks::Follow => None,
        Err(Errno::NOSYS | Errno::TOOBIG | Errno::INVAL) => {
            // EINVAL also means a path with a NUL byte: the pool will report that again.
            if !path.contains(&0) {
                UNSUPPORTED.store(true, Relaxed);
            }
            None
        }
        Err(error) => Some(Err(error.into())),
    };
    let counters = place.counters();
    mounts::count(match outcome {
        Some(_) => &counters.open_inline,
        None => &counters.open_fallback,
    });
    outcome
}

/// Determines the file system of `dir` without any disk or server; `None`: not in memory, or an
/// unknown file system.
fn confirm_dir(dir: &[u8]) -> Option<&'static Mount> {
    let fd = open_cached(CWD, dir, DIR_FLAGS, ResolveFlags::empty()).ok()?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&fd, c"", flags, StatxFlags::empty()).ok()?;
    let mount = mounts::find(makedev(stat.stx_dev_major, stat.stx_dev_minor))?;
    places::learn_dir(dir, mount);
    Some(mount)
}

fn open_strict(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    open_cached(dir, path, flags, ResolveFlags::NO_SYMLINKS)
}

/// Number of attempts to walk a path from memory.
const TRIES: usize = 3;

/// Opens from memory. The kernel walks without locks and gives up whenever it may have been
/// disturbed: by any mount or unmount anywhere (`mount_lock`), or by a rename of a name on the path
/// or of one in the same hash chain, which makes a name look missing for a moment
/// (`__d_lookup_rcu`); both are more likely if it is preempted midway. With RESOLVE_CACHED the
/// result is EAGAIN, as for a name that is not in memory. Retrying is cheaper than the pool, and
/// costs 2 µs where the name is cold. Names and inodes reclaimed under memory pressure stay cold: a
/// fallback for a recently warm name is not always a fault of this program.
fn open_cached(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    for _ in 1..TRIES {
        match openat2(dir, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    openat2(dir, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED)
}

fn open_following(path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if places::place_of_name(path).is_some() {
        return open_cached(CWD, path, flags, ResolveFlags::empty());
    }
    open_cached(CWD, path, flags | OFlags::NOFOLLOW, ResolveFlags::empty())
}

/// Checks where the walk ended.
fn examine(
    path: &[u8],
    fd: OwnedFd,
    place: &'static Mount,
    flags: OFlags,
) -> Option<io::Result<InlineOpen>> {
    // On an unexpected file system, this call may wait; see the gap described above.
    let metadata = match fstat(&fd) {
        Ok(stat) => Metadata::from_stat(&stat),
        Err(error) => return Some(Err(error.into())),
    };
    // O_PATH with O_NOFOLLOW opens links themselves.
    if metadata.kind == FileKind::Symlink && flags.contains(OFlags::PATH) {
        return None;
    }
    if metadata.dev == place.dev {
        return Some(Ok((fd, metadata, place)));
    }
    match mounts::find(metadata.dev) {
        Some(mount) if mount.is_inline() => Some(Ok((fd, metadata, mount))),
        mount => {
            // The knowledge about the directory may be wrong as well: the pool looks it up again.
            places::forget_dir(places::parent(path));
            if let Some(mount) = mount {
                places::learn_name(path, mount);
            }
            None
        }
    }
}

/// Records the file system of the opened `path` (`fd`), and returns it. May wait.
pub(super) fn learn(path: &[u8], fd: BorrowedFd<'_>, metadata: &Metadata) -> &'static Mount {
    let mount = mounts::of(fd, metadata.dev);
    learn_dir_of(path);
    if metadata.kind == FileKind::Directory {
        places::learn_dir(trim_slashes(path), mount);
    }
    let is_elsewhere = || {
        places::place_of_dir(places::parent(path)).is_some_and(|(dir, _)| dir.dev != mount.dev)
            || openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
                .and_then(fstat)
                .is_ok_and(|stat| Metadata::from_stat(&stat).kind == FileKind::Symlink)
    };
    if places::place_of_name(path).is_none_or(|known| known.dev != mount.dev) && is_elsewhere() {
        places::learn_name(path, mount);
    }
    mount
}

/// Records the file system of the directory of `path`, even if the name itself is missing. May wait.
pub(super) fn learn_dir_of(path: &[u8]) {
    let dir = places::parent(path);
    if places::place_of_dir(dir).is_some_and(|(_, is_sure)| is_sure) {
        return;
    }
    let Ok(fd) = openat(CWD, dir, DIR_FLAGS, Mode::empty()) else { return };
    let Ok(stat) = fstat(&fd) else { return };
    places::learn_dir(dir, mounts::of(fd.as_fd(), Metadata::from_stat(&stat).dev));
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte != b'/') {
        Some(last) => &path[..=last],
        None => b"/",
    }
}
