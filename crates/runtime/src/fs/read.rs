//! Reading: inline what is in memory, the rest in the pool.

use std::io;
use std::os::fd::AsFd;

use bytes::Bytes;

use super::{File, Io, offload};
use crate::mounts;
use crate::pool::{Class, Op};

impl File {
    /// Appends up to `len` bytes from `offset` to `buffer` if that needs no disk. Returns how many;
    /// fewer than `len` only at the end of the file; `None`: not (wholly) in memory, nothing was
    /// appended, [`read_at`](File::read_at) goes to the pool.
    ///
    /// # Errors
    /// Those of preadv2(2).
    pub fn try_read(
        &self,
        _io: &Io,
        _offset: u64,
        _len: usize,
        _buffer: &mut Vec<u8>,
    ) -> io::Result<Option<usize>> {
        Ok(None)
    }

    /// Reads up to `len` bytes from `offset`; fewer only at the end of the file (none: past it).
    ///
    /// # Errors
    /// Those of preadv2(2); EISDIR for a directory.
    pub async fn read_at(&self, io: &Io, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut buffer = Vec::new();
        if self.try_read(io, offset, len, &mut buffer)?.is_some() {
            return Ok(Bytes::from(buffer));
        }
        let handle = self.handle.clone();
        mounts::count(&handle.mount.counters.read_pool);
        offload(io, Class::Bulk, Op::Read, move || {
            nowait_sys::fs::read_at(handle.as_fd(), offset, len, &mut buffer)?;
            Ok(Bytes::from(buffer))
        })
        .await
    }
}
