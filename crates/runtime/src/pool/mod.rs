//! Named thread pools, which run all work that may wait for a disk.
//!
//! A pool is a bounded, fair queue and up to N threads (`thread_pool NAME threads=N
//! [max_queue=M]`, ngx_core_module). Called by: [`crate::fs`] for file operations, handlers through
//! [`blocking`] for libraries that block. Results wake the caller's task from the pool's thread;
//! the worker's inbox merges such wake-ups into one.
//!
//! Never: waits for a client (a task gets only non-blocking sockets), grows without a bound, runs a
//! task on the caller's thread.
//!
//! Threads are started when first needed, so an unused `default` pool of 32 costs nothing. They
//! live as long as the pool.

mod accounts;
mod counters;
mod fullness;
mod op;
mod ordinals;
mod pool_times;
mod queue;
mod simulated;
mod task;
pub(crate) mod threads;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use counters::{OpSnapshot, PoolSnapshot};
pub use op::{Class, Op, Owner};
pub use pool_times::{Meter, Metered, PoolTimes, metered};
pub(crate) use simulated::{Thread, World, set_worlds};
pub use task::TaskFuture;

use counters::{OpCounters, PoolRecentTimes};
use fullness::Fullness;
use queue::{Fair, QueueLimits, Ticket};
use simulated::SimulatedPool;
use task::{Job, TaskCell};

/// A thread that has computed for this long lets others run. Event loops that share its processor
/// would otherwise wait for the end of its time slice, which takes until the next tick of the
/// kernel (4 ms) or longer. It is not shorter, since a thread gives away its whole slice.
const TURN: Duration = Duration::from_micros(200);

/// The increment of the nice value for computing threads. A thread with 5 gets a third of the processor
/// time of one with 0: beside two of them, a loop gets up to three fifths.
const COMPUTING_NICE: i32 = 5;

/// Settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    pub name: String,
    /// Number of threads; 0 is treated as 1.
    pub threads: usize,
    /// How many tasks may wait while all threads are busy. 0: none; a task is accepted only when a
    /// thread is free.
    pub max_queue: usize,
}

/// The reason why a task has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// The queue is full: load or a slow disk (operator). The request gets a 500 response; later
    /// ones may succeed.
    Overflow { name: Arc<str>, waiting: usize },
    /// The task panicked: a fault of the program.
    Panicked { name: Arc<str>, message: String },
    /// The pool was shut down before the task could start.
    ShutDown { name: Arc<str> },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // nginx's wording (ngx_thread_task_post), which log watchers match.
            PoolError::Overflow { name, waiting } => {
                write!(f, "thread pool \"{name}\" queue overflow: {waiting} tasks waiting")
            }
            PoolError::Panicked { name, message } => {
                write!(f, "task in thread pool \"{name}\" panicked: {message}")
            }
            PoolError::ShutDown { name } => write!(f, "thread pool \"{name}\" was shut down"),
        }
    }
}

impl Error for PoolError {}

impl From<PoolError> for io::Error {
    fn from(error: PoolError) -> io::Error {
        io::Error::other(error)
    }
}

impl PoolError {
    /// The pool's error inside an error of [`crate::fs`], if it is one.
    pub fn of(error: &io::Error) -> Option<&PoolError> {
        error.get_ref()?.downcast_ref()
    }
}

/// A named thread pool. Clones are handles to the same pool.
///
/// When the last handle is dropped, accepted tasks are still run, then the threads end.
#[derive(Clone)]
pub struct Pool(Arc<PoolHandle>);

struct PoolHandle(Arc<Inner>);

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.0.close(false);
    }
}

struct Inner {
    name: Arc<str>,
    threads: usize,
    max_queue: usize,
    /// The increment of the nice value for its threads.
    nice: i32,
    /// The queue's times are counted from here.
    created: Instant,
    state: Mutex<PoolState>,
    work: Condvar,
    counters: Vec<OpCounters>,
    times: PoolRecentTimes,
    /// In a simulation.
    simulated: Option<Box<SimulatedPool>>,
}

struct PoolState {
    queue: Fair<Queued>,
    /// Threads that exist or are being started.
    alive: usize,
    /// Waiting threads that have not been called yet.
    idle: usize,
    /// Calls that idle threads have not responded to yet.
    calls: usize,
    /// Tasks being run.
    busy: usize,
    /// No more tasks are accepted; threads end when the queue is empty.
    closed: bool,
    /// What was reported of the length of its queue.
    fullness: Fullness,
}

struct Queued {
    job: Arc<dyn Job>,
    op: Op,
    since: Instant,
}

/// Locks even if a previous holder of the lock panicked: no code here leaves the data half changed
/// when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Creates a pool. No thread is started yet.
    pub fn new(config: PoolConfig) -> Pool {
        Pool::nice(config, 0)
    }

    /// Creates a pool for work that keeps processors busy. Its threads have a nice value 5 above that of the
    /// process: otherwise an event loop that shares a processor with several of them would get no more of it
    /// than each, and if it needs more, its clients wait ever longer.
    pub fn computing(config: PoolConfig) -> Pool {
        Pool::nice(config, COMPUTING_NICE)
    }

    fn nice(config: PoolConfig, nice: i32) -> Pool {
        if let Some(world) = simulated::world_of_thread() {
            return Pool::simulated(config, world);
        }
        threads::prepare();
        Pool::with(config, nice, None)
    }

    fn with(config: PoolConfig, nice: i32, simulated: Option<Box<SimulatedPool>>) -> Pool {
        let created = simulated.as_ref().map_or_else(Instant::now, |simulated| simulated.now());
        let threads = config.threads.max(1);
        let limits = match config.max_queue {
            0 => QueueLimits::none(),
            _ => QueueLimits::shared(threads),
        };
        Pool(Arc::new(PoolHandle(Arc::new(Inner {
            name: config.name.into(),
            threads,
            max_queue: config.max_queue,
            nice,
            created,
            state: Mutex::new(PoolState {
                queue: Fair::new(limits),
                alive: 0,
                idle: 0,
                calls: 0,
                busy: 0,
                closed: false,
                fullness: Fullness::Normal,
            }),
            work: Condvar::new(),
            counters: Op::ALL.iter().map(|_| OpCounters::default()).collect(),
            times: PoolRecentTimes::default(),
            simulated,
        }))))
    }

    /// The pool's name in the configuration.
    pub fn name(&self) -> &str {
        &self.0.0.name
    }

    /// Whether both are handles to the same pool.
    pub fn is_same(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Submits `work` to the pool; it is queued before this returns.
    ///
    /// `owner` (or the number of a client) tells on whose behalf it runs: see [`Owner`]. Dropping
    /// the future cancels work that has not started.
    ///
    /// # Errors
    /// The future yields [`PoolError::Overflow`] when the queue is full, [`PoolError::Panicked`]
    /// when `work` panicked.
    pub fn run<T, F>(&self, class: Class, owner: impl Into<Owner>, op: Op, work: F) -> TaskFuture<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let inner = &self.0.0;
        let cell = Arc::new(TaskCell::new(inner.name.clone(), work));
        match inner.submit(class, owner.into(), op, cell.clone(), false) {
            Ok(ticket) => TaskFuture::queued(cell, inner.clone(), ticket, op),
            Err(error) => TaskFuture::refused(error),
        }
    }

    /// Submits `work` without waiting for it, even beyond `max_queue`. For mandatory clean-up that
    /// is bounded by what was opened before.
    pub(crate) fn run_detached<F>(&self, op: Op, work: F)
    where
        F: FnOnce() + Send + 'static,
    {
        let cell = Arc::new(TaskCell::new(self.0.0.name.clone(), work));
        // A pool that was shut down drops the work here, with everything it holds.
        let _ = self.0.0.submit(Class::Path, Owner::default(), op, cell, true);
    }

    /// Whether a thread is free for work on a name on behalf of `owner`, if it comes now.
    pub(crate) fn starts_at_once(&self, owner: Owner) -> bool {
        let inner = &self.0.0;
        let state = lock(&inner.state);
        state.queue.waiting() < inner.threads.saturating_sub(state.busy)
            && state.queue.has_turn(owner.client)
    }

    /// Stops accepting tasks and returns at once. Queued tasks are still run unless a hung disk
    /// blocks the threads; nothing waits for those.
    pub fn shutdown(&self) {
        self.0.0.close(false);
    }

    /// Like [`shutdown`](Pool::shutdown), but tasks that have not started get
    /// [`PoolError::ShutDown`].
    pub fn shutdown_now(&self) {
        self.0.0.close(true);
    }

    /// The counters, for status pages.
    pub fn snapshot(&self) -> PoolSnapshot {
        let inner = &self.0.0;
        let (threads_alive, busy, queued, clients) = {
            let state = lock(&inner.state);
            (state.alive, state.busy, state.queue.waiting(), state.queue.clients())
        };
        let (recent_waits, recent_services) = inner.times.snapshot();
        let ops = Op::ALL
            .iter()
            .zip(&inner.counters)
            .map(|(op, counters)| counters.snapshot(*op))
            .filter(|ops| ops.started + ops.cancelled + ops.overflowed > 0)
            .collect();
        PoolSnapshot {
            name: inner.name.to_string(),
            threads: inner.threads,
            max_queue: inner.max_queue,
            threads_alive,
            busy,
            queued,
            clients,
            recent_waits,
            recent_services,
            ops,
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.name()).finish()
    }
}

/// Runs `work`, which may block or compute for long, on a thread of `pool`.
///
/// For handlers that need a library without an asynchronous form. The work belongs to client 0: it
/// takes turns with other clients as one, with no limit below the pool's.
pub fn blocking<T, F>(pool: &Pool, work: F) -> TaskFuture<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    pool.run(Class::Bulk, 0, Op::Blocking, work)
}

impl Inner {
    fn counters(&self, op: Op) -> &OpCounters {
        &self.counters[op as usize]
    }

    fn submit(
        self: &Arc<Inner>,
        class: Class,
        owner: Owner,
        op: Op,
        job: Arc<dyn Job>,
        must: bool,
    ) -> Result<Ticket, PoolError> {
        let (since, owner) = match &self.simulated {
            None => (Instant::now(), owner),
            Some(simulated) => (simulated.now(), simulated.owner(owner)),
        };
        let mut state = lock(&self.state);
        if state.closed {
            return Err(PoolError::ShutDown { name: self.name.clone() });
        }
        let waiting = state.queue.waiting();
        let free = self.threads.saturating_sub(state.busy);
        if !must && waiting >= self.max_queue.saturating_add(free) {
            let change = state.fullness.refused();
            drop(state);
            self.counters(op).overflowed();
            self.report(change, waiting);
            return Err(PoolError::Overflow { name: self.name.clone(), waiting });
        }
        let now = since.duration_since(self.created);
        let ticket = state.queue.push(class, owner, Queued { job, op, since }, now);
        let start = self.call_thread(&mut state);
        let change = state.fullness.grown(waiting + 1, self.max_queue);
        drop(state);
        if start {
            self.start_thread();
        }
        self.report(change, waiting + 1);
        Ok(ticket)
    }

    /// Reports that the queue has become nearly full, full, or shorter again.
    fn report(&self, change: Option<Fullness>, waiting: usize) {
        if let Some(change) = change {
            fullness::report(&self.name, change, waiting, self.max_queue);
        }
    }

    /// Wakes an idle thread if there is one and there is work. Returns whether to start a new thread
    /// instead.
    ///
    /// One wake-up at a time: the woken thread wakes the next if there is more work. So a burst of short
    /// tasks, which one thread may finish before the others are awake, wakes few threads.
    fn call_thread(&self, state: &mut PoolState) -> bool {
        if !state.queue.is_ready() || state.calls > 0 {
            return false;
        }
        if state.idle > 0 {
            state.idle -= 1;
            state.calls += 1;
            self.work.notify_one();
            false
        } else if state.alive < self.threads && state.alive < state.busy + state.queue.waiting() {
            state.alive += 1;
            true
        } else {
            false
        }
    }

    fn start_thread(self: &Arc<Inner>) {
        if let Some(simulated) = &self.simulated {
            return simulated.start(Thread::of(self));
        }
        let inner = self.clone();
        let failed = self.clone();
        threads::start(
            self.name.to_string(),
            Box::new(move || {
                if inner.nice != 0 {
                    // The thread computes without it if that is forbidden.
                    let _ = nowait_sys::limits::add_nice(inner.nice);
                }
                inner.serve();
            }),
            Box::new(move || failed.thread_failed()),
        );
    }

    /// The system refuses another thread: the running ones continue; if there are none, waiting
    /// tasks are refused rather than left forever.
    fn thread_failed(&self) {
        let mut state = lock(&self.state);
        state.alive -= 1;
        if state.alive > 0 {
            return;
        }
        let refused = state.queue.drain();
        drop(state);
        self.refuse(refused);
    }

    fn refuse(&self, tasks: Vec<Queued>) {
        for task in tasks {
            self.counters(task.op).cancelled();
            task.job.refuse(PoolError::ShutDown { name: self.name.clone() });
        }
    }

    /// The life of one thread.
    fn serve(self: &Arc<Inner>) {
        let mut state = lock(&self.state);
        let mut computed = Duration::ZERO;
        loop {
            if computed >= TURN {
                computed = Duration::ZERO;
                drop(state);
                thread::yield_now();
                state = lock(&self.state);
            }
            let Some((share, task)) = state.queue.pop(self.created.elapsed()) else {
                if state.closed && state.queue.waiting() == 0 {
                    break;
                }
                computed = Duration::ZERO;
                state.idle += 1;
                while state.calls == 0 {
                    state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.calls -= 1;
                continue;
            };
            state.busy += 1;
            let waiting = state.queue.waiting();
            let change = state.fullness.shrunk(waiting, self.max_queue);
            // One completion may allow two tasks to start (limits per client and per class): wake the next
            // thread.
            let start = self.call_thread(&mut state);
            drop(state);
            if start {
                self.start_thread();
            }
            self.report(change, waiting);
            let counters = self.counters(task.op);
            let waited = task.since.elapsed();
            counters.started(waited);
            self.times.waited(waited);
            let executed = task.job.execute(waited);
            counters.completed(executed.served, executed.panicked);
            self.times.served(executed.served);
            if task.op == Op::Blocking {
                computed += executed.served;
            }
            state = lock(&self.state);
            state.busy -= 1;
            state.queue.done(share, executed.served, self.created.elapsed());
            drop(state);
            task.job.publish();
            drop(task);
            state = lock(&self.state);
        }
        state.alive -= 1;
        // Notifies the other threads that the queue has ended.
        self.call_all(&mut state);
    }

    fn call_all(&self, state: &mut PoolState) {
        state.calls += state.idle;
        state.idle = 0;
        self.work.notify_all();
    }

    fn close(&self, discard: bool) {
        let mut state = lock(&self.state);
        state.closed = true;
        let refused = if discard { state.queue.drain() } else { Vec::new() };
        self.call_all(&mut state);
        drop(state);
        self.refuse(refused);
    }

    /// Takes a task out of the queue if it is still there.
    fn cancel(&self, ticket: Ticket, op: Op) {
        let task = lock(&self.state).queue.remove(ticket);
        if task.is_some() {
            self.counters(op).cancelled();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
