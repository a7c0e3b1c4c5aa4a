//! Opening files and looking up metadata.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags};

use super::file::FileHandle;
use super::shared_lookups::{self, LookupKey};
use super::symlinks::open_path;
use super::target::Target;
use super::touch::touch;
use super::{
    Aio, File, Io, Metadata, ReadCache, Symlinks, inline, keep, known, offload, owner, resident,
};
use crate::mounts;
use crate::pool::{Class, Op, Pool};

/// Options for opening a file for reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    pub symlinks: Symlinks,
    /// When opening needs the pool, read this many first bytes in the same trip (at most
    /// [`PREFETCH_MAX`]); [`File::read_at`] then serves them from memory. 0: none, as for HEAD.
    pub prefetch: usize,
}

/// Upper bound of [`OpenOptions::prefetch`] in bytes.
pub const PREFETCH_MAX: usize = 64 * 1024;

/// Flags of every open: a FIFO without a writer never blocks, a terminal never becomes the
/// controlling one.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Flags of a metadata look-up, which needs no permission on the file itself.
const STAT_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Minimum alignment of direct reads: disks with 4 KB sectors refuse 512, and a larger alignment is
/// always allowed.
const DIRECT_ALIGNMENT_MIN: u32 = 4096;

/// Opens the target of `path` for reading. It may be of any kind, including a directory: see
/// [`Metadata::kind`] of the result before reading.
///
/// # Errors
/// Those of openat2(2); EINVAL for a path with a NUL byte; ELOOP for links that
/// [`OpenOptions::symlinks`] forbids.
pub async fn open(io: &Io, path: &[u8], options: &OpenOptions) -> io::Result<File> {
    open_for(io, io.client, path, options).await
}

/// Opens a file on behalf of `client`, which has its share of the pool.
///
/// # Errors
/// As [`open`].
pub async fn open_for(
    io: &Io,
    client: u64,
    path: &[u8],
    options: &OpenOptions,
) -> io::Result<File> {
    match try_open(io, path, options) {
        Some(result) => result,
        // Boxed: most files don't need it.
        None => {
            let open = async { open_in_pool(&io.for_client(client), path, options).await };
            Box::pin(open).await
        }
    }
}

/// Opens a file for which [`try_open`] has just had no result: in the pool, without asking for it
/// inline again.
///
/// # Errors
/// Like [`open`].
pub(super) async fn open_in_pool(io: &Io, path: &[u8], options: &OpenOptions) -> io::Result<File> {
    let key = LookupKey { path, symlinks: options.symlinks, settings: OpenSettings::of(io) };
    let target = Target::of_path(path);
    let open = {
        let (path, options, pool) = (path.to_vec(), *options, io.pool.clone());
        let work = move || open_waiting(pool, &path, &options, key.settings);
        offload(io, Class::Path, Op::Open, target, work)
    };
    if io.aio == Aio::Blocking || io.pool.world().is_some() {
        return open.await;
    }
    if let Some(result) = shared_lookups::join(key, options.prefetch).await {
        return result;
    }
    match io.pool.starts_at_once(owner(io, target.file)) {
        true => shared_lookups::lead(key, options.prefetch, open).await,
        // No task waits for another client.
        false => open.await,
    }
}

/// Opens like [`open`] if that needs no disk; `None`: it needs the pool.
pub fn try_open(io: &Io, path: &[u8], options: &OpenOptions) -> Option<io::Result<File>> {
    if io.opens_inline() {
        let open = || open_waiting(io.pool.clone(), path, options, OpenSettings::of(io));
        return Some(crate::guard::exempt(open));
    }
    if let Some(world) = io.pool.world() {
        let options = OpenOptions { prefetch: 0, ..*options };
        let open = || open_waiting(io.pool.clone(), path, &options, OpenSettings::of(io));
        return world.is_hit().then(open);
    }
    let key = LookupKey { path, symlinks: options.symlinks, settings: OpenSettings::of(io) };
    if let Some(file) = shared_lookups::file(key) {
        return Some(Ok(file));
    }
    let (fd, metadata, mount) = match inline::lookup(path, options.symlinks, FLAGS)? {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    let direct = set_direct(fd.as_fd(), &metadata, key.settings);
    let handle = FileHandle::new(fd, metadata, mount, direct, io.pool.clone());
    if mount.is_memory() || known::is_touched(handle.id) {
        handle.touched.store(true, Relaxed);
    }
    let file = File { handle: Arc::new(handle), head: Bytes::new() };
    shared_lookups::opened(key, &file);
    Some(Ok(file))
}

/// Metadata of the target of `path`. A link that `symlinks` forbids is ELOOP.
///
/// # Errors
/// Those of openat2(2).
pub async fn stat(io: &Io, path: &[u8], symlinks: Symlinks) -> io::Result<Metadata> {
    stat_and_keep(io, path, symlinks, io.resident).await
}

/// Like [`stat`], but only the metadata may become resident, never the content.
///
/// # Errors
/// Like [`stat`].
pub async fn stat_only(io: &Io, path: &[u8], symlinks: Symlinks) -> io::Result<Metadata> {
    stat_and_keep(io, path, symlinks, 0).await
}

/// Looks up metadata; content of at most this size may become resident with them.
async fn stat_and_keep(
    io: &Io,
    path: &[u8],
    symlinks: Symlinks,
    size_max: usize,
) -> io::Result<Metadata> {
    let found = resident::find_metadata(io, path, symlinks, size_max);
    if let Some(result) = found.or_else(|| try_stat(io, path, symlinks)) {
        return result;
    }
    let (target, path) = (Target::of_path(path), path.to_vec());
    offload(io, Class::Path, Op::Stat, target, move || stat_waiting(&path, symlinks)).await
}

/// Looks up metadata like [`stat`] if that needs no disk; `None`: it needs the pool.
pub fn try_stat(io: &Io, path: &[u8], symlinks: Symlinks) -> Option<io::Result<Metadata>> {
    if io.opens_inline() {
        return Some(crate::guard::exempt(|| stat_waiting(path, symlinks)));
    }
    if let Some(world) = io.pool.world() {
        return world.is_hit().then(|| stat_waiting(path, symlinks));
    }
    if let Some(metadata) = shared_lookups::metadata(path, symlinks) {
        return Some(Ok(metadata));
    }
    let found = inline::lookup(path, symlinks, STAT_FLAGS)?;
    Some(found.map(|(_, metadata, _)| {
        shared_lookups::seen(
            LookupKey { path, symlinks, settings: OpenSettings::of(io) },
            metadata,
        );
        metadata
    }))
}

fn stat_waiting(path: &[u8], symlinks: Symlinks) -> io::Result<Metadata> {
    let fd = match open_path(path, symlinks, STAT_FLAGS) {
        Ok(fd) => fd,
        Err(error) => {
            inline::learn_dir_of(path);
            return Err(error);
        }
    };
    let metadata = Metadata::from_stat(&rustix::fs::fstat(&fd)?);
    inline::learn(path, fd.as_fd(), &metadata);
    Ok(metadata)
}

/// Reads a whole small file in one trip.
///
/// # Errors
/// `FileTooLarge` (EFBIG) when it has more than `max` bytes; EISDIR and the like.
pub async fn read(io: &Io, path: &[u8], max: usize) -> io::Result<Bytes> {
    let (target, path) = (Target::of_path(path), path.to_vec());
    let work = move || {
        let fd = rustix::fs::openat(CWD, path, FLAGS, Mode::empty())?;
        let mut buffer = Vec::new();
        nowait_sys::fs::read_at(fd.as_fd(), 0, max.saturating_add(1), &mut buffer)?;
        if buffer.len() > max {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(Bytes::from(buffer))
    };
    offload(io, Class::Path, Op::Read, target, work).await
}

/// The part of [`Io`] that opening in the pool needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenSettings {
    directio: Option<u64>,
    directio_alignment: u32,
    read_ahead: u64,
    read_cache: ReadCache,
}

impl OpenSettings {
    pub(super) fn of(io: &Io) -> OpenSettings {
        OpenSettings {
            directio: io.directio,
            directio_alignment: io.directio_alignment,
            read_ahead: io.read_ahead,
            read_cache: match io.aio {
                Aio::Blocking => ReadCache::On,
                Aio::Off | Aio::Threads | Aio::On => io.read_cache,
            },
        }
    }
}

/// Opens and touches; may wait.
fn open_waiting(
    pool: Pool,
    path: &[u8],
    options: &OpenOptions,
    settings: OpenSettings,
) -> io::Result<File> {
    let fd = match open_path(path, options.symlinks, FLAGS) {
        Ok(fd) => fd,
        Err(error) => {
            // The name may be permanently missing: then the next lookup need not come here.
            inline::learn_dir_of(path);
            return Err(error);
        }
    };
    let metadata = Metadata::from_stat(&rustix::fs::fstat(&fd)?);
    let mount = inline::learn(path, fd.as_fd(), &metadata);
    mounts::count(&mount.counters().open_pool);
    let direct = set_direct(fd.as_fd(), &metadata, settings);
    if settings.read_ahead > 0 && metadata.is_file() && metadata.size > settings.read_ahead {
        // Like nginx on Linux, where the kernel chooses the amount.
        let _ = rustix::fs::fadvise(&fd, 0, None, rustix::fs::Advice::Sequential);
    }
    let handle = FileHandle::new(fd, metadata, mount, direct, pool);
    let mut head = Vec::new();
    if metadata.is_file() {
        let size = usize::try_from(metadata.size).unwrap_or(usize::MAX);
        let len = options.prefetch.min(PREFETCH_MAX).min(size);
        if len > 0 && direct.is_none() {
            mount.will_read();
            let keep = keep::keeps_head(&handle, settings.read_cache);
            handle.read_as(keep, 0, len, &mut head)?;
            if keep.keeps {
                handle.used(0, head.len() as u64);
            }
        } else {
            touch(&handle);
        }
    }
    Ok(File { handle: Arc::new(handle), head: Bytes::from(head) })
}

/// Turns on direct I/O for large files. Not every file system supports it; otherwise the page cache
/// is used, as in nginx (which logs an alert).
fn set_direct(fd: BorrowedFd<'_>, metadata: &Metadata, settings: OpenSettings) -> Option<u32> {
    if !metadata.is_file() || settings.directio.is_none_or(|least| metadata.size < least) {
        return None;
    }
    rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK | OFlags::DIRECT).ok()?;
    Some(settings.directio_alignment.max(DIRECT_ALIGNMENT_MIN).next_power_of_two())
}
