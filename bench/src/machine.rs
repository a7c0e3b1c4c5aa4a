//! The machine that measures: network namespace, processors, and a description for the report.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use crate::server::{ADDRESS, ORIGIN};

/// Set in the process that runs inside the namespace.
const INSIDE: &str = "NOWAIT_BENCH_INSIDE";

/// Congestion control of both servers and the client: BBR, a default of some systems, paces and
/// so triples the cost of bulk transfers over loopback.
const CONGESTION_CONTROL: &str = "reno";

/// Priority of the servers and the generator, so that what else runs disturbs them little.
const NICE: i32 = -15;

/// What a result depends on and a reader wants to know.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub processor: String,
    pub processors: usize,
    pub congestion_control: String,
    /// Whether the measurement ran in a network namespace of its own.
    pub namespace: bool,
    pub nginx: String,
    pub nowait: Option<String>,
    /// Names and versions.
    #[serde(default)]
    pub peers: Vec<String>,
    /// What may disturb or slow down the whole run, as it was before.
    #[serde(default)]
    pub state: String,
}

/// Starts this program again inside a network namespace, unless it is there already. Returns only
/// inside, or with the reason why there is none.
pub fn enter_namespace() -> Result<(), String> {
    if std::env::var_os(INSIDE).is_some() {
        return prepare_namespace();
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let error = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(format!("unshare: {error}"))
}

/// While it lives, this process and what it starts go before others: by nice values, and for the
/// whole session where the scheduler groups by session. Without the right to, nothing is lost but
/// quiet.
pub struct Priority {
    /// A shell that gives the session its value back when this process ends, however it ends: otherwise all that
    /// the session runs afterwards would go before the kernel's own threads.
    restorer: Option<Child>,
}

const SESSION: &str = "/proc/self/autogroup";

/// Ends with its input, and survives what a terminal sends to all of its processes.
const RESTORE: &str = "trap '' HUP INT TERM; read _; echo \"$0\" > /proc/self/autogroup";

impl Priority {
    pub fn raise() -> Priority {
        let _ = rustix::process::setpriority_process(None, NICE);
        // "/autogroup-13 nice 0"
        let text = fs::read_to_string(SESSION).unwrap_or_default();
        let session = text.split_whitespace().last().and_then(|nice| nice.parse::<i32>().ok());
        let restorer = session.and_then(|session| {
            let mut command = Command::new("sh");
            command.args(["-c", RESTORE, &session.to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            // A signal for our process group must not end it, too.
            command.process_group(0).spawn().ok()
        });
        if restorer.is_some() {
            let _ = fs::write(SESSION, NICE.to_string());
        }
        Priority { restorer }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(restorer) = &mut self.restorer {
            drop(restorer.stdin.take());
            let _ = restorer.wait();
        }
    }
}

/// Loopback up, reno, many ports, deep accept queues.
fn prepare_namespace() -> Result<(), String> {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    if !up.as_ref().is_ok_and(std::process::ExitStatus::success) {
        return Err(format!("ip link set lo up: {up:?}"));
    }
    let settings = [
        ("ipv4/tcp_congestion_control", CONGESTION_CONTROL),
        ("ipv4/ip_local_port_range", "2048 65535"),
        // A client that got a server's port would keep it busy for a minute, or connect to itself.
        ("ipv4/ip_local_reserved_ports", &format!("{},{}", ADDRESS.port(), ORIGIN.port())),
        ("core/somaxconn", "8192"),
        ("ipv4/tcp_max_syn_backlog", "8192"),
    ];
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

impl Machine {
    pub fn describe(nginx: String, nowait: Option<String>, peers: Vec<String>) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map(|(_, name)| name.to_owned());
        Machine {
            kernel: read("/proc/sys/kernel/osrelease"),
            processor: processor.unwrap_or_default(),
            processors: processors_at_start().len(),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            namespace: std::env::var_os(INSIDE).is_some(),
            nginx,
            nowait,
            peers,
            state: state(),
        }
    }
}

/// Load, share of time taken by other guests since the start, clock policy, large pages.
fn state() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let load = read("/proc/loadavg");
    let mut state = vec![format!("load {}", load.split(' ').next().unwrap_or_default())];
    let stat = read("/proc/stat");
    // Of all processors: user, nice, system, idle, iowait, irq, softirq, steal.
    let line = stat.lines().next().unwrap_or_default();
    let times: Vec<f64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    let total: f64 = times.iter().take(8).sum();
    if let Some(stolen) = times.get(7).filter(|_| total > 0.0) {
        state.push(format!("{:.1} % of the time stolen since the start", 100.0 * stolen / total));
    }
    if read("/proc/cpuinfo").lines().any(|line| line.contains(" hypervisor")) {
        state.push("a virtual machine".to_owned());
    }
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if !governor.is_empty() {
        state.push(format!("governor {governor}"));
    }
    let pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
    if let Some((_, chosen)) = pages.split_once('[') {
        state.push(format!("large pages {}", chosen.split(']').next().unwrap_or_default()));
    }
    state.join(", ")
}

/// The processors that this program may use, as they were before it pinned itself.
pub fn processors_at_start() -> Vec<usize> {
    static AT_START: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    AT_START.get_or_init(processors).clone()
}

/// The processors that the calling thread may use.
fn processors() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Binds the calling thread, and what it starts from here on, to some processors.
pub fn pin(cpus: &[usize]) -> Result<(), String> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| format!("affinity: {error}"))
}

/// The version line of a server's `-v`, or why it cannot be asked.
pub fn version(binary: &Path) -> Result<String, String> {
    let output = Command::new(binary)
        .arg("-v")
        .output()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default();
    Ok(line.split_once("version: ").map_or(line, |(_, version)| version).to_owned())
}
