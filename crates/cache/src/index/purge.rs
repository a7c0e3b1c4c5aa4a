//! Purges: by key, by tag, by prefix, of all objects; hard or soft.
//!
//! A purge takes effect when it begins; the walk that follows marks entries or returns the files to
//! remove, in steps. The cost of each kind:
//!
//! | Purge of | Takes effect by | The walk reads |
//! |---|---|---|
//! | a key | its entry, and those of its variants | nothing |
//! | a tag | the entries of the tag, step by step | heads of files whose tags are not in memory |
//! | a prefix | a rule checked on hits | heads of files whose sketch matches: nearly those purged |
//! | everything | a rule checked on hits | nothing |
//!
//! Objects whose tags are only in their files (the side index was full, or the loader found the
//! file) are checked when their heads are read: by the walk of a purge by tag, which reads at most
//! [`UNLEARNED_READS_MAX`] of them, and on every hit ([`Index::learn`]). Tags read in this way are
//! then kept in memory, if there is room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::key::Key;
use crate::time::UnixMs;

use super::bans::{Ban, How, What};
use super::entry::{DELETING, EXISTS, SOFT_PURGED, TAGS_IN_FILE, UNVERIFIED};
use super::hold::{PurgeNames, variants_tag};
use super::load::Cursor;
use super::shard::Shard;
use super::{Index, Tag, Victim, lock, write};

/// The maximum number of heads that one purge by tag reads for objects whose tags are not in
/// memory. Further ones are purged when they are requested, and are not counted.
pub const UNLEARNED_READS_MAX: usize = 10_000;

/// The reason why a purge can't begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeError {
    /// The maximum number of purges is under way ([`super::ACTIVE_BANS_MAX`] by prefix or of
    /// everything), or waits for a disk that does not respond: try later.
    TooMany,
}

impl std::fmt::Display for PurgeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMany => f.write_str("too many purges are under way"),
        }
    }
}

impl std::error::Error for PurgeError {}

/// A purge under way. Run [`Purge::step`] until it is done: rules of purges by prefix and of
/// everything stay active until then.
#[derive(Debug)]
pub struct Purge {
    index: Arc<Index>,
    ban: Ban,
    stage: PurgeStage,
    /// Results of steps that were made ahead.
    ahead: VecDeque<PurgeStep>,
    /// The loader had seen all files when the walk began, so the walk meets every entry.
    meets_all: bool,
}

/// The walks of a purge, in this order.
#[derive(Debug)]
enum PurgeStage {
    /// One key.
    Key,
    /// The entries of a tag.
    Tag(Tag, Option<u32>),
    /// Entries whose tags are only in their files; this many more heads are read.
    Unlearned(Cursor, usize),
    /// All entries.
    All(Cursor),
    Done,
}

/// The result of a step of a purge.
#[derive(Debug, Default)]
pub struct PurgeStep {
    /// Objects whose files must be removed.
    pub victims: Vec<Victim>,
    /// The number of objects marked as stale.
    pub marked: usize,
    /// Objects whose heads must be read and passed to [`Purge::verified`].
    pub verify: VecDeque<Key>,
    /// The purge is complete except for the work that this step returned.
    pub done: bool,
}

/// The result for an object whose head was read.
#[derive(Debug)]
pub enum Verified {
    /// The object is not purged.
    Kept,
    /// The object is stale now.
    Marked,
    /// The file must be removed.
    Victim(Victim),
}

/// An object's state after all purges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All of it.
    Valid,
    /// The object is stale, and so are its copies.
    Stale,
    /// The object is purged, or does not exist.
    Gone,
}

impl Index {
    /// Begins a purge.
    ///
    /// # Errors
    /// See [`PurgeError`].
    pub fn purge(self: &Arc<Self>, what: What, how: How, now: UnixMs) -> Result<Purge, PurgeError> {
        // Stamped under the lock, so that commits see the rule or come after it.
        let mut bans = write(&self.bans);
        let ban = Ban { stamp: self.next_stamp(), what, how, at: now, inherited: false };
        if matches!(ban.what, What::Prefix(_) | What::All) {
            if !bans.activate(ban.clone()) {
                return Err(PurgeError::TooMany);
            }
            self.any_active_ban.store(true, Ordering::Release);
        }
        bans.remember(ban.clone());
        drop(bans);
        Ok(self.walk(ban))
    }

    /// Resolves when every object that was getting its name when a purge began has it, or has been
    /// removed by the purge: before that, a crash would bring it back.
    pub async fn published(&self, what: &What) {
        self.publishing.ended(what).await;
    }

    /// Purges whose walks must be repeated: after the loader has entered files that they have not
    /// seen, or after a restart.
    pub fn unfinished_purges(self: &Arc<Self>) -> Vec<Purge> {
        let bans = super::read(&self.bans);
        bans.active().iter().cloned().map(|ban| self.walk(ban)).collect()
    }

    /// Purges to be saved in a snapshot: those with active rules, and those that are remembered.
    pub(crate) fn purges(&self) -> (Vec<Ban>, Vec<Ban>) {
        let bans = super::read(&self.bans);
        (bans.active().to_vec(), bans.remembered().collect())
    }

    /// Whether there may be objects on the disk whose tags or key texts the index does not know.
    /// Purges must then be saved on the disk, too, or a crash would undo them
    /// ([`crate::snapshot::Encoder::of_purges`]).
    pub fn must_keep_purges(&self) -> bool {
        self.is_cold() || self.unlearned.load(Ordering::Acquire)
    }

    /// The state of the key's object after all purges, including those whose walk has not reached
    /// it.
    pub fn standing(&self, key: &Key, names: PurgeNames<'_>) -> Standing {
        self.standing_in(key, names, EXISTS)
    }

    /// Like [`standing`](Self::standing), for a victim: an object about to be removed, but not
    /// because it was purged.
    pub fn standing_of_victim(&self, key: &Key, names: PurgeNames<'_>) -> Standing {
        self.standing_in(key, names, DELETING)
    }

    fn standing_in(&self, key: &Key, names: PurgeNames<'_>, state: u8) -> Standing {
        let bans = super::read(&self.bans);
        let (_, shard) = self.shard(key);
        let entry = shard.find(key).map(|slot| shard.get(slot)).filter(|entry| entry.is(state));
        match entry.map(|entry| bans.since(entry.stamp, names)) {
            None | Some(Some(How::Hard)) => Standing::Gone,
            Some(Some(How::Soft)) => Standing::Stale,
            Some(None) => Standing::Valid,
        }
    }

    /// Whether any purge is remembered.
    pub fn has_purges(&self) -> bool {
        let bans = super::read(&self.bans);
        !bans.active().is_empty() || bans.remembered().next().is_some()
    }

    /// Enters a purge of a snapshot. An active one is walked by [`Index::unfinished_purges`].
    pub(crate) fn restore_purge(&self, ban: Ban, active: bool) {
        self.stamp.fetch_max(ban.stamp, Ordering::AcqRel);
        let mut bans = write(&self.bans);
        if !active {
            bans.remember(ban);
        } else if !bans.active().iter().any(|known| known.stamp == ban.stamp) {
            // There were no more than this before: there is room for them.
            bans.activate(ban);
            self.any_active_ban.store(true, Ordering::Release);
        }
    }

    fn walk(self: &Arc<Self>, ban: Ban) -> Purge {
        let stage = match ban.what {
            What::Key(_) => PurgeStage::Key,
            What::Tag(tag) => PurgeStage::Tag(tag, None),
            What::Prefix(_) | What::All => PurgeStage::All(Cursor::default()),
        };
        let (ahead, meets_all) = (VecDeque::new(), !self.is_cold());
        Purge { index: Arc::clone(self), ban, stage, ahead, meets_all }
    }
}

impl Purge {
    /// The selected objects, and the kind of purge.
    pub fn ban(&self) -> &Ban {
        &self.ban
    }

    /// Makes the steps that no rule stands in for until they are made: over the entry of a key and its
    /// variants, or the first ones of a tag. [`step`](Self::step) returns their results.
    pub fn advance(&mut self, limit: usize) {
        while matches!(self.stage, PurgeStage::Key | PurgeStage::Tag(_, None)) {
            let step = self.step_further(limit);
            self.ahead.push_back(step);
        }
    }

    /// Continues, over at most about `limit` entries.
    pub fn step(&mut self, limit: usize) -> PurgeStep {
        self.ahead.pop_front().unwrap_or_else(|| self.step_further(limit))
    }

    fn step_further(&mut self, limit: usize) -> PurgeStep {
        let mut step = PurgeStep::default();
        self.stage = match std::mem::replace(&mut self.stage, PurgeStage::Done) {
            PurgeStage::Key => self.step_key(&mut step),
            PurgeStage::Tag(tag, cursor) => self.step_tag(tag, cursor, limit, &mut step),
            PurgeStage::Unlearned(cursor, left) => {
                self.step_unlearned(cursor, left, limit, &mut step)
            }
            PurgeStage::All(cursor) => match self.step_all(cursor, limit, &mut step) {
                Some(cursor) => PurgeStage::All(cursor),
                None => PurgeStage::Done,
            },
            PurgeStage::Done => PurgeStage::Done,
        };
        step.done = matches!(self.stage, PurgeStage::Done);
        step
    }

    /// The walk is done, and its results were handled. If it began while the index was cold, a rule
    /// stays active for the files that the walk has not met: [`Index::unfinished_purges`] repeats it.
    pub fn finish(self) {
        if !self.meets_all {
            return;
        }
        let mut bans = write(&self.index.bans);
        bans.deactivate(self.ban.stamp);
        self.index.any_active_ban.store(!bans.active().is_empty(), Ordering::Release);
    }

    /// Decides about an object of [`PurgeStep::verify`] by the contents of its head.
    pub fn verified(&self, key: &Key, names: PurgeNames<'_>) -> Verified {
        let mut step = PurgeStep::default();
        // Held to the end, as in [`Index::learn`].
        let bans = super::read(&self.index.bans);
        let (number, mut shard) = self.index.shard(key);
        let found = shard.find(key);
        let stamp = found.map_or(0, |slot| shard.get(slot).stamp);
        if !self.ban.matches(key, stamp, names) {
            // Another purge may concern it whose walk did not meet it: it stays to be checked on hits.
            if let Some(slot) = found
                && bans.since(stamp, names).is_none()
            {
                self.learn_tags(number, &mut shard, slot, key, names);
            }
            return Verified::Kept;
        }
        let slot = match found {
            None if self.index.is_cold() => self.insert_unknown(&mut shard, key),
            found => found,
        };
        if let Some(slot) = slot {
            self.apply(number, &mut shard, slot, &mut step);
        }
        match step.victims.pop() {
            Some(victim) => Verified::Victim(victim),
            None if step.marked > 0 => Verified::Marked,
            None => Verified::Kept,
        }
    }

    /// The head of an object of [`PurgeStep::verify`] can't be read: whether the object is purged is
    /// decided when it is hit.
    pub fn unreadable(&self, key: &Key) {
        let (_, mut shard) = self.index.shard(key);
        let Some(slot) = shard.find(key) else { return };
        let entry = shard.get(slot);
        if entry.is(EXISTS) && !entry.is(TAGS_IN_FILE) && entry.stamp < self.ban.stamp {
            self.index.detach_tags(&mut shard, slot);
            shard.get_mut(slot).set(TAGS_IN_FILE);
            self.index.unlearned.store(true, Ordering::Release);
        }
    }

    fn step_key(&self, step: &mut PurgeStep) -> PurgeStage {
        let What::Key(key) = self.ban.what else { return PurgeStage::Done };
        let (number, mut shard) = self.index.shard(&key);
        match shard.find(&key) {
            Some(slot) => self.apply(number, &mut shard, slot, step),
            // The loader has not reached it yet: its file may exist.
            None if self.index.is_cold() => step.verify.push_back(key),
            None => {}
        }
        PurgeStage::Tag(Tag::variants_of(&key), None)
    }

    fn step_tag(
        &self,
        tag: Tag,
        cursor: Option<u32>,
        limit: usize,
        step: &mut PurgeStep,
    ) -> PurgeStage {
        let mut cursor = cursor;
        let entries = lock(&self.index.tags).walk(tag, &mut cursor, limit.max(1));
        for global in entries {
            let (number, mut shard, slot) = self.index.local(global);
            // The slot may hold another object by now.
            let carries =
                shard.live(slot).is_some_and(|entry| lock(&self.index.tags).has(entry.tags, tag));
            if carries {
                self.apply(number, &mut shard, slot, step);
            }
        }
        match cursor {
            Some(cursor) => PurgeStage::Tag(tag, Some(cursor)),
            None if matches!(self.ban.what, What::Tag(_)) && self.index.must_keep_purges() => {
                PurgeStage::Unlearned(Cursor::default(), UNLEARNED_READS_MAX)
            }
            None => PurgeStage::Done,
        }
    }

    /// Entries that may carry the tag, since their tags are not known yet.
    fn step_unlearned(
        &self,
        cursor: Cursor,
        left: usize,
        limit: usize,
        step: &mut PurgeStep,
    ) -> PurgeStage {
        let next = self.index.step(cursor, limit.max(1), |shard, _, slot| {
            let entry = shard.get(slot);
            let unknown = entry.is(EXISTS) && entry.is(TAGS_IN_FILE);
            if unknown && entry.stamp < self.ban.stamp && step.verify.len() < left {
                step.verify.push_back(entry.key);
            }
        });
        let left = left - step.verify.len();
        match next {
            Some(next) if left > 0 => PurgeStage::Unlearned(next, left),
            _ => PurgeStage::Done,
        }
    }

    /// Keeps the tags of a surviving object in memory, if there is room for them.
    fn learn_tags(
        &self,
        number: u32,
        shard: &mut Shard,
        slot: u32,
        key: &Key,
        names: PurgeNames<'_>,
    ) {
        let entry = shard.get(slot);
        // A newer object is not the one whose head was read.
        if entry.is(EXISTS) && entry.is(TAGS_IN_FILE) && entry.stamp < self.ban.stamp {
            let tags = names.tags.iter().copied().chain(variants_tag(key, names.main));
            self.index.detach_tags(shard, slot);
            self.index.attach_tags(number, shard, slot, tags);
        }
    }

    /// Everything, or entries whose key may begin with the prefix.
    fn step_all(&self, cursor: Cursor, limit: usize, step: &mut PurgeStep) -> Option<Cursor> {
        self.index.step(cursor, limit.max(1), |shard, number, slot| {
            let entry = shard.get(slot);
            if !entry.is(EXISTS) || entry.stamp >= self.ban.stamp {
                return;
            }
            let candidate = match &self.ban.what {
                What::All if self.ban.inherited && entry.stamp == 0 => true,
                What::All => return self.apply(number, shard, slot, step),
                What::Prefix(prefix) => entry.sketch.may_begin_with(prefix),
                What::Key(_) | What::Tag(_) => false,
            };
            if candidate && !self.is_marked(shard, slot) {
                step.verify.push_back(shard.get(slot).key);
            }
        })
    }

    /// An entry for a file that the loader has not seen yet.
    fn insert_unknown(&self, shard: &mut Shard, key: &Key) -> Option<u32> {
        let now = self.ban.at;
        let slot = shard.insert(key, now)?;
        shard.store_file(slot, 0, now);
        shard.get_mut(slot).set(UNVERIFIED | TAGS_IN_FILE);
        Some(slot)
    }

    fn is_marked(&self, shard: &Shard, slot: u32) -> bool {
        self.ban.how == How::Soft && shard.get(slot).is(SOFT_PURGED)
    }

    fn apply(&self, number: u32, shard: &mut Shard, slot: u32, step: &mut PurgeStep) {
        let entry = shard.get(slot);
        if !entry.is(EXISTS) || entry.stamp >= self.ban.stamp || self.is_marked(shard, slot) {
            return;
        }
        match self.ban.how {
            How::Hard => step.victims.push(self.index.condemn(number, shard, slot)),
            How::Soft => {
                shard.get_mut(slot).set(SOFT_PURGED);
                step.marked += 1;
            }
        }
    }
}
