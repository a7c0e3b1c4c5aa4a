//! The `stream` crate as a part of the service.

use std::path::Path;
use std::sync::Arc;

use nowait_front::limit;
use nowait_front::logs::{self, Logs};
use nowait_front::resolvers::Resolvers;
use nowait_front::sessions::{ReportSessions, SessionsReport};
use nowait_http::generation::{COMPUTE_POOL, DEFAULT_POOL};
use nowait_stream::conf::StreamConf;
use nowait_stream::counts;
use nowait_stream::generation::{Generation, StreamContents};
use nowait_stream::{logs as stream_logs, zone};
use nowait_upstream::Group;

use super::{Needs, SharedParts};

/// The files and sockets to open for the plan.
pub(super) fn needs(plan: &StreamConf) -> Needs {
    Needs {
        listens: plan.listens().iter().map(|listen| listen.spec.clone()).collect(),
        logs: logs::files(stream_logs::all(plan)),
        stderr: logs::uses_stderr(stream_logs::all(plan)),
        directories: Vec::new(),
    }
}

/// The counters for status pages; `None` if there are no servers.
pub(super) fn report(plan: &StreamConf) -> Option<ReportSessions> {
    if plan.servers().is_empty() {
        return None;
    }
    let groups: Vec<Arc<Group>> = plan.upstreams.of_blocks().cloned().collect();
    let keyvals = plan.keyvals.clone();
    Some(Box::new(move || {
        let totals = counts::totals();
        SessionsReport {
            total: totals.sessions,
            active: totals.active,
            udp_active: totals.udp_active,
            udp_dropped: totals.udp_dropped,
            upstreams: groups.clone(),
            keyvals: keyvals.clone(),
            zones: zone::snapshot(),
        }
    }))
}

/// Puts a plan to use. `resolvers` are those of `http`, whose caches are shared.
pub(super) fn activate(
    mut plan: StreamConf,
    shared: &mut SharedParts,
    resolvers: &Resolvers,
    previous: Option<&Arc<Generation>>,
) -> Generation {
    if let Some(previous) = previous {
        limit::adopt(&mut plan.limit_zones, &previous.conf.limit_zones);
        plan.upstreams.adopt(&previous.conf.upstreams);
        plan.tls_sessions.adopt(&previous.conf.tls_sessions);
    }
    let SharedParts { settings, pools, writer, main, files, lifeline, .. } = shared;
    let mut opened = |path: &Path| files.remove(path);
    let debug = settings.debug_connections.clone();
    let logs =
        Logs::open(stream_logs::blocks(&plan), writer.clone(), main.clone(), debug, &mut opened);
    let resolvers = Resolvers::new(&plan.resolvers, &pools[DEFAULT_POOL], Some(resolvers));
    Generation::new(StreamContents {
        conf: plan,
        resolvers,
        default_pool: pools[DEFAULT_POOL].clone(),
        compute_pool: pools.get(COMPUTE_POOL).unwrap_or(&pools[DEFAULT_POOL]).clone(),
        logs: Arc::new(logs),
        shutdown_timeout: settings.shutdown_timeout,
        connections_max: settings.events.connections,
        lifeline: Box::new(lifeline.clone()),
    })
}
