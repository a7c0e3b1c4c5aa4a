//! The log writer: request code never waits for a log.
//!
//! [`Sink::write`] copies a line into the log's ring ([`super::ring`]) and returns. Logs with
//! pending lines are handed to writing threads, by the line itself or, under load, by a coordinator
//! thread, which never touches a file. There is one writing thread as long as every log's disk
//! responds; when one is stuck for [`STUCK_AFTER`], another is started, so that a stuck log delays
//! only itself. Its ring fills up; further lines are counted, and reported in the error log when
//! the log moves again.
//!
//! With little load a line reaches its file at once; otherwise lines are written in batches, at
//! most one per log and [`BATCH_INTERVAL`]. `buffer=` and `flush=` of `access_log` delay further.
//!
//! The rings are lost if the process is killed; [`Writer::shutdown`] writes them out.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::error::Output;
use super::error_rate::{LeftOut, RateLimit};
pub use super::paths::OpenFileCache;
use super::paths::{self, PathFiles};
use super::target::{LogTarget, Switch};
pub use super::threads::{BATCH_INTERVAL, STUCK_AFTER, WRITERS_MAX};
use super::threads::{QueuedLog, WriterState, coordinate, lock};
use super::{LogReport, syslog};

/// Maximum number of pending bytes of a log; with `buffer=`, twice the buffer if that is more.
pub const RING_BYTES: usize = 1024 * 1024;

/// `buffer=`, `flush=` and `gzip=` of `access_log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Buffering {
    /// Lines are written once this many bytes are buffered; 0: at once.
    pub buffer_bytes: usize,
    /// Maximum age of the oldest buffered line.
    pub flush: Option<Duration>,
    /// Each write becomes a gzip member of this level, 1 to 9.
    pub gzip: Option<u32>,
}

/// A handle to a log for request code. Clones write to the same log. When the last one is dropped, pending
/// lines are written and the log ends.
#[derive(Clone)]
pub struct Sink(SinkKind);

#[derive(Clone)]
enum SinkKind {
    Queued(User),
    Direct(Arc<File>),
    Stderr,
}

/// One use of a log, which is removed after its last.
struct User {
    log: Arc<QueuedLog>,
    shared: Arc<WriterState>,
    coordinator: Thread,
}

impl User {
    fn new(log: Arc<QueuedLog>, shared: Arc<WriterState>, coordinator: Thread) -> User {
        log.users.fetch_add(1, SeqCst);
        User { log, shared, coordinator }
    }

    fn push(&self, parts: &[&[u8]]) -> bool {
        let log = &self.log;
        let mut ring = lock(&log.ring);
        let Some(pushed) = ring.push(parts) else {
            drop(ring);
            log.lost.fetch_add(1, SeqCst);
            return false;
        };
        log.pending.store(pushed.after, SeqCst);
        drop(ring);
        // A thread is woken by the line that makes a write due, not by every line.
        let threshold = log.threshold.load(SeqCst);
        let crossed = pushed.before < threshold && pushed.after >= threshold;
        let begins_buffer = pushed.before == 0 && log.has_flush.load(SeqCst);
        if (crossed && !self.shared.give(log)) || (!crossed && begins_buffer) {
            self.coordinator.unpark();
        }
        true
    }
}

impl Clone for User {
    fn clone(&self) -> User {
        User::new(self.log.clone(), self.shared.clone(), self.coordinator.clone())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if self.log.users.fetch_sub(1, SeqCst) == 1 {
            self.coordinator.unpark();
        }
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sink").field(&self.name()).finish()
    }
}

impl Sink {
    /// A sink that writes at once on the calling thread: for the master and for start-up, before
    /// there is a [`Writer`].
    pub fn direct(file: File) -> Sink {
        Sink(SinkKind::Direct(Arc::new(file)))
    }

    /// [`Sink::direct`] for standard error.
    pub fn stderr() -> Sink {
        Sink(SinkKind::Stderr)
    }

    /// The path or address.
    pub fn name(&self) -> &str {
        match &self.0 {
            SinkKind::Queued(user) => &user.log.name,
            SinkKind::Direct(_) => "",
            SinkKind::Stderr => "stderr",
        }
    }

    /// Appends a line, which ends in a line feed (for syslog: does not). Never blocks on the log;
    /// false if the line was lost because the log is too slow.
    pub fn write(&self, line: &[u8]) -> bool {
        match &self.0 {
            SinkKind::Queued(user) if user.log.records => self.write_to(b"", b"", line),
            SinkKind::Queued(user) => user.push(&[line]),
            // Not reported: the process is starting.
            SinkKind::Direct(file) => (&**file).write_all(line).is_ok(),
            SinkKind::Stderr => io::stderr().write_all(line).is_ok(),
        }
    }

    /// Appends a line to the file `path` of a log whose path has variables. Unless `root` is
    /// empty, the line is dropped if `root` is not a directory, so that requests for unknown hosts
    /// create no files.
    pub fn write_to(&self, path: &[u8], root: &[u8], line: &[u8]) -> bool {
        match (&self.0, paths::record_head(path, root, line)) {
            (SinkKind::Queued(user), Some(head)) => user.push(&[&head, path, root, line]),
            _ => false,
        }
    }

    /// Has the writer look after the rates of logs.
    pub(super) fn wake_writer(&self) {
        if let SinkKind::Queued(user) = &self.0 {
            user.coordinator.unpark();
        }
    }

    /// Lines lost so far.
    pub fn lost(&self) -> u64 {
        match &self.0 {
            SinkKind::Queued(user) => user.log.lost.load(SeqCst),
            SinkKind::Direct(_) | SinkKind::Stderr => 0,
        }
    }
}

/// The writer of a process. Dropping it leaves its threads running; see [`Writer::shutdown`].
pub struct Writer {
    shared: Arc<WriterState>,
    coordinator: JoinHandle<()>,
}

impl Writer {
    /// Starts the coordinator. Call it in the process that writes, not before a `fork`.
    pub fn start() -> io::Result<Writer> {
        let shared = Arc::new(WriterState::new());
        let coordinator = {
            let shared = shared.clone();
            thread::Builder::new().name("log".into()).spawn(move || coordinate(&shared))?
        };
        *lock(&shared.coordinator) = Some(coordinator.thread().clone());
        Ok(Writer { shared, coordinator })
    }

    /// Sets the receiver of reports about failing and slow logs.
    pub fn set_reporter(&self, reporter: Arc<dyn LogReport>) {
        *lock(&self.shared.reporter) = Some(reporter);
    }

    /// A log in a file. `file` is one that the master opened; without it the file is opened by
    /// the writer's thread. If a log with this path is in use (by another location, or the
    /// configuration before a reload) it is continued, with the new file if one is given, so hand
    /// each new file over once only.
    pub fn file(&self, path: &Path, file: Option<File>, buffering: Buffering) -> Sink {
        let mut logs = lock(&self.shared.logs);
        if let Some(log) = logs.iter().find(|log| log.path.as_deref() == Some(path)) {
            // Counted as a user before the list is let go, or it might be removed.
            let sink = self.sink(log.clone());
            let log = log.clone();
            drop(logs);
            log.set_buffering(buffering);
            if let Some(file) = file {
                self.switch(&log, Switch::To(file));
            }
            return sink;
        }
        let target = LogTarget::File { path: path.to_owned(), file };
        let name = path.display().to_string();
        let log = Arc::new(QueuedLog::new(name, false, target, buffering));
        let sink = self.sink(log.clone());
        logs.push(log);
        sink
    }

    /// Reports what a limit leaves out, to the first log that is opened with it, for as long as it is in use.
    pub(super) fn report_left_out(&self, rate: &Arc<RateLimit>, output: Output) {
        let report = Box::new(move |left_out: &LeftOut| output.put_left_out(left_out));
        if rate.reports.set(report).is_ok() {
            lock(&self.shared.rates).push(Arc::downgrade(rate));
        }
    }

    /// Standard error, through the writer: it may be a pipe without a reader.
    pub fn stderr(&self) -> Sink {
        let make =
            || QueuedLog::new("stderr".into(), true, LogTarget::Stderr, Buffering::default());
        self.shared_log("stderr", make)
    }

    /// A log whose path has variables: see [`Sink::write_to`]. `name` is for messages.
    pub fn paths(&self, name: &str, cache: Option<OpenFileCache>) -> Sink {
        let target = LogTarget::Paths(PathFiles::new(cache));
        let log = Arc::new(QueuedLog::new(name.to_owned(), true, target, Buffering::default()));
        let sink = self.sink(log.clone());
        lock(&self.shared.logs).push(log);
        sink
    }

    /// A log at a syslog server; lines carry their header ([`syslog::SyslogOptions::push_header`]). All
    /// logs at one server share a socket.
    pub fn syslog(&self, options: &syslog::SyslogOptions) -> Sink {
        let name = format!("syslog:{}", options.server_text);
        self.shared_log(&name, || {
            let server = options.server_text.clone();
            let socket = syslog::SyslogSocket::new(options.server.clone());
            QueuedLog::new(
                name.clone(),
                true,
                LogTarget::Syslog { socket, server },
                Buffering::default(),
            )
        })
    }

    /// The active log of this name, or a new one.
    fn shared_log(&self, name: &str, make: impl FnOnce() -> QueuedLog) -> Sink {
        let mut logs = lock(&self.shared.logs);
        if let Some(log) = logs.iter().find(|log| log.name == name && log.records) {
            return self.sink(log.clone());
        }
        let log = Arc::new(make());
        let sink = self.sink(log.clone());
        logs.push(log);
        sink
    }

    fn sink(&self, log: Arc<QueuedLog>) -> Sink {
        let coordinator = self.coordinator.thread().clone();
        Sink(SinkKind::Queued(User::new(log, self.shared.clone(), coordinator)))
    }

    /// The log at this path, if it has no file yet, keeps its lines until it is given one: only the
    /// master may open it, and its disk does not answer. To be called before the first line.
    pub fn expect_file(&self, path: &Path) {
        let logs = lock(&self.shared.logs);
        let log = logs.iter().find(|log| log.path.as_deref() == Some(path));
        // A target that is in use belongs to a thread that waits for a disk.
        if let Some(log) = log
            && let Ok(target) = log.target.try_lock()
            && matches!(&*target, LogTarget::File { file: None, .. })
        {
            log.awaited.store(true, SeqCst);
        }
    }

    fn switch(&self, log: &QueuedLog, switch: Switch) {
        match log.awaited.load(SeqCst) {
            true => lock(&log.ring).switch_first(switch),
            false => lock(&log.ring).switch(switch),
        }
        log.awaited.store(false, SeqCst);
        log.due.store(true, SeqCst);
        self.shared.wake();
    }

    /// Reopens the files of all logs (USR1). `fresh` gives a descriptor that the master opened for
    /// a path; for `None` the path is opened here, unless its file is expected. Lines written before this call go to the old
    /// file, later ones to the new.
    pub fn reopen(&self, mut fresh: impl FnMut(&Path) -> Option<File>) {
        let logs = lock(&self.shared.logs).clone();
        for log in logs {
            let file = log.path.as_deref().and_then(&mut fresh);
            if file.is_some() || !log.awaited.load(SeqCst) {
                self.switch(&log, file.map_or(Switch::Reopen, Switch::To));
            }
        }
    }

    /// Changes the files of the logs that `fresh` gives one for.
    pub fn replace(&self, mut fresh: impl FnMut(&Path) -> Option<File>) {
        let logs = lock(&self.shared.logs).clone();
        for log in logs {
            if let Some(file) = log.path.as_deref().and_then(&mut fresh) {
                self.switch(&log, Switch::To(file));
            }
        }
    }

    /// The paths of all logs in files, as the master must reopen them.
    pub fn file_paths(&self) -> Vec<PathBuf> {
        lock(&self.shared.logs).iter().filter_map(|log| log.path.clone()).collect()
    }

    /// Writes all pending lines, including buffers, and waits at most this long. False if lines are still
    /// unwritten then.
    pub fn flush(&self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let logs = {
            let logs = lock(&self.shared.logs);
            // A log that has already been taken off the list would not be written.
            logs.iter().for_each(|log| log.due.store(true, SeqCst));
            logs.clone()
        };
        self.shared.wake();
        let mut queue = lock(&self.shared.queue);
        while logs.iter().any(|log| log.due.load(SeqCst) || log.in_flight.load(SeqCst)) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            queue = match self.shared.written.wait_timeout(queue, left) {
                Ok((queue, _)) => queue,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
    }

    /// Lines lost so far by all logs in use.
    pub fn lost(&self) -> u64 {
        lock(&self.shared.logs).iter().map(|log| log.lost.load(SeqCst)).sum()
    }

    /// Ends the writer: flushes for at most this long and leaves stuck threads to the end of the
    /// process. Returns the logs that could not be written out, with their unwritten bytes.
    pub fn shutdown(self, at_most: Duration) -> Vec<(String, usize)> {
        let complete = self.flush(at_most);
        self.shared.stop.store(true, SeqCst);
        self.shared.wake();
        self.shared.queued.notify_all();
        if complete {
            // The thread waits only for its own sleep of a millisecond.
            let _ = self.coordinator.join();
        }
        let logs = lock(&self.shared.logs);
        let stuck = logs.iter().filter(|log| log.in_flight.load(SeqCst) || log.due.load(SeqCst));
        stuck.map(|log| (log.name.clone(), log.pending.load(SeqCst))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Level;
    use std::io::Read;
    use std::sync::Mutex;

    const LONG: Duration = Duration::from_secs(30);

    #[derive(Default)]
    struct Reports(Mutex<Vec<String>>);

    impl LogReport for Reports {
        fn report(&self, level: Level, message: fmt::Arguments<'_>) {
            lock(&self.0).push(format!("[{level}] {message}"));
        }
    }

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let name = format!("nowait-writer-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Dir(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.path(name)).unwrap_or_default()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Waits until a condition set by another thread holds.
    fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
        let until = Instant::now() + LONG;
        while !is_true() {
            assert!(Instant::now() < until, "{what} did not happen");
            thread::yield_now();
        }
    }

    #[test]
    fn lines_of_many_threads_arrive_whole() {
        let dir = Dir::new("threads");
        let writer = Writer::start().unwrap();
        let sink = writer.file(&dir.path("log"), None, Buffering::default());
        thread::scope(|scope| {
            for thread in 0..4 {
                let sink = sink.clone();
                scope.spawn(move || {
                    for line in 0..1000 {
                        assert!(sink.write(format!("{thread} {line}\n").as_bytes()));
                    }
                });
            }
        });
        assert!(writer.flush(LONG));
        let text = dir.read("log");
        for thread in 0..4 {
            let lines: Vec<&str> =
                text.lines().filter(|line| line.starts_with(&format!("{thread} "))).collect();
            let expected: Vec<String> = (0..1000).map(|line| format!("{thread} {line}")).collect();
            assert_eq!(lines, expected);
        }
        assert!(writer.shutdown(LONG).is_empty());
    }

    #[test]
    fn a_line_needs_no_flush() {
        let dir = Dir::new("prompt");
        let writer = Writer::start().unwrap();
        let sink = writer.file(&dir.path("log"), None, Buffering::default());
        for round in 1..=50 {
            sink.write(b"x\n");
            eventually("writing", || dir.read("log").len() == 2 * round);
        }
        writer.shutdown(LONG);
    }

    #[test]
    fn a_stuck_log_loses_its_own_lines_only_and_says_so() {
        let dir = Dir::new("stuck");
        let writer = Writer::start().unwrap();
        let reports = Arc::new(Reports::default());
        writer.set_reporter(reports.clone());
        // A pipe without a reader stands for the hanging disk.
        let (mut reader, pipe) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        let stuck = writer.file(Path::new("/stuck"), Some(pipe), Buffering::default());
        let line = [b'x'; 1023].iter().copied().chain([b'\n']).collect::<Vec<u8>>();
        let mut written = 0u64;
        while stuck.lost() < 10 {
            written += u64::from(stuck.write(&line));
        }
        assert!(written >= (RING_BYTES / line.len()) as u64);

        let other = writer.file(&dir.path("other"), None, Buffering::default());
        other.write(b"fine\n");
        eventually("writing the other log", || dir.read("other") == "fine\n");
        assert!(!writer.flush(Duration::from_millis(1)));

        // The disk is back.
        let read = thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes.len() as u64
        });
        assert!(writer.flush(LONG));
        assert_eq!(
            *lock(&reports.0),
            ["[alert] 10 lines of log \"/stuck\" were lost: it was written too slowly"]
        );
        drop(stuck);
        assert!(writer.shutdown(LONG).is_empty());
        drop(other);
        assert_eq!(read.join().unwrap(), written * line.len() as u64);
    }

    #[test]
    fn shutdown_does_not_wait_for_a_stuck_log() {
        let writer = Writer::start().unwrap();
        let (_reader, pipe) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        let stuck = writer.file(Path::new("/stuck"), Some(pipe), Buffering::default());
        stuck.write(&[b'x'; 200_000]);
        stuck.write(b"more");
        let unwritten = writer.shutdown(Duration::from_millis(20));
        assert_eq!(unwritten.len(), 1);
        assert_eq!(unwritten[0].0, "/stuck");
    }

    #[test]
    fn buffers_wait_for_their_size() {
        let dir = Dir::new("buffer");
        let writer = Writer::start().unwrap();
        let buffering = Buffering { buffer_bytes: 100, ..Buffering::default() };
        let sink = writer.file(&dir.path("log"), None, buffering);
        let plain = writer.file(&dir.path("plain"), None, Buffering::default());
        sink.write(&[b'x'; 99]);
        for round in 1..=5 {
            plain.write(b"x");
            eventually("writing", || dir.read("plain").len() == round);
        }
        assert_eq!(dir.read("log").len(), 0);
        sink.write(b"yz");
        eventually("writing the buffer", || dir.read("log").len() == 101);
        sink.write(b"rest");
        assert!(writer.flush(LONG));
        assert!(dir.read("log").ends_with("yzrest"));
        writer.shutdown(LONG);
    }

    #[test]
    fn buffers_are_flushed_in_time_and_compressed() {
        let dir = Dir::new("gzip");
        let writer = Writer::start().unwrap();
        let buffering = Buffering {
            buffer_bytes: 64 * 1024,
            flush: Some(Duration::from_millis(5)),
            gzip: Some(1),
        };
        let sink = writer.file(&dir.path("log"), None, buffering);
        let size = || std::fs::metadata(dir.path("log")).map_or(0, |found| found.len());
        sink.write(b"one\n");
        eventually("flushing", || size() > 0);
        let first = size();
        sink.write(b"two\n");
        eventually("flushing again", || size() > first);
        let mut text = String::new();
        let compressed = std::fs::read(dir.path("log")).unwrap();
        flate2::read::MultiGzDecoder::new(&compressed[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
        writer.shutdown(LONG);
    }

    #[test]
    fn reopening_separates_lines_exactly() {
        let dir = Dir::new("reopen");
        let writer = Writer::start().unwrap();
        let sink = writer.file(&dir.path("log"), None, Buffering::default());
        let buffering = Buffering { buffer_bytes: 1000, ..Buffering::default() };
        let handed = writer.file(&dir.path("handed"), None, buffering);
        for round in 0..20 {
            sink.write(b"before\n");
            handed.write(b"before\n");
            assert!(writer.flush(LONG));
            sink.write(b"late\n");
            handed.write(b"late\n");
            // Further lines of the old file are read below, by its new name.
            let old = |name: &str| dir.path(&format!("{name}.{round}"));
            std::fs::rename(dir.path("log"), old("log")).unwrap();
            std::fs::rename(dir.path("handed"), old("handed")).unwrap();
            writer.reopen(|path| {
                path.ends_with("handed").then(|| paths::open(&dir.path("handed")).unwrap())
            });
            sink.write(b"after\n");
            handed.write(b"after\n");
            assert!(writer.flush(LONG));
            assert_eq!(dir.read("log"), "after\n");
            assert_eq!(dir.read("handed"), "after\n");
            assert!(dir.read(&format!("log.{round}")).ends_with("before\nlate\n"));
            assert!(dir.read(&format!("handed.{round}")).ends_with("before\nlate\n"));
            assert_eq!(writer.file_paths().len(), 2);
        }
        writer.shutdown(LONG);
    }

    #[test]
    fn a_log_is_continued_after_a_reload_and_closed_after_its_last_user() {
        let dir = Dir::new("reload");
        let writer = Writer::start().unwrap();
        let old = writer.file(&dir.path("log"), None, Buffering::default());
        old.write(b"old\n");
        let buffering = Buffering { buffer_bytes: 1000, ..Buffering::default() };
        let file = paths::open(&dir.path("log")).unwrap();
        let new = writer.file(&dir.path("log"), Some(file), buffering);
        assert_eq!(writer.file_paths().len(), 1);
        drop(old);
        new.write(b"new\n");
        drop(new);
        eventually("closing", || writer.file_paths().is_empty());
        eventually("writing", || dir.read("log") == "old\nnew\n");
        writer.shutdown(LONG);
    }

    #[test]
    fn a_flush_does_not_wait_for_a_log_that_has_ended() {
        let dir = Dir::new("ended");
        let writer = Writer::start().unwrap();
        let flushed = thread::scope(|scope| {
            let flushes = scope.spawn(|| (0..3000).all(|_| writer.flush(LONG)));
            while !flushes.is_finished() {
                writer.file(&dir.path("log"), None, Buffering::default()).write(b"x\n");
            }
            flushes.join().unwrap()
        });
        assert!(flushed);
        writer.shutdown(LONG);
    }

    #[test]
    fn an_expected_file_gets_every_line() {
        let dir = Dir::new("expected");
        let writer = Writer::start().unwrap();
        let reports = Arc::new(Reports::default());
        writer.set_reporter(reports.clone());
        let path = dir.path("no/log");
        let sink = writer.file(&path, None, Buffering::default());
        writer.expect_file(&path);
        sink.write(b"one\n");
        assert!(!writer.flush(Duration::from_millis(1)));
        writer.reopen(|_| None);
        sink.write(b"two\n");
        assert!(!writer.flush(Duration::from_millis(1)));
        let file = paths::open(&dir.path("log")).unwrap();
        let mut file = Some(file);
        writer.replace(|_| file.take());
        sink.write(b"three\n");
        assert!(writer.flush(LONG));
        assert_eq!(dir.read("log"), "one\ntwo\nthree\n");
        assert!(lock(&reports.0).is_empty());
        writer.shutdown(LONG);
    }

    #[test]
    fn failures_are_reported_once_in_a_while() {
        let dir = Dir::new("failing");
        let writer = Writer::start().unwrap();
        let reports = Arc::new(Reports::default());
        writer.set_reporter(reports.clone());
        let path = dir.path("no/log");
        let sink = writer.file(&path, None, Buffering::default());
        for _ in 0..3 {
            sink.write(b"x\n");
            assert!(writer.flush(LONG));
        }
        let path = path.display();
        assert_eq!(
            *lock(&reports.0),
            [format!("[emerg] open() \"{path}\" failed (2: No such file or directory)")]
        );
        writer.shutdown(LONG);
    }

    #[test]
    fn syslog_and_variable_paths() {
        let dir = Dir::new("records");
        let writer = Writer::start().unwrap();
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let text = format!("server={}", receiver.local_addr().unwrap());
        let options = syslog::SyslogOptions::parse(&text, "box", &syslog::system_resolver).unwrap();
        let sink = writer.syslog(&options);
        sink.write(b"<1>line");
        let mut buffer = [0; 32];
        let length = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"<1>line");

        let sink = writer.paths("$host.log", None);
        let path = dir.path("a.log");
        sink.write_to(path.as_os_str().as_encoded_bytes(), b"", b"line\n");
        assert!(writer.flush(LONG));
        assert_eq!(dir.read("a.log"), "line\n");
        writer.shutdown(LONG);
    }

    #[test]
    fn direct_sinks_write_at_once() {
        let dir = Dir::new("direct");
        let sink = Sink::direct(paths::open(&dir.path("log")).unwrap());
        assert!(sink.write(b"now\n"));
        assert_eq!(dir.read("log"), "now\n");
    }
}
