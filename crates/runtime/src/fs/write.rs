//! Creating and writing files: always in the pool, since writing may wait for blocks, for the journal
//! or for memory.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use super::file::FileHandle;
use super::target::Target;
use super::{File, Io, Metadata, known, offload};
use crate::mounts;
use crate::pool::{Class, Op, Pool};

/// Options for creating a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Permission bits, before the process's umask.
    pub mode: u32,
    /// Fails if the file exists (O_EXCL): for temporary files.
    pub exclusive: bool,
    /// Truncates an existing file.
    pub truncate: bool,
    /// Every write goes to the end, regardless of the offset.
    pub append: bool,
}

impl Default for CreateOptions {
    /// A new temporary file, readable only by its owner.
    fn default() -> CreateOptions {
        CreateOptions { mode: 0o600, exclusive: true, truncate: false, append: false }
    }
}

/// Most chunks of one pwritev(2): `IOV_MAX`.
const SLICES_MAX: usize = 1024;

/// A published file up to this size was written a moment ago: its pages are in memory.
const JUST_WRITTEN_BYTES_MAX: u64 = 1024 * 1024;

/// Creates or opens a file for reading and writing.
///
/// # Errors
/// `AlreadyExists` with [`CreateOptions::exclusive`]; those of openat(2).
pub async fn create(io: &Io, path: &[u8], options: &CreateOptions) -> io::Result<File> {
    let target = Target::of_path(path);
    let (path, options, pool) = (path.to_vec(), *options, io.pool.clone());
    let work = move || {
        let handle = open_new(&path, options, pool)?;
        Ok(File { handle: Arc::new(handle), head: Bytes::new() })
    };
    offload(io, Class::Path, Op::Create, target, work).await
}

/// The lock of a file: until it is released or dropped.
#[derive(Debug)]
pub struct Lock {
    file: Option<OwnedFd>,
    pool: Pool,
}

impl Lock {
    /// Unlocks the file, and returns when that is done: a dropped lock is gone a moment later only.
    pub async fn release(mut self) {
        let pool = self.pool.clone();
        // If the pool refuses it, the drop is left.
        let _ = pool.run(Class::Path, 0, Op::Close, move || drop(self.file.take())).await;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing unlocks, which is a request to the server of a network file system.
        if let Some(file) = self.file.take() {
            self.pool.run_detached(Op::Close, move || drop(file));
        }
    }
}

/// Locks a file for this process, and creates it if necessary: while the result exists, no other
/// process can. `None`: another one has it.
///
/// # Errors
/// Those of openat(2) and flock(2).
pub async fn lock(io: &Io, path: &[u8], mode: u32) -> io::Result<Option<Lock>> {
    let target = Target::of_path(path);
    let (path, pool) = (path.to_vec(), io.pool.clone());
    let work = move || {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(CWD, &path[..], flags, Mode::from_raw_mode(mode))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { file: Some(file), pool })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    offload(io, Class::Path, Op::Create, target, work).await
}

impl File {
    /// Writes all of `chunks` from `offset` on, in one trip.
    ///
    /// # Errors
    /// Those of pwrite(2); `StorageFull` among them. Part of the bytes may have been written.
    pub async fn write_at(&self, io: &Io, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let handle = self.handle.clone();
        let work = move || write_chunks(&handle, offset, &chunks);
        offload(io, Class::Bulk, Op::Write, self.handle.target(), work).await
    }

    /// Writes `head` at the file's beginning and renames the file, in one trip: a file that was
    /// written under a temporary name becomes visible as a whole. An existing file of the new name
    /// is replaced. Missing directories of `to` are created with permission bits `dir_mode`.
    /// Returns the file's metadata afterwards.
    ///
    /// # Errors
    /// Those of pwrite(2) and rename(2); `CrossesDevices` (EXDEV) among them: then the caller
    /// copies. The file keeps its old name.
    pub async fn publish(
        &self,
        io: &Io,
        head: Bytes,
        from: &[u8],
        to: &[u8],
        dir_mode: u32,
    ) -> io::Result<Metadata> {
        let handle = self.handle.clone();
        let (from, to) = (from.to_vec(), to.to_vec());
        let work = move || {
            write_chunks(&handle, 0, &[head])?;
            rename_into(&from, &to, dir_mode)?;
            learn_published(&handle)
        };
        offload(io, Class::Path, Op::Rename, self.handle.target(), work).await
    }

    /// Sets the size.
    pub async fn truncate(&self, io: &Io, size: u64) -> io::Result<()> {
        let handle = self.handle.clone();
        let work = move || Ok(rustix::fs::ftruncate(&*handle, size)?);
        offload(io, Class::Bulk, Op::Write, self.handle.target(), work).await
    }

    /// Waits until the contents (and, unless `data_only`, all metadata) are on the disk.
    pub async fn sync(&self, io: &Io, data_only: bool) -> io::Result<()> {
        let handle = self.handle.clone();
        let work = move || match data_only {
            true => Ok(rustix::fs::fdatasync(&*handle)?),
            false => Ok(rustix::fs::fsync(&*handle)?),
        };
        offload(io, Class::Bulk, Op::Sync, self.handle.target(), work).await
    }

    /// Sets the permission bits, no matter what the process's umask is.
    pub async fn set_mode(&self, io: &Io, mode: u32) -> io::Result<()> {
        let handle = self.handle.clone();
        let work = move || Ok(rustix::fs::fchmod(&*handle, Mode::from_raw_mode(mode))?);
        offload(io, Class::Path, Op::Write, self.handle.target(), work).await
    }

    /// Sets the time of the last change (seconds since 1970), as `proxy_store` does.
    pub async fn set_modified(&self, io: &Io, mtime: i64) -> io::Result<()> {
        let handle = self.handle.clone();
        let time = rustix::fs::Timespec { tv_sec: mtime, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let work = move || Ok(rustix::fs::futimens(&*handle, &times)?);
        offload(io, Class::Path, Op::Write, self.handle.target(), work).await
    }
}

/// Writes a whole small file under the temporary name `temp` and then renames it to `to`, in one
/// trip: see [`File::publish`]. Missing directories are created.
///
/// # Errors
/// As those of [`create`] (exclusive), [`File::write_at`] and [`File::publish`]; the temporary file
/// is removed.
pub async fn put(
    io: &Io,
    temp: &[u8],
    to: &[u8],
    chunks: Vec<Bytes>,
    modes: PutModes,
) -> io::Result<Metadata> {
    let target = Target::of_path(to);
    let (temp, to, pool) = (temp.to_vec(), to.to_vec(), io.pool.clone());
    let work = move || {
        let handle = create_file(
            &temp,
            CreateOptions { mode: modes.file, ..CreateOptions::default() },
            modes.dir,
            pool,
        )?;
        let written = write_chunks(&handle, 0, &chunks)
            .and_then(|()| rename_into(&temp, &to, modes.dir))
            .and_then(|()| learn_published(&handle));
        if written.is_err() {
            // A failure here is ignored.
            let _ = rustix::fs::unlink(&temp);
        }
        written
    };
    offload(io, Class::Bulk, Op::Write, target, work).await
}

/// Result of [`patch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patched {
    Done,
    /// The name leads to a different file, or to none; no data was written.
    Replaced,
}

/// Writes `bytes` at `offset` of the file at `path` if it is still the file described by `expected`
/// (by device and inode number), in one trip. The caller keeps that file open, so that no other
/// file can get its number.
///
/// # Errors
/// Those of openat(2) and pwrite(2).
pub async fn patch(
    io: &Io,
    path: &[u8],
    expected: &Metadata,
    offset: u64,
    bytes: Bytes,
) -> io::Result<Patched> {
    let target = Target::of_path(path);
    let (path, expected) = (path.to_vec(), (expected.dev, expected.ino));
    let work = move || {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let fd = match openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Patched::Replaced),
            fd => fd?,
        };
        let found = Metadata::from_stat(&rustix::fs::fstat(&fd)?);
        if (found.dev, found.ino) != expected {
            return Ok(Patched::Replaced);
        }
        write_all(&fd, offset, &[bytes])?;
        Ok(Patched::Done)
    };
    offload(io, Class::Bulk, Op::Write, target, work).await
}

/// Permission bits for [`put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutModes {
    /// Of the file.
    pub file: u32,
    /// Of directories created for it.
    pub dir: u32,
}

/// Renames, creating missing directories of `to`.
fn rename_into(from: &[u8], to: &[u8], dir_mode: u32) -> io::Result<()> {
    match rustix::fs::rename(from, to) {
        Err(Errno::NOENT) => {
            super::make_parents(to, dir_mode)?;
            Ok(rustix::fs::rename(from, to)?)
        }
        result => Ok(result?),
    }
}

/// The renamed file will be opened soon: its extent map and pages are in memory.
fn learn_published(handle: &FileHandle) -> io::Result<Metadata> {
    // Renaming has changed its ctime, which is part of its key in the tables.
    let metadata = Metadata::from_stat(&rustix::fs::fstat(handle)?);
    if metadata.is_file() && handle.mount.reads_inline() && !handle.mount.is_memory() {
        let id = known::file_id(&metadata);
        known::learn_touched(id);
        if metadata.size <= JUST_WRITTEN_BYTES_MAX {
            known::learn_used(id, 0, 0, metadata.size, metadata.size, known::Tick::now());
        }
    }
    Ok(metadata)
}

fn create_file(
    path: &[u8],
    options: CreateOptions,
    dir_mode: u32,
    pool: Pool,
) -> io::Result<FileHandle> {
    match open_new(path, options, pool.clone()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            super::make_parents(path, dir_mode)?;
            open_new(path, options, pool)
        }
        result => result,
    }
}

fn open_new(path: &[u8], options: CreateOptions, pool: Pool) -> io::Result<FileHandle> {
    let mut flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    flags.set(OFlags::EXCL, options.exclusive);
    flags.set(OFlags::TRUNC, options.truncate);
    flags.set(OFlags::APPEND, options.append);
    let fd = openat(CWD, path, flags, Mode::from_raw_mode(options.mode))?;
    let metadata = Metadata::from_stat(&rustix::fs::fstat(&fd)?);
    let mount = mounts::of(fd.as_fd(), metadata.dev);
    Ok(FileHandle::new(fd, metadata, mount, None, pool).written())
}

fn write_chunks(handle: &FileHandle, begin: u64, chunks: &[Bytes]) -> io::Result<()> {
    let end = write_all(handle, begin, chunks)?;
    handle.wrote(begin, end);
    Ok(())
}

/// Writes all chunks from `offset` on. Returns where they end.
fn write_all(file: impl AsFd, mut offset: u64, chunks: &[Bytes]) -> io::Result<u64> {
    let chunks = chunks.iter().filter(|chunk| !chunk.is_empty());
    let mut slices: Vec<IoSlice<'_>> = chunks.map(|chunk| IoSlice::new(chunk)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let batch = &rest[..rest.len().min(SLICES_MAX)];
        match rustix::io::pwritev(&file, batch, offset) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(count) => {
                offset += count as u64;
                IoSlice::advance_slices(&mut rest, count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(offset)
}
