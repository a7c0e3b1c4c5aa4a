//! Pool time of one request: how long its tasks waited for a thread, and how long they ran there.
//!
//! Each worker adds up the times of the tasks that it awaited. [`metered`] wraps a future and takes
//! what was added while that future was polled, so that results awaited meanwhile by other tasks of
//! the same worker do not count. Work that a request leaves to separate tasks (a log, the removal
//! of a temporary file) is not charged to it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

/// Time that tasks spent in pools. Kept in nanoseconds, which are added for every request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTimes {
    waited: u64,
    served: u64,
}

impl PoolTimes {
    pub(super) fn new(waited: Duration, served: Duration) -> PoolTimes {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        PoolTimes { waited: nanos(waited), served: nanos(served) }
    }

    /// In queues, until a thread took them.
    pub fn waited(self) -> Duration {
        Duration::from_nanos(self.waited)
    }

    /// On threads: mostly the disk's time.
    pub fn served(self) -> Duration {
        Duration::from_nanos(self.served)
    }
}

impl Add for PoolTimes {
    type Output = PoolTimes;

    fn add(self, other: PoolTimes) -> PoolTimes {
        PoolTimes {
            waited: self.waited.saturating_add(other.waited),
            served: self.served.saturating_add(other.served),
        }
    }
}

impl Sub for PoolTimes {
    type Output = PoolTimes;

    fn sub(self, other: PoolTimes) -> PoolTimes {
        PoolTimes {
            waited: self.waited.saturating_sub(other.waited),
            served: self.served.saturating_sub(other.served),
        }
    }
}

thread_local! {
    /// Sum over all tasks that this thread has awaited.
    static TOTAL: Cell<PoolTimes> = const { Cell::new(PoolTimes { waited: 0, served: 0 }) };
    /// The pool of the last of them.
    static LAST: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Called when the result of a task of this pool arrives on this thread.
pub(super) fn add(spent: PoolTimes, pool: &Arc<str>) {
    TOTAL.set(TOTAL.get() + spent);
    LAST.with_borrow_mut(|last| match last {
        Some(last) if Arc::ptr_eq(last, pool) => {}
        last => *last = Some(pool.clone()),
    });
}

fn last_pool() -> Option<Arc<str>> {
    LAST.with_borrow(Clone::clone)
}

/// The account of one request.
#[derive(Debug, Default)]
pub struct Meter {
    spent: Cell<PoolTimes>,
    /// The thread's total when the present poll began.
    since: Cell<PoolTimes>,
    /// The pool of the last task.
    pool: RefCell<Option<Arc<str>>>,
}

impl Meter {
    /// Time spent so far; only valid inside the future that [`metered`] made with this meter.
    pub fn spent(&self) -> PoolTimes {
        self.spent.get() + (TOTAL.get() - self.since.get())
    }

    /// The name of the pool that the last task was in; valid where [`spent`](Self::spent) is.
    pub fn pool(&self) -> Option<Arc<str>> {
        match TOTAL.get() == self.since.get() {
            true => self.pool.borrow().clone(),
            false => last_pool(),
        }
    }

    /// Restarts from zero.
    pub fn reset(&self) {
        self.pool.take();
        self.spent.set(PoolTimes::default());
        self.since.set(TOTAL.get());
    }
}

/// Measures what `future` spends in pools.
pub fn metered<F: Future>(meter: Rc<Meter>, future: F) -> Metered<F> {
    Metered { meter, future }
}

pin_project! {
    /// The future of [`metered`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Metered<F> {
        meter: Rc<Meter>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.meter.since.set(TOTAL.get());
        let result = this.future.poll(cx);
        // Most polls await no pool result.
        let (since, total) = (this.meter.since.get(), TOTAL.get());
        if total != since {
            this.meter.spent.set(this.meter.spent.get() + (total - since));
            this.meter.since.set(total);
            *this.meter.pool.borrow_mut() = last_pool();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn spend(waited: u64, served: u64) -> PoolTimes {
        PoolTimes::new(Duration::from_millis(waited), Duration::from_millis(served))
    }

    #[test]
    fn only_what_the_future_awaited_counts() {
        let meter = Rc::new(Meter::default());
        let seen = Rc::new(Cell::new(PoolTimes::default()));
        let pool = |name: &str| Arc::<str>::from(name);
        let inner = {
            let (meter, seen) = (meter.clone(), seen.clone());
            async move {
                add(spend(1, 10), &pool("first"));
                crate::yield_now().await;
                add(spend(2, 20), &pool("second"));
                seen.set(meter.spent());
            }
        };
        let mut future = std::pin::pin!(metered(meter.clone(), inner));
        let mut cx = Context::from_waker(Waker::noop());
        add(spend(100, 100), &pool("other"));
        assert!(future.as_mut().poll(&mut cx).is_pending());
        add(spend(100, 100), &pool("other"));
        assert_eq!(meter.spent.get(), spend(1, 10));
        assert_eq!(meter.pool.borrow().as_deref(), Some("first"));
        assert!(future.as_mut().poll(&mut cx).is_ready());
        assert_eq!((seen.get(), meter.spent.get()), (spend(3, 30), spend(3, 30)));
        assert_eq!(meter.pool().as_deref(), Some("second"));
        meter.reset();
        assert_eq!((meter.spent(), meter.pool()), (PoolTimes::default(), None));
    }
}
