//! Waits for the kernel to say that something was mounted or unmounted.
//!
//! Container engines do that all the time, so little may be forgotten: a file system that is gone
//! from the list, since its device number may get a new owner; and that directories were seen where
//! they are, which the loop confirms by itself (see `fs::inline`).

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Once;
use std::sync::atomic::Ordering::Release;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{FsType, slots};

/// Stack of the watching thread.
const STACK_BYTES: usize = 64 * 1024;

/// What is mounted.
pub(super) struct Mounted {
    /// By device number.
    pub(super) list: HashMap<u64, FsType>,
    /// No btrfs has gone since the last look.
    pub(super) has_all_btrfs: bool,
}

/// Starts the watching thread, once per process.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // Without /proc nothing is noticed but the device numbers of files that are opened.
        if let Ok(mountinfo) = File::open("/proc/self/mountinfo") {
            let _ = thread::Builder::new()
                .name(String::from("mount watch"))
                .stack_size(STACK_BYTES)
                .spawn(move || watch_file(mountinfo));
        }
    });
}

fn watch_file(mut mountinfo: File) {
    let mut before = parse(&read(&mut mountinfo));
    loop {
        // proc_pid_mountinfo(5): a change is POLLERR and POLLPRI, until the next poll.
        let mut fds = [PollFd::new(&mountinfo, PollFlags::PRI)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        // First of all: whoever reads the list below may already use a new mount.
        crate::fs::known::doubt_places();
        let now = parse(&read(&mut mountinfo));
        let is_kept = |(dev, fs_type): (&u64, &FsType)| {
            *fs_type != FsType::Btrfs || now.get(dev) == Some(fs_type)
        };
        let has_all_btrfs = before.iter().all(is_kept);
        let mounted = Mounted { list: now, has_all_btrfs };
        slots()
            .filter(|mount| !mount.is_among(&mounted))
            .for_each(|gone| gone.mounted.store(false, Release));
        before = mounted.list;
    }
}

/// An unreadable list is an empty one: everything is looked at anew.
fn read(mountinfo: &mut File) -> String {
    let mut text = Vec::new();
    if mountinfo.rewind().and_then(|()| mountinfo.read_to_end(&mut text)).is_err() {
        text.clear();
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// proc_pid_mountinfo(5): the third field is the device number, the one after ` - ` the type.
fn parse(mountinfo: &str) -> HashMap<u64, FsType> {
    mountinfo.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(u64, FsType)> {
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    let name = line.split_once(" - ")?.1.split(' ').next()?;
    let dev = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some((dev, FsType::named(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let text = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                    41 36 0:43 / /run/x\\040y rw shared:7 master:2 - fuse.sshfs host: rw\n\
                    42 36 0:44 / /tmp rw - tmpfs tmpfs rw\n\
                    nonsense\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[&rustix::fs::makedev(98, 0)], FsType::Ext4);
        assert_eq!(mounts[&rustix::fs::makedev(0, 43)], FsType::Other);
        assert_eq!(mounts[&rustix::fs::makedev(0, 44)], FsType::Tmpfs);
    }

    #[test]
    fn this_machines_root_is_listed() {
        let dev = rustix::fs::stat("/proc").unwrap().st_dev;
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(parse(&text).get(&dev), Some(&FsType::Other));
    }
}
