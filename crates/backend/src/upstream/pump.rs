//! A body that is read ahead of its client: into memory, then into a temporary file, until both are full.
//!
//! A separate task reads, so that the upstream is released as soon as it has sent the whole response.
//! The client's side ([`Ahead`]) takes from the queue between them. While it keeps up, pieces are
//! large and stay in memory. When it does not, memory holds at most `buffers`, and the rest goes to
//! the file in steps of `temp_file_write_size`, through the location's pool. A client that catches up
//! with a write in progress is served from memory, and does not wait for the disk. If the upstream server breaks off, the
//! client gets what has come, then the error, with which the front end cuts the response. A client that gets the
//! bytes as they are receives them itself, through a pipe, until it does not keep up. nginx:
//! `ngx_event_pipe.c`.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_http::exchange::Watch;
use nowait_http::log::Level;
use nowait_http::response::{BodyError, BodySource, PATIENCE, Part};
use nowait_http::temp_file::TempFile;
use nowait_runtime::buf::{LARGE_BUF_BYTES, RECV_BUF_BYTES, ReceivedBuf};
use nowait_runtime::fs::Io;
use nowait_runtime::net::Piped;
use nowait_runtime::task::{JoinError, JoinHandle};
use nowait_runtime::time::timeout;
use nowait_runtime::{now, sleep, spawn, yield_now};

use super::ahead::{Ahead, Queue, Reader, wake};
use super::body::{broken, unreceived};
use super::exchange::{More, ReceiveFault, UpstreamExchange};
use super::settings::Settings;
use super::{Cause, Fault, Tee};

/// How many times the remainder of a response that broke off is fetched; each fetch must bring data.
const RESUMES_MAX: u32 = 3;

/// The smallest piece for a client that keeps up.
pub(super) const PIECE_BYTES_MIN: usize = LARGE_BUF_BYTES / 4;

/// Bytes of content that may be in memory regardless of `buffers`: one piece.
const MEMORY_BYTES_MIN: u64 = PIECE_BYTES_MIN as u64;

/// At least this much is received at once, however little may still be in memory.
const RECEIVE_BYTES_MIN: usize = 8 * 1024;

/// The size of a receive for a client that has received this many bytes since it was last slow. A
/// client that stops reading holds all the memory of the last piece, so a piece is at most four fifths
/// of the bytes that the client has received, and exactly as large as its memory.
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
    let passes_unseen = tee.is_none() && limit_rate == 0 && exchange.passes_unseen();
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
    let reading = Reading { pump, more, early };
    let reader = match passes_unseen {
        false => Reader::Task(spawn(reading.run())),
        true => Reader::undecided(Box::new(reading)),
    };
    Box::new(Ahead { queue, reader, attempt, busy_max, handed: None, _watch: watch })
}

pub(super) fn bytes_of(part: &Part) -> Option<Bytes> {
    match part {
        Part::Bytes(bytes) => Some(bytes.clone()),
        Part::File(_) => None,
    }
}

/// A pump that reads, or is about to.
pub(super) struct Reading {
    pump: Pump,
    pub(super) more: More,
    early: Vec<Bytes>,
}

impl Reading {
    /// Reads to the end.
    pub(super) async fn run(self) {
        self.pump.run(self.more, self.early).await;
    }

    /// Receives the next content into a pipe, for a client that takes it at once. `None`: there is none, or it has
    /// to be received as usual.
    pub(super) async fn receive_piped(&mut self) -> Result<Option<Piped>, BodyError> {
        let received =
            self.pump.exchange.receive_piped(LARGE_BUF_BYTES).await.map_err(unreceived)?;
        let Some((piped, more)) = received else { return Ok(None) };
        self.more = more;
        Ok((!piped.is_empty()).then_some(piped))
    }

    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.more, More::Complete) && !self.pump.is_filled()
    }

    /// The client is slow.
    pub(super) fn fell_behind(&mut self) {
        self.pump.slow_at = self.pump.exchange.content;
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
    /// The time at which reading began.
    started: Instant,
}

/// The reason why reading ended early.
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

/// Notifies the client's side of the end of the task, for any reason.
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
        // What a slow client has left in a pipe.
        self.spill_excess().await;
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
        self.spill_excess().await;
        Ok(())
    }

    /// Moves what is too much for memory to the file if the client is slow.
    async fn spill_excess(&mut self) {
        while self.is_over() && self.client_patience().is_none() {
            self.spill().await;
        }
    }

    /// The upstream has broken off: continues with the remainder from another source, if the second
    /// destination has one, and as often as the rules for another try allow.
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
            // The origin has another representation, or no response.
            if !is_new {
                break;
            }
        }
        Err(error)
    }

    /// Remaining time before a client that receives no data counts as slow; `None` if it is slow.
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

    /// The memory limit is reached, and enough of the content is not being sent to be written to the file.
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
                // Large pieces cost least, and the client may take the available content meanwhile.
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

    /// The size of a receive for the file.
    fn step(&self) -> usize {
        let step = self.exchange.settings.temp_file_write_size;
        usize::try_from(step).map_or(RECV_BUF_BYTES, between)
    }

    /// Resolves when the client's side requests content or was dropped, or when a background write has
    /// ended, after which the file may accept more.
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

/// Resolves when the client's side requests content, or was dropped.
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
                return Written { file: None, made: None, offset: 0, result: Err(error.into()) };
            }
        },
    };
    let offset = file.len();
    let result = file.append(pieces).await.map_err(String::from);
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

    /// Waits until data may be received; returns the number of bytes.
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
}
