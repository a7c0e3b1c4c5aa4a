//! Slow start that ends before the path overflows: HyStart++ (RFC 9406).
//!
//! Called by the controller. Packets are paced, so growth per acknowledgement has no limit (L, RFC 9406, 4.3).

use std::time::Duration;

use super::rounds::Rounds;

/// RFC 9406, 4.3: MIN_RTT_THRESH, MAX_RTT_THRESH, MIN_RTT_DIVISOR.
const THRESHOLD_MIN: Duration = Duration::from_millis(4);
const THRESHOLD_MAX: Duration = Duration::from_millis(16);
const THRESHOLD_DIVISOR: u32 = 8;

/// CSS_GROWTH_DIVISOR and CSS_ROUNDS.
const CONSERVATIVE_DIVISOR: f64 = 4.0;
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Where slow start is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SlowStart {
    /// The window doubles per round trip.
    Standard,
    /// Round trips take longer: the window grows by a quarter of that, for some of them. If they become shorter again
    /// than `baseline`, it was nothing.
    Conservative { baseline: Duration, rounds: u32 },
    /// It has ended.
    Over,
}

impl SlowStart {
    /// Packets of `acked` bytes were acknowledged; `begins`: with one of another round trip. Returns by how much the
    /// window grows.
    pub(super) fn acked(&mut self, acked: f64, begins: bool, rounds: &Rounds) -> f64 {
        match self {
            SlowStart::Standard => {
                if let Some((current, last)) = rounds.compared() {
                    let threshold = (last / THRESHOLD_DIVISOR).clamp(THRESHOLD_MIN, THRESHOLD_MAX);
                    if current >= last + threshold {
                        *self = SlowStart::Conservative { baseline: current, rounds: 0 };
                    }
                }
                acked
            }
            SlowStart::Conservative { baseline, rounds: passed } => {
                *passed += u32::from(begins);
                let shorter = rounds.compared().is_some_and(|(current, _)| current < *baseline);
                // Whatever the RFC's rounds are to confirm: half a round trip in a queue leaves no doubt.
                let is_certain =
                    rounds.queueing().is_some_and(|queueing| queueing > rounds.shortest() / 2);
                if shorter {
                    *self = SlowStart::Standard;
                } else if is_certain || *passed >= CONSERVATIVE_ROUNDS {
                    *self = SlowStart::Over;
                }
                acked / CONSERVATIVE_DIVISOR
            }
            SlowStart::Over => 0.0,
        }
    }
}
