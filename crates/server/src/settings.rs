//! The main and `events` contexts, resolved to plain values.
//!
//! Made by `conf_core.rs` from the directives; read by the master and the server process.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use nowait_front::log::debug_connection::DebugConnections;
use nowait_front::log::directives::ErrorLogTo;
use nowait_runtime::driver::Requested;
use nowait_sys::user::ProcessIdentity;

/// Name of the pool that always exists.
pub const POOL_DEFAULT: &str = "default";
/// Name of the pool for processor-bound work: compression, password hashes. It always exists, too.
pub const POOL_COMPUTE: &str = "compute";
/// Threads of the default pool (nginx: 32).
pub const POOL_THREADS: usize = 32;
/// The queue, and that of the pool for computing (nginx: 65536).
pub const POOL_QUEUE: usize = 65_536;

/// The settings of the main context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MainSettings {
    /// `daemon`.
    pub daemon: bool,
    /// `master_process`.
    pub master_process: bool,
    /// `pid`, a full path.
    pub pid: PathBuf,
    /// `error_log` of the main context; never empty.
    pub error_logs: Vec<ErrorLogTo>,
    /// `worker_processes`: at least 1.
    pub workers: usize,
    /// `worker_cpu_affinity`: the processors of each worker; the last entry applies to all further
    /// ones. Empty: not bound.
    pub affinity: Vec<Vec<usize>>,
    /// `worker_shutdown_timeout`; `None` means no limit.
    pub shutdown_timeout: Option<Duration>,
    /// `ssl_certificate_watch`
    pub certificate_watch: bool,
    /// `thread_pool`s, the default one included.
    pub pools: Vec<PoolSettings>,
    /// The `events` block.
    pub events: EventSettings,
    /// `debug_connection`s of the `events` block.
    pub debug_connections: DebugConnections,
    /// Settings that can only be applied to a new process.
    pub process: ProcessSettings,
}

impl MainSettings {
    /// The maximum number of descriptors that the server process is expected to use: the operator's
    /// limit, or one file per connection plus those independent of connections.
    pub fn descriptors(&self) -> u64 {
        /// Listening sockets, logs, caches, the program itself.
        const OTHERS: u64 = 1024;
        let connections = (self.events.connections as u64).saturating_mul(self.workers as u64);
        let estimate = connections.saturating_mul(2).saturating_add(OTHERS);
        self.process.open_files.unwrap_or(estimate)
    }
}

/// Settings applied to a process at its start; a reload that changes any of them replaces the
/// server process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSettings {
    /// `user`; `None` when the master is not privileged.
    pub identity: Option<ProcessIdentity>,
    /// `worker_rlimit_nofile` times the number of workers, since nginx gives it to each of its
    /// worker processes.
    pub open_files: Option<u64>,
    /// `worker_rlimit_core`, bytes.
    pub core_bytes: Option<u64>,
    /// `lock_program`.
    pub lock_program: bool,
    /// `worker_priority`.
    pub priority: Option<i32>,
    /// `working_directory`.
    pub working_directory: Option<PathBuf>,
    /// `env`: `NAME` (kept from the master's environment) or `NAME=VALUE`.
    pub environment: Vec<OsString>,
}

impl ProcessSettings {
    /// The environment of the server process (and of a new binary): the variables named by `env`,
    /// and TZ, as in nginx.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        use std::os::unix::ffi::OsStrExt;
        let mut result: Vec<(OsString, OsString)> = Vec::new();
        let tz = OsString::from("TZ");
        for entry in self.environment.iter().chain([&tz]) {
            let bytes = entry.as_bytes();
            let split = bytes.iter().position(|b| *b == b'=');
            let name = OsStr::from_bytes(&bytes[..split.unwrap_or(bytes.len())]);
            if name.is_empty() || result.iter().any(|(known, _)| known == name) {
                continue;
            }
            let value = match split {
                Some(at) => Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned()),
                None => std::env::var_os(name),
            };
            if let Some(value) = value {
                result.push((name.to_owned(), value));
            }
        }
        result
    }
}

/// One `thread_pool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// The name.
    pub name: String,
    /// `threads=`.
    pub threads: usize,
    /// `max_queue=`.
    pub max_queue: usize,
}

impl PoolSettings {
    /// The pool that exists unless it is redefined.
    pub fn default_pool() -> PoolSettings {
        PoolSettings { name: POOL_DEFAULT.to_owned(), threads: POOL_THREADS, max_queue: POOL_QUEUE }
    }

    /// The pool for computing, unless it is redefined: more threads than processors would only cost
    /// memory and caches; at least two, so that one long job does not hold up all others.
    pub fn compute_pool() -> PoolSettings {
        let threads = std::thread::available_parallelism().map_or(2, |processors| processors.get());
        let (name, threads) = (POOL_COMPUTE.to_owned(), threads.max(2));
        PoolSettings { name, threads, max_queue: POOL_QUEUE }
    }
}

impl EventSettings {
    /// The driver that will be used, as the startup log names it.
    pub fn requested(&self) -> Requested {
        match self.driver {
            None => Requested::Default,
            Some(DriverChoice::Epoll) => Requested::Epoll,
            Some(DriverChoice::IoUring) => Requested::IoUring,
        }
    }
}

/// The `events` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSettings {
    /// `worker_connections`.
    pub connections: usize,
    /// `use`; `None` lets the program choose.
    pub driver: Option<DriverChoice>,
    /// `multi_accept`.
    pub multi_accept: bool,
    /// `accept_mutex_delay`.
    pub accept_delay: Duration,
    /// `epoll_events`.
    pub events_max: usize,
    /// `event_loop_guard`.
    pub guard: GuardMode,
}

/// `use`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverChoice {
    /// `use epoll`.
    Epoll,
    /// `use io_uring`.
    IoUring,
}

/// `event_loop_guard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardMode {
    /// No filter.
    #[default]
    Off,
    /// A blocking file call on a loop fails and is logged.
    On,
    /// A blocking file call on a loop ends the process.
    Strict,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_what_env_names() {
        let settings = ProcessSettings {
            environment: ["PATH", "A=1", "A=2", "NOT_SET_ANYWHERE", "TZ=UTC"]
                .map(OsString::from)
                .to_vec(),
            ..ProcessSettings::default()
        };
        let mut names: Vec<_> = settings.environment();
        assert_eq!(names.remove(0).0, "PATH");
        assert_eq!(names, [("A".into(), "1".into()), ("TZ".into(), "UTC".into())]);
    }
}
