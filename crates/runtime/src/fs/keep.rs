//! Whether data that is read from the disk stays in the page cache (`read_cache`), and reading that leaves
//! nothing there.
//!
//! A kernel with RWF_DONTCACHE (Linux 6.14; ext4, xfs) drops by itself what a read has brought, read-ahead
//! included, and leaves alone what was there before. Elsewhere the pages are dropped behind the reader with
//! posix_fadvise(2), which drops whatever the range has: only where no page was in memory before, or they were
//! read ahead for the same reader.
//!
//! `sendfile` keeps the pages that it brings, and posix_fadvise can't drop those that still wait in a socket.
//! So what is not kept is read into memory and sent from there.
//!
//! Called by: [`super::read`], [`super::send`], [`super::open`]. Never: decides by anything that a client says.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;

use rustix::fs::{Advice, fadvise};

use super::file::FileHandle;
use super::recent::{self, History, Source};
use super::touch::{touch, touch_read};
use super::{Aio, File, Io, known, residency};
use crate::mounts;

/// What stays in the page cache after a read from the disk (directive `read_cache`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadCache {
    /// Everything, until the kernel needs the memory.
    #[default]
    On,
    /// Nothing that was not there before.
    Off,
    /// What was read recently: see [`recent`].
    Auto,
}

/// Files of at most this many bytes are always kept: a further read would cost as much as for a megabyte,
/// and they are read whole.
const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// The decision on a read that is about to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// The data stays in the page cache.
    pub(crate) keeps: bool,
    /// The range before was read past the page cache: pages found now were read ahead for that.
    continues: bool,
}

/// How far the kernel reads ahead of a reader, at most: larger than the window of any common disk.
const READ_AHEAD_BYTES: u64 = 16 << 20;

impl Keep {
    const YES: Keep = Keep { keeps: true, continues: false };
}

impl FileHandle {
    /// How `read_cache` applies to this file.
    fn read_cache(&self, io: &Io) -> ReadCache {
        if io.read_cache == ReadCache::On {
            return ReadCache::On;
        }
        let is_cached = self.direct.is_none()
            && !self.mount.is_memory()
            && io.aio != Aio::Blocking
            && io.pool.world().is_none();
        match io.read_cache {
            ReadCache::Auto if self.size() <= SMALL_BYTES_MAX => ReadCache::On,
            setting if is_cached => setting,
            _ => ReadCache::On,
        }
    }

    /// Whether pages around `offset` that are in memory are there only for a reader that does not keep them.
    pub(super) fn is_passing(&self, io: &Io, offset: u64) -> bool {
        self.read_cache(io) != ReadCache::On && recent::is_passing(self.id, offset)
    }

    /// Decides for the bytes from `offset` up to `end`, which are about to be read from the disk.
    pub(super) fn decide(&self, io: &Io, offset: u64, end: u64) -> Keep {
        let setting = self.read_cache(io);
        if !self.mount.is_memory() {
            recent::pass(end.saturating_sub(offset));
        }
        let source = match setting {
            ReadCache::On => return Keep::YES,
            ReadCache::Off => Source::Passing,
            ReadCache::Auto => Source::Disk,
        };
        let before = recent::history(self.id, offset.saturating_sub(1));
        Keep {
            keeps: recent::note(self.id, offset, end, source),
            continues: offset > 0 && before == History::Uncached,
        }
    }

    /// The bytes from `offset` up to `end` were found in memory, and read; `passing`: see
    /// [`is_passing`](Self::is_passing).
    pub(super) fn note_warm(&self, io: &Io, offset: u64, end: u64, passing: bool) {
        let source = match self.read_cache(io) {
            ReadCache::On => return,
            _ if !passing => Source::Memory,
            ReadCache::Auto => Source::Disk,
            ReadCache::Off => Source::Passing,
        };
        if end > offset {
            recent::note(self.id, offset, end, source);
        }
    }

    /// Reads from the disk into `buffer`, and keeps the data as decided; afterwards the file is touched. May wait.
    pub(super) fn read_as(
        &self,
        keep: Keep,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> io::Result<usize> {
        if keep.keeps {
            touch(self);
            return nowait_sys::fs::read_at(self.as_fd(), offset, len, buffer);
        }
        let count = self.read_uncached(keep, offset, len, buffer)?;
        touch_read(self);
        Ok(count)
    }

    fn read_uncached(
        &self,
        keep: Keep,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> io::Result<usize> {
        mounts::count(&self.mount.counters().read_uncached);
        if self.mount.reads_uncached() {
            match nowait_sys::fs::read_uncached(self.as_fd(), offset, len, buffer) {
                Err(error) if error.raw_os_error() == Some(OPNOTSUPP) => {
                    self.mount.forbid_dontcache();
                }
                result => return result,
            }
        }
        // What follows an uncached range was perhaps read ahead for the same reader; what read-ahead cannot have
        // reached was there for others.
        let beyond = offset.saturating_add(len as u64).saturating_add(READ_AHEAD_BYTES);
        let holds = |offset, len| residency::holds_any(self, offset, len) == Some(true);
        let is_of_others = match keep.continues {
            true => beyond < self.size() && holds(beyond, 1),
            false => holds(offset, len as u64),
        };
        let drops = !is_of_others && !self.is_in_use(offset, len as u64);
        let count = nowait_sys::fs::read_at(self.as_fd(), offset, len, buffer)?;
        recent::note_owner(self.id, offset, !drops);
        if drops {
            // A page at the edge that is read in part stays.
            let _ = fadvise(self, offset, NonZeroU64::new(count as u64), Advice::DontNeed);
        }
        Ok(count)
    }

    /// Whether this process has used the range, and kept it, within the last hour.
    fn is_in_use(&self, offset: u64, len: u64) -> bool {
        let mut pieces =
            offset / known::PIECE_BYTES..(offset.saturating_add(len)).div_ceil(known::PIECE_BYTES);
        pieces.any(|piece| known::last_use(self.id, piece * known::PIECE_BYTES).is_some())
    }
}

impl File {
    /// Whether pages around `offset` that are in memory are there only for a reader that does not keep them:
    /// they are better read than sent by `sendfile`, which would keep them.
    pub(crate) fn is_passing(&self, io: &Io, offset: u64) -> bool {
        self.handle.is_passing(io, offset)
    }

    /// Decides how up to `len` bytes from `offset`, which are not known to be in memory, will be read; no
    /// further than the decision reaches. To be called once for each such read.
    pub(crate) fn decide(&self, io: &Io, offset: u64, len: u64) -> (Keep, u64) {
        let in_range = recent::RANGE_BYTES - offset % recent::RANGE_BYTES;
        // What was read while opening is there already.
        let head = (self.head.len() as u64).checked_sub(offset).filter(|left| *left > 0);
        let len = len.min(in_range).min(head.unwrap_or(u64::MAX));
        (self.handle.decide(io, offset, offset.saturating_add(len)), len)
    }
}

/// Whether the beginning of a file that is opened now is kept. What follows is read, and counted, later.
pub(super) fn keeps_head(handle: &FileHandle, setting: ReadCache) -> Keep {
    let keeps = match setting {
        ReadCache::On => true,
        ReadCache::Off => false,
        ReadCache::Auto => {
            handle.size() <= SMALL_BYTES_MAX || recent::history(handle.id, 0) != History::New
        }
    };
    Keep { keeps: keeps || handle.mount.is_memory(), continues: false }
}

const OPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();
