//! One connection: the part common to both sides.
//!
//! ```text
//!  accept, receive, peer_reset … ──► ReceiveStep { consumed, event } + fields to the caller's Sink
//!  respond, open, data_header …  ──► bytes for the request's stream
//!                  output, written ──► bytes for the three unidirectional streams
//! ```
//!
//! The caller owns input and output. It opens one unidirectional stream for each [`CriticalStream`], and sends on it
//! what [`Connection::output`] has. At most [`OUTPUT_MAX`] bytes wait for a peer that does not read them.
//!
//! The caller reads each stream in order, when it wants to: unread content closes the transport's window. It passes
//! what it has read to [`Connection::receive`], with the end of the stream, until that needs more. Streams wait for
//! each other only where [`Event::Blocked`] says so.

mod control;
mod event;
mod heads;
mod receive;
mod send;
mod unidirectional;

use std::marker::PhantomData;

use nowait_fields::{OpenStreams, Priority};

use crate::budget::Budgets;
use crate::error::{ConnectionError, Flood, StreamError};
use crate::frame::{StreamId, write_number};
use crate::qpack::{Decoder, Encoder};
use crate::settings::Settings;
use crate::stream::{Local, Remote, StreamState};
use crate::{ErrorCode, Limits};
use unidirectional::{ControlReader, Unidirectional};

pub use event::{Event, ReceiveStep, Sink};
pub(crate) use send::HeadKind;
pub use send::{HeadWriter, SendError};

/// Bytes for each unidirectional stream that wait for the peer. More are a connection error.
pub const OUTPUT_MAX: usize = 16 * 1024;

/// The type of a control stream.
const CONTROL: u8 = 0x0;
/// The type of a QPACK encoder stream.
const ENCODER: u8 = 0x2;
/// The type of a QPACK decoder stream.
const DECODER: u8 = 0x3;

/// A side of the connection.
pub trait Role: sealed::Sealed {
    /// Whether it is the client.
    const CLIENT: bool;
}

/// The server's side.
#[derive(Debug)]
pub struct ServerSide;

/// The client's side.
#[derive(Debug)]
pub struct ClientSide;

impl Role for ServerSide {
    const CLIENT: bool = false;
}

impl Role for ClientSide {
    const CLIENT: bool = true;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ServerSide {}
    impl Sealed for super::ClientSide {}
}

/// A unidirectional stream that lasts as long as the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CriticalStream {
    /// The control stream.
    Control,
    /// The QPACK encoder stream.
    Encoder,
    /// The QPACK decoder stream.
    Decoder,
}

impl CriticalStream {
    /// All of them, in the order in which they should be opened.
    pub const ALL: [CriticalStream; 3] =
        [CriticalStream::Control, CriticalStream::Encoder, CriticalStream::Decoder];
}

/// The protocol state of one connection. See [`crate::server`] and [`crate::client`] for the differences.
#[derive(Debug)]
pub struct Connection<R> {
    limits: Limits,
    /// The peer's settings.
    peer: Settings,
    control: ControlReader,
    unidirectional: Unidirectional,
    decoder: Decoder,
    encoder: Encoder,
    streams: OpenStreams<StreamState>,
    /// Memory of field sections that are kept, in bytes.
    kept_bytes: usize,
    /// Streams whose section waits for insertions.
    blocked: u16,
    /// The stream after the last one that the peer has opened for a request.
    next_remote: u64,
    /// The first stream that our GOAWAY does not admit.
    admitted: Option<StreamId>,
    /// The first stream that the peer's GOAWAY does not admit.
    accepted: Option<StreamId>,
    /// The peer's MAX_PUSH_ID.
    push_max: u64,
    budgets: Budgets,
    /// Priorities of requests that have not come yet.
    announced: Vec<(StreamId, Priority)>,
    /// What waits for our control stream.
    output: Vec<u8>,
    failed: Option<ConnectionError>,
    role: PhantomData<R>,
}

impl<R: Role> Connection<R> {
    /// A fresh connection; what its unidirectional streams begin with is already in their output.
    pub fn new(limits: Limits) -> Self {
        let mut connection = Connection {
            limits,
            peer: Settings::default(),
            control: ControlReader::default(),
            unidirectional: Unidirectional::default(),
            decoder: Decoder::new(limits.table_capacity, limits.string_bytes_max as usize),
            encoder: Encoder::default(),
            streams: OpenStreams::default(),
            kept_bytes: 0,
            blocked: 0,
            next_remote: 0,
            admitted: None,
            accepted: None,
            push_max: 0,
            budgets: Budgets::new(&limits),
            announced: Vec::new(),
            output: vec![CONTROL],
            failed: None,
            role: PhantomData,
        };
        let settings = Settings {
            table_capacity: limits.table_capacity.into(),
            blocked_streams: limits.blocked_streams.into(),
            field_section_size: None,
            enable_connect_protocol: !R::CLIENT && limits.extended_connect,
        };
        settings.write(&mut connection.output);
        connection.encoder.output.push(ENCODER);
        connection.decoder.output.push(DECODER);
        connection
    }

    /// What waits to be sent on one of our unidirectional streams.
    pub fn output(&self, stream: CriticalStream) -> &[u8] {
        match stream {
            CriticalStream::Control => &self.output,
            CriticalStream::Encoder => &self.encoder.output,
            CriticalStream::Decoder => &self.decoder.output,
        }
    }

    /// The first bytes of it were sent.
    pub fn written(&mut self, stream: CriticalStream, bytes: usize) {
        let output = match stream {
            CriticalStream::Control => &mut self.output,
            CriticalStream::Encoder => &mut self.encoder.output,
            CriticalStream::Decoder => &mut self.decoder.output,
        };
        output.drain(..bytes.min(output.len()));
    }

    /// Whether anything waits to be sent on them.
    pub fn has_output(&self) -> bool {
        CriticalStream::ALL.into_iter().any(|stream| !self.output(stream).is_empty())
    }

    /// The peer has opened a stream. False: it is beyond our GOAWAY; the caller resets and stops it with
    /// [`ErrorCode::H3_REQUEST_REJECTED`], and the peer may send the request elsewhere.
    ///
    /// # Errors
    /// It must not open such a stream.
    pub fn accept(&mut self, stream: StreamId) -> Result<bool, ConnectionError> {
        let result = self.accept_any(stream);
        self.checked(result)
    }

    fn accept_any(&mut self, stream: StreamId) -> Result<bool, ConnectionError> {
        if !stream.is_bidirectional() {
            self.unidirectional.open(stream);
            return Ok(true);
        }
        // "Clients MUST treat receipt of a server-initiated bidirectional stream as a connection error of type
        // H3_STREAM_CREATION_ERROR unless such an extension has been negotiated."
        if R::CLIENT || !stream.is_client() {
            return Err(ConnectionError::UnexpectedStream);
        }
        self.next_remote = self.next_remote.max(stream.get() + 4);
        if self.admitted.is_some_and(|admitted| stream >= admitted) {
            self.budgets.spend(Flood::Frames)?;
            return Ok(false);
        }
        let mut open = StreamState::new(stream);
        if let Some(at) = self.announced.iter().position(|(announced, _)| *announced == stream) {
            let (_, priority) = self.announced.swap_remove(at);
            open.turn.update(priority);
        }
        self.streams.insert(open);
        Ok(true)
    }

    /// The peer has reset its half of a stream (RESET_STREAM). Returns whether it was a request or a response that had
    /// not ended, of which no more is to be read. A server's response may still be sent.
    ///
    /// # Errors
    /// The stream is needed as long as the connection lasts, or too many were reset.
    pub fn peer_reset(&mut self, stream: StreamId) -> Result<bool, ConnectionError> {
        let result = self.reset_any(stream);
        self.checked(result)
    }

    fn reset_any(&mut self, stream: StreamId) -> Result<bool, ConnectionError> {
        if !stream.is_bidirectional() {
            self.unidirectional.closed(stream)?;
            return Ok(false);
        }
        let Some(open) = self.streams.get(stream) else { return Ok(false) };
        if open.remote == Remote::Ended {
            return Ok(false);
        }
        // A request that is withdrawn before its response has cost us everything and the client nothing
        // (CVE-2023-44487).
        if !R::CLIENT && open.local != Local::Ended {
            self.budgets.spend(Flood::Resets)?;
        }
        self.abandon_receiving(stream);
        Ok(true)
    }

    /// The peer reads no more of what we send on a request's stream (STOP_SENDING): nothing can be sent.
    ///
    /// # Errors
    /// Too many streams were ended like this.
    pub fn peer_stopped(&mut self, stream: StreamId) -> Result<(), ConnectionError> {
        let Some(open) = self.streams.get_mut(stream) else { return Ok(()) };
        if open.local == Local::Ended {
            return Ok(());
        }
        open.turn.ready = false;
        let result = if R::CLIENT { Ok(()) } else { self.budgets.spend(Flood::Resets) };
        self.checked(result)
    }

    /// The peer reads no more of one of our unidirectional streams. Returns the error with which the connection ends.
    pub fn critical_stream_stopped(&mut self) -> ConnectionError {
        let error = ConnectionError::ClosedCriticalStream;
        self.failed = Some(error);
        error
    }

    /// No more of the peer's half of a stream will be passed in: it was reset or stopped. The stream remains for what
    /// is to be sent.
    pub fn abandon_receiving(&mut self, stream: StreamId) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        if !matches!(open.remote, Remote::Ended | Remote::Trailed) {
            self.decoder.cancel(stream);
        }
        let blocked = open.blocked.take().is_some();
        let kept = std::mem::take(&mut open.kept).len();
        open.remote = Remote::Ended;
        let is_over = open.local == Local::Ended;
        self.kept_bytes -= kept;
        self.blocked -= u16::from(blocked);
        if is_over {
            self.streams.remove(stream);
        }
    }

    /// The caller has ended both halves of a stream. No effect if it is closed.
    pub fn abandon(&mut self, stream: StreamId) {
        self.abandon_receiving(stream);
        self.streams.remove(stream);
    }

    /// The first step of a graceful end: asks the peer to open no more streams. Streams in transit are still served;
    /// [`Connection::shutdown`] follows after a round trip.
    pub fn announce_shutdown(&mut self) {
        let last = if R::CLIENT { 0 } else { StreamId::REQUEST_MAX.get() };
        if self.admitted.is_none() {
            write_number(&mut self.output, 0x7, last);
        }
    }

    /// Accepts no more streams; open ones continue. Streams that the peer opens from now on are rejected.
    pub fn shutdown(&mut self) {
        let first = StreamId::new(if R::CLIENT { 0 } else { self.next_remote });
        if self.admitted.is_none() {
            self.admitted = Some(first);
            write_number(&mut self.output, 0x7, first.get());
        }
    }

    /// Whether no more requests are taken: by us, or by the server. The GOAWAY of a client is about pushes.
    pub fn is_going_away(&self) -> bool {
        self.admitted.is_some() || (R::CLIENT && self.accepted.is_some())
    }

    /// Whether the peer's GOAWAY says that it has not processed the stream and never will.
    pub fn has_rejected(&self, stream: StreamId) -> bool {
        R::CLIENT && self.accepted.is_some_and(|first| stream >= first)
    }

    /// The number of open request streams.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// The open request streams, oldest first.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.streams.iter().map(|stream| stream.id)
    }

    /// The peer's unidirectional streams that are being read.
    pub fn unidirectional_streams(&self) -> Vec<StreamId> {
        self.unidirectional.all()
    }

    /// A stream whose section waited for insertions that have come: its input continues with
    /// [`Connection::receive`]. Asked after input of a unidirectional stream, until there is none.
    pub fn next_unblocked(&self) -> Option<StreamId> {
        if self.blocked == 0 {
            return None;
        }
        let inserted = self.decoder.inserted();
        let goes_on =
            |stream: &&StreamState| stream.blocked.is_some_and(|needed| needed <= inserted);
        self.streams.iter().find(goes_on).map(|stream| stream.id)
    }

    /// How much of a stream's content is to come, if its message says so.
    pub fn content_left(&self, stream: StreamId) -> Option<u64> {
        self.streams.get(stream)?.message.left()
    }

    /// Whether the peer's message is complete, or nothing more of it will come.
    pub fn has_ended(&self, stream: StreamId) -> bool {
        let remote = self.streams.get(stream).map(|open| open.remote);
        !matches!(remote, Some(Remote::Waiting | Remote::Open))
    }

    /// The peer's settings.
    pub fn peer(&self) -> &Settings {
        &self.peer
    }

    /// Our own settings and bounds.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Refills the budgets for time that has passed. Without it, only useful work does.
    pub fn elapse(&mut self, seconds: u32) {
        self.budgets.elapse(&self.limits, seconds);
    }

    /// Gives back memory that an idle connection doesn't need.
    pub fn shrink(&mut self) {
        self.output.shrink_to_fit();
        self.announced = Vec::new();
        self.streams.shrink();
        self.decoder.shrink();
        self.encoder.shrink();
    }

    /// Bytes of heap memory.
    pub fn heap(&self) -> usize {
        let announced = self.announced.capacity() * size_of::<(StreamId, Priority)>();
        self.output.capacity()
            + announced
            + self.control.heap()
            + self.unidirectional.heap()
            + self.streams.heap()
            + self.decoder.heap()
            + self.encoder.heap()
    }

    /// Adds a stream that we open.
    pub(crate) fn add_stream(&mut self, stream: StreamState) {
        self.streams.insert(stream);
    }

    /// Keeps an error: the connection can only be closed.
    fn checked<T>(&mut self, result: Result<T, ConnectionError>) -> Result<T, ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Err(error) = &result {
            self.failed = Some(*error);
        }
        result
    }

    /// The peer has broken the rules of a stream. A server may still respond to a malformed request.
    fn stream_error(
        &mut self,
        stream: StreamId,
        error: StreamError,
    ) -> Result<Event, ConnectionError> {
        // Provoking resets costs us as much as sending them (CVE-2025-8671).
        self.budgets.spend(Flood::Resets)?;
        let answerable = match self.streams.get_mut(stream) {
            Some(open)
                if !R::CLIENT && open.local != Local::Ended && error != StreamError::Incomplete =>
            {
                open.remote = Remote::Faulty(error.code());
                true
            }
            _ => false,
        };
        if !answerable {
            self.abandon(stream);
        }
        Ok(Event::StreamError { error, answerable })
    }

    /// The code with which the caller stops a stream after its response, because its request is malformed.
    pub fn fault(&self, stream: StreamId) -> Option<ErrorCode> {
        match self.streams.get(stream)?.remote {
            Remote::Faulty(code) => Some(code),
            _ => None,
        }
    }
}
