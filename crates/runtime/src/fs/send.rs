//! Sending ranges of files to sockets, one bounded step at a time.
//!
//! Called by: `net::Stream::send`, which waits for the socket between the steps. The socket must be
//! non-blocking: a pool thread never waits for a client.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::{File, Io, offload};
use crate::mounts;
use crate::pool::{Class, Op};

/// Bytes sent at most by one step. Bounds the time that one connection holds the loop (some 60 µs
/// of copying) or a pool thread.
pub const STEP_BYTES_MAX: usize = 512 * 1024;

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// So many bytes, at least one; go on.
    Bytes(usize),
    /// The socket is full: wait until it is writable.
    Full,
    /// The file ends at or before the offset: it shrank. The response can't be completed.
    Ended,
}

impl File {
    /// Sends up to `len` bytes from `offset` to `socket` if they are known to be in memory; `None`:
    /// use [`send_in_pool`](File::send_in_pool).
    ///
    /// # Errors
    /// Those of sendfile(2).
    pub fn try_send(
        &self,
        _io: &Io,
        _socket: BorrowedFd<'_>,
        _offset: u64,
        _len: u64,
    ) -> io::Result<Option<Sent>> {
        Ok(None)
    }

    /// Sends up to `len` bytes from `offset` to `socket` on a thread of the pool.
    ///
    /// `socket` is an owned handle (such as `Arc<OwnedFd>`): it stays open while the pool uses it,
    /// even if this future is dropped. After such a drop it is unknown how much was sent: the
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
        let handle = self.handle.clone();
        let len = step_len(len);
        mounts::count(&handle.mount.counters.send_pool);
        offload(io, Class::Bulk, Op::Send, move || {
            sent(nowait_sys::fs::send_file(socket.as_fd(), handle.as_fd(), offset, len))
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
        match self.try_send(io, socket.as_fd(), offset, len)? {
            Some(sent) => Ok(sent),
            None => self.send_in_pool(io, socket.clone(), offset, len).await,
        }
    }
}

fn step_len(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX).min(STEP_BYTES_MAX)
}

fn sent(result: io::Result<usize>) -> io::Result<Sent> {
    match result {
        Ok(0) => Ok(Sent::Ended),
        Ok(count) => Ok(Sent::Bytes(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Sent::Full),
        Err(error) => Err(error),
    }
}
