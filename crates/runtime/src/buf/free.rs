//! Free lists of the memory of dropped buffers.

/// A free list that remembers its low-water mark since the last trim.
pub(super) struct Free<T> {
    pub(super) items: Vec<T>,
    /// Smallest length since the last trim: this many buffers were not needed at all.
    low: usize,
    /// Something was asked for. A thread that only drops the buffers of others, as those of pools do, keeps
    /// nothing, since it would not use it.
    lends: bool,
}

impl<T> Free<T> {
    pub(super) const fn new() -> Free<T> {
        Free { items: Vec::new(), low: 0, lends: false }
    }

    pub(super) fn take(&mut self) -> Option<T> {
        self.lends = true;
        let item = self.items.pop();
        self.low = self.low.min(self.items.len());
        item
    }

    /// Takes the last item, if it fits.
    pub(super) fn take_if(&mut self, is_fit: impl FnOnce(&T) -> bool) -> Option<T> {
        self.lends = true;
        if self.items.last().is_some_and(is_fit) { self.take() } else { None }
    }

    /// Keeps `item`, or returns it to be freed when `max` are already kept, or this thread lends none.
    pub(super) fn put(&mut self, item: T, max: usize) -> Option<T> {
        if !self.lends || self.items.len() >= max {
            return Some(item);
        }
        self.items.push(item);
        None
    }

    /// Frees half of the items that were not needed since the last call, but keeps at least `min`.
    pub(super) fn trim(&mut self, min: usize) {
        debug_assert!(self.low <= self.items.len(), "the lowest length since the last call");
        let spare = self.low.saturating_sub(min).div_ceil(2);
        self.items.truncate(self.items.len() - spare);
        self.low = self.items.len();
    }
}

#[cfg(test)]
mod tests {
    use super::Free;

    #[test]
    fn only_those_who_lend_keep() {
        let mut free = Free::new();
        assert_eq!(free.put(1, 10), Some(1));
        assert_eq!(free.take(), None);
        assert_eq!(free.put(2, 1), None);
        assert_eq!(free.put(3, 1), Some(3), "no more than so many");
        assert_eq!(free.take(), Some(2));
    }
}
