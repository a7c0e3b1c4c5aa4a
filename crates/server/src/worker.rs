//! One worker: a thread with an event loop, that accepts connections and hands each to the
//! service.
//!
//! Started by `engine.rs`. Its state is the thread's own; it is changed by closures sent to it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_runtime::driver::DriverKind;
use nowait_runtime::guard;
use nowait_runtime::net::{Listener, ListenerOptions};
use nowait_runtime::spawn;
use nowait_runtime::stats::Blocked;
use nowait_runtime::task;
use nowait_runtime::worker::{self as runtime_worker, Hooks, WorkerConfig, Workers};
use nowait_sys::limits;
use nowait_sys::listen::ListenAddress;
use nowait_sys::slice;

use crate::counters;
use crate::engine::ApplyReport;
use crate::events::{Events, ServerEvent};
use crate::log::{Level, OsErrorText};
use crate::service::{DatagramReceiver, Generation, Moved, Service};
use crate::settings::{EventSettings, GuardMode};
use crate::successors::Successors;

/// How often a repeated error of a worker is logged.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

/// For how long a loop runs before other threads have their turn, if they want it: less than the threads
/// of pools, so that a loop that wakes up runs before them.
const LOOP_SLICE: Duration = Duration::from_micros(200);

/// The parameters of a worker.
pub struct WorkerParams {
    /// The worker set.
    pub worker_set: u64,
    /// The number.
    pub index: usize,
    /// The event mechanism.
    pub driver: DriverKind,
    /// The `events` block.
    pub events: EventSettings,
    /// Processors that it is bound to; empty: not bound.
    pub cpus: Vec<usize>,
    /// Records how long its turns take.
    pub blocked: Arc<Blocked>,
    /// Receives its reports.
    pub reports: Events,
    /// The whole worker set.
    pub workers: Arc<Workers>,
    /// The workers that take the connections when the worker set is replaced.
    pub successors: Successors,
}

/// A generation for a worker, with the sockets to add and remove.
pub struct Update {
    /// The generation to serve from now on.
    pub generation: Arc<Generation>,
    /// Sockets to accept from.
    pub joins: Vec<Join>,
    /// Addresses to stop serving.
    pub leaves: Vec<Leave>,
    /// Dropped when the update has been applied.
    pub applied: Arc<ApplyReport>,
}

/// A socket for a worker.
pub struct Join {
    /// Names the address within the worker set.
    pub id: u64,
    /// The address.
    pub address: Arc<ListenAddress>,
    /// The socket.
    pub fd: OwnedFd,
    /// Whether other workers accept from it too.
    pub shared: bool,
}

/// An address that is no longer served.
pub struct Leave {
    /// As in [`Join`].
    pub id: u64,
}

/// The state of the worker on this thread.
struct WorkerState {
    service: Rc<Service>,
    accepting: RefCell<Vec<(u64, Accepting)>>,
    reports: Events,
    reporter: Rc<Reporter>,
}

/// The receiving side of a socket.
enum Accepting {
    Connections(Rc<Listener>),
    /// Receives until dropped.
    Datagrams {
        _receiving: DatagramReceiver,
    },
}

impl Accepting {
    /// Stops receiving.
    fn stop(&self) {
        if let Accepting::Connections(listener) = self {
            listener.stop();
        }
    }
}

thread_local! {
    static STATE: RefCell<Option<Rc<WorkerState>>> = const { RefCell::new(None) };
}

/// Runs a worker on this thread until it is told to end.
pub fn run(params: WorkerParams, first: Update) {
    let WorkerParams { worker_set, index, reports, .. } = &params;
    let (worker_set, index, reports) = (*worker_set, *index, reports.clone());
    // A panic outside of a task leaves the worker unusable: the server process ends, and the master starts
    // another. The worker's state is not used again.
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| run_loop(params, first)));
    let error = match ended {
        Ok(ended) => ended.err().map(|error| error.to_string()),
        Err(payload) => Some(format!("panicked: {}", task::panic_text(&*payload))),
    };
    STATE.take();
    reports.send(ServerEvent::WorkerEnded { worker_set, index, error });
}

fn run_loop(params: WorkerParams, first: Update) -> io::Result<()> {
    if !params.cpus.is_empty()
        && let Err(error) = limits::set_affinity(&params.cpus)
    {
        params.reports.alert(format!("sched_setaffinity() failed {}", OsErrorText(&error)));
    }
    // Otherwise, a loop that wakes up waits for the time slice of a pool's thread on the same processor.
    let _ = slice::set(LOOP_SLICE);
    if let Err(error) = nowait_front::tls::prepare_thread() {
        params.reports.alert(error.to_string());
    }
    let mode = match params.events.guard {
        GuardMode::Off => guard::Mode::Off,
        GuardMode::On => guard::Mode::On,
        GuardMode::Strict => guard::Mode::Strict,
    };
    if mode != guard::Mode::Off
        && let Err(error) = guard::install(mode)
    {
        params.reports.alert(format!("event_loop_guard is not in force: {error}"));
    }
    let reporter = Rc::new(Reporter { events: params.reports.clone(), last: Cell::new(None) });
    let config = WorkerConfig {
        connections_max: params.events.connections,
        multi_accept: params.events.multi_accept,
        accept_delay: params.events.accept_delay,
        events_max: params.events.events_max,
        guard: mode != guard::Mode::Off,
        blocked: params.blocked.clone(),
        hooks: reporter.clone(),
        ..WorkerConfig::new(params.index, params.driver)
    };
    let blocked = params.blocked.clone();
    let (index, reports) = (params.index, params.reports.clone());
    let state = Rc::new(WorkerState {
        service: Service::new(&first.generation),
        accepting: RefCell::default(),
        reports: params.reports.clone(),
        reporter,
    });
    STATE.set(Some(state.clone()));
    let (successors, worker_set) = (params.successors.clone(), params.workers.clone());
    runtime_worker::run(config, &params.workers, |_| async move {
        apply(first);
        runtime_worker::stopping().await;
        for (_, accepting) in state.accepting.take() {
            accepting.stop();
        }
        state.service.close(successors.of(&worker_set));
    })?;
    let message = counters::of_loop(index, &blocked.snapshot());
    reports.send(ServerEvent::Log(Level::Notice, message));
    Ok(())
}

/// Applies an update on the worker's thread. No effect on a worker that has ended.
pub fn apply(update: Update) {
    let Some(state) = STATE.with_borrow(Option::clone) else { return };
    let Update { generation, joins, leaves, applied } = update;
    // The old generation ends here, unless a request still uses it.
    state.service.update(&generation);
    if runtime_worker::is_stopping() {
        return;
    }
    let mut accepting = state.accepting.borrow_mut();
    accepting.retain(|(id, accepting)| {
        let left = leaves.iter().any(|leave| leave.id == *id);
        if left {
            accepting.stop();
        }
        !left
    });
    for join in joins {
        let (id, address) = (join.id, join.address.clone());
        match accept(join, &state) {
            Ok(new) => accepting.push((id, new)),
            Err(error) => {
                state
                    .reports
                    .alert(format!("cannot accept from {address}: {}", OsErrorText(&error)));
            }
        }
    }
    drop(applied);
}

/// Takes a connection over from a worker of a former worker set. Leaves it where it is if this worker has
/// ended.
pub fn arrive(moved: &mut Option<Moved>) {
    let Some(state) = STATE.with_borrow(Option::clone) else { return };
    let Some(moved) = moved.take() else { return };
    let max = runtime_worker::connections_max();
    if runtime_worker::connections() >= max {
        let message = format!("{max} worker_connections are not enough, closing idle connections");
        state.reporter.complain(Level::Warn, message);
        return;
    }
    state.service.arrive(*moved);
}

/// This worker ends without a successor for its connections, because the server ends.
pub fn close() {
    if let Some(state) = STATE.with_borrow(Option::clone) {
        state.service.close(None);
    }
}

/// Connections of this worker, which ends, end now.
pub fn cut() {
    if let Some(state) = STATE.with_borrow(Option::clone) {
        state.service.cut();
    }
}

/// Starts receiving from a socket.
fn accept(join: Join, state: &Rc<WorkerState>) -> io::Result<Accepting> {
    let Join { id, address, fd, shared } = join;
    if !address.is_stream() {
        let receiving = state.service.receive(&address, fd)?;
        return Ok(Accepting::Datagrams { _receiving: receiving });
    }
    let listener = Rc::new(Listener::from_fd(fd, ListenerOptions { id, shared })?);
    drop(spawn(accept_all(listener.clone(), address, state.clone())));
    Ok(Accepting::Connections(listener))
}

/// Accepts until the listener is stopped, then handles what had already been accepted.
async fn accept_all(listener: Rc<Listener>, address: Arc<ListenAddress>, state: Rc<WorkerState>) {
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                state.service.serve(&address, accepted);
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
            Err(error) => {
                state
                    .reports
                    .alert(format!("accept() on {address} failed {}", OsErrorText(&error)));
                return;
            }
        }
    }
}

/// Passes a worker's errors to the control thread, which may write them.
struct Reporter {
    events: Events,
    last: Cell<Option<Instant>>,
}

impl Reporter {
    fn complain(&self, level: Level, message: String) {
        let now = Instant::now();
        if self.last.get().is_none_or(|last| now.duration_since(last) >= COMPLAINT_INTERVAL) {
            self.last.set(Some(now));
            self.events.send(ServerEvent::Log(level, message));
        }
    }
}

impl Hooks for Reporter {
    fn task_panicked(&self, message: &str) {
        self.events.alert(format!("a connection was closed by an error of the program: {message}"));
    }

    fn connections_exhausted(&self, max: usize) {
        let state = STATE.with_borrow(Option::clone);
        if state.is_some_and(|state| state.service.make_room()) {
            let message = format!("{max} worker_connections are not enough, reusing connections");
            self.complain(Level::Warn, message);
        } else {
            self.complain(Level::Alert, format!("{max} worker_connections are not enough"));
        }
    }

    fn accept_failed(&self, error: &io::Error) {
        self.complain(Level::Error, format!("accept() failed {}", OsErrorText(error)));
    }

    fn memory_freed(&self) {
        self.events.send(ServerEvent::MemoryFreed);
    }

    fn files_dropped(&self) {
        let message = "all resident files were dropped: changes came faster than they were read \
                       (fs.inotify.max_queued_events)";
        self.complain(Level::Warn, message.to_owned());
    }

    fn watches_exhausted(&self) {
        let message = "resident_files_watches or fs.inotify.max_user_watches are not enough, \
                       more files are not kept in memory";
        self.complain(Level::Warn, message.to_owned());
    }
}
