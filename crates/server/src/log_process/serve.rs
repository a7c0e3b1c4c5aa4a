//! The log process itself: opens logs and writes lines to them.
//!
//! Its main thread only receives messages and copies lines into the rings of the log writer. Threads do
//! everything that may wait for a disk: [`Jobs`] open, close and wait for a flush; the writer's threads
//! write. It ends when no process can send lines any more.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nowait_front::log::writer::{Buffering, Sink, Writer};
use nowait_front::log::{Level, LogReport};
use nowait_sys::fdpass;
use nowait_sys::process;
use nowait_sys::signal::Signals;
use rustix::event::{PollFd, PollFlags, poll};

use super::message::{self, LogCommand, OpenFailure, Reply, SocketRead};
use crate::log::{failed, open_log, render};

/// Threads that open logs. If more than this wait for hanging disks, other logs wait, too.
const THREADS_MAX: usize = 32;

/// A thread ends after this long without work.
const THREAD_LINGERS: Duration = Duration::from_secs(10);

/// Time limit for writing the last lines after all other processes have ended.
const LINGER_MAX: Duration = Duration::from_secs(10);

/// Time limit for writing the lines of a closed log before the process ends.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// A flush is repeated after this time; it ends with the disk's reply.
const FLUSH_ROUND: Duration = Duration::from_secs(60);

/// Maximum number of messages received from a socket before the others get their turn.
const BURST: usize = 256;

/// More lines than a socket can hold.
const QUEUE_MAX: usize = 4096;

/// Longer pieces of standard error without a line end are written as they are.
const PIECE_BYTES_MAX: usize = 4096;

/// The ends of the log process.
#[derive(Debug)]
pub struct LogProcessEnds {
    /// [`message::line`]s.
    pub lines: OwnedFd,
    /// [`LogCommand`]s come in, [`Reply`]s go out.
    pub commands: OwnedFd,
    /// Output of other programs to standard error.
    pub stderr: OwnedFd,
    /// Standard error of the program before it was redirected: a log can be `/dev/stderr`.
    pub own_stderr: OwnedFd,
}

impl LogProcessEnds {
    /// The ends as [`LogProcessEnds::into_fds`] made them.
    pub fn from_fds(fds: Vec<OwnedFd>) -> Option<LogProcessEnds> {
        let [lines, commands, stderr, own_stderr] = fds.try_into().ok()?;
        Some(LogProcessEnds { lines, commands, stderr, own_stderr })
    }

    /// Their descriptors.
    pub fn into_fds(self) -> Vec<OwnedFd> {
        vec![self.lines, self.commands, self.stderr, self.own_stderr]
    }

    /// Copies of the descriptors.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn try_clone(&self) -> io::Result<LogProcessEnds> {
        Ok(LogProcessEnds {
            lines: self.lines.try_clone()?,
            commands: self.commands.try_clone()?,
            stderr: self.stderr.try_clone()?,
            own_stderr: self.own_stderr.try_clone()?,
        })
    }
}

/// Runs as a process. Signals do not end it, only the end of all others.
pub fn run_process(served: LogProcessEnds) {
    process::set_name("nowait: log");
    let _ = process::new_session();
    let _ = process::redirect_stderr(&served.own_stderr);
    if Signals::ignore().is_ok() {
        run(served);
    }
}

/// Serves until no process can send lines any more.
pub fn run(served: LogProcessEnds) {
    let Ok(writer) = Writer::start() else { return };
    let LogProcessEnds { lines, commands, stderr, .. } = served;
    let table = Arc::new(Mutex::new(LogTable::default()));
    writer.set_reporter(Arc::new(Reporter(table.clone())));
    let writer = Arc::new(writer);
    let mut server = LogServer {
        table,
        writer,
        jobs: Jobs::default(),
        replies: Arc::new(commands),
        piece: vec![],
    };
    let mut open = [Some(server.replies.clone()), Some(Arc::new(lines)), Some(Arc::new(stderr))];
    while open[..2].iter().any(Option::is_some) {
        let waiting = open.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN));
        if poll(&mut waiting.collect::<Vec<_>>(), None).is_err_and(|e| e != rustix::io::Errno::INTR)
        {
            break;
        }
        let [commands, lines, stderr] = &mut open;
        if server.take_commands(commands, lines, stderr) {
            break;
        }
        server.take_lines(lines, BURST);
        server.take_stderr(stderr);
    }
    server.writer.flush(LINGER_MAX);
}

/// One of the logs.
struct LogEntry {
    path: PathBuf,
    /// `None` while its disk does not answer.
    file: Option<File>,
    /// Created for its first line.
    sink: Option<Sink>,
}

impl LogEntry {
    fn write(&mut self, writer: &Writer, line: &[u8]) {
        let copy = || self.file.as_ref().and_then(|file| file.try_clone().ok());
        let sink = self.sink.get_or_insert_with(|| {
            // Without a file, a thread of the writer opens the path and waits for the disk.
            writer.file(&self.path, copy(), Buffering::default())
        });
        sink.write(line);
    }
}

#[derive(Default)]
struct LogTable {
    entries: HashMap<u64, LogEntry>,
    /// Receives lines that name no open log; without this log, they go to standard error.
    main: Option<u64>,
}

impl LogTable {
    fn write(&mut self, writer: &Writer, id: u64, line: &[u8]) {
        let id = if self.entries.contains_key(&id) { Some(id) } else { self.main };
        match id.and_then(|id| self.entries.get_mut(&id)) {
            Some(entry) => entry.write(writer, line),
            None => {
                writer.stderr().write(line);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every value behind these locks is valid between two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports failures of logs to the main log, if that has received a line.
struct Reporter(Arc<Mutex<LogTable>>);

impl LogReport for Reporter {
    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        let table = lock(&self.0);
        let main = table.main.and_then(|id| table.entries.get(&id));
        if let Some(sink) = main.and_then(|entry| entry.sink.as_ref()) {
            sink.write(render(level, &message.to_string()).as_bytes());
        }
    }
}

type Mailbox = Option<Arc<OwnedFd>>;

struct LogServer {
    table: Arc<Mutex<LogTable>>,
    writer: Arc<Writer>,
    jobs: Jobs,
    replies: Arc<OwnedFd>,
    /// The beginning of a line on standard error.
    piece: Vec<u8>,
}

impl LogServer {
    /// Takes all commands that have arrived; true ends the process.
    fn take_commands(
        &mut self,
        socket: &mut Mailbox,
        lines: &mut Mailbox,
        stderr: &mut Mailbox,
    ) -> bool {
        let mut arrived = Vec::new();
        while let (Some(end), true) = (&socket, arrived.len() < BURST) {
            match message::receive(end) {
                SocketRead::Message((bytes, fds)) => {
                    arrived.extend(LogCommand::parse(&bytes).map(|command| (command, fds)));
                }
                SocketRead::Nothing => break,
                SocketRead::End => *socket = None,
            }
        }
        // A line names a log that was opened before the line was sent, and is written before
        // anything that was requested after it.
        for (command, _) in &arrived {
            if let LogCommand::Open { id, path, .. } = command {
                let entry = LogEntry { path: path.clone(), file: None, sink: None };
                lock(&self.table).entries.insert(*id, entry);
            }
        }
        if !arrived.is_empty() {
            self.take_lines(lines, QUEUE_MAX);
        }
        for (command, fds) in arrived {
            match command {
                LogCommand::Open { id, path, make_directory } => {
                    self.open(id, path, make_directory)
                }
                LogCommand::Close(id) => {
                    let entry = lock(&self.table).entries.remove(&id);
                    let writer = self.writer.clone();
                    self.jobs.run(move || {
                        // Its last lines; and closing a file may wait for its disk.
                        if entry.as_ref().is_some_and(|entry| entry.sink.is_some()) {
                            writer.flush(CLOSE_MAX);
                        }
                        drop(entry);
                    });
                }
                LogCommand::Stderr(id) => lock(&self.table).main = Some(id),
                LogCommand::Give(ids) => fds.iter().for_each(|to| self.give(&ids, to)),
                LogCommand::Flush => {
                    self.take_stderr(stderr);
                    self.flush();
                }
                LogCommand::End => {
                    reply(&self.replies, &Reply::Ended);
                    return true;
                }
            }
        }
        false
    }

    fn take_lines(&mut self, socket: &mut Mailbox, count_max: usize) {
        for _ in 0..count_max {
            let Some(end) = &socket else { return };
            match message::receive(end) {
                SocketRead::Message((bytes, _)) => {
                    if let Some((id, line)) = message::parse_line(&bytes) {
                        lock(&self.table).write(&self.writer, id, line);
                    }
                }
                SocketRead::Nothing => return,
                SocketRead::End => *socket = None,
            }
        }
    }

    fn take_stderr(&mut self, pipe: &mut Mailbox) {
        let Some(end) = &pipe else { return };
        let mut bytes = [0; PIECE_BYTES_MAX];
        match rustix::io::read(end, &mut bytes) {
            Ok(0) => *pipe = None,
            Ok(count) => self.piece.extend_from_slice(&bytes[..count]),
            Err(_) => return,
        }
        let whole = match self.piece.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if pipe.is_none() || self.piece.len() >= PIECE_BYTES_MAX => self.piece.len(),
            None => 0,
        };
        let lines: Vec<u8> = self.piece.drain(..whole).collect();
        if !lines.is_empty() {
            lock(&self.table).write(&self.writer, message::STDERR, &lines);
        }
    }

    fn open(&mut self, id: u64, path: PathBuf, make_directory: bool) {
        let (table, writer, replies) =
            (self.table.clone(), self.writer.clone(), self.replies.clone());
        self.jobs.run(move || {
            let result = open(&path, make_directory).map(|file| {
                // It may have been closed meanwhile.
                if let Some(entry) = lock(&table).entries.get_mut(&id) {
                    if let (Some(_), Ok(copy)) = (&entry.sink, file.try_clone()) {
                        entry.sink = Some(writer.file(&path, Some(copy), Buffering::default()));
                    }
                    entry.file = Some(file);
                }
            });
            reply(&replies, &Reply::Opened(id, result));
        });
    }

    /// Passes the descriptors of logs on. Those that are not open are left out.
    fn give(&self, ids: &[u64], to: &OwnedFd) {
        let table = lock(&self.table);
        let of = |id: &u64| Some((*id, table.entries.get(id)?.file.as_ref()?.as_fd()));
        let (ids, fds): (Vec<_>, Vec<_>) = ids.iter().filter_map(of).unzip();
        if !ids.is_empty() {
            // The receiver detects a missing reply.
            let _ = fdpass::send(to, &message::from_ids(&ids), &fds);
        }
    }

    fn flush(&mut self) {
        let (writer, replies) = (self.writer.clone(), self.replies.clone());
        self.jobs.run(move || {
            while !writer.flush(FLUSH_ROUND) {}
            reply(&replies, &Reply::Flushed);
        });
    }
}

/// Sends a reply. The master reads them all, so there is room; if it has ended, no reply is needed.
fn reply(to: &OwnedFd, reply: &Reply) {
    loop {
        match fdpass::send(to, &reply.bytes(), &[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // More logs than replies fit: the master sends all requests first.
                if poll(&mut [PollFd::new(to, PollFlags::OUT)], None).is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

fn open(path: &Path, make_directory: bool) -> Result<File, OpenFailure> {
    if make_directory
        && let Some(directory) = path.parent()
        && !directory.exists()
    {
        // nginx differs: its packages install this directory; users of Nowait need not know about
        // it. A user who could write here could replace a log by a link to any file of root's.
        match std::fs::DirBuilder::new().mode(0o755).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let message = failed("mkdir()", directory, &error);
                return Err(OpenFailure { message, of_directory: true });
            }
            _ => {}
        }
    }
    open_log(path).map_err(|error| OpenFailure {
        message: failed("open()", path, &error),
        of_directory: false,
    })
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads for calls that may wait for a disk. They start when needed.
#[derive(Default)]
struct Jobs(Arc<OpenerPool>);

#[derive(Default)]
struct OpenerPool {
    state: Mutex<PoolState>,
    queued: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Jobs {
    fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.0.state);
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() > state.idle && state.threads < THREADS_MAX {
            let pool = self.0.clone();
            let thread = std::thread::Builder::new().name("log-open".into());
            if thread.spawn(move || pool.work()).is_ok() {
                state.threads += 1;
            }
        }
        drop(state);
        self.0.queued.notify_one();
    }
}

impl OpenerPool {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = lock(&self.state);
            }
            state.idle += 1;
            let woken = self.queued.wait_timeout(state, THREAD_LINGERS);
            let (woken, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}
