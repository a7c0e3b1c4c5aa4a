//! Shared by the tests: a worker thread under the guard, stores, and shorthands for objects.
#![allow(dead_code)] // every test program uses its own part of it

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use nowait_cache::format::ObjectState;
use nowait_cache::{
    CacheKey, Fill, FillOptions, FillPiece, FillStart, Hit, HitBody, Levels, Lookup, LookupOptions,
    Store, StoreOptions, UnixMs,
};
use nowait_runtime::driver::DriverKind;
use nowait_runtime::fs::Io;
use nowait_runtime::guard;
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::worker::{self, WorkerConfig, Workers};

/// Runs a future as the main task of a new worker, under the strict guard.
pub fn on_worker<F: Future<Output = ()> + 'static>(main: impl FnOnce() -> F + Send + 'static) {
    spawn_worker(main).join().expect("the worker's thread");
}

/// Like [`on_worker`], without waiting for it.
pub fn spawn_worker<F: Future<Output = ()> + 'static>(
    main: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        guard::install(guard::Mode::Strict).expect("a kernel with seccomp filters");
        let workers = Workers::new(1).expect("an eventfd");
        let panics = Rc::new(Panics::default());
        let mut config = WorkerConfig::new(0, DriverKind::Epoll);
        config.hooks = panics.clone();
        let done = Rc::new(Cell::new(false));
        let is_done = done.clone();
        worker::run(config, &workers, |remote| async move {
            let _stop = StopAtEnd(remote);
            main().await;
            done.set(true);
        })
        .expect("the worker");
        assert!(panics.0.borrow().is_empty(), "a task panicked: {:?}", panics.0.borrow());
        assert!(is_done.get());
    })
}

/// Stops the worker, also when the test fails.
struct StopAtEnd(worker::Remote);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[derive(Default)]
struct Panics(RefCell<Vec<String>>);

impl worker::Hooks for Panics {
    fn task_panicked(&self, message: &str) {
        self.0.borrow_mut().push(message.to_owned());
    }
}

/// Settings of a separate pool.
pub fn io(threads: usize) -> Io {
    let config = PoolConfig { name: String::from("test"), threads, max_queue: 1000 };
    Io { aio: nowait_runtime::fs::Aio::Threads, ..Io::new(Pool::new(config)) }
}

/// A store in a directory.
pub fn store(path: &Path) -> Arc<Store> {
    store_with(path, |_| {})
}

/// A store in a directory, with settings other than the defaults.
pub fn store_with(path: &Path, change: impl FnOnce(&mut StoreOptions)) -> Arc<Store> {
    let mut options = StoreOptions::new(path.as_os_str().as_encoded_bytes(), "test", 1 << 20);
    options.levels = Levels::new(&[1, 2]).expect("two levels");
    change(&mut options);
    Store::new(options)
}

pub fn target(text: &str) -> CacheKey {
    CacheKey::new(Bytes::copy_from_slice(text.as_bytes()))
}

pub fn state() -> ObjectState {
    ObjectState {
        valid_until: UnixMs::NEVER,
        status: 200,
        meta: Bytes::from_static(b"meta"),
        header: Bytes::from_static(b"Content-Type: text/plain\r\n\r\n"),
        ..ObjectState::default()
    }
}

/// A body whose bytes encode their position.
pub fn body(len: usize) -> Bytes {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

pub const PLAIN: LookupOptions =
    LookupOptions { read_while_filling: false, silence_max: std::time::Duration::MAX, min_uses: 1 };
pub const ALONG: LookupOptions = LookupOptions { read_while_filling: true, ..PLAIN };
pub const LOCKED: FillOptions =
    FillOptions { lock: true, lock_age: None, read_while_filling: true, asked: None };

#[track_caller]
pub fn begin(store: &Arc<Store>, io: &Io, target: &CacheKey) -> Fill {
    match store.begin_fill(io, target, LOCKED) {
        FillStart::Fill(fill) => fill,
        other => panic!("{other:?}"),
    }
}

/// Stores an object and waits until it is stored.
pub async fn put(store: &Arc<Store>, io: &Io, text: &str, body: &Bytes) {
    let mut fill = begin(store, io, &target(text));
    fill.head(state(), Vec::new()).expect("a small head");
    for piece in body.chunks(10_000) {
        fill.write(body.slice_ref(piece)).await.expect("a willing disk");
    }
    fill.commit().await.expect("a willing disk");
}

/// The whole body of a hit.
pub async fn read(io: &Io, hit: &Hit) -> Bytes {
    match hit.body() {
        HitBody::Bytes(bytes) => bytes,
        HitBody::File { file, offset } => {
            let mut body = Vec::new();
            while (body.len() as u64) < hit.body_length() {
                let left = hit.body_length() - body.len() as u64;
                let at = offset + body.len() as u64;
                let bytes = file.read_at(io, at, left.min(1 << 16) as usize).await.expect("a read");
                assert!(!bytes.is_empty(), "the file is shorter than its head says");
                body.extend_from_slice(&bytes);
            }
            body.into()
        }
    }
}

/// The bytes of a piece of a growing object.
pub async fn piece_bytes(io: &Io, piece: FillPiece) -> Bytes {
    match piece {
        FillPiece::Bytes(bytes) => bytes,
        FillPiece::File { file, offset, len } => {
            file.read_at(io, offset, len as usize).await.expect("a read")
        }
    }
}

/// The result of a look-up, in words.
pub async fn look(store: &Arc<Store>, io: &Io, text: &str) -> LookupOutcome {
    match store.lookup(io, &target(text), PLAIN).await {
        Lookup::Memory(hit) => LookupOutcome::Memory(read(io, &hit).await),
        Lookup::File(hit) => LookupOutcome::File(read(io, &hit).await),
        Lookup::Filling(_) => LookupOutcome::Filling,
        Lookup::Error { status, .. } => LookupOutcome::Error(status),
        Lookup::Absent { .. } => LookupOutcome::Absent,
        Lookup::Unavailable(why) => LookupOutcome::Unavailable(why),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupOutcome {
    Memory(Bytes),
    File(Bytes),
    Filling,
    Error(u16),
    Absent,
    Unavailable(nowait_cache::Why),
}

impl LookupOutcome {
    /// The body, wherever it is.
    #[track_caller]
    pub fn body(self) -> Bytes {
        match self {
            LookupOutcome::Memory(body) | LookupOutcome::File(body) => body,
            other => panic!("no object: {other:?}"),
        }
    }
}

/// Waits until a condition holds, by itself or by the store's background work.
#[track_caller]
pub fn until<C: FnMut() -> bool>(what: &'static str, mut come_true: C) -> impl Future<Output = ()> {
    let deadline = std::time::Instant::now() + nowait_testkit::wait::PATIENCE;
    async move {
        while !come_true() {
            assert!(std::time::Instant::now() < deadline, "waited for {what}");
            nowait_runtime::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
}

/// Names of all files below a directory, sorted.
pub fn files(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        match entry.file_type().expect("a type").is_dir() {
            true => names.extend(files(&entry.path())),
            false => names.push(entry.file_name().to_str().expect("a name").to_owned()),
        }
    }
    names.sort();
    names
}

/// The whole body of an object that is being filled; `None`: it was cut.
pub async fn read_along(mut growing: nowait_cache::FillReader, io: Io) -> Option<Bytes> {
    let mut body = Vec::new();
    loop {
        match growing.next(64 * 1024).await {
            Ok(Some(piece)) => body.extend_from_slice(&piece_bytes(&io, piece).await),
            Ok(None) => return Some(body.into()),
            Err(_) => return None,
        }
    }
}

/// Begins to fill an object and reads it meanwhile.
pub async fn begin_and_join(
    store: &Arc<Store>,
    io: &Io,
    target: &CacheKey,
) -> (Fill, nowait_cache::FillReader) {
    let mut fill = begin(store, io, target);
    let FillStart::Busy(waiter) = store.begin_fill(io, target, LOCKED) else {
        panic!("one fills it already")
    };
    fill.head(state(), Vec::new()).expect("a small head");
    match waiter.await {
        nowait_cache::WaitResult::Filling(growing) => (fill, growing),
        other => panic!("{other:?}"),
    }
}
