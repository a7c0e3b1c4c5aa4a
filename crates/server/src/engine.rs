//! The core of the server process: workers, pools, and the generation that they serve.
//!
//! Owned by the control thread (`server_process.rs`), which is no event loop and may wait. The
//! workers are a *worker set*; a reload swaps the generation of the worker set in place. Only when the worker set
//! itself has to change (number of workers, event mechanism), a new one is started beside it on the
//! same sockets, and the old one ends gracefully.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nowait_runtime::driver;
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::stats::Blocked;
use nowait_runtime::worker::{self as runtime_worker, Workers};
use nowait_sys::listen::ListenAddress;

use crate::counters;
use crate::events::{Events, ServerEvent};
use crate::log::OsErrorText;
use crate::service::{Generation, Plan, QuicProcess, Resources};
use crate::settings::{EventSettings, MainSettings, POOL_COMPUTE, PoolSettings};
use crate::successors::Successors;
use crate::watchdog::Question;
use crate::wire::PurgeOrder;
use crate::worker::{self, Join, Leave, Update, WorkerParams};

/// Workers, pools and the generation in use.
pub struct Engine {
    events: Events,
    pools: Vec<(PoolSettings, Pool)>,
    worker_set: Option<WorkerSet>,
    /// Worker sets that are shutting down.
    retired: Vec<WorkerSet>,
    generation: Option<Arc<Generation>>,
    worker_sets: u64,
    successors: Successors,
    quic: QuicProcess,
}

/// The parameters of a worker set: a generation with different parameters needs a new worker set.
#[derive(Clone, PartialEq, Eq)]
struct WorkerSetParams {
    workers: usize,
    events: EventSettings,
    affinity: Vec<Vec<usize>>,
}

struct WorkerSet {
    id: u64,
    shape: WorkerSetParams,
    workers: Arc<Workers>,
    threads: Vec<JoinHandle<()>>,
    /// The durations of each worker's turns.
    blocked: Vec<Arc<Blocked>>,
    /// Threads that have ended.
    ended: usize,
    listeners: Vec<Listening>,
    next_listener: u64,
}

/// A listen address of a worker set.
struct Listening {
    id: u64,
    address: Arc<ListenAddress>,
    /// Connections use QUIC. A socket that a reload gives to sessions of `stream`, or takes from them, is received from
    /// in another way: it leaves, and joins again.
    quic: bool,
    /// The number of sockets that the worker set accepts from.
    sockets: usize,
}

impl Listening {
    fn is_of(&self, listener: &Listener) -> bool {
        self.address == listener.address && self.quic == listener.quic
    }
}

/// A generation that is about to be put to use.
pub struct Activation {
    /// The number.
    pub number: u64,
    /// The main and `events` contexts.
    pub settings: MainSettings,
    /// The service's part.
    pub plan: Plan,
    /// Addresses, in the order of the plan, and whether connections use QUIC there.
    pub addresses: Vec<(ListenAddress, bool)>,
    /// Sockets of each address.
    pub sockets: Vec<Vec<OwnedFd>>,
    /// Open logs.
    pub logs: HashMap<PathBuf, File>,
    /// Logs that are handed over as soon as their disks answer.
    pub late_logs: Vec<PathBuf>,
}

/// Reports that a generation has drained, when it is dropped with it.
struct DrainReport {
    number: u64,
    workers: usize,
    events: Events,
}

impl Drop for DrainReport {
    fn drop(&mut self) {
        if runtime_worker::is_here() {
            let message = format!("generation {} is freed by an event loop", self.number);
            self.events.alert(message);
        }
        self.events.send(ServerEvent::Drained { number: self.number, workers: self.workers });
    }
}

/// Reports the result of a purge when dropped, however the purge ended.
struct PurgeReport {
    id: u64,
    events: Events,
    result: Option<Result<u64, String>>,
}

impl Drop for PurgeReport {
    fn drop(&mut self) {
        if let Some(result) = self.result.take() {
            self.events.send(ServerEvent::Purged { id: self.id, result });
        }
    }
}

impl Engine {
    /// An engine without workers, which reports to `events`. `quic`: the place of this process among others.
    pub fn new(events: Events, quic: QuicProcess) -> Engine {
        Engine {
            events,
            pools: Vec::new(),
            worker_set: None,
            retired: Vec::new(),
            generation: None,
            worker_sets: 0,
            successors: Successors::default(),
            quic,
        }
    }

    /// Puts a generation to use. [`ServerEvent::Applied`] reports that all workers have it.
    ///
    /// # Errors
    /// The message for the master; the previous generation stays in use.
    pub fn activate(&mut self, activation: Activation) -> Result<(), String> {
        let Activation { number, settings, plan, addresses, sockets, logs, late_logs } = activation;
        if addresses.len() != sockets.len() {
            return Err("the plan does not match its sockets".to_owned());
        }
        let pools = self.pools_for(&settings.pools);
        let shape = WorkerSetParams {
            workers: settings.workers,
            events: settings.events.clone(),
            affinity: settings.affinity.clone(),
        };
        let lifeline =
            DrainReport { number, workers: settings.workers, events: self.events.clone() };
        let resources = Resources {
            number,
            settings: Arc::new(settings),
            logs,
            pools: pools.iter().map(|(s, pool)| (s.name.clone(), pool.clone())).collect(),
            events: self.events.clone(),
            quic: self.quic.clone(),
            lifeline: Box::new(lifeline),
        };
        let generation = plan.activate(resources, self.generation.as_ref())?;
        let generation = Arc::new(generation);
        late_logs.iter().for_each(|path| generation.expect_log(path));
        let listener =
            |((address, quic), sockets)| Listener { address: Arc::new(address), quic, sockets };
        let listeners = addresses.into_iter().zip(sockets).map(listener).collect();
        match &mut self.worker_set {
            Some(worker_set) if worker_set.shape == shape => {
                worker_set.update(number, &generation, listeners, &self.events);
            }
            _ => {
                self.worker_sets += 1;
                let (id, successors, events) = (self.worker_sets, &self.successors, &self.events);
                let worker_set = WorkerSet::start(
                    id,
                    shape,
                    number,
                    &generation,
                    listeners,
                    successors,
                    events,
                )?;
                // Before the old ones look for successors.
                self.successors.set(Some(worker_set.workers.clone()));
                if let Some(mut old) = self.worker_set.replace(worker_set) {
                    old.stop();
                    self.retired.push(old);
                }
            }
        }
        self.generation = Some(generation);
        self.pools = pools;
        Ok(())
    }

    /// Unchanged pools keep their threads and queues.
    fn pools_for(&self, wanted: &[PoolSettings]) -> Vec<(PoolSettings, Pool)> {
        let pool = |settings: &PoolSettings| {
            let known = self.pools.iter().find(|(known, _)| known == settings);
            let pool = known.map(|(_, pool)| pool.clone()).unwrap_or_else(|| {
                let config = PoolConfig {
                    name: settings.name.clone(),
                    threads: settings.threads,
                    max_queue: settings.max_queue,
                };
                if settings.name == POOL_COMPUTE {
                    Pool::computing(config)
                } else {
                    Pool::new(config)
                }
            });
            (settings.clone(), pool)
        };
        wanted.iter().map(pool).collect()
    }

    /// Purges a cache, on a worker; [`ServerEvent::Purged`] reports the result.
    pub fn purge(&self, id: u64, order: PurgeOrder) {
        let events = self.events.clone();
        let (Some(worker_set), Some(generation)) = (&self.worker_set, self.generation.clone())
        else {
            let result = Err("the server is not running".to_owned());
            return events.send(ServerEvent::Purged { id, result });
        };
        let done = PurgeReport { id, events, result: Some(Err("the worker has ended".to_owned())) };
        // A worker that has ended drops the task, which reports that.
        let _ = worker_set.workers.remote(0).spawn(Box::new(move || {
            Box::pin(async move {
                let mut done = done;
                done.result = Some(generation.purge(order).await);
            })
        }));
    }

    /// Hands the reopened logs to the generation.
    pub fn reopen(&self, logs: HashMap<PathBuf, File>) {
        if let Some(generation) = &self.generation {
            generation.reopen(logs);
        }
    }

    /// Hands some logs to the generation; the others stay.
    pub fn replace_logs(&self, logs: HashMap<PathBuf, File>) {
        if let Some(generation) = &self.generation {
            generation.replace_logs(logs);
        }
    }

    /// The counters of the current worker set, the pools and the file systems, as lines for the log.
    pub fn counters(&self) -> Vec<String> {
        let loops =
            self.worker_set.iter().flat_map(|worker_set| worker_set.blocked.iter().enumerate());
        let mut lines: Vec<String> =
            loops.map(|(index, blocked)| counters::of_loop(index, &blocked.snapshot())).collect();
        lines.extend(self.work_counters());
        lines
    }

    /// The part of [`Engine::counters`] that workers do not log themselves at their end.
    pub fn work_counters(&self) -> Vec<String> {
        let pools = self.pools.iter().flat_map(|(_, pool)| counters::of_pool(pool));
        pools.chain(counters::of_mounts()).collect()
    }

    /// Sends a liveness question to the event loops. `questions` is called with the name of each loop and
    /// returns its question, or none.
    pub fn ask(&self, questions: impl FnOnce(Vec<String>, &Events) -> Vec<Question>) {
        let worker_sets = || self.worker_set.iter().chain(&self.retired);
        let loops: Vec<_> = worker_sets()
            .flat_map(|worker_set| {
                (0..worker_set.workers.count()).map(|index| worker_set.workers.remote(index))
            })
            .collect();
        let names = worker_sets()
            .flat_map(|worker_set| (0..worker_set.workers.count()).map(|n| format!("worker {n}")));
        for (worker, question) in loops.iter().zip(questions(names.collect(), &self.events)) {
            // The question is dropped by the loop's next turn, or here if the worker has ended.
            let _ = worker.spawn(Box::new(move || {
                drop(question);
                Box::pin(std::future::ready(()))
            }));
        }
    }

    /// Tells all workers to end once their connections have ended.
    pub fn quit(&mut self) {
        self.successors.set(None);
        for worker_set in &self.retired {
            // No successor takes their connections.
            worker_set.tell(worker::close);
        }
        for worker_set in self.worker_set.iter_mut().chain(&mut self.retired) {
            worker_set.stop();
        }
    }

    /// Tells ending workers to close their connections, as if their clients had disconnected.
    pub fn cut(&self) {
        for worker_set in self.worker_set.iter().chain(&self.retired) {
            worker_set.tell(worker::cut);
        }
    }

    /// Tells all workers to end now.
    pub fn terminate(&mut self) {
        self.successors.set(None);
        for worker_set in self.worker_set.iter_mut().chain(&mut self.retired) {
            worker_set.kill();
        }
    }

    /// Notes that a worker's thread has ended, and returns whether that was expected: its worker set was
    /// told to end.
    pub fn worker_ended(&mut self, worker_set: u64) -> bool {
        let mut expected = false;
        for known in
            self.worker_set.iter_mut().chain(&mut self.retired).filter(|c| c.id == worker_set)
        {
            known.ended += 1;
            expected = known.listeners.is_empty();
        }
        self.retired.retain_mut(|worker_set| {
            let gone = worker_set.ended == worker_set.threads.len();
            if gone {
                worker_set.join();
            }
            !gone
        });
        expected
    }

    /// Whether no worker runs any more.
    pub fn is_idle(&self) -> bool {
        self.retired.is_empty()
            && self.worker_set.as_ref().is_none_or(|c| c.ended == c.threads.len())
    }

    /// Writes what the logs still hold.
    pub fn flush(&mut self, limit: Duration) {
        if let Some(generation) = self.generation.take() {
            generation.flush(limit);
        }
    }
}

/// An address of a generation, and its sockets.
struct Listener {
    address: Arc<ListenAddress>,
    quic: bool,
    sockets: Vec<OwnedFd>,
}

type Listeners = Vec<Listener>;

impl WorkerSet {
    fn start(
        id: u64,
        shape: WorkerSetParams,
        number: u64,
        generation: &Arc<Generation>,
        listeners: Listeners,
        successors: &Successors,
        events: &Events,
    ) -> Result<WorkerSet, String> {
        let count = shape.workers;
        let workers =
            Workers::new(count).map_err(|e| format!("eventfd() failed {}", OsErrorText(&e)))?;
        let (kind, _) = driver::choose(shape.events.requested());
        let mut worker_set = WorkerSet {
            id,
            shape,
            workers: workers.clone(),
            threads: Vec::new(),
            blocked: (0..count).map(|_| Arc::default()).collect(),
            ended: 0,
            listeners: Vec::new(),
            next_listener: 0,
        };
        let updates = worker_set.updates(number, generation, listeners, events);
        for (index, update) in updates.into_iter().enumerate() {
            let params = WorkerParams {
                worker_set: id,
                index,
                driver: kind,
                events: worker_set.shape.events.clone(),
                cpus: worker_set.cpus_of(index),
                blocked: worker_set.blocked[index].clone(),
                reports: events.clone(),
                workers: workers.clone(),
                successors: successors.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("worker {index}"))
                .spawn(move || worker::run(params, update));
            match thread {
                Ok(thread) => worker_set.threads.push(thread),
                Err(error) => {
                    worker_set.kill();
                    return Err(format!("cannot start worker {index} {}", OsErrorText(&error)));
                }
            }
        }
        Ok(worker_set)
    }

    /// The last mask applies to all further workers.
    fn cpus_of(&self, index: usize) -> Vec<usize> {
        let masks = &self.shape.affinity;
        masks.get(index).or(masks.last()).cloned().unwrap_or_default()
    }

    fn update(
        &mut self,
        number: u64,
        generation: &Arc<Generation>,
        listeners: Listeners,
        events: &Events,
    ) {
        for (index, update) in
            self.updates(number, generation, listeners, events).into_iter().enumerate()
        {
            // A worker that has ended reports that itself.
            let _ = self.workers.remote(index).spawn(Box::new(move || {
                worker::apply(update);
                Box::pin(std::future::ready(()))
            }));
        }
    }

    /// The changes of each worker for this generation: sockets that it already has are left alone,
    /// so that nothing in their queues is lost.
    fn updates(
        &mut self,
        number: u64,
        generation: &Arc<Generation>,
        listeners: Listeners,
        events: &Events,
    ) -> Vec<Update> {
        let applied = Arc::new(ApplyReport { number, events: events.clone() });
        let workers = self.shape.workers;
        let mut updates: Vec<Update> = (0..workers)
            .map(|_| Update {
                generation: generation.clone(),
                joins: Vec::new(),
                leaves: Vec::new(),
                applied: applied.clone(),
            })
            .collect();
        let gone = |known: &Listening| !listeners.iter().any(|listener| known.is_of(listener));
        for known in self.listeners.iter().filter(|known| gone(known)) {
            for update in &mut updates {
                update.leaves.push(Leave { id: known.id });
            }
        }
        self.listeners.retain(|known| !gone(known));
        for listener in listeners {
            let position = self.listeners.iter().position(|known| known.is_of(&listener));
            let Listener { address, quic, sockets } = listener;
            let position = position.unwrap_or_else(|| {
                self.next_listener += 1;
                let id = self.next_listener;
                self.listeners.push(Listening { id, address: address.clone(), quic, sockets: 0 });
                self.listeners.len() - 1
            });
            let known = &mut self.listeners[position];
            // The master lists the previously existing sockets first.
            let total = sockets.len();
            for (index, socket) in sockets.into_iter().enumerate().skip(known.sockets) {
                let join = |fd: OwnedFd, shared: bool| Join {
                    id: known.id,
                    address: address.clone(),
                    fd,
                    shared,
                };
                if total == 1 && workers > 1 && address.is_stream() {
                    for update in &mut updates {
                        match socket.as_fd().try_clone_to_owned() {
                            Ok(copy) => update.joins.push(join(copy, true)),
                            Err(error) => {
                                events.alert(format!("dup() failed {}", OsErrorText(&error)))
                            }
                        }
                    }
                } else {
                    // More sockets than workers: workers share the excess sockets. A single
                    // datagram socket belongs to one worker, so that a client's datagrams stay
                    // together.
                    let first = if total == 1 { known.id as usize } else { 0 };
                    updates[(first + index) % workers].joins.push(join(socket, false));
                }
            }
            known.sockets = known.sockets.max(total);
        }
        updates
    }

    fn stop(&mut self) {
        self.listeners.clear();
        for index in 0..self.workers.count() {
            self.workers.remote(index).stop();
        }
    }

    /// Calls a function on each worker that has not ended.
    fn tell(&self, function: fn()) {
        for index in 0..self.workers.count() {
            let _ = self.workers.remote(index).spawn(Box::new(move || {
                function();
                Box::pin(std::future::ready(()))
            }));
        }
    }

    fn kill(&mut self) {
        self.listeners.clear();
        for index in 0..self.workers.count() {
            self.workers.remote(index).kill();
        }
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Reports that all workers have the generation when the last one drops it.
pub struct ApplyReport {
    number: u64,
    events: Events,
}

impl Drop for ApplyReport {
    fn drop(&mut self) {
        self.events.send(ServerEvent::Applied { number: self.number });
    }
}
