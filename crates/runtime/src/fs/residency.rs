//! Is a range of a file in the page cache? Asked before `sendfile`, which waits for what is not.
//!
//! Two ways, since none serves alone. cachestat(2) counts the pages of a range exactly and cheaply,
//! but only for files that we own or may write, and it counts pages still being read. A read of one
//! byte with RWF_NOWAIT is refused for those too and needs no ownership, but asks about one page, so
//! that only samples are affordable. mincore(2) lies to the unprivileged.
//!
//! Called by: [`super::send`]. Never: waits.

use std::io;
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::file::Handle;

/// Distance of samples in bytes. The kernel reads ahead and evicts in larger pieces mostly; at this
/// distance the samples of a warm megabyte cost 7 % of sending it.
const SAMPLE_BYTES: u64 = 64 * 1024;

static PAGE: LazyLock<u64> = LazyLock::new(nowait_sys::fs::page_size);

/// cachestat(2) is missing (before Linux 6.5) or forbidden.
static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// How many of the `len` bytes from `offset` are known to be in memory, counted from the first.
pub(super) fn known_resident(handle: &Handle, offset: u64, len: usize) -> io::Result<usize> {
    let len = handle.metadata.size.saturating_sub(offset).min(len as u64);
    if len == 0 {
        // Past the end: sendfile finds that out without a disk.
        return Ok(1);
    }
    let resident = match whole_by_cachestat(handle, offset, len) {
        Some(false) => 0,
        // Pages may be under way only if something was read lately.
        Some(true) if !handle.mount.missed_lately() => len,
        Some(true) | None => by_samples(handle, offset, len)?,
    };
    Ok(usize::try_from(resident).unwrap_or(usize::MAX))
}

/// Whether all pages of the range are in the cache; `None`: not known.
fn whole_by_cachestat(handle: &Handle, offset: u64, len: u64) -> Option<bool> {
    if handle.no_cachestat.load(Relaxed) || NO_CACHESTAT.load(Relaxed) {
        return None;
    }
    let page = *PAGE;
    let first = offset / page;
    let pages = (offset + len).div_ceil(page) - first;
    match nowait_sys::fs::cachestat(handle.as_fd(), first * page, pages * page) {
        Ok(stat) => Some(stat.cached >= pages),
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

/// Looks at one byte of each piece and at the last one.
fn by_samples(handle: &Handle, offset: u64, len: u64) -> io::Result<u64> {
    if !handle.mount.reads_inline() {
        return Ok(0);
    }
    let end = offset + len;
    let (mut good, mut at) = (offset, offset);
    while is_cached(handle, at)? {
        if at == end - 1 {
            return Ok(len);
        }
        good = at;
        at = ((at / SAMPLE_BYTES + 1) * SAMPLE_BYTES).min(end - 1);
    }
    // Somewhere after the last good sample it ends.
    Ok(good - offset)
}

fn is_cached(handle: &Handle, offset: u64) -> io::Result<bool> {
    match nowait_sys::fs::is_byte_cached(handle.as_fd(), offset) {
        Err(error) if error.raw_os_error() == Some(OPNOTSUPP) => {
            handle.mount.forbid_nowait();
            Ok(false)
        }
        result => result,
    }
}

const OPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();
