//! Writes the content of a request to its temporary file, while more of it arrives.
//!
//! Used by [`request_body`](crate::request_body). A write takes everything that has arrived during the one
//! before, so a fast client costs few operations of the pool. How much may arrive meanwhile is bounded, for an
//! upload and for all uploads of a worker; while the disk is slow, nothing may: what has not been received
//! costs no memory of ours.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use nowait_runtime::now;

use crate::conf::body::InFileOnly;
use crate::log::Level;
use crate::request::Request;
use crate::response::LocalFuture;
use crate::temp_file::{TempFile, TempFileError};

/// A disk that takes longer than this for a write is slow.
const QUICK: Duration = Duration::from_millis(5);

/// Content of an upload that is being written, or waits for it, in bytes. More is not received meanwhile.
const UPLOAD_BYTES_MAX: usize = 256 * 1024;

/// How many bytes a client that sends without a pause is asked for at once.
const PIECE_BYTES: usize = UPLOAD_BYTES_MAX / 4;

/// The same of all uploads of a worker. Beyond it, an upload receives nothing during a write.
const WORKER_BYTES_MAX: usize = 8 * 1024 * 1024;

thread_local! {
    /// Content of the worker's uploads that is being written, or waits for it.
    static WORKER_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The temporary file of a request's content.
pub(crate) struct BodyWriter {
    /// `None`: it is being written, or not made yet.
    file: Option<TempFile>,
    writing: Option<LocalFuture<'static, Result<TempFile, TempFileError>>>,
    /// When the write began.
    started: Instant,
    /// Whether the last write was quick.
    quick: bool,
    steps: Steps,
    /// What the next write takes.
    ready: Vec<Bytes>,
    held: HeldBytes,
}

impl BodyWriter {
    /// A file that does not exist yet. `buffer`: `client_body_buffer_size`, in bytes.
    pub(crate) fn new(buffer: usize) -> Self {
        Self {
            file: None,
            writing: None,
            started: now(),
            quick: false,
            steps: Steps::new(buffer / 2),
            ready: Vec::new(),
            held: HeldBytes::default(),
        }
    }

    /// How many bytes should be received at once.
    pub(crate) fn room(&self) -> usize {
        if self.quick { PIECE_BYTES } else { self.steps.room() }
    }

    /// Takes a piece. Begins a write if none is in progress and there is enough for one.
    pub(crate) fn push(&mut self, request: &Request, piece: Bytes) {
        self.held.add(piece.len());
        self.steps.push(piece, &mut self.ready);
        if self.writing.is_none() && !self.ready.is_empty() {
            self.begin(request);
        }
    }

    fn begin(&mut self, request: &Request) {
        let (file, pieces) = (self.file.take(), std::mem::take(&mut self.ready));
        let (io, current, location) =
            (request.temp_io(), request.current().clone(), request.location_id());
        self.started = now();
        self.writing = Some(Box::pin(async move {
            let conf = &current.conf.location(location).body;
            let mut file = match file {
                Some(file) => file,
                None => TempFile::make(io, &conf.client_body_temp_path).await?,
            };
            if conf.client_body_in_file_only == InFileOnly::On {
                file.keep();
            }
            if !pieces.is_empty() {
                file.append(pieces).await?;
            }
            Ok(file)
        }));
    }

    /// Goes on with the write, and with the next one. Ready if none is left.
    ///
    /// # Errors
    /// The status to respond with.
    pub(crate) fn poll(
        &mut self,
        request: &Request,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), u16>> {
        while let Some(writing) = &mut self.writing {
            let Poll::Ready(written) = writing.as_mut().poll(cx) else { return Poll::Pending };
            self.writing = None;
            self.quick = now().saturating_duration_since(self.started) < QUICK;
            match written {
                Ok(file) => self.file = Some(file),
                Err(error) => {
                    request.log(Level::Crit, format_args!("{error}"));
                    return Poll::Ready(Err(error.status()));
                }
            }
            let left =
                self.ready.iter().map(Bytes::len).sum::<usize>() + self.steps.collected.len();
            self.held.set(left);
            if !self.ready.is_empty() {
                self.begin(request);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether more may be received now.
    fn has_room(&self) -> bool {
        self.writing.is_none()
            || (self.quick
                && self.held.0 < UPLOAD_BYTES_MAX
                && WORKER_BYTES.get() < WORKER_BYTES_MAX)
    }

    /// Waits until more may be received.
    ///
    /// # Errors
    /// The status to respond with.
    pub(crate) async fn make_room(&mut self, request: &Request) -> Result<(), u16> {
        if self.has_room() {
            return Ok(());
        }
        poll_fn(|cx| match self.poll(request, cx) {
            Poll::Pending if self.has_room() => Poll::Ready(Ok(())),
            polled => polled,
        })
        .await
    }

    /// Writes the rest. Returns the file, which is made if it does not exist.
    ///
    /// # Errors
    /// The status to respond with.
    pub(crate) async fn finish(mut self, request: &Request) -> Result<TempFile, u16> {
        self.ready.extend(self.steps.finish());
        if self.writing.is_none() && (self.file.is_none() || !self.ready.is_empty()) {
            self.begin(request);
        }
        poll_fn(|cx| self.poll(request, cx)).await?;
        self.file.take().ok_or(500)
    }
}

/// A share of [`WORKER_BYTES`].
#[derive(Default)]
struct HeldBytes(usize);

impl HeldBytes {
    fn add(&mut self, bytes: usize) {
        self.set(self.0 + bytes);
    }

    fn set(&mut self, bytes: usize) {
        WORKER_BYTES.set(WORKER_BYTES.get() - self.0 + bytes);
        self.0 = bytes;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Collects the small pieces of a body for a file. All its allocations have one size, so that the allocator
/// can reuse them for other clients: different sizes would fragment the memory.
struct Steps {
    /// At least this many bytes are written at once.
    size: usize,
    collected: BytesMut,
}

impl Steps {
    fn new(size: usize) -> Self {
        Self { size: size.max(1), collected: BytesMut::new() }
    }

    /// The free bytes of the buffer.
    fn room(&self) -> usize {
        self.size - self.collected.len()
    }

    /// Takes a piece; adds data to be written now to `ready`.
    fn push(&mut self, piece: Bytes, ready: &mut Vec<Bytes>) {
        // The client does not pause: the piece is neither collected nor copied.
        if piece.len() > 2 * self.size {
            ready.extend(self.finish());
            ready.push(piece);
            return;
        }
        let mut rest = &piece[..];
        while !rest.is_empty() {
            if self.collected.is_empty() {
                self.collected.reserve(self.size);
            }
            let (now, later) = rest.split_at(rest.len().min(self.room()));
            self.collected.extend_from_slice(now);
            rest = later;
            if self.room() == 0 {
                ready.extend(self.finish());
            }
        }
    }

    /// The collected data, if any.
    fn finish(&mut self) -> Option<Bytes> {
        let collected = std::mem::take(&mut self.collected);
        (!collected.is_empty()).then(|| collected.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of what is written, after each piece and at the end.
    fn written(pieces: &[usize]) -> Vec<Vec<usize>> {
        let (mut steps, mut content) = (Steps::new(8), Vec::new());
        let mut lengths = Vec::new();
        let mut next = 0u8;
        for length in pieces {
            let piece: Vec<u8> = (0..*length as u8).map(|at| next + at).collect();
            next += *length as u8;
            let mut ready = Vec::new();
            steps.push(piece.into(), &mut ready);
            lengths.push(ready.iter().map(Bytes::len).collect());
            content.extend(ready.concat());
        }
        let last: Vec<Bytes> = steps.finish().into_iter().collect();
        lengths.push(last.iter().map(Bytes::len).collect());
        content.extend(last.concat());
        assert_eq!(content, (0..next).collect::<Vec<_>>());
        lengths
    }

    /// An upload whose file is being written.
    fn writing(quick: bool) -> BodyWriter {
        let writing: LocalFuture<'static, _> = Box::pin(std::future::pending());
        BodyWriter { writing: Some(writing), quick, ..BodyWriter::new(16 * 1024) }
    }

    #[test]
    fn during_a_write_an_upload_takes_as_much_as_its_bound_and_that_of_the_worker_allow() {
        assert!(BodyWriter::new(16 * 1024).has_room(), "nothing is being written");
        assert!(!writing(false).has_room(), "the disk is slow");
        let mut one = writing(true);
        one.held.add(UPLOAD_BYTES_MAX - 1);
        assert!(one.has_room());
        one.held.add(1);
        assert!(!one.has_room());
        let (other, mut many) = (writing(true), Vec::new());
        while WORKER_BYTES.get() < WORKER_BYTES_MAX {
            assert!(other.has_room());
            many.push(HeldBytes::default());
            many.last_mut().expect("just added").add(UPLOAD_BYTES_MAX);
        }
        assert!(!other.has_room());
        // Uploads that end, even in the middle, give their share back.
        drop((one, many));
        assert!(other.has_room());
        assert_eq!(WORKER_BYTES.get(), 0);
    }

    #[test]
    fn small_pieces_are_written_in_steps_and_large_ones_as_they_come() {
        let none: &[usize] = &[];
        assert_eq!(written(&[3, 3, 3, 16]), [none, none, &[8], &[8, 8], &[1]]);
        assert_eq!(written(&[17, 3, 17, 8]), [&[17], none, &[3, 17], &[8], none]);
        assert_eq!(written(&[]), [none]);
    }
}
