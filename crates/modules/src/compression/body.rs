//! The framework of all compressions: a body that is compressed as it is sent.
//!
//! Used by the filters `gzip`, `brotli` and `zstd`. A text of moderate length is compressed in one step,
//! at once if it is small and in memory. Longer texts, and those of unknown length, are pulled,
//! compressed and sent piece by piece. Work that would hold up the event loop goes to the thread pool
//! `compute`. A resident file is compressed once for many requests. Data that a source wants to pass on at once is flushed.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use nowait_caching::control::CacheControl;
use nowait_coding::{Coder, Error, Flush, Recipe, WHOLE_BYTES_MAX};
use nowait_http::conf::content_types::ContentTypes;
use nowait_http::filter::Pull;
use nowait_http::log::Level;
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, Head, LocalFuture, Part, Response};
use nowait_runtime::fs::resident::Resident;
use nowait_runtime::pool::{Class, Op, Pool};
use nowait_runtime::yield_now;

use super::Counts;

/// Maximum number of bytes of a long text that are compressed in one step, here or in the pool.
const STEP_BYTES_MAX: usize = 32 * 1024;

/// Whether a response may be compressed, without regard to the client: depends on its length and type,
/// which the filter's directives restrict, on its status and its coding.
///
/// nginx differs: with `proxy_cache_rfc9111 on;` content marked `no-transform` is left alone. RFC
/// 9110 section 7.7: "A proxy MUST NOT transform the content of a response message that contains a
/// no-transform cache directive".
pub(super) fn is_compressible(
    request: &Request,
    head: &Head,
    bytes_min: u64,
    types: &ContentTypes,
) -> bool {
    let may_be_transformed = || {
        let is_strict = request.location().follows_rfcs;
        let lines = head.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(b"cache-control"));
        !(is_strict && CacheControl::parse(lines.map(|h| &h.value[..])).no_transform)
    };
    matches!(head.status, 200 | 403 | 404)
        && head.content_encoding.as_ref().is_none_or(Bytes::is_empty)
        && head.content_length.is_none_or(|length| length >= bytes_min)
        && types.mean(head.content_type.as_ref())
        && may_be_transformed()
}

/// Compresses the body.
///
/// # Errors
/// 500: the compression fails; the log says why.
pub(super) fn wrap(
    request: &Request,
    response: &mut Response,
    recipe: Recipe,
    counts: Rc<Counts>,
) -> Result<(), Box<StatusResponse>> {
    let kept = StoredVariant::of(response, &recipe);
    if let Some(out) = kept.as_ref().and_then(|kept| kept.find(&counts)) {
        response.body = Body::Bytes(out);
        return Ok(());
    }
    let body = std::mem::take(&mut response.body);
    let made = match in_memory(body, recipe.inline_whole_bytes()) {
        Ok(text) => whole(&recipe, &text, &counts).map(|out| {
            kept.inspect(|kept| kept.keep(&out));
            Body::Bytes(out)
        }),
        Err(body) => begin(request, body, recipe, counts, kept),
    };
    response.body = made.map_err(|error| {
        request.log(Level::Error, format_args!("{error}"));
        StatusResponse { status: 500, ..StatusResponse::default() }
    })?;
    Ok(())
}

/// A compressed text that is kept for other requests, together with its resident file.
struct StoredVariant {
    file: Arc<Resident>,
    /// The number of the recipe.
    how: u64,
}

impl StoredVariant {
    /// `None` if the text is not the current content of a resident file.
    fn of(response: &Response, recipe: &Recipe) -> Option<StoredVariant> {
        let file = response.head.resident.as_ref()?;
        let Body::Bytes(text) = &response.body else { return None };
        // If a filter has changed the text, it is in other memory.
        let (_, content) = file.file()?;
        let is_whole = (text.as_ptr(), text.len()) == (content.as_ptr(), content.len());
        let how = recipe.number().filter(|_| is_whole)?;
        Some(StoredVariant { file: file.clone(), how })
    }

    fn find(&self, counts: &Counts) -> Option<Bytes> {
        let out = self.file.variant(self.how)?;
        counts.taken.set(self.file.file().map_or(0, |(_, content)| content.len() as u64));
        counts.made.set(out.len() as u64);
        Some(out)
    }

    fn keep(&self, out: &Bytes) {
        self.file.keep_variant(self.how, out);
    }
}

/// Creates the compressed body.
fn begin(
    request: &Request,
    body: Body,
    recipe: Recipe,
    counts: Rc<Counts>,
    kept: Option<StoredVariant>,
) -> Result<Body, Error> {
    let place = CompressionPool {
        pool: request.current().compute_pool().clone(),
        client: request.client().number,
    };
    let len = body.len();
    let body = body.safe(request);
    if let Some(len) = len.and_then(|len| usize::try_from(len).ok())
        && len <= WHOLE_BYTES_MAX
    {
        let work = Some((Pull::new(body), recipe));
        return Ok(Body::Stream(Box::new(WholeBody { work, len, place, counts, kept })));
    }
    Ok(Body::Stream(Box::new(CompressedBody {
        pull: Pull::new(body),
        rest: Bytes::new(),
        coder: Some(recipe.begin(len, counts.expected)?),
        inline: recipe.inline_step_bytes(),
        steps: 0,
        held: false,
        place,
        counts,
    })))
}

/// The content of a body of at most `max` bytes, if it is available without waiting; otherwise the
/// body.
fn in_memory(body: Body, max: usize) -> Result<Bytes, Body> {
    match body {
        Body::Bytes(bytes) if bytes.len() <= max => Ok(bytes),
        Body::Empty => Ok(Bytes::new()),
        Body::File(file) if file.len <= max as u64 && !file.file.is_direct() => {
            let len = usize::try_from(file.len).unwrap_or(max);
            let mut bytes = Vec::with_capacity(len);
            // An error occurs again, and is reported, when the body is pulled.
            match file.file.try_read(&file.io, file.offset, len, &mut bytes) {
                Ok(Some(read)) if read == len => Ok(bytes.into()),
                _ => Err(Body::File(file)),
            }
        }
        body => Err(body),
    }
}

fn whole(recipe: &Recipe, text: &[u8], counts: &Counts) -> Result<Bytes, Error> {
    let out = recipe.whole(text)?;
    counts.taken.set(text.len() as u64);
    counts.made.set(out.len() as u64);
    Ok(out)
}

fn count(coder: &Coder, counts: &Counts) {
    counts.taken.set(coder.taken());
    counts.made.set(coder.made());
}

fn failed(error: Error) -> BodyError {
    BodyError::Coding(error.to_string())
}

/// The pool for long compression.
struct CompressionPool {
    pool: Pool,
    /// The client that the pool works for.
    client: u64,
}

impl CompressionPool {
    /// Runs `work`. Its argument tells whether the result is still needed; if the client has disconnected,
    /// it is not.
    async fn run_while<T, F>(&self, work: F) -> Result<T, BodyError>
    where
        F: FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
        T: Send + 'static,
    {
        let waiter = Arc::new(());
        let waits = Arc::downgrade(&waiter);
        let done = self.run(move || work(&|| waits.strong_count() > 0)).await;
        drop(waiter);
        done
    }

    async fn run<T, F>(&self, work: F) -> Result<T, BodyError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let running = self.pool.run(Class::Bulk, self.client, Op::Blocking, work);
        running.await.map_err(|error| BodyError::Overflow(error.to_string()))
    }
}

/// A body of known and moderate length: one step, and at most one pool task. The compressor's
/// memory is held while it runs, not while the client receives the output.
struct WholeBody {
    /// `None` when the work is done.
    work: Option<(Pull, Recipe)>,
    len: usize,
    place: CompressionPool,
    counts: Rc<Counts>,
    kept: Option<StoredVariant>,
}

impl BodySource for WholeBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            let Some((pull, recipe)) = self.work.take() else { return Ok(None) };
            let text = collect(pull, self.len).await?;
            let out = if text.len() <= recipe.inline_whole_bytes() {
                whole(&recipe, &text, &self.counts).map_err(failed)?
            } else {
                let out = self
                    .place
                    .run_while(move |is_wanted| recipe.whole_while(&text, is_wanted))
                    .await?
                    .map_err(failed)?;
                self.counts.taken.set(self.len as u64);
                self.counts.made.set(out.len() as u64);
                out
            };
            self.kept.take().inspect(|kept| kept.keep(&out));
            Ok(Some(Part::Bytes(out)))
        })
    }

    fn is_urgent(&self) -> bool {
        false
    }
}

/// Collects a whole body of this length.
async fn collect(mut pull: Pull, len: usize) -> Result<Bytes, BodyError> {
    let first = pull.next().await?.unwrap_or_default();
    if first.len() >= len {
        return Ok(first);
    }
    let mut text = Vec::with_capacity(len);
    text.extend_from_slice(&first);
    while let Some(piece) = pull.next().await? {
        text.extend_from_slice(&piece);
    }
    Ok(text.into())
}

/// A body that is compressed while it is sent.
struct CompressedBody {
    pull: Pull,
    /// The rest of the last piece.
    rest: Bytes,
    /// `None` after the end.
    coder: Option<Coder>,
    place: CompressionPool,
    /// Maximum number of bytes that one step compresses on the event loop.
    inline: usize,
    /// Number of steps on the event loop.
    steps: u64,
    /// Compressed data may still be inside the coder.
    held: bool,
    counts: Rc<Counts>,
}

impl BodySource for CompressedBody {
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

    /// Nothing behind this source holds data back.
    fn is_urgent(&self) -> bool {
        false
    }
}

impl CompressedBody {
    /// The next piece, empty at the end. `None`: it is not available yet, and held-back data has to
    /// be sent first.
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
                // A fast client and a fast disk must not monopolise the loop.
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
            self.place.run(work).await?
        };
        Ok((coder, out.map_err(failed)?))
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use nowait_runtime::pool::PoolConfig;

    use super::*;

    #[test]
    fn abandoned_work_ends_early() {
        let config = PoolConfig { name: "test".to_owned(), threads: 1, max_queue: 1 };
        let place = CompressionPool { pool: Pool::new(config), client: 1 };
        let (sender, receiver) = channel();
        let mut running = Box::pin(place.run_while(move |is_wanted| {
            sender.send("started").unwrap();
            while is_wanted() {
                std::thread::yield_now();
            }
            sender.send("ended").unwrap();
        }));
        assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let told = || receiver.recv_timeout(Duration::from_secs(30));
        assert_eq!(told(), Ok("started"));
        drop(running);
        assert_eq!(told(), Ok("ended"));
    }
}
