//! A worker: one thread, one event loop, its tasks.
//!
//! Called by the server process, which starts one thread per worker. A turn of the loop: run tasks,
//! take messages, wait in the driver, fire timers. Each part is bounded, so that none starves the
//! others.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use nowait_sys::clock::monotonic_ns;
use slab::Slab;

use crate::driver::{self, Driver, DriverKind};
use crate::handovers::Handovers;
use crate::inbox::Message;
use crate::local::{self, Local};
use crate::peak::Peak;
use crate::stats::{Blocked, TurnTimer};
use crate::time::wheel::Wheel;
use crate::time::{WallClock, turn};
use crate::{buf, fs, loops, mounts, receive_epoch, task};

pub use crate::hooks::{Hooks, NoHooks};
pub use crate::inbox::{LocalFuture, Spawner};
pub use crate::workers::{Remote, WorkerEnded, WorkerSlot, Workers};

/// Maximum number of tasks run per turn before the driver is polled for events again.
const RUN_MAX: usize = 256;

/// Minimum interval between trims of the buffer pools.
const TRIM_INTERVAL: Duration = Duration::from_millis(TRIM_TICKS);
/// The same in ticks of the wheel (ms).
const TRIM_TICKS: u64 = 1000;

/// Configuration of a worker.
pub struct WorkerConfig {
    /// Number of this worker, from 0; its place in [`Workers`].
    pub index: usize,
    /// The event mechanism; see [`crate::driver::choose`].
    pub driver: DriverKind,
    /// nginx's `worker_connections`: maximum number of open connections.
    pub connections_max: usize,
    /// nginx's `multi_accept`: accept all queued connections per event, not one.
    pub multi_accept: bool,
    /// nginx's `accept_mutex_delay`: how long accepting pauses when descriptors have run out.
    pub accept_delay: Duration,
    /// nginx's `epoll_events`: maximum number of events taken from epoll at a time, from 1 to
    /// 65536.
    pub events_max: usize,
    /// Restrict the loop's ring to operations that cannot block (`event_loop_guard`).
    pub guard: bool,
    /// Histogram of the loop's turn times.
    pub blocked: Arc<Blocked>,
    /// Receives the reports.
    pub hooks: Rc<dyn Hooks>,
}

impl WorkerConfig {
    /// Worker `index` on `driver`, with nginx's defaults.
    pub fn new(index: usize, driver: DriverKind) -> WorkerConfig {
        WorkerConfig {
            index,
            driver,
            connections_max: 512,
            multi_accept: false,
            accept_delay: Duration::from_millis(500),
            events_max: 512,
            guard: false,
            blocked: Arc::default(),
            hooks: Rc::new(NoHooks),
        }
    }
}

/// The end of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// Told to stop, and its last task has ended.
    Graceful,
    /// [`Remote::kill`]: its tasks were dropped.
    Killed,
}

/// This worker's number.
///
/// # Panics
/// Outside of a worker.
pub fn index() -> usize {
    local::current().index
}

/// Number of workers of this worker's worker set.
///
/// # Panics
/// Outside of a worker.
pub fn count() -> usize {
    local::current().workers.count()
}

/// This worker's handle.
///
/// # Panics
/// Outside of a worker.
pub fn remote() -> Remote {
    Remote::new(local::current().inbox.clone())
}

/// The handle of a worker of this worker's set, by its index.
///
/// # Panics
/// Outside of a worker, and if there is no such worker.
pub fn remote_of(index: usize) -> Remote {
    Remote::new(local::current().workers.inbox(index).clone())
}

/// Open connections of this worker.
pub fn connections() -> usize {
    local::with(|local| local.connections.get()).unwrap_or(0)
}

/// The most connections that this worker may have.
///
/// # Panics
/// Outside of a worker.
pub fn connections_max() -> usize {
    local::current().connections_max.get()
}

/// Changes `worker_connections` at run time (reload).
pub fn set_connections_max(max: usize) {
    let local = local::current();
    local.connections_max.set(max);
    let waiters = std::mem::take(&mut *local.room_waiters.borrow_mut());
    waiters.into_iter().for_each(Waker::wake);
}

/// Whether this thread is running an event loop.
pub fn is_here() -> bool {
    local::with(|_| ()).is_some()
}

/// Whether this worker was told to stop.
pub fn is_stopping() -> bool {
    local::with(|local| local.stopping.get()).unwrap_or(false)
}

/// Resolves when this worker is told to stop.
pub fn stopping() -> Stopping {
    Stopping { key: None, _local: PhantomData }
}

/// The future of [`stopping`]. Dropping it frees its place in the list of waiters: it may be
/// awaited again for every request.
#[derive(Debug)]
pub struct Stopping {
    /// The place, once it waits.
    key: Option<usize>,
    /// The place belongs to this worker: the future does not leave the thread.
    _local: PhantomData<Rc<()>>,
}

impl Future for Stopping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<()> {
        let local = local::current();
        if local.stopping.get() {
            self.key = None;
            return Poll::Ready(());
        }
        let mut waker = cx.waker().clone();
        {
            let mut waiters = local.stop_waiters.borrow_mut();
            match self.key.and_then(|key| waiters.get_mut(key)) {
                Some(known) if known.will_wake(&waker) => {}
                Some(known) => std::mem::swap(known, &mut waker),
                None => self.key = Some(waiters.insert(waker.clone())),
            }
        }
        // A replaced waker is dropped after all borrows have ended.
        drop(waker);
        Poll::Pending
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let waker = local::with(|local| {
            // When the worker was told to stop, all places were freed at once.
            let waits = !local.stopping.get();
            waits.then(|| local.stop_waiters.borrow_mut().try_remove(key)).flatten()
        });
        drop(waker);
    }
}

/// Runs a worker on this thread: the future that `main` makes, and all tasks spawned from it.
/// Returns when the root future *and* all tasks have ended, or when killed.
///
/// # Errors
/// When the driver cannot be set up, or fails permanently (EBADF and the like).
pub fn run<M, F>(config: WorkerConfig, workers: &Arc<Workers>, main: M) -> io::Result<WorkerEnd>
where
    M: FnOnce(Remote) -> F,
    F: Future<Output = ()> + 'static,
{
    let options = driver::DriverOptions {
        kind: config.driver,
        multi_accept: config.multi_accept,
        events_max: config.events_max,
        guard: config.guard,
    };
    let driver = Driver::new(options, workers.inbox(config.index).event()?)?;
    run_on(driver, config, workers, main)
}

pub(crate) fn run_on<M, F>(
    driver: Driver,
    config: WorkerConfig,
    workers: &Arc<Workers>,
    main: M,
) -> io::Result<WorkerEnd>
where
    M: FnOnce(Remote) -> F,
    F: Future<Output = ()> + 'static,
{
    let inbox = workers.inbox(config.index).clone();
    let start = match driver.virtual_time() {
        None => Instant::now(),
        Some(_) => crate::time::process_start(),
    };
    let start_ns = monotonic_ns();
    let local = Rc::new(Local {
        index: config.index,
        workers: workers.clone(),
        inbox: inbox.clone(),
        hooks: config.hooks,
        driver: RefCell::new(driver),
        wheel: RefCell::new(Wheel::new()),
        wall: Rc::new(WallClock::new()),
        handovers: RefCell::new(Handovers::default()),
        queue: RefCell::new(VecDeque::new()),
        tasks: RefCell::new(Slab::new()),
        connections: Cell::new(0),
        connections_max: Cell::new(config.connections_max),
        room_waiters: RefCell::default(),
        stopping: Cell::new(false),
        stop_waiters: RefCell::default(),
        killed: Cell::new(false),
        accept_delay: config.accept_delay,
        start,
        start_ns,
        tick: Cell::new(0),
        next_tick: Cell::new(0),
        elapsed_ns: Cell::new(0),
    });
    mounts::count_as_worker(config.index);
    let outer = local::set(Some(local.clone()));
    assert!(outer.is_none(), "one worker per thread");
    let leave = DetachGuard(local.clone());
    local.refresh_clocks();
    drop(task::spawn_on(&local, main(Remote::new(inbox))));
    let _entered = loops::enter(local.index, config.driver, workers, &config.blocked);
    let result = Loop::new(local, TurnTimer::new(config.blocked)).run();
    drop(leave);
    result
}

/// Detaches the worker from its thread, even after a panic of `main` or of a hook.
struct DetachGuard(Rc<Local>);

impl Drop for DetachGuard {
    fn drop(&mut self) {
        let DetachGuard(local) = self;
        // Refused connections and tasks are dropped here, while the worker still exists.
        drop(local.inbox.close());
        task::drop_all(local);
        local::set(None);
        turn::set(None);
    }
}

/// The event loop with its scratch space.
struct Loop {
    local: Rc<Local>,
    messages: VecDeque<Message>,
    woken: Vec<Waker>,
    /// The tick of the last look.
    trimmed: u64,
    peak: Peak,
    timer: TurnTimer,
}

impl Loop {
    fn new(local: Rc<Local>, mut timer: TurnTimer) -> Loop {
        timer.turn_begin(local.elapsed_ns.get());
        let trimmed = local.tick();
        let (messages, woken) = (VecDeque::new(), Vec::new());
        Loop { local, messages, woken, trimmed, peak: Peak::default(), timer }
    }

    fn run(mut self) -> io::Result<WorkerEnd> {
        loop {
            self.run_tasks();
            self.take_messages();
            // Before the loop waits, or ends: a file holds its pool.
            fs::shared_lookups::clear();
            if self.local.killed.get() {
                return Ok(WorkerEnd::Killed);
            }
            // Responses reported as sent must reach the kernel, too.
            if self.local.tasks.borrow().is_empty() && !self.local.driver.borrow().is_sending() {
                return Ok(WorkerEnd::Graceful);
            }
            self.wait()?;
            self.fire_timers();
        }
    }

    /// Runs the tasks that are ready, up to the bound.
    fn run_tasks(&mut self) {
        for _ in 0..RUN_MAX {
            let Some(runnable) = self.local.queue.borrow_mut().pop_front() else { return };
            if let Err(message) = task::run(runnable) {
                self.local.hooks.task_panicked(&message);
            }
        }
    }

    fn take_messages(&mut self) {
        self.local.inbox.take(&mut self.messages);
        if !self.messages.is_empty() {
            receive_epoch::add();
        }
        while let Some(message) = self.messages.pop_front() {
            match message {
                Message::Run(runnable) => self.local.enqueue(runnable),
                Message::Spawn(build) => {
                    // Built inside the task: a panic of `build` ends the task, not the worker.
                    drop(task::spawn_on(&self.local, async move { build().await }));
                }
                Message::Accepted(listener, fd) => self.local.deliver(listener, fd),
                Message::Stop => {
                    self.local.stopping.set(true);
                    self.woken.extend(self.local.stop_waiters.borrow_mut().drain());
                    self.woken.drain(..).for_each(Waker::wake);
                }
                Message::Kill => self.local.killed.set(true),
            }
        }
    }

    /// Waits for events; does not wait while tasks are ready.
    fn wait(&mut self) -> io::Result<()> {
        let local = &self.local;
        let max = if !local.queue.borrow().is_empty() || !local.inbox.fall_asleep() {
            Some(Duration::ZERO)
        } else {
            // A loop without events must still detect the end of a peak.
            let is_over = self.peak.is_over(local.connections.get());
            let looks = is_over.then_some(TRIM_INTERVAL);
            looks.into_iter().chain(local.wait_max()).min()
        };
        self.timer.turn_end(local.read_elapsed_ns());
        let (result, gone) = {
            let mut driver = local.driver.borrow_mut();
            (driver.turn(max, &mut self.woken), driver.take_gone())
        };
        receive_epoch::add();
        local.inbox.awake();
        local.refresh_clocks();
        (0..gone).for_each(|_| local.connection_closed());
        self.timer.turn_begin(local.elapsed_ns.get());
        result
    }

    fn fire_timers(&mut self) {
        let tick = self.local.tick();
        self.local.wheel.borrow_mut().advance(tick, &mut self.woken);
        self.woken.drain(..).for_each(Waker::wake);
        if tick - self.trimmed >= TRIM_TICKS {
            self.trimmed = tick;
            buf::trim();
            let notice = fs::resident::take_notice();
            if notice.dropped {
                self.local.hooks.files_dropped();
            }
            if notice.unwatched {
                self.local.hooks.watches_exhausted();
            }
            if self.peak.look(self.local.connections.get()) {
                self.local.hooks.memory_freed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Either, select, yield_now};

    #[test]
    fn who_waits_no_more_for_the_end_leaves_nothing_behind() {
        let config = WorkerConfig::new(0, DriverKind::Epoll);
        let workers = Workers::new(1).unwrap();
        let end = run(config, &workers, |remote| async move {
            for _ in 0..100 {
                assert!(matches!(select(stopping(), yield_now()).await, Either::Right(())));
            }
            assert_eq!(local::current().stop_waiters.borrow().len(), 0);
            remote.stop();
            stopping().await;
        });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
    }
}
