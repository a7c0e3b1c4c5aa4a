//! Look-ups shared by requests: a look-up may answer all requests that the loop had received before it began,
//! if no data has been received since. So requests of one turn for a file that is not resident share its open,
//! its metadata and, if it is small, its content.
//!
//! Kept per loop while [`receive_epoch::count`] stays the same, and until the loop waits for events: no
//! descriptor is open for longer. Bounded: [`KEPT_MAX`] look-ups.
//!
//! Called by: [`super::open`], [`super::read`], the worker. Never: waits.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::open::OpenSettings;
use super::{File, Metadata, Symlinks};
use crate::pool::PoolError;
use crate::receive_epoch;
use crate::time::turn;

/// Maximum number of look-ups of a turn that are kept.
const KEPT_MAX: usize = 16;

/// Largest content that is kept, in bytes.
const CONTENT_MAX: usize = 64 * 1024;

thread_local! {
    static LOOK_UPS: RefCell<TurnLookups> = const { RefCell::new(TurnLookups::new()) };
    /// There are none, which is the rule.
    static IS_EMPTY: Cell<bool> = const { Cell::new(true) };
}

/// The subject of a look-up.
#[derive(Clone, Copy)]
pub(super) struct LookupKey<'a> {
    pub(super) path: &'a [u8],
    pub(super) symlinks: Symlinks,
    pub(super) settings: OpenSettings,
}

enum SharedResult {
    File(File),
    Metadata(Metadata),
    /// A pool's thread opens it.
    Opening(Rc<PendingOpen>),
}

struct SharedLookup {
    path: Vec<u8>,
    symlinks: Symlinks,
    settings: OpenSettings,
    found: Option<SharedResult>,
}

/// The look-ups of a turn: those before `len`. Further ones are unused memory.
struct TurnLookups {
    received: u64,
    len: usize,
    all: Vec<SharedLookup>,
}

impl TurnLookups {
    const fn new() -> TurnLookups {
        TurnLookups { received: 0, len: 0, all: Vec::new() }
    }

    fn is_current(&self) -> bool {
        self.received == receive_epoch::count()
    }

    fn find(&mut self, path: &[u8], symlinks: Symlinks) -> impl Iterator<Item = &mut SharedLookup> {
        let len = if self.is_current() { self.len } else { 0 };
        let is_it = move |one: &&mut SharedLookup| one.path == path && one.symlinks == symlinks;
        self.all[..len].iter_mut().filter(is_it)
    }

    fn add(&mut self, key: LookupKey<'_>, found: SharedResult) {
        if self.len == KEPT_MAX {
            return;
        }
        if self.len == self.all.len() {
            let LookupKey { symlinks, settings, .. } = key;
            self.all.push(SharedLookup { path: Vec::new(), symlinks, settings, found: None });
        }
        let free = &mut self.all[self.len];
        free.path.clear();
        free.path.extend_from_slice(key.path);
        (free.symlinks, free.settings) = (key.symlinks, key.settings);
        free.found = Some(found);
        self.len += 1;
    }

    fn take_one(&mut self) -> Option<SharedResult> {
        self.len = self.len.checked_sub(1)?;
        self.all[self.len].found.take()
    }
}

/// Drops all look-ups: files may have changed, or the loop waits for events.
pub(crate) fn clear() {
    if IS_EMPTY.get() {
        return;
    }
    // Dropping may close a file, so no borrow may be active.
    while let Some(found) = LOOK_UPS.with_borrow_mut(TurnLookups::take_one) {
        drop(found);
    }
    IS_EMPTY.set(true);
}

fn is_on_loop() -> bool {
    turn::begun().is_some()
}

fn add(key: LookupKey<'_>, found: SharedResult) {
    if !is_on_loop() {
        return;
    }
    if !LOOK_UPS.with_borrow(TurnLookups::is_current) {
        clear();
    }
    LOOK_UPS.with_borrow_mut(|look_ups| {
        look_ups.received = receive_epoch::count();
        look_ups.add(key, found);
    });
    IS_EMPTY.set(false);
}

/// The file that another request of this turn opened.
pub(super) fn file(key: LookupKey<'_>) -> Option<File> {
    if IS_EMPTY.get() {
        return None;
    }
    LOOK_UPS.with_borrow_mut(|look_ups| {
        let mut files = look_ups.find(key.path, key.symlinks).filter_map(|one| match &one.found {
            Some(SharedResult::File(file)) if one.settings == key.settings => Some(file.clone()),
            _ => None,
        });
        files.next().inspect(File::share)
    })
}

/// The metadata that another request of this turn saw.
pub(super) fn metadata(path: &[u8], symlinks: Symlinks) -> Option<Metadata> {
    if IS_EMPTY.get() {
        return None;
    }
    LOOK_UPS.with_borrow_mut(|look_ups| {
        look_ups.find(path, symlinks).find_map(|one| match &one.found {
            Some(SharedResult::File(file)) => Some(*file.metadata()),
            Some(SharedResult::Metadata(metadata)) => Some(*metadata),
            _ => None,
        })
    })
}

/// A file was opened on the loop.
pub(super) fn opened(key: LookupKey<'_>, file: &File) {
    add(key, SharedResult::File(file.clone()));
}

/// Metadata were looked up on the loop.
pub(super) fn seen(key: LookupKey<'_>, metadata: Metadata) {
    add(key, SharedResult::Metadata(metadata));
}

/// The whole content of a shared file, if it was read in this turn.
pub(super) fn content(of: &File) -> Option<Bytes> {
    of_same(of, |file| (!file.head.is_empty()).then(|| file.head.clone()))
}

/// The whole content of a shared file was read.
pub(super) fn read(of: &File, content: &[u8]) {
    if content.len() <= CONTENT_MAX {
        of_same(of, |file| {
            file.head = Bytes::copy_from_slice(content);
            Some(())
        });
    }
}

fn of_same<R>(of: &File, mut then: impl FnMut(&mut File) -> Option<R>) -> Option<R> {
    LOOK_UPS.with_borrow_mut(|look_ups| {
        let len = if look_ups.is_current() { look_ups.len } else { 0 };
        look_ups.all[..len].iter_mut().find_map(|one| match &mut one.found {
            Some(SharedResult::File(file)) if file.is_same(of) => then(file),
            _ => None,
        })
    })
}

/// The file that another request of this turn opens in a pool; `None` if there is none, or it was
/// cancelled.
pub(super) async fn join(key: LookupKey<'_>, prefetch: usize) -> Option<io::Result<File>> {
    opening(key, prefetch)?.result().await
}

/// Opens a file by `open`, which a thread of a pool begins at once: others wait for it as if they had called
/// the pool themselves.
pub(super) async fn lead(
    key: LookupKey<'_>,
    prefetch: usize,
    open: impl Future<Output = io::Result<File>>,
) -> io::Result<File> {
    let lead = OpenLeader(Rc::new(PendingOpen { prefetch, ..PendingOpen::default() }));
    add(key, SharedResult::Opening(lead.0.clone()));
    let result = open.await;
    let shared = match &result {
        Ok(file) => Ok(file.clone()),
        Err(error) => Err(copy(error)),
    };
    let _ = lead.0.result.set(Some(shared));
    result
}

fn opening(key: LookupKey<'_>, prefetch: usize) -> Option<Rc<PendingOpen>> {
    if IS_EMPTY.get() {
        return None;
    }
    LOOK_UPS.with_borrow_mut(|look_ups| {
        look_ups.find(key.path, key.symlinks).find_map(|one| match &one.found {
            Some(SharedResult::Opening(opening))
                if one.settings == key.settings && opening.prefetch >= prefetch =>
            {
                Some(opening.clone())
            }
            _ => None,
        })
    })
}

/// An open that requests wait for.
#[derive(Default)]
struct PendingOpen {
    /// First bytes that are read with it.
    prefetch: usize,
    /// `None`: it was given up.
    result: OnceCell<Option<io::Result<File>>>,
    waiting: RefCell<Vec<Waker>>,
}

impl PendingOpen {
    /// The result; `None`: it was given up.
    async fn result(&self) -> Option<io::Result<File>> {
        poll_fn(|cx| match self.result.get() {
            Some(result) => Poll::Ready(result.as_ref().map(|result| match result {
                Ok(file) => Ok(file.clone()),
                Err(error) => Err(copy(error)),
            })),
            None => {
                let mut waiting = self.waiting.borrow_mut();
                if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}

/// The request that opens for all.
struct OpenLeader(Rc<PendingOpen>);

impl Drop for OpenLeader {
    fn drop(&mut self) {
        let _ = self.0.result.set(None);
        let waiting = self.0.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The same error for another request.
fn copy(error: &io::Error) -> io::Error {
    match (PoolError::of(error), error.raw_os_error()) {
        (Some(refused), _) => io::Error::other(refused.clone()),
        (None, Some(code)) => io::Error::from_raw_os_error(code),
        (None, None) => error.kind().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::Context;
    use std::time::Instant;

    use super::*;
    use crate::fs::open::open_in_pool;
    use crate::fs::{Aio, Io, OpenOptions, try_open, try_stat};
    use crate::pool::tests::block_on;
    use crate::pool::{Pool, PoolConfig};

    /// A path in a directory of its own, which is removed with the value.
    struct TestDirectory(std::path::PathBuf);

    impl TestDirectory {
        fn new(name: &str, content: &str) -> TestDirectory {
            let dir = std::env::temp_dir().join(format!("nowait-{name}-{}", std::process::id()));
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("file"), content).unwrap();
            TestDirectory(dir)
        }

        fn file(&self) -> Vec<u8> {
            self.0.join("file").to_str().unwrap().as_bytes().to_vec()
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn io() -> Io {
        Io::new(Pool::new(PoolConfig { name: String::from("test"), threads: 1, max_queue: 9 }))
    }

    /// As on a loop in one turn.
    fn in_a_turn(test: impl FnOnce()) {
        turn::set(Some(Instant::now()));
        test();
        clear();
        turn::set(None);
    }

    #[test]
    fn requests_of_one_turn_share_a_file() {
        let (io, place, options) =
            (io(), TestDirectory::new("turn", "old"), OpenOptions::default());
        let path = place.file();
        block_on(open_in_pool(&io, &path, &options)).unwrap();
        in_a_turn(|| {
            let open = || try_open(&io, &path, &options).unwrap().unwrap();
            let read = |file: &File| {
                let mut text = Vec::new();
                file.try_read(&io, 0, 100, &mut text).unwrap().unwrap();
                text
            };
            let first = open();
            assert_eq!(read(&first), b"old");
            let second = open();
            assert!(second.is_same(&first));
            assert_eq!(read(&second), b"old");
            // The content read for the second request is kept for the third.
            assert!(second.head.is_empty() && content(&first).is_some());
            std::fs::write(place.0.join("new"), "newer").unwrap();
            std::fs::rename(place.0.join("new"), place.0.join("file")).unwrap();
            assert_eq!(read(&open()), b"old");
            assert_eq!(try_stat(&io, &path, Symlinks::Follow).unwrap().unwrap().size, 3);
            // A request that was received later.
            receive_epoch::add();
            assert_eq!(try_stat(&io, &path, Symlinks::Follow).unwrap().unwrap().size, 5);
            let third = open();
            assert!(!third.is_same(&first));
            assert_eq!(block_on(third.read_at(&io, 0, 100)).unwrap(), "newer");
            assert_eq!(LOOK_UPS.with_borrow(|look_ups| look_ups.len), 2);
            clear();
            assert!(!open().is_same(&third));
        });
        assert!(
            LOOK_UPS.with_borrow(|look_ups| look_ups.all.iter().all(|one| one.found.is_none()))
        );
        let (one, other) = (try_open(&io, &path, &options), try_open(&io, &path, &options));
        assert!(!one.unwrap().unwrap().is_same(&other.unwrap().unwrap()), "not on a loop");
    }

    #[test]
    fn links_and_settings_count() {
        let (io, place, options) =
            (io(), TestDirectory::new("settings", "x"), OpenOptions::default());
        let path = place.file();
        block_on(open_in_pool(&io, &path, &options)).unwrap();
        in_a_turn(|| {
            let first = try_open(&io, &path, &options).unwrap().unwrap();
            let strict = OpenOptions { symlinks: Symlinks::Deny { from: 0 }, ..options };
            let other = try_open(&io, &path, &strict).unwrap().unwrap();
            assert!(!other.is_same(&first));
            let direct = Io { directio: Some(1 << 20), ..io.clone() };
            let other = try_open(&direct, &path, &options).unwrap().unwrap();
            assert!(!other.is_same(&first));
            for n in 0..2 * KEPT_MAX {
                let _ = try_open(&io, format!("{}/.//./{n}", path.len()).as_bytes(), &options);
                let again = try_open(&io, &path, &options).unwrap().unwrap();
                assert!(again.is_same(&first));
            }
        });
    }

    /// Whether a future has to wait.
    fn waits<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> bool {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[test]
    fn requests_wait_for_the_one_that_opens() {
        let (io, place) = (io(), TestDirectory::new("join", "content"));
        let options = OpenOptions { prefetch: 100, ..OpenOptions::default() };
        let path = place.file();
        let (opened, may_open) = (Cell::new(0), Cell::new(false));
        let join = |prefetch| {
            let settings = OpenSettings::of(&io);
            let key = LookupKey { path: &path, symlinks: options.symlinks, settings };
            let open = async {
                opened.set(opened.get() + 1);
                poll_fn(|_| if may_open.get() { Poll::Ready(()) } else { Poll::Pending }).await;
                // Not shared itself.
                let io = Io { aio: Aio::Blocking, ..io.clone() };
                open_in_pool(&io, &path, &options).await
            };
            Box::pin(async move {
                match join(key, prefetch).await {
                    Some(result) => result,
                    None => lead(key, prefetch, open).await,
                }
            })
        };
        in_a_turn(|| {
            let (mut a, mut b, mut more) = (join(100), join(0), join(101));
            assert!(waits(&mut a) && waits(&mut b));
            assert_eq!(opened.get(), 1);
            assert!(waits(&mut more));
            assert_eq!(opened.get(), 2, "more is wanted with it");
            // Not received when the others began.
            receive_epoch::add();
            let mut later = join(100);
            assert!(waits(&mut later));
            assert_eq!(opened.get(), 3);
            may_open.set(true);
            let (a, b, later) =
                (block_on(a).unwrap(), block_on(b).unwrap(), block_on(later).unwrap());
            assert!(a.is_same(&b) && !a.is_same(&later));
            assert_eq!((&a.head[..], &b.head[..]), (&b"content"[..], &b"content"[..]));
        });
    }

    #[test]
    fn who_waits_for_a_request_that_is_given_up_opens_itself() {
        let settings = OpenSettings::of(&io());
        let key = LookupKey { path: b"/x", symlinks: Symlinks::Follow, settings };
        let fails = Cell::new(false);
        let join = || {
            let open = poll_fn(|_| match fails.get() {
                true => Poll::Ready(Err(io::Error::from_raw_os_error(2))),
                false => Poll::Pending,
            });
            Box::pin(async move {
                match join(key, 0).await {
                    Some(result) => result,
                    None => lead(key, 0, open).await,
                }
            })
        };
        in_a_turn(|| {
            let (mut lead, mut second, mut third) = (join(), join(), join());
            assert!(waits(&mut lead) && waits(&mut second) && waits(&mut third));
            drop(lead);
            // Now the requests are independent, and none waits for the wrong one.
            assert!(waits(&mut second) && waits(&mut third));
            drop(second);
            fails.set(true);
            assert_eq!(block_on(third).err().unwrap().raw_os_error(), Some(2));
        });
    }
}
