//! Spare compression states: creating one takes longer than compressing a short text.
//!
//! All workers and pool threads share them, under a lock that is only ever tried: if it is taken, a
//! state is created or dropped instead.

use std::sync::Mutex;

/// Most states of one kind kept in the process.
pub(crate) struct Spare<T> {
    states: Mutex<Vec<T>>,
    max: usize,
}

impl<T> Spare<T> {
    pub(crate) const fn new(max: usize) -> Self {
        Self { states: Mutex::new(Vec::new()), max }
    }

    /// Takes a state that fits, if there is one.
    pub(crate) fn take(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut states = self.states.try_lock().ok()?;
        let at = states.iter().rposition(fits)?;
        Some(states.remove(at))
    }

    /// Keeps a state, if necessary in place of the oldest.
    pub(crate) fn keep(&self, state: T) {
        let Ok(mut states) = self.states.try_lock() else { return };
        let oldest = (states.len() >= self.max).then(|| states.remove(0));
        states.push(state);
        drop(states);
        // Its memory is freed outside of the lock.
        drop(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_state_is_replaced() {
        let spare = Spare::new(2);
        assert_eq!(spare.take(|_| true), None);
        (1..=3).for_each(|n| spare.keep(n));
        assert_eq!(spare.take(|n| *n == 1), None);
        assert_eq!(spare.take(|n| *n == 2), Some(2));
        assert_eq!((spare.take(|_| true), spare.take(|_| true)), (Some(3), None));
    }

    #[test]
    fn a_contended_lock_is_never_waited_for() {
        let spare = Spare::new(2);
        spare.keep(1);
        let held = spare.states.lock().unwrap();
        spare.keep(2);
        assert_eq!(spare.take(|_| true), None);
        drop(held);
        assert_eq!((spare.take(|_| true), spare.take(|_| true)), (Some(1), None));
    }
}
