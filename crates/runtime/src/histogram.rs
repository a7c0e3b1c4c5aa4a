//! Histograms of times with buckets of constant relative width, for percentiles: of the whole life of a
//! process ([`Histogram`]), and of the last minute ([`RecentTimes`]).
//!
//! Called by the counters of zones, pools and disks; read by status pages on any thread. Never: locks,
//! allocates while it counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets that each power of two is divided into: a bucket is at most a quarter wider than its lower bound.
const STEPS: usize = 4;

/// The lowest bound is 2⁶ µs. What is shorter is in the first bucket.
const FIRST_POWER: u32 = 6;

/// Powers of two with buckets: up to 2³¹ µs, about 36 minutes. What is longer is in the last bucket.
const POWERS: usize = 25;

/// Number of buckets.
const BUCKETS: usize = STEPS * POWERS;

/// How often times occurred.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts a time. Called by one thread only.
    pub fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let add = |counter: &AtomicU64, by: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        };
        add(&self.buckets[bucket(us)], 1);
        add(&self.sum_us, us);
    }

    /// Counts a time; any number of threads may do so at once.
    pub fn record_shared(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn clear(&self) {
        self.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
        self.sum_us.store(0, Ordering::Relaxed);
    }
}

/// Length of a window of [`RecentTimes`], in milliseconds.
const WINDOW_MS: u64 = 30_000;

/// The times of the last 30 to 60 seconds: percentiles over the life of a process hide a disk that has
/// become slow a moment ago. Times are milliseconds of any clock that never goes back.
#[derive(Debug, Default)]
pub struct RecentTimes {
    /// The current window and the one before it, by their numbers.
    windows: [Histogram; 2],
    /// The number of the current window.
    number: AtomicU64,
}

impl RecentTimes {
    /// Counts a time; any number of threads may do so at once. A few may get lost when a window begins.
    pub fn record(&self, time: Duration, now_ms: u64) {
        self.advance(now_ms);
        let number = self.number.load(Ordering::Relaxed);
        self.windows[(number % 2) as usize].record_shared(time);
    }

    /// The times of the current window and of the one before it.
    pub fn snapshot(&self, now_ms: u64) -> HistogramSnapshot {
        self.advance(now_ms);
        let mut sum = HistogramSnapshot::default();
        self.windows.iter().for_each(|window| sum.add(window));
        sum
    }

    fn advance(&self, now_ms: u64) {
        let (now, then) = (now_ms / WINDOW_MS, self.number.load(Ordering::Relaxed));
        let is_first = now > then
            && self
                .number
                .compare_exchange(then, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_first {
            self.windows[(now % 2) as usize].clear();
            if now - then > 1 {
                self.windows[((now + 1) % 2) as usize].clear();
            }
        }
    }
}

/// The bucket of a time.
fn bucket(us: u64) -> usize {
    let Some(power) = us.checked_ilog2().and_then(|power| power.checked_sub(FIRST_POWER)) else {
        return 0;
    };
    let power = power as usize;
    // The two bits below the highest one.
    let step = (us >> (power + FIRST_POWER as usize - 2)) as usize & (STEPS - 1);
    (power * STEPS + step).min(BUCKETS - 1)
}

/// The upper bound of a bucket in microseconds, exclusive; `None`: there is none.
fn bound_us(bucket: usize) -> Option<u64> {
    let next = bucket + 1;
    (next < BUCKETS).then(|| {
        let (power, step) = (next / STEPS, next % STEPS);
        ((STEPS + step) as u64) << (power + FIRST_POWER as usize - 2)
    })
}

/// A sum of histograms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: Vec<u64>,
    /// The sum of all times.
    pub sum: Duration,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], sum: Duration::ZERO }
    }
}

impl HistogramSnapshot {
    /// Adds the state of a histogram.
    pub fn add(&mut self, histogram: &Histogram) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *sum = sum.wrapping_add(bucket.load(Ordering::Relaxed));
        }
        self.sum += Duration::from_micros(histogram.sum_us.load(Ordering::Relaxed));
    }

    /// Adds the times of another one.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.wrapping_add(*count);
        }
        self.sum += other.sum;
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// A time that so many thousandths of all do not exceed: the upper bound of a bucket, at most a quarter above
    /// the true value. `None`: there are no times.
    pub fn percentile(&self, thousandths: u64) -> Option<Duration> {
        let count = self.count();
        let wanted = (u128::from(count) * u128::from(thousandths)).div_ceil(1000).max(1);
        let mut sum = 0;
        let found = self.buckets.iter().position(|count| {
            sum += u128::from(*count);
            sum >= wanted
        });
        let bucket = found.filter(|_| count > 0)?;
        Some(Duration::from_micros(
            bound_us(bucket).unwrap_or(1 << (FIRST_POWER as usize + POWERS)),
        ))
    }

    /// The buckets with times: their upper bounds, of which the last has none, and numbers of times.
    pub fn filled(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let buckets = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        buckets.map(|(at, count)| (bound_us(at).map(Duration::from_micros), *count))
    }

    /// Upper bounds of powers of two with the number of times below each, and the total last.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let mut sum = 0;
        self.buckets.chunks(STEPS).enumerate().map(move |(power, steps)| {
            sum += steps.iter().sum::<u64>();
            (bound_us(power * STEPS + STEPS - 1).map(Duration::from_micros), sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_consecutive_and_narrow() {
        let mut lower = 1 << FIRST_POWER;
        assert_eq!([bucket(0), bucket(1), bucket(63)], [0, 0, 0]);
        for at in 0..BUCKETS - 1 {
            let upper = bound_us(at).unwrap();
            assert_eq!([bucket(lower), bucket(upper - 1), bucket(upper)], [at, at, at + 1]);
            assert!((upper - lower) * 4 <= lower, "{at}: {lower} to {upper}");
            lower = upper;
        }
        assert_eq!([bucket(lower), bucket(u64::MAX)], [BUCKETS - 1, BUCKETS - 1]);
        assert_eq!(bound_us(BUCKETS - 1), None);
    }

    #[test]
    fn percentiles() {
        let (one, other) = (Histogram::default(), Histogram::default());
        for ms in 1..=900 {
            one.record(Duration::from_millis(ms));
        }
        for ms in 901..=1000 {
            other.record(Duration::from_millis(ms));
        }
        let mut sum = HistogramSnapshot::default();
        assert_eq!((sum.percentile(500), sum.count()), (None, 0));
        sum.add(&one);
        sum.add(&other);
        assert_eq!((sum.count(), sum.sum), (1000, Duration::from_millis(500_500)));
        for (thousandths, ms) in [(1, 1), (500, 500), (900, 900), (990, 990), (1000, 1000)] {
            let found = sum.percentile(thousandths).unwrap().as_secs_f64() * 1000.0;
            let true_value = f64::from(ms);
            assert!(found >= true_value && found <= true_value * 1.26, "{thousandths}: {found} ms");
        }
        let all: Vec<_> = sum.cumulative().collect();
        assert_eq!(all.len(), POWERS);
        assert_eq!(all.last(), Some(&(None, 1000)));
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }

    #[test]
    fn recent_times_are_forgotten() {
        let recent = RecentTimes::default();
        let count = |now_ms| recent.snapshot(now_ms).count();
        recent.record(Duration::from_millis(7), 5 * WINDOW_MS);
        recent.record(Duration::from_millis(9), 6 * WINDOW_MS - 1);
        assert_eq!((count(6 * WINDOW_MS - 1), count(6 * WINDOW_MS)), (2, 2));
        recent.record(Duration::from_millis(9), 6 * WINDOW_MS);
        assert_eq!((count(7 * WINDOW_MS - 1), count(7 * WINDOW_MS)), (3, 1));
        recent.record(Duration::from_millis(9), 7 * WINDOW_MS);
        assert_eq!(count(9 * WINDOW_MS), 0);
        // A thread that has read the clock before another one.
        recent.record(Duration::from_millis(9), 8 * WINDOW_MS);
        assert_eq!(count(9 * WINDOW_MS), 1);
    }

    #[test]
    fn filled_buckets_are_listed() {
        let histogram = Histogram::default();
        histogram.record_shared(Duration::from_micros(64));
        histogram.record_shared(Duration::from_micros(65));
        histogram.record_shared(Duration::from_secs(1 << 40));
        let mut sum = HistogramSnapshot::default();
        sum.add(&histogram);
        let filled: Vec<_> = sum.filled().collect();
        assert_eq!(filled, [(Some(Duration::from_micros(80)), 2), (None, 1)]);
    }
}
