//! The times of orders and renewals of a certificate, of requests for renewal information, and of retries.

use std::time::{Duration, Instant, SystemTime};

use crate::renewal::{Renewal, holds};
use crate::response::IssueError;

/// The first pause after a failure.
const PAUSE_MIN: Duration = Duration::from_secs(60);

/// The longest pause that grew by failures.
const PAUSE_MAX: Duration = Duration::from_secs(12 * 3600);

/// The least pause after a success.
const HOLD_MIN: Duration = Duration::from_secs(1);

/// The longest pause that an issuer can request.
const ASKED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The pause while another instance orders.
const LOCKED: Duration = Duration::from_secs(5);

/// The pause before renewal information is requested again from an issuer without it.
const LACKING: Duration = Duration::from_secs(24 * 3600);

/// The period of a certificate's validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The beginning.
    pub from: SystemTime,
    /// The end.
    pub until: SystemTime,
}

impl Validity {
    /// A part of the lifetime after the beginning, in twentieths.
    fn after(self, twentieths: u32) -> SystemTime {
        let lifetime = self.until.duration_since(self.from).unwrap_or_default();
        self.from + lifetime / 20 * twentieths
    }

    /// At two thirds of the lifetime, up to a twentieth of it earlier. `random` decides how much, so
    /// that certificates issued together are not renewed together.
    fn two_thirds(self, random: u16) -> SystemTime {
        let lifetime = self.until.duration_since(self.from).unwrap_or_default();
        let early = lifetime / 20 * u32::from(random) / u32::from(u16::MAX);
        self.from + (lifetime / 3 * 2).saturating_sub(early)
    }
}

/// The due action for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalAction {
    /// None, for this time.
    Wait(Duration),
    /// Request the renewal time from the issuer, and report it by [`Schedule::informed`].
    Inquire,
    /// Order it, and report by [`Schedule::renewed`], [`Schedule::failed`] or [`Schedule::locked`].
    Order,
}

/// The schedule of one certificate. Pauses are of the monotonic clock, because a wrong date must not make
/// them last for years.
#[derive(Clone, Debug)]
pub struct Schedule {
    random: u16,
    failures: u32,
    held_until: Option<Instant>,
    /// The pause is the issuer's wish.
    is_asked: bool,
    renewal: Option<Renewal>,
    inquire_at: Option<Instant>,
}

impl Schedule {
    /// A new schedule; `random` chooses times within windows.
    pub fn new(random: u16) -> Self {
        Self {
            random,
            failures: 0,
            held_until: None,
            is_asked: false,
            renewal: None,
            inquire_at: None,
        }
    }

    /// The action due now, given the validity of the certificate, if there is one.
    pub fn next(
        &self,
        validity: Option<Validity>,
        wall: SystemTime,
        now: Instant,
    ) -> RenewalAction {
        let left = |time: Option<Instant>| {
            time.map_or(Duration::ZERO, |time| time.saturating_duration_since(now))
        };
        let held = left(self.held_until);
        let Some(validity) = validity else {
            return if held.is_zero() { RenewalAction::Order } else { RenewalAction::Wait(held) };
        };
        let inquire = left(self.inquire_at);
        if inquire.is_zero() {
            return RenewalAction::Inquire;
        }
        let order = self.due(validity).duration_since(wall).unwrap_or_default().max(held);
        match order.is_zero() {
            true => RenewalAction::Order,
            false => RenewalAction::Wait(order.min(inquire)),
        }
    }

    /// The renewal time of a certificate: as suggested by the issuer, otherwise at two thirds of its
    /// lifetime; in any case before nine tenths have passed.
    pub fn due(&self, validity: Validity) -> SystemTime {
        let wished = self.renewal.as_ref().map(|renewal| renewal.time(self.random));
        let due = wished.unwrap_or_else(|| validity.two_thirds(self.random));
        due.min(validity.after(18))
    }

    /// Records the issuer's renewal information; `None`: it has none. After a failure, the last answer
    /// remains valid.
    pub fn informed(&mut self, answer: &Result<Option<Renewal>, IssueError>, now: Instant) {
        let pause = match answer {
            Ok(Some(renewal)) => {
                self.renewal = Some(renewal.clone());
                renewal.holds
            }
            Ok(None) => {
                self.renewal = None;
                LACKING
            }
            Err(failure) => holds(failure.retry_after),
        };
        self.inquire_at = Some(now + pause);
    }

    /// There is a certificate that this schedule has not seen.
    pub fn replaced(&mut self) {
        (self.renewal, self.inquire_at) = (None, None);
    }

    /// An order succeeded. The next one waits for a twentieth of the lifetime, regardless of renewal information.
    /// If the new certificate is due again already, the next attempt waits as after a failure: that pause is
    /// returned.
    pub fn renewed(
        &mut self,
        validity: Validity,
        random: u16,
        wall: SystemTime,
        now: Instant,
    ) -> Option<Duration> {
        self.replaced();
        if self.due(validity) <= wall {
            return Some(self.failed(None, random, now));
        }
        self.failures = 0;
        self.is_asked = false;
        let lifetime = validity.until.duration_since(validity.from).unwrap_or_default();
        self.held_until = Some(now + (lifetime / 20).clamp(HOLD_MIN, PAUSE_MAX));
        None
    }

    /// An order failed; returns the pause that follows. It doubles each time, and `random` adds up to
    /// a quarter. An issuer may ask for a longer one (`Retry-After`).
    pub fn failed(&mut self, asked: Option<Duration>, random: u16, now: Instant) -> Duration {
        let own = (PAUSE_MIN * (1 << self.failures.min(10))).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        let jitter = own / 4 * u32::from(random) / u32::from(u16::MAX);
        let asked = asked.unwrap_or_default().min(ASKED_MAX);
        let pause = (own + jitter).max(asked);
        self.is_asked = asked > own;
        self.held_until = Some(now + pause);
        pause
    }

    /// Another instance is ordering.
    pub fn locked(&mut self, random: u16, now: Instant) {
        let jitter = LOCKED * u32::from(random) / u32::from(u16::MAX);
        self.is_asked = false;
        self.held_until = Some(now + LOCKED + jitter);
    }

    /// The operator has changed something: a failed attempt is repeated at once, unless the issuer asked for
    /// a pause. The pause after a success stays: reloads may be frequent.
    pub fn reloaded(&mut self) {
        if self.failures > 0 && !self.is_asked {
            self.held_until = None;
        }
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn valid(from: SystemTime, days: u32) -> Validity {
        Validity { from, until: from + days * DAY }
    }

    /// A schedule whose issuer has no renewal information.
    fn plain(random: u16) -> Schedule {
        let mut schedule = Schedule::new(random);
        schedule.informed(&Ok(None), Instant::now() + 10000 * DAY);
        schedule
    }

    fn failure(asked: Option<Duration>) -> IssueError {
        IssueError { text: "dead".to_owned(), retry_after: asked }
    }

    #[test]
    fn renewal_precedes_the_end() {
        let validity = valid(UNIX_EPOCH, 90);
        assert_eq!(plain(0).due(validity), UNIX_EPOCH + 60 * DAY);
        let earliest = plain(u16::MAX).due(validity);
        assert!(earliest < UNIX_EPOCH + 56 * DAY && earliest > UNIX_EPOCH + 55 * DAY);
        // A certificate without sense is due at once.
        let odd = Validity { from: UNIX_EPOCH + DAY, until: UNIX_EPOCH };
        assert_eq!(plain(7).due(odd), UNIX_EPOCH + DAY);
    }

    #[test]
    fn the_issuer_decides_within_reason() {
        let now = Instant::now();
        let validity = valid(UNIX_EPOCH, 90);
        let mut schedule = Schedule::new(u16::MAX);
        assert_eq!(schedule.next(Some(validity), UNIX_EPOCH, now), RenewalAction::Inquire);
        let window = |start: u32, end: u32| Renewal {
            start: UNIX_EPOCH + start * DAY,
            end: UNIX_EPOCH + end * DAY,
            holds: 6 * HOUR,
        };
        schedule.informed(&Ok(Some(window(30, 31))), now);
        assert_eq!(schedule.due(validity), UNIX_EPOCH + 31 * DAY);
        assert_eq!(schedule.next(Some(validity), UNIX_EPOCH, now), RenewalAction::Wait(6 * HOUR));
        let later = now + 6 * HOUR;
        assert_eq!(schedule.next(Some(validity), UNIX_EPOCH, later), RenewalAction::Inquire);
        // An issuer without an answer changes nothing; the request is repeated after six hours.
        schedule.informed(&Err(failure(None)), later);
        assert_eq!(schedule.due(validity), UNIX_EPOCH + 31 * DAY);
        assert_eq!(schedule.next(Some(validity), UNIX_EPOCH, later), RenewalAction::Wait(6 * HOUR));
        schedule.informed(&Err(failure(Some(Duration::MAX))), later);
        assert_eq!(
            schedule.next(Some(validity), UNIX_EPOCH, later),
            RenewalAction::Wait(24 * HOUR)
        );
        // A revoked certificate.
        schedule.informed(&Ok(Some(window(0, 1))), later);
        let wall = UNIX_EPOCH + 2 * DAY;
        assert_eq!(schedule.next(Some(validity), wall, later), RenewalAction::Order);
        // A window after the end.
        schedule.informed(&Ok(Some(window(1000, 2000))), later);
        assert_eq!(schedule.due(validity), UNIX_EPOCH + 81 * DAY);
        schedule.informed(&Ok(None), later);
        assert_eq!(schedule.next(Some(validity), UNIX_EPOCH, later), RenewalAction::Wait(LACKING));
    }

    #[test]
    fn pauses_grow_and_obey() {
        let (mut schedule, now) = (Schedule::new(0), Instant::now());
        let mut pause = |asked| schedule.failed(asked, 0, now);
        let pauses: Vec<_> = (0..12).map(|_| pause(None).as_secs() / 60).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 720, 720]);
        assert_eq!(pause(Some(DAY)), DAY);
        assert_eq!(pause(Some(Duration::from_secs(u64::MAX))), ASKED_MAX);
        assert_eq!(schedule.next(None, UNIX_EPOCH, now), RenewalAction::Wait(ASKED_MAX));
        // A reload does not shorten the pause requested by the issuer.
        schedule.reloaded();
        assert_eq!(schedule.next(None, UNIX_EPOCH, now), RenewalAction::Wait(ASKED_MAX));
        assert_eq!(schedule.failed(Some(Duration::from_secs(1)), 0, now), PAUSE_MIN);
        schedule.reloaded();
        assert_eq!(schedule.next(None, UNIX_EPOCH, now), RenewalAction::Order);
        schedule.locked(0, now);
        assert_eq!(schedule.next(None, UNIX_EPOCH, now), RenewalAction::Wait(LOCKED));
    }

    #[test]
    fn a_certificate_that_is_due_at_once_is_not_ordered_in_circles() {
        let (mut schedule, now) = (Schedule::new(0), Instant::now());
        let expired = valid(UNIX_EPOCH, 1);
        let wall = UNIX_EPOCH + 10 * DAY;
        assert_eq!(schedule.renewed(expired, 0, wall, now), Some(PAUSE_MIN));
        assert_eq!(schedule.renewed(expired, 0, wall, now), Some(2 * PAUSE_MIN));
        assert_eq!(schedule.renewed(valid(wall, 90), 0, wall, now), None);
        assert_eq!(schedule.failed(None, 0, now), PAUSE_MIN);
    }

    #[test]
    fn a_window_that_is_always_in_the_past_is_not_obeyed_in_circles() {
        let (mut schedule, now) = (Schedule::new(0), Instant::now());
        let wall = UNIX_EPOCH + 10 * DAY;
        let past = Renewal { start: UNIX_EPOCH, end: UNIX_EPOCH + DAY, holds: 24 * HOUR };
        let backwards = Validity { from: wall + DAY, until: wall };
        for (validity, hold) in [
            (valid(wall, 90), PAUSE_MAX),
            (valid(wall, 1), DAY / 20),
            (backwards, Duration::from_secs(1)),
        ] {
            assert_eq!(schedule.renewed(validity, 0, wall, now), None);
            assert_eq!(schedule.next(Some(validity), wall, now), RenewalAction::Inquire);
            schedule.informed(&Ok(Some(past.clone())), now);
            assert_eq!(schedule.next(Some(validity), wall, now), RenewalAction::Wait(hold));
            assert_eq!(
                schedule.next(Some(validity), wall + hold, now + hold),
                RenewalAction::Order
            );
        }
        // A reload does not shorten the pause.
        let validity = valid(wall, 90);
        schedule.renewed(validity, 0, wall, now);
        schedule.informed(&Ok(Some(past.clone())), now);
        schedule.reloaded();
        assert_eq!(schedule.next(Some(validity), wall, now), RenewalAction::Wait(PAUSE_MAX));
        // It is not the issuer's wish: that of a later failure ends with a reload.
        let later = now + PAUSE_MAX;
        schedule.failed(None, 0, later);
        schedule.reloaded();
        assert_eq!(schedule.next(Some(validity), wall, later), RenewalAction::Order);
    }

    /// Two years, in which the issuer is dead for four months: certificates are renewed before they
    /// end, with the issuer back within a day, and it is asked a bounded number of times.
    #[test]
    fn two_years_on_a_virtual_clock() {
        for has_information in [false, true] {
            let start = (UNIX_EPOCH, Instant::now());
            let is_dead = |passed: Duration| (100 * DAY..220 * DAY).contains(&passed);
            let (mut schedule, mut validity, mut passed) =
                (Schedule::new(1000), None, Duration::ZERO);
            let (mut orders, mut failures, mut inquiries) = (0, 0, 0);
            while passed < 730 * DAY {
                let (wall, now) = (start.0 + passed, start.1 + passed);
                match schedule.next(validity, wall, now) {
                    RenewalAction::Wait(time) => {
                        assert!(!time.is_zero());
                        passed += time;
                    }
                    RenewalAction::Inquire => {
                        inquiries += 1;
                        let Validity { from, .. } = validity.expect("only then it is asked");
                        let (start, end) = (from + 58 * DAY, from + 62 * DAY);
                        schedule.informed(
                            &match (is_dead(passed), has_information) {
                                (true, _) => Err(failure(None)),
                                (false, false) => Ok(None),
                                (false, true) => Ok(Some(Renewal { start, end, holds: 6 * HOUR })),
                            },
                            now,
                        );
                    }
                    RenewalAction::Order if is_dead(passed) => {
                        failures += 1;
                        schedule.failed(None, 30000, now);
                    }
                    RenewalAction::Order => {
                        orders += 1;
                        let in_time = validity.is_none_or(|valid: Validity| wall < valid.until);
                        assert!(in_time || passed < 221 * DAY, "{passed:?}");
                        let own = valid(wall, 90);
                        assert_eq!(schedule.renewed(own, 0, wall, now), None);
                        validity = Some(own);
                    }
                }
            }
            assert!((10..14).contains(&orders), "{orders}");
            assert!((50..300).contains(&failures), "{failures}");
            assert!(inquiries < 730 * 4 + orders, "{inquiries}");
        }
    }
}
