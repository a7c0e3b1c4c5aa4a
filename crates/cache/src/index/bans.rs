//! Purges as rules: objects that match and were stored before a moment are gone, or stale.
//!
//! A purge by prefix or of everything takes effect at once, in constant time, by an *active* rule.
//! Every hit is checked against it until a walk has removed the files. Normally there is no rule,
//! and the check is one load.
//!
//! Recent purges are also remembered, in bounded memory, for two latecomers. An object whose fetch
//! began before a purge must not be stored after it; and an object whose tags are not in memory is
//! checked when its head is read. At the limit, only the moment of the oldest purges is kept, and
//! every older object counts as purged.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::key::Key;
use crate::time::UnixMs;

use super::hold::PurgeNames;
use super::tags::Tag;

/// The maximum number of rules that hits are checked against. Beyond it, purges by prefix are
/// refused.
pub const ACTIVE_BANS_MAX: usize = 64;
/// The maximum number of remembered purges by prefix or of everything.
pub(super) const RULES_MAX: usize = 1024;
/// The maximum number of remembered purged tags and keys: about 3 MB.
pub(super) const PURGED_TAGS_MAX: usize = 65_536;

/// The objects that a purge concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// One key, and its variants.
    Key(Key),
    /// All objects with the tag.
    Tag(Tag),
    /// All objects whose key text begins with this prefix.
    Prefix(Arc<[u8]>),
    /// All objects.
    All,
}

/// The effect on purged objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Their files are removed.
    Hard,
    /// Soft: objects become stale, but are kept for revalidation and for errors of the origin.
    Soft,
}

/// One purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ban {
    /// Objects with a smaller stamp were stored before the purge.
    pub stamp: u64,
    /// The objects.
    pub what: What,
    /// The effect on them.
    pub how: How,
    /// The time of the purge: decides about objects whose stamp is not known.
    pub at: UnixMs,
    /// From an earlier process: objects without a stamp may have been stored after it.
    pub inherited: bool,
}

#[derive(Debug, Default)]
pub(super) struct Bans {
    active: Vec<Ban>,
    /// Purges by prefix and of everything, the oldest first.
    rules: VecDeque<Ban>,
    /// The time of a tag's last purge; keys by the tag of their variants.
    tags: HashMap<Tag, TagPurges, FxBuildHasher>,
    /// The purges of `tags`, the oldest first.
    tags_order: VecDeque<(Tag, u64)>,
    /// The newest forgotten stamp.
    forgotten: u64,
}

/// The latest purges of a tag.
#[derive(Debug, Clone, Copy, Default)]
struct TagPurges {
    hard: PurgeTime,
    soft: PurgeTime,
}

/// The moment of a purge.
#[derive(Debug, Clone, Copy, Default)]
struct PurgeTime {
    stamp: u64,
    at: UnixMs,
    inherited: bool,
}

impl PurgeTime {
    fn of(ban: &Ban) -> Self {
        Self { stamp: ban.stamp, at: ban.at, inherited: ban.inherited }
    }

    /// Whether an object was stored, or its fetch began, before this moment.
    fn is_after(self, stamp: u64, created: UnixMs) -> bool {
        stamp < self.stamp && (stamp != 0 || !self.inherited || created <= self.at)
    }
}

impl Bans {
    pub fn active(&self) -> &[Ban] {
        &self.active
    }

    /// False: there are too many.
    pub fn activate(&mut self, ban: Ban) -> bool {
        if self.active.len() == ACTIVE_BANS_MAX {
            return false;
        }
        self.active.push(ban);
        true
    }

    /// The walk of an active rule has ended.
    pub fn deactivate(&mut self, stamp: u64) {
        self.active.retain(|ban| ban.stamp != stamp);
    }

    /// Those of an earlier process come from two files: older ones after newer ones, and some twice.
    pub fn remember(&mut self, ban: Ban) {
        let tag = match &ban.what {
            What::Tag(tag) => *tag,
            What::Key(main) => Tag::variants_of(main),
            What::Prefix(_) | What::All => {
                if self.rules.len() == RULES_MAX {
                    self.forget(|bans| bans.rules.pop_front().map(|ban| ban.stamp));
                }
                let place = self.rules.partition_point(|known| known.stamp < ban.stamp);
                if self.rules.get(place).is_none_or(|known| known.stamp != ban.stamp) {
                    self.rules.insert(place, ban);
                }
                return;
            }
        };
        let purged = self.tags.entry(tag).or_default();
        let newest = match ban.how {
            How::Hard => &mut purged.hard,
            How::Soft => &mut purged.soft,
        };
        if newest.stamp >= ban.stamp {
            return;
        }
        *newest = PurgeTime::of(&ban);
        self.tags_order.push_back((tag, ban.stamp));
        if self.tags_order.len() > PURGED_TAGS_MAX {
            self.forget(|bans| {
                let (tag, stamp) = bans.tags_order.pop_front()?;
                let last = bans
                    .tags
                    .get(&tag)
                    .map_or(0, |purged| purged.hard.stamp.max(purged.soft.stamp));
                if last <= stamp {
                    bans.tags.remove(&tag);
                }
                Some(stamp)
            });
        }
    }

    fn forget(&mut self, oldest: impl FnOnce(&mut Self) -> Option<u64>) {
        self.forgotten = oldest(self).unwrap_or(0).max(self.forgotten);
    }

    /// The remembered purges, for a snapshot.
    pub fn remembered(&self) -> impl Iterator<Item = Ban> + '_ {
        let tags = self.tags.iter().flat_map(|(tag, purged)| {
            [(purged.hard, How::Hard), (purged.soft, How::Soft)]
                .into_iter()
                .filter(|(moment, _)| moment.stamp > 0)
                .map(|(PurgeTime { stamp, at, inherited }, how)| Ban {
                    stamp,
                    what: What::Tag(*tag),
                    how,
                    at,
                    inherited,
                })
        });
        self.rules.iter().cloned().chain(tags)
    }

    /// The effect of active rules on an object stored at `stamp`.
    pub fn of_hit(&self, stamp: u64, key_text: &[u8]) -> Option<How> {
        let rules = self.active.iter().filter(|ban| stamp < ban.stamp);
        hardest(rules.filter(|ban| ban.matches_text(key_text)).map(|ban| ban.how))
    }

    /// The effect of all purges since `stamp` on an object that was stored then, or whose fetch
    /// began then.
    pub fn since(&self, stamp: u64, names: PurgeNames<'_>) -> Option<How> {
        if stamp < self.forgotten {
            return Some(How::Hard);
        }
        let rules = self
            .rules
            .iter()
            .rev()
            .take_while(|ban| stamp < ban.stamp)
            .filter(|ban| PurgeTime::of(ban).is_after(stamp, names.created));
        let by_rules = rules.filter(|ban| ban.matches_text(names.key_text)).map(|ban| ban.how);
        if self.tags.is_empty() {
            return hardest(by_rules);
        }
        let variants = Tag::variants_of(names.main);
        let by_tags = names.tags.iter().chain([&variants]).filter_map(|tag| {
            let purged = self.tags.get(tag)?;
            if purged.hard.is_after(stamp, names.created) {
                return Some(How::Hard);
            }
            purged.soft.is_after(stamp, names.created).then_some(How::Soft)
        });
        hardest(by_rules.chain(by_tags))
    }
}

fn hardest(hows: impl Iterator<Item = How>) -> Option<How> {
    hows.reduce(|how, other| if other == How::Hard { other } else { how })
}

impl Ban {
    fn matches_text(&self, key_text: &[u8]) -> bool {
        match &self.what {
            What::All => true,
            What::Prefix(prefix) => key_text.starts_with(prefix),
            What::Key(_) | What::Tag(_) => false,
        }
    }

    /// Whether the purge concerns an object stored at `stamp`.
    pub(super) fn matches(&self, key: &Key, stamp: u64, names: PurgeNames<'_>) -> bool {
        if !PurgeTime::of(self).is_after(stamp, names.created) {
            return false;
        }
        match &self.what {
            What::Key(purged) => purged == key || purged == names.main,
            What::Tag(tag) => names.tags.contains(tag),
            What::Prefix(_) | What::All => self.matches_text(names.key_text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(stamp: u64, what: What, how: How) -> Ban {
        Ban { stamp, what, how, at: UnixMs(1000 * stamp), inherited: false }
    }

    fn since(bans: &Bans, stamp: u64, key: &Key, tags: &[Tag]) -> Option<How> {
        let created = UnixMs(1000 * stamp);
        bans.since(stamp, PurgeNames { main: key, key_text: b"httporigin/a", tags, created })
    }

    #[test]
    fn hits_are_checked_against_what_was_purged_after_they_were_stored() {
        let mut bans = Bans::default();
        assert!(bans.activate(ban(5, What::Prefix(b"httporigin/".as_slice().into()), How::Soft)));
        assert_eq!(bans.of_hit(4, b"httporigin/a"), Some(How::Soft));
        assert_eq!(bans.of_hit(5, b"httporigin/a"), None);
        assert_eq!(bans.of_hit(4, b"httpother/a"), None);
        assert!(bans.activate(ban(6, What::All, How::Hard)));
        assert_eq!(bans.of_hit(4, b"httporigin/a"), Some(How::Hard));
        bans.deactivate(6);
        bans.deactivate(5);
        assert_eq!(bans.of_hit(4, b"httporigin/a"), None);
    }

    #[test]
    fn a_fill_begun_before_a_purge_is_noticed() {
        let (key, tag) = (Key::new(b"a"), Tag(1));
        let mut bans = Bans::default();
        bans.remember(ban(5, What::Key(key), How::Hard));
        bans.remember(ban(6, What::Tag(tag), How::Soft));
        assert_eq!(since(&bans, 4, &key, &[]), Some(How::Hard));
        assert_eq!(since(&bans, 5, &key, &[tag]), Some(How::Soft));
        assert_eq!(since(&bans, 6, &key, &[tag]), None);
        assert_eq!(since(&bans, 4, &Key::new(b"b"), &[]), None);
        bans.remember(ban(7, What::Prefix(b"httporigin/".as_slice().into()), How::Hard));
        assert_eq!(since(&bans, 6, &key, &[tag]), Some(How::Hard));
    }

    /// After a crash the stamps of files are unknown.
    #[test]
    fn purges_of_an_earlier_process_are_compared_by_time() {
        let key = Key::new(b"a");
        let (tag, all) = (What::Tag(Tag(1)), What::All);
        for what in [What::Key(key), tag, What::Prefix(b"http".as_slice().into()), all] {
            let mut bans = Bans::default();
            bans.remember(Ban { inherited: true, ..ban(5, what, How::Hard) });
            let since = |stamp, created| {
                let names = PurgeNames { main: &key, key_text: b"http", tags: &[Tag(1)], created };
                bans.since(stamp, names)
            };
            assert_eq!(since(0, UnixMs(5000)), Some(How::Hard));
            assert_eq!(since(0, UnixMs(5001)), None);
            assert_eq!(since(4, UnixMs(5001)), Some(How::Hard), "the stamp is known");
        }
    }

    /// Saved purges are newer than those of a saved index, and contain them.
    #[test]
    fn purges_of_an_earlier_process_come_in_any_order() {
        let key = Key::new(b"a");
        let prefix = |stamp| ban(stamp, What::Prefix(b"http".as_slice().into()), How::Soft);
        let tag = |stamp| ban(stamp, What::Tag(Tag(1)), How::Soft);
        for [old, new] in [[prefix(4), prefix(9)], [tag(4), tag(9)]] {
            let mut bans = Bans::default();
            for ban in [old.clone(), new, old] {
                bans.remember(Ban { inherited: true, ..ban });
            }
            assert_eq!(since(&bans, 5, &key, &[Tag(1)]), Some(How::Soft));
            assert_eq!(since(&bans, 9, &key, &[Tag(1)]), None);
            assert!(bans.rules.len() <= 2);
        }
    }

    #[test]
    fn what_was_forgotten_counts_for_everything_older() {
        let key = Key::new(b"a");
        let mut bans = Bans::default();
        for stamp in 1..=PURGED_TAGS_MAX as u64 + 10 {
            bans.remember(ban(stamp, What::Tag(Tag(stamp)), How::Soft));
        }
        assert_eq!(since(&bans, 9, &key, &[]), Some(How::Hard));
        assert_eq!(since(&bans, 10, &key, &[]), None);
        assert_eq!(bans.tags.len(), PURGED_TAGS_MAX);
        for stamp in 100_000..100_000 + RULES_MAX as u64 + 3 {
            bans.remember(ban(stamp, What::Prefix(b"x".as_slice().into()), How::Soft));
        }
        assert_eq!(since(&bans, 100_001, &key, &[]), Some(How::Hard));
        assert_eq!(since(&bans, 100_002, &key, &[]), None);
    }

    #[test]
    fn a_tag_purged_again_and_again_is_remembered_once() {
        let mut bans = Bans::default();
        for stamp in 1..=2 * PURGED_TAGS_MAX as u64 {
            bans.remember(ban(stamp, What::Tag(Tag(1)), How::Hard));
        }
        assert_eq!(bans.tags.len(), 1);
        let newest = 2 * PURGED_TAGS_MAX as u64;
        assert_eq!(since(&bans, newest - 1, &Key::new(b"a"), &[Tag(1)]), Some(How::Hard));
        assert_eq!(since(&bans, newest, &Key::new(b"a"), &[Tag(1)]), None);
    }

    #[test]
    fn active_rules_are_bounded() {
        let mut bans = Bans::default();
        for stamp in 0..ACTIVE_BANS_MAX as u64 {
            assert!(bans.activate(ban(stamp, What::All, How::Hard)));
        }
        assert!(!bans.activate(ban(99, What::All, How::Hard)));
    }
}
