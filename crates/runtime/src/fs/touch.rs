//! The first touch of a file: afterwards, reading a page that is not in memory fails at once
//! instead of waiting.
//!
//! Runs on pool threads only.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use super::file::FileHandle;
use super::known;
use crate::mounts::FsType;

/// Loads the extent map of a regular file on a file system where files are read inline, unless that
/// was done before. ext4 has a call for it; elsewhere counting the extents reads the map, and a
/// first read loads the per-file state.
pub(super) fn touch(handle: &FileHandle) {
    touch_and(handle, true);
}

/// Like [`touch`] for a file that has just been read past the page cache: nothing else is read into it.
pub(super) fn touch_read(handle: &FileHandle) {
    touch_and(handle, false);
}

fn touch_and(handle: &FileHandle, reads: bool) {
    let metadata = &handle.metadata;
    if handle.is_touched() || !metadata.is_file() || !handle.mount.reads_inline() {
        return;
    }
    if !handle.mount.is_memory() && metadata.size > 0 && !load_map(handle, reads) {
        return;
    }
    handle.touched.store(true, Relaxed);
    known::learn_touched(handle.id);
}

fn load_map(handle: &FileHandle, reads: bool) -> bool {
    let fd = handle.as_fd();
    if handle.mount.fs_type == FsType::Ext4 {
        return nowait_sys::fiemap::load(fd).is_ok();
    }
    // A file system without FIEMAP: the first read has to suffice.
    let _ = nowait_sys::fiemap::count(fd);
    !reads
        || handle.direct.is_some()
        || nowait_sys::fs::read_at(fd, 0, 1, &mut Vec::with_capacity(1)).is_ok()
}
