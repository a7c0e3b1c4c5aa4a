//! The promise on NFS: while an NFS server does not answer, Nowait answers from memory and from
//! local disks.
//!
//! Each test serves files of a hard mount, cuts its server off, sends requests that need it, and,
//! when the threads of their pool wait, demands that everything else works on the same workers.
//! Then the server is connected again, and every waiting request must be answered with the right
//! bytes. Nothing is timed; a limit only ends a test that would hang.
//!
//! Every test runs with epoll and io_uring, with one worker and two, under the strict event-loop
//! guard. They need root, a kernel with NFS client and server, and the tools of the NFS server,
//! and print `skipped: …` where something is missing. `cargo xtask nfs` runs them in an emulated
//! machine with such a kernel.

mod files;
mod lifecycle;
mod stage;
mod writes;
