//! The HTTP server as the program's service.
//!
//! Connects the program (processes, sockets, generations) to the `http` crate. Knows no protocol:
//! that is `http`'s.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{Cx, Row, Scope};
use nowait_front::log::error::ErrorLog;
use nowait_front::log::writer::Writer;
use nowait_front::log::{Level, Report};
use nowait_http::cache::purge::Aim;
use nowait_http::conf::{self, HttpConf, PoolsWanted};
use nowait_http::connection::{self, Connection};
use nowait_http::generation::Generation;
use nowait_http::logs::{self, Logs};
use nowait_http::resolvers::Resolvers;
use nowait_http::worker::Worker;
use nowait_runtime::net::Accepted;
use nowait_sys::listen::ListenAddress;

use crate::events::{Event, Events};
use crate::service::{Needs, Resources, Service};
use crate::settings::Settings;
use crate::wire::{PurgeKind, PurgeOrder};

/// The service.
pub struct HttpService;

impl Service for HttpService {
    type Plan = HttpConf;
    type Generation = Generation;
    type Worker = Worker;

    fn tables() -> Vec<&'static [Row]> {
        conf::rows()
    }

    fn plan(cx: &mut Cx<'_>, main: &Scope, settings: &Settings) -> HttpConf {
        let http = conf::build(cx, main).unwrap_or_default();
        for (name, word) in cx.take_global::<PoolsWanted>().0 {
            if !settings.pools.iter().any(|pool| pool.name == name) {
                let known = settings.pools.iter().map(|pool| pool.name.as_str());
                let error = word.error(format!("unknown thread pool \"{name}\""));
                cx.report(match nowait_conf::nearest(&name, known) {
                    Some(nearest) => error.hint(format!("did you mean \"{nearest}\"?")),
                    None => error.hint(format!(
                        "define it in the main context: thread_pool {name} threads=32;"
                    )),
                });
            }
        }
        http
    }

    fn needs(plan: &HttpConf) -> Needs {
        Needs {
            listens: plan.listens().iter().map(|listen| listen.spec.clone()).collect(),
            logs: logs::files(plan),
            stderr: logs::uses_stderr(plan),
            directories: directories(plan),
        }
    }

    fn activate(
        mut plan: HttpConf,
        resources: Resources,
        previous: Option<&Arc<Generation>>,
    ) -> Result<Generation, String> {
        let Resources { number, settings, logs: mut files, pools, events, lifeline } = resources;
        if let Some(previous) = previous {
            plan.limit_zones.adopt(&previous.conf.limit_zones);
            plan.upstreams.adopt(&previous.conf.upstreams);
        }
        nowait_http::health::prepare(&plan);
        let writer = match previous {
            Some(previous) => previous.logs.writer().clone(),
            None => Arc::new(
                Writer::start().map_err(|error| format!("the log thread can't start: {error}"))?,
            ),
        };
        writer.set_reporter(Arc::new(Reporter(events)));
        let mut opened = |path: &Path| files.remove(path);
        let main = settings.error_logs.iter().map(|log| log.open(&writer, &mut opened)).collect();
        let main = ErrorLog::new(main);
        let debug = settings.debug_connections.clone();
        let logs = Logs::open(&plan, writer, main, debug, &mut opened);
        let stores = previous.map_or(&[][..], |previous| &previous.caches);
        let caches = nowait_http::cache::zone::open(&plan, stores);
        let pool = &pools[nowait_http::generation::DEFAULT_POOL];
        let resolvers = previous.map(|previous| &previous.resolvers);
        let resolvers = Resolvers::new(&plan.resolvers, pool, resolvers);
        Ok(Generation { number, conf: plan, pools, caches, resolvers, logs, lifeline })
    }

    fn worker(generation: Arc<Generation>) -> Rc<Worker> {
        Worker::new(generation)
    }

    fn update(worker: &Rc<Worker>, generation: Arc<Generation>) {
        worker.activate(generation);
    }

    fn make_room(worker: &Rc<Worker>) -> bool {
        worker.make_room()
    }

    fn close(worker: &Rc<Worker>) {
        worker.close();
    }

    fn serve(
        worker: &Rc<Worker>,
        listener: &Arc<ListenAddress>,
        accepted: Accepted,
    ) -> impl Future<Output = ()> + 'static {
        let Accepted { stream, peer } = accepted;
        connection::serve(Connection::new(worker.clone(), stream, peer, listener.clone()))
    }

    async fn purge(generation: Arc<Generation>, order: PurgeOrder) -> Result<u64, String> {
        let PurgeOrder { zone, kind, soft, text } = order;
        let aim = match kind {
            PurgeKind::Key => Aim::Key(text),
            PurgeKind::Prefix => Aim::Prefix(text),
            PurgeKind::Tag => Aim::Tag(text),
            PurgeKind::All => Aim::All,
        };
        let (conf, caches) = (&generation.conf, &generation.caches);
        nowait_http::cache::purge::by_name(conf, caches, &zone, &aim, soft).await
    }

    fn reopen(generation: &Arc<Generation>, mut logs: HashMap<PathBuf, File>) {
        generation.logs.reopen(|path| logs.remove(path));
    }

    fn flush(generation: &Arc<Generation>, limit: Duration) {
        generation.caches.iter().for_each(|cache| cache.close(limit));
        generation.logs.flush(limit);
    }
}

/// Directories that have to be there: for temporary files, and for caches.
fn directories(plan: &HttpConf) -> Vec<PathBuf> {
    let temp = plan.temp_paths.iter().map(|temp| &temp.path);
    let paths = temp.chain(plan.caches.iter().map(|cache| &cache.path));
    paths.map(|path| PathBuf::from(std::ffi::OsString::from_vec(path.clone()))).collect()
}

/// Failures of logs are told to the control thread, which writes the main error log itself.
struct Reporter(Events);

impl Report for Reporter {
    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.0.send(Event::Log(level, message.to_string()));
    }
}
