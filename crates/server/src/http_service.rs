//! The HTTP server as the program's service.
//!
//! Connects the program (processes, sockets, generations) to the `http` crate. Knows no protocol:
//! that is `http`'s.

use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{Cx, Row, Scope};
use nowait_http::conf::{self, HttpConf, PoolsWanted};
use nowait_http::connection::{self, Connection};
use nowait_http::generation::Generation;
use nowait_http::log::Level;
use nowait_http::log::debug_connection::DebugConnections;
use nowait_http::log::error::{ErrorLog, Output};
use nowait_http::log::syslog;
use nowait_http::log::writer::{Buffering, Writer};
use nowait_http::logs::{self, Logs};
use nowait_http::worker::Worker;
use nowait_runtime::net::Accepted;
use nowait_sys::listen::ListenAddress;

use crate::service::{Needs, Resources, Service};
use crate::settings::{LogTarget, Settings};

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
                cx.report(word.error(format!("unknown thread pool \"{name}\"")).hint(format!(
                    "define it in the main context: thread_pool {name} threads=32;"
                )));
            }
        }
        http
    }

    fn needs(plan: &HttpConf) -> Needs {
        Needs {
            listens: plan.listens().iter().map(|listen| listen.spec.clone()).collect(),
            logs: logs::files(plan),
            directories: plan
                .temp_paths
                .iter()
                .map(|temp| PathBuf::from(std::ffi::OsString::from_vec(temp.path.clone())))
                .collect(),
        }
    }

    fn activate(
        plan: HttpConf,
        resources: Resources,
        previous: Option<&Arc<Generation>>,
    ) -> Result<Generation, String> {
        let Resources { number, settings, logs: mut files, pools, lifeline } = resources;
        let writer = match previous {
            Some(previous) => previous.logs.writer().clone(),
            None => Arc::new(
                Writer::start().map_err(|error| format!("the log thread can't start: {error}"))?,
            ),
        };
        let main = main_log(&settings, &writer, &mut files)?;
        let logs = Logs::open(&plan, writer, main, DebugConnections::default(), &mut |path| {
            files.remove(path)
        });
        Ok(Generation { number, conf: plan, pools, logs, lifeline })
    }

    fn worker(generation: Arc<Generation>) -> Rc<Worker> {
        Worker::new(generation)
    }

    fn update(worker: &Rc<Worker>, generation: Arc<Generation>) {
        worker.activate(generation);
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

    fn reopen(generation: &Arc<Generation>, mut logs: HashMap<PathBuf, File>) {
        generation.logs.reopen(|path| logs.remove(path));
    }

    fn flush(generation: &Arc<Generation>, limit: Duration) {
        generation.logs.flush(limit);
    }
}

/// The error log of the main context.
fn main_log(
    settings: &Settings,
    writer: &Writer,
    files: &mut HashMap<PathBuf, File>,
) -> Result<ErrorLog, String> {
    let mut outputs = Vec::with_capacity(settings.error_logs.len());
    for log in &settings.error_logs {
        let level = Level::from_name(log.level.word().as_bytes()).unwrap_or(Level::Error);
        outputs.push(match &log.target {
            LogTarget::Stderr => Output { sink: writer.stderr(), level, syslog: None },
            LogTarget::File(path) => {
                let sink = writer.file(path, files.remove(path), Buffering::default());
                Output { sink, level, syslog: None }
            }
            LogTarget::Syslog(text) => {
                let hostname = nowait_sys::process::hostname();
                let options = syslog::Options::parse(text, &hostname, &syslog::system_resolver)
                    .map_err(|error| error.to_string())?;
                Output { sink: writer.syslog(&options), level, syslog: Some(options) }
            }
        });
    }
    Ok(ErrorLog::new(outputs))
}
