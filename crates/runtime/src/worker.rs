//! A worker: one thread, one event loop, its tasks; and the handles for other threads.
//!
//! Called by the server process, which starts one thread per worker. A turn of the loop: run tasks,
//! take messages, wait in the driver, fire timers. Each part is bounded, so that none starves the
//! others.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::driver::{self, Driver, DriverKind};
use crate::inbox::{Inbox, Message};
use crate::local::{self, Local};
use crate::net::Handovers;
use crate::peak::Peak;
use crate::stats::{Blocked, TurnTimer};
use crate::time::WallClock;
use crate::time::wheel::Wheel;
use crate::{buf, loops, mounts, task};

/// Maximum number of tasks run per turn before the driver is polled for events again.
const RUN_MAX: usize = 256;

/// Minimum interval between trims of the buffer pools.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// A future for one worker's thread.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;
/// Builds a future on the thread that runs it.
pub type Spawner = Box<dyn FnOnce() -> LocalFuture + Send>;

/// A worker's reports to its embedder, for the log and for counters. All methods default to doing
/// nothing; they run on the worker's thread and must not block.
pub trait Hooks {
    /// A task panicked and was dropped.
    fn task_panicked(&self, _message: &str) {}
    /// The limit of `worker_connections` is reached: accepting stops until a connection is closed.
    fn connections_exhausted(&self, _max: usize) {}
    /// `accept` failed; for EMFILE and ENFILE accepting pauses for the accept delay.
    fn accept_failed(&self, _error: &io::Error) {}
    /// A peak of connections is over: the allocator holds memory that the system could use.
    /// Returning it takes too long for this thread.
    fn memory_freed(&self) {}
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}

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

/// Information that the workers of a process share.
pub struct Workers {
    inboxes: Vec<Arc<Inbox>>,
    loads: Vec<Load>,
}

/// Number of open connections of one worker. It changes with every connection: it has cache lines
/// to itself, so that this slows no other worker down.
#[derive(Default)]
#[repr(align(128))]
struct Load(AtomicUsize);

/// A worker with at most this many connections hands none over, whatever the others have.
const RELIEF_MIN: usize = 8;

impl Workers {
    /// Prepares `count` workers; none of them needs to run yet.
    ///
    /// # Errors
    /// When descriptors have run out.
    pub fn new(count: usize) -> io::Result<Arc<Workers>> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let inboxes = (0..count)
            .map(|_| Inbox::new(NEXT_ID.fetch_add(1, Ordering::Relaxed)).map(Arc::new))
            .collect::<io::Result<Vec<_>>>()?;
        let loads = (0..count).map(|_| Load::default()).collect();
        Ok(Arc::new(Workers { inboxes, loads }))
    }

    /// Number of workers.
    pub fn count(&self) -> usize {
        self.inboxes.len()
    }

    /// The handle of worker `index`.
    pub fn remote(&self, index: usize) -> Remote {
        Remote { inbox: self.inboxes[index].clone() }
    }

    /// Open connections of each worker.
    pub fn loads(&self) -> impl Iterator<Item = usize> {
        self.loads.iter().map(|Load(load)| load.load(Ordering::Relaxed))
    }

    /// A place for a connection at the worker with the fewest.
    pub fn berth(self: &Arc<Self>) -> Berth {
        let least = self.loads().enumerate().min_by_key(|(_, load)| *load);
        let index = least.map_or(0, |(index, _)| index);
        self.load(index).fetch_add(1, Ordering::Relaxed);
        Berth { workers: self.clone(), index }
    }

    /// Open connections of a worker, including those on their way to it.
    pub(crate) fn load(&self, index: usize) -> &AtomicUsize {
        &self.loads[index].0
    }

    /// Hands a connection to a worker that serves the listener.
    pub(crate) fn hand_over(&self, to: usize, listener: u64, fd: OwnedFd) -> Result<(), OwnedFd> {
        // Counted before it arrives, so that the workers do not all choose the same one meanwhile.
        self.loads[to].0.fetch_add(1, Ordering::Relaxed);
        let result = self.inboxes[to].hand_over(listener, fd);
        if result.is_err() {
            self.loads[to].0.fetch_sub(1, Ordering::Relaxed);
        }
        result
    }

    /// The worker to which worker `index` should hand its next connection, if it clearly holds more
    /// than its share: at least 8 connections and an eighth more than the least loaded.
    pub(crate) fn relief(&self, index: usize, connections: usize) -> Option<usize> {
        // The loads of other workers are in cache lines that those write to: read only when it may
        // matter.
        if self.inboxes.len() == 1 || connections <= RELIEF_MIN {
            return None;
        }
        let (least_index, least) = self.loads().enumerate().min_by_key(|(_, load)| *load)?;
        let excess = connections > least + (least / 8).max(RELIEF_MIN);
        (excess && least_index != index).then_some(least_index)
    }
}

/// A place for a connection that is on its way to a worker. It counts as one of its connections, so
/// that not all go to the same worker meanwhile; to be dropped when the connection has arrived, or
/// is lost.
pub struct Berth {
    workers: Arc<Workers>,
    index: usize,
}

impl Berth {
    /// The worker.
    pub fn remote(&self) -> Remote {
        self.workers.remote(self.index)
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        self.workers.load(self.index).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A handle to a worker, for any thread.
#[derive(Clone)]
pub struct Remote {
    inbox: Arc<Inbox>,
}

/// The worker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

impl Remote {
    /// Runs a task on the worker: `build` is called on its thread.
    ///
    /// # Errors
    /// When the worker has ended; `build` is dropped.
    pub fn spawn(&self, build: Spawner) -> Result<(), Ended> {
        self.inbox.push(Message::Spawn(build)).map_err(|_| Ended)
    }

    /// Whether the worker has ended and no longer takes messages.
    pub fn has_ended(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Whether the worker is idle: it would take a message at once.
    pub fn is_waiting(&self) -> bool {
        self.inbox.is_asleep()
    }

    /// Makes the worker take another turn.
    pub fn wake(&self) {
        self.inbox.wake();
    }

    /// Tells the worker to end once its tasks have ended: [`stopping`] resolves there.
    pub fn stop(&self) {
        let _ = self.inbox.push(Message::Stop);
    }

    /// Makes the worker drop all its tasks and end.
    pub fn kill(&self) {
        let _ = self.inbox.push(Message::Kill);
    }
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to stop, and its last task has ended.
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

/// Number of workers of this worker's crew.
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
    Remote { inbox: local::current().inbox.clone() }
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

/// Whether this worker was told to stop.
pub fn is_stopping() -> bool {
    local::with(|local| local.stopping.get()).unwrap_or(false)
}

/// Resolves when this worker is told to stop.
pub fn stopping() -> Stopping {
    Stopping { key: None, _local: PhantomData }
}

/// The future of [`stopping`]. Dropping it frees its place in the list of waiters: it may be
/// awaited anew for every request.
#[derive(Debug)]
pub struct Stopping {
    /// Its place, once it waits.
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
        // A replaced waker is dropped once nothing is borrowed any more.
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
pub fn run<M, F>(config: WorkerConfig, workers: &Arc<Workers>, main: M) -> io::Result<End>
where
    M: FnOnce(Remote) -> F,
    F: Future<Output = ()> + 'static,
{
    let options = driver::Options {
        kind: config.driver,
        multi_accept: config.multi_accept,
        events_max: config.events_max,
        guard: config.guard,
    };
    let driver = Driver::new(options, workers.inboxes[config.index].event()?)?;
    run_on(driver, config, workers, main)
}

pub(crate) fn run_on<M, F>(
    driver: Driver,
    config: WorkerConfig,
    workers: &Arc<Workers>,
    main: M,
) -> io::Result<End>
where
    M: FnOnce(Remote) -> F,
    F: Future<Output = ()> + 'static,
{
    let inbox = workers.inboxes[config.index].clone();
    let start = Instant::now();
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
        now: Cell::new(start),
        tick: Cell::new(0),
        next_tick: Cell::new(0),
    });
    local.refresh_clocks();
    mounts::count_as_worker(config.index);
    let outer = local::set(Some(local.clone()));
    assert!(outer.is_none(), "one worker per thread");
    let leave = Leave(local.clone());
    drop(task::spawn_on(&local, main(Remote { inbox })));
    let _entered = loops::enter(local.index, config.driver, workers, &config.blocked);
    let result = Loop::new(local, TurnTimer::new(config.blocked)).run();
    drop(leave);
    result
}

/// Detaches the worker from its thread, even after a panic of `main` or of a hook.
struct Leave(Rc<Local>);

impl Drop for Leave {
    fn drop(&mut self) {
        let Leave(local) = self;
        // Refused connections and tasks are dropped here, while the worker still exists.
        drop(local.inbox.close());
        task::drop_all(local);
        local::set(None);
    }
}

/// The event loop with its scratch space.
struct Loop {
    local: Rc<Local>,
    messages: VecDeque<Message>,
    woken: Vec<Waker>,
    trimmed: Instant,
    peak: Peak,
    timer: TurnTimer,
}

impl Loop {
    fn new(local: Rc<Local>, mut timer: TurnTimer) -> Loop {
        let trimmed = local.now();
        timer.turn_begin(trimmed);
        let (messages, woken) = (VecDeque::new(), Vec::new());
        Loop { local, messages, woken, trimmed, peak: Peak::default(), timer }
    }

    fn run(mut self) -> io::Result<End> {
        loop {
            self.run_tasks();
            self.take_messages();
            if self.local.killed.get() {
                return Ok(End::Killed);
            }
            // Responses reported as sent must reach the kernel, too.
            if self.local.tasks.borrow().is_empty() && !self.local.driver.borrow().is_sending() {
                return Ok(End::Graceful);
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
        while let Some(message) = self.messages.pop_front() {
            match message {
                Message::Run(runnable) => self.local.enqueue(runnable),
                Message::Spawn(build) => {
                    // Built inside the task: a panic of `build` ends the task, not the worker.
                    drop(task::spawn_on(&self.local, async move { build().await }));
                }
                Message::Accepted(listener, fd) => Handovers::deliver(&self.local, listener, fd),
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
            // A loop without events must still notice that a peak is over.
            let is_over = self.peak.is_over(local.connections.get());
            let looks = is_over.then_some(TRIM_INTERVAL);
            looks.into_iter().chain(local.wait_max()).min()
        };
        self.timer.turn_end(Instant::now());
        let (result, gone) = {
            let mut driver = local.driver.borrow_mut();
            (driver.turn(max, &mut self.woken), driver.take_gone())
        };
        local.inbox.awake();
        local.refresh_clocks();
        (0..gone).for_each(|_| local.connection_closed());
        self.timer.turn_begin(local.now());
        result
    }

    fn fire_timers(&mut self) {
        let now = self.local.now();
        self.local.wheel.borrow_mut().advance(self.local.tick(), &mut self.woken);
        self.woken.drain(..).for_each(Waker::wake);
        if now.saturating_duration_since(self.trimmed) >= TRIM_INTERVAL {
            self.trimmed = now;
            buf::trim();
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
        assert_eq!(end.unwrap(), End::Graceful);
    }
}
