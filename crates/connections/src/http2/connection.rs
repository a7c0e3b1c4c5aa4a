//! A client's HTTP/2 connection: the protocol's state, its streams, and its pending output.
//! [`task`](super::task) serves it; the tasks of its streams call it.
//!
//! The memory of a connection is bounded: streams by `http2_max_concurrent_streams`, content received
//! for each by its window, content to be sent by [`OUTPUT_BYTES_MAX`] and one frame's worth of file per
//! stream, and everything else by [`RECEIVE_BYTES_MAX`], beyond which nothing more is received.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use nowait_front::frames::PendingFrames;
use nowait_front::servers::Virtual;
use nowait_h2::connection::ServerSide;
use nowait_h2::frame::{FRAME_SIZE_DEFAULT, HEADER_LEN};
use nowait_h2::hpack::Token;
use nowait_h2::{ErrorCode, HeadWriter, Limits, StreamId, server};
use nowait_http::client::Client;
use nowait_http::clients::ConnectionView;
use nowait_http::conf::ServerId;
use nowait_http::generation::Current;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, FileBody, Head, Header, Part};
use nowait_message::Version;
use nowait_runtime::now;

use super::heads::Http2Heads;
use super::stream::Stream;
use super::window;
use crate::connection::Connection;
use crate::connections::{ConnectionHandle, Connections};
use crate::handshake;
use crate::send_error::{SendError, left};
use crate::streams::DISCARD_BYTES_MAX;
use crate::streams::connection::{StreamConnection, StreamSet};
use crate::streams::heads::Rules;
use crate::streams::outgoing::{COLD_BYTES, COLD_STREAMS, Outgoing};
use crate::streams::requests::HeadBounds;
use crate::streams::response_head::{self, HeadFields};
use crate::streams::stream::{RequestStream, StreamEnd};

/// Frames with content are made until so much waits for the socket, in bytes.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Receiving stops while more than this waits for the socket, in bytes: heads and control frames provoked
/// by a client that does not read.
const RECEIVE_BYTES_MAX: usize = 256 * 1024;

/// All of `large_client_header_buffers` by default, in bytes.
const HEAD_BYTES_DEFAULT: u32 = 32 * 1024;

/// A connection.
pub(super) struct Http2Connection {
    base: Rc<Connection>,
    pub(super) h2: RefCell<server::ServerConnection>,
    pub(super) heads: RefCell<Http2Heads>,
    streams: StreamSet<Stream>,
    pub(super) output: RefCell<PendingFrames>,
    /// Output is on its way to the socket.
    pub(super) sending: Cell<bool>,
    /// The total growth of stream windows, in bytes.
    grown: Cell<u32>,
}

impl Deref for Http2Connection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.base
    }
}

impl Http2Connection {
    /// A connection whose client begins with the preface. The limits are those of the address's
    /// default server; `None` if its address is no longer listened on.
    pub(super) fn new(base: Rc<Connection>) -> Option<Rc<Self>> {
        let current = base.all().current();
        let default_server = handshake::server_of(&base, base.virtual_servers(&current)?);
        let server = current.conf.server(default_server);
        let (head, http2) = (&server.head, &server.http2);
        let bytes = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        let bounds = HeadBounds::of(head);
        let limits = Limits {
            // Heads that may be larger than by default need not be split.
            frame_size: match bounds.list_bytes {
                ..=HEAD_BYTES_DEFAULT => FRAME_SIZE_DEFAULT,
                more => more,
            },
            concurrent_streams: http2.http2_max_concurrent_streams,
            stream_window: bytes(http2.http2_body_preread_size.0),
            string_bytes_max: bounds.string_bytes,
            list_bytes_max: bounds.list_bytes,
            fields_max: bounds.fields,
            block_bytes_max: bounds.section_bytes,
            extended_connect: true,
            ..Limits::default()
        };
        let rules = Rules::of(head, Version::Http2);
        let connection = Rc::new(Self {
            base,
            h2: RefCell::new(server::ServerConnection::new(limits)),
            heads: RefCell::new(Http2Heads::new(rules)),
            streams: StreamSet::new(
                (current.number, default_server),
                &bounds,
                (now(), Duration::ZERO),
            ),
            output: RefCell::default(),
            sending: Cell::new(false),
            grown: Cell::new(0),
        });
        let held: Weak<dyn ConnectionHandle> = Rc::<Self>::downgrade(&connection);
        connection.base.enter(held);
        // A reload during the handshake may have switched the version off.
        if !connection.is_served_by(&current) {
            connection.dismiss();
        }
        Some(connection)
    }

    /// Whether receiving stops because too much waits for the socket.
    pub(super) fn is_full(&self) -> bool {
        self.output.borrow().len() > RECEIVE_BYTES_MAX
    }

    /// Ends a stream: its request's task has ended.
    pub(super) fn finish(&self, stream: &Stream, end: StreamEnd) {
        {
            let mut h2 = self.h2.borrow_mut();
            h2.set_ready(stream.id, false);
            match end {
                StreamEnd::Complete
                    if stream.is_incomplete()
                        && self.streams.may_discard()
                        && h2.content_left(stream.id).is_some_and(|n| n <= DISCARD_BYTES_MAX) =>
                {
                    self.streams.discard(stream.id);
                }
                // "A server MAY request that the client abort transmission of a request without error
                // by sending a RST_STREAM with an error code of NO_ERROR after sending a complete
                // response" (RFC 9113 section 8.1).
                StreamEnd::Complete | StreamEnd::CompleteWithoutRequest => {
                    h2.reset(stream.id, ErrorCode::NO_ERROR);
                }
                StreamEnd::Cancelled => h2.reset(stream.id, ErrorCode::CANCEL),
                StreamEnd::ClientFault => h2.reset(stream.id, ErrorCode::PROTOCOL_ERROR),
                StreamEnd::OwnFault => h2.reset(stream.id, ErrorCode::INTERNAL_ERROR),
            }
        }
        self.grown.set(self.grown.get() - stream.window_grown());
        self.streams.remove(stream);
        self.streams.wake();
    }

    /// Content has arrived for a stream whose response was complete before. The protocol's core has checked
    /// that it is no more than was announced.
    pub(super) fn discard(&self, id: StreamId, bytes: usize, end: bool) {
        self.h2.borrow_mut().taken(id, bytes);
        if end {
            self.streams.forget(id);
        }
    }

    /// Moves control frames to the output.
    pub(super) fn collect(&self) {
        let mut h2 = self.h2.borrow_mut();
        // Otherwise the output needs no memory.
        if h2.has_output() {
            h2.poll_output(self.output.borrow_mut().tail());
        }
    }

    /// A reader has taken content.
    pub(super) fn taken(&self, id: StreamId, bytes: usize) {
        let mut h2 = self.h2.borrow_mut();
        h2.taken(id, bytes);
        if h2.has_output() {
            self.streams.wake();
        }
    }

    /// Whether a stream's window may grow by so much; counts it.
    pub(super) fn grow_within_bounds(&self, bytes: u32) -> bool {
        let grown = self.grown.get() + bytes;
        let fits = grown <= window::GROWN_BYTES_MAX;
        if fits {
            self.grown.set(grown);
        }
        fits
    }

    /// A reader needs more.
    pub(super) fn grow_window(&self, id: StreamId, size: u32) {
        let mut h2 = self.h2.borrow_mut();
        h2.grow_window(id, size);
        if h2.has_output() {
            self.streams.wake();
        }
    }

    /// Sends an interim response, unless the final one was sent or the client has disconnected.
    pub(super) fn interim(&self, stream: &Stream, status: u16, headers: &[Header]) {
        let mut output = self.output.borrow_mut();
        let mut h2 = self.h2.borrow_mut();
        let Ok(mut head) = h2.interim(stream.id, status, output.tail()) else { return };
        for header in headers {
            head.field(&header.name, &header.value);
        }
        head.finish(false);
        self.streams.wake();
    }

    /// Output is pending.
    pub(super) fn flush(&self) {
        self.streams.wake();
    }

    /// A stream has content to be sent. Small content that nothing precedes becomes frames at once.
    pub(super) fn offer(&self, stream: &Stream) {
        if stream.state().outgoing.borrow().len() == 0 {
            return self.end_content(stream);
        }
        self.h2.borrow_mut().set_ready(stream.id, true);
        // Large content waits for the connection's task, which has heard all requests by then.
        if !self.sending.get() && stream.is_small() {
            self.fill();
        }
        self.streams.wake();
    }

    /// Sends all of a response's content, if it is small and in memory, and nothing precedes it; returns
    /// whether that was possible.
    ///
    /// # Errors
    /// The file can't be read, and there is no other source.
    pub(super) fn send_whole(&self, stream: &Stream, content: &Body) -> Result<bool, BodyError> {
        let len = match content {
            Body::Bytes(bytes) => bytes.len(),
            Body::File(file) => usize::try_from(file.len).unwrap_or(usize::MAX),
            _ => return Ok(false),
        };
        let mut h2 = self.h2.borrow_mut();
        let mut output = self.output.borrow_mut();
        let goes = len > 0
            && len <= stream.frame_bytes_max.get()
            && !self.sending.get()
            && output.len() < OUTPUT_BYTES_MAX
            && !h2.has_ready()
            && h2.reserve(stream.id, len) == len;
        match content {
            _ if !goes => Ok(false),
            Body::File(file) => {
                let sent = file_frame(stream.id, file, len, true, &mut output, &mut h2);
                if file.elsewhere.is_some() { Ok(sent.unwrap_or(false)) } else { sent }
            }
            Body::Bytes(bytes) => {
                let header = h2.data_header(stream.id, len, true, output.tail());
                debug_assert!(header.is_ok(), "the window was reserved");
                output.content(bytes);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// A stream's content can't be sent.
    pub(super) fn withdraw(&self, stream: &Stream) {
        self.h2.borrow_mut().set_ready(stream.id, false);
    }

    /// Ends a stream's content.
    pub(super) fn end_content(&self, stream: &Stream) {
        if stream.state().outgoing.borrow().ends {
            // The stream may have ended already.
            let _ = self.h2.borrow_mut().data_header(
                stream.id,
                0,
                true,
                self.output.borrow_mut().tail(),
            );
            self.streams.wake();
        }
    }

    /// Makes frames with content, as windows allow, of all streams in turn. Returns whether there is more for which
    /// the output has no room.
    pub(super) fn fill(&self) -> bool {
        while self.output.borrow().len() < OUTPUT_BYTES_MAX {
            let Some(id) = self.h2.borrow_mut().next_ready() else { return false };
            match self.streams.get(id) {
                Some(stream) => self.frame(&stream),
                None => self.h2.borrow_mut().set_ready(id, false),
            }
        }
        self.h2.borrow().has_next()
    }

    /// Makes a frame of a stream that has content and a window.
    fn frame(&self, stream: &Stream) {
        let mut outgoing = stream.state().outgoing.borrow_mut();
        let mut h2 = self.h2.borrow_mut();
        let left = usize::try_from(outgoing.len()).unwrap_or(usize::MAX);
        let allowed = h2.reserve(stream.id, left.min(stream.frame_bytes_max.get()));
        if allowed > 0 {
            let mut output = self.output.borrow_mut();
            match outgoing.take(allowed) {
                Some(bytes) => {
                    let ends = outgoing.ends && outgoing.len() == 0;
                    let header = h2.data_header(stream.id, bytes.len(), ends, output.tail());
                    debug_assert!(header.is_ok(), "the window was reserved");
                    output.content(&bytes);
                }
                None => match part_frame(stream.id, &mut outgoing, &mut output, &mut h2, allowed) {
                    Ok(true) => {}
                    Ok(false) if self.streams.cold.get() < COLD_STREAMS => {
                        outgoing.cold = Some(COLD_BYTES.min(left));
                    }
                    Ok(false) => outgoing.cold = Some(allowed),
                    Err(error) => outgoing.failed = Some(error),
                },
            }
        }
        if allowed == 0 || outgoing.stops() {
            h2.set_ready(stream.id, false);
        }
        outgoing.advanced();
    }

    /// Writes the head of a response.
    pub(super) fn write_head(
        &self,
        stream: &Stream,
        request: &Request,
        head: &Head,
        end: bool,
    ) -> Result<(), SendError> {
        let mut output = self.output.borrow_mut();
        let mut h2 = self.h2.borrow_mut();
        let out = output.tail();
        h2.poll_output(out);
        let start = out.len();
        let mut writer = h2.respond(stream.id, head.status, out).map_err(|_| left())?;
        response_head::write(request, head, &mut writer);
        writer.finish(end);
        let bytes = (output.tail().len() - start) as u64;
        request.sent().count_head(bytes);
        drop((h2, output));
        self.flush();
        Ok(())
    }

    /// Ends a response with trailers. Returns their length.
    pub(super) fn write_trailers(&self, stream: &Stream, trailers: &[Header]) -> u64 {
        let mut output = self.output.borrow_mut();
        let mut h2 = self.h2.borrow_mut();
        let start = output.len();
        // A closed stream accepts none.
        if let Ok(mut writer) = h2.trailers_of(stream.id, output.tail()) {
            for trailer in trailers {
                writer.field(&trailer.name, &trailer.value);
            }
            writer.finish(true);
        }
        let bytes = (output.len() - start) as u64;
        drop((h2, output));
        self.flush();
        bytes
    }

    /// Gives memory back while the connection is idle.
    pub(super) fn shrink(&self) {
        self.h2.borrow_mut().shrink();
        self.heads.borrow_mut().shrink();
        self.streams.shrink();
        self.release_input();
    }
}

impl StreamConnection for Http2Connection {
    type Stream = Stream;

    fn all(&self) -> &Rc<Connections> {
        self.base.all()
    }

    fn client(&self) -> &Client {
        &self.base.client
    }

    fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        self.base.virtual_servers(current)
    }

    fn named_server(&self, servers: &Virtual) -> ServerId {
        handshake::server_of(&self.base, servers)
    }

    fn streams(&self) -> &StreamSet<Stream> {
        &self.streams
    }
}

impl ConnectionHandle for Http2Connection {
    /// One with streams looks at once whether it has to leave: it asks the client to open no more.
    fn waits(&self) -> Option<(Instant, Duration)> {
        Some(self.streams.idle_since().unwrap_or((self.client.started, Duration::ZERO)))
    }

    fn idle(&self) -> Option<(Instant, Duration)> {
        self.streams.idle_since().filter(|_| !self.is_new())
    }

    fn view(&self) -> ConnectionView<'_> {
        ConnectionView {
            client: &self.client,
            protocol: "HTTP/2",
            idle_since: self.streams.idle_since().map(|(since, _)| since),
            bytes: Some((self.stream.bytes_received(), self.stream.bytes_sent())),
        }
    }

    fn wake(&self) {
        self.streams.wake();
    }

    fn hang_up(&self) {
        // A socket that can't be shut down is closed already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn is_served_by(&self, current: &Current) -> bool {
        self.virtual_servers(current).is_some_and(|servers| {
            servers.http2 || current.conf.server(self.named_server(servers)).http2.http2
        })
    }

    fn dismiss(&self) {
        self.streams.dismiss();
    }
}

impl HeadFields for HeadWriter<'_, ServerSide, Vec<u8>> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        HeadWriter::field(self, name, value);
    }

    fn known(&mut self, token: Token, value: &[u8]) {
        HeadWriter::known(self, token, value);
    }

    fn known_number(&mut self, token: Token, number: u64) {
        HeadWriter::known_number(self, token, number);
    }
}

/// Makes a frame with the next bytes of a file that is a stream's part. False: they are not in memory.
fn part_frame(
    id: StreamId,
    outgoing: &mut Outgoing,
    output: &mut PendingFrames,
    h2: &mut server::ServerConnection,
    bytes: usize,
) -> Result<bool, BodyError> {
    let ends = outgoing.ends && outgoing.len() == bytes as u64;
    let Some(Part::File(file)) = &mut outgoing.part else { return Ok(true) };
    let made = file_frame(id, file, bytes, ends, output, h2)?;
    if made {
        file.offset += bytes as u64;
        file.len -= bytes as u64;
    }
    Ok(made)
}

/// Makes a frame with the first bytes of a file, read into the output behind its header. False: they
/// are not in memory.
fn file_frame(
    id: StreamId,
    file: &FileBody,
    bytes: usize,
    ends: bool,
    output: &mut PendingFrames,
    h2: &mut server::ServerConnection,
) -> Result<bool, BodyError> {
    let tail = output.tail_for(HEADER_LEN + bytes);
    h2.poll_output(&mut **tail);
    let start = tail.len();
    tail.extend_from_slice(&[0; HEADER_LEN]);
    let read = file.file.try_read(&file.io, file.offset, bytes, tail);
    match read {
        Ok(Some(read)) if read == bytes => {}
        result => {
            tail.truncate(start);
            return match result {
                Ok(None) => Ok(false),
                Ok(Some(_)) => Err(BodyError::Truncated),
                Err(error) => Err(BodyError::File(error)),
            };
        }
    }
    let mut place = &mut tail[start..start + HEADER_LEN];
    let header = h2.data_header(id, bytes, ends, &mut place);
    debug_assert!(header.is_ok(), "the window was reserved");
    Ok(true)
}
