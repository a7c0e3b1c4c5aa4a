//! The threads of the log writer: a coordinator that never touches a file, and the writing threads.
//!
//! A line that makes a write due hands its log to an idle writing thread ([`WriterState::give`]). If
//! there is none, or lines come fast, it wakes [`coordinate`], which queues logs at its own pace,
//! and starts another writing thread when the queue is blocked by a stuck disk. A log is written by
//! one thread at a time (`in_flight`).

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::error_rate::RateLimit;
use super::ring::Ring;
use super::target::{LogTarget, write_log};
use super::writer::{Buffering, RING_BYTES};
use super::{Level, LogReport, OsError};

/// Minimum time between two rounds of the coordinator under load.
pub const BATCH_INTERVAL: Duration = Duration::from_millis(1);
/// Number of rounds without that pause, so that few lines are written at once.
const BURST_ROUNDS: u32 = 20;
/// A log that has waited this long for a writing thread gets a new one.
pub const STUCK_AFTER: Duration = Duration::from_millis(50);
/// Maximum number of writing threads. If more logs than this are stuck at once, the others wait,
/// too.
pub const WRITERS_MAX: usize = 32;
/// A writing thread beyond the first ends after this long without work.
const WRITER_LINGERS: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct QueuedLog {
    /// The path or address, for messages, and what logs that are not files are found by.
    pub(super) name: String,
    /// The path of a log in one file, which finds it again after a reload.
    pub(super) path: Option<PathBuf>,
    /// Lines are framed as records.
    pub(super) records: bool,
    pub(super) ring: Mutex<Ring>,
    /// Bytes in the ring.
    pub(super) pending: AtomicUsize,
    /// Bytes from which a write is due; at least 1.
    pub(super) threshold: AtomicUsize,
    pub(super) buffering: Mutex<Buffering>,
    /// Milliseconds since the writer's start at which a started buffer is due; 0 is never.
    pub(super) flush_at: AtomicU64,
    pub(super) has_flush: AtomicBool,
    /// All lines present are due.
    pub(super) due: AtomicBool,
    /// The file will be handed over; until then, lines wait.
    pub(super) awaited: AtomicBool,
    /// A writing thread has it.
    pub(super) in_flight: AtomicBool,
    /// Milliseconds since the writer's start at which a line last gave it away.
    given_at: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Sinks. Without any the log is written out and removed.
    pub(super) users: AtomicUsize,
    pub(super) target: Mutex<LogTarget>,
    pub(super) reported: Mutex<Option<Instant>>,
}

impl QueuedLog {
    pub(super) fn new(
        name: String,
        records: bool,
        target: LogTarget,
        buffering: Buffering,
    ) -> QueuedLog {
        let path = match &target {
            LogTarget::File { path, .. } => Some(path.clone()),
            LogTarget::Stderr | LogTarget::Paths(_) | LogTarget::Syslog { .. } => None,
        };
        let log = QueuedLog {
            name,
            path,
            records,
            ring: Mutex::new(Ring::new(RING_BYTES)),
            pending: AtomicUsize::new(0),
            threshold: AtomicUsize::new(1),
            buffering: Mutex::new(buffering),
            flush_at: AtomicU64::new(0),
            has_flush: AtomicBool::new(false),
            due: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            in_flight: AtomicBool::new(false),
            given_at: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            users: AtomicUsize::new(0),
            target: Mutex::new(target),
            reported: Mutex::new(None),
        };
        log.set_buffering(buffering);
        log
    }

    pub(super) fn set_buffering(&self, buffering: Buffering) {
        *lock(&self.buffering) = buffering;
        self.threshold.store(buffering.buffer_bytes.max(1), SeqCst);
        self.has_flush.store(buffering.flush.is_some(), SeqCst);
        lock(&self.ring).set_limit(RING_BYTES.max(2 * buffering.buffer_bytes));
    }

    /// Has lines that should be written now.
    fn is_ready(&self, now_ms: u64) -> bool {
        if self.awaited.load(SeqCst) {
            return false;
        }
        let pending = self.pending.load(SeqCst);
        let flush_at = self.flush_at.load(SeqCst);
        self.due.load(SeqCst)
            || pending >= self.threshold.load(SeqCst)
            || (pending > 0 && flush_at != 0 && flush_at <= now_ms)
    }
}

pub(super) struct WriterState {
    pub(super) started: Instant,
    pub(super) logs: Mutex<Vec<Arc<QueuedLog>>>,
    pub(super) coordinator: Mutex<Option<Thread>>,
    pub(super) queue: Mutex<JobQueue>,
    /// A log was queued, or the writer is ending.
    pub(super) queued: Condvar,
    /// A log was written.
    pub(super) written: Condvar,
    pub(super) stop: AtomicBool,
    pub(super) reporter: Mutex<Option<Arc<dyn LogReport>>>,
    /// Limits of error logs, whose ended windows the coordinator reports.
    pub(super) rates: Mutex<Vec<Weak<RateLimit>>>,
}

#[derive(Default)]
pub(super) struct JobQueue {
    jobs: VecDeque<(Arc<QueuedLog>, Instant)>,
    writers: usize,
    idle: usize,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every value behind these locks is valid after each statement, so a panic in another thread must not
    // stop the logs.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WriterState {
    pub(super) fn new() -> WriterState {
        WriterState {
            started: Instant::now(),
            logs: Mutex::default(),
            coordinator: Mutex::default(),
            queue: Mutex::default(),
            queued: Condvar::new(),
            written: Condvar::new(),
            stop: AtomicBool::new(false),
            reporter: Mutex::new(None),
            rates: Mutex::default(),
        }
    }

    pub(super) fn wake(&self) {
        if let Some(thread) = &*lock(&self.coordinator) {
            thread.unpark();
        }
    }

    /// Gives a due log directly to an idle writing thread, which saves a wake-up of the coordinator.
    /// At most once per log and [`BATCH_INTERVAL`]. False: the log is left to the coordinator.
    pub(super) fn give(&self, log: &Arc<QueuedLog>) -> bool {
        const INTERVAL_MS: u64 = BATCH_INTERVAL.as_millis() as u64;
        if log.awaited.load(SeqCst) {
            return true;
        }
        let now_ms = self.now_ms();
        if now_ms <= log.given_at.load(SeqCst) + INTERVAL_MS {
            return false;
        }
        log.given_at.store(now_ms, SeqCst);
        // An event loop waits for no other thread, not even for one that holds the lock briefly.
        let Ok(mut queue) = self.queue.try_lock() else { return false };
        if queue.idle <= queue.jobs.len() {
            return false;
        }
        // The thread that has it checks again after writing.
        if !log.in_flight.swap(true, SeqCst) {
            queue.jobs.push_back((log.clone(), Instant::now()));
            drop(queue);
            self.queued.notify_one();
        }
        true
    }

    fn now_ms(&self) -> u64 {
        // Never 0, which means no time.
        self.started.elapsed().as_millis() as u64 + 1
    }
}

impl LogReport for WriterState {
    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        let reporter = lock(&self.reporter).clone();
        if let Some(reporter) = reporter {
            reporter.report(level, message);
        }
    }
}

/// Reports what limits of error logs have left out. Returns the time until the next window ends.
fn report_rates(shared: &WriterState) -> Option<Duration> {
    let mut rates = Vec::new();
    lock(&shared.rates).retain(|rate| {
        let rate = rate.upgrade();
        rates.extend(rate.clone());
        rate.is_some()
    });
    let now = Instant::now();
    let next = rates.iter().filter_map(|rate| rate.report(now)).min();
    next.map(|next| next.duration_since(now))
}

/// The coordinator: gives due logs to writing threads, and more threads when those are stuck.
pub(super) fn coordinate(shared: &Arc<WriterState>) {
    let mut pace = Pace::new();
    while !shared.stop.load(SeqCst) {
        pace.wait();
        let rates = report_rates(shared);
        let next = match (dispatch(shared), rates) {
            (Some(logs), Some(rates)) => Some(logs.min(rates)),
            (logs, rates) => logs.or(rates),
        };
        match next {
            Some(wait) => thread::park_timeout(wait),
            None => thread::park(),
        }
    }
}

/// Paces rounds: without delay while there are few, [`BATCH_INTERVAL`] apart when there are many.
struct Pace {
    /// When the rounds so far would have ended, had each taken an interval.
    booked_until: Instant,
}

impl Pace {
    fn new() -> Pace {
        Pace { booked_until: Instant::now() }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        self.booked_until = self.booked_until.max(now) + BATCH_INTERVAL;
        if self.booked_until.duration_since(now) > BATCH_INTERVAL * BURST_ROUNDS {
            thread::sleep(BATCH_INTERVAL);
        }
    }
}

/// Queues due logs. Returns the time to sleep; `None` is until woken.
fn dispatch(shared: &Arc<WriterState>) -> Option<Duration> {
    let now_ms = shared.now_ms();
    let mut wake_at: Option<u64> = None;
    let mut due = Vec::new();
    lock(&shared.logs).retain(|log| {
        if log.users.load(SeqCst) == 0 && !log.in_flight.swap(true, SeqCst) {
            // A writing thread writes out and closes it: both may block.
            due.push(log.clone());
            return false;
        }
        if log.pending.load(SeqCst) > 0
            && log.has_flush.load(SeqCst)
            && log.flush_at.load(SeqCst) == 0
            && let Some(flush) = lock(&log.buffering).flush
        {
            log.flush_at.store(now_ms + flush.as_millis() as u64, SeqCst);
        }
        if log.is_ready(now_ms) {
            if !log.in_flight.swap(true, SeqCst) {
                due.push(log.clone());
            }
        } else if log.pending.load(SeqCst) > 0 {
            let at = log.flush_at.load(SeqCst);
            if at != 0 {
                wake_at = Some(wake_at.map_or(at, |earlier| earlier.min(at)));
            }
        }
        true
    });
    let timer = wake_at.map(|at| Duration::from_millis(at.saturating_sub(now_ms)));
    let stuck = enqueue(shared, due);
    match (timer, stuck) {
        (Some(timer), Some(stuck)) => Some(timer.min(stuck)),
        (timer, stuck) => timer.or(stuck),
    }
}

/// Queues jobs and ensures that a thread runs them. Returns the time of the next check.
fn enqueue(shared: &Arc<WriterState>, due: Vec<Arc<QueuedLog>>) -> Option<Duration> {
    let now = Instant::now();
    let mut queue = lock(&shared.queue);
    for log in due {
        queue.jobs.push_back((log, now));
        shared.queued.notify_one();
    }
    let waited = now.duration_since(queue.jobs.front()?.1);
    let none_yet = queue.writers == 0;
    let all_stuck = queue.idle == 0 && waited >= STUCK_AFTER && queue.writers < WRITERS_MAX;
    if none_yet || all_stuck {
        queue.writers += 1;
        drop(queue);
        let for_thread = shared.clone();
        let spawned =
            thread::Builder::new().name("log-write".into()).spawn(move || run_jobs(&for_thread));
        if let Err(error) = spawned {
            lock(&shared.queue).writers -= 1;
            let error = OsError(&error);
            shared.report(Level::Alert, format_args!("starting a log thread failed{error}"));
        }
    }
    Some(STUCK_AFTER)
}

/// A writing thread.
fn run_jobs(shared: &Arc<WriterState>) {
    let mut spare = Vec::new();
    let mut queue = lock(&shared.queue);
    loop {
        if let Some((log, _)) = queue.jobs.pop_front() {
            drop(queue);
            spare = write_log(&**shared, &log, spare);
            log.in_flight.store(false, SeqCst);
            // Lines that arrived meanwhile found the log taken.
            if log.is_ready(shared.now_ms()) || log.users.load(SeqCst) == 0 {
                shared.wake();
            }
            queue = lock(&shared.queue);
            shared.written.notify_all();
            continue;
        }
        if shared.stop.load(SeqCst) {
            break;
        }
        queue.idle += 1;
        let (woken, timed_out) = match shared.queued.wait_timeout(queue, WRITER_LINGERS) {
            Ok((queue, timeout)) => (queue, timeout.timed_out()),
            Err(poisoned) => {
                let (queue, timeout) = poisoned.into_inner();
                (queue, timeout.timed_out())
            }
        };
        queue = woken;
        queue.idle -= 1;
        if timed_out && queue.jobs.is_empty() && queue.writers > 1 {
            break;
        }
    }
    queue.writers -= 1;
}
