//! `ssl_certificate_watch`: files that directives name, such as certificates and keys, are read
//! again when they change. The configuration itself stays as it was read.
//!
//! The directories of the files are watched by inotify. Events in them lead to a single check of the
//! files, a moment later, when a certificate and its key have both been replaced. What has changed is
//! handed over as in a reload, with the texts of the configuration in use.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nowait_conf::{Bundle, Contents, Disk, Files};
use nowait_sys::process;
use rustix::event::PollFlags;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Master, MasterExit, Running, directories};
use crate::config;
use crate::log::{Level, OsErrorText, StartupLog};
use crate::log_process::wait_for;
use crate::read_once::KnownFiles;
use crate::reader::FileReader;

/// Time between the first event and the check of the files.
const PAUSE: Duration = Duration::from_secs(1);

/// Time until the next check if a disk did not respond.
const LATE_PAUSE: Duration = Duration::from_secs(30);

/// How long the master waits until directories are watched.
const WATCHED_MAX: Duration = Duration::from_secs(3);

/// Maximum size of a report; a pipe takes it at once.
const FAILURES_BYTES_MAX: usize = 16 * 1024;

/// Events of the usual ways to replace a file.
const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// Watches the files of a configuration.
#[derive(Default)]
pub(super) struct Renewal {
    /// `None`: no directory is watched.
    inotify: Option<OwnedFd>,
    /// The time of the next check.
    look_at: Option<Instant>,
}

impl Renewal {
    /// Watches the files that a running configuration names, if it enables that.
    pub(super) fn of(running: &Running, log: &StartupLog) -> Self {
        if !running.loaded.settings.certificate_watch {
            return Self::default();
        }
        let named = running.loaded.bundle.named_by_operators();
        let files: Vec<&Path> = named.map(|(path, _)| path).collect();
        match watch(&files, log) {
            // The files may have changed since they were read.
            Ok(inotify) => Self { inotify: Some(inotify), look_at: Some(Instant::now() + PAUSE) },
            Err(error) => {
                log.log(
                    Level::Error,
                    format_args!("inotify_init1() failed {}", OsErrorText(&error)),
                );
                Self::default()
            }
        }
    }

    /// Readable when there are events.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// The time of the next check.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// Drains the events, and schedules a check.
    pub(super) fn note(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        let mut room = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut room);
        while reader.next().is_ok() {}
        self.look_at.get_or_insert_with(|| Instant::now() + PAUSE);
    }
}

/// Watches the directories of files. Even that may wait for a disk, so it is done by a separate process,
/// which continues after the master has stopped waiting.
fn watch(files: &[&Path], log: &StartupLog) -> io::Result<OwnedFd> {
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let (answer, out) = pipe_with(PipeFlags::CLOEXEC)?;
    let helper = process::fork_alone(vec![inotify.try_clone()?, out], |kept| {
        let [inotify, out] = &kept[..] else { return };
        let _ = rustix::io::write(out, watch_all(inotify, files).as_bytes());
    });
    let Ok(pid) = helper else {
        // A process with several threads, or no process can be created.
        report(&watch_all(&inotify, files), log);
        return Ok(inotify);
    };
    let mut failures = vec![0; FAILURES_BYTES_MAX];
    if wait_for(&answer, PollFlags::IN, Instant::now() + WATCHED_MAX) {
        let count = rustix::io::read(&answer, &mut failures[..]).unwrap_or(0);
        failures.truncate(count);
        report(&String::from_utf8_lossy(&failures), log);
        process::wait_for(pid);
    } else {
        let text =
            "the disk of a certificate does not answer: its directory is watched when it does";
        log.log(Level::Error, text);
        directories::note_late(pid);
    }
    Ok(inotify)
}

/// Returns the failures as lines.
fn watch_all(inotify: &OwnedFd, files: &[&Path]) -> String {
    let mut directories: BTreeSet<PathBuf> = BTreeSet::new();
    for path in files {
        // Both a link and its target may be replaced.
        let target = std::fs::canonicalize(path).ok();
        let parents = [Some(*path), target.as_deref()].map(|path| path.and_then(Path::parent));
        directories.extend(parents.into_iter().flatten().map(Path::to_owned));
    }
    let mut failures = String::new();
    for directory in directories {
        if let Err(error) = inotify::add_watch(inotify, &directory, EVENTS)
            && failures.len() < FAILURES_BYTES_MAX / 2
        {
            let directory = directory.display();
            failures.push_str(&format!("inotify_add_watch(\"{directory}\") failed: {error}\n"));
        }
    }
    failures
}

fn report(failures: &str, log: &StartupLog) {
    for failure in failures.lines() {
        log.log(Level::Error, failure);
    }
}

/// The texts of a configuration in use, with files that directives name as they are now.
struct Renewed<'a>(&'a Bundle);

impl Files for Renewed<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        KnownFiles { files: &Disk, running: self.0 }.read_named(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        self.0.glob(pattern)
    }
}

impl Master {
    /// Checks the files when due, and hands them over if they have changed.
    pub(super) fn renew(&mut self, now: Instant) -> ControlFlow<MasterExit> {
        if self.renewal.look_at.is_none_or(|at| at > now) {
            return ControlFlow::Continue(());
        }
        if self.stopping.is_some() || self.new_binary.is_some() {
            self.renewal.look_at = None;
            return ControlFlow::Continue(());
        }
        if self.pending.is_some() {
            self.renewal.look_at = Some(now + PAUSE);
            return ControlFlow::Continue(());
        }
        self.renewal.look_at = None;
        let bundle = &self.running.loaded.bundle;
        let files = Renewed(bundle);
        let interpreted = self.notifier.patiently(|| {
            let reader = FileReader::of(&files);
            // A file that is missing is about to be replaced.
            let is_new = |(path, known): (&Path, &Contents)| {
                reader.read_named(path).is_ok_and(|contents| contents != *known)
            };
            // A change that the API has written to a state file is in use already.
            let is_new = bundle.named_by_operators().any(is_new);
            let interpreted = is_new.then(|| config::interpret(&reader, &self.place));
            match reader.late() {
                Some(pid) => {
                    directories::note_late(pid);
                    Err(())
                }
                None => Ok(interpreted),
            }
        });
        let interpreted = match interpreted {
            Ok(None) => return ControlFlow::Continue(()),
            Ok(Some(interpreted)) => interpreted,
            Err(()) => {
                let text =
                    "the disk of a certificate does not answer: the previous ones stay in use";
                self.log.log(Level::Error, text);
                self.renewal.look_at = Some(Instant::now() + LATE_PAUSE);
                return ControlFlow::Continue(());
            }
        };
        match interpreted {
            Ok(loaded) => {
                let text = "files of certificates have changed, reconfiguring";
                self.log.log(Level::Notice, text);
                self.notifier.reloading();
                self.hand_over(loaded)
            }
            Err(refused) => {
                for line in refused.lines.iter().filter(|line| line.level != Level::Warn) {
                    self.log.log(Level::Error, &line.text);
                }
                let text = "files of certificates have changed, and cannot be used: the previous \
                            ones stay in use";
                self.log.log(Level::Error, text);
                ControlFlow::Continue(())
            }
        }
    }
}
