//! Keeps the program in memory (`lock_program`), so that an event loop doesn't wait for the disk that the
//! program itself is on.
//!
//! Called by the server process when it starts, before its workers. Never waits for a disk: a separate
//! thread reads pages that are not in memory yet.

use std::io;
use std::ops::Range;

use nowait_sys::{memory, program};

use crate::log::{Level, OsErrorText, StartupLog};

/// The maximum share of a process's memory for pages of the program that have never been used.
const UNUSED_PAGES_SHARE: u64 = 4;

/// Locked parts consist of whole pages; larger ones are multiples of this.
const PAGE_BYTES: usize = 64 << 10;

const MB: u64 = 1 << 20;

/// Locks code and constants of the program and its libraries, and logs how much of them. Root's process
/// calls this before it becomes another user, because root may lock more.
pub fn lock(log: &StartupLog) {
    let segments = match program::segments() {
        Ok(segments) => segments,
        Err(error) => {
            let reason = OsErrorText(&error);
            log.log(Level::Notice, format_args!("the program is not locked in memory {reason}"));
            return;
        }
    };
    let total = bytes(&segments);
    program::allow_locked(total);
    let (locked, refused) = lock_each(segments);
    let of =
        format_args!("{} of {} MB", bytes(&locked).div_ceil(MB), total.div_ceil(MB)).to_string();
    match refused {
        None => log.log(Level::Notice, format_args!("the program is locked in memory: {of}")),
        Some(error) => log.log(
            Level::Notice,
            format_args!(
                "the program is locked in memory in part: {of} {}; raise RLIMIT_MEMLOCK \
                 (LimitMEMLOCK= of systemd) to lock all of it",
                OsErrorText(&error)
            ),
        ),
    }
    if bytes(&locked) <= memory::available_max() / UNUSED_PAGES_SHARE {
        read_ahead(locked, log);
    }
}

/// Locks as much as possible; returns its size, and the first error.
fn lock_each(segments: Vec<Range<usize>>) -> (Vec<Range<usize>>, Option<io::Error>) {
    let mut refused = None;
    let mut locked = Vec::with_capacity(segments.len());
    for segment in segments {
        match program::lock(&segment) {
            Ok(()) => locked.push(segment),
            Err(error) => {
                refused = refused.or(Some(error));
                // Its beginning may fit below the limit.
                let room = program::locked_max().saturating_sub(bytes(&locked));
                let part = segment.start..segment.start + (room as usize & !(PAGE_BYTES - 1));
                if !part.is_empty() && part.end <= segment.end && program::lock(&part).is_ok() {
                    locked.push(part);
                }
            }
        }
    }
    (locked, refused)
}

/// Reads the pages of the segments, in a thread of its own: what runs for the first time need not wait then.
fn read_ahead(segments: Vec<Range<usize>>, log: &StartupLog) {
    let work = move || {
        for segment in &segments {
            // Without it, each page is read when it is first used.
            let _ = program::populate(segment);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("nowait: program".into()).spawn(work) {
        let reason = OsErrorText(&error);
        log.log(Level::Notice, format_args!("the program is not read ahead {reason}"));
    }
}

fn bytes(segments: &[Range<usize>]) -> u64 {
    segments.iter().map(|segment| segment.len() as u64).sum()
}
