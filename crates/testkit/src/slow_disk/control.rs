//! Decides when and how an operation of the slow disk completes.
//!
//! An operation arrives as a [`Job`]: a closure that does the work on the backing store and sends
//! the reply. No thread waits for a held or delayed one; it is a value in a list here, so any
//! number may wait. A few threads ([`DiskControl::work`]) run those whose time has come. They touch
//! only the backing store, never the mount, so nothing here can wait for itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ops::{Op, OpScope, Ops};

/// Outcome of an operation: execute it, or reply with this `errno`.
pub(super) type OpResult = Result<(), i32>;
/// Executes an operation and replies to it.
pub(super) type Job = Box<dyn FnOnce(OpResult) + Send>;

/// How long an operation takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Added to every operation.
    pub base: Duration,
    /// Occasional additional latency.
    pub spike: Option<Spike>,
}

/// An additional wait of some operations, chosen by the disk's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spike {
    /// One in this many operations, on average; at least 1.
    pub one_in: u32,
    pub shortest: Duration,
    /// At least `shortest`; all lengths in between are equally likely.
    pub longest: Duration,
}

impl From<Duration> for Latency {
    fn from(base: Duration) -> Latency {
        Latency { base, spike: None }
    }
}

#[derive(Debug)]
enum Effect {
    Delay(Latency),
    Fail(i32),
    Hold,
}

#[derive(Debug)]
struct ControlRule {
    target: OpScope,
    effect: Effect,
}

struct PendingOp {
    op: Op,
    path: PathBuf,
    job: Job,
}

/// Jobs with a due time, ordered by time and arrival only.
struct DelayedJob {
    due: Instant,
    /// Arrival; keeps equal times in order.
    serial: u64,
    verdict: OpResult,
    job: Job,
}

impl PartialEq for DelayedJob {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DelayedJob {}

impl PartialOrd for DelayedJob {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DelayedJob {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.serial).cmp(&(other.due, other.serial))
    }
}

#[derive(Default)]
struct ControlState {
    /// By number, oldest first.
    rules: BTreeMap<u64, ControlRule>,
    last_number: u64,
    /// Operations waiting at the hold of that number.
    held: BTreeMap<u64, Vec<PendingOp>>,
    delayed: BinaryHeap<Reverse<DelayedJob>>,
    ready: VecDeque<(OpResult, Job)>,
    seen: [u64; Op::COUNT],
    /// When each head is free again; empty means as many as needed.
    heads: Vec<Instant>,
    random: u64,
    stopped: bool,
}

/// Destination of an operation.
enum Decision {
    Hold(u64),
    Delay(Instant, OpResult),
    Now(OpResult),
}

/// The rules in force and the pending operations. Shared by the file system, its work threads and
/// the test's handles.
pub(super) struct DiskControl {
    state: Mutex<ControlState>,
    /// Wakes the work threads.
    work: Condvar,
    /// Wakes tests that wait for operations to arrive.
    arrived: Condvar,
}

impl DiskControl {
    pub(super) fn new(seed: u64) -> DiskControl {
        DiskControl {
            state: Mutex::new(ControlState { random: seed, ..ControlState::default() }),
            work: Condvar::new(),
            arrived: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits an operation: it completes now, later, or when a hold is released.
    pub(super) fn submit(&self, op: Op, path: PathBuf, job: Job) {
        let mut state = self.lock();
        state.seen[op.index()] += 1;
        self.arrived.notify_all();
        let waiting = PendingOp { op, path, job };
        if let Some((verdict, job)) = self.place(&mut state, waiting) {
            drop(state);
            job(verdict);
        }
    }

    /// Queues an operation; returns it if it is to be executed at once.
    fn place(&self, state: &mut ControlState, waiting: PendingOp) -> Option<(OpResult, Job)> {
        match state.decide(waiting.op, &waiting.path) {
            Decision::Hold(number) => {
                state.held.entry(number).or_default().push(waiting);
                None
            }
            Decision::Delay(due, verdict) => {
                state.last_number += 1;
                let serial = state.last_number;
                let job = waiting.job;
                state.delayed.push(Reverse(DelayedJob { due, serial, verdict, job }));
                self.work.notify_one();
                None
            }
            Decision::Now(verdict) => Some((verdict, waiting.job)),
        }
    }

    fn add(&self, target: OpScope, effect: Effect) -> u64 {
        let mut state = self.lock();
        state.last_number += 1;
        let number = state.last_number;
        state.rules.insert(number, ControlRule { target, effect });
        number
    }

    pub(super) fn delay(&self, target: OpScope, latency: Latency) {
        self.add(target, Effect::Delay(latency));
    }

    pub(super) fn fail(&self, target: OpScope, errno: i32) {
        self.add(target, Effect::Fail(errno));
    }

    pub(super) fn hold(&self, target: OpScope) -> u64 {
        self.add(target, Effect::Hold)
    }

    /// Ends a hold. Operations waiting at it are executed, unless another rule applies, or fail
    /// with an error.
    pub(super) fn let_go(&self, number: u64, verdict: OpResult) {
        let mut state = self.lock();
        state.rules.remove(&number);
        for waiting in state.held.remove(&number).unwrap_or_default() {
            let ready = match verdict {
                Ok(()) => self.place(&mut state, waiting),
                Err(_) => Some((verdict, waiting.job)),
            };
            state.ready.extend(ready);
        }
        self.work.notify_all();
    }

    /// Number of operations waiting at a hold.
    pub(super) fn waiting(&self, number: u64) -> usize {
        self.lock().held.get(&number).map_or(0, Vec::len)
    }

    /// Waits until at least `n` wait at a hold; false after `patience`.
    pub(super) fn wait_waiting(&self, number: u64, n: usize, patience: Duration) -> bool {
        let enough = |state: &mut ControlState| state.held.get(&number).map_or(0, Vec::len) < n;
        let result = self.arrived.wait_timeout_while(self.lock(), patience, enough);
        let (_state, outcome) = result.unwrap_or_else(PoisonError::into_inner);
        !outcome.timed_out()
    }

    /// Removes every rule; all waiting operations are executed.
    pub(super) fn heal(&self) {
        let mut state = self.lock();
        state.rules.clear();
        state.heads.clear();
        let held = std::mem::take(&mut state.held);
        state.ready.extend(held.into_values().flatten().map(|waiting| (Ok(()), waiting.job)));
        let delayed = std::mem::take(&mut state.delayed);
        let delayed = delayed.into_sorted_vec().into_iter().rev();
        state.ready.extend(delayed.map(|Reverse(d)| (d.verdict, d.job)));
        self.work.notify_all();
    }

    /// How many operations the disk can process at a time; 0 means any number.
    pub(super) fn set_heads(&self, n: usize) {
        self.lock().heads = vec![Instant::now(); n];
    }

    /// Total number of operations of these kinds so far.
    pub(super) fn seen(&self, ops: Ops) -> u64 {
        let state = self.lock();
        let counts = [
            Op::Lookup,
            Op::Getattr,
            Op::Setattr,
            Op::Open,
            Op::Create,
            Op::Read,
            Op::Write,
            Op::Fsync,
            Op::Readdir,
            Op::Rename,
            Op::Unlink,
            Op::Mkdir,
        ];
        let counted = counts.into_iter().filter(|&op| ops.contains(op));
        counted.map(|op| state.seen[op.index()]).sum()
    }

    /// Body of a work thread: runs due jobs until [`DiskControl::stop`].
    pub(super) fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some((verdict, job)) = state.next_due() {
                drop(state);
                job(verdict);
                state = self.lock();
                continue;
            }
            if state.stopped {
                return;
            }
            let wait = state
                .delayed
                .peek()
                .map(|Reverse(next)| next.due.saturating_duration_since(Instant::now()));
            state = match wait {
                Some(wait) => {
                    let woken = self.work.wait_timeout(state, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Lets the work threads end after the due jobs; rules and waits are discarded.
    pub(super) fn stop(&self) {
        self.heal();
        self.lock().stopped = true;
        self.work.notify_all();
    }
}

impl ControlState {
    fn next_due(&mut self) -> Option<(OpResult, Job)> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        let Reverse(next) = self.delayed.peek()?;
        if next.due > Instant::now() {
            return None;
        }
        let Reverse(next) = self.delayed.pop()?;
        Some((next.verdict, next.job))
    }

    fn decide(&mut self, op: Op, path: &Path) -> Decision {
        let mut verdict = Ok(());
        let mut latencies = Vec::new();
        for (&number, rule) in &self.rules {
            if !rule.target.matches(op, path) {
                continue;
            }
            match rule.effect {
                Effect::Hold => return Decision::Hold(number),
                Effect::Fail(errno) => verdict = Err(errno),
                Effect::Delay(latency) => latencies.push(latency),
            }
        }
        let wait: Duration = latencies.into_iter().map(|latency| self.roll(latency)).sum();
        if wait.is_zero() {
            return Decision::Now(verdict);
        }
        let now = Instant::now();
        // A head starts an operation when it has finished the previous one.
        let due = match self.heads.iter_mut().min() {
            Some(free) => {
                *free = now.max(*free) + wait;
                *free
            }
            None => now + wait,
        };
        Decision::Delay(due, verdict)
    }

    fn roll(&mut self, latency: Latency) -> Duration {
        match latency.spike {
            Some(spike) if self.next_random().is_multiple_of(u64::from(spike.one_in.max(1))) => {
                let range = spike.longest.saturating_sub(spike.shortest).as_micros() as u64;
                let more = Duration::from_micros(self.next_random() % (range + 1));
                latency.base + spike.shortest + more
            }
            _ => latency.base,
        }
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    fn job() -> (Job, Receiver<OpResult>) {
        let (sender, receiver) = channel();
        let job = Box::new(move |verdict| sender.send(verdict).expect("the test listens"));
        (job, receiver)
    }

    fn submit(control: &DiskControl, op: Op) -> Receiver<OpResult> {
        let (job, receiver) = job();
        control.submit(op, PathBuf::from("a"), job);
        receiver
    }

    /// Runs due jobs, on this thread.
    fn run(control: &DiskControl) {
        let due = || control.lock().next_due();
        while let Some((verdict, job)) = due() {
            job(verdict);
        }
    }

    #[test]
    fn without_rules_all_is_answered_at_once() {
        let control = DiskControl::new(1);
        assert_eq!(submit(&control, Op::Read).try_recv(), Ok(Ok(())));
        assert_eq!(control.seen(Ops::READ), 1);
        assert_eq!(control.seen(Ops::WRITE), 0);
    }

    #[test]
    fn a_hold_keeps_its_kind_until_let_go() {
        let control = DiskControl::new(1);
        let hold = control.hold(Ops::READ.into());
        let (first, second) = (submit(&control, Op::Read), submit(&control, Op::Read));
        assert_eq!(submit(&control, Op::Write).try_recv(), Ok(Ok(())));
        assert!(control.wait_waiting(hold, 2, Duration::ZERO));
        assert!(!control.wait_waiting(hold, 3, Duration::ZERO));
        assert!(first.try_recv().is_err());
        control.let_go(hold, Ok(()));
        run(&control);
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(Ok(())), Ok(Ok(()))));
        assert_eq!(submit(&control, Op::Read).try_recv(), Ok(Ok(())));
    }

    #[test]
    fn a_hold_can_end_in_an_error_or_another_hold() {
        let control = DiskControl::new(1);
        let first = control.hold(Ops::READ.into());
        let second = control.hold(Ops::ALL.into());
        let read = submit(&control, Op::Read);
        control.let_go(first, Ok(()));
        assert_eq!(control.waiting(second), 1);
        control.let_go(second, Err(5));
        run(&control);
        assert_eq!(read.try_recv(), Ok(Err(5)));
    }

    #[test]
    fn heal_answers_all() {
        let control = DiskControl::new(1);
        control.hold(Ops::READ.into());
        control.delay(Ops::WRITE.into(), Duration::from_secs(1000).into());
        control.fail(Ops::OPEN.into(), 5);
        assert_eq!(submit(&control, Op::Open).try_recv(), Ok(Err(5)));
        let (read, write) = (submit(&control, Op::Read), submit(&control, Op::Write));
        run(&control);
        assert!(read.try_recv().is_err() && write.try_recv().is_err());
        control.heal();
        run(&control);
        assert_eq!((read.try_recv(), write.try_recv()), (Ok(Ok(())), Ok(Ok(()))));
    }

    #[test]
    fn one_head_does_one_after_the_other() {
        let control = DiskControl::new(1);
        control.set_heads(1);
        control.delay(Ops::READ.into(), Duration::from_secs(10).into());
        let _first = submit(&control, Op::Read);
        let _second = submit(&control, Op::Read);
        let state = control.lock();
        let dues: Vec<_> = state.delayed.iter().map(|Reverse(d)| d.due).collect();
        let apart = dues[0].max(dues[1]) - dues[0].min(dues[1]);
        assert_eq!(apart, Duration::from_secs(10));
    }

    #[test]
    fn spikes_come_as_often_as_asked_and_repeat_by_seed() {
        let [shortest, longest] = [1, 2].map(Duration::from_secs);
        let spike = Spike { one_in: 10, shortest, longest };
        let latency = Latency { base: Duration::ZERO, spike: Some(spike) };
        let roll = |seed| {
            let control = DiskControl::new(seed);
            let mut state = control.lock();
            (0..1000).map(|_| state.roll(latency)).collect::<Vec<_>>()
        };
        let rolls = roll(7);
        let spikes = rolls.iter().filter(|d| !d.is_zero()).count();
        assert!((60..140).contains(&spikes), "{spikes}");
        assert!(rolls.iter().all(|d| d.is_zero() || (shortest..=longest).contains(d)));
        assert!(rolls.iter().any(|d| *d > Duration::from_millis(1500)));
        assert_eq!(rolls, roll(7));
    }
}
