//! Determines whether a range of a file is in the page cache, before it is read or sent on the
//! loop.
//!
//! Before a `sendfile`, since that waits for missing pages. Before `preadv2(RWF_NOWAIT)`, since a
//! miss starts reading, and waits for a slot in the disk's queue when that is full (measured on
//! Linux 6.18: misses of some hundred files on an unresponsive disk block the caller). So the loop
//! requests nothing that is likely to be missing. There are three sources, since none suffices
//! alone:
//!
//! * ranges that this process used a moment ago are in memory ([`known::last_use`]): free, but not
//!   certain;
//! * cachestat(2) counts the pages of a range and starts no I/O, but works only for files that we
//!   own or may write; and it counts pages that are still being read;
//! * a one-byte read with RWF_NOWAIT is exact and needs no ownership, but covers one page, so that
//!   only samples are affordable, and it starts reading a missing page.
//!
//! mincore(2) lies to unprivileged processes. Called by: [`super::read`], [`super::send`]. Never:
//! waits.

use std::io;
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::file::FileHandle;
use super::known;

/// Distance of samples in bytes. The kernel mostly reads ahead and evicts in larger pieces; at this
/// distance the samples of a warm megabyte cost 7 % of sending it.
const SAMPLE_BYTES: u64 = known::PIECE_BYTES;

static PAGE: LazyLock<u64> = LazyLock::new(nowait_sys::fs::page_size);

/// cachestat(2) is missing (before Linux 6.5) or forbidden.
static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// Maximum number of samples per check: limits it to a few microseconds.
const SAMPLES_MAX: usize = 8;

/// A piece that was entirely used at most this many ticks ago needs no sample of its own; one
/// sample per [`SPARSE_PIECES`] detects that the file was dropped from memory meanwhile. (A single
/// piece in the middle is not evicted so soon after its use.)
pub(super) const JUST: u16 = 1;
const SPARSE_PIECES: u64 = 16;

/// How long after its use a piece is assumed to be in memory without checking, in ticks.
const FRESH: u16 = 2 * known::TICKS_PER_SECOND;

/// How long after its use a piece is worth an attempt where cachestat is not allowed, as long as
/// the disk has no pending miss.
const KEPT: u16 = 60 * known::TICKS_PER_SECOND;

/// Whether an attempt to read the range inline will most likely succeed.
pub(super) fn is_likely(handle: &FileHandle, offset: u64, len: usize) -> bool {
    let len = len as u64;
    if handle.mount.is_memory() || offset >= handle.size() {
        return true;
    }
    let disk_is_free = !handle.mount.is_missing();
    if disk_is_free && used_len(handle, offset, len, FRESH) == len {
        return true;
    }
    whole_by_cachestat(handle, offset, len)
        .unwrap_or_else(|| used_len(handle, offset, len, idle_max(handle)) == len)
}

/// How many of the `len` bytes from `offset`, counted from the first, are known to be in memory.
pub(super) fn known_resident(handle: &FileHandle, offset: u64, len: usize) -> io::Result<usize> {
    let len = handle.size().saturating_sub(offset).min(len as u64);
    if len == 0 {
        // Past the end: sendfile finds that out without a disk.
        return Ok(1);
    }
    // Entirely used a moment ago: a few samples detect whether the file was dropped from memory
    // since, at a tenth of the cost of counting pages (10 µs per megabyte in pages of 4 KB).
    if whole_just_used(handle, offset, len) {
        let resident = by_samples(handle, offset, len)?;
        if resident == len {
            return Ok(usize::try_from(resident).unwrap_or(usize::MAX));
        }
    }
    let exact = match whole_by_cachestat(handle, offset, len) {
        Some(true) => Some(len),
        Some(false) => Some(first_pieces(handle, offset, len)),
        None => None,
    };
    let resident = match exact {
        // Pages may still be in flight only after recent reads.
        Some(exact) if exact == 0 || !handle.mount.read_lately() => exact,
        Some(exact) => by_samples(handle, offset, exact)?,
        None => by_samples(handle, offset, used_len(handle, offset, len, idle_max(handle)))?,
    };
    Ok(usize::try_from(resident).unwrap_or(usize::MAX))
}

/// The maximum idle time of a piece that is worth an attempt.
fn idle_max(handle: &FileHandle) -> u16 {
    if handle.mount.is_missing() { FRESH } else { KEPT }
}

/// How many of the `len` bytes from `offset` are in pieces used in the last `ticks`.
fn used_len(handle: &FileHandle, offset: u64, len: u64, ticks: u16) -> u64 {
    let (now, end) = (known::Tick::now(), offset + len);
    let is_used = |at| known::last_use(handle.id, at).is_some_and(|used| used.idle(now) <= ticks);
    pieces(offset, end).find(|at| !is_used(*at)).unwrap_or(end) - offset
}

/// Whether all pieces of the range were entirely used in the last moment.
fn whole_just_used(handle: &FileHandle, offset: u64, len: u64) -> bool {
    let now = known::Tick::now();
    let is_just_used = |at| {
        known::last_use(handle.id, at).is_some_and(|used| used.whole && used.idle(now) <= JUST)
    };
    pieces(offset, offset + len).all(is_just_used)
}

/// The leading whole pieces from `offset` on that cachestat finds in memory.
fn first_pieces(handle: &FileHandle, offset: u64, len: u64) -> u64 {
    let end = offset + len;
    let is_missing = |at: &u64| {
        let piece_end = (at / known::PIECE_BYTES + 1) * known::PIECE_BYTES;
        whole_by_cachestat(handle, *at, piece_end.min(end) - at) != Some(true)
    };
    pieces(offset, end).find(is_missing).unwrap_or(end) - offset
}

/// The starts of the pieces in the range; the first one at `offset`.
fn pieces(offset: u64, end: u64) -> impl Iterator<Item = u64> {
    let next = |at: &u64| Some((at / known::PIECE_BYTES + 1) * known::PIECE_BYTES);
    std::iter::successors(Some(offset), next).take_while(move |at| *at < end)
}

/// Whether all pages of the range are in the cache; `None`: not known.
fn whole_by_cachestat(handle: &FileHandle, offset: u64, len: u64) -> Option<bool> {
    let page = *PAGE;
    let pages = (offset + len).div_ceil(page) - offset / page;
    cached_pages(handle, offset, len).map(|cached| cached >= pages)
}

/// Whether any page of the range is in the cache, of some samples at least; `None`: not known. May start reading
/// what is missing.
pub(super) fn holds_any(handle: &FileHandle, offset: u64, len: u64) -> Option<bool> {
    if let Some(pages) = cached_pages(handle, offset, len) {
        return Some(pages > 0);
    }
    if !handle.mount.reads_inline() || len == 0 {
        return None;
    }
    let last = offset + len - 1;
    let mut samples = pieces(offset, offset + len).chain([last]);
    samples.try_fold(false, |found, at| Some(found || is_cached(handle, at).ok()?))
}

/// How many pages of the range are in the cache; `None`: not known.
fn cached_pages(handle: &FileHandle, offset: u64, len: u64) -> Option<u64> {
    if handle.no_cachestat.load(Relaxed) || NO_CACHESTAT.load(Relaxed) {
        return None;
    }
    let page = *PAGE;
    let first = offset / page;
    let pages = (offset + len).div_ceil(page) - first;
    match nowait_sys::fs::cachestat(handle.as_fd(), first * page, pages * page) {
        Ok(stat) => Some(stat.cached),
        Err(error) if error.kind() == io::ErrorKind::Unsupported && is_missing(&error) => {
            NO_CACHESTAT.store(true, Relaxed);
            None
        }
        Err(_) => {
            handle.no_cachestat.store(true, Relaxed);
            None
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOSYS.raw_os_error())
}

/// Samples one byte of each piece and the last one; only a few pieces of recently used ranges.
fn by_samples(handle: &FileHandle, offset: u64, len: u64) -> io::Result<u64> {
    if !handle.mount.reads_inline() || len == 0 {
        return Ok(0);
    }
    let (now, end) = (known::Tick::now(), offset + len);
    let is_just_used = |at| {
        known::last_use(handle.id, at).is_some_and(|used| used.whole && used.idle(now) <= JUST)
    };
    let (mut good, mut samples) = (offset, 0);
    for at in pieces(offset, end) {
        let is_sparse = is_just_used(at);
        if is_sparse && at != offset && !(at / SAMPLE_BYTES).is_multiple_of(SPARSE_PIECES) {
            continue;
        }
        if samples == SAMPLES_MAX {
            return Ok(at - offset);
        }
        samples += 1;
        let is_last = (at / SAMPLE_BYTES + 1) * SAMPLE_BYTES >= end;
        if !is_cached(handle, at)? || (is_last && !is_sparse && !is_cached(handle, end - 1)?) {
            // Residency ends somewhere after the last good sample. The sample has started reading.
            handle.set_missing(true);
            known::forget_used(handle.id, at);
            return Ok(good - offset);
        }
        good = at;
    }
    Ok(len)
}

fn is_cached(handle: &FileHandle, offset: u64) -> io::Result<bool> {
    match nowait_sys::fs::is_byte_cached(handle.as_fd(), offset) {
        Err(error) if error.raw_os_error() == Some(OPNOTSUPP) => {
            handle.mount.forbid_nowait();
            Ok(false)
        }
        result => result,
    }
}

const OPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();
