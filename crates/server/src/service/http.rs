//! The `http` crate as a part of the service.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nowait_backend::cache;
use nowait_backend::cache::purge::Aim;
use nowait_conf::{Cx, Scope};
use nowait_front::log::Level;
use nowait_front::log::error::{ErrorLog, LineContext};
use nowait_front::logs::{self, Logs};
use nowait_front::resolvers::Resolvers;
use nowait_front::sessions::ReportQuic;
use nowait_http::blocks;
use nowait_http::conf::{HttpConf, PoolsWanted};
use nowait_http::generation::{Contents, Generation};
use nowait_http::logs as http_logs;
use nowait_quic::{Directory, HostKey};
use nowait_runtime::fs::resident;

use super::{Needs, QuicProcess, SharedParts};
use crate::settings::MainSettings;
use crate::wire::{PurgeKind, PurgeOrder};

/// The plan of the `http` block.
pub(super) fn plan(cx: &mut Cx<'_>, main: &Scope, settings: &MainSettings) -> HttpConf {
    let http = blocks::build(cx, main, nowait_modules::MODULES).unwrap_or_default();
    for (name, word) in cx.take_global::<PoolsWanted>().0 {
        if !settings.pools.iter().any(|pool| pool.name == name) {
            let known = settings.pools.iter().map(|pool| pool.name.as_str());
            let error = word.error(format!("unknown thread pool \"{name}\""));
            cx.report(match nowait_conf::nearest(&name, known) {
                Some(nearest) => error.hint(format!("did you mean \"{nearest}\"?")),
                None => error
                    .hint(format!("define it in the main context: thread_pool {name} threads=32;")),
            });
        }
    }
    http
}

/// The files and sockets to open for the plan.
pub(super) fn needs(plan: &HttpConf) -> Needs {
    Needs {
        listens: plan.listens().iter().map(|listen| listen.spec.clone()).collect(),
        logs: logs::files(http_logs::blocks(plan)),
        stderr: logs::uses_stderr(http_logs::blocks(plan)),
        directories: directories(plan),
    }
}

/// Puts a plan to use.
pub(super) fn activate(
    mut plan: HttpConf,
    shared: &mut SharedParts,
    previous: Option<&Arc<Generation>>,
) -> Generation {
    if let Some(previous) = previous {
        plan.adopt(&previous.conf);
    }
    nowait_backend::health::prepare(&plan);
    keep_files(&plan, &shared.main);
    let SharedParts { number, settings, pools, writer, main, files, sessions, quic, lifeline } =
        shared;
    let mut opened = |path: &Path| files.remove(path);
    let debug = settings.debug_connections.clone();
    let logs =
        Logs::open(http_logs::blocks(&plan), writer.clone(), main.clone(), debug, &mut opened)
            .with_tasks(http_logs::task_block(&plan));
    let stores = previous.map_or(&[][..], |previous| &previous.caches);
    let caches = nowait_backend::cache::zone::open(&plan, stores);
    let pool = &pools[nowait_http::generation::DEFAULT_POOL];
    let resolvers = previous.map(|previous| &previous.resolvers);
    let resolvers = Resolvers::new(&plan.resolvers, pool, resolvers);
    let (number, pools, lifeline) = (*number, pools.clone(), Box::new(lifeline.clone()));
    let sessions = sessions.take();
    let quic = quic.take().map(|quic| -> ReportQuic { Box::new(move || quic.counters().all()) });
    let conf = plan;
    Generation::new(Contents {
        number,
        conf,
        pools,
        caches,
        resolvers,
        logs,
        sessions,
        quic,
        lifeline,
    })
}

/// The workers as datagrams of QUIC find them, with the key of the plan. Reloads keep it, even those that remove
/// all addresses with `quic`: connections to these continue.
pub(super) fn directory(
    plan: &HttpConf,
    previous: Option<&Arc<Directory>>,
    process: &QuicProcess,
) -> Option<Arc<Directory>> {
    let directory = match previous {
        Some(previous) => previous.clone(),
        None if plan.has_quic() => Directory::new(&process.secret, process.processes.clone()),
        None => return None,
    };
    let key = plan.quic_host_key().and_then(HostKey::new);
    directory.set_key(key.as_ref());
    Some(directory)
}

/// Sets the bounds of resident files.
fn keep_files(plan: &HttpConf, main: &ErrorLog) {
    let mut limits = plan.resident_limits();
    let allowed = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    if let Some(allowed) = allowed.ok().and_then(|text| text.trim().parse::<usize>().ok()) {
        limits.watches = limits.watches.min(allowed / 2);
    }
    if let Err(error) = resident::configure(limits) {
        let message = format!(
            "no files are kept in memory: inotify_init1() failed {}; raise \
             fs.inotify.max_user_instances, or set resident_files_memory to 0",
            nowait_http::files::errno(&error)
        );
        main.log(Level::Warn, LineContext::default(), format_args!("{message}"));
    }
}

/// Purges a cache and returns the number of purged objects.
pub(super) async fn purge(generation: &Generation, order: PurgeOrder) -> Result<u64, String> {
    let PurgeOrder { zone, kind, soft, text } = order;
    let aim = match kind {
        PurgeKind::Key => Aim::Key(text),
        PurgeKind::Prefix => Aim::Prefix(text),
        PurgeKind::Tag => Aim::Tag(text),
        PurgeKind::All => Aim::All,
    };
    let (conf, caches) = (&generation.conf, &generation.caches);
    nowait_backend::cache::purge::by_name(conf, caches, &zone, &aim, soft).await
}

/// Required directories: for temporary files, for caches, and for the state of modules.
fn directories(plan: &HttpConf) -> Vec<PathBuf> {
    let temp = plan.temp_paths.iter().map(|temp| &temp.path);
    let paths = temp
        .chain(cache::path::paths(plan).iter().map(|cache| &cache.path))
        .chain(&plan.state_paths);
    paths.map(|path| PathBuf::from(std::ffi::OsString::from_vec(path.clone()))).collect()
}
