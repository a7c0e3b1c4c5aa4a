//! Values that belong to modules, kept by owners that name no module: settings of a location, state of a
//! request.
//!
//! A module names each of its values with a [`Key`], a static of its own. Access costs an index and a
//! comparison of types; of settings, a comparison of a few numbers.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of keys so far. Grows only when a key is first used.
static KEYS: AtomicUsize = AtomicUsize::new(0);

/// The name of a value of type `T`.
pub struct Key<T> {
    number: OnceLock<usize>,
    empty: fn(&mut T) -> bool,
}

impl<T> Key<T> {
    /// A name that no other key equals.
    pub const fn new() -> Self {
        Self::reusing(|_| false)
    }

    /// The same, for state whose memory is reused: instead of being dropped, a value is made like a
    /// new one. The function does that; false: it can't, and the value is dropped.
    pub const fn reusing(empty: fn(&mut T) -> bool) -> Self {
        Self { number: OnceLock::new(), empty }
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

/// Settings of a location or of the whole configuration, shared by all workers.
///
/// Most locations have a few at most, so they are a short list, and not a table with a place for every
/// key.
#[derive(Default)]
pub struct Settings(Vec<(usize, Box<dyn Any + Send + Sync>)>);

impl Settings {
    /// Stores a value; replaces an earlier one.
    pub fn set<T: Send + Sync + 'static>(&mut self, key: &Key<T>, value: T) {
        let number = key.number();
        match self.0.iter_mut().find(|(known, _)| *known == number) {
            Some((_, old)) => *old = Box::new(value),
            None => {
                self.0.reserve_exact(1);
                self.0.push((number, Box::new(value)));
            }
        }
    }

    /// The value, if there is one.
    #[inline]
    pub fn get<T: 'static>(&self, key: &Key<T>) -> Option<&T> {
        let number = key.number();
        self.0.iter().find(|(known, _)| *known == number)?.1.downcast_ref()
    }

    /// The value, if there is one.
    pub fn get_mut<T: 'static>(&mut self, key: &Key<T>) -> Option<&mut T> {
        let number = key.number();
        self.0.iter_mut().find(|(known, _)| *known == number)?.1.downcast_mut()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Settings").field(&self.0.len()).finish()
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
    /// Values, or memory for them.
    values: [OnceCell<Box<dyn Slot>>; PAGE],
    /// The values in use: one bit for each.
    used: Cell<u16>,
    next: OnceCell<Box<Page>>,
}

const _: () = assert!(PAGE == u16::BITS as usize);

/// A value of any type.
trait Slot: Any {
    /// Ends the use of the value; false: its memory can't be reused.
    fn end(&mut self) -> bool;
}

/// A value, and how its memory is reused.
struct Value<T> {
    value: T,
    empty: fn(&mut T) -> bool,
}

impl<T: 'static> Value<T> {
    fn boxed(key: &Key<T>, value: T) -> Box<dyn Slot> {
        Box::new(Self { value, empty: key.empty })
    }

    fn of(slot: &dyn Slot) -> Option<&Self> {
        (slot as &dyn Any).downcast_ref()
    }
}

impl<T: 'static> Slot for Value<T> {
    fn end(&mut self) -> bool {
        (self.empty)(&mut self.value)
    }
}

impl Page {
    /// The value in use at this place.
    fn get(&self, at: usize) -> Option<&dyn Slot> {
        match at.checked_sub(PAGE) {
            None if self.used.get() & (1 << at) == 0 => None,
            None => self.values[at].get().map(|slot| &**slot),
            Some(at) => self.next.get()?.get(at),
        }
    }

    /// The place of a value, which is going to be in use.
    fn cell(&self, at: usize) -> &OnceCell<Box<dyn Slot>> {
        match at.checked_sub(PAGE) {
            None => {
                self.used.set(self.used.get() | 1 << at);
                &self.values[at]
            }
            Some(at) => self.next.get_or_init(Box::default).cell(at),
        }
    }

    /// The same, to change it.
    fn cell_mut(&mut self, at: usize) -> &mut OnceCell<Box<dyn Slot>> {
        match at.checked_sub(PAGE) {
            None => {
                *self.used.get_mut() |= 1 << at;
                &mut self.values[at]
            }
            Some(at) => {
                self.next.get_or_init(Box::default);
                self.next.get_mut().expect("it was just made").cell_mut(at)
            }
        }
    }

    /// Removes and returns the value in use at this place.
    fn take(&mut self, at: usize) -> Option<Box<dyn Slot>> {
        match at.checked_sub(PAGE) {
            None => {
                let used = self.used.replace(self.used.get() & !(1 << at));
                (used & 1 << at != 0).then(|| self.values[at].take())?
            }
            Some(at) => self.next.get_mut()?.take(at),
        }
    }

    fn clear(&mut self) {
        let mut used = self.used.take();
        while used != 0 {
            let value = &mut self.values[used.trailing_zeros() as usize];
            if value.get_mut().is_some_and(|slot| !slot.end()) {
                value.take();
            }
            used &= used - 1;
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
        let slot = self.0.get()?.get(key.number())?;
        Value::<T>::of(slot).map(|slot| &slot.value)
    }

    /// The value, made now if necessary.
    ///
    /// # Panics
    /// Never: a key has only values of its own type.
    pub fn of<T: Default + 'static>(&self, key: &Key<T>) -> &T {
        let cell = self.0.get_or_init(Box::default).cell(key.number());
        let slot = cell.get_or_init(|| Value::boxed(key, T::default()));
        let slot = Value::<T>::of(&**slot).expect("a key has values of one type");
        &slot.value
    }

    /// The value, made now if necessary.
    ///
    /// # Panics
    /// Never: a key has only values of its own type.
    pub fn of_mut<T: Default + 'static>(&mut self, key: &Key<T>) -> &mut T {
        let cell = self.cell_mut(key);
        cell.get_or_init(|| Value::boxed(key, T::default()));
        let slot: &mut dyn Any = &mut **cell.get_mut().expect("it was just made");
        let slot: &mut Value<T> = slot.downcast_mut().expect("a key has values of one type");
        &mut slot.value
    }

    /// Stores a value; replaces an earlier one.
    pub fn set<T: 'static>(&mut self, key: &Key<T>, value: T) {
        *self.cell_mut(key) = OnceCell::from(Value::boxed(key, value));
    }

    /// Removes and returns a value.
    pub fn take<T: 'static>(&mut self, key: &Key<T>) -> Option<T> {
        let slot: Box<dyn Any> = self.0.get_mut()?.take(key.number())?;
        slot.downcast().ok().map(|slot: Box<Value<T>>| slot.value)
    }

    fn cell_mut<T>(&mut self, key: &Key<T>) -> &mut OnceCell<Box<dyn Slot>> {
        self.0.get_or_init(Box::default);
        self.0.get_mut().expect("it was just made").cell_mut(key.number())
    }

    /// Drops all values, but keeps the memory that [`Key::reusing`] is about.
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
        *settings.get_mut(&A).unwrap() += 2;
        assert_eq!((settings.get(&A), settings.get(&B)), (Some(&3), Some(&2)));
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
    fn memory_is_reused() {
        static TEXT: Key<String> = Key::reusing(|text| {
            text.clear();
            text.capacity() < 100
        });
        let mut state = State::default();
        state.of_mut(&TEXT).push_str("text");
        let memory = state.of(&TEXT).as_ptr();
        state.clear();
        assert_eq!(state.get(&TEXT), None);
        assert_eq!(state.of(&TEXT).as_ptr(), memory);
        assert_eq!(state.get(&TEXT).map(String::as_str), Some(""));
        state.of_mut(&TEXT).reserve(100);
        state.clear();
        assert_eq!(state.take(&TEXT), None);
        assert_eq!(state.of(&TEXT).capacity(), 0);
        state.set(&TEXT, "other".to_owned());
        assert_eq!(state.take(&TEXT).as_deref(), Some("other"));
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
