//! A client's HTTP/3 connection: the protocol's state, its streams, and their way to the transport. [`task`](super::task)
//! serves it; the tasks of its streams call it.
//!
//! The memory of a connection is bounded: streams by `http3_max_concurrent_streams`, content received by the transport's
//! windows (`http3_stream_buffer_size`), content to be sent by those and one chunk of a file per stream, heads by
//! [`HEADS_BYTES_MAX`] and the core's bounds.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_fields::Token;
use nowait_front::servers::Virtual;
use nowait_front::tls::Tls;
use nowait_h3::connection::ServerSide;
use nowait_h3::server::ServerConnection;
use nowait_h3::{
    ConnectionError, CriticalStream, ErrorCode, HeadWriter, Limits, Priority, ReceiveStep, StreamId,
};
use nowait_http::client::Client;
use nowait_http::conf::ServerId;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, FileBody, Head, Header, Part};
use nowait_message::Version;
use nowait_quic::{Connection as Transport, Dir, ReadError, Side, WriteError};
use nowait_runtime::net::Address;
use nowait_runtime::now;

use super::stream::Stream;
use crate::connections::{ConnectionHandle, Connections};
use crate::handshake;
use crate::quic::{Established, servers};
use crate::send_error::{SendError, left};
use crate::streams::heads::{Heads, Rules};
use crate::streams::outgoing::{COLD_BYTES, COLD_STREAMS};
use crate::streams::request_future::RequestFuture;
use crate::streams::requests::{self, HeadBounds};
use crate::streams::response_head::{self, HeadFields};
use crate::streams::{
    DISCARD_BYTES_MAX, DISCARDING_STREAMS_MAX, HEADS_BYTES_MAX, RequestStream, StreamEnd,
};

/// Bytes of a file, or of content in memory, that are given to the transport before it is another stream's turn.
const CHUNK_BYTES: usize = 64 * 1024;

/// Bytes that are given to the transport before other tasks run.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Bodies up to this size go to the transport together with their head.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

/// The priority of our unidirectional streams in the transport: above those of responses.
const CRITICAL_PRIORITY: i32 = URGENCY_DEFAULT + 1;

/// The urgency that has the priority 0 in the transport, the initial one.
const URGENCY_DEFAULT: i32 = 3;

/// The transport's number of a stream.
pub(super) fn transport_id(id: StreamId) -> nowait_quic::StreamId {
    let initiator = if id.is_client() { Side::Client } else { Side::Server };
    let dir = if id.is_bidirectional() { Dir::Bi } else { Dir::Uni };
    nowait_quic::StreamId::new(initiator, dir, id.get() >> 2)
}

/// The core's number of a stream.
pub(super) fn core_id(id: nowait_quic::StreamId) -> StreamId {
    StreamId::new(u64::from(id))
}

/// What became of a stream's turn.
enum Written {
    /// All of it, or a chunk.
    Progress(usize),
    /// So much, and the transport takes no more.
    Blocked(usize),
    /// The client reads no more.
    Gone,
}

/// A connection.
pub(super) struct Http3Connection {
    all: Rc<Connections>,
    transport: Rc<Transport>,
    client: Client,
    tls: Tls,
    /// The place among the worker's connections.
    place: Cell<u32>,
    /// The result of [`default_server`](Self::default_server) for the generation with this number.
    default_server: Cell<(u64, ServerId)>,
    pub(super) h3: RefCell<ServerConnection>,
    pub(super) heads: RefCell<Heads>,
    /// In the order of their numbers.
    streams: RefCell<Vec<Rc<Stream>>>,
    /// Our unidirectional streams, once they are open.
    critical: [Cell<Option<nowait_quic::StreamId>>; 3],
    /// Streams whose response is complete, and whose request soon will be.
    discarding: RefCell<Vec<StreamId>>,
    /// Responses of which the client has not acknowledged all. The transport bounds their number: the client may open
    /// another stream when it has.
    undelivered: RefCell<Vec<StreamId>>,
    /// The connection's task.
    task: RefCell<Waker>,
    /// The task is running, and checks all flags before it stops.
    pub(super) working: Cell<bool>,
    /// There is more work for it.
    pub(super) more: Cell<bool>,
    /// Memory for a request's future.
    pub(super) spare: RefCell<Option<Box<dyn RequestFuture<Stream>>>>,
    /// Streams that read files which are not in memory.
    cold: Cell<usize>,
    /// The memory of its requests' heads, in bytes, and its limit.
    heads_bytes: Cell<usize>,
    heads_bytes_max: usize,
    /// Since when it has no streams, and how long it must be kept; `None` if it has.
    idle: Cell<Option<(Instant, Duration)>>,
    /// The client was asked to open no more streams, or is about to be.
    pub(super) leaving: Cell<bool>,
    /// The connection has reached its limit of requests or of time.
    pub(super) used_up: Cell<bool>,
    /// The client has broken the rules.
    pub(super) failed: Cell<Option<ConnectionError>>,
    /// The worker wants it to end at once.
    pub(super) is_cut: Cell<bool>,
}

impl Http3Connection {
    /// A connection whose handshake is complete. The limits are those of the server that the handshake named; `None` if
    /// its address is no longer listened on.
    pub(super) fn new(all: Rc<Connections>, established: Established) -> Option<Rc<Self>> {
        let Established { connection: transport, client, tls } = established;
        let current = all.current();
        let default_server = {
            let servers = servers(&current, &client.listen, transport.local())?;
            handshake::named_server(&tls, servers)
        };
        let head = &current.conf.server(default_server).head;
        let bounds = HeadBounds::of(head);
        let limits = Limits {
            string_bytes_max: bounds.string_bytes,
            list_bytes_max: bounds.list_bytes,
            fields_max: bounds.fields,
            extended_connect: true,
            ..Limits::default()
        };
        all.services.counts.opened();
        let connection = Rc::new(Self {
            transport,
            client,
            tls,
            place: Cell::new(u32::MAX),
            default_server: Cell::new((current.number, default_server)),
            h3: RefCell::new(ServerConnection::new(limits)),
            heads: RefCell::new(Heads::new(Rules::of(head, Version::Http3))),
            streams: RefCell::default(),
            critical: Default::default(),
            discarding: RefCell::default(),
            undelivered: RefCell::default(),
            task: RefCell::new(Waker::noop().clone()),
            working: Cell::new(false),
            more: Cell::new(false),
            spare: RefCell::new(None),
            cold: Cell::new(0),
            heads_bytes: Cell::new(0),
            // One more request is accepted as soon as all others have ended.
            heads_bytes_max: HEADS_BYTES_MAX.max(bounds.list_bytes as usize),
            idle: Cell::new(Some((now(), Duration::ZERO))),
            leaving: Cell::new(false),
            used_up: Cell::new(false),
            failed: Cell::new(None),
            is_cut: Cell::new(false),
            all,
        });
        let held: Weak<dyn ConnectionHandle> = Rc::<Self>::downgrade(&connection);
        connection.place.set(connection.all.enter(held));
        Some(connection)
    }

    pub(super) fn all(&self) -> &Rc<Connections> {
        &self.all
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(super) fn tls(&self) -> &Tls {
        &self.tls
    }

    pub(super) fn local(&self) -> &Address {
        self.client.local_or(|| Address::Inet(self.transport.local()))
    }

    pub(super) fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        servers(current, &self.client.listen, self.transport.local())
    }

    /// Registers the connection's task.
    pub(super) fn register(&self, waker: &Waker) {
        let mut task = self.task.borrow_mut();
        if !task.will_wake(waker) {
            task.clone_from(waker);
        }
    }

    pub(super) fn wake_task(&self) {
        match self.working.get() {
            true => self.more.set(true),
            false => self.task.borrow().wake_by_ref(),
        }
    }

    /// The server whose settings hold for the connection: that of the name in the TLS handshake, or the
    /// default server of its address.
    pub(super) fn default_server(&self, current: &Current) -> Option<ServerId> {
        let (generation, server) = self.default_server.get();
        if generation == current.number {
            return Some(server);
        }
        let server = handshake::named_server(&self.tls, self.virtual_servers(current)?);
        self.default_server.set((current.number, server));
        Some(server)
    }

    /// Writes a line about the connection to the error log.
    #[cold]
    pub(super) fn log_info(&self, message: std::fmt::Arguments<'_>) {
        let current = self.all.current();
        let Some(server) = self.default_server(&current) else { return };
        requests::log(&self.client, &current, server, Level::Info, message);
    }

    /// Whether it has no streams.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.borrow().is_empty()
    }

    pub(super) fn stream(&self, id: StreamId) -> Option<Rc<Stream>> {
        let streams = self.streams.borrow();
        let at = streams.binary_search_by_key(&id, |stream| stream.id).ok()?;
        Some(streams[at].clone())
    }

    /// Whether the client's message is complete, or nothing more of it will come.
    pub(super) fn has_ended(&self, id: StreamId) -> bool {
        self.h3.borrow().has_ended(id)
    }

    /// Passes input of a stream to the core. `None`: the connection ends.
    pub(super) fn receive(&self, id: StreamId, input: &[u8], ended: bool) -> Option<ReceiveStep> {
        let mut heads = self.heads.borrow_mut();
        let result = self.h3.borrow_mut().receive(id, input, ended, &mut *heads);
        self.checked(result)
    }

    /// The result of the core; an error ends the connection.
    pub(super) fn checked<T>(&self, result: Result<T, ConnectionError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failed.set(Some(error));
                self.wake_task();
                None
            }
        }
    }

    /// A stream can't be read: the client has reset it, or the connection has ended.
    pub(super) fn unreadable(&self, id: StreamId, error: &ReadError) {
        if let ReadError::Reset(_) = error {
            let result = self.h3.borrow_mut().peer_reset(id);
            self.checked(result);
        } else {
            self.h3.borrow_mut().abandon_receiving(id);
        }
        self.discarding.borrow_mut().retain(|stream| *stream != id);
        if let Some(stream) = self.stream(id) {
            stream.leave();
        }
        self.wake_task();
    }

    /// Counts the head of a beginning stream. False: the limit of all heads together is exceeded.
    pub(super) fn count_head(&self, stream: &Stream, bytes: usize) -> bool {
        let all = self.heads_bytes.get() + bytes;
        let fits = all <= self.heads_bytes_max || self.is_idle();
        if fits {
            self.heads_bytes.set(all);
            stream.head_bytes.set(bytes);
        }
        fits
    }

    /// Adds a stream.
    pub(super) fn add(&self, stream: Rc<Stream>) {
        if self.idle.take().is_some() {
            // A request may take longer than an idle connection is kept.
            self.transport.set_keep_alive(true);
        }
        let mut streams = self.streams.borrow_mut();
        let at = streams.partition_point(|other| other.id < stream.id);
        streams.insert(at, stream);
    }

    /// Ends a stream: its request's task has ended.
    pub(super) fn finish(&self, stream: &Stream, end: StreamEnd) {
        let id = transport_id(stream.id);
        let is_sent = stream.is_finished.get();
        let code = match end {
            StreamEnd::Complete | StreamEnd::CompleteWithoutRequest if is_sent => None,
            StreamEnd::Complete | StreamEnd::CompleteWithoutRequest | StreamEnd::OwnFault => {
                Some(ErrorCode::H3_INTERNAL_ERROR)
            }
            StreamEnd::Cancelled | StreamEnd::ClientFault => Some(ErrorCode::H3_REQUEST_CANCELLED),
        };
        match code {
            Some(code) => {
                self.transport.reset(id, code.0);
                self.transport.stop(id, code.0);
                self.h3.borrow_mut().abandon(stream.id);
            }
            None => self.end_receiving(stream, end),
        }
        self.heads_bytes.set(self.heads_bytes.get() - stream.head_bytes.take());
        let mut streams = self.streams.borrow_mut();
        if let Ok(at) = streams.binary_search_by_key(&stream.id, |stream| stream.id) {
            streams.remove(at);
        }
        if streams.is_empty() {
            self.idle.set(Some((now(), Duration::ZERO)));
            self.transport.set_keep_alive(false);
        }
        drop(streams);
        self.wake_task();
    }

    /// A response is complete. What is left of its request is discarded, or stopped: "a server [...] MAY abort reading
    /// the request stream with H3_NO_ERROR" (RFC 9114 section 4.1).
    fn end_receiving(&self, stream: &Stream, end: StreamEnd) {
        let mut h3 = self.h3.borrow_mut();
        let fault = h3.fault(stream.id);
        let has_end = stream.input.borrow().ended;
        if fault.is_none() && h3.has_ended(stream.id) {
            // Otherwise the transport would wait for a reader of the end behind trailers.
            if !has_end {
                self.transport.stop(transport_id(stream.id), ErrorCode::H3_NO_ERROR.0);
            }
            return h3.abandon(stream.id);
        }
        let mut discarding = self.discarding.borrow_mut();
        let is_short = h3.content_left(stream.id).is_some_and(|left| left <= DISCARD_BYTES_MAX);
        if fault.is_none()
            && end == StreamEnd::Complete
            && is_short
            && discarding.len() < DISCARDING_STREAMS_MAX
        {
            discarding.push(stream.id);
            drop((h3, discarding));
            // What has been read already.
            let input = stream.input.take();
            return self.discard(stream.id, input.frames, input.ended);
        }
        if !has_end {
            let code = fault.unwrap_or(ErrorCode::H3_NO_ERROR);
            self.transport.stop(transport_id(stream.id), code.0);
        }
        h3.abandon(stream.id);
    }

    /// Discards what has arrived for a stream whose response is complete.
    pub(super) fn discard(&self, id: StreamId, mut frames: Bytes, mut ended: bool) {
        if !self.discarding.borrow().contains(&id) {
            return;
        }
        loop {
            let Some(step) = self.receive(id, &frames, ended) else { return };
            frames = frames.slice(step.consumed..);
            if !frames.is_empty() {
                continue;
            }
            if ended || self.has_ended(id) {
                break;
            }
            match self.transport.read(transport_id(id), super::stream::READ_BYTES_MAX) {
                Ok(nowait_quic::Read::Data(bytes)) => frames = bytes,
                Ok(nowait_quic::Read::End) => ended = true,
                Ok(nowait_quic::Read::Blocked) => return,
                Err(_) => break,
            }
        }
        if !ended {
            self.transport.stop(transport_id(id), ErrorCode::H3_NO_ERROR.0);
        }
        self.h3.borrow_mut().abandon(id);
        self.discarding.borrow_mut().retain(|stream| *stream != id);
    }

    /// The client has all of a response, or wants no more of it.
    pub(super) fn delivered(&self, id: StreamId) {
        self.undelivered.borrow_mut().retain(|stream| *stream != id);
    }

    /// Whether the client has everything.
    pub(super) fn is_delivered(&self) -> bool {
        self.undelivered.borrow().is_empty() && !self.h3.borrow().has_output()
    }

    /// The time that an idle connection must be kept.
    pub(super) fn keep(&self, keep: Duration) {
        self.idle.set(self.idle.get().map(|(since, _)| (since, keep)));
    }

    /// Since when it is idle, and how long it must be kept.
    pub(super) fn idle_since(&self) -> Option<(Instant, Duration)> {
        self.idle.get()
    }

    /// The connection ends: so do its requests.
    pub(super) fn abandon(&self) {
        for stream in self.streams.take() {
            stream.leave();
        }
    }

    /// Sets the priority of a stream in the transport, too.
    pub(super) fn prioritise(&self, id: StreamId) {
        let priority: Priority = self.h3.borrow().priority(id);
        let urgency = i32::from(priority.urgency);
        self.transport.set_priority(transport_id(id), URGENCY_DEFAULT - urgency);
    }

    /// Opens our unidirectional streams, as far as the client allows, and sends what waits for them.
    pub(super) fn collect(&self) {
        let mut h3 = self.h3.borrow_mut();
        for (stream, own) in CriticalStream::ALL.into_iter().zip(&self.critical) {
            if h3.output(stream).is_empty() {
                continue;
            }
            if own.get().is_none() {
                own.set(self.transport.open(Dir::Uni));
                let Some(id) = own.get() else { return };
                self.transport.set_priority(id, CRITICAL_PRIORITY);
            }
            let Some(id) = own.get() else { continue };
            let mut chunks = [Bytes::copy_from_slice(h3.output(stream))];
            if let Ok(written) = self.transport.write(id, &mut chunks) {
                h3.written(stream, written);
            }
        }
    }

    /// Whether it is one of our unidirectional streams.
    pub(super) fn is_critical(&self, id: nowait_quic::StreamId) -> bool {
        self.critical.iter().any(|own| own.get() == Some(id))
    }

    /// Sends an interim response, unless the final one was sent or the client has disconnected.
    pub(super) fn interim(&self, stream: &Stream, status: u16, headers: &[Header]) {
        {
            let mut frames = stream.frames.borrow_mut();
            let mut h3 = self.h3.borrow_mut();
            let Ok(mut head) = h3.interim(stream.id, status, &mut *frames) else { return };
            for header in headers {
                head.field(&header.name, &header.value);
            }
            head.finish(false);
        }
        self.write_frames(stream);
    }

    /// Writes the head of a response. It waits for what follows.
    pub(super) fn write_head(
        &self,
        stream: &Stream,
        request: &Request,
        head: &Head,
        end: bool,
    ) -> Result<(), SendError> {
        {
            let mut frames = stream.frames.borrow_mut();
            let mut h3 = self.h3.borrow_mut();
            let start = frames.len();
            let mut writer =
                h3.respond(stream.id, head.status, &mut *frames).map_err(|_| left())?;
            response_head::write(request, head, &mut writer);
            writer.finish(false);
            request.sent().count_head((frames.len() - start) as u64);
        }
        if end {
            stream.end();
        }
        Ok(())
    }

    /// Ends a response with trailers. Returns their length.
    pub(super) fn write_trailers(&self, stream: &Stream, trailers: &[Header]) -> u64 {
        let bytes = {
            let mut frames = stream.frames.borrow_mut();
            let mut h3 = self.h3.borrow_mut();
            let start = frames.len();
            // A closed stream accepts none.
            if let Ok(mut writer) = h3.trailers_of(stream.id, &mut *frames) {
                for trailer in trailers {
                    writer.field(&trailer.name, &trailer.value);
                }
                writer.finish(true);
            }
            (frames.len() - start) as u64
        };
        stream.end();
        bytes
    }

    /// Begins a DATA frame.
    pub(super) fn begin_data(&self, stream: &Stream, length: u64) {
        let mut frames = stream.frames.borrow_mut();
        let begun = self.h3.borrow_mut().data_header(stream.id, length, &mut *frames);
        // A closed stream needs none.
        if begun.is_ok() {
            stream.frame_left.set(length);
        }
    }

    /// Sends all of a response's content, if it is small and in memory, and nothing precedes it; returns whether that was
    /// possible. Its DATA frame has begun.
    pub(super) fn send_whole(&self, stream: &Stream, content: &Body) -> Result<bool, BodyError> {
        if stream.is_blocked.get() || self.h3.borrow().has_ready() {
            return Ok(false);
        }
        let fits = |length: usize| length as u64 == stream.frame_left.get();
        let bytes = match content {
            Body::Bytes(bytes) if bytes.len() <= WHOLE_BYTES_MAX && fits(bytes.len()) => {
                bytes.clone()
            }
            Body::File(file) if file.len <= WHOLE_BYTES_MAX as u64 && fits(file.len as usize) => {
                let length = file.len as usize;
                let mut frames = stream.frames.borrow_mut();
                frames.reserve(length);
                match read_into(file, length, &mut frames) {
                    Ok(true) => Bytes::new(),
                    Ok(false) => return Ok(false),
                    Err(_) if file.elsewhere.is_some() => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            _ => return Ok(false),
        };
        stream.frame_left.set(0);
        {
            let mut outgoing = stream.outgoing.borrow_mut();
            outgoing.front = bytes;
            outgoing.ends = true;
        }
        // Its frame needs no other header.
        stream.frame_left.set(stream.outgoing.borrow().len());
        self.write(stream);
        Ok(true)
    }

    /// A stream has content to be sent.
    pub(super) fn offer(&self, stream: &Stream) {
        if stream.outgoing.borrow().len() == 0 {
            self.write(stream);
            return;
        }
        let mut h3 = self.h3.borrow_mut();
        let has_ready = h3.has_ready();
        h3.set_ready(stream.id, !stream.is_blocked.get());
        drop(h3);
        if has_ready || stream.is_blocked.get() {
            self.wake_task();
        } else if self.fill() {
            self.wake_task();
        }
    }

    /// A stream's content can't be sent.
    pub(super) fn withdraw(&self, stream: &Stream) {
        self.h3.borrow_mut().set_ready(stream.id, false);
    }

    /// The transport takes more of a stream.
    pub(super) fn writable(&self, id: StreamId) {
        let Some(stream) = self.stream(id) else { return };
        stream.is_blocked.set(false);
        if stream.outgoing.borrow().len() > 0 {
            self.h3.borrow_mut().set_ready(id, true);
        } else {
            self.write(&stream);
            stream.outgoing.borrow_mut().advanced();
        }
    }

    /// Writes heads that wait.
    pub(super) fn write_frames(&self, stream: &Stream) {
        if stream.outgoing.borrow().len() == 0 {
            self.write(stream);
        }
    }

    /// Gives content to the transport, as its windows allow, of all streams in the order of their priorities. Returns
    /// whether there is more for a later turn.
    pub(super) fn fill(&self) -> bool {
        let mut given = 0;
        while given < TURN_BYTES_MAX {
            let Some(id) = self.h3.borrow_mut().next_ready() else { return false };
            match self.stream(id) {
                Some(stream) => given += self.write(&stream),
                None => self.h3.borrow_mut().set_ready(id, false),
            }
        }
        self.h3.borrow().has_ready()
    }

    /// Writes a chunk of a stream: heads, content, its end. Returns the number of bytes.
    pub(super) fn write(&self, stream: &Stream) -> usize {
        if stream.is_blocked.get() {
            self.h3.borrow_mut().set_ready(stream.id, false);
            return 0;
        }
        let bytes = match self.write_chunk(stream) {
            Written::Progress(bytes) => bytes,
            Written::Blocked(bytes) => {
                self.h3.borrow_mut().set_ready(stream.id, false);
                bytes
            }
            Written::Gone => {
                self.h3.borrow_mut().set_ready(stream.id, false);
                stream.leave();
                return 0;
            }
        };
        let mut outgoing = stream.outgoing.borrow_mut();
        let is_done = outgoing.len() == 0 && stream.frames.borrow().is_empty();
        if is_done && outgoing.ends && !stream.is_finished.replace(true) {
            // One that was stopped needs no end.
            if self.transport.finish(transport_id(stream.id)).is_ok() {
                self.undelivered.borrow_mut().push(stream.id);
            }
            self.h3.borrow_mut().end(stream.id);
        }
        if outgoing.stops() {
            self.h3.borrow_mut().set_ready(stream.id, false);
        }
        outgoing.advanced();
        if self.h3.borrow().has_output() {
            self.wake_task();
        }
        bytes
    }

    fn write_chunk(&self, stream: &Stream) -> Written {
        let mut outgoing = stream.outgoing.borrow_mut();
        if outgoing.len() > 0 && stream.frame_left.get() == 0 {
            self.begin_data(stream, outgoing.len());
            if stream.frame_left.get() == 0 {
                return Written::Gone;
            }
        }
        let max = stream.frame_left.get().min(CHUNK_BYTES as u64) as usize;
        let content = match outgoing.take(max) {
            Some(bytes) => bytes,
            None => self.file_chunk(&mut outgoing, max),
        };
        let length = content.len();
        let frames = std::mem::take(&mut *stream.frames.borrow_mut());
        if frames.is_empty() && content.is_empty() {
            return Written::Progress(0);
        }
        let mut chunks = [Bytes::from(frames), content];
        let result = self.write_all(stream.id, &mut chunks);
        let [frames, content] = chunks;
        stream.frame_left.set(stream.frame_left.get() - (length - content.len()) as u64);
        if !frames.is_empty() {
            *stream.frames.borrow_mut() = frames.into();
        }
        if !content.is_empty() {
            outgoing.put_back(content);
        }
        match result {
            Ok((bytes, is_whole)) => {
                stream.is_blocked.set(!is_whole);
                if is_whole { Written::Progress(bytes) } else { Written::Blocked(bytes) }
            }
            Err(WriteError::Stopped(_)) => {
                let result = self.h3.borrow_mut().peer_stopped(stream.id);
                self.checked(result);
                Written::Gone
            }
            Err(_) => Written::Gone,
        }
    }

    /// Writes chunks. Returns how many bytes were taken, and whether those were all; if not, the transport will say when it
    /// takes more.
    fn write_all(&self, id: StreamId, chunks: &mut [Bytes]) -> Result<(usize, bool), WriteError> {
        let mut bytes = 0;
        while chunks.iter().any(|chunk| !chunk.is_empty()) {
            match self.transport.write(transport_id(id), chunks)? {
                0 => return Ok((bytes, false)),
                taken => bytes += taken,
            }
        }
        Ok((bytes, true))
    }

    /// The next bytes of the file that is a stream's part, if they are in memory.
    fn file_chunk(&self, outgoing: &mut crate::streams::outgoing::Outgoing, max: usize) -> Bytes {
        let left = outgoing.len();
        let Some(Part::File(file)) = &mut outgoing.part else { return Bytes::new() };
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(max);
        let mut chunk = Vec::with_capacity(bytes);
        match read_into(file, bytes, &mut chunk) {
            Ok(true) => {
                file.offset += bytes as u64;
                file.len -= bytes as u64;
                return Bytes::from(chunk);
            }
            Ok(false) if self.cold.get() < COLD_STREAMS => {
                outgoing.cold = Some(COLD_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX)));
            }
            Ok(false) => outgoing.cold = Some(bytes.min(COLD_BYTES / 4)),
            Err(error) => outgoing.failed = Some(error),
        }
        Bytes::new()
    }

    /// How many streams read files that are not in memory.
    pub(super) fn cold_streams(&self) -> &Cell<usize> {
        &self.cold
    }

    /// Gives memory back while the connection is idle.
    pub(super) fn shrink(&self) {
        self.h3.borrow_mut().shrink();
        self.heads.borrow_mut().shrink();
        self.spare.take();
        self.streams.borrow_mut().shrink_to_fit();
    }
}

/// Appends the first bytes of a file. False: they are not in memory.
fn read_into(file: &FileBody, bytes: usize, out: &mut Vec<u8>) -> Result<bool, BodyError> {
    let start = out.len();
    let read = file.file.try_read(&file.io, file.offset, bytes, out);
    match read {
        Ok(Some(read)) if read == bytes => return Ok(true),
        _ => out.truncate(start),
    }
    match read {
        Ok(None) => Ok(false),
        Ok(Some(_)) => Err(BodyError::Truncated),
        Err(error) => Err(BodyError::File(error)),
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

impl ConnectionHandle for Http3Connection {
    /// One with streams looks at once whether it has to leave: it asks the client to open no more.
    fn waits(&self) -> Option<(Instant, Duration)> {
        Some(self.idle.get().unwrap_or((self.client.started, Duration::ZERO)))
    }

    fn idle(&self) -> Option<(Instant, Duration)> {
        self.idle.get().filter(|_| self.client.requests.get() > 0)
    }

    fn wake(&self) {
        self.wake_task();
    }

    fn hang_up(&self) {
        self.is_cut.set(true);
        self.wake_task();
    }
}

impl Drop for Http3Connection {
    fn drop(&mut self) {
        self.all.leave(self.place.get());
        self.all.services.counts.closed();
    }
}
