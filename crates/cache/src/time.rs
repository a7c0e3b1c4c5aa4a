//! Wall-clock times as the cache stores them. Reads no clock: callers pass `now`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970. Wall-clock time, because it outlives the process in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// The epoch: the "valid until" of responses that are stale from the start, or of unknown
    /// validity.
    pub const ZERO: Self = Self(0);
    /// Later than any other time.
    pub const NEVER: Self = Self(u64::MAX);

    /// From seconds, as HTTP dates have them; times before 1970 become [`UnixMs::ZERO`].
    pub fn from_secs(secs: i64) -> Self {
        Self(u64::try_from(secs).unwrap_or(0).saturating_mul(1000))
    }

    /// Whole seconds since 1970.
    pub fn secs(self) -> u64 {
        self.0 / 1000
    }

    /// This time plus `duration`, at most [`UnixMs::NEVER`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time elapsed since `earlier`; zero if the clock was set back.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for UnixMs {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_never_wraps() {
        assert_eq!(UnixMs::NEVER.after(Duration::from_secs(1)), UnixMs::NEVER);
        assert_eq!(UnixMs(5).since(UnixMs(9)), Duration::ZERO);
        assert_eq!(UnixMs::from_secs(-3), UnixMs::ZERO);
        assert_eq!(UnixMs::from_secs(3).after(Duration::from_millis(4)), UnixMs(3004));
    }
}
