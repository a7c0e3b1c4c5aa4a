//! Reading: inline from memory, the rest in the pool.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::file::FileHandle;
use super::keep::Keep;
use super::{Aio, File, Io, known, offload, residency, shared_lookups};
use crate::mounts;
use crate::pool::{Class, Op, World};

/// Result of an inline attempt.
enum ReadAttempt {
    /// All available bytes.
    Whole(usize),
    /// Only this many bytes, which are in the buffer; the rest needs the disk.
    Part(usize),
    /// Not tried: this file is not read inline (yet).
    No,
}

impl File {
    /// Appends up to `len` bytes from `offset` to `buffer` if that needs no disk. Returns their
    /// number: fewer than `len` only at the end that the file had when it was opened, or has now if
    /// it shrank. `None`: not (entirely) in memory, nothing was appended; use
    /// [`read_at`](File::read_at), which goes to the pool.
    ///
    /// Copies on the loop: `len` should be bounded, to about 64 KB.
    ///
    /// # Errors
    /// Those of preadv2(2).
    pub fn try_read(
        &self,
        io: &Io,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<usize>> {
        let len = self.clip(offset, len);
        if let Some(head) = self.in_head(offset, len) {
            buffer.extend_from_slice(head);
            return Ok(Some(head.len()));
        }
        let before = buffer.len();
        let is_shared = self.handle.shared.load(Relaxed) && offset == 0;
        if is_shared
            && let Some(content) = shared_lookups::content(self)
            && content.len() == len
        {
            buffer.extend_from_slice(&content);
            return Ok(Some(len));
        }
        match self.handle.attempt(io, offset, len, buffer)? {
            ReadAttempt::Whole(count) => {
                if is_shared && count as u64 == self.handle.size() {
                    shared_lookups::read(self, &buffer[before..]);
                }
                Ok(Some(count))
            }
            ReadAttempt::Part(_) => {
                buffer.truncate(before);
                Ok(None)
            }
            ReadAttempt::No => Ok(None),
        }
    }

    /// Reads up to `len` bytes from `offset`; fewer only in the cases described at
    /// [`try_read`](File::try_read).
    ///
    /// # Errors
    /// Those of preadv2(2); EISDIR for a directory.
    pub async fn read_at(&self, io: &Io, offset: u64, len: usize) -> io::Result<Bytes> {
        let len = self.clip(offset, len);
        if let Some(head) = self.in_head(offset, len) {
            return Ok(self.head.slice_ref(head));
        }
        if let Some(alignment) = self.handle.direct {
            return self.read_direct(io, offset, len, alignment as usize).await;
        }
        let mut buffer = Vec::new();
        let done = match self.handle.attempt(io, offset, len, &mut buffer)? {
            ReadAttempt::Whole(_) => return Ok(Bytes::from(buffer)),
            ReadAttempt::Part(count) => count,
            ReadAttempt::No => {
                mounts::count(&self.handle.mount.counters().read_pool);
                0
            }
        };
        let keep = self.handle.decide(io, offset, offset.saturating_add(len as u64));
        let handle = self.handle.clone();
        handle.mount.will_read();
        offload(io, Class::Bulk, Op::Read, self.handle.target(), move || {
            let at = offset + done as u64;
            let result = handle.read_as(keep, at, len - done, &mut buffer);
            handle.set_missing(false);
            result?;
            if keep.keeps {
                handle.used(offset, offset + buffer.len() as u64);
            }
            Ok(Bytes::from(buffer))
        })
        .await
    }

    /// Reads up to `len` bytes from `offset` in the pool, as decided by [`decide`](File::decide) for them.
    ///
    /// # Errors
    /// Like [`read_at`](File::read_at).
    pub(crate) async fn read_in_pool(
        &self,
        io: &Io,
        keep: Keep,
        offset: u64,
        len: usize,
    ) -> io::Result<Bytes> {
        if let Some(head) = self.in_head(offset, len) {
            return Ok(self.head.slice_ref(head));
        }
        let handle = self.handle.clone();
        mounts::count(&handle.mount.counters().read_pool);
        handle.mount.will_read();
        offload(io, Class::Bulk, Op::Read, self.handle.target(), move || {
            let mut buffer = Vec::new();
            let result = handle.read_as(keep, offset, len, &mut buffer);
            handle.set_missing(false);
            result?;
            Ok(Bytes::from(buffer))
        })
        .await
    }

    async fn read_direct(
        &self,
        io: &Io,
        offset: u64,
        len: usize,
        alignment: usize,
    ) -> io::Result<Bytes> {
        let handle = self.handle.clone();
        mounts::count(&handle.mount.counters().read_pool);
        offload(io, Class::Bulk, Op::Read, self.handle.target(), move || {
            let (buffer, range) =
                nowait_sys::fs::read_direct(handle.as_fd(), offset, len, alignment)?;
            Ok(Bytes::from(buffer).slice(range))
        })
        .await
    }

    /// Limits `len` to the file's size at opening, so that no memory is allocated needlessly. A
    /// file that is being written is limited to the end of what this handle has written.
    fn clip(&self, offset: u64, len: usize) -> usize {
        match self.handle.size().checked_sub(offset) {
            None | Some(0) => len,
            Some(rest) => len.min(usize::try_from(rest).unwrap_or(usize::MAX)),
        }
    }

    fn in_head(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.head.get(start..start.checked_add(len)?).filter(|head| !head.is_empty())
    }
}

impl FileHandle {
    fn attempt(
        &self,
        io: &Io,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> io::Result<ReadAttempt> {
        if self.direct.is_some() {
            return Ok(ReadAttempt::No);
        }
        if io.aio == Aio::Blocking {
            let read = || nowait_sys::fs::read_at(self.as_fd(), offset, len, buffer);
            return crate::guard::exempt(read).map(ReadAttempt::Whole);
        }
        if let Some(world) = io.pool.world() {
            return self.attempt_in(world, offset, len, buffer);
        }
        if !self.mount.reads_inline() || !self.is_touched() {
            return Ok(ReadAttempt::No);
        }
        if !residency::is_likely(self, offset, len) {
            return Ok(ReadAttempt::No);
        }
        let counters = self.mount.counters();
        let is_passing = self.is_passing(io, offset);
        let takes = is_passing && !self.mount.is_memory();
        if takes && !self.mount.reads_uncached() {
            // Only the pool drops what it has read.
            return Ok(ReadAttempt::No);
        }
        let mut done = 0;
        while done < len {
            let (offset, len) = (offset + done as u64, len - done);
            let result = match self.mount.is_memory() {
                true => nowait_sys::fs::read_memory(self.as_fd(), offset, len, buffer),
                false if takes => nowait_sys::fs::take_cached(self.as_fd(), offset, len, buffer),
                false => nowait_sys::fs::read_cached(self.as_fd(), offset, len, buffer),
            };
            match result {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.set_missing(true);
                    known::forget_used(self.id, offset);
                    mounts::count(&counters.read_fallback);
                    return Ok(ReadAttempt::Part(done));
                }
                Err(error) if error.raw_os_error() == Some(OPNOTSUPP) && takes => {
                    self.mount.forbid_dontcache();
                    return Ok(ReadAttempt::No);
                }
                Err(error) if error.raw_os_error() == Some(OPNOTSUPP) => {
                    self.mount.forbid_nowait();
                    return Ok(ReadAttempt::No);
                }
                Err(error) => return Err(error),
            }
        }
        let end = offset + done as u64;
        self.note_warm(io, offset, end, is_passing);
        if !is_passing {
            self.used(offset, end);
        }
        mounts::count(&counters.read_inline);
        Ok(ReadAttempt::Whole(done))
    }

    /// An attempt on a simulated disk: the range is in memory, in part, or not at all.
    fn attempt_in(
        &self,
        world: &dyn World,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> io::Result<ReadAttempt> {
        let hit = world.is_hit();
        let part = if hit { len } else { world.part_in_memory(len) };
        let read = nowait_sys::fs::read_at(self.as_fd(), offset, part, buffer)?;
        Ok(match part {
            _ if hit => ReadAttempt::Whole(read),
            0 => ReadAttempt::No,
            _ => ReadAttempt::Part(read),
        })
    }
}

const OPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();
