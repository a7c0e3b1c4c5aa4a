//! Events: what an operator wants to know of the last hours, in a ring that status pages read.
//!
//! [`record`] or [`announce`] is called by whatever notices a change: reloads, peers, disks, pools, loops, certificates. An
//! event of a subject that repeats within a minute is counted instead of added, so that a flapping peer neither
//! pushes others out nor fills the log. The ring belongs to the process: it survives reloads.
//!
//! Never: called on the usual path of a request; waits, except for the few instructions of another caller.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Events kept.
pub const EVENTS_MAX: usize = 512;

/// Longest subject and longest text, in bytes; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 512;

/// An event that repeats within this time is counted, in milliseconds.
const REPEAT_MS: u64 = 60_000;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// To be known.
    Info,
    /// Something will fail, or works without a part.
    Warning,
    /// Something has failed.
    Error,
}

impl Severity {
    /// The word for status pages.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $severity:ident;)*) => {
        /// What has happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventKind { $($(#[$doc])* $name,)* }

        impl EventKind {
            /// Every kind.
            pub const ALL: &[EventKind] = &[$(EventKind::$name),*];

            /// The name for status pages and programs.
            pub fn name(self) -> &'static str {
                match self { $(EventKind::$name => $text,)* }
            }

            /// How much it matters.
            pub fn severity(self) -> Severity {
                match self { $(EventKind::$name => Severity::$severity,)* }
            }
        }
    };
}

kinds! {
    /// Workers use a new configuration.
    ConfigurationApplied = "configuration_applied", Info;
    /// A new configuration has errors; the previous one stays in use.
    ConfigurationRefused = "configuration_refused", Error;
    /// A server behind this one gets no requests.
    PeerDown = "peer_down", Warning;
    /// It gets requests again.
    PeerUp = "peer_up", Info;
    /// A disk fails or does not respond: its cache is out of use.
    DiskOut = "disk_out", Error;
    /// A cache is in use again.
    DiskBack = "disk_back", Info;
    /// A disk can't be written: its cache takes no new objects.
    CacheSealed = "cache_sealed", Error;
    /// A cache takes objects again.
    CacheStores = "cache_stores", Info;
    /// The queue of a thread pool is 80 % full.
    PoolNearlyFull = "pool_nearly_full", Warning;
    /// The queue of a thread pool is full: tasks are refused.
    PoolFull = "pool_full", Error;
    /// The queue of a pool that was nearly full has become shorter.
    PoolRelieved = "pool_relieved", Info;
    /// A turn of an event loop took longer than 50 ms.
    EventLoopBlocked = "event_loop_blocked", Warning;
    /// A certificate was replaced by a newer one.
    CertificateRenewed = "certificate_renewed", Info;
    /// A certificate expires within ten days.
    CertificateExpiring = "certificate_expiring", Warning;
    /// A certificate has expired.
    CertificateExpired = "certificate_expired", Error;
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Counted from 1; a repetition gets a new number.
    pub number: u64,
    /// The time of the last repetition, in milliseconds since 1970.
    pub time_ms: u64,
    /// The time of the first one.
    pub first_ms: u64,
    /// How often it has happened since then.
    pub count: u64,
    pub kind: EventKind,
    /// The worker, pool, peer, cache or certificate.
    pub subject: String,
    /// A sentence.
    pub text: String,
}

#[derive(Debug)]
struct Ring {
    /// By number.
    events: VecDeque<Event>,
    last: u64,
    /// How often each kind has happened, in the order of [`EventKind::ALL`].
    counts: [u64; KINDS],
}

/// The number of kinds.
const KINDS: usize = EventKind::ALL.len();

static RING: Mutex<Ring> = Mutex::new(Ring::EMPTY);

/// Writes a line about an event.
type Listener = Box<dyn Fn(&Event) + Send + Sync>;

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Sets the function that writes [announced](announce) events to a log. It is called on the thread that notices
/// an event, often a loop: it must not wait. Only the first call counts.
pub fn listen(listener: impl Fn(&Event) + Send + Sync + 'static) {
    let _ = LISTENER.set(Box::new(listener));
}

/// Adds an event of which the caller writes a line to a log.
pub fn record(kind: EventKind, subject: &str, text: fmt::Arguments<'_>) {
    add(kind, subject, text);
}

/// Adds an event that is logged here, unless it repeats.
pub fn announce(kind: EventKind, subject: &str, text: fmt::Arguments<'_>) {
    if let Some(event) = add(kind, subject, text)
        && let Some(listener) = LISTENER.get()
    {
        listener(&event);
    }
}

fn add(kind: EventKind, subject: &str, text: fmt::Arguments<'_>) -> Option<Event> {
    let event = Event {
        number: 0,
        time_ms: nowait_sys::clock::unix_ms(),
        first_ms: 0,
        count: 1,
        kind,
        subject: cut(subject.to_owned()),
        text: cut(text.to_string()),
    };
    ring().add(event)
}

/// The events, oldest first.
pub fn snapshot() -> Vec<Event> {
    ring().events.iter().cloned().collect()
}

/// How often each kind of event has happened, repetitions included.
pub fn counts() -> Vec<(EventKind, u64)> {
    EventKind::ALL.iter().copied().zip(ring().counts).collect()
}

/// Plain data, valid after every statement.
fn ring() -> MutexGuard<'static, Ring> {
    RING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ring {
    const EMPTY: Ring = Ring { events: VecDeque::new(), last: 0, counts: [0; KINDS] };

    /// Adds an event, or counts it; returns it if it is new.
    fn add(&mut self, mut event: Event) -> Option<Event> {
        self.last += 1;
        self.counts[event.kind as usize] += 1;
        event.number = self.last;
        event.first_ms = event.time_ms;
        let is_same = |old: &Event| old.kind == event.kind && old.subject == event.subject;
        let known = self.events.iter().rposition(is_same);
        let repeated =
            known.filter(|at| event.time_ms.saturating_sub(self.events[*at].time_ms) < REPEAT_MS);
        if let Some(old) = repeated.and_then(|at| self.events.remove(at)) {
            (event.first_ms, event.count) = (old.first_ms, old.count.saturating_add(1));
            self.events.push_back(event);
            return None;
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event.clone());
        Some(event)
    }
}

/// Shortens a text at a boundary of characters.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, subject: &str, time_ms: u64) -> Event {
        let (subject, text) = (subject.to_owned(), "text".to_owned());
        Event { number: 0, time_ms, first_ms: 0, count: 1, kind, subject, text }
    }

    fn ring() -> Ring {
        Ring::EMPTY
    }

    #[test]
    fn repetitions_are_counted() {
        let mut ring = ring();
        assert!(ring.add(event(EventKind::PeerDown, "a", 1000)).is_some());
        assert!(ring.add(event(EventKind::PeerUp, "a", 2000)).is_some());
        assert!(ring.add(event(EventKind::PeerDown, "b", 3000)).is_some());
        assert!(ring.add(event(EventKind::PeerDown, "a", 4000)).is_none());
        // From the last repetition on.
        assert!(ring.add(event(EventKind::PeerDown, "a", 4000 + REPEAT_MS - 1)).is_none());
        let last = ring.events.back().unwrap();
        assert_eq!((last.number, last.first_ms, last.count), (5, 1000, 3));
        assert_eq!(ring.events.len(), 3);
        assert_eq!(ring.counts[EventKind::PeerDown as usize], 4);
        let later = last.time_ms + REPEAT_MS;
        assert!(ring.add(event(EventKind::PeerDown, "a", later)).is_some());
        assert_eq!(ring.events.len(), 4);
    }

    #[test]
    fn the_oldest_are_dropped() {
        let mut ring = ring();
        for number in 0..EVENTS_MAX + 3 {
            ring.add(event(EventKind::PeerDown, &number.to_string(), 1));
        }
        assert_eq!((ring.events.len(), ring.events[0].number), (EVENTS_MAX, 4));
    }

    #[test]
    fn long_texts_are_cut() {
        let text = cut("\u{20ac}".repeat(TEXT_BYTES_MAX));
        assert_eq!(text.len(), TEXT_BYTES_MAX / 3 * 3);
        assert_eq!(cut("short".to_owned()), "short");
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> =
            EventKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), EventKind::ALL.len());
    }
}
