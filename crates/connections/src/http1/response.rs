//! The [`Wire`] of HTTP/1.1: frames, collects and sends one response.
//!
//! The only place where responses of HTTP/1.1 meet the socket. Small bodies leave with the head in one call;
//! large files by `sendfile`, in the loop as far as they are in memory, otherwise through their pool. Never
//! reads a disk in the event loop: files go through the runtime's `fs`.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind::TimedOut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nowait_front::servers::Virtual;
use nowait_h1::encode::{CHUNK_END, HeadWriter, chunk_start};
use nowait_http::exchange::OnHangup;
use nowait_http::generation::Current;
use nowait_http::limit_rate::Rate;
use nowait_http::logs::debug;
use nowait_http::request::{Request, RequestBody};
use nowait_http::response::{
    Body, BodyError, Duplex, FallbackSource, FileBody, Head, LocalFuture, PATIENCE, Part, Takeover,
};
use nowait_message::{Method, Version};
use nowait_runtime::buf::{Chain, Chunk, FileRange, OutBuf};
use nowait_runtime::net::{PipeSink, Piped, SendOptions, Stream};
use nowait_runtime::pool::PoolError;

use super::connection::Http1Connection;
use super::response_head::{self, Framing};
use super::serving;
use crate::body::{Pace, Remainder};
use crate::life::{Following, PutError, Wire};
use crate::send_error::SendError;

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

/// Pipelined responses up to this size are held back and sent together with the next ones.
const BATCH_BYTES_MAX: usize = 16 * 1024;

/// A response on its way.
pub(super) struct Http1Response<'a> {
    connection: &'a Rc<Http1Connection>,
    /// Heads and small parts, collected.
    out: &'a mut OutBuf,
    /// Parts in memory that leave together with the next one. Boxed: most responses have none.
    held: Option<Box<Chain>>,
    framing: Framing,
    /// The head, if `100 Continue` has to be sent before it.
    head: Option<Box<Head>>,
    /// Partial segments are held back (`tcp_nopush`).
    corked: bool,
    /// Bytes still missing from the chunk whose size was announced.
    chunk_left: u64,
}

impl Wire for Http1Response<'_> {
    fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        self.connection.virtual_servers(current)
    }

    fn prepare(&mut self, request: &mut Request, _: Option<&Virtual>) -> Option<u16> {
        serving::prepare(self.connection, request);
        None
    }

    async fn gone(&self) {
        self.connection.gone().await;
    }

    async fn gone_for_good(&self) {
        match self.connection.on_hangup.get() {
            OnHangup::EndAtOnce => self.connection.gone().await,
            OnHangup::EndLater | OnHangup::Ignore => std::future::pending().await,
        }
    }

    fn holds_output(&self) -> bool {
        !self.out.is_empty() || self.held.is_some()
    }

    async fn flush(&mut self, timeout: Duration) -> Result<(), SendError> {
        self.connection.release_input();
        if !self.holds_output() {
            return Ok(());
        }
        // Before the response has begun, there are earlier ones only.
        let early = self.framing == Framing::None;
        let options = SendOptions { early, ..SendOptions::new(timeout) };
        let chain = self.take_held();
        self.connection.stream.send(chain, options).await.map_err(SendError::Client)
    }

    fn check_unread(&mut self) -> bool {
        let mut input = self.connection.input.borrow_mut();
        let discarded = self.connection.h1().discard_body(&input);
        if let Ok((consumed, _)) = discarded {
            input.advance(consumed);
        }
        discarded.is_ok()
    }

    fn begin(
        &mut self,
        request: &mut Request,
        head: Box<Head>,
        body: &mut Body,
    ) -> Result<Option<Remainder>, SendError> {
        let Some(rest) = self.begin_collected(request, head, body)? else { return Ok(None) };
        if self.framing != Framing::Length || self.head.is_some() || Rate::applies(request) {
            return Ok(Some(rest));
        }
        self.send_at_once(request, rest)
    }

    async fn head(&mut self, request: &mut Request, pace: &mut Pace) -> Result<bool, SendError> {
        self.connection.release_input();
        if let Some(head) = self.head.take() {
            self.flush(request.send_timeout()).await?;
            if let RequestBody::Unread(reader) = request.body_mut()
                && reader.wanted().await.is_err()
            {
                request.set_keep_alive(false);
            }
            write_head(request, head, self.framing, self.out);
            if request.header_only() || self.framing == Framing::None {
                return Ok(false);
            }
        }
        if !pace.is_unlimited() {
            self.pace_head(request, pace).await?;
        }
        Ok(true)
    }

    async fn put(
        &mut self,
        request: &Request,
        part: Part,
        next: Following,
    ) -> Result<(), PutError> {
        if self.framing != Framing::Chunked {
            return self.unframed(request, part, next).await;
        }
        let mut more = Some(part);
        while let Some(mut part) = more.take() {
            if self.chunk_left == 0 {
                let before = self.out.len();
                chunk_start(&mut **self.out, part.len());
                count(request, (self.out.len() - before) as u64);
                self.chunk_left = part.len();
            }
            // The part replaces one that could not be read to its end.
            if part.len() > self.chunk_left {
                more = Some(part.split_off(self.chunk_left));
            }
            let length = part.len();
            if let Err(failed) = self.unframed(request, part, Following::Unknown).await {
                self.chunk_left -= length - failed.unread.unwrap_or(length);
                return Err(failed);
            }
            self.chunk_left -= length;
            if self.chunk_left == 0 {
                self.out.extend_from_slice(CHUNK_END);
                count(request, CHUNK_END.len() as u64);
            }
        }
        Ok(())
    }

    fn takes_piped(&self) -> bool {
        self.framing != Framing::Chunked && !self.connection.stream.has_layer()
    }

    async fn put_piped(&mut self, request: &Request, part: &mut Piped) -> Result<(), SendError> {
        let sink = PipeSink::of(&self.connection.stream).await.map_err(SendError::Client)?;
        let before = part.len();
        let sent = sink.send(part, PATIENCE.min(request.send_timeout())).await;
        count(request, (before - part.len()) as u64);
        match sent {
            // The client is slow, unless the network says so.
            Err(error) if error.kind() == TimedOut && error.raw_os_error().is_none() => Ok(()),
            sent => sent.map_err(SendError::Client),
        }
    }

    async fn end(&mut self, request: &mut Request) -> Result<(), SendError> {
        if self.framing == Framing::Chunked {
            last_chunk(request, self.out);
        }
        Ok(())
    }

    async fn tunnel(
        &mut self,
        request: &Request,
        tunnel: Box<dyn Takeover>,
    ) -> Result<(), SendError> {
        self.flush(request.send_timeout()).await?;
        let client = Duplex {
            end: (&self.connection.stream).into(),
            received: self.connection.take_input(),
            sent: request.sent().counter(),
            send_timeout: request.send_timeout(),
            lingering_timeout: request.location().client.lingering_timeout.duration(),
        };
        if let Err(error) = tunnel.run(client).await {
            nowait_http::logs::body_error(request, &error);
        }
        Ok(())
    }

    /// The output waits for the next response if another request has come with this one.
    async fn finish(&mut self, request: &Request) -> Result<(), SendError> {
        if self.corked {
            // A socket that can't be set is closed already.
            let _ = self.connection.stream.set_nopush(false);
        }
        if self.held.is_some() {
            return self.flush(request.send_timeout()).await;
        }
        let keeps = request.persistence().keep_alive;
        if keeps && self.is_held_back() || self.out.is_empty() {
            return Ok(());
        }
        if !keeps {
            self.connection.stream.end_with_next_send();
        }
        let sent = self.connection.stream.begin_send(self.out, &mut Bytes::new());
        if !sent.map_err(SendError::Client)? {
            let options = SendOptions::new(request.send_timeout());
            let out = std::mem::take(self.out);
            self.connection.stream.send(out, options).await.map_err(SendError::Client)?;
        }
        Ok(())
    }
}

impl<'a> Http1Response<'a> {
    /// The response to the current request of a connection, behind the output so far.
    pub(super) fn new(connection: &'a Rc<Http1Connection>, out: &'a mut OutBuf) -> Self {
        Self {
            connection,
            out,
            held: None,
            framing: Framing::None,
            head: None,
            corked: false,
            chunk_left: 0,
        }
    }

    /// Sends the available part of a response that can't be completed. Unless the end of the connection ends its body
    /// (HTTP/1.0), the client detects the cut.
    pub(super) async fn flush_cut(&mut self, request: &Request) {
        let _ = self.flush(request.send_timeout()).await;
    }

    /// Whether the output waits for the next response, if the connection goes on.
    fn is_held_back(&self) -> bool {
        !self.connection.input.borrow().is_empty()
            && self.out.len() < BATCH_BYTES_MAX
            && self.connection.h1().is_body_complete()
    }

    /// Appends the head to the output, and the body if it is small and in memory.
    fn begin_collected(
        &mut self,
        request: &mut Request,
        head: Box<Head>,
        body: &mut Body,
    ) -> Result<Option<Remainder>, SendError> {
        let connection = self.connection;
        connection.set_nodelay(request.location().client.tcp_nodelay);
        if let Body::Tunnel(_) = body {
            request.set_keep_alive(false);
            write_head(request, head, Framing::None, self.out);
            return Ok(Some(Remainder { body: std::mem::take(body), declared: None }));
        }
        decide_keep_alive(connection, request, &head);
        let framing = response_head::framing(request, &head);
        self.framing = framing;
        let declared = head.content_length.filter(|_| framing == Framing::Length);
        if matches!(request.body(), RequestBody::Unread(_)) && request.head().expects_continue() {
            if request.persistence().body_discarded {
                // The client may or may not send the content, and the next request can't be told from
                // it.
                request.set_keep_alive(false);
            } else {
                self.head = Some(head);
                return Ok(Some(Remainder { body: std::mem::take(body), declared }));
            }
        }
        let out = &mut *self.out;
        write_head(request, head, framing, out);
        if request.header_only() || framing == Framing::None {
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
        Ok(Some(Remainder { body: std::mem::take(body), declared }))
    }

    /// Sends as much as the kernel takes at once, behind the output, if the rest is in memory.
    fn send_at_once(
        &mut self,
        request: &Request,
        mut rest: Remainder,
    ) -> Result<Option<Remainder>, SendError> {
        let Body::Bytes(bytes) = &mut rest.body else { return Ok(Some(rest)) };
        let before = bytes.len();
        let sent = self.connection.stream.begin_send(self.out, bytes);
        let is_done = sent.map_err(SendError::Client)?;
        count(request, (before - bytes.len()) as u64);
        rest.declared = Some(bytes.len() as u64);
        Ok((!is_done).then_some(rest))
    }

    /// `limit_rate` applies to the head, too: what of it may not be sent with the body yet, is sent here.
    async fn pace_head(&mut self, request: &Request, pace: &mut Pace) -> Result<(), SendError> {
        let length = request.sent().head_bytes();
        let begin = self.out.len().saturating_sub(usize::try_from(length).unwrap_or(usize::MAX));
        let mut head = Bytes::copy_from_slice(&self.out[begin..]);
        self.out.truncate(begin);
        while !head.is_empty() {
            let allowed = pace.allowed(self, request, head.len() as u64).await?;
            let piece = head.split_to(usize::try_from(allowed).unwrap_or(usize::MAX));
            self.out.extend_from_slice(&piece);
            pace.spend(allowed);
        }
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.len())
    }

    /// The pending output, in one chain.
    fn take_held(&mut self) -> Chain {
        let mut chain = self.held.take().map_or_else(Chain::default, |held| *held);
        if !self.out.is_empty() {
            chain.push(std::mem::take(self.out));
        }
        chain
    }

    async fn unframed(
        &mut self,
        request: &Request,
        part: Part,
        next: Following,
    ) -> Result<(), PutError> {
        match part {
            Part::Bytes(bytes) => Ok(self.bytes(request, bytes, next).await?),
            // Boxed: most bodies have no files, and a slow client holds this future for long.
            Part::File(file) => Box::pin(self.file(request, file)).await,
        }
    }

    async fn bytes(
        &mut self,
        request: &Request,
        bytes: Bytes,
        next: Following,
    ) -> Result<(), SendError> {
        let copied_max = match self.framing {
            Framing::Chunked => CHUNK_COPY_BYTES_MAX,
            _ => COPY_BYTES_MAX,
        };
        count(request, bytes.len() as u64);
        if bytes.len() <= copied_max && self.held.is_none() {
            self.out.extend_from_slice(&bytes);
            if self.out.len() > COLLECT_BYTES_MAX {
                self.flush(request.send_timeout()).await?;
            }
            return Ok(());
        }
        let mut chain = self.take_held();
        chain.push(Chunk::from(bytes));
        if next == Following::Part {
            self.held = Some(Box::new(chain));
            return Ok(());
        }
        let early = next == Following::Nothing;
        let options = SendOptions { early, ..SendOptions::new(request.send_timeout()) };
        self.connection.stream.send(chain, options).await.map_err(SendError::Client)
    }

    async fn file(&mut self, request: &Request, body: FileBody) -> Result<(), PutError> {
        let files = &request.location().files;
        // A part that the runtime would read rather than send by sendfile is read here: if that fails, no
        // output sent together with it is lost.
        let small = body.len <= INLINE_BYTES_MAX
            || (body.elsewhere.is_some() && body.len <= READ_BYTES_MAX);
        if small || body.file.is_direct() || !files.sendfile {
            return self.read_file(request, body, small).await;
        }
        if request.location().client.tcp_nopush && !self.corked {
            self.corked = self.connection.stream.set_nopush(true).is_ok();
        }
        let FileBody { mut file, io, offset, len, elsewhere } = body;
        // Data read while opening is not kept while a client takes the rest.
        if offset >= file.head().len() as u64 {
            file.forget_head();
        }
        let io = io.for_client(self.connection.client.number);
        let range = FileRange { file, io, offset, len };
        let stream = &self.connection.stream;
        let before = stream.bytes_sent() + self.held_bytes() + self.out.len() as u64;
        let turn_bytes = Some(files.sendfile_max_chunk.0).filter(|max| *max > 0);
        let sent =
            self.send_file(request, Chunk::from(range), turn_bytes, elsewhere.as_ref()).await;
        // Data collected before it may be lost with it, and can't be recovered.
        let bytes = self.connection.stream.bytes_sent().checked_sub(before);
        count(request, bytes.unwrap_or(0));
        sent.map_err(|error| PutError {
            unread: bytes.filter(|_| is_unread(&error)).map(|bytes| len - bytes),
            error,
        })
    }

    /// Sends a file from memory, in pieces unless it is small.
    async fn read_file(
        &mut self,
        request: &Request,
        body: FileBody,
        small: bool,
    ) -> Result<(), PutError> {
        let buffers = request.location().files.output_buffers;
        let step = if small { body.len } else { buffers.size.0.max(1) };
        let collect_max = buffers.size.0.saturating_mul(buffers.count as u64);
        let collect_max = collect_max.min(COLLECT_BYTES_MAX as u64);
        let mut left = Part::File(body);
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(step));
            let Part::File(piece) = std::mem::replace(&mut left, rest) else { break };
            let length = piece.len;
            if !small && self.out.len() as u64 + length > collect_max && !self.out.is_empty() {
                self.flush(request.send_timeout()).await?;
            }
            if let Err(error) = self.read(request, piece).await {
                let unread = is_unread(&error).then_some(length + left.len());
                return Err(PutError { error, unread });
            }
            count(request, length);
        }
        Ok(())
    }

    /// Reads a range that is sent from memory.
    async fn read(&mut self, request: &Request, piece: FileBody) -> Result<(), SendError> {
        if read_inline(&piece, self.out)? {
            if self.out.len() > COLLECT_BYTES_MAX {
                self.flush(request.send_timeout()).await?;
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
        let mut chain = self.take_held();
        chain.push(Chunk::from(bytes));
        let options = SendOptions { early: false, ..SendOptions::new(request.send_timeout()) };
        self.connection.stream.send(chain, options).await.map_err(SendError::Client)
    }

    /// Sends the collected output, and then this part of a file, which may have another source.
    async fn send_file(
        &mut self,
        request: &Request,
        file: Chunk,
        turn_bytes: Option<u64>,
        elsewhere: Option<&Rc<dyn FallbackSource>>,
    ) -> Result<(), SendError> {
        let mut chain = self.take_held();
        chain.push(file);
        let mut options = SendOptions { early: false, ..SendOptions::new(request.send_timeout()) };
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
        sent.map_err(|error| match PoolError::of(&error) {
            Some(overflow) => SendError::Body(BodyError::Overflow(overflow.to_string())),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                SendError::Body(BodyError::Truncated)
            }
            None if is_of_disk(&error) => SendError::Body(BodyError::File(error)),
            None => SendError::Client(error),
        })
    }
}

fn write_head(request: &mut Request, mut head: Box<Head>, framing: Framing, out: &mut OutBuf) {
    let start = out.len();
    nowait_http::response_head::complete(request, &mut head);
    if request.head().version() != Version::Http09 || request.head().is_empty() {
        response_head::write(request, &head, framing, out);
    }
    let bytes = (out.len() - start) as u64;
    request.sent().count_head(bytes);
    debug!(request, "http response: {}, a head of {bytes} bytes", head.status);
    request.set_out(head);
}

/// Ends a chunked body, with the trailers of an upstream and those of `add_trailer`.
fn last_chunk(request: &mut Request, out: &mut OutBuf) {
    nowait_http::response_head::complete_trailers(request);
    let before = out.len();
    let mut writer = HeadWriter::trailers(&mut **out);
    for trailer in &request.out().trailers {
        writer.field(&trailer.name, &trailer.value);
    }
    writer.finish();
    count(request, (out.len() - before) as u64);
}

/// Counts sent bytes, including the framing of chunks, as nginx does.
fn count(request: &Request, bytes: u64) {
    request.sent().count(bytes);
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
    elsewhere: &dyn FallbackSource,
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
fn is_unread(error: &SendError) -> bool {
    matches!(error, SendError::Body(BodyError::File(_) | BodyError::Truncated))
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
fn decide_keep_alive(connection: &Http1Connection, request: &mut Request, head: &Head) {
    if !request.persistence().keep_alive {
        return;
    }
    let client = &request.location().client;
    let disabled = &client.keepalive_disable;
    let refused = head.close
        || client.keepalive_timeout.timeout.0 == 0
        || u64::from(connection.client.requests.get()) >= u64::from(client.keepalive_requests)
        || connection.client.is_older_than(client.keepalive_time.duration())
        || connection.all().is_closing()
        || (disabled.msie6 && request.method() == Method::Post && request.is_msie6())
        || (disabled.safari && request.is_safari());
    if refused {
        request.set_keep_alive(false);
    }
}
