//! A body that is read ahead of its client: into memory, then into a temporary file, then not at all.
//!
//! A separate task reads, so that the upstream is free as soon as it has sent everything. The client's
//! side ([`Ahead`]) takes from the queue between them. While it keeps up, pieces are large and stay in
//! memory. When it does not, memory holds at most `buffers`, and the rest goes to the file in steps of
//! `temp_file_write_size`, through the location's pool. A client that catches up with a write in
//! progress is served from memory, and does not wait for the disk. nginx: `ngx_event_pipe.c`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_http::exchange::Watch;
use nowait_http::log::Level;
use nowait_http::response::{BodyError, BodySource, LocalFuture, Part};
use nowait_http::temp_file::TempFile;
use nowait_runtime::buf::{LARGE_BUF_BYTES, RECV_BUF_BYTES, ReceivedBuf};
use nowait_runtime::fs::Io;
use nowait_runtime::task::{JoinError, JoinHandle};
use nowait_runtime::time::timeout;
use nowait_runtime::{now, sleep, spawn, yield_now};

use super::body::{broken, unreceived};
use super::exchange::{Attempt, More, ReceiveFault, UpstreamExchange};
use super::settings::Settings;
use super::{Cause, Fault, Tee};

/// How often the rest of a response that broke off is fetched; each time must bring something.
const RESUMES_MAX: u32 = 3;

/// The smallest piece for a client that keeps up.
const PIECE_BYTES_MIN: usize = LARGE_BUF_BYTES / 4;

/// Bytes of content that may be in memory whatever `buffers` says: one piece.
const MEMORY_BYTES_MIN: u64 = PIECE_BYTES_MIN as u64;

/// At least this much is received at once, however little may still be in memory.
const RECEIVE_BYTES_MIN: usize = 8 * 1024;

/// A client that has taken nothing for this long is slow: its further content goes to the file. A
/// shorter delay may only mean that its task, or the kernel, was not scheduled yet.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);

/// How much is received at once for a client that has taken this many bytes since it was last slow. A
/// client that stops reading holds all the memory of the last piece. So a piece is at most four fifths
/// of what the client has taken, and exactly as large as its memory.
pub(super) fn portion(taken: u64) -> usize {
    match taken / (PIECE_BYTES_MIN as u64 / 2) {
        0..5 => PIECE_BYTES_MIN,
        5..12 => 2 * PIECE_BYTES_MIN,
        12.. => LARGE_BUF_BYTES,
    }
}

/// The components of a pump.
pub(super) struct Plan {
    pub(super) exchange: Box<UpstreamExchange>,
    pub(super) more: More,
    pub(super) first: VecDeque<Part>,
    pub(super) tee: Option<Box<dyn Tee>>,
    pub(super) limit_rate: u64,
    pub(super) io: Rc<Io>,
    pub(super) watch: Option<Watch>,
}

/// Starts the reading task; returns the client's side.
pub(super) fn start(plan: Plan) -> Box<dyn BodySource> {
    let Plan { exchange, more, first, tee, limit_rate, io, watch } = plan;
    let queue = Rc::new(Queue::default());
    let busy_max = usize::try_from(exchange.settings.busy_buffers_size).unwrap_or(usize::MAX);
    queue.asked.set(Some(now()));
    first.iter().for_each(|part| queue.in_memory.set(queue.in_memory.get() + part.len()));
    queue.outlives.set(tee.as_ref().is_some_and(|tee| tee.outlives_client()));
    let early: Vec<Bytes> = match &tee {
        None => Vec::new(),
        Some(_) => first.iter().filter_map(bytes_of).collect(),
    };
    *queue.parts.borrow_mut() = first;
    let attempt = exchange.attempt();
    let pump = Pump {
        exchange,
        queue: queue.clone(),
        tee,
        rate: Rate::new(limit_rate),
        io,
        file: None,
        file_full: false,
        writing: None,
        slow_at: 0,
        started: now(),
    };
    let task = spawn(pump.run(more, early));
    let task = Some(task);
    Box::new(Ahead { queue, task, attempt, busy_max, handed: None, _watch: watch })
}

pub(super) fn bytes_of(part: &Part) -> Option<Bytes> {
    match part {
        Part::Bytes(bytes) => Some(bytes.clone()),
        Part::File(_) => None,
    }
}

/// UpstreamState shared by both sides.
#[derive(Default)]
struct Queue {
    parts: RefCell<VecDeque<Part>>,
    /// The content after `parts`, which is being written to the file.
    writing: RefCell<VecDeque<Bytes>>,
    /// Bytes of it that the client's side has taken meanwhile.
    overtaken: Cell<u64>,
    /// Bytes in memory, including those last taken by the client's side.
    in_memory: Cell<u64>,
    /// Bytes in memory last taken by the client's side.
    taken: Cell<u64>,
    /// When the client's side last asked for content.
    asked: Cell<Option<Instant>>,
    end: RefCell<Option<Result<(), BodyError>>>,
    /// The client's side is gone.
    abandoned: Cell<bool>,
    /// Whether the rest then has another user.
    outlives: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

impl Queue {
    fn push(&self, part: Part) {
        if self.abandoned.get() {
            return;
        }
        if let Part::Bytes(bytes) = &part {
            self.in_memory.set(self.in_memory.get() + bytes.len() as u64);
        }
        self.parts.borrow_mut().push_back(part);
        wake(&self.reader);
    }

    /// The next part; at most `busy_max` bytes from memory, so that the rest can go to the file
    /// while they are sent. Once everything has arrived, this limit is pointless.
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

    /// Whether the client's side has taken everything and waits for more, or is gone. Otherwise the
    /// task is woken when the client's side returns.
    fn has_caught_up(&self, cx: &mut Context<'_>) -> bool {
        let is_empty = self.parts.borrow().is_empty() && self.writing.borrow().is_empty();
        if self.abandoned.get() || (is_empty && self.reader.borrow().is_some()) {
            return true;
        }
        *self.writer.borrow_mut() = Some(cx.waker().clone());
        false
    }

    /// Whether the client's side has taken everything and waits for more.
    fn keeps_up(&self) -> bool {
        self.parts.borrow().is_empty() && self.reader.borrow().is_some()
    }

    fn finish(&self, end: Result<(), BodyError>) {
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

fn wake(place: &RefCell<Option<Waker>>) {
    if let Some(waker) = place.borrow_mut().take() {
        waker.wake();
    }
}

/// The client's side.
struct Ahead {
    queue: Rc<Queue>,
    /// `busy_buffers_size`: memory that a slow client may hold.
    busy_max: usize,
    /// When the last part was returned.
    handed: Option<Instant>,
    /// The task, which may end with the client.
    task: Option<JoinHandle<()>>,
    /// What it receives, for the client's log line.
    attempt: Attempt,
    _watch: Option<Watch>,
}

impl BodySource for Ahead {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
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

    /// A client behind a buffer need not get data early.
    fn is_urgent(&self) -> bool {
        false
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The task ends later than the client's log line is written, or goes on.
        self.attempt.left();
        self.queue.abandoned.set(true);
        self.queue.parts.borrow_mut().clear();
        self.queue.writing.borrow_mut().clear();
        wake(&self.queue.writer);
        if let Some(task) = self.task.take().filter(|_| !self.queue.outlives.get()) {
            task.abort();
        }
    }
}

/// The side that reads.
struct Pump {
    exchange: Box<UpstreamExchange>,
    queue: Rc<Queue>,
    tee: Option<Box<dyn Tee>>,
    rate: Option<Rate>,
    io: Rc<Io>,
    file: Option<TempFile>,
    /// Whether the file accepts no more.
    file_full: bool,
    /// A write that the client did not wait for. It owns the file.
    writing: Option<JoinHandle<Written>>,
    /// Bytes of content that had arrived when the client was last slow.
    slow_at: u64,
    /// When reading began.
    started: Instant,
}

/// Why reading ended early.
struct Break {
    error: BodyError,
    /// `None`: it is not the upstream's fault, or the content is not wanted.
    cause: Option<Cause>,
}

impl From<BodyError> for Break {
    fn from(error: BodyError) -> Self {
        Self { error, cause: None }
    }
}

/// Result of a write to the file.
struct Written {
    /// `None`: the file could not be created.
    file: Option<TempFile>,
    /// The initial path, if the file was created by this write.
    made: Option<Vec<u8>>,
    /// Offset of the write.
    offset: u64,
    result: Result<(), String>,
}

/// Tells the client's side about the end of the task, whatever the reason.
struct Ended(Rc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.finish(Err(BodyError::Upstream("reading from upstream was aborted".into())));
    }
}

impl Pump {
    async fn run(mut self, more: More, early: Vec<Bytes>) {
        let ended = Ended(self.queue.clone());
        if let Some(tee) = &mut self.tee {
            for piece in early {
                tee.write(piece).await;
            }
            self.queue.outlives.set(tee.outlives_client());
        }
        let end = match self.read(more).await {
            Ok(()) => Ok(()),
            Err(broke) => self.resume(broke).await,
        };
        let complete = end.is_ok();
        if let Some(tee) = self.tee.take_if(|tee| tee.comes_first()) {
            tee.end(complete).await;
        }
        self.queue.finish(end);
        drop(ended);
        if let Some(tee) = self.tee.take() {
            tee.end(complete).await;
        }
    }

    /// Reads to the end.
    async fn read(&mut self, mut more: More) -> Result<(), Break> {
        loop {
            match more {
                More::Complete => return Ok(()),
                More::Broken(fault) => {
                    let broke = matches!(fault, Fault::PrematureClose | Fault::Reset(_));
                    let cause = broke.then_some(Cause::Error);
                    return Err(Break { error: broken(&fault), cause });
                }
                More::Yes => {}
            }
            let mut max = self.room().await;
            if let Some(rate) = &self.rate {
                max = rate.wait(self.exchange.content, max).await;
            }
            let received = self.exchange.receive(max).await.map_err(unreached)?;
            if received.is_empty() {
                more = self.exchange.eof();
                continue;
            }
            self.exchange.input = received;
            more = self.exchange.decode();
            let received = std::mem::replace(&mut self.exchange.input, ReceivedBuf::empty());
            if received.is_empty() {
                // A server may send framing without content as fast as it is received.
                yield_now().await;
                continue;
            }
            // Content that a client does not take at once may be kept for long.
            let piece = match self.queue.keeps_up() {
                true => received.into_bytes(),
                false => received.into_compact_bytes(),
            };
            self.deliver(piece).await?;
        }
    }

    /// Passes content on to both sides.
    async fn deliver(&mut self, piece: Bytes) -> Result<(), BodyError> {
        self.queue.push(Part::Bytes(piece.clone()));
        if let Some(tee) = &mut self.tee {
            tee.write(piece).await;
            self.queue.outlives.set(tee.outlives_client());
            if self.queue.abandoned.get() && !self.queue.outlives.get() {
                return Err(BodyError::Upstream("the rest is no longer wanted".into()));
            }
        }
        // The client's side first: most clients take new content at once.
        yield_now().await;
        while self.is_over() && self.client_patience().is_none() {
            self.spill().await;
        }
        Ok(())
    }

    /// The upstream has broken off: goes on with the rest from elsewhere, if the second destination knows
    /// it, and as often as the rules for another try allow.
    async fn resume(&mut self, broke: Break) -> Result<(), BodyError> {
        let Break { mut error, cause } = broke;
        let Some(cause) = cause else { return Err(error) };
        let settings = self.exchange.settings.clone();
        let tries = match settings.next_upstream_tries {
            0 => RESUMES_MAX,
            tries => RESUMES_MAX.min(tries - 1),
        };
        let limit = settings.next_upstream_timeout;
        for _ in 0..tries {
            let is_late =
                !limit.is_zero() && now().saturating_duration_since(self.started) >= limit;
            if is_late || !settings.next_upstream.allows(cause, false) {
                break;
            }
            let Some(mut rest) = self.tee.as_mut().and_then(|tee| tee.resume()) else { break };
            self.exchange.state.notice(Level::Error, format_args!("{error}"));
            let mut is_new = false;
            loop {
                // Content goes to the client as before; its size is up to the source.
                self.room().await;
                match rest.next().await {
                    Ok(None) => return Ok(()),
                    Ok(Some(Part::Bytes(piece))) => {
                        is_new = true;
                        self.deliver(piece).await?;
                    }
                    Ok(Some(Part::File(_))) => return Err(BodyError::Truncated),
                    Err(again) => {
                        error = again;
                        break;
                    }
                }
            }
            // The origin has another representation, or nothing to say.
            if !is_new {
                break;
            }
        }
        Err(error)
    }

    /// Remaining time before a client that takes nothing counts as slow; `None` if it is slow.
    fn client_patience(&self) -> Option<Duration> {
        let asked = self.queue.asked.get()?;
        let left = PATIENCE.saturating_sub(now().saturating_duration_since(asked));
        (!left.is_zero()).then_some(left)
    }

    /// Limit of memory.
    fn memory_max(&self) -> u64 {
        self.exchange.settings.buffers.total().max(MEMORY_BYTES_MIN)
    }

    /// Whether the limit of memory is reached.
    fn is_filled(&self) -> bool {
        self.queue.in_memory.get() >= self.memory_max()
    }

    /// As much is in memory as may be, and enough of it is not being sent to be written to the file.
    fn is_over(&self) -> bool {
        let queue = &self.queue;
        let waiting = queue.in_memory.get() - queue.taken.get();
        !self.file_is_full()
            && !queue.abandoned.get()
            && matches!(queue.parts.borrow().back(), Some(Part::Bytes(_)))
            && self.is_filled()
            && waiting >= self.exchange.settings.temp_file_write_size
    }

    fn file_is_full(&self) -> bool {
        let max = self.exchange.settings.max_temp_file_size;
        self.file_full
            || self.writing.is_some()
            || self.file.as_ref().map_or(0, TempFile::len) >= max
    }

    /// Waits until more may be received; returns how many bytes.
    async fn room(&mut self) -> usize {
        loop {
            if let Some(write) = self.writing.take_if(|write| write.is_finished()) {
                let written = write.await;
                self.wrote(written, self.queue.overtaken.get());
            }
            if self.queue.abandoned.get() || (self.queue.keeps_up() && !self.is_filled()) {
                break;
            }
            match self.client_patience() {
                // Large pieces cost least: the client may take what there is meanwhile. That it takes
                // so long is known then.
                Some(left) => {
                    let _ = timeout(left, client_asks(&self.queue)).await;
                }
                None if !self.is_filled() => break,
                None => {
                    self.slow_at = self.exchange.content;
                    if !self.file_is_full() {
                        return self.step();
                    }
                    self.client_asks_or_file_is_free().await;
                }
            }
        }
        if self.queue.abandoned.get() {
            return LARGE_BUF_BYTES;
        }
        if !self.queue.keeps_up() {
            let room = self.memory_max() - self.queue.in_memory.get();
            return usize::try_from(room).map_or(RECV_BUF_BYTES, between);
        }
        portion(self.exchange.content - self.slow_at)
    }

    /// How much is received at once for the file.
    fn step(&self) -> usize {
        let step = self.exchange.settings.temp_file_write_size;
        usize::try_from(step).map_or(RECV_BUF_BYTES, between)
    }

    /// Resolves when the client's side asks for content or is gone, or when a background write has
    /// ended: the file may then accept more.
    async fn client_asks_or_file_is_free(&mut self) {
        let written = {
            let Self { queue, writing, .. } = &mut *self;
            let mut asks = pin!(client_asks(queue));
            poll_fn(|cx| match (asks.as_mut().poll(cx), &mut *writing) {
                (Poll::Ready(()), _) => Poll::Ready(None),
                (Poll::Pending, Some(write)) => Pin::new(write).poll(cx).map(Some),
                (Poll::Pending, None) => Poll::Pending,
            })
            .await
        };
        if let Some(written) = written {
            self.writing = None;
            self.wrote(written, self.queue.overtaken.get());
        }
    }

    /// Moves the newest pieces in memory to the file.
    async fn spill(&mut self) {
        let mut moved = VecDeque::new();
        let mut bytes = 0;
        let step = self.exchange.settings.temp_file_write_size.max(1);
        let left = {
            let written = self.file.as_ref().map_or(0, TempFile::len);
            self.exchange.settings.max_temp_file_size.saturating_sub(written)
        };
        {
            let mut parts = self.queue.parts.borrow_mut();
            while bytes < step.min(left)
                && let Some(Part::Bytes(piece)) = parts.back_mut()
            {
                // The part that does not fit stays, at the front.
                let room = usize::try_from(left - bytes).unwrap_or(usize::MAX);
                let newest = piece.split_off(piece.len().saturating_sub(room));
                bytes += newest.len() as u64;
                moved.push_front(newest);
                if piece.is_empty() {
                    parts.pop_back();
                }
            }
        }
        if moved.is_empty() {
            self.file_full = true;
            return;
        }
        let queue = self.queue.clone();
        queue.overtaken.set(0);
        *queue.writing.borrow_mut() = moved.clone();
        wake(&queue.reader);
        let settings = self.exchange.settings.clone();
        let mut write =
            spawn(append(self.file.take(), self.io.clone(), settings, moved.into_iter().collect()));
        let written = poll_fn(|cx| match Pin::new(&mut write).poll(cx) {
            Poll::Ready(written) => Poll::Ready(Some(written)),
            Poll::Pending if queue.has_caught_up(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        match written.await {
            Some(written) => self.wrote(written, bytes),
            // The disk is slower than the client. Meanwhile, content stays in memory.
            None => self.writing = Some(write),
        }
    }

    /// The write of this many bytes has ended.
    fn wrote(&mut self, written: Result<Written, JoinError>, bytes: u64) {
        let lost = |gone: JoinError| Written {
            file: None,
            made: None,
            offset: 0,
            result: Err(format!("writing a temporary file: {gone}")),
        };
        let Written { file, made, offset, result } = written.unwrap_or_else(lost);
        self.file = file;
        if let Some(path) = made {
            self.exchange.state.notice(
                Level::Warn,
                format_args!(
                    "an upstream response is buffered to a temporary file {} while reading upstream",
                    String::from_utf8_lossy(&path)
                ),
            );
        }
        let queue = &self.queue;
        let rest = queue.writing.take();
        let overtaken = queue.overtaken.get();
        match (result, &self.file) {
            (Ok(()), Some(file)) => {
                queue.in_memory.set(queue.in_memory.get() - (bytes - overtaken));
                if overtaken < bytes && !queue.abandoned.get() {
                    let part = file.range(offset + overtaken, bytes - overtaken);
                    let mut parts = queue.parts.borrow_mut();
                    match parts.back_mut() {
                        Some(Part::File(last)) if last.offset + last.len == part.offset => {
                            last.len += part.len;
                        }
                        _ => parts.push_back(Part::File(part)),
                    }
                }
            }
            (result, _) => {
                // The client still gets its response, at its own pace.
                self.file_full = true;
                if let Err(error) = result {
                    self.exchange.state.notice(Level::Crit, format_args!("{error}"));
                }
                queue.parts.borrow_mut().extend(rest.into_iter().map(Part::Bytes));
            }
        }
        wake(&queue.reader);
    }
}

/// The upstream can't be read.
fn unreached(fault: ReceiveFault) -> Break {
    let cause = match &fault {
        ReceiveFault::Network(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            Some(Cause::Timeout)
        }
        ReceiveFault::Network(_) => Some(Cause::Error),
        ReceiveFault::Client(_) | ReceiveFault::Ours(_) => None,
    };
    Break { error: unreceived(fault), cause }
}

/// The nearest number of bytes that is received at once for a client that does not keep up.
fn between(bytes: usize) -> usize {
    bytes.clamp(RECEIVE_BYTES_MIN, RECV_BUF_BYTES)
}

/// Resolves when the client's side asks for content, or is gone.
async fn client_asks(queue: &Queue) {
    let mut waited = false;
    poll_fn(|cx| {
        if queue.abandoned.get() || (waited && queue.writer.borrow().is_none()) {
            return Poll::Ready(());
        }
        waited = true;
        *queue.writer.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

/// Appends to the temporary file, which is created if necessary.
async fn append(
    file: Option<TempFile>,
    io: Rc<Io>,
    settings: Arc<Settings>,
    pieces: Vec<Bytes>,
) -> Written {
    let (mut file, made) = match file {
        Some(file) => (file, None),
        None => match TempFile::make(io, &settings.temp_path).await {
            Ok(mut file) => {
                let path = file.path().to_vec();
                file.unlink().await;
                (file, Some(path))
            }
            Err(error) => {
                return Written { file: None, made: None, offset: 0, result: Err(error) };
            }
        },
    };
    let offset = file.len();
    let result = file.append(pieces).await;
    Written { file: Some(file), made, offset, result }
}

/// `limit_rate` towards an upstream. nginx: `ngx_event_pipe_read_upstream`.
struct Rate {
    bytes_per_second: u64,
    started: Instant,
}

impl Rate {
    fn new(bytes_per_second: u64) -> Option<Self> {
        (bytes_per_second > 0).then(|| Self { bytes_per_second, started: now() })
    }

    /// Waits until something may be received; returns how much.
    async fn wait(&self, received: u64, max: usize) -> usize {
        loop {
            let elapsed = now().saturating_duration_since(self.started);
            let budget = self.bytes_per_second.saturating_mul(elapsed.as_secs() + 1);
            match budget.checked_sub(received) {
                Some(left @ 1..) => return usize::try_from(left).unwrap_or(max).min(max),
                _ => {
                    let over = received.saturating_sub(budget) + 1;
                    let ms = over.saturating_mul(1000) / self.bytes_per_second;
                    let rest = 1000 - u64::from(elapsed.subsec_millis());
                    sleep(Duration::from_millis(ms / 1000 * 1000 + rest)).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_with_what_was_taken_and_fill_their_memory() {
        let portions = [0, 79, 80, 191, 192, u64::MAX / 1024].map(|kb| portion(kb * 1024) / 1024);
        assert_eq!(portions, [32, 32, 64, 64, 128, 128]);
    }

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
