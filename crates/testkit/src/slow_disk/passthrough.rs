//! The file system's interface to the kernel: each request becomes a job that [`DiskControl`]
//! schedules.
//!
//! Called by the threads of the `fuser` session. They only look up paths and submit jobs; all
//! waiting happens in [`DiskControl`], so one slow operation delays no other.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use super::control::{DiskControl, OpResult};
use super::ops::Op;
use super::store::{AttributeChange, Creator, Store};
use super::tree::ROOT;

/// Maximum number of reads in flight that the kernel starts by itself (readahead, direct
/// asynchronous ones). Larger than any test holds back, so that the kernel's own queue never hides
/// one.
const BACKGROUND_MAX: u16 = 4096;

/// How long the kernel may cache names and attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caching {
    pub(super) names: Duration,
    /// Whether the page cache keeps data, even across opens.
    pub(super) pages: bool,
}

pub(super) struct Passthrough {
    store: Arc<Store>,
    control: Arc<DiskControl>,
    caching: Caching,
}

/// The kernel's generation number of an inode; ours are never reused.
const GENERATION: Generation = Generation(0);

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

/// Runs `work` unless the verdict is an error.
fn then<T>(verdict: OpResult, work: impl FnOnce() -> io::Result<T>) -> Result<T, Errno> {
    verdict.map_err(Errno::from_i32)?;
    work().map_err(|e| errno(&e))
}

impl Passthrough {
    pub(super) fn new(root: &Path, control: Arc<DiskControl>, caching: Caching) -> Passthrough {
        Passthrough { store: Arc::new(Store::new(root)), control, caching }
    }

    /// Submits an operation on a node.
    fn on(&self, op: Op, ino: INodeNo, work: impl FnOnce(&Store, OpResult) + Send + 'static) {
        let path = self.store.relative(ino.0);
        let store = Arc::clone(&self.store);
        self.control.submit(op, path, Box::new(move |verdict| work(&store, verdict)));
    }

    /// Submits an operation on a name in a directory.
    fn at(
        &self,
        op: Op,
        parent: INodeNo,
        name: &OsStr,
        work: impl FnOnce(&Store, &OsStr, OpResult) + Send + 'static,
    ) {
        let path = self.store.relative_in(parent.0, name);
        let store = Arc::clone(&self.store);
        let name = name.to_owned();
        let job = Box::new(move |verdict| work(&store, &name, verdict));
        self.control.submit(op, path, job);
    }

    fn open_flags(&self) -> FopenFlags {
        let flags = FopenFlags::FOPEN_NOFLUSH;
        if self.caching.pages {
            flags | FopenFlags::FOPEN_KEEP_CACHE
        } else {
            flags | FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        }
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without these, the kernel itself would serialize operations that may wait in parallel. An
        // old kernel lacks some; the tests then reveal it.
        for flag in [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_ASYNC_DIO] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ttl = self.caching.names;
        self.at(Op::Lookup, parent, name, move |store, name, verdict| {
            match then(verdict, || store.lookup(parent.0, name)) {
                Ok(attributes) => reply.entry(&ttl, &attributes, GENERATION),
                Err(e) => reply.error(e),
            }
        });
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        self.store.forget(ino.0, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ttl = self.caching.names;
        // Every path walk and the mount itself request the root: it never waits.
        let op = if ino.0 == ROOT { Op::Other } else { Op::Getattr };
        self.on(op, ino, move |store, verdict| match then(verdict, || store.getattr(ino.0)) {
            Ok(attributes) => reply.attr(&ttl, &attributes),
            Err(e) => reply.error(e),
        });
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = AttributeChange { mode, uid, gid, size, atime, mtime };
        let ttl = self.caching.names;
        self.on(Op::Setattr, ino, move |store, verdict| {
            match then(verdict, || store.setattr(ino.0, &change)) {
                Ok(attributes) => reply.attr(&ttl, &attributes),
                Err(e) => reply.error(e),
            }
        });
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        self.on(Op::Lookup, ino, move |store, verdict| {
            match then(verdict, || store.readlink(ino.0)) {
                Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
                Err(e) => reply.error(e),
            }
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let creator = creator(request, mode & !umask);
        let ttl = self.caching.names;
        self.at(Op::Mkdir, parent, name, move |store, name, verdict| {
            match then(verdict, || store.mkdir(parent.0, name, creator)) {
                Ok(attributes) => reply.entry(&ttl, &attributes, GENERATION),
                Err(e) => reply.error(e),
            }
        });
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.at(Op::Unlink, parent, name, move |store, name, verdict| {
            finish(then(verdict, || store.unlink(parent.0, name)), reply);
        });
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.at(Op::Unlink, parent, name, move |store, name, verdict| {
            finish(then(verdict, || store.rmdir(parent.0, name)), reply);
        });
    }

    fn symlink(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.to_owned();
        let ttl = self.caching.names;
        self.at(Op::Create, parent, name, move |store, name, verdict| {
            match then(verdict, || store.symlink(parent.0, name, &target)) {
                Ok(attributes) => reply.entry(&ttl, &attributes, GENERATION),
                Err(e) => reply.error(e),
            }
        });
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let new_name = new_name.to_owned();
        self.at(Op::Rename, parent, name, move |store, name, verdict| {
            let to = (new_parent.0, new_name.as_os_str());
            let renamed = then(verdict, || store.rename((parent.0, name), to, flags.bits()));
            finish(renamed, reply);
        });
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = self.open_flags();
        self.on(Op::Open, ino, move |store, verdict| match then(verdict, || store.open(ino.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), flags),
            Err(e) => reply.error(e),
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let creator = creator(request, mode & !umask);
        let flags = self.open_flags();
        let ttl = self.caching.names;
        self.at(Op::Create, parent, name, move |store, name, verdict| {
            match then(verdict, || store.create(parent.0, name, creator)) {
                Ok((attributes, handle)) => {
                    reply.created(&ttl, &attributes, GENERATION, FileHandle(handle), flags);
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.on(Op::Read, ino, move |store, verdict| {
            match then(verdict, || store.read(handle.0, offset, size)) {
                Ok(data) => reply.data(&data),
                Err(e) => reply.error(e),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = data.to_vec();
        self.on(Op::Write, ino, move |store, verdict| {
            match then(verdict, || store.write(handle.0, offset, &data)) {
                // The kernel sends at most MAX_WRITE_SIZE of fuser, 16 MB.
                Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
                Err(e) => reply.error(e),
            }
        });
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.store.close(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.on(Op::Fsync, ino, move |_, verdict| finish(then(verdict, || Ok(())), reply));
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.on(Op::Open, ino, move |_, verdict| match then(verdict, || Ok(())) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(e) => reply.error(e),
        });
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.on(Op::Readdir, ino, move |store, verdict| {
            let entries = match then(verdict, || store.list(ino.0)) {
                Ok(entries) => entries,
                Err(e) => return reply.error(e),
            };
            let dots = [".", ".."].map(|name| (name.into(), FileType::Directory));
            let all = dots.into_iter().chain(entries).zip(1..);
            for ((name, kind), next) in all.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
                // Only a lookup makes an inode known; any number is fine here.
                if reply.add(INodeNo(u64::MAX), next, kind, &name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.on(Op::Fsync, ino, move |_, verdict| finish(then(verdict, || Ok(())), reply));
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        const BLOCKS: u64 = 1 << 28;
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, 4096, 255, 4096);
    }

    // The kernel requests these once and then knows that they are not implemented.

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}

fn creator(request: &Request, mode: u32) -> Creator {
    Creator { uid: request.uid(), gid: request.gid(), mode }
}

fn finish(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}
