//! Whole trees: removed or copied in steps, so that a tree occupies a thread no longer than other work.
//!
//! Memory is bounded by the depth: each level of directories that is being walked has its descriptors
//! open, and a listing is never in memory as a whole. Everything is opened relative to its directory, and
//! links are never followed: who changes the tree meanwhile can't lead the walk out of it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::names::{copy_attribute, create_new, set_times};
use super::symlinks::open_path;
use super::target::Target;
use super::{FileKind, Io, Metadata, Name, offload};
use crate::pool::{Class, Op, Pool};

/// Maximum number of levels of directories in a tree: each takes up to two descriptors while it is walked.
pub const TREE_DEPTH_MAX: usize = 128;

/// Maximum number of names of a tree that are handled in one trip to the pool.
const STEP_NAMES: usize = 128;

/// Maximum number of bytes that are copied in one trip to the pool.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

/// A call that failed for a name of a tree. The walk goes on.
#[derive(Debug)]
pub struct TreeFailure {
    /// The system call, as `unlink()`.
    pub call: &'static str,
    pub path: Vec<u8>,
    pub error: io::Error,
}

/// The result of a step.
#[derive(Debug, Default)]
pub struct TreeStep {
    /// At most a few for each name.
    pub failures: Vec<TreeFailure>,
    /// The tree is finished: that of its removal is the removal of the directory itself.
    pub done: bool,
}

/// Attributes that copies keep besides contents.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOptions {
    /// Permission bits of the copy; none: those of the original. The process's umask applies.
    pub mode: Option<u32>,
    /// Time of the last change in seconds; none: that of the original.
    pub modified: Option<i64>,
    /// An extended attribute that is copied as well.
    pub attribute: Option<&'static CStr>,
}

/// A tree of files on its way to another place, or to its end.
#[derive(Debug)]
pub struct Tree {
    walk: Arc<Mutex<TreeWalk>>,
    op: Op,
    target: Target,
    /// The pool that closes it.
    pool: Pool,
}

impl Drop for Tree {
    fn drop(&mut self) {
        // An unfinished tree has open files, and closing them may take long.
        if let Some(walk) = Arc::get_mut(&mut self.walk) {
            let walk = walk.get_mut().unwrap_or_else(PoisonError::into_inner);
            let open = (std::mem::take(&mut walk.levels), walk.file.take());
            if !open.0.is_empty() || open.1.is_some() {
                self.pool.run_detached(Op::Close, move || drop(open));
            }
        }
    }
}

impl Tree {
    /// Begins to remove a directory with its contents.
    ///
    /// # Errors
    /// Those of openat(2): nothing was removed.
    pub async fn remove(io: &Io, name: &Name) -> io::Result<Tree> {
        let (from, target) = (name.clone(), name.target());
        let work = move || {
            let (parent, last) = from.split()?;
            let dir = open_dir(&parent, last)?;
            let root =
                Level { name: last.to_vec(), dir, to: None, mtime: 0, pass: Pass::default() };
            Ok(TreeWalk::new(parent, from.path, root, None, CopyOptions::default()))
        };
        let walk = offload(io, Class::Path, Op::Open, target, work).await?;
        Ok(Tree { walk: Arc::new(Mutex::new(walk)), op: Op::Unlink, target, pool: io.pool.clone() })
    }

    /// Begins to copy a directory to a new one, which is created. Without `members` the directory
    /// alone is copied.
    ///
    /// # Errors
    /// Those of openat(2) and mkdirat(2): nothing was copied.
    pub async fn copy(
        io: &Io,
        from: &Name,
        to: &Name,
        members: bool,
        options: CopyOptions,
    ) -> io::Result<Tree> {
        let (from, to, target) = (from.clone(), to.clone(), from.target());
        let work = move || {
            let (parent, last) = from.split()?;
            let (to_parent, to_last) = to.split()?;
            let dir = open_dir(&parent, last)?;
            let meta = Metadata::from_stat(&rustix::fs::fstat(dir.fd()?)?);
            rustix::fs::mkdirat(&to_parent, to_last, Mode::from_raw_mode(meta.mode & 0o777))?;
            let made = open_dir_fd(&to_parent, to_last)?;
            let id = Metadata::from_stat(&rustix::fs::fstat(&made)?);
            if let Some(attribute) = options.attribute {
                copy_attribute(dir.fd()?, made.as_fd(), attribute)?;
            }
            let root = Level {
                name: Vec::new(),
                dir,
                to: Some(made),
                mtime: meta.mtime,
                pass: Pass::default(),
            };
            let copying = Copying { root: (id.dev, id.ino), path: to.path };
            let mut walk = TreeWalk::new(parent, from.path, root, Some(copying), options);
            if !members {
                walk.levels.clear();
            }
            Ok(walk)
        };
        let walk = offload(io, Class::Path, Op::Open, target, work).await?;
        Ok(Tree { walk: Arc::new(Mutex::new(walk)), op: Op::Write, target, pool: io.pool.clone() })
    }

    /// Handles some names. To be called until the tree is done.
    ///
    /// # Errors
    /// The pool does not accept the work.
    pub async fn step(&mut self, io: &Io) -> io::Result<TreeStep> {
        let walk = self.walk.clone();
        let work = move || Ok(walk.lock().unwrap_or_else(PoisonError::into_inner).step());
        offload(io, Class::Bulk, self.op, self.target, work).await
    }
}

#[derive(Debug)]
struct TreeWalk {
    /// The directory that holds the root of a tree that is removed.
    parent: OwnedFd,
    /// The path of the root, without a slash at its end, for messages.
    path: Vec<u8>,
    /// The directories on the way to the current one.
    levels: Vec<Level>,
    copying: Option<Copying>,
    options: CopyOptions,
    file: Option<Transfer>,
}

#[derive(Debug)]
struct Level {
    name: Vec<u8>,
    dir: Dir,
    /// The directory of the copy.
    to: Option<OwnedFd>,
    mtime: i64,
    pass: Pass,
}

/// The state of removing a directory.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    removed: bool,
    failed: bool,
}

#[derive(Debug)]
struct Copying {
    /// Device and number of the copy's root: it may be within the original by way of a link.
    root: (u64, u64),
    path: Vec<u8>,
}

fn open_dir_fd(at: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn open_dir(at: impl AsFd, name: &[u8]) -> rustix::io::Result<Dir> {
    Dir::new(open_dir_fd(at, name)?)
}

/// Search permission for those who may read. nginx: `ngx_dir_access`.
fn dir_access(mode: u32) -> u32 {
    mode | (mode & 0o444) >> 2
}

impl TreeWalk {
    fn new(
        parent: OwnedFd,
        mut path: Vec<u8>,
        root: Level,
        copying: Option<Copying>,
        options: CopyOptions,
    ) -> TreeWalk {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        path.truncate(end);
        TreeWalk { parent, path, levels: vec![root], copying, options, file: None }
    }

    fn step(&mut self) -> TreeStep {
        let mut step = TreeStep::default();
        let mut bytes = STEP_BYTES;
        for _ in 0..STEP_NAMES {
            if let Some(mut file) = self.file.take() {
                match file.advance(&mut bytes) {
                    Ok(false) => {
                        self.file = Some(file);
                        return step;
                    }
                    Ok(true) => {}
                    Err((call, error)) => {
                        let path = std::mem::take(&mut file.path);
                        self.discard(&path);
                        step.failures.push(TreeFailure { call, path, error });
                    }
                }
            }
            let Some(level) = self.levels.last_mut() else {
                step.done = true;
                return step;
            };
            match level.dir.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        let (name, kind) = (name.to_vec(), FileKind::from_type(entry.file_type()));
                        self.visit(&name, kind, &mut step);
                    }
                }
                Some(Err(error)) => {
                    self.failed(&mut step, "readdir()", b"", error);
                    self.leave(&mut step);
                }
                None => self.leave(&mut step),
            }
        }
        step
    }

    /// Removes an incomplete copy from the current directory.
    fn discard(&self, path: &[u8]) {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if let Some(to) = self.levels.last().and_then(|level| level.to.as_ref()) {
            // A second failure is ignored.
            let _ = rustix::fs::unlinkat(to, name, AtFlags::empty());
        }
    }

    /// The path of a name in the current directory, for messages.
    fn path_of(&self, root: &[u8], name: &[u8]) -> Vec<u8> {
        let mut path = root.to_vec();
        let inner = self.levels.iter().skip(1).map(|level| &level.name[..]);
        for part in inner.chain([name]).filter(|part| !part.is_empty()) {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        path
    }

    fn failed(
        &mut self,
        step: &mut TreeStep,
        call: &'static str,
        name: &[u8],
        error: impl Into<io::Error>,
    ) {
        let path = self.path_of(&self.path, name);
        step.failures.push(TreeFailure { call, path, error: error.into() });
        if let Some(level) = self.levels.last_mut() {
            level.pass.failed = true;
        }
    }

    /// Handles a name of the current directory.
    fn visit(&mut self, name: &[u8], kind: FileKind, step: &mut TreeStep) {
        let Some(level) = self.levels.last() else { return };
        let Ok(dir) = level.dir.fd() else { return };
        let kind = match kind {
            FileKind::Other => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Metadata::from_stat(&stat).kind,
                Err(error) => return self.failed(step, "lstat()", name, error),
            },
            kind => kind,
        };
        let result = match (kind, &level.to) {
            (FileKind::Directory, _) if self.levels.len() >= TREE_DEPTH_MAX => {
                Err(("opendir()", Errno::NAMETOOLONG.into()))
            }
            (FileKind::Directory, None) => open_dir(dir, name)
                .map(|dir| {
                    Some(Level {
                        name: name.to_vec(),
                        dir,
                        to: None,
                        mtime: 0,
                        pass: Pass::default(),
                    })
                })
                .map_err(|error| ("opendir()", error.into())),
            (_, None) => rustix::fs::unlinkat(dir, name, AtFlags::empty())
                .map(|()| None)
                .map_err(|error| ("unlink()", error.into())),
            (FileKind::Directory, Some(to)) => self.copy_dir(level, to, name),
            (FileKind::File, Some(to)) => match self.copy_file(level, to, name) {
                Ok(file) => {
                    self.file = Some(file);
                    return;
                }
                Err(failed) => Err(failed),
            },
            // As in nginx, only files and directories are copied.
            (_, Some(_)) => Ok(None),
        };
        match result {
            Ok(inner) => {
                if let Some(level) = self.levels.last_mut() {
                    level.pass.removed = true;
                }
                self.levels.extend(inner);
            }
            Err((call, error)) => self.failed(step, call, name, error),
        }
    }

    fn copy_dir(
        &self,
        level: &Level,
        to: &OwnedFd,
        name: &[u8],
    ) -> Result<Option<Level>, (&'static str, io::Error)> {
        let opened = |error: Errno| ("opendir()", io::Error::from(error));
        let made = |error: Errno| ("mkdir()", io::Error::from(error));
        let dir = level.dir.fd().and_then(|at| open_dir(at, name)).map_err(opened)?;
        let stat = dir.fd().and_then(rustix::fs::fstat).map_err(opened)?;
        let meta = Metadata::from_stat(&stat);
        if self.copying.as_ref().is_some_and(|copying| copying.root == (meta.dev, meta.ino)) {
            return Ok(None);
        }
        let mode = Mode::from_raw_mode(dir_access(meta.mode & 0o777));
        rustix::fs::mkdirat(to, name, mode).map_err(made)?;
        let copy = open_dir_fd(to, name).map_err(made)?;
        if let Some(attribute) = self.options.attribute {
            let from = dir.fd().map_err(opened)?;
            copy_attribute(from, copy.as_fd(), attribute).map_err(|error| ("setxattr()", error))?;
        }
        Ok(Some(Level {
            name: name.to_vec(),
            dir,
            to: Some(copy),
            mtime: meta.mtime,
            pass: Pass::default(),
        }))
    }

    fn copy_file(
        &self,
        level: &Level,
        to: &OwnedFd,
        name: &[u8],
    ) -> Result<Transfer, (&'static str, io::Error)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = level
            .dir
            .fd()
            .and_then(|at| rustix::fs::openat(at, name, flags, Mode::empty()))
            .map_err(|error| ("open()", error.into()))?;
        let root = self.copying.as_ref().map_or(&[][..], |copying| &copying.path);
        let path = self.path_of(root, name);
        Transfer::new(from, self.options, path, |mode| create_new(to.as_fd(), name, mode))
    }

    /// The current directory is finished.
    fn leave(&mut self, step: &mut TreeStep) {
        let Some(mut level) = self.levels.pop() else { return };
        if let Some(to) = level.to {
            if let Err(error) = set_times(to.as_fd(), level.mtime) {
                self.failed(step, "utimes()", &level.name, error);
            }
            return;
        }
        let (name, remove) = (&level.name, AtFlags::REMOVEDIR);
        let removed = match self.levels.last() {
            Some(outer) => outer.dir.fd().and_then(|at| rustix::fs::unlinkat(at, name, remove)),
            None => rustix::fs::unlinkat(&self.parent, name, remove),
        };
        // Some file systems skip names while others are removed: the directory is read again.
        if removed == Err(Errno::NOTEMPTY) && level.pass.removed && !level.pass.failed {
            level.pass = Pass::default();
            level.dir.rewind();
            self.levels.push(level);
            return;
        }
        if let Err(error) = removed {
            let name = if self.levels.is_empty() { Vec::new() } else { level.name };
            self.failed(step, "rmdir()", &name, error);
        }
    }
}

/// One file that is being copied.
#[derive(Debug)]
struct Transfer {
    from: std::fs::File,
    to: std::fs::File,
    left: u64,
    modified: i64,
    /// The position in the copy.
    path: Vec<u8>,
}

impl Transfer {
    fn new(
        from: OwnedFd,
        options: CopyOptions,
        path: Vec<u8>,
        create: impl FnOnce(u32) -> rustix::io::Result<OwnedFd>,
    ) -> Result<Transfer, (&'static str, io::Error)> {
        let stat = rustix::fs::fstat(&from).map_err(|error| ("fstat()", error.into()))?;
        let meta = Metadata::from_stat(&stat);
        if !meta.is_file() {
            return Err(("open()", Errno::INVAL.into()));
        }
        let mode = options.mode.unwrap_or(meta.mode & 0o777);
        let to = create(mode).map_err(|error| ("open()", error.into()))?;
        if let Some(attribute) = options.attribute {
            copy_attribute(from.as_fd(), to.as_fd(), attribute)
                .map_err(|error| ("setxattr()", error))?;
        }
        let modified = options.modified.unwrap_or(meta.mtime);
        Ok(Transfer { from: from.into(), to: to.into(), left: meta.size, modified, path })
    }

    /// Copies up to `bytes`, which it reduces; true: the file is complete.
    fn advance(&mut self, bytes: &mut u64) -> Result<bool, (&'static str, io::Error)> {
        let want = self.left.min(*bytes);
        let copied = io::copy(&mut io::Read::take(&self.from, want), &mut &self.to)
            .map_err(|error| ("write()", error))?;
        if copied < want {
            return Err(("read()", io::ErrorKind::UnexpectedEof.into()));
        }
        (self.left, *bytes) = (self.left - copied, *bytes - copied);
        if self.left > 0 {
            return Ok(false);
        }
        set_times(self.to.as_fd(), self.modified).map_err(|error| ("utimes()", error.into()))?;
        Ok(true)
    }
}

/// Copies a file to a new one, in steps; a copy that fails is removed.
///
/// # Errors
/// The failed call and its error. `AlreadyExists` of `open()`: the new name is taken.
pub async fn copy_file(
    io: &Io,
    from: &Name,
    to: &Name,
    options: CopyOptions,
) -> Result<(), TreeFailure> {
    let from_target = from.target();
    let (source, target) = (from.clone(), to.clone());
    let work = move || {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let begun = open_path(&source.path, source.symlinks, flags)
            .map_err(|error| (("open()", error), source.path))
            .and_then(|from| {
                Transfer::new(from, options, target.path.clone(), |mode| {
                    let (dir, last) = target
                        .split()
                        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                    create_new(dir.as_fd(), last, mode)
                })
                .map_err(|failed| (failed, target.path))
            });
        Ok(begun)
    };
    let pool = |error: io::Error| TreeFailure { call: "copy", path: from.path.clone(), error };
    let begun = offload(io, Class::Path, Op::Open, from_target, work).await.map_err(pool)?;
    let transfer = begun.map_err(|((call, error), path)| TreeFailure { call, path, error })?;
    let mut transfer = Some(transfer);
    loop {
        let copying = transfer.take();
        let work = move || {
            let mut bytes = STEP_BYTES;
            let advanced = copying.map(|mut copying| {
                // Finished files are closed here, because closing may wait.
                copying.advance(&mut bytes).map(|done| (!done).then_some(copying))
            });
            Ok(advanced.unwrap_or(Ok(None)))
        };
        let step = offload(io, Class::Bulk, Op::Write, from_target, work).await.map_err(pool);
        let failure = match step {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(copying)) => {
                transfer = copying;
                continue;
            }
            Ok(Err((call, error))) => TreeFailure { call, path: to.path.clone(), error },
            Err(failure) => failure,
        };
        // A second failure is ignored.
        let _ = to.remove(io).await;
        return Err(failure);
    }
}
