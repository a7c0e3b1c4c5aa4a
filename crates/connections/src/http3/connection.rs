//! A client's HTTP/3 connection: the protocol's state, its streams, and their way to the transport. [`task`](super::task)
//! serves it; the tasks of its streams call it.
//!
//! The memory of a connection is bounded: streams by `http3_max_concurrent_streams`, content received by the transport's
//! windows (`http3_stream_buffer_size`), content to be sent by those and one chunk of a file per stream, heads by
//! [`HEADS_BYTES_MAX`] and the core's bounds.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_front::servers::Virtual;
use nowait_front::tls::Tls;
use nowait_h3::server::ServerConnection;
use nowait_h3::{
    ConnectionError, CriticalStream, ErrorCode, Event, Flood, Limits, Priority, ReceiveStep,
    StreamId,
};
use nowait_http::client::Client;
use nowait_http::clients::ConnectionView;
use nowait_http::conf::ServerId;
use nowait_http::generation::Current;
use nowait_message::Version;
use nowait_quic::{Connection as Transport, Dir, Endpoint, ReadError, Side};
use nowait_runtime::net::Address;
use nowait_runtime::{now, spawn};

use super::stream::Http3Stream;
use super::task;
use crate::connections::{ConnectionHandle, Connections};
use crate::handshake;
use crate::migration::{MovedConnection, MovedQuic};
use crate::quic::{Established, servers};
use crate::streams::DISCARD_BYTES_MAX;
use crate::streams::connection::{StreamConnection, StreamSet};
use crate::streams::heads::{Heads, Rules};
use crate::streams::requests::HeadBounds;
use crate::streams::stream::{RequestStream, StreamEnd};

/// With more streams, each holds less of its file.
const CROWD_STREAMS: usize = 16;

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

/// A place among the worker's connections.
struct Listed {
    all: Rc<Connections>,
    place: Cell<u32>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.leave(self.place.get());
        self.all.services.counts.closed();
    }
}

/// The state of an idle connection that has come from another worker.
pub(crate) struct Kept {
    h3: ServerConnection,
    critical: [Option<nowait_quic::StreamId>; 3],
    undelivered: Vec<StreamId>,
    idle: (Instant, Duration),
}

/// A connection.
pub(super) struct Http3Connection {
    listed: Listed,
    endpoint: Weak<Endpoint>,
    transport: Rc<Transport>,
    client: Client,
    tls: Tls,
    /// The client speaks HTTP/0.9 (`http3_hq`): streams carry a line and content, without frames.
    is_hq: bool,
    pub(super) h3: RefCell<ServerConnection>,
    pub(super) heads: RefCell<Heads>,
    streams: StreamSet<Http3Stream>,
    /// Our unidirectional streams, once they are open.
    critical: [Cell<Option<nowait_quic::StreamId>>; 3],
    /// Responses of which the client has not acknowledged all. The transport bounds their number: the client may open
    /// another stream when it has.
    undelivered: RefCell<Vec<StreamId>>,
    /// The client has broken the rules.
    pub(super) failed: Cell<Option<ConnectionError>>,
    /// The worker wants it to end at once.
    pub(super) is_cut: Cell<bool>,
}

impl Http3Connection {
    /// A connection whose handshake is complete. The limits are those of the server that the handshake named; `None` if
    /// its address is no longer listened on.
    pub(super) fn new(
        all: Rc<Connections>,
        established: Established,
        kept: Option<Kept>,
    ) -> Option<Rc<Self>> {
        let Established { connection: transport, client, tls, endpoint } = established;
        let current = all.current();
        let default_server = {
            let servers = servers(&current, &client.listen, transport.local())?;
            handshake::named_server(&tls, servers)
        };
        let is_hq = tls.session().alpn() == Some(b"hq-interop");
        let version = if is_hq { Version::Http09 } else { Version::Http3 };
        let head = &current.conf.server(default_server).head;
        let bounds = HeadBounds::of(head);
        let limits = Limits {
            string_bytes_max: bounds.string_bytes,
            list_bytes_max: bounds.list_bytes,
            fields_max: bounds.fields,
            section_bytes_max: bounds.section_bytes,
            // One that arrives slowly leaves room for others.
            kept_bytes_max: bounds.section_bytes.saturating_mul(4),
            extended_connect: true,
            ..Limits::default()
        };
        match kept {
            None => all.services.counts.opened(),
            Some(_) => all.services.counts.moved(),
        }
        let Kept { h3, critical, undelivered, idle } = kept.unwrap_or_else(|| Kept {
            h3: ServerConnection::new(limits),
            critical: [None; 3],
            undelivered: Vec::new(),
            idle: (now(), Duration::ZERO),
        });
        let connection = Rc::new(Self {
            endpoint,
            transport,
            client,
            tls,
            is_hq,
            h3: RefCell::new(h3),
            heads: RefCell::new(Heads::new(Rules::of(head, version))),
            streams: StreamSet::new((current.number, default_server), &bounds, idle),
            critical: critical.map(Cell::new),
            undelivered: RefCell::new(undelivered),
            failed: Cell::new(None),
            is_cut: Cell::new(false),
            listed: Listed { all, place: Cell::new(u32::MAX) },
        });
        let held: Weak<dyn ConnectionHandle> = Rc::<Self>::downgrade(&connection);
        connection.listed.place.set(connection.all().enter(held));
        // A reload during the handshake may have switched the version off.
        if !connection.is_served_by(&current) {
            connection.dismiss();
        }
        Some(connection)
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Whether the client speaks HTTP/0.9.
    pub(super) fn is_hq(&self) -> bool {
        self.is_hq
    }

    pub(super) fn tls(&self) -> &Tls {
        &self.tls
    }

    pub(super) fn local(&self) -> &Address {
        self.client.local_or(|| Address::Inet(self.transport.local()))
    }

    /// Whether the client's message is complete, or nothing more of it will come.
    pub(super) fn has_ended(&self, id: StreamId) -> bool {
        self.is_hq || self.h3.borrow().has_ended(id)
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
                // The core repeats its error.
                let is_first = self.failed.replace(Some(error)).is_none();
                if let ConnectionError::Flood(flood) = error
                    && is_first
                {
                    self.count_flood(flood);
                }
                self.streams.wake();
                None
            }
        }
    }

    fn count_flood(&self, flood: Flood) {
        let Some(directory) = self.transport.directory() else { return };
        let counters = directory.counters();
        let counter = match flood {
            Flood::Frames => &counters.floods_of_frames,
            Flood::Resets => &counters.floods_of_resets,
            Flood::Insertions => &counters.floods_of_insertions,
            Flood::Sections => &counters.floods_of_sections,
            Flood::Unread => &counters.floods_unread,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream can't be read: the client has reset it, or the connection has ended.
    pub(super) fn unreadable(&self, id: StreamId, error: &ReadError) {
        let stream = self.streams.get(id);
        // A client that cancels a request does so in both directions; it counts once.
        let is_gone = stream.as_ref().is_some_and(|stream| stream.state().presence.is_gone());
        if !is_gone && let ReadError::Reset(_) = error {
            let result = self.h3.borrow_mut().peer_reset(id);
            self.checked(result);
        } else {
            self.h3.borrow_mut().abandon_receiving(id);
        }
        self.streams.forget(id);
        if let Some(stream) = stream {
            stream.leave();
        }
        self.streams.wake();
    }

    /// The client reads no more of a response.
    pub(super) fn stopped(&self, stream: &Http3Stream) {
        if !stream.state().presence.is_gone() {
            let result = self.h3.borrow_mut().peer_stopped(stream.id);
            self.checked(result);
            stream.leave();
        }
    }

    /// Whether it has many streams.
    pub(super) fn is_crowded(&self) -> bool {
        self.streams.len() > CROWD_STREAMS
    }

    /// Adds a stream.
    pub(super) fn add(&self, stream: Rc<Http3Stream>) {
        if self.streams.add(stream) {
            // A request may take longer than an idle connection is kept.
            self.transport.set_keep_alive(true);
        }
    }

    /// Ends a stream: its request's task has ended.
    pub(super) fn finish(&self, stream: &Http3Stream, end: StreamEnd) {
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
        if self.streams.remove(stream) {
            self.transport.set_keep_alive(false);
        }
        self.streams.wake();
    }

    /// A response is complete. What is left of its request is discarded, or stopped: "a server [...] MAY abort reading
    /// the request stream with H3_NO_ERROR" (RFC 9114 section 4.1).
    fn end_receiving(&self, stream: &Http3Stream, end: StreamEnd) {
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
        let is_short = h3.content_left(stream.id).is_some_and(|left| left <= DISCARD_BYTES_MAX);
        if fault.is_none() && end == StreamEnd::Complete && is_short && self.streams.may_discard() {
            self.streams.discard(stream.id);
            drop(h3);
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
        if !self.streams.is_discarding(id) {
            return;
        }
        loop {
            let Some(step) = self.receive(id, &frames, ended) else { return };
            if step.event == Event::Blocked {
                // Trailers wait for the table of QPACK: nothing more is taken of the stream meanwhile.
                break;
            }
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
        self.streams.forget(id);
    }

    /// The end of a response was written.
    pub(super) fn await_delivery(&self, id: StreamId) {
        self.undelivered.borrow_mut().push(id);
    }

    /// The client has all of a response, or wants no more of it.
    pub(super) fn delivered(&self, id: StreamId) {
        self.undelivered.borrow_mut().retain(|stream| *stream != id);
    }

    /// Whether the client has everything, GOAWAY too: the end of the connection would not tell it that the requests on
    /// their way were not processed. Only asked when nothing more is to be written.
    pub(super) fn is_delivered(&self) -> bool {
        if !self.undelivered.borrow().is_empty() || self.is_hq {
            return self.undelivered.borrow().is_empty();
        }
        let own = self.critical.iter().find_map(Cell::get);
        !self.h3.borrow().has_output() && own.is_none_or(|own| self.transport.is_acknowledged(own))
    }

    /// Sets the priority of a stream in the transport, too.
    pub(super) fn prioritise(&self, id: StreamId) {
        let priority: Priority = self.h3.borrow().priority(id);
        let urgency = i32::from(priority.urgency);
        self.transport.set_priority(transport_id(id), URGENCY_DEFAULT - urgency);
    }

    /// Opens our unidirectional streams, as far as the client allows, and sends what waits for them.
    pub(super) fn collect(&self) {
        if self.is_hq {
            return;
        }
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
            // The transport reports that there is room again only after a write that found none.
            while !h3.output(stream).is_empty() {
                let mut chunks = [Bytes::copy_from_slice(h3.output(stream))];
                match self.transport.write(id, &mut chunks) {
                    Ok(written) if written > 0 => h3.written(stream, written),
                    _ => break,
                }
            }
        }
    }

    /// Whether it is one of our unidirectional streams.
    pub(super) fn is_critical(&self, id: nowait_quic::StreamId) -> bool {
        self.critical.iter().any(|own| own.get() == Some(id))
    }

    /// Whether it has nothing that another worker could not continue.
    pub(super) fn may_move(&self) -> bool {
        let h3 = self.h3.borrow();
        self.is_idle()
            && !self.streams.discards()
            && h3.open_streams() == 0
            && !h3.has_output()
            && !h3.is_going_away()
            && !self.streams.leaving.get()
    }

    /// Hands an idle connection over to another worker. It is given back if it can't leave.
    pub(super) fn move_away(self: Rc<Self>) -> Result<(), Rc<Self>> {
        if Rc::strong_count(&self) > 1 {
            // A background subrequest continues.
            return Err(self);
        }
        let Some(transport) = self.transport.depart() else { return Err(self) };
        let Some(own) = Rc::into_inner(self) else { return Ok(()) };
        let kept = Kept {
            h3: own.h3.into_inner(),
            critical: own.critical.map(Cell::into_inner),
            undelivered: own.undelivered.into_inner(),
            idle: own.streams.idle_since().unwrap_or((now(), Duration::ZERO)),
        };
        let (client, tls) = (own.client, own.tls);
        let resume: MovedQuic = Box::new(move |all, endpoint| {
            // Without an endpoint that has its socket, the connection is lost.
            let Some(endpoint) = endpoint else { return };
            let Ok(connection) = endpoint.arrive(transport) else { return };
            let endpoint = Rc::downgrade(endpoint);
            let established = Established { connection, client, tls, endpoint };
            drop(spawn(task::serve(all.clone(), established, Some(kept))));
        });
        let moved = Box::new(MovedConnection::Quic(resume));
        if let Err(moved) = own.listed.all.hand_over(moved)
            && let MovedConnection::Quic(resume) = *moved
        {
            // No worker takes it: it ends here.
            resume(&own.listed.all, own.endpoint.upgrade().as_ref());
        }
        Ok(())
    }

    /// Gives memory back while the connection is idle.
    pub(super) fn shrink(&self) {
        self.h3.borrow_mut().shrink();
        self.heads.borrow_mut().shrink();
        self.streams.shrink();
    }
}

impl StreamConnection for Http3Connection {
    type Stream = Http3Stream;

    fn all(&self) -> &Rc<Connections> {
        &self.listed.all
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        servers(current, &self.client.listen, self.transport.local())
    }

    fn named_server(&self, servers: &Virtual) -> ServerId {
        handshake::named_server(&self.tls, servers)
    }

    fn streams(&self) -> &StreamSet<Http3Stream> {
        &self.streams
    }
}

impl ConnectionHandle for Http3Connection {
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
            protocol: "HTTP/3",
            idle_since: self.streams.idle_since().map(|(since, _)| since),
            bytes: None,
        }
    }

    fn wake(&self) {
        self.streams.wake();
    }

    fn hang_up(&self) {
        self.is_cut.set(true);
        self.streams.wake();
    }

    fn is_served_by(&self, current: &Current) -> bool {
        self.virtual_servers(current).is_some_and(|servers| {
            let http3 = &current.conf.server(self.named_server(servers)).http3;
            if self.is_hq { http3.http3_hq } else { http3.http3 }
        })
    }

    fn dismiss(&self) {
        self.streams.dismiss();
    }
}
