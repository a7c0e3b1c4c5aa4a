//! Request bodies: reading them into memory or into a temporary file, and discarding them.
//! nginx: `ngx_http_request_body.c`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use nowait_runtime::time::timeout;

use crate::conf::body::InFileOnly;
use crate::log::Level;
use crate::request::{BodyLength, BodyReader, ReadError, Request, RequestBody};
use crate::response::LocalFuture;
pub use crate::temp_file::TempFile;

/// Reads the whole body: into memory up to `client_body_buffer_size`, otherwise into a file.
///
/// # Errors
/// The status to respond with.
pub async fn read(request: &mut Request) -> Result<(), u16> {
    match take_unread(request) {
        // Most requests have none: their futures need no room for reading one.
        None => Ok(()),
        Some(reader) => Box::pin(read_all(request, reader)).await,
    }
}

async fn read_all(request: &mut Request, mut reader: Box<dyn BodyReader>) -> Result<(), u16> {
    let current = request.current.clone();
    let conf = &current.conf.location(request.location).body;
    reader.wanted().await.map_err(|error| answer(request, &error))?;
    let max = conf.client_max_body_size.0;
    let mut memory = BytesMut::new();
    let mut file: Option<TempFile> = None;
    let mut total = 0u64;
    loop {
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
        let fits = memory.len() + piece.len() <= conf.client_body_buffer_size.bytes();
        if file.is_none() && fits && conf.client_body_in_file_only == InFileOnly::Off {
            if memory.is_empty()
                && let BodyLength::Known(length) = request.body_length
            {
                // All at once, as in nginx: growing buffers would fragment the allocator's memory.
                let max = conf.client_body_buffer_size.bytes();
                memory.reserve(usize::try_from(length).map_or(max, |length| length.min(max)));
            }
            memory.extend_from_slice(&piece);
            continue;
        }
        let target = match &mut file {
            Some(file) => file,
            None => {
                let created = TempFile::make(request.temp_io(), &conf.client_body_temp_path)
                    .await
                    .map_err(|error| {
                        request.log(Level::Crit, format_args!("{error}"));
                        500u16
                    })?;
                file.insert(created)
            }
        };
        if conf.client_body_in_file_only == InFileOnly::On {
            target.keep();
        }
        let chunks: Vec<Bytes> = [std::mem::take(&mut memory).freeze(), piece]
            .into_iter()
            .filter(|c| !c.is_empty())
            .collect();
        if let Err(error) = target.append(chunks).await {
            request.log(Level::Crit, format_args!("{error}"));
            return Err(500);
        }
    }
    request.body = match file {
        Some(file) => RequestBody::File(Rc::new(file)),
        None => RequestBody::Memory(memory.freeze()),
    };
    Ok(())
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
                request.body = RequestBody::Memory(pieces.concat().into());
                return Ok(());
            }
        }
    }
    request.body = RequestBody::Unread(Box::new(Resumed { pieces: pieces.into(), reader }));
    Ok(())
}

/// A body that was read in part.
struct Resumed {
    pieces: VecDeque<Bytes>,
    reader: Box<dyn BodyReader>,
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
pub(crate) fn answer(request: &Request, error: &ReadError) -> u16 {
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
        ReadError::Malformed(error) => {
            request.log(Level::Info, format_args!("{error}"));
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
