//! File systems and what their disks do, for both forms of the report.

use nowait_runtime::histogram::HistogramSnapshot;
use nowait_runtime::mounts::{DiskTimesSnapshot, MountSnapshot};
use serde_json::{Map, Value, json};

use super::json::{times, us};
use super::openmetrics::MetricsText;
use super::report::Report;

/// As JSON.
pub fn json(mount: &MountSnapshot) -> Value {
    let counters: Map<String, Value> =
        mount.counters().map(|(name, count)| (name.to_owned(), count.into())).collect();
    let disk = &mount.disk;
    json!({
        "name": mount.device(),
        "type": mount.fs_type.name(),
        "directory": mount.place.as_ref().map(|place| &place.directory),
        "source": mount.place.as_ref().map(|place| &place.source),
        "read_inline": mount.nowait,
        "operations": counters,
        "waiting": disk.waiting,
        "in_progress": disk.busy,
        "stalled_us": disk.stalled.map_or(0, us),
        "errors": disk.errors,
        "recent_wait_us": times(&disk.waits),
        "read_us": times(&disk.reads.all),
        "recent_read_us": times(&disk.reads.recent),
        "write_us": times(&disk.writes.all),
        "recent_write_us": times(&disk.writes.recent),
    })
}

/// Reads a number of a file system.
type Number = fn(&MountSnapshot) -> u64;

/// As OpenMetrics.
pub fn openmetrics(report: &Report, text: &mut MetricsText) {
    const NAME: &str = "nowait_file_system_operations";
    let help = "File operations by place (on the loop or in a pool) and reason.";
    text.family(NAME, "counter", "", help);
    for mount in &report.mounts {
        let device = mount.device();
        for (operation, count) in mount.counters() {
            let labels =
                [("device", &*device), ("type", mount.fs_type.name()), ("operation", operation)];
            text.sample(&format!("{NAME}_total"), &labels, count);
        }
    }
    let gauges: [(&str, &str, Number); 2] = [
        ("nowait_disk_waiting", "Operations of a file system that wait for a thread.", |mount| {
            mount.disk.waiting
        }),
        ("nowait_disk_in_progress", "Operations of a file system in progress.", |mount| {
            mount.disk.busy
        }),
    ];
    for (name, help, get) in gauges {
        text.family(name, "gauge", "", help);
        each(report, |labels, mount| text.sample(name, &labels, get(mount)));
    }
    const STALLED: &str = "nowait_disk_stalled_seconds";
    let help = "Time since an operation has ended, if some are in progress: a disk that hangs.";
    text.family(STALLED, "gauge", "seconds", help);
    each(report, |labels, mount| {
        text.time(STALLED, &labels, mount.disk.stalled.unwrap_or_default());
    });
    let help = "Operations that have failed because of the disk.";
    text.family("nowait_disk_errors", "counter", "", help);
    each(report, |labels, mount| {
        text.sample("nowait_disk_errors_total", &labels, mount.disk.errors);
    });
    const TIMES: &str = "nowait_disk_operation_seconds";
    let help = "How long operations in pools took on a file system.";
    text.family(TIMES, "histogram", "seconds", help);
    each(report, |[device, place], mount| {
        for (operation, times) in [("read", &mount.disk.reads), ("write", &mount.disk.writes)] {
            let DiskTimesSnapshot { all, .. } = times;
            text.histogram(TIMES, &[device, place, ("operation", operation)], all);
        }
    });
}

/// Calls with each file system and its labels.
fn each(report: &Report, mut each: impl FnMut([(&str, &str); 2], &MountSnapshot)) {
    for mount in &report.mounts {
        let device = mount.device();
        let directory = mount.place.as_ref().map_or("", |place| &place.directory);
        each([("device", &device), ("directory", directory)], mount);
    }
}

/// The largest percentile of times that is meaningful: their 99th, if there are at least ten.
pub fn tail(times: &HistogramSnapshot) -> Option<std::time::Duration> {
    const TIMES_MIN: u64 = 10;
    times.percentile(990).filter(|_| times.count() >= TIMES_MIN)
}
