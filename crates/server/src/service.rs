//! What the program needs from the protocols it serves, so that processes, sockets, signals and
//! reloads know no HTTP.
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
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{Cx, Row, Scope};
use nowait_runtime::net::Accepted;
use nowait_runtime::pool::Pool;
use nowait_sys::listen::{ListenAddress, ListenSpec};

use crate::events::Events;
use crate::settings::Settings;
use crate::wire::PurgeOrder;

/// What a plan wants opened before it can be activated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Every listening socket, once per address.
    pub listens: Vec<ListenSpec>,
    /// Files to open for appending: access logs, and error logs below the main context.
    pub logs: Vec<PathBuf>,
    /// Whether an error log below the main context is standard error.
    pub stderr: bool,
    /// Directories to make (mode 0700, the server process's user).
    pub directories: Vec<PathBuf>,
}

/// What a generation gets to work with.
pub struct Resources {
    /// Number of the generation, counted from 1.
    pub number: u64,
    /// The main and `events` contexts.
    pub settings: Arc<Settings>,
    /// The open logs by path: those of [`Needs::logs`], and the main error logs that are files.
    pub logs: HashMap<PathBuf, File>,
    /// Every `thread_pool`; `default` is always among them.
    pub pools: HashMap<String, Pool>,
    /// Where failures of the logs themselves are told.
    pub events: Events,
    /// To be kept by the generation: when the last reference to the generation is gone this is
    /// dropped with it, and the master hears that the generation has drained. So a connection must
    /// not hold a generation while it is idle.
    pub lifeline: Box<dyn Any + Send + Sync>,
}

/// A protocol, or all of them.
pub trait Service: 'static {
    /// A configuration, understood and checked, not yet in use.
    type Plan;
    /// A configuration in use; shared by all workers.
    type Generation: Send + Sync + 'static;
    /// What the service keeps on each worker's thread.
    type Worker: 'static;
    /// Receives datagrams until it is dropped.
    type Receiving: 'static;

    /// The directive tables, for the registry.
    fn tables() -> Vec<&'static [Row]>;

    /// What the directives amount to, after all were read. Errors go to `cx`; `settings.pools` has
    /// the names that `aio threads=` may mention.
    fn plan(cx: &mut Cx<'_>, main: &Scope, settings: &Settings) -> Self::Plan;

    /// What has to be opened for the plan.
    fn needs(plan: &Self::Plan) -> Needs;

    /// Puts a plan to use; called in the server process, once per generation, in a thread that is
    /// no event loop. `previous` lends caches and the log thread to its successor.
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

    /// The generation to serve from now on; requests under way keep theirs.
    fn update(worker: &Rc<Self::Worker>, generation: Arc<Self::Generation>);

    /// The worker has all the connections that it may have: closes some that are idle. False: there
    /// were none.
    fn make_room(worker: &Rc<Self::Worker>) -> bool;

    /// The worker ends: idle connections are closed at once, busy ones after their request.
    fn close(worker: &Rc<Self::Worker>);

    /// Starts the task that serves a connection to its end, on the worker that accepted it.
    fn serve(worker: &Rc<Self::Worker>, listener: &Arc<ListenAddress>, accepted: Accepted);

    /// Receives datagrams from a socket, on the worker whose it is.
    ///
    /// # Errors
    /// When the socket can't be watched.
    fn receive(
        worker: &Rc<Self::Worker>,
        listener: &Arc<ListenAddress>,
        socket: OwnedFd,
    ) -> io::Result<Self::Receiving>;

    /// Purges a cache; how many objects there were. Runs as a task of a worker.
    fn purge(
        generation: Arc<Self::Generation>,
        order: PurgeOrder,
    ) -> impl Future<Output = Result<u64, String>> + 'static;

    /// The logs were opened again: write to these from now on.
    fn reopen(generation: &Arc<Self::Generation>, logs: HashMap<PathBuf, File>);

    /// The process is about to end: saves the indexes of caches, each for at most `limit`, and
    /// writes what is still in the logs' buffers, for at most as long.
    fn flush(generation: &Arc<Self::Generation>, limit: Duration);
}
