//! The task that watches a worker's idle connections.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nowait_runtime::time::{Sleep, sleep_until};
use nowait_runtime::worker;

use super::connection::{ActivityWatch, IdleConnection};
use super::pools::{POOLS, Pools};
use super::wakeup::{WAKEUP, Watch};

/// The sleep of the reaper without a deadline: practically forever.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Makes the connection wake the reaper when it is kept for this peer; returns its number.
pub(super) fn watch(connection: &mut IdleConnection, peer: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if let Some(watched) = &connection.watched
        && watched.peer == peer
    {
        return watched.serial;
    }
    let wakeup = WAKEUP.with(Arc::clone);
    let serial = NEXT.fetch_add(1, Relaxed);
    let waker = Waker::from(Arc::new(Watch { peer, serial, wakeup }));
    connection.watched = Some(ActivityWatch { peer, serial, waker });
    serial
}

/// Begins to watch a connection; true if there is activity already.
pub(super) fn has_something(connection: &IdleConnection) -> bool {
    let Some(ActivityWatch { waker, .. }) = &connection.watched else { return false };
    connection.stream.poll_quiet(&mut Context::from_waker(waker)).is_ready()
}

/// Makes sure that the reaper runs; wakes it if it has to check again.
pub(super) fn start_or_wake(wake: bool) {
    if !RUNS.replace(true) {
        drop(nowait_runtime::spawn(keep()));
    } else if wake {
        WAKEUP.with(|wakeup| wakeup.ring(None));
    }
}

/// Closes all connections when the reaper ends, even if it is cancelled.
struct ReaperGuard;

impl Drop for ReaperGuard {
    fn drop(&mut self) {
        RUNS.set(false);
        let all = POOLS.with_borrow_mut(Pools::clear);
        drop(all);
    }
}

/// The reaper: runs until the worker is told to stop.
async fn keep() {
    let _runs = ReaperGuard;
    let mut stopping = pin!(worker::stopping());
    let mut sleep = sleep_until(nowait_runtime::now() + FOR_EVER);
    std::future::poll_fn(move |cx| {
        if stopping.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        look(cx);
        doze(&mut sleep, cx);
        Poll::Pending
    })
    .await;
}

/// Closes the connections with activity.
fn look(cx: &Context<'_>) {
    for (peer, serial) in WAKEUP.with(|wakeup| wakeup.listen(cx)) {
        let closed = POOLS.with_borrow_mut(|pools| {
            let entry = pools.get(peer, serial)?;
            // Wake-ups may be spurious.
            if has_something(&entry.connection) { pools.remove(peer, serial) } else { None }
        });
        drop(closed);
    }
}

/// Closes connections that were idle for too long, and sleeps until the next one is.
fn doze(sleep: &mut Sleep, cx: &mut Context<'_>) {
    loop {
        let now = nowait_runtime::now();
        let (closed, alarm) = POOLS.with_borrow_mut(|pools| (pools.expire(now), pools.alarm()));
        drop(closed);
        sleep.reset(alarm.unwrap_or(now + FOR_EVER));
        if Pin::new(&mut *sleep).poll(cx).is_pending() {
            return;
        }
    }
}
