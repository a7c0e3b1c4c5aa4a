//! The reports that all readers of a process share: one per interval.
//!
//! The first reader that needs a new report has it made ([`maker`]); the others wait for it. Never: a report that
//! nobody reads.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use nowait_http::generation::Generation;

use super::super::report::Report;
use super::super::{json, maker};

/// Zones of a kind that a report shows: those with most requests.
const ZONES_MAX: usize = 200;

/// File systems, upstream groups, caches, certificates, and limits that it shows.
const ROWS_MAX: usize = 200;

/// Events that it shows: the last ones.
const EVENTS_MAX: usize = 100;

static FEED: Mutex<Feed> = Mutex::new(Feed { last: None, is_making: false, waiting: Vec::new() });

struct Feed {
    last: Option<SharedReport>,
    /// A report is being made.
    is_making: bool,
    /// Readers that wait for it. At most as many as there are readers.
    waiting: Vec<Waker>,
}

/// A report that readers share.
#[derive(Clone, Debug)]
struct SharedReport {
    /// When it was made: [`now_ms`].
    made_ms: u64,
    generation: u64,
    /// As a server-sent event. All readers send this memory, so that those that are slow hold nothing of their own.
    event: Bytes,
}

/// Milliseconds on the clock of reports.
pub fn now_ms() -> u64 {
    nowait_sys::clock::monotonic_ns() / 1_000_000
}

fn lock() -> MutexGuard<'static, Feed> {
    FEED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a reader finds.
enum Found {
    Report(Bytes),
    /// It has to make one.
    Make(Making),
}

/// The report that is being made; when dropped, others may make one.
struct Making;

impl Drop for Making {
    fn drop(&mut self) {
        let waiting = {
            let mut feed = lock();
            feed.is_making = false;
            std::mem::take(&mut feed.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The report of a generation as a server-sent event, not made before `since_ms`. `None`: none can be made.
pub async fn report(generation: &Arc<Generation>, address: &str, since_ms: u64) -> Option<Bytes> {
    match find(generation.number, since_ms).await {
        Found::Report(event) => Some(event),
        Found::Make(making) => {
            let (number, made_ms) = (generation.number, now_ms());
            let share = move |report: Report| share(report, number, made_ms, making);
            maker::make_for(generation, address.to_owned(), 0, share).await.ok()
        }
    }
}

/// Waits until there is such a report, or none is being made.
async fn find(generation: u64, since_ms: u64) -> Found {
    poll_fn(|cx| {
        let mut feed = lock();
        let is_fit =
            |report: &&SharedReport| report.generation == generation && report.made_ms >= since_ms;
        if let Some(report) = feed.last.as_ref().filter(is_fit) {
            return Poll::Ready(Found::Report(report.event.clone()));
        }
        if feed.is_making {
            feed.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        feed.is_making = true;
        Poll::Ready(Found::Make(Making))
    })
    .await
}

/// Shares a report that is being made.
fn share(report: Report, generation: u64, made_ms: u64, making: Making) -> Bytes {
    let event = event(&json::line(&bounded(report)));
    lock().last = Some(SharedReport { made_ms, generation, event: event.clone() });
    drop(making);
    event
}

/// An event with a text of one line.
fn event(text: &str) -> Bytes {
    format!("event: report\ndata: {text}\n\n").into()
}

/// The report with as many rows as a page can show.
fn bounded(mut report: Report) -> Report {
    busiest(&mut report.server_zones, |zone| (zone.requests, &zone.name));
    busiest(&mut report.location_zones, |zone| (zone.requests, &zone.name));
    if let Some(sessions) = &mut report.sessions {
        busiest(&mut sessions.zones, |zone| (zone.connections(), &zone.name));
    }
    report.mounts.truncate(ROWS_MAX);
    report.upstreams.truncate(ROWS_MAX);
    report.caches.truncate(ROWS_MAX);
    report.limits.truncate(ROWS_MAX);
    report.certificates.sort_by_key(|one| one.end);
    report.certificates.truncate(ROWS_MAX);
    let surplus = report.events.len().saturating_sub(EVENTS_MAX);
    report.events.drain(..surplus);
    report
}

/// Keeps the busiest zones; each has a number of requests, and a name.
fn busiest<Z>(zones: &mut Vec<Z>, of: impl Fn(&Z) -> (u64, &str)) {
    if zones.len() > ZONES_MAX {
        zones.sort_by_key(|zone| std::cmp::Reverse(of(zone).0));
        zones.truncate(ZONES_MAX);
        zones.sort_by(|a, b| of(a).1.cmp(of(b).1));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::zone::ZoneSnapshot;
    use super::*;

    #[test]
    fn events_are_framed() {
        assert_eq!(&event("{}")[..], b"event: report\ndata: {}\n\n");
    }

    #[test]
    fn the_busiest_zones_stay_in_the_order_of_their_names() {
        let zone = |number: usize| ZoneSnapshot {
            name: format!("{number:04}"),
            requests: number as u64,
            ..ZoneSnapshot::default()
        };
        let mut zones: Vec<_> = (0..ZONES_MAX + 10).map(zone).collect();
        busiest(&mut zones, |zone| (zone.requests, &zone.name));
        assert_eq!((zones.len(), &*zones[0].name), (ZONES_MAX, "0010"));
        assert!(zones.is_sorted_by(|a, b| a.name < b.name));
    }
}
