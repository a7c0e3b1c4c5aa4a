//! The log files of a generation, opened by the master.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::log::{Destination, Level, Sink, StartupLog, failed, open_log};
use nowait_front::log::directives::{ErrorLogTo, ErrorTarget};

/// Open logs by path, each path once.
#[derive(Debug, Default)]
pub struct Logs {
    files: Vec<(PathBuf, File)>,
}

impl Logs {
    /// Opens all of `paths` for appending.
    ///
    /// # Errors
    /// The message for the log; nothing stays open.
    pub fn open(paths: impl IntoIterator<Item = PathBuf>) -> Result<Logs, String> {
        let mut logs = Logs::default();
        for path in paths {
            if logs.get(&path).is_none() {
                let file = open_log(&path).map_err(|error| failed("open()", &path, &error))?;
                logs.files.push((path, file));
            }
        }
        Ok(logs)
    }

    /// Reopens every path; if that fails, the old file is kept, as in nginx.
    pub fn reopen(&mut self, log: &StartupLog) {
        for (path, file) in &mut self.files {
            match open_log(path) {
                Ok(new) => *file = new,
                Err(error) => log.log(Level::Emerg, failed("open()", path, &error)),
            }
        }
    }

    /// The open file of a path.
    pub fn get(&self, path: &Path) -> Option<&File> {
        self.files.iter().find(|(known, _)| known == path).map(|(_, file)| file)
    }

    /// Copies of the descriptors, to send to the server process.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn duplicate(&self) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
        let copy =
            |(path, file): &(PathBuf, File)| Ok((path.clone(), file.as_fd().try_clone_to_owned()?));
        self.files.iter().map(copy).collect()
    }

    /// The sinks of the main error log.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn sinks(&self, error_logs: &[ErrorLogTo]) -> io::Result<Vec<Sink>> {
        let mut sinks = Vec::new();
        for error_log in error_logs {
            let level = error_log.level;
            match &error_log.target {
                ErrorTarget::Stderr => sinks.push(Sink { to: Destination::Stderr, level }),
                ErrorTarget::File(path) => {
                    if let Some(file) = self.get(path) {
                        let to = Destination::File(file.try_clone()?);
                        sinks.push(Sink { to, level });
                    }
                }
                ErrorTarget::Syslog(options) => sinks.push(Sink::syslog(options, level)),
            }
        }
        Ok(sinks)
    }
}
