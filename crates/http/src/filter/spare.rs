//! Spare compression states: creating one takes longer than compressing a short text.
//!
//! All workers and pool threads share them, under a lock that is only ever tried: if it is taken, a
//! state is created or dropped instead.

use std::sync::Mutex;

/// At most so many states of one kind, of the whole process.
pub(super) struct Spare<T> {
    states: Mutex<Vec<T>>,
    max: usize,
}

impl<T> Spare<T> {
    pub(super) const fn new(max: usize) -> Self {
        Self { states: Mutex::new(Vec::new()), max }
    }

    /// One that fits, if there is one.
    pub(super) fn take(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut states = self.states.try_lock().ok()?;
        let at = states.iter().rposition(fits)?;
        Some(states.remove(at))
    }

    /// Keeps one; the oldest makes room.
    pub(super) fn keep(&self, state: T) {
        let Ok(mut states) = self.states.try_lock() else { return };
        let oldest = (states.len() >= self.max).then(|| states.remove(0));
        states.push(state);
        drop(states);
        // Its memory is given back without the lock.
        drop(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let spare = Spare::new(2);
        assert_eq!(spare.take(|_| true), None);
        (1..=3).for_each(|n| spare.keep(n));
        assert_eq!(spare.take(|n| *n == 1), None);
        assert_eq!(spare.take(|n| *n == 2), Some(2));
        assert_eq!((spare.take(|_| true), spare.take(|_| true)), (Some(3), None));
    }

    #[test]
    fn nobody_waits_for_the_lock() {
        let spare = Spare::new(2);
        spare.keep(1);
        let held = spare.states.lock().unwrap();
        spare.keep(2);
        assert_eq!(spare.take(|_| true), None);
        drop(held);
        assert_eq!((spare.take(|_| true), spare.take(|_| true)), (Some(1), None));
    }
}
