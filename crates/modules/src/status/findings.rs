//! Findings: what of a report calls for attention, and what to do about it. The dashboard and `nowait top` show
//! them first.
//!
//! Pure functions of a [`Report`]; the worst come first. Thresholds are named here, and stand in
//! `docs/monitoring.md`.

use std::time::{Duration, SystemTime};

use nowait_runtime::events::{Event, EventKind, Severity};
use nowait_runtime::mounts::MountSnapshot;
use nowait_runtime::pool::PoolSnapshot;
use nowait_upstream::{Availability, Group};
use serde_json::{Value, json};

use super::file_systems::tail;
use super::report::Report;

/// Findings listed at most.
const FINDINGS_MAX: usize = 100;

/// A disk on which no operation has ended for this long, while some are in progress, hangs.
const STALLED: Duration = Duration::from_secs(1);

/// A disk is slow if 1 % of its recent operations took at least this long.
const SLOW_DISK: Duration = Duration::from_millis(200);

/// A pool is short of threads if 1 % of its recent tasks waited at least this long.
const LONG_WAIT: Duration = Duration::from_millis(50);

/// A pool is nearly full from this share of its queue on, in percent.
const FULL_PERCENT: usize = 80;

/// How long a blocked event loop is a finding, in milliseconds.
const BLOCKED_MS: u64 = 600_000;

/// Seconds before its end from which on a certificate is a finding.
const EXPIRES_S: i64 = 10 * 86_400;

/// Something that calls for attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFinding {
    pub severity: Severity,
    /// `file_system`, `thread_pool`, `cache`, `upstream`, `event_loop` or `certificate`.
    pub of: &'static str,
    /// Its name in the report.
    pub subject: String,
    /// What is wrong.
    pub text: String,
    /// What to do.
    pub hint: &'static str,
}

/// As JSON.
pub fn json(report: &Report) -> Value {
    let all = findings(report).into_iter().map(|finding| {
        json!({
            "severity": finding.severity.name(),
            "of": finding.of,
            "subject": finding.subject,
            "text": finding.text,
            "hint": finding.hint,
        })
    });
    Value::Array(all.collect())
}

/// The findings of a report, the worst first.
pub fn findings(report: &Report) -> Vec<StatusFinding> {
    let mut all: Vec<StatusFinding> = report.mounts.iter().filter_map(of_disk).collect();
    let has_slow_disk = !all.is_empty();
    all.extend(report.pools.iter().filter_map(|pool| of_pool(pool, has_slow_disk)));
    all.extend(report.caches.iter().filter_map(of_cache));
    let sessions = report.sessions.iter().flat_map(|sessions| &sessions.upstreams);
    all.extend(report.upstreams.iter().chain(sessions).filter_map(|group| of_group(group)));
    all.extend(report.events.iter().filter_map(|event| of_loop(event, report.time_ms)));
    all.extend(of_certificates(report));
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all.truncate(FINDINGS_MAX);
    all
}

/// A disk that hangs or is slow.
fn of_disk(mount: &MountSnapshot) -> Option<StatusFinding> {
    let disk = &mount.disk;
    let name = match &mount.place {
        Some(place) => format!("{} ({}, {})", place.directory, mount.device(), place.source),
        None => mount.device(),
    };
    let finding = |severity, text| StatusFinding {
        severity,
        of: "file_system",
        subject: mount.device(),
        text,
        hint: "check the disk (dmesg, smartctl) or the network to its server; a thread_pool of its own, with \
               aio threads=NAME in its locations, keeps it from delaying other disks",
    };
    if let Some(stalled) = disk.stalled.filter(|stalled| *stalled >= STALLED) {
        let text = format!(
            "disk {name} hangs: no operation has ended for {:.1} s, {} in progress, {} waiting",
            stalled.as_secs_f64(),
            disk.busy,
            disk.waiting
        );
        return Some(finding(Severity::Error, text));
    }
    let reads = tail(&disk.reads.recent).map(|time| ("reading", time));
    let writes = tail(&disk.writes.recent).map(|time| ("writing", time));
    let (what, time) = reads.into_iter().chain(writes).max_by_key(|(_, time)| *time)?;
    (time >= SLOW_DISK).then(|| {
        let text = format!(
            "disk {name} is slow: 1 % of {what} took {} ms or more in the last minute, {} in progress, {} waiting",
            time.as_millis(),
            disk.busy,
            disk.waiting
        );
        finding(Severity::Warning, text)
    })
}

/// A pool that is nearly full, or whose tasks wait.
fn of_pool(pool: &PoolSnapshot, has_slow_disk: bool) -> Option<StatusFinding> {
    let is_full = pool.max_queue > 0 && pool.queued * 100 >= pool.max_queue * FULL_PERCENT;
    let wait = tail(&pool.recent_waits).filter(|wait| *wait >= LONG_WAIT);
    let text = match (is_full, wait) {
        (true, _) => format!(
            "thread pool {} is nearly full: {} tasks wait of {} at most, {} clients depend on it",
            pool.name, pool.queued, pool.max_queue, pool.clients
        ),
        (false, Some(wait)) => format!(
            "tasks wait for thread pool {}: 1 % for {} ms or more in the last minute; {} of {} threads are busy, {} \
             tasks wait, {} clients depend on it",
            pool.name,
            wait.as_millis(),
            pool.busy,
            pool.threads,
            pool.queued,
            pool.clients
        ),
        (false, None) => return None,
    };
    let hint = match has_slow_disk {
        true => {
            "a disk is slow: give it a thread_pool of its own, so that others need not wait for it"
        }
        false => "the disks are quick: raise threads= of the thread_pool",
    };
    let severity = if is_full { Severity::Error } else { Severity::Warning };
    Some(StatusFinding { severity, of: "thread_pool", subject: pool.name.clone(), text, hint })
}

fn of_cache(cache: &nowait_cache::Statistics) -> Option<StatusFinding> {
    let (text, hint) = match (cache.out_of_use, cache.stores_nothing) {
        (Some(why), _) => (
            format!("cache {} is out of use: its disk is {}", cache.zone, why.name()),
            "requests go to the origin; the disk is tried again by itself",
        ),
        (None, Some(why)) => (
            format!("cache {} takes no new objects: its disk is {}", cache.zone, why.name()),
            "what it has is served; check the disk and its file system",
        ),
        (None, None) => return None,
    };
    let (severity, subject) = (Severity::Error, cache.zone.clone());
    Some(StatusFinding { severity, of: "cache", subject, text, hint })
}

fn of_group(group: &Group) -> Option<StatusFinding> {
    let now = nowait_runtime::now();
    let peers = group.peers();
    let is_off = |state: &Availability| {
        matches!(
            state,
            Availability::Unavailable | Availability::Unhealthy | Availability::Checking
        )
    };
    let states: Vec<Availability> = peers.iter().map(|peer| peer.availability(now)).collect();
    let off = states.iter().filter(|state| is_off(state)).count();
    let up = states.iter().filter(|state| **state == Availability::Up).count();
    if off == 0 && (up > 0 || states.is_empty()) {
        return None;
    }
    let name = String::from_utf8_lossy(group.name()).into_owned();
    let severity = if up == 0 { Severity::Error } else { Severity::Warning };
    let text = format!("upstream {name}: {up} of {} servers get requests", states.len());
    let hint =
        "the error log says why requests to them fail; health_check shows when they are back";
    Some(StatusFinding { severity, of: "upstream", subject: name, text, hint })
}

fn of_loop(event: &Event, now_ms: u64) -> Option<StatusFinding> {
    let is_recent = event.kind == EventKind::EventLoopBlocked
        && now_ms.saturating_sub(event.time_ms) < BLOCKED_MS;
    is_recent.then(|| StatusFinding {
        severity: Severity::Warning,
        of: "event_loop",
        subject: event.subject.clone(),
        text: format!("{} ({} times lately)", event.text, event.count),
        hint: "all clients of the worker have waited meanwhile; if the machine is not short of processors, please \
               report it",
    })
}

fn of_certificates(report: &Report) -> impl Iterator<Item = StatusFinding> + '_ {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(report.time_ms);
    report.certificates.iter().filter_map(move |one| {
        let left = one.seconds_left(now);
        let (severity, text) = match left {
            ..=0 => (Severity::Error, format!("the certificate for {} has expired", one.name())),
            1..EXPIRES_S => {
                let days = left / 86_400;
                let text = format!("the certificate for {} expires in {days} days", one.name());
                (Severity::Warning, text)
            }
            _ => return None,
        };
        Some(StatusFinding {
            severity,
            of: "certificate",
            subject: one.name().to_owned(),
            text,
            hint: "renew it; with ssl_certificate_watch on, or after a reload, it is put to use",
        })
    })
}

#[cfg(test)]
mod tests {
    use nowait_runtime::histogram::{Histogram, HistogramSnapshot};
    use nowait_runtime::pool::{Pool, PoolConfig};

    use super::*;

    fn times(count: usize, ms: u64) -> HistogramSnapshot {
        let histogram = Histogram::default();
        (0..count).for_each(|_| histogram.record(Duration::from_millis(ms)));
        let mut sum = HistogramSnapshot::default();
        sum.add(&histogram);
        sum
    }

    fn pool() -> PoolSnapshot {
        Pool::new(PoolConfig { name: "p".into(), threads: 2, max_queue: 100 }).snapshot()
    }

    #[test]
    fn full_pools_and_long_waits_are_findings() {
        assert_eq!(of_pool(&pool(), false), None);
        let full = PoolSnapshot { queued: 80, ..pool() };
        assert_eq!(of_pool(&full, false).unwrap().severity, Severity::Error);
        let waits = PoolSnapshot { recent_waits: times(10, 60), ..pool() };
        let found = of_pool(&waits, true).unwrap();
        assert_eq!(found.severity, Severity::Warning);
        assert!(found.hint.starts_with("a disk is slow"), "{found:?}");
        assert!(of_pool(&waits, false).unwrap().hint.contains("raise threads="));
        let few = PoolSnapshot { recent_waits: times(9, 60), ..pool() };
        assert_eq!(of_pool(&few, false), None);
        let without_queue = PoolSnapshot { max_queue: 0, ..pool() };
        assert_eq!(of_pool(&without_queue, false), None);
    }

    #[test]
    fn caches_out_of_use_are_findings() {
        use nowait_cache::{Statistics, Why};
        assert_eq!(of_cache(&Statistics::default()), None);
        let out = Statistics { out_of_use: Some(Why::Hanging), ..Statistics::default() };
        assert!(of_cache(&out).unwrap().text.contains("is out of use: its disk is hanging"));
        let sealed = Statistics { stores_nothing: Some(Why::Sealed), ..Statistics::default() };
        assert!(of_cache(&sealed).unwrap().text.contains("takes no new objects"));
    }

    #[test]
    fn blocked_loops_are_findings_for_a_while() {
        let event = Event {
            number: 1,
            time_ms: 1_000_000,
            first_ms: 0,
            count: 3,
            kind: EventKind::EventLoopBlocked,
            subject: "worker 0".to_owned(),
            text: "text".to_owned(),
        };
        assert!(of_loop(&event, 1_000_000 + BLOCKED_MS - 1).is_some());
        assert_eq!(of_loop(&event, 1_000_000 + BLOCKED_MS), None);
        let other = Event { kind: EventKind::PeerUp, ..event };
        assert_eq!(of_loop(&other, 1_000_000), None);
    }
}
