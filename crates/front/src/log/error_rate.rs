//! `rate=` of `error_log`: a message that repeats is left out, and counted.
//!
//! Messages are the same if they differ only in numbers and in quoted text. The writer of logs asks
//! each limit for the counts of ended windows ([`RateLimit::sweep`]); lines themselves only take a lock that
//! nobody holds for long.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::Level;
use super::threads::lock;

/// Most messages that one limit tells apart; others share one count.
pub const MESSAGES_MAX: usize = 256;
/// Longest text of a message in the line that tells how many were left out, bytes.
const SAMPLE_MAX: usize = 200;
/// The key that messages beyond [`MESSAGES_MAX`] share.
const OTHERS: u64 = 0;

/// Writes a line about what was left out.
pub(super) type LeftOutReport = Box<dyn Fn(&LeftOut) + Send + Sync>;

/// At most so many lines per message and window.
pub struct RateLimit {
    count: u32,
    window: Duration,
    messages: Mutex<HashMap<u64, Message>>,
    hasher: std::hash::RandomState,
    /// Writes the counts: the first log that was opened with this limit.
    pub(super) reports: OnceLock<LeftOutReport>,
}

struct Message {
    until: Instant,
    written: u32,
    left_out: LeftOut,
}

/// The messages that were left out within a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// How many.
    pub count: u64,
    /// The level of the last.
    pub level: Level,
    /// The beginning of the last.
    pub sample: Vec<u8>,
}

/// What to do with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Write it.
    Write,
    /// Leave it out.
    LeaveOut,
    /// Leave it out; it is the first of its window, whose end needs attention.
    LeaveOutFirst,
}

impl RateLimit {
    /// At most `count` lines of a message per `window`.
    pub fn new(count: u32, window: Duration) -> Self {
        let (messages, hasher, reports) = Default::default();
        Self { count, window, messages, hasher, reports }
    }

    /// Decides about a message, without its context.
    pub fn judge(&self, now: Instant, level: Level, message: &[u8]) -> Verdict {
        let mut key = self.key(level, message);
        let mut messages = lock(&self.messages);
        if messages.len() >= MESSAGES_MAX && !messages.contains_key(&key) {
            // Windows in which nothing was left out need no report.
            messages.retain(|_, message| message.until > now || message.left_out.count > 0);
            if messages.len() >= MESSAGES_MAX {
                key = OTHERS;
            }
        }
        let entry = messages.entry(key).or_insert_with(|| Message {
            until: now + self.window,
            written: 0,
            left_out: LeftOut { count: 0, level, sample: Vec::new() },
        });
        if entry.until <= now && entry.left_out.count == 0 {
            (entry.until, entry.written) = (now + self.window, 0);
        }
        if entry.written < self.count {
            entry.written += 1;
            return Verdict::Write;
        }
        entry.left_out.count += 1;
        entry.left_out.level = level;
        entry.left_out.sample.clear();
        entry.left_out.sample.extend_from_slice(&message[..message.len().min(SAMPLE_MAX)]);
        match entry.left_out.count {
            1 => Verdict::LeaveOutFirst,
            _ => Verdict::LeaveOut,
        }
    }

    /// Ends windows: returns what was left out in them, and when the next one ends.
    pub fn sweep(&self, now: Instant) -> (Vec<LeftOut>, Option<Instant>) {
        let (mut ended, mut next) = (Vec::new(), None::<Instant>);
        lock(&self.messages).retain(|_, message| {
            if message.until > now {
                if message.left_out.count > 0 {
                    next = Some(next.map_or(message.until, |next| next.min(message.until)));
                }
                return true;
            }
            if message.left_out.count > 0 {
                ended.push(message.left_out.clone());
            }
            false
        });
        (ended, next)
    }

    /// Writes a line for everything that was left out in ended windows. Returns when to do so again.
    pub(super) fn report(&self, now: Instant) -> Option<Instant> {
        let (ended, next) = self.sweep(now);
        if let Some(report) = self.reports.get() {
            ended.iter().for_each(report);
        }
        next
    }

    fn key(&self, level: Level, message: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u8(level as u8);
        let mut rest = message;
        while let [first, after @ ..] = rest {
            rest = after;
            match first {
                b'"' => {
                    let end = rest.iter().position(|byte| *byte == b'"');
                    rest = end.map_or(&[], |end| &rest[end + 1..]);
                    hasher.write_u8(b'"');
                }
                b'0'..=b'9' => {
                    let end = rest.iter().position(|byte| !byte.is_ascii_digit());
                    rest = &rest[end.unwrap_or(rest.len())..];
                    hasher.write_u8(b'0');
                }
                byte => hasher.write_u8(*byte),
            }
        }
        hasher.finish().max(OTHERS + 1)
    }
}

/// The end of a log, by a reload for instance, ends its windows, too.
impl Drop for RateLimit {
    fn drop(&mut self) {
        let (messages, report) = (self.messages.get_mut(), self.reports.get());
        let messages = messages.unwrap_or_else(std::sync::PoisonError::into_inner);
        for message in messages.values().filter(|message| message.left_out.count > 0) {
            report.into_iter().for_each(|report| report(&message.left_out));
        }
    }
}

impl PartialEq for RateLimit {
    fn eq(&self, other: &Self) -> bool {
        (self.count, self.window) == (other.count, other.window)
    }
}

impl Eq for RateLimit {}

impl std::fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimit")
            .field("count", &self.count)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn repetitions_are_counted() {
        let limit = RateLimit::new(2, SECOND);
        let now = Instant::now();
        let judge = |now, text: &str| limit.judge(now, Level::Error, text.as_bytes());
        assert_eq!(judge(now, "open() \"/a\" failed (2: No)"), Verdict::Write);
        assert_eq!(judge(now, "open() \"/b 1\" failed (13: No)"), Verdict::Write);
        assert_eq!(judge(now, "open() \"/c\" failed (2: No)"), Verdict::LeaveOutFirst);
        assert_eq!(judge(now, "open() \"/d\" failed (2: No)"), Verdict::LeaveOut);
        assert_eq!(judge(now, "another"), Verdict::Write);
        assert_eq!(limit.sweep(now), (vec![], Some(now + SECOND)));
        let (ended, next) = limit.sweep(now + SECOND);
        assert_eq!((ended.len(), ended[0].count, next), (1, 2, None));
        assert_eq!(ended[0].sample, b"open() \"/d\" failed (2: No)");
        assert_eq!(judge(now + SECOND, "open() \"/e\" failed (2: No)"), Verdict::Write);
    }

    #[test]
    fn the_end_of_a_log_ends_its_windows() {
        let limit = RateLimit::new(1, SECOND);
        let (sender, reports) = std::sync::mpsc::channel();
        let report = move |left_out: &LeftOut| sender.send(left_out.count).unwrap();
        assert!(limit.reports.set(Box::new(report)).is_ok());
        for _ in 0..3 {
            limit.judge(Instant::now(), Level::Error, b"a");
        }
        limit.judge(Instant::now(), Level::Error, b"b");
        drop(limit);
        assert_eq!(reports.iter().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn different_messages_are_bounded() {
        let limit = RateLimit::new(1, SECOND);
        let now = Instant::now();
        let mut left_out = 0;
        for n in 0..2 * MESSAGES_MAX {
            let text = "x".repeat(n);
            if limit.judge(now, Level::Error, text.as_bytes()) != Verdict::Write {
                left_out += 1;
            }
        }
        assert!(lock(&limit.messages).len() <= MESSAGES_MAX + 1);
        let (ended, _) = limit.sweep(now + SECOND);
        assert_eq!(ended.iter().map(|ended| ended.count).sum::<u64>(), left_out);
        assert!(lock(&limit.messages).is_empty());
    }
}
