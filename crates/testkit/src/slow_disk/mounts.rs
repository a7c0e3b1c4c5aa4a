//! Mounting, unmounting and page-cache eviction, and what the machine must have for it.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::image::Format;
use super::quiet::while_nobody_measures;
use crate::wait::try_until;
use rustix::fs::{Advice, fadvise};
use rustix::mount::{UnmountFlags, unmount as sys_unmount};

/// How long to wait until nobody uses a mount any more.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(2);
/// Part of the names of our directories; with the process id it tells whose a mount is.
pub(super) const LABEL: &str = "slow-disk";

/// What this machine lacks for a FUSE mount that other users may enter.
pub(super) fn missing_for_fuse() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("the slow disk needs root");
    }
    if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return Some("the slow disk needs /dev/fuse");
    }
    // Root in a container often lacks it.
    if !may_mount() {
        return Some("the slow disk needs the right to mount (CAP_SYS_ADMIN)");
    }
    None
}

/// Whether this process may mount anything: it has `CAP_SYS_ADMIN` (capabilities(7), proc(5)).
fn may_mount() -> bool {
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

/// What this machine lacks for a file system on a loop device.
pub(super) fn missing_for_loop(format: Format) -> Option<String> {
    if File::open("/dev/loop-control").is_err() {
        return Some("the image needs loop devices".to_owned());
    }
    let programs = [format.maker().0, "losetup"];
    let missing = programs.iter().find(|program| find_program(program).is_none());
    if let Some(program) = missing {
        return Some(format!("the image needs {program}"));
    }
    if !may_loop() {
        return Some("the image needs the right to use loop devices".to_owned());
    }
    // Filled when a file system is built in, or its module was loaded before.
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_known = known.lines().any(|line| line.split('\t').next_back() == Some(format.name()));
    (!is_known && !loads(format.name())).then(|| format!("the kernel has no {}", format.name()))
}

/// Loads a module of the kernel.
fn loads(module: &str) -> bool {
    find_program("modprobe").is_some_and(|program| {
        Command::new(program).args(["-q", module]).status().is_ok_and(|status| status.success())
    })
}

/// A program of the system administrator.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
}

/// Takes a mount away: in order if nobody uses it, else at once from the name space and by force,
/// so that whatever still waits in a FUSE mount is answered with an error. True if it is gone.
pub(super) fn unmount(mount_point: &Path) -> bool {
    // A server that was killed a moment ago may still be on its way out.
    let unmount = |flags| while_nobody_measures(|| sys_unmount(mount_point, flags)).ok();
    try_until(UNMOUNT_PATIENCE, || unmount(UnmountFlags::NOFOLLOW)).is_some()
        || unmount(UnmountFlags::FORCE | UnmountFlags::DETACH).is_some()
}

/// Removes mounts and directories that killed test processes have left behind.
pub(super) fn remove_stale() {
    let is_stale = |path: &String| owner(path).is_some_and(|pid| !is_alive(pid));
    let stale = mount_points().into_iter().filter(is_stale);
    // FUSE mounts first: whoever syncs a file system on one would wait for the disk below.
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
    // proc(5): the fifth field is the mount point; ours have no blanks to be escaped.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(str::to_owned).collect()
}

/// A process that ended while one of its threads waits in a mount of its own stays a zombie.
fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut states = status.lines().filter_map(|line| line.strip_prefix("State:"));
    states.any(|state| !state.trim_start().starts_with(['Z', 'X']))
}

/// Watches over a mount from outside this process.
///
/// A test process that is killed while one of its own threads waits in the mount can't end: that
/// thread waits for a daemon that is gone, and keeps the daemon's descriptor open, so the kernel
/// does not notice. Somebody else must cut the connection then.
#[derive(Debug)]
pub(super) struct Watchdog(Option<Child>);

impl Watchdog {
    /// Starts it. Without a shell there is none, and nothing is lost but the tidying up.
    pub(super) fn over(mount_point: &Path) -> Watchdog {
        // Which loop devices lie on the disk shows only as long as it is mounted.
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
            // An interrupt from the terminal is for the test, not for who tidies up after it.
            .process_group(0)
            .spawn();
        Watchdog(child.ok())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended only if this process had.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Id of the process that made a mount of ours.
fn owner(mount_point: &str) -> Option<u32> {
    let (_, rest) = mount_point.split_once(&format!("/nowait-{LABEL}-"))?;
    rest.split('-').next()?.parse().ok()
}

/// Drops the cached pages of a file or of every file below a directory, as far as they are clean
/// and nobody is using them. Names and inodes stay cached.
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
