//! Executes an operation of the slow disk when its time has come: the same operation on an ordinary
//! directory, the backing store. Paths come from the [`Tree`]; open files are found by number.
//!
//! Nothing is flushed to the backing store's own disk: the slow disk simulates latency, not power
//! failures.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{AtFlags, CWD, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::tree::Tree;

/// The backing store, with the kernel's view of it.
#[derive(Debug)]
pub(super) struct Store {
    root: PathBuf,
    tree: Mutex<Tree>,
    open: Mutex<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    files: HashMap<u64, (u64, Arc<File>)>,
    last: u64,
}

/// A change of a file's attributes requested by the kernel.
#[derive(Debug)]
pub(super) struct AttributeChange {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
}

/// The creator of a file, and its mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Creator {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> io::Error {
    Errno::NOENT.into()
}

impl Store {
    pub(super) fn new(root: &Path) -> Store {
        Store {
            root: root.to_owned(),
            tree: Mutex::new(Tree::new()),
            open: Mutex::new(OpenFiles::default()),
        }
    }

    /// Path of a node relative to the root; empty if it no longer has one.
    pub(super) fn relative(&self, ino: u64) -> PathBuf {
        lock(&self.tree).path(ino).unwrap_or_default()
    }

    /// Path of a name relative to the root.
    pub(super) fn relative_in(&self, parent: u64, name: &OsStr) -> PathBuf {
        lock(&self.tree).path_in(parent, name).unwrap_or_default()
    }

    fn path(&self, ino: u64) -> io::Result<PathBuf> {
        let relative = lock(&self.tree).path(ino).ok_or_else(gone)?;
        Ok(self.root.join(relative))
    }

    fn path_in(&self, parent: u64, name: &OsStr) -> io::Result<PathBuf> {
        let relative = lock(&self.tree).path_in(parent, name).ok_or_else(gone)?;
        Ok(self.root.join(relative))
    }

    pub(super) fn forget(&self, ino: u64, lookups: u64) {
        lock(&self.tree).forget(ino, lookups);
    }

    pub(super) fn lookup(&self, parent: u64, name: &OsStr) -> io::Result<FileAttr> {
        let metadata = fs::symlink_metadata(self.path_in(parent, name)?)?;
        let ino = lock(&self.tree).remember(parent, name);
        Ok(attributes(ino, &metadata))
    }

    pub(super) fn getattr(&self, ino: u64) -> io::Result<FileAttr> {
        let metadata = match self.path(ino) {
            Ok(path) => fs::symlink_metadata(path)?,
            // Unlinked, but still open.
            Err(gone) => self.any_open(ino).ok_or(gone)?.metadata()?,
        };
        Ok(attributes(ino, &metadata))
    }

    pub(super) fn setattr(&self, ino: u64, change: &AttributeChange) -> io::Result<FileAttr> {
        if let Some(size) = change.size {
            match self.any_open(ino) {
                Some(file) => file.set_len(size)?,
                None => OpenOptions::new().write(true).open(self.path(ino)?)?.set_len(size)?,
            }
        }
        if let Ok(path) = self.path(ino) {
            if change.uid.is_some() || change.gid.is_some() {
                std::os::unix::fs::lchown(&path, change.uid, change.gid)?;
            }
            if let Some(mode) = change.mode {
                fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777))?;
            }
            if change.atime.is_some() || change.mtime.is_some() {
                let times = Timestamps {
                    last_access: timespec(change.atime),
                    last_modification: timespec(change.mtime),
                };
                rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        self.getattr(ino)
    }

    pub(super) fn open(&self, ino: u64) -> io::Result<u64> {
        let path = self.path(ino)?;
        // The kernel has checked the permissions; one handle serves reads and writes.
        let file =
            OpenOptions::new().read(true).write(true).open(&path).or_else(|_| File::open(&path))?;
        Ok(self.keep(ino, file))
    }

    pub(super) fn create(
        &self,
        parent: u64,
        name: &OsStr,
        creator: Creator,
    ) -> io::Result<(FileAttr, u64)> {
        let path = self.path_in(parent, name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(creator.mode)
            .open(&path)?;
        give_to(&path, creator)?;
        let attributes = self.lookup(parent, name)?;
        let handle = self.keep(attributes.ino.0, file);
        Ok((attributes, handle))
    }

    pub(super) fn close(&self, handle: u64) {
        lock(&self.open).files.remove(&handle);
    }

    pub(super) fn read(&self, handle: u64, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let file = self.opened(handle)?;
        let mut buffer = vec![0; size as usize];
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    }

    pub(super) fn write(&self, handle: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        self.opened(handle)?.write_all_at(data, offset)
    }

    pub(super) fn mkdir(
        &self,
        parent: u64,
        name: &OsStr,
        creator: Creator,
    ) -> io::Result<FileAttr> {
        let path = self.path_in(parent, name)?;
        fs::create_dir(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(creator.mode & 0o7777))?;
        give_to(&path, creator)?;
        self.lookup(parent, name)
    }

    pub(super) fn symlink(&self, parent: u64, name: &OsStr, target: &Path) -> io::Result<FileAttr> {
        std::os::unix::fs::symlink(target, self.path_in(parent, name)?)?;
        self.lookup(parent, name)
    }

    pub(super) fn readlink(&self, ino: u64) -> io::Result<PathBuf> {
        fs::read_link(self.path(ino)?)
    }

    pub(super) fn unlink(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.path_in(parent, name)?)?;
        lock(&self.tree).unlink(parent, name);
        Ok(())
    }

    pub(super) fn rmdir(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        fs::remove_dir(self.path_in(parent, name)?)?;
        lock(&self.tree).unlink(parent, name);
        Ok(())
    }

    pub(super) fn rename(
        &self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> io::Result<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        if flags.intersects(RenameFlags::EXCHANGE) {
            return Err(Errno::INVAL.into());
        }
        let (old, new) = (self.path_in(from.0, from.1)?, self.path_in(to.0, to.1)?);
        rustix::fs::renameat_with(CWD, &old, CWD, &new, flags)?;
        lock(&self.tree).rename(from, to);
        Ok(())
    }

    /// Names in a directory, sorted, with their kinds.
    pub(super) fn list(&self, ino: u64) -> io::Result<Vec<(OsString, FileType)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(ino)?)? {
            let entry = entry?;
            let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
            entries.push((entry.file_name(), kind));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    fn keep(&self, ino: u64, file: File) -> u64 {
        let mut open = lock(&self.open);
        open.last += 1;
        let handle = open.last;
        open.files.insert(handle, (ino, Arc::new(file)));
        handle
    }

    fn opened(&self, handle: u64) -> io::Result<Arc<File>> {
        let open = lock(&self.open);
        let (_, file) = open.files.get(&handle).ok_or(Errno::BADF)?;
        Ok(Arc::clone(file))
    }

    fn any_open(&self, ino: u64) -> Option<Arc<File>> {
        let open = lock(&self.open);
        let mut files = open.files.values();
        files.find(|(of, _)| *of == ino).map(|(_, file)| Arc::clone(file))
    }
}

/// Gives a new file to its creator, if permitted.
fn give_to(path: &Path, creator: Creator) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    std::os::unix::fs::lchown(path, Some(creator.uid), Some(creator.gid))
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let nanoseconds_only = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => nanoseconds_only(UTIME_OMIT),
        Some(TimeOrNow::Now) => nanoseconds_only(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec {
                tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: since.subsec_nanos().into(),
            }
        }
    }
}

fn attributes(ino: u64, metadata: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanoseconds: i64| -> SystemTime {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0);
        UNIX_EPOCH + Duration::new(seconds, nanoseconds)
    };
    FileAttr {
        ino: INodeNo(ino),
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: FileType::from_std(metadata.file_type()).unwrap_or(FileType::RegularFile),
        perm: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0),
        nlink: u32::try_from(metadata.nlink()).unwrap_or(1),
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
