//! Values that belong to modules, kept by owners that name no module: settings of a location, state of a
//! request.
//!
//! A module names each of its values with a [`Key`], a static of its own. Access costs an index and a
//! comparison of types.

use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of keys so far. Grows only when a key is first used.
static KEYS: AtomicUsize = AtomicUsize::new(0);

/// The name of a value of type `T`.
pub struct Key<T> {
    number: OnceLock<usize>,
    value: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    /// A name that no other key equals.
    pub const fn new() -> Self {
        Self { number: OnceLock::new(), value: PhantomData }
    }

    #[inline]
    fn number(&self) -> usize {
        // Only the numbers' being different matters.
        *self.number.get_or_init(|| KEYS.fetch_add(1, Ordering::Relaxed))
    }
}

impl<T> Default for Key<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Settings of a location, shared by all workers.
#[derive(Default)]
pub struct Settings(Vec<Option<Box<dyn Any + Send + Sync>>>);

impl Settings {
    /// Keeps a value; replaces an earlier one.
    pub fn set<T: Send + Sync + 'static>(&mut self, key: &Key<T>, value: T) {
        let at = key.number();
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(Box::new(value));
    }

    /// The value, if there is one.
    #[inline]
    pub fn get<T: 'static>(&self, key: &Key<T>) -> Option<&T> {
        self.0.get(key.number())?.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Settings").field(&self.0.iter().flatten().count()).finish()
    }
}

/// State that modules keep for a request, made at its first use.
#[derive(Default)]
pub struct State(OnceCell<Box<Page>>);

/// Keys per page: a module's state is rarely needed, and most requests have none at all.
const PAGE: usize = 16;

/// A part of the values, and the next part.
#[derive(Default)]
struct Page {
    values: [OnceCell<Box<dyn Any>>; PAGE],
    next: OnceCell<Box<Page>>,
}

impl Page {
    fn cell(&self, at: usize) -> Option<&OnceCell<Box<dyn Any>>> {
        match at.checked_sub(PAGE) {
            None => self.values.get(at),
            Some(at) => self.next.get()?.cell(at),
        }
    }

    fn cell_made(&self, at: usize) -> &OnceCell<Box<dyn Any>> {
        match at.checked_sub(PAGE) {
            None => &self.values[at],
            Some(at) => self.next.get_or_init(Box::default).cell_made(at),
        }
    }

    fn cell_mut(&mut self, at: usize) -> &mut OnceCell<Box<dyn Any>> {
        match at.checked_sub(PAGE) {
            None => &mut self.values[at],
            Some(at) => {
                self.next.get_or_init(Box::default);
                self.next.get_mut().expect("it was just made").cell_mut(at)
            }
        }
    }

    fn clear(&mut self) {
        for value in &mut self.values {
            value.take();
        }
        if let Some(next) = self.next.get_mut() {
            next.clear();
        }
    }
}

impl State {
    /// The value, if it was made.
    #[inline]
    pub fn get<T: 'static>(&self, key: &Key<T>) -> Option<&T> {
        self.0.get()?.cell(key.number())?.get()?.downcast_ref()
    }

    /// The value, made now if necessary.
    ///
    /// # Panics
    /// Never: a key has only values of its own type.
    pub fn of<T: Default + 'static>(&self, key: &Key<T>) -> &T {
        let cell = self.0.get_or_init(Box::default).cell_made(key.number());
        let value = cell.get_or_init(|| Box::new(T::default()));
        value.downcast_ref().expect("a key has values of one type")
    }

    /// The value, made now if necessary.
    ///
    /// # Panics
    /// Never: a key has only values of its own type.
    pub fn of_mut<T: Default + 'static>(&mut self, key: &Key<T>) -> &mut T {
        self.0.get_or_init(Box::default);
        let page = self.0.get_mut().expect("it was just made");
        let cell = page.cell_mut(key.number());
        cell.get_or_init(|| Box::new(T::default()));
        let value = cell.get_mut().expect("it was just made");
        value.downcast_mut().expect("a key has values of one type")
    }

    /// Drops a value and returns it.
    pub fn take<T: 'static>(&mut self, key: &Key<T>) -> Option<T> {
        let at = key.number();
        self.0.get()?.cell(at)?;
        let value = self.0.get_mut()?.cell_mut(at).take()?;
        value.downcast().ok().map(|value| *value)
    }

    /// Drops all values.
    pub fn clear(&mut self) {
        if let Some(page) = self.0.get_mut() {
            page.clear();
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_own_value() {
        static A: Key<u8> = Key::new();
        static B: Key<u8> = Key::new();
        let mut settings = Settings::default();
        settings.set(&B, 2);
        assert_eq!((settings.get(&A), settings.get(&B)), (None, Some(&2)));
        settings.set(&A, 1);
        assert_eq!((settings.get(&A), settings.get(&B)), (Some(&1), Some(&2)));
    }

    #[test]
    fn state_is_made_when_it_is_used() {
        static TEXT: Key<String> = Key::new();
        let mut state = State::default();
        assert_eq!(state.get(&TEXT), None);
        state.of_mut(&TEXT).push('a');
        assert_eq!(state.of(&TEXT), "a");
        assert_eq!(state.take(&TEXT).as_deref(), Some("a"));
        assert_eq!(state.get(&TEXT), None);
        assert_eq!(state.of(&TEXT), "");
        state.of_mut(&TEXT).push('b');
        state.clear();
        assert_eq!(state.get(&TEXT), None);
    }

    #[test]
    fn there_may_be_many_keys() {
        let keys: Vec<Key<usize>> = (0..3 * PAGE).map(|_| Key::new()).collect();
        let mut state = State::default();
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(state.get(key), None);
            *state.of_mut(key) = n;
        }
        assert!(keys.iter().enumerate().all(|(n, key)| state.get(key) == Some(&n)));
        state.clear();
        assert!(keys.iter().all(|key| state.get(key).is_none()));
    }
}
