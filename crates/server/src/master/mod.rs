//! The master: one thread that keeps root. It reads configurations, performs privileged operations
//! such as opening sockets, starts and watches the server process, and acts on signals.
//!
//! Called by `main` after the first configuration was read. It waits in `poll` for signals, for
//! the server process and for control clients; it never polls in intervals, and never talks to
//! clients of the service. With `master_process off` the same loop runs, and the "server process"
//! is a thread at the other end of the same kind of socket.

mod child;
mod directories;
mod introductions;
mod reload;
mod renewal;
mod requests;
mod states;
mod upgrade;

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_sys::process;
use nowait_sys::signal::{Signal, Signals};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::config::Loaded;
use crate::config_path::ConfigPath;
use crate::control::ControlListener;
use crate::features;
use crate::log::{Level, OsErrorText, StartupLog};
use crate::log_process::LineSender;
use crate::logs::{Logs, SlowLogPolicy};
use crate::notify::{InheritedFds, Notifier};
use crate::pidfile::PidFile;
use crate::service::Needs;
use crate::settings::ProcessSettings;
use crate::sockets::Sockets;
use crate::wire::ToServer;
use child::Child;
pub use child::EXIT_FATAL;
use introductions::Introductions;
use reload::PendingReload;
use renewal::Renewal;
use requests::ForwardedRequests;

/// A server process that was told to stop fast but still runs after this time is killed. nginx repeats the signal
/// after pauses of 50 ms that double, and kills when the next one would be longer than a second.
const KILL_AFTER: Duration = Duration::from_millis(50 + 100 + 200 + 400 + 800);

/// The end of the master.
pub enum MasterExit {
    /// The program ends with this code.
    Exit(u8),
    /// This process is the new server process.
    Server(Box<ServerStart>),
}

/// The initial state of a server process.
pub struct ServerStart {
    /// The connection to the master.
    pub socket: UnixStream,
    /// The user, limits and environment to apply.
    pub process: ProcessSettings,
    /// The log of its own life cycle.
    pub log: StartupLog,
    /// The way to the log process.
    pub lines: Arc<LineSender>,
    /// Whether this is a separate process (not a thread, as with `master_process off`).
    pub forked: bool,
    /// The service manager's.
    pub watchdog_interval: Option<Duration>,
    /// Its place among the processes that receive from the same UDP sockets.
    pub introduction: Introduction,
}

/// A server process as others know it.
pub struct Introduction {
    /// Its number.
    pub number: u16,
    /// From which the keys of QUIC are derived.
    pub secret: Vec<u8>,
    /// The receiving end of its inbox.
    pub inbox: OwnedFd,
}

/// A configuration in use, with everything opened for it.
struct Running {
    number: u64,
    loaded: Loaded,
    sockets: Sockets,
    logs: Logs,
}

/// The reason why the master is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    Graceful,
    /// `kill_at` is `None` once everything was killed.
    Fast {
        kill_at: Option<Instant>,
    },
}

/// The master's state.
pub struct Master {
    place: ConfigPath,
    log: StartupLog,
    notifier: Notifier,
    signals: Signals,
    control: Option<ControlListener>,
    pid_file: PidFile,
    running: Running,
    children: Vec<Child>,
    pending: Option<PendingReload>,
    /// A reload was requested while another was in progress.
    reload_again: bool,
    clients: Vec<crate::control::ControlClient>,
    forwarded: ForwardedRequests,
    introductions: Introductions,
    /// `ssl_certificate_watch`
    renewal: Renewal,
    stopping: Option<Stopping>,
    /// When to start a replacement for a server process that died.
    restart_at: Option<Instant>,
    restarts: u32,
    /// A generation has been in use.
    served: bool,
    new_binary: Option<u32>,
    /// The binary to start for an upgrade.
    program: PathBuf,
    /// The master that started this one for an upgrade, if any.
    parent: Option<u32>,
    /// That master has been told that this one serves.
    parent_told: bool,
    noaccepting: bool,
    exit_code: u8,
}

impl Master {
    /// Opens sockets and logs, becomes a daemon if configured, writes the pid file and starts the
    /// server process.
    ///
    /// `Break` means that the program ends here, or that this is the server process.
    pub fn start(
        place: ConfigPath,
        loaded: Loaded,
        mut inherited: InheritedFds,
        mut log: StartupLog,
    ) -> ControlFlow<MasterExit, Master> {
        for error in inherited.errors.drain(..) {
            log.log(Level::Emerg, error);
        }
        let failed = ControlFlow::Break(MasterExit::Exit(1));
        // Before sockets are opened: from then on, a signal has to end the server cleanly.
        let signals = match Signals::open() {
            Ok(signals) => signals,
            Err(error) => {
                log.log(Level::Emerg, format_args!("signalfd() failed {}", OsErrorText(&error)));
                return failed;
            }
        };
        let upgraded = inherited.variable.is_some();
        if let Some(variable) = &inherited.variable {
            log.log(
                Level::Notice,
                format_args!("using inherited sockets from \"{}\"", variable.display()),
            );
        }
        let watchdog = inherited.watchdog;
        let Some(introductions) = introductions(inherited.master.take(), &log) else {
            return failed;
        };
        let parent = upgraded.then(std::os::unix::process::parent_id);
        let inherited = Sockets::inherited(inherited.fds, &log);
        let absent = SlowLogPolicy::Tolerated;
        let Some(opened) = reload::open(loaded, &place, absent, &log) else { return failed };
        // Administrators expect the reason of a failure there.
        log.set_sinks(opened.sinks());
        let Some(opened) = opened.bind(&inherited, 1, &log) else { return failed };
        inherited.remove_unix(Some(&opened.sockets), &log);
        drop(inherited);

        let settings = &opened.loaded.settings;
        announce(&log, settings);
        // nginx differs: it writes the file in the daemon only, and failures are not reported to the
        // process that started it.
        let pid_file = match PidFile::create(&settings.pid) {
            Ok(file) => file,
            Err(message) => {
                log.log(Level::Emerg, message);
                opened.sockets.remove_unix(None, &log);
                return failed;
            }
        };
        if settings.daemon && !upgraded {
            daemonize(&pid_file, &log)?;
        }
        redirect_stderr(&log, &opened.loaded.needs);
        log.set_stderr_copy(false);
        process::set_name("nowait: master");
        let control = ControlListener::open()
            .inspect_err(|error| {
                log.log(Level::Info, format_args!("no control socket {}", OsErrorText(error)));
            })
            .ok();
        let mut master = Master {
            place,
            log,
            notifier: Notifier::from_environment(watchdog),
            signals,
            control,
            pid_file,
            running: opened,
            children: Vec::new(),
            pending: None,
            reload_again: false,
            clients: Vec::new(),
            forwarded: ForwardedRequests::default(),
            introductions,
            renewal: Renewal::default(),
            stopping: None,
            restart_at: None,
            restarts: 0,
            served: false,
            new_binary: None,
            program: upgrade::program(),
            parent,
            parent_told: false,
            noaccepting: false,
            exit_code: 0,
        };
        master.renewal = Renewal::of(&master.running, &master.log);
        master.start_child()?;
        ControlFlow::Continue(master)
    }

    /// Runs until the program is told to end.
    pub fn run(mut self) -> MasterExit {
        loop {
            if let ControlFlow::Break(ended) = self.turn() {
                return ended;
            }
        }
    }

    fn turn(&mut self) -> ControlFlow<MasterExit> {
        let ready = self.wait();
        if ready.signals {
            self.take_signals()?;
        }
        for pid in ready.children {
            self.hear(pid)?;
        }
        if ready.master {
            self.hear_master();
        }
        if ready.control {
            self.take_clients()?;
        }
        if ready.renewal {
            self.renewal.note();
        }
        self.after_deadlines()?;
        self.take_late_logs();
        if self.stopping.is_some() && self.children.is_empty() {
            return ControlFlow::Break(self.exit());
        }
        ControlFlow::Continue(())
    }

    fn wait(&self) -> PollResult {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let heard: Vec<&Child> = self.children.iter().filter(|c| c.is_listening()).collect();
        fds.extend(heard.iter().map(|child| PollFd::new(child.socket(), PollFlags::IN)));
        // New clients wait in the socket's queue while a reload is under way.
        let control = self.control.as_ref().filter(|_| self.pending.is_none());
        fds.extend(control.map(|control| PollFd::new(control, PollFlags::IN)));
        let renewal = self.renewal.fd();
        fds.extend(renewal.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let channel = self.introductions.channel();
        fds.extend(channel.map(|channel| PollFd::new(channel, PollFlags::IN)));
        // Late logs only have to wake the master: every turn checks for them.
        let replies = self.log.process().replies();
        fds.extend(replies.iter().map(|replies| PollFd::new(replies, PollFlags::IN)));
        let timeout = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        if let Err(error) = rustix::event::poll(&mut fds, timeout.as_ref())
            && error != rustix::io::Errno::INTR
        {
            self.log
                .log(Level::Alert, format_args!("poll() failed {}", OsErrorText(&error.into())));
        }
        let came = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (signals, rest) = (came(&fds[0]), &fds[1..]);
        let (children, rest) = rest.split_at(heard.len());
        let (controls, rest) = rest.split_at(usize::from(control.is_some()));
        let (renewals, rest) = rest.split_at(usize::from(renewal.is_some()));
        let renewal = renewals.iter().any(came);
        let master = rest.iter().take(usize::from(channel.is_some())).any(came);
        let heard = heard.iter().zip(children).filter(|(_, fd)| came(fd));
        let children = heard.map(|(child, _)| child.pid()).collect();
        PollResult { signals, children, control: controls.iter().any(came), renewal, master }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let kill = match self.stopping {
            Some(Stopping::Fast { kill_at }) => kill_at,
            _ => None,
        };
        let silent = self.children.iter().filter_map(Child::deadline).min();
        let watchdog = self.is_alone().then(|| self.notifier.deadline()).flatten();
        [kill, silent, self.restart_at, self.renewal.deadline(), watchdog]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether WINCH has ended all server processes, and none could report to the service manager.
    fn is_alone(&self) -> bool {
        self.noaccepting && self.children.is_empty()
    }

    fn after_deadlines(&mut self) -> ControlFlow<MasterExit> {
        let now = Instant::now();
        let kill_all =
            matches!(self.stopping, Some(Stopping::Fast { kill_at: Some(at) }) if at <= now);
        if kill_all {
            self.stopping = Some(Stopping::Fast { kill_at: None });
        }
        for child in &mut self.children {
            if kill_all || child.is_silent_too_long(now) {
                child.kill(&self.log);
            }
        }
        self.leave_stuck(now)?;
        if self.is_alone() && self.notifier.deadline().is_some_and(|at| at <= now) {
            self.notifier.alive();
        }
        self.renew(now)?;
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            if self.stopping.is_none() {
                self.start_child()?;
            }
        }
        ControlFlow::Continue(())
    }

    fn take_signals(&mut self) -> ControlFlow<MasterExit> {
        loop {
            let received = match self.signals.next() {
                Ok(Some(received)) => received,
                Ok(None) => return ControlFlow::Continue(()),
                Err(error) => {
                    self.log.log(
                        Level::Alert,
                        format_args!("read(signalfd) failed {}", OsErrorText(&error)),
                    );
                    return ControlFlow::Continue(());
                }
            };
            let signal = received.signal;
            if signal != Signal::SIGCHLD {
                self.log.log(
                    Level::Notice,
                    format_args!(
                        "signal {} ({}) received from {}{}",
                        signal as i32,
                        signal.as_str(),
                        received.sender,
                        action(signal)
                    ),
                );
            }
            match signal {
                Signal::SIGCHLD => self.reap()?,
                Signal::SIGTERM | Signal::SIGINT => self.stop_fast(),
                Signal::SIGQUIT => self.stop_gracefully(),
                // There is no file to reread. If the terminal is gone, so is the means to stop the server.
                Signal::SIGHUP if self.place.builtin.is_some() => self.stop_fast(),
                Signal::SIGHUP => self.reload()?,
                Signal::SIGUSR1 => self.reopen_logs(),
                Signal::SIGUSR2 => self.upgrade(),
                Signal::SIGWINCH => self.stop_accepting(),
                _ => {}
            }
        }
    }

    fn stop_fast(&mut self) {
        if !matches!(self.stopping, Some(Stopping::Fast { .. })) {
            self.tell_manager_of_end();
            self.stopping = Some(Stopping::Fast { kill_at: Some(Instant::now() + KILL_AFTER) });
            for child in &mut self.children {
                child.terminate(&self.log);
            }
            // nginx differs: it keeps them to the end, which does not come while a child waits for
            // a hanging disk. New connections must not wait for it as well.
            self.running.sockets.close();
        }
    }

    fn stop_gracefully(&mut self) {
        if self.stopping.is_none() {
            self.tell_manager_of_end();
            self.stopping = Some(Stopping::Graceful);
            for child in &mut self.children {
                child.quit(&self.log);
            }
            self.running.sockets.close();
        }
    }

    /// WINCH: the server process ends gracefully and the master stays (used in an upgrade to test
    /// the new binary alone). As in nginx, only a daemon does this: a terminal sends the signal
    /// when its window changes size.
    fn stop_accepting(&mut self) {
        let daemonized = self.running.loaded.settings.daemon || self.parent.is_some();
        if daemonized && self.stopping.is_none() {
            self.noaccepting = true;
            self.restart_at = None;
            for child in &mut self.children {
                child.quit(&self.log);
            }
        }
    }

    fn reopen_logs(&mut self) {
        self.log.log(Level::Notice, "reopening logs");
        self.running.logs.reopen(&self.log);
        self.use_sinks();
        for child in &self.children {
            child.send_logs(&self.running.logs, ToServer::Reopen, &self.log);
        }
    }

    /// Puts logs to use whose disks have answered at last.
    fn take_late_logs(&mut self) {
        loop {
            let arrived = self.log.process().arrived();
            if arrived.is_empty() {
                return;
            }
            let mut any = false;
            for (id, result) in arrived {
                any |= self.running.logs.arrived(id, &result, &self.log);
                if let Some(pending) = &mut self.pending {
                    any |= pending.logs().arrived(id, &result, &self.log);
                }
            }
            if !any {
                continue;
            }
            self.use_sinks();
            for child in &self.children {
                child.send_logs(&self.running.logs, ToServer::LateLogs, &self.log);
            }
            if let Some(pending) = &mut self.pending {
                for child in &self.children {
                    child.send_logs(pending.logs(), ToServer::LateLogs, &self.log);
                }
            }
        }
    }

    fn use_sinks(&mut self) {
        self.log.set_sinks(self.running.sinks());
        redirect_stderr(&self.log, &self.running.loaded.needs);
    }

    fn exit(&mut self) -> MasterExit {
        let upgrading = self.new_binary.is_some();
        self.pid_file.remove(upgrading, &self.log);
        self.log.log(Level::Notice, "exit");
        if !upgrading && self.living_parent().is_none() {
            self.running.sockets.remove_unix(None, &self.log);
        }
        MasterExit::Exit(self.exit_code)
    }
}

struct PollResult {
    signals: bool,
    /// By process ID: signals come first, and they change positions in the list.
    children: Vec<u32>,
    control: bool,
    renewal: bool,
    /// The other master, during an upgrade.
    master: bool,
}

/// What this master has of the one that started it for an upgrade, if any. `None`: no secret can be made, which is
/// logged.
fn introductions(inherited: Option<OwnedFd>, log: &StartupLog) -> Option<Introductions> {
    if let Some(channel) = inherited {
        match Introductions::inherited(channel) {
            Ok(introductions) => return Some(introductions),
            Err(error) => log.log(
                Level::Warn,
                format_args!(
                    "connections over QUIC of the old binary will be lost: what it says is not \
                     understood: {error}"
                ),
            ),
        }
    }
    let new = Introductions::new();
    new.inspect_err(|error| {
        log.log(Level::Emerg, format_args!("getrandom() failed {}", OsErrorText(error)));
    })
    .ok()
}

/// The startup lines that tools and people look for.
fn announce(log: &StartupLog, settings: &crate::settings::MainSettings) {
    let (driver, why) = nowait_runtime::driver::choose(settings.events.requested());
    log.log(Level::Notice, format_args!("using the \"{driver}\" event method: {why}"));
    log.log(
        Level::Notice,
        format_args!("nowait/{} (nginx/{})", features::VERSION, features::NGINX_VERSION),
    );
    let system = rustix::system::uname();
    log.log(
        Level::Notice,
        format_args!(
            "OS: {} {}",
            system.sysname().to_string_lossy(),
            system.release().to_string_lossy()
        ),
    );
    let (soft, hard) = nowait_sys::limits::open_files();
    let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
    log.log(
        Level::Notice,
        format_args!("getrlimit(RLIMIT_NOFILE): {}:{}", shown(soft), shown(hard)),
    );
    // Workers share the descriptors of one process, which may use the hard limit.
    let wanted = settings.events.connections.saturating_mul(settings.workers) as u64;
    let limit = settings.process.open_files.or(hard);
    if let Some(limit) = limit.filter(|limit| *limit < wanted) {
        log.log(
            Level::Warn,
            format_args!(
                "{} worker_connections of {} workers exceed open file resource limit: {limit}",
                settings.events.connections, settings.workers
            ),
        );
    }
}

/// Goes into the background: the parent ends, the child leaves the terminal.
fn daemonize(pid_file: &PidFile, log: &StartupLog) -> ControlFlow<MasterExit> {
    match process::fork() {
        Ok(process::Fork::Parent(pid)) => {
            log.process().disown();
            let written = PidFile::create_for(pid, pid_file.path());
            if let Err(message) = &written {
                log.log(Level::Emerg, message);
            }
            return ControlFlow::Break(MasterExit::Exit(u8::from(written.is_err())));
        }
        Ok(process::Fork::Child) => {}
        Err(error) => {
            log.log(Level::Emerg, format_args!("fork() failed {}", OsErrorText(&error)));
            return ControlFlow::Break(MasterExit::Exit(1));
        }
    }
    let detached = process::new_session().and_then(|()| {
        process::set_umask(0);
        process::null_stdio()?;
        log.process().take_over()
    });
    if let Err(error) = detached {
        log.log(Level::Emerg, format_args!("becoming a daemon failed {}", OsErrorText(&error)));
        return ControlFlow::Break(MasterExit::Exit(1));
    }
    ControlFlow::Continue(())
}

/// Redirects standard error into the error log, unless standard error is itself a log.
fn redirect_stderr(log: &StartupLog, needs: &Needs) {
    let result = if needs.stderr || log.has_stderr_sink() {
        log.process().give_stderr_back()
    } else {
        log.first_file().map_or(Ok(()), |file| log.process().take_stderr(file))
    };
    if let Err(error) = result {
        log.log(Level::Alert, format_args!("dup2(STDERR) failed {}", OsErrorText(&error)));
    }
}

/// The effect of a signal on the master, in nginx's words.
fn action(signal: Signal) -> &'static str {
    match signal {
        Signal::SIGTERM | Signal::SIGINT => ", exiting",
        Signal::SIGQUIT => ", shutting down",
        Signal::SIGHUP => ", reconfiguring",
        Signal::SIGUSR1 => ", reopening logs",
        Signal::SIGUSR2 => ", changing binary",
        _ => "",
    }
}
