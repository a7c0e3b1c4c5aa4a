//! All protocols as the program's service: `http` and `stream` side by side.
//!
//! Their shared parts of a generation (log threads, pools, the number) are made here and lent to
//! both ([`SharedParts`]). The listening address determines the protocol of a connection.

use std::any::Any;
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
use nowait_runtime::net::{Accepted, Address};
use nowait_runtime::pool::Pool;
use nowait_runtime::reaper::Reaped;
use nowait_runtime::spawn;
use nowait_stream::conf::StreamConf;
use nowait_sys::listen::ListenAddress;
use nowait_variables::geoip2;

use crate::databases::Databases;
use crate::events::{Events, ServerEvent};
use crate::service::{Needs, Resources, Service, Successor};
use crate::settings::MainSettings;
use crate::wire::PurgeOrder;
use crate::{http_service, stream_service};

/// The service.
pub struct Services;

/// The plans of all protocols.
pub struct ServicesPlan {
    http: HttpConf,
    stream: StreamConf,
    databases: geoip2::Databases,
}

impl ServicesPlan {
    /// The plans of the blocks `http` and `stream`.
    #[cfg(feature = "explain")]
    pub fn into_parts(self) -> (HttpConf, StreamConf) {
        (self.http, self.stream)
    }
}

/// A configuration in use.
pub type ServicesGeneration = Reaped<Contents>;

/// What belongs to a [`ServicesGeneration`].
pub struct Contents {
    http: Arc<nowait_http::generation::Generation>,
    stream: Arc<nowait_stream::generation::Generation>,
    databases: Arc<Databases>,
}

/// The state of the protocols on a worker's thread.
pub struct Worker {
    http: Rc<nowait_connections::worker::Worker>,
    stream: Rc<nowait_stream::worker::Worker>,
}

/// The shared parts of a generation.
pub struct SharedParts {
    /// Number of the generation.
    pub number: u64,
    /// The main and `events` contexts.
    pub settings: Arc<MainSettings>,
    /// Every `thread_pool`.
    pub pools: HashMap<String, Pool>,
    /// The threads that write logs.
    pub writer: Arc<Writer>,
    /// The error log of the main context.
    pub main: ErrorLog,
    /// Logs that the master has opened and no protocol has taken yet.
    pub files: HashMap<PathBuf, File>,
    /// The counters of `stream`, for status pages.
    pub sessions: Option<ReportSessions>,
    /// Kept by each protocol's generation.
    pub lifeline: Arc<dyn Any + Send + Sync>,
}

impl Service for Services {
    type Plan = ServicesPlan;
    type Generation = ServicesGeneration;
    type Worker = Worker;
    type Receiving = nowait_stream::udp::DatagramReceiver;
    type Moved = Box<nowait_connections::worker::Moved>;

    fn tables() -> Vec<&'static [Row]> {
        let mut tables = nowait_http::blocks::rows(nowait_modules::MODULES);
        tables.extend(nowait_stream::blocks::rows());
        tables
    }

    fn prepare(cx: &mut Cx<'_>) {
        nowait_http::blocks::prepare(cx, nowait_modules::MODULES);
        nowait_stream::blocks::prepare(cx);
    }

    fn plan(cx: &mut Cx<'_>, main: &Scope, settings: &MainSettings) -> ServicesPlan {
        let http = http_service::plan(cx, main, settings);
        let stream = nowait_stream::blocks::build(cx, main).unwrap_or_default();
        for listen in stream.listens() {
            let address = &listen.spec.address;
            if http.listens().iter().any(|other| other.spec.address == *address) {
                let text = format!("{address} is listened on in \"http\" and in \"stream\"");
                cx.report(Diagnostic::emerg(text).hint("give one of them another port"));
            }
        }
        let databases = cx.take_global();
        ServicesPlan { http, stream, databases }
    }

    fn needs(plan: &ServicesPlan) -> Needs {
        let mut needs = http_service::needs(&plan.http);
        let stream = stream_service::needs(&plan.stream);
        needs.listens.extend(stream.listens);
        for log in stream.logs {
            if !needs.logs.contains(&log) {
                needs.logs.push(log);
            }
        }
        needs.stderr |= stream.stderr;
        needs
    }

    fn activate(
        plan: ServicesPlan,
        resources: Resources,
        previous: Option<&Arc<ServicesGeneration>>,
    ) -> Result<ServicesGeneration, String> {
        let Resources { number, settings, logs: mut files, pools, events, lifeline } = resources;
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
        let pool = pools[nowait_http::generation::DEFAULT_POOL].clone();
        let databases = Arc::new(Databases::load(plan.databases, pool, main.clone())?);
        let lifeline = Arc::new(lifeline);
        let sessions = stream_service::report(&plan.stream);
        let mut shared =
            SharedParts { number, settings, pools, writer, main, files, sessions, lifeline };
        let http = previous.map(|previous| &previous.http);
        let http = Arc::new(http_service::activate(plan.http, &mut shared, http));
        let stream = previous.map(|previous| &previous.stream);
        let stream = stream_service::activate(plan.stream, &mut shared, &http.resolvers, stream);
        Ok(ServicesGeneration::new(Contents { http, stream: Arc::new(stream), databases }))
    }

    fn worker(generation: Arc<ServicesGeneration>) -> Rc<Worker> {
        let worker = Rc::new(Worker {
            http: nowait_connections::worker::Worker::new(generation.http.clone()),
            stream: nowait_stream::worker::Worker::new(generation.stream.clone()),
        });
        let directory: Weak<Worker> = Rc::downgrade(&worker);
        worker.stream.set_directory(directory);
        worker
    }

    fn update(worker: &Rc<Worker>, generation: Arc<ServicesGeneration>) {
        worker.http.activate(generation.http.clone());
        worker.stream.activate(generation.stream.clone());
        generation.databases.watch();
    }

    fn make_room(worker: &Rc<Worker>) -> bool {
        worker.http.make_room()
    }

    /// Sessions of `stream` continue until they end, as in nginx.
    fn close(
        worker: &Rc<Worker>,
        successor: Option<Successor<Box<nowait_connections::worker::Moved>>>,
    ) {
        worker.http.close(successor);
    }

    fn cut(worker: &Rc<Worker>) {
        worker.http.cut();
        worker.stream.cut();
    }

    fn arrive(worker: &Rc<Worker>, moved: Box<nowait_connections::worker::Moved>) {
        worker.http.arrive(*moved);
    }

    fn serve(worker: &Rc<Worker>, listener: &Arc<ListenAddress>, accepted: Accepted) {
        if worker.stream.current().conf.listen_at(listener).is_some() {
            drop(spawn(worker.stream.serve(listener, accepted)));
            return;
        }
        let Accepted { stream, peer } = accepted;
        drop(spawn(worker.http.serve(stream, peer, listener.clone())));
    }

    fn receive(
        worker: &Rc<Worker>,
        listener: &Arc<ListenAddress>,
        socket: OwnedFd,
    ) -> io::Result<Self::Receiving> {
        nowait_stream::udp::receive(&worker.stream, listener, socket)
    }

    async fn purge(generation: Arc<ServicesGeneration>, order: PurgeOrder) -> Result<u64, String> {
        http_service::purge(&generation.http, order).await
    }

    fn reopen(generation: &Arc<ServicesGeneration>, mut logs: HashMap<PathBuf, File>) {
        // All protocols share the writer.
        generation.http.logs.reopen(|path| logs.remove(path));
    }

    fn expect_log(generation: &Arc<ServicesGeneration>, path: &Path) {
        generation.http.logs.expect_file(path);
    }

    fn replace_logs(generation: &Arc<ServicesGeneration>, mut logs: HashMap<PathBuf, File>) {
        generation.http.logs.replace(|path| logs.remove(path));
    }

    fn flush(generation: &Arc<ServicesGeneration>, limit: Duration) {
        generation.http.caches.iter().for_each(|cache| cache.close(limit));
        generation.http.logs.flush(limit);
    }
}

/// `pass` leads from `stream` to every listening socket.
impl ListenerDirectory for Worker {
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
