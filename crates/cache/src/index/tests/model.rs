//! Random sequences of all operations of the store, manager and purger, against a model that is a map and a
//! sorted list. One shard, so that the order of eviction is exact.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::super::entry::{DELETING, EXISTS};
use super::super::shard::LruQueue;
use super::*;

const TEXTS: u64 = 60;
const TAGS: u64 = 5;

/// splitmix64: enough for test sequences.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn how(&mut self) -> How {
        if self.below(2) == 0 { How::Hard } else { How::Soft }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct ModelObject {
    used: UnixMs,
    /// Orders uses within a millisecond.
    turn: u64,
    blocks: u32,
    tags: Vec<Tag>,
    soft_purged: bool,
}

struct ModelHold {
    hold: Hold,
    number: u64,
    /// Purges since it began.
    purges: Vec<(What, How)>,
}

struct Model {
    index: Arc<Index>,
    random: SplitMix,
    now: UnixMs,
    turn: u64,
    objects: HashMap<u64, ModelObject>,
    open: Vec<ModelHold>,
    victims: Vec<(u64, Victim)>,
}

fn text(number: u64) -> Vec<u8> {
    format!("httporigin/{}/{number}", number % 3).into_bytes()
}

fn key(number: u64) -> Key {
    KEYS[number as usize]
}

static KEYS: LazyLock<Vec<Key>> =
    LazyLock::new(|| (0..3000).map(|number| Key::new(&text(number))).collect());

fn number_of(key: &Key) -> u64 {
    KEYS.iter().position(|own| own == key).expect("a key of the test") as u64
}

fn matches(what: &What, number: u64, tags: &[Tag]) -> bool {
    match what {
        What::Key(purged) => *purged == key(number),
        What::Tag(tag) => tags.contains(tag),
        What::Prefix(prefix) => text(number).starts_with(prefix),
        What::All => true,
    }
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            index: sized(BYTES_MIN),
            random: SplitMix(seed),
            now: NOW,
            turn: 0,
            objects: HashMap::new(),
            open: Vec::new(),
            victims: Vec::new(),
        }
    }

    fn touch(&mut self, number: u64) {
        self.turn += 1;
        if let Some(object) = self.objects.get_mut(&number) {
            (object.used, object.turn) = (self.now, self.turn);
        }
    }

    fn lookup(&mut self) {
        let number = self.random.below(TEXTS);
        let text = text(number);
        let min_uses = 1 + self.random.below(3) as u16;
        let ask = LookupContext { now: self.now, min_uses, key_text: &text };
        let found = self.index.lookup(&key(number), ask);
        self.touch(number);
        match (found, self.objects.get(&number)) {
            (LookupResult::Stored(stored), Some(object)) => {
                assert_eq!(stored.blocks, object.blocks);
                assert_eq!(stored.soft_purged, object.soft_purged);
                assert_eq!(stored.updating, self.open.iter().any(|open| open.number == number));
            }
            (LookupResult::Absent(_), None) => {}
            other => panic!("{other:?}"),
        }
    }

    fn hold(&mut self) {
        let number = self.random.below(TEXTS);
        let deleting = self.victims.iter().any(|(victim, _)| *victim == number);
        match self.index.hold(&key(number), self.now) {
            Ok(hold) if !deleting => self.open.push(ModelHold { hold, number, purges: Vec::new() }),
            Err(NoHold::Deleting) if deleting => {}
            other => panic!("{other:?}, deleting: {deleting}"),
        }
    }

    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let ModelHold { mut hold, number, purges } = self.open.swap_remove(at);
        if self.random.below(4) == 0 {
            return;
        }
        let tags: Vec<_> =
            (0..self.random.below(4)).map(|_| Tag(self.random.below(TAGS))).collect();
        let blocks = self.random.below(9) as u32;
        let (main, text) = (key(number), text(number));
        let object = Commit { blocks, ..commit(&main, &text, &tags) };
        let purged = |how| {
            let mut purges = purges.iter().filter(|(_, purge)| *purge == how);
            purges.any(|(what, _)| matches(what, number, &tags))
        };
        let deleting = self.victims.iter().any(|(victim, _)| *victim == number);
        let published = hold.may_publish(object.names);
        match hold.commit(&object, self.now) {
            Ok(committed) => {
                assert!(published && !purged(How::Hard) && !deleting);
                assert_eq!(committed.soft_purged, purged(How::Soft));
                let soft_purged = committed.soft_purged;
                let object = ModelObject { used: self.now, turn: 0, blocks, tags, soft_purged };
                self.objects.insert(number, object);
                self.touch(number);
            }
            Err(CommitError::Purged) => assert!(!published && (purged(How::Hard) || deleting)),
        }
    }

    fn gone(&mut self, victims: Vec<Victim>) {
        for victim in victims {
            let number = number_of(victim.key());
            assert!(self.objects.remove(&number).is_some());
            if self.random.below(2) == 0 {
                self.victims.push((number, victim));
            }
        }
    }

    fn is_held(&self, number: u64) -> bool {
        self.open.iter().any(|open| open.number == number)
    }

    fn evict(&mut self) {
        let limit = self.random.below(4) as usize;
        let mut oldest: Vec<_> = self
            .objects
            .iter()
            .filter(|(number, _)| !self.is_held(**number))
            .map(|(number, object)| (object.used, object.turn, *number))
            .collect();
        oldest.sort();
        oldest.truncate(limit);
        let victims = self.index.evict(limit);
        let evicted: Vec<_> = victims.iter().map(|victim| number_of(victim.key())).collect();
        assert_eq!(evicted, oldest.iter().map(|(.., number)| *number).collect::<Vec<_>>());
        self.gone(victims);
    }

    fn expire(&mut self) {
        self.now = self.now.after(Duration::from_secs(self.random.below(200)));
        let inactive = Duration::from_secs(600);
        let expired = self.index.expire(self.now, usize::MAX);
        let due: Vec<_> = self
            .objects
            .iter()
            .filter(|(_, object)| self.now.since(object.used) >= inactive)
            .map(|(number, object)| (object.used, object.turn, *number))
            .collect();
        let (mut held, free): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(.., number)| self.is_held(*number));
        assert_eq!(expired.victims.len(), free.len());
        self.gone(expired.victims);
        held.sort();
        held.into_iter().for_each(|(.., number)| self.touch(number));
        assert!(self.objects.values().all(|object| self.now.since(object.used) < inactive));
    }

    fn purge(&mut self) {
        let what = match self.random.below(8) {
            0 => What::All,
            1 => What::Prefix(format!("httporigin/{}/", self.random.below(4)).as_bytes().into()),
            2..5 => What::Tag(Tag(self.random.below(TAGS))),
            _ => What::Key(key(self.random.below(TEXTS))),
        };
        let how = self.random.how();
        let mut purge = self.index.purge(what.clone(), how, self.now).expect("few purges");
        let mut expected: Vec<_> = self
            .objects
            .iter()
            .filter(|(number, object)| matches(&what, **number, &object.tags))
            .filter(|(_, object)| how == How::Hard || !object.soft_purged)
            .map(|(number, _)| *number)
            .collect();
        let (mut victims, mut marked) = (Vec::new(), 0);
        loop {
            let step = purge.step(1 + self.random.below(20) as usize);
            victims.extend(step.victims);
            marked += step.marked;
            for key in step.verify {
                let text = text(number_of(&key));
                match purge.verified(
                    &key,
                    PurgeNames { main: &key, key_text: &text, tags: &[], created: NOW },
                ) {
                    Verified::Kept => {}
                    Verified::Marked => marked += 1,
                    Verified::Victim(victim) => victims.push(victim),
                }
            }
            if step.done {
                break;
            }
        }
        purge.finish();
        match how {
            How::Hard => {
                let mut purged: Vec<_> = victims.iter().map(|v| number_of(v.key())).collect();
                purged.sort_unstable();
                expected.sort_unstable();
                assert_eq!((purged, marked), (expected, 0));
                self.gone(victims);
            }
            How::Soft => {
                assert_eq!((victims.len(), marked), (0, expected.len()));
                for number in expected {
                    self.objects.get_mut(&number).expect("in the model").soft_purged = true;
                }
            }
        }
        self.open.iter_mut().for_each(|open| open.purges.push((what.clone(), how)));
    }

    fn step(&mut self) {
        self.now = self.now.after(Duration::from_millis(self.random.below(3)));
        match self.random.below(100) {
            0..45 => self.lookup(),
            45..65 if self.open.len() < 8 => self.hold(),
            45..85 => self.close(),
            85..90 => self.evict(),
            90..92 => self.expire(),
            92..95 => self.purge(),
            95..98 => self.victims.truncate(self.random.below(3) as usize),
            _ => {
                let number = self.random.below(TEXTS);
                if let Some(stored) = self.index.peek(&key(number)) {
                    self.index.forget(&key(number), stored.stamp);
                    self.objects.remove(&number);
                }
            }
        }
    }

    fn check(&self) {
        let usage = self.index.usage();
        assert_eq!(usage.stored, self.objects.len() as u64);
        let blocks: u64 = self.objects.values().map(|object| u64::from(object.blocks)).sum();
        assert_eq!(usage.blocks, blocks);
        let tags: usize = self.objects.values().map(|object| object.tags.len()).sum();
        assert_eq!(usage.tags as usize, tags);
        lock(&self.index.shards[0].0).check();
    }
}

impl Shard {
    /// The invariants between operations.
    fn check(&self) {
        let mut queued = 0;
        for queue in [LruQueue::Stored, LruQueue::Other] {
            let mut slot = self.oldest(queue);
            let mut used = UnixMs::ZERO;
            while let Some(at) = slot {
                let entry = self.live(at).expect("no free slot in a queue");
                assert_eq!(entry.is(EXISTS), queue == LruQueue::Stored);
                assert!(entry.is_kept() || entry.holds > 0 || entry.is(DELETING));
                assert_eq!(self.find(&entry.key), Some(at));
                if queue == LruQueue::Stored {
                    assert!(entry.used >= used);
                    used = entry.used;
                }
                queued += 1;
                slot = self.newer(at);
            }
        }
        assert_eq!(queued, self.count());
    }
}

#[test]
fn random_sequences_agree_with_the_model() {
    for seed in 0..60 {
        let mut model = Model::new(seed);
        for step in 0..2000 {
            model.step();
            if step % 16 == 0 {
                model.check();
            }
        }
        model.check();
        model.open.clear();
        model.victims.clear();
        drop(model.index.evict(usize::MAX));
        model.objects.clear();
        model.check();
    }
}

/// The index always keeps the newest keys that fit, and never more.
#[test]
fn a_bounded_index_keeps_the_newest() {
    let index = sized(1 << 20);
    let keys_max = index.usage().keys_max;
    let name = |number: u64| Key::new(&number.to_le_bytes());
    for number in 0..5 * keys_max {
        let (key, now) = (name(number), UnixMs(number));
        match index.hold(&key, now) {
            Ok(mut hold) => drop(hold.commit(&commit(&key, b"", &[]), now)),
            Err(NoHold::Full(victim)) => drop(victim),
            Err(NoHold::Deleting) => panic!("it is not deleted here"),
        }
        if number % 64 == 0 {
            drop(index.relieve(usize::MAX));
        }
    }
    let kept = index.usage().keys;
    assert!(kept > keys_max * 8 / 10 && kept <= keys_max, "{kept} of {keys_max}");
    let newest = 5 * keys_max - kept * 9 / 10;
    assert!((newest..5 * keys_max).all(|number| index.peek(&name(number)).is_some()));
}

/// Workers, manager and purger run at once: the result is consistent, and no thread waits forever.
#[test]
fn threads_share_it() {
    let config = Config { bytes: 2 << 20, tag_bytes: 1 << 16, inactive: Duration::from_secs(600) };
    let index = Index::new(config).expect("large enough");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let index = &index;
            scope.spawn(move || {
                let mut random = SplitMix(seed);
                for _ in 0..20_000 {
                    let number = random.below(3000);
                    let (key, text) = (key(number), text(number));
                    match random.below(100) {
                        0..60 => {
                            let ask = LookupContext { key_text: &text, ..ask(NOW, 1) };
                            index.lookup(&key, ask);
                        }
                        60..95 => {
                            let tags = [Tag(random.below(50)), Tag(random.below(50))];
                            if let Ok(mut hold) = index.hold(&key, NOW) {
                                let _ = hold.commit(&commit(&key, &text, &tags), NOW);
                            }
                        }
                        95..98 => drop(index.evict(3)),
                        98 => drop(index.expire(NOW, 5)),
                        _ => {
                            let what = What::Tag(Tag(random.below(50)));
                            let mut purge = index.purge(what, random.how(), NOW).expect("no rule");
                            while !purge.step(7).done {}
                        }
                    }
                }
            });
        }
    });
    for shard in &index.shards {
        lock(&shard.0).check();
    }
    drop(index.evict(usize::MAX));
    let usage = index.usage();
    assert_eq!((usage.keys, usage.blocks, usage.tags), (0, 0, 0));
}
