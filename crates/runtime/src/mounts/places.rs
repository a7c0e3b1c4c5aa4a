//! The file system of a name, which determines whether it may be looked up inline.
//!
//! Directories (by the text of their path) and symbolic links → the file system they are on
//! ([`place_of_dir`]), in a lossy table. A name is looked up inline only in a directory that is
//! known to be on a file system where this cannot wait. A pool thread learns it by looking at the
//! directory itself.
//!
//! Called by: [`crate::fs`]. Never: allocates, waits.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};

use super::{MOUNT_BITS, Mount, by_index};
use crate::table::{self, AtomicTable, VALUE_BITS};

/// Entries for directories and names: half a megabyte, of which only the used pages occupy memory.
const PLACES: usize = 1 << 16;

static PLACES_TABLE: AtomicTable<PLACES> = AtomicTable::new();

/// Number of entries ever made for names that differ from their directory.
static NAMES: AtomicUsize = AtomicUsize::new(0);

/// The number of the current period between mount changes: 0 to [`AGES`].
static AGE: AtomicU16 = AtomicU16::new(0);
const AGES: u16 = 1 << (VALUE_BITS - MOUNT_BITS);

/// A path's directory: everything before the last name; without a slash the current directory.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    match path[..end].iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(slash) => &path[..slash],
        None if end == 0 && !path.is_empty() => b"/",
        None => b".",
    }
}

fn dir_hash(dir: &[u8]) -> u64 {
    table::hash((0u8, dir))
}

fn name_hash(path: &[u8]) -> u64 {
    table::hash((1u8, path))
}

/// A [`AtomicTable`] value: a file system's slot number, and the [`AGE`] in which it was seen.
fn place_value(mount: &Mount) -> u16 {
    AGE.load(Relaxed) << MOUNT_BITS | mount.index()
}

/// The file system of the value, and whether there was no mount change since.
fn place_of(value: u16) -> Option<(&'static Mount, bool)> {
    let mount = by_index(value & ((1 << MOUNT_BITS) - 1))?;
    Some((mount, value >> MOUNT_BITS == AGE.load(Relaxed)))
}

/// The file system of `dir`, if known, and whether that is beyond doubt.
pub(crate) fn place_of_dir(dir: &[u8]) -> Option<(&'static Mount, bool)> {
    place_of(PLACES_TABLE.find(dir_hash(dir))?)
}

pub(crate) fn learn_dir(dir: &[u8], mount: &Mount) {
    PLACES_TABLE.set(dir_hash(dir), place_value(mount));
}

pub(crate) fn forget_dir(dir: &[u8]) {
    PLACES_TABLE.set(dir_hash(dir), 0);
}

/// The file system that `path` itself leads to, where it is known to differ from that of its
/// directory: a symbolic link, a mount point. Excludes entries in doubt.
pub(crate) fn place_of_name(path: &[u8]) -> Option<&'static Mount> {
    if NAMES.load(Relaxed) == 0 {
        return None;
    }
    let (mount, is_sure) = place_of(PLACES_TABLE.find(name_hash(path))?)?;
    is_sure.then_some(mount)
}

pub(crate) fn learn_name(path: &[u8], mount: &Mount) {
    PLACES_TABLE.set(name_hash(path), place_value(mount));
    NAMES.fetch_add(1, Relaxed);
}

/// After a mount or unmount: all places are in doubt until they are confirmed.
pub(super) fn doubt() {
    // Only one thread calls this. An age is reused only after all its entries were dropped.
    let age = (AGE.load(Relaxed) + 1) % AGES;
    if age == 0 {
        PLACES_TABLE.clear();
    }
    AGE.store(age, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"/srv/www/a", b"/srv/www"),
            (b"/srv/www/a/", b"/srv/www"),
            (b"/a", b"/"),
            (b"/", b"/"),
            (b"//", b"/"),
            (b"a", b"."),
            (b"a/b", b"a"),
            (b"", b"."),
        ];
        for (path, dir) in cases {
            assert_eq!(parent(path), dir, "{}", String::from_utf8_lossy(path));
        }
    }
}
