//! The stream of reports as server-sent events (HTML Living Standard, 9.2): a body that is pulled.
//!
//! A report is fetched when the previous one was sent, so a slow reader gets fewer of them, and holds one at most, in
//! memory that all its readers share. The stream ends when the worker is told to stop, and when its configuration is
//! replaced, which it would otherwise keep in memory: browsers connect again by themselves.

use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use nowait_http::generation::Generation;
use nowait_http::request::Request;
use nowait_http::response::{BodyError, BodySource, LocalFuture, Part};
use nowait_runtime::sleep;
use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::{is_stopping, stopping};

use super::{feed, is_replaced};

/// Readers of a process at most; further ones get 503.
const READERS_MAX: usize = 1000;

/// How long a stream whose configuration was replaced goes on at most.
const STEP: Duration = Duration::from_secs(1);

/// Begins every stream: a browser connects again after this time, in milliseconds.
const RETRY: &[u8] = b"retry: 1000\n\n";

static READERS: AtomicUsize = AtomicUsize::new(0);

/// One of the readers.
pub struct Reader(());

impl Reader {
    /// Counts a reader, unless there are too many.
    pub fn enter() -> Option<Reader> {
        let more = |count: usize| (count < READERS_MAX).then_some(count + 1);
        READERS.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Reader(()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Relaxed);
    }
}

/// The stream of one reader.
pub struct EventStream {
    generation: Weak<Generation>,
    number: u64,
    address: String,
    interval_ms: u64,
    /// The first line was sent.
    has_begun: bool,
    /// When the next report is due: [`feed::now_ms`].
    due_ms: u64,
    _reader: Reader,
}

impl EventStream {
    /// A stream for this request.
    pub fn new(request: &Request, reader: Reader, interval: Duration) -> EventStream {
        EventStream {
            generation: request.current().generation(),
            number: request.current().number,
            address: request.client().listen.to_string(),
            interval_ms: interval.as_millis() as u64,
            has_begun: false,
            due_ms: 0,
            _reader: reader,
        }
    }

    /// Waits until the next report is due. False: the stream ends.
    async fn wait(&self) -> bool {
        loop {
            if is_stopping() || is_replaced(self.number) {
                return false;
            }
            let left = self.due_ms.saturating_sub(feed::now_ms());
            if left == 0 {
                return true;
            }
            let pause = STEP.min(Duration::from_millis(left));
            if let Either::Left(()) = select(stopping(), sleep(pause)).await {
                return false;
            }
        }
    }

    async fn event(&mut self) -> Option<Bytes> {
        if !self.has_begun {
            self.has_begun = true;
            return Some(Bytes::from_static(RETRY));
        }
        if !self.wait().await {
            return None;
        }
        let generation = self.generation.upgrade()?;
        // All readers have the same beats, and so the same reports.
        let beat_ms = feed::now_ms() / self.interval_ms * self.interval_ms;
        let report = feed::report(&generation, &self.address, beat_ms);
        let event = match select(stopping(), report).await {
            Either::Left(()) => return None,
            Either::Right(event) => event?,
        };
        // Last: the future may be dropped before, and made anew.
        self.due_ms = beat_ms + self.interval_ms;
        Some(event)
    }
}

impl BodySource for EventStream {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async { Ok(self.event().await.map(Part::Bytes)) })
    }

    fn is_urgent(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_bounded() {
        let all: Vec<_> = std::iter::from_fn(Reader::enter).take(READERS_MAX + 1).collect();
        assert_eq!(all.len(), READERS_MAX);
        assert!(Reader::enter().is_none());
        drop(all);
        assert!(Reader::enter().is_some());
    }
}
