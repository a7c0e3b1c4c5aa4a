//! How often the limits of a zone decided what, for status pages.
//!
//! The zones of the configurations in use are found by a list of the process: pages belong to no protocol.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Decision;

/// The directive that limits by a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneUse {
    /// `limit_req`
    Requests,
    /// `limit_conn` of `http`.
    Connections,
    /// `limit_conn` of `stream`.
    Sessions,
}

/// Number of decisions.
const DECISIONS: usize = Decision::RejectedDryRun as usize + 1;

/// The decisions by the limits of one zone.
#[derive(Debug)]
pub struct ZoneDecisions {
    of: ZoneUse,
    name: String,
    counts: [AtomicU64; DECISIONS],
}

/// The zones of this process.
static ZONES: Mutex<Vec<Weak<ZoneDecisions>>> = Mutex::new(Vec::new());

impl ZoneDecisions {
    /// For a new zone.
    pub fn of(of: ZoneUse, name: &[u8]) -> Arc<ZoneDecisions> {
        let name = String::from_utf8_lossy(name).into_owned();
        let new = Arc::new(Self { of, name, counts: Default::default() });
        let mut zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        zones.retain(|zone| zone.strong_count() > 0);
        zones.push(Arc::downgrade(&new));
        new
    }

    /// Counts a decision.
    pub fn count(&self, decision: Decision) {
        self.counts[decision as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The decisions of a zone so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionsSnapshot {
    /// The directive.
    pub of: ZoneUse,
    /// The name of the zone.
    pub name: String,
    counts: [u64; DECISIONS],
}

impl DecisionsSnapshot {
    /// How often this was decided.
    pub fn count(&self, decision: Decision) -> u64 {
        self.counts[decision as usize]
    }
}

/// The zones of the configurations in use, in the order of their names.
pub fn snapshot() -> Vec<DecisionsSnapshot> {
    let zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
    let read = |zone: Arc<ZoneDecisions>| DecisionsSnapshot {
        of: zone.of,
        name: zone.name.clone(),
        counts: std::array::from_fn(|at| zone.counts[at].load(Ordering::Relaxed)),
    };
    let mut found: Vec<_> = zones.iter().filter_map(Weak::upgrade).map(read).collect();
    // Of two with one name, an old configuration's still has requests.
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_there_as_long_as_they_are_used() {
        let find = || snapshot().into_iter().find(|zone| zone.name == "decided");
        let zone = ZoneDecisions::of(ZoneUse::Requests, b"decided");
        zone.count(Decision::Delayed);
        zone.count(Decision::Delayed);
        let found = find().unwrap();
        assert_eq!((found.count(Decision::Delayed), found.count(Decision::Passed)), (2, 0));
        drop(zone);
        assert_eq!(find(), None);
    }
}
