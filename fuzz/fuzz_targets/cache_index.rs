//! Saved indexes: no matter what stands in a stream, restoring it ends, within the index's bounds, and
//! what was restored can be saved and restored again.
//!
//! Input: the kind of a block, a count, then what stands in it; the frame around it is made good.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use nowait_cache::index::{BYTES_MIN, Config};
use nowait_cache::snapshot::{BLOCK_BYTES, Decoder, Encoder, VERSION};
use nowait_cache::{Index, UnixMs};

const HEADER_BYTES: usize = 32;

fuzz_target!(|data: &[u8]| {
    let [kind, items, rest @ ..] = data else { return };
    let rest = &rest[..rest.len().min(BLOCK_BYTES - HEADER_BYTES)];
    let mut block = vec![0; BLOCK_BYTES];
    block[4] = kind & 3;
    block[5] = kind >> 7;
    block[6..8].copy_from_slice(&VERSION.to_le_bytes());
    block[8] = *items;
    let used = (HEADER_BYTES + rest.len()) as u32;
    block[12..16].copy_from_slice(&used.to_le_bytes());
    block[16..24].copy_from_slice(b"\x89NWX\r\n\x1a\n");
    block[HEADER_BYTES..HEADER_BYTES + rest.len()].copy_from_slice(rest);
    let checksum = crc32fast::hash(&block[4..]);
    block[..4].copy_from_slice(&checksum.to_le_bytes());

    let index = index();
    let mut decoder = Decoder::new(&index, UnixMs(7));
    decoder.push(&block).expect("the frame is good");
    let restored = decoder.finish();
    let usage = index.usage();
    assert_eq!(usage.stored, restored.entries);
    assert!(usage.keys <= usage.keys_max && usage.tags <= usage.tags_max);

    let again = self::index();
    let mut encoder = Encoder::new(&index, kind >> 7 != 0, UnixMs(5));
    let mut decoder = Decoder::new(&again, UnixMs(7));
    while let Some(block) = encoder.next_block() {
        decoder.push(&block).expect("our own");
    }
    let copied = decoder.finish();
    assert!(copied.complete && copied.damaged == 0);
    assert_eq!(copied.entries, restored.entries);
    drop(index.evict(usize::MAX));
    assert_eq!(index.blocks(), 0);
});

fn index() -> Arc<Index> {
    let config = Config { bytes: BYTES_MIN, tag_bytes: 4096, inactive: Duration::from_secs(600) };
    Index::new(config).expect("large enough")
}
