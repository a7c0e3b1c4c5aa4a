//! Directives of the main and `events` contexts (nginx: `ngx_core_module`, `ngx_event_core_module`,
//! `ngx_thread_pool_module`): their rows, and the [`MainSettings`] made from them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nowait_catalogue::elsewhere::{self, SharedObject};
use nowait_conf::{
    Arity, Context, Cx, Diagnostic, Msec, Node, Offset, Path, Row, Scope, Setting, Value,
    ValueError, Words, arity, directives, rows, setting_enum,
};
use nowait_front::log::debug_connection::DebugConnections;
use nowait_front::log::directives::{ErrorLogTo, ErrorTarget};
use nowait_front::log::syslog::system_resolver;
use nowait_sys::limits;
use nowait_sys::user::{self, ProcessIdentity};

use crate::config_path::ConfigPath;
use crate::log::Level;
use crate::settings::{
    DriverChoice, EventSettings, GuardMode, MainSettings, POOL_QUEUE, PoolSettings, ProcessSettings,
};

/// User of the server process without `user`.
const USER_DEFAULT: &str = "nobody";

/// The error log of a daemon without `error_log` and `-e`, relative to the prefix.
const ERROR_LOG_DEFAULT: &str = "logs/error.log";

/// The tables of this file.
pub const TABLES: &[&[Row]] = &[MainConf::ROWS, EventsConf::ROWS];

directives! {
    /// The program as a whole.
    #[derive(Debug)]
    module "core";
    pub struct MainConf with MainLayer;

    /// Controls whether the server becomes a daemon: it leaves the terminal and runs in the
    /// background.
    daemon: bool = "on", in MAIN, args "on | off";
    /// Controls whether a privileged master process supervises an unprivileged server process. With
    /// `off`, everything runs in one process, for development; only log files are written by another
    /// one.
    master_process: bool = "on", in MAIN, args "on | off";
    /// The file that stores the process ID of the master. The default is `/run/nowait.pid`, or
    /// `nowait.pid` under the prefix given by `-p`.
    pid: Option<Path>, in MAIN, args "file";
    /// Accepted for compatibility: nothing needs a lock file.
    lock_file: Option<Path>, in MAIN, args "file";
    /// Accepted for compatibility: the clock is read once per turn of an event loop.
    timer_resolution: Option<Msec>, in MAIN, args "interval";
    /// Number of workers. They are threads of one server process, each with one event loop. `auto`
    /// means the number of processors.
    worker_processes: WorkerCount = "1", in MAIN, args "number | auto";
    /// Accepted for compatibility: there are no debug points.
    debug_points: Option<DebugPoints>, in MAIN, args "abort | stop";
    /// User and group of the server process. Without a group, the group of the same name is used,
    /// or else the user's primary group. Effective only if the master runs as root.
    user: Option<UserSetting> = "nobody" => default_user, in MAIN, args "user [group]";
    /// Scheduling priority of the server process, as with `nice`: a negative number means a higher
    /// priority.
    worker_priority: Option<Priority>, in MAIN, args "number";
    /// Binds workers to processors. Each mask applies to one worker, with the lowest processor
    /// rightmost; the last mask applies to all further workers. `auto` binds each worker to one
    /// processor, out of those in the mask if one is given.
    worker_cpu_affinity: Option<Affinity>, in MAIN, args "cpumask ... | auto [cpumask]";
    /// Limit on open files, per worker: the server process gets it once for each.
    worker_rlimit_nofile: Option<u64>, in MAIN, args "number";
    /// Limit on the size of core files. Without this directive, a server process that has changed its user
    /// leaves none, and other processes of that user can't look into its memory.
    worker_rlimit_core: Option<Offset>, in MAIN, args "size";
    /// Keeps the program's own code and constants in memory. When memory is short, the kernel drops such pages
    /// like any others of files, and then every request waits until the disk that the program is on has read
    /// them again. Needs a limit of locked memory (`LimitMEMLOCK=` of systemd) that is at least as large as the
    /// program; the master raises it if it runs as root. If the limit is too low, as much is locked as it
    /// allows, code first. The error log says how much, at level `notice`. An extension of Nowait.
    lock_program: bool = "on", in MAIN, args "on | off";
    /// Maximum time for a graceful shutdown; after that, open connections are closed, and their
    /// requests logged.
    worker_shutdown_timeout: Option<Msec>, in MAIN, args "time";
    /// Watches the files that directives name: certificates, keys, revocation lists and the like. When
    /// they change, they are used about a second later, without a reload; nothing else of the
    /// configuration is read again. Files that cannot be used, such as a certificate without its key,
    /// are logged, and the previous ones stay in use. The kernel must report changes (inotify), which
    /// it does not for those that other machines make on network file systems. An extension of Nowait.
    ssl_certificate_watch: bool = "off", in MAIN, args "on | off";
    /// Working directory of the server process, where it writes core files.
    working_directory: Option<Words>, in MAIN, args "directory";
    /// Keeps or sets an environment variable. All others except TZ are removed.
    env: Vec<EnvEntry>, in MAIN, args "variable[=value]";
    /// Logs messages of the program itself, and of everything without a log of its own, to a file,
    /// to standard error (`stderr`) or to a syslog server (`syslog:server=address`). Levels in
    /// ascending order: `debug`, `info`, `notice`, `warn`, `error` (the default), `crit`, `alert`,
    /// `emerg`. By default a daemon logs to `logs/error.log` under the prefix, and a program in the
    /// foreground to standard error. A message is one line: line breaks become spaces, and other
    /// control characters (also separators of lines and marks for the direction of text) `\xXX`.
    ///
    /// `json` or `format=json` writes objects with the members of NGINX Plus: `timestamp`, `level`, `pid`, `tid`,
    /// `cnum` (the connection), `msg`, `errno`, `errtext`, `client`, `server`, `request`, `subrequest`, `upstream`,
    /// `host`, `referrer` and `action`, as far as they are known; one that had to be shortened to 2 KB has
    /// `"truncated":1`. `tag` adds a text to each line: `[text]` before the message, or a member. `filter` writes only
    /// lines whose message, with client and request, matches a regular expression (PCRE2; `~*` ignores case), or with
    /// `!` only those that do not. `rate` writes at most so many lines of one message per second (`5r/s`) or minute
    /// (`30r/m`); when that time is over, a line tells how many were left out. Messages are the same if they differ
    /// only in numbers and quoted text. It does not apply to messages of the master process.
    error_log: Vec<ErrorLogTo>, in MAIN,
    args "file [level] [json | format=json | format=text] [tag=text] [filter=[!]~[*]regex] [rate=number r/s|r/m]";
    /// Defines a pool of threads for work that may wait for a disk. While all threads are busy,
    /// tasks wait in the queue; when the queue is full, the request of a further task fails. The
    /// pool `default` has 32 threads and a queue of 65536 tasks unless it is redefined. The pool
    /// `compute`, with one thread per processor (at least two), is for processor-bound work:
    /// compression and password hashes.
    thread_pool: Vec<PoolSetting>, in MAIN, args "name threads=number [max_queue=number]";
    /// Accepted for compatibility: a reload reads certificates and keys again, but no event loop waits
    /// for it.
    ssl_object_cache_inheritable: bool = "off", in MAIN, args "on | off";
    /// Accepted for compatibility: packets reach the worker that has their connection without a program in the
    /// kernel, and without its privileges.
    quic_bpf: bool = "off", in MAIN, args "on | off";
    /// Accepted for compatibility: regular expressions are always compiled.
    pcre_jit: bool = "off", in MAIN, args "on | off";
}

directives! {
    /// Connection processing.
    #[derive(Debug)]
    module "events";
    pub struct EventsConf with EventsLayer;

    /// Maximum number of simultaneous connections of a worker.
    worker_connections: usize = "512", in EVENTS, args "number";
    /// Selects the event mechanism: epoll by default. io_uring costs less CPU time for some kinds of
    /// requests, and more memory for clients that read slowly; if the kernel does not support it well enough,
    /// epoll is used. The log says at level `notice` which one runs and why.
    use_driver("use"): Option<UseDriver>, in EVENTS, args "epoll | io_uring";
    /// Accepts all pending connections at once instead of one at a time.
    multi_accept: bool = "off", in EVENTS, args "on | off";
    /// Accepted for compatibility: the kernel wakes one worker at a time for a shared listening
    /// socket.
    accept_mutex: bool = "off", in EVENTS, args "on | off";
    /// How long a worker stops accepting after descriptors have run out.
    accept_mutex_delay: Msec = "500ms", in EVENTS, args "time";
    /// Maximum number of events taken from the kernel at a time; at most 65536. Applies to epoll
    /// only.
    epoll_events: usize = "512", in EVENTS, args "number";
    /// Accepted for compatibility: thread pools read files, and have their own limits.
    worker_aio_requests: usize = "32", in EVENTS, args "number";
    /// Logs everything about the connections of these clients to the error log, regardless of its level.
    debug_connection: Vec<DebugConnection>, in EVENTS, args "address | CIDR | unix:";
    /// Watches every event loop for calls that could wait for a disk. `on` reports them, `strict`
    /// ends the process at the first one.
    event_loop_guard: GuardSetting = "off", in EVENTS, args "on | off | strict";
}

rows! {
    pub static STRUCTURE, module "core";

    /// Contains the directives that affect connection processing.
    block "events" => events, in MAIN, take none(), args "{ ... }";
    /// Accepted without effect for modules that are built in: everything is. Other modules are an
    /// error.
    "load_module" => load_module, in MAIN, take exactly(1), args "file";
}

fn load_module(_: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let file = word.lossy();
    let name = file.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".so").unwrap_or(name);
    match elsewhere::shared_object(&file) {
        SharedObject::BuiltIn(_) => Ok(()),
        SharedObject::Foreign(_) | SharedObject::Missing(_) | SharedObject::Unknown => {
            Err(word.error(format!("module \"{name}\" does not exist in nowait")).hint(
                "there are no loadable modules: remove the line, and the directives of the module",
            ))
        }
    }
}

setting_enum! {
    /// `debug_points`.
    pub enum DebugPoints { Stop = "stop", Abort = "abort" }
}

setting_enum! {
    /// `event_loop_guard`.
    pub enum GuardSetting { Off = "off", On = "on", Strict = "strict" }
}

#[derive(Default)]
struct EventsScope(Option<Scope>);

fn events(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let scope = cx.block(Context::EVENTS, node.children());
    cx.set_global(EventsScope(Some(scope)));
    Ok(())
}

/// `worker_processes`.
#[derive(Clone, Copy, Debug)]
pub struct WorkerCount(usize);

impl Value for WorkerCount {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        /// More workers than any machine has processors.
        const WORKERS_MAX: usize = 1024;
        if text == b"auto" {
            return Ok(WorkerCount(limits::cpu_count()));
        }
        match usize::from_word(text) {
            // With 0, nginx starts no worker.
            Ok(count) if count <= WORKERS_MAX => Ok(WorkerCount(count.max(1))),
            _ => {
                Err(ValueError::value()
                    .expected(format!("\"auto\" or a number up to {WORKERS_MAX}")))
            }
        }
    }
}

/// `worker_priority`.
#[derive(Clone, Copy, Debug)]
pub struct Priority(i32);

impl Value for Priority {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        let (digits, sign) = match text {
            [b'-', rest @ ..] => (rest, -1),
            [b'+', rest @ ..] => (rest, 1),
            rest => (rest, 1),
        };
        let number = u8::from_word(digits).map_err(|_| {
            ValueError::directive("invalid number").expected("a number from -20 to 20")
        })?;
        Ok(Priority(i32::from(number) * sign))
    }
}

/// `user`.
#[derive(Clone, Debug)]
pub struct UserSetting(Option<ProcessIdentity>);

impl Setting for UserSetting {
    const ARITY: Arity = arity::between(1, 2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        if user::effective_uid() != 0 {
            cx.report(
                Diagnostic::warn(
                    "the \"user\" directive makes sense only if the master process runs with \
                     super-user privileges, ignored",
                )
                .at(node.name.span),
            );
            return Ok(UserSetting(None));
        }
        let [name, group @ ..] = node.args.as_slice() else { return Err(node.arity_error()) };
        let missing =
            |call: &str, word: &nowait_conf::Word| word.error(format!("{call}(\"{word}\") failed"));
        let found = user::account(name.to_str()?).ok().flatten();
        let account = found.ok_or_else(|| {
            missing("getpwnam", name).expected("a user of this system").hint(format!(
                "create it, for example with \"useradd --system {name}\", or name another one"
            ))
        })?;
        let gid = match group.first() {
            Some(group) => user::gid_of(group.to_str()?)
                .ok()
                .flatten()
                .ok_or_else(|| missing("getgrnam", group).expected("a group of this system"))?,
            // nginx differs: it fails when no group has the user's name.
            None => user::gid_of(name.to_str()?).ok().flatten().unwrap_or(account.gid),
        };
        Ok(UserSetting(Some(ProcessIdentity { gid, ..account })))
    }
}

/// nginx's default user and group are "nobody"; on some systems the group has another name.
fn default_user(_cx: &mut Cx<'_>) -> Option<UserSetting> {
    if user::effective_uid() != 0 {
        return None;
    }
    let account = user::account(USER_DEFAULT).ok().flatten()?;
    let gid = user::gid_of(USER_DEFAULT).ok().flatten().unwrap_or(account.gid);
    Some(UserSetting(Some(ProcessIdentity { gid, ..account })))
}

/// `worker_cpu_affinity`.
#[derive(Clone, Debug)]
pub enum Affinity {
    /// One processor each, out of these.
    Auto(Vec<usize>),
    /// The processors of each worker.
    Masks(Vec<Vec<usize>>),
}

impl Setting for Affinity {
    const ARITY: Arity = arity::at_least(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [first, rest @ ..] = node.args.as_slice() else { return Err(node.arity_error()) };
        if first != "auto" {
            return Ok(Affinity::Masks(node.args.iter().map(mask).collect::<Result<_, _>>()?));
        }
        match rest {
            [] => Ok(Affinity::Auto((0..limits::cpu_count()).collect())),
            [word] => Ok(Affinity::Auto(mask(word)?)),
            _ => Err(node.arity_error()),
        }
    }
}

/// Processors of a mask; its rightmost digit is processor 0.
fn mask(word: &nowait_conf::Word) -> Result<Vec<usize>, Diagnostic> {
    let mut cpus = Vec::new();
    let mut index = 0;
    for byte in word.text.iter().rev().filter(|byte| **byte != b' ') {
        match byte {
            b'0' => {}
            b'1' => cpus.push(index),
            other => {
                let character = char::from(*other);
                return Err(word
                    .error(format!("invalid character \"{character}\" in \"worker_cpu_affinity\""))
                    .expected("a mask of 0 and 1"));
            }
        }
        index += 1;
    }
    if index > limits::CPUS_MAX {
        return Err(word.error(format!(
            "\"worker_cpu_affinity\" supports up to {} CPUs only",
            limits::CPUS_MAX
        )));
    }
    Ok(cpus)
}

/// `env`.
#[derive(Clone, Debug)]
pub struct EnvEntry(OsString);

impl Value for EnvEntry {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        if text.contains(&0) || text.first().is_none_or(|first| *first == b'=') {
            return Err(ValueError::value().expected("a variable, or variable=value"));
        }
        Ok(EnvEntry(OsString::from_vec(text.to_vec())))
    }
}

/// `thread_pool`.
#[derive(Clone, Debug)]
pub struct PoolSetting(PoolSettings);

/// The pools defined so far, to detect duplicates.
#[derive(Default)]
struct PoolNames(Vec<String>);

impl Setting for PoolSetting {
    const ARITY: Arity = arity::between(2, 3);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        /// More threads than the kernel starts for one process by default.
        const THREADS_MAX: usize = 16_384;
        let [name, parameters @ ..] = node.args.as_slice() else { return Err(node.arity_error()) };
        let (mut threads, mut max_queue) = (None, POOL_QUEUE);
        for word in parameters {
            if let Some(value) = word.strip_prefix("threads=") {
                let count = usize::from_word(&value.text).ok();
                let count = count.filter(|count| (1..=THREADS_MAX).contains(count));
                threads = Some(count.ok_or_else(|| {
                    word.error(format!("invalid threads value \"{word}\""))
                        .expected(format!("a number from 1 to {THREADS_MAX}"))
                })?);
            } else if let Some(value) = word.strip_prefix("max_queue=") {
                max_queue = usize::from_word(&value.text).map_err(|_| {
                    word.error(format!("invalid max_queue value \"{word}\"")).expected("a number")
                })?;
            } else {
                return Err(node.parameter_error(word));
            }
        }
        let Some(threads) = threads else {
            return Err(node
                .error(format!("\"{name}\" must have \"threads\" parameter"))
                .expected("thread_pool name threads=number [max_queue=number]"));
        };
        let name_text = name.to_str()?.to_owned();
        let known = &mut cx.global::<PoolNames>().0;
        if known.contains(&name_text) {
            return Err(name.error(format!("duplicate thread pool \"{name}\"")));
        }
        known.push(name_text.clone());
        Ok(PoolSetting(PoolSettings { name: name_text, threads, max_queue }))
    }
}

/// `use`.
#[derive(Clone, Copy, Debug)]
pub struct UseDriver(DriverChoice);

impl Value for UseDriver {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        match text {
            b"epoll" => Ok(UseDriver(DriverChoice::Epoll)),
            b"io_uring" => Ok(UseDriver(DriverChoice::IoUring)),
            other => {
                let name = String::from_utf8_lossy(other);
                let error = ValueError::message(format!("invalid event type \"{name}\""))
                    .expected("\"epoll\" or \"io_uring\"");
                let elsewhere = ["select", "poll", "kqueue", "eventport", "/dev/poll", "rtsig"];
                Err(if elsewhere.contains(&&*name) {
                    error.hint("only the scalable event mechanisms of Linux are supported")
                } else {
                    error
                })
            }
        }
    }
}

/// `debug_connection`: collected separately.
#[derive(Clone, Debug)]
pub struct DebugConnection;

impl Setting for DebugConnection {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let added = cx.global::<DebugConnections>().add(word.to_str()?, &system_resolver);
        if added.map_err(|message| word.error(message))? {
            let text = format!("low address bits of {word} are meaningless");
            cx.report(Diagnostic::warn(text).at(word.span));
        }
        Ok(DebugConnection)
    }
}

/// The settings of the top level.
pub fn resolve(cx: &mut Cx<'_>, main: &Scope, place: &ConfigPath) -> MainSettings {
    let events = cx.take_global::<EventsScope>().0;
    let events = EventsConf::resolve(cx, events.as_ref().as_slice());
    let main = Arc::unwrap_or_clone(MainConf::resolve(cx, &[main]));
    let workers = main.worker_processes.0;
    let msec = |time: Msec| Duration::from_millis(time.0);
    let mut pools: Vec<PoolSettings> = main.thread_pool.into_iter().map(|pool| pool.0).collect();
    for always in [PoolSettings::compute_pool(), PoolSettings::default_pool()] {
        if !pools.iter().any(|pool| pool.name == always.name) {
            pools.insert(0, always);
        }
    }
    let mut error_logs = main.error_log;
    if error_logs.is_empty() {
        let target = match &place.error_log {
            Some(path) => ErrorTarget::File(path.clone()),
            // A daemon has no terminal, so output to it is lost.
            None if main.daemon && !place.error_log_is_stderr => {
                ErrorTarget::File(place.prefix.join(ERROR_LOG_DEFAULT))
            }
            None => ErrorTarget::Stderr,
        };
        error_logs.push(ErrorLogTo { target, level: Level::Error, options: Default::default() });
    }
    let affinity = main.worker_cpu_affinity.map_or(Vec::new(), |affinity| match affinity {
        Affinity::Masks(masks) => {
            if masks.len() > 1 && masks.len() != workers {
                cx.report(Diagnostic::warn(
                    "the number of \"worker_processes\" is not equal to the number of \
                     \"worker_cpu_affinity\" masks, using last mask for remaining worker processes",
                ));
            }
            masks
        }
        Affinity::Auto(cpus) if cpus.is_empty() => Vec::new(),
        Affinity::Auto(cpus) => (0..workers).map(|n| vec![cpus[n % cpus.len()]]).collect(),
    });
    let working_directory = main.working_directory.and_then(|words| {
        let word = words.0.into_iter().next()?;
        Some(PathBuf::from(OsString::from_vec(word.text)))
    });
    MainSettings {
        debug_connections: cx.take_global(),
        daemon: main.daemon,
        master_process: main.master_process,
        pid: main.pid.map_or(place.pid_default.clone(), |path| path.as_path().to_owned()),
        error_logs,
        workers,
        affinity,
        certificate_watch: main.ssl_certificate_watch,
        shutdown_timeout: main.worker_shutdown_timeout.map(msec).filter(|time| !time.is_zero()),
        pools,
        events: EventSettings {
            connections: events.worker_connections,
            driver: events.use_driver.map(|driver| driver.0),
            multi_accept: events.multi_accept,
            accept_delay: msec(events.accept_mutex_delay),
            events_max: events.epoll_events,
            guard: match events.event_loop_guard {
                GuardSetting::Off => GuardMode::Off,
                GuardSetting::On => GuardMode::On,
                GuardSetting::Strict => GuardMode::Strict,
            },
        },
        process: ProcessSettings {
            identity: main.user.and_then(|user| user.0),
            open_files: main.worker_rlimit_nofile.map(|n| n.saturating_mul(workers as u64)),
            core_bytes: main.worker_rlimit_core.map(|size| size.0),
            lock_program: main.lock_program,
            priority: main.worker_priority.map(|priority| priority.0),
            working_directory,
            environment: main.env.into_iter().map(|entry| entry.0).collect(),
        },
    }
}
