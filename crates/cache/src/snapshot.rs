//! The index as a stream of bytes: saved on shutdown and at intervals, restored at startup.
//!
//! Called by the store, which reads and writes the file piece by piece; never does I/O. A stream
//! consists of blocks of the same size, each with its checksum: a damaged block costs its own
//! entries, which the loader finds again. Saving walks the index in steps while it is in use, so
//! a snapshot does not represent a single moment; its entries are checked against the files
//! before they are trusted.
//!
//! A stream is *clean* when nothing was stored after it: written on shutdown, and removed once it
//! was restored. With any other stream the entries' files may have been replaced since, so their
//! tags are taken from the files' heads ([`crate::index::Stored::names_in_file`]).

use std::sync::Arc;

use bytes::Bytes;

use crate::index::{Ban, Cursor, How, Index, LoadResult, Record, Sketch, Tag, What};
use crate::key::Key;
use crate::time::UnixMs;

/// The size of each block, in bytes.
pub const BLOCK_BYTES: usize = 64 << 10;
/// The version of the stream; other versions are not restored.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"\x89NWX\r\n\x1a\n";
/// Checksum, kind, flags, version, items, bytes in use, magic, time.
const HEADER_BYTES: usize = 32;
const PAYLOAD_MAX: usize = BLOCK_BYTES - HEADER_BYTES;
/// The number of entries per step of a walk, under a shard's lock.
const STEP_ENTRIES: usize = 1024;
/// The tags of a record are not known.
const TAGS_UNKNOWN: u8 = u8::MAX;
/// Longer prefixes of purges are cut: the purges then remove more, never less.
const PREFIX_BYTES_MAX: usize = 8 << 10;

/// An upper limit of stamps, which count commits and purges.
const STAMP_MAX: u64 = 1 << 62;

/// The contents of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum BlockKind {
    Entries = 1,
    Purges = 2,
    End = 3,
}

/// Produces a snapshot's blocks.
#[derive(Debug)]
pub struct Encoder {
    index: Arc<Index>,
    clean: bool,
    now: UnixMs,
    only_purges: bool,
    stage: SnapshotStage,
    /// Read from the index, and not in a block yet.
    records: Vec<Record>,
}

#[derive(Debug)]
enum SnapshotStage {
    Purges(std::vec::IntoIter<(Ban, bool)>),
    Entries(Option<Cursor>),
    End,
    Done,
}

impl Encoder {
    /// A snapshot of an index. `clean`: no stores or purges follow.
    pub fn new(index: &Arc<Index>, clean: bool, now: UnixMs) -> Self {
        let (active, remembered) = index.purges();
        let purges: Vec<_> = active
            .into_iter()
            .map(|ban| (ban, true))
            .chain(remembered.into_iter().map(|ban| (ban, false)))
            .collect();
        Self {
            index: Arc::clone(index),
            clean,
            now,
            only_purges: false,
            stage: SnapshotStage::Purges(purges.into_iter()),
            records: Vec::new(),
        }
    }

    /// Only the purges of an index, to be restored in addition to a snapshot or without one.
    pub fn of_purges(index: &Arc<Index>, now: UnixMs) -> Self {
        Self { only_purges: true, ..Self::new(index, false, now) }
    }

    /// The next block; `None` after the last. Takes about 0.1 ms.
    pub fn next_block(&mut self) -> Option<Bytes> {
        loop {
            match &mut self.stage {
                SnapshotStage::Purges(purges) => {
                    let mut block = SnapshotBlock::new(BlockKind::Purges);
                    while let Some((ban, active)) = purges.as_slice().first() {
                        let mut item = Vec::with_capacity(32);
                        encode_purge(ban, *active, &mut item);
                        if !block.push(&item) {
                            break;
                        }
                        purges.next();
                    }
                    if block.items > 0 {
                        return Some(block.seal(self.clean, self.now));
                    }
                    self.stage = match self.only_purges {
                        true => SnapshotStage::End,
                        false => SnapshotStage::Entries(Some(Cursor::default())),
                    };
                }
                SnapshotStage::Entries(_) => match self.entries() {
                    Some(block) => return Some(block.seal(self.clean, self.now)),
                    None => self.stage = SnapshotStage::End,
                },
                SnapshotStage::End => {
                    self.stage = SnapshotStage::Done;
                    return Some(SnapshotBlock::new(BlockKind::End).seal(self.clean, self.now));
                }
                SnapshotStage::Done => return None,
            }
        }
    }

    fn entries(&mut self) -> Option<SnapshotBlock> {
        let SnapshotStage::Entries(cursor) = &mut self.stage else { return None };
        let mut block = SnapshotBlock::new(BlockKind::Entries);
        let mut item = Vec::new();
        loop {
            for (taken, record) in self.records.iter().enumerate() {
                item.clear();
                encode_record(record, &mut item);
                if !block.push(&item) {
                    self.records.drain(..taken);
                    return Some(block);
                }
            }
            self.records.clear();
            match *cursor {
                Some(from) => {
                    *cursor = self.index.records(from, STEP_ENTRIES, &mut self.records);
                }
                None => return (block.items > 0).then_some(block),
            }
        }
    }
}

/// A block under construction.
#[derive(Debug)]
struct SnapshotBlock {
    kind: BlockKind,
    items: u32,
    bytes: Vec<u8>,
}

impl SnapshotBlock {
    fn new(kind: BlockKind) -> Self {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        Self { kind, items: 0, bytes }
    }

    /// False: the item does not fit.
    fn push(&mut self, item: &[u8]) -> bool {
        debug_assert!(item.len() <= PAYLOAD_MAX);
        let fits = self.bytes.len() + item.len() <= BLOCK_BYTES;
        if fits {
            self.bytes.extend_from_slice(item);
            self.items += 1;
        }
        fits
    }

    fn seal(self, clean: bool, now: UnixMs) -> Bytes {
        let mut bytes = self.bytes;
        let used = bytes.len() as u32;
        bytes.resize(BLOCK_BYTES, 0);
        bytes[4] = self.kind as u8;
        bytes[5] = u8::from(clean);
        bytes[6..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.items.to_le_bytes());
        bytes[12..16].copy_from_slice(&used.to_le_bytes());
        bytes[16..24].copy_from_slice(&MAGIC);
        bytes[24..32].copy_from_slice(&now.0.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes.into()
    }
}

/// The result of restoring a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Entries that the index has now.
    pub entries: u64,
    /// Entries for which there was no room.
    pub no_room: u64,
    /// Blocks that were skipped.
    pub damaged: u64,
    /// The stream was read to its end.
    pub complete: bool,
    /// No object was stored after the snapshot.
    pub clean: bool,
}

/// The reason why a stream is not restored, or only in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotError {
    /// The stream is not a snapshot.
    Foreign,
    /// The snapshot has another version.
    Version(u16),
}

impl std::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign => f.write_str("not a saved cache index"),
            Self::Version(version) => write!(f, "saved cache index of version {version}"),
        }
    }
}

impl std::error::Error for SnapshotError {}

/// Restores a snapshot into an index.
#[derive(Debug)]
pub struct Decoder {
    index: Arc<Index>,
    now: UnixMs,
    /// The beginning of an incomplete block.
    partial: Vec<u8>,
    restored: Restored,
    blocks: u64,
}

impl Decoder {
    /// Restores into this index, which may be in use already: existing entries stay. The time since
    /// the snapshot does not count as inactive, since no requests were possible.
    pub fn new(index: &Arc<Index>, now: UnixMs) -> Self {
        let index = Arc::clone(index);
        Self { index, now, partial: Vec::new(), restored: Restored::default(), blocks: 0 }
    }

    /// Takes the next bytes of the stream, of any length.
    ///
    /// # Errors
    /// The first block shows that the stream is of another kind; no entry was restored.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), SnapshotError> {
        if !self.partial.is_empty() {
            let missing = (BLOCK_BYTES - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.partial.len() < BLOCK_BYTES {
                return Ok(());
            }
            let block = std::mem::take(&mut self.partial);
            self.block(&block)?;
        }
        let mut blocks = bytes.chunks_exact(BLOCK_BYTES);
        for block in &mut blocks {
            self.block(block)?;
        }
        self.partial.extend_from_slice(blocks.remainder());
        Ok(())
    }

    /// The stream has ended: puts the index in order.
    pub fn finish(self) -> Restored {
        if self.restored.entries > 0 {
            self.index.sort();
        }
        self.restored
    }

    fn block(&mut self, block: &[u8]) -> Result<(), SnapshotError> {
        let is_first = self.blocks == 0;
        self.blocks += 1;
        if is_first && block[16..24] != MAGIC {
            return Err(SnapshotError::Foreign);
        }
        let version = u16::from_le_bytes([block[6], block[7]]);
        if is_first && version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        if self.items(block, version).is_none() {
            self.restored.damaged += 1;
        }
        Ok(())
    }

    /// `None`: damaged; items before the damage are restored.
    fn items(&mut self, block: &[u8], version: u16) -> Option<()> {
        let mut header = BlockReader(&block[..HEADER_BYTES]);
        let checksum = u32::from_le_bytes(header.array()?);
        let [kind, flags, ..] = header.array::<4>()?;
        let items = u32::from_le_bytes(header.array()?);
        let used = u32::from_le_bytes(header.array()?) as usize;
        if checksum != crc32fast::hash(&block[4..]) || version != VERSION {
            return None;
        }
        let clean = flags & 1 != 0;
        header.array::<8>()?;
        let pause = self.now.since(UnixMs(header.u64()?));
        let mut reader = BlockReader(block.get(HEADER_BYTES..used)?);
        if kind == BlockKind::Entries as u8 {
            for _ in 0..items {
                let mut record = decode_record(&mut reader)?;
                record.used = record.used.after(pause);
                match self.index.restore(&record, clean) {
                    LoadResult::Added => self.restored.entries += 1,
                    LoadResult::Full => self.restored.no_room += 1,
                    LoadResult::Known | LoadResult::Going => {}
                }
            }
        } else if kind == BlockKind::Purges as u8 {
            for _ in 0..items {
                let (ban, active) = decode_purge(&mut reader)?;
                self.index.restore_purge(ban, active);
            }
        } else if kind == BlockKind::End as u8 {
            self.restored.complete = true;
            self.restored.clean = clean;
        } else {
            return None;
        }
        Some(())
    }
}

fn encode_record(record: &Record, out: &mut Vec<u8>) {
    out.extend_from_slice(&record.key.0);
    for number in [record.used.0, record.stamp, record.length, record.valid_until.0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [record.blocks, record.head_bytes] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for hash in record.sketch.0 {
        out.extend_from_slice(&hash.to_le_bytes());
    }
    out.extend_from_slice(&record.uses.to_le_bytes());
    out.push(u8::from(record.soft_purged));
    match &record.tags {
        Some(tags) if tags.len() < usize::from(TAGS_UNKNOWN) => {
            out.push(tags.len() as u8);
            tags.iter().for_each(|tag| out.extend_from_slice(&tag.0.to_le_bytes()));
        }
        _ => out.push(TAGS_UNKNOWN),
    }
}

fn decode_record(reader: &mut BlockReader<'_>) -> Option<Record> {
    let key = Key(reader.array()?);
    let used = UnixMs(reader.u64()?);
    let stamp = reader.stamp()?;
    let length = reader.u64()?;
    let valid_until = UnixMs(reader.u64()?);
    let blocks = u32::from_le_bytes(reader.array()?);
    let head_bytes = u32::from_le_bytes(reader.array()?);
    let mut sketch = Sketch::UNKNOWN;
    for hash in &mut sketch.0 {
        *hash = u16::from_le_bytes(reader.array()?);
    }
    let uses = u16::from_le_bytes(reader.array()?);
    let [soft_purged, tags] = reader.array()?;
    let tags = match tags {
        TAGS_UNKNOWN => None,
        count => Some((0..count).map(|_| reader.u64().map(Tag)).collect::<Option<Vec<_>>>()?),
    };
    Some(Record {
        key,
        used,
        stamp,
        length,
        blocks,
        head_bytes,
        valid_until,
        uses,
        soft_purged: soft_purged != 0,
        sketch,
        tags,
    })
}

fn encode_purge(ban: &Ban, active: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&ban.stamp.to_le_bytes());
    out.extend_from_slice(&ban.at.0.to_le_bytes());
    out.push(u8::from(active));
    out.push(u8::from(ban.how == How::Hard));
    match &ban.what {
        What::Key(key) => {
            out.push(0);
            out.extend_from_slice(&key.0);
        }
        What::Tag(tag) => {
            out.push(1);
            out.extend_from_slice(&tag.0.to_le_bytes());
        }
        What::Prefix(prefix) => {
            out.push(2);
            let prefix = &prefix[..prefix.len().min(PREFIX_BYTES_MAX)];
            out.extend_from_slice(&(prefix.len() as u32).to_le_bytes());
            out.extend_from_slice(prefix);
        }
        What::All => out.push(3),
    }
}

fn decode_purge(reader: &mut BlockReader<'_>) -> Option<(Ban, bool)> {
    let stamp = reader.stamp()?;
    let at = UnixMs(reader.u64()?);
    let [active, hard, what] = reader.array()?;
    let what = match what {
        0 => What::Key(Key(reader.array()?)),
        1 => What::Tag(Tag(reader.u64()?)),
        2 => {
            let length = u32::from_le_bytes(reader.array()?) as usize;
            What::Prefix(reader.take(length)?.into())
        }
        3 => What::All,
        _ => return None,
    };
    let how = if hard != 0 { How::Hard } else { How::Soft };
    Some((Ban { stamp, what, how, at, inherited: true }, active != 0))
}

/// The unread part of a block.
struct BlockReader<'a>(&'a [u8]);

impl<'a> BlockReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn stamp(&mut self) -> Option<u64> {
        self.u64().filter(|&stamp| stamp <= STAMP_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::index::{Commit, Config, PurgeNames};

    fn index() -> Arc<Index> {
        let config =
            Config { bytes: 4 << 20, tag_bytes: 1 << 20, inactive: Duration::from_secs(600) };
        Index::new(config).unwrap()
    }

    fn filled(keys: u64) -> Arc<Index> {
        let index = index();
        for number in 0..keys {
            let text = format!("httporigin/{}/{number}", number % 7);
            let key = Key::new(text.as_bytes());
            let tags = [Tag(number % 10), Tag(1000 + number)];
            let tags = &tags[..(number % 3) as usize];
            let commit = Commit {
                names: PurgeNames {
                    main: &key,
                    key_text: text.as_bytes(),
                    tags,
                    created: UnixMs(0),
                },
                length: number,
                blocks: 8,
                head_bytes: 300,
                valid_until: UnixMs(number * 2),
            };
            let now = UnixMs(1_000_000 - number * 10);
            index.hold(&key, now).unwrap().commit(&commit, now).unwrap();
        }
        index
    }

    fn blocks(index: &Arc<Index>, clean: bool) -> Vec<Bytes> {
        let mut encoder = Encoder::new(index, clean, UnixMs(2_000_000));
        std::iter::from_fn(|| encoder.next_block()).collect()
    }

    fn records(index: &Index) -> Vec<Record> {
        let (mut cursor, mut records) = (Some(Cursor::default()), Vec::new());
        while let Some(from) = cursor {
            cursor = index.records(from, 100, &mut records);
        }
        for record in &mut records {
            record.tags.iter_mut().for_each(|tags| tags.sort());
        }
        records.sort_by_key(|record| record.key);
        records
    }

    #[test]
    fn what_is_saved_is_restored_however_the_stream_is_cut() {
        let saved = filled(5000);
        let stream = blocks(&saved, true).concat();
        for piece in [stream.len(), 997, BLOCK_BYTES, BLOCK_BYTES + 1] {
            let index = index();
            let mut decoder = Decoder::new(&index, UnixMs(2_000_000));
            stream.chunks(piece).for_each(|piece| decoder.push(piece).unwrap());
            let restored = decoder.finish();
            assert_eq!((restored.entries, restored.damaged), (5000, 0));
            assert!(restored.complete && restored.clean);
            assert_eq!(records(&index), records(&saved));
            assert_eq!(index.blocks(), saved.blocks());
        }
    }

    #[test]
    fn the_order_of_use_is_restored() {
        let saved = filled(5000);
        let index = index();
        let mut decoder = Decoder::new(&index, UnixMs(2_000_000));
        blocks(&saved, true).iter().for_each(|block| decoder.push(block).unwrap());
        decoder.finish();
        // The last number is the least recently used.
        let text = |number: u64| format!("httporigin/{}/{number}", number % 7);
        for number in (4990..5000).rev() {
            let victims = index.evict(1);
            assert_eq!(*victims[0].key(), Key::new(text(number).as_bytes()));
        }
    }

    /// Otherwise a stop longer than `inactive` would cost the whole cache.
    #[test]
    fn the_time_without_a_process_is_not_inactive() {
        let saved = filled(1);
        let index = index();
        let mut decoder = Decoder::new(&index, UnixMs(9_000_000));
        blocks(&saved, true).iter().for_each(|block| decoder.push(block).unwrap());
        decoder.finish();
        // Used at 1,000,000, saved at 2,000,000.
        assert_eq!(records(&index)[0].used, UnixMs(8_000_000));
    }

    #[test]
    fn a_damaged_block_costs_its_own_entries() {
        let saved = filled(5000);
        let mut blocks = blocks(&saved, true);
        let mut bad = blocks[1].to_vec();
        bad[4000] ^= 1;
        blocks[1] = bad.into();
        let index = index();
        let mut decoder = Decoder::new(&index, UnixMs(2_000_000));
        blocks.iter().for_each(|block| decoder.push(block).unwrap());
        let restored = decoder.finish();
        assert_eq!(restored.damaged, 1);
        assert!(restored.entries > 3000 && restored.entries < 5000);
        assert!(restored.complete);
    }

    #[test]
    fn a_cut_stream_is_not_complete_and_another_one_is_refused() {
        let saved = filled(100);
        let stream = blocks(&saved, true).concat();
        let mut decoder = Decoder::new(&index(), UnixMs(2_000_000));
        decoder.push(&stream[..stream.len() - 1]).unwrap();
        let restored = decoder.finish();
        assert!(!restored.complete && restored.entries == 100);

        assert_eq!(
            Decoder::new(&index(), UnixMs(2_000_000)).push(&[0; BLOCK_BYTES]),
            Err(SnapshotError::Foreign)
        );
        let mut other = stream.clone();
        other[6] = 9;
        assert_eq!(
            Decoder::new(&index(), UnixMs(2_000_000)).push(&other),
            Err(SnapshotError::Version(9))
        );
    }

    #[test]
    fn purges_are_restored() {
        let saved = filled(10);
        let prefix = What::Prefix(b"httporigin/1/".as_slice().into());
        let purge = saved.purge(prefix, How::Soft, UnixMs(7)).unwrap();
        saved.purge(What::Tag(Tag(3)), How::Hard, UnixMs(8)).unwrap().finish();
        saved.purge(What::Key(Key::new(b"x")), How::Hard, UnixMs(9)).unwrap().finish();
        let index = index();
        let mut decoder = Decoder::new(&index, UnixMs(2_000_000));
        let mut encoder = Encoder::of_purges(&saved, UnixMs(0));
        std::iter::from_fn(|| encoder.next_block()).for_each(|block| decoder.push(&block).unwrap());
        let restored = decoder.finish();
        assert!(restored.complete && !restored.clean && restored.entries == 0);
        let unfinished = index.unfinished_purges();
        assert_eq!(unfinished.len(), 1);
        assert_eq!(*unfinished[0].ban(), Ban { inherited: true, ..purge.ban().clone() });
        assert_eq!(index.purges().1.len(), saved.purges().1.len());
    }

    #[test]
    fn tags_of_an_unclean_snapshot_are_taken_from_the_files() {
        let saved = filled(10);
        let index = index();
        let mut decoder = Decoder::new(&index, UnixMs(2_000_000));
        blocks(&saved, false).iter().for_each(|block| decoder.push(block).unwrap());
        decoder.finish();
        let key = Key::new(b"httporigin/2/2");
        assert!(index.peek(&key).unwrap().names_in_file);
    }
}
