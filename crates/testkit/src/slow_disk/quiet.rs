//! Prevents mounts during measurements.
//!
//! Any mount or unmount on the machine makes a server look up names again, and makes the kernel's
//! walk through cached names fail for a moment. Tests running side by side would randomly disturb
//! each other this way. Therefore the kit mounts only while no test holds a [`Quiet`], in this
//! process or another one: a file lock, shared for quiet, exclusive for mounting. A process waiting
//! for the lock holds a second lock, the door: otherwise holders of quiet could overlap forever,
//! and no mount would ever happen.
//! ever, and nothing would get to mount.

use std::cell::RefCell;
use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::temp::TempDir;
use crate::wait::try_until;

/// How long to wait for other tests, which are bounded themselves.
const PATIENCE: Duration = Duration::from_secs(180);

/// A thread's share of the lock.
struct QuietGuard {
    /// Held exclusively; otherwise shared with others who want quiet.
    alone: bool,
    /// The lock is released with the file.
    _lock: Option<File>,
}

impl QuietGuard {
    fn shared() -> QuietGuard {
        QuietGuard { alone: false, _lock: lock(FlockOperation::NonBlockingLockShared) }
    }

    /// Another share for a thread that already has the lock: it would otherwise wait for processes
    /// that wait for it.
    fn again() -> QuietGuard {
        QuietGuard { alone: false, _lock: None }
    }
}

thread_local! {
    static HELD: RefCell<Vec<QuietGuard>> = const { RefCell::new(Vec::new()) };
}

/// While it exists, other tests mount and unmount nothing, on the whole machine.
///
/// Take it after your last mount and drop it before the disk: mounting on this thread interrupts
/// the quiet.
#[derive(Debug)]
pub struct Quiet {
    /// The lock belongs to this thread.
    _not_send: PhantomData<*const ()>,
}

/// Waits for running mounts to finish and prevents further ones.
pub fn quiet() -> Quiet {
    let is_first = HELD.with_borrow(Vec::is_empty);
    hold(if is_first { QuietGuard::shared() } else { QuietGuard::again() })
}

/// Like [`quiet`], for a test that mounts: no other test measures meanwhile, and the kit's mounts
/// on this thread still work.
///
/// # Panics
/// If the thread already has a [`Quiet`].
pub fn alone() -> Quiet {
    assert!(HELD.with_borrow(Vec::is_empty), "one at a time");
    hold(QuietGuard { alone: true, _lock: lock(FlockOperation::NonBlockingLockExclusive) })
}

fn hold(held: QuietGuard) -> Quiet {
    HELD.with_borrow_mut(|all| all.push(held));
    Quiet { _not_send: PhantomData }
}

/// Mounts something irrelevant and unmounts it again, as a container engine on the same machine
/// does all the time. Call it while [`alone`].
///
/// # Panics
/// If this machine cannot mount.
#[track_caller]
pub fn mount_elsewhere() {
    let dir = TempDir::new("elsewhere");
    let mounted = mount("none", dir.path(), "tmpfs", MountFlags::empty(), None);
    let unmounted = mounted.and_then(|()| unmount(dir.path(), UnmountFlags::empty()));
    assert!(unmounted.is_ok(), "mount and unmount a tmpfs: {unmounted:?}");
}

impl Drop for Quiet {
    fn drop(&mut self) {
        HELD.with_borrow_mut(Vec::pop);
    }
}

/// Runs `work`, which mounts or unmounts, when no test wants quiet.
pub(super) fn while_nobody_measures<T>(work: impl FnOnce() -> T) -> T {
    if HELD.with_borrow(|all| all.first().is_some_and(|held| held.alone)) {
        return work();
    }
    // Released first: two threads that want to mount would otherwise wait for each other's share.
    let shares = HELD.with_borrow_mut(std::mem::take);
    let count = shares.len();
    drop(shares);
    let lock = lock(FlockOperation::NonBlockingLockExclusive);
    let result = work();
    drop(lock);
    if count > 0 {
        let others = (1..count).map(|_| QuietGuard::again());
        HELD.set(std::iter::once(QuietGuard::shared()).chain(others).collect());
    }
    result
}

/// Without a lock (a full disk, an unusual system) tests may disturb each other, nothing worse.
fn lock(operation: FlockOperation) -> Option<File> {
    let door = lock_file("door", FlockOperation::NonBlockingLockExclusive)?;
    let lock = lock_file("lock", operation);
    drop(door);
    lock
}

fn lock_file(extension: &str, operation: FlockOperation) -> Option<File> {
    let path = std::env::temp_dir().join("nowait-tests-mount").with_extension(extension);
    let file = File::options().create(true).truncate(false).write(true).open(&path).ok()?;
    let locked = try_until(PATIENCE, || flock(&file, operation).ok());
    if locked.is_none() {
        let holders = holders(&file);
        eprintln!("{} was held for {PATIENCE:?} by {holders:?}: going on", path.display());
    }
    locked.map(|()| file)
}

/// The processes that hold a lock on the file.
fn holders(file: &File) -> Vec<String> {
    let Ok(inode) = file.metadata().map(|metadata| format!(":{}", metadata.ino())) else {
        return Vec::new();
    };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    // proc_locks(5): the fifth field is the process, the sixth MAJOR:MINOR:INODE.
    let of = |line: &str| {
        let mut fields = line.split_whitespace().skip(4);
        let (pid, place) = (fields.next()?, fields.next()?);
        place.ends_with(&inode).then(|| pid.to_owned())
    };
    locks.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_who_holds_a_lock() {
        let dir = TempDir::new("lock");
        let file = File::create(dir.path().join("lock")).unwrap();
        assert_eq!(holders(&file), Vec::<String>::new());
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(holders(&file), [std::process::id().to_string()]);
    }
}
