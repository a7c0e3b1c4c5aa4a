//! The promise, tested from outside: while a disk does not answer, Nowait answers from memory.
//!
//! Each test puts files on a slow disk (`nowait_testkit::slow_disk`), closes its gate, sends
//! requests that need the disk, and, when the disk has been asked, demands that requests for what
//! is in memory are answered on the same workers *while the gate is still closed*. Then it opens the
//! gate, and every waiting request must be answered right. Nothing is timed; a limit only ends a
//! test that would hang.
//!
//! Tests run on ext4 and xfs (over a loop device over the slow disk: a local disk to the server) and on
//! FUSE directly (to the server something like NFS), with epoll and io_uring, with one worker and two,
//! always under the strict event-loop guard: in half of these combinations always, in all of them with
//! `cargo xtask disks`. They need root, `/dev/fuse` and loop devices and print `skipped: …` where something
//! is missing; `NOWAIT_TESTS_REQUIRE=all` turns that into failure.

mod along;
mod cache;
mod certificates;
mod dav;
mod faults;
mod findings;
mod hits;
mod http3;
mod lifecycle;
mod loader;
mod logs;
mod names;
mod overload;
mod program;
mod read_cache;
mod reads;
mod stage;
mod state_files;
mod watchdog;
mod writes;
