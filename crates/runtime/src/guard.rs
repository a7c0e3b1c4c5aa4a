//! The guard: catches calls on a loop thread that may wait for a disk.
//!
//! `event_loop_guard on;` and every test. Called by: [`crate::worker`] when a loop starts. A
//! seccomp filter on the loop's thread stops such a call; it is counted and reported, then
//! executed, so that a mistake in production costs a wait and not a request. [`Mode::Strict`]
//! aborts the process instead. Never: affects pool threads (they are not children of loop threads,
//! see `pool::threads`).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nowait_sys::seccomp::{self, Trap};

/// The reaction to a call of a loop thread that may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No calls are watched.
    #[default]
    Off,
    /// The call is counted and reported, then executed.
    On,
    /// The process reports the call and aborts: for tests.
    Strict,
}

/// A call that was caught.
#[derive(Clone, Copy, Debug)]
pub struct Violation {
    /// The name in section 2 of the manual pages.
    pub syscall: &'static str,
    /// The address in the program.
    pub address: usize,
    /// The work in progress: see [`crate::stats::set_label`]. Empty: unknown.
    pub label: &'static str,
}

/// Called for each violation on the thread that commits it, between two instructions of the code
/// that made the call: it must not take locks that a caller of system calls may hold.
pub type ViolationReport = fn(&Violation);

static VIOLATIONS: AtomicU64 = AtomicU64::new(0);
static REPORT: OnceLock<ViolationReport> = OnceLock::new();

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Off) };
    /// Depth of [`exempt`] on this thread.
    static EXEMPT: Cell<u32> = const { Cell::new(0) };
    static VIOLATIONS_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Sets the receiver of violations, once per process; without one they go to standard error.
pub fn set_report(report: ViolationReport) {
    let _ = REPORT.set(report);
}

/// Installs the guard on the calling thread, permanently. Threads that it starts itself inherit the
/// filter but not the guard: their calls pass, a little slower.
///
/// # Errors
/// The kernel has no seccomp filters, or a container forbids installing one.
pub fn install(mode: Mode) -> io::Result<()> {
    if mode == Mode::Off {
        return Ok(());
    }
    crate::pool::threads::prepare();
    // The C library reads the time zone's file on first use, once per process.
    let _ = nowait_sys::localtime::LocalTime::at(0);
    seccomp::install(stopped)?;
    MODE.set(mode);
    Ok(())
}

/// Number of calls caught in this process.
pub fn violations() -> u64 {
    VIOLATIONS.load(Relaxed)
}

/// Number of calls caught on this thread.
pub fn violations_here() -> u64 {
    VIOLATIONS_HERE.get()
}

/// Runs `work` with the guard suspended: for `aio blocking` and `aio_open off`, where the operator
/// chose calls on the loop, and for the end of a loop.
pub fn exempt<T>(work: impl FnOnce() -> T) -> T {
    struct ExemptGuard;
    impl Drop for ExemptGuard {
        fn drop(&mut self) {
            EXEMPT.set(EXEMPT.get() - 1);
        }
    }
    EXEMPT.set(EXEMPT.get() + 1);
    let _leave = ExemptGuard;
    work()
}

fn stopped(trap: &Trap) {
    // A panic's report reads debug information from files: at that point waiting no longer matters.
    let mode = MODE.get();
    if mode == Mode::Off || EXEMPT.get() > 0 || std::thread::panicking() {
        return;
    }
    VIOLATIONS.fetch_add(1, Relaxed);
    VIOLATIONS_HERE.set(VIOLATIONS_HERE.get() + 1);
    let violation =
        Violation { syscall: trap.name, address: trap.address, label: crate::stats::label() };
    exempt(|| match mode {
        Mode::Strict => {
            write_stderr(&violation, &Backtrace::force_capture());
            std::process::abort();
        }
        _ => REPORT.get().copied().unwrap_or(to_stderr)(&violation),
    });
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "event loop guard: {}() on a loop thread", self.syscall)?;
        if !self.label.is_empty() {
            write!(f, " in {}", self.label)?;
        }
        write!(f, " at {:#x}", self.address)
    }
}

/// With a backtrace if `RUST_BACKTRACE` asks for one.
fn to_stderr(violation: &Violation) {
    write_stderr(violation, &Backtrace::capture());
}

/// Writes without the lock of `std::io::stderr`, which the thread may hold.
fn write_stderr(violation: &Violation, trace: &Backtrace) {
    let mut text = format!("nowait: [alert] {violation}\n");
    if trace.status() == BacktraceStatus::Captured {
        text.push_str(&format!("{trace}\n"));
    }
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in the process that is expected to die.
    const CHILD: &str = "NOWAIT_GUARD_CHILD";

    #[test]
    fn on_reports_and_goes_on() {
        std::thread::spawn(|| {
            set_report(|violation| assert_eq!(violation.syscall, "statx"));
            install(Mode::On).unwrap();
            let before = violations();
            assert!(std::fs::metadata("/").unwrap().is_dir());
            assert_eq!(violations_here(), 1);
            assert!(violations() > before);
            exempt(|| std::fs::metadata("/")).unwrap();
            assert_eq!(violations_here(), 1, "exempt");
            std::thread::spawn(|| std::fs::metadata("/").unwrap()).join().unwrap();
            assert_eq!(violations_here(), 1, "another thread");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn pool_threads_are_not_guarded() {
        use crate::pool::tests::block_on;
        use crate::pool::{Pool, PoolConfig, blocking};
        // Containers install filters too.
        fn filters() -> u32 {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
            count.unwrap().trim().parse().unwrap()
        }
        let before = filters();
        let pool = Pool::new(PoolConfig { name: "guarded".into(), threads: 1, max_queue: 1 });
        std::thread::spawn(move || {
            install(Mode::Strict).unwrap();
            assert_eq!(exempt(filters), before + 1);
            let of_pool = block_on(blocking(&pool, filters));
            assert_eq!(of_pool, Ok(before), "started by a guarded thread, yet free");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn freeing_memory_is_no_violation() {
        // In a separate process: glibc queries the kernel once, when it first shrinks a heap.
        if std::env::var_os(CHILD).is_some() {
            let work = || {
                install(Mode::Strict).unwrap();
                drop((0..64).map(|_| vec![1u8; 96 * 1024]).collect::<Vec<_>>());
            };
            return std::thread::spawn(work).join().unwrap();
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guard::tests::freeing_memory_is_no_violation", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn strict_aborts() {
        if std::env::var_os(CHILD).is_some() {
            install(Mode::Strict).unwrap();
            crate::stats::set_label("the culprit");
            let _ = std::fs::metadata("/");
            unreachable!("strict mode ends the process");
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guard::tests::strict_aborts", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(
            said.contains("event loop guard: statx() on a loop thread in the culprit"),
            "{said}"
        );
        assert!(said.contains("strict_aborts"), "the backtrace names the caller: {said}");
    }
}
