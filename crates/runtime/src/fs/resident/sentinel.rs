//! Determines whether a loop has seen all changes that the kernel has reported.
//!
//! Each loop has an epoll instance of its own with two descriptors: the reports on files, which all
//! loops share, and the list of mounts, opened once per loop, since each such descriptor reports a
//! change once. Asking it costs one system call that finds an empty list.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::ResidentState;
use crate::fs::Io;
use crate::pool::Op;
use crate::receive_epoch;

const FILES: u64 = 0;
const MOUNTS: u64 = 1;

struct Sentinel {
    epoll: OwnedFd,
    _mounts: File,
}

/// Made in a pool, since that opens a file, and waiting for their loops.
static READY: Mutex<Vec<Sentinel>> = Mutex::new(Vec::new());

thread_local! {
    static SENTINEL: RefCell<Option<Sentinel>> = const { RefCell::new(None) };
    /// The instance for this loop is being made.
    static REQUESTED: Arc<AtomicBool> = Arc::default();
    /// [`receive_epoch::count`] when all reports were last known to be applied.
    static UP_TO_DATE: Cell<u64> = const { Cell::new(0) };
}

/// Applies the reports since this loop's last check, unless it has received no data since. False: further
/// reports can't be excluded now.
pub(super) fn is_up_to_date(all: &'static ResidentState, io: &Io) -> bool {
    let count = receive_epoch::count();
    if UP_TO_DATE.get() == count {
        return true;
    }
    let looked = SENTINEL.with_borrow_mut(|sentinel| {
        if sentinel.is_none() {
            *sentinel = READY.lock().unwrap_or_else(PoisonError::into_inner).pop();
        }
        sentinel.as_ref().map(|sentinel| sentinel.look(all))
    });
    match looked {
        Some(true) => {
            UP_TO_DATE.set(count);
            true
        }
        Some(false) => false,
        None => {
            request(all, io);
            false
        }
    }
}

/// Has a sentinel made, unless that is being done.
fn request(all: &'static ResidentState, io: &Io) {
    let requested = REQUESTED.with(Arc::clone);
    if requested.swap(true, Relaxed) {
        return;
    }
    let request = SentinelWork(Some(requested));
    io.pool.run_detached(Op::Open, move || {
        // Without /proc there is no list, and no file is ever resident.
        if let Ok(sentinel) = Sentinel::new(all) {
            READY.lock().unwrap_or_else(PoisonError::into_inner).push(sentinel);
        }
        request.done();
    });
}

/// The work of making one; if a pool that ends drops it, another pool is asked.
struct SentinelWork(Option<Arc<AtomicBool>>);

impl SentinelWork {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for SentinelWork {
    fn drop(&mut self) {
        if let Some(requested) = self.0.take() {
            requested.store(false, Relaxed);
        }
    }
}

impl Sentinel {
    fn new(all: &ResidentState) -> io::Result<Sentinel> {
        let mounts = File::open("/proc/self/mountinfo")?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, all.changes.fd(), EventData::new_u64(FILES), EventFlags::IN)?;
        // proc_pid_mountinfo(5): a change is POLLERR and POLLPRI, until the next poll.
        epoll::add(&epoll, &mounts, EventData::new_u64(MOUNTS), EventFlags::PRI)?;
        // This loop may have missed changes before this moment.
        all.changes.doubt();
        Ok(Sentinel { epoll, _mounts: mounts })
    }

    /// Whether all reports are applied.
    fn look(&self, all: &ResidentState) -> bool {
        let mut events = [const { MaybeUninit::uninit() }; 2];
        let now = Timespec::default();
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else {
            return false;
        };
        let mut applied = true;
        for event in events {
            match event.data.u64() {
                MOUNTS => all.changes.doubt(),
                _ => applied &= all.changes.apply(all),
            }
        }
        // Another loop may have taken reports that it has not applied yet.
        applied && all.changes.applying.load(SeqCst) == 0
    }
}
