//! No mounts while somebody measures.
//!
//! Whatever is mounted or unmounted on the machine makes a server look at names anew, and makes the
//! kernel's walk through cached names fail for a moment. Tests that run side by side would disturb
//! each other so, at random. Therefore the kit mounts only while no test holds a [`Quiet`], in this
//! process or another one: a lock on a file, shared by those who want quiet, exclusive for mounting.
//! Who waits for it holds a second lock, the door: otherwise those who want quiet could take turns for
//! ever, and nobody would get to mount.

use std::cell::RefCell;
use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::temp::TempDir;
use crate::wait::try_until;

/// How long to wait for the others, who all run tests that are bounded themselves.
const PATIENCE: Duration = Duration::from_secs(180);

/// What a thread has of the lock.
struct Held {
    /// Nobody else has it; else it is shared with others who want quiet.
    alone: bool,
    /// The lock ends with the file.
    _lock: Option<File>,
}

impl Held {
    fn shared() -> Held {
        Held { alone: false, _lock: lock(FlockOperation::NonBlockingLockShared) }
    }

    /// One more on a thread that has it already: it would wait for those who wait for it.
    fn again() -> Held {
        Held { alone: false, _lock: None }
    }
}

thread_local! {
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// As long as it lives, others mount and unmount nothing, on the whole machine.
///
/// Take it after the last mount of your own and drop it before the disk: what this thread mounts
/// itself interrupts the quiet.
#[derive(Debug)]
pub struct Quiet {
    /// The lock is this thread's.
    _not_send: PhantomData<*const ()>,
}

/// Waits until mounting is done and keeps others from it.
pub fn quiet() -> Quiet {
    let is_first = HELD.with_borrow(Vec::is_empty);
    hold(if is_first { Held::shared() } else { Held::again() })
}

/// Like [`quiet`] for a test that makes the noise itself: no other test measures meanwhile, and the
/// kit's mounts on this thread go on.
///
/// # Panics
/// If the thread has a [`Quiet`].
pub fn alone() -> Quiet {
    assert!(HELD.with_borrow(Vec::is_empty), "one at a time");
    hold(Held { alone: true, _lock: lock(FlockOperation::NonBlockingLockExclusive) })
}

fn hold(held: Held) -> Quiet {
    HELD.with_borrow_mut(|all| all.push(held));
    Quiet { _not_send: PhantomData }
}

/// Mounts something unimportant somewhere and takes it away again, as a container engine on the same
/// machine does all the time. Call it [`alone`].
///
/// # Panics
/// If this machine can't mount.
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

/// Does what mounts or unmounts, when nobody wants quiet.
pub(super) fn while_nobody_measures<T>(work: impl FnOnce() -> T) -> T {
    if HELD.with_borrow(|all| all.first().is_some_and(|held| held.alone)) {
        return work();
    }
    // Given up first: two that want to mount would wait for each other's share.
    let shares = HELD.with_borrow_mut(std::mem::take);
    let count = shares.len();
    drop(shares);
    let lock = lock(FlockOperation::NonBlockingLockExclusive);
    let result = work();
    drop(lock);
    if count > 0 {
        let others = (1..count).map(|_| Held::again());
        HELD.set(std::iter::once(Held::shared()).chain(others).collect());
    }
    result
}

/// Without a lock (a full disk, a strange system) tests disturb each other, no more.
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

/// The processes that have a lock on the file.
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
