//! Congestion control: CUBIC (RFC 9438) with HyStart++ (RFC 9406), for packets that the library paces.
//!
//! Called by the library, for each connection's path. Besides what these RFCs say:
//!
//! - A window that is not used does not grow, and the time in which it is not used does not count for the curve (RFC
//!   9438, 5.8). A congestion event then reduces what was used of it (RFC 7661, 4.4.1).
//! - A loss does not always mean that a queue is full: radio links lose packets by chance. If a few packets are lost
//!   while round trips take no longer than they ever did, the window is reduced by less ([`BETA_OF_CHANCE`]), as TCP
//!   Veno does. Marks (ECN) and more losses than [`SHARE_OF_CHANCE_MAX`] always count in full.
//!
//! Sans-IO: never reads a clock.

mod curve;
mod losses;
mod rounds;
mod slow_start;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use self::curve::{BETA, Curve};
use self::losses::LossShare;
use self::rounds::Rounds;
use self::slow_start::SlowStart;

/// The window at first (RFC 9002, 7.2): ten packets of the size that every path carries.
const INITIAL_BYTES: u64 = 10 * 1200;

/// The smallest window, in packets (RFC 9002, 7.2).
const PACKETS_MIN: f64 = 2.0;

/// What is left of the window when packets are lost by chance. Reno flows through a queue that is too short to be
/// noticed get a smaller share beside it, as they do beside two connections.
const BETA_OF_CHANCE: f64 = 0.9;

/// Round trips that take longer than the shortest by less than this part of it, within these limits, meet no queue.
const QUEUE_DIVISOR: u32 = 16;
const QUEUE_MIN: Duration = Duration::from_millis(1);
const QUEUE_MAX: Duration = Duration::from_millis(8);

/// More losses at a time than this part of the window, or this many packets, are none by chance.
const CHANCE_DIVISOR: f64 = 8.0;
const CHANCE_PACKETS: f64 = 2.0;

/// A path that loses a larger share than this is full, whatever round trips say: something polices it.
const SHARE_OF_CHANCE_MAX: f64 = 0.06;

/// Makes controllers.
#[derive(Debug, Default)]
pub(crate) struct CubicFactory;

impl ControllerFactory for CubicFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Cubic::new(now, current_mtu))
    }
}

/// The controller of a path. Windows are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    window: f64,
    segment: f64,
    slow_start: SlowStart,
    /// Slow start also ends here: after all of a window was lost.
    threshold: f64,
    /// W_max (RFC 9438, 4.1).
    full: f64,
    /// `None`: congestion avoidance has not begun.
    curve: Option<Curve>,
    /// Losses of packets that were sent before do not count again, and the window does not grow.
    recovery: Option<Instant>,
    rounds: Rounds,
    losses: LossShare,
    used: Use,
    /// Losses may be by chance: always, but for the flows of tests that stand for others.
    knows_chance: bool,
}

/// How much of the window is used.
#[derive(Clone, Debug, Default)]
struct Use {
    /// Bytes acknowledged in the current batch.
    batch: f64,
    /// The most bytes in flight of this round trip, and of the last one.
    current: f64,
    last: f64,
    /// There was nothing more to send.
    is_limited: bool,
}

/// Why the window is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A full queue, or a mark.
    Congestion,
    /// Packets that were lost without one.
    Chance,
}

impl Cubic {
    pub(crate) fn new(now: Instant, mtu: u16) -> Cubic {
        Cubic {
            window: INITIAL_BYTES as f64,
            segment: f64::from(mtu),
            slow_start: SlowStart::Standard,
            threshold: f64::INFINITY,
            full: 0.0,
            curve: None,
            recovery: None,
            rounds: Rounds::new(now),
            losses: LossShare::default(),
            used: Use::default(),
            knows_chance: true,
        }
    }

    fn smallest(&self) -> f64 {
        PACKETS_MIN * self.segment
    }

    fn is_slow_start(&self) -> bool {
        self.slow_start != SlowStart::Over
    }

    fn grow(&mut self, now: Instant, bytes: f64, begins: bool, rtt: Duration) {
        if self.is_slow_start() {
            self.window += self.slow_start.acked(bytes, begins, &self.rounds);
            if self.window >= self.threshold {
                self.slow_start = SlowStart::Over;
            }
            if self.is_slow_start() {
                return;
            }
        }
        let (window, segment) = (self.window, self.segment);
        let curve = self.curve.get_or_insert_with(|| {
            // Slow start has ended without a loss (RFC 9438, 4.10), or with one before it (4.7).
            let full = if self.threshold.is_finite() { self.full } else { window };
            Curve::new(now, window, full, window, segment)
        });
        self.window = curve.grow(now, window, bytes, rtt, segment);
    }

    fn cause(&self, lost: f64) -> Cause {
        let few = (self.window / CHANCE_DIVISOR).max(CHANCE_PACKETS * self.segment);
        // A mark, which loses nothing, is never by chance.
        if !self.knows_chance
            || lost == 0.0
            || lost > few
            || self.losses.share() > SHARE_OF_CHANCE_MAX
        {
            return Cause::Congestion;
        }
        let shortest = self.rounds.shortest();
        match self.rounds.queueing() {
            Some(queueing) if queueing < (shortest / QUEUE_DIVISOR).clamp(QUEUE_MIN, QUEUE_MAX) => {
                Cause::Chance
            }
            _ => Cause::Congestion,
        }
    }

    fn reduce(&mut self, now: Instant, cause: Cause) {
        let prior = match self.used.is_limited {
            // What was not used has proved nothing (RFC 7661, 4.4.1).
            true => {
                self.window.min(self.used.last.max(self.used.current).max(INITIAL_BYTES as f64))
            }
            false => self.window,
        };
        let beta = match cause {
            Cause::Congestion => BETA,
            Cause::Chance => BETA_OF_CHANCE,
        };
        // Fast convergence (RFC 9438, 4.7): a flow that did not come as far as before makes room for others.
        self.full = match cause {
            Cause::Congestion if prior < self.full => prior * (1.0 + BETA) / 2.0,
            _ => prior,
        };
        self.window = (prior * beta).max(self.smallest());
        self.threshold = self.window;
        self.slow_start = SlowStart::Over;
        // What was lost by chance need not be won back more slowly than Reno does.
        let until = if cause == Cause::Chance { self.window } else { prior };
        self.curve = Some(Curve::new(now, self.window, self.full, until, self.segment));
        self.recovery = Some(now);
    }

    /// All of a window was lost (RFC 9002, 7.6; RFC 9438, 4.8).
    fn begin_again(&mut self) {
        self.threshold = self.window;
        self.window = self.smallest();
        self.slow_start = SlowStart::Standard;
        self.curve = None;
        self.recovery = None;
    }
}

impl Cubic {
    /// A packet was acknowledged; `is_limited`: there was nothing more to send.
    fn acked(&mut self, now: Instant, sent: Instant, bytes: f64, is_limited: bool, rtt: Duration) {
        let begins = self.rounds.acked(now, sent);
        if begins {
            self.used.last = std::mem::take(&mut self.used.current);
        }
        self.used.batch += bytes;
        self.losses.acked(bytes);
        if is_limited {
            if let Some(curve) = &mut self.curve {
                curve.pause(now);
            }
        } else if self.recovery.is_none_or(|since| sent > since) {
            self.grow(now, bytes, begins, rtt);
        }
    }
}

impl Controller for Cubic {
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.acked(now, sent, bytes as f64, app_limited, rtt.get());
    }

    fn on_end_acks(&mut self, _: Instant, in_flight: u64, app_limited: bool, _: Option<u64>) {
        let bytes = in_flight as f64 + std::mem::take(&mut self.used.batch);
        self.used.current = self.used.current.max(bytes);
        self.used.is_limited = app_limited;
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let lost = lost_bytes as f64;
        self.losses.lost(lost);
        if self.recovery.is_none_or(|since| sent > since) {
            self.reduce(now, self.cause(lost));
        }
        if is_persistent_congestion {
            self.begin_again();
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.segment = f64::from(new_mtu);
        self.window = self.window.max(self.smallest());
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.ssthresh = self.threshold.is_finite().then_some(self.threshold as u64);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL_BYTES
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
