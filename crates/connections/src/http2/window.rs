//! The receive window of a stream whose content is being read. It starts at [`BYTES`], which fills paths
//! of a local network, and grows where the round trip is longer, as long as the reader keeps up.
//!
//! What a client may have under way costs memory only if the reader stops. [`GROWN_BYTES_MAX`] bounds it
//! for a connection.

use std::time::{Duration, Instant};

use nowait_runtime::now;

/// The initial size in bytes, from the first read on. Before, the window is `http2_body_preread_size`.
pub(super) const BYTES: u32 = 256 * 1024;

/// The largest size in bytes: 320 Mbit/s with a round trip of 100 ms.
const BYTES_MAX: u32 = 4 * 1024 * 1024;

/// How much the windows of a connection's streams may have grown together, in bytes.
pub(super) const GROWN_BYTES_MAX: u32 = 8 * 1024 * 1024;

/// The window of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    size: u32,
    /// Since when `taken` counts.
    since: Instant,
    taken: u64,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { size: BYTES, since: now(), taken: 0 }
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// By how much it has grown.
    pub(super) fn grown(&self) -> u32 {
        self.size - BYTES
    }

    /// A reader has taken all that had arrived. Returns a larger size if content comes so fast that half
    /// of the window is under way during a round trip, so that the client may be waiting for it.
    pub(super) fn wanted(
        &mut self,
        bytes: usize,
        now: Instant,
        round_trip: impl FnOnce() -> Option<Duration>,
    ) -> Option<u32> {
        self.taken += bytes as u64;
        if self.taken < 2 * u64::from(self.size) || self.size >= BYTES_MAX {
            return None;
        }
        let elapsed = now.saturating_duration_since(self.since).as_micros();
        let taken = u128::from(std::mem::take(&mut self.taken));
        self.since = now;
        let under_way = (taken * round_trip()?.as_micros()).checked_div(elapsed)?;
        (under_way >= u128::from(self.size / 2)).then_some(2 * self.size)
    }

    /// Grows.
    pub(super) fn set(&mut self, size: u32) {
        self.size = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size after this many rounds in which a client sends a whole window, or as much as the
    /// `rate` in bytes per second allows.
    fn after(rounds: u32, round_trip: Duration, rate: u64) -> u32 {
        let mut clock = Instant::now();
        let mut window = Window { size: BYTES, since: clock, taken: 0 };
        for _ in 0..rounds {
            let bytes = window.size as usize;
            let rated = Duration::from_micros(bytes as u64 * 1_000_000 / rate);
            clock += round_trip.max(rated);
            if let Some(size) = window.wanted(bytes, clock, || Some(round_trip)) {
                window.set(size);
            }
        }
        window.size
    }

    #[test]
    fn long_paths_get_large_windows() {
        let (fast, slow) = (1 << 40, 1_000_000);
        assert_eq!(after(1, Duration::from_millis(100), fast), BYTES);
        assert_eq!(after(2, Duration::from_millis(100), fast), 2 * BYTES);
        assert_eq!(after(100, Duration::from_millis(100), fast), BYTES_MAX);
        // 1 MB/s has 100 KB under way in a tenth of a second.
        assert_eq!(after(100, Duration::from_millis(100), slow), BYTES);
        // 10 Gbit/s in a local network.
        assert_eq!(after(100, Duration::from_micros(50), 1_250_000_000), BYTES);
    }

    #[test]
    fn what_cannot_be_measured_changes_nothing() {
        let clock = Instant::now();
        let mut window = Window { size: BYTES, since: clock, taken: 0 };
        assert_eq!(window.wanted(1 << 30, clock, || Some(Duration::from_secs(1))), None);
        let later = clock + Duration::from_secs(1);
        assert_eq!(window.wanted(1 << 30, later, || None), None);
    }
}
