//! Whether every event loop still turns, for the service manager's watchdog.
//!
//! Used by the control thread, if the service manager has a watchdog. Twice per interval a round begins:
//! each loop receives a question, which it answers in its next turn; a sleeping loop is woken. When all
//! loops have answered, the control thread reports to the master, and the master to the manager. Nothing
//! here waits for a log or for files, and neither do loops: a hanging disk does not count. No clock: the
//! caller tells the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::events::{Events, ServerEvent};
use crate::log::Level;

/// Rounds per interval of the manager.
const ROUNDS: u32 = 2;

/// A loop without an answer is reported after this part of the interval: before the manager acts,
/// which is at least half an interval after the beginning of a round.
const REPORTED_AFTER: u32 = 4;

/// A question to a loop, dropped with its answer: by the turn that takes it, or with the loop's end.
pub struct Question {
    answered: Arc<AtomicBool>,
    /// Dropped with the last question of the round.
    _round: Arc<Round>,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.answered.store(true, Relaxed);
    }
}

/// Reports the end of a round when the last question is dropped.
struct Round {
    number: u64,
    events: Events,
}

impl Drop for Round {
    fn drop(&mut self) {
        self.events.send(ServerEvent::Alive { round: self.number });
    }
}

/// A round that has begun.
struct OpenRound {
    number: u64,
    begun: Instant,
    loops: Vec<(String, Arc<AtomicBool>)>,
    /// The time at which loops without an answer are reported.
    report_at: Instant,
    reported: bool,
}

/// The rounds.
pub struct Watchdog {
    interval: Duration,
    rounds: u64,
    open: Option<OpenRound>,
    next: Instant,
}

impl Watchdog {
    /// With the interval of the service manager; the first round begins at once.
    pub fn new(interval: Duration, now: Instant) -> Watchdog {
        Watchdog { interval, rounds: 0, open: None, next: now }
    }

    /// The time at which [`begin`](Self::begin) or [`report`](Self::report) is due.
    pub fn deadline(&self) -> Instant {
        self.open.as_ref().map_or(self.next, |open| open.report_at)
    }

    /// Begins a round if due: one question for each of the named loops.
    pub fn begin(&mut self, now: Instant, names: Vec<String>, events: &Events) -> Vec<Question> {
        if self.open.is_some() || now < self.next {
            return Vec::new();
        }
        self.rounds += 1;
        let round = Arc::new(Round { number: self.rounds, events: events.clone() });
        let loops: Vec<_> = names.into_iter().map(|name| (name, Arc::default())).collect();
        let question = |(_, answered): &(String, Arc<AtomicBool>)| Question {
            answered: answered.clone(),
            _round: round.clone(),
        };
        let questions = loops.iter().map(question).collect();
        let report_at = now + self.interval / REPORTED_AFTER;
        let number = self.rounds;
        self.open = Some(OpenRound { number, begun: now, loops, report_at, reported: false });
        questions
    }

    /// Lines about loops that should have answered. The pauses between them double.
    pub fn report(&mut self, now: Instant) -> Vec<String> {
        let Some(open) = self.open.as_mut().filter(|open| open.report_at <= now) else {
            return Vec::new();
        };
        let passed = now.saturating_duration_since(open.begun);
        open.report_at = now + passed.max(Duration::from_millis(1));
        open.reported = true;
        let stuck = open.loops.iter().filter(|(_, answered)| !answered.load(Relaxed));
        let line = |(name, _): &(String, Arc<AtomicBool>)| {
            format!(
                "the event loop of {name} has been stuck for {} ms; the service manager ends the \
                 server after {} ms",
                passed.as_millis(),
                self.interval.as_millis()
            )
        };
        stuck.map(line).collect()
    }

    /// All loops have answered in this round, which can be reported. Returns a line if some were late.
    pub fn ended(&mut self, round: u64, now: Instant) -> Option<(Level, String)> {
        let open = self.open.take_if(|open| open.number == round)?;
        self.next = (open.begun + self.interval / ROUNDS).max(now);
        let passed = now.saturating_duration_since(open.begun).as_millis();
        let line = format!("all event loops turn again, after {passed} ms");
        open.reported.then_some((Level::Notice, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events;

    const INTERVAL: Duration = Duration::from_secs(8);

    fn names() -> Vec<String> {
        vec!["worker 0".to_owned(), "worker 1".to_owned()]
    }

    fn alive(queue: &events::EventQueue) -> Option<u64> {
        match queue.next() {
            Some(ServerEvent::Alive { round }) => Some(round),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn two_rounds_per_interval() {
        let (events, queue) = events::queue().unwrap();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watchdog = Watchdog::new(INTERVAL, start);
        let mut questions = watchdog.begin(start, names(), &events);
        assert_eq!(questions.len(), 2);
        questions.pop();
        assert_eq!(alive(&queue), None);
        assert!(watchdog.begin(at(1), names(), &events).is_empty(), "one round at a time");
        questions.pop();
        assert_eq!(alive(&queue), Some(1));
        assert_eq!(watchdog.ended(1, at(1)), None);
        assert_eq!(watchdog.deadline(), at(4));
        assert!(watchdog.begin(at(3), names(), &events).is_empty());
        assert_eq!(watchdog.begin(at(4), names(), &events).len(), 2);
        assert_eq!(alive(&queue), Some(2));
    }

    #[test]
    fn a_stuck_loop_is_named_before_the_manager_acts() {
        let (events, queue) = events::queue().unwrap();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watchdog = Watchdog::new(INTERVAL, start);
        let mut questions = watchdog.begin(start, names(), &events);
        questions.remove(0);
        assert!(watchdog.report(at(1)).is_empty());
        let lines = watchdog.report(at(2));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("worker 1 has been stuck for 2000 ms"), "{lines:?}");
        assert_eq!(watchdog.deadline(), at(4));
        assert!(watchdog.report(at(3)).is_empty());
        assert_eq!(watchdog.report(at(4)).len(), 1);
        drop(questions);
        assert_eq!(alive(&queue), Some(1));
        let (level, line) = watchdog.ended(1, at(6)).unwrap();
        assert!(level == Level::Notice && line.contains("after 6000 ms"), "{line}");
        assert!(!watchdog.begin(at(6), names(), &events).is_empty(), "at once");
    }
}
