//! The interface between the program and the protocols it serves, so that processes, sockets,
//! signals and reloads know no HTTP.
//!
//! [`Service`] is implemented by `services.rs` over the crates `http` and `stream`. The order of
//! events:
//!
//! 1. the master reads the configuration (every directive of every table) and gets a plan;
//! 2. it opens the plan's listeners and logs, as root, and makes its directories;
//! 3. the server process reads the same texts, gets an equal plan, and
//!    [activates](Service::activate) it with the descriptors: a generation;
//! 4. every worker passes each accepted connection to [`Service::serve`].

use std::any::Any;
use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{Cx, Row, Scope};
use nowait_runtime::net::Accepted;
use nowait_runtime::pool::Pool;
use nowait_sys::listen::{ListenAddress, ListenSpec};

use crate::events::Events;
use crate::settings::MainSettings;
use crate::wire::PurgeOrder;

/// The resources of a plan, to be opened before activation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Every listening socket, once per address.
    pub listens: Vec<ListenSpec>,
    /// Files to open for appending: access logs, and error logs below the main context.
    pub logs: Vec<PathBuf>,
    /// Whether an error log below the main context is standard error.
    pub stderr: bool,
    /// Directories to create (mode 0700, owned by the server process's user).
    pub directories: Vec<PathBuf>,
}

/// The resources given to a generation.
pub struct Resources {
    /// Number of the generation, counted from 1.
    pub number: u64,
    /// The main and `events` contexts.
    pub settings: Arc<MainSettings>,
    /// The open logs by path: those of [`Needs::logs`], and the main error logs that are files.
    pub logs: HashMap<PathBuf, File>,
    /// Every `thread_pool`; `default` is always among them.
    pub pools: HashMap<String, Pool>,
    /// Receives the failures of the logs themselves.
    pub events: Events,
    /// Kept by the generation: it is dropped with the last reference to the generation, which tells
    /// the master that the generation has drained. So an idle connection must not hold a
    /// generation.
    pub lifeline: Box<dyn Any + Send + Sync>,
}

/// Takes connections of a worker that ends. Gives them back when the server ends.
pub type Successor<C> = Box<dyn Fn(C) -> Result<(), C>>;

/// A protocol, or all of them.
pub trait Service: 'static {
    /// A configuration that was parsed and checked, but is not yet in use.
    type Plan;
    /// A configuration in use; shared by all workers.
    type Generation: Send + Sync + 'static;
    /// The service's state on each worker's thread.
    type Worker: 'static;
    /// Receives datagrams until it is dropped.
    type Receiving: 'static;
    /// A connection on its way from one worker to another.
    type Moved: Send + 'static;

    /// The directive tables, for the registry.
    fn tables() -> Vec<&'static [Row]>;

    /// Tells the variables of every protocol. Called before the directives are read.
    fn prepare(cx: &mut Cx<'_>);

    /// Resolves the directives, after all were read. Errors go to `cx`; `settings.pools` has the
    /// names that `aio threads=` may use.
    fn plan(cx: &mut Cx<'_>, main: &Scope, settings: &MainSettings) -> Self::Plan;

    /// The resources to open for the plan.
    fn needs(plan: &Self::Plan) -> Needs;

    /// Puts a plan to use; called in the server process, once per generation, on a thread that is
    /// no event loop. `previous` hands caches and the log thread on to its successor.
    ///
    /// # Errors
    /// The message for the log; the previous generation stays in use.
    fn activate(
        plan: Self::Plan,
        resources: Resources,
        previous: Option<&Arc<Self::Generation>>,
    ) -> Result<Self::Generation, String>;

    /// The service's part of a worker; called on the worker's thread.
    fn worker(generation: Arc<Self::Generation>) -> Rc<Self::Worker>;

    /// Switches to this generation; requests in flight keep theirs.
    fn update(worker: &Rc<Self::Worker>, generation: Arc<Self::Generation>);

    /// The worker has reached its maximum number of connections: closes some idle ones. False if
    /// there were none.
    fn make_room(worker: &Rc<Self::Worker>) -> bool;

    /// The worker shuts down: idle connections leave it at once, busy ones after their request. The
    /// successor takes them over; without one, or if it returns them, they are closed.
    fn close(worker: &Rc<Self::Worker>, successor: Option<Successor<Self::Moved>>);

    /// The time for a graceful end is over: connections end as if their clients had left, so that
    /// what they did is logged. The worker is killed if that takes long.
    fn cut(worker: &Rc<Self::Worker>);

    /// Continues to serve a connection that another worker has handed over.
    fn arrive(worker: &Rc<Self::Worker>, moved: Self::Moved);

    /// Starts the task that serves a connection until it ends, on the worker that accepted it.
    fn serve(worker: &Rc<Self::Worker>, listener: &Arc<ListenAddress>, accepted: Accepted);

    /// Receives datagrams from a socket, on its worker.
    ///
    /// # Errors
    /// If the socket can't be polled.
    fn receive(
        worker: &Rc<Self::Worker>,
        listener: &Arc<ListenAddress>,
        socket: OwnedFd,
    ) -> io::Result<Self::Receiving>;

    /// Purges a cache and returns the number of purged objects. Runs as a task of a worker.
    fn purge(
        generation: Arc<Self::Generation>,
        order: PurgeOrder,
    ) -> impl Future<Output = Result<u64, String>> + 'static;

    /// The logs were reopened: write to these from now on.
    fn reopen(generation: &Arc<Self::Generation>, logs: HashMap<PathBuf, File>);

    /// The log at this path gets its file later. Called before the generation is in use.
    fn expect_log(generation: &Arc<Self::Generation>, path: &Path);

    /// Some logs have other files from now on; the others stay.
    fn replace_logs(generation: &Arc<Self::Generation>, logs: HashMap<PathBuf, File>);

    /// The process is about to end: saves the indexes of caches, each for at most `limit`, and
    /// writes the remaining log buffers, for at most as long.
    fn flush(generation: &Arc<Self::Generation>, limit: Duration);
}
