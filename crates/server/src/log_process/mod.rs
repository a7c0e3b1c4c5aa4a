//! The log process: opens the log files and writes the lines of the master and of the server
//! process's control thread, so that neither ever waits for the disk with the logs.
//!
//! A thread could not do this for the master: a process cannot end while one of its threads waits
//! for a disk in the kernel, and the master must fork, which needs a single thread. So the master
//! holds no descriptor of a log, not even as standard error: closing one may wait, too. It waits
//! for the log process for [`OPEN_MAX`] when it opens logs, and for [`WRITE_MAX`] after a line, so
//! that usually a line is in its file when the next step begins. Once that takes longer, lines are
//! queued until the disk is back; when the queue is full, they are lost and counted.
//!
//! Used by [`crate::log::StartupLog`] and [`crate::logs::Logs`]. The process starts with the first
//! log that is a file.

pub mod message;
mod serve;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nowait_sys::{fdpass, process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::log::{Level, render};
use message::{LogCommand, OpenFailure, Reply, SocketRead};

/// How long a start or reload waits for the disks of its logs.
pub const OPEN_MAX: Duration = Duration::from_secs(2);

/// How long the master waits for a line to be written, once: while a disk is late, it does not wait
/// again.
const WRITE_MAX: Duration = Duration::from_secs(1);

/// How long a sender waits for room in the queue of lines, once.
const ROOM_MAX: Duration = Duration::from_secs(1);

/// A log process that ends sooner than this has failed at its start.
const LIVED_WELL: Duration = Duration::from_secs(5);

/// After this many failed starts in a row, no further log process is started.
const REPLACED_MAX: u32 = 5;

/// The result of opening a log.
#[derive(Debug)]
pub enum OpenResult {
    /// Open.
    Yes,
    /// It cannot be opened.
    No(OpenFailure),
    /// The disk has not answered in time; [`LogProcess::arrived`] reports the result.
    Late,
}

/// The sending end of the queue of lines. Shared by the master and the server process.
pub struct LineSender {
    socket: OwnedFd,
    /// The queue was full: do not wait for it.
    full: AtomicBool,
    /// Lines lost since.
    lost: AtomicU64,
}

impl fmt::Debug for LineSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl LineSender {
    /// Queues a line, in pieces if it is long.
    fn write(&self, id: u64, text: &[u8]) {
        for piece in text.chunks(message::TEXT_BYTES_MAX) {
            if !self.send(&message::line(id, piece)) {
                self.lost.fetch_add(1, Relaxed);
                return;
            }
        }
        let lost = self.lost.swap(0, Relaxed);
        if lost > 0 {
            let text = format!("{lost} lines of this log were lost: it was written too slowly");
            if !self.send(&message::line(id, render(Level::Alert, &text).as_bytes())) {
                self.lost.fetch_add(lost, Relaxed);
            }
        }
    }

    fn send(&self, message: &[u8]) -> bool {
        let until = Instant::now() + ROOM_MAX;
        loop {
            match fdpass::send(&self.socket, message, &[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.full.load(Relaxed) || !wait_for(&self.socket, PollFlags::OUT, until) {
                        self.full.store(true, Relaxed);
                        return false;
                    }
                }
                Err(_) => return false,
                Ok(_) => {
                    self.full.store(false, Relaxed);
                    return true;
                }
            }
        }
    }
}

/// Waits until a descriptor is ready; false if it is not in time.
pub fn wait_for(fd: impl AsFd, flags: PollFlags, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(&fd, flags)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// A log, by its number.
#[derive(Debug)]
pub struct LogFile {
    id: u64,
    lines: Arc<LineSender>,
    /// Closes it in the end.
    process: Option<Arc<LogProcess>>,
}

impl LogFile {
    /// A log that the master has opened, in the server process.
    pub fn of_master(id: u64, lines: Arc<LineSender>) -> LogFile {
        LogFile { id, lines, process: None }
    }

    /// The number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Queues a line.
    pub fn write(&self, line: &[u8]) {
        self.lines.write(self.id, line);
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            process.close(self.id);
        }
    }
}

/// Both ends of all sockets: a log process that dies is replaced by one with the same ends, so that no
/// queued line is lost, and the server process is unaffected.
struct Channels {
    lines: Arc<LineSender>,
    commands: Arc<OwnedFd>,
    stderr: OwnedFd,
    far: serve::LogProcessEnds,
}

impl Channels {
    fn new() -> io::Result<Channels> {
        let (lines, far_lines) = message::pair()?;
        let (commands, far_commands) = message::pair()?;
        let (far_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let own_stderr = match rustix::stdio::stderr().try_clone_to_owned() {
            Ok(stderr) => stderr,
            Err(_) => null()?,
        };
        let lines =
            LineSender { socket: lines, full: AtomicBool::new(false), lost: AtomicU64::new(0) };
        Ok(Channels {
            lines: Arc::new(lines),
            commands: Arc::new(commands),
            stderr,
            far: serve::LogProcessEnds {
                lines: far_lines,
                commands: far_commands,
                stderr: far_stderr,
                own_stderr,
            },
        })
    }
}

fn null() -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().write(true).open("/dev/null")?.into())
}

/// The master's side.
#[derive(Default)]
pub struct LogProcess(Mutex<LogProcessState>);

#[derive(Default)]
struct LogProcessState {
    ends: Option<Channels>,
    /// The process that gives the commands. A child of it, after a fork, does not.
    owner: u32,
    running: bool,
    pid: Option<u32>,
    started: Option<Instant>,
    replaced: u32,
    last_id: u64,
    /// The open logs, for a restart.
    files: Vec<(u64, PathBuf)>,
    stderr: Option<u64>,
    /// A flush is under way.
    flushing: bool,
    ended: bool,
    /// Results that have not been read yet.
    arrived: VecDeque<(u64, Result<(), OpenFailure>)>,
}

impl fmt::Debug for LogProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogProcess").finish_non_exhaustive()
    }
}

impl LogProcess {
    fn lock(&self) -> MutexGuard<'_, LogProcessState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of lines, for a server process. The log process need not run yet.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn lines(&self) -> io::Result<Arc<LineSender>> {
        Ok(self.lock().ends()?.lines.clone())
    }

    /// The descriptor to wait for, and then to call [`LogProcess::arrived`].
    pub fn replies(&self) -> Option<Arc<OwnedFd>> {
        self.lock().ends.as_ref().map(|ends| ends.commands.clone())
    }

    /// Opens logs, and waits for all of them for [`OPEN_MAX`]. With `true`, the directory of a log
    /// is created if it is missing.
    ///
    /// # Errors
    /// If the log process cannot start.
    pub fn open(
        self: &Arc<Self>,
        paths: impl IntoIterator<Item = (PathBuf, bool)>,
    ) -> io::Result<Vec<(LogFile, OpenResult)>> {
        let mut paths = paths.into_iter().peekable();
        if paths.peek().is_none() {
            return Ok(Vec::new());
        }
        let lines = self.lines()?;
        let mut files = Vec::new();
        let mut state = self.lock();
        state.start()?;
        let until = Instant::now() + OPEN_MAX;
        for (path, make_directory) in paths {
            state.last_id += 1;
            let id = state.last_id;
            state.files.push((id, path.clone()));
            state.command(&LogCommand::Open { id, path, make_directory }, &[], until);
            let file = LogFile { id, lines: lines.clone(), process: Some(self.clone()) };
            files.push((file, OpenResult::Late));
        }
        let mut left = files.len();
        let mut others = VecDeque::new();
        while left > 0 {
            while let Some((id, result)) = state.arrived.pop_front() {
                match files.iter_mut().find(|(file, _)| file.id == id) {
                    Some((_, opened)) => {
                        left -= 1;
                        *opened = result.map_or_else(OpenResult::No, |()| OpenResult::Yes);
                    }
                    None => others.push_back((id, result)),
                }
            }
            if left > 0 && !state.receive(until) {
                break;
            }
        }
        state.arrived.extend(others);
        drop(state);
        Ok(files)
    }

    /// Results that came too late for [`LogProcess::open`]. Never waits.
    pub fn arrived(&self) -> Vec<(u64, Result<(), OpenFailure>)> {
        let mut state = self.lock();
        while state.receive(Instant::now()) {}
        state.arrived.drain(..).collect()
    }

    fn close(&self, id: u64) {
        let mut state = self.lock();
        state.files.retain(|(open, _)| *open != id);
        state.command(&LogCommand::Close(id), &[], Instant::now() + ROOM_MAX);
    }

    /// Requests the descriptors of logs, which are passed over the returned socket. Logs that are not open
    /// yet are left out.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn give(&self, ids: &[u64]) -> io::Result<OwnedFd> {
        let (near, far) = message::pair()?;
        let state = self.lock();
        let until = Instant::now() + ROOM_MAX;
        for ids in ids.chunks(message::GIVE_MAX) {
            state.command(&LogCommand::Give(ids.to_vec()), &[near.as_fd()], until);
        }
        Ok(far)
    }

    /// Redirects standard error of this process, and of those that it starts, to a log.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_stderr(&self, log: &LogFile) -> io::Result<()> {
        let mut state = self.lock();
        // A thread would open the redirected descriptor as `/dev/stderr`.
        if state.pid.is_none() {
            return Ok(());
        }
        state.stderr = Some(log.id);
        state.command(&LogCommand::Stderr(log.id), &[], Instant::now() + ROOM_MAX);
        process::redirect_stderr(&state.ends()?.stderr)
    }

    /// Undoes [`LogProcess::take_stderr`]: standard error is a log itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_stderr_back(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.stderr.take().is_none() {
            return Ok(());
        }
        // The server process keeps the redirected one.
        state.command(&LogCommand::Stderr(message::STDERR), &[], Instant::now() + ROOM_MAX);
        process::redirect_stderr(&state.ends()?.far.own_stderr)
    }

    /// Waits until the lines so far are written, for [`WRITE_MAX`]; not at all while the disk is
    /// known to be late.
    pub fn sync(&self) {
        let mut state = self.lock();
        if !state.is_owner() || !state.running {
            return;
        }
        while state.flushing && state.receive(Instant::now()) {}
        if !state.flushing {
            state.flush(Instant::now() + WRITE_MAX);
        }
    }

    /// Leaves the commands to a child of this process that has just been forked.
    pub fn disown(&self) {
        self.lock().owner = 0;
    }

    /// Takes the commands over from the parent process, which has disowned them, and replaces the
    /// log process by a child of this one.
    ///
    /// # Errors
    /// If no process can be created.
    pub fn take_over(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.owner = std::process::id();
        // The terminal must be free when the command returns.
        let null = null()?;
        if let Some(ends) = &mut state.ends {
            ends.far.own_stderr = null;
        }
        if !state.running {
            return Ok(());
        }
        let until = Instant::now() + WRITE_MAX;
        state.ended = false;
        state.command(&LogCommand::End, &[], until);
        while !state.ended && state.receive(until) {}
        state.restart()
    }

    /// Replaces the log process if it was the process that has ended; false if it was not.
    pub fn replace(&self, pid: u32) -> bool {
        let mut state = self.lock();
        if state.pid != Some(pid) {
            return false;
        }
        state.pid = None;
        state.running = false;
        if state.started.is_some_and(|at| at.elapsed() >= LIVED_WELL) {
            state.replaced = 0;
        }
        if state.replaced < REPLACED_MAX {
            state.replaced += 1;
            // Without another process there are no logs, and no place to report that.
            let _ = state.restart();
        }
        true
    }
}

impl LogProcessState {
    fn is_owner(&self) -> bool {
        self.owner == std::process::id()
    }

    fn ends(&mut self) -> io::Result<&Channels> {
        if self.ends.is_none() {
            self.ends = Some(Channels::new()?);
            self.owner = std::process::id();
        }
        Ok(self.ends.as_ref().expect("created above"))
    }

    fn start(&mut self) -> io::Result<()> {
        if self.running {
            return Ok(());
        }
        let kept = self.ends()?.far.try_clone()?.into_fds();
        self.pid = if process::thread_count()? == 1 {
            Some(process::fork_alone(kept, |kept| {
                if let Some(served) = serve::LogProcessEnds::from_fds(kept) {
                    serve::run_process(served);
                }
            })?)
        } else {
            // `master_process off`, and no log was a file so far.
            let thread = std::thread::Builder::new().name("log-process".into());
            thread.spawn(move || {
                if let Some(served) = serve::LogProcessEnds::from_fds(kept) {
                    serve::run(served);
                }
            })?;
            None
        };
        self.running = true;
        self.started = Some(Instant::now());
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        self.running = false;
        self.flushing = false;
        self.start()?;
        let until = Instant::now() + ROOM_MAX;
        for (id, path) in &self.files {
            let open = LogCommand::Open { id: *id, path: path.clone(), make_directory: false };
            self.command(&open, &[], until);
        }
        if let Some(id) = self.stderr {
            self.command(&LogCommand::Stderr(id), &[], until);
        }
        let until = Instant::now() + OPEN_MAX;
        while !self.all_arrived() && self.receive(until) {}
        Ok(())
    }

    fn all_arrived(&self) -> bool {
        let has_arrived = |id| self.arrived.iter().any(|(arrived, _)| *arrived == id);
        self.files.iter().all(|(id, _)| has_arrived(*id))
    }

    fn command(&self, command: &LogCommand, attached: &[BorrowedFd<'_>], until: Instant) {
        let (true, true, Some(ends)) = (self.is_owner(), self.running, &self.ends) else { return };
        while let Err(error) = command.send(&ends.commands, attached) {
            let again = error.kind() == io::ErrorKind::WouldBlock;
            if !again || !wait_for(&ends.commands, PollFlags::OUT, until) {
                return;
            }
        }
    }

    /// Receives a reply; false if none comes in time.
    fn receive(&mut self, until: Instant) -> bool {
        let Some(ends) = self.ends.as_ref().filter(|_| self.is_owner()) else { return false };
        if !wait_for(&ends.commands, PollFlags::IN, until) {
            return false;
        }
        let SocketRead::Message((bytes, _)) = message::receive(&ends.commands) else {
            return false;
        };
        match Reply::parse(&bytes) {
            Some(Reply::Opened(id, result)) if self.files.iter().any(|(known, _)| *known == id) => {
                self.arrived.push_back((id, result));
            }
            Some(Reply::Flushed) => self.flushing = false,
            Some(Reply::Ended) => self.ended = true,
            // The log has been closed meanwhile.
            Some(Reply::Opened(..)) | None => {}
        }
        true
    }

    fn flush(&mut self, until: Instant) {
        self.flushing = true;
        self.command(&LogCommand::Flush, &[], until);
        while self.flushing && self.receive(until) {}
    }
}

/// The last lines get one more chance.
impl Drop for LogProcess {
    fn drop(&mut self) {
        let mut state = self.lock();
        let until = Instant::now() + WRITE_MAX;
        if state.is_owner() && state.running {
            while state.flushing && state.receive(until) {}
            if !state.flushing {
                state.flush(until);
            }
        }
    }
}

/// The message about a disk that does not answer.
pub fn late(path: &Path) -> String {
    format!("the disk of \"{}\" does not answer", path.display())
}
