//! The side index of tags (`proxy_cache_tag`): which entries carry which tag, in bounded memory.
//!
//! Used by the index under a separate lock, taken after a shard's. An entry and a tag are joined by
//! one link, which is in two lists: the entry's and the tag's. Texts of tags are not kept, only
//! their hashes. When there is no room the entry is marked instead ("tags in file"), and a purge by
//! tag reads the heads of the marked entries' files: slower, never wrong.

use md5::{Digest, Md5};

use crate::key::Key;

use super::entry::NONE;

/// The maximum number of tags per entry in the side index.
pub(super) const TAGS_PER_ENTRY_MAX: usize = 64;

/// A name by which an object can be purged: the hash of a tag's text. A collision purges too much,
/// which costs a fetch; with 64 bits it takes billions of tags to expect one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u64);

impl Tag {
    /// The tag of a text.
    pub fn new(text: &[u8]) -> Self {
        let digest: [u8; 16] = Md5::digest(text).into();
        Self(u64::from_le_bytes(digest[..8].try_into().expect("eight of sixteen bytes")))
    }

    /// The tag that all variants of a key carry, so that a purge of the key finds them.
    pub(crate) fn variants_of(main: &Key) -> Self {
        // A digest of more than the key, so that no tag's text can equal it.
        let mut md5 = Md5::new();
        md5.update(b"\0variants\0");
        md5.update(main.0);
        let digest: [u8; 16] = md5.finalize().into();
        Self(u64::from_le_bytes(digest[..8].try_into().expect("eight of sixteen bytes")))
    }
}

/// One tag of one entry. A free link has no entry, and `entry_next` leads to the next free one.
#[derive(Debug, Clone, Copy)]
struct TagLink {
    entry: u32,
    tag: u32,
    entry_next: u32,
    tag_next: u32,
    tag_before: u32,
}

/// A tag that some entry carries. A free one has no links, and `chain` leads to the next.
#[derive(Debug, Clone, Copy)]
struct TagEntry {
    tag: Tag,
    first: u32,
    chain: u32,
}

/// The maximum cost of a link: itself and, in the worst case, a new tag with its bucket.
const LINK_COST_BYTES: usize = size_of::<TagLink>() + size_of::<TagEntry>() + size_of::<u32>();

#[derive(Debug)]
pub(super) struct Tags {
    links: Vec<TagLink>,
    carried: Vec<TagEntry>,
    buckets: Vec<u32>,
    capacity: u32,
    free_link: u32,
    free_carried: u32,
    in_use: u32,
}

impl Tags {
    /// In at most `bytes` of memory, which becomes resident as it is used.
    pub fn new(bytes: usize) -> Self {
        let capacity = (bytes / LINK_COST_BYTES).min(NONE as usize - 1);
        Self {
            links: Vec::with_capacity(capacity),
            carried: Vec::with_capacity(capacity),
            buckets: vec![0; capacity],
            capacity: capacity as u32,
            free_link: NONE,
            free_carried: NONE,
            in_use: 0,
        }
    }

    /// Links in use, and how many there can be.
    pub fn usage(&self) -> (u32, u32) {
        (self.in_use, self.capacity)
    }

    /// Gives an entry its tags; returns the first link. `None`, and no link, when there is no room.
    pub fn attach(&mut self, entry: u32, tags: impl Iterator<Item = Tag> + Clone) -> Option<u32> {
        let room = (self.capacity - self.in_use) as usize;
        if tags.clone().count() > room.min(TAGS_PER_ENTRY_MAX) {
            return None;
        }
        Some(tags.fold(NONE, |first, tag| self.link(entry, tag, first)))
    }

    /// Takes an entry's tags away, given its first link.
    pub fn detach(&mut self, first: u32) {
        let mut link = first;
        while link != NONE {
            let next = self.links[link as usize].entry_next;
            self.unlink(link);
            link = next;
        }
    }

    /// Whether an entry, given its first link, carries the tag.
    pub fn has(&self, first: u32, tag: Tag) -> bool {
        self.of_entry(first).any(|own| own == tag)
    }

    /// The tags of an entry, given its first link.
    pub fn of_entry(&self, first: u32) -> impl Iterator<Item = Tag> + '_ {
        let mut link = first;
        std::iter::from_fn(move || {
            let at = self.links.get(link as usize)?;
            link = at.entry_next;
            Some(self.carried[at.tag as usize].tag)
        })
    }

    /// Up to `limit` entries that carry the tag, continuing at `cursor`, which is initially `None`.
    /// Entries that got the tag since the walk began may be missing or be returned twice; all
    /// others are returned at least once. At the end `cursor` is `None` again.
    pub fn walk(&self, tag: Tag, cursor: &mut Option<u32>, limit: usize) -> Vec<u32> {
        let Some(carried) = self.find(tag) else {
            *cursor = None;
            return Vec::new();
        };
        // New links come first in the list. So a link of the tag in the cursor's slot, whether the
        // same or a later one, precedes everything that is still to come.
        let is_ours = |&link: &u32| {
            self.links.get(link as usize).is_some_and(|at| at.entry != NONE && at.tag == carried)
        };
        let first = self.carried[carried as usize].first;
        let mut link = cursor.filter(is_ours).unwrap_or(first);
        let mut entries = Vec::new();
        while link != NONE && entries.len() < limit {
            let at = &self.links[link as usize];
            entries.push(at.entry);
            link = at.tag_next;
        }
        *cursor = (link != NONE).then_some(link);
        entries
    }

    fn bucket(&self, tag: Tag) -> usize {
        (((tag.0 >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    fn find(&self, tag: Tag) -> Option<u32> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut at = self.buckets[self.bucket(tag)].wrapping_sub(1);
        while at != NONE && self.carried[at as usize].tag != tag {
            at = self.carried[at as usize].chain;
        }
        (at != NONE).then_some(at)
    }

    fn carry(&mut self, tag: Tag) -> u32 {
        if let Some(at) = self.find(tag) {
            return at;
        }
        let bucket = self.bucket(tag);
        let carried = TagEntry { tag, first: NONE, chain: self.buckets[bucket].wrapping_sub(1) };
        let at = match self.free_carried {
            NONE => {
                self.carried.push(carried);
                self.carried.len() as u32 - 1
            }
            free => {
                self.free_carried = self.carried[free as usize].chain;
                self.carried[free as usize] = carried;
                free
            }
        };
        self.buckets[bucket] = at + 1;
        at
    }

    fn drop_carried(&mut self, at: u32) {
        let TagEntry { tag, chain, .. } = self.carried[at as usize];
        let bucket = self.bucket(tag);
        if self.buckets[bucket] == at + 1 {
            self.buckets[bucket] = chain.wrapping_add(1);
        } else {
            let mut before = self.buckets[bucket].wrapping_sub(1);
            while self.carried[before as usize].chain != at {
                before = self.carried[before as usize].chain;
            }
            self.carried[before as usize].chain = chain;
        }
        self.carried[at as usize].chain = self.free_carried;
        self.free_carried = at;
    }

    fn link(&mut self, entry: u32, tag: Tag, entry_next: u32) -> u32 {
        let carried = self.carry(tag);
        let first = self.carried[carried as usize].first;
        let link = TagLink { entry, tag: carried, entry_next, tag_next: first, tag_before: NONE };
        let at = match self.free_link {
            NONE => {
                self.links.push(link);
                self.links.len() as u32 - 1
            }
            free => {
                self.free_link = self.links[free as usize].entry_next;
                self.links[free as usize] = link;
                free
            }
        };
        if first != NONE {
            self.links[first as usize].tag_before = at;
        }
        self.carried[carried as usize].first = at;
        self.in_use += 1;
        at
    }

    fn unlink(&mut self, at: u32) {
        let TagLink { tag, tag_next, tag_before, .. } = self.links[at as usize];
        match tag_before {
            NONE => self.carried[tag as usize].first = tag_next,
            before => self.links[before as usize].tag_next = tag_next,
        }
        if tag_next != NONE {
            self.links[tag_next as usize].tag_before = tag_before;
        }
        if self.carried[tag as usize].first == NONE {
            self.drop_carried(tag);
        }
        let link = &mut self.links[at as usize];
        link.entry = NONE;
        link.entry_next = self.free_link;
        self.free_link = at;
        self.in_use -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(tags: &Tags, tag: Tag) -> Vec<u32> {
        tags.walk(tag, &mut None, usize::MAX)
    }

    #[test]
    fn entries_are_found_until_they_lose_their_tags() {
        let (news, sport) = (Tag::new(b"news"), Tag::new(b"sport"));
        let mut tags = Tags::new(1 << 16);
        let one = tags.attach(1, [news, sport].into_iter()).unwrap();
        let two = tags.attach(2, [news].into_iter()).unwrap();
        assert_eq!(all(&tags, news), [2, 1]);
        assert_eq!(all(&tags, sport), [1]);
        assert!(tags.has(one, sport) && !tags.has(two, sport));
        tags.detach(one);
        assert_eq!(all(&tags, news), [2]);
        assert_eq!(all(&tags, sport), []);
        tags.detach(two);
        assert_eq!(tags.usage().0, 0);
    }

    #[test]
    fn memory_is_bounded_and_used_again() {
        let mut tags = Tags::new(LINK_COST_BYTES * 10);
        for round in 0..1000u64 {
            let first = (0..10).map(|n| Tag(round << 40 | n << 33)).collect::<Vec<_>>();
            let link = tags.attach(7, first.into_iter()).unwrap();
            assert_eq!(tags.attach(8, [Tag(1)].into_iter()), None);
            tags.detach(link);
        }
        assert_eq!((tags.links.len(), tags.carried.len()), (10, 10));
        assert_eq!(Tags::new(0).attach(1, [Tag(1)].into_iter()), None);
        assert_eq!(all(&Tags::new(0), Tag(1)), []);
    }

    #[test]
    fn a_walk_in_steps_misses_nothing_that_stays() {
        let tag = Tag(9);
        let mut tags = Tags::new(1 << 16);
        let links: Vec<u32> =
            (0..100).map(|entry| tags.attach(entry, [tag].into_iter()).unwrap()).collect();
        let (mut cursor, mut seen) = (None, Vec::new());
        for step in 0.. {
            seen.extend(tags.walk(tag, &mut cursor, 7));
            if cursor.is_none() {
                break;
            }
            // Even entries are removed, including the one at the cursor; new ones are added.
            tags.detach(links[(98 - step * 2) as usize]);
            tags.attach(1000 + step, [tag].into_iter()).unwrap();
            assert!(step < 60);
        }
        assert!((0..100).filter(|n| n % 2 == 1).all(|n| seen.contains(&n)));
    }
}
