//! The services of a worker for its requests, from any front end.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counts::Counts;
use crate::slots::State;

/// Numbers connections in this process: the next number that no worker has taken.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// The number of connection numbers that a worker reserves with one shared write.
const NUMBERS: u64 = 64;

/// The services of one worker.
#[derive(Default)]
pub struct Services {
    /// Numbers for its next connections.
    numbers: RefCell<Range<u64>>,
    /// Background subrequests in flight.
    background: Rc<Cell<usize>>,
    /// Counts of connections and requests.
    pub counts: Counts,
    /// State of modules for the worker.
    pub state: State,
}

/// One of the background subrequests of a worker.
pub(crate) struct BackgroundGuard(Rc<Cell<usize>>);

impl Drop for BackgroundGuard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Services {
    /// The next connection's number.
    pub fn next_number(&self) -> u64 {
        next_number(&mut self.numbers.borrow_mut(), &CONNECTIONS)
    }

    /// Counts another background subrequest, if fewer than `max` are in flight.
    pub(crate) fn enter_background(&self, max: usize) -> Option<BackgroundGuard> {
        (self.background.get() < max).then(|| {
            self.background.set(self.background.get() + 1);
            BackgroundGuard(self.background.clone())
        })
    }
}

/// The next of a worker's numbers; takes more from the process when none is left.
fn next_number(own: &mut Range<u64>, process: &AtomicU64) -> u64 {
    own.next().unwrap_or_else(|| {
        let first = process.fetch_add(NUMBERS, Ordering::Relaxed);
        *own = first + 1..first + NUMBERS;
        first
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_connections_have_the_same_number() {
        let process = AtomicU64::new(1);
        let (mut one, mut other) = (0..0, 0..0);
        let mut numbers = BTreeSet::new();
        for _ in 0..3 * NUMBERS {
            numbers.insert(next_number(&mut one, &process));
            numbers.insert(next_number(&mut other, &process));
        }
        assert_eq!(numbers, (1..=6 * NUMBERS).collect());
        // A worker without competition continues its sequence.
        let first = next_number(&mut one, &process);
        assert_eq!(next_number(&mut one, &process), first + 1);
    }
}
