//! Sending a chain: memory through the driver, file ranges through `fs`.
//!
//! Small file ranges are read and sent with the preceding head in one call; large ones are sent by
//! `sendfile`, inline while they are in memory, otherwise in steps by the pool. Disk time does not
//! count against the client's `send_timeout`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Stream;
use super::layer::Layered;
use crate::buf::{Chain, Chunk, FileRange, OutBuf};
use crate::driver::{AfterSend, Wait};
use crate::fs::{Claim, SendSteps, Sent};

/// File ranges of at most this many bytes are read into memory; `sendfile` only pays off above.
const READ_BYTES_MAX: u64 = 64 * 1024;

/// Bytes read at once from a file that was opened for direct I/O.
const DIRECT_BYTES: u64 = 512 * 1024;

/// Bytes read at once past the page cache, for a client that lets them wait, and for one that keeps up. Larger
/// reads need fewer trips and keep more of the disk's read-ahead under way.
const UNCACHED_BYTES_MIN: u64 = 64 * 1024;
const UNCACHED_BYTES_MAX: u64 = 512 * 1024;

/// After this many bytes sent without a pause, the task yields to others.
const TURN_BYTES_MAX: u64 = 1024 * 1024;

/// Options for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// nginx's `send_timeout`: the maximum time between two successful writes.
    pub timeout: Duration,
    /// More will be sent at once: the kernel may hold back a partial segment (MSG_MORE).
    pub more: bool,
    /// A small chain may be reported as sent when it is submitted. Off for a piece of a larger body, whose
    /// next piece would be fetched before a slow client has received this one.
    pub early: bool,
    /// nginx's `sendfile`: off means that file ranges are read in parts and sent from memory.
    pub sendfile: bool,
    /// nginx's `sendfile_max_chunk`: after this many bytes of a file, other connections get their
    /// turn. The runtime has an additional limit.
    pub turn_bytes: u64,
    /// Allows [`Send::give_up`] while waiting for a disk.
    pub gives_up: bool,
}

impl SendOptions {
    /// With a timeout, and nothing to follow.
    pub fn new(timeout: Duration) -> SendOptions {
        SendOptions {
            timeout,
            more: false,
            early: true,
            sendfile: true,
            turn_bytes: TURN_BYTES_MAX,
            gives_up: false,
        }
    }
}

/// The future of [`Stream::send`].
pub struct Send<'a> {
    stream: &'a Stream,
    chain: Chain,
    options: SendOptions,
    /// A tick of the wheel.
    deadline: Option<u64>,
    state: SendState,
    /// Direct calls are being made on the descriptor.
    direct: bool,
    steps: SendSteps,
    /// How much is read at once past the page cache.
    uncached_bytes: u64,
    /// Bytes that the layer has sealed, and that have not left yet.
    sealed: u64,
    /// The pool's right to send the bytes it reads; `None`: it only reads.
    claim: Option<Claim>,
}

/// The event that the send waits for.
enum SendState {
    /// Nothing.
    Ready,
    /// The driver sends memory.
    Memory,
    /// The socket was full; the flag is the driver's.
    Full { armed: bool },
    /// The pool is working on a file range.
    File(Pin<Box<dyn Future<Output = io::Result<Done>>>>),
}

/// Result of the pool's work.
enum Done {
    /// Sent a part of the file range that is the first chunk.
    Sent(Sent),
    /// Read `len` bytes (or as many as the file has) of the file range at this index in the chain.
    Read { index: usize, len: usize, chunk: Chunk },
}

impl<'a> Send<'a> {
    pub(super) fn new(stream: &'a Stream, chain: Chain, options: SendOptions) -> Send<'a> {
        Send {
            stream,
            chain,
            options,
            deadline: None,
            state: SendState::Ready,
            direct: false,
            steps: SendSteps::default(),
            uncached_bytes: UNCACHED_BYTES_MIN,
            sealed: 0,
            claim: None,
        }
    }

    /// Whether the pool is working on a file. [`give_up`](Self::give_up) may be called only then.
    pub fn waits_for_disk(&self) -> bool {
        matches!(self.state, SendState::File(_))
    }

    /// Stops waiting for the disk. True: [`Stream::bytes_sent`] counts all data that has been or
    /// will be sent; this future must not be polled any more. False: the bytes are being sent,
    /// which does not take long; keep polling.
    pub fn give_up(&mut self) -> bool {
        let stops = self.options.gives_up
            && self.waits_for_disk()
            && self.claim.as_ref().is_none_or(Claim::give_up);
        if stops {
            self.state = SendState::Ready;
        }
        stops
    }

    /// Does one step: `Ready(true)` when the chain has been sent.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        match &mut self.state {
            SendState::Ready if self.chain.is_empty() && !self.stream.has_output() => {
                return Poll::Ready(self.complete());
            }
            SendState::Ready => {}
            SendState::Memory => return self.poll_memory(cx),
            SendState::Full { armed } => {
                let (key, fd) = (self.stream.key, self.stream.fd());
                let polled =
                    self.stream.local.driver.borrow_mut().poll_writable(key, fd, cx, armed);
                if polled.is_pending() {
                    return self.poll_timeout(cx);
                }
                ready!(polled)?;
                self.state = SendState::Ready;
            }
            SendState::File(work) => {
                let done = ready!(work.as_mut().poll(cx));
                self.state = SendState::Ready;
                self.claim = None;
                return Poll::Ready(match done? {
                    Done::Sent(sent) => self.file_sent(sent),
                    Done::Read { index, len, chunk } => self.file_read(index, len, chunk),
                });
            }
        }
        if let Some(layered) = self.stream.layer.get() {
            ready!(self.poll_offload(layered, cx))?;
            if layered.is_offloaded() {
                if layered.poll_own_messages(self.stream, cx)?.is_pending() {
                    return self.poll_timeout(cx);
                }
                if self.chain.is_empty() {
                    return Poll::Ready(Ok(false));
                }
            }
        }
        match self.chain.first_file() {
            // The rest of a range that is already being sent is not read.
            Some((index, range)) if range.len <= READ_BYTES_MAX && !self.direct => {
                self.read_whole(index)
            }
            Some((0, range)) if self.options.sendfile && self.sends_by_kernel(range) => {
                let (stream, key) = (self.stream, self.stream.key);
                let flushed = stream.local.driver.borrow_mut().poll_flush(key, cx);
                match flushed {
                    Poll::Ready(result) => {
                        result?;
                        self.send_file()
                    }
                    Poll::Pending => self.poll_timeout(cx),
                }
            }
            // What has been sealed goes first: a client that has stopped reading holds no further part.
            Some((0, _)) if self.holds_sealed() => self.poll_memory(cx),
            Some((0, _)) => self.read_part(),
            _ => self.poll_memory(cx),
        }
    }

    /// Leaves sealing to the kernel if it is time for that, and it can.
    fn poll_offload(&mut self, layered: &Layered, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let range = match self.chain.first_file() {
            Some((0, range)) if self.options.sendfile && !range.file.is_direct() => Some(range.len),
            _ => None,
        };
        let (stream, key) = (self.stream, self.stream.key);
        if !layered.wants_offload(range) || !stream.local.driver.borrow().sends_files() {
            return Poll::Ready(Ok(false));
        }
        let flushed = stream.local.driver.borrow_mut().poll_flush(key, cx);
        if flushed.is_pending() {
            return self.poll_timeout(cx);
        }
        ready!(flushed)?;
        Poll::Ready(layered.offload(stream))
    }

    /// All was sent. The kernel, if it seals, may still have a record for which the socket had no room,
    /// and a close would discard it. When there is room again, everything that is sent next, such as the
    /// layer's end, pushes it before itself.
    fn complete(&mut self) -> io::Result<bool> {
        let layered = self.stream.layer.get();
        if !layered.is_some_and(|layered| layered.is_offloaded()) || self.options.more {
            return Ok(true);
        }
        let has_room = self.stream.has_room()?;
        if !has_room {
            self.state = SendState::Full { armed: false };
        }
        Ok(has_room)
    }

    fn poll_memory(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let follows = match self.options.more || self.chain.first_file().is_some() {
            true => AfterSend::AtOnce,
            false if self.options.early => AfterSend::Nothing,
            false => AfterSend::Later,
        };
        let follows = match self.stream.layer.get() {
            Some(layered) if !layered.is_offloaded() => {
                return self.poll_sealed(layered, follows, cx);
            }
            // No early sends: the kernel's TLS refuses MSG_WAITALL.
            Some(_) if follows == AfterSend::Nothing => AfterSend::Later,
            _ => follows,
        };
        let (key, fd) = (self.stream.key, self.stream.fd());
        let chain = &mut self.chain;
        let polled = self.stream.local.driver.borrow_mut().poll_send(key, fd, chain, follows, cx);
        match polled {
            Poll::Ready(result) => {
                self.state = SendState::Ready;
                self.progress(result? as u64)?;
                Poll::Ready(Ok(false))
            }
            Poll::Pending => {
                self.state = SendState::Memory;
                self.uncached_bytes = UNCACHED_BYTES_MIN;
                self.poll_timeout(cx)
            }
        }
    }

    /// Like `poll_memory`, through the layer.
    fn poll_sealed(
        &mut self,
        layered: &Layered,
        follows: AfterSend,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let (sealed, polled) = layered.poll_send(self.stream, &mut self.chain, follows, cx);
        self.sealed += sealed as u64;
        match polled {
            Poll::Ready(result) => {
                result?;
                self.state = SendState::Ready;
                let sent = if layered.is_flushed() { std::mem::take(&mut self.sealed) } else { 0 };
                self.progress(sent)?;
                Poll::Ready(Ok(false))
            }
            Poll::Pending => {
                self.state = SendState::Memory;
                self.poll_timeout(cx)
            }
        }
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let (local, timeout) = (&self.stream.local, self.options.timeout);
        let deadline = *self.deadline.get_or_insert_with(|| local.tick_after(timeout));
        let expired = self.stream.poll_deadline(&self.stream.send_timer, deadline, cx);
        expired.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The peer's kernel has room again: the timeout restarts.
    fn progress(&mut self, bytes: u64) -> io::Result<()> {
        self.stream.sent.set(self.stream.sent.get() + bytes);
        self.deadline = None;
        match self.stream.layer.get() {
            Some(layered) if layered.is_offloaded() => layered.note_sent(bytes),
            _ => Ok(()),
        }
    }

    /// The layer's own output is its own affair again.
    fn end_turn(&self) {
        if let Some(layered) = self.stream.layer.get() {
            layered.send_done();
        }
    }

    /// Whether the layer has output that the socket has not taken.
    fn holds_sealed(&self) -> bool {
        let layered = self.stream.layer.get();
        layered.is_some_and(|layered| !layered.is_offloaded() && !layered.is_flushed())
    }

    /// Whether `sendfile` is possible.
    fn sends_by_kernel(&self, range: &FileRange) -> bool {
        !range.file.is_direct()
            && self.stream.layer.get().is_none_or(|layered| layered.is_offloaded())
            && self.stream.local.driver.borrow().sends_files()
    }

    /// Reads a small file range into memory, wherever in the chain it is.
    fn read_whole(&mut self, index: usize) -> Poll<io::Result<bool>> {
        let Some((_, range)) = self.chain.first_file() else { return Poll::Ready(Ok(false)) };
        self.read(index, range.clone())
    }

    /// Reads the next part of a large file range, the first chunk, into memory.
    fn read_part(&mut self) -> Poll<io::Result<bool>> {
        let Some((_, range)) = self.chain.first_file() else { return Poll::Ready(Ok(false)) };
        let part = if range.file.is_direct() { DIRECT_BYTES } else { READ_BYTES_MAX };
        let part = FileRange { len: range.len.min(part), ..range.clone() };
        self.read(0, part)
    }

    fn read(&mut self, index: usize, part: FileRange) -> Poll<io::Result<bool>> {
        let len = part.len as usize;
        match self.read_inline(&part) {
            Ok(None) => {
                self.state = SendState::File(Box::pin(async move {
                    let bytes = part.file.read_at(&part.io, part.offset, len).await?;
                    Ok(Done::Read { index, len, chunk: Chunk::from(bytes) })
                }));
                Poll::Ready(Ok(false))
            }
            Ok(Some(chunk)) => Poll::Ready(self.file_read(index, len, chunk)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Reads a part of a file if it is in memory.
    fn read_inline(&self, part: &FileRange) -> io::Result<Option<Chunk>> {
        let len = part.len as usize;
        let mut buf = OutBuf::new();
        buf.make_room(len.min(READ_BYTES_MAX as usize));
        let read = part.file.try_read(&part.io, part.offset, len, &mut buf)?;
        Ok(read.map(|_| Chunk::from(buf)))
    }

    /// `chunk` holds the bytes read, of `len` requested.
    fn file_read(&mut self, index: usize, len: usize, chunk: Chunk) -> io::Result<bool> {
        if chunk.len() != len as u64 {
            return Err(shrunk());
        }
        self.chain.replace_file(index, chunk);
        Ok(false)
    }

    /// One step of `sendfile` of the range that is the first chunk.
    fn send_file(&mut self) -> Poll<io::Result<bool>> {
        let Some((_, range)) = self.chain.first_file() else { return Poll::Ready(Ok(false)) };
        let (stream, key) = (self.stream, self.stream.key);
        self.direct = true;
        stream.local.driver.borrow_mut().prepare_direct(key, stream.fd())?;
        let steps = &mut self.steps;
        let (offset, len) = (range.offset, range.len.min(self.options.turn_bytes.max(1)));
        if let Some(sent) = range.file.try_send(&range.io, stream.fd(), offset, len, steps)? {
            return Poll::Ready(self.file_sent(sent));
        }
        if range.file.is_passing(&range.io, offset) {
            let part = FileRange { len: len.min(READ_BYTES_MAX), ..range.clone() };
            if let Some(read) = self.read_inline(&part)? {
                return Poll::Ready(self.file_read(0, part.len as usize, read));
            }
        }
        let Some((_, range)) = self.chain.first_file() else { return Poll::Ready(Ok(false)) };
        let (keep, decided) = range.file.decide(&range.io, offset, len.min(self.uncached_bytes));
        if !keep.keeps {
            let FileRange { file, io, .. } = range.clone();
            let len = usize::try_from(decided).unwrap_or(usize::MAX);
            self.uncached_bytes = (2 * self.uncached_bytes).min(UNCACHED_BYTES_MAX);
            self.state = SendState::File(Box::pin(async move {
                let bytes = file.read_in_pool(&io, keep, offset, len).await?;
                Ok(Done::Read { index: 0, len, chunk: Chunk::from(bytes) })
            }));
            return Poll::Ready(Ok(false));
        }
        // A duplicate handle: it stays valid in the pool even when this connection is dropped.
        let socket = stream.fd().try_clone_to_owned()?;
        let range = range.clone();
        let claim = self.options.gives_up.then(Claim::default);
        self.claim.clone_from(&claim);
        self.state = SendState::File(Box::pin(async move {
            let FileRange { file, io, offset, len } = range;
            Ok(Done::Sent(match claim {
                Some(claim) => file.splice_in_pool(&io, socket, offset, len, claim).await?,
                None => file.send_in_pool(&io, socket, offset, len).await?,
            }))
        }));
        Poll::Ready(Ok(false))
    }

    fn file_sent(&mut self, sent: Sent) -> io::Result<bool> {
        match sent {
            Sent::Bytes(count) => {
                self.chain.advance(count as u64);
                self.progress(count as u64)?;
            }
            Sent::Full => self.state = SendState::Full { armed: false },
            Sent::Ended => return Err(shrunk()),
        }
        Ok(false)
    }
}

/// The file has fewer bytes than the response promised: the connection must be aborted.
fn shrunk() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file was truncated while it was being sent")
}

impl Future for Send<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let start = self.stream.sent.get();
        while !ready!(self.poll_step(cx))? {
            let sent = self.stream.sent.get() - start;
            if sent >= self.options.turn_bytes.min(TURN_BYTES_MAX) && !self.chain.is_empty() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        self.stream.disarm(&self.stream.send_timer);
        self.end_turn();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Send<'_> {
    fn drop(&mut self) {
        self.end_turn();
        if matches!(self.state, SendState::Memory | SendState::Full { .. }) {
            self.stream.forget(Wait::Write, &self.stream.send_timer);
        }
        // If the pool is working on it, it continues: then the descriptor stays as it is.
        if self.direct && !matches!(self.state, SendState::File(_)) {
            self.stream.local.driver.borrow_mut().finish_direct(self.stream.key);
        }
    }
}
