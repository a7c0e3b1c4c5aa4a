//! The tier of an object: stateless decisions, for the store.
//!
//! A cache may have memory in front of it, and a faster disk (`tier=`). New objects go to the
//! slower disk: most are never requested again, and writing them to a fast disk wears it out. An
//! object is copied forward on its second request. An object evicted from the faster disk is
//! dropped if the slower one still has it, and otherwise moved back if it was used.

/// Uses, the first included, after which an object is worth a faster place.
pub const PROMOTE_USES: u16 = 2;
/// The largest object that a faster disk takes, as a fraction of its size.
const PROMOTE_SHARE: u64 = 16;

/// Room on a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that its files occupy.
    pub used: u64,
    /// Bytes that they may occupy (`max_size`); `None`: no limit.
    pub max: Option<u64>,
}

/// Whether an object read from disk is worth keeping in memory. `uses`: as the index counts them;
/// `bytes`: of head and body; `bytes_max`: the largest object that the memory tier takes.
pub fn keep_in_memory(uses: u16, bytes: u64, bytes_max: usize) -> bool {
    uses >= PROMOTE_USES && bytes <= bytes_max as u64
}

/// Whether an object found on the slower disk is copied to the faster one, even a full one, where the
/// manager evicts older objects to make room.
pub fn promote(uses: u16, file_bytes: u64, faster: DiskRoom) -> bool {
    uses >= PROMOTE_USES && faster.max.is_none_or(|max| file_bytes <= max / PROMOTE_SHARE)
}

/// The treatment of an object that the faster disk evicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demotion {
    /// Dropped.
    Drop,
    /// Copied to the slower disk first.
    MoveBack,
}

/// Decides about an object that the faster disk evicts; `on_slower`: the slower disk has it too.
pub fn demote(uses: u16, file_bytes: u64, on_slower: bool, slower: DiskRoom) -> Demotion {
    let fits = slower.max.is_none_or(|max| slower.used.saturating_add(file_bytes) <= max);
    if !on_slower && uses >= PROMOTE_USES && fits { Demotion::MoveBack } else { Demotion::Drop }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDLESS: DiskRoom = DiskRoom { used: 0, max: None };

    #[test]
    fn the_second_use_moves_an_object_forward() {
        assert!(!promote(1, 1000, ENDLESS));
        assert!(promote(2, 1000, ENDLESS));
        assert!(!keep_in_memory(1, 1000, 4096));
        assert!(keep_in_memory(2, 4096, 4096));
        assert!(!keep_in_memory(9, 4097, 4096));
    }

    #[test]
    fn one_object_does_not_take_a_fast_disk() {
        let room = DiskRoom { used: 1600, max: Some(1600) };
        assert!(promote(2, 100, room));
        assert!(!promote(2, 101, room));
    }

    #[test]
    fn only_what_would_be_lost_and_was_used_is_moved_back() {
        assert_eq!(demote(2, 100, true, ENDLESS), Demotion::Drop);
        assert_eq!(demote(1, 100, false, ENDLESS), Demotion::Drop);
        assert_eq!(demote(2, 100, false, ENDLESS), Demotion::MoveBack);
        let full = DiskRoom { used: 950, max: Some(1000) };
        assert_eq!(demote(2, 100, false, full), Demotion::Drop);
    }
}
