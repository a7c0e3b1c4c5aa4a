//! The head of a cache file: encoded when an object is stored, decoded on a hit.
//!
//! Used by the store for every file, and by the loader and the purger for key texts and tags. It
//! does no I/O, and no input makes it panic or allocate: its results borrow from the caller's
//! buffer.
//!
//! A file is a fixed part, the key's text, the tags, two *blocks* of the same capacity, and the
//! body. Numbers are little-endian.
//!
//! ```text
//!  0  magic, version, checksum of everything up to the blocks
//! 16  body offset, lengths of key text and tags, capacity of a block
//! 32  created, body length, key, main key
//! 96  key text, tags, zeros to a multiple of 8
//!     block A: checksum, length, sequence, times, status, meta, header bytes
//!     block B: the same, or zeros
//!     body
//! ```
//!
//! Revalidation changes only the blocks. An update writes the block that is not in use, with the
//! next sequence number; a reader takes the newest intact one. So an update in place is atomic for
//! concurrent readers and for a crash, without rewriting the body. An update that exceeds the
//! capacity needs a new file.
//!
//! The body's length is unknown until the fill commits, which rewrites the fixed part before the
//! file gets its name. A file without a body length, or with another size than its head states, was
//! never completed.

use bytes::Bytes;

use crate::index::Tag;
use crate::key::{KEY_BYTES, Key};
use crate::time::UnixMs;

/// The first bytes of every cache file. Not text, and damaged by transfers that convert line ends.
pub const MAGIC: [u8; 8] = *b"\x89NWC\r\n\x1a\n";
/// The version of this layout; files of other versions are deleted and fetched again.
pub const VERSION: u16 = 1;
/// The longest key text, in bytes.
pub const KEY_TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of tags of one object.
pub const TAGS_MAX: usize = 256;
/// Maximum number of meta bytes of one object.
pub const META_BYTES_MAX: usize = 64 << 10;
/// Maximum number of header bytes of one object.
pub const HEADER_BYTES_MAX: usize = 512 << 10;
/// The largest head, which is also the largest body offset.
pub const HEAD_BYTES_MAX: usize =
    FIXED_BYTES + KEY_TEXT_BYTES_MAX + TAGS_MAX * TAG_BYTES + 8 + 2 * BLOCK_CAPACITY_MAX;
/// Enough bytes of a file to hold most heads: read first when the head's size is not known.
pub const FIRST_READ_BYTES: usize = 4096;

const FIXED_BYTES: usize = 96;
const BLOCK_FIXED_BYTES: usize = 64;
const TAG_BYTES: usize = 8;
const BLOCK_CAPACITY_MAX: usize =
    capacity_for(BLOCK_FIXED_BYTES + META_BYTES_MAX + HEADER_BYTES_MAX);
const LENGTH_UNKNOWN: u64 = u64::MAX;

/// Identifies an object; never changes while its file exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// The key that names the file.
    pub key: Key,
    /// The key without `Vary`: equal to `key` unless this is a variant.
    pub main: Key,
    /// The text whose hash is `main`, compared on every hit.
    pub key_text: Bytes,
    /// The tags by which the object can be purged.
    pub tags: Vec<Tag>,
    /// When the object was stored.
    pub created: UnixMs,
}

/// The part that an update (revalidation) replaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectState {
    /// When this state was stored.
    pub updated: UnixMs,
    /// Fresh until this time.
    pub valid_until: UnixMs,
    /// May be served stale during an update until this time; [`UnixMs::ZERO`]: not allowed by the
    /// response.
    pub stale_while_revalidate: UnixMs,
    /// May be served stale after an error until this time; [`UnixMs::ZERO`]: not allowed by the
    /// response.
    pub stale_if_error: UnixMs,
    /// The response's status.
    pub status: u16,
    /// Opaque bytes of the cache's user.
    pub meta: Bytes,
    /// The header bytes of the response.
    pub header: Bytes,
}

/// A decoded head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHead {
    /// The object's identity.
    pub identity: ObjectIdentity,
    /// The newest intact state.
    pub state: ObjectState,
    /// The positions of its parts in the file.
    pub layout: Layout,
    /// The body's length in bytes; `None` in a file that was never completed.
    pub body_length: Option<u64>,
}

/// The positions of a head's parts in its file; enough to update it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The start of the body: the length of the head.
    pub body_offset: u32,
    /// The capacity of each block, in bytes.
    pub capacity: u32,
    /// The sequence number of the newest block.
    pub sequence: u64,
    /// Whether block A is the newest.
    newest_is_a: bool,
}

/// Bytes to be written at an offset of the file, by one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The offset in the file.
    pub offset: u64,
    /// The bytes to write.
    pub bytes: Bytes,
    /// The layout after it.
    pub layout: Layout,
}

/// A head ready to be written at the start of a new file.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// All bytes up to the body.
    pub bytes: Bytes,
    /// The positions of its parts.
    pub layout: Layout,
    prefix_bytes: usize,
}

/// The reason why bytes are not an object's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// Intact so far: the head has `needed` bytes. Read them and decode again; a shorter file is
    /// damaged.
    Short {
        /// The bytes of the file that are needed.
        needed: usize,
    },
    /// Not a cache file of ours. Delete it.
    Foreign,
    /// A cache file of another version. Delete it.
    Version(u16),
    /// A cache file that was never completed, or is damaged. Delete it.
    Damaged(&'static str),
}

impl std::fmt::Display for HeadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short { needed } => write!(f, "shorter than its head of {needed} bytes"),
            Self::Foreign => f.write_str("not a cache file"),
            Self::Version(version) => write!(f, "cache file of version {version}"),
            Self::Damaged(what) => write!(f, "damaged cache file: {what}"),
        }
    }
}

impl std::error::Error for HeadError {}

/// The limit that an object exceeds; it is then served without being stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLarge {
    /// [`KEY_TEXT_BYTES_MAX`]
    KeyText,
    /// [`TAGS_MAX`]
    Tags,
    /// [`META_BYTES_MAX`]
    Meta,
    /// [`HEADER_BYTES_MAX`]
    Header,
    /// An update that needs a new file.
    Capacity,
}

/// A quarter of room to grow, in whole steps of 64 bytes.
const fn capacity_for(block: usize) -> usize {
    (block + block / 4).next_multiple_of(64)
}

/// Encodes the head of a new file. Its body's length is unknown until [`Encoded::completed`].
///
/// # Errors
/// [`TooLarge`] names the limit that the object exceeds.
pub fn encode(identity: &ObjectIdentity, state: &ObjectState) -> Result<Encoded, TooLarge> {
    if identity.key_text.len() > KEY_TEXT_BYTES_MAX {
        return Err(TooLarge::KeyText);
    }
    if identity.tags.len() > TAGS_MAX {
        return Err(TooLarge::Tags);
    }
    let capacity = capacity_for(block_bytes(state)?);
    let tags_bytes = identity.tags.len() * TAG_BYTES;
    let prefix_bytes = FIXED_BYTES + identity.key_text.len() + tags_bytes;
    let blocks = prefix_bytes.next_multiple_of(8);
    let layout = Layout {
        body_offset: (blocks + 2 * capacity) as u32,
        capacity: capacity as u32,
        sequence: 1,
        newest_is_a: true,
    };

    let mut bytes = Vec::with_capacity(blocks + 2 * capacity);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 6]); // reserved, checksum
    for number in [layout.body_offset, identity.key_text.len() as u32, tags_bytes as u32] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&layout.capacity.to_le_bytes());
    bytes.extend_from_slice(&identity.created.0.to_le_bytes());
    bytes.extend_from_slice(&LENGTH_UNKNOWN.to_le_bytes());
    bytes.extend_from_slice(&identity.key.0);
    bytes.extend_from_slice(&identity.main.0);
    bytes.resize(FIXED_BYTES, 0);
    bytes.extend_from_slice(&identity.key_text);
    for tag in &identity.tags {
        bytes.extend_from_slice(&tag.0.to_le_bytes());
    }
    seal_prefix(&mut bytes);
    bytes.resize(blocks, 0);
    bytes.extend_from_slice(&block(state, layout.sequence));
    bytes.resize(blocks + 2 * capacity, 0);
    Ok(Encoded { bytes: bytes.into(), layout, prefix_bytes })
}

impl Encoded {
    /// The patch that completes a file: written before the file gets its name.
    pub fn completed(&self, body_length: u64) -> Patch {
        let mut prefix = self.bytes[..self.prefix_bytes].to_vec();
        prefix[40..48].copy_from_slice(&body_length.to_le_bytes());
        seal_prefix(&mut prefix);
        prefix.truncate(FIXED_BYTES);
        Patch { offset: 0, bytes: prefix.into(), layout: self.layout }
    }
}

/// The patch that gives a file another state, written to the block that is not in use.
///
/// # Errors
/// [`TooLarge::Capacity`]: the file must be rewritten, with its body copied.
pub fn update(layout: &Layout, state: &ObjectState) -> Result<Patch, TooLarge> {
    if block_bytes(state)? > layout.capacity as usize {
        return Err(TooLarge::Capacity);
    }
    let layout = Layout {
        sequence: layout.sequence.wrapping_add(1),
        newest_is_a: !layout.newest_is_a,
        ..*layout
    };
    let from_end = if layout.newest_is_a { 2 } else { 1 } * u64::from(layout.capacity);
    let offset = u64::from(layout.body_offset) - from_end;
    Ok(Patch { offset, bytes: block(state, layout.sequence).into(), layout })
}

fn block_bytes(state: &ObjectState) -> Result<usize, TooLarge> {
    if state.meta.len() > META_BYTES_MAX {
        return Err(TooLarge::Meta);
    }
    if state.header.len() > HEADER_BYTES_MAX {
        return Err(TooLarge::Header);
    }
    Ok(BLOCK_FIXED_BYTES + state.meta.len() + state.header.len())
}

fn block(state: &ObjectState, sequence: u64) -> Vec<u8> {
    let length = BLOCK_FIXED_BYTES + state.meta.len() + state.header.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    for time in
        [state.updated, state.valid_until, state.stale_while_revalidate, state.stale_if_error]
    {
        bytes.extend_from_slice(&time.0.to_le_bytes());
    }
    bytes.extend_from_slice(&(state.meta.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&state.status.to_le_bytes());
    bytes.resize(BLOCK_FIXED_BYTES, 0);
    bytes.extend_from_slice(&state.meta);
    bytes.extend_from_slice(&state.header);
    let checksum = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Writes the checksum of the fixed part, key text and tags.
fn seal_prefix(prefix: &mut [u8]) {
    prefix[12..16].fill(0);
    let checksum = crc32fast::hash(prefix);
    prefix[12..16].copy_from_slice(&checksum.to_le_bytes());
}

/// Decodes the head at the start of `bytes`, which are the first bytes of a file.
///
/// # Errors
/// [`HeadError::Short`] requests more bytes; after the other errors the file must be deleted.
pub fn decode(bytes: &Bytes) -> Result<ObjectHead, HeadError> {
    let (layout, lengths) = layout_of(bytes)?;
    if bytes.len() < layout.body_offset as usize {
        return Err(HeadError::Short { needed: layout.body_offset as usize });
    }
    let prefix_bytes = FIXED_BYTES + lengths.key_text + lengths.tags;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&[0; 4]);
    hasher.update(&bytes[16..prefix_bytes]);
    if hasher.finalize() != u32_at(bytes, 12) {
        return Err(HeadError::Damaged("checksum"));
    }

    let (end, capacity) = (layout.body_offset as usize, layout.capacity as usize);
    let a = read_block(bytes, end - 2 * capacity, capacity);
    let b = read_block(bytes, end - capacity, capacity);
    let (newest_is_a, (sequence, state)) = match (a, b) {
        (Some(a), Some(b)) => {
            // Compared as a distance, so that it may wrap.
            let a_is_newer = a.0.wrapping_sub(b.0) < u64::MAX / 2;
            (a_is_newer, if a_is_newer { a } else { b })
        }
        (Some(a), None) => (true, a),
        (None, Some(b)) => (false, b),
        (None, None) => return Err(HeadError::Damaged("no intact state")),
    };
    let tags = bytes[FIXED_BYTES + lengths.key_text..prefix_bytes]
        .chunks_exact(TAG_BYTES)
        .map(|tag| Tag(u64_at(tag, 0)))
        .collect();
    let body_length = u64_at(bytes, 40);
    Ok(ObjectHead {
        identity: ObjectIdentity {
            key: key_at(bytes, 48),
            main: key_at(bytes, 64),
            key_text: bytes.slice(FIXED_BYTES..FIXED_BYTES + lengths.key_text),
            tags,
            created: UnixMs(u64_at(bytes, 32)),
        },
        state,
        layout: Layout { sequence, newest_is_a, ..layout },
        body_length: (body_length != LENGTH_UNKNOWN).then_some(body_length),
    })
}

impl ObjectHead {
    /// The body's length, if the file has exactly the size that its head states.
    ///
    /// # Errors
    /// [`HeadError::Damaged`]: the file was never completed, or was cut, or grew.
    pub fn complete(&self, file_bytes: u64) -> Result<u64, HeadError> {
        let length = self.body_length.ok_or(HeadError::Damaged("never completed"))?;
        match u64::from(self.layout.body_offset).checked_add(length) {
            Some(expected) if expected == file_bytes => Ok(length),
            _ => Err(HeadError::Damaged("size")),
        }
    }

    /// Whether this is the object of `key`, whose text is `key_text`. Both are compared, since
    /// other texts can have the same MD5.
    pub fn is_of(&self, key: &Key, key_text: &[u8]) -> bool {
        self.identity.key == *key && self.identity.key_text == key_text
    }
}

struct Lengths {
    key_text: usize,
    tags: usize,
}

/// The layout, without the parts that only the blocks hold; all limits are checked here.
fn layout_of(bytes: &[u8]) -> Result<(Layout, Lengths), HeadError> {
    let magic = bytes.len().min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Err(HeadError::Foreign);
    }
    if bytes.len() < FIXED_BYTES {
        return Err(HeadError::Short { needed: FIXED_BYTES });
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != VERSION {
        return Err(HeadError::Version(version));
    }
    let body_offset = u32_at(bytes, 16);
    let lengths =
        Lengths { key_text: u32_at(bytes, 20) as usize, tags: u32_at(bytes, 24) as usize };
    let capacity = u32_at(bytes, 28);
    let in_bounds = lengths.key_text <= KEY_TEXT_BYTES_MAX
        && lengths.tags <= TAGS_MAX * TAG_BYTES
        && lengths.tags.is_multiple_of(TAG_BYTES)
        && (BLOCK_FIXED_BYTES..=BLOCK_CAPACITY_MAX).contains(&(capacity as usize));
    if !in_bounds {
        return Err(HeadError::Damaged("lengths"));
    }
    let blocks = (FIXED_BYTES + lengths.key_text + lengths.tags).next_multiple_of(8);
    if body_offset as usize != blocks + 2 * capacity as usize {
        return Err(HeadError::Damaged("body offset"));
    }
    Ok((Layout { body_offset, capacity, sequence: 0, newest_is_a: true }, lengths))
}

/// A block's sequence number and state, if it is intact.
fn read_block(bytes: &Bytes, start: usize, capacity: usize) -> Option<(u64, ObjectState)> {
    let block = &bytes[start..start + capacity];
    let length = u32_at(block, 4) as usize;
    if !(BLOCK_FIXED_BYTES..=capacity).contains(&length) {
        return None;
    }
    if crc32fast::hash(&block[4..length]) != u32_at(block, 0) {
        return None;
    }
    let meta = u32_at(block, 48) as usize;
    if meta > length - BLOCK_FIXED_BYTES {
        return None;
    }
    let meta_start = start + BLOCK_FIXED_BYTES;
    let state = ObjectState {
        updated: UnixMs(u64_at(block, 16)),
        valid_until: UnixMs(u64_at(block, 24)),
        stale_while_revalidate: UnixMs(u64_at(block, 32)),
        stale_if_error: UnixMs(u64_at(block, 40)),
        status: u16::from_le_bytes([block[52], block[53]]),
        meta: bytes.slice(meta_start..meta_start + meta),
        header: bytes.slice(meta_start + meta..start + length),
    };
    Some((u64_at(block, 8), state))
}

/// The callers have checked the length.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The callers have checked the length.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The callers have checked the length.
fn key_at(bytes: &[u8], at: usize) -> Key {
    Key(bytes[at..at + KEY_BYTES].try_into().expect("as many bytes as a key has"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> ObjectIdentity {
        let key_text = Bytes::from_static(b"httporigin/a/b.jpg");
        let main = Key::new(&key_text);
        let key = main.variant(b"gzip");
        let tags = vec![Tag::new(b"news"), Tag::new(b"images")];
        ObjectIdentity { key, main, key_text, tags, created: UnixMs(1_700_000_000_123) }
    }

    fn state(meta: &'static [u8], header: &'static [u8]) -> ObjectState {
        ObjectState {
            updated: UnixMs(1),
            valid_until: UnixMs(2),
            stale_while_revalidate: UnixMs(3),
            stale_if_error: UnixMs(4),
            status: 200,
            meta: Bytes::from_static(meta),
            header: Bytes::from_static(header),
        }
    }

    fn apply(file: &mut [u8], patch: &Patch) {
        let start = patch.offset as usize;
        file[start..start + patch.bytes.len()].copy_from_slice(&patch.bytes);
    }

    fn file() -> (Vec<u8>, Encoded) {
        let encoded = encode(&identity(), &state(b"meta", b"Header: x\r\n\r\n")).unwrap();
        let mut file = encoded.bytes.to_vec();
        file.extend_from_slice(b"body");
        apply(&mut file, &encoded.completed(4));
        (file, encoded)
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let (file, encoded) = file();
        let head = decode(&file.clone().into()).unwrap();
        assert_eq!(head.identity, identity());
        assert_eq!(head.state, state(b"meta", b"Header: x\r\n\r\n"));
        assert_eq!(head.layout, encoded.layout);
        assert_eq!(head.complete(file.len() as u64), Ok(4));
        assert!(head.is_of(&identity().key, b"httporigin/a/b.jpg"));
        assert!(!head.is_of(&identity().key, b"httporigin/a/c.jpg"));
        assert_eq!(&file[head.layout.body_offset as usize..], b"body");
    }

    #[test]
    fn a_file_is_complete_only_with_its_length() {
        let (file, encoded) = file();
        let head = decode(&encoded.bytes).unwrap();
        assert_eq!(head.complete(file.len() as u64), Err(HeadError::Damaged("never completed")));
        let head = decode(&file.clone().into()).unwrap();
        for length in [file.len() - 1, file.len() + 1, 0] {
            assert_eq!(head.complete(length as u64), Err(HeadError::Damaged("size")));
        }
    }

    #[test]
    fn asks_for_the_bytes_that_it_needs() {
        let (file, encoded) = file();
        let mut length = 0;
        loop {
            match decode(&Bytes::copy_from_slice(&file[..length])) {
                Err(HeadError::Short { needed }) => {
                    assert!(needed > length);
                    length = needed;
                }
                head => break assert!(head.is_ok()),
            }
        }
        assert_eq!(length, encoded.layout.body_offset as usize);
    }

    #[test]
    fn updates_alternate_and_survive_a_torn_write() {
        let (mut file, encoded) = file();
        let mut layout = encoded.layout;
        for round in 0..5 {
            let next =
                ObjectState { valid_until: UnixMs(100 + round), ..state(b"m", b"Header: y\r\n") };
            let patch = update(&layout, &next).unwrap();

            let mut torn = file.clone();
            let half = Patch { bytes: patch.bytes.slice(..20), ..patch.clone() };
            apply(&mut torn, &half);
            let before = decode(&file.clone().into()).unwrap();
            assert_eq!(decode(&torn.into()).unwrap(), before);

            apply(&mut file, &patch);
            let head = decode(&file.clone().into()).unwrap();
            assert_eq!(head.state, next);
            assert_eq!(head.layout, patch.layout);
            assert_eq!(head.complete(file.len() as u64), Ok(4));
            layout = patch.layout;
        }
    }

    #[test]
    fn an_update_beyond_the_capacity_is_refused() {
        let (_, encoded) = file();
        let large = ObjectState { header: vec![b'h'; 1000].into(), ..ObjectState::default() };
        assert_eq!(update(&encoded.layout, &large), Err(TooLarge::Capacity));
    }

    #[test]
    fn every_changed_byte_of_the_head_is_noticed_or_without_effect() {
        let (file, encoded) = file();
        let good = decode(&file.clone().into()).unwrap();
        for at in 0..encoded.layout.body_offset as usize {
            let mut bad = file.clone();
            bad[at] ^= 0x55;
            if let Ok(head) = decode(&bad.into()) {
                assert_eq!(head, good, "byte {at}");
            }
        }
    }

    #[test]
    fn bounds_are_named() {
        let too_long = |n: usize| Bytes::from(vec![0; n + 1]);
        let (identity, state) = (identity(), ObjectState::default());
        let key_text =
            ObjectIdentity { key_text: too_long(KEY_TEXT_BYTES_MAX), ..identity.clone() };
        assert_eq!(encode(&key_text, &state).err(), Some(TooLarge::KeyText));
        let tags = ObjectIdentity { tags: vec![Tag(1); TAGS_MAX + 1], ..identity.clone() };
        assert_eq!(encode(&tags, &state).err(), Some(TooLarge::Tags));
        let meta = ObjectState { meta: too_long(META_BYTES_MAX), ..state.clone() };
        assert_eq!(encode(&identity, &meta).err(), Some(TooLarge::Meta));
        let header = ObjectState { header: too_long(HEADER_BYTES_MAX), ..state };
        assert_eq!(encode(&identity, &header).err(), Some(TooLarge::Header));
    }

    #[test]
    fn the_largest_head_can_be_decoded() {
        let identity = ObjectIdentity {
            key_text: vec![b'k'; KEY_TEXT_BYTES_MAX].into(),
            tags: vec![Tag(1); TAGS_MAX],
            ..identity()
        };
        let state = ObjectState {
            meta: vec![b'm'; META_BYTES_MAX].into(),
            header: vec![b'h'; HEADER_BYTES_MAX].into(),
            ..ObjectState::default()
        };
        let encoded = encode(&identity, &state).unwrap();
        assert!(encoded.bytes.len() <= HEAD_BYTES_MAX);
        assert_eq!(decode(&encoded.bytes).unwrap().state, state);
    }

    #[test]
    fn foreign_files_and_other_versions_are_told_apart() {
        assert_eq!(decode(&Bytes::from_static(b"\x05\0\0\0")), Err(HeadError::Foreign));
        let (mut file, _) = file();
        file[8] = 2;
        assert_eq!(decode(&file.into()), Err(HeadError::Version(2)));
    }
}
