//! Small copies: several share one block of memory, so that most need no allocation.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// Up to this many bytes share memory.
const FEW_BYTES_MAX: usize = 128;

/// The size of the shared memory in bytes, which is kept as long as any of it is in use.
const BLOCK_BYTES: usize = 1024;

thread_local! {
    /// The unused rest of this thread's block.
    static BLOCK: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// A copy of several pieces, one after the other, for brief use: a small one may keep 1 KB in use until it is
/// dropped.
#[inline]
pub fn join_briefly(pieces: &[&[u8]]) -> Bytes {
    let length = pieces.iter().map(|piece| piece.len()).sum();
    if length > FEW_BYTES_MAX || length == 0 {
        return pieces.concat().into();
    }
    let few = BLOCK.try_with(|block| {
        let mut block = block.borrow_mut();
        if block.capacity() < length {
            // Reuses a block once it has no users.
            block.reserve(BLOCK_BYTES);
        }
        for piece in pieces {
            block.extend_from_slice(piece);
        }
        block.split().freeze()
    });
    // A thread at its end has no block.
    few.unwrap_or_else(|_| pieces.concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_memory_that_is_used_again() {
        let mut addresses = Vec::new();
        for n in 0..1000u32 {
            let text = format!("a text and its number, {n}");
            let (begin, end) = text.as_bytes().split_at(n as usize % 20);
            let (first, second) = (join_briefly(&[begin, b"", end]), join_briefly(&[b"x"]));
            assert_eq!((&first[..], &second[..]), (text.as_bytes(), &b"x"[..]));
            addresses.push(first.as_ptr().addr());
        }
        let (least, most) = (addresses.iter().min().unwrap(), addresses.iter().max().unwrap());
        assert!(most - least < BLOCK_BYTES);
    }

    #[test]
    fn copies_in_use_are_left_alone() {
        let texts: Vec<String> = (0..300).map(|n| format!("{n}").repeat(n)).collect();
        let copies: Vec<Bytes> = texts
            .iter()
            .enumerate()
            .map(|(n, text)| text.as_bytes().split_at(n / 2))
            .map(|(begin, end)| join_briefly(&[begin, end]))
            .collect();
        assert!(texts.iter().zip(&copies).all(|(text, copy)| text.as_bytes() == copy));
    }
}
