//! The growth of a window in congestion avoidance: CUBIC (RFC 9438), in bytes.
//!
//! Called by the controller. Sans-IO: times are arguments.

use std::time::{Duration, Instant};

/// The constant C (RFC 9438, 5), in segments per cubed second.
const C: f64 = 0.4;

/// What is left of a window at a congestion event (RFC 9438, 4.6).
pub(super) const BETA: f64 = 0.7;

/// Segments per round trip of a Reno flow that has the same share (RFC 9438, 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// A window grows by half per round trip, at most (RFC 9438, 4.2).
const GROWTH_MAX: f64 = 1.5;

/// The curve since the last congestion event.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    /// When it began; later by the time in which there was nothing to send (RFC 9438, 5.8).
    began: Instant,
    /// The window in which the path was full (W_max).
    full: f64,
    /// When it is reached again (K), in seconds.
    reached_after: f64,
    /// The window of a Reno flow (W_est), and the one before the event (cwnd_prior).
    reno: f64,
    prior: f64,
    /// Since when there is nothing to send.
    paused: Option<Instant>,
}

impl Curve {
    /// A curve that begins with `window`, where the path was full with `full` and the window was `prior`.
    pub(super) fn new(now: Instant, window: f64, full: f64, prior: f64, segment: f64) -> Curve {
        let full = full.max(window);
        Curve {
            began: now,
            full,
            reached_after: ((full - window) / segment / C).cbrt(),
            reno: window,
            prior,
            paused: None,
        }
    }

    /// There is nothing to send.
    pub(super) fn pause(&mut self, now: Instant) {
        self.paused.get_or_insert(now);
    }

    /// The window after `acked` bytes were acknowledged.
    pub(super) fn grow(
        &mut self,
        now: Instant,
        window: f64,
        acked: f64,
        rtt: Duration,
        segment: f64,
    ) -> f64 {
        if let Some(paused) = self.paused.take() {
            self.began += now.saturating_duration_since(paused);
        }
        // "alpha_cubic SHOULD be set to 1" once the flow has what it had (RFC 9438, 4.3).
        let alpha = if self.reno < self.prior { ALPHA } else { 1.0 };
        self.reno += alpha * segment * acked / window;
        let elapsed = now.saturating_duration_since(self.began);
        if self.at(elapsed, segment) < self.reno {
            return window.max(self.reno);
        }
        let target = self.at(elapsed + rtt, segment).clamp(window, window * GROWTH_MAX);
        window + (target - window) * acked / window
    }

    /// W_cubic(t) (RFC 9438, 4.2, figure 1).
    fn at(&self, elapsed: Duration, segment: f64) -> f64 {
        let distance = elapsed.as_secs_f64() - self.reached_after;
        C * distance.powi(3) * segment + self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: f64 = 1000.0;

    /// Windows at the end of each round trip.
    fn windows(mut curve: Curve, mut window: f64, rtt: Duration, rounds: u32) -> Vec<f64> {
        let mut now = curve.began;
        let mut seen = Vec::new();
        for _ in 0..rounds {
            let segments = (window / SEGMENT) as u32;
            for _ in 0..segments {
                now += rtt / segments;
                window = curve.grow(now, window, SEGMENT, rtt, SEGMENT);
            }
            seen.push(window);
        }
        seen
    }

    #[test]
    fn the_full_window_is_reached_when_the_rfc_says() {
        // 1000 segments: K is the cube root of 300 / 0.4, which is 9.09 s.
        let full = 1000.0 * SEGMENT;
        let curve = Curve::new(Instant::now(), full * BETA, full, full, SEGMENT);
        assert!((curve.reached_after - 9.086).abs() < 0.01);
        let rtt = Duration::from_millis(100);
        let seen = windows(curve, full * BETA, rtt, 180);
        assert!((seen[90] / full - 1.0).abs() < 0.01, "{}", seen[90]);
        // Flat there, and steep before and after.
        assert!(seen[95] - seen[85] < 2.0 * SEGMENT * 5.0);
        assert!(seen[10] - seen[0] > 50.0 * SEGMENT);
        assert!(seen[179] > 1.2 * full);
    }

    #[test]
    fn a_short_path_is_shared_with_reno() {
        // Ten segments at 10 ms: Reno grows faster than the cubic function.
        let full = 10.0 * SEGMENT;
        let curve = Curve::new(Instant::now(), full * BETA, full, full, SEGMENT);
        let seen = windows(curve, full * BETA, Duration::from_millis(10), 8);
        let growth = (seen[4] - seen[0]) / 4.0;
        assert!((growth / SEGMENT - ALPHA).abs() < 0.1, "{growth}");
        // From the former window on by a segment per round trip.
        assert!(seen[7] > full && seen[7] - seen[6] > 0.8 * SEGMENT);
    }

    #[test]
    fn a_pause_does_not_count() {
        let (now, full) = (Instant::now(), 1000.0 * SEGMENT);
        let rtt = Duration::from_millis(50);
        let mut curve = Curve::new(now, full * BETA, full, full, SEGMENT);
        let mut paused = curve.clone();
        paused.pause(now);
        let pause = Duration::from_secs(30);
        let one = curve.grow(now + rtt, full * BETA, SEGMENT, rtt, SEGMENT);
        let _ = paused.grow(now + pause, full * BETA, SEGMENT, rtt, SEGMENT);
        let other = paused.grow(now + pause + rtt, full * BETA, SEGMENT, rtt, SEGMENT);
        assert!((one - other).abs() < 10.0, "{one} {other}");
    }

    #[test]
    fn a_window_never_jumps() {
        let (now, full) = (Instant::now(), 10.0 * SEGMENT);
        let rtt = Duration::from_millis(50);
        let mut curve = Curve::new(now, full, full, full, SEGMENT);
        let later = now + Duration::from_secs(100_000);
        let window = curve.grow(later, full, SEGMENT, rtt, SEGMENT);
        assert!(window <= full * 1.1, "{window}");
    }
}
