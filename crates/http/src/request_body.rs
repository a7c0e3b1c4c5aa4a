//! Request bodies: reading them into memory or into a temporary file, and discarding them.
//! nginx: `ngx_http_request_body.c`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use nowait_runtime::time::timeout;

use crate::body_writer::BodyWriter;
use crate::conf::body::InFileOnly;
use crate::log::Level;
use crate::request::{BodyLength, BodyReader, ReadError, Request, RequestBody};
use crate::response::LocalFuture;
use crate::special_pages::REQUEST_TIMEOUT;
pub use crate::temp_file::TempFile;

/// Bytes copied at a time from one temporary file to another.
const COPY_BYTES: usize = 256 * 1024;

/// Reads the whole body: into memory up to `client_body_buffer_size`, otherwise into a file.
///
/// # Errors
/// The status to respond with.
pub async fn read(request: &mut Request) -> Result<(), u16> {
    match take_unread(request) {
        // Most requests have none: their futures need no room for reading one.
        None => Ok(()),
        Some(reader) => Box::pin(read_all(request, reader, Aim::AsConfigured)).await,
    }
}

/// The destination of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// According to the location's settings.
    AsConfigured,
    /// A file.
    File,
    /// Memory: at most this many bytes.
    Memory(usize),
}

/// Reads the whole body into memory, if it has at most `max` bytes; a longer one is refused with 413.
///
/// # Errors
/// The status to respond with.
pub async fn read_into_memory(request: &mut Request, max: usize) -> Result<(), u16> {
    if matches!(request.body_length(), BodyLength::Known(length) if length > max as u64) {
        return Err(413);
    }
    if let Some(reader) = take_unread(request) {
        Box::pin(read_all(request, reader, Aim::Memory(max))).await?;
    }
    let RequestBody::File(file) = request.body() else { return Ok(()) };
    let Some(length) = usize::try_from(file.len()).ok().filter(|length| *length <= max) else {
        return Err(413);
    };
    let bytes = file.file().read_at(&request.temp_io(), 0, length).await.map_err(|_| 500u16)?;
    request.set_body(RequestBody::Memory(bytes));
    Ok(())
}

/// Reads the whole body into a temporary file, which becomes the caller's: one to be renamed.
///
/// # Errors
/// The status to respond with.
pub async fn read_to_file(request: &mut Request) -> Result<TempFile, u16> {
    if let Some(reader) = take_unread(request) {
        Box::pin(read_all(request, reader, Aim::File)).await?;
    }
    let mut writer = BodyWriter::new(COPY_BYTES);
    match request.take_body() {
        RequestBody::File(shared) => match Rc::try_unwrap(shared) {
            Ok(file) => return Ok(file),
            // The body is being read by another task.
            Err(shared) => {
                let io = request.temp_io();
                let mut at = 0;
                while at < shared.len() {
                    let piece = shared.file().read_at(&io, at, COPY_BYTES).await;
                    let piece = piece.ok().filter(|piece| !piece.is_empty()).ok_or(500u16)?;
                    at += piece.len() as u64;
                    writer.push(request, piece);
                    writer.make_room(request).await?;
                }
            }
        },
        RequestBody::Memory(bytes) => writer.push(request, bytes),
        RequestBody::None | RequestBody::Unread(_) => {}
    }
    writer.finish(request).await
}

async fn read_all(
    request: &mut Request,
    mut reader: Box<dyn BodyReader>,
    aim: Aim,
) -> Result<(), u16> {
    let current = request.current().clone();
    let conf = &current.conf.location(request.location_id()).body;
    reader.wanted().await.map_err(|error| answer(request, &error))?;
    let max = conf.client_max_body_size.0;
    let memory_max = match aim {
        Aim::Memory(max) => max,
        Aim::AsConfigured | Aim::File => conf.client_body_buffer_size.bytes(),
    };
    let always_to_file = match aim {
        Aim::File => true,
        Aim::Memory(_) => false,
        Aim::AsConfigured => {
            conf.client_body_in_file_only != InFileOnly::Off
                || matches!(request.body_length(), BodyLength::Known(length)
                    if length > memory_max as u64)
        }
    };
    let mut memory = BytesMut::new();
    let mut writer = always_to_file.then(|| BodyWriter::new(memory_max));
    let mut total = 0u64;
    loop {
        if let Some(writer) = &mut writer {
            writer.make_room(request).await?;
        }
        reader.limit(writer.as_ref().map(BodyWriter::room));
        let next = timeout(conf.client_body_timeout.duration(), reader.next());
        let next = match &mut writer {
            None => next.await,
            Some(writer) => while_writing(request, writer, next).await?,
        };
        let piece = match next.unwrap_or(Err(ReadError::TimedOut)) {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(error) => return Err(answer(request, &error)),
        };
        total += piece.len() as u64;
        if max != 0 && total > max {
            request.log(
                Level::Error,
                format_args!("client intended to send too large chunked body: {total} bytes"),
            );
            return Err(413);
        }
        let fits = memory.len() + piece.len() <= memory_max;
        if !fits && matches!(aim, Aim::Memory(_)) {
            return Err(413);
        }
        if writer.is_none() && fits {
            if memory.is_empty()
                && let BodyLength::Known(length) = request.body_length()
            {
                // All at once, as in nginx: growing buffers would fragment the allocator's memory.
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                memory.reserve(length.min(memory_max));
            }
            memory.extend_from_slice(&piece);
            continue;
        }
        let writer = writer.get_or_insert_with(|| BodyWriter::new(memory_max));
        if !memory.is_empty() {
            writer.push(request, std::mem::take(&mut memory).freeze());
        }
        writer.push(request, piece);
    }
    // If files are requested, an empty body gets one, too.
    let wants_file = conf.client_body_in_file_only != InFileOnly::Off && aim == Aim::AsConfigured;
    let file = match writer {
        Some(writer) if total > 0 || (wants_file && states_body(request)) => {
            Some(writer.finish(request).await?)
        }
        _ => None,
    };
    request.set_body(match file {
        Some(file) => RequestBody::File(Rc::new(file)),
        None if request.body_length() == BodyLength::None => RequestBody::None,
        None => RequestBody::Memory(memory.freeze()),
    });
    Ok(())
}

/// Waits for the next piece, while the one before is being written.
async fn while_writing<T>(
    request: &Request,
    writer: &mut BodyWriter,
    next: impl Future<Output = T>,
) -> Result<T, u16> {
    let mut next = pin!(next);
    poll_fn(|cx| match writer.poll(request, cx) {
        Poll::Ready(Err(status)) => Poll::Ready(Err(status)),
        Poll::Ready(Ok(())) | Poll::Pending => next.as_mut().poll(cx).map(Ok),
    })
    .await
}

/// Whether the head says that there is a body, which may be empty.
fn states_body(request: &Request) -> bool {
    request.body_length() != BodyLength::None || request.head().content_length().is_some()
}

/// Reads a body that is passed on while it arrives: into memory, if all of it has arrived and fits
/// into `client_body_buffer_size`; otherwise it is left unread. nginx:
/// `r->request_body_no_buffering`.
///
/// # Errors
/// The status to respond with.
pub async fn read_ready(request: &mut Request) -> Result<(), u16> {
    let Some(mut reader) = take_unread(request) else { return Ok(()) };
    let current = request.current().clone();
    let conf = &current.conf.location(request.location_id()).body;
    reader.wanted().await.map_err(|error| answer(request, &error))?;
    let mut pieces = Vec::new();
    let mut bytes = 0;
    while bytes < conf.client_body_buffer_size.bytes() {
        let mut next = reader.next();
        let Poll::Ready(piece) = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await else {
            break;
        };
        drop(next);
        match piece.map_err(|error| answer(request, &error))? {
            Some(piece) => {
                bytes += piece.len();
                pieces.push(piece);
            }
            None => {
                request.set_body(match request.body_length() {
                    BodyLength::None => RequestBody::None,
                    _ => RequestBody::Memory(pieces.concat().into()),
                });
                return Ok(());
            }
        }
    }
    request.set_body(RequestBody::Unread(Box::new(PrefixedReader::new(pieces, reader))));
    Ok(())
}

/// A body of which a part was already read.
pub struct PrefixedReader {
    pieces: VecDeque<Bytes>,
    reader: Box<dyn BodyReader>,
}

impl PrefixedReader {
    /// A body that begins with these pieces.
    pub fn new(pieces: Vec<Bytes>, reader: Box<dyn BodyReader>) -> Self {
        Self { pieces: pieces.into(), reader }
    }
}

impl BodyReader for PrefixedReader {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        match self.pieces.pop_front() {
            Some(piece) => Box::pin(std::future::ready(Ok(Some(piece)))),
            None => self.reader.next(),
        }
    }

    fn limit(&mut self, bytes: Option<usize>) {
        self.reader.limit(bytes);
    }

    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>> {
        self.reader.wanted()
    }
}

/// Counts the content that is read, for `$request_length`.
///
/// nginx differs: it also counts the framing of chunks.
pub struct CountingReader<R> {
    reader: R,
    received: Rc<Cell<u64>>,
}

impl<R: BodyReader + 'static> CountingReader<R> {
    /// The content of a request of which only the head was received.
    pub fn unread(reader: R, received: &Rc<Cell<u64>>) -> RequestBody {
        RequestBody::Unread(Box::new(Self { reader, received: received.clone() }))
    }
}

impl<R: BodyReader> BodyReader for CountingReader<R> {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async move {
            let piece = self.reader.next().await;
            if let Ok(Some(piece)) = &piece {
                self.received.set(self.received.get() + piece.len() as u64);
            }
            piece
        })
    }

    fn limit(&mut self, bytes: Option<usize>) {
        self.reader.limit(bytes);
    }

    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>> {
        self.reader.wanted()
    }
}

/// Takes the reader of an unread body.
fn take_unread(request: &mut Request) -> Option<Box<dyn BodyReader>> {
    match request.take_body() {
        RequestBody::Unread(reader) => Some(reader),
        read => {
            request.set_body(read);
            None
        }
    }
}

/// Logs why a body could not be read, and returns the status to respond with.
pub fn answer(request: &Request, error: &ReadError) -> u16 {
    match error {
        ReadError::Closed(error) => {
            request.log(
                Level::Info,
                format_args!("client prematurely closed connection {}", crate::files::errno(error)),
            );
            400
        }
        ReadError::TimedOut => {
            request.log(Level::Info, format_args!("client timed out (110: Connection timed out)"));
            REQUEST_TIMEOUT
        }
        ReadError::Malformed(text) => {
            request.log(Level::Info, format_args!("{text}"));
            400
        }
        ReadError::TooLarge => 413,
    }
}

/// A body that is already complete, for tests and for protocols that read ahead.
pub struct Ready(pub Option<Bytes>);

impl BodyReader for Ready {
    fn next(&mut self) -> crate::response::LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        let piece = self.0.take();
        Box::pin(async move { Ok(piece) })
    }

    fn wanted(&mut self) -> crate::response::LocalFuture<'_, Result<(), ReadError>> {
        Box::pin(async { Ok(()) })
    }
}
