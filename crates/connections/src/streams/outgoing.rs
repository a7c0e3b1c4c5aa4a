//! Content of a response on its way into frames, a part at a time.
//!
//! The connection decides when content becomes frames. Files that are not in memory are read here, by the request's
//! task.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use nowait_http::response::{BodyError, FileBody, Part};
use nowait_runtime::sleep;
use nowait_runtime::task::{Either, select};

use super::connection::StreamConnection;
use super::stream::RequestStream;
use crate::send_error::{SendError, left};

/// Bytes that are read at once from a file that is not in memory, for the first few streams.
pub(crate) const COLD_BYTES: usize = 64 * 1024;

/// Streams of a connection that read so much.
pub(crate) const COLD_STREAMS: usize = 4;

/// Content to be sent: a part at a time.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// Bytes that precede the part: read from its file, or a head.
    pub(crate) front: Bytes,
    pub(crate) part: Option<Part>,
    /// The response ends with it.
    pub(crate) ends: bool,
    /// The next bytes of the file are not in memory; so many are wanted, and nothing else is taken of it until they
    /// have been read.
    pub(crate) cold: Option<usize>,
    /// The file could not be read.
    pub(crate) failed: Option<BodyError>,
    /// Changes whenever a frame is made.
    progress: u64,
    pub(crate) waker: Option<Waker>,
}

impl Outgoing {
    /// Bytes left.
    pub(crate) fn len(&self) -> u64 {
        self.front.len() as u64 + self.part.as_ref().map_or(0, Part::len)
    }

    /// Takes at most so many bytes in memory; `None` if the next ones are in a file.
    pub(crate) fn take(&mut self, max: usize) -> Option<Bytes> {
        let memory = match &mut self.part {
            _ if !self.front.is_empty() => &mut self.front,
            Some(Part::Bytes(bytes)) => bytes,
            Some(Part::File(_)) => return None,
            None => return Some(Bytes::new()),
        };
        Some(memory.split_to(max.min(memory.len())))
    }

    /// Bytes that were taken have to be sent later.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        // Usually, nothing is left of what they are from.
        self.front = match self.front.is_empty() {
            true => bytes,
            false => [bytes, std::mem::take(&mut self.front)].concat().into(),
        };
    }

    /// Whether no more frames can be made of it for now.
    pub(crate) fn stops(&self) -> bool {
        self.len() == 0 || self.cold.is_some() || self.failed.is_some()
    }

    /// Frames were made, or can't be made.
    pub(crate) fn advanced(&mut self) {
        self.progress += 1;
        if self.stops()
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }
}

/// The reason why [`put`] stopped.
enum Stopped {
    Done,
    /// Read so many bytes of the file.
    Cold(usize),
    Failed(SendError),
}

/// Sends a part: waits until all of it is in frames. `ends`: the response ends with it. If its file
/// can't be read, `unread` tells how many bytes are missing.
pub(crate) async fn put<S: RequestStream>(
    stream: &S,
    part: Part,
    ends: bool,
    timeout: Duration,
    unread: &mut Option<u64>,
) -> Result<(), SendError> {
    if part.is_empty() && !ends {
        return Ok(());
    }
    {
        let mut outgoing = stream.state().outgoing.borrow_mut();
        outgoing.part = Some(part);
        outgoing.ends = ends;
        outgoing.cold = None;
    }
    stream.offer();
    loop {
        match stopped(stream, timeout).await {
            Stopped::Done => return Ok(()),
            Stopped::Cold(bytes) => read_cold(stream, bytes).await,
            Stopped::Failed(error) => {
                stream.withdraw();
                if matches!(error, SendError::Body(BodyError::File(_) | BodyError::Truncated)) {
                    *unread = Some(stream.state().outgoing.borrow().len());
                }
                let mut outgoing = stream.state().outgoing.borrow_mut();
                (outgoing.part, outgoing.front) = (None, Bytes::new());
                return Err(error);
            }
        }
    }
}

/// Waits until the part is done, or stops.
async fn stopped<S: RequestStream>(stream: &S, timeout: Duration) -> Stopped {
    if let Some(stopped) = state(stream) {
        return stopped;
    }
    loop {
        let before = stream.state().outgoing.borrow().progress;
        let changed = poll_fn(|cx| match state(stream) {
            Some(stopped) => Poll::Ready(stopped),
            None => {
                stream.state().outgoing.borrow_mut().waker = Some(cx.waker().clone());
                Poll::Pending
            }
        });
        match select(changed, sleep(timeout)).await {
            Either::Left(stopped) => return stopped,
            Either::Right(()) if stream.state().outgoing.borrow().progress == before => {
                let error = io::Error::from(io::ErrorKind::TimedOut);
                return Stopped::Failed(SendError::Client(error));
            }
            Either::Right(()) => {}
        }
    }
}

fn state<S: RequestStream>(stream: &S) -> Option<Stopped> {
    if stream.state().presence.is_gone() {
        return Some(Stopped::Failed(left()));
    }
    let mut outgoing = stream.state().outgoing.borrow_mut();
    if let Some(error) = outgoing.failed.take() {
        return Some(Stopped::Failed(SendError::Body(error)));
    }
    if outgoing.len() == 0 {
        return Some(Stopped::Done);
    }
    outgoing.cold.map(Stopped::Cold)
}

/// Reads the next bytes of the file in its pool.
async fn read_cold<S: RequestStream>(stream: &S, bytes: usize) {
    let Some(Part::File(file)) = stream.state().outgoing.borrow().part.as_ref().map(clone_file)
    else {
        stream.state().outgoing.borrow_mut().cold = None;
        return;
    };
    let _reading = reading(&stream.connection().streams().cold);
    let io = file.io.for_client(stream.connection().client().number);
    let mut read = pin!(file.read(&io, bytes));
    let read = poll_fn(|cx| match stream.state().presence.is_gone() {
        true => Poll::Ready(None),
        false => {
            let _ = stream.state().presence.watch(cx);
            read.as_mut().poll(cx).map(Some)
        }
    });
    let Some(read) = read.await else { return };
    {
        let mut outgoing = stream.state().outgoing.borrow_mut();
        outgoing.cold = None;
        match read {
            Ok(read) if read.len() == bytes => {
                if let Some(Part::File(file)) = &mut outgoing.part {
                    file.offset += bytes as u64;
                    file.len -= bytes as u64;
                }
                outgoing.front = read;
            }
            Ok(_) => outgoing.failed = Some(BodyError::Truncated),
            Err(error) => outgoing.failed = Some(unread(error)),
        }
    }
    stream.offer();
}

/// Counts a stream that reads a file which is not in memory.
fn reading(cold: &Cell<usize>) -> impl Drop + '_ {
    struct Reading<'a>(&'a Cell<usize>);
    impl Drop for Reading<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    cold.set(cold.get() + 1);
    Reading(cold)
}

fn clone_file(part: &Part) -> Part {
    match part {
        Part::Bytes(bytes) => Part::Bytes(bytes.clone()),
        Part::File(file) => Part::File(FileBody::clone(file)),
    }
}

fn unread(error: io::Error) -> BodyError {
    match nowait_runtime::pool::PoolError::of(&error) {
        Some(overflow) => BodyError::Overflow(overflow.to_string()),
        None => BodyError::File(error),
    }
}
