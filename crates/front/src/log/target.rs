//! Destinations of logs, and writing to them. Runs on the writing threads, which may wait for a
//! disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::paths::{self, PathFiles};
use super::syslog;
use super::threads::{QueuedLog, lock};
use super::{Level, LogReport, OsError};

/// Failures of one log are reported once per this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Time without writes to the log after its disk was full.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(1);

/// A change of the file behind a log.
#[derive(Debug)]
pub(super) enum Switch {
    /// To this one.
    To(File),
    /// To the file that the path names now.
    Reopen,
}

/// The destination of a log. Only the thread that writes it touches it.
#[derive(Debug)]
pub(super) enum LogTarget {
    /// `path` is for messages and reopening. Without a file it is opened by the first write.
    File { path: PathBuf, file: Option<File> },
    /// Never reopened.
    Stderr,
    /// Records with their own path.
    Paths(PathFiles),
    /// Records with a line each.
    Syslog { socket: syslog::SyslogSocket, server: String },
}

/// Writes the pending lines of a log. May block on its disk.
pub(super) fn write_log(reporter: &dyn LogReport, log: &QueuedLog, spare: Vec<u8>) -> Vec<u8> {
    let batch = {
        let mut ring = lock(&log.ring);
        // Cleared before the ring is taken, so that a later request for a flush is not lost.
        log.due.store(false, SeqCst);
        log.flush_at.store(0, SeqCst);
        log.pending.store(0, SeqCst);
        ring.take(spare)
    };
    let gzip = lock(&log.buffering).gzip;
    let mut target = lock(&log.target);
    let mut from = 0;
    for (at, switch) in batch.switches {
        write_part(reporter, log, &mut target, &batch.bytes[from..at], gzip);
        from = at;
        apply(reporter, &mut target, switch);
    }
    write_part(reporter, log, &mut target, &batch.bytes[from..], gzip);
    if batch.lost > 0 {
        let (lost, name) = (batch.lost, &log.name);
        reporter.report(
            Level::Alert,
            format_args!("{lost} lines of log \"{name}\" were lost: it was written too slowly"),
        );
    }
    batch.bytes
}

fn apply(reporter: &dyn LogReport, target: &mut LogTarget, switch: Switch) {
    match (target, switch) {
        (LogTarget::File { file, .. }, Switch::To(new)) => *file = Some(new),
        (LogTarget::File { path, file }, Switch::Reopen) => match paths::open(path) {
            Ok(new) => *file = Some(new),
            // The old file is better than none.
            Err(error) => report_open(reporter, path, &error),
        },
        (LogTarget::Paths(files), _) => files.reopen(),
        (LogTarget::Stderr | LogTarget::Syslog { .. }, _) => {}
    }
}

fn report_open(reporter: &dyn LogReport, path: &Path, error: &io::Error) {
    let (path, error) = (path.display(), OsError(error));
    reporter.report(Level::Emerg, format_args!("open() \"{path}\" failed{error}"));
}

fn write_part(
    reporter: &dyn LogReport,
    log: &QueuedLog,
    target: &mut LogTarget,
    bytes: &[u8],
    gzip: Option<u32>,
) {
    if bytes.is_empty() {
        return;
    }
    match target {
        LogTarget::File { path, file } => {
            if file.is_none() {
                match paths::open(path) {
                    Ok(new) => *file = Some(new),
                    Err(error) if is_time_to_report(log) => {
                        return report_open(reporter, path, &error);
                    }
                    Err(_) => return,
                }
            }
            if let Some(file) = file {
                let written = match gzip {
                    Some(level) => write_gzip(file, bytes, level),
                    None => file.write_all(bytes),
                };
                if let Err(error) = written {
                    failed(reporter, log, &error);
                }
            }
        }
        LogTarget::Stderr => {
            // A failure of standard error can't be reported.
            let mut records = bytes;
            while let Some([_, _, line]) = paths::next_record(&mut records) {
                let _ = io::stderr().write_all(line);
            }
        }
        LogTarget::Paths(files) => files.write(bytes, reporter),
        LogTarget::Syslog { socket, server } => {
            let mut records = bytes;
            while let Some([_, _, line]) = paths::next_record(&mut records) {
                if let Err(error) = socket.send(line) {
                    log.lost.fetch_add(1, SeqCst);
                    if is_time_to_report(log) {
                        let error = OsError(&error);
                        reporter.report(
                            Level::Warn,
                            format_args!("send() to syslog server \"{server}\" failed{error}"),
                        );
                    }
                }
            }
        }
    }
}

fn write_gzip(file: &mut File, bytes: &[u8], level: u32) -> io::Result<()> {
    let compressed = Vec::with_capacity(bytes.len() / 4 + 64);
    let mut encoder = GzEncoder::new(compressed, Compression::new(level));
    encoder.write_all(bytes)?;
    file.write_all(&encoder.finish()?)
}

fn failed(reporter: &dyn LogReport, log: &QueuedLog, error: &io::Error) {
    if is_time_to_report(log) {
        let (name, text) = (&log.name, OsError(error));
        reporter.report(Level::Alert, format_args!("write() to \"{name}\" failed{text}"));
    }
    if error.kind() == io::ErrorKind::StorageFull {
        // A full file system can be slow to report that; the log's own thread may wait for it.
        thread::sleep(DISK_FULL_PAUSE);
    }
}

fn is_time_to_report(log: &QueuedLog) -> bool {
    let mut reported = lock(&log.reported);
    let quiet = reported.is_some_and(|at| at.elapsed() < REPORT_INTERVAL);
    if !quiet {
        *reported = Some(Instant::now());
    }
    !quiet
}
