//! An ordinary file system on a slow disk: an image file on a [`SlowDisk`], a loop device on the
//! image, and ext4, xfs or btrfs on the loop device.
//!
//! The image is opened with direct I/O, so every block that the file system reads or writes is an
//! operation of the slow disk, and the only cache is the file system's own.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::quiet::while_nobody_measures;
use super::{DiskOptions, Gate, Ops, SlowDisk, dir_of, mounts};
use crate::skip::skip;
use crate::temp::write_below;
use crate::wait;

/// Name of the directory where it is mounted, next to the disk; known to the watchdog.
pub(super) const MOUNTED: &str = "local";

/// Maximum size of one disk read or write, in KB: the default read-ahead of Linux on most disks.
const OPERATION_KB: &str = "128";

/// Maximum number of attempts to create a file system.
const MAKE_TRIES_MAX: usize = 4;

/// File system of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// The most common one, and the one with most ways to wait: its extent maps are read
    /// separately.
    Ext4,
    /// Common on media servers.
    Xfs,
    /// Copy on write, with a device number per subvolume.
    Btrfs,
}

impl ImageFormat {
    /// The name for mount(2), and of the directory where it is mounted.
    pub(super) fn name(self) -> &'static str {
        match self {
            ImageFormat::Ext4 => "ext4",
            ImageFormat::Xfs => "xfs",
            ImageFormat::Btrfs => "btrfs",
        }
    }

    /// The program that makes it, with its arguments; the image comes last.
    pub(super) fn maker(self) -> (&'static str, &'static [&'static str]) {
        const EXT: &str = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        match self {
            ImageFormat::Ext4 => ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", EXT]),
            ImageFormat::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            ImageFormat::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K", "-m", "single"]),
        }
    }

    /// Mount options: disable background work that a test would see as operations.
    fn data(self) -> &'static CStr {
        match self {
            ImageFormat::Ext4 => c"noinit_itable,inode_readahead_blks=0",
            ImageFormat::Xfs => c"",
            ImageFormat::Btrfs => c"space_cache=v2",
        }
    }

    /// The smallest image that the tools accept, with room to work in.
    fn size_min(self) -> u64 {
        match self {
            ImageFormat::Ext4 => 0,
            ImageFormat::Xfs | ImageFormat::Btrfs => 512 << 20,
        }
    }
}

/// How the file system is created and mounted.
#[derive(Clone, Copy, Debug)]
pub struct ImageOptions {
    /// Type of the file system.
    pub format: ImageFormat,
    /// Size of the image, which is sparse; increased for formats that need more.
    pub size: u64,
    /// Mounted with `sync`: a write returns when it is on the disk, so a held disk holds it.
    pub synchronous: bool,
    /// Seed of latency spikes.
    pub seed: u64,
}

impl Default for ImageOptions {
    fn default() -> Self {
        ImageOptions { format: ImageFormat::Ext4, size: 256 << 20, synchronous: false, seed: 1 }
    }
}

/// A mounted file system on a slow disk.
#[derive(Debug)]
pub struct DiskImage {
    disk: SlowDisk,
    mount_point: PathBuf,
    device: PathBuf,
    options: ImageOptions,
}

impl DiskImage {
    /// Creates and mounts one; returns nothing and reports the reason where the machine lacks a
    /// requirement.
    ///
    /// # Panics
    /// If the machine meets all requirements and creating it fails nevertheless.
    #[track_caller]
    pub fn or_skip(options: ImageOptions) -> Option<DiskImage> {
        if let Some(missing) = mounts::missing_for_loop(options.format) {
            skip("loop", &missing);
            return None;
        }
        // Attributes of the image stay cached: processes that query the loop driver about its
        // devices (another test's losetup) must not wait for this disk.
        let disk = SlowDisk::or_skip(DiskOptions {
            names_cached: Duration::from_secs(24 * 3600),
            pages_cached: false,
            seed: options.seed,
        })?;
        let image = disk.backing().join("image");
        File::create(&image)
            .and_then(|file| file.set_len(options.size.max(options.format.size_min())))
            .unwrap_or_else(|e| panic!("create {}: {e}", image.display()));
        let (maker, arguments) = options.format.maker();
        // mkfs.btrfs looks at all loop devices, and fails when another test's device disappears
        // meanwhile.
        let mut tries = 1..=MAKE_TRIES_MAX;
        let made = tries.find_map(|_| try_run(maker, arguments, &image).ok());
        made.unwrap_or_else(|| run(maker, arguments, &image));
        let mount_point = dir_of(&disk).join(MOUNTED);
        fs::create_dir(&mount_point).unwrap_or_else(|e| panic!("mkdir: {e}"));
        let mut image = DiskImage { disk, mount_point, device: PathBuf::new(), options };
        image.attach();
        Some(image)
    }

    /// Sets up the loop device and mounts it.
    #[track_caller]
    fn attach(&mut self) {
        let image = self.disk.path().join("image");
        let device = run("losetup", &["--find", "--show", "--direct-io=on"], &image);
        self.device = PathBuf::from(device.trim());
        self.limit_operations();
        let mut flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
        if self.options.synchronous {
            flags |= MountFlags::SYNCHRONOUS;
        }
        let (name, data) = (self.options.format.name(), self.options.format.data());
        let mounted =
            while_nobody_measures(|| mount(&self.device, &self.mount_point, name, flags, data));
        // From now on the kernel frees the device with its last user (LO_FLAGS_AUTOCLEAR), even if
        // this process is killed.
        run("losetup", &["--detach"], &self.device);
        if let Err(e) = mounted {
            panic!("mount {} at {}: {e}", self.device.display(), self.mount_point.display());
        }
    }

    /// Limits the device's reads to [`OPERATION_KB`], including read-ahead: the kernel's default
    /// depends on its version and the device's number, up to several MB.
    fn limit_operations(&self) {
        let name = self.device.file_name().unwrap_or_default();
        let queue = Path::new("/sys/block").join(name).join("queue");
        for limit in ["max_sectors_kb", "read_ahead_kb"] {
            // If sysfs is not writable the disk is faster than intended, but still slow.
            let _ = fs::write(queue.join(limit), OPERATION_KB);
        }
    }

    /// Unmounts and remounts it, after which nothing is cached: no data, names, inodes or extent
    /// maps. No process may use it for long: files that are just being closed (by a pool, or by a
    /// program that another test starts) are waited for.
    ///
    /// # Panics
    /// If it stays in use.
    #[track_caller]
    pub fn make_cold(&mut self) {
        let point = &self.mount_point;
        wait::until(&format!("unmount {}", point.display()), wait::PATIENCE, || {
            match while_nobody_measures(|| unmount(point, UnmountFlags::NOFOLLOW)) {
                Ok(()) => Some(()),
                Err(rustix::io::Errno::BUSY) => None,
                Err(e) => panic!("unmount {}: {e}", point.display()),
            }
        });
        // The name is gone, but the kernel may still be working on the file system: remounted too
        // early, there would be two of it on one image.
        let what = "the loop device to be free (a process in another mount namespace, made while \
                    this was mounted, keeps a copy of the mount)";
        wait::until(what, wait::PATIENCE, || (!self.device_is_ours()).then_some(()));
        self.attach();
    }

    /// Whether the most recent loop device still exists, and is on this image.
    fn device_is_ours(&self) -> bool {
        let name = self.device.file_name().unwrap_or_default();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let image = self.disk.path().join("image");
        fs::read_to_string(backing).is_ok_and(|path| Path::new(path.trim_end()) == image)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// The disk below, to delay, hold and count its reads and writes.
    pub fn disk(&self) -> &SlowDisk {
        &self.disk
    }

    /// Holds every read and write of the disk.
    #[must_use = "dropping the gate opens it"]
    pub fn hold(&self) -> Gate {
        self.disk.hold(Ops::ALL)
    }

    /// Writes a file through the file system; it stays cached until [`DiskImage::make_cold`].
    #[track_caller]
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write_below(&self.mount_point, relative, content.as_ref())
    }

    /// Writes a file in which every other block is a hole, so that its extent map does not fit into
    /// the inode: reading the file requires reading the map first. `content` fills the blocks in
    /// turn.
    #[track_caller]
    pub fn write_fragmented(&self, relative: &str, content: &[u8]) -> PathBuf {
        const BLOCK: usize = 4096;
        let path = self.write(relative, b"");
        let file = File::options()
            .write(true)
            .open(&path)
            .unwrap_or_else(|e| panic!("open {}: {e}", path.display()));
        for (n, block) in content.chunks(BLOCK).enumerate() {
            file.write_all_at(block, (2 * n * BLOCK) as u64)
                .unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        }
        path
    }
}

impl Drop for DiskImage {
    fn drop(&mut self) {
        self.disk.heal();
        mounts::unmount(&self.mount_point);
    }
}

/// Runs a system program and returns its output.
#[track_caller]
fn run(program: &str, arguments: &[&str], last: &Path) -> String {
    try_run(program, arguments, last).unwrap_or_else(|error| {
        panic!("{program} {arguments:?} {}: {error}", last.display());
    })
}

/// Runs a system program; the error contains its output.
#[track_caller]
fn try_run(program: &str, arguments: &[&str], last: &Path) -> Result<String, String> {
    let path = mounts::find_program(program).unwrap_or_else(|| panic!("{program} not found"));
    let output = Command::new(path)
        .args(arguments)
        .arg(last)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
