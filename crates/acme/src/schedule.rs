//! When a certificate is renewed, and when a failed attempt is repeated.

use std::time::{Duration, SystemTime};

/// The first pause after a failure.
const PAUSE_MIN: Duration = Duration::from_secs(60);

/// The longest pause that grew by failures.
const PAUSE_MAX: Duration = Duration::from_secs(12 * 3600);

/// The longest pause that an issuer can ask for.
const ASKED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// When a certificate is renewed: at two thirds of its lifetime, up to a twentieth of it earlier.
/// `random` decides how much, so that certificates issued together are not renewed together.
pub fn due(from: SystemTime, until: SystemTime, random: u16) -> SystemTime {
    let lifetime = until.duration_since(from).unwrap_or_default();
    let early = lifetime / 20 * u32::from(random) / u32::from(u16::MAX);
    from + (lifetime / 3 * 2).saturating_sub(early)
}

/// Consecutive failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    failures: u32,
}

impl Retry {
    /// The pause after another failure: it doubles each time. An issuer may ask for a longer one
    /// (`Retry-After`). `random` adds up to a quarter.
    pub fn pause(&mut self, asked: Option<Duration>, random: u16) -> Duration {
        let doubled = PAUSE_MIN * (1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        let pause = doubled.min(PAUSE_MAX);
        let pause = pause + pause / 4 * u32::from(random) / u32::from(u16::MAX);
        pause.max(asked.unwrap_or_default().min(ASKED_MAX))
    }

    /// An attempt succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn renewal_precedes_the_end() {
        let until = UNIX_EPOCH + 90 * DAY;
        assert_eq!(due(UNIX_EPOCH, until, 0), UNIX_EPOCH + 60 * DAY);
        let earliest = due(UNIX_EPOCH, until, u16::MAX);
        assert!(earliest < UNIX_EPOCH + 56 * DAY && earliest > UNIX_EPOCH + 55 * DAY);
        // A certificate without sense is due at once.
        assert_eq!(due(until, UNIX_EPOCH, 7), until);
    }

    #[test]
    fn pauses_grow_and_obey() {
        let mut retry = Retry::default();
        let minutes = |pause: Duration| pause.as_secs() / 60;
        let pauses: Vec<_> = (0..12).map(|_| minutes(retry.pause(None, 0))).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 720, 720]);
        assert_eq!(retry.pause(Some(DAY), 0), DAY);
        assert_eq!(retry.pause(Some(1000 * DAY), 0), ASKED_MAX);
        retry.reset();
        assert_eq!(retry.pause(Some(Duration::from_secs(1)), 0), PAUSE_MIN);
    }

    /// A year in which the issuer is dead for four months: a certificate is renewed before it ends,
    /// and after the outage within a day.
    #[test]
    fn a_year_on_a_virtual_clock() {
        let mut now = UNIX_EPOCH;
        let (dead_from, dead_until) = (UNIX_EPOCH + 100 * DAY, UNIX_EPOCH + 220 * DAY);
        let (mut from, mut retry, mut attempts) = (now, Retry::default(), 0);
        while now < UNIX_EPOCH + 365 * DAY {
            let at = due(from, from + 90 * DAY, 1000);
            if now < at {
                now = at;
                continue;
            }
            attempts += 1;
            if (dead_from..dead_until).contains(&now) {
                now += retry.pause(None, 0);
            } else {
                assert!(now < from + 90 * DAY || now < dead_until + DAY);
                retry.reset();
                from = now;
            }
        }
        assert!(attempts < 300, "{attempts}");
    }
}
