//! Mounting, unmounting and page-cache eviction, and their requirements of the machine.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::image::ImageFormat;
use super::quiet::while_nobody_measures;
use crate::wait::try_until;
use rustix::fs::{Advice, fadvise};
use rustix::mount::{UnmountFlags, unmount as sys_unmount};

/// How long to wait until a mount is no longer in use.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(2);
/// Part of the names of our directories; the process id in the name identifies the owner of a
/// mount.
pub(super) const LABEL: &str = "slow-disk";

/// The missing requirement for a FUSE mount that other users may enter.
pub(super) fn missing_for_fuse() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("the slow disk needs root");
    }
    if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return Some("the slow disk needs /dev/fuse");
    }
    // Root in a container often lacks it.
    if !may_mount() {
        return Some("the slow disk needs permission to mount (CAP_SYS_ADMIN)");
    }
    None
}

/// Whether this process may mount anything: it has `CAP_SYS_ADMIN` (capabilities(7), proc(5)).
pub(crate) fn may_mount() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// Whether this process may use loop devices. Tried once.
fn may_loop() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let Some(losetup) = find_program("losetup") else { return false };
        let found = Command::new(losetup).arg("--find").stderr(Stdio::null()).output();
        let device = found.ok().and_then(|output| String::from_utf8(output.stdout).ok());
        let open = |device: &str| File::options().read(true).write(true).open(device.trim());
        device.is_some_and(|device| open(&device).is_ok())
    })
}

/// The missing requirement for a file system on a loop device.
pub(super) fn missing_for_loop(format: ImageFormat) -> Option<String> {
    if File::open("/dev/loop-control").is_err() {
        return Some("the image needs loop devices".to_owned());
    }
    let programs = [format.maker().0, "losetup"];
    let missing = programs.iter().find(|program| find_program(program).is_none());
    if let Some(program) = missing {
        return Some(format!("the image needs {program}"));
    }
    if !may_loop() {
        return Some("the image needs permission to use loop devices".to_owned());
    }
    (!supports(format.name())).then(|| format!("the kernel does not support {}", format.name()))
}

/// Whether the kernel has a file system, or a module of its name.
pub(crate) fn supports(name: &str) -> bool {
    // Lists file systems that are built in, or whose module was already loaded.
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split('\t').next_back() == Some(name)) || loads(name)
}

/// Loads a kernel module.
fn loads(module: &str) -> bool {
    find_program("modprobe").is_some_and(|program| {
        Command::new(program).args(["-q", module]).status().is_ok_and(|status| status.success())
    })
}

/// Finds a system administration program.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
}

/// Unmounts: normally if the mount is not in use, otherwise lazily and by force, so that all
/// pending operations in a FUSE mount fail with an error. Returns true if it is gone.
pub(super) fn unmount(mount_point: &Path) -> bool {
    // A server that was just killed may still be exiting.
    let unmount = |flags| while_nobody_measures(|| sys_unmount(mount_point, flags)).ok();
    try_until(UNMOUNT_PATIENCE, || unmount(UnmountFlags::NOFOLLOW)).is_some()
        || unmount(UnmountFlags::FORCE | UnmountFlags::DETACH).is_some()
}

/// Removes mounts and directories left behind by killed test processes.
pub(super) fn remove_stale() {
    let is_stale = |path: &String| owner(path).is_some_and(|pid| !is_alive(pid));
    let stale = mount_points().into_iter().filter(is_stale);
    // FUSE mounts first: syncing a file system on one would wait for the disk below.
    let (disks, others): (Vec<_>, Vec<_>) = stale.partition(|point| point.ends_with("/disk"));
    for point in disks.into_iter().chain(others) {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        let _ = while_nobody_measures(|| sys_unmount(point, flags));
    }
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    let mounted = mount_points();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path().to_str()?.to_owned())) {
        if is_stale(&path) && !mounted.iter().any(|point| point.starts_with(&path)) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// All mount points of this name space.
fn mount_points() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // proc(5): the fifth field is the mount point; ours contain no blanks to be escaped.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(str::to_owned).collect()
}

/// A process that exited while one of its threads waits in its mount stays a zombie.
fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut states = status.lines().filter_map(|line| line.strip_prefix("State:"));
    states.any(|state| !state.trim_start().starts_with(['Z', 'X']))
}

/// Watches a mount from outside this process.
///
/// A test process that is killed while one of its threads waits in the mount cannot end: that
/// thread waits for a daemon that is gone, and keeps the daemon's descriptor open, so the kernel
/// does not notice. Another process must then close the connection.
#[derive(Debug)]
pub(super) struct Watchdog(Option<Child>);

impl Watchdog {
    /// Starts it. Without a shell there is no watchdog, and only the cleanup is lost.
    pub(super) fn over(mount_point: &Path) -> Watchdog {
        // The loop devices on the disk are only visible while it is mounted.
        const SCRIPT: &str = r#"
            while grep -q '^State:.[^ZX]' "/proc/$0/status" 2>/dev/null; do sleep 0.5; done
            loops=$(grep -ls "^$1/" /sys/block/loop*/loop/backing_file | cut -d/ -f4)
            umount -f -l "$1"
            umount -l "${1%/*}/local"
            for loop in $loops; do losetup -d "/dev/$loop"; done"#;
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, &std::process::id().to_string()])
            .arg(mount_point)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt from the terminal is meant for the test, not for the cleanup after it.
            .process_group(0)
            .spawn();
        Watchdog(child.ok())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It can only have ended if this process had.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Id of the process that created one of our mounts.
fn owner(mount_point: &str) -> Option<u32> {
    let (_, rest) = mount_point.split_once(&format!("/nowait-{LABEL}-"))?;
    rest.split('-').next()?.parse().ok()
}

/// Drops the cached pages of a file or of every file below a directory, provided they are clean and
/// unused. Names and inodes stay cached.
///
/// # Errors
/// If something there can't be opened.
pub fn evict(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            evict(&entry?.path())?;
        }
    } else if metadata.is_file() {
        let file = File::open(path)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_owner_of_a_mount() {
        assert_eq!(owner("/tmp/nowait-slow-disk-123-4/disk"), Some(123));
        assert_eq!(owner("/tmp/nowait-server-123-4/disk"), None);
        assert_eq!(owner("/"), None);
    }
}
