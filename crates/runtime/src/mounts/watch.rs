//! Waits for notifications of the kernel about mounts and unmounts.
//!
//! Container engines mount and unmount all the time, so as little as possible is forgotten: file
//! systems that are gone from the list, since their device numbers may get new owners; and the
//! confirmed locations of directories, which the loop confirms again by itself (see `fs::inline`).

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::sync::atomic::Ordering::Release;
use std::sync::{LazyLock, Mutex, Once, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{FsType, Mount, MountPlace, places, slots};

/// Maximum number of immediate re-reads of the list when it changed while it was read.
const READS_MAX: usize = 8;

/// Stack of the watching thread.
const STACK_BYTES: usize = 64 * 1024;

/// The mounted file systems, by the kernel's list.
struct MountList {
    /// By device number.
    list: HashMap<u64, FsType>,
    /// No btrfs was unmounted since the last check.
    has_all_btrfs: bool,
}

impl MountList {
    /// Whether `mount` is one of them.
    fn has(&self, mount: &Mount) -> bool {
        match mount.fs_type {
            // Each subvolume has a separate number, which is not listed.
            FsType::Btrfs => self.has_all_btrfs,
            fs_type => self.list.get(&mount.dev) == Some(&fs_type),
        }
    }
}

/// Starts the watching thread, once per process.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // Without /proc, changes are noticed only through the device numbers of opened files.
        if let Ok(mountinfo) = File::open("/proc/self/mountinfo") {
            let _ = thread::Builder::new()
                .name(String::from("mount watch"))
                .stack_size(STACK_BYTES)
                .spawn(move || watch_file(mountinfo));
        }
    });
}

fn watch_file(mut mountinfo: File) {
    let mut before = look(&mut mountinfo);
    while wait(&mountinfo, None).is_some() {
        let mut now = read_doubting(&mut mountinfo);
        // A file system that was unmounted and mounted again at once may be missing in a list that
        // is already stale.
        for _ in 1..READS_MAX {
            if wait(&mountinfo, Some(&Timespec::default())) != Some(true) {
                break;
            }
            now = read_doubting(&mut mountinfo);
        }
        let is_kept = |(dev, fs_type): (&u64, &FsType)| {
            *fs_type != FsType::Btrfs || now.get(dev) == Some(fs_type)
        };
        let has_all_btrfs = before.iter().all(is_kept);
        let mounted = MountList { list: now, has_all_btrfs };
        slots().for_each(|mount| note(mount, &mounted));
        before = mounted.list;
    }
}

/// Waits for a change since the last call; `Some(false)`: none within `time`. `None`: watching will
/// never work.
fn wait(mountinfo: &File, time: Option<&Timespec>) -> Option<bool> {
    // proc_pid_mountinfo(5): a change is POLLERR and POLLPRI, until the next poll.
    let mut fds = [PollFd::new(mountinfo, PollFlags::PRI)];
    loop {
        match poll(&mut fds, time) {
            Ok(count) => return Some(count > 0),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

fn read_doubting(mountinfo: &mut File) -> HashMap<u64, FsType> {
    // First of all: a thread may already use a new mount while the list is read below.
    places::doubt();
    look(mountinfo)
}

/// The list of now; learns where file systems are mounted.
fn look(mountinfo: &mut File) -> HashMap<u64, FsType> {
    let text = read(mountinfo);
    *PLACES.lock().unwrap_or_else(PoisonError::into_inner) = places_of(&text);
    parse(&text)
}

/// Where file systems are mounted, by device number.
static PLACES: LazyLock<Mutex<HashMap<u64, MountPlace>>> = LazyLock::new(Mutex::default);

/// Where a file system is mounted, as far as known.
pub(super) fn place(dev: u64) -> Option<MountPlace> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner).get(&dev).cloned()
}

/// A file system may be mounted in several places: the shortest one of its root stands for all.
fn places_of(mountinfo: &str) -> HashMap<u64, MountPlace> {
    let mut places: HashMap<u64, (bool, MountPlace)> = HashMap::new();
    for (dev, is_part, place) in mountinfo.lines().filter_map(parse_place) {
        let rank = |(is_part, place): &(bool, MountPlace)| (*is_part, place.directory.len());
        let new = (is_part, place);
        match places.get_mut(&dev) {
            Some(old) if rank(old) <= rank(&new) => {}
            Some(old) => *old = new,
            None => {
                places.insert(dev, new);
            }
        }
    }
    places.into_iter().map(|(dev, (_, place))| (dev, place)).collect()
}

/// proc_pid_mountinfo(5): device number, root, mount point, and after ` - ` type and source. Whether only a part
/// of the file system is mounted there.
fn parse_place(line: &str) -> Option<(u64, bool, MountPlace)> {
    let mut words = line.split(' ').skip(2);
    let (major, minor) = words.next()?.split_once(':')?;
    let is_part = words.next()? != "/";
    let directory = unescape(words.next()?);
    let source = unescape(line.split_once(" - ")?.1.split(' ').nth(1)?);
    let dev = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some((dev, is_part, MountPlace { directory, source }))
}

/// Blanks are octal numbers there: `\040`.
fn unescape(word: &str) -> String {
    let mut pieces = word.split('\\');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&piece[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(piece);
            }
        }
    }
    text
}

/// A file system missing in an earlier list may be back, or may never have been away if that list
/// was stale.
fn note(mount: &Mount, mounted: &MountList) {
    let is_mounted = mounted.has(mount);
    // For subvolumes, the list only tells that they are gone.
    if !is_mounted || mount.fs_type != FsType::Btrfs {
        mount.mounted.store(is_mounted, Release);
    }
}

/// An unreadable list counts as empty: every file system is examined again.
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
    use std::sync::atomic::Ordering::Relaxed;

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
    fn places_are_roots_with_short_names() {
        let text = "36 35 98:0 /part /a rw - ext3 /dev/sda rw\n\
                    37 35 98:0 / /long/name rw master:1 - ext3 /dev/sda rw\n\
                    38 35 98:0 / /my\\040disk rw - ext3 /dev/sda rw\n\
                    39 35 98:0 / /again/longer rw - ext3 /dev/sda rw\n\
                    40 35 0:43 /x /only\\part rw - nfs host:/x rw\n";
        let places = places_of(text);
        let place = |major, minor| {
            let place = &places[&rustix::fs::makedev(major, minor)];
            (&*place.directory, &*place.source)
        };
        assert_eq!(place(98, 0), ("/my disk", "/dev/sda"));
        assert_eq!(place(0, 43), ("/only\\part", "host:/x"));
        assert_eq!(places.len(), 2);
    }

    #[test]
    fn what_comes_back_is_mounted_again() {
        let list = |types: &[(u64, FsType)]| types.iter().copied().collect::<HashMap<_, _>>();
        let mounted = |types, has_all_btrfs| MountList { list: list(types), has_all_btrfs };
        let after = |mount: &Mount, mounted: &MountList| {
            note(mount, mounted);
            mount.mounted.load(Relaxed)
        };
        let ext4 = Mount::new(7, 0xEF53, 1);
        assert!(!after(&ext4, &mounted(&[], true)));
        assert!(!after(&ext4, &mounted(&[(7, FsType::Xfs)], true)), "another one");
        assert!(after(&ext4, &mounted(&[(7, FsType::Ext4)], true)));
        let btrfs = Mount::new(8, 0x9123_683E, 2);
        assert!(after(&btrfs, &mounted(&[], true)));
        assert!(!after(&btrfs, &mounted(&[], false)));
        assert!(!after(&btrfs, &mounted(&[], true)), "may be another subvolume's number");
    }

    #[test]
    fn this_machines_root_is_listed() {
        let dev = rustix::fs::stat("/proc").unwrap().st_dev;
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(parse(&text).get(&dev), Some(&FsType::Other));
    }
}
