//! What file operations cost, in microseconds, and what of it is the pool.
//!
//! `cargo run --release -p nowait-runtime --example fs_costs [DIRECTORY]`

use std::fs::File as StdFile;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use nowait_runtime::fs::{self, Io, OpenOptions, Sent, Symlinks};
use nowait_runtime::mounts;
use nowait_runtime::pool::{Pool, PoolConfig, blocking};

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

/// Runs `work` `count` times after a tenth of that for warming up, and prints the mean time and CPU
/// time (of all threads), which other load on the machine disturbs less.
fn measure(name: &str, count: u32, mut work: impl FnMut()) {
    (0..count / 10).for_each(|_| work());
    let (begin, cpu_begin) = (Instant::now(), cpu_seconds());
    (0..count).for_each(|_| work());
    let mean = |seconds: f64| seconds * 1e6 / f64::from(count);
    let (wall, cpu) = (mean(begin.elapsed().as_secs_f64()), mean(cpu_seconds() - cpu_begin));
    println!("{name:<44} {wall:9.2} us {cpu:9.2} us of CPU");
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn make(dir: &Path, name: &str, len: usize) -> Vec<u8> {
    let path = dir.join(name);
    StdFile::create(&path).and_then(|mut file| file.write_all(&vec![b'x'; len])).expect("a file");
    path.into_os_string().into_encoded_bytes()
}

/// A non-blocking socket whose other end swallows everything.
fn sink() -> Arc<OwnedFd> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("loop");
    let (mut far, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while far.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    Arc::new(near.into())
}

fn send_all(io: &Io, file: &fs::File, socket: &Arc<OwnedFd>) {
    let mut offset = 0;
    while offset < file.size() {
        match block_on(file.send_step(io, socket, offset, file.size() - offset)) {
            Ok(Sent::Bytes(count)) => offset += count as u64,
            Ok(Sent::Full) => {
                use rustix::event::{PollFd, PollFlags, poll};
                let mut fds = [PollFd::new(socket, PollFlags::OUT)];
                poll(&mut fds, None).expect("poll");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Polls `futures` to their ends, as a loop does.
fn join_all<F: Future>(futures: Vec<F>) {
    let mut futures: Vec<Option<Pin<Box<F>>>> =
        futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    block_on(std::future::poll_fn(move |cx| {
        for slot in &mut futures {
            if slot.as_mut().is_some_and(|future| future.as_mut().poll(cx).is_ready()) {
                *slot = None;
            }
        }
        if futures.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    }));
}

fn main() {
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let dir = dir.join(format!("nowait-fs-costs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory to work in");
    let pool = Pool::new(PoolConfig { name: "default".into(), threads: 32, max_queue: 65536 });
    let io = Io::new(pool.clone());
    let options = OpenOptions::default();
    let (small, large) = (make(&dir, "16k", 16 << 10), make(&dir, "1m", 1 << 20));

    let open = |path: &[u8]| block_on(fs::open(&io, path, &options)).expect("open");
    drop((open(&small), open(&large)));
    measure("open, fstat and close, std", 100_000, || {
        let path = std::str::from_utf8(&small).expect("a plain path");
        std::fs::File::open(path).and_then(|file| file.metadata()).expect("open");
    });
    measure("open and close, warm", 100_000, || drop(open(&small)));
    measure("stat, warm", 100_000, || {
        block_on(fs::stat(&io, &small, Symlinks::Follow)).expect("stat");
    });
    let missing = dir.join("missing").into_os_string().into_encoded_bytes();
    measure("stat of a missing name, warm", 100_000, || {
        block_on(fs::stat(&io, &missing, Symlinks::Follow)).expect_err("it is missing");
    });
    let file = open(&small);
    let mut buffer = Vec::with_capacity(64 << 10);
    for (name, len) in [("1 KB", 1 << 10), ("4 KB", 4 << 10), ("16 KB", 16 << 10)] {
        measure(&format!("read {name}, warm, into a buffer"), 100_000, || {
            buffer.clear();
            file.try_read(&io, 0, len, &mut buffer).expect("read").expect("warm");
        });
    }
    measure("read 1 KB, warm, to a fresh buffer", 100_000, || {
        block_on(file.read_at(&io, 0, 1 << 10)).expect("read");
    });
    measure("open, read 1 KB, close, warm", 100_000, || {
        buffer.clear();
        open(&small).try_read(&io, 0, 1 << 10, &mut buffer).expect("read").expect("warm");
    });
    let (file, socket) = (open(&large), sink());
    measure("send 1 MB, warm", 3_000, || send_all(&io, &file, &socket));
    measure("the same by sendfile alone", 3_000, || {
        let mut sent = 0;
        while sent < 1 << 20 {
            use rustix::event::{PollFd, PollFlags, poll};
            let left = (1 << 20) - sent;
            match nowait_sys::fs::send_file(socket.as_fd(), file.as_fd(), sent as u64, left) {
                Ok(count) => sent += count,
                Err(_) => {
                    poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None).expect("poll");
                }
            }
        }
    });
    measure("pool, there and back, alone", 20_000, || {
        block_on(blocking(&pool, || ())).expect("room");
    });
    measure("pool, there and back, 16 at once (all 16)", 5_000, || {
        join_all((0..16).map(|_| blocking(&pool, || ())).collect());
    });
    for mount in mounts::snapshot() {
        let counts: Vec<_> = mount.counters().map(|(name, n)| format!("{name} {n}")).collect();
        println!("{} ({:x}): {}", mount.fs_type.name(), mount.dev, counts.join(", "));
    }
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
}
