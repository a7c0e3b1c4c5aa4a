//! Flows over a simulated bottleneck, by seed and on a virtual clock: what the controller reaches, alone and beside
//! others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use super::*;

const SEGMENT: u64 = 1452;
const PACKET_THRESHOLD: u64 = 3;
/// Bytes that leave at once, as the library's pacing lets them.
const BURST: f64 = 10.0 * SEGMENT as f64;

/// A bottleneck.
#[derive(Clone, Copy)]
struct Bottleneck {
    round_trip: Duration,
    bytes_per_second: f64,
    queue_bytes: f64,
    loss: f64,
}

impl Bottleneck {
    /// One whose queue holds this part of what is in flight on an empty path.
    fn new(ms: u64, mbit: f64, queue: f64, loss: f64) -> Bottleneck {
        let (round_trip, bytes_per_second) = (Duration::from_millis(ms), mbit * 125_000.0);
        let queue_bytes = queue * bytes_per_second * round_trip.as_secs_f64();
        Bottleneck { round_trip, bytes_per_second, queue_bytes, loss }
    }
}

/// A flow that always has something to send.
struct Flow {
    cubic: Cubic,
    next: u64,
    in_flight: BTreeMap<u64, Instant>,
    smoothed: Duration,
    tokens: f64,
    paced: Instant,
    /// When it looks again by itself.
    looks_at: Instant,
    delivered: f64,
    events: u32,
}

enum Happening {
    /// An acknowledgement of a flow's packet reaches the sender.
    Acked(usize, u64),
    /// A flow may send again.
    Send(usize),
}

struct Network {
    bottleneck: Bottleneck,
    flows: Vec<Flow>,
    now: Instant,
    begin: Instant,
    free_at: Instant,
    random: u64,
    order: u64,
    queue: BinaryHeap<Reverse<(Instant, u64, usize, u64)>>,
    longest_wait: Duration,
}

impl Network {
    fn new(bottleneck: Bottleneck, cubics: Vec<fn(Instant) -> Cubic>, seed: u64) -> Network {
        let begin = Instant::now();
        let flow = |cubic: fn(Instant) -> Cubic| Flow {
            cubic: cubic(begin),
            next: 0,
            in_flight: BTreeMap::new(),
            smoothed: bottleneck.round_trip,
            tokens: BURST,
            paced: begin,
            looks_at: begin,
            delivered: 0.0,
            events: 0,
        };
        let flows: Vec<Flow> = cubics.into_iter().map(flow).collect();
        let mut network = Network {
            bottleneck,
            flows,
            now: begin,
            begin,
            free_at: begin,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            order: 0,
            queue: BinaryHeap::new(),
            longest_wait: Duration::ZERO,
        };
        for flow in 0..network.flows.len() {
            network.schedule(begin, Happening::Send(flow));
        }
        network
    }

    fn schedule(&mut self, at: Instant, what: Happening) {
        let (flow, packet) = match what {
            Happening::Acked(flow, packet) => (flow, packet),
            Happening::Send(flow) => (flow, u64::MAX),
        };
        self.order += 1;
        self.queue.push(Reverse((at, self.order, flow, packet)));
    }

    fn chance(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Runs until this time; returns what each flow has delivered per second since `from`.
    fn run(&mut self, from: Duration, until: Duration) -> Vec<f64> {
        let (from_at, until_at) = (self.begin + from, self.begin + until);
        let mut before: Option<Vec<f64>> = None;
        while let Some(Reverse((at, _, flow, packet))) = self.queue.pop() {
            if at > from_at && before.is_none() {
                before = Some(self.flows.iter().map(|flow| flow.delivered).collect());
                self.longest_wait = Duration::ZERO;
            }
            if at > until_at {
                break;
            }
            self.now = at;
            if packet != u64::MAX {
                self.acked(flow, packet);
            }
            self.send(flow);
        }
        let before = before.expect("flows last longer");
        let seconds = (until - from).as_secs_f64();
        self.flows
            .iter()
            .zip(before)
            .map(|(flow, before)| (flow.delivered - before) / seconds)
            .collect()
    }

    fn acked(&mut self, index: usize, packet: u64) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let Some(sent) = flow.in_flight.remove(&packet) else { return };
        flow.delivered += SEGMENT as f64;
        flow.cubic.acked(now, sent, SEGMENT as f64, false, flow.smoothed);
        let in_flight = flow.in_flight.len() as u64 * SEGMENT;
        flow.cubic.on_end_acks(now, in_flight, false, Some(packet));
        flow.smoothed = (flow.smoothed * 7 + (now - sent)) / 8;
        let lost: Vec<(u64, Instant)> = flow
            .in_flight
            .range(..packet.saturating_sub(PACKET_THRESHOLD - 1))
            .map(|(packet, sent)| (*packet, *sent))
            .collect();
        if let Some((_, sent)) = lost.last() {
            flow.in_flight.retain(|packet, _| lost.iter().all(|(lost, _)| lost != packet));
            flow.cubic.on_congestion_event(now, *sent, false, lost.len() as u64 * SEGMENT);
            flow.events += 1;
        }
    }

    fn send(&mut self, index: usize) {
        let now = self.now;
        let patience = 3 * self.flows[index].smoothed;
        let mut looks_at = now + patience;
        self.time_out(index, patience);
        loop {
            let flow = &mut self.flows[index];
            let in_flight = flow.in_flight.len() as u64 * SEGMENT;
            if in_flight + SEGMENT > flow.cubic.window() {
                break;
            }
            let rate = 1.25 * flow.cubic.window() as f64 / flow.smoothed.as_secs_f64();
            let elapsed = (now - flow.paced).as_secs_f64();
            flow.tokens = (flow.tokens + rate * elapsed).min(BURST);
            flow.paced = now;
            if flow.tokens < SEGMENT as f64 {
                let wait = Duration::from_secs_f64((SEGMENT as f64 * 2.0 - flow.tokens) / rate);
                looks_at = now + wait;
                break;
            }
            flow.tokens -= SEGMENT as f64;
            let packet = flow.next;
            flow.next += 1;
            flow.in_flight.insert(packet, now);
            self.carry(index, packet);
        }
        let flow = &mut self.flows[index];
        if flow.looks_at <= now || looks_at < flow.looks_at {
            flow.looks_at = looks_at;
            self.schedule(looks_at, Happening::Send(index));
        }
    }

    /// Gives up what should have been acknowledged long ago: the tail of a window.
    fn time_out(&mut self, index: usize, patience: Duration) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let stale = |sent: &Instant| *sent + patience < now;
        let last = flow.in_flight.values().filter(|sent| stale(sent)).max().copied();
        if let Some(last) = last {
            let before = flow.in_flight.len();
            flow.in_flight.retain(|_, sent| !stale(sent));
            let lost = (before - flow.in_flight.len()) as u64 * SEGMENT;
            flow.cubic.on_congestion_event(now, last, false, lost);
            flow.events += 1;
        }
    }

    fn carry(&mut self, index: usize, packet: u64) {
        let (now, bottleneck) = (self.now, self.bottleneck);
        let begin = self.free_at.max(now);
        let wait = begin - now;
        let is_full = (wait.as_secs_f64() * bottleneck.bytes_per_second) + SEGMENT as f64
            > bottleneck.queue_bytes;
        if is_full || self.chance() < bottleneck.loss {
            return;
        }
        self.longest_wait = self.longest_wait.max(wait);
        self.free_at =
            begin + Duration::from_secs_f64(SEGMENT as f64 / bottleneck.bytes_per_second);
        let at = self.free_at + bottleneck.round_trip;
        self.schedule(at, Happening::Acked(index, packet));
    }
}

const MS: Duration = Duration::from_millis(1);
const BYTES: f64 = SEGMENT as f64;

/// A controller in congestion avoidance with a window of a hundred packets on an empty path of 20 ms, and the time.
fn settled() -> (Cubic, Instant) {
    let begin = Instant::now();
    let mut cubic = ours(begin);
    cubic.slow_start = SlowStart::Over;
    cubic.window = 100.0 * BYTES;
    let now = begin + 20 * MS;
    for n in 0..20 {
        cubic.acked(now + n * MS, begin + n * MS, BYTES, false, 20 * MS);
    }
    cubic.on_end_acks(now + 20 * MS, 90 * SEGMENT, false, None);
    (cubic, now + 20 * MS)
}

#[test]
fn losses_of_a_round_trip_count_once() {
    let (mut cubic, now) = settled();
    cubic.on_congestion_event(now, now - 20 * MS, false, 20 * SEGMENT);
    let reduced = cubic.window;
    cubic.on_congestion_event(now + MS, now - 19 * MS, false, 20 * SEGMENT);
    assert_eq!(cubic.window, reduced);
    // Nor does the window grow by what was sent before.
    cubic.acked(now + 2 * MS, now - MS, BYTES, false, 20 * MS);
    assert_eq!(cubic.window, reduced);
    cubic.on_congestion_event(now + 30 * MS, now + MS, false, 20 * SEGMENT);
    assert!(cubic.window < reduced);
}

#[test]
fn what_is_no_chance_counts_in_full() {
    let reduced_by = |lost: u64, prepare: fn(&mut Cubic, Instant)| {
        let (mut cubic, now) = settled();
        prepare(&mut cubic, now);
        let before = cubic.window;
        cubic.on_congestion_event(now, now - 10 * MS, false, lost);
        cubic.window / before
    };
    let close = |ratio: f64, wanted: f64| assert!((ratio - wanted).abs() < 0.01, "{ratio}");
    close(reduced_by(SEGMENT, |_, _| ()), BETA_OF_CHANCE);
    // A mark; many packets; a path that loses many; a queue.
    close(reduced_by(0, |_, _| ()), BETA);
    close(reduced_by(20 * SEGMENT, |_, _| ()), BETA);
    close(reduced_by(SEGMENT, |cubic, _| cubic.losses.lost(10.0 * BYTES)), BETA);
    // Sent in the current round trip, and acknowledged after 30 ms instead of 20.
    let queue: fn(&mut Cubic, Instant) = |cubic, now| {
        let sent = now - 10 * MS;
        (0..4).for_each(|n| cubic.acked(sent + (30 + n) * MS, sent + n * MS, 0.0, true, 20 * MS));
    };
    close(reduced_by(SEGMENT, queue), BETA);
}

#[test]
fn a_window_that_is_not_used_neither_grows_nor_counts() {
    let (mut cubic, now) = settled();
    let before = cubic.window;
    for n in 0..100 {
        let at = now + n * 20 * MS;
        cubic.acked(at + 20 * MS, at, BYTES, true, 20 * MS);
        cubic.on_end_acks(at + 20 * MS, 9 * SEGMENT, true, None);
    }
    assert_eq!(cubic.window, before);
    let later = now + 3 * S;
    cubic.on_congestion_event(later, later - 10 * MS, false, 5 * SEGMENT);
    // Of the ten packets that were in flight, instead of the hundred.
    assert!(cubic.window <= 10.0 * BYTES, "{}", cubic.window);
}

#[test]
fn after_persistent_congestion_slow_start_begins_again() {
    let (mut cubic, now) = settled();
    cubic.on_congestion_event(now, now - 10 * MS, true, 50 * SEGMENT);
    assert_eq!(cubic.window(), 2 * SEGMENT);
    assert!(cubic.is_slow_start());
    let mut at = now;
    while cubic.is_slow_start() {
        at += 20 * MS;
        let packets = cubic.window() / SEGMENT;
        (0..packets).for_each(|_| cubic.acked(at, at - 20 * MS, BYTES, false, 20 * MS));
    }
    // Up to what was left by the event.
    assert!((65.0..80.0).contains(&(cubic.window / BYTES)), "{}", cubic.window / BYTES);
}

fn ours(now: Instant) -> Cubic {
    Cubic::new(now, SEGMENT as u16)
}

/// To which every loss is congestion, as to TCP.
fn strict(now: Instant) -> Cubic {
    Cubic { knows_chance: false, ..Cubic::new(now, SEGMENT as u16) }
}

fn alone(bottleneck: Bottleneck, cubic: fn(Instant) -> Cubic, seconds: u64) -> f64 {
    let runs = 5;
    let run = |seed| {
        let mut network = Network::new(bottleneck, vec![cubic], seed);
        network.run(Duration::from_secs(2), Duration::from_secs(seconds))[0]
    };
    (0..runs).map(run).sum::<f64>() / runs as f64
}

const S: Duration = Duration::from_secs(1);

#[test]
fn random_losses_cost_less_than_they_cost_tcp() {
    for (loss, times) in [(0.01, 1.5), (0.03, 1.8)] {
        let bottleneck = Bottleneck::new(16, 100.0, 1.0, loss);
        let (ours, theirs) = (alone(bottleneck, ours, 20), alone(bottleneck, strict, 20));
        // What the RFC's window brings (RFC 9438, 5.1.1).
        let model = 1.22 / f64::sqrt(loss) * SEGMENT as f64 / 0.016;
        assert!(theirs > 0.75 * model && theirs < 1.5 * model, "{loss}: {theirs} {model}");
        assert!(ours > times * theirs, "{loss}: {ours} {theirs}");
    }
}

#[test]
fn a_path_without_losses_is_filled() {
    for (ms, mbit, queue) in [(16, 100.0, 1.0), (50, 100.0, 1.0), (200, 20.0, 0.5)] {
        let bottleneck = Bottleneck::new(ms, mbit, queue, 0.0);
        let mut network = Network::new(bottleneck, vec![ours], 1);
        let got = network.run(4 * S, 12 * S)[0];
        assert!(got > 0.85 * bottleneck.bytes_per_second, "{ms}: {got}");
    }
}

#[test]
fn slow_start_does_not_overflow_a_deep_queue() {
    let bottleneck = Bottleneck::new(50, 100.0, 2.0, 0.0);
    let mut network = Network::new(bottleneck, vec![ours], 1);
    network.run(Duration::from_millis(1), 1 * S);
    assert!(!network.flows[0].cubic.is_slow_start());
    assert_eq!(network.flows[0].events, 0);
}

#[test]
fn flows_share_a_path() {
    for (queue, most) in [(0.1, 0.8), (0.25, 0.65), (1.0, 0.6)] {
        for (ms, mbit) in [(16, 20.0), (50, 20.0), (16, 100.0)] {
            let bottleneck = Bottleneck::new(ms, mbit, queue, 0.0);
            let mut network = Network::new(bottleneck, vec![ours, strict], 1);
            let got = network.run(8 * S, 24 * S);
            let share = got[0] / (got[0] + got[1]);
            let used = (got[0] + got[1]) / bottleneck.bytes_per_second;
            assert!((0.3..most).contains(&share), "{ms} ms, {mbit} Mbit/s, {queue}: {share}");
            assert!(used > 0.85, "{ms} ms, {mbit} Mbit/s, {queue}: {used}");
        }
    }
}
