//! The server process: gives up root, then serves what the master sends until told to end.
//!
//! Runs the control thread: it waits for the master, for signals sent to this process and for
//! internal events, and never handles a client. With `master_process off` it is a thread beside the
//! master's, without signals of its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use nowait_conf::Bundle;
use nowait_front::log::directives::ErrorLogTo;
use nowait_front::log::error::set_common_level;
use nowait_quic::{HostKey, Processes};
use nowait_runtime::events::{self as status_events, EventKind, Severity};
use nowait_sys::signal::{Signal, Signals};
use nowait_sys::user::{self, DropError};
use nowait_sys::{limits, process};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::certificate_watch::CertificateWatch;
use crate::config::{self, Loaded};
use crate::config_path::ConfigPath;
use crate::engine::{Activation, Engine};
use crate::events::{self, EventQueue, Events, ServerEvent};
use crate::log::{Level, OsErrorText, Sink, StartupLog};
use crate::log_process::{LineSender, LogFile};
use crate::logs::{PassedLogs, sinks};
use crate::master::{EXIT_FATAL, Introduction, ServerStart};
use crate::program_lock;
use crate::service::QuicProcess;
use crate::settings::{MainSettings, ProcessSettings};
use crate::watchdog::Watchdog;
use crate::wire::{GenerationFrame, ToMaster, ToServer};

/// How long unwritten logs may delay the end of the process.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Maximum size of the preallocated descriptor table. Each entry costs 8 bytes of kernel memory,
/// used or not.
const TABLE_MAX: u64 = 1 << 20;

/// How long connections may take to end after `worker_shutdown_timeout`.
const CUT_MAX: Duration = Duration::from_secs(1);

/// How long workers may take to end when told to end at once.
const KILL_MAX: Duration = Duration::from_millis(500);

/// Runs the server process; returns its exit code.
pub fn run(start: ServerStart) -> u8 {
    let ServerStart { socket, process, log, lines, forked, watchdog_interval, introduction } =
        start;
    let Introduction { number, secret, inbox } = introduction;
    let processes = Processes::new(number, inbox);
    if forked && let Err(message) = settle(&process, &log) {
        log.log(Level::Emerg, message);
        return EXIT_FATAL;
    }
    nowait_runtime::fs::set_recent_memory(nowait_sys::memory::available_max());
    if !forked && process.lock_program {
        program_lock::lock(&log);
    }
    let opened = events::queue()
        .and_then(|queue| Ok((queue, if forked { Some(Signals::open()?) } else { None })));
    let ((events, queue), signals) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            log.log(Level::Emerg, format_args!("eventfd() failed {}", OsErrorText(&error)));
            return EXIT_FATAL;
        }
    };
    log_status_events(&events);
    let Some(secret) = HostKey::new(&secret) else {
        log.log(Level::Emerg, "the secret of QUIC is too short");
        return EXIT_FATAL;
    };
    let quic = QuicProcess { secret, processes: processes.clone() };
    let control = ServerControl {
        socket,
        log,
        lines,
        signals,
        queue,
        engine: Engine::new(events, quic),
        processes,
        error_logs: Vec::new(),
        shutdown_timeout: None,
        shutdown: None,
        master_gone: false,
        applying: None,
        watchdog_interval,
        watchdog: None,
        certificates: CertificateWatch::default(),
    };
    control.run()
}

/// Writes lines about status events, such as a pool that is nearly full.
fn log_status_events(events: &Events) {
    let events = events.clone();
    status_events::listen(move |event| {
        let level = match event.kind.severity() {
            Severity::Info => Level::Notice,
            Severity::Warning => Level::Warn,
            Severity::Error => Level::Error,
        };
        events.send(ServerEvent::Log(level, event.text.clone()));
    });
}

/// Applies user, limits and environment to the new process: first everything that needs root.
fn settle(settings: &ProcessSettings, log: &StartupLog) -> Result<(), String> {
    process::set_name("nowait: worker");
    let alert = |what: String, result: io::Result<()>| {
        if let Err(error) = result {
            log.log(Level::Alert, format_args!("{what} failed {}", OsErrorText(&error)));
        }
    };
    process::replace_environment(&settings.environment())
        .map_err(|error| format!("setting the environment failed {}", OsErrorText(&error)))?;
    if let Some(nice) = settings.priority {
        alert(format!("setpriority({nice})"), limits::set_priority(nice));
    }
    match settings.open_files {
        Some(count) => raise_open_files(count, log),
        // nginx differs: Nowait's workers share one process, and so one limit; take as much as is
        // allowed.
        None => {
            if let (Some(_), Some(hard)) = limits::open_files() {
                alert(format!("setrlimit(RLIMIT_NOFILE, {hard})"), limits::set_open_files(hard));
            }
        }
    }
    if let Some(bytes) = settings.core_bytes {
        alert(format!("setrlimit(RLIMIT_CORE, {bytes})"), limits::set_core_bytes(bytes));
    }
    if settings.lock_program {
        program_lock::lock(log);
    }
    if user::effective_uid() == 0
        && let Some(identity) = &settings.identity
    {
        user::become_identity(identity).map_err(|error| match error {
            DropError::Group(error) => {
                format!("setgid({}) failed {}", identity.gid, OsErrorText(&error))
            }
            DropError::Groups(error) => {
                let (name, gid) = (&identity.name, identity.gid);
                format!("initgroups({name}, {gid}) failed {}", OsErrorText(&error))
            }
            DropError::User(error) => {
                format!("setuid({}) failed {}", identity.uid, OsErrorText(&error))
            }
        })?;
    }
    // nginx differs: without core dumps, no process of this user may read keys by ptrace(2).
    if settings.core_bytes.is_some() {
        alert("prctl(PR_SET_DUMPABLE)".to_owned(), process::set_dumpable());
    }
    alert("prctl(PR_SET_NO_NEW_PRIVS)".to_owned(), process::set_no_new_privileges());
    if let Some(directory) = &settings.working_directory {
        std::env::set_current_dir(directory).map_err(|error| {
            format!("chdir(\"{}\") failed {}", directory.display(), OsErrorText(&error))
        })?;
    }
    Ok(())
}

/// The stages of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownStage {
    /// Connections end by themselves.
    Graceful,
    /// Workers have exceeded `worker_shutdown_timeout` and were told to end.
    Cut,
    /// Workers end, no matter what their connections do.
    Fast,
}

/// The stage of the shutdown.
#[derive(Clone, Copy, Debug)]
struct Shutdown {
    stage: ShutdownStage,
    /// The time at which the next stage begins.
    deadline: Option<Instant>,
}

struct ServerControl {
    socket: UnixStream,
    log: StartupLog,
    lines: Arc<LineSender>,
    signals: Option<Signals>,
    queue: EventQueue,
    engine: Engine,
    /// The processes that receive from the same UDP sockets.
    processes: Arc<Processes>,
    error_logs: Vec<ErrorLogTo>,
    shutdown_timeout: Option<Duration>,
    shutdown: Option<Shutdown>,
    master_gone: bool,
    /// The generation that workers are switching to, and its number of workers.
    applying: Option<(u64, usize)>,
    /// The service manager's.
    watchdog_interval: Option<Duration>,
    /// From the first generation on.
    watchdog: Option<Watchdog>,
    /// Warns of certificates that expire.
    certificates: CertificateWatch,
}

impl ServerControl {
    fn run(mut self) -> u8 {
        loop {
            let (socket, signals) = self.wait();
            if signals {
                self.take_signals();
            }
            if socket && let Some(code) = self.take_message() {
                return code;
            }
            while let Some(event) = self.queue.next() {
                if let Some(code) = self.take_event(event) {
                    return code;
                }
            }
            self.watch();
            self.certificates.check(Instant::now(), SystemTime::now());
            if self.is_over() {
                return self.end();
            }
        }
    }

    fn wait(&self) -> (bool, bool) {
        let mut fds = vec![PollFd::new(&self.queue, PollFlags::IN)];
        if let Some(signals) = &self.signals {
            fds.push(PollFd::new(signals, PollFlags::IN));
        }
        if !self.master_gone {
            fds.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        let deadline = self.shutdown.and_then(|shutdown| shutdown.deadline);
        let watched = self.watchdog.as_ref().map(Watchdog::deadline);
        let certificates = self.certificates.deadline();
        let deadline = deadline.into_iter().chain(watched).chain(certificates).min();
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        if let Err(error) = rustix::event::poll(&mut fds, left.as_ref())
            && error != rustix::io::Errno::INTR
        {
            self.log
                .log(Level::Alert, format_args!("poll() failed {}", OsErrorText(&error.into())));
        }
        let came = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let signals = usize::from(self.signals.is_some());
        (!self.master_gone && came(1 + signals), signals == 1 && came(1))
    }

    /// Sends liveness questions to the event loops when due, and reports loops that don't answer.
    fn watch(&mut self) {
        let Some(watchdog) = &mut self.watchdog else { return };
        let now = Instant::now();
        for line in watchdog.report(now) {
            self.log.log(Level::Alert, line);
        }
        if watchdog.deadline() <= now {
            self.engine.ask(|names, events| watchdog.begin(now, names, events));
        }
    }

    fn take_signals(&mut self) {
        while let Some(Ok(Some(received))) = self.signals.as_ref().map(Signals::next) {
            let signal = received.signal;
            let how = match signal {
                Signal::SIGTERM | Signal::SIGINT => ", exiting",
                Signal::SIGQUIT => ", shutting down",
                _ => "",
            };
            self.log.log(
                Level::Notice,
                format_args!(
                    "signal {} ({}) received from {}{how}",
                    signal as i32,
                    signal.as_str(),
                    received.sender
                ),
            );
            match signal {
                Signal::SIGTERM | Signal::SIGINT => self.terminate(),
                Signal::SIGQUIT => self.quit(),
                _ => {}
            }
        }
    }

    /// Handles one message of the master. `Some` ends the process.
    fn take_message(&mut self) -> Option<u8> {
        match ToServer::receive(&self.socket) {
            Ok(Some(ToServer::Generation(frame))) => self.take_generation(*frame),
            Ok(Some(ToServer::Reopen(logs))) => self.reopen(logs),
            Ok(Some(ToServer::LateLogs(logs))) => self.replace_logs(logs),
            Ok(Some(ToServer::Purge(id, order))) => self.engine.purge(id, order),
            Ok(Some(ToServer::LogLevel(id, level))) => {
                // All workers look at it with their next line.
                set_common_level(level);
                self.tell(&ToMaster::Replied { id, result: Ok(0) });
            }
            Ok(Some(ToServer::ReloadFailed(reason))) => {
                let text = format_args!("a new configuration was refused: {reason}");
                status_events::record(EventKind::ConfigurationRefused, "configuration", text);
            }
            Ok(Some(ToServer::Others(others))) => self.meet(others),
            Ok(Some(ToServer::Quit)) => self.quit(),
            Ok(Some(ToServer::Terminate)) => self.terminate(),
            Ok(None) => self.lost_master("has gone"),
            Err(error) => self.lost_master(&format!("does not speak: {error}")),
        }
        None
    }

    /// Datagrams of these processes are passed on to them from now on.
    fn meet(&self, others: Vec<(u16, OwnedFd)>) {
        if let Err(error) = self.processes.set_others(others) {
            let text = format_args!("connections over QUIC may be lost: {}", OsErrorText(&error));
            self.log.log(Level::Alert, text);
        }
    }

    /// Without a master there would be no reload and no restart, and its successor could not bind.
    /// Finish the requests in flight.
    fn lost_master(&mut self, how: &str) {
        self.master_gone = true;
        if self.shutdown.is_none() {
            self.log.log(Level::Alert, format_args!("the master process {how}, shutting down"));
            self.quit();
        }
    }

    fn take_generation(&mut self, frame: GenerationFrame) {
        let number = frame.number;
        if self.shutdown.is_some() {
            return self.tell(&ToMaster::Refused { number, reason: "shutting down".to_owned() });
        }
        if let Err(reason) = self.activate(frame) {
            self.tell(&ToMaster::Refused { number, reason });
        }
    }

    fn activate(&mut self, frame: GenerationFrame) -> Result<(), String> {
        let GenerationFrame { number, listeners, logs, .. } = frame;
        let place = ConfigPath {
            prefix: frame.prefix,
            conf_file: frame.conf_file,
            error_log: Some(frame.error_log).filter(|path| !path.as_os_str().is_empty()),
            error_log_is_stderr: frame.error_log_is_stderr,
            globals: frame.globals,
            builtin: None,
            pid_default: PathBuf::new(),
        };
        let bundle = Bundle::from_bytes(&frame.bundle).ok_or("the texts are malformed")?;
        // Their first copy, which may be large, is not needed any more.
        drop(frame.bundle);
        let interpreted = config::interpret_with_plan(&bundle, &place);
        let (loaded, plan) = interpreted.map_err(|refused| {
            // Errors before warnings.
            let worst = refused.lines.into_iter().min_by_key(|line| line.level);
            worst.map(|line| line.text).unwrap_or_else(|| "the texts are refused here".to_owned())
        })?;
        let addresses: Vec<_> =
            loaded.needs.listens.iter().map(|spec| (spec.address.clone(), spec.quic)).collect();
        let Loaded { settings, .. } = loaded;
        drop(bundle);
        let sinks = self.sinks(&settings.error_logs, &logs);
        let (timeout, error_logs) = (settings.shutdown_timeout, settings.error_logs.clone());
        let workers = settings.workers;
        let (logs, late_logs) = logs.receive();
        // Before the first thread starts, and later on this thread: see the function.
        grow_descriptor_table(&settings, self.socket.as_fd());
        self.engine.activate(Activation {
            number,
            settings,
            plan,
            addresses,
            sockets: listeners,
            logs,
            late_logs,
        })?;
        self.shutdown_timeout = timeout;
        self.error_logs = error_logs;
        self.log.set_sinks(sinks);
        // A level that was set while the server ran lasts until here.
        if set_common_level(None).is_some() {
            self.log.log(Level::Notice, "all error logs have their configured levels again");
        }
        self.applying = Some((number, workers));
        // Resources needed to read the configuration.
        nowait_sys::memory::give_back();
        Ok(())
    }

    fn reopen(&mut self, logs: PassedLogs) {
        self.log.log(Level::Notice, "reopening logs");
        self.log.set_sinks(self.sinks(&self.error_logs, &logs));
        self.engine.reopen(logs.receive().0);
        self.log_lines(self.engine.counters());
    }

    fn replace_logs(&mut self, logs: PassedLogs) {
        self.log.set_sinks(self.sinks(&self.error_logs, &logs));
        self.engine.replace_logs(logs.receive().0);
    }

    /// The sinks of the main error log. The log process writes to its files.
    fn sinks(&self, error_logs: &[ErrorLogTo], logs: &PassedLogs) -> Vec<Sink> {
        sinks(error_logs, |path| {
            let (_, id) = logs.ids.iter().find(|(known, _)| known == path)?;
            Some(Arc::new(LogFile::of_master(*id, self.lines.clone())))
        })
    }

    fn log_lines(&self, lines: Vec<String>) {
        for line in lines {
            self.log.log(Level::Notice, line);
        }
    }

    fn quit(&mut self) {
        if self.shutdown.is_some() {
            return;
        }
        self.log.log(Level::Notice, "gracefully shutting down");
        let deadline = self.shutdown_timeout.map(|timeout| Instant::now() + timeout);
        self.shutdown = Some(Shutdown { stage: ShutdownStage::Graceful, deadline });
        self.engine.quit();
    }

    fn terminate(&mut self) {
        if self.shutdown.is_some_and(|shutdown| shutdown.stage == ShutdownStage::Fast) {
            return;
        }
        let deadline = Some(Instant::now() + KILL_MAX);
        self.shutdown = Some(Shutdown { stage: ShutdownStage::Fast, deadline });
        self.engine.terminate();
    }

    /// Whether the shutdown is complete; a stage that takes too long is followed by the next.
    fn is_over(&mut self) -> bool {
        let Some(shutdown) = self.shutdown else { return false };
        if self.engine.is_idle() {
            return true;
        }
        if shutdown.deadline.is_some_and(|at| at <= Instant::now()) {
            match shutdown.stage {
                ShutdownStage::Graceful => {
                    self.log.log(Level::Notice, "shutdown timeout");
                    let deadline = Some(Instant::now() + CUT_MAX);
                    self.shutdown = Some(Shutdown { stage: ShutdownStage::Cut, deadline });
                    self.engine.cut();
                }
                ShutdownStage::Cut => self.terminate(),
                ShutdownStage::Fast => return true,
            }
        }
        false
    }

    fn end(&mut self) -> u8 {
        self.log.log(Level::Notice, "exiting");
        self.engine.flush(FLUSH_MAX);
        while let Some(event) = self.queue.next() {
            if let ServerEvent::Log(level, message) = event {
                self.log.log(level, message);
            }
        }
        self.log_lines(self.engine.work_counters());
        self.log.log(Level::Notice, "exit");
        0
    }

    /// `Some` ends the process.
    fn take_event(&mut self, event: ServerEvent) -> Option<u8> {
        match event {
            ServerEvent::Applied { number } => {
                if let Some((_, workers)) =
                    self.applying.take_if(|(applying, _)| *applying == number)
                {
                    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
                    self.tell(&ToMaster::Ready { number, workers });
                    let text =
                        format_args!("configuration {number} is in use by {workers} workers");
                    status_events::record(EventKind::ConfigurationApplied, "configuration", text);
                    self.certificates.check_now();
                    if let (None, Some(interval)) = (&self.watchdog, self.watchdog_interval) {
                        self.watchdog = Some(Watchdog::new(interval, Instant::now()));
                    }
                }
            }
            ServerEvent::Drained { number, workers } => {
                if self.shutdown.is_none() {
                    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
                    self.tell(&ToMaster::Drained { number, workers });
                }
            }
            ServerEvent::Alive { round } => {
                if let Some(watchdog) = &mut self.watchdog {
                    let late = watchdog.ended(round, Instant::now());
                    self.tell(&ToMaster::Alive { round });
                    if let Some((level, line)) = late {
                        self.log.log(level, line);
                    }
                }
            }
            ServerEvent::Log(level, message) => self.log.log(level, message),
            ServerEvent::MemoryFreed => nowait_sys::memory::give_back(),
            ServerEvent::Purged { id, result } => self.tell(&ToMaster::Replied { id, result }),
            ServerEvent::WorkerEnded { worker_set, index, error } => {
                let expected = self.engine.worker_ended(worker_set);
                if let Some(error) = &error {
                    let line = format_args!("worker {index} failed: {error}");
                    self.log.log(Level::Alert, line);
                }
                if !expected || error.is_some() {
                    self.log.log(Level::Alert, format_args!("worker {index} ended, exiting"));
                    self.engine.flush(FLUSH_MAX);
                    return Some(1);
                }
            }
        }
        None
    }

    fn tell(&mut self, message: &ToMaster) {
        if !self.master_gone
            && let Err(error) = message.send(&self.socket)
        {
            self.lost_master(&format!("does not listen: {error}"));
        }
    }
}

/// Gives the descriptor table its final size. Threads share the table, and growing it makes the
/// thread that needs more wait for an RCU grace period: up to 50 ms, in `accept` on an event loop.
fn grow_descriptor_table(settings: &MainSettings, any: BorrowedFd<'_>) {
    let (limit, _) = limits::open_files();
    let count = settings.descriptors().min(limit.unwrap_or(u64::MAX)).min(TABLE_MAX);
    // If it fails, the table grows when the descriptors are needed.
    let _ = limits::grow_descriptor_table(any, count as u32);
}

/// Sets the limit of open files to `count`, or to the maximum allowed: nginx's number is for one
/// worker, this one for all of them, so it may well be too large for one process.
fn raise_open_files(count: u64, log: &StartupLog) {
    let Err(error) = limits::set_open_files(count) else { return };
    let (_, hard) = limits::open_files();
    let allowed = [limits::open_files_max(), hard].into_iter().flatten();
    let set = allowed
        .filter(|allowed| *allowed < count)
        .find(|allowed| limits::set_open_files(*allowed).is_ok());
    let failed = format!("setrlimit(RLIMIT_NOFILE, {count}) failed {}", OsErrorText(&error));
    match set {
        Some(set) => log.log(Level::Warn, format_args!("{failed}, the limit is {set}")),
        None => log.log(Level::Alert, failed),
    }
}
