//! Sends a response: the head, then the body as it is pulled.
//!
//! Called by the connection task, the only place where responses meet the socket. Small bodies leave
//! with the head in one call; large files by `sendfile`, in the loop as far as they are in memory,
//! otherwise through their pool. Never reads a disk in the event loop: files go through the runtime's
//! `fs`.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nowait_h1::encode::{CHUNK_END, HeadWriter, chunk_start};
use nowait_http::exchange::{Exchange, OnHangup};
use nowait_http::limit_rate::Rate;
use nowait_http::logs::debug;
use nowait_http::request::{Request, RequestBody};
use nowait_http::response::{
    Body, BodyError, BodySource, Duplex, Elsewhere, FileBody, Head, LocalFuture, Part,
};
use nowait_message::{Method, Version};
use nowait_runtime::buf::{Chain, Chunk, FileRange, OutBuf};
use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::pool::PoolError;
use nowait_runtime::task::{Either, select};
use nowait_runtime::{now, sleep};

use super::connection::Connection;
use super::response_head::{self, Framing};
use super::serving::flush;
use crate::sending::{SendError, left};

/// A part of a file up to this size is read and sent together with the head; larger ones are worth
/// a `sendfile`.
const INLINE_BYTES_MAX: u64 = 60 * 1024;

/// Up to this size the runtime reads a part of a file in order to send it.
const READ_BYTES_MAX: u64 = 64 * 1024;

/// Bytes in memory up to this size are copied behind the head instead of becoming a separate chunk.
const COPY_BYTES_MAX: usize = 4 * 1024;

/// The same limit for content that is framed as a chunk: its framing follows, so that sending the
/// content at once would take another call.
const CHUNK_COPY_BYTES_MAX: usize = 32 * 1024;

/// Buffered output is sent when it reaches this size.
const COLLECT_BYTES_MAX: usize = 64 * 1024;

/// The part of a response that [`start`] left.
pub struct Rest {
    framing: Framing,
    /// The head, if `100 Continue` has to be sent before it.
    head: Option<Box<Head>>,
    body: Body,
}

impl Rest {
    /// Sends as much as the kernel takes at once, behind `out`, if the rest is in memory and has a known
    /// length. Returns what is left.
    ///
    /// # Errors
    /// [`SendError`]; the connection can only be closed then.
    pub fn send_at_once(
        mut self,
        connection: &Connection,
        request: &Request,
        out: &mut OutBuf,
    ) -> Result<Option<Rest>, SendError> {
        let is_plain =
            self.framing == Framing::Length && self.head.is_none() && !Rate::applies(request);
        let Body::Bytes(bytes) = &mut self.body else { return Ok(Some(self)) };
        if !is_plain {
            return Ok(Some(self));
        }
        let before = bytes.len();
        let is_done = connection.stream.begin_send(out, bytes).map_err(SendError::Client)?;
        count(request, (before - bytes.len()) as u64);
        Ok((!is_done).then_some(self))
    }
}

/// Starts to send a response: appends the head to `out`, and the body if it is small and in memory.
/// `None`: the response is complete. Otherwise the body is taken. The caller sends `out`.
///
/// # Errors
/// [`SendError`]; the connection can only be closed then.
pub fn start(
    connection: &Connection,
    request: &mut Request,
    head: Box<Head>,
    body: &mut Body,
    out: &mut OutBuf,
) -> Result<Option<Rest>, SendError> {
    connection.set_nodelay(request.location().client.tcp_nodelay);
    if let Body::Tunnel(_) = body {
        request.persistence.keep_alive = false;
        write_head(request, head, Framing::None, out);
        let body = std::mem::take(body);
        return Ok(Some(Rest { framing: Framing::None, head: None, body }));
    }
    decide_keep_alive(connection, request, &head);
    let framing = response_head::framing(request, &head);
    if matches!(request.body, RequestBody::Unread(_)) && request.head.expects_continue() {
        if request.persistence.body_discarded {
            // The client may or may not send the content, and the next request can't be told from
            // it.
            request.persistence.keep_alive = false;
        } else {
            let body = std::mem::take(body);
            return Ok(Some(Rest { framing, head: Some(head), body }));
        }
    }
    write_head(request, head, framing, out);
    if request.header_only || framing == Framing::None {
        return Ok(None);
    }
    if let (Framing::Chunked, Body::Bytes(bytes)) = (framing, &*body)
        && bytes.len() <= CHUNK_COPY_BYTES_MAX
        && !Rate::applies(request)
    {
        let before = out.len();
        chunk_start(&mut **out, bytes.len() as u64);
        out.extend_from_slice(bytes);
        out.extend_from_slice(if bytes.is_empty() { b"" } else { CHUNK_END });
        count(request, (out.len() - before) as u64);
        last_chunk(request, out);
        return Ok(None);
    }
    if framing == Framing::Length && !Rate::applies(request) {
        match &*body {
            Body::Empty => return Ok(None),
            Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                out.extend_from_slice(bytes);
                count(request, bytes.len() as u64);
                return Ok(None);
            }
            Body::File(file)
                if file.len <= INLINE_BYTES_MAX
                    && !file.file.is_direct()
                    && read_at_once(file, out)? =>
            {
                count(request, file.len);
                return Ok(None);
            }
            _ => {}
        }
    }
    Ok(Some(Rest { framing, head: None, body: std::mem::take(body) }))
}

/// Sends the part that [`start`] left.
///
/// # Errors
/// [`SendError`]; the connection can only be closed then.
pub async fn send_rest(
    connection: &Connection,
    request: &mut Request,
    rest: Rest,
    out: &mut OutBuf,
) -> Result<(), SendError> {
    let Rest { framing, head, body } = rest;
    if let Some(head) = head {
        flush(connection, out, request.send_timeout()).await.map_err(SendError::Client)?;
        if let RequestBody::Unread(reader) = &mut request.body
            && reader.wanted().await.is_err()
        {
            request.persistence.keep_alive = false;
        }
        write_head(request, head, framing, out);
        if request.header_only || framing == Framing::None {
            return Ok(());
        }
    }
    if let Body::Tunnel(tunnel) = body {
        flush(connection, out, request.send_timeout()).await.map_err(SendError::Client)?;
        let client = Duplex {
            end: (&connection.stream).into(),
            received: connection.take_input(),
            sent: &request.sent.bytes,
            send_timeout: request.send_timeout(),
            lingering_timeout: request.location().client.lingering_timeout.duration(),
        };
        if let Err(error) = tunnel.run(client).await {
            nowait_http::logs::body_error(request, &error);
        }
        return Ok(());
    }
    let body = match body {
        // No decision is needed between its pieces: it is sent with the head.
        Body::Bytes(bytes) if framing == Framing::Length && !Rate::applies(request) => {
            count(request, bytes.len() as u64);
            let mut chain = Chain::from(std::mem::take(out));
            chain.push(Chunk::from(bytes));
            let options = SendOptions::new(request.send_timeout());
            return connection.stream.send(chain, options).await.map_err(SendError::Client);
        }
        body => body,
    };
    let mut sender = Sender::new(connection, request, framing, out);
    sender.head().await?;
    sender.body(body).await?;
    if framing == Framing::Chunked {
        last_chunk(request, out);
    }
    Ok(())
}

fn write_head(request: &mut Request, mut head: Box<Head>, framing: Framing, out: &mut OutBuf) {
    let start = out.len();
    nowait_http::response_head::complete(request, &mut head);
    if request.head.version() != Version::Http09 || request.head.is_empty() {
        response_head::write(request, &head, framing, out);
    }
    let bytes = (out.len() - start) as u64;
    request.sent.head_bytes.set(bytes);
    request.sent.bytes.set(bytes);
    debug!(request, "http response: {}, a head of {bytes} bytes", head.status);
    request.set_out(head);
}

/// Ends a chunked body, with the trailers of an upstream and those of `add_trailer`.
fn last_chunk(request: &mut Request, out: &mut OutBuf) {
    nowait_http::response_head::complete_trailers(request);
    let before = out.len();
    let mut writer = HeadWriter::trailers(&mut **out);
    for trailer in &request.out.trailers {
        writer.field(&trailer.name, &trailer.value);
    }
    writer.finish();
    count(request, (out.len() - before) as u64);
}

/// Counts sent bytes, including the framing of chunks, as nginx does.
fn count(request: &Request, bytes: u64) {
    let sent = &request.sent.bytes;
    sent.set(sent.get() + bytes);
}

/// Like [`read_inline`], but an unreadable file with another source is no error yet.
fn read_at_once(file: &FileBody, out: &mut OutBuf) -> Result<bool, SendError> {
    let read = read_inline(file, out);
    if file.elsewhere.is_some() { Ok(read.unwrap_or(false)) } else { read }
}

/// Appends a file that is in memory; false, appending nothing, if it is not.
fn read_inline(file: &FileBody, out: &mut OutBuf) -> Result<bool, SendError> {
    let wanted = usize::try_from(file.len).unwrap_or(usize::MAX);
    let start = out.len();
    out.make_room(wanted.min(COLLECT_BYTES_MAX));
    match file.file.try_read(&file.io, file.offset, wanted, out).map_err(BodyError::File)? {
        Some(read) if read == wanted => Ok(true),
        Some(_) => {
            out.truncate(start);
            Err(BodyError::Truncated.into())
        }
        None => Ok(false),
    }
}

/// Sends a file. `None`: its disk does not respond, and the unsent bytes have another source.
async fn unless_it_hangs(
    stream: &Stream,
    chain: Chain,
    options: SendOptions,
    elsewhere: &dyn Elsewhere,
) -> Option<io::Result<()>> {
    let mut send = stream.send(chain, options);
    // The disk has not responded since this many bytes were sent.
    let mut waiting: Option<(u64, LocalFuture<'static, ()>)> = None;
    let mut hangs = false;
    poll_fn(|cx| {
        let sent = Pin::new(&mut send).poll(cx);
        if sent.is_ready() || !send.waits_for_disk() {
            if waiting.take().is_some() && !matches!(sent, Poll::Ready(Err(_))) {
                elsewhere.answered();
            }
            return sent.map(Some);
        }
        if !hangs {
            let at = stream.bytes_sent();
            if waiting.as_ref().is_none_or(|(before, _)| *before != at)
                && waiting.replace((at, elsewhere.hangs())).is_some()
            {
                elsewhere.answered();
            }
            hangs = waiting.as_mut().is_some_and(|(_, hangs)| hangs.as_mut().poll(cx).is_ready());
        }
        if hangs && send.give_up() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Whether a file could not be read: the missing bytes may be available elsewhere.
fn is_unread(sent: &Result<(), SendError>) -> bool {
    matches!(sent, Err(SendError::Body(BodyError::File(_) | BodyError::Truncated)))
}

/// Errors of sendfile(2) that concern the file, not the socket.
fn is_of_disk(error: &io::Error) -> bool {
    use rustix::io::Errno;
    const OF_DISK: [Errno; 6] =
        [Errno::IO, Errno::NXIO, Errno::NODEV, Errno::STALE, Errno::UCLEAN, Errno::BADMSG];
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| OF_DISK.contains(&errno))
}

/// Whether the connection may be kept alive. nginx: `ngx_http_update_location_config`.
fn decide_keep_alive(
    connection: &Connection,
    request: &mut Request,
    head: &nowait_http::response::Head,
) {
    if !request.persistence.keep_alive {
        return;
    }
    let client = &request.location().client;
    let disabled = &client.keepalive_disable;
    let refused = head.close
        || client.keepalive_timeout.timeout.0 == 0
        || u64::from(connection.client.requests.get()) >= u64::from(client.keepalive_requests)
        || connection.client.is_older_than(client.keepalive_time.duration())
        || connection.common.is_closing()
        || (disabled.msie6 && request.method == Method::Post && request.is_msie6())
        || (disabled.safari && request.is_safari());
    if refused {
        request.persistence.keep_alive = false;
    }
}

/// The state of sending one body.
struct Sender<'a> {
    connection: &'a Connection,
    request: &'a Request,
    framing: Framing,
    out: &'a mut OutBuf,
    timeout: Duration,
    rate: Option<Rate>,
    /// Segments are held back (`tcp_nopush`).
    corked: bool,
    /// Bytes still missing from the chunk whose size was announced.
    chunk_left: u64,
    /// Bytes of the last part that could not be read from its file.
    unread: Option<u64>,
}

impl<'a> Sender<'a> {
    fn new(
        connection: &'a Connection,
        request: &'a Request,
        framing: Framing,
        out: &'a mut OutBuf,
    ) -> Self {
        let timeout = request.location().client.send_timeout.duration();
        let rate = Rate::of(request);
        Self {
            connection,
            request,
            framing,
            out,
            timeout,
            rate,
            corked: false,
            chunk_left: 0,
            unread: None,
        }
    }

    /// `limit_rate` applies to the head, too: what of it may not be sent with the body yet, is sent here.
    async fn head(&mut self) -> Result<(), SendError> {
        let Some(rate) = &mut self.rate else { return Ok(()) };
        let len = self.request.sent.head_bytes.get();
        if rate.allowed(now()).is_ok_and(|allowed| allowed >= len) {
            rate.sent += len;
            return Ok(());
        }
        let begin = self.out.len().saturating_sub(usize::try_from(len).unwrap_or(usize::MAX));
        let head = Bytes::copy_from_slice(&self.out[begin..]);
        self.out.truncate(begin);
        let sent = &self.request.sent.bytes;
        sent.set(sent.get() - head.len() as u64);
        self.bytes(head).await
    }

    async fn body(&mut self, body: Body) -> Result<(), SendError> {
        let result = self.pieces(body).await;
        if self.corked {
            // A socket that can't be set is closed already.
            let _ = self.connection.stream.set_nopush(false);
        }
        result
    }

    async fn pieces(&mut self, body: Body) -> Result<(), SendError> {
        match body {
            Body::Empty => Ok(()),
            Body::Bytes(bytes) => self.part(Part::Bytes(bytes)).await,
            Body::File(file) => self.safe_part(Part::File(file), None).await,
            Body::Parts(parts) if self.goes_at_once(&parts) => self.at_once(parts).await,
            Body::Parts(parts) => {
                for part in parts {
                    self.safe_part(part, None).await?;
                }
                Ok(())
            }
            Body::Stream(mut source) => {
                while let Some(part) = self.pull(&mut *source).await? {
                    self.safe_part(part, Some(&mut *source)).await?;
                }
                Ok(())
            }
            Body::Tunnel(_) => Ok(()),
        }
    }

    /// Sends a piece. If its file can't be read, the missing bytes come from elsewhere, if
    /// possible: either `source`, which has produced it, switches by itself, or another source
    /// takes over.
    async fn safe_part(
        &mut self,
        part: Part,
        source: Option<&mut dyn BodySource>,
    ) -> Result<(), SendError> {
        let file = match &part {
            Part::File(file) if file.elsewhere.is_some() => Some(file.clone()),
            _ => None,
        };
        let Err(error) = self.part(part).await else { return Ok(()) };
        let Some(unsent) = self.unread.take() else { return Err(error) };
        if source.is_some_and(|source| source.retry(unsent)) {
            return Ok(());
        }
        let SendError::Body(fault) = &error else { return Err(error) };
        let Some(mut source) = file.and_then(|mut file| {
            (file.offset, file.len) = (file.offset + file.len - unsent, unsent);
            file.elsewhere.clone()?.body(self.request, file, Some(fault))
        }) else {
            return Err(error);
        };
        while let Some(part) = self.pull(&mut *source).await? {
            self.part(part).await?;
        }
        Ok(())
    }

    /// Waits for the next piece. Meanwhile nothing is held back; and if nobody but the client wants
    /// the piece, the wait ends with the client.
    async fn pull(&mut self, source: &mut dyn BodySource) -> Result<Option<Part>, SendError> {
        let mut next = source.next();
        if let Poll::Ready(part) = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            return Ok(part?);
        }
        if !self.out.is_empty() {
            self.flush().await?;
        }
        if self.connection.on_hangup().get() != OnHangup::EndAtOnce {
            return Ok(next.await?);
        }
        match select(next, self.connection.gone()).await {
            Either::Left(part) => Ok(part?),
            Either::Right(()) => Err(left()),
        }
    }

    /// Whether all parts are in memory and need no framing between them.
    fn goes_at_once(&self, parts: &VecDeque<Part>) -> bool {
        self.framing == Framing::Length
            && self.rate.is_none()
            && parts.iter().all(|part| matches!(part, Part::Bytes(_)))
    }

    /// Sends parts in memory with one call.
    async fn at_once(&mut self, parts: VecDeque<Part>) -> Result<(), SendError> {
        let mut chain = Chain::default();
        if !self.out.is_empty() {
            chain.push(std::mem::take(self.out));
        }
        for part in parts {
            self.count(part.len());
            if let Part::Bytes(bytes) = part {
                chain.push(Chunk::from(bytes));
            }
        }
        let options = SendOptions::new(self.timeout);
        self.connection.stream.send(chain, options).await.map_err(SendError::Client)
    }

    /// For a piece, after which the next one is fetched.
    fn options(&self) -> SendOptions {
        SendOptions { early: false, ..SendOptions::new(self.timeout) }
    }

    /// Sends one piece, framed.
    async fn part(&mut self, part: Part) -> Result<(), SendError> {
        if part.is_empty() {
            return Ok(());
        }
        if self.framing != Framing::Chunked {
            return self.unframed(part).await;
        }
        let mut next = Some(part);
        while let Some(mut part) = next.take() {
            if self.chunk_left == 0 {
                let before = self.out.len();
                chunk_start(&mut **self.out, part.len());
                count(self.request, (self.out.len() - before) as u64);
                self.chunk_left = part.len();
            }
            // It replaces a part that could not be read to its end.
            if part.len() > self.chunk_left {
                next = Some(part.split_off(self.chunk_left));
            }
            let length = part.len();
            if let Err(error) = self.unframed(part).await {
                self.chunk_left -= length - self.unread.unwrap_or(length);
                return Err(error);
            }
            self.chunk_left -= length;
            if self.chunk_left == 0 {
                self.out.extend_from_slice(CHUNK_END);
                count(self.request, CHUNK_END.len() as u64);
            }
        }
        Ok(())
    }

    async fn unframed(&mut self, part: Part) -> Result<(), SendError> {
        match part {
            Part::Bytes(bytes) => self.bytes(bytes).await,
            // Boxed: most bodies have no files, and a slow client holds this future for long.
            Part::File(file) => Box::pin(self.file(file)).await,
        }
    }

    async fn bytes(&mut self, mut bytes: Bytes) -> Result<(), SendError> {
        let copied_max = match self.framing {
            Framing::Chunked => CHUNK_COPY_BYTES_MAX,
            _ => COPY_BYTES_MAX,
        };
        while !bytes.is_empty() {
            let allowed = self.allowed(bytes.len() as u64).await?;
            let piece = bytes.split_to(usize::try_from(allowed).unwrap_or(usize::MAX));
            self.count(allowed);
            if piece.len() <= copied_max {
                self.out.extend_from_slice(&piece);
                if self.out.len() > COLLECT_BYTES_MAX {
                    self.flush().await?;
                }
            } else {
                self.chunk(Chunk::from(piece)).await?;
            }
        }
        Ok(())
    }

    async fn file(&mut self, body: FileBody) -> Result<(), SendError> {
        let FileBody { mut file, io, mut offset, mut len, elsewhere } = body;
        let files = &self.request.location().files;
        // A part that the runtime would read rather than send by sendfile is better read here: if
        // that fails, nothing sent together with it is lost.
        let small = len <= INLINE_BYTES_MAX || (elsewhere.is_some() && len <= READ_BYTES_MAX);
        let inline = small || file.is_direct() || !files.sendfile;
        let turn_bytes = Some(files.sendfile_max_chunk.0).filter(|max| *max > 0);
        let step = match (inline, &self.rate) {
            (true, _) if small => len,
            // Read and sent in turns.
            (true, _) => files.output_buffers.size.0,
            (false, Some(_)) => turn_bytes.unwrap_or(len),
            // The runtime alternates by itself.
            (false, None) => len,
        };
        if !inline && self.request.location().client.tcp_nopush && !self.corked {
            self.corked = self.connection.stream.set_nopush(true).is_ok();
        }
        let buffers = files.output_buffers;
        let collect_max = buffers.size.0.saturating_mul(buffers.count as u64);
        let collect_max = collect_max.min(COLLECT_BYTES_MAX as u64);
        while len > 0 {
            let allowed = self.allowed(len.min(step.max(1))).await?;
            // Data read while opening is not kept while a client takes the rest.
            if !inline || offset >= file.head().len() as u64 {
                file.forget_head();
            }
            if inline {
                if !small && self.out.len() as u64 + allowed > collect_max && !self.out.is_empty() {
                    self.flush().await?;
                }
                let piece = FileBody {
                    file: file.clone(),
                    io: io.clone(),
                    offset,
                    len: allowed,
                    elsewhere: elsewhere.clone(),
                };
                let read = self.read(piece).await;
                self.unread = is_unread(&read).then_some(len);
                read?;
                self.count(allowed);
            } else {
                let range = FileRange {
                    file: file.clone(),
                    io: io.for_client(self.connection.client.number),
                    offset,
                    len: allowed,
                };
                let stream = &self.connection.stream;
                let before = stream.bytes_sent() + self.out.len() as u64;
                let elsewhere = elsewhere.as_ref();
                let sent = self.chunk_by(Chunk::from(range), turn_bytes, elsewhere).await;
                // Data collected before it may be lost with it, and can't be recovered.
                let bytes = stream.bytes_sent().checked_sub(before);
                self.count(bytes.unwrap_or(0));
                self.unread = bytes.filter(|_| is_unread(&sent)).map(|bytes| len - bytes);
                sent?;
            }
            offset += allowed;
            len -= allowed;
        }
        Ok(())
    }

    /// Reads a range that is sent from memory.
    async fn read(&mut self, piece: FileBody) -> Result<(), SendError> {
        if read_inline(&piece, self.out)? {
            if self.out.len() > COLLECT_BYTES_MAX {
                self.flush().await?;
            }
            return Ok(());
        }
        let wanted = usize::try_from(piece.len).unwrap_or(usize::MAX);
        let io = piece.io.for_client(self.connection.client.number);
        let bytes = piece.read(&io, wanted).await.map_err(|error| match PoolError::of(&error) {
            Some(overflow) => BodyError::Overflow(overflow.to_string()),
            None => BodyError::File(error),
        })?;
        if bytes.len() != wanted {
            return Err(BodyError::Truncated.into());
        }
        if bytes.len() <= COPY_BYTES_MAX {
            self.out.extend_from_slice(&bytes);
            return Ok(());
        }
        self.chunk(Chunk::from(bytes)).await
    }

    /// Sends the collected output, and then this chunk.
    async fn chunk(&mut self, chunk: Chunk) -> Result<(), SendError> {
        self.chunk_by(chunk, None, None).await
    }

    /// Like [`chunk`](Self::chunk), for this many bytes of a file that may have another source.
    async fn chunk_by(
        &mut self,
        chunk: Chunk,
        turn_bytes: Option<u64>,
        elsewhere: Option<&Rc<dyn Elsewhere>>,
    ) -> Result<(), SendError> {
        let mut chain = Chain::default();
        if !self.out.is_empty() {
            chain.push(std::mem::take(self.out));
        }
        let file = !chunk.is_memory();
        chain.push(chunk);
        let mut options = self.options();
        options.turn_bytes = turn_bytes.unwrap_or(options.turn_bytes);
        options.gives_up = elsewhere.is_some();
        let stream = &self.connection.stream;
        let sent = match elsewhere {
            Some(elsewhere) => unless_it_hangs(stream, chain, options, &**elsewhere).await,
            None => Some(stream.send(chain, options).await),
        };
        let Some(sent) = sent else {
            return Err(BodyError::File(io::ErrorKind::TimedOut.into()).into());
        };
        sent.map_err(|error| match (file, PoolError::of(&error)) {
            (true, Some(overflow)) => SendError::Body(BodyError::Overflow(overflow.to_string())),
            (true, None) if error.kind() == io::ErrorKind::UnexpectedEof => {
                SendError::Body(BodyError::Truncated)
            }
            (true, None) if is_of_disk(&error) => SendError::Body(BodyError::File(error)),
            _ => SendError::Client(error),
        })
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        let options = self.options();
        let out = std::mem::take(self.out);
        self.connection.stream.send(out, options).await.map_err(SendError::Client)
    }

    /// How many of `len` bytes may be sent now; waits until at least one may.
    async fn allowed(&mut self, len: u64) -> Result<u64, SendError> {
        let Some(rate) = &self.rate else { return Ok(len) };
        match rate.allowed(now()) {
            Ok(allowed) => Ok(allowed.min(len)),
            Err(wait) => {
                self.flush().await?;
                let hangup = self.connection.stream.hangup();
                if let Either::Right(_) = select(sleep(wait), hangup).await {
                    // nginx: ngx_http_test_reading.
                    return Err(left());
                }
                let rate = self.rate.as_ref().map_or(len, |rate| rate.allowed(now()).unwrap_or(1));
                Ok(rate.min(len).max(1))
            }
        }
    }

    fn count(&mut self, bytes: u64) {
        count(self.request, bytes);
        if let Some(rate) = &mut self.rate {
            rate.sent += bytes;
        }
    }
}
