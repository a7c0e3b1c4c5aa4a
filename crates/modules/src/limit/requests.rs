//! Request rates: `limit_req`. nginx: `ngx_http_limit_req_module`.
//!
//! A leaky bucket per key: every request adds one to the bucket, and `rate` per second leak out of it.
//! The contents of the bucket besides the request itself are its excess; up to `burst` is accepted, and
//! anything above `delay` waits until it would have leaked. Counted in thousandths of a request and in
//! milliseconds.
//!
//! Called by the preaccess phase; independent of requests, and takes the time as an argument. Never waits,
//! but returns the time to wait.

use std::sync::Arc;

use nowait_front::limit::zone::{EntryPin, Full, Zone};
use nowait_front::limit::{Milli, ONE};

/// Size charged to each key of a zone besides its length, as in nginx: an address of either kind
/// takes 128 bytes.
const FIXED: u64 = 80;

/// Shortest time that a key is remembered, in milliseconds.
const EXPIRES_AFTER: i64 = 60_000;

/// Last use of a bucket that was never used: long enough ago for any excess to leak out.
const NEVER: i64 = -(1 << 40);

/// The buckets of a zone.
pub type Buckets = Zone<Bucket>;

/// The bucket of a key.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    /// The last use, in milliseconds.
    last: i64,
    excess: Milli,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { last: NEVER, excess: 0 }
    }
}

/// Creates the buckets of a zone of this many bytes.
pub fn buckets(bytes: u64) -> Arc<Buckets> {
    Arc::new(Zone::new(bytes, FIXED))
}

/// A limit of a location, and the request's key.
#[derive(Debug)]
pub struct BucketRequest<'a> {
    /// The zone's buckets.
    pub buckets: &'a Buckets,
    /// The zone's rate, in thousandths of a request per second; not zero.
    pub rate: Milli,
    /// Accepted excess.
    pub burst: Milli,
    /// Excess that need not wait.
    pub delay: Milli,
    /// The key; not empty.
    pub key: &'a [u8],
}

/// The result of a location's limits for a request. `limit` is the position of the deciding limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The request may continue.
    Pass,
    /// The request may continue after some milliseconds.
    Delay { ms: u64, excess: Milli, limit: usize },
    /// The limit is exceeded.
    Reject { excess: Milli, limit: usize },
    /// The zone has no room for the key.
    Full { limit: usize },
}

/// The result of one bucket.
enum BucketResult {
    Enough(Milli),
    TooMuch(Milli),
}

impl Bucket {
    /// The excess including one more request, and the elapsed time.
    fn with_one_more(&self, rate: Milli, now: i64) -> (Milli, i64) {
        // Workers read the clock at different times: it may seem to run backwards.
        let ms = (now - self.last).max(0);
        let leaked = rate.saturating_mul(ms.unsigned_abs()) / 1000;
        ((self.excess + ONE).saturating_sub(leaked), ms)
    }

    /// Counts the request.
    fn fill(&mut self, excess: Milli, ms: i64, now: i64) {
        self.excess = excess;
        if ms > 0 {
            self.last = now;
        }
    }

    fn expired(&self, rate: Milli, now: i64) -> bool {
        let ms = (now - self.last).abs();
        ms >= EXPIRES_AFTER && self.excess <= rate.saturating_mul(ms.unsigned_abs()) / 1000
    }
}

/// Time for the excess above `delay` to leak, in milliseconds.
fn wait(excess: Milli, delay: Milli, rate: Milli) -> u64 {
    excess.saturating_sub(delay).saturating_mul(1000) / rate.max(1)
}

/// Checks a request against all limits at time `now` (milliseconds). It counts only if every limit
/// accepts it; the longest wait decides.
///
/// The buckets of all limits but the last are pinned until the rest are checked.
pub fn ask(limits: &[BucketRequest<'_>], now: i64) -> Verdict {
    let Some((last, earlier)) = limits.split_last() else { return Verdict::Pass };
    let mut pinned: Vec<EntryPin> = Vec::with_capacity(earlier.len());
    for (limit, asked) in earlier.iter().enumerate() {
        let verdict = match asked.look(now, false) {
            Ok((place, BucketResult::Enough(_))) => {
                pinned.push(place);
                continue;
            }
            Ok((_, BucketResult::TooMuch(excess))) => Verdict::Reject { excess, limit },
            Err(Full) => Verdict::Full { limit },
        };
        unpin(limits, &pinned);
        return verdict;
    }
    let limit = earlier.len();
    let excess = match last.look(now, true) {
        Ok((_, BucketResult::Enough(excess))) => excess,
        Ok((_, BucketResult::TooMuch(excess))) => {
            unpin(limits, &pinned);
            return Verdict::Reject { excess, limit };
        }
        Err(Full) => {
            unpin(limits, &pinned);
            return Verdict::Full { limit };
        }
    };
    let mut longest = (wait(excess, last.delay, last.rate), excess, limit);
    for (limit, (asked, place)) in earlier.iter().zip(&pinned).enumerate().rev() {
        let excess = asked.buckets.at(place, |entry| {
            let (excess, ms) = entry.state.with_one_more(asked.rate, now);
            entry.state.fill(excess, ms, now);
            entry.pins -= 1;
            excess
        });
        let ms = wait(excess, asked.delay, asked.rate);
        if ms > longest.0 {
            longest = (ms, excess, limit);
        }
    }
    match longest {
        (0, ..) => Verdict::Pass,
        (ms, excess, limit) => Verdict::Delay { ms, excess, limit },
    }
}

fn unpin(limits: &[BucketRequest<'_>], pinned: &[EntryPin]) {
    for (asked, place) in limits.iter().zip(pinned) {
        asked.buckets.at(place, |entry| entry.pins -= 1);
    }
}

impl BucketRequest<'_> {
    /// Checks the bucket of the key. With `account` the request is counted at once, otherwise the
    /// bucket is pinned until it is.
    fn look(&self, now: i64, account: bool) -> Result<(EntryPin, BucketResult), Full> {
        let expired = |bucket: &Bucket| bucket.expired(self.rate, now);
        self.buckets.visit(self.key, expired, |entry| {
            let (excess, ms) = entry.state.with_one_more(self.rate, now);
            if excess > self.burst {
                return BucketResult::TooMuch(excess);
            }
            if account {
                entry.state.fill(excess, ms, now);
            } else {
                entry.pins += 1;
            }
            BucketResult::Enough(excess)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One limit on a virtual clock.
    struct One {
        buckets: Arc<Buckets>,
        rate: Milli,
        burst: Milli,
        delay: Milli,
    }

    impl One {
        fn new(rate: u64, burst: u64, delay: u64) -> Self {
            let buckets = buckets(32 * 1024);
            Self { buckets, rate: rate * ONE, burst: burst * ONE, delay: delay * ONE }
        }

        fn asked<'a>(&'a self, key: &'a str) -> BucketRequest<'a> {
            let Self { rate, burst, delay, .. } = *self;
            BucketRequest { buckets: &self.buckets, rate, burst, delay, key: key.as_bytes() }
        }

        fn at(&self, now: i64) -> Verdict {
            ask(&[self.asked("key")], now)
        }
    }

    #[test]
    fn one_per_interval() {
        let limit = One::new(2, 0, 0);
        assert_eq!(limit.at(0), Verdict::Pass);
        assert_eq!(limit.at(100), Verdict::Reject { excess: 800, limit: 0 });
        // Rejected requests don't count.
        assert_eq!(limit.at(499), Verdict::Reject { excess: 2, limit: 0 });
        assert_eq!(limit.at(500), Verdict::Pass);
        assert_eq!(ask(&[limit.asked("other")], 500), Verdict::Pass);
    }

    #[test]
    fn a_burst_waits_for_its_turn() {
        let limit = One::new(10, 3, 0);
        assert_eq!(limit.at(0), Verdict::Pass);
        assert_eq!(limit.at(0), Verdict::Delay { ms: 100, excess: 1000, limit: 0 });
        assert_eq!(limit.at(0), Verdict::Delay { ms: 200, excess: 2000, limit: 0 });
        assert_eq!(limit.at(50), Verdict::Delay { ms: 250, excess: 2500, limit: 0 });
        assert_eq!(limit.at(50), Verdict::Reject { excess: 3500, limit: 0 });
    }

    #[test]
    fn some_of_a_burst_need_not_wait() {
        let limit = One::new(10, 3, 2);
        for _ in 0..3 {
            assert_eq!(limit.at(0), Verdict::Pass);
        }
        assert_eq!(limit.at(0), Verdict::Delay { ms: 100, excess: 3000, limit: 0 });
        assert_eq!(limit.at(0), Verdict::Reject { excess: 4000, limit: 0 });
    }

    #[test]
    fn a_clock_that_goes_back_leaks_nothing() {
        let limit = One::new(10, 0, 0);
        assert_eq!(limit.at(1000), Verdict::Pass);
        assert_eq!(limit.at(900), Verdict::Reject { excess: 1000, limit: 0 });
        assert_eq!(limit.at(1100), Verdict::Pass);
    }

    #[test]
    fn all_limits_have_to_agree_and_the_longest_wait_counts() {
        let (slow, fast) = (One::new(1, 1, 0), One::new(10, 5, 0));
        let both = |now| ask(&[slow.asked("key"), fast.asked("key")], now);
        assert_eq!(both(0), Verdict::Pass);
        assert_eq!(both(0), Verdict::Delay { ms: 1000, excess: 1000, limit: 0 });
        assert_eq!(both(0), Verdict::Reject { excess: 2000, limit: 0 });
        // Rejected by the first: not counted by the second.
        assert_eq!(fast.at(0), Verdict::Delay { ms: 200, excess: 2000, limit: 0 });
        let tight = One::new(10, 0, 0);
        assert_eq!(ask(&[fast.asked("new"), tight.asked("key")], 0), Verdict::Pass);
        assert_eq!(
            ask(&[fast.asked("new"), tight.asked("key")], 0),
            Verdict::Reject { excess: 1000, limit: 1 }
        );
        // Rejected by the second: not counted by the first, and nothing stays pinned.
        assert_eq!(
            ask(&[fast.asked("new")], 0),
            Verdict::Delay { ms: 100, excess: 1000, limit: 0 }
        );
        let pins = fast.buckets.visit(b"new", |_| false, |entry| entry.pins).unwrap().1;
        assert_eq!(pins, 0);
    }

    #[test]
    fn buckets_are_remembered_for_a_minute() {
        let limit = One::new(1, 0, 0);
        ask(&[limit.asked("a")], 0);
        ask(&[limit.asked("b")], 59_999);
        assert_eq!(limit.buckets.len(), 2);
        ask(&[limit.asked("c")], 60_000);
        assert_eq!(limit.buckets.len(), 2, "only the first is old enough");
    }

    #[test]
    fn a_zone_holds_as_many_addresses_as_in_nginx() {
        let limit = One::new(1, 0, 0);
        for n in 0..1000_u32 {
            assert_eq!(ask(&[limit.asked(&format!("{n:04}"))], 0), Verdict::Pass);
        }
        assert_eq!(limit.buckets.len(), 32 * 1024 / 128);
        let long = "x".repeat(65_535);
        assert_eq!(ask(&[limit.asked(&long)], 0), Verdict::Full { limit: 0 });
    }
}
