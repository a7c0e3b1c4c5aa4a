//! The frame of all compressions: a body that is compressed while it is sent.
//!
//! Used by the filters `gzip`, `brotli` and `zstd`. A small body that is in memory is compressed at
//! once; any other is pulled, compressed and sent piece by piece. Work that would hold up the event
//! loop goes to the location's thread pool. What a source wants to be passed on at once is flushed.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use nowait_runtime::fs::Io;
use nowait_runtime::pool::{Class, Op};
use nowait_runtime::yield_now;

use super::coder::{Coder, Flush};
use super::pull::Pull;
use crate::etag;
use crate::gzip::Counts;
use crate::log::Level;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::{AcceptRanges, Body, BodyError, BodySource, LocalFuture, Part, Response};

/// Most bytes that are compressed in one step, here or in the pool.
pub(super) const STEP_BYTES_MAX: usize = 32 * 1024;

/// Takes back what a head says of the bytes of its content.
pub(super) fn recode(response: &mut Response) {
    let head = &mut response.head;
    head.content_length = None;
    head.accept_ranges = AcceptRanges::No;
    head.etag = head.etag.as_ref().and_then(etag::weaken);
}

/// Compresses the body. Steps that compress at most `inline` bytes are done on the event loop: that
/// should take about 0.2 ms.
///
/// # Errors
/// 500: the compression does not work; the log says why.
pub(super) fn wrap(
    request: &Request,
    response: &mut Response,
    coder: Coder,
    inline: usize,
    counts: Rc<Counts>,
) -> Result<(), Box<Special>> {
    response.body = match in_memory(std::mem::take(&mut response.body), inline) {
        Ok(bytes) => Body::Bytes(at_once(coder, &bytes, &counts).map_err(|error| {
            request.log(Level::Error, format_args!("{error}"));
            Special { status: 500, ..Special::default() }
        })?),
        Err(body) => Body::Stream(Box::new(Compressed {
            pull: Pull::new(body),
            rest: Bytes::new(),
            coder: Some(coder),
            io: request.io(),
            client: request.connection.number,
            inline,
            steps: 0,
            held: false,
            counts,
        })),
    };
    Ok(())
}

/// A body of at most `max` bytes that can be had without waiting, else the body.
fn in_memory(body: Body, max: usize) -> Result<Bytes, Body> {
    match body {
        Body::Bytes(bytes) if bytes.len() <= max => Ok(bytes),
        Body::Empty => Ok(Bytes::new()),
        Body::File(file) if file.len <= max as u64 && !file.file.is_direct() => {
            let len = usize::try_from(file.len).unwrap_or(max);
            let mut bytes = Vec::with_capacity(len);
            // What goes wrong goes wrong again, and is told, when the body is pulled.
            match file.file.try_read(&file.io, file.offset, len, &mut bytes) {
                Ok(Some(read)) if read == len => Ok(bytes.into()),
                _ => Err(Body::File(file)),
            }
        }
        body => Err(body),
    }
}

fn at_once(mut coder: Coder, bytes: &[u8], counts: &Counts) -> Result<Bytes, String> {
    let out = coder.step(bytes, Flush::Finish)?;
    count(&coder, counts);
    coder.retire();
    Ok(out)
}

fn count(coder: &Coder, counts: &Counts) {
    counts.taken.set(coder.taken);
    counts.made.set(coder.made);
}

/// A body that is compressed while it is sent.
struct Compressed {
    pull: Pull,
    /// What is left of the last piece.
    rest: Bytes,
    /// `None` when the end was reached.
    coder: Option<Coder>,
    io: Rc<Io>,
    /// Who the pool works for.
    client: u64,
    /// Most bytes that a step on the event loop compresses.
    inline: usize,
    /// Steps on the event loop so far.
    steps: u64,
    /// Something was compressed that may not have come out yet.
    held: bool,
    counts: Rc<Counts>,
}

impl BodySource for Compressed {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            while let Some(coder) = self.coder.take() {
                if self.rest.is_empty() {
                    match self.take().await? {
                        Some(piece) => self.rest = piece,
                        None => {
                            let (coder, out) = self.step(coder, Bytes::new(), Flush::Sync).await?;
                            self.coder = Some(coder);
                            self.held = false;
                            return Ok(Some(Part::Bytes(out)));
                        }
                    }
                }
                let input = self.rest.split_to(self.rest.len().min(STEP_BYTES_MAX));
                let flush = if input.is_empty() { Flush::Finish } else { Flush::None };
                self.held = true;
                let (coder, out) = self.step(coder, input, flush).await?;
                if flush == Flush::Finish {
                    count(&coder, &self.counts);
                    coder.retire();
                } else {
                    self.coder = Some(coder);
                }
                if !out.is_empty() {
                    return Ok(Some(Part::Bytes(out)));
                }
            }
            Ok(None)
        })
    }

    /// What comes after it holds nothing back.
    fn is_urgent(&self) -> bool {
        false
    }
}

impl Compressed {
    /// The next piece, empty at the end; `None`: it is not there yet, and what is held back has to
    /// be passed on first.
    async fn take(&mut self) -> Result<Option<Bytes>, BodyError> {
        let urgent = self.held && self.pull.is_urgent();
        let mut next = pin!(self.pull.next());
        let piece = match poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            Poll::Ready(piece) => piece?,
            Poll::Pending if urgent => return Ok(None),
            Poll::Pending => next.await?,
        };
        Ok(Some(piece.unwrap_or_default()))
    }

    /// Compresses a piece, here or in the pool.
    async fn step(
        &mut self,
        mut coder: Coder,
        input: Bytes,
        flush: Flush,
    ) -> Result<(Coder, Bytes), BodyError> {
        let work = coder.work(input.len(), flush);
        let (coder, out) = if work <= self.inline {
            if self.steps > 0 && work > 0 {
                // A fast client and a fast disk must not keep the loop.
                yield_now().await;
            }
            self.steps += 1;
            let out = coder.step(&input, flush);
            (coder, out)
        } else {
            let work = move || {
                let out = coder.step(&input, flush);
                (coder, out)
            };
            let running = self.io.pool.run(Class::Bulk, self.client, Op::Blocking, work);
            running.await.map_err(|error| BodyError::Overflow(error.to_string()))?
        };
        Ok((coder, out.map_err(BodyError::Coding)?))
    }
}
