//! Files: every file operation of every module goes through here.
//!
//! Each function takes an [`Io`], the settings of the location on whose behalf it runs, and tries
//! the inline form only where it cannot wait for a disk; otherwise the work goes to the [`Pool`]
//! named there. The rules, from measurements on Linux 6.18 (see [`crate::mounts`] for the decisions
//! per file system):
//!
//! * the first touch of a file happens in the pool: open, fstat, loading the extent map, and
//!   reading the first bytes ([`OpenOptions::prefetch`]), all in one trip;
//! * later opens are tried with `openat2(RESOLVE_CACHED)`, reads with `preadv2(RWF_NOWAIT)`, and
//!   `sendfile` only on ranges known to be in memory; each falls back to the pool;
//! * operations that change the file system (create, write, rename, unlink, mkdir, sync) always go
//!   to the pool.
//!
//! Errors are [`io::Error`]s of the system call, or wrap a [`PoolError`](crate::pool::PoolError)
//! (see [`PoolError::of`](crate::pool::PoolError::of)): overflow of the queue results in a 500
//! response.
//!
//! Dropping a future cancels work that has not started. Work in progress is finished and its result
//! dropped in the pool; the descriptors it needs are kept open until then.
//!
//! Called by: http, logs, caches. Never: blocks a loop thread, except under [`Aio::Blocking`],
//! which requests exactly that.

mod dir;
mod file;
mod inline;
mod keep;
mod known;
mod metadata;
mod names;
mod open;
mod read;
mod recent;
mod residency;
pub mod resident;
mod send;
pub(crate) mod shared_lookups;
mod splice;
mod symlinks;
mod target;
mod touch;
mod tree;
mod write;

pub use dir::{DirReader, Listing, ListingEntry, ReadDirOptions, read_dir};
pub use file::File;
pub use inline::is_supported as opens_inline;
pub use keep::ReadCache;
pub use metadata::{FileKind, Metadata, Stamp};
pub use names::{ATTRIBUTE_BYTES_MAX, Name};
pub use open::{
    OpenOptions, PREFETCH_MAX, open, open_for, read, stat, stat_only, try_open, try_stat,
};
pub use recent::set_memory as set_recent_memory;
pub use send::{STEP_BYTES_MAX, SendSteps, Sent};
pub(crate) use splice::Claim;
pub use symlinks::Symlinks;
pub use tree::{CopyOptions, TREE_DEPTH_MAX, Tree, TreeFailure, TreeStep, copy_file};
pub use write::{CreateOptions, Lock, Patched, PutModes, create, lock, patch, put};

use std::io;

use rustix::fs::{AtFlags, CWD, Mode};

use crate::mounts::disk::DiskTask;
use crate::pool::{Class, Op, Owner, Pool};
use target::Target;

/// The mode of reading a location's files (directive `aio`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aio {
    /// No pool was configured: cold data is read by the `default` one.
    #[default]
    Off,
    /// `aio threads[=POOL]`.
    Threads,
    /// `aio on`: asynchronous direct I/O for files of at least `directio` bytes, otherwise as
    /// `Threads`.
    On,
    /// `aio blocking`, for comparison with other servers: all work is done on the loop, which waits
    /// for the disk. The guard lets these calls pass.
    Blocking,
}

/// Settings of file operations: derived from a location's configuration, cheap to clone.
#[derive(Clone, Debug)]
pub struct Io {
    /// The pool for work that may wait.
    pub pool: Pool,
    pub aio: Aio,
    /// `aio_open`: off means that names are opened and looked up on the loop, which may wait.
    pub open_in_pool: bool,
    /// `directio`: files of at least this many bytes are read with O_DIRECT, bypassing the page
    /// cache.
    pub directio: Option<u64>,
    /// `directio_alignment` in bytes: a power of two.
    pub directio_alignment: u32,
    /// `read_ahead` in bytes; 0: the kernel's choice.
    pub read_ahead: u64,
    /// `read_cache`: what stays in the page cache.
    pub read_cache: ReadCache,
    /// The client or connection on whose behalf the work is done: see [`Owner`]. 0: none in
    /// particular; then the tasks on each file take turns separately.
    pub client: u64,
    /// Files of at most this many bytes may be resident (see [`resident`]); 0: none.
    pub resident: usize,
}

impl Io {
    /// Default settings over `pool`.
    pub fn new(pool: Pool) -> Io {
        Io {
            pool,
            aio: Aio::Off,
            open_in_pool: true,
            directio: None,
            directio_alignment: 512,
            read_ahead: 0,
            read_cache: ReadCache::On,
            client: 0,
            resident: 0,
        }
    }

    /// These settings, on behalf of `client`.
    pub fn for_client(&self, client: u64) -> Io {
        Io { client, ..self.clone() }
    }

    /// Whether names may be looked up on the loop, however long it takes.
    fn opens_inline(&self) -> bool {
        self.aio == Aio::Blocking || !self.open_in_pool
    }
}

/// Runs `work` as `io` requires: in the pool, or here under [`Aio::Blocking`]. `target` is the file that the work
/// is on.
async fn offload<T, F>(
    io: &Io,
    class: Class,
    op: Op,
    target: impl Into<Target>,
    work: F,
) -> io::Result<T>
where
    F: FnOnce() -> io::Result<T> + Send + 'static,
    T: Send + 'static,
{
    if io.aio == Aio::Blocking {
        // The work may invalidate look-ups of this turn.
        crate::receive_epoch::add();
        return crate::guard::exempt(work);
    }
    let Target { file, disk } = target.into();
    let owner = owner(io, file);
    let fault = io.pool.world().and_then(|world| world.fault(op));
    let work = move || fault.map_or_else(work, Err);
    let task = disk.map(|disk| DiskTask::new(disk, op));
    let work = move || match task {
        Some(task) => task.run(work),
        None => work(),
    };
    io.pool.run(class, owner, op, work).await?
}

/// On whose behalf work on a file is done.
fn owner(io: &Io, file: u64) -> Owner {
    Owner { client: if io.client == 0 { file } else { io.client }, file }
}

/// Renames `from` to `to`, replacing a file there (rename(2)).
///
/// # Errors
/// `CrossesDevices` (EXDEV) among others: then the caller copies.
pub async fn rename(io: &Io, from: &[u8], to: &[u8]) -> io::Result<()> {
    let target = Target::of_path(from);
    let (from, to) = (from.to_vec(), to.to_vec());
    offload(io, Class::Path, Op::Rename, target, move || Ok(rustix::fs::rename(from, to)?)).await
}

/// Bytes available to unprivileged processes on the file system of `path` (statvfs(2); without the
/// space reserved for root).
pub async fn free_bytes(io: &Io, path: &[u8]) -> io::Result<u64> {
    let (target, path) = (Target::of_path(path), path.to_vec());
    let work = move || {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    };
    offload(io, Class::Path, Op::Stat, target, work).await
}

/// Removes a file's name.
pub async fn unlink(io: &Io, path: &[u8]) -> io::Result<()> {
    let (target, path) = (Target::of_path(path), path.to_vec());
    offload(io, Class::Path, Op::Unlink, target, move || Ok(rustix::fs::unlink(path)?)).await
}

/// Removes an empty directory.
pub async fn remove_dir(io: &Io, path: &[u8]) -> io::Result<()> {
    let (target, path) = (Target::of_path(path), path.to_vec());
    let work = move || Ok(rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)?);
    offload(io, Class::Path, Op::Unlink, target, work).await
}

/// Creates a directory with permission bits `mode`.
pub async fn mkdir(io: &Io, path: &[u8], mode: u32) -> io::Result<()> {
    let (target, path) = (Target::of_path(path), path.to_vec());
    let work = move || Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(mode))?);
    offload(io, Class::Path, Op::Mkdir, target, work).await
}

/// Creates the missing parent directories of `path` (a file).
pub async fn mkdir_parents(io: &Io, path: &[u8], mode: u32) -> io::Result<()> {
    let (target, path) = (Target::of_path(path), path.to_vec());
    offload(io, Class::Path, Op::Mkdir, target, move || make_parents(&path, mode)).await
}

fn make_parents(path: &[u8], mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    let ends = path.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0);
    for (end, _) in ends {
        match rustix::fs::mkdir(&path[..end], mode) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
