//! The log files of a generation, as the log process opened them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::log::directives::{ErrorLogTo, ErrorTarget};
use rustix::event::PollFlags;

use crate::log::{Destination, Level, OsErrorText, Sink, StartupLog};
use crate::log_process::message::{self, OpenFailure, SocketRead};
use crate::log_process::{self, LogFile, OpenResult, late};

/// How long the server process waits for the descriptors of its logs, which the log process sends
/// at once, hanging disks or not: only a starved machine needs the time.
const GIVEN_MAX: Duration = Duration::from_secs(10);

/// The action for a log whose disk does not respond.
#[derive(Clone, Copy, Debug)]
pub enum SlowLogPolicy<'a> {
    /// A start goes on without the log.
    Tolerated,
    /// A reload needs the log, unless the previous configuration has it.
    Needed(&'a Logs),
}

/// The logs by path, each path once.
#[derive(Debug, Default)]
pub struct Logs {
    logs: Vec<OpenLog>,
}

#[derive(Debug)]
struct OpenLog {
    path: PathBuf,
    file: Arc<LogFile>,
    /// Replaces it as soon as the disk answers.
    awaited: Option<Arc<LogFile>>,
}

impl<'a> SlowLogPolicy<'a> {
    fn previous(self, path: &Path) -> Option<&'a OpenLog> {
        match self {
            SlowLogPolicy::Tolerated => None,
            SlowLogPolicy::Needed(previous) => previous.find(path),
        }
    }
}

impl OpenLog {
    /// The same log, while its disk does not answer.
    fn kept(&self, log: &StartupLog) -> OpenLog {
        log_late(&self.path, log);
        OpenLog { path: self.path.clone(), file: self.file.clone(), awaited: self.awaited.clone() }
    }
}

fn log_late(path: &Path, log: &StartupLog) {
    log.log(Level::Error, format_args!("{}; the log is reopened when it does", late(path)));
}

fn no_process(error: &io::Error) -> String {
    format!("starting the log process failed {}", OsErrorText(error))
}

/// Logs on their way to the server process: a socket on which their descriptors arrive.
#[derive(Debug, Default)]
pub struct PassedLogs {
    /// Every log and its number. Not all of them need be open.
    pub ids: Vec<(PathBuf, u64)>,
    /// The log process is at the other end.
    pub from: Option<OwnedFd>,
}

impl PassedLogs {
    /// Receives the descriptors. Returns also the logs whose disks do not answer.
    pub fn receive(self) -> (HashMap<PathBuf, File>, Vec<PathBuf>) {
        let until = Instant::now() + GIVEN_MAX;
        let mut files = HashMap::new();
        let Some(from) = self.from else { return (files, Vec::new()) };
        let ids = self.ids.into_iter().map(|(path, id)| (id, path));
        let mut late: HashMap<u64, PathBuf> = ids.collect();
        while log_process::wait_for(&from, PollFlags::IN, until) {
            let SocketRead::Message((bytes, fds)) = message::receive(&from) else { break };
            for (id, fd) in message::ids(&bytes).into_iter().zip(fds) {
                if let Some(path) = late.remove(&id) {
                    files.insert(path, File::from(fd));
                }
            }
        }
        (files, late.into_values().collect())
    }
}

impl Logs {
    /// Opens all of `paths` for appending. With `true`, the directory is created if it is missing.
    ///
    /// # Errors
    /// The reason; no file stays open.
    pub fn open(
        paths: impl IntoIterator<Item = (PathBuf, bool)>,
        absent: SlowLogPolicy<'_>,
        log: &StartupLog,
    ) -> Result<Logs, OpenFailure> {
        let mut logs: Vec<OpenLog> = Vec::new();
        let mut wanted: Vec<(PathBuf, bool)> = Vec::new();
        for (path, make_directory) in paths {
            let mut known = logs.iter().map(|log| &log.path).chain(wanted.iter().map(|(p, _)| p));
            if known.any(|known| *known == path) {
                continue;
            }
            match absent.previous(&path).filter(|previous| previous.awaited.is_some()) {
                Some(previous) => logs.push(previous.kept(log)),
                None => wanted.push((path, make_directory)),
            }
        }
        let failure = |message| OpenFailure { message, of_directory: false };
        let opened = log.process().open(wanted.iter().cloned());
        let opened = opened.map_err(|error| failure(no_process(&error)))?;
        for ((path, _), (file, opened)) in wanted.into_iter().zip(opened) {
            let file = Arc::new(file);
            logs.push(match (opened, absent) {
                (OpenResult::Yes, _) => OpenLog { path, file, awaited: None },
                (OpenResult::No(failure), _) => return Err(failure),
                (OpenResult::Late, SlowLogPolicy::Tolerated) => {
                    let late = late(&path);
                    log.log(Level::Error, format_args!("{late}; going on without this log"));
                    OpenLog { path, file: file.clone(), awaited: Some(file) }
                }
                (OpenResult::Late, SlowLogPolicy::Needed(previous)) => match previous.find(&path) {
                    Some(previous) => OpenLog { awaited: Some(file), ..previous.kept(log) },
                    None => {
                        let path = path.display();
                        let text = format!("open() \"{path}\" failed: its disk does not answer");
                        return Err(failure(text));
                    }
                },
            });
        }
        Ok(Logs { logs })
    }

    /// Reopens every path; if that fails, the old file is kept, as in nginx.
    pub fn reopen(&mut self, log: &StartupLog) {
        // The awaited file is the one that the path names when the disk responds again.
        let (wanted, awaited): (Vec<_>, Vec<_>) =
            self.logs.iter_mut().partition(|entry| entry.awaited.is_none());
        let paths = wanted.iter().map(|entry| (entry.path.clone(), false));
        let opened = match log.process().open(paths.collect::<Vec<_>>()) {
            Ok(opened) => opened,
            Err(error) => return log.log(Level::Emerg, no_process(&error)),
        };
        for (entry, (file, opened)) in wanted.into_iter().zip(opened) {
            match opened {
                OpenResult::Yes => entry.file = Arc::new(file),
                OpenResult::No(failure) => log.log(Level::Emerg, failure.message),
                OpenResult::Late => {
                    log_late(&entry.path, log);
                    entry.awaited = Some(Arc::new(file));
                }
            }
        }
        for entry in awaited {
            log_late(&entry.path, log);
        }
    }

    /// A disk has answered at last. Returns whether a log has to be sent to the server process.
    pub fn arrived(&mut self, id: u64, result: &Result<(), OpenFailure>, log: &StartupLog) -> bool {
        let is_meant = |file: &Arc<LogFile>| file.id() == id;
        let mut any = false;
        for entry in &mut self.logs {
            let awaited = entry.awaited.take_if(|file| is_meant(file));
            if awaited.is_none() && !is_meant(&entry.file) {
                continue;
            }
            match result {
                Ok(()) => {
                    entry.file = awaited.unwrap_or_else(|| entry.file.clone());
                    any = true;
                }
                Err(failure) => log.log(Level::Emerg, &failure.message),
            }
        }
        any
    }

    /// The number of a log.
    pub fn id(&self, path: &Path) -> Option<u64> {
        self.find(path).map(|log| log.file.id())
    }

    fn find(&self, path: &Path) -> Option<&OpenLog> {
        self.logs.iter().find(|log| log.path == path)
    }

    /// Has the descriptors passed over the resulting socket.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn give(&self, log: &StartupLog) -> io::Result<PassedLogs> {
        let ids = self.logs.iter().map(|log| (log.path.clone(), log.file.id()));
        let ids: Vec<(PathBuf, u64)> = ids.collect();
        let numbers: Vec<u64> = ids.iter().map(|(_, id)| *id).collect();
        let from = log.process().give(&numbers)?;
        Ok(PassedLogs { ids, from: Some(from) })
    }

    /// The sinks of the main error log.
    pub fn sinks(&self, error_logs: &[ErrorLogTo]) -> Vec<Sink> {
        sinks(error_logs, |path| Some(self.find(path)?.file.clone()))
    }
}

/// The sinks of the main error log. `file` knows the logs by path.
pub fn sinks(error_logs: &[ErrorLogTo], file: impl Fn(&Path) -> Option<Arc<LogFile>>) -> Vec<Sink> {
    let sink = |error_log: &ErrorLogTo| {
        let level = error_log.level;
        let to = match &error_log.target {
            ErrorTarget::Stderr => Destination::Stderr,
            ErrorTarget::File(path) => Destination::File(file(path)?),
            ErrorTarget::Syslog(options) => Destination::syslog(options),
        };
        Some(Sink { to, level, options: error_log.options.clone() })
    };
    error_logs.iter().filter_map(sink).collect()
}
