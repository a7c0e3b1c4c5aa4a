//! The client's side of a body that is read ahead ([`pump`](super::pump)), and the queue between both sides.
//!
//! Created by the pump; the front end takes parts from it at the client's pace.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use nowait_http::exchange::Watch;
use nowait_http::response::{BodyError, BodySource, LocalFuture, PATIENCE, Part};
use nowait_runtime::net::Piped;
use nowait_runtime::task::JoinHandle;
use nowait_runtime::{now, spawn};

use super::body::from_pipe;
use super::exchange::{Attempt, More};
use super::pump::Reading;

/// State shared by both sides.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) parts: RefCell<VecDeque<Part>>,
    /// The content after `parts`, which is being written to the file.
    pub(super) writing: RefCell<VecDeque<Bytes>>,
    /// Bytes of it that the client's side has taken meanwhile.
    pub(super) overtaken: Cell<u64>,
    /// Bytes in memory, including those last taken by the client's side.
    pub(super) in_memory: Cell<u64>,
    /// Bytes in memory last taken by the client's side.
    pub(super) taken: Cell<u64>,
    /// The time of the last request for content by the client's side.
    pub(super) asked: Cell<Option<Instant>>,
    pub(super) end: RefCell<Option<Result<(), BodyError>>>,
    /// The client's side was dropped.
    pub(super) abandoned: Cell<bool>,
    /// Whether the rest then has another user.
    pub(super) outlives: Cell<bool>,
    pub(super) reader: RefCell<Option<Waker>>,
    pub(super) writer: RefCell<Option<Waker>>,
}

impl Queue {
    pub(super) fn push(&self, part: Part) {
        if self.abandoned.get() {
            return;
        }
        if let Part::Bytes(bytes) = &part {
            self.in_memory.set(self.in_memory.get() + bytes.len() as u64);
        }
        self.parts.borrow_mut().push_back(part);
        wake(&self.reader);
    }

    /// The next part; at most `busy_max` bytes from memory, so that the rest can go to the file while they
    /// are sent. After the whole body has arrived, this limit is pointless.
    fn take(&self, busy_max: usize) -> Option<Part> {
        let mut parts = self.parts.borrow_mut();
        let Some(mut part) = parts.pop_front() else { return self.overtake() };
        if let Part::Bytes(bytes) = &mut part {
            if bytes.len() > busy_max && self.end.borrow().is_none() {
                parts.push_front(Part::Bytes(bytes.split_off(busy_max)));
            }
            self.taken.set(bytes.len() as u64);
        }
        Some(part)
    }

    /// Takes content from memory that is being written to the file.
    fn overtake(&self) -> Option<Part> {
        let bytes = self.writing.borrow_mut().pop_front()?;
        self.overtaken.set(self.overtaken.get() + bytes.len() as u64);
        self.taken.set(bytes.len() as u64);
        Some(Part::Bytes(bytes))
    }

    /// Whether the client's side has taken all content and waits for more, or was dropped. Otherwise the
    /// task is woken when the client's side returns.
    pub(super) fn has_caught_up(&self, cx: &mut Context<'_>) -> bool {
        let is_empty = self.parts.borrow().is_empty() && self.writing.borrow().is_empty();
        if self.abandoned.get() || (is_empty && self.reader.borrow().is_some()) {
            return true;
        }
        *self.writer.borrow_mut() = Some(cx.waker().clone());
        false
    }

    /// Whether the client's side has taken all content and waits for more.
    pub(super) fn keeps_up(&self) -> bool {
        self.parts.borrow().is_empty() && self.reader.borrow().is_some()
    }

    pub(super) fn finish(&self, end: Result<(), BodyError>) {
        self.end.borrow_mut().get_or_insert(end);
        wake(&self.reader);
    }

    /// The bytes last taken by the client's side were sent.
    fn sent(&self) {
        let taken = self.taken.take();
        if taken > 0 {
            self.in_memory.set(self.in_memory.get() - taken);
            wake(&self.writer);
        }
    }
}

pub(super) fn wake(place: &RefCell<Option<Waker>>) {
    if let Some(waker) = place.borrow_mut().take() {
        waker.wake();
    }
}

/// Who receives the content.
pub(super) enum Reader {
    /// The task, which may end with the client.
    Task(JoinHandle<()>),
    /// The task, from the next turn on, unless the client's side takes its place before.
    Undecided(JoinHandle<()>, Rc<RefCell<Option<Box<Reading>>>>),
    /// The client's side, through pipes.
    Client(Box<Reading>),
    /// All of it has arrived.
    Ended,
}

impl Reader {
    pub(super) fn undecided(reading: Box<Reading>) -> Self {
        let place = Rc::new(RefCell::new(Some(reading)));
        let task = spawn({
            let place = place.clone();
            async move {
                let reading = place.take();
                if let Some(reading) = reading {
                    reading.run().await;
                }
            }
        });
        Self::Undecided(task, place)
    }

    /// Takes the task's place if it has not begun.
    fn claim(&mut self) -> Option<&mut Reading> {
        if let Self::Undecided(_, place) = self {
            let reading = place.take();
            let Self::Undecided(task, _) = std::mem::replace(self, Self::Ended) else {
                return None;
            };
            *self = reading.map_or(Self::Task(task), Self::Client);
        }
        match self {
            Self::Client(reading) => Some(reading),
            _ => None,
        }
    }

    /// Leaves what the client's side has not received to the task.
    fn resign(&mut self, queue: &Queue) {
        let Self::Client(reading) = std::mem::replace(self, Self::Ended) else { return };
        match reading.is_done() {
            true => queue.finish(Ok(())),
            false => *self = Self::Task(spawn(reading.run())),
        }
    }
}

/// The client's side.
pub(super) struct Ahead {
    pub(super) queue: Rc<Queue>,
    /// `busy_buffers_size`: memory that a slow client may hold.
    pub(super) busy_max: usize,
    /// When the last part was returned.
    pub(super) handed: Option<Instant>,
    pub(super) reader: Reader,
    /// The received bytes, for the client's log line.
    pub(super) attempt: Attempt,
    pub(super) _watch: Option<Watch>,
}

impl Ahead {
    async fn receive_piped(&mut self) -> Result<Option<Piped>, BodyError> {
        let Reader::Client(reading) = &mut self.reader else { return Ok(None) };
        let received = reading.receive_piped().await;
        self.handed = Some(now());
        received
    }
}

impl BodySource for Ahead {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        if matches!(self.reader, Reader::Client(_)) && self.queue.parts.borrow().is_empty() {
            self.reader.resign(&self.queue);
        }
        let Self { queue, busy_max, handed, .. } = self;
        let now = now();
        queue.sent();
        queue.asked.set(Some(now));
        wake(&queue.writer);
        // A client that keeps up gets pieces of any size: this costs least, and their memory is
        // freed at once.
        let is_slow = handed.is_some_and(|at| now.saturating_duration_since(at) >= PATIENCE);
        let busy_max = if is_slow { *busy_max } else { usize::MAX };
        Box::pin(poll_fn(move |cx| {
            if let Some(part) = queue.take(busy_max) {
                *handed = Some(nowait_runtime::now());
                return Poll::Ready(Ok(Some(part)));
            }
            match &mut *queue.end.borrow_mut() {
                None => {}
                Some(end @ Ok(())) => {
                    let _ = end;
                    return Poll::Ready(Ok(None));
                }
                Some(end) => return Poll::Ready(std::mem::replace(end, Ok(())).map(|()| None)),
            }
            *queue.reader.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn next_piped(&mut self) -> Option<LocalFuture<'_, Result<Option<Piped>, BodyError>>> {
        let reading = self.reader.claim()?;
        let has_more = matches!(reading.more, More::Yes);
        self.queue.sent();
        self.queue.asked.set(Some(now()));
        let is_next = has_more && self.queue.parts.borrow().is_empty();
        is_next.then(|| Box::pin(self.receive_piped()) as LocalFuture<'_, _>)
    }

    fn put_back(&mut self, rest: Piped) -> Result<(), BodyError> {
        for piece in from_pipe(rest)? {
            self.queue.push(Part::Bytes(piece));
        }
        if let Reader::Client(reading) = &mut self.reader {
            reading.fell_behind();
        }
        self.reader.resign(&self.queue);
        Ok(())
    }

    /// A client behind a buffer need not get data early.
    fn is_urgent(&self) -> bool {
        false
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The task ends after the client's log line is written, or continues.
        self.attempt.left();
        self.queue.abandoned.set(true);
        self.queue.parts.borrow_mut().clear();
        self.queue.writing.borrow_mut().clear();
        wake(&self.queue.writer);
        if self.queue.outlives.get() {
            return;
        }
        match std::mem::replace(&mut self.reader, Reader::Ended) {
            Reader::Task(task) | Reader::Undecided(task, _) => task.abort(),
            Reader::Client(_) | Reader::Ended => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_memory_is_limited_until_the_body_is_complete() {
        let queue = Queue::default();
        queue.push(Part::Bytes(Bytes::from(vec![1; 100])));
        let lens = |count: usize, max| {
            let part = |_| queue.take(max).map_or(0, |part| part.len());
            (0..count).map(part).collect::<Vec<_>>()
        };
        assert_eq!(lens(2, 30), [30, 30]);
        assert_eq!((queue.in_memory.get(), queue.taken.get()), (100, 30));
        queue.finish(Ok(()));
        assert_eq!(lens(2, 30), [40, 0]);
        queue.push(Part::Bytes(Bytes::from(vec![1; 100])));
        assert_eq!(lens(1, usize::MAX), [100]);
    }
}
