//! One direction of a path: its bottleneck with a queue, its delay, and its losses by seed. Sans-IO.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What a path is like, the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathOptions {
    /// There and back, without what packets wait in queues.
    pub round_trip: Duration,
    /// Of the bottleneck.
    pub bits_per_second: u64,
    /// Packets that are lost by chance, as a share.
    pub loss: f64,
    /// Packets that are longer vanish.
    pub mtu: usize,
}

/// The queue has room for what the path carries in a round trip, and at least for this much.
const QUEUE_BYTES_MIN: f64 = 64.0 * 1024.0;

/// Packets in one direction.
pub struct Direction {
    options: PathOptions,
    random: u64,
    /// When the bottleneck has sent what it has.
    free_at: Option<Instant>,
    /// On their way, with the time of their arrival.
    packets: VecDeque<(Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// Lost by chance, and for lack of room in the queue.
    pub lost: u64,
    pub dropped: u64,
}

impl Direction {
    /// A direction whose losses are decided by the seed.
    pub fn new(options: PathOptions, seed: u64) -> Direction {
        Direction {
            options,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            free_at: None,
            packets: VecDeque::new(),
            spare: Vec::new(),
            lost: 0,
            dropped: 0,
        }
    }

    fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 * 8.0 / self.options.bits_per_second as f64)
    }

    fn queue_bytes(&self) -> f64 {
        let PathOptions { round_trip, bits_per_second, .. } = self.options;
        (bits_per_second as f64 / 8.0 * round_trip.as_secs_f64()).max(QUEUE_BYTES_MIN)
    }

    /// xorshift64*, as a number from 0 to 1.
    fn chance(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A packet enters.
    pub fn push(&mut self, packet: &[u8], now: Instant) {
        if self.chance() < self.options.loss || packet.len() > self.options.mtu {
            self.lost += 1;
            return;
        }
        let begin = self.free_at.map_or(now, |free| free.max(now));
        let waits = (begin - now).as_secs_f64() * self.options.bits_per_second as f64 / 8.0;
        if waits + packet.len() as f64 > self.queue_bytes() {
            self.dropped += 1;
            return;
        }
        let end = begin + self.time_of(packet.len());
        self.free_at = Some(end);
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(packet);
        self.packets.push_back((end + self.options.round_trip / 2, memory));
    }

    /// When the next packet arrives.
    pub fn next(&self) -> Option<Instant> {
        self.packets.front().map(|(at, _)| *at)
    }

    /// The next packet that has arrived; [`recycle`](Self::recycle) takes its memory back.
    pub fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        self.packets.pop_front().map(|(_, packet)| packet)
    }

    /// Takes memory back.
    pub fn recycle(&mut self, memory: Vec<u8>) {
        self.spare.push(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(loss: f64) -> PathOptions {
        PathOptions {
            round_trip: Duration::from_millis(20),
            bits_per_second: 8_000_000,
            loss,
            mtu: 1500,
        }
    }

    #[test]
    fn packets_arrive_as_fast_as_the_bottleneck_sends_them() {
        let (mut direction, begin) = (Direction::new(options(0.0), 1), Instant::now());
        // A megabyte per second: a packet of 1000 bytes takes a millisecond.
        (0..10).for_each(|_| direction.push(&[0; 1000], begin));
        for n in 1..=10 {
            let at = begin + Duration::from_millis(10 + n);
            assert_eq!(direction.next(), Some(at));
            assert!(direction.pop(at - Duration::from_nanos(1)).is_none());
            assert_eq!(direction.pop(at).map(|packet| packet.len()), Some(1000));
        }
    }

    #[test]
    fn a_full_queue_and_a_small_path_drop_packets() {
        let (mut direction, begin) = (Direction::new(options(0.0), 1), Instant::now());
        (0..100).for_each(|_| direction.push(&[0; 1000], begin));
        assert_eq!((direction.packets.len(), direction.dropped), (65, 35));
        direction.push(&[0; 1501], begin + Duration::from_secs(1));
        assert_eq!(direction.lost, 1);
    }

    #[test]
    fn losses_are_those_of_the_seed() {
        let lost = |seed| {
            let (mut direction, mut now) = (Direction::new(options(0.03), seed), Instant::now());
            let mut lost = Vec::new();
            for n in 0..10_000 {
                let before = direction.lost;
                direction.push(&[0; 100], now);
                now += Duration::from_millis(1);
                while direction.pop(now).is_some() {}
                if direction.lost > before {
                    lost.push(n);
                }
            }
            lost
        };
        assert!((250..350).contains(&lost(7).len()), "{}", lost(7).len());
        assert_eq!(lost(7), lost(7));
        assert_ne!(lost(7), lost(8));
    }
}
