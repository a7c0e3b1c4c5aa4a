//! `dns_hook`: a program that publishes records in the DNS for `dns-01` challenges, and removes them.
//!
//! Called by an issuer's task, which runs one program at a time. It is called as lego's provider `exec` calls its
//! programs: `PROGRAM [ARG ...] present|cleanup NAME VALUE`. Starting it and looking after it is work for the pool;
//! between two looks, the task sleeps. State that must outlive the task (a reload ends it) is in [`HookState`].

use std::collections::VecDeque;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nowait_runtime::pool::{Class, Op, Pool};
use nowait_runtime::{now, sleep};

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
    running: Mutex<Option<RunningHook>>,
    /// Records that were published, and not yet removed.
    records: Mutex<VecDeque<TxtRecord>>,
}

/// A program that runs.
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
        let mut result = in_pool(pool, move || own.start(command)).await?.map(|()| false);
        while result == Ok(false) {
            sleep(LOOK).await;
            let (own, is_late) = (state.clone(), now() >= deadline);
            result = in_pool(pool, move || own.look(is_late)).await?;
        }
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
    fn start(&self, mut command: Command) -> Result<(), HookError> {
        let mut running = lock(&self.running);
        if let Some(mut left) = running.take() {
            // Of a task that a reload has ended.
            left.end();
        }
        *running = Some(
            RunningHook::start(&mut command)
                .map_err(|error| HookError::Start(nowait_http::files::errno(&error)))?,
        );
        Ok(())
    }

    /// Whether the program has ended. One that is late is ended now.
    fn look(&self, is_late: bool) -> Result<bool, HookError> {
        let mut running = lock(&self.running);
        let Some(hook) = running.as_mut() else { return Ok(true) };
        let status = hook.child.try_wait();
        hook.read();
        match status {
            Ok(None) if !is_late => return Ok(false),
            Ok(None) => {
                hook.end();
                let said = hook.said();
                *running = None;
                return Err(HookError::TimedOut(said));
            }
            _ => {}
        }
        let said = hook.said();
        *running = None;
        match status {
            Ok(Some(status)) if status.success() => Ok(true),
            Ok(Some(status)) => Err(HookError::Status(status.to_string(), said)),
            Ok(None) | Err(_) => Err(HookError::Status("an unknown status".to_owned(), said)),
        }
    }
}

impl RunningHook {
    fn start(command: &mut Command) -> std::io::Result<Self> {
        let (output, theirs) = UnixStream::pair()?;
        output.set_nonblocking(true)?;
        let errors = theirs.try_clone()?;
        command.stdin(Stdio::null());
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

    /// Ends it.
    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.read();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script to its end.
    fn run(state: &HookState, script: &str, is_late: bool) -> Result<bool, HookError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        state.start(command)?;
        loop {
            match state.look(is_late) {
                Ok(false) => std::thread::yield_now(),
                result => return result,
            }
        }
    }

    #[test]
    fn the_end_of_a_program_decides() {
        let state = HookState::default();
        assert_eq!(run(&state, "exit 0", false), Ok(true));
        let failed = run(&state, "echo one; echo; echo two >&2; exit 3", false).unwrap_err();
        assert_eq!(failed.to_string(), "failed with exit status: 3: one; two");
        let late = run(&state, "exec sleep 1000", true).unwrap_err();
        assert_eq!(late.to_string(), "was ended after 120 s");
        assert!(lock(&state.running).is_none());
        let missing = state.start(Command::new("/nowhere/hook")).unwrap_err().to_string();
        assert!(missing == "could not be started (2: No such file or directory)", "{missing}");
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let state = HookState::default();
        let script =
            "i=0; while [ $i -lt 20000 ]; do echo line; i=$((i+1)); done; echo end; exit 1";
        let said = run(&state, script, false).unwrap_err().to_string();
        assert!(said.ends_with("; line; end") && said.len() < 2 * OUTPUT_BYTES_MAX, "{said}");
    }

    #[test]
    fn a_program_that_a_task_has_left_is_ended() {
        let state = HookState::default();
        let mut command = Command::new("/bin/sh");
        state
            .start({
                command.args(["-c", "exec sleep 1000"]);
                command
            })
            .unwrap();
        assert_eq!(run(&state, "exit 0", false), Ok(true));
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
