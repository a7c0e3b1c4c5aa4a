//! Random bytes for identifiers. Not for keys.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// 16 bytes that don't repeat: a hash of a counter, keyed by the operating system.
pub fn bytes() -> [u8; 16] {
    thread_local! {
        static STATE: RefCell<(RandomState, u64)> = RefCell::new((RandomState::new(), 0));
    }
    STATE.with_borrow_mut(|(keys, counter)| {
        let mut id = [0; 16];
        for half in id.chunks_exact_mut(8) {
            *counter += 1;
            let mut hasher = keys.build_hasher();
            hasher.write_u64(*counter);
            half.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        id
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn identifiers_differ() {
        assert_ne!(super::bytes(), super::bytes());
    }
}
