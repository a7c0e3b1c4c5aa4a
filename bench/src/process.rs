//! What a tree of processes costs: processor time and memory, read from `/proc`.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

/// Length of a clock tick of `/proc/PID/stat`, fixed for user space (`USER_HZ` = 100).
const TICK: Duration = Duration::from_millis(10);

/// A process and all its descendants.
pub fn tree(root: u32) -> Vec<u32> {
    let mut pairs = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if let Some(parent) = stat_field(pid, 1).and_then(|field| field.parse::<u32>().ok()) {
            pairs.push((pid, parent));
        }
    }
    let mut found = vec![root];
    let mut seen = HashSet::from([root]);
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = pairs.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid);
        found.extend(children.filter(|pid| seen.insert(*pid)));
        next += 1;
    }
    found
}

/// Processor time, user and system, of all threads of these processes. From the scheduler's own
/// account in nanoseconds; from ticks of 10 ms where the kernel does not show that.
pub fn cpu_time(pids: &[u32]) -> Duration {
    pids.iter().map(|pid| precise(*pid).unwrap_or_else(|| coarse(*pid))).sum()
}

/// The same in ticks of 10 ms, with that of their children that have ended.
pub fn cpu_time_with_ended(pids: &[u32]) -> Duration {
    let ticks = |pid, index| stat_field(pid, index).and_then(|field| field.parse::<u32>().ok());
    let all = |pid: &u32| (11..=14).map(|index| ticks(*pid, index).unwrap_or(0)).sum::<u32>();
    TICK * pids.iter().map(all).sum::<u32>()
}

/// Processor time that the whole machine has spent, in any process.
pub fn machine_time() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u32> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    // user, nice, system, then idle and iowait, then irq, softirq, steal.
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| ticks.get(*index)).sum::<u32>();
    TICK * busy
}

/// Proportional set size of these processes in bytes: pages shared by n processes count 1/n each.
pub fn memory_bytes(pids: &[u32]) -> u64 {
    pids.iter().map(|pid| rollup(*pid, "Pss:")).sum()
}

/// What these processes have allocated, in bytes: like [`memory_bytes`] without the pages of files, programs
/// included, of which other processes of this machine may have a share.
pub fn allocated_bytes(pids: &[u32]) -> u64 {
    pids.iter().map(|pid| rollup(*pid, "Pss_Anon:") + rollup(*pid, "Pss_Shmem:")).sum()
}

/// A line of `smaps_rollup` in bytes.
fn rollup(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kb.unwrap_or(0) * 1024
}

fn precise(pid: u32) -> Option<Duration> {
    let mut total = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // A thread that ends between the two reads has spent next to nothing since.
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        total += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    (total > 0).then(|| Duration::from_nanos(total))
}

fn coarse(pid: u32) -> Duration {
    let ticks = |index| stat_field(pid, index).and_then(|field| field.parse::<u32>().ok());
    TICK * (ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0))
}

/// A field of `/proc/PID/stat`, counted from 0 after the command's name (which may hold spaces).
fn stat_field(pid: u32, index: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split_whitespace().nth(index).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let pid = std::process::id();
        let parent = stat_field(pid, 1).unwrap().parse::<u32>().unwrap();
        assert!(tree(parent).contains(&pid));
        assert!(memory_bytes(&[pid]) > 100_000);
        let allocated = allocated_bytes(&[pid]);
        assert!(allocated > 100_000 && allocated < memory_bytes(&[pid]));
    }

    #[test]
    fn work_costs_processor_time() {
        let pids = [std::process::id()];
        let before = cpu_time(&pids);
        let mut x = 1_u64;
        while cpu_time(&pids) <= before {
            for _ in 0..1_000_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        }
    }
}
