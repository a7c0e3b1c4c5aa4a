//! The server process as seen by the master: starting, messages, end, restart.

use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_sys::process::{self, Fork, WaitStatus};
use nowait_sys::signal::Signal;

use super::{Master, MasterExit, Running, ServerStart, directories};
use crate::log::{Level, OsErrorText, StartupLog};
use crate::log_process::LogFile;
use crate::logs::{Logs, PassedLogs, sinks};
use crate::server_process;
use crate::settings::ProcessSettings;
use crate::wire::{self, GenerationFrame, ToMaster, ToServer};

/// A server process that ends sooner than this has failed at its start.
const LIVED_WELL: Duration = Duration::from_secs(5);

/// A process that has closed its socket but lives on after this time is killed.
const SILENT_MAX: Duration = Duration::from_secs(5);

/// A process that was killed but lives on after this time, and waits for a disk in the kernel, may do so
/// forever: the master continues without it.
const STUCK_AFTER: Duration = Duration::from_secs(3);

/// A process that was killed and does not wait for a disk gets more time: the machine is busy. The master looks
/// at it again after this time,
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// and continues without it at last.
const KILLED_MAX: Duration = Duration::from_secs(30);

/// First pause before restarting a server process that died at once; it doubles each time.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// If this many server processes have died before a generation was in use, the master ends: the
/// configuration cannot be served. Afterwards it keeps trying, because the reason may pass.
const STARTS_MAX: u32 = 5;

/// Maximum pause.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Exit code of a server process whose restart would be pointless (nginx: 2).
pub const EXIT_FATAL: u8 = 2;

enum Handle {
    Process(u32),
    /// `master_process off`.
    Thread(std::thread::JoinHandle<u8>),
}

/// One server process.
pub struct Child {
    handle: Handle,
    socket: UnixStream,
    started: Instant,
    /// The parameters it was started with.
    pub process: ProcessSettings,
    /// The process was told to end.
    pub exiting: bool,
    /// The process has closed its socket, so it is about to end.
    silent_since: Option<Instant>,
    /// The process has served.
    served: bool,
    /// All its event loops have made a turn since the last report to the service manager.
    alive: bool,
    /// When `KILL` was sent, or should have been, for the first time.
    killed_at: Option<Instant>,
    /// How long after that the master looks whether it waits for a disk.
    look_after: Duration,
}

/// Whether a server process gets a message.
#[derive(PartialEq, Eq)]
pub(super) enum Delivery {
    Yes,
    /// The process has closed its socket: it has died, or is about to end. SIGCHLD will follow.
    Ending,
    /// The process can't receive messages.
    Deaf,
}

impl Child {
    /// The connection to it, for `poll`.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Whether messages from it may still arrive.
    pub fn is_listening(&self) -> bool {
        self.silent_since.is_none()
    }

    /// The time of the next measure to end the process.
    pub fn deadline(&self) -> Option<Instant> {
        match self.killed_at {
            Some(at) => Some(at + self.look_after),
            None => self.silent_since.map(|since| since + SILENT_MAX),
        }
    }

    /// Whether it closed its socket long ago and was not killed yet.
    pub fn is_silent_too_long(&self, now: Instant) -> bool {
        self.killed_at.is_none() && self.deadline().is_some_and(|at| at <= now)
    }

    /// Whether even `KILL` did not end it in time, because it waits for a disk.
    fn is_stuck(&mut self, now: Instant) -> bool {
        let Some(at) = self.killed_at.filter(|at| *at + self.look_after <= now) else {
            return false;
        };
        if at + KILLED_MAX <= now || process::waits_for_disk(self.pid()) {
            return true;
        }
        self.look_after = now.duration_since(at) + LOOK_AGAIN;
        false
    }

    /// The process ID (this process's own, for a thread).
    pub fn pid(&self) -> u32 {
        match self.handle {
            Handle::Process(pid) => pid,
            Handle::Thread(_) => std::process::id(),
        }
    }

    /// Sends it a message.
    pub(super) fn tell(&self, message: &ToServer, log: &StartupLog) -> Delivery {
        match message.send(&self.socket) {
            Ok(()) => Delivery::Yes,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Delivery::Ending,
            Err(error) => {
                log.log(
                    Level::Alert,
                    format_args!("worker process {} does not listen: {error}", self.pid()),
                );
                Delivery::Deaf
            }
        }
    }

    /// Tells the process to end gracefully; once.
    pub fn quit(&mut self, log: &StartupLog) {
        if !self.exiting {
            self.exiting = true;
            self.tell(&ToServer::Quit, log);
        }
    }

    /// Tells the process to end at once.
    pub fn terminate(&mut self, log: &StartupLog) {
        self.exiting = true;
        self.tell(&ToServer::Terminate, log);
    }

    /// Kills it.
    pub fn kill(&mut self, log: &StartupLog) {
        self.killed_at.get_or_insert_with(Instant::now);
        if let Handle::Process(pid) = self.handle
            && let Err(error) = process::kill(pid, Signal::SIGKILL)
        {
            log.log(Level::Alert, format_args!("kill({pid}, 9) failed {}", OsErrorText(&error)));
        }
    }

    /// Sends logs to the process; `message` tells for which purpose.
    pub fn send_logs(&self, logs: &Logs, message: fn(PassedLogs) -> ToServer, log: &StartupLog) {
        match logs.give(log) {
            Ok(given) => {
                self.tell(&message(given), log);
            }
            Err(error) => {
                log.log(Level::Alert, format_args!("socketpair() failed {}", OsErrorText(&error)));
            }
        }
    }
}

impl Master {
    /// Starts a server process and gives it the running generation.
    pub(super) fn start_child(&mut self) -> ControlFlow<MasterExit> {
        self.log.log(Level::Notice, "start worker processes");
        if self.served {
            self.read_states_again();
        }
        let Some(mut child) = self.spawn(&self.running.loaded.settings.process.clone())? else {
            return self.could_not_start();
        };
        if !self.send_generation(&child, &self.running) {
            child.kill(&self.log);
        }
        self.children.push(child);
        self.noaccepting = false;
        ControlFlow::Continue(())
    }

    fn could_not_start(&mut self) -> ControlFlow<MasterExit> {
        self.log.log(Level::Alert, "could not start the server process");
        self.plan_restart(Instant::now())
    }

    /// Creates a new process (or thread) at the other end of a new socket. `None` if the system
    /// refuses; the log says why.
    pub(super) fn spawn(
        &mut self,
        settings: &ProcessSettings,
    ) -> ControlFlow<MasterExit, Option<Child>> {
        let (socket, theirs) = match wire::pair() {
            Ok(pair) => pair,
            Err(error) => {
                self.log
                    .log(Level::Alert, format_args!("socketpair() failed {}", OsErrorText(&error)));
                return ControlFlow::Continue(None);
            }
        };
        let (introduction, inbox) = match self.introductions.begin() {
            Ok(begun) => begun,
            Err(error) => {
                self.log
                    .log(Level::Alert, format_args!("socketpair() failed {}", OsErrorText(&error)));
                return ControlFlow::Continue(None);
            }
        };
        let lines = match self.log.process().lines() {
            Ok(lines) => lines,
            Err(error) => {
                self.log
                    .log(Level::Alert, format_args!("socketpair() failed {}", OsErrorText(&error)));
                return ControlFlow::Continue(None);
            }
        };
        let mut log = StartupLog::stderr(Level::Error);
        log.set_stderr_copy(false);
        // Without the means to give commands to the log process, which has more rights.
        let id = |path: &Path| self.running.logs.id(path);
        let file = |path: &Path| Some(Arc::new(LogFile::of_master(id(path)?, lines.clone())));
        log.set_sinks(sinks(&self.running.loaded.settings.error_logs, file));
        let forked = self.running.loaded.settings.master_process;
        let start = ServerStart {
            socket: theirs,
            process: settings.clone(),
            log,
            lines,
            forked,
            watchdog_interval: self.notifier.watchdog(),
            introduction,
        };
        let handle = if forked {
            match process::fork() {
                Ok(Fork::Child) => return ControlFlow::Break(MasterExit::Server(Box::new(start))),
                Ok(Fork::Parent(pid)) => Handle::Process(pid),
                Err(error) => {
                    self.log
                        .log(Level::Alert, format_args!("fork() failed {}", OsErrorText(&error)));
                    return ControlFlow::Continue(None);
                }
            }
        } else {
            let builder = std::thread::Builder::new().name("control".to_owned());
            match builder.spawn(move || server_process::run(start)) {
                Ok(handle) => Handle::Thread(handle),
                Err(error) => {
                    self.log
                        .log(Level::Alert, format_args!("clone() failed {}", OsErrorText(&error)));
                    return ControlFlow::Continue(None);
                }
            }
        };
        let child = Child {
            handle,
            socket,
            started: Instant::now(),
            process: settings.clone(),
            exiting: false,
            silent_since: None,
            served: false,
            alive: false,
            killed_at: None,
            look_after: STUCK_AFTER,
        };
        if forked {
            self.log.log(Level::Notice, format_args!("start worker process {}", child.pid()));
        }
        self.introductions.add(child.pid(), inbox);
        // Before it receives anything from the sockets.
        self.introduce(Some(&child));
        ControlFlow::Continue(Some(child))
    }

    /// Sends a generation. A running child that cannot receive it is useless, and the caller kills it. A
    /// child that is already ending is left alone, because its exit code shows the reason.
    pub(super) fn send_generation(&self, child: &Child, running: &Running) -> bool {
        let place = &self.place;
        let frame = running.sockets.duplicate().and_then(|listeners| {
            Ok(GenerationFrame {
                number: running.number,
                bundle: running.loaded.bundle.to_bytes(),
                conf_file: place.conf_file.clone(),
                prefix: place.prefix.clone(),
                error_log: place.error_log.clone().unwrap_or_default(),
                error_log_is_stderr: place.error_log_is_stderr,
                globals: place.globals.clone(),
                listeners,
                logs: running.logs.give(&self.log)?,
            })
        });
        match frame {
            Ok(frame) => {
                let message = ToServer::Generation(Box::new(frame));
                let told = child.tell(&message, &self.log) != Delivery::Deaf;
                drop(message);
                // The copy of the texts may be large.
                nowait_sys::memory::give_back();
                told
            }
            Err(error) => {
                self.log.log(Level::Alert, format_args!("dup() failed {}", OsErrorText(&error)));
                false
            }
        }
    }

    /// Receives one message of a server process, if it still exists.
    pub(super) fn hear(&mut self, pid: u32) -> ControlFlow<MasterExit> {
        let Some(index) = self.children.iter().position(|child| child.pid() == pid) else {
            return ControlFlow::Continue(());
        };
        let child = &mut self.children[index];
        match ToMaster::receive(&child.socket) {
            Ok(Some(message)) => self.heard(index, message),
            Ok(None) => self.fell_silent(index),
            Err(error) => {
                let pid = child.pid();
                let line = match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("worker process {pid} stopped within a message, it is killed")
                    }
                    _ => format!("worker process {pid} talks nonsense, it is killed: {error}"),
                };
                self.log.log(Level::Alert, format_args!("{line}"));
                child.kill(&self.log);
                self.fell_silent(index)
            }
        }
    }

    fn heard(&mut self, index: usize, message: ToMaster) -> ControlFlow<MasterExit> {
        let pid = self.children[index].pid();
        match message {
            ToMaster::Ready { number, .. } => {
                self.log.log(Level::Notice, format_args!("generation {number} is in use"));
                self.served = true;
                self.children[index].served = true;
                if self.pending_number() == Some(number) {
                    return self.commit();
                }
                self.tell_ready();
            }
            ToMaster::Refused { number, reason } => {
                self.log.log(
                    Level::Emerg,
                    format_args!("worker process {pid} refused generation {number}: {reason}"),
                );
                if self.pending_number() == Some(number) {
                    // A process that was started only for this generation has nothing to serve.
                    let old = &self.running.loaded.settings.process;
                    if self.children[index].process != *old {
                        self.children[index].quit(&self.log);
                    }
                    return self.discard(&format!("nowait: [emerg] {reason}\n"));
                }
                if let Handle::Thread(_) = self.children[index].handle {
                    return self.give_up();
                }
                self.children[index].kill(&self.log);
            }
            ToMaster::Replied { id, result } => self.forwarded.ended(id, result),
            ToMaster::Alive { .. } => {
                self.children[index].alive = true;
                self.feed_watchdog();
            }
            // The generation was never in use.
            ToMaster::Drained { .. } if self.children[index].killed_at.is_some() => {}
            // nginx's workers are processes that end with their configuration: tools wait for the last words of
            // the log lines about their exit.
            ToMaster::Drained { workers, number } => {
                for worker in 0..workers {
                    let line = format_args!(
                        "worker {worker} has released configuration {number}, exited with code 0"
                    );
                    self.log.log(Level::Notice, line);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Reports to the service manager that all loops turn, once every server process that stays has
    /// reported so. A process that has not served yet doesn't count: a reload may be waiting for it.
    fn feed_watchdog(&mut self) {
        let mut serving = self.children.iter().filter(|child| child.served && !child.exiting);
        if serving.all(|child| child.alive) {
            self.children.iter_mut().for_each(|child| child.alive = false);
            self.notifier.alive();
        }
    }

    /// The socket was closed. A process is reaped when it ends; a thread has ended.
    fn fell_silent(&mut self, index: usize) -> ControlFlow<MasterExit> {
        if let Handle::Process(_) = self.children[index].handle {
            self.children[index].silent_since = Some(Instant::now());
            return ControlFlow::Continue(());
        }
        let child = self.children.remove(index);
        let Handle::Thread(handle) = child.handle else { return ControlFlow::Continue(()) };
        let code = handle.join().unwrap_or_else(|_| {
            self.log.log(Level::Alert, "the server thread panicked");
            EXIT_FATAL
        });
        if self.stopping.is_none() && !child.exiting {
            // Without a master process nothing could restart it.
            self.exit_code = code.max(1);
            return ControlFlow::Break(self.exit());
        }
        ControlFlow::Continue(())
    }

    /// Continues without processes that cannot be killed. They exist until their disk responds; the master
    /// does not depend on them.
    pub(super) fn leave_stuck(&mut self, now: Instant) -> ControlFlow<MasterExit> {
        while let Some(index) = self.children.iter_mut().position(|child| child.is_stuck(now)) {
            let child = self.children.remove(index);
            self.log.log(
                Level::Alert,
                format_args!(
                    "worker process {} was killed but cannot end while a disk does not answer, \
                     leaving it behind",
                    child.pid()
                ),
            );
            self.child_gone(&child);
            if !child.exiting && self.stopping.is_none() {
                self.plan_restart(child.started)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Collects the exit status of every process that has ended.
    pub(super) fn reap(&mut self) -> ControlFlow<MasterExit> {
        loop {
            match process::reap() {
                Ok(Some((pid, status))) => self.ended(pid, status)?,
                Ok(None) => return ControlFlow::Continue(()),
                Err(error) => {
                    self.log
                        .log(Level::Alert, format_args!("waitid() failed {}", OsErrorText(&error)));
                    return ControlFlow::Continue(());
                }
            }
        }
    }

    fn ended(&mut self, pid: u32, status: WaitStatus) -> ControlFlow<MasterExit> {
        if directories::was_late(pid) {
            return ControlFlow::Continue(());
        }
        if self.log.process().replace(pid) {
            self.log_exit("log process", pid, status);
            return ControlFlow::Continue(());
        }
        let index = self.children.iter().position(|child| child.pid() == pid);
        let name = match index {
            Some(_) => "worker process",
            None if self.new_binary == Some(pid) => "new binary process",
            None => "unknown process",
        };
        let code = self.log_exit(name, pid, status);
        if self.new_binary == Some(pid) {
            self.new_binary_ended();
        }
        let Some(index) = index else { return ControlFlow::Continue(()) };
        // Its last messages still count: a generation drained, for example.
        while let Ok(Some(message)) = ToMaster::receive(&self.children[index].socket) {
            self.heard(index, message)?;
        }
        let child = self.children.remove(index);
        self.child_gone(&child);
        if child.exiting || self.stopping.is_some() {
            return ControlFlow::Continue(());
        }
        if code == Some(EXIT_FATAL) {
            self.log.log(
                Level::Alert,
                format_args!(
                    "worker process {pid} exited with fatal code {EXIT_FATAL} and cannot be \
                     respawned"
                ),
            );
            return if self.served { ControlFlow::Continue(()) } else { self.give_up() };
        }
        // A process that was started for a reload needs no replacement.
        if self.children.iter().any(|other| !other.exiting) {
            return ControlFlow::Continue(());
        }
        self.plan_restart(child.started)?;
        self.after_deadlines()
    }

    fn log_exit(&self, name: &str, pid: u32, status: WaitStatus) -> Option<u8> {
        match status {
            WaitStatus::Signaled(_, signal, dumped) => {
                let dumped = if dumped { " (core dumped)" } else { "" };
                self.log.log(
                    Level::Alert,
                    format_args!("{name} {pid} exited on signal {}{dumped}", signal as i32),
                );
                None
            }
            WaitStatus::Exited(_, code) => {
                self.log.log(Level::Notice, format_args!("{name} {pid} exited with code {code}"));
                u8::try_from(code).ok()
            }
            _ => None,
        }
    }

    /// Ends the master, which has never served, and reports that to its parent process.
    fn give_up(&mut self) -> ControlFlow<MasterExit> {
        // Standard error may be the error log by now. If it can't be restored, the message goes to the log.
        let _ = self.log.process().give_stderr_back();
        self.log.set_stderr_copy(true);
        self.log.log(
            Level::Emerg,
            "giving up: no server process could serve the configuration; the lines above say why",
        );
        self.exit_code = 1;
        ControlFlow::Break(self.exit())
    }

    /// Starts another process: at once the first time, with growing delays after failed starts.
    fn plan_restart(&mut self, started: Instant) -> ControlFlow<MasterExit> {
        if !self.served && self.restarts + 1 >= STARTS_MAX {
            return self.give_up();
        }
        let now = Instant::now();
        if now.duration_since(started) >= LIVED_WELL {
            self.restarts = 0;
        }
        let pause = match self.restarts {
            0 => Duration::ZERO,
            n => (RESTART_PAUSE * 2u32.saturating_pow(n - 1)).min(RESTART_PAUSE_MAX),
        };
        self.restarts = (self.restarts + 1).min(16);
        self.restart_at = Some(now + pause);
        ControlFlow::Continue(())
    }
}
