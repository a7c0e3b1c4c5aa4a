//! Known names and pending lookups: one table per resolver, shared by the workers.
//!
//! Sans-IO: `now` is an argument; wakers cross threads. An entry is either being looked up, and
//! then all tasks that want it wait for the same lookup, or valid until a given time. There are at
//! most [`ENTRIES_MAX`] entries; beyond that, those are evicted that were not used since the clock
//! hand last passed them.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use slab::Slab;

use crate::answer::{ResolveError, Service};
use crate::name::DomainName;

/// Maximum number of names cached by a resolver.
pub const ENTRIES_MAX: usize = 8192;

/// Maximum number of concurrent lookups of a resolver.
pub const LOOKUPS_MAX: usize = 1024;

/// Maximum number of tasks waiting for one name.
pub const WAITERS_MAX: usize = 16 * 1024;

/// Maximum number of entries examined to find one to evict.
const HAND_MAX: usize = 64;

/// The subject of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LookupKey {
    /// Addresses. `absolute`: without search domains.
    Host { name: DomainName, absolute: bool },
    /// Services.
    Service(DomainName),
}

/// The result of a successful lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupAnswer {
    Addresses(Arc<[IpAddr]>),
    Services(Arc<[Service]>),
}

/// The result of a lookup, and until when it may be used.
pub type LookupOutcome = (Result<LookupAnswer, ResolveError>, Instant);

/// The table.
#[derive(Debug, Default)]
pub struct LookupTable {
    entries: HashMap<LookupKey, LookupEntry>,
    /// Every key of `entries`, once: the clock.
    clock: VecDeque<LookupKey>,
    /// Number of entries being looked up.
    asking: usize,
}

#[derive(Debug)]
struct LookupEntry {
    state: EntryState,
    /// Used since the hand last passed.
    used: bool,
}

#[derive(Debug)]
enum EntryState {
    Asking(Arc<PendingLookup>),
    Known(LookupOutcome),
}

/// The next step for a name.
#[derive(Debug)]
pub enum LookupStep {
    Known(LookupOutcome),
    /// A lookup is in progress: wait for it.
    Wait(Arc<PendingLookup>),
    /// No lookup is in progress: start one, call [`LookupTable::finish`] afterwards, and wait.
    Ask(Arc<PendingLookup>),
    /// Too many lookups are in progress.
    Full,
}

impl LookupTable {
    /// Looks up a name; on [`LookupStep::Ask`] the caller must start the lookup.
    pub fn find(&mut self, key: &LookupKey, now: Instant) -> LookupStep {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.used = true;
            match &entry.state {
                EntryState::Asking(pending) => return LookupStep::Wait(pending.clone()),
                EntryState::Known(outcome) if now < outcome.1 => {
                    return LookupStep::Known(outcome.clone());
                }
                EntryState::Known(_) => {}
            }
        }
        if self.asking >= LOOKUPS_MAX {
            return LookupStep::Full;
        }
        self.asking += 1;
        let pending = Arc::new(PendingLookup::default());
        let entry = LookupEntry { state: EntryState::Asking(pending.clone()), used: true };
        if self.entries.insert(key.clone(), entry).is_none() {
            self.clock.push_back(key.clone());
            self.evict();
        }
        LookupStep::Ask(pending)
    }

    /// The current value, without starting a lookup.
    pub fn peek(&mut self, key: &LookupKey, now: Instant) -> Option<LookupOutcome> {
        let entry = self.entries.get_mut(key)?;
        match &entry.state {
            EntryState::Known(outcome) if now < outcome.1 => {
                entry.used = true;
                Some(outcome.clone())
            }
            EntryState::Known(_) | EntryState::Asking(_) => None,
        }
    }

    /// Ends the lookup that `pending` stands for. The caller then notifies the waiting tasks,
    /// outside the lock ([`PendingLookup::end`]).
    pub fn finish(
        &mut self,
        key: &LookupKey,
        pending: &Arc<PendingLookup>,
        outcome: LookupOutcome,
    ) {
        if let Some(entry) = self.entries.get_mut(key)
            && matches!(&entry.state, EntryState::Asking(other) if Arc::ptr_eq(other, pending))
        {
            entry.state = EntryState::Known(outcome);
            self.asking -= 1;
        }
    }

    /// Enforces the limit. Names being looked up stay: there are fewer of them than entries.
    fn evict(&mut self) {
        let mut hand = 0;
        while self.entries.len() > ENTRIES_MAX {
            let Some(key) = self.clock.pop_front() else { return };
            hand += 1;
            let keep = self.entries.get_mut(&key).is_some_and(|entry| {
                let used = std::mem::take(&mut entry.used) && hand <= HAND_MAX;
                used || matches!(entry.state, EntryState::Asking(_))
            });
            if keep {
                self.clock.push_back(key);
            } else {
                self.entries.remove(&key);
            }
        }
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

/// A lookup in progress, and the tasks waiting for it.
#[derive(Debug, Default)]
pub struct PendingLookup(Mutex<LookupWaiters>);

#[derive(Debug, Default)]
struct LookupWaiters {
    /// `Some(None)`: the lookup was abandoned without a result; start it again.
    ended: Option<Option<LookupOutcome>>,
    waiters: Slab<Waker>,
    /// Number of waiting tasks.
    count: usize,
}

impl PendingLookup {
    /// Wakes all waiting tasks.
    pub fn end(&self, outcome: Option<LookupOutcome>) {
        let wakers = {
            let mut waiting = self.lock();
            if waiting.ended.is_some() {
                return;
            }
            waiting.ended = Some(outcome);
            std::mem::take(&mut waiting.waiters)
        };
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Whether any task is waiting.
    pub fn is_wanted(&self) -> bool {
        self.lock().count > 0
    }

    /// Waits for the end. `None`: too many tasks are already waiting.
    pub fn wait(self: &Arc<PendingLookup>) -> Option<WaitFuture> {
        let mut waiting = self.lock();
        if waiting.count >= WAITERS_MAX {
            return None;
        }
        waiting.count += 1;
        Some(WaitFuture { pending: self.clone(), key: None })
    }

    fn lock(&self) -> MutexGuard<'_, LookupWaiters> {
        // Plain data, valid after every statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The future of [`PendingLookup::wait`].
#[derive(Debug)]
pub struct WaitFuture {
    pending: Arc<PendingLookup>,
    /// Place among the waiters.
    key: Option<usize>,
}

impl Future for WaitFuture {
    /// `None`: the lookup was abandoned.
    type Output = Option<LookupOutcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut waiting = this.pending.lock();
        if let Some(ended) = &waiting.ended {
            let ended = ended.clone();
            this.key = None;
            return Poll::Ready(ended);
        }
        match this.key.and_then(|key| waiting.waiters.get_mut(key)) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => this.key = Some(waiting.waiters.insert(cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for WaitFuture {
    fn drop(&mut self) {
        let mut waiting = self.pending.lock();
        waiting.count -= 1;
        let waker = self.key.and_then(|key| waiting.waiters.try_remove(key));
        drop(waiting);
        drop(waker);
    }
}
