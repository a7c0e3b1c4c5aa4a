//! Purges as rules: what was stored before a moment and matches is gone, or stale.
//!
//! A purge by prefix or of everything takes effect at once, in constant time, by an *active* rule
//! that every hit is checked against until a walk has removed the files; normally there is none,
//! and the check is one load. A finished rule, and every purge by key or tag, stays in a bounded
//! ring of *recent* ones that only commits look at: an object whose fetch began before a purge must
//! not be stored after it. Of what falls out of the ring only the moment is kept, and fills begun
//! before that are not stored at all.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::key::Key;

use super::hold::Names;
use super::tags::Tag;

/// The most rules that hits are checked against. Beyond, purges by prefix are refused.
pub const ACTIVE_BANS_MAX: usize = 64;
/// The most purges that commits are checked against.
pub(super) const RECENT_BANS_MAX: usize = 4096;

/// Which objects a purge is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// One key, and its variants.
    Key(Key),
    /// Whatever carries the tag.
    Tag(Tag),
    /// Whatever key text begins so.
    Prefix(Arc<[u8]>),
    /// Everything.
    All,
}

/// What happens to purged objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Their files are removed.
    Hard,
    /// They are stale: kept for revalidation and for errors of the origin.
    Soft,
}

/// One purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ban {
    /// Objects with a smaller stamp were stored before the purge.
    pub stamp: u64,
    /// Which objects.
    pub what: What,
    /// What happens to them.
    pub how: How,
}

#[derive(Debug, Default)]
pub(super) struct Bans {
    active: Vec<Ban>,
    recent: VecDeque<Ban>,
    /// The stamp of the newest rule that fell out of the ring.
    forgotten: u64,
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

    pub fn remember(&mut self, ban: Ban) {
        if self.recent.len() == RECENT_BANS_MAX {
            self.forgotten = self.recent.pop_front().map_or(0, |ban| ban.stamp);
        }
        self.recent.push_back(ban);
    }

    /// What active rules say about an object stored at `stamp`.
    pub fn of_hit(&self, stamp: u64, key_text: &[u8]) -> Option<How> {
        let rules = self.active.iter().filter(|ban| stamp < ban.stamp);
        hardest(rules.filter(|ban| ban.matches_text(key_text)))
    }

    /// What has happened to an object whose fetch began at `begun`.
    pub fn of_commit(&self, begun: u64, key: &Key, names: Names<'_>) -> Option<How> {
        if begun < self.forgotten {
            return Some(How::Hard);
        }
        let since = self.recent.iter().rev().take_while(|ban| begun < ban.stamp);
        hardest(since.filter(|ban| ban.matches(key, names)))
    }
}

fn hardest<'a>(mut bans: impl Iterator<Item = &'a Ban>) -> Option<How> {
    let first = bans.next()?.how;
    Some(bans.fold(first, |how, ban| if ban.how == How::Hard { How::Hard } else { how }))
}

impl Ban {
    fn matches_text(&self, key_text: &[u8]) -> bool {
        match &self.what {
            What::All => true,
            What::Prefix(prefix) => key_text.starts_with(prefix),
            What::Key(_) | What::Tag(_) => false,
        }
    }

    /// Whether the purge is about an object.
    pub(super) fn matches(&self, key: &Key, names: Names<'_>) -> bool {
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
        Ban { stamp, what, how }
    }

    fn of_commit(bans: &Bans, begun: u64, key: &Key, tags: &[Tag]) -> Option<How> {
        bans.of_commit(begun, key, Names { main: key, key_text: b"httporigin/a", tags })
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
        assert_eq!(of_commit(&bans, 4, &key, &[]), Some(How::Hard));
        assert_eq!(of_commit(&bans, 5, &key, &[tag]), Some(How::Soft));
        assert_eq!(of_commit(&bans, 6, &key, &[tag]), None);
        assert_eq!(of_commit(&bans, 4, &Key::new(b"b"), &[]), None);
    }

    #[test]
    fn what_fell_out_of_the_ring_refuses_older_fills() {
        let key = Key::new(b"a");
        let mut bans = Bans::default();
        for stamp in 1..=RECENT_BANS_MAX as u64 + 10 {
            bans.remember(ban(stamp, What::Tag(Tag(stamp)), How::Soft));
        }
        assert_eq!(of_commit(&bans, 9, &key, &[]), Some(How::Hard));
        assert_eq!(of_commit(&bans, 10, &key, &[]), None);
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
