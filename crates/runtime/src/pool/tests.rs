//! The pool with real threads: limits, order, cancellation, failures.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::*;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn pool(threads: usize, max_queue: usize) -> Pool {
    Pool::new(PoolConfig { name: String::from("test"), threads, max_queue })
}

/// Work that reports its start and then blocks until `release` is dropped or signalled.
fn held(started: &Sender<()>) -> (impl FnOnce() + Send + 'static, Sender<()>) {
    let started = started.clone();
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let work = move || {
        started.send(()).unwrap();
        let _ = wait.recv();
    };
    (work, release)
}

#[test]
fn result_comes_back() {
    let pool = pool(2, 10);
    assert_eq!(block_on(pool.run(Class::Path, 1, Op::Stat, || 40 + 2)), Ok(42));
    assert_eq!(block_on(blocking(&pool, || "done")), Ok("done"));
    let snapshot = pool.snapshot();
    assert_eq!((snapshot.busy, snapshot.queued), (0, 0));
    let stat = snapshot.ops.iter().find(|ops| ops.op == Op::Stat).unwrap();
    assert_eq!((stat.started, stat.completed), (1, 1));
}

#[test]
fn threads_start_on_demand_and_are_named() {
    let pool = pool(32, 10);
    assert_eq!(pool.snapshot().threads_alive, 0);
    let name = block_on(blocking(&pool, || std::thread::current().name().map(str::to_owned)));
    assert_eq!(name.unwrap().as_deref(), Some("test"));
    assert_eq!(pool.snapshot().threads_alive, 1);
}

#[test]
fn overflow_says_how_many_wait() {
    let pool = pool(1, 2);
    let (started, is_started) = channel();
    let (work, release) = held(&started);
    let running = blocking(&pool, work);
    is_started.recv().unwrap();
    let queued = [blocking(&pool, || ()), blocking(&pool, || ())];
    let error = block_on(blocking(&pool, || ())).unwrap_err();
    assert_eq!(error.to_string(), "thread pool \"test\" queue overflow: 2 tasks waiting");
    let error = io::Error::from(error);
    assert!(matches!(PoolError::of(&error), Some(PoolError::Overflow { waiting: 2, .. })));
    drop(release);
    block_on(running).unwrap();
    for task in queued {
        assert_eq!(block_on(task), Ok(()), "what was accepted still completes");
    }
    assert_eq!(pool.snapshot().ops[0].overflowed, 1);
}

#[test]
fn no_queue_takes_as_many_as_free_threads() {
    let pool = pool(3, 0);
    let (started, is_started) = channel();
    for _ in 0..20 {
        let (tasks, releases): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| {
                let (work, release) = held(&started);
                (pool.run(Class::Bulk, 7, Op::Read, work), release)
            })
            .unzip();
        assert!(matches!(
            block_on(pool.run(Class::Path, 8, Op::Open, || ())),
            Err(PoolError::Overflow { waiting: _, .. })
        ));
        (0..3).for_each(|_| is_started.recv().unwrap());
        drop(releases);
        for task in tasks {
            assert_eq!(block_on(task), Ok(()));
        }
        // A result is seen only once its thread counts as free.
        assert_eq!(pool.snapshot().busy, 0);
    }
}

#[test]
fn dropping_the_future_frees_its_place() {
    let pool = pool(1, 1);
    let (started, is_started) = channel();
    let (work, release) = held(&started);
    let running = blocking(&pool, work);
    is_started.recv().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = |ran: &Arc<AtomicUsize>| {
        let ran = ran.clone();
        move || {
            ran.fetch_add(1, SeqCst);
        }
    };
    for _ in 0..10 {
        let cancelled = blocking(&pool, count(&ran));
        assert_eq!(pool.snapshot().queued, 1);
        drop(cancelled);
        assert_eq!(pool.snapshot().queued, 0);
    }
    let kept = blocking(&pool, count(&ran));
    drop(running);
    drop(release);
    block_on(kept).unwrap();
    assert_eq!(ran.load(SeqCst), 1);
    assert_eq!(pool.snapshot().ops[0].cancelled, 10);
}

#[test]
fn panic_is_the_callers_error() {
    let pool = pool(1, 10);
    let error = block_on(blocking(&pool, || -> () { panic!("broken {}", 7) })).unwrap_err();
    assert_eq!(error.to_string(), "task in thread pool \"test\" panicked: broken 7");
    assert_eq!(block_on(blocking(&pool, || 1)), Ok(1), "the thread lives on");
}

#[test]
fn path_task_is_not_behind_a_flood_of_one_key() {
    let pool = pool(4, 10_000);
    let (started, is_started) = channel();
    let (tasks, releases): (Vec<_>, Vec<_>) = (0..1000)
        .map(|_| {
            let (work, release) = held(&started);
            (pool.run(Class::Bulk, 1, Op::Read, work), release)
        })
        .unzip();
    (0..2).for_each(|_| is_started.recv().unwrap());
    assert_eq!(block_on(pool.run(Class::Path, 2, Op::Open, || 5)), Ok(5));
    assert_eq!(block_on(pool.run(Class::Bulk, 3, Op::Read, || 6)), Ok(6), "another key too");
    assert_eq!(pool.snapshot().busy, 2, "the flood never had more than its share");
    drop(releases);
    for task in tasks {
        block_on(task).unwrap();
    }
}

#[test]
fn shutdown_does_not_wait() {
    let pool = pool(1, 10);
    let (started, is_started) = channel();
    let (work, release) = held(&started);
    let running = blocking(&pool, work);
    is_started.recv().unwrap();
    let queued = blocking(&pool, || 1);
    pool.shutdown_now();
    assert!(matches!(block_on(queued), Err(PoolError::ShutDown { .. })));
    assert!(matches!(block_on(blocking(&pool, || 1)), Err(PoolError::ShutDown { .. })));
    drop(release);
    assert_eq!(block_on(running), Ok(()));
}

#[test]
fn dropping_the_pool_finishes_what_was_accepted() {
    let pool = pool(2, 100);
    let tasks: Vec<_> = (0..50).map(|n| blocking(&pool, move || n)).collect();
    drop(pool);
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(block_on(task), Ok(n));
    }
}

#[test]
fn many_callers_lose_nothing() {
    let pool = pool(8, 100_000);
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let pool = pool.clone();
            std::thread::spawn(move || {
                for n in 0..500_u64 {
                    let class = if n % 3 == 0 { Class::Path } else { Class::Bulk };
                    drop(pool.run(class, n % 5, Op::Read, || ()));
                    let task = pool.run(class, caller * 7 + n % 3, Op::Read, move || n);
                    assert_eq!(block_on(task), Ok(n));
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    // An abandoned task may still be on a thread; shutting down and reading once more settles it.
    let read = |snapshot: PoolSnapshot| {
        let ops = &snapshot.ops[0];
        (ops.started + ops.cancelled, snapshot.queued)
    };
    assert_eq!(read(pool.snapshot()), (4000, 0));
    let wait = Duration::from_secs(10);
    let begin = Instant::now();
    while pool.snapshot().busy > 0 {
        assert!(begin.elapsed() < wait);
        std::thread::yield_now();
    }
}
