//! Request bodies: reading them into memory or into a temporary file, and discarding them.
//! nginx: `ngx_http_request_body.c`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nowait_runtime::now;
use nowait_runtime::time::timeout;

use crate::conf::body::InFileOnly;
use crate::log::Level;
use crate::request::{BodyLength, BodyReader, ReadError, Request, RequestBody};
use crate::response::LocalFuture;
pub use crate::temp_file::TempFile;

/// While the temporary file takes longer than this to write, only one step is received at a time: what
/// has not been received costs no memory of ours.
const QUICK: Duration = Duration::from_millis(5);

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

/// Where a body is read to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// As the location's settings say.
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
    if matches!(request.body_length, BodyLength::Known(length) if length > max as u64) {
        return Err(413);
    }
    if let Some(reader) = take_unread(request) {
        Box::pin(read_all(request, reader, Aim::Memory(max))).await?;
    }
    let RequestBody::File(file) = &request.body else { return Ok(()) };
    let Some(length) = usize::try_from(file.len()).ok().filter(|length| *length <= max) else {
        return Err(413);
    };
    let bytes = file.file().read_at(&request.temp_io(), 0, length).await.map_err(|_| 500u16)?;
    request.body = RequestBody::Memory(bytes);
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
    let read = std::mem::take(&mut request.body);
    let mut file = None;
    match read {
        RequestBody::File(shared) => match Rc::try_unwrap(shared) {
            Ok(file) => return Ok(file),
            // Somebody else reads it.
            Err(shared) => {
                let io = request.temp_io();
                let mut at = 0;
                while at < shared.len() {
                    let piece = shared.file().read_at(&io, at, COPY_BYTES).await;
                    let piece = piece.ok().filter(|piece| !piece.is_empty()).ok_or(500u16)?;
                    at += piece.len() as u64;
                    append(request, &mut file, vec![piece]).await?;
                }
            }
        },
        RequestBody::Memory(bytes) => append(request, &mut file, vec![bytes]).await?,
        RequestBody::None | RequestBody::Unread(_) => {}
    }
    if file.is_none() {
        append(request, &mut file, Vec::new()).await?;
    }
    Ok(file.expect("it was just made"))
}

async fn read_all(
    request: &mut Request,
    mut reader: Box<dyn BodyReader>,
    aim: Aim,
) -> Result<(), u16> {
    let current = request.current.clone();
    let conf = &current.conf.location(request.location).body;
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
                || matches!(request.body_length, BodyLength::Known(length)
                    if length > memory_max as u64)
        }
    };
    let mut memory = BytesMut::new();
    let mut steps = Steps::new(memory_max / 2);
    let mut file: Option<TempFile> = None;
    let mut total = 0u64;
    // Whether the disk keeps up with the client.
    let mut quick = false;
    loop {
        let to_file = always_to_file || file.is_some();
        reader.limit((to_file && !quick).then(|| steps.room()));
        let next = timeout(conf.client_body_timeout.duration(), reader.next()).await;
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
        if !to_file && fits {
            if memory.is_empty()
                && let BodyLength::Known(length) = request.body_length
            {
                // All at once, as in nginx: growing buffers would fragment the allocator's memory.
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                memory.reserve(length.min(memory_max));
            }
            memory.extend_from_slice(&piece);
            continue;
        }
        let mut ready = Vec::new();
        if !memory.is_empty() {
            ready.push(std::mem::take(&mut memory).freeze());
        }
        steps.push(piece, &mut ready);
        if !ready.is_empty() {
            let started = now();
            append(request, &mut file, ready).await?;
            quick = now().saturating_duration_since(started) < QUICK;
        }
    }
    if let Some(last) = steps.finish() {
        append(request, &mut file, vec![last]).await?;
    }
    // Who wants files gets one for an empty body, too.
    let wants_file = conf.client_body_in_file_only != InFileOnly::Off && aim == Aim::AsConfigured;
    if wants_file && file.is_none() && states_body(request) {
        append(request, &mut file, Vec::new()).await?;
    }
    request.body = match file {
        Some(file) => RequestBody::File(Rc::new(file)),
        None if request.body_length == BodyLength::None => RequestBody::None,
        None => RequestBody::Memory(memory.freeze()),
    };
    Ok(())
}

/// Whether the head says that there is a body, which may be empty.
fn states_body(request: &Request) -> bool {
    request.body_length != BodyLength::None || request.head.content_length().is_some()
}

/// Appends to the temporary file, which is made if there is none. The status to answer with, if that
/// fails.
async fn append(
    request: &Request,
    file: &mut Option<TempFile>,
    pieces: Vec<Bytes>,
) -> Result<(), u16> {
    let failed = |error: String| {
        request.log(Level::Crit, format_args!("{error}"));
        500
    };
    let conf = &request.location().body;
    let file = match file {
        Some(file) => file,
        None => {
            let created = TempFile::make(request.temp_io(), &conf.client_body_temp_path).await;
            file.insert(created.map_err(failed)?)
        }
    };
    if conf.client_body_in_file_only == InFileOnly::On {
        file.keep();
    }
    if pieces.is_empty() {
        return Ok(());
    }
    file.append(pieces).await.map_err(failed)
}

/// Collects the small pieces of a body that goes to a file. All its memory is of one size, so that the
/// allocator can reuse it for other clients: pieces of different sizes would leave holes.
struct Steps {
    /// At least this many bytes are written at once.
    size: usize,
    collected: BytesMut,
}

impl Steps {
    fn new(size: usize) -> Self {
        Self { size: size.max(1), collected: BytesMut::new() }
    }

    /// This many bytes fit into what is collected.
    fn room(&self) -> usize {
        self.size - self.collected.len()
    }

    /// Takes a piece; adds to `ready` what is to be written now.
    fn push(&mut self, piece: Bytes, ready: &mut Vec<Bytes>) {
        // The client does not pause: nothing is collected, and nothing copied.
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

    /// What was collected, if there is anything.
    fn finish(&mut self) -> Option<Bytes> {
        let collected = std::mem::take(&mut self.collected);
        (!collected.is_empty()).then(|| collected.freeze())
    }
}

/// Reads a body that is passed on while it arrives: into memory, if all of it has arrived and fits
/// into `client_body_buffer_size`; otherwise it is left unread. nginx:
/// `r->request_body_no_buffering`.
///
/// # Errors
/// The status to respond with.
pub async fn read_ready(request: &mut Request) -> Result<(), u16> {
    let Some(mut reader) = take_unread(request) else { return Ok(()) };
    let current = request.current.clone();
    let conf = &current.conf.location(request.location).body;
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
                request.body = match request.body_length {
                    BodyLength::None => RequestBody::None,
                    _ => RequestBody::Memory(pieces.concat().into()),
                };
                return Ok(());
            }
        }
    }
    request.body = RequestBody::Unread(Box::new(Resumed::new(pieces, reader)));
    Ok(())
}

/// A body that was read in part.
pub struct Resumed {
    pieces: VecDeque<Bytes>,
    reader: Box<dyn BodyReader>,
}

impl Resumed {
    /// One that begins with these pieces.
    pub fn new(pieces: Vec<Bytes>, reader: Box<dyn BodyReader>) -> Self {
        Self { pieces: pieces.into(), reader }
    }
}

impl BodyReader for Resumed {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        match self.pieces.pop_front() {
            Some(piece) => Box::pin(std::future::ready(Ok(Some(piece)))),
            None => self.reader.next(),
        }
    }

    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>> {
        self.reader.wanted()
    }
}

/// Counts the content that is read, for `$request_length`.
///
/// nginx differs: it also counts the framing of chunks.
pub struct Counted<R> {
    reader: R,
    received: Rc<Cell<u64>>,
}

impl<R: BodyReader + 'static> Counted<R> {
    /// The content of a request of which only the head was received.
    pub fn unread(reader: R, received: &Rc<Cell<u64>>) -> RequestBody {
        RequestBody::Unread(Box::new(Self { reader, received: received.clone() }))
    }
}

impl<R: BodyReader> BodyReader for Counted<R> {
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
    match std::mem::take(&mut request.body) {
        RequestBody::Unread(reader) => Some(reader),
        read => {
            request.body = read;
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
            408
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

    #[test]
    fn small_pieces_are_written_in_steps_and_large_ones_as_they_come() {
        let none: &[usize] = &[];
        assert_eq!(written(&[3, 3, 3, 16]), [none, none, &[8], &[8, 8], &[1]]);
        assert_eq!(written(&[17, 3, 17, 8]), [&[17], none, &[3, 17], &[8], none]);
        assert_eq!(written(&[]), [none]);
    }
}
