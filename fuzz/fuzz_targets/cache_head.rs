//! Heads of cache files: no matter what stands in a file, decoding it ends in a head or an error; what is
//! decoded can be updated; a changed byte is noticed or without effect.
//!
//! Input: a choice, then a file. With the choice's lowest bit the checksums are made good first, so
//! that what is behind them is reached too.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nowait_cache::UnixMs;
use nowait_cache::format::{self, HeadError, ObjectHead, ObjectState};

fuzz_target!(|data: &[u8]| {
    let [choice, file @ ..] = data else { return };
    let mut file = file.to_vec();
    if choice & 1 != 0 {
        seal(&mut file);
    }
    let Some(head) = decode(&file) else { return };
    assert!(head.layout.body_offset as usize <= file.len().min(format::HEAD_BYTES_MAX));
    let _ = head.complete(file.len() as u64);

    // Its identity survives being rewritten, and an update of its state.
    let encoded = format::encode(&head.identity, &head.state).expect("within the bounds");
    let again = format::decode(&encoded.bytes).expect("whole");
    assert_eq!((&again.identity, &again.state), (&head.identity, &head.state));
    let next = ObjectState { valid_until: UnixMs(u64::from(*choice)), ..head.state.clone() };
    if let Ok(patch) = format::update(&head.layout, &next) {
        let at = patch.offset as usize;
        file[at..at + patch.bytes.len()].copy_from_slice(&patch.bytes);
        let updated = decode(&file).expect("whole");
        assert_eq!((updated.identity, updated.state), (head.identity, next));
    }

    // One byte of the new head is changed.
    let mut changed = encoded.bytes.to_vec();
    let at = usize::from(*choice) * changed.len() / 256;
    changed[at] ^= 1 | choice;
    if let Ok(other) = format::decode(&changed.into()) {
        assert_eq!(other, again);
    }
});

/// As the store reads: some bytes, then what the head asks for.
fn decode(file: &[u8]) -> Option<ObjectHead> {
    let mut length = file.len().min(format::FIRST_READ_BYTES);
    loop {
        match format::decode(&Bytes::copy_from_slice(&file[..length])) {
            Ok(head) => return Some(head),
            Err(HeadError::Short { needed }) => {
                assert!(needed > length && needed <= format::HEAD_BYTES_MAX);
                if needed > file.len() {
                    return None;
                }
                length = needed;
            }
            Err(_) => return None,
        }
    }
}

/// Makes the checksums of the fixed part and of both blocks good, as far as lengths allow.
fn seal(file: &mut [u8]) {
    let number = |file: &[u8], at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
    };
    let lengths = [16, 20, 24, 28].map(|at| number(file, at).unwrap_or(usize::MAX));
    let [end, key_text, tags, capacity] = lengths;
    if let Some(prefix) = file.get_mut(..96usize.saturating_add(key_text).saturating_add(tags)) {
        prefix[12..16].fill(0);
        let checksum = crc32fast::hash(prefix);
        prefix[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
    for blocks in [2, 1] {
        let start = end.wrapping_sub(capacity.wrapping_mul(blocks));
        let length = number(file, start.wrapping_add(4).min(file.len())).unwrap_or(0);
        let Some(block) = file.get_mut(start..start.saturating_add(length)) else { continue };
        if block.len() >= 4 {
            let checksum = crc32fast::hash(&block[4..]);
            block[..4].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}
