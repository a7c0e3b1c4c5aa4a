//! Creates the directories that the service writes to, before it starts, and gives them to its user.
//!
//! One of them may be on a disk that hangs or fails, which must delay neither the start nor the
//! master: each is created by a process of its own, for which the master waits [`ANSWER_MAX`] at
//! most. After that the disk is out of use, and the rest of the service starts. Called by
//! [`super::reload`].

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nowait_sys::process;
use nowait_sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::log::{Level, StartupLog, failed};
use crate::settings::{MainSettings, ProcessSettings};

/// How long a start waits for the disks of all directories.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Maximum size of a reply.
const ANSWER_BYTES_MAX: usize = 4096;

/// Processes still running after the wait. They end when their disks let them.
static LATE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Creates them.
///
/// # Errors
/// The error of one of them. A disk failure is no error; it is logged.
pub(super) fn make(
    directories: &[PathBuf],
    settings: &MainSettings,
    log: &StartupLog,
) -> Result<(), String> {
    let deadline = Instant::now() + ANSWER_MAX;
    let mut helpers = Vec::new();
    for directory in directories {
        match settings.master_process.then(|| Helper::start(directory, &settings.process)) {
            Some(Ok(helper)) => helpers.push(helper),
            // A process with several threads, or no further process can be created.
            Some(Err(_)) | None => judge(one(directory, &settings.process), log)?,
        }
    }
    helpers.into_iter().try_for_each(|helper| helper.wait(deadline, log))
}

/// Stops waiting for a child.
pub(super) fn note_late(pid: u32) {
    LATE.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
}

/// Whether an ended child is one that the master stopped waiting for.
pub(super) fn was_late(pid: u32) -> bool {
    let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = late.iter().position(|known| *known == pid);
    at.map(|at| late.swap_remove(at)).is_some()
}

/// The reason why a directory can't be used.
enum DirectoryError {
    /// A problem of the configuration, or of permissions.
    Wrong(String),
    /// The disk.
    Disk(String),
}

fn judge(result: Result<(), DirectoryError>, log: &StartupLog) -> Result<(), String> {
    match result {
        Ok(()) => Ok(()),
        Err(DirectoryError::Wrong(text)) => Err(text),
        Err(DirectoryError::Disk(text)) => {
            log.log(Level::Error, format_args!("{text}; going on without it"));
            Ok(())
        }
    }
}

/// A process that creates a directory.
struct Helper<'a> {
    pid: u32,
    answer: OwnedFd,
    directory: &'a Path,
}

impl<'a> Helper<'a> {
    fn start(directory: &'a Path, settings: &ProcessSettings) -> io::Result<Self> {
        let (answer, out) = pipe_with(PipeFlags::CLOEXEC)?;
        let pid = process::fork_for(out, || match one(directory, settings) {
            Ok(()) => String::from("+"),
            Err(DirectoryError::Wrong(text)) => format!("!{text}"),
            Err(DirectoryError::Disk(text)) => format!("?{text}"),
        })?;
        Ok(Self { pid, answer, directory })
    }

    fn wait(self, deadline: Instant, log: &StartupLog) -> Result<(), String> {
        let Some(answer) = self.answer(deadline) else {
            let _ = process::kill(self.pid, Signal::SIGKILL);
            note_late(self.pid);
            let directory = self.directory.display();
            log.log(
                Level::Error,
                format_args!("the disk of \"{directory}\" does not answer; going on without it"),
            );
            return Ok(());
        };
        process::wait_for(self.pid);
        let text = || answer.get(1..).unwrap_or_default().to_owned();
        judge(
            match answer.as_bytes().first() {
                Some(b'+') => Ok(()),
                Some(b'?') => Err(DirectoryError::Disk(text())),
                _ => Err(DirectoryError::Wrong(text())),
            },
            log,
        )
    }

    /// The reply; `None` if there was none in time.
    fn answer(&self, deadline: Instant) -> Option<String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok()?;
            match poll(&mut [PollFd::new(&self.answer, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return None,
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let len = rustix::io::read(&self.answer, &mut answer).ok()?;
        answer.truncate(len);
        Some(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Creates a directory, and gives it to the user of the server process.
fn one(path: &Path, process: &ProcessSettings) -> Result<(), DirectoryError> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let trouble = |call: &str, error: &io::Error| {
        let text = failed(call, path, error);
        if is_of_disk(error) { DirectoryError::Disk(text) } else { DirectoryError::Wrong(text) }
    };
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(trouble("mkdir()", &error)),
    }
    let metadata = std::fs::metadata(path).map_err(|error| trouble("stat()", &error))?;
    if !metadata.is_dir() {
        return Err(DirectoryError::Wrong(format!("\"{}\" is not a directory", path.display())));
    }
    let Some(identity) = &process.identity else { return Ok(()) };
    if metadata.uid() != identity.uid {
        std::os::unix::fs::chown(path, Some(identity.uid), None)
            .map_err(|error| trouble("chown()", &error))?;
    }
    Ok(())
}

/// Errors that come and go with a disk or a file server.
fn is_of_disk(error: &io::Error) -> bool {
    const OF_DISK: [Errno; 10] = [
        Errno::IO,
        Errno::NXIO,
        Errno::NODEV,
        Errno::STALE,
        Errno::UCLEAN,
        Errno::BADMSG,
        Errno::TIMEDOUT,
        Errno::NOTCONN,
        Errno::HOSTDOWN,
        Errno::SHUTDOWN,
    ];
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| OF_DISK.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_left_alone() {
        let dir = nowait_testkit::TempDir::new("directories");
        let file = dir.write("file", "");
        let process = ProcessSettings::default();
        let Err(DirectoryError::Wrong(text)) = one(&file, &process) else {
            panic!("it was accepted")
        };
        assert_eq!(text, format!("\"{}\" is not a directory", file.display()));
        assert!(one(&dir.path().join("new"), &process).is_ok());
        assert!(one(&dir.path().join("new"), &process).is_ok());
    }
}
