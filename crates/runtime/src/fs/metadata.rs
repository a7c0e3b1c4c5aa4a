//! The metadata of a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

/// The kind of file that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
    Other,
}

impl FileKind {
    pub(super) fn from_type(file_type: FileType) -> FileKind {
        match file_type {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            FileType::Fifo => FileKind::Fifo,
            FileType::Socket => FileKind::Socket,
            FileType::CharacterDevice => FileKind::CharDevice,
            FileType::BlockDevice => FileKind::BlockDevice,
            FileType::Unknown => FileKind::Other,
        }
    }
}

/// File metadata, as reported by fstat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Time of the last change of the contents: seconds since 1970 and nanoseconds.
    pub mtime: i64,
    pub mtime_nsec: u32,
    /// Time of the last change of contents or metadata.
    pub ctime: i64,
    pub ctime_nsec: u32,
    pub dev: u64,
    pub ino: u64,
    /// Permission bits (07777).
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Number of links. 0: deleted.
    pub nlink: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
}

/// A state of a file. Equal states imply equal content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

/// File systems write times in steps of some milliseconds: two changes within this time may look like one.
const UNSETTLED: Duration = Duration::from_secs(1);

impl Metadata {
    /// The state of the file; `None`: it has changed so recently that another change might leave the same
    /// state. Must be taken before the content is read, so that a change in between is detected next time.
    pub fn stamp(&self) -> Option<Stamp> {
        let settled = SystemTime::now().checked_sub(UNSETTLED)?;
        let settled = settled.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let is_settled = u64::try_from(self.ctime.max(self.mtime)).is_ok_and(|s| s < settled);
        is_settled.then_some(Stamp {
            file: (self.dev, self.ino),
            size: self.size,
            modified: (self.mtime, self.mtime_nsec),
            changed: (self.ctime, self.ctime_nsec),
        })
    }

    // Field types differ between architectures; every value is within the wider type.
    #[allow(clippy::unnecessary_cast)]
    pub(crate) fn from_stat(stat: &Stat) -> Metadata {
        Metadata {
            kind: FileKind::from_type(FileType::from_raw_mode(stat.st_mode)),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: stat.st_mtime as i64,
            mtime_nsec: stat.st_mtime_nsec as u32,
            ctime: stat.st_ctime as i64,
            ctime_nsec: stat.st_ctime_nsec as u32,
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: stat.st_nlink as u64,
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        }
    }

    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
}
