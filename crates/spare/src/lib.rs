//! Spares: unused values, kept because reusing their memory is cheaper than allocating.
//!
//! A list is bounded and never blocks: while another thread uses the list, taking returns `None` and keeping
//! drops the value. [`LocalSpares`] belong to one thread, [`SharedSpares`] to all.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::sync::Mutex;
use std::thread::LocalKey;

/// A list of at most a number of values.
#[derive(Debug)]
pub struct Spares<L> {
    list: L,
    max: usize,
}

/// Spares of one thread.
pub type LocalSpares<T> = Spares<RefCell<Vec<T>>>;

/// Spares of all threads.
pub type SharedSpares<T> = Spares<Mutex<Vec<T>>>;

/// Storage of the values.
pub trait List<T> {
    /// Calls `act` with the values; `None` if the list is in use.
    fn with<R>(&self, act: impl FnOnce(&mut Vec<T>) -> R) -> Option<R>;
}

impl<T> List<T> for RefCell<Vec<T>> {
    fn with<R>(&self, act: impl FnOnce(&mut Vec<T>) -> R) -> Option<R> {
        self.try_borrow_mut().ok().map(|mut values| act(&mut values))
    }
}

impl<T> List<T> for Mutex<Vec<T>> {
    fn with<R>(&self, act: impl FnOnce(&mut Vec<T>) -> R) -> Option<R> {
        self.try_lock().ok().map(|mut values| act(&mut values))
    }
}

impl<T> LocalSpares<T> {
    /// An empty list.
    pub const fn new(max: usize) -> Self {
        Self { list: RefCell::new(Vec::new()), max }
    }

    /// Takes this thread's newest value.
    pub fn take_local(spares: &'static LocalKey<Self>) -> Option<T> {
        // Fails while the thread ends.
        spares.try_with(Self::take).ok().flatten()
    }

    /// Keeps a value for this thread, or drops the value if the list is full.
    pub fn keep_local(spares: &'static LocalKey<Self>, value: T) {
        // As above.
        let _ = spares.try_with(|spares| spares.keep(value));
    }
}

impl<T> SharedSpares<T> {
    /// An empty list.
    pub const fn new(max: usize) -> Self {
        Self { list: Mutex::new(Vec::new()), max }
    }
}

impl<L> Spares<L> {
    /// Takes the newest value.
    pub fn take<T>(&self) -> Option<T>
    where
        L: List<T>,
    {
        self.list.with(Vec::pop).flatten()
    }

    /// Takes the newest value that fits.
    pub fn take_if<T>(&self, fits: impl Fn(&T) -> bool) -> Option<T>
    where
        L: List<T>,
    {
        let take = |values: &mut Vec<T>| Some(values.remove(values.iter().rposition(fits)?));
        self.list.with(take).flatten()
    }

    /// Whether the list has room for another value.
    pub fn has_room<T>(&self) -> bool
    where
        L: List<T>,
    {
        self.list.with(|values| values.len() < self.max).unwrap_or(false)
    }

    /// Keeps a value, or drops the value if the list is full.
    pub fn keep<T>(&self, value: T)
    where
        L: List<T>,
    {
        let mut value = Some(value);
        self.list.with(|values| {
            debug_assert!(values.len() <= self.max, "a list never exceeds its bound");
            if values.len() < self.max
                && let Some(value) = value.take()
            {
                values.push(value);
            }
        });
        // A value that was not kept is dropped here, after the list's release: its destructor may use the list.
    }

    /// Keeps a value, if necessary in place of the oldest: for values that do not fit every use.
    pub fn keep_newest<T>(&self, value: T)
    where
        L: List<T>,
    {
        let mut value = Some(value);
        let oldest = self.list.with(|values| {
            let oldest = (values.len() >= self.max).then(|| values.remove(0));
            values.extend(value.take());
            oldest
        });
        drop(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_are_kept() {
        let spares = LocalSpares::new(2);
        assert_eq!(spares.take(), None);
        assert!(spares.has_room());
        (1..=3).for_each(|n| spares.keep(n));
        assert!(!spares.has_room());
        assert_eq!([spares.take(), spares.take(), spares.take()], [Some(2), Some(1), None]);
    }

    #[test]
    fn the_oldest_makes_room_for_the_newest() {
        let spares = SharedSpares::new(2);
        (1..=3).for_each(|n| spares.keep_newest(n));
        assert_eq!(spares.take_if(|n| *n == 1), None);
        assert_eq!(spares.take_if(|n| *n == 2), Some(2));
        assert_eq!([spares.take(), spares.take()], [Some(3), None]);
    }

    #[test]
    fn a_list_in_use_is_never_waited_for() {
        let spares = SharedSpares::new(2);
        spares.keep(1);
        let held = spares.list.lock().unwrap();
        spares.keep(2);
        spares.keep_newest(3);
        assert!(!spares.has_room());
        assert_eq!((spares.take(), spares.take_if(|_| true)), (None, None));
        drop(held);
        assert_eq!([spares.take(), spares.take()], [Some(1), None]);
    }

    /// A value whose end leads back to the list of its thread.
    struct Chained(u8);

    thread_local! {
        static CHAINED: LocalSpares<Chained> = const { LocalSpares::new(1) };
    }

    impl Drop for Chained {
        fn drop(&mut self) {
            if self.0 > 0 {
                LocalSpares::keep_local(&CHAINED, Chained(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_value_may_lead_back_to_its_list_when_it_is_dropped() {
        let numbers = std::thread::spawn(|| {
            LocalSpares::keep_local(&CHAINED, Chained(5));
            // Not kept: its end finds the list full, too, and so on.
            LocalSpares::keep_local(&CHAINED, Chained(3));
            let kept = LocalSpares::take_local(&CHAINED).map(|mut one| std::mem::take(&mut one.0));
            // Left for the end of the thread.
            LocalSpares::keep_local(&CHAINED, Chained(2));
            kept
        });
        assert_eq!(numbers.join().unwrap(), Some(5));
    }
}
