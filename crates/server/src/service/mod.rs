//! The service: `http` and `stream` side by side, so that processes, sockets, signals and reloads know
//! neither. The order of events:
//!
//! 1. the master reads the configuration (every directive of every table) and gets a [`Plan`];
//! 2. it opens the plan's listeners and logs, as root, and makes its directories;
//! 3. the server process reads the same texts, gets an equal plan, and [activates](Plan::activate) it with
//!    the descriptors: a [`Generation`];
//! 4. every worker has a [`Service`], to which it passes each accepted connection. The listening address
//!    determines the protocol.

mod http;
mod stream;

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{Cx, Diagnostic, Row, Scope};
use nowait_front::handover::{Handover, ListenerDirectory, receives};
use nowait_front::log::error::ErrorLog;
use nowait_front::log::writer::Writer;
use nowait_front::log::{Level, LogReport};
use nowait_front::sessions::ReportSessions;
use nowait_http::conf::HttpConf;
use nowait_quic::{Directory, HostKey, Listening, Processes};
use nowait_runtime::net::{Accepted, Address};
use nowait_runtime::pool::Pool;
use nowait_runtime::reaper::Reaped;
use nowait_runtime::spawn;
use nowait_stream::conf::StreamConf;
use nowait_sys::listen::{ListenAddress, ListenSpec};
#[cfg(feature = "geoip2")]
use nowait_variables::geoip2;

#[cfg(feature = "geoip2")]
use crate::databases::Databases;
use crate::events::{Events, ServerEvent};
use crate::settings::MainSettings;
use crate::wire::PurgeOrder;

/// The directive tables, for the registry.
pub fn tables() -> Vec<&'static [Row]> {
    let mut tables = nowait_http::blocks::rows(nowait_modules::MODULES);
    tables.extend(nowait_stream::blocks::rows());
    tables
}

/// Tells the variables of both protocols. Called before the directives are read.
pub fn prepare(cx: &mut Cx<'_>) {
    nowait_http::blocks::prepare(cx, nowait_modules::MODULES);
    nowait_stream::blocks::prepare(cx);
}

/// A configuration that was parsed and checked, but is not yet in use.
pub struct Plan {
    http: HttpConf,
    stream: StreamConf,
    #[cfg(feature = "geoip2")]
    databases: geoip2::Databases,
}

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
    /// This process among those that receive from the same UDP sockets.
    pub quic: QuicProcess,
    /// Kept by the generation: it is dropped with the last reference to the generation, which tells
    /// the master that the generation has drained. So an idle connection must not hold a
    /// generation.
    pub lifeline: Box<dyn Any + Send + Sync>,
}

/// What a server process has of its master for QUIC.
#[derive(Clone, Debug)]
pub struct QuicProcess {
    /// The secret that all processes share, before and after an upgrade.
    pub secret: HostKey,
    /// This process and the others.
    pub processes: Arc<Processes>,
}

impl Plan {
    /// Resolves the directives, after all were read. Errors go to `cx`; `settings.pools` has the
    /// names that `aio threads=` may use.
    pub fn of(cx: &mut Cx<'_>, main: &Scope, settings: &MainSettings) -> Plan {
        let http = http::plan(cx, main, settings);
        let stream = nowait_stream::blocks::build(cx, main).unwrap_or_default();
        for listen in stream.listens() {
            let address = &listen.spec.address;
            if http.listens().iter().any(|other| other.spec.address == *address) {
                let text = format!("{address} is listened on in \"http\" and in \"stream\"");
                cx.report(Diagnostic::emerg(text).hint("give one of them another port"));
            }
        }
        Plan {
            http,
            stream,
            #[cfg(feature = "geoip2")]
            databases: cx.take_global(),
        }
    }

    /// The resources to open for the plan.
    pub fn needs(&self) -> Needs {
        let mut needs = http::needs(&self.http);
        let stream = stream::needs(&self.stream);
        needs.listens.extend(stream.listens);
        for log in stream.logs {
            if !needs.logs.contains(&log) {
                needs.logs.push(log);
            }
        }
        needs.stderr |= stream.stderr;
        needs
    }

    /// The plans of the blocks `http` and `stream`.
    #[cfg(feature = "explain")]
    pub fn into_parts(self) -> (HttpConf, StreamConf) {
        (self.http, self.stream)
    }

    /// Puts the plan to use; called in the server process, once per generation, on a thread that is
    /// no event loop. `previous` hands caches and the log thread on to its successor.
    ///
    /// # Errors
    /// The message for the log; the previous generation stays in use.
    pub fn activate(
        self,
        resources: Resources,
        previous: Option<&Arc<Generation>>,
    ) -> Result<Generation, String> {
        let Resources { number, settings, logs: mut files, pools, events, quic, lifeline } =
            resources;
        let writer = match previous {
            Some(previous) => previous.http.logs.writer().clone(),
            None => Arc::new(
                Writer::start().map_err(|error| format!("the log thread can't start: {error}"))?,
            ),
        };
        writer.set_reporter(Arc::new(Reporter(events)));
        let mut opened = |path: &Path| files.remove(path);
        let main = settings.error_logs.iter().map(|log| log.open(&writer, &mut opened)).collect();
        let main = ErrorLog::new(main);
        #[cfg(feature = "geoip2")]
        let databases = {
            let pool = pools[nowait_http::generation::DEFAULT_POOL].clone();
            Arc::new(Databases::load(self.databases, pool, main.clone())?)
        };
        let lifeline = Arc::new(lifeline);
        let sessions = stream::report(&self.stream);
        let known = previous.and_then(|previous| previous.quic.as_ref());
        let quic = http::directory(&self.http, known, &quic);
        let mut shared = SharedParts {
            number,
            settings,
            pools,
            writer,
            main,
            files,
            sessions,
            quic: quic.clone(),
            lifeline,
        };
        let http = previous.map(|previous| &previous.http);
        let http = Arc::new(http::activate(self.http, &mut shared, http));
        let stream = previous.map(|previous| &previous.stream);
        let stream = stream::activate(self.stream, &mut shared, &http.resolvers, stream);
        Ok(Generation::new(Contents {
            quic,
            http,
            stream: Arc::new(stream),
            #[cfg(feature = "geoip2")]
            databases,
        }))
    }
}

/// The shared parts of a generation, lent to both protocols.
struct SharedParts {
    /// Number of the generation.
    number: u64,
    /// The main and `events` contexts.
    settings: Arc<MainSettings>,
    /// Every `thread_pool`.
    pools: HashMap<String, Pool>,
    /// The threads that write logs.
    writer: Arc<Writer>,
    /// The error log of the main context.
    main: ErrorLog,
    /// Logs that the master has opened and no protocol has taken yet.
    files: HashMap<PathBuf, File>,
    /// The counters of `stream`, for status pages.
    sessions: Option<ReportSessions>,
    /// The workers as datagrams of QUIC find them.
    quic: Option<Arc<Directory>>,
    /// Kept by each protocol's generation.
    lifeline: Arc<dyn Any + Send + Sync>,
}

/// A configuration in use; shared by all workers.
pub type Generation = Reaped<Contents>;

/// What belongs to a [`Generation`].
pub struct Contents {
    /// The workers as datagrams of QUIC find them; `None`: no address has had `quic` so far.
    quic: Option<Arc<Directory>>,
    http: Arc<nowait_http::generation::Generation>,
    stream: Arc<nowait_stream::generation::Generation>,
    #[cfg(feature = "geoip2")]
    databases: Arc<Databases>,
}

impl Contents {
    /// Purges a cache and returns the number of purged objects. Runs as a task of a worker.
    pub async fn purge(&self, order: PurgeOrder) -> Result<u64, String> {
        http::purge(&self.http, order).await
    }

    /// The logs were reopened: write to these from now on.
    pub fn reopen(&self, mut logs: HashMap<PathBuf, File>) {
        // Both protocols share the writer.
        self.http.logs.reopen(|path| logs.remove(path));
    }

    /// The log at this path gets its file later. Called before the generation is in use.
    pub fn expect_log(&self, path: &Path) {
        self.http.logs.expect_file(path);
    }

    /// Some logs have other files from now on; the others stay.
    pub fn replace_logs(&self, mut logs: HashMap<PathBuf, File>) {
        self.http.logs.replace(|path| logs.remove(path));
    }

    /// The process is about to end: saves the indexes of caches, each for at most `limit`, and
    /// writes the remaining log buffers, for at most as long.
    pub fn flush(&self, limit: Duration) {
        self.http.caches.iter().for_each(|cache| cache.close(limit));
        self.http.logs.flush(limit);
    }
}

/// A connection on its way from one worker to another.
pub type Moved = Box<nowait_connections::worker::MovedConnection>;

/// Takes connections of a worker that ends. Gives them back when the server ends.
pub type Successor = Box<dyn Fn(Moved) -> Result<(), Moved>>;

/// The state of both protocols on a worker's thread.
pub struct Service {
    http: Rc<nowait_connections::worker::Worker>,
    stream: Rc<nowait_stream::worker::Worker>,
    quic: RefCell<Option<Arc<Directory>>>,
}

/// Receives datagrams from a socket until it is dropped.
pub enum DatagramReceiver {
    /// Those of sessions of `stream`.
    Stream { _receiving: nowait_stream::udp::DatagramReceiver },
    /// Those of HTTP/3.
    Quic { _receiving: Listening },
}

impl Service {
    /// The service of this thread's worker.
    pub fn new(generation: &Generation) -> Rc<Service> {
        let service = Rc::new(Service {
            http: nowait_connections::worker::Worker::new(generation.http.clone()),
            stream: nowait_stream::worker::Worker::new(generation.stream.clone()),
            quic: RefCell::new(generation.quic.clone()),
        });
        let directory: Weak<Service> = Rc::downgrade(&service);
        service.stream.set_directory(directory);
        service
    }

    /// Switches to this generation; requests in flight keep theirs.
    pub fn update(&self, generation: &Generation) {
        self.http.activate(generation.http.clone());
        self.stream.activate(generation.stream.clone());
        self.quic.replace(generation.quic.clone());
        #[cfg(feature = "geoip2")]
        generation.databases.watch();
    }

    /// The worker has reached its maximum number of connections: closes some idle ones. False if
    /// there were none.
    pub fn make_room(&self) -> bool {
        self.http.make_room()
    }

    /// The worker shuts down: idle connections leave it at once, busy ones after their request. The
    /// successor takes them over; without one, or if it returns them, they are closed. Sessions of
    /// `stream` continue until they end, as in nginx.
    pub fn close(&self, successor: Option<Successor>) {
        self.http.close(successor);
    }

    /// The time for a graceful end is over: connections end as if their clients had left, so that
    /// what they did is logged. The worker is killed if that takes long.
    pub fn cut(&self) {
        self.http.cut();
        self.stream.cut();
    }

    /// Continues to serve a connection that another worker has handed over.
    pub fn arrive(&self, moved: nowait_connections::worker::MovedConnection) {
        self.http.arrive(moved);
    }

    /// Starts the task that serves a connection until it ends, on the worker that accepted it.
    pub fn serve(&self, listener: &Arc<ListenAddress>, accepted: Accepted) {
        if self.stream.current().conf.listen_at(listener).is_some() {
            drop(spawn(self.stream.serve(listener, accepted)));
            return;
        }
        let Accepted { stream, peer } = accepted;
        drop(spawn(self.http.serve(stream, peer, listener.clone())));
    }

    /// Receives datagrams from a socket, on its worker, until the receiver is dropped.
    ///
    /// # Errors
    /// If the socket can't be polled.
    pub fn receive(
        &self,
        listener: &Arc<ListenAddress>,
        socket: OwnedFd,
    ) -> io::Result<DatagramReceiver> {
        let quic = self.quic.borrow().clone();
        match quic {
            Some(directory) if self.http.current().conf.takes_quic(listener) => {
                let receiving = self.http.receive(&directory, listener.clone(), socket)?;
                Ok(DatagramReceiver::Quic { _receiving: receiving })
            }
            _ => {
                let receiving = nowait_stream::udp::receive(&self.stream, listener, socket)?;
                Ok(DatagramReceiver::Stream { _receiving: receiving })
            }
        }
    }
}

/// `pass` leads from `stream` to every listening socket.
impl ListenerDirectory for Service {
    fn find(&self, address: &Address) -> Option<Arc<ListenAddress>> {
        let (http, stream) = (self.http.current(), self.stream.current());
        let mut listens = http.conf.listens().iter().chain(stream.conf.listens());
        let found = listens.find(|listen| receives(&listen.spec.address, address));
        found.map(|listen| Arc::new(listen.spec.address.clone()))
    }

    fn enter(&self, connection: Handover) {
        if self.stream.current().conf.listen_at(&connection.listen).is_some() {
            drop(spawn(self.stream.serve_passed(connection)));
        } else {
            drop(spawn(self.http.serve_passed(connection)));
        }
    }
}

/// Reports failures of logs to the control thread, which writes the main error log itself.
struct Reporter(Events);

impl LogReport for Reporter {
    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.0.send(ServerEvent::Log(level, message.to_string()));
    }
}
