//! Sending ranges of files to sockets, one bounded step at a time.
//!
//! Called by: `net::Stream::send`, which waits for the socket between steps. The socket must be
//! non-blocking: a pool thread never waits for a client.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::SendFlags;

use super::file::FileHandle;
use super::known::Tick;
use super::touch::touch;
use super::{Aio, File, Io, offload, residency};
use crate::mounts;
use crate::pool::{Class, Op};

/// Maximum number of bytes sent by one step on the loop: limits the time that one connection
/// occupies it to some 120 µs of copying.
pub const STEP_BYTES_MAX: usize = 1024 * 1024;

/// Like [`STEP_BYTES_MAX`], for a pool thread, where disk time counts.
const POOL_STEP_BYTES_MAX: usize = 512 * 1024;

/// Like [`POOL_STEP_BYTES_MAX`], for direct I/O.
const DIRECT_STEP_BYTES_MAX: usize = 128 * 1024;

/// A resident beginning of a longer range is not worth a separate step if shorter than this.
const INLINE_BYTES_MIN: usize = 64 * 1024;

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This many bytes were sent, at least one; continue.
    Bytes(usize),
    /// The socket is full: wait until it is writable.
    Full,
    /// The file ends at or before the offset: it shrank. The response cannot be completed.
    Ended,
}

/// State shared by the inline steps of one send, so that data just found in memory is not checked again. A
/// value may be used for any files and ranges.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSteps {
    /// The file, and up to where it was sent.
    file: u64,
    end: u64,
    /// Since when, and from which offset, it was sent without a gap.
    begun: Tick,
    begin: u64,
    /// End of the range found to be in memory, and when.
    resident_end: u64,
    looked: Tick,
}

impl SendSteps {
    /// Discards state that is of no use for a step from `offset` at `now`.
    fn renew(&mut self, file: u64, offset: u64, now: Tick) {
        if self.file != file || self.end != offset {
            *self =
                SendSteps { file, end: offset, begin: offset, begun: now, ..SendSteps::default() };
        }
        if self.begun.idle(now) > residency::JUST {
            (self.begin, self.begun) = (offset, now);
        }
        if self.looked.idle(now) > residency::JUST {
            self.resident_end = offset;
        }
    }
}

impl File {
    /// Sends up to `len` bytes from `offset` to `socket` if they are known to be in memory; `None`:
    /// use [`send_in_pool`](File::send_in_pool).
    ///
    /// # Errors
    /// Those of sendfile(2).
    pub fn try_send(
        &self,
        io: &Io,
        socket: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        steps: &mut SendSteps,
    ) -> io::Result<Option<Sent>> {
        let handle = &*self.handle;
        let len = step_len(len, STEP_BYTES_MAX);
        let send = |len| sent(nowait_sys::fs::send_file(socket, handle.as_fd(), offset, len));
        if io.aio == Aio::Blocking && handle.direct.is_none() {
            return crate::guard::exempt(|| send(len)).map(Some);
        }
        if handle.direct.is_some() || !handle.mount.is_inline() || !handle.is_touched() {
            mounts::count(&handle.mount.counters().send_pool);
            return Ok(None);
        }
        // Pages read ahead for readers that don't keep them would stay.
        if handle.is_passing(io, offset) {
            return Ok(None);
        }
        let resident =
            if handle.mount.is_memory() { len } else { handle.look_ahead(offset, len, steps)? };
        // A short prefix is left to the pool, which continues from there in the same trip.
        if resident < len.min(INLINE_BYTES_MIN) {
            mounts::count(&handle.mount.counters().send_fallback);
            return Ok(None);
        }
        mounts::count(&handle.mount.counters().send_inline);
        let sent = send(resident)?;
        if let Sent::Bytes(count) = sent {
            steps.end = offset + count as u64;
            handle.used_since(steps.begin, offset, steps.end);
            handle.note_warm(io, offset, steps.end, false);
        }
        Ok(Some(sent))
    }

    /// Sends up to `len` bytes from `offset` to `socket` on a thread of the pool.
    ///
    /// `socket` is an owned handle (such as `Arc<OwnedFd>`): it stays open while the pool uses it,
    /// even if this future is dropped. After that the number of bytes sent is unknown: the
    /// connection must be closed.
    ///
    /// # Errors
    /// Those of sendfile(2); of the pool.
    pub async fn send_in_pool<S>(
        &self,
        io: &Io,
        socket: S,
        offset: u64,
        len: u64,
    ) -> io::Result<Sent>
    where
        S: AsFd + Send + 'static,
    {
        let len = step_len(len, POOL_STEP_BYTES_MAX);
        let step = move |handle: &FileHandle| {
            let (socket, file) = (socket.as_fd(), handle.as_fd());
            match handle.direct {
                Some(alignment) => send_direct(socket, file, offset, len, alignment as usize),
                None => sent(nowait_sys::fs::send_file(socket, file, offset, len)),
            }
        };
        self.send_by(io, offset, step).await
    }

    /// Sends from `offset` on a pool thread, by calling `step`.
    pub(super) async fn send_by(
        &self,
        io: &Io,
        offset: u64,
        step: impl FnOnce(&FileHandle) -> io::Result<Sent> + Send + 'static,
    ) -> io::Result<Sent> {
        let handle = self.handle.clone();
        handle.mount.will_read();
        offload(io, Class::Bulk, Op::Send, self.handle.target(), move || {
            touch(&handle);
            let result = step(&handle);
            handle.set_missing(false);
            let sent = result?;
            if let Sent::Bytes(count) = sent {
                handle.used(offset, offset + count as u64);
            }
            Ok(sent)
        })
        .await
    }

    /// One step: inline if possible, else in the pool. See [`send_in_pool`](File::send_in_pool).
    ///
    /// # Errors
    /// Those of sendfile(2); of the pool.
    pub async fn send_step<S>(&self, io: &Io, socket: &S, offset: u64, len: u64) -> io::Result<Sent>
    where
        S: AsFd + Clone + Send + 'static,
    {
        match self.try_send(io, socket.as_fd(), offset, len, &mut SendSteps::default())? {
            Some(sent) => Ok(sent),
            None => self.send_in_pool(io, socket.clone(), offset, len).await,
        }
    }
}

impl FileHandle {
    /// How many of the `len` bytes from `offset` are known to be in memory, from this check or a
    /// very recent one.
    fn look_ahead(&self, offset: u64, len: usize, steps: &mut SendSteps) -> io::Result<usize> {
        let now = Tick::now();
        steps.renew(self.id, offset, now);
        let known = steps.resident_end.saturating_sub(offset);
        if known < len.min(INLINE_BYTES_MIN) as u64 {
            let resident = residency::known_resident(self, offset, len)?;
            (steps.resident_end, steps.looked) = (offset + resident as u64, now);
            return Ok(resident);
        }
        Ok(usize::try_from(known).unwrap_or(usize::MAX).min(len))
    }
}

/// Reads with O_DIRECT and sends as much as the socket takes. The rest is read again: callers for
/// which that matters read in pieces of `output_buffers` with [`File::read_at`] instead.
fn send_direct(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    alignment: usize,
) -> io::Result<Sent> {
    let len = len.min(DIRECT_STEP_BYTES_MAX);
    let (buffer, range) = nowait_sys::fs::read_direct(file, offset, len, alignment)?;
    if range.is_empty() {
        return Ok(Sent::Ended);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sent(rustix::net::send(socket, &buffer[range], flags).map_err(io::Error::from))
}

fn step_len(len: u64, max: usize) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX).min(max)
}

pub(super) fn sent(result: io::Result<usize>) -> io::Result<Sent> {
    match result {
        Ok(0) => Ok(Sent::Ended),
        Ok(count) => Ok(Sent::Bytes(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Sent::Full),
        Err(error) => Err(error),
    }
}
