//! Detects that a peak of connections is over, so that the memory it left behind can be returned to
//! the system.
//!
//! The allocator keeps freed memory for the next allocation. After a peak, the rest of the machine
//! lacks that memory, and the allocator would only return it in calls that take too long to be made
//! by an event loop. The loop looks at its number of connections about once per second; the
//! embedder is notified (`Hooks::memory_freed`), and has another thread do the work.

/// If fewer connections than this were closed, their memory is not worth the work.
const GONE_MIN: usize = 128;

/// Number of consecutive checks for which the peak must be over: buffer pools shrink meanwhile, and a peak
/// that returns finds its memory still there.
const LOOKS: u32 = 8;

/// The maximum number of connections since memory was last returned.
#[derive(Debug, Default)]
pub(crate) struct Peak {
    most: usize,
    /// Number of checks for which it has been over.
    over: u32,
}

impl Peak {
    /// Called whenever the loop is idle. Returns whether at least half of the connections were closed.
    pub(crate) fn is_over(&mut self, connections: usize) -> bool {
        self.most = self.most.max(connections);
        self.most >= connections + GONE_MIN && self.most / 2 >= connections
    }

    /// Called about once per second; true, once, when memory should be returned.
    pub(crate) fn look(&mut self, connections: usize) -> bool {
        self.over = if self.is_over(connections) { self.over + 1 } else { 0 };
        if self.over < LOOKS {
            return false;
        }
        *self = Peak { most: connections, over: 0 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of checks of `connections` after which memory is returned.
    fn given_back(peak: &mut Peak, connections: usize) -> Option<u32> {
        (1..=2 * LOOKS).find(|_| peak.look(connections))
    }

    #[test]
    fn memory_is_given_back_once_after_a_peak() {
        let mut peak = Peak::default();
        assert_eq!(given_back(&mut peak, 9000), None);
        assert_eq!(given_back(&mut peak, 4501), None, "more than half are there");
        assert_eq!(given_back(&mut peak, 4500), Some(LOOKS));
        assert_eq!(given_back(&mut peak, 4400), None, "few have gone since");
        assert_eq!(given_back(&mut peak, 0), Some(LOOKS));
        assert_eq!(given_back(&mut peak, 0), None);
    }

    #[test]
    fn a_peak_that_comes_back_keeps_its_memory() {
        let mut peak = Peak::default();
        for _ in 0..10 {
            peak.look(1000);
            assert!((1..LOOKS).all(|_| !peak.look(0)));
        }
    }

    #[test]
    fn few_connections_are_no_peak() {
        let mut peak = Peak::default();
        peak.look(GONE_MIN - 1);
        assert_eq!(given_back(&mut peak, 0), None);
    }
}
