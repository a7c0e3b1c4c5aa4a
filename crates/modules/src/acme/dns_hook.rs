//! `dns_hook`: a program that publishes records in the DNS for `dns-01` challenges, and removes them.
//!
//! Called by an issuer's task, which runs one program at a time. It is called as lego's provider `exec` calls its
//! programs: `PROGRAM [ARG ...] present|cleanup NAME VALUE`. Starting it and looking after it is work for the pool;
//! between two looks, the task sleeps. State that must outlive the task (a reload ends it) is in [`HookState`]. A
//! program that its task has left is ended, with all that it has started, by the reaper.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nowait_runtime::pool::{Class, Op, Pool};
use nowait_runtime::reaper::Reaped;
use nowait_runtime::{now, sleep};
use nowait_sys::process;

/// Time for one run of the program.
pub const TIME_MAX: Duration = Duration::from_secs(120);

/// Where the program finds others, unless `env PATH` says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The pause between two looks at a running program.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of the program's output that an error shows.
const OUTPUT_BYTES_MAX: usize = 2048;

/// Bytes that are read with one look; a program that writes more waits for the next.
const LOOK_BYTES_MAX: usize = 256 * 1024;

/// How long to wait for the end of a program that was killed. One that waits for a hung disk may stay longer, as a
/// zombie.
const REAPING_MAX: Duration = Duration::from_secs(1);

/// Records that remain to be removed. The oldest are given up first.
const RECORDS_MAX: usize = 100;

/// The program with its first arguments.
#[derive(Clone, Debug)]
pub struct DnsHook {
    /// The full path.
    pub program: String,
    /// The arguments before those of a run.
    pub arguments: Vec<String>,
}

/// What the program is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookAction {
    /// Publish the record.
    Present,
    /// Remove it.
    Cleanup,
}

impl HookAction {
    fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Cleanup => "cleanup",
        }
    }
}

/// A TXT record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxtRecord {
    /// The full name, with a dot at its end.
    pub name: String,
    /// The text.
    pub value: String,
}

/// The state that outlives the task of an issuer.
#[derive(Default)]
pub struct HookState {
    runs: Mutex<Runs>,
    /// Records that were published, and not yet removed.
    records: Mutex<VecDeque<TxtRecord>>,
}

/// The runs of the program, one after another.
#[derive(Default)]
struct Runs {
    /// The number of the last run.
    number: u64,
    running: Option<RunningHook>,
}

/// A run as its task knows it. If the task ends before the program, the program is ended.
struct HookRun {
    state: Arc<HookState>,
    number: u64,
}

impl Drop for HookRun {
    fn drop(&mut self) {
        self.state.end(Some(self.number));
    }
}

/// A program that runs. Not to be dropped on an event loop: that ends it, and waits for its end.
struct RunningHook {
    child: Child,
    output: UnixStream,
    said: Vec<u8>,
}

/// The reason why a run has failed.
#[derive(Debug, PartialEq, Eq)]
enum HookError {
    Start(String),
    Status(String, String),
    TimedOut(String),
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |f: &mut fmt::Formatter<'_>, said: &str| match said {
            "" => Ok(()),
            said => write!(f, ": {said}"),
        };
        match self {
            Self::Start(why) => write!(f, "could not be started {why}"),
            Self::Status(status, output) => {
                write!(f, "failed with {status}")?;
                said(f, output)
            }
            Self::TimedOut(output) => {
                write!(f, "was ended after {} s", TIME_MAX.as_secs())?;
                said(f, output)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HookState {
    /// Notes that a record is about to be published.
    pub fn add(&self, record: TxtRecord) {
        let mut records = lock(&self.records);
        if records.len() >= RECORDS_MAX {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// A record that has to be removed.
    pub fn next_to_remove(&self) -> Option<TxtRecord> {
        lock(&self.records).front().cloned()
    }

    /// The attempt to remove a record has ended.
    pub fn removed(&self, record: &TxtRecord) {
        lock(&self.records).retain(|known| known != record);
    }
}

impl DnsHook {
    /// The reason why a program can't be run. For the reading of the configuration.
    pub fn problem(path: &[u8]) -> Option<String> {
        match std::fs::metadata(OsStr::from_bytes(path)) {
            Ok(found) if !found.is_file() => Some("is not a file".to_owned()),
            Ok(found) if found.mode() & 0o111 == 0 => Some("is not executable".to_owned()),
            Ok(_) => None,
            Err(error) => Some(format!("can't be used {}", nowait_http::files::errno(&error))),
        }
    }

    /// Runs the program, and waits until it has ended.
    ///
    /// # Errors
    /// A text for the log.
    pub async fn run(
        &self,
        state: &Arc<HookState>,
        pool: &Pool,
        action: HookAction,
        record: &TxtRecord,
    ) -> Result<(), String> {
        let deadline = now() + TIME_MAX;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args([action.name(), &record.name, &record.value]);
        if std::env::var_os("PATH").is_none() {
            command.env("PATH", PATH);
        }
        let own = state.clone();
        let result = match in_pool(pool, move || own.start(command)).await? {
            // Dropped when the task ends, too.
            Ok(run) => loop {
                sleep(LOOK).await;
                let (own, number, is_late) = (state.clone(), run.number, now() >= deadline);
                match in_pool(pool, move || own.look(number, is_late)).await? {
                    Ok(false) => {}
                    result => break result,
                }
            },
            Err(why) => Err(why),
        };
        let (program, action) = (&self.program, action.name());
        result.map(|_| ()).map_err(|why| format!("dns_hook \"{program}\" ({action}) {why}"))
    }
}

/// Runs work that may have to wait.
async fn in_pool<T: Send + 'static>(
    pool: &Pool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    pool.run(Class::Bulk, 0, Op::Blocking, work).await.map_err(|error| error.to_string())
}

impl HookState {
    /// Ends a program that a task has left.
    ///
    /// # Errors
    /// That of the pool.
    pub async fn end_left(self: &Arc<Self>, pool: &Pool) -> Result<(), String> {
        let own = self.clone();
        in_pool(pool, move || own.end(None)).await
    }

    fn start(self: Arc<Self>, mut command: Command) -> Result<Reaped<HookRun>, HookError> {
        // Of a task that a reload has ended.
        self.end(None);
        let started = RunningHook::start(&mut command)
            .map_err(|error| HookError::Start(nowait_http::files::errno(&error)))?;
        let mut runs = lock(&self.runs);
        runs.number += 1;
        runs.running = Some(started);
        let number = runs.number;
        drop(runs);
        Ok(Reaped::new(HookRun { state: self, number }))
    }

    /// Ends the program of this run, or of any.
    fn end(&self, number: Option<u64>) {
        let mut runs = lock(&self.runs);
        let is_other = number.is_some_and(|number| number != runs.number);
        let left = if is_other { None } else { runs.running.take() };
        drop(runs);
        drop(left);
    }

    /// Whether the program has ended. One that is late is ended now.
    fn look(&self, number: u64, is_late: bool) -> Result<bool, HookError> {
        let unknown = |said| Err(HookError::Status("an unknown status".to_owned(), said));
        let mut runs = lock(&self.runs);
        let is_own = runs.number == number;
        let Some(hook) = runs.running.as_mut().filter(|_| is_own) else {
            return unknown(String::new());
        };
        let status = hook.child.try_wait();
        hook.read();
        if matches!(status, Ok(None)) && !is_late {
            return Ok(false);
        }
        let said = hook.said();
        let ended = runs.running.take();
        drop(runs);
        drop(ended);
        match status {
            Ok(Some(status)) if status.success() => Ok(true),
            Ok(Some(status)) => Err(HookError::Status(status.to_string(), said)),
            Ok(None) => Err(HookError::TimedOut(said)),
            Err(_) => unknown(said),
        }
    }
}

impl RunningHook {
    fn start(command: &mut Command) -> std::io::Result<Self> {
        let (output, theirs) = UnixStream::pair()?;
        output.set_nonblocking(true)?;
        let errors = theirs.try_clone()?;
        // With what it starts, such as both ends of a pipe.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(OwnedFd::from(theirs)).stderr(OwnedFd::from(errors));
        Ok(Self { child: command.spawn()?, output, said: Vec::new() })
    }

    /// Reads what it has written; keeps the last part.
    fn read(&mut self) {
        let mut buffer = [0; 8192];
        let mut total = 0;
        while total < LOOK_BYTES_MAX {
            match self.output.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    total += length;
                    self.said.extend_from_slice(&buffer[..length]);
                    let surplus = self.said.len().saturating_sub(OUTPUT_BYTES_MAX);
                    self.said.drain(..surplus);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }

    /// What it has written, as one line.
    fn said(&self) -> String {
        let text = String::from_utf8_lossy(&self.said);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("; ")
    }
}

impl Drop for RunningHook {
    fn drop(&mut self) {
        // Until its status has been taken, no other group can have its number.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // It may have ended meanwhile.
        let _ = process::kill_group(self.child.id());
        if process::has_ended_within(self.child.id(), REAPING_MAX) {
            let _ = self.child.try_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(state: &Arc<HookState>, script: &str) -> Result<Reaped<HookRun>, HookError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        state.clone().start(command)
    }

    /// Runs a shell script to its end.
    fn run(state: &Arc<HookState>, script: &str, is_late: bool) -> Result<bool, HookError> {
        let run = start(state, script)?;
        loop {
            match state.look(run.number, is_late) {
                Ok(false) => std::thread::yield_now(),
                result => return result,
            }
        }
    }

    /// Starts a script that waits for a program of its own; returns the ids of both.
    fn start_two(state: &Arc<HookState>) -> (Reaped<HookRun>, [u32; 2]) {
        let run = start(state, "sleep 1000 & echo $!; wait").unwrap();
        loop {
            assert_eq!(state.look(run.number, false), Ok(false));
            let runs = lock(&state.runs);
            let hook = runs.running.as_ref().unwrap();
            if hook.said.ends_with(b"\n") {
                let pids = [hook.child.id(), hook.said().parse().unwrap()];
                drop(runs);
                return (run, pids);
            }
        }
    }

    /// Waits until both are gone. That of the script is not this process's to reap.
    fn wait_for_end([child, other]: [u32; 2]) {
        let stat = || std::fs::read_to_string(format!("/proc/{other}/stat"));
        let is_alive = |stat: String| !stat.contains(") Z ") && !stat.contains(") X ");
        while process::is_alive(child) || stat().is_ok_and(is_alive) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_end_of_a_program_decides() {
        let state = Arc::default();
        assert_eq!(run(&state, "exit 0", false), Ok(true));
        let failed = run(&state, "echo one; echo; echo two >&2; exit 3", false).unwrap_err();
        assert_eq!(failed.to_string(), "failed with exit status: 3: one; two");
        let late = run(&state, "exec sleep 1000", true).unwrap_err();
        assert_eq!(late.to_string(), "was ended after 120 s");
        assert!(lock(&state.runs).running.is_none());
        let missing = state.start(Command::new("/nowhere/hook")).map(|_| ()).unwrap_err();
        let missing = missing.to_string();
        assert!(missing == "could not be started (2: No such file or directory)", "{missing}");
    }

    #[test]
    fn what_the_program_has_started_ends_with_it() {
        let state = Arc::default();
        let (run, pids) = start_two(&state);
        let late = state.look(run.number, true);
        assert_eq!(late, Err(HookError::TimedOut(pids[1].to_string())));
        wait_for_end(pids);
    }

    #[test]
    fn a_program_ends_with_its_task() {
        let state = Arc::default();
        let (run, pids) = start_two(&state);
        drop((run, state));
        wait_for_end(pids);
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let state = Arc::default();
        let script =
            "i=0; while [ $i -lt 20000 ]; do echo line; i=$((i+1)); done; echo end; exit 1";
        let said = run(&state, script, false).unwrap_err().to_string();
        assert!(said.ends_with("; line; end") && said.len() < 2 * OUTPUT_BYTES_MAX, "{said}");
    }

    #[test]
    fn a_run_is_not_taken_for_another() {
        let state = Arc::default();
        let (first, pids) = start_two(&state);
        let second = start(&state, "exec sleep 1000").unwrap();
        wait_for_end(pids);
        let unknown = state.look(first.number, false).unwrap_err();
        assert_eq!(unknown.to_string(), "failed with an unknown status");
        // That the first one's task has ended does not end the second one.
        state.end(Some(first.number));
        assert_eq!(state.look(second.number, false), Ok(false));
        state.end(None);
        assert!(state.look(second.number, false).is_err());
    }

    #[test]
    fn records_are_removed_once() {
        let state = HookState::default();
        let record = |n: usize| TxtRecord { name: format!("{n}."), value: String::new() };
        (0..=RECORDS_MAX).for_each(|n| state.add(record(n)));
        assert_eq!(state.next_to_remove(), Some(record(1)));
        state.removed(&record(1));
        assert_eq!(state.next_to_remove(), Some(record(2)));
    }
}
