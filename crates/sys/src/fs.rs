//! Files: calls that have no safe form elsewhere, or need uninitialised buffers.
//!
//! Used by `nowait_runtime::fs`, which decides where each call may be made: some of these wait for a
//! disk. Never: policy, retries other than after EINTR.
//!
//! Ownership: every function borrows the descriptors and buffers that it passes to the kernel, and
//! all calls are synchronous, so nothing is used by the kernel after the return.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `RWF_NOWAIT` of preadv2(2): EAGAIN instead of waiting for a disk.
const RWF_NOWAIT: libc::c_int = 0x8;

/// `RWF_DONTCACHE` of preadv2(2), Linux 6.14: pages that the call brings into the page cache, or that its
/// read-ahead did, leave it again once they have been read. Pages that were there before stay.
const RWF_DONTCACHE: libc::c_int = 0x80;

/// Appends up to `len` bytes from `offset` of the file to `buffer`; waits for the disk. Returns how
/// many bytes were read: fewer than `len` at the end of the file.
///
/// # Errors
/// Those of pread(2).
pub fn read_at(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    read_whole(fd, offset, len, buffer, 0)
}

/// Like [`read_at`]; what was not in the page cache before is not there afterwards (`RWF_DONTCACHE`).
///
/// # Errors
/// Those of [`read_at`]; `Unsupported` (EOPNOTSUPP) where the kernel or the file system lacks this: before
/// Linux 6.14, and on btrfs, overlayfs and tmpfs (Linux 6.18).
pub fn read_uncached(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    read_whole(fd, offset, len, buffer, RWF_DONTCACHE)
}

fn read_whole(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buffer: &mut Vec<u8>,
    flags: libc::c_int,
) -> io::Result<usize> {
    let mut total = 0;
    while total < len {
        let count = preadv2(fd, offset + total as u64, len - total, buffer, flags)?;
        if count == 0 {
            break;
        }
        total += count;
    }
    Ok(total)
}

/// Like one call of [`read_at`], but reads only from the page cache (`RWF_NOWAIT`).
///
/// # Errors
/// `WouldBlock` when the first byte is not in memory; `Unsupported` (EOPNOTSUPP) where the file
/// system cannot tell.
pub fn read_cached(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    preadv2(fd, offset, len, buffer, RWF_NOWAIT)
}

/// Like [`read_cached`] within a file that is read by [`read_uncached`]: what its read-ahead brought leaves
/// the page cache, and the read-ahead that this call starts does so later.
///
/// # Errors
/// Those of [`read_cached`].
pub fn take_cached(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    preadv2(fd, offset, len, buffer, RWF_NOWAIT | RWF_DONTCACHE)
}

/// Like one call of [`read_at`], for files in memory (tmpfs), which may be read on a loop: the call
/// carries the mark that the filter of [`crate::seccomp`] lets pass.
///
/// # Errors
/// Those of pread(2).
pub fn read_memory(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    buffer.reserve(len);
    let spare = &mut buffer.spare_capacity_mut()[..len];
    let offset = offset_arg(offset)?;
    loop {
        // SAFETY: the kernel writes at most `len` bytes into the spare capacity of `buffer`, which
        // is borrowed for the whole call. pread64 takes four arguments; the others are ignored.
        let count = unsafe {
            libc::syscall(
                libc::SYS_pread64,
                fd.as_raw_fd(),
                spare.as_mut_ptr(),
                spare.len(),
                offset,
                0,
                crate::seccomp::PASS,
            )
        };
        if let Ok(count) = usize::try_from(count) {
            let filled = buffer.len() + count;
            // SAFETY: the kernel initialised `count` bytes after the old length, within the
            // capacity reserved above.
            unsafe { buffer.set_len(filled) };
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reads for O_DIRECT: up to `len` bytes from `offset` into a fresh buffer, in whole units of
/// `alignment` bytes (a power of two). Returns the buffer and the requested range in it; shorter
/// than `len` only at the end of the file.
///
/// # Errors
/// Those of pread(2); EINVAL when the device wants a larger alignment.
pub fn read_direct(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    alignment: usize,
) -> io::Result<(Vec<u8>, std::ops::Range<usize>)> {
    let mask = alignment as u64 - 1;
    let first = offset & !mask;
    let lead = (offset - first) as usize;
    let want = (lead + len).next_multiple_of(alignment);
    let mut buffer: Vec<u8> = Vec::with_capacity(want + alignment);
    // Memory must be aligned too: the buffer begins with a few unused bytes.
    buffer.resize(buffer.as_ptr().align_offset(alignment).min(alignment), 0);
    let start = buffer.len();
    let mut total = 0;
    while total < want {
        let count = preadv2(fd, first + total as u64, want - total, &mut buffer, 0)?;
        total += count;
        // A partial unit is the file's end; a further read would not be aligned.
        if count == 0 || !total.is_multiple_of(alignment) {
            break;
        }
    }
    let (first, last) = (lead.min(total), (lead + len).min(total));
    Ok((buffer, start + first..start + last))
}

/// Whether the byte at `offset` is in the page cache. Beyond the end of the file: yes.
///
/// # Errors
/// Those of [`read_cached`] except `WouldBlock`.
pub fn is_byte_cached(fd: BorrowedFd<'_>, offset: u64) -> io::Result<bool> {
    let mut byte = 0_u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    loop {
        // SAFETY: one initialised iovec that names one writable byte, both alive during the call.
        let count = unsafe {
            libc::preadv2(fd.as_raw_fd(), &raw const part, 1, offset_arg(offset)?, RWF_NOWAIT)
        };
        if count >= 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            error => return Err(error),
        }
    }
}

fn offset_arg(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn preadv2(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buffer: &mut Vec<u8>,
    flags: libc::c_int,
) -> io::Result<usize> {
    buffer.reserve(len);
    let spare = &mut buffer.spare_capacity_mut()[..len];
    let part = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
    let offset = offset_arg(offset)?;
    loop {
        // SAFETY: the iovec names the spare capacity of `buffer`, which is borrowed for the whole
        // call; the kernel only writes there.
        let count = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const part, 1, offset, flags) };
        if let Ok(count) = usize::try_from(count) {
            let filled = buffer.len() + count;
            // SAFETY: the kernel initialised `count` bytes after the old length, within the
            // capacity reserved above.
            unsafe { buffer.set_len(filled) };
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Sends up to `len` bytes from `offset` of `file` to `socket` (sendfile(2)). Waits for the disk if
/// they are not in memory; waits for the peer unless the socket is non-blocking.
///
/// # Errors
/// Those of sendfile(2); `WouldBlock` when the socket is full.
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    loop {
        let mut position = offset_arg(offset)?;
        // SAFETY: `position` is alive and writable during the call; descriptors are borrowed.
        let count =
            unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut position, len) };
        if let Ok(count) = usize::try_from(count) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Result of cachestat(2) for a range, in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStat {
    /// In the page cache, including pages still being read.
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub evicted: u64,
    pub recently_evicted: u64,
}

#[repr(C)]
struct CacheStatRange {
    offset: u64,
    len: u64,
}

/// cachestat(2), Linux 6.5: page cache statistics of a range, without I/O.
///
/// # Errors
/// EPERM for a file that the caller neither owns nor may write; EOPNOTSUPP; ENOSYS before 6.5.
pub fn cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<CacheStat> {
    /// The number is the same on all architectures (introduced after their unification).
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = CacheStatRange { offset, len };
    let mut stat = CacheStat::default();
    // SAFETY: both structures have the kernel's layout and live during the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut stat, 0_u32)
    };
    if result == 0 { Ok(stat) } else { Err(io::Error::last_os_error()) }
}

/// Size of a page in bytes.
pub fn page_size() -> u64 {
    // SAFETY: no pointers; the name is always known.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn file(content: &[u8]) -> std::fs::File {
        let path = std::env::temp_dir().join(format!(
            "nowait-sys-fs-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn reading_appends() {
        let file = file(b"0123456789");
        let mut buffer = b"x".to_vec();
        assert_eq!(read_at(file.as_fd(), 8, 100, &mut buffer).unwrap(), 2);
        assert_eq!(buffer, b"x89");
        assert_eq!(read_at(file.as_fd(), 0, 3, &mut buffer).unwrap(), 3);
        assert_eq!(buffer, b"x89012");
        assert!(read_at(file.as_fd(), u64::MAX, 3, &mut buffer).is_err());
    }

    #[test]
    fn direct_reads_are_cut_to_what_was_asked_for() {
        let content: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
        let file = file(&content);
        for (offset, len) in
            [(0, 10), (5000, 100), (4095, 2), (9990, 100), (12_000, 5), (0, 20_000)]
        {
            let (buffer, range) = read_direct(file.as_fd(), offset, len, 4096).unwrap();
            let from = (offset as usize).min(content.len());
            let to = (from + len).min(content.len());
            assert_eq!(buffer[range], content[from..to], "{offset} {len}");
        }
    }

    #[test]
    fn sending_stops_at_the_end() {
        let file = file(b"0123456789");
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(send_file(near.as_fd(), file.as_fd(), 6, 100).unwrap(), 4);
        assert_eq!(send_file(near.as_fd(), file.as_fd(), 60, 100).unwrap(), 0);
        let mut got = [0; 4];
        std::io::Read::read_exact(&mut far, &mut got).unwrap();
        assert_eq!(&got, b"6789");
    }
}
