//! Tasks: futures that run on their worker's thread until they complete, panic, or are aborted.
//!
//! Task cells come from `async-task`: one allocation per task; wakers may be used on any thread, the future
//! never leaves its own. A panic ends only its own task.
//!
//! Called by all code that spawns. Never moves a task to another thread.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_task::{FallibleTask, Runnable};
use pin_project_lite::pin_project;

use crate::inbox::{Inbox, Message};
use crate::local::{self, Local};

pub use crate::panic::panic_text;

/// Starts a task on this worker. It runs in a later turn, after those that are already queued.
///
/// # Panics
/// When called outside of a worker.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    spawn_on(&local::current(), future)
}

pub(crate) fn spawn_on<F>(local: &Rc<Local>, future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let key = local.tasks.borrow_mut().insert(Waker::noop().clone());
    let registration = Registration { key: key as u32 };
    let future = Registered { future, _registration: registration };
    let inbox = local.inbox.clone();
    let (runnable, task) =
        async_task::spawn_local(future, move |runnable| schedule(runnable, &inbox));
    local.tasks.borrow_mut()[key] = runnable.waker();
    local.enqueue(runnable);
    JoinHandle { task: Some(task.fallible()) }
}

/// Queues a woken task with its worker, through the inbox if called on another thread.
fn schedule(runnable: Runnable, inbox: &Arc<Inbox>) {
    let mut runnable = Some(runnable);
    local::with(|local| {
        if local.inbox.id == inbox.id
            && let Some(runnable) = runnable.take()
        {
            local.enqueue(runnable);
        }
    });
    if let Some(runnable) = runnable
        && let Err(message) = inbox.push(Message::Run(runnable))
    {
        // The worker has ended, and its tasks with it. Dropping the last reference to one here
        // would be dropping it on a foreign thread: leak the empty cell instead.
        std::mem::forget(message);
    }
}

/// Runs one task's next step; a panic becomes a message for the hook.
pub(crate) fn run(runnable: Runnable) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| runnable.run()))
        .map(|_| ())
        .map_err(|payload| panic_text(&*payload).to_owned())
}

/// Drops all tasks of a worker, including waiting ones.
pub(crate) fn drop_all(local: &Rc<Local>) {
    // Dropping a future may spawn or wake others: repeat until none is left. Bounded, in case some
    // task spawns a successor whenever it is dropped.
    for _ in 0..DROP_ROUNDS_MAX {
        let wakers: Vec<Waker> = local.tasks.borrow().iter().map(|(_, w)| w.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
        let runnables = std::mem::take(&mut *local.queue.borrow_mut());
        for runnable in runnables {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(runnable)));
            if let Err(panic) = dropped {
                local.hooks.task_panicked(panic_text(&*panic));
            }
        }
        if local.tasks.borrow().is_empty() && local.queue.borrow().is_empty() {
            return;
        }
    }
}

/// Maximum number of rounds of [`drop_all`] for tasks that appear while tasks are dropped.
const DROP_ROUNDS_MAX: usize = 1000;

/// Keeps a task in its worker's list for as long as its future exists. The future is dropped on its
/// worker's thread, while the worker is there.
struct Registration {
    key: u32,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let waker = local::with(|local| local.tasks.borrow_mut().try_remove(self.key as usize));
        drop(waker);
    }
}

pin_project! {
    /// A task's future with its registration, which is dropped last.
    struct Registered<F> {
        #[pin]
        future: F,
        _registration: Registration,
    }
}

impl<F: Future> Future for Registered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

/// A spawned task. Awaiting it yields its output, or [`JoinError`] if it panicked or was aborted.
/// Dropping the handle detaches the task, which continues to run.
pub struct JoinHandle<T> {
    task: Option<FallibleTask<T>>,
}

impl<T> JoinHandle<T> {
    /// Ends the task: its future is dropped in this turn, not now.
    pub fn abort(mut self) {
        drop(self.task.take());
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &mut self.task else { return Poll::Ready(Err(JoinError)) };
        Pin::new(task).poll(cx).map(|output| output.ok_or(JoinError))
    }
}

/// The task ended without an output: it panicked, was aborted, or its worker was forced to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinError;

impl std::fmt::Display for JoinError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("task ended without an output")
    }
}

impl std::error::Error for JoinError {}

/// Yields to the other tasks and to I/O.
pub fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// The first of two futures to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one's output.
    Left(A),
    /// The second one's output.
    Right(B),
}

/// Waits for the first of two futures and drops the other. If both are ready, the first wins.
pub fn select<A: Future, B: Future>(a: A, b: B) -> Select<A, B> {
    Select { a, b }
}

pin_project! {
    /// The future of [`select`].
    pub struct Select<A, B> {
        #[pin]
        a: A,
        #[pin]
        b: B,
    }
}

impl<A: Future, B: Future> Future for Select<A, B> {
    type Output = Either<A::Output, B::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.a.poll(cx) {
            return Poll::Ready(Either::Left(output));
        }
        this.b.poll(cx).map(Either::Right)
    }
}
