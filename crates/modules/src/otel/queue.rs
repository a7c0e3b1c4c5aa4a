//! A worker's spans on their way to the collector: the batch that is being filled, full ones, and the one that is
//! being sent. Bounded: when there is no room, spans are dropped and counted.
//!
//! It outlives configurations: after a reload, the next exporter sends what the previous one has left.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use nowait_backend::collector;

/// A batch is full at this size, bytes, whatever the number of its spans: collectors refuse messages above 4 MB.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The size of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// `batch_size`
    pub spans: usize,
    /// `batch_count`
    pub batches: usize,
}

/// Spans that are sent together: `ScopeSpans { repeated Span spans = 2; }`, encoded.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// How many.
    pub spans: u64,
    /// The spans.
    pub encoded: Bytes,
}

#[derive(Default)]
struct Queue {
    /// The batch that is being filled.
    open: Vec<u8>,
    spans: usize,
    full: VecDeque<Batch>,
    /// A batch is being sent.
    sending: bool,
    /// The task that sends.
    waker: Option<Waker>,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

/// Adds a span, which `write` appends to a batch.
pub fn add(limits: BatchLimits, write: impl FnOnce(&mut Vec<u8>)) {
    QUEUE.with_borrow_mut(|queue| {
        if queue.spans == 0 && queue.full.len() + usize::from(queue.sending) >= limits.batches {
            collector::count_lost(1);
            return;
        }
        write(&mut queue.open);
        queue.spans += 1;
        if queue.spans >= limits.spans || queue.open.len() >= BATCH_BYTES_MAX {
            queue.close();
        }
    });
}

impl Queue {
    /// Ends the batch that is being filled.
    fn close(&mut self) {
        if self.spans > 0 {
            let encoded = Bytes::from(std::mem::take(&mut self.open));
            self.full.push_back(Batch { spans: self.spans as u64, encoded });
            self.spans = 0;
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// Ends the batch that is being filled, if it has spans.
pub fn close() {
    QUEUE.with_borrow_mut(Queue::close);
}

/// Ready when a batch is full.
pub fn poll_full(cx: &Context<'_>) -> Poll<()> {
    QUEUE.with_borrow_mut(|queue| match queue.full.is_empty() {
        false => Poll::Ready(()),
        true => {
            queue.waker = Some(cx.waker().clone());
            Poll::Pending
        }
    })
}

/// A batch that is being sent. Dropped before its end, it is sent again by the next exporter.
pub struct Sending {
    batch: Option<Batch>,
}

/// Takes the oldest full batch.
pub fn take() -> Option<Sending> {
    QUEUE.with_borrow_mut(|queue| {
        let batch = queue.full.pop_front()?;
        queue.sending = true;
        Some(Sending { batch: Some(batch) })
    })
}

impl Sending {
    /// The batch.
    pub fn batch(&self) -> &Batch {
        self.batch.as_ref().expect("it is taken only by `end`")
    }

    /// The collector has taken or refused it.
    pub fn end(mut self) {
        self.batch = None;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // The thread may be at its end.
        let _ = QUEUE.try_with(|queue| {
            let mut queue = queue.borrow_mut();
            queue.sending = false;
            if let Some(batch) = self.batch.take() {
                queue.full.push_front(batch);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits = BatchLimits { spans: 2, batches: 2 };

    fn add_one(byte: u8) {
        add(LIMITS, |out| out.push(byte));
    }

    #[test]
    fn batches_are_bounded_and_survive_their_exporter() {
        let lost = || collector::counts().lost;
        let before = lost();
        for byte in 0..4 {
            add_one(byte);
        }
        assert_eq!(lost(), before);
        add_one(9);
        assert_eq!(lost(), before + 1, "two batches are full");
        let first = take().unwrap();
        assert_eq!((first.batch().spans, &first.batch().encoded[..]), (2, &[0, 1][..]));
        add_one(9);
        assert_eq!(lost(), before + 2, "one is full, and one is being sent");
        drop(first);
        let again = take().unwrap();
        assert_eq!(again.batch().encoded[..], [0, 1]);
        again.end();
        add_one(4);
        close();
        close();
        let rest: Vec<_> = std::iter::from_fn(take)
            .map(|sending| {
                let encoded = sending.batch().encoded.clone();
                sending.end();
                encoded
            })
            .collect();
        assert_eq!(rest, [&[2, 3][..], &[4]]);
    }
}
