//! The running program's own files: where they are mapped, and keeping them in memory.
//!
//! Code and constants of a program are pages of files. Under memory pressure the kernel drops them, and
//! the code that needs one next waits for the disk that the program is on. Called by the server process when it
//! starts. Holds no policy.
//!
//! Ownership argument for the unsafe code: the calls get ranges that this process has mapped for as long as
//! it runs (its program and libraries, none of which it unloads), and change neither their contents nor their
//! protection.

use std::io;
use std::ops::Range;

use rustix::mm::{Advice, MlockFlags};
use rustix::process::{Resource, Rlimit};

/// The mapped parts of files that belong to programs: of every file with executable parts, all that is mapped
/// privately, which is code, constants and initial values. Executable parts come first.
///
/// # Errors
/// Those of reading `/proc/self/maps`.
pub fn segments() -> io::Result<Vec<Range<usize>>> {
    Ok(segments_in(&std::fs::read_to_string("/proc/self/maps")?))
}

/// Like [`segments`], for the text of `/proc/self/maps`.
fn segments_in(maps: &str) -> Vec<Range<usize>> {
    struct Mapping<'a> {
        range: Range<usize>,
        flags: &'a str,
        path: &'a str,
    }
    fn mapping(line: &str) -> Option<Mapping<'_>> {
        let (place, rest) = line.split_once(' ')?;
        let (start, end) = place.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let path = rest.find('/').map(|at| &rest[at..])?;
        Some(Mapping { range: number(start)?..number(end)?, flags: rest.get(..4)?, path })
    }
    let mappings: Vec<_> = maps.lines().filter_map(mapping).collect();
    let is_program = |path| mappings.iter().any(|m| m.path == path && m.flags.contains('x'));
    let (code, data): (Vec<_>, Vec<_>) = mappings
        .iter()
        .filter(|m| m.flags.ends_with('p') && m.flags.starts_with('r') && is_program(m.path))
        .partition(|m| m.flags.contains('x'));
    code.into_iter().chain(data).map(|m| m.range.clone()).collect()
}

/// Keeps the pages of a range of [`segments`] in memory from the moment they are first used
/// (`MLOCK_ONFAULT`); reads nothing. Ends with the process, and does not pass to its children.
///
/// # Errors
/// `ENOMEM` where `RLIMIT_MEMLOCK` is lower than all that is locked; `EPERM` where it is zero.
pub fn lock(segment: &Range<usize>) -> io::Result<()> {
    // SAFETY: the range is mapped for as long as the process runs; locking it changes no contents.
    unsafe {
        rustix::mm::mlock_with(segment.start as *mut _, segment.len(), MlockFlags::ONFAULT)?;
    }
    Ok(())
}

/// Reads all pages of a range of [`segments`] into memory; waits for the disk.
///
/// # Errors
/// `EINVAL` before Linux 5.14; `EFAULT` where a page cannot be read.
pub fn populate(segment: &Range<usize>) -> io::Result<()> {
    // SAFETY: the range is mapped for as long as the process runs, and is only read.
    unsafe {
        rustix::mm::madvise(segment.start as *mut _, segment.len(), Advice::LinuxPopulateRead)?;
    }
    Ok(())
}

/// The limit of locked memory (`RLIMIT_MEMLOCK`) in force, bytes.
pub fn locked_max() -> u64 {
    rustix::process::getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// Raises the limit of locked memory to at least `bytes`, or as far as this process may.
pub fn allow_locked(bytes: u64) {
    let limit = rustix::process::getrlimit(Resource::Memlock);
    let at_least = |value: Option<u64>| value.map(|value| value.max(bytes));
    let raised = Rlimit { current: at_least(limit.current), maximum: at_least(limit.maximum) };
    if rustix::process::setrlimit(Resource::Memlock, raised).is_err() {
        let own = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // It was a wish: what cannot be locked is reported by who locks.
        let _ = rustix::process::setrlimit(Resource::Memlock, own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_libraries_are_found() {
        let maps = "\
00010000-00020000 r--p 00000000 fe:00 17   /usr/sbin/nowait
00020000-00050000 r-xp 00010000 fe:00 17   /usr/sbin/nowait
00050000-00060000 rw-p 00040000 fe:00 17   /usr/sbin/nowait
00060000-00070000 rw-p 00000000 00:00 0
00070000-00080000 r--s 00000000 fe:00 19   /var/lib/shared
00080000-00090000 r--p 00000000 fe:00 20   /usr/share/locale archive
000a0000-000b0000 r-xp 00000000 fe:00 21   /lib/libc.so.6
000b0000-000b8000 ---p 00010000 fe:00 21   /lib/libc.so.6
000c0000-000d0000 r-xp 00000000 00:00 0    [vdso]
no mapping
";
        let found = [0x20000..0x50000, 0xa0000..0xb0000, 0x10000..0x20000, 0x50000..0x60000];
        assert_eq!(segments_in(maps), found);
    }

    /// A page of locked code is in memory, and counted by the kernel as locked.
    #[test]
    fn own_code_can_be_locked() {
        let locked = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let before = locked();
        let here = own_code_can_be_locked as fn() as usize;
        let segment = segments().unwrap().into_iter().find(|s| s.contains(&here)).unwrap();
        // Little enough for any limit.
        let page = here & !0xfff;
        let part = page..(page + 0x1000).min(segment.end);
        lock(&part).unwrap();
        assert_eq!(locked(), before + 4);
        populate(&part).unwrap();
    }
}
