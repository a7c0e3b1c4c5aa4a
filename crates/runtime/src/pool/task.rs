//! One task from submission to result: the cell shared by its future and its thread.
//!
//! Stages: `Waiting` → `Running` → `Executed` → `Done` → `Gone`, or `Gone` at once when the future is
//! dropped. The future sees its result when it is `Done`: then the pool has counted the thread as
//! free. The lock is held only to move between stages, never while the work runs.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::queue::Ticket;
use super::{Inner, Op, PoolError, PoolTimes, lock, pool_times};
use crate::panic::panic_text;

/// The pool's view of a task.
pub(super) trait Job: Send + Sync {
    /// Runs the work, after `waited` in the queue, and keeps the result to itself.
    fn execute(&self, waited: Duration) -> Executed;
    /// Completes the future with the result of [`execute`](Job::execute). The pool calls this once
    /// it has updated its accounts, so that the code that sees the result finds the thread free.
    fn publish(&self);
    /// Completes the future with `error` instead of running the work.
    fn refuse(&self, error: PoolError);
}

/// The result of a task.
pub(super) struct Executed {
    pub panicked: bool,
    /// The duration of the work.
    pub served: Duration,
}

/// The future's view of a task.
trait TaskOutcome<T>: Job {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, PoolError>>;
    /// Drops work and result. The work may be running; its result is then dropped there.
    fn abandon(&self);
}

enum TaskStage<F, T> {
    Waiting { work: F, waker: Option<Waker> },
    Running { waker: Option<Waker> },
    Executed { result: Result<T, PoolError>, spent: PoolTimes, waker: Option<Waker> },
    Done(Result<T, PoolError>, PoolTimes),
    Gone,
}

pub(super) struct TaskCell<F, T> {
    pool: Arc<str>,
    stage: Mutex<TaskStage<F, T>>,
}

impl<F, T> TaskCell<F, T> {
    pub(super) fn new(pool: Arc<str>, work: F) -> TaskCell<F, T> {
        TaskCell { pool, stage: Mutex::new(TaskStage::Waiting { work, waker: None }) }
    }

    /// Moves to the stage that `next` makes of the present one, and returns what it leaves over.
    fn advance<R>(&self, next: impl FnOnce(TaskStage<F, T>) -> (TaskStage<F, T>, R)) -> R {
        let mut stage = lock(&self.stage);
        let (next, rest) = next(std::mem::replace(&mut *stage, TaskStage::Gone));
        *stage = next;
        rest
    }
}

impl<F, T> Job for TaskCell<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn execute(&self, waited: Duration) -> Executed {
        let begin = Instant::now();
        let work = self.advance(|stage| match stage {
            TaskStage::Waiting { work, waker } => (TaskStage::Running { waker }, Some(work)),
            other => (other, None),
        });
        let Some(work) = work else { return Executed { panicked: false, served: Duration::ZERO } };
        // AssertUnwindSafe: the captured values are dropped with the work and not used again.
        let result = catch_unwind(AssertUnwindSafe(work)).map_err(|payload| PoolError::Panicked {
            name: self.pool.clone(),
            message: panic_text(&*payload).to_owned(),
        });
        let panicked = result.is_err();
        let served = begin.elapsed();
        let spent = PoolTimes::new(waited, served);
        let unwanted = self.advance(|stage| match stage {
            TaskStage::Running { waker } => (TaskStage::Executed { result, spent, waker }, None),
            other => (other, Some(result)),
        });
        // If the future was dropped, the result is dropped here, off the loop.
        drop(unwanted);
        Executed { panicked, served }
    }

    fn publish(&self) {
        let waker = self.advance(|stage| match stage {
            TaskStage::Executed { result, spent, waker } => (TaskStage::Done(result, spent), waker),
            other => (other, None),
        });
        waker.into_iter().for_each(Waker::wake);
    }

    fn refuse(&self, error: PoolError) {
        let (waker, work) = self.advance(|stage| match stage {
            TaskStage::Waiting { work, waker } => {
                (TaskStage::Done(Err(error), PoolTimes::default()), (waker, Some(work)))
            }
            other => (other, (None, None)),
        });
        drop(work);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<F, T> TaskOutcome<T> for TaskCell<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, PoolError>> {
        let mut stage = lock(&self.stage);
        match &mut *stage {
            TaskStage::Waiting { waker, .. }
            | TaskStage::Running { waker }
            | TaskStage::Executed { waker, .. } => {
                match waker {
                    Some(known) => known.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            TaskStage::Done(..) => match std::mem::replace(&mut *stage, TaskStage::Gone) {
                TaskStage::Done(result, time) => {
                    pool_times::add(time, &self.pool);
                    Poll::Ready(result)
                }
                _ => Poll::Ready(Err(PoolError::ShutDown { name: self.pool.clone() })),
            },
            TaskStage::Gone => Poll::Ready(Err(PoolError::ShutDown { name: self.pool.clone() })),
        }
    }

    fn abandon(&self) {
        let old = std::mem::replace(&mut *lock(&self.stage), TaskStage::Gone);
        drop(old);
    }
}

/// The future of a task given to a pool by [`Pool::run`](super::Pool::run).
///
/// The task is submitted before the first poll. Dropping the future removes the task from the
/// queue, or, if it has started, has its result dropped on the pool's thread.
#[must_use = "dropping the future cancels the task"]
pub struct TaskFuture<T> {
    state: RunState<T>,
}

enum RunState<T> {
    Queued { task: Arc<dyn TaskOutcome<T>>, pool: Arc<Inner>, ticket: Ticket, op: Op },
    Refused(PoolError),
    Finished,
}

impl<T: Send + 'static> TaskFuture<T> {
    pub(super) fn queued<F>(
        task: Arc<TaskCell<F, T>>,
        pool: Arc<Inner>,
        ticket: Ticket,
        op: Op,
    ) -> TaskFuture<T>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        TaskFuture { state: RunState::Queued { task, pool, ticket, op } }
    }

    pub(super) fn refused(error: PoolError) -> TaskFuture<T> {
        TaskFuture { state: RunState::Refused(error) }
    }
}

// No field is pinned.
impl<T> Unpin for TaskFuture<T> {}

impl<T> Future for TaskFuture<T> {
    type Output = Result<T, PoolError>;

    /// # Panics
    /// When polled again after completion.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let RunState::Queued { task, .. } = &self.state {
            let outcome = task.poll(cx);
            if outcome.is_ready() {
                self.state = RunState::Finished;
            }
            return outcome;
        }
        match std::mem::replace(&mut self.state, RunState::Finished) {
            RunState::Refused(error) => Poll::Ready(Err(error)),
            _ => panic!("a pool task was polled after completion"),
        }
    }
}

impl<T> Drop for TaskFuture<T> {
    fn drop(&mut self) {
        if let RunState::Queued { task, pool, ticket, op } = &self.state {
            pool.cancel(*ticket, *op);
            task.abandon();
        }
    }
}
