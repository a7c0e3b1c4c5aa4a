//! Inline operations on data that is and is not in memory, on a real ext4 whose disk is held: an
//! operation that waits for the disk never returns, and the test fails.
//!
//! Needs root, FUSE and loop devices; prints `skipped: …` without.

use std::future::Future;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use nowait_runtime::fs::{
    self, File, Io, OpenOptions, SendSteps, Sent, Symlinks, try_open, try_stat,
};
use nowait_runtime::guard;
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_testkit::slow_disk::{DiskImage, ImageOptions, evict, quiet};
use nowait_testkit::wait::{PATIENCE, until};

const MIB: usize = 1 << 20;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn io() -> Io {
    Io::new(Pool::new(PoolConfig { name: "test".to_owned(), threads: 4, max_queue: 1000 }))
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn open(io: &Io, path: &Path) -> File {
    block_on(fs::open(io, &bytes(path), &OpenOptions::default())).unwrap()
}

/// Runs `work` like a loop thread, guarded; fails if it does not return.
#[track_caller]
fn on_a_loop<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        guard::install(guard::Mode::On).unwrap();
        let result = work();
        // The test may have given up.
        let _ = sender.send((result, guard::violations_here()));
    });
    let (result, violations) =
        receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} waits for the disk"));
    assert_eq!(violations, 0, "{what} made calls that may wait");
    result
}

fn image() -> Option<DiskImage> {
    DiskImage::or_skip(ImageOptions::default())
}

fn names(image: &mut DiskImage, count: usize, size: usize) -> Vec<PathBuf> {
    let paths = (0..count).map(|n| image.write(&format!("dir/{n}"), vec![b'x'; size])).collect();
    image.make_cold();
    paths
}

#[test]
fn cold_names_are_left_to_the_pool() {
    let Some(mut image) = image() else { return };
    let paths = names(&mut image, 300, 10);
    let _quiet = quiet();
    let io = io();
    drop(open(&io, &paths[0]));
    let gate = image.hold();
    on_a_loop("looking at cold names", {
        let (io, paths) = (io.clone(), paths.clone());
        move || {
            assert!(try_open(&io, &bytes(&paths[0]), &OpenOptions::default()).is_some());
            for path in &paths[1..] {
                let path = bytes(path);
                assert!(try_open(&io, &path, &OpenOptions::default()).is_none());
                assert!(try_stat(&io, &path, Symlinks::Follow).is_none());
            }
        }
    });
    gate.open();
}

/// A miss starts reading. Hundreds of misses fill the disk's queue; the next one must not wait for
/// a free slot there.
#[test]
fn misses_do_not_wait_for_the_disks_queue() {
    for used_before in [false, true] {
        let Some(mut image) = image() else { return };
        let paths = names(&mut image, 600, 20_000);
        let _quiet = quiet();
        let io = io();
        let files: Vec<File> = paths.iter().map(|path| open(&io, path)).collect();
        if used_before {
            files.iter().for_each(|file| drop(block_on(file.read_at(&io, 0, 20_000)).unwrap()));
        }
        evict(&image.path().join("dir")).unwrap();
        let gate = image.hold();
        on_a_loop("reading what is not in memory", move || {
            let mut buffer = Vec::new();
            for (n, file) in files.iter().enumerate() {
                let read = file.try_read(&io, 0, 4096, &mut buffer).unwrap();
                assert_eq!(read, None, "file {n}");
            }
        });
        gate.open();
    }
}

fn connection() -> (Arc<OwnedFd>, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    (Arc::new(near.into()), listener.accept().unwrap().0)
}

/// Sends the whole file over a socket, inline where possible; also returns whether all of it was
/// sent inline.
fn send_whole(io: &Io, file: &File) -> (Vec<u8>, bool) {
    let (near, mut far) = connection();
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        got
    });
    let (mut offset, mut inline, mut steps) = (0, true, SendSteps::default());
    while offset < file.size() {
        let left = file.size() - offset;
        let sent = match file.try_send(io, near.as_fd(), offset, left, &mut steps).unwrap() {
            Some(sent) => sent,
            None => {
                inline = false;
                block_on(file.send_in_pool(io, near.clone(), offset, left)).unwrap()
            }
        };
        match sent {
            Sent::Bytes(count) => offset += count as u64,
            Sent::Full => {
                use rustix::event::{PollFd, PollFlags, poll};
                poll(&mut [PollFd::new(&near, PollFlags::OUT)], None).unwrap();
            }
            Sent::Ended => panic!("the file ended at {offset}"),
        }
    }
    drop(near);
    (reader.join().unwrap(), inline)
}

/// Drops the rest of a file from the page cache; all of it is gone when this returns.
#[track_caller]
fn drop_from_memory(file: &File, offset: u64) {
    until("the pages to leave memory", PATIENCE, || {
        rustix::fs::fadvise(file, offset, None, rustix::fs::Advice::DontNeed).unwrap();
        let stat = nowait_sys::fs::cachestat(file.as_fd(), offset, file.size() - offset).unwrap();
        (stat.cached == 0).then_some(())
    });
}

#[test]
fn only_what_is_in_memory_is_sent_inline() {
    let Some(mut image) = image() else { return };
    let content: Vec<u8> = (0..4 * MIB).map(|n| (n / 4096 % 251) as u8).collect();
    let path = image.write("file", &content);
    image.make_cold();
    let _quiet = quiet();
    let io = io();
    let file = open(&io, &path);
    assert_eq!(send_whole(&io, &file), (content.clone(), false), "cold");
    assert_eq!(send_whole(&io, &file), (content, true), "warm");
    drop(file);
    // Half of it leaves memory: the other half is sent inline, the rest needs the pool. Pages that
    // were sent may be referenced by kernel buffers for a while, and would stay; so these were only
    // read.
    image.make_cold();
    let file = open(&io, &path);
    assert_eq!(block_on(file.read_at(&io, 0, 4 * MIB)).unwrap().len(), 4 * MIB);
    drop_from_memory(&file, 2 * MIB as u64);
    let gate = image.hold();
    on_a_loop("sending what is half in memory", move || {
        let (near, mut far) = connection();
        let mut offset = 0;
        let mut buffer = vec![0; MIB];
        let mut steps = SendSteps::default();
        while let Some(sent) =
            file.try_send(&io, near.as_fd(), offset, file.size() - offset, &mut steps).unwrap()
        {
            match sent {
                Sent::Bytes(count) => {
                    offset += count as u64;
                    far.read_exact(&mut buffer[..count]).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(offset, 2 * MIB as u64);
    });
    gate.open();
}

/// Pages that are being read count as cached for cachestat(2).
#[test]
fn pages_under_way_are_not_in_memory() {
    let Some(mut image) = image() else { return };
    let path = image.write("file", vec![b'x'; 256 * 1024]);
    image.make_cold();
    let _quiet = quiet();
    let io = io();
    let file = open(&io, &path);
    let gate = image.hold();
    on_a_loop("sending what is being read", move || {
        let (near, _far) = connection();
        let mut buffer = Vec::new();
        for _ in 0..3 {
            assert_eq!(file.try_read(&io, 0, 4096, &mut buffer).unwrap(), None);
            let sent = file.try_send(&io, near.as_fd(), 0, 64 * 1024, &mut SendSteps::default());
            assert_eq!(sent.unwrap(), None);
        }
    });
    gate.open();
}

#[test]
fn a_file_that_shrinks_ends() {
    let Some(mut image) = image() else { return };
    let path = image.write("file", vec![b'x'; MIB]);
    image.make_cold();
    let _quiet = quiet();
    let io = io();
    let file = open(&io, &path);
    assert_eq!(block_on(file.read_at(&io, 0, MIB)).unwrap().len(), MIB);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1000).unwrap();
    assert_eq!(block_on(file.read_at(&io, 0, MIB)).unwrap().len(), 1000);
    assert_eq!(block_on(file.read_at(&io, 5000, 10)).unwrap().len(), 0);
    let (near, _far) = connection();
    assert_eq!(block_on(file.send_step(&io, &near, 5000, 10)).unwrap(), Sent::Ended);
    std::fs::remove_file(&path).unwrap();
    let gone = block_on(fs::open(&io, &bytes(&path), &OpenOptions::default())).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(block_on(file.read_at(&io, 0, 10)).unwrap().len(), 10, "while it is open");
}

/// Files owned by root and a process that may only read them: cachestat(2) is forbidden there.
#[test]
fn an_unprivileged_process_serves_from_memory_too() {
    /// The directory; set in the unprivileged process.
    const CHILD: &str = "NOWAIT_RESIDENCY_CHILD";
    const NOBODY: u32 = 65534;
    if let Some(path) = std::env::var_os(CHILD) {
        let (io, path) = (io(), PathBuf::from(path));
        let file = open(&io, &path);
        assert!(std::fs::File::options().write(true).open(&path).is_err(), "only for reading");
        assert_eq!(send_whole(&io, &file).0.len(), 4 * MIB, "what is in memory is not known yet");
        let (content, inline) = send_whole(&io, &file);
        assert_eq!((content.len(), inline), (4 * MIB, true), "warm");
        evict(&path).unwrap();
        assert_eq!(send_whole(&io, &file).0.len(), 4 * MIB);
        return;
    }
    let Some(mut image) = image() else { return };
    let path = image.write("file", vec![b'x'; 4 * MIB]);
    image.make_cold();
    let _quiet = quiet();
    assert_eq!(std::fs::read(&path).unwrap().len(), 4 * MIB);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "an_unprivileged_process_serves_from_memory_too", "--nocapture"])
        .env(CHILD, &path)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
