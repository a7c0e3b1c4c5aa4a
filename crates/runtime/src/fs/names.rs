//! Operations that change names: every path is resolved under the rules of `disable_symlinks`, and the call
//! is made on its last component in the directory that was found. The last component itself is never
//! followed.

use std::ffi::CStr;
use std::io::{self, ErrorKind::NotADirectory, ErrorKind::NotFound};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::symlinks::{open_path, real_path};
use super::target::Target;
use super::{File, Io, Metadata, Symlinks, offload};
use crate::pool::{Class, Op};

/// Largest value of an extended attribute, in bytes. Linux: `XATTR_SIZE_MAX`.
pub const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;

/// A path and the rules for links on the way to it.
#[derive(Clone, Debug)]
pub struct Name {
    /// The path; slashes at its end are ignored.
    pub path: Vec<u8>,
    pub symlinks: Symlinks,
}

impl Name {
    /// The directory that holds the name, and its last component.
    pub(super) fn split(&self) -> io::Result<(OwnedFd, &[u8])> {
        let end = self.path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let path = &self.path[..end];
        let (dir, last) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..=at], &path[at + 1..]),
            None => (&b"."[..], path),
        };
        if last.is_empty() || last == b"." || last == b".." {
            return Err(Errno::BUSY.into());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok((open_path(dir, self.symlinks, flags)?, last))
    }

    pub(super) fn target(&self) -> Target {
        Target::of_path(&self.path)
    }

    /// Metadata of the name itself: a link is a link.
    ///
    /// # Errors
    /// Those of openat2(2) and fstatat(2).
    pub async fn look(&self, io: &Io) -> io::Result<Metadata> {
        let name = self.clone();
        let work = move || {
            let (dir, last) = name.split()?;
            let stat = rustix::fs::statat(&dir, last, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(Metadata::from_stat(&stat))
        };
        offload(io, Class::Path, Op::Stat, self.target(), work).await
    }

    /// The path without links on the way, if it exists. If the file itself is a link to a directory,
    /// `follow` gives the path of its target. Two names of a file in linked directories have the same path.
    ///
    /// # Errors
    /// Those of openat2(2); of readlinkat(2) where /proc is missing.
    pub async fn real(&self, io: &Io, follow: bool) -> io::Result<Vec<u8>> {
        let name = self.clone();
        let work = move || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let end = name.path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
            let path = &name.path[..end];
            let parent =
                |end: usize| path[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            let mut end = if follow { end } else { parent(end) };
            loop {
                let dir = if end == 0 { &b"/"[..] } else { &path[..end] };
                match open_path(dir, name.symlinks, flags) {
                    Ok(dir) => {
                        let mut real = real_path(dir.as_fd())?;
                        if real.last() == Some(&b'/') {
                            real.pop();
                        }
                        real.extend_from_slice(&path[end..]);
                        return Ok(real);
                    }
                    Err(error) if end == 0 => return Err(error),
                    Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {
                        end = parent(end)
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        offload(io, Class::Path, Op::Stat, self.target(), work).await
    }

    /// Whether the directory with this metadata is on the way to the name, through any links.
    ///
    /// # Errors
    /// Those of openat2(2) and fstat(2).
    pub async fn is_inside(&self, io: &Io, dir: &Metadata) -> io::Result<bool> {
        let (name, wanted) = (self.clone(), (dir.dev, dir.ino));
        let work = move || {
            let mut current = name.split()?.0;
            let mut below = None;
            loop {
                let found = Metadata::from_stat(&rustix::fs::fstat(&current)?);
                let id = (found.dev, found.ino);
                if id == wanted {
                    return Ok(true);
                }
                // The root is its own parent.
                if below.replace(id) == Some(id) {
                    return Ok(false);
                }
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                current = rustix::fs::openat(&current, "..", flags, Mode::empty())?;
            }
        };
        offload(io, Class::Path, Op::Stat, self.target(), work).await
    }

    /// Removes the name of a file or link.
    ///
    /// # Errors
    /// Those of openat2(2) and unlinkat(2).
    pub async fn remove(&self, io: &Io) -> io::Result<()> {
        let name = self.clone();
        let work = move || {
            let (dir, last) = name.split()?;
            Ok(rustix::fs::unlinkat(&dir, last, AtFlags::empty())?)
        };
        offload(io, Class::Path, Op::Unlink, self.target(), work).await
    }

    /// Creates a directory with permission bits `mode`.
    ///
    /// # Errors
    /// Those of openat2(2) and mkdirat(2).
    pub async fn make_dir(&self, io: &Io, mode: u32) -> io::Result<()> {
        let name = self.clone();
        let work = move || {
            let (dir, last) = name.split()?;
            Ok(rustix::fs::mkdirat(&dir, last, Mode::from_raw_mode(mode))?)
        };
        offload(io, Class::Path, Op::Mkdir, self.target(), work).await
    }

    /// Creates an empty file unless the name exists; true: it was created.
    ///
    /// # Errors
    /// Those of openat2(2) and openat(2).
    pub async fn make_file(&self, io: &Io, mode: u32) -> io::Result<bool> {
        let name = self.clone();
        let work = move || {
            let (dir, last) = name.split()?;
            match create_new(dir.as_fd(), last, mode) {
                Ok(_) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        offload(io, Class::Path, Op::Create, self.target(), work).await
    }

    /// Creates the missing directories that lead to the name.
    ///
    /// # Errors
    /// Those of openat2(2) and mkdirat(2).
    pub async fn make_parents(&self, io: &Io, mode: u32) -> io::Result<()> {
        let name = self.clone();
        let work = move || {
            let mode = Mode::from_raw_mode(mode);
            let ends = name.path.iter().enumerate();
            for (end, _) in ends.filter(|(at, byte)| **byte == b'/' && *at > 0) {
                let part = Name { path: name.path[..end].to_vec(), symlinks: name.symlinks };
                // A component that is not a name, such as a dot, exists.
                let Ok((dir, last)) = part.split() else { continue };
                match rustix::fs::mkdirat(&dir, last, mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        };
        offload(io, Class::Path, Op::Mkdir, self.target(), work).await
    }

    /// Renames it; a file at the new name is replaced.
    ///
    /// # Errors
    /// `CrossesDevices` (EXDEV) among those of renameat(2): then the caller copies.
    pub async fn rename(&self, io: &Io, to: &Name) -> io::Result<()> {
        let (from, to) = (self.clone(), to.clone());
        let work = move || {
            let ((dir, last), (to_dir, to_last)) = (from.split()?, to.split()?);
            Ok(rustix::fs::renameat(&dir, last, &to_dir, to_last)?)
        };
        offload(io, Class::Path, Op::Rename, self.target(), work).await
    }

    /// Renames a file unless there is something at the new name.
    ///
    /// # Errors
    /// `AlreadyExists`; `CrossesDevices` (EXDEV) among those of renameat2(2): then the caller copies.
    pub async fn rename_new(&self, io: &Io, to: &Name) -> io::Result<()> {
        let (from, to) = (self.clone(), to.clone());
        let work = move || {
            let ((dir, last), (to_dir, to_last)) = (from.split()?, to.split()?);
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&dir, last, &to_dir, to_last, flags) {
                // Some file systems have no such call (NFS), but all have the next one.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                done => return Ok(done?),
            }
            rustix::fs::linkat(&dir, last, &to_dir, to_last, AtFlags::empty())?;
            Ok(rustix::fs::unlinkat(&dir, last, AtFlags::empty())?)
        };
        offload(io, Class::Path, Op::Rename, self.target(), work).await
    }

    /// The value of an extended attribute of the file or directory that the path leads to, and whether
    /// the file system has such attributes at all; empty: it is not set.
    ///
    /// # Errors
    /// Those of openat2(2) and fgetxattr(2).
    pub async fn attribute(&self, io: &Io, attribute: &'static CStr) -> io::Result<Vec<u8>> {
        let name = self.clone();
        let work = move || get(open(&name)?.as_fd(), attribute);
        offload(io, Class::Path, Op::Read, self.target(), work).await
    }

    /// Sets an extended attribute of the file or directory that the path leads to; an empty value
    /// removes it.
    ///
    /// # Errors
    /// `Unsupported`: the file system has no such attributes; `StorageFull`, `ArgumentListTooLong` and
    /// ERANGE: it has no room for the value; others of fsetxattr(2).
    pub async fn set_attribute(
        &self,
        io: &Io,
        attribute: &'static CStr,
        value: Vec<u8>,
    ) -> io::Result<()> {
        let name = self.clone();
        let work = move || set(open(&name)?.as_fd(), attribute, &value);
        offload(io, Class::Path, Op::Write, self.target(), work).await
    }

    /// Copies an extended attribute, if it is set, to a file that is written.
    ///
    /// # Errors
    /// Those of fgetxattr(2) and fsetxattr(2); none if the name does not exist.
    pub async fn copy_attribute(
        &self,
        io: &Io,
        attribute: &'static CStr,
        to: &File,
    ) -> io::Result<()> {
        let (name, to) = (self.clone(), to.clone());
        let work = move || match open(&name) {
            Ok(from) => copy_attribute(from.as_fd(), to.as_fd(), attribute),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        offload(io, Class::Path, Op::Write, self.target(), work).await
    }
}

fn open(name: &Name) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    open_path(&name.path, name.symlinks, flags)
}

pub(super) fn create_new(
    dir: BorrowedFd<'_>,
    name: &[u8],
    mode: u32,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode))
}

pub(super) fn set_times(fd: BorrowedFd<'_>, mtime: i64) -> rustix::io::Result<()> {
    let time = Timespec { tv_sec: mtime, tv_nsec: 0 };
    rustix::fs::futimens(fd, &Timestamps { last_access: time, last_modification: time })
}

pub(super) fn get(fd: BorrowedFd<'_>, attribute: &CStr) -> io::Result<Vec<u8>> {
    let mut value = Vec::with_capacity(4096);
    loop {
        let spare = rustix::buffer::spare_capacity(&mut value);
        match rustix::fs::fgetxattr(fd, attribute, spare) {
            Ok(_) => return Ok(value),
            Err(Errno::NODATA | Errno::NOTSUP) => return Ok(Vec::new()),
            Err(Errno::RANGE) if value.capacity() < ATTRIBUTE_BYTES_MAX => {
                value.reserve(ATTRIBUTE_BYTES_MAX);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn set(fd: BorrowedFd<'_>, attribute: &CStr, value: &[u8]) -> io::Result<()> {
    if !value.is_empty() {
        let flags = rustix::fs::XattrFlags::empty();
        return Ok(rustix::fs::fsetxattr(fd, attribute, value, flags)?);
    }
    match rustix::fs::fremovexattr(fd, attribute) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn copy_attribute(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    attribute: &CStr,
) -> io::Result<()> {
    let value = get(from, attribute)?;
    if value.is_empty() { Ok(()) } else { set(to, attribute, &value) }
}
