//! The file API on an unresponsive disk: the loop continues, no matter what a file operation waits for,
//! and data in memory is served even if every thread of the pool is stuck.
//!
//! Causal, not timed: a gate of the test kit's slow disk holds the operation; while it is closed
//! the loop must do other work. Needs root, FUSE and loop devices; prints `skipped: …` without.

use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::fs::{self, CreateOptions, File, Io, OpenOptions, ReadDirOptions, Symlinks};
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::worker::{self, Remote, WorkerConfig, WorkerEnd, Workers};
use nowait_runtime::{guard, mounts, worker::stopping};
use nowait_testkit::slow_disk::{
    DiskImage, DiskOptions, EIO, Gate, ImageFormat, ImageOptions, Ops, Quiet, SlowDisk, alone,
    evict, mount_elsewhere, pin, quiet,
};
use nowait_testkit::wait::{self, PATIENCE};

/// Duration of a read on the busy disk of [`a_hot_file_goes_before_cold_ones`].
const BUSY: Duration = Duration::from_millis(100);

/// Turns of the loop that must pass while an operation waits.
const TURNS: usize = 20;

/// A worker on a separate thread.
struct Loop {
    remote: Remote,
    thread: JoinHandle<io::Result<WorkerEnd>>,
}

impl Loop {
    fn start(driver: DriverKind) -> Loop {
        let workers = Workers::new(1).unwrap();
        let remote = workers.remote(0);
        let thread = std::thread::spawn(move || {
            guard::install(guard::Mode::On).unwrap();
            let config = WorkerConfig::new(0, driver);
            worker::run(config, &workers, |_| stopping())
        });
        Loop { remote, thread }
    }

    /// Runs a future on the loop; its result arrives in the receiver.
    fn spawn<T, F>(&self, make: impl FnOnce() -> F + Send + 'static) -> Receiver<T>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = channel();
        let build = move || -> worker::LocalFuture {
            Box::pin(async move {
                // The receiver is gone if the test has given up.
                let _ = sender.send(make().await);
            })
        };
        self.remote.spawn(Box::new(build)).expect("the worker runs");
        receiver
    }

    /// Asserts that the loop is still running.
    fn turns(&self, while_waiting: &str) {
        for _ in 0..TURNS {
            let turned = self.spawn(|| async {}).recv_timeout(PATIENCE);
            assert_eq!(turned, Ok(()), "the loop stands still while it waits for {while_waiting}");
        }
    }

    fn finish(self) {
        self.remote.stop();
        let end = self.thread.join().unwrap().unwrap();
        assert_eq!(end, WorkerEnd::Graceful);
        assert_eq!(guard::violations(), 0, "blocking calls on the loop");
    }
}

/// Generates a test per driver for each function.
macro_rules! on_every_driver {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use super::*;

            #[test]
            fn epoll() {
                super::$name(DriverKind::Epoll);
            }

            #[test]
            fn io_uring() {
                match driver::choose(Requested::IoUring) {
                    (DriverKind::IoUring, _) => super::$name(DriverKind::IoUring),
                    (_, why) => nowait_testkit::skip("io_uring", &why),
                }
            }
        })*
    };
}

on_every_driver!(
    every_operation_on_ext4,
    every_operation_on_xfs,
    every_operation_on_fuse,
    every_operation_reports_a_broken_disk,
    what_is_in_memory_is_served_while_the_pool_is_stuck,
    what_is_in_memory_is_served_on_xfs,
    what_is_in_memory_is_served_on_btrfs,
    a_mount_elsewhere_does_not_send_hot_files_to_a_stuck_pool,
    a_cold_extent_map_leaves_the_loop_alone,
    a_cold_extent_map_on_xfs,
    a_cold_extent_map_on_btrfs,
    dropped_work_is_not_done,
    a_hot_file_goes_before_cold_ones,
);

fn io_with(threads: usize) -> Io {
    Io::new(Pool::new(PoolConfig { name: "test".to_owned(), threads, max_queue: 1000 }))
}

#[track_caller]
fn result<T>(receiver: &Receiver<T>, of: &str) -> T {
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{of} has no result: {e}"))
}

/// A disk with a directory tree that each action works on.
enum TestDisk {
    Ext(Box<DiskImage>),
    Fuse(SlowDisk),
}

impl TestDisk {
    fn local(format: ImageFormat) -> Option<TestDisk> {
        let options = ImageOptions { format, synchronous: true, ..ImageOptions::default() };
        DiskImage::or_skip(options).map(|image| TestDisk::Ext(Box::new(image)))
    }

    fn fuse() -> Option<TestDisk> {
        // Nothing is cached: each action reaches the disk.
        let options = DiskOptions { pages_cached: false, ..DiskOptions::default() };
        SlowDisk::or_skip(options).map(TestDisk::Fuse)
    }

    fn root(&self) -> PathBuf {
        match self {
            TestDisk::Ext(image) => image.path().to_owned(),
            TestDisk::Fuse(disk) => disk.path(),
        }
    }

    fn fill(&mut self) {
        let files = ["dir/file", "dir/old", "dir/doomed"];
        for file in files {
            match self {
                TestDisk::Ext(image) => image.write(file, "content"),
                TestDisk::Fuse(disk) => disk.write_cold(file, "content"),
            };
        }
        let empty = match self {
            TestDisk::Ext(image) => image.path().join("dir/empty"),
            TestDisk::Fuse(disk) => disk.backing().join("dir/empty"),
        };
        std::fs::create_dir_all(empty).unwrap();
        if let TestDisk::Ext(image) = self {
            image.make_cold();
        }
    }

    /// Holds `ops`; on ext4, which only sees blocks, everything.
    fn hold(&self, ops: Ops) -> Gate {
        match self {
            TestDisk::Ext(image) => image.hold(),
            TestDisk::Fuse(disk) => disk.hold(ops),
        }
    }
}

type Acting = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// One operation of the API: its name, the FUSE operations that hold it, and its call below a root.
struct Action {
    name: &'static str,
    held: Ops,
    act: fn(Io, PathBuf) -> Acting,
}

fn below(root: &Path, name: &str) -> Vec<u8> {
    root.join(name).as_os_str().as_bytes().to_vec()
}

macro_rules! action {
    ($name:literal, $held:expr, |$io:ident, $root:ident| $body:expr) => {
        Action {
            name: $name,
            held: $held,
            act: |$io, $root| {
                Box::pin(async move {
                    $body?;
                    Ok(())
                })
            },
        }
    };
}

fn actions() -> Vec<Action> {
    vec![
        action!("open", Ops::LOOKUP | Ops::OPEN, |io, root| {
            fs::open(&io, &below(&root, "dir/file"), &OpenOptions::default()).await
        }),
        action!("open of nothing", Ops::LOOKUP, |io, root| {
            match fs::open(&io, &below(&root, "dir/nothing"), &OpenOptions::default()).await {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other.map(drop),
            }
        }),
        action!("stat", Ops::LOOKUP | Ops::GETATTR, |io, root| {
            fs::stat(&io, &below(&root, "dir/file"), Symlinks::Follow).await
        }),
        action!("whole file", Ops::READ, |io, root| {
            fs::read(&io, &below(&root, "dir/file"), 100).await
        }),
        action!("read_at", Ops::READ, |io, root| {
            let file = fs::open(&io, &below(&root, "dir/file"), &OpenOptions::default()).await?;
            file.read_at(&io, 0, 7).await
        }),
        action!("open with prefetch", Ops::READ, |io, root| {
            let options = OpenOptions { prefetch: 4096, ..OpenOptions::default() };
            fs::open(&io, &below(&root, "dir/file"), &options).await
        }),
        action!("metadata_now", Ops::GETATTR, |io, root| {
            let file = fs::open(&io, &below(&root, "dir/file"), &OpenOptions::default()).await?;
            file.metadata_now(&io).await
        }),
        action!("read_dir", Ops::READDIR, |io, root| {
            let options = ReadDirOptions { entries_max: 10, metadata: true };
            let name = fs::Name { path: below(&root, "dir"), symlinks: Symlinks::Follow };
            fs::read_dir(&io, &name, &options).await
        }),
        action!("create", Ops::CREATE, |io, root| {
            fs::create(&io, &below(&root, "dir/new"), &CreateOptions::default()).await
        }),
        action!("write_at", Ops::WRITE, |io, root| {
            let file = fs::create(&io, &below(&root, "dir/file"), &EXISTING).await?;
            file.write_at(&io, 0, vec![Bytes::from_static(b"new ")]).await
        }),
        action!("truncate", Ops::SETATTR, |io, root| {
            let file = fs::create(&io, &below(&root, "dir/file"), &EXISTING).await?;
            file.truncate(&io, 3).await
        }),
        action!("sync", Ops::FSYNC, |io, root| {
            let file = fs::create(&io, &below(&root, "dir/file"), &EXISTING).await?;
            file.write_at(&io, 0, vec![Bytes::from_static(b"new ")]).await?;
            file.sync(&io, false).await
        }),
        action!("rename", Ops::RENAME, |io, root| {
            fs::rename(&io, &below(&root, "dir/old"), &below(&root, "renamed")).await
        }),
        action!("unlink", Ops::UNLINK, |io, root| {
            fs::unlink(&io, &below(&root, "dir/doomed")).await
        }),
        action!("mkdir", Ops::MKDIR, |io, root| {
            fs::mkdir(&io, &below(&root, "dir/made"), 0o755).await
        }),
        action!("mkdir_parents", Ops::MKDIR, |io, root| {
            fs::mkdir_parents(&io, &below(&root, "a/b/c/file"), 0o755).await
        }),
        action!("remove_dir", Ops::UNLINK, |io, root| {
            fs::remove_dir(&io, &below(&root, "dir/empty")).await
        }),
    ]
}

/// Opens an existing file for writing.
const EXISTING: CreateOptions =
    CreateOptions { mode: 0o600, exclusive: false, truncate: false, append: false };

fn every_operation_leaves_the_loop_alone(driver: DriverKind, mut disk: TestDisk) {
    let io = io_with(2);
    for action in actions() {
        disk.fill();
        // A separate loop and disk for each: nothing is warm from the previous one.
        let the_loop = Loop::start(driver);
        let gate = disk.hold(action.held);
        let (io, root) = (io.clone(), disk.root());
        let acting = the_loop.spawn(move || (action.act)(io, root));
        gate.wait_waiting(1);
        the_loop.turns(action.name);
        assert!(
            matches!(
                acting.recv_timeout(std::time::Duration::ZERO),
                Err(RecvTimeoutError::Timeout)
            ),
            "{} did not wait for the disk",
            action.name
        );
        gate.open();
        result(&acting, action.name).unwrap_or_else(|e| panic!("{}: {e}", action.name));
        the_loop.finish();
    }
}

/// Not on btrfs: its tree fits into one block for so few names, and once that is read, nothing
/// waits.
fn every_operation_on(driver: DriverKind, format: ImageFormat) {
    if let Some(disk) = TestDisk::local(format) {
        every_operation_leaves_the_loop_alone(driver, disk);
    }
}

fn every_operation_on_ext4(driver: DriverKind) {
    every_operation_on(driver, ImageFormat::Ext4);
}

fn every_operation_on_xfs(driver: DriverKind) {
    every_operation_on(driver, ImageFormat::Xfs);
}

fn every_operation_on_fuse(driver: DriverKind) {
    if let Some(disk) = TestDisk::fuse() {
        every_operation_leaves_the_loop_alone(driver, disk);
    }
}

fn every_operation_reports_a_broken_disk(driver: DriverKind) {
    let Some(mut disk) = TestDisk::fuse() else { return };
    let io = io_with(2);
    let the_loop = Loop::start(driver);
    for action in actions() {
        disk.fill();
        let TestDisk::Fuse(slow) = &disk else { unreachable!("made as such above") };
        slow.fail(action.held, EIO);
        let (io, root) = (io.clone(), disk.root());
        let acting = the_loop.spawn(move || (action.act)(io, root));
        // "open with prefetch" may leave the error to the following read.
        if let Err(e) = result(&acting, action.name) {
            assert_eq!(e.raw_os_error(), Some(EIO), "{}", action.name);
        } else {
            assert_eq!(action.name, "open with prefetch");
        }
        slow.heal();
    }
    the_loop.finish();
}

/// The central test: a stuck pool, and files in memory.
fn what_is_in_memory_is_served_while_the_pool_is_stuck(driver: DriverKind) {
    hot_files_on_a_stuck_pool(driver, ImageFormat::Ext4, quiet, || {});
}

fn what_is_in_memory_is_served_on_xfs(driver: DriverKind) {
    hot_files_on_a_stuck_pool(driver, ImageFormat::Xfs, quiet, || {});
}

fn what_is_in_memory_is_served_on_btrfs(driver: DriverKind) {
    hot_files_on_a_stuck_pool(driver, ImageFormat::Btrfs, quiet, || {});
}

/// The same when a file system is mounted elsewhere meanwhile, so that the knowledge about paths
/// must be confirmed again: without the pool.
fn a_mount_elsewhere_does_not_send_hot_files_to_a_stuck_pool(driver: DriverKind) {
    hot_files_on_a_stuck_pool(driver, ImageFormat::Ext4, alone, mount_elsewhere);
}

fn hot_files_on_a_stuck_pool(
    driver: DriverKind,
    format: ImageFormat,
    quiet: fn() -> Quiet,
    disturb: fn(),
) {
    const COLD: usize = 50;
    let options = ImageOptions { format, ..ImageOptions::default() };
    let Some(mut image) = DiskImage::or_skip(options) else { return };
    let hot = image.write("hot/file", vec![b'h'; 20_000]);
    for n in 0..COLD {
        image.write(&format!("cold/{n}"), vec![b'c'; 20_000]);
    }
    image.make_cold();
    let _quiet = quiet();
    let (io, root) = (io_with(2), image.path().to_owned());
    let hot_path = hot;
    let hot = hot_path.as_os_str().as_bytes().to_vec();
    let the_loop = Loop::start(driver);
    let read_hot = {
        let io = io.clone();
        move || async move {
            let file = fs::open(&io, &hot, &OpenOptions::default()).await?;
            file.read_at(&io, 0, 20_000).await
        }
    };
    // First and second touch: afterwards the file system has loaded everything about the file.
    for _ in 0..2 {
        let content = result(&the_loop.spawn(read_hot.clone()), "the hot file").unwrap();
        assert_eq!(content, vec![b'h'; 20_000]);
    }
    let _pinned = pin(&hot_path);
    let gate = image.hold();
    let cold: Vec<_> = (0..COLD)
        .map(|n| {
            let (io, path) = (io.clone(), below(&root, &format!("cold/{n}")));
            the_loop.spawn(move || async move {
                let file = fs::open(&io, &path, &OpenOptions::default()).await?;
                file.read_at(&io, 0, 20_000).await
            })
        })
        .collect();
    gate.wait_waiting(1);
    for turn in 0..TURNS {
        disturb();
        let read = the_loop.spawn(read_hot.clone()).recv_timeout(PATIENCE);
        // The counters show why it went to the pool.
        let read = read.unwrap_or_else(|e| panic!("turn {turn}: {e}: {:#?}", mounts::snapshot()));
        assert_eq!(read.unwrap().len(), 20_000);
    }
    assert!(cold.iter().all(|cold| cold.try_recv().is_err()));
    gate.open();
    for cold in cold {
        assert_eq!(result(&cold, "a cold file").unwrap(), vec![b'c'; 20_000]);
    }
    the_loop.finish();
}

/// A file that was touched long ago, whose extent map is not fully in memory: reading beyond the
/// known part would block inside `preadv2(RWF_NOWAIT)`.
fn a_cold_extent_map_leaves_the_loop_alone(driver: DriverKind) {
    a_cold_extent_map_on(driver, ImageFormat::Ext4);
}

fn a_cold_extent_map_on_xfs(driver: DriverKind) {
    a_cold_extent_map_on(driver, ImageFormat::Xfs);
}

fn a_cold_extent_map_on_btrfs(driver: DriverKind) {
    a_cold_extent_map_on(driver, ImageFormat::Btrfs);
}

fn a_cold_extent_map_on(driver: DriverKind, format: ImageFormat) {
    const BLOCKS: usize = 2000;
    let options = ImageOptions { format, ..ImageOptions::default() };
    let Some(mut image) = DiskImage::or_skip(options) else { return };
    let path = image.write_fragmented("file", &vec![b'x'; BLOCKS * 4096]);
    image.make_cold();
    let path = path.as_os_str().as_bytes().to_vec();
    let io = io_with(2);
    let the_loop = Loop::start(driver);
    let (opening_io, opening_path) = (io.clone(), path.clone());
    let opened = the_loop.spawn(move || async move {
        let file = fs::open(&opening_io, &opening_path, &OpenOptions::default()).await?;
        file.read_at(&opening_io, 0, 100).await?;
        io::Result::Ok(file)
    });
    let file = result(&opened, "open").unwrap();
    let gate = image.hold();
    let far = 2 * (BLOCKS as u64 - 1) * 4096;
    let reading = the_loop.spawn(move || async move { file.read_at(&io, far, 100).await });
    gate.wait_waiting(1);
    the_loop.turns("a far part of a fragmented file");
    gate.open();
    assert_eq!(result(&reading, "the far part").unwrap(), vec![b'x'; 100]);
    the_loop.finish();
}

/// Work that has not started, for a client that is gone, never reaches the disk.
fn dropped_work_is_not_done(driver: DriverKind) {
    const QUEUED: usize = 20;
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    for n in 0..=QUEUED {
        disk.write_cold(&format!("file{n}"), "content");
    }
    let io = io_with(1);
    let root = disk.path();
    let the_loop = Loop::start(driver);
    let gate = disk.hold(Ops::OPEN);
    let open = move |n: usize| {
        let (io, path) = (io.clone(), below(&root, &format!("file{n}")));
        move || async move { fs::open(&io, &path, &OpenOptions::default()).await.map(drop) }
    };
    let first = the_loop.spawn(open(0));
    gate.wait_waiting(1);
    let dropped = the_loop.spawn({
        let queued: Vec<_> = (1..QUEUED).map(&open).collect();
        move || async move {
            let mut queued: Vec<_> = queued.into_iter().map(|open| Box::pin(open())).collect();
            // Started from the loop's point of view: each is polled once.
            std::future::poll_fn(|cx| {
                for open in &mut queued {
                    assert!(open.as_mut().poll(cx).is_pending());
                }
                std::task::Poll::Ready(())
            })
            .await;
        }
    });
    result(&dropped, "dropping");
    let last = the_loop.spawn(open(QUEUED));
    gate.open();
    result(&first, "the first").unwrap();
    result(&last, "the last").unwrap();
    assert_eq!(disk.seen(Ops::OPEN), 2);
    the_loop.finish();
}

/// A hot file lost its pages once. Its reader does not wait behind all those that keep the disk
/// busy.
fn a_hot_file_goes_before_cold_ones(driver: DriverKind) {
    const COLD: usize = 10;
    const HOT: usize = COLD + 1;
    /// Bytes of a file, and of a read.
    const FILE: usize = 256 * 1024;
    const PIECE: usize = 16 * 1024;
    let options = ImageOptions { synchronous: true, ..ImageOptions::default() };
    let Some(mut image) = DiskImage::or_skip(options) else { return };
    let hot_path = image.write("hot", vec![b'h'; FILE]);
    for n in 0..=COLD {
        image.write(&format!("cold{n}"), vec![b'c'; FILE]);
    }
    image.make_cold();
    let _quiet = quiet();
    // Two threads, one of which is not for reading: one read at a time, in the order of the queue.
    let io = io_with(2);
    let the_loop = Loop::start(driver);
    let root = image.path().to_owned();
    let open = |client: usize, name: &str| {
        let (io, path) = (io.for_client(client as u64 + 1), below(&root, name));
        let opened = the_loop
            .spawn(move || async move { fs::open(&io, &path, &OpenOptions::default()).await });
        result(&opened, "open").unwrap()
    };
    let ended = Arc::new(Mutex::new(Vec::new()));
    let read = |client: usize, file: &File, offset: u64| {
        let (io, file, ended) = (io.for_client(client as u64 + 1), file.clone(), ended.clone());
        the_loop.spawn(move || async move {
            let read = file.read_at(&io, offset, PIECE).await;
            ended.lock().unwrap().push(client);
            read.map(|bytes| bytes.len())
        })
    };
    let hot = open(HOT, "hot");
    assert_eq!(result(&read(HOT, &hot, 0), "the hot file").unwrap(), PIECE);
    // The others have kept the pool busy: far longer than any operation takes on a responsive disk.
    image.disk().delay(Ops::READ, BUSY);
    let cold: Vec<_> = (0..=COLD).map(|n| open(n, &format!("cold{n}"))).collect();
    for (n, file) in cold.iter().enumerate() {
        assert_eq!(result(&read(n, file, 0), "a cold file").unwrap(), PIECE);
    }
    image.disk().heal();
    evict(&hot_path).unwrap();

    ended.lock().unwrap().clear();
    let gate = image.hold();
    let far = (FILE - PIECE) as u64;
    let mut reads = vec![read(COLD, &cold[COLD], far)];
    gate.wait_waiting(1);
    reads.extend((0..COLD).map(|n| read(n, &cold[n], far)));
    reads.push(read(HOT, &hot, 0));
    wait::until("all reads to be queued", PATIENCE, || {
        (io.pool.snapshot().queued == COLD + 1).then_some(())
    });
    gate.open();
    for reading in reads {
        assert_eq!(result(&reading, "a read").unwrap(), PIECE);
    }
    let ended = ended.lock().unwrap();
    let place = ended.iter().position(|client| *client == HOT).unwrap();
    // The read that held the pool, and at most the longest-waiting one.
    assert!(place <= 2, "the hot file was read at place {place} of {ended:?}");
    the_loop.finish();
}
