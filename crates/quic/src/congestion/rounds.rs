//! Round trips, as acknowledgements show them: the shortest time of each, and so whether packets wait in a queue.
//!
//! Called by the controller. Sans-IO: times are arguments.

use std::time::{Duration, Instant};

/// Samples of a round trip from which on its shortest time says something (RFC 9406, 4.3: N_RTT_SAMPLE).
const SAMPLES_MIN: u32 = 8;

/// The same for losses: a window may be small.
const SAMPLES_OF_LOSS_MIN: u32 = 3;

/// Round trips.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    /// The current one ends when a packet is acknowledged that was sent after this.
    since: Instant,
    samples: u32,
    /// The shortest time of the current one, of the one before, and of all.
    current: Duration,
    last: Duration,
    shortest: Duration,
}

impl Rounds {
    pub(super) fn new(now: Instant) -> Rounds {
        Rounds {
            since: now,
            samples: 0,
            current: Duration::MAX,
            last: Duration::MAX,
            shortest: Duration::MAX,
        }
    }

    /// A packet was acknowledged. True: another round trip begins with it.
    pub(super) fn acked(&mut self, now: Instant, sent: Instant) -> bool {
        let begins = sent >= self.since;
        if begins {
            self.since = now;
            self.samples = 0;
            self.last = std::mem::replace(&mut self.current, Duration::MAX);
        }
        // Of packets that are acknowledged together, the last one has waited least at the receiver: the shortest time
        // is its.
        let time = now.saturating_duration_since(sent);
        self.samples += 1;
        self.current = self.current.min(time);
        self.shortest = self.shortest.min(time);
        begins
    }

    /// The shortest times of this round trip and of the last one, when enough is known of this one.
    pub(super) fn compared(&self) -> Option<(Duration, Duration)> {
        let known = self.samples >= SAMPLES_MIN && self.last < Duration::MAX;
        known.then_some((self.current, self.last))
    }

    /// What packets have waited in queues lately, at least; `None`: nothing is known.
    pub(super) fn queueing(&self) -> Option<Duration> {
        let lately = match self.samples {
            SAMPLES_OF_LOSS_MIN.. => self.current,
            _ => self.last.min(self.current),
        };
        (lately < Duration::MAX).then(|| lately.saturating_sub(self.shortest))
    }

    /// The shortest time ever.
    pub(super) fn shortest(&self) -> Duration {
        self.shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_round_trip_ends_with_what_was_sent_in_it() {
        let begin = Instant::now();
        let mut rounds = Rounds::new(begin);
        // Sent at once; acknowledged after 20 ms.
        assert!(rounds.acked(begin + 20 * MS, begin));
        assert!(!rounds.acked(begin + 21 * MS, begin + MS));
        assert!(!rounds.acked(begin + 39 * MS, begin + 19 * MS));
        assert!(rounds.acked(begin + 40 * MS, begin + 20 * MS));
        assert_eq!(rounds.last, 20 * MS);
    }

    #[test]
    fn a_queue_shows_in_the_shortest_time() {
        let begin = Instant::now();
        let mut rounds = Rounds::new(begin);
        assert_eq!(rounds.queueing(), None);
        rounds.acked(begin + 20 * MS, begin);
        assert_eq!(rounds.queueing(), Some(Duration::ZERO));
        // One that was delayed says nothing: others were not.
        for n in 0..4 {
            let sent = begin + (21 + n) * MS;
            rounds.acked(sent + if n == 2 { 50 * MS } else { 20 * MS }, sent);
        }
        assert_eq!(rounds.queueing(), Some(Duration::ZERO));
        for n in 0..4 {
            let sent = begin + (100 + n) * MS;
            rounds.acked(sent + 27 * MS, sent);
        }
        assert_eq!(rounds.queueing(), Some(7 * MS));
    }

    #[test]
    fn round_trips_are_compared_when_both_are_known() {
        let begin = Instant::now();
        let mut rounds = Rounds::new(begin);
        for n in 0..20 {
            rounds.acked(begin + 20 * MS + n * MS / 10, begin + n * MS / 10);
        }
        assert_eq!(rounds.compared(), None);
        for n in 0..8 {
            rounds.acked(begin + 45 * MS + n * MS / 10, begin + 21 * MS + n * MS / 10);
        }
        assert_eq!(rounds.compared(), Some((24 * MS, 20 * MS)));
    }
}
