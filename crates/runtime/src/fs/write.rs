//! Creating and writing files: always in the pool, since writing may wait for blocks, for the journal
//! or for memory.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::file::Handle;
use super::{File, Io, Metadata, offload};
use crate::mounts;
use crate::pool::{Class, Op};

/// How a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Permission bits, before the process's umask.
    pub mode: u32,
    /// It must not exist (O_EXCL): for temporary files.
    pub exclusive: bool,
    /// An existing file is emptied.
    pub truncate: bool,
    /// Every write goes to the end, whatever offset is given.
    pub append: bool,
}

impl Default for CreateOptions {
    /// A new temporary file that only we may read.
    fn default() -> CreateOptions {
        CreateOptions { mode: 0o600, exclusive: true, truncate: false, append: false }
    }
}

/// Creates or opens a file for reading and writing.
///
/// # Errors
/// `AlreadyExists` with [`CreateOptions::exclusive`]; those of openat(2).
pub async fn create(io: &Io, path: &[u8], options: &CreateOptions) -> io::Result<File> {
    let mut flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    flags.set(OFlags::EXCL, options.exclusive);
    flags.set(OFlags::TRUNC, options.truncate);
    flags.set(OFlags::APPEND, options.append);
    let (path, mode, pool) = (path.to_vec(), Mode::from_raw_mode(options.mode), io.pool.clone());
    let work = move || {
        let fd = openat(CWD, path, flags, mode)?;
        let metadata = Metadata::from_stat(&rustix::fs::fstat(&fd)?);
        let mount = mounts::of(fd.as_fd(), metadata.dev);
        let handle = Handle::new(fd, metadata, mount, None, pool).written();
        Ok(File { handle: Arc::new(handle), head: Bytes::new() })
    };
    offload(io, Class::Path, Op::Create, work).await
}

impl File {
    /// Writes all of `chunks` from `offset` on, in one trip.
    ///
    /// # Errors
    /// Those of pwrite(2); `StorageFull` among them. Part of the bytes may have been written.
    pub async fn write_at(&self, io: &Io, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let handle = self.handle.clone();
        let work = move || {
            let mut offset = offset;
            for chunk in &chunks {
                write_all(&handle, offset, chunk)?;
                offset += chunk.len() as u64;
            }
            Ok(())
        };
        offload(io, Class::Bulk, Op::Write, work).await
    }

    /// Sets the size.
    pub async fn truncate(&self, io: &Io, size: u64) -> io::Result<()> {
        let handle = self.handle.clone();
        let work = move || Ok(rustix::fs::ftruncate(&*handle, size)?);
        offload(io, Class::Bulk, Op::Write, work).await
    }

    /// Waits until the contents (and, unless `data_only`, all metadata) are on the disk.
    pub async fn sync(&self, io: &Io, data_only: bool) -> io::Result<()> {
        let handle = self.handle.clone();
        let work = move || match data_only {
            true => Ok(rustix::fs::fdatasync(&*handle)?),
            false => Ok(rustix::fs::fsync(&*handle)?),
        };
        offload(io, Class::Bulk, Op::Sync, work).await
    }

    /// Sets the time of the last change (seconds since 1970), as `proxy_store` does.
    pub async fn set_modified(&self, io: &Io, mtime: i64) -> io::Result<()> {
        let handle = self.handle.clone();
        let time = rustix::fs::Timespec { tv_sec: mtime, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let work = move || Ok(rustix::fs::futimens(&*handle, &times)?);
        offload(io, Class::Path, Op::Write, work).await
    }
}

fn write_all(handle: &Handle, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = match rustix::io::pwrite(handle, bytes, offset) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        offset += count as u64;
        bytes = &bytes[count..];
    }
    Ok(())
}
