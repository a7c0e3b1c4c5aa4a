//! Whether a pool's queue is nearly full: an event when it becomes so, one when tasks are refused, and one when
//! it has become shorter.
//!
//! Called by the pool under its lock, two comparisons per task; the events are written without it.

use std::time::Duration;

use crate::events::{self, EventKind};
use crate::mounts;

/// Shorter queues fill and empty all the time.
const MAX_QUEUE_MIN: usize = 8;

/// What was reported of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fullness {
    Normal,
    NearlyFull,
    Full,
}

impl Fullness {
    /// `waiting` tasks wait, one more than before. Returns what is to be reported.
    #[inline]
    pub(super) fn grown(&mut self, waiting: usize, max_queue: usize) -> Option<Fullness> {
        let is_nearly_full = waiting > max_queue - max_queue / 5 && max_queue >= MAX_QUEUE_MIN;
        (is_nearly_full && *self == Fullness::Normal).then(|| self.set(Fullness::NearlyFull))
    }

    /// A task was refused.
    pub(super) fn refused(&mut self) -> Option<Fullness> {
        (*self != Fullness::Full).then(|| self.set(Fullness::Full))
    }

    /// `waiting` tasks wait, one less than before.
    #[inline]
    pub(super) fn shrunk(&mut self, waiting: usize, max_queue: usize) -> Option<Fullness> {
        (*self != Fullness::Normal && waiting <= max_queue / 2).then(|| self.set(Fullness::Normal))
    }

    fn set(&mut self, new: Fullness) -> Fullness {
        *self = new;
        new
    }
}

/// Writes the event.
#[cold]
pub(super) fn report(name: &str, change: Fullness, waiting: usize, max_queue: usize) {
    let busiest = mounts::busiest().map_or_else(String::new, |(device, load)| {
        let stalled = load.stalled.filter(|time| *time >= Duration::from_secs(1));
        let since = stalled.map_or_else(String::new, |time| {
            format!(", and none has ended for {:.1} s", time.as_secs_f64())
        });
        format!(
            "; file system {device} has {} operations in progress and {} waiting{since}",
            load.busy, load.waiting
        )
    });
    match change {
        Fullness::NearlyFull => events::announce(
            EventKind::PoolNearlyFull,
            name,
            format_args!(
                "the queue of thread pool \"{name}\" is nearly full: {waiting} tasks wait of \
                 {max_queue} at most{busiest}"
            ),
        ),
        Fullness::Full => events::announce(
            EventKind::PoolFull,
            name,
            format_args!(
                "thread pool \"{name}\" refuses tasks: {waiting} wait of {max_queue} at most{busiest}"
            ),
        ),
        Fullness::Normal => events::announce(
            EventKind::PoolRelieved,
            name,
            format_args!(
                "the queue of thread pool \"{name}\" is short again: {waiting} tasks wait of \
                 {max_queue} at most"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_reported_once() {
        let mut state = Fullness::Normal;
        assert_eq!(state.grown(80, 100), None);
        assert_eq!(state.grown(81, 100), Some(Fullness::NearlyFull));
        assert_eq!(state.grown(82, 100), None);
        assert_eq!(state.refused(), Some(Fullness::Full));
        assert_eq!((state.refused(), state.grown(100, 100)), (None, None));
        assert_eq!(state.shrunk(51, 100), None);
        assert_eq!(state.shrunk(50, 100), Some(Fullness::Normal));
        assert_eq!(state.shrunk(49, 100), None);
    }

    #[test]
    fn short_queues_are_only_full() {
        let mut state = Fullness::Normal;
        assert_eq!(state.grown(7, 7), None);
        assert_eq!(state.refused(), Some(Fullness::Full));
        assert_eq!(state.shrunk(3, 7), Some(Fullness::Normal));
        assert_eq!((state.grown(1, 0), state.shrunk(0, 0)), (None, None));
    }
}
