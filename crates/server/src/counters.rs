//! The counters of the server process, as lines for its log: how long event loops ran without
//! returning to the kernel, the work of thread pools, and how often each file system was served
//! inline.
//!
//! Called by the control thread (`server_process.rs`) when logs are reopened (USR1) and at the end,
//! at level `notice`; `docs/threads-and-disks.md` explains the lines to operators. Only reads
//! counters, and never resets one.

use std::fmt::Write as _;
use std::time::Duration;

use nowait_runtime::mounts::{self, MountSnapshot};
use nowait_runtime::pool::{OpSnapshot, Pool};
use nowait_runtime::stats::BlockedSnapshot;

/// The line of a worker's loop.
pub fn of_loop(index: usize, blocked: &BlockedSnapshot) -> String {
    format!(
        "worker {index}: event_loop_blocked: {} turns, the longest took {:.1} ms{}",
        blocked.turns(),
        ms(blocked.longest),
        match blocked.longest_label {
            "" => String::new(),
            label => format!(", last at work: {label}"),
        }
    )
}

/// The lines of a pool: its state, then one per kind of operation.
pub fn of_pool(pool: &Pool) -> Vec<String> {
    let pool = pool.snapshot();
    let name = &pool.name;
    let mut lines = vec![format!(
        "thread pool \"{name}\": {} of {} threads started, {} busy, {} tasks waiting of {} at most",
        pool.threads_alive, pool.threads, pool.busy, pool.queued, pool.max_queue
    )];
    lines.extend(pool.ops.iter().map(|op| format!("thread pool \"{name}\": {}", of_op(op))));
    lines
}

fn of_op(op: &OpSnapshot) -> String {
    let mean = |total: Duration, count: u64| ms(total) / count.max(1) as f64;
    let mut line = format!(
        "{}: {} done, waited {:.2} ms ({:.1} at most), served in {:.2} ms ({:.1} at most)",
        op.op.name(),
        op.completed,
        mean(op.waited_total, op.started),
        ms(op.waited_max),
        mean(op.served_total, op.completed),
        ms(op.served_max),
    );
    for (count, what) in
        [(op.cancelled, "cancelled"), (op.overflowed, "overflowed"), (op.panicked, "panicked")]
    {
        if count > 0 {
            // Writing to a string cannot fail.
            let _ = write!(line, ", {count} {what}");
        }
    }
    line
}

/// The lines of the file systems that were used.
pub fn of_mounts() -> Vec<String> {
    mounts::snapshot().iter().map(of_mount).collect()
}

fn of_mount(mount: &MountSnapshot) -> String {
    let inline = if mount.nowait { "read inline" } else { "always in a pool" };
    let mut line = format!("file system {} ({}, {inline}):", mount.device(), mount.fs_type.name());
    for (name, count) in mount.counters().filter(|(_, count)| *count > 0) {
        let _ = write!(line, " {name}={count}");
    }
    line
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_runtime::pool::{Op, PoolConfig};

    #[test]
    fn lines_say_what_was_counted() {
        let op = OpSnapshot {
            op: Op::Open,
            started: 4,
            completed: 4,
            cancelled: 0,
            overflowed: 2,
            panicked: 0,
            waited_total: Duration::from_millis(2),
            waited_max: Duration::from_millis(1),
            served_total: Duration::from_millis(100),
            served_max: Duration::from_millis(90),
        };
        assert_eq!(
            of_op(&op),
            "open: 4 done, waited 0.50 ms (1.0 at most), served in 25.00 ms (90.0 at most), \
             2 overflowed"
        );
        let pool = Pool::new(PoolConfig { name: "p".into(), threads: 2, max_queue: 9 });
        let line =
            "thread pool \"p\": 0 of 2 threads started, 0 busy, 0 tasks waiting of 9 at most";
        assert_eq!(of_pool(&pool), [line]);
    }
}
