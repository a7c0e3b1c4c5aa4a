//! A circuit breaker for the disk of a store.
//!
//! Every operation of a store that may wait for its disk is [watched](Health::watch). After
//! [`ERRORS_MAX`] consecutive disk errors, or when an operation has taken longer than
//! [`HANG_AFTER`] and no other one completed meanwhile, the store is out of use: look-ups return
//! *unavailable* at once, and those waiting for the disk give up. The store's background task then
//! tries the disk, with pauses from [`PAUSE_MIN`] to [`PAUSE_MAX`], and returns it to use; no
//! client ever waits for such a try.
//!
//! Errors of operations that [change](Access::Write) the disk count apart. After as many of them, or at
//! once if the file system is read-only, the store is *sealed*: what it has is served, but it takes no new
//! objects until a try of the disk succeeds.
//!
//! Errors not caused by the disk do not count: a missing file, no space, too many open files, a
//! full pool queue.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use nowait_runtime::mounts::is_of_disk;
use nowait_runtime::pool::PoolError;
use rustix::io::Errno;
use slab::Slab;

/// Consecutive disk errors that put a store out of use.
pub const ERRORS_MAX: u32 = 3;

/// The longest time that an operation may take, in the pool's queue and on the disk. A bad sector
/// keeps a hard disk busy for some seconds; a client that waits longer is better served by the
/// origin.
pub const HANG_AFTER: Duration = Duration::from_secs(10);

/// The pause before the first try of a disk that is out of use.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause between two tries; it doubles with each try.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The reason why a store is out of use, or an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The disk failed [`ERRORS_MAX`] times in a row.
    Failing,
    /// The disk does not respond.
    Hanging,
    /// The pool's queue is full, or it was shut down.
    Overloaded,
    /// No space, no descriptors, or another limit of the system.
    Full,
    /// No room in `keys_zone`.
    ZoneFull,
    /// The object's old file is being removed.
    Removing,
    /// The disk can't be written: its file system is read-only, or it failed [`ERRORS_MAX`] times in a
    /// row.
    Sealed,
}

impl Why {
    /// The word for logs and status pages.
    pub fn name(self) -> &'static str {
        match self {
            Why::Failing => "failing",
            Why::Hanging => "hanging",
            Why::Overloaded => "overloaded",
            Why::Full => "full",
            Why::ZoneFull => "out of keys",
            Why::Removing => "removing the object",
            Why::Sealed => "not writable",
        }
    }
}

/// The meaning of a file operation's error for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The disk or its file system is broken.
    Disk,
    /// A limit was reached: space, quota, descriptors, memory.
    Limit,
    /// The pool rejected the work.
    Pool,
    /// The error concerns one file only.
    File,
}

impl ErrorClass {
    /// Classifies an error of [`nowait_runtime::fs`].
    pub fn of(error: &io::Error) -> ErrorClass {
        if PoolError::of(error).is_some() {
            return ErrorClass::Pool;
        }
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::ROFS) => ErrorClass::Disk,
            Some(
                Errno::NOSPC
                | Errno::DQUOT
                | Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::NOBUFS,
            ) => ErrorClass::Limit,
            _ if is_of_disk(error) || error.kind() == io::ErrorKind::TimedOut => ErrorClass::Disk,
            _ => ErrorClass::File,
        }
    }
}

impl ErrorClass {
    /// Whether an error may concern only one place on the disk.
    pub(crate) fn is_of_place(error: &io::Error) -> bool {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        matches!(errno, Some(Errno::IO | Errno::BADMSG))
    }

    /// Whether the file system is mounted read-only, or has become so after an error.
    pub(crate) fn is_read_only(error: &io::Error) -> bool {
        error.raw_os_error().map(Errno::from_raw_os_error) == Some(Errno::ROFS)
    }

    /// Whether removing files would help.
    pub(crate) fn is_lack_of_space(error: &io::Error) -> bool {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        matches!(errno, Some(Errno::NOSPC | Errno::DQUOT))
    }
}

/// The kind of a disk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Creates a file without content: even if that succeeds, writing may fail.
    Create,
    /// Changes files or their names.
    Write,
}

/// The breaker of one store.
pub(crate) struct Health {
    /// 0: in use; else one more than the [`Why`]'s number.
    out: AtomicU32,
    errors: AtomicU32,
    /// No object is stored for the time being.
    sealed: AtomicBool,
    write_errors: AtomicU32,
    /// The time of the last completed operation, in milliseconds since `start`.
    came_back: AtomicU64,
    start: Instant,
    pub(crate) hang_after: Duration,
    state: Mutex<HealthState>,
}

#[derive(Default)]
struct HealthState {
    /// The wakers of operations in progress, so that they end when the store goes out of use.
    under_way: Slab<Option<Waker>>,
    /// The time at which it went out of use.
    since: Option<Instant>,
}

/// The state change by an operation's end, to be logged by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthChange {
    None,
    OutOfUse(Why),
    /// The store accepts no new objects; whether that is because the file system is read-only.
    Sealed(bool),
}

impl Health {
    pub(crate) fn new(hang_after: Duration) -> Health {
        Health {
            out: AtomicU32::new(0),
            errors: AtomicU32::new(0),
            sealed: AtomicBool::new(false),
            write_errors: AtomicU32::new(0),
            came_back: AtomicU64::new(0),
            start: nowait_runtime::now(),
            hang_after,
            state: Mutex::default(),
        }
    }

    /// Plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason why the store is out of use; `None`: it is in use.
    pub(crate) fn why(&self) -> Option<Why> {
        match self.out.load(Relaxed) {
            0 => None,
            1 => Some(Why::Failing),
            _ => Some(Why::Hanging),
        }
    }

    /// The reason why the store accepts no new objects; `None`: it does.
    pub(crate) fn why_not_store(&self) -> Option<Why> {
        self.why().or_else(|| self.sealed.load(Relaxed).then_some(Why::Sealed))
    }

    /// Runs `operation` while the store is in use, for at most the time after which a disk counts
    /// as hanging.
    ///
    /// # Errors
    /// Errors of the operation. `TimedOut`: it took too long or the store went out of use; dropping
    /// the operation has cancelled it if it had not started.
    pub(crate) async fn watch<T>(
        &self,
        access: Access,
        operation: impl Future<Output = io::Result<T>>,
    ) -> (io::Result<T>, HealthChange) {
        if self.why().is_some() {
            return (Err(io::ErrorKind::TimedOut.into()), HealthChange::None);
        }
        let begun = nowait_runtime::now();
        let place = OperationSlot { health: self, key: self.lock().under_way.insert(None) };
        let mut operation = pin!(nowait_runtime::time::timeout(self.hang_after, operation));
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(outcome) = operation.as_mut().poll(cx) {
                return Poll::Ready(outcome.ok());
            }
            let mut state = self.lock();
            if self.why().is_some() {
                return Poll::Ready(None);
            }
            let waker = &mut state.under_way[place.key];
            match waker {
                Some(known) => known.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
        drop(place);
        match outcome {
            Some(result) => {
                let change = self.note(access, &result);
                (result, change)
            }
            None => (Err(io::ErrorKind::TimedOut.into()), self.note_hang(begun)),
        }
    }

    /// The disk has responded.
    pub(crate) fn note_answer(&self) {
        let ms = nowait_runtime::now().saturating_duration_since(self.start).as_millis();
        self.came_back.store(u64::try_from(ms).unwrap_or(u64::MAX), Relaxed);
    }

    /// An operation completed.
    fn note<T>(&self, access: Access, result: &io::Result<T>) -> HealthChange {
        self.note_answer();
        let errors = match access {
            Access::Read => &self.errors,
            Access::Create | Access::Write => &self.write_errors,
        };
        let error = match result {
            Err(error) => error,
            Ok(_) => {
                if access != Access::Create {
                    clear(errors);
                }
                return HealthChange::None;
            }
        };
        match ErrorClass::of(error) {
            ErrorClass::File => clear(errors),
            ErrorClass::Limit | ErrorClass::Pool => {}
            ErrorClass::Disk => {
                let is_last = errors.fetch_add(1, Relaxed) + 1 >= ERRORS_MAX;
                match access {
                    Access::Read if is_last => return self.trip(Why::Failing),
                    Access::Create | Access::Write
                        if is_last || ErrorClass::is_read_only(error) =>
                    {
                        return self.seal(ErrorClass::is_read_only(error));
                    }
                    _ => {}
                }
            }
        }
        HealthChange::None
    }

    /// From now on no object is stored.
    pub(crate) fn seal(&self, is_read_only: bool) -> HealthChange {
        match self.sealed.swap(true, Relaxed) {
            true => HealthChange::None,
            false => HealthChange::Sealed(is_read_only),
        }
    }

    /// An operation that began at `begun` has taken too long.
    fn note_hang(&self, begun: Instant) -> HealthChange {
        if self.why().is_some() {
            return HealthChange::None;
        }
        let last = self.start + Duration::from_millis(self.came_back.load(Relaxed));
        // Others completed meanwhile: one bad place on the disk, not the whole disk.
        if last > begun + self.hang_after / 2 {
            return HealthChange::None;
        }
        self.trip(Why::Hanging)
    }

    /// Takes the store out of use.
    fn trip(&self, why: Why) -> HealthChange {
        let mut state = self.lock();
        if self.why().is_some() {
            return HealthChange::None;
        }
        self.out.store(if why == Why::Failing { 1 } else { 2 }, Relaxed);
        state.since = Some(nowait_runtime::now());
        let wakers: Vec<Waker> =
            state.under_way.iter_mut().filter_map(|(_, waker)| waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        HealthChange::OutOfUse(why)
    }

    /// Back in use. Returns how long it was out of use.
    pub(crate) fn restore(&self) -> Duration {
        let since = self.lock().since.take();
        self.errors.store(0, Relaxed);
        self.write_errors.store(0, Relaxed);
        self.sealed.store(false, Relaxed);
        self.out.store(0, Relaxed);
        since.map_or(Duration::ZERO, |since| nowait_runtime::now().saturating_duration_since(since))
    }

    /// Operations under way.
    pub(crate) fn under_way(&self) -> usize {
        self.lock().under_way.len()
    }
}

/// Another operation has succeeded.
fn clear(errors: &AtomicU32) {
    if errors.load(Relaxed) != 0 {
        errors.store(0, Relaxed);
    }
}

/// An operation's slot among those under way.
struct OperationSlot<'a> {
    health: &'a Health,
    key: usize,
}

impl Drop for OperationSlot<'_> {
    fn drop(&mut self) {
        let waker = self.health.lock().under_way.try_remove(self.key);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_can_be_created_but_not_written_seal_the_store() {
        let health = Health::new(Duration::from_secs(1));
        let failed = || Err::<(), _>(io::Error::from_raw_os_error(Errno::IO.raw_os_error()));
        for number in 1..=ERRORS_MAX {
            assert_eq!(health.note(Access::Create, &Ok(())), HealthChange::None);
            let expected = match number {
                ERRORS_MAX => HealthChange::Sealed(false),
                _ => HealthChange::None,
            };
            assert_eq!(health.note(Access::Write, &failed()), expected, "error {number}");
        }
        assert_eq!(health.why_not_store(), Some(Why::Sealed));
    }

    #[test]
    fn a_success_of_writing_ends_a_row_of_errors() {
        let health = Health::new(Duration::from_secs(1));
        let failed = || Err::<(), _>(io::Error::from_raw_os_error(Errno::IO.raw_os_error()));
        for _ in 0..3 * ERRORS_MAX {
            assert_eq!(health.note(Access::Write, &failed()), HealthChange::None);
            assert_eq!(health.note(Access::Write, &Ok(())), HealthChange::None);
        }
    }
}
