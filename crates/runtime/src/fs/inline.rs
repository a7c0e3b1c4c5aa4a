//! Looking names up on the loop: only what is in memory, only where that is known not to wait.
//!
//! `openat2(RESOLVE_CACHED)` covers the walk along the path, not the file system's own opening of
//! the file, which waits for a server on network and user-space file systems. So the way must be
//! known to end on a file system where it does not: the directory of the name was looked at before,
//! and the name itself is no symbolic link (O_NOFOLLOW) or its end is known as well.
//!
//! The loop may look at a directory by itself: with O_PATH no file system opens anything, and
//! statx(AT_STATX_DONT_SYNC) tells the device number from memory. It does so for a directory that it
//! doesn't know, and after something was mounted somewhere; what a device number stands for was
//! found out by a pool thread.
//!
//! One hole is left: a remote file system's mount point itself, looked up as a name in a local
//! directory, is opened inline once. Then the device number tells, and the name is remembered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, fstat, makedev, openat, openat2,
};
use rustix::io::Errno;

use super::open::split_trusted;
use super::{Kind, Metadata, Symlinks, known};
use crate::mounts::{self, Mount};

/// openat2 or RESOLVE_CACHED is missing (before Linux 5.12, or a container forbids it).
static UNSUPPORTED: AtomicBool = AtomicBool::new(false);

const DIR_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(super) type Found = (OwnedFd, Metadata, &'static Mount);

/// Whether names are looked up inline at all; known after the first look.
pub fn is_supported() -> bool {
    !UNSUPPORTED.load(Relaxed)
}

/// Opens `path` with `flags` if everything on the way is in memory. `None`: a pool thread has to.
pub(super) fn lookup(path: &[u8], symlinks: Symlinks, flags: OFlags) -> Option<io::Result<Found>> {
    if UNSUPPORTED.load(Relaxed) {
        return None;
    }
    let place = match known::place_of_dir(known::parent(path)) {
        Some((place, true)) => place,
        Some((_, false)) | None => confirm_dir(known::parent(path))?,
    };
    if !place.is_inline() || known::place_of_name(path).is_some_and(|place| !place.is_inline()) {
        return None;
    }
    let result = match symlinks {
        Symlinks::Follow => open_following(path, flags),
        Symlinks::Deny { from: 0 } => open_strict(CWD, path, flags),
        // Without any link on the way no owner matters.
        Symlinks::Deny { from } | Symlinks::IfNotOwner { from } => {
            let (dir, rest) = split_trusted(path, from);
            open_cached(CWD, dir, DIR_FLAGS, ResolveFlags::empty())
                .and_then(|dir| open_strict(dir.as_fd(), rest, flags))
        }
    };
    let outcome = match result {
        Ok(fd) => examine(path, fd, place, flags),
        Err(Errno::AGAIN | Errno::INTR | Errno::PERM) => None,
        // A link whose owner decides.
        Err(Errno::LOOP) if matches!(symlinks, Symlinks::IfNotOwner { .. }) => None,
        // A link whose end is not known: the pool learns it.
        Err(Errno::LOOP) if symlinks == Symlinks::Follow => None,
        Err(Errno::NOSYS | Errno::TOOBIG | Errno::INVAL) => {
            // EINVAL also means a path with a NUL byte: the pool will say so again.
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

/// Looks on which file system `dir` is, without any disk or server; `None`: not in memory, or the
/// file system isn't known.
fn confirm_dir(dir: &[u8]) -> Option<&'static Mount> {
    let fd = open_cached(CWD, dir, DIR_FLAGS, ResolveFlags::empty()).ok()?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&fd, c"", flags, StatxFlags::empty()).ok()?;
    let mount = mounts::find(makedev(stat.stx_dev_major, stat.stx_dev_minor))?;
    known::learn_dir(dir, mount);
    Some(mount)
}

fn open_strict(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    open_cached(dir, path, flags, ResolveFlags::NO_SYMLINKS)
}

/// How often a walk from memory is tried.
const TRIES: usize = 3;

/// Opens from memory. The kernel walks without locks and gives up whenever it may have been disturbed:
/// by a mount or an unmount of anything anywhere (`mount_lock`), by a rename of a name on the way or of
/// one in the same chain of its table of names, which makes a name look missing for a moment
/// (`__d_lookup_rcu`), and more likely so if it loses its processor in the middle. With RESOLVE_CACHED
/// that is EAGAIN, as for a name that is not in memory. Another try is cheaper than the pool, and
/// costs 2 µs where the name is cold. Names and inodes that memory pressure has taken stay cold: a
/// fall-back of what was warm a moment ago is not always a fault of this program.
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
    if known::place_of_name(path).is_some() {
        return open_cached(CWD, path, flags, ResolveFlags::empty());
    }
    open_cached(CWD, path, flags | OFlags::NOFOLLOW, ResolveFlags::empty())
}

/// Makes sure of where the way ended.
fn examine(
    path: &[u8],
    fd: OwnedFd,
    place: &'static Mount,
    flags: OFlags,
) -> Option<io::Result<Found>> {
    // On another file system than expected this may wait; see the hole above.
    let metadata = match fstat(&fd) {
        Ok(stat) => Metadata::from_stat(&stat),
        Err(error) => return Some(Err(error.into())),
    };
    // O_PATH with O_NOFOLLOW opens links themselves.
    if metadata.kind == Kind::Symlink && flags.contains(OFlags::PATH) {
        return None;
    }
    if metadata.dev == place.dev {
        return Some(Ok((fd, metadata, place)));
    }
    match mounts::find(metadata.dev) {
        Some(mount) if mount.is_inline() => Some(Ok((fd, metadata, mount))),
        mount => {
            // What was known of the directory may be wrong as well: the pool looks again.
            known::forget_dir(known::parent(path));
            if let Some(mount) = mount {
                known::learn_name(path, mount);
            }
            None
        }
    }
}

/// Learns from `path` having been opened as `fd`; the file system it is on. May wait.
pub(super) fn learn(path: &[u8], fd: BorrowedFd<'_>, metadata: &Metadata) -> &'static Mount {
    let mount = mounts::of(fd, metadata.dev);
    learn_dir_of(path);
    if metadata.kind == Kind::Directory {
        known::learn_dir(trim_slashes(path), mount);
    }
    let is_elsewhere = || {
        known::place_of_dir(known::parent(path)).is_some_and(|(dir, _)| dir.dev != mount.dev)
            || openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
                .and_then(fstat)
                .is_ok_and(|stat| Metadata::from_stat(&stat).kind == Kind::Symlink)
    };
    if known::place_of_name(path).is_none_or(|known| known.dev != mount.dev) && is_elsewhere() {
        known::learn_name(path, mount);
    }
    mount
}

/// Learns on which file system the directory of `path` is, also when the name itself is missing.
/// May wait.
pub(super) fn learn_dir_of(path: &[u8]) {
    let dir = known::parent(path);
    if known::place_of_dir(dir).is_some_and(|(_, is_sure)| is_sure) {
        return;
    }
    let Ok(fd) = openat(CWD, dir, DIR_FLAGS, Mode::empty()) else { return };
    let Ok(stat) = fstat(&fd) else { return };
    known::learn_dir(dir, mounts::of(fd.as_fd(), Metadata::from_stat(&stat).dev));
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte != b'/') {
        Some(last) => &path[..=last],
        None => b"/",
    }
}
