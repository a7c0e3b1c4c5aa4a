//! Processes of a server under test: signals, children, open descriptors.

use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait::{PATIENCE, until};

/// Sends a signal to any process, like kill(1), which is not installed on every system.
///
/// # Panics
/// If the process is gone.
#[track_caller]
pub fn signal(pid: u32, signal: Signal) {
    let result = as_pid(pid).map(|pid| kill_process(pid, signal));
    assert!(matches!(result, Some(Ok(()))), "signal {signal:?} to process {pid}: {result:?}");
}

/// Sends a signal if the process still exists.
pub(super) fn try_signal(pid: u32, signal: Signal) {
    if let Some(pid) = as_pid(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Kills the process group of a server.
pub(super) fn kill_group(leader: u32) {
    if let Some(pid) = as_pid(leader) {
        // Normally there is nothing left of it.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

fn as_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Name of the process that writes the logs.
const LOG_PROCESS: &str = "nowait: log";

/// Ids of the live children of `parent`, except for the one that writes its logs.
pub fn children(parent: u32) -> Vec<u32> {
    all_children(parent).into_iter().filter(|pid| name_of(*pid) != LOG_PROCESS).collect()
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Ids of all live children of `parent`.
pub fn all_children(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid: &u32| parent_of(pid) == Some(parent))
        .collect()
}

/// An open descriptor of a process.
#[derive(Debug, Clone)]
pub struct Descriptor {
    /// The process that it belongs to.
    pub pid: u32,
    /// The number in that process.
    pub number: i32,
    /// The target, as named by `/proc/PID/fd`.
    pub target: PathBuf,
}

/// Open descriptors of a process.
pub fn descriptors(pid: u32) -> io::Result<Vec<Descriptor>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // Descriptors closed meanwhile have no target.
        if let (Some(number), Ok(target)) = (number, entry.path().read_link()) {
            found.push(Descriptor { pid, number, target });
        }
    }
    Ok(found)
}

/// Resource usage of a process, or of several together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Anonymous memory in kilobytes; pages that processes share are counted proportionally. The share of a
    /// file's pages, such as the program's, depends on who else has them at the moment.
    pub memory_kb: u64,
}

impl std::ops::Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            descriptors: self.descriptors + other.descriptors,
            threads: self.threads + other.threads,
            memory_kb: self.memory_kb + other.memory_kb,
        }
    }
}

/// Current resource usage of a process.
///
/// # Errors
/// The process has exited, or may not be inspected.
pub fn usage(pid: u32) -> io::Result<Usage> {
    let count =
        |what: &str| Ok::<_, io::Error>(std::fs::read_dir(format!("/proc/{pid}/{what}"))?.count());
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    let line = line.unwrap_or_default().trim().trim_end_matches(" kB");
    let memory_kb = line.parse().map_err(io::Error::other)?;
    Ok(Usage { descriptors: count("fd")?, threads: count("task")?, memory_kb })
}

/// What the threads of a process do, one per line: their states (proc(5)) and where they wait in the kernel.
pub(super) fn threads(pid: u32) -> String {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return String::new();
    };
    let line = |task: PathBuf| {
        let read = |what| std::fs::read_to_string(task.join(what)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or_default();
        format!("{pid} {:16}{state} in {}\n", read("comm").trim_end(), read("wchan"))
    };
    entries.flatten().map(|entry| line(entry.path())).collect()
}

/// The lines of `/proc/net/tcp` of a port: among others states, and bytes (or connections) in queues.
pub(super) fn sockets(port: u16) -> String {
    let all = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{port:04X} ");
    // Without those whose time is only waited for.
    let is_of = |line: &&str| line.contains(&port) && !line.contains(" 06 ");
    all.lines().filter(is_of).map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Waits until all connections to `port` have received the end that their peer has sent. A busy kernel may deliver it
/// after the call that sends it.
///
/// # Panics
/// If one stays established.
#[track_caller]
pub fn wait_ended(port: u16) {
    let remote = format!(":{port:04X}");
    let is_established = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        fields.next().is_some_and(|address| address.ends_with(&remote))
            && fields.next() == Some("01")
    };
    until("the connections to end", PATIENCE, || {
        let all = std::fs::read_to_string("/proc/net/tcp").ok()?;
        (!all.lines().any(is_established)).then_some(())
    });
}

/// Field 4 of `/proc/PID/stat` (proc(5)), unless it is a zombie.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name in parentheses may contain anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}

/// Stops a process, and waits until all its threads stand still: what arrives meanwhile is found at once
/// when it continues (`Signal::CONT`).
///
/// # Panics
/// If it is gone, or goes on.
#[track_caller]
pub fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    let stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name in parentheses may contain anything.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    until("a process to stop", PATIENCE, || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        tasks.flatten().all(stopped).then_some(())
    });
}
