//! One request's search for a peer: the peers tried so far, and the choice of the next one.

use std::sync::Arc;
use std::time::Instant;

use crate::balance::{self, Cursor, Tried};
use crate::balance_input::BalanceInput;
use crate::conf::{ServerMode, Sticky};
use crate::group::Group;
use crate::peer::{Peer, ms};
use crate::queue::QueueFuture;
use crate::roster::Roster;
use crate::selected_peer::SelectedPeer;
use crate::sticky::Sessions;

/// The result of [`Attempt::next`].
#[derive(Debug)]
pub enum NextPeer {
    /// A peer to send the request to.
    Peer(SelectedPeer),
    /// None is available now, but the group has a `queue` with room: call [`Attempt::queue`].
    Busy,
    /// The group's names are not resolved yet: await [`Group::resolved`], then try again.
    Unresolved,
    /// No peer is available: "no live upstreams while connecting to upstream".
    NoLive,
}

/// The search for a peer that serves one request.
#[derive(Debug)]
pub struct Attempt {
    pub(crate) group: Arc<Group>,
    /// The peers at the time of the first choice.
    roster: Option<Arc<Roster>>,
    /// The search has reached the backups.
    in_backup: bool,
    pub(crate) tried: Tried,
    /// The position of the last one, in its tier.
    last: Option<usize>,
    /// Peers of the tier that have not acted on the request, and may be tried again after all others.
    repeatable: Option<Box<Tried>>,
    /// With a `queue`: the states of all tried peers, whose positions may change later.
    asked: Vec<u64>,
    /// Number of peers that may still be tried; `None` before the first choice.
    tries: Option<usize>,
    tries_max: usize,
    cursor: Cursor,
    /// The request's binding: a peer's ID, or a session.
    sticky: Option<Box<[u8]>>,
}

impl Group {
    /// Begins the search for a peer that serves a request.
    pub fn begin(self: &Arc<Self>, ask: BalanceInput<'_>) -> Attempt {
        Attempt::new(self, ask)
    }
}

impl Attempt {
    pub(crate) fn new(group: &Arc<Group>, ask: BalanceInput<'_>) -> Attempt {
        Attempt {
            cursor: Cursor::new(&group.conf().balancer, &ask),
            group: group.clone(),
            roster: None,
            in_backup: false,
            tried: Tried::default(),
            last: None,
            repeatable: None,
            asked: Vec::new(),
            tries: None,
            tries_max: usize::MAX,
            sticky: ask.sticky.filter(|id| !id.is_empty()).map(Into::into),
        }
    }

    /// The group that is searched.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Number of further peers that may be tried; counted from the first [`next`](Self::next) on. A
    /// request that failed on its peer is given up when none is left. 0 after the try of the only
    /// peer of a group.
    pub fn tries_left(&self) -> usize {
        self.tries.unwrap_or(0)
    }

    /// Limits the number of peers from now on (`proxy_next_upstream_tries` and its relatives).
    pub fn limit_tries(&mut self, most: usize) {
        self.tries_max = self.tries_max.min(most);
        self.tries = self.tries.map(|tries| tries.min(most));
    }

    /// The peer has not acted on the request, for example because an idle connection turned out to be
    /// closed: that does not count as a try, and the peer may be tried again after all others.
    pub fn add_try(&mut self) {
        self.tries = self.tries.map(|tries| tries + 1);
        if let Some(last) = self.last {
            self.repeatable.get_or_insert_default().set(last);
        }
    }

    /// Finds the next peer. Never returns the same one of several peers twice, except after
    /// [`add_try`](Self::add_try).
    pub fn next(&mut self, now: Instant) -> NextPeer {
        self.next_for(now, false)
    }

    /// Like [`next`](Self::next); `waited`: the request comes from the queue.
    pub(crate) fn next_for(&mut self, now: Instant, waited: bool) -> NextPeer {
        let at = ms(now);
        let bound = self.bound(at);
        let group = self.group.clone();
        let mut state = group.lock();
        let mut roster = match self.roster.take() {
            Some(roster) => roster,
            None => {
                let roster = state.roster.clone();
                if self.tries.is_none() {
                    self.tries = Some(roster.tries().min(self.tries_max));
                }
                if !self.asked.is_empty() {
                    self.look_anew(&roster);
                }
                roster
            }
        };
        // Queued requests come first.
        let queue = group.conf().queue;
        let behind = !waited && queue.is_some() && !state.waiting.is_empty();
        let mut picked = if behind { None } else { self.pick(&roster, bound.as_deref(), at) };
        if picked.is_none()
            && !behind
            && let Some(repeatable) = self.repeatable.take()
        {
            self.tried.remove(&repeatable);
            picked = self.pick(&roster, bound.as_deref(), at);
        }
        if picked.is_none() && !behind && !Arc::ptr_eq(&roster, &state.roster) {
            // The servers have changed since, and of those before none is left.
            roster = self.follow(&roster, &state.roster);
            picked = self.pick(&roster, bound.as_deref(), at);
        }
        if let Some(peer) = picked {
            drop(state);
            let single = roster.primary.single;
            self.roster = Some(roster);
            let left = self.tries_left().saturating_sub(1);
            self.tries = Some(if single { 0 } else { left });
            let inflight = balance::counts_inflight(&group.conf().balancer);
            return NextPeer::Peer(SelectedPeer::new(group, peer, at, single, inflight));
        }
        if roster.peers().next().is_none() && !state.is_resolved() {
            self.forget_roster();
            return NextPeer::Unresolved;
        }
        match queue {
            Some(queue) if waited || state.waiting.len() < queue.length => {
                // The peers at the time of its turn count.
                self.forget_roster();
                NextPeer::Busy
            }
            _ => {
                if queue.is_some() {
                    state.waiting.overflowed();
                }
                self.roster = Some(roster);
                NextPeer::NoLive
            }
        }
    }

    /// Goes on with the peers of another roster; those of `old` that were tried count as tried there.
    fn follow(&mut self, old: &Roster, new: &Arc<Roster>) -> Arc<Roster> {
        let tier = if self.in_backup { &old.backup } else { &old.primary };
        let tried = tier.peers.iter().enumerate().filter(|(n, _)| self.tried.has(*n));
        let before = old.primary.peers.iter().filter(|_| self.in_backup);
        let states = tried.map(|(_, peer)| peer).chain(before).map(|peer| peer.state.id);
        let states: Vec<u64> = states.collect();
        self.tried.renew(&new.primary.peers, &states);
        (self.last, self.repeatable, self.in_backup) = (None, None, false);
        new.clone()
    }

    /// The peers may have changed by the next choice, and the first tier is preferred again.
    fn forget_roster(&mut self) {
        self.roster = None;
        (self.last, self.repeatable) = (None, None);
        self.in_backup = false;
        if self.asked.is_empty() {
            self.tried.clear();
            // No peer was tried: the number of tries is counted from the peers at that time.
            self.tries = None;
        }
    }

    /// After a wait: no peer is tried twice, unless there is no other one to wait for.
    fn look_anew(&mut self, roster: &Roster) {
        let is_other =
            |peer: &Arc<Peer>| peer.down == ServerMode::Up && !self.asked.contains(&peer.state.id);
        if !roster.peers().any(is_other) {
            self.asked.clear();
        }
        self.tried.renew(&roster.primary.peers, &self.asked);
    }

    /// Waits in the group's `queue`, no longer than its `timeout`, until a peer can be used.
    /// After [`NextPeer::Busy`].
    ///
    /// # Panics
    /// If polled outside of a worker.
    pub fn queue(&mut self, now: Instant) -> QueueFuture<'_> {
        QueueFuture::new(self, now)
    }

    /// The ID of the peer that the request is bound to.
    fn bound(&self, now: u64) -> Option<Box<[u8]>> {
        let id = self.sticky.as_deref()?;
        match self.group.sessions() {
            Some(sessions) => sessions.lookup(id, now),
            None => Some(id.into()),
        }
    }

    fn pick(&mut self, roster: &Roster, bound: Option<&[u8]>, now: u64) -> Option<Arc<Peer>> {
        loop {
            let tier = if self.in_backup { &roster.backup } else { &roster.primary };
            let balancer = &self.group.conf().balancer;
            let found = balance::pick(balancer, tier, &self.tried, &mut self.cursor, bound, now);
            if let Some(n) = found {
                let peer = tier.peers[n].clone();
                self.tried.set(n);
                self.last = Some(n);
                if self.group.conf().queue.is_some() {
                    self.asked.push(peer.state.id);
                }
                if !tier.single {
                    peer.note_check(now);
                }
                peer.acquire(now);
                return Some(peer);
            }
            if self.in_backup || roster.backup.peers.is_empty() {
                return None;
            }
            self.in_backup = true;
            (self.last, self.repeatable) = (None, None);
            self.tried.renew(&roster.backup.peers, &self.asked);
        }
    }

    /// `sticky learn`: the session that a response of `peer` reveals. `created` is the first of
    /// [`LearnConf::create`](crate::LearnConf) that is not empty.
    pub fn learning(&self, peer: &Arc<Peer>, created: Option<&[u8]>) -> Option<SessionLearner> {
        let sessions = self.group.sessions()?;
        let created = created.filter(|id| !id.is_empty());
        let session = created.or(self.sticky.as_deref())?.into();
        Some(SessionLearner { sessions, session, created: created.is_some(), peer: peer.clone() })
    }

    /// The group's `sticky learn`.
    pub fn learns(&self) -> Option<&crate::LearnConf> {
        match &self.group.conf().sticky {
            Some(Sticky::Learn(learn)) => Some(learn),
            _ => None,
        }
    }

    /// The earliest time at which a failed peer may be used again: for queued requests.
    pub(crate) fn available_at(&self, now: u64) -> Option<u64> {
        let state = self.group.lock();
        let failed = state.roster.peers().filter(|peer| peer.has_failed(now));
        failed.map(|peer| peer.recovers_at()).min()
    }
}

/// A session to be learnt: after the response header with [`LearnConf::header`](crate::LearnConf),
/// otherwise when the response has ended successfully.
#[derive(Debug)]
pub struct SessionLearner {
    sessions: Arc<Sessions>,
    session: Box<[u8]>,
    created: bool,
    peer: Arc<Peer>,
}

impl SessionLearner {
    /// Records the session.
    pub fn note(self, now: Instant) {
        self.sessions.learn(&self.session, self.peer.sid(), self.created, ms(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::Balancer;

    #[test]
    fn balancer_without_state() {
        assert!(matches!(
            Cursor::new(&Balancer::RoundRobin, &BalanceInput::default()),
            Cursor::None
        ));
    }
}
